//! How the mesh grows: routers on graphs of several kinds and sizes, from their start to rest, and under faults.
//!
//! A scenario with a section `[mesh]` is one of these. [`Settings`] is that section, `world` measures one
//! network, and `sheet` makes tables and figures of all of them.

mod kind;
mod settings;
mod sheet;
mod world;

pub use kind::{Kind, Shape};
pub use settings::{Settings, is_scale};
pub use sheet::{long_table, sheet, summary_table};
pub use world::{MEASURES, Measure, Outcome};

use crate::progress::Progress;
use crate::run::RunError;
use rayon::prelude::*;

/// Routers from which on one network is simulated at a time, for the sake of memory.
const LARGE: u32 = 30_000;

/// The results of one shape and size over all replications.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The shape, or the name of a map.
    pub shape: String,
    /// The configured number of routers; of a map, its own.
    pub size: u32,
    /// By replication.
    pub outcomes: Vec<Outcome>,
}

/// Simulates all networks. Results do not depend on the number of threads.
pub fn run(
    settings: &Settings,
    seed: u64,
    replications: u64,
    progress: &Progress,
) -> Result<Vec<Cell>, RunError> {
    let kinds = settings.kinds();
    let mut jobs: Vec<(usize, u64)> =
        (0..kinds.len()).flat_map(|cell| (0..replications).map(move |r| (cell, r))).collect();
    // The largest first, so that no core is left alone with them at the end.
    jobs.sort_by_key(|(cell, _)| std::cmp::Reverse(kinds[*cell].size()));
    let total: f64 = jobs.iter().map(|(cell, _)| f64::from(kinds[*cell].size())).sum();
    let one = |&(cell, replication): &(usize, u64)| {
        let kind = &kinds[cell];
        let outcome = world::measure(settings, kind, seed, replication);
        progress.add(f64::from(kind.size()) / total);
        Ok(((cell, replication), outcome?))
    };
    let (large, others): (Vec<_>, Vec<_>) =
        jobs.into_iter().partition(|(cell, _)| kinds[*cell].size() > LARGE);
    let mut done: Vec<_> = large.iter().map(one).collect::<Result<_, RunError>>()?;
    done.extend(others.par_iter().map(one).collect::<Result<Vec<_>, RunError>>()?);
    done.sort_by_key(|(position, _)| *position);
    let mut done = done.into_iter();
    let cells = kinds.iter().map(|kind| Cell {
        shape: kind.name(),
        size: kind.size(),
        outcomes: done.by_ref().take(replications as usize).map(|(_, outcome)| outcome).collect(),
    });
    Ok(cells.collect())
}
