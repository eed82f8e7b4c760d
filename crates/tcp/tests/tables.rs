//! One host against a scripted peer: packet tables, one behaviour each. Numbers are relative to the
//! initial sequence numbers. `give` delivers a segment, `expect` compares the next one sent.

#![allow(clippy::unwrap_used)]

mod support;

use ringway_sansio::{Duration, Ecn, Endpoint, Time};
use ringway_tcp::{
    Algorithm, Close, Detection, Event, Flags, Limits, Options, Recovery, Settings, State, Tcp,
    Timestamps,
};
use support::*;

/// No timestamps, so that segments carry a round 1000 bytes.
fn plain() -> Settings {
    Settings {
        timestamps: false,
        window_scaling: false,
        algorithm: Algorithm::NewReno,
        min_rto: ms(200),
        ..Settings::default()
    }
}

fn state(script: &Script) -> State {
    script.tcp.snapshot(script.conn()).unwrap().state
}

/// RFC 9293 section 3.5: the options of a SYN, and of the answer to one without options.
#[test]
fn an_answer_has_the_options_of_the_syn() {
    let mut s = Script::new(Settings { ecn: true, ..Settings::default() });
    let syn = s.connect();
    assert_eq!(syn.flags, Flags::SYN | Flags::ECE | Flags::CWR);
    assert_eq!(syn.options.mss, Some(1460));
    assert_eq!(syn.options.window_scale, Some(5));
    assert!(syn.options.sack_permitted && syn.options.timestamps.is_some());

    let mut s = Script::new(Settings { ecn: true, ..Settings::default() });
    s.listen();
    s.give(seg("S", 0, 0, 0));
    let (answer, ..) = s.take().unwrap();
    assert_eq!(answer.flags, Flags::SYN | Flags::ACK);
    let expected = Options { mss: Some(1460), ..Options::default() };
    assert_eq!(answer.options, expected);
}

/// RFC 6298 section 5 and RFC 9293 section 3.8.3: an unanswered SYN is sent again at 1, 3, 7 s.
#[test]
fn a_syn_is_sent_again() {
    let mut s = Script::new(plain());
    s.connect();
    let start = s.now;
    for second in [1, 3, 7, 15] {
        s.wait(start + Duration::from_secs(second) - s.now - ms(1));
        s.expect_nothing();
        s.wait(ms(1));
        s.expect(seg("S", 0, 0, 0));
    }
    // RFC 5681 section 3.1: then the window is one segment; RFC 6298 section 5.7: and RTO 3 s.
    s.give_options(seg("SA", 0, 0, 1), Script::syn_options());
    s.expect(seg("A", 1, 0, 1));
    let snapshot = s.tcp.snapshot(s.conn()).unwrap();
    assert_eq!((snapshot.cwnd, snapshot.rto), (1000, Duration::from_secs(3)));
}

/// RFC 6928 section 2: ten segments at first; RFC 9293 section 3.8.6.3: an acknowledgment for each
/// second segment, or after the delay.
#[test]
fn ten_segments_and_delayed_acknowledgments() {
    let mut s = Script::accepted(plain());
    s.write(20_000);
    for n in 0..10 {
        s.expect(seg("A", 1 + n * 1000, 1000, 1));
    }
    s.expect_nothing();
    s.give(seg("A", 1, 0, 2001));
    for n in 10..14 {
        s.expect(seg("A", 1 + n * 1000, 1000, 1));
    }
    s.expect_nothing();

    let mut s = Script::accepted(plain());
    s.give(seg("A", 1, 1000, 1));
    s.expect_nothing();
    s.give(seg("A", 1001, 1000, 1));
    s.expect(seg("A", 1, 0, 2001));
    s.give(seg("A", 2001, 1000, 1));
    s.wait(ms(39));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect(seg("A", 1, 0, 3001));
    assert_eq!(s.read(), 3000);
}

/// RFC 9293 section 3.7.4: a small segment waits while data is in flight, unless Nagle is off or it is
/// the last.
#[test]
fn nagle_holds_small_segments() {
    let mut s = Script::accepted(plain());
    s.write(10);
    s.expect(seg("PA", 1, 10, 1));
    s.write(10);
    s.expect_nothing();
    s.give(seg("A", 1, 0, 11));
    s.expect(seg("PA", 11, 10, 1));
    s.write(10);
    s.expect_nothing();
    s.tcp.shutdown(s.now, s.conn()).unwrap();
    s.expect(seg("FPA", 21, 10, 1));

    let mut s = Script::accepted(Settings { nagle: false, ..plain() });
    s.write(10);
    s.expect(seg("PA", 1, 10, 1));
    s.write(10);
    s.expect(seg("PA", 11, 10, 1));
}

/// RFC 2018 sections 3 and 4: the latest block first; RFC 5681 section 4.2: at once.
#[test]
fn the_latest_block_comes_first() {
    let mut s = Script::accepted(plain());
    s.give(seg("A", 2001, 1000, 1));
    s.expect(seg("A", 1, 0, 1).sack(&[(2001, 3001)]));
    s.give(seg("A", 6001, 1000, 1));
    s.expect(seg("A", 1, 0, 1).sack(&[(6001, 7001), (2001, 3001)]));
    s.give(seg("A", 4001, 1000, 1));
    s.expect(seg("A", 1, 0, 1).sack(&[(4001, 5001), (6001, 7001), (2001, 3001)]));
    s.give(seg("A", 3001, 1000, 1));
    s.expect(seg("A", 1, 0, 1).sack(&[(2001, 5001), (6001, 7001)]));
    s.give(seg("A", 1, 2000, 1));
    s.expect(seg("A", 1, 0, 5001).sack(&[(6001, 7001)]));
    s.give(seg("A", 5001, 1000, 1));
    s.expect(seg("A", 1, 0, 7001));
    assert_eq!(s.read(), 7000);
}

/// RFC 2883 section 4: a duplicate is reported first, once; within a block, that block follows.
#[test]
fn duplicates_are_reported() {
    let mut s = Script::accepted(plain());
    s.give(seg("A", 1, 1000, 1));
    s.give(seg("A", 1001, 1000, 1));
    s.expect(seg("A", 1, 0, 2001));
    s.give(seg("A", 1, 1000, 1));
    s.expect(seg("A", 1, 0, 2001).sack(&[(1, 1001)]));
    s.give(seg("A", 3001, 2000, 1));
    s.expect(seg("A", 1, 0, 2001).sack(&[(3001, 5001)]));
    s.give(seg("A", 3001, 1000, 1));
    s.expect(seg("A", 1, 0, 2001).sack(&[(3001, 4001), (3001, 5001)]));
    // Section 4.1.2: a segment whose first part is known.
    s.give(seg("A", 1501, 1000, 1));
    s.expect(seg("A", 1, 0, 2501).sack(&[(1501, 2001), (3001, 5001)]));
}

/// RFC 6675 section 5 with RFC 6937: limited transmit, then the loss at once, then by proportion.
#[test]
fn selective_acknowledgments_start_a_recovery() {
    let mut s = Script::accepted(Settings { detection: Detection::Sack, ..plain() });
    s.write(40_000);
    for n in 0..10 {
        s.expect(seg("A", 1 + n * 1000, 1000, 1));
    }
    // RFC 3042: a new segment for each of the first two.
    s.give(seg("A", 1, 0, 1).sack(&[(1001, 2001)]));
    s.expect(seg("A", 10_001, 1000, 1));
    s.expect_nothing();
    s.give(seg("A", 1, 0, 1).sack(&[(1001, 3001)]));
    s.expect(seg("A", 11_001, 1000, 1));
    s.expect_nothing();
    s.give(seg("A", 1, 0, 1).sack(&[(1001, 4001)]));
    s.expect(seg("PA", 1, 1000, 1));
    s.expect_nothing();
    let snapshot = s.tcp.snapshot(s.conn()).unwrap();
    // RFC 5681 section 3.2: half of the ten, without the two of limited transmit.
    assert_eq!(snapshot.ssthresh, 5000);
    assert!(matches!(snapshot.recovery, Recovery::Fast { .. }));
    // Half of what arrives is sent.
    let mut sent = 0;
    for n in 4..12 {
        s.give(seg("A", 1, 0, 1).sack(&[(1001, (n + 1) * 1000 + 1)]));
        while s.take().is_some() {
            sent += 1;
        }
    }
    assert_eq!(sent, 4);
    s.give(seg("A", 1, 0, 12_001));
    let snapshot = s.tcp.snapshot(s.conn()).unwrap();
    assert_eq!((snapshot.recovery, snapshot.cwnd), (Recovery::Open, 5000));
}

/// RFC 8985 section 6.2: one block is sufficient once a quarter of the round trip has passed.
#[test]
fn time_finds_a_loss_with_one_block() {
    let mut s = Script::new(plain());
    s.listen();
    s.give_options(seg("S", 0, 0, 0), Script::syn_options());
    s.iss = s.take().unwrap().0.seq;
    s.wait(ms(100));
    s.give(seg("A", 1, 0, 1));
    s.conn = s.tcp.accept(s.listener.unwrap());
    s.write(2000);
    s.expect(seg("A", 1, 1000, 1));
    s.expect(seg("PA", 1001, 1000, 1));
    s.wait(ms(100));
    s.give(seg("A", 1, 0, 1).sack(&[(1001, 2001)]));
    s.expect_nothing();
    s.wait(ms(24));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect(seg("PA", 1, 1000, 1));
}

/// RFC 6582 section 3.2 without SACK: three duplicates, then one segment for each partial
/// acknowledgment, and no second halving.
#[test]
fn duplicates_and_partial_acknowledgments() {
    let mut s = Script::accepted(Settings { sack: false, ..plain() });
    s.write(10_000);
    for _ in 0..10 {
        s.take().unwrap();
    }
    for _ in 0..2 {
        s.give(seg("A", 1, 0, 1));
        s.expect_nothing();
    }
    s.give(seg("A", 1, 0, 1));
    s.expect(seg("PA", 1, 1000, 1));
    for _ in 0..5 {
        s.give(seg("A", 1, 0, 1));
    }
    s.expect_nothing();
    s.give(seg("A", 1, 0, 4001));
    s.expect(seg("PA", 4001, 1000, 1));
    s.give(seg("A", 1, 0, 10_001));
    s.expect_nothing();
    let snapshot = s.tcp.snapshot(s.conn()).unwrap();
    assert_eq!((snapshot.ssthresh, snapshot.cwnd), (5000, 5000));
    assert_eq!((snapshot.totals.recoveries, snapshot.totals.retransmits), (1, 2));
}

/// RFC 6298 section 5 and RFC 5681 section 3.1: the timer sends the first segment again, doubles,
/// and leaves a window of one segment.
#[test]
fn the_timer_starts_over() {
    let mut s = Script::accepted(Settings { detection: Detection::Sack, ..plain() });
    s.write(4000);
    for _ in 0..4 {
        s.take().unwrap();
    }
    s.wait(ms(200));
    s.expect(seg("PA", 1, 1000, 1));
    s.expect_nothing();
    let snapshot = s.tcp.snapshot(s.conn()).unwrap();
    assert_eq!((snapshot.cwnd, snapshot.ssthresh), (1000, 2000));
    s.wait(ms(399));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect(seg("PA", 1, 1000, 1));
    s.give(seg("A", 1, 0, 1001));
    s.expect(seg("PA", 1001, 1000, 1));
    s.expect(seg("PA", 2001, 1000, 1));
    s.expect_nothing();
    s.give(seg("A", 1, 0, 4001));
    assert_eq!(s.tcp.snapshot(s.conn()).unwrap().recovery, Recovery::Open);
}

/// RFC 2018 section 8: a receiver may drop what it acknowledged selectively, and the timer detects it.
#[test]
fn reneged_data_is_sent_again() {
    for detection in [Detection::Sack, Detection::RackTlp] {
        let mut s = Script::accepted(Settings { detection, ..plain() });
        s.write(4000);
        for _ in 0..4 {
            s.take().unwrap();
        }
        s.give(seg("A", 1, 0, 1).sack(&[(1001, 3001)]));
        while s.take().is_some() {}
        // The first segment arrives, and the ones acknowledged selectively were dropped.
        s.give(seg("A", 1, 0, 1001));
        while s.take().is_some() {}
        let mut again = Vec::new();
        for _ in 0..40 {
            s.wait(ms(50));
            while let Some((header, data, ..)) = s.take() {
                let from = header.seq - s.iss;
                again.push(from);
                if from == 1001 {
                    s.give(seg("A", 1, 0, from + data.len() as u32));
                }
            }
        }
        assert!(again.contains(&1001), "{detection:?}: {again:?}");
        s.give(seg("A", 1, 0, 4001));
        let snapshot = s.tcp.snapshot(s.conn()).unwrap();
        assert_eq!((snapshot.send_queued, snapshot.sacked, snapshot.lost), (0, 0, 0));
    }
}

/// RFC 8985 sections 7.2 to 7.4: a probe is due no later than the timer and goes before it; the timer
/// follows a whole timeout later.
#[test]
fn a_tail_is_probed_before_the_timer() {
    let mut s = Script::accepted(plain());
    s.write(2500);
    for (n, (flags, length)) in [("A", 1000), ("A", 1000)].into_iter().enumerate() {
        s.expect(seg(flags, 1 + 1000 * n as u32, length, 1));
    }
    s.give(seg("A", 1, 0, 2001));
    s.expect(seg("PA", 2001, 500, 1));
    s.wait(ms(199));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect(seg("PA", 2001, 500, 1));
    let totals = s.tcp.snapshot(s.conn()).unwrap().totals;
    assert_eq!((totals.tail_probes, totals.timeouts), (1, 0));
    s.wait(ms(199));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect(seg("PA", 2001, 500, 1));
    let totals = s.tcp.snapshot(s.conn()).unwrap().totals;
    assert_eq!((totals.tail_probes, totals.timeouts), (1, 1));
}

/// RFC 9293 section 3.8.6.1: a byte is sent into a closed window, with growing intervals; the rest
/// follows when the window opens.
#[test]
fn a_closed_window_is_probed_with_a_byte() {
    let mut s = Script::accepted(plain());
    s.give(seg("A", 1, 0, 1).window(0));
    // The window counts only from a later segment; the same numbers count too.
    s.write(3000);
    s.expect_nothing();
    s.wait(ms(200));
    s.expect(seg("A", 1, 1, 1));
    s.give(seg("A", 1, 0, 1).window(0));
    s.expect_nothing();
    s.wait(ms(400));
    s.expect(seg("PA", 1, 1, 1));
    s.give(seg("A", 1, 0, 1).window(0));
    s.wait(ms(800));
    s.expect(seg("PA", 1, 1, 1));
    s.give(seg("A", 1, 0, 2).window(5000));
    s.expect(seg("A", 2, 1000, 1));
    s.expect(seg("A", 1002, 1000, 1));
    // The rest is small and waits for those (Nagle).
    s.expect_nothing();
    assert_eq!(s.tcp.snapshot(s.conn()).unwrap().totals.timeouts, 0);
}

/// RFC 9293 section 3.8.6.2.2: the window opens in useful steps; RFC 9293 section 3.10.7.4: a probe
/// into a closed one is answered.
#[test]
fn a_full_buffer_closes_the_window() {
    let mut s = Script::accepted(Settings { receive_buffer: 4000, ..plain() });
    for n in 0..4 {
        s.give(seg("A", 1 + n * 1000, 1000, 1));
    }
    s.expect(seg("A", 1, 0, 2001));
    let update = s.taken();
    assert_eq!((update.ack, update.window), (4001, 0));
    s.give(seg("A", 4001, 1, 1));
    let update = s.taken();
    assert_eq!((update.ack, update.window), (4001, 0));
    let mut out = [0; 500];
    s.tcp.read(s.now, s.conn(), &mut out).unwrap();
    s.expect_nothing();
    s.tcp.read(s.now, s.conn(), &mut out).unwrap();
    let update = s.taken();
    assert_eq!((update.ack, update.window), (4001, 1000));
}

/// RFC 5961 sections 3.2, 4.2 and 5.2: a reset or SYN with a guessed number, or an acknowledgment of
/// what was never sent, is challenged; section 7: ten times in five seconds.
#[test]
fn a_guessed_segment_is_challenged() {
    let mut s = Script::accepted(plain());
    s.give(seg("R", 500, 0, 0));
    s.expect(seg("A", 1, 0, 1));
    s.give(seg("S", 0, 0, 0));
    s.expect(seg("A", 1, 0, 1));
    s.give(seg("S", 100, 0, 0));
    s.expect(seg("A", 1, 0, 1));
    s.give(seg("A", 1, 0, 999));
    s.expect(seg("A", 1, 0, 1));
    s.give(seg("A", 1, 0, u32::MAX - 70_000));
    s.expect(seg("A", 1, 0, 1));
    // A reset outside of the window is not even challenged.
    s.give(seg("R", 100_000, 0, 0));
    s.expect_nothing();
    assert_eq!(state(&s), State::Established);
    for _ in 0..5 {
        s.give(seg("R", 500, 0, 0));
        s.expect(seg("A", 1, 0, 1));
    }
    s.give(seg("R", 500, 0, 0));
    s.expect_nothing();
    assert_eq!(s.tcp.snapshot(s.conn()).unwrap().totals.challenges_withheld, 1);
    s.wait(Duration::from_secs(5));
    s.give(seg("R", 500, 0, 0));
    s.expect(seg("A", 1, 0, 1));
    s.give(seg("R", 1, 0, 0));
    s.expect_nothing();
    assert_eq!(s.events(), [Event::Closed(s.conn(), Close::Reset)]);
}

/// RFC 7323 sections 5.2 and 5.3: an old timestamp is refused and answered; section 3.2: a segment
/// without one is dropped.
#[test]
fn old_timestamps_are_refused() {
    let mut s = Script::new(Settings { timestamps: true, ..plain() });
    s.listen();
    let mut options = Script::syn_options();
    options.timestamps = Some(Timestamps { value: 5000, echo: 0 });
    s.give_options(seg("S", 0, 0, 0), options);
    let (answer, ..) = s.take().unwrap();
    s.iss = answer.seq;
    let clock = answer.options.timestamps.unwrap();
    assert_eq!(clock.echo, 5000);
    s.stamps = Some((5001, clock.value));
    s.give(seg("A", 1, 0, 1));
    s.conn = s.tcp.accept(s.listener.unwrap());
    s.give(seg("A", 1, 100, 1));
    s.stamps = Some((5000, clock.value));
    s.give(seg("A", 101, 100, 1));
    let (answer, ..) = s.take().unwrap();
    assert_eq!((answer.ack - s.irs, answer.options.timestamps.unwrap().echo), (101, 5001));
    s.stamps = None;
    s.give(seg("A", 101, 100, 1));
    s.expect_nothing();
    assert_eq!(s.read(), 100);
    assert_eq!(s.tcp.snapshot(s.conn()).unwrap().totals.paws_refused, 1);
    // Section 5.5: after 24 days of silence the old stamp counts no more.
    s.wait(Duration::from_secs(25 * 24 * 3600));
    s.stamps = Some((5000, clock.value));
    s.give(seg("A", 101, 100, 1));
    assert_eq!(s.read(), 100);
}

/// RFC 7323 section 2.2: windows are scaled except in SYNs.
#[test]
fn windows_are_scaled() {
    let mut s = Script::new(Settings { window_scaling: true, ..plain() });
    s.listen();
    let options = Options { window_scale: Some(7), ..Script::syn_options() };
    s.give_options(seg("S", 0, 0, 0).window(1000), options);
    let (answer, ..) = s.take().unwrap();
    assert_eq!((answer.window, answer.options.window_scale), (65_535, Some(5)));
    s.iss = answer.seq;
    s.give(seg("A", 1, 0, 1).window(1000));
    s.conn = s.tcp.accept(s.listener.unwrap());
    assert_eq!(s.tcp.snapshot(s.conn()).unwrap().send_window, 128_000);
    s.give(seg("PA", 1, 10, 1));
    s.wait(ms(40));
    assert_eq!(u32::from(s.taken().window), ((1 << 20) - 10) >> 5);
}

/// RFC 9293 section 3.10.7.4: FIN-WAIT-1, FIN-WAIT-2, TIME-WAIT; a FIN that comes again is answered
/// from there, and a stray reset with the wrong number changes nothing.
#[test]
fn an_active_close_ends_in_time_wait() {
    let mut s = Script::accepted(plain());
    s.tcp.shutdown(s.now, s.conn()).unwrap();
    s.expect(seg("FA", 1, 0, 1));
    assert_eq!(state(&s), State::FinWait1);
    s.give(seg("A", 1, 0, 2));
    assert_eq!(state(&s), State::FinWait2);
    s.give(seg("FA", 1, 0, 2));
    s.expect(seg("A", 2, 0, 2));
    assert_eq!(s.events().last(), Some(&Event::Closed(s.conn(), Close::Finished)));
    assert_eq!(s.tcp.len(), (0, 1));
    s.give(seg("FA", 1, 0, 2));
    s.expect(seg("A", 2, 0, 2));
    s.give(seg("R", 1, 0, 0));
    assert_eq!(s.tcp.len(), (0, 1));
    s.wait(Duration::from_secs(241));
    assert_eq!(s.tcp.len(), (0, 0));
}

/// RFC 9293 section 3.10.7.4: CLOSE-WAIT and LAST-ACK; data that came before the FIN stays readable
/// after the end.
#[test]
fn a_passive_close_ends_at_once() {
    let mut s = Script::accepted(plain());
    s.give(seg("FPA", 1, 100, 1));
    s.expect(seg("A", 1, 0, 102));
    assert_eq!(state(&s), State::CloseWait);
    s.write(50);
    s.tcp.shutdown(s.now, s.conn()).unwrap();
    s.expect(seg("FPA", 1, 50, 102));
    assert_eq!(state(&s), State::LastAck);
    s.give(seg("A", 102, 0, 52));
    let closed = Event::Closed(s.conn(), Close::Finished);
    assert_eq!(s.events(), [Event::Readable(s.conn()), Event::PeerClosed(s.conn()), closed]);
    assert_eq!(s.read(), 100);
    assert!(s.tcp.snapshot(s.conn()).is_err());
    assert_eq!(s.tcp.len(), (0, 0));
}

/// RFC 9293 section 3.10.7.1: the numbers of a reset for a segment without a connection.
#[test]
fn strays_are_reset_with_the_right_numbers() {
    let mut s = Script::new(plain());
    s.give(seg("S", 0, 0, 0));
    let (reset, ..) = s.take().unwrap();
    assert_eq!((reset.flags, reset.seq.to_u32()), (Flags::RST | Flags::ACK, 0));
    assert_eq!(reset.ack - s.irs, 1);
    s.give(seg("A", 5, 10, 77));
    let (reset, ..) = s.take().unwrap();
    assert_eq!((reset.flags, reset.seq - s.iss), (Flags::RST, 77));
    s.give(seg("R", 5, 0, 0));
    s.expect_nothing();
    // Section 3.10.7.3: an acknowledgment of what the SYN did not send.
    let mut s = Script::new(plain());
    s.connect();
    s.give(seg("SA", 0, 0, 2));
    let (reset, ..) = s.take().unwrap();
    assert_eq!((reset.flags, reset.seq - s.iss), (Flags::RST, 2));
    assert_eq!(state(&s), State::SynSent);
}

/// RFC 3168 section 6.1: the receiver echoes a mark until CWR arrives, and acknowledgments are not
/// ECN-capable.
#[test]
fn a_mark_is_echoed_until_cwr() {
    let mut s = Script::new(Settings { ecn: true, ..plain() });
    s.listen();
    s.give_options(seg("SEW", 0, 0, 0), Script::syn_options());
    let (answer, _, ecn) = s.take().unwrap();
    assert_eq!((answer.flags, ecn), (Flags::SYN | Flags::ACK | Flags::ECE, Ecn::NotEct));
    s.iss = answer.seq;
    s.give(seg("A", 1, 0, 1));
    s.conn = s.tcp.accept(s.listener.unwrap());
    s.give_ecn(seg("A", 1, 1000, 1), Options::default(), Ecn::Ce);
    s.give(seg("A", 1001, 1000, 1));
    s.expect(seg("AE", 1, 0, 2001));
    s.give(seg("A", 2001, 1000, 1));
    s.give(seg("A", 3001, 1000, 1));
    s.expect(seg("AE", 1, 0, 4001));
    s.give(seg("AW", 4001, 1000, 1));
    s.give(seg("A", 5001, 1000, 1));
    s.expect(seg("A", 1, 0, 6001));
    // The sender's side: an echo halves once and is answered by CWR on new data.
    s.write(30_000);
    for _ in 0..10 {
        assert_eq!(s.take().unwrap().2, Ecn::Ect0);
    }
    s.give(seg("AE", 6001, 0, 5001));
    s.give(seg("AE", 6001, 0, 8001));
    let snapshot = s.tcp.snapshot(s.conn()).unwrap();
    assert_eq!((snapshot.cwnd, snapshot.totals.ecn_reductions), (5000, 1));
    let (first, ..) = s.take().unwrap();
    assert!(first.flags.has(Flags::CWR));
}

/// The handshakes and connections of a listener are limited; SYNs beyond are dropped and counted.
#[test]
fn syns_are_limited() {
    let limits = Limits { half_open: 3, ..Limits::default() };
    let mut s = Script::new(plain());
    s.tcp = Tcp::new(limits, plain(), &mut ringway_sansio::SplitMix::new(4)).unwrap();
    s.listen();
    for port in 1..=5 {
        s.ports.1 = port;
        s.give(seg("S", 0, 0, 0));
    }
    for _ in 0..3 {
        s.iss = s.take().unwrap().0.seq;
    }
    s.expect_nothing();
    assert_eq!(s.tcp.counters().half_open_full, 2);
    // One becomes a connection, and there is room again.
    s.ports.1 = 3;
    s.give(seg("A", 1, 0, 1));
    s.ports.1 = 4;
    s.give(seg("S", 0, 0, 0));
    assert!(s.take().is_some());
    // RFC 9293 section 3.10.7.4: a reset removes a handshake.
    s.ports.1 = 2;
    s.give(seg("R", 1, 0, 0));
    assert_eq!(s.tcp.len().0, 3);
    assert_eq!(s.events(), [Event::Incoming(s.listener.unwrap())]);
}

/// RFC 9293 section 3.8.3: a handshake that is never completed ends without an event.
#[test]
fn a_half_open_connection_ends() {
    let mut s = Script::new(plain());
    s.listen();
    s.give(seg("S", 0, 0, 0));
    s.wait(Duration::from_secs(181));
    assert_eq!(s.tcp.len(), (0, 0));
    assert_eq!(s.tcp.poll_timeout(), None);
    assert_eq!(s.events(), []);
}

/// The TIME-WAIT table is bounded: the oldest entry is evicted.
#[test]
fn time_wait_is_bounded() {
    let limits = Limits { time_wait: 2, ..Limits::default() };
    let mut s = Script::new(plain());
    s.tcp = Tcp::new(limits, plain(), &mut ringway_sansio::SplitMix::new(4)).unwrap();
    s.listen();
    for port in 1..=4 {
        s.ports.1 = port;
        s.give(seg("S", 0, 0, 0));
        s.iss = s.take().unwrap().0.seq;
        s.give(seg("A", 1, 0, 1));
        let conn = s.tcp.accept(s.listener.unwrap()).unwrap();
        s.tcp.shutdown(s.now, conn).unwrap();
        s.collect();
        s.give(seg("FA", 1, 0, 1));
        s.give(seg("A", 2, 0, 2));
        s.events();
        while s.take().is_some() {}
    }
    assert_eq!(s.tcp.len(), (0, 2));
    assert_eq!(s.tcp.counters().time_wait_full, 2);
}

/// RFC 9293 section 3.10.4: connections that wait at a closed listener are reset; ids are not reused.
#[test]
fn closing_a_listener_resets_its_connections() {
    let mut s = Script::new(plain());
    s.listen();
    s.give(seg("S", 0, 0, 0));
    s.iss = s.take().unwrap().0.seq;
    s.give(seg("A", 1, 0, 1));
    let listener = s.listener.unwrap();
    s.tcp.unlisten(s.now, listener).unwrap();
    s.expect(seg("RA", 1, 0, 1));
    assert!(s.tcp.unlisten(s.now, listener).is_err());
    assert_eq!(s.tcp.accept(listener), None);
    assert_eq!(s.tcp.len(), (0, 0));
    s.listen();
    assert_ne!(s.listener.unwrap(), listener);
}

/// RFC 9293 section 3.4.1: initial numbers differ by connection and move with the clock.
#[test]
fn initial_numbers_cannot_be_guessed_from_another() {
    let mut s = Script::new(plain());
    let first = s.connect();
    let second = s.connect();
    assert_ne!(first.seq, second.seq);
    assert_ne!(first.source, second.source);
    let mut later = Script::new(plain());
    later.now = Time::from_millis(5_000_001);
    assert_eq!(later.connect().seq - first.seq, 250);
}
