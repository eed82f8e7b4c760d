//! What a node of a cluster reads from its database: leases, records, messages and answers, which others may have written,
//! step by step. The steps and what is checked are those of the tests of `crates/cluster`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/cluster/tests/steps/mod.rs"]
mod steps;

fuzz_target!(|data: &[u8]| {
    steps::run(data);
    if let Ok(letter) = ringway_cluster::Letter::parse(data) {
        assert_eq!(ringway_cluster::Letter::parse(&letter.to_bytes()), Ok(letter));
    }
});
