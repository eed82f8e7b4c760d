//! Many runs of one experiment, on all cores.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use ringway_link::{Generator, Streams};
use std::ops::Range;

/// The reason why replications could not be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {threads} threads: {source}")]
pub struct ThreadsError {
    threads: usize,
    source: rayon::ThreadPoolBuildError,
}

/// Runs `run` once for each replication of the experiment `seed`, with the streams of that replication,
/// on `threads` threads (0 for one per core). Results are in the order of replications.
///
/// A replication depends only on its streams, so its result is the same for any number of threads, and
/// for any split of the range into separate runs.
pub fn replicate<T: Send>(
    seed: u64,
    generator: Generator,
    replications: Range<u64>,
    threads: usize,
    run: impl Fn(Streams) -> T + Sync + Send,
) -> Result<Vec<T>, ThreadsError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|source| ThreadsError { threads, source })?;
    Ok(pool.install(|| {
        replications
            .into_par_iter()
            .map(|replication| run(Streams::new(seed, replication).with(generator)))
            .collect()
    }))
}
