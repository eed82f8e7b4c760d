//! What an idle association holds, counted where memory is handed out: its own parts, and its share
//! of the tables of its host. The allocator's own cost of each piece is added.

#![allow(clippy::unwrap_used)]

use ringway_sansio::{Duration, Endpoint, SplitMix, Time};
use ringway_sctp::{AssocId, Event, Limits, Sctp, SendOptions, Settings};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::net::IpAddr;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const PORT: u16 = 5060;

/// Associations of each host. The hash tables are at most half empty with so many.
const COUNT: usize = 10_000;
/// Bytes that an allocator keeps beside each piece, and rounds it up by, at most.
const PIECE: usize = 24;
/// What an association may take, in bytes.
const BOUND: usize = 2320;

fn host(seed: u64) -> Sctp {
    Sctp::new(Limits::default(), Settings::default(), Box::new(SplitMix::new(seed))).unwrap()
}

/// Bytes that are handed out now.
fn held() -> usize {
    let stats = ALLOCATOR.stats();
    let pieces = stats.allocations - stats.deallocations;
    stats.bytes_allocated - stats.bytes_deallocated + pieces * PIECE
}

/// Exchanges packets until neither host has more. Returns the associations that came up and those that
/// can be read from, of both.
fn settle(hosts: &mut [Sctp; 2], now: Time) -> [Vec<AssocId>; 2] {
    let mut buffer = Vec::new();
    let mut quiet = false;
    while !quiet {
        quiet = true;
        for from in [0, 1] {
            while let Some(way) = hosts[from].poll_transmit(now, &mut buffer) {
                hosts[1 - from].handle_packet(now, way, &buffer);
                buffer.clear();
                quiet = false;
            }
        }
    }
    let mut told = [Vec::new(), Vec::new()];
    for (host, told) in hosts.iter_mut().zip(&mut told) {
        while let Some(event) = host.poll_event() {
            match event {
                Event::Up { id, .. } | Event::Readable(id) => told.push(id),
                _ => {}
            }
        }
    }
    told
}

/// Returns the memory of each association of each host, measured by dropping the hosts.
fn weigh(hosts: [Sctp; 2]) -> [usize; 2] {
    hosts.map(|host| {
        assert_eq!(host.len(), COUNT);
        let before = held();
        drop(host);
        (before - held()) / COUNT
    })
}

/// One message each way for each, and then rest.
fn talk(hosts: &mut [Sctp; 2], ids: &[Vec<AssocId>; 2], mut now: Time) {
    let mut out = Vec::new();
    for (a, b) in ids[0].iter().zip(&ids[1]) {
        for (host, id) in [(0, a), (1, b)] {
            let data = vec![7; 300];
            hosts[host].send(now, *id, &SendOptions::default(), data).unwrap();
        }
        settle(hosts, now);
        for (host, id) in [(0, a), (1, b)] {
            assert!(hosts[host].recv(*id, &mut out).unwrap().is_some());
            out.clear();
        }
    }
    let end = now + Duration::from_secs(80);
    while let Some(at) = hosts.iter().filter_map(Endpoint::poll_timeout).min()
        && at <= end
    {
        now = at;
        for host in hosts.iter_mut() {
            host.handle_timeout(now);
        }
        settle(hosts, now);
    }
}

/// An idle association takes at most [`BOUND`] bytes at either end: as it came up, and after it has
/// carried something and come to rest.
#[test]
fn an_idle_association_is_small() {
    let weights = [false, true].map(|talks| {
        let now = Time::from_secs(1000);
        let mut hosts = [host(1), host(2)];
        hosts[1].listen(&[B], PORT, None).unwrap();
        let mut ids = [Vec::new(), Vec::new()];
        for n in 0..COUNT {
            hosts[0].connect(now, &[A], 1024 + n as u16, &[B], PORT, None).unwrap();
            for (ids, up) in ids.iter_mut().zip(settle(&mut hosts, now)) {
                ids.extend(up);
            }
        }
        if talks {
            talk(&mut hosts, &ids, now);
        }
        weigh(hosts)
    });
    // Fresh and after a talk: opened and accepted.
    assert!(weights.iter().flatten().all(|bytes| *bytes <= BOUND), "{weights:?} above {BOUND}");
}
