//! Runs what is missing, and stops a cell when it has been run enough.

use super::file::{Campaign, Cell};
use super::store::{CellId, Figures, Known, Store, hash};
use crate::commands::Failure;
use crate::output::OutputError;
use crate::progress::Progress;
use crate::run::{Options, Outcome, run as run_once};
use rayon::prelude::*;
use ringway_figures::statistics::StoppingRule;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Faults that are told; of more only how many there are.
const MAX_FAULTS: usize = 20;

/// What a campaign has come to.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The replications of each cell that count, from the first on.
    pub(crate) samples: Vec<Vec<Figures>>,
    /// Whether a cell came within its bound, where it has one.
    pub(crate) settled: Vec<bool>,
    /// Runs made now, and results that were there.
    pub(crate) ran: u64,
    pub(crate) reused: u64,
    pub(crate) faults: Vec<String>,
}

/// Names a cell as one build of the program runs it: another build, or anything else in the
/// scenario, is another cell.
fn id(cell: &Cell, build: &str) -> CellId {
    hash(format!("{build}\n{:?}", cell.scenario).as_bytes())
}

fn figures(outcome: &Outcome) -> Figures {
    let of_flow = |f: &crate::run::FlowMeasures| {
        f.values().map(|(name, value)| (format!("{}.{name}", f.flow), value)).collect::<Vec<_>>()
    };
    outcome.flows.iter().flat_map(of_flow).collect()
}

/// How many replications are enough, if those given are; by the first prefix that is, so that more
/// than needed change nothing.
fn enough(campaign: &Campaign, samples: &[Figures]) -> Option<(usize, bool)> {
    let (least, most) = (campaign.at_least as usize, campaign.at_most as usize);
    let rule = StoppingRule { at_least: least.max(2), within: campaign.within };
    let decides = campaign.measures.first().map_or("", String::as_str);
    let sample: Vec<f64> = samples.iter().map_while(|f| f.get(decides).copied()).collect();
    let mut n = least;
    while n <= samples.len().min(most) {
        if least == most || (sample.len() >= n && rule.met(&sample[..n])) {
            return Some((n, true));
        }
        // Looked at ever more seldom: each look costs as much as there are replications.
        n += (n / 20).max(1);
    }
    (samples.len() >= most).then_some((most, false))
}

/// How many replications a cell is run for next.
fn wanted(campaign: &Campaign, samples: &[Figures]) -> u64 {
    let (least, most) = (campaign.at_least, campaign.at_most);
    let have = samples.len() as u64;
    if have < least {
        return least;
    }
    let decides = campaign.measures.first().map_or("", String::as_str);
    let sample: Vec<f64> = samples.iter().filter_map(|f| f.get(decides).copied()).collect();
    let rule = StoppingRule { at_least: least as usize, within: campaign.within };
    let needed = rule.needed(&sample).map_or(most, |n| n as u64);
    // Not more than twice what is known: so early an estimate may be far off.
    needed.clamp(have + 1, (have * 2).max(have + 1)).min(most)
}

/// The replications of a cell that are known, from the first on without a gap.
fn prefix(known: &Known, cell: CellId, most: u64) -> Vec<Figures> {
    (0..most).map_while(|r| known.get(&(cell, r)).cloned()).collect()
}

/// Takes together what is known, without running anything.
pub(crate) fn gather(campaign: &Campaign, build: &str, known: &Known) -> Done {
    let mut done = Done::default();
    for cell in &campaign.cells {
        let mut samples = prefix(known, id(cell, build), campaign.at_most);
        let found = enough(campaign, &samples);
        if let Some((n, _)) = found {
            samples.truncate(n);
        }
        done.settled.push(found.is_some_and(|f| f.1));
        done.samples.push(samples);
    }
    done
}

/// Runs a campaign on so many threads (0 for one a core), in rounds: of each cell that has not been
/// run enough, as many replications as it seems to need.
pub(crate) fn run(
    campaign: &Campaign,
    build: &str,
    store: Store,
    mut known: Known,
    threads: usize,
    progress: &Progress,
) -> Result<Done, Failure> {
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
            if given_up[i] || enough(campaign, &samples).is_some() {
                expected += samples.len() as u64;
                continue;
            }
            let wanted = wanted(campaign, &samples);
            expected += wanted;
            tasks.extend((samples.len() as u64..wanted).map(|replication| (i, replication)));
        }
        if tasks.is_empty() {
            break;
        }
        let there = expected - tasks.len() as u64;
        progress.say(format!("{there} of {expected} runs, {} cells", ids.len()));
        let finished = AtomicU64::new(0);
        let results: Vec<Option<((CellId, u64), Figures)>> = pool.install(|| {
            let one = |(i, replication): (usize, u64)| {
                let options = Options { replication, ..Options::default() };
                let outcome = run_once(&campaign.cells[i].scenario, &options, |_| ());
                let done = finished.fetch_add(1, Ordering::Relaxed) + 1;
                progress.set((there + done) as f64 / expected as f64);
                progress.say(format!("{} of {expected} runs, {} cells", there + done, ids.len()));
                let figures = match outcome {
                    Ok(outcome) => figures(&outcome),
                    Err(error) => {
                        let name = campaign.name(&campaign.cells[i]);
                        note(&faults, format!("{name}, replication {replication}: {error}"));
                        return None;
                    }
                };
                made.fetch_add(1, Ordering::Relaxed);
                // A lock is poisoned only by a panic while it is held, which adding has none of.
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
                // It would fail the next time as well.
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
