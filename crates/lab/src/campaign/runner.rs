//! Runs the missing replications of each cell until its stopping rule is met.

use super::file::{Campaign, Cell};
use super::store::{CellId, Figures, KnownResults, Store, hash};
use crate::commands::Failure;
use crate::output::OutputError;
use crate::progress::Progress;
use crate::run::{Options, Outcome, run as run_once};
use rayon::prelude::*;
use ringway_figures::statistics::StoppingRule;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of faults that are reported; of further ones only the number.
const MAX_FAULTS: usize = 20;

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

/// Returns the id of a cell for one build of the program. Another build, or any change of the
/// scenario, gives another id.
fn id(cell: &Cell, build: &str) -> CellId {
    hash(format!("{build}\n{:?}", cell.scenario).as_bytes())
}

fn figures(outcome: &Outcome) -> Figures {
    let of_flow = |f: &crate::run::FlowMeasures| {
        f.values().map(|(name, value)| (format!("{}.{name}", f.flow), value)).collect::<Vec<_>>()
    };
    outcome.flows.iter().flat_map(of_flow).collect()
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

/// Returns the known replications of a cell, from the first one to the first gap.
fn prefix(known: &KnownResults, cell: CellId, max: u64) -> Vec<Figures> {
    (0..max).map_while(|r| known.get(&(cell, r)).cloned()).collect()
}

/// Collects the known results without running anything.
pub(crate) fn gather(campaign: &Campaign, build: &str, known: &KnownResults) -> CampaignResults {
    let mut done = CampaignResults::default();
    for cell in &campaign.cells {
        let mut samples = prefix(known, id(cell, build), campaign.at_most);
        let found = sufficient_replications(campaign, &samples);
        if let Some((n, _)) = found {
            samples.truncate(n);
        }
        done.settled.push(found.is_some_and(|f| f.1));
        done.samples.push(samples);
    }
    done
}

/// Runs a campaign on `threads` threads (0 for one per core), in rounds. In each round every
/// unfinished cell gets as many replications as it is estimated to need.
pub(crate) fn run(
    campaign: &Campaign,
    build: &str,
    store: Store,
    mut known: KnownResults,
    threads: usize,
    progress: &Progress,
) -> Result<CampaignResults, Failure> {
    let failed = |error: OutputError| Failure::Failed(vec![error.to_string()]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| Failure::Failed(vec![format!("cannot start threads: {e}")]))?;
    let store = Mutex::new(store);
    let ids: Vec<CellId> = campaign.cells.iter().map(|c| id(c, build)).collect();
    let was_known: u64 =
        ids.iter().map(|id| prefix(&known, *id, campaign.at_most).len() as u64).sum();
    let made = AtomicU64::new(0);
    let faults: Mutex<Vec<String>> = Mutex::default();
    let mut given_up = vec![false; ids.len()];
    loop {
        let mut tasks = Vec::new();
        let mut expected = 0;
        for (i, cell) in ids.iter().enumerate() {
            let samples = prefix(&known, *cell, campaign.at_most);
            if given_up[i] || sufficient_replications(campaign, &samples).is_some() {
                expected += samples.len() as u64;
                continue;
            }
            let target = needed_replications(campaign, &samples);
            expected += target;
            tasks.extend((samples.len() as u64..target).map(|replication| (i, replication)));
        }
        if tasks.is_empty() {
            break;
        }
        let there = expected - tasks.len() as u64;
        progress.set_text(format!("{there} of {expected} runs, {} cells", ids.len()));
        let finished = AtomicU64::new(0);
        let results: Vec<Option<((CellId, u64), Figures)>> = pool.install(|| {
            let one = |(i, replication): (usize, u64)| {
                let options = Options { replication, ..Options::default() };
                let outcome = run_once(&campaign.cells[i].scenario, &options, |_| ());
                let done = finished.fetch_add(1, Ordering::Relaxed) + 1;
                progress.set((there + done) as f64 / expected as f64);
                progress.set_text(format!(
                    "{} of {expected} runs, {} cells",
                    there + done,
                    ids.len()
                ));
                let figures = match outcome {
                    Ok(outcome) => figures(&outcome),
                    Err(error) => {
                        let name = campaign.name(&campaign.cells[i]);
                        note(&faults, format!("{name}, replication {replication}: {error}"));
                        return None;
                    }
                };
                made.fetch_add(1, Ordering::Relaxed);
                // A lock is poisoned only by a panic while it is held, and adding does not panic.
                let added = store.lock().map(|mut s| s.add(ids[i], replication, &figures));
                if let Ok(Err(error)) = added {
                    note(&faults, error.to_string());
                    return None;
                }
                Some(((ids[i], replication), figures))
            };
            tasks.par_iter().copied().map(one).collect()
        });
        if let Ok(store) = store.lock() {
            store.sync().map_err(failed)?;
        }
        for (task, result) in tasks.iter().zip(results) {
            match result {
                Some((key, figures)) => drop(known.insert(key, figures)),
                // A run that failed would fail again.
                None => given_up[task.0] = true,
            }
        }
    }
    let mut done = gather(campaign, build, &known);
    done.ran = made.into_inner();
    done.reused = was_known;
    done.faults = faults.into_inner().unwrap_or_default();
    done.faults.sort();
    if done.faults.len() > MAX_FAULTS {
        let more = done.faults.len() - MAX_FAULTS;
        done.faults.truncate(MAX_FAULTS);
        done.faults.push(format!("{more} more runs failed"));
    }
    Ok(done)
}

fn note(faults: &Mutex<Vec<String>>, fault: String) {
    if let Ok(mut faults) = faults.lock() {
        faults.push(fault);
    }
}
