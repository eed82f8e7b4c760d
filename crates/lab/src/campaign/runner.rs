//! Runs the missing replications of each cell until its stopping rule is met.

use super::file::Campaign;
use super::plan::{CampaignResults, Plan};
use super::store::{CellId, Figures, KnownResults, Store, line};
use crate::commands::Failure;
use crate::output::OutputError;
use crate::progress::Progress;
use crate::run::{Options, Outcome, RunError, run as run_once};
use crate::watch;
use rayon::prelude::*;
use ringway_sim::Interrupt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of faults that are reported; of further ones only the number.
const MAX_FAULTS: usize = 20;

fn figures(outcome: &Outcome) -> Figures {
    let of_flow = |f: &crate::run::FlowMeasures| {
        f.values().map(|(name, value)| (format!("{}.{name}", f.flow), value)).collect::<Vec<_>>()
    };
    outcome.flows.iter().flat_map(of_flow).collect()
}

/// Runs one replication of a cell.
fn run_replication(campaign: &Campaign, cell: usize, replication: u64) -> Result<Figures, String> {
    let options = Options { replication, ..Options::default() };
    let cell = &campaign.cells[cell];
    let failed =
        |error: RunError| format!("{}, replication {replication}: {error}", campaign.name(cell));
    Ok(figures(&run_once(&cell.scenario, &options, |_| ()).map_err(failed)?))
}

/// Runs one replication of a cell, and returns its line in the file of results.
pub(crate) fn run_line(
    campaign: &Campaign,
    build: &str,
    cell: usize,
    replication: u64,
) -> Result<String, String> {
    let figures = run_replication(campaign, cell, replication)?;
    Ok(line(super::plan::id(&campaign.cells[cell], build), replication, &figures))
}

/// Runs a campaign on `threads` threads (0 for one per core), in rounds. In each round every
/// unfinished cell gets as many replications as it is estimated to need.
pub(crate) fn run(
    campaign: &Campaign,
    build: &str,
    store: Store,
    known: KnownResults,
    threads: usize,
    progress: &Progress,
) -> Result<CampaignResults, Failure> {
    let failed = |error: OutputError| Failure::Failed(vec![error.to_string()]);
    let pool = watch::pool(threads);
    let pool = pool.map_err(|e| Failure::Failed(vec![format!("cannot start threads: {e}")]))?;
    let interrupt = Interrupt::current();
    let store = Mutex::new(store);
    let mut plan = Plan::new(campaign, build, known);
    let faults: Mutex<Vec<String>> = Mutex::default();
    loop {
        let (expected, tasks) = round(campaign, &plan);
        if tasks.is_empty() {
            break;
        }
        let there = expected - tasks.len() as u64;
        let finished = AtomicU64::new(there);
        let show = |done: u64| {
            progress.set(done as f64 / expected as f64);
            progress.set_text(format!("{done} of {expected} runs, {} cells", campaign.cells.len()));
        };
        show(there);
        let one = |(cell, replication): (usize, u64)| {
            if interrupt.is_set() {
                return None;
            }
            let result = run_replication(campaign, cell, replication);
            show(finished.fetch_add(1, Ordering::Relaxed) + 1);
            let figures = result.map_err(|fault| note(&faults, fault)).ok()?;
            let id = plan.ids()[cell];
            // A lock is poisoned only by a panic while it is held, and adding does not panic.
            let added = store.lock().map(|mut s| s.add(id, replication, &figures));
            if let Ok(Err(error)) = added {
                note(&faults, error.to_string());
                return None;
            }
            Some((id, replication, figures))
        };
        let results: Vec<Option<(CellId, u64, Figures)>> =
            pool.install(|| tasks.par_iter().copied().map(one).collect());
        if let Ok(store) = store.lock() {
            store.sync().map_err(failed)?;
        }
        if interrupt.is_set() {
            return Err(RunError::from(ringway_sim::Error::Interrupted).into());
        }
        for (task, result) in tasks.iter().zip(results) {
            match result {
                Some((id, replication, figures)) => drop(plan.add(id, replication, figures)),
                None => plan.give_up(task.0),
            }
        }
    }
    let store = store.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    store.put_in_order(plan.ids(), plan.known()).map_err(failed)?;
    let mut done = plan.gather(campaign);
    done.faults = bounded(faults.into_inner().unwrap_or_default());
    Ok(done)
}

/// Returns the number of runs that are expected in all, and the replications of a round.
fn round(campaign: &Campaign, plan: &Plan) -> (u64, Vec<(usize, u64)>) {
    let mut tasks = Vec::new();
    let mut expected = 0;
    for cell in 0..campaign.cells.len() {
        let (_, next) = plan.next(campaign, cell);
        expected += next.end;
        tasks.extend(next.map(|replication| (cell, replication)));
    }
    (expected, tasks)
}

/// Returns the faults in order, and at most so many of them.
pub(crate) fn bounded(mut faults: Vec<String>) -> Vec<String> {
    faults.sort();
    if faults.len() > MAX_FAULTS {
        let more = faults.len() - MAX_FAULTS;
        faults.truncate(MAX_FAULTS);
        faults.push(format!("{more} more runs failed"));
    }
    faults
}

fn note(faults: &Mutex<Vec<String>>, fault: String) {
    if let Ok(mut faults) = faults.lock() {
        faults.push(fault);
    }
}
