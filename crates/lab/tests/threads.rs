//! The output depends on the seed only, not on the number of threads.

#![allow(clippy::unwrap_used)]

use ringway_lab::commands::{self, RunArgs, SweepArgs};
use std::collections::BTreeMap;
use std::path::Path;

/// Calls a function on a number of threads.
fn on<T: Send>(threads: usize, what: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(what)
}

/// Returns every file that a command wrote, without the host part of the manifest.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else if !path.ends_with("manifest.json") {
            all.insert(
                path.file_name().unwrap().to_str().unwrap().into(),
                std::fs::read(&path).unwrap(),
            );
        }
    }
    all
}

/// A scenario and a campaign: every file has the same bytes, including figures.
#[test]
fn output_is_equal_on_one_thread_and_two() {
    let dir = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for (n, threads) in [1, 2].into_iter().enumerate() {
        let at = |what: &str| Some(dir.path().join(format!("{what}-{n}")));
        let run = |what: &str, reps| RunArgs {
            scenario: what.into(),
            out: at(what),
            reps: Some(reps),
            ..RunArgs::default()
        };
        on(threads, || {
            commands::run(&run("calls", 4)).unwrap();
            commands::run(&run("two-cables", 2)).unwrap();
        });
        let what = "hung-khanh-loss";
        let sweep = SweepArgs {
            campaign: what.into(),
            out: at(what),
            reps: Some(2),
            threads,
            ..SweepArgs::default()
        };
        commands::sweep(&sweep).unwrap();
        let all = ["calls", "two-cables", what].map(|what| files(&at(what).unwrap()));
        written.push(all);
    }
    assert!(written[0][0].contains_key("message-delay-tail.svg"), "{:?}", written[0][0].keys());
    for other in &written[1..] {
        for (a, b) in written[0].iter().zip(other) {
            assert!(a.keys().eq(b.keys()));
            for (name, bytes) in a {
                assert!(b[name] == *bytes, "{name} differs");
            }
        }
    }
}
