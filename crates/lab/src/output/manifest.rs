//! How a result came about.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// The file of a [`Manifest`].
pub const FILE: &str = "manifest.json";

/// Everything needed to get the same result again; all but `host` is the same each time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// What was done: `run`, `sweep`, `paper`.
    pub kind: String,
    /// The program's version.
    pub version: String,
    /// What was run: a built-in name or a file.
    pub what: String,
    /// The seed.
    pub seed: u64,
    /// How often.
    pub replications: u64,
    /// What else was chosen.
    pub parameters: serde_json::Value,
    /// Where and when.
    pub host: Host,
}

/// Where and when it was run. Nothing of it changes a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Operating system and architecture.
    pub system: String,
    /// Which build of the program, by a hash of it: results of a campaign are kept for one build.
    pub build: String,
    /// Processors.
    pub processors: usize,
    /// Seconds since the epoch.
    pub at: u64,
    /// How long it took, in seconds.
    pub took: f64,
}

/// The version results are kept for.
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

/// Names this build of the program by a hash of its file, or by its version where that cannot be
/// read.
pub fn build() -> String {
    let file = std::env::current_exe().and_then(std::fs::read);
    file.map_or_else(|_| version(), |bytes| format!("{:016x}", crate::campaign::hash(&bytes)))
}

/// This host now.
pub fn host(took: f64) -> Host {
    Host {
        system: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        build: build(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        took,
    }
}
