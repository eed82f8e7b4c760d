//! What each cell of a campaign has, and which replications it needs next.
//!
//! The answer depends only on the cell's own results, from the first replication to the first gap. So
//! it is the same for any order in which results come, and for any number of workers.

use super::file::{Campaign, Cell};
use super::store::{CellId, Figures, KnownResults, hash};
use ringway_figures::statistics::StoppingRule;
use std::ops::Range;

/// Results of a campaign.
#[derive(Debug, Default)]
pub(crate) struct CampaignResults {
    /// Figures of the replications that count, for each cell, without gaps.
    pub(crate) samples: Vec<Vec<Figures>>,
    /// Whether each cell met its stopping rule, if it has one.
    pub(crate) settled: Vec<bool>,
    /// Number of runs made now, and of results that were in the file.
    pub(crate) ran: u64,
    pub(crate) reused: u64,
    pub(crate) faults: Vec<String>,
}

/// The results of each cell so far.
#[derive(Debug)]
pub(crate) struct Plan {
    ids: Vec<CellId>,
    known: KnownResults,
    /// Cells of which a run has failed: it would fail again.
    given_up: Vec<bool>,
    reused: u64,
    ran: u64,
}

impl Plan {
    /// Begins with the results of a file.
    pub(crate) fn new(campaign: &Campaign, build: &str, known: KnownResults) -> Self {
        let ids: Vec<CellId> = campaign.cells.iter().map(|cell| id(cell, build)).collect();
        let given_up = vec![false; ids.len()];
        let mut plan = Plan { ids, known, given_up, reused: 0, ran: 0 };
        plan.reused = (0..plan.ids.len()).map(|i| plan.prefix(campaign, i).len() as u64).sum();
        plan
    }

    /// Returns the id of each cell.
    pub(crate) fn ids(&self) -> &[CellId] {
        &self.ids
    }

    /// Returns all results, also those of other campaigns in the file.
    pub(crate) fn known(&self) -> &KnownResults {
        &self.known
    }

    /// Returns the number of replications of a cell without a gap, and those to run next, if any.
    pub(crate) fn next(&self, campaign: &Campaign, cell: usize) -> (u64, Range<u64>) {
        let samples = self.prefix(campaign, cell);
        let have = samples.len() as u64;
        let done = self.given_up[cell] || sufficient_replications(campaign, &samples).is_some();
        (have, have..if done { have } else { needed_replications(campaign, &samples) })
    }

    /// Adds a result of a run; returns whether it was new.
    pub(crate) fn add(&mut self, cell: CellId, replication: u64, figures: Figures) -> bool {
        let new = self.known.insert((cell, replication), figures).is_none();
        self.ran += u64::from(new);
        new
    }

    /// Returns whether the result of a run is known.
    pub(crate) fn has(&self, cell: CellId, replication: u64) -> bool {
        self.known.contains_key(&(cell, replication))
    }

    /// Ends a cell of which a run has failed.
    pub(crate) fn give_up(&mut self, cell: usize) {
        self.given_up[cell] = true;
    }

    /// Collects the results that count.
    pub(crate) fn gather(&self, campaign: &Campaign) -> CampaignResults {
        let (reused, ran) = (self.reused, self.ran);
        let mut done = CampaignResults { reused, ran, ..CampaignResults::default() };
        for cell in 0..self.ids.len() {
            let mut samples = self.prefix(campaign, cell);
            let found = sufficient_replications(campaign, &samples);
            if let Some((n, _)) = found {
                samples.truncate(n);
            }
            done.settled.push(found.is_some_and(|f| f.1));
            done.samples.push(samples);
        }
        done
    }

    /// Returns the known replications of a cell, from the first one to the first gap.
    fn prefix(&self, campaign: &Campaign, cell: usize) -> Vec<Figures> {
        let of = |r| self.known.get(&(self.ids[cell], r)).cloned();
        (0..campaign.at_most).map_while(of).collect()
    }
}

/// Returns the id of a cell for one build of the program. Another build, or any change of the
/// scenario, has another id.
pub(super) fn id(cell: &Cell, build: &str) -> CellId {
    hash(format!("{build}\n{:?}", cell.scenario).as_bytes())
}

/// Returns how many replications are sufficient, and whether the stopping rule was met. The first
/// sufficient prefix counts, so that surplus replications change nothing.
fn sufficient_replications(campaign: &Campaign, samples: &[Figures]) -> Option<(usize, bool)> {
    let (min, max) = (campaign.at_least as usize, campaign.at_most as usize);
    let rule = StoppingRule { at_least: min.max(2), within: campaign.within };
    let decides = campaign.measures.first().map_or("", String::as_str);
    let sample: Vec<f64> = samples.iter().map_while(|f| f.get(decides).copied()).collect();
    let mut n = min;
    while n <= samples.len().min(max) {
        if min == max || (sample.len() >= n && rule.met(&sample[..n])) {
            return Some((n, true));
        }
        // Tests become rarer: the cost of each grows with the number of replications.
        n += (n / 20).max(1);
    }
    (samples.len() >= max).then_some((max, false))
}

/// Returns how many replications of a cell to have next.
fn needed_replications(campaign: &Campaign, samples: &[Figures]) -> u64 {
    let (min, max) = (campaign.at_least, campaign.at_most);
    let have = samples.len() as u64;
    if have < min {
        return min;
    }
    let decides = campaign.measures.first().map_or("", String::as_str);
    let sample: Vec<f64> = samples.iter().filter_map(|f| f.get(decides).copied()).collect();
    let rule = StoppingRule { at_least: min as usize, within: campaign.within };
    let needed = rule.needed(&sample).map_or(max, |n| n as u64);
    // At most twice the number of known ones, because an early estimate may be far off.
    needed.clamp(have + 1, (have * 2).max(have + 1)).min(max)
}
