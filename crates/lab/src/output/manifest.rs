//! The manifest: how a result was produced.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the file of a [`Manifest`].
pub const FILE: &str = "manifest.json";

/// Everything needed to reproduce a result; all fields but `host` are equal each time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The command: `run`, `sweep`, `paper`.
    pub kind: String,
    /// Version of the program.
    pub version: String,
    /// Name of the built-in file, or path of the file.
    pub what: String,
    /// The seed.
    pub seed: u64,
    /// Number of replications.
    pub replications: u64,
    /// Other parameters.
    pub parameters: serde_json::Value,
    /// Host and time.
    pub host: Host,
}

/// Host and time of the run. They do not affect any figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Operating system and architecture.
    pub system: String,
    /// Hash of the program's file; results of a campaign are valid for one build.
    pub build: String,
    /// Number of processors.
    pub processors: usize,
    /// Time of the run in seconds since the epoch.
    pub at: u64,
    /// Duration in seconds.
    pub took: f64,
}

/// Returns the version of the program.
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the file that holds the program, for [`build`]: a library, if that is what the laboratory is
/// loaded from. The first call counts.
pub fn set_program(path: PathBuf) {
    // A later call names the same file.
    let _ = PROGRAM.set(path);
}

/// Returns the hash of the program's file, or its version if the file cannot be read.
pub fn build() -> String {
    static BUILD: OnceLock<String> = OnceLock::new();
    let hash = |bytes: Vec<u8>| format!("{:016x}", crate::campaign::hash(&bytes));
    let read = || match PROGRAM.get() {
        Some(path) => std::fs::read(path),
        None => std::env::current_exe().and_then(std::fs::read),
    };
    BUILD.get_or_init(|| read().map_or_else(|_| version(), hash)).clone()
}

/// Describes this host and the present time.
pub fn host(took: f64) -> Host {
    Host {
        system: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        build: build(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        took,
    }
}
