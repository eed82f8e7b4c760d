//! The memory of a host that reads nothing and a hostile peer, counted at the allocator, including the
//! allocator's cost of each allocation.

#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use ringway_sctp::Settings;
use ringway_sctp::wire::chunk::kind;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use support::*;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const BUFFER: usize = 1 << 20;
/// What an association may hold with its receive buffer full, in percent of it; twice the buffer is what
/// may fill gaps.
const MOST: usize = 800;
/// Bytes that an allocator keeps beside each piece, and rounds it up by, at most.
const PIECE: usize = 24;
/// The highest TSN, as far ahead as one may be.
const TOP: usize = 60_000;

fn held() -> usize {
    let stats = ALLOCATOR.stats();
    let pieces = stats.allocations - stats.deallocations;
    stats.bytes_allocated - stats.bytes_deallocated + pieces * PIECE
}

/// A way to fill a buffer: its name, whether messages are interleaved, whether the highest TSN comes first, so
/// that all others fill a gap, and the chunk of a number from 0 on.
type Way = (&'static str, bool, bool, fn(usize, usize) -> String);

const WAYS: [Way; 11] = [
    ("in order", false, false, |n, size| format!("DATA {} BE 0:{n} {size}", n + 1)),
    ("in order below the highest", false, true, |n, size| {
        format!("DATA {} BE 0:{n} {size}", n + 1)
    }),
    ("unordered", false, false, |n, size| format!("DATA {} BEU 0:0 {size}", n + 2)),
    ("unordered below the highest", false, true, |n, size| {
        format!("DATA {} BEU 0:0 {size}", n + 2)
    }),
    ("waiting for their turn", false, false, |n, size| {
        format!("DATA {} BE 0:{} {size}", n + 2, n + 1)
    }),
    ("beginnings", false, true, |n, size| format!("DATA {} B 0:{} {size}", n + 2, n + 1)),
    ("fragments of one", false, true, |n, size| format!("DATA {} - 0:1 {size}", n + 2)),
    ("interleaved beginnings", true, false, |n, size| format!("IDATA {} BU 0:{n}:0 {size}", n + 1)),
    ("interleaved ends below the highest", true, true, |n, size| {
        format!("IDATA {} EU 0:{n}:9 {size}", n + 1)
    }),
    ("interleaved fragments of one", true, true, |n, size| {
        format!("IDATA {} U 0:0:{} {size}", n + 1, n + 1)
    }),
    ("interleaved, waiting for their turn", true, true, |n, size| {
        format!("IDATA {} BE 0:{}:0 {size}", n + 2, n + 1)
    }),
];

/// Fills a buffer with chunks of a size and returns the bytes allocated then.
fn hoard((_, interleaving, top, chunk): Way, size: usize) -> usize {
    let mut s =
        Script::new(Settings { interleaving, receive_buffer: BUFFER, ..Settings::default() });
    s.extensions = vec![kind::RE_CONFIG, kind::I_DATA, kind::I_FORWARD_TSN];
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.sent.clear();
    if top {
        s.give(&chunk(TOP, size));
    }
    let all = (3 * BUFFER / size).min(TOP - 2);
    let packet = (60_000 / (size + 24)).min(all);
    for first in (0..all).step_by(packet) {
        let lines: Vec<String> = (first..first + packet).map(|n| chunk(n, size)).collect();
        s.give(&lines.join(" + "));
        s.sent.clear();
    }
    assert!(s.sctp.snapshot(s.id()).unwrap().totals.dropped > 0, "the buffer is not full");
    let full = held();
    s.sctp = host(4, Settings::default());
    let empty = held();
    full.saturating_sub(empty)
}

/// RFC 9260 section 6.2: what waits takes no more than so many times the receive buffer, whatever the
/// chunks are.
#[test]
fn a_hoard_is_bounded() {
    let mut wrong = Vec::new();
    for way in WAYS {
        for size in [1, 60, 300, 1400] {
            let percent = hoard(way, size) * 100 / BUFFER;
            if percent > MOST {
                wrong.push((way.0, size, percent));
            }
        }
    }
    assert!(wrong.is_empty(), "per cent of the buffer: {wrong:?}");
}
