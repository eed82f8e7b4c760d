//! Two hosts with settings, wires and users drawn from a seed.
//!
//! A run has three parts: users do at random whatever the calls allow while wires and clocks
//! misbehave (`user`, `wires`); then the wires heal and everything sent must arrive (`ending`); then
//! the association ends and nothing may be left of it. `plan` draws what a seed stands for, `ledger`
//! holds what must be true of messages, and `world` is the two hosts in virtual time. What is not
//! demanded is said where it would be, with the reason.
//!
//! `RANDOM_FROM` and `RANDOM_SEEDS` choose the seeds, and `RANDOM_LOG=1` prints all events:
//!
//! ```sh
//! RANDOM_FROM=12539 RANDOM_SEEDS=1 RANDOM_LOG=1 cargo test -p ringway-sctp --test random -- --nocapture
//! ```

#![allow(unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

#[path = "../support/mod.rs"]
mod support;

mod ending;
mod ledger;
mod plan;
mod removal;
mod user;
mod wires;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// Seeds of a run of the suite: what takes a few seconds.
const SEEDS: u64 = 150;
/// Characters of a failure that are printed, and those by which seeds are put together.
const SHOWN: usize = 300;
const KIND: usize = 50;

fn run(seed: u64, log: bool) {
    let mut world = World::new(seed, log);
    world.open();
    world.live();
    world.heal();
    world.settle();
    world.end();
}

/// Returns the message of a panic.
fn reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no words").replace('\n', " ")
}

/// Two of four addresses are removed in the middle of a load.
fn run_removal(seed: u64, log: bool) {
    let mut world = World::with_four_addresses(seed, log);
    world.open();
    world.remove_under_load();
    world.heal();
    world.settle();
    world.end();
}

/// RFC 9260 and its extensions, all at once: every message arrives once, complete and in its stream's
/// order or is reported as lost, both ends shut down gracefully, and no state is left.
#[test]
fn messages_arrive_or_are_reported_lost_and_the_association_ends() {
    run_seeds(run);
}

/// RFC 5061, RFC 9260 sections 8.1 and 8.2: an association with two good paths survives the removal of
/// two of four addresses under load.
#[test]
fn an_association_outlives_two_of_four_addresses() {
    run_seeds(run_removal);
}

/// Runs the seeds that are asked for.
fn run_seeds(run: fn(u64, bool)) {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let from = variable("RANDOM_FROM").unwrap_or(0);
    let count = variable("RANDOM_SEEDS").unwrap_or(SEEDS);
    let log = variable("RANDOM_LOG").is_some();
    let mut failed: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for seed in from..from + count {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, log))) {
            let reason = reason(&*panic);
            println!("seed {seed}: {}", reason.chars().take(SHOWN).collect::<String>());
            let words = reason.chars().filter(|c| !c.is_ascii_digit());
            failed.entry(words.take(KIND).collect()).or_default().push(seed);
        }
    }
    for (kind, seeds) in &failed {
        println!("{} seeds: {kind}: {seeds:?}", seeds.len());
    }
    assert!(failed.is_empty(), "{} of {count} seeds fail", failed.values().flatten().count());
}
