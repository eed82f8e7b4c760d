//! Faults: peers that are not there or do not read, paths that come and go, forks, signals, no descriptors.
//!
//! Each test runs in a process and a network namespace of its own, so that descriptors and tasks can be counted.
#![allow(clippy::unwrap_used)]

#[path = "../../../os/tests/support/mod.rs"]
mod os;
#[path = "../support/mod.rs"]
mod support;

mod connecting;
mod exhaustion;
mod forks;
mod paths;
mod server;
mod signals;
mod stalls;

use std::future::Future;

/// Runs a test in a process and a namespace of its own, with a loopback interface.
fn alone<F: Future<Output = ()>>(test: &str, run: impl FnOnce() -> F) {
    if !os::inside_a_namespace(test) {
        return;
    }
    os::ip("link set lo up");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(run());
}
