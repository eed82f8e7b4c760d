//! Re-configuration of streams: RFC 6525.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::wire::chunk::kind;
use ringway_sctp::{
    CallError, Change, Event, Reset, SendError, SendOptions, Settings, State, StreamError,
};

fn changes(s: &mut Script) -> Vec<Change> {
    let change = |event| match event {
        Event::Changed { change, .. } => Some(change),
        _ => None,
    };
    s.events().into_iter().filter_map(change).collect()
}

fn reset(incoming: bool, streams: &[u16]) -> Change {
    Change::StreamsReset { incoming, streams: streams.into() }
}

/// RFC 6525 sections 5.1.2 and 5.2.7 H4: queued messages are sent before the request, the stream
/// accepts none meanwhile, and starts at 0 once the peer has performed it.
#[test]
fn an_outgoing_stream_is_reset() {
    let mut s = Script::accepted(plain());
    s.send(3, 10);
    s.send(4, 10);
    s.sctp.reset_streams(s.id(), Reset::Outgoing(&[3])).unwrap();
    let options = SendOptions { stream: 3, ..SendOptions::default() };
    let refused = s.sctp.send(s.now, s.id(), &options, &b"early"[..]);
    assert_eq!(refused, Err(CallError::Refused(SendError::Resetting)));
    s.expect("DATA 1 BE 3:0 10 + DATA 2 BE 4:0 10");
    s.expect("RECONFIG out 1 0 2 3");
    s.expect_nothing();
    s.give("SACK 2");
    s.give("RECONFIG answer 1 1");
    assert_eq!(changes(&mut s), [reset(false, &[3])]);
    s.send(3, 11);
    s.expect("DATA 3 BE 3:0 11");
    s.send(4, 12);
    s.expect("DATA 4 BE 4:1 12");
    s.give("SACK 4");
    // The answer again changes nothing.
    s.give("RECONFIG answer 1 1");
    assert_eq!(changes(&mut s), []);
    s.wait(secs(100));
    s.expect_nothing();
}

/// RFC 6525 section 5.1.1: sent again when the timer expires, with errors counted, except while the
/// peer answers that it is in progress (section 5.2.7 H2).
#[test]
fn a_request_is_sent_again() {
    let mut s = Script::accepted(plain());
    s.sctp.reset_streams(s.id(), Reset::Outgoing(&[])).unwrap();
    s.sctp.reset_streams(s.id(), Reset::Incoming(&[1, 2])).unwrap();
    s.expect("RECONFIG out 1 0 0");
    s.wait(secs(1));
    s.expect("RECONFIG out 1 0 0");
    assert_eq!(snapshot(&s).errors, 1);
    s.give("RECONFIG answer 1 6");
    s.wait(secs(2));
    s.expect("RECONFIG out 1 0 0");
    // A peer that postpones is alive, and the association's errors restart.
    assert_eq!(snapshot(&s).errors, 0);
    s.give("RECONFIG answer 1 2");
    assert_eq!(changes(&mut s), [Change::ReconfigRefused(2)]);
    // Only then the next.
    s.expect("RECONFIG in 2 1 2");
    // Section 5.2.2 E1: the peer's own request answers it.
    s.give("RECONFIG out 1 2 0 1 2");
    s.expect("SACK 0 + RECONFIG answer 1 1");
    assert_eq!(changes(&mut s), [reset(true, &[1, 2])]);
    s.wait(secs(100));
    s.expect_nothing();
    // Ten errors in a row end the association.
    s.sctp.add_streams(s.id(), 5, 0).unwrap();
    s.wait(secs(1000));
    assert!(s.events().iter().any(|e| matches!(e, Event::Closed(..))));
}

/// RFC 6525 sections 5.2.2 and 5.2.1: a reset is done when everything before it has come, and a
/// request that comes again is answered as before.
#[test]
fn an_incoming_stream_is_reset() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 5:0 10");
    s.expect("SACK 1");
    s.give("RECONFIG out 1 0 2 5");
    s.expect("SACK 1 + RECONFIG answer 1 6");
    s.give("RECONFIG out 1 0 2 5");
    s.expect("SACK 1 + RECONFIG answer 1 6");
    assert_eq!(changes(&mut s), []);
    s.give("DATA 2 BE 5:1 11");
    s.expect("RECONFIG answer 1 1");
    assert_eq!(changes(&mut s), [reset(true, &[5])]);
    s.give("RECONFIG out 1 0 2 5");
    s.expect("SACK 2 + RECONFIG answer 1 1");
    s.give("DATA 3 BE 5:0 12");
    assert_eq!(s.read(), [10, 11, 12]);
    assert_eq!(snapshot(&s).state, State::Established);
}

/// RFC 6525 section 5.2.3: a stream is reset because the peer asks, and not when that is under way.
#[test]
fn the_peer_may_ask_for_a_reset() {
    let mut s = Script::accepted(plain());
    s.send(2, 10);
    s.expect("DATA 1 BE 2:0 10");
    s.give("SACK 1");
    s.give("RECONFIG in 1 2");
    s.expect("SACK 0 + RECONFIG answer 1 6 + RECONFIG out 1 1 1 2");
    s.give("RECONFIG in 2 2");
    s.expect("SACK 0 + RECONFIG answer 2 0");
    s.give("RECONFIG answer 1 1");
    assert_eq!(changes(&mut s), [reset(false, &[2])]);
    s.send(2, 10);
    s.expect("DATA 2 BE 2:0 10");
}

/// RFC 6525 section 4.4: what cannot be done is refused.
#[test]
fn bad_requests_are_refused() {
    let mut s = Script::accepted(plain());
    for (line, result) in [
        ("out 1 0 0 10", 3),
        ("in 2 1024", 3),
        ("more 3 65535", 2),
        ("give 4 65535", 2),
        ("out 9 0 0", 5),
        ("all 4000000", 5),
    ] {
        s.give(&format!("RECONFIG {line}"));
        let number = line.split(' ').nth(1).unwrap();
        s.expect(&format!("SACK 0 + RECONFIG answer {number} {result}"));
    }
    assert_eq!((changes(&mut s), snapshot(&s).streams), (vec![], (10, 10)));
    // Request numbers that were never used.
    s.give("RECONFIG answer 1 1");
    s.give("RECONFIG answer 77 1 5 5");
    s.expect_nothing();
    assert_eq!(changes(&mut s), []);
}

/// RFC 6525 sections 5.1.5, 5.1.6, 5.2.5 and 5.2.6: streams are added in both directions.
#[test]
fn streams_are_added() {
    let mut s = Script::accepted(plain());
    s.give("RECONFIG more 1 5");
    s.expect("SACK 0 + RECONFIG answer 1 1");
    assert_eq!(changes(&mut s), [Change::Streams { outbound: 10, inbound: 15 }]);
    s.give("DATA 1 BE 14:0 10");
    assert_eq!(s.read(), [10]);
    s.sent.clear();
    s.give("RECONFIG give 2 3");
    s.expect("SACK 1 + RECONFIG answer 2 1 + RECONFIG more 1 3");
    let send = |s: &mut Script| {
        let options = SendOptions { stream: 12, ..SendOptions::default() };
        s.sctp.send(s.now, s.id(), &options, &b"new"[..])
    };
    assert!(matches!(send(&mut s), Err(CallError::Refused(SendError::Stream { streams: 10, .. }))));
    s.give("RECONFIG answer 1 1");
    assert_eq!(changes(&mut s), [Change::Streams { outbound: 13, inbound: 15 }]);
    send(&mut s).unwrap();
    s.expect("DATA 1 BE 12:0 3");
    s.give("SACK 1");
    s.sctp.add_streams(s.id(), 0, 2).unwrap();
    s.expect("RECONFIG give 2 2");
    // The peer's own request is an answer too.
    s.give("RECONFIG more 3 2");
    s.expect("SACK 1 + RECONFIG answer 3 1");
    assert_eq!(snapshot(&s).streams, (13, 17));
    s.wait(secs(100));
    s.expect_nothing();
    // The bound that the user set.
    let few = Settings { max_inbound_streams: 12, ..plain() };
    let mut s = Script::accepted(few);
    s.give("RECONFIG more 1 3");
    s.expect("SACK 0 + RECONFIG answer 1 2");
}

/// RFC 6525 sections 5.1.4 and 5.2.7 H5: nothing is in flight when it is asked, nothing is taken
/// until it is answered, and everything goes on with the new numbers.
#[test]
fn everything_is_reset() {
    let mut s = Script::accepted(plain());
    s.send(1, 10);
    s.expect("DATA 1 BE 1:0 10");
    s.give("DATA 1 BE 1:0 10");
    s.expect("SACK 1");
    s.sctp.reset_streams(s.id(), Reset::Everything).unwrap();
    s.expect_nothing();
    let early = s.sctp.send(s.now, s.id(), &SendOptions::default(), &b"early"[..]);
    assert_eq!(early, Err(CallError::Refused(SendError::Resetting)));
    s.give("SACK 1");
    s.expect("RECONFIG all 1");
    s.expect_nothing();
    s.give("RECONFIG answer 1 1 2 1001");
    assert_eq!(changes(&mut s), [Change::EverythingReset]);
    s.send(1, 11);
    s.expect("DATA 1001 BE 1:0 11");
    s.give("DATA 2 IBE 1:0 12");
    s.expect("SACK 2");
    s.give("SACK 1001");
    assert_eq!((s.read(), snapshot(&s).unacknowledged), (vec![10, 12], 0));
}

/// RFC 6525 section 5.2.4, G3: what is in flight would count as arrived, so that it must arrive
/// first. Nothing new is sent meanwhile, until the peer asks again; but not for ever.
#[test]
fn nothing_is_in_flight_when_everything_is_reset() {
    let mut s = Script::accepted(plain());
    s.send(1, 10);
    s.expect("DATA 1 BE 1:0 10");
    s.give("RECONFIG all 1");
    s.expect("SACK 0 + RECONFIG answer 1 6");
    s.send(1, 20);
    s.give("SACK 1");
    s.expect_nothing();
    s.wait(ms(3100));
    s.expect("DATA 2 BE 1:1 20");
    s.give("RECONFIG all 1");
    s.expect("SACK 0 + RECONFIG answer 1 6");
    s.send(1, 30);
    s.give("SACK 2");
    s.expect_nothing();
    s.give("RECONFIG all 1");
    let (cumulative, next) = (1i64 << 31, 1 - (1i64 << 31));
    s.expect(&format!("SACK {cumulative} + RECONFIG answer 1 1 3 {next}"));
    assert_eq!(changes(&mut s), [Change::EverythingReset]);
    s.expect_nothing();
    s.wait(ms(200));
    s.expect("DATA 3 BE 1:0 30");
    s.give("SACK 3");
    assert_eq!(snapshot(&s).unacknowledged, 0);
}

/// RFC 6525 section 5.2.4: a peer that was put off takes data before it has the answer, so that new data
/// is not sent right behind it, unless the peer goes by the new numbers already.
#[test]
fn new_data_does_not_overtake_the_answer() {
    let mut s = Script::accepted(plain());
    s.send(1, 10);
    s.expect("DATA 1 BE 1:0 10");
    s.give("RECONFIG all 1");
    s.expect("SACK 0 + RECONFIG answer 1 6");
    s.send(1, 20);
    s.give("SACK 1 + RECONFIG all 1");
    let (cumulative, next) = (1i64 << 31, 1 - (1i64 << 31));
    s.expect(&format!("SACK {cumulative} + RECONFIG answer 1 1 2 {next}"));
    s.expect_nothing();
    s.give(&format!("DATA {} IBE 1:0 15", cumulative + 1));
    s.expect(&format!("SACK {next} + DATA 2 BE 1:0 20"));
    s.give("SACK 2");
    assert_eq!((s.read(), snapshot(&s).unacknowledged), (vec![15], 0));
}

/// RFC 6525 section 5.2.4: after a peer has put a reset of everything off, only what is next in its order
/// is taken: what is not may go by numbers of which the answer has not come yet. Also as I-DATA.
#[test]
fn nothing_that_overtakes_the_answer_is_taken() {
    for (interleaving, data) in [(false, "DATA"), (true, "IDATA")] {
        let fragment = if interleaving { ":0" } else { "" };
        let mut s = Script::new(Settings { interleaving, ..plain() });
        s.extensions = vec![kind::RE_CONFIG, kind::I_DATA, kind::I_FORWARD_TSN];
        s.listen(&[A1]);
        s.give_init();
        s.take_init_ack();
        s.echo("");
        s.expect("COOKIE_ACK");
        let chunk = |tsn, number, len| format!("{data} {tsn} BE {number}{fragment} {len}");
        s.give(&chunk(1, "1:0", 10));
        s.expect("SACK 1");
        s.sctp.reset_streams(s.id(), Reset::Everything).unwrap();
        s.expect("RECONFIG all 1");
        s.give("RECONFIG answer 1 6");
        for early in [chunk(3, "1:2", 30), chunk(2, "1:0", 12)] {
            s.give(&early);
            s.expect_nothing();
        }
        s.give(&chunk(2, "1:1", 11));
        assert_eq!(s.read(), [10, 11]);
        s.give("RECONFIG answer 1 1 3 1001");
        s.sent.clear();
        s.give(&chunk(3, "1:0", 12));
        s.expect("SACK 3");
        assert_eq!(s.read(), [12]);
        assert_eq!(snapshot(&s).state, State::Established);
    }
}

/// RFC 6525 section 5.2.7 H2: while the peer answers that a reset of everything is in progress, it uses
/// the old numbers, and its data is accepted.
#[test]
fn data_is_taken_until_everything_is_reset() {
    let mut s = Script::accepted(plain());
    s.sctp.reset_streams(s.id(), Reset::Everything).unwrap();
    s.expect("RECONFIG all 1");
    s.give("DATA 1 BE 1:0 10");
    s.expect_nothing();
    s.give("RECONFIG answer 1 6");
    s.give("DATA 1 BE 1:0 10");
    s.expect("SACK 1");
    s.wait(ms(1500));
    s.expect("RECONFIG all 1");
    s.give("DATA 2 BE 1:0 11");
    s.expect_nothing();
    s.give("RECONFIG answer 1 1 2 1001");
    s.give("DATA 2 IBE 1:0 11");
    s.expect("SACK 2");
    assert_eq!(s.read(), [10, 11]);
}

/// RFC 6525 sections 4.4 and 5.2.4: a peer's reset of everything while a local one is outstanding is
/// refused, so that the numbers of both ends are certain.
#[test]
fn one_reset_of_everything_at_a_time() {
    let mut s = Script::accepted(plain());
    s.sctp.reset_streams(s.id(), Reset::Everything).unwrap();
    s.expect("RECONFIG all 1");
    s.give("RECONFIG all 1");
    s.expect("SACK 0 + RECONFIG answer 1 4");
    s.give("RECONFIG answer 1 4");
    assert_eq!(changes(&mut s), [Change::ReconfigRefused(4)]);
    s.give("DATA 1 BE 1:0 10");
    s.expect("SACK 1");
    s.send(1, 11);
    s.expect("DATA 1 BE 1:0 11");
}

/// RFC 6525 section 5.2.4: a reset by the peer; complete messages are delivered, and a repeated request
/// gets the same answer.
#[test]
fn the_peer_resets_everything() {
    let mut s = Script::accepted(plain());
    s.send(1, 10);
    s.expect("DATA 1 BE 1:0 10");
    s.give("SACK 1");
    s.give("DATA 1 BE 1:0 10 + DATA 3 BE 1:2 30 + DATA 5 B 2:0 40");
    s.take().unwrap();
    s.give("RECONFIG all 1");
    // G1: the smallest TSN not acknowledged and 2^31 more.
    let answer = format!("RECONFIG answer 1 1 2 {}", 2 - (1i64 << 31));
    let line = s.line().unwrap().1;
    assert!(line.ends_with(&answer), "{line}");
    assert_eq!(changes(&mut s), [Change::EverythingReset]);
    assert_eq!((s.read(), snapshot(&s).unread), (vec![10, 30], 0));
    assert_eq!(snapshot(&s).unacknowledged, 0);
    s.give("RECONFIG all 1");
    assert!(s.line().unwrap().1.ends_with(&answer));
    s.send(1, 10);
    s.expect("DATA 2 BE 1:0 10");
    s.give(&format!("DATA {} BE 1:0 15", 2 + (1u64 << 31)));
    assert_eq!(s.read(), [15]);
    assert_eq!(snapshot(&s).state, State::Established);
}

/// RFC 6525 section 5.1.1: a peer that does not take RE-CONFIG is not asked, and its own is unknown.
#[test]
fn without_negotiation_nothing_is_reset() {
    let mut s = Script::new(plain());
    s.extensions = Vec::new();
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
    let refused = s.sctp.reset_streams(s.id(), Reset::Everything);
    assert!(matches!(refused, Err(CallError::Refused(StreamError::NotSupported))));
    assert!(matches!(
        s.sctp.add_streams(s.id(), 1, 1),
        Err(CallError::Refused(StreamError::NotSupported))
    ));
    s.give("RECONFIG all 1 + HEARTBEAT");
    // The highest bits of its type: continue without a report.
    s.expect("HEARTBEAT_ACK");
}

/// The requests of a peer do not accumulate: while its user has not read many changes, they are
/// refused.
#[test]
fn changes_are_bounded() {
    let mut s = Script::accepted(plain());
    for n in 1..=100 {
        s.give(&format!("RECONFIG out {n} 0 0 1"));
        let result = if n <= 32 { 1 } else { 2 };
        s.expect(&format!("SACK 0 + RECONFIG answer {n} {result}"));
    }
    assert_eq!(changes(&mut s).len(), 32);
    let more = s.sctp.reset_streams(s.id(), Reset::Outgoing(&[1; 201]));
    assert!(matches!(more, Err(CallError::Refused(StreamError::Full { limit: 200, .. }))));
    for _ in 0..8 {
        s.sctp.reset_streams(s.id(), Reset::Incoming(&[1])).unwrap();
    }
    let more = s.sctp.reset_streams(s.id(), Reset::Incoming(&[1]));
    assert!(matches!(more, Err(CallError::Refused(StreamError::Full { limit: 8, .. }))));
}

/// RFC 6525 section 5.2.4: a message of several fragments that was not read yet is there after the
/// reset, and its room comes back when it is read.
#[test]
fn unread_messages_stay() {
    let mut s = Script::accepted(plain());
    s.give("DATA 2 UB 0:0 10 + DATA 3 UE 0:0 10 + RECONFIG all 1");
    assert_eq!(changes(&mut s), [Change::EverythingReset]);
    let mut out = Vec::new();
    let received = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert_eq!((received.len, snapshot(&s).unread), (20, 0));
    s.sent.clear();
    let full = 1 << 20;
    s.give(&format!("DATA {} IBE 0:0 10", 1 + (1u64 << 31)));
    let line = s.line().unwrap().1;
    assert!(line.starts_with("SACK"), "{line} {full}");
    assert_eq!(s.read(), [10]);
}

/// RFC 6525 section 5.2.4: SACKs and FORWARD TSNs from before a reset of everything arrive late. They
/// are no evidence about the TSNs after it.
#[test]
fn chunks_from_before_a_reset_are_ignored() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SACK 1");
    s.sctp.reset_streams(s.id(), Reset::Everything).unwrap();
    s.expect("RECONFIG all 1");
    s.give(&format!("RECONFIG answer 1 1 100 {}", 2 + (1i64 << 31)));
    s.give("SACK 1");
    assert_eq!(snapshot(&s).state, State::Established);
    let mut s = Script::accepted(plain());
    s.give("FORWARD 2 0:3");
    s.give("FORWARD 3 0:4");
    s.give("RECONFIG all 1");
    s.give("FORWARD 2 0:3");
    s.sent.clear();
    s.give(&format!("DATA {} BE 0:0 10", 4i64 + (1 << 31)));
    assert_eq!(s.read(), [10]);
}

/// RFC 6525 section 5.2.2, E2 and E4: data of a stream whose reset waits, with a TSN above the last
/// assigned one, is held until the reset is done, and has the new numbers; also within a packet.
#[test]
fn data_after_a_deferred_reset_is_held() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 5:0 10");
    s.expect("SACK 1");
    s.give("RECONFIG out 1 0 2 5");
    s.expect("SACK 1 + RECONFIG answer 1 6");
    s.give("DATA 3 BE 5:0 12");
    s.give("DATA 2 BE 5:1 11");
    s.sent.clear();
    assert_eq!(s.read(), [10, 11, 12]);
    s.give("RECONFIG out 2 0 4 5");
    s.expect("SACK 3 + RECONFIG answer 2 6");
    s.give("DATA 4 BE 5:1 13 + DATA 5 BE 5:0 14");
    assert_eq!(s.read(), [13, 14]);
    assert_eq!(changes(&mut s), [reset(true, &[5]), reset(true, &[5])]);
}

/// RFC 6525 section 5.2.2, E2, for I-DATA (RFC 8260 section 2.3.2).
#[test]
fn interleaved_data_after_a_deferred_reset_is_held() {
    let mut s = Script::new(Settings { interleaving: true, ..plain() });
    s.extensions = vec![kind::RE_CONFIG, kind::I_DATA, kind::I_FORWARD_TSN];
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.give("IDATA 1 BE 5:0:0 10");
    s.give("RECONFIG out 1 0 2 5");
    s.give("IDATA 3 B 5:0:0 12 + IDATA 4 E 5:0:1 13");
    assert_eq!(s.read(), [10]);
    s.sent.clear();
    s.give("IDATA 2 BE 5:1:0 11");
    s.expect("RECONFIG answer 1 1");
    let mut out = Vec::new();
    let mut read = || s.sctp.recv(s.id(), &mut out).unwrap().map(|received| received.len);
    assert_eq!([read(), read(), read()], [Some(11), Some(25), None]);
    assert_eq!(changes(&mut s), [reset(true, &[5])]);
    assert_eq!(snapshot(&s).state, State::Established);
}

/// RFC 6525 section 5.2.7, RFC 9260 section 9.2: a shutdown waits until it is known by which numbers the
/// peer goes; its data is taken all the same.
#[test]
fn a_shutdown_waits_for_a_reset_of_everything() {
    let mut s = Script::accepted(plain());
    s.sctp.reset_streams(s.id(), Reset::Everything).unwrap();
    s.expect("RECONFIG all 1");
    s.sctp.shutdown(s.now, s.id()).unwrap();
    s.expect_nothing();
    s.give("RECONFIG answer 1 2");
    s.expect("SHUTDOWN 0");
    s.give("DATA 1 BE 0:0 10");
    assert_eq!(s.read(), [10]);
}

/// RFC 6525 section 5.2.4: a reset of everything is not put off for ever while something is in flight, but
/// denied in the end, and new data goes out again.
#[test]
fn a_reset_of_everything_is_denied_in_the_end() {
    let mut s = Script::accepted(plain());
    s.send(1, 10);
    s.expect("DATA 1 BE 1:0 10");
    for _ in 0..1000 {
        s.give("RECONFIG all 1");
        s.expect("SACK 0 + RECONFIG answer 1 6");
    }
    s.send(1, 20);
    s.expect_nothing();
    s.give("RECONFIG all 1");
    s.expect("SACK 0 + RECONFIG answer 1 2 + DATA 2 BE 1:1 20");
}
