//! What does not grow with how much there is. Times are compared within one run, with wide margins; the
//! faults that these tests are for were beyond them a hundredfold.

#![allow(clippy::unwrap_used)]

#[path = "support/mod.rs"]
mod support;

use ringway_sctp::wire::chunk::kind;
use ringway_sctp::{Reliability, Scheduling, SendOptions, Settings, State};
use std::time::{Duration, Instant};
use support::*;

const STREAMS: u16 = 20_000;
/// How much dearer than first come, first served a scheduler may be.
const MARGIN: u32 = 100;

/// Returns the time to queue a message on each of many streams, to drop all of them when they have
/// expired, and to send a message of each.
fn costs(scheduling: Scheduling) -> [Duration; 3] {
    let settings = Settings {
        scheduling,
        outbound_streams: STREAMS,
        inbound_streams: STREAMS,
        send_buffer: 64 << 20,
        receive_buffer: 64 << 20,
        max_burst: 0,
        ..Settings::default()
    };
    let mut pair = Pair::new(settings, settings, ms(10));
    pair.keep_log = false;
    let (a, b) = pair.open();
    let give = |pair: &mut Pair, reliability| {
        let began = Instant::now();
        for stream in 0..STREAMS {
            let options = SendOptions { stream, reliability, ..SendOptions::default() };
            pair.a.send(pair.now, a, &options, vec![7; 20]).unwrap();
        }
        began.elapsed()
    };
    let given = give(&mut pair, Reliability::Lifetime(ms(1)));
    pair.now += secs(1);
    let began = Instant::now();
    pair.run(secs(1));
    let dropped = began.elapsed();
    give(&mut pair, Reliability::Full);
    let began = Instant::now();
    pair.run(secs(100));
    let sent = began.elapsed();
    assert!(pair.received(b).len() >= usize::from(STREAMS));
    [given, dropped, sent]
}

/// RFC 8260 section 3: what a stream costs does not grow with how many there are.
#[test]
fn schedulers_bear_many_streams() {
    let plain = costs(Scheduling::Fcfs);
    for scheduling in [
        Scheduling::RoundRobin,
        Scheduling::PacketRoundRobin,
        Scheduling::Priority,
        Scheduling::FairCapacity,
    ] {
        // By packets each message is a packet of its own, where else 40 share one.
        for (margin, (time, plain)) in
            [1, 1, 10].into_iter().zip(costs(scheduling).into_iter().zip(plain))
        {
            let most = plain.max(Duration::from_millis(1)) * MARGIN * margin;
            assert!(time < most, "{scheduling:?}: {time:?} against {plain:?}");
        }
    }
}

/// What 50 packets with an I-FORWARD-TSN of 170 entries take, while so many fragments of other messages
/// of the same stream wait.
fn forward(parts: usize) -> Duration {
    let mut s = Script::new(Settings { interleaving: true, ..Settings::default() });
    s.extensions = vec![kind::RE_CONFIG, kind::I_DATA, kind::I_FORWARD_TSN];
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    for first in (0..parts).step_by(50) {
        let line = |n| format!("IDATA {} BU 0:{}:0 1", n + 1000, n + 1_000_000);
        let lines: Vec<String> = (first..first + 50).map(line).collect();
        s.give(&lines.join(" + "));
        s.sent.clear();
    }
    let entries: String = (0..170).map(|mid| format!(" U0:{mid}")).collect();
    let began = Instant::now();
    for tsn in 1..=50 {
        s.give(&format!("IFORWARD {tsn}{entries}"));
    }
    let took = began.elapsed();
    assert_eq!(s.sctp.snapshot(s.id()).unwrap().state, State::Established);
    took
}

/// RFC 8260 section 2.3.1: a packet costs what it holds, not that times all that waits.
#[test]
fn an_i_forward_tsn_is_bounded_work() {
    let (few, many) = (forward(100), forward(16_000));
    let most = few.max(Duration::from_millis(1)) * 40;
    assert!(many < most, "{many:?} with many, {few:?} with few");
}

/// Returns the time of 200 SACKs without news, while many small messages are marked after a timeout.
fn sacks(reliability: Reliability) -> Duration {
    let settings = Settings { initial_cwnd: Some(1 << 20), max_burst: 0, ..Settings::default() };
    let mut s = Script::accepted(settings);
    s.give("SACK 0 w 1000000");
    s.window = 1_000_000;
    for _ in 0..15_000 {
        s.send_with(SendOptions { reliability, ..SendOptions::default() }, 20);
    }
    s.wait(secs(1));
    s.sent.clear();
    let began = Instant::now();
    for _ in 0..200 {
        s.give("SACK 0");
    }
    began.elapsed()
}

/// RFC 3758 section 3.5: a SACK costs what it changes, also where messages may be abandoned. It does
/// not iterate over all marked chunks.
#[test]
fn marked_chunks_are_not_walked_by_every_sack() {
    let (full, limited) = (sacks(Reliability::Full), sacks(Reliability::Retransmits(9)));
    let most = full.max(Duration::from_millis(1)) * MARGIN;
    assert!(limited < most, "{limited:?} where limited, {full:?} where not");
}
