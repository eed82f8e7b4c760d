//! Random settings, links, calls and times; after each step the invariants hold. A failure prints its
//! seed.

use crate::support::*;
use ringway_dccp::{Ccid, ConnId, Limits, SendOptions, Settings, State, WhenFull};
use std::collections::BTreeSet;

fn settings(dice: &mut Dice) -> Settings {
    let coin = |dice: &mut Dice| dice.below(2) == 0;
    let coverage = dice.below(4) as u8;
    Settings {
        mtu: [300, 576, 1500][dice.below(3) as usize],
        ccid: if coin(dice) { Ccid::TcpLike } else { Ccid::Tfrc },
        sequence_window: [32, 100, 1000][dice.below(3) as usize],
        short_seqnos: coin(dice),
        ecn: coin(dice),
        ndp_count: coin(dice),
        coverage,
        min_coverage: dice.below(3) as u8,
        data_checksum: coverage > 0 || coin(dice),
        loss_event_rate: coin(dice),
        send_queue: 1 + dice.below(40) as usize,
        receive_queue: 1 + dice.below(40) as usize,
        ..Settings::default()
    }
}

fn links(pair: &mut Pair, dice: &mut Dice) {
    for link in &mut pair.links {
        link.lose = [0, 10, 100, 300][dice.below(4) as usize];
        link.repeat = [0, 50][dice.below(2) as usize];
        link.reorder = [0, 100][dice.below(2) as usize];
        link.corrupt = [0, 0, 20][dice.below(3) as usize];
        link.delay = ms(1 + dice.below(80));
        link.rate = [Some(1_000_000), Some(20_000), Some(200_000)][dice.below(3) as usize];
        link.queue = 5 + dice.below(50) as usize;
        link.mark_from = [None, Some(3)][dice.below(2) as usize];
    }
}

/// One end of the connection.
struct End {
    id: ConnId,
    sent: u64,
    got: BTreeSet<u64>,
}

fn check(pair: &mut Pair, ends: &[End; 2], limits: &[Settings; 2], seed: u64) {
    for end in 0..2 {
        let id = ends[end].id;
        let Ok(snapshot) = pair.host(end).snapshot(id) else { continue };
        let totals = snapshot.totals;
        assert!(snapshot.send_queue <= limits[end].send_queue, "seed {seed}");
        assert!(snapshot.receive_queue <= limits[end].receive_queue, "seed {seed}");
        assert!(snapshot.reported <= 4096, "seed {seed}");
        // Every message is queued, sent, or dropped for a reason that is counted.
        let accounted = totals.messages_sent
            + totals.evicted
            + totals.expired
            + totals.unsent
            + snapshot.send_queue as u64;
        assert_eq!(accounted, ends[end].sent, "seed {seed}: {snapshot:?}");
        assert!(u64::from(snapshot.sender.pipe) <= totals.messages_sent, "seed {seed}");
        if snapshot.state == State::Open && snapshot.sender_ccid == Ccid::TcpLike {
            // In flight and lost is at most what was sent.
            let known = u64::from(snapshot.sender.pipe) + snapshot.sender.lost;
            assert!(known <= totals.messages_sent, "seed {seed}: {snapshot:?}");
        }
        assert!(snapshot.sender.rate.is_finite() && snapshot.sender.rate >= 0.0, "seed {seed}");
    }
}

fn run(seed: u64) -> u64 {
    let mut dice = Dice::new(seed);
    let limits = Limits { half_open: dice.below(2) as usize * 4, ..Limits::default() };
    let both = [settings(&mut dice), settings(&mut dice)];
    let mut pair = Pair::with(limits, both[0], both[1], ms(10), seed);
    pair.keep_log = false;
    let (a, b) = pair.open();
    let mut ends = [
        End { id: a, sent: 0, got: BTreeSet::new() },
        End { id: b, sent: 0, got: BTreeSet::new() },
    ];
    links(&mut pair, &mut dice);
    for _ in 0..150 {
        for end in 0..2 {
            for _ in 0..dice.below(8) {
                let id = ends[end].id;
                let Ok(snapshot) = pair.host(end).snapshot(id) else { break };
                let size = (8 + dice.below(300) as usize).min(snapshot.max_message);
                let options = SendOptions {
                    when_full: if dice.below(2) == 0 {
                        WhenFull::DropOldest
                    } else {
                        WhenFull::DropNewest
                    },
                    lifetime: (dice.below(3) == 0).then(|| ms(dice.below(500))),
                };
                let (now, data) = (pair.now, message(ends[end].sent, size));
                if pair.host(end).send(now, id, data, options).is_ok() {
                    ends[end].sent += 1;
                }
            }
            if dice.below(3) > 0 {
                let id = ends[end].id;
                while let Ok(Some(data)) = pair.host(end).recv(id) {
                    let number = u64::from_be_bytes(data[..8].try_into().unwrap());
                    assert_eq!(data, message(number, data.len()), "seed {seed}: corrupt data");
                    let other = &ends[1 - end];
                    assert!(number < other.sent, "seed {seed}: {number} was never sent");
                    assert!(
                        ends[end].got.insert(number),
                        "seed {seed}: {number} was delivered twice"
                    );
                }
            }
        }
        pair.run(ms(dice.below(300)));
        check(&mut pair, &ends, &both, seed);
        if dice.below(40) == 0 {
            links(&mut pair, &mut dice);
        }
    }
    // The faults end, and so does the connection.
    for link in &mut pair.links {
        *link = ringway_link(ms(10));
    }
    let end = dice.below(2) as usize;
    let (id, now) = (ends[end].id, pair.now);
    let _ = pair.host(end).close(now, id);
    pair.run(secs(400));
    for (end, one) in ends.iter().enumerate() {
        while let Ok(Some(_)) = pair.host(end).recv(one.id) {}
        assert!(pair.host(end).is_empty(), "seed {seed}: end {end} did not end");
    }
    pair.run(secs(300));
    assert_eq!(pair.next(), None, "seed {seed}: something waits for ever");
    (ends[0].got.len() + ends[1].got.len()) as u64
}

fn ringway_link(delay: ringway_sansio::Duration) -> Link {
    Link::new(delay, 1)
}

#[test]
fn invariants_hold_for_random_seeds() {
    let count = std::env::var("DCCP_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let first = std::env::var("DCCP_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut delivered = 0;
    for seed in first..first + count {
        delivered += run(seed);
    }
    assert!(delivered > count * 100, "{delivered}");
}
