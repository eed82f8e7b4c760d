//! Interleaved messages and schedulers: RFC 8260; eviction by priority: RFC 7496.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::wire::chunk::kind;
use ringway_sctp::{
    CallError, Event, Reliability, Reset, Scheduling, SendError, SendOptions, Settings, State,
};

fn script(settings: Settings) -> Script {
    let mut s = Script::new(settings);
    s.extensions = vec![kind::I_DATA, kind::I_FORWARD_TSN, kind::RE_CONFIG];
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
    s
}

fn interleaving() -> Settings {
    Settings { interleaving: true, ..plain() }
}

fn all(s: &mut Script) -> Vec<String> {
    core::iter::from_fn(|| s.line().map(|l| l.1)).collect()
}

/// RFC 8260 sections 2.1 and 2.2.2: B has the payload protocol identifier and no other has, MIDs
/// count ordered and unordered messages of a stream apart.
#[test]
fn messages_are_numbered() {
    let mut s = script(interleaving());
    let options = SendOptions { stream: 3, ppid: 77, ..SendOptions::default() };
    s.send_with(options, 3000);
    let parts = ["IDATA 1 B 3:0:77 1448", "IDATA 2  3:0:1 1448", "IDATA 3 E 3:0:2 104"];
    assert_eq!(all(&mut s), parts);
    s.give("SACK 3");
    s.send_with(SendOptions { unordered: true, ..options }, 10);
    s.send_with(options, 10);
    s.send_with(SendOptions { unordered: true, ..options }, 10);
    let small = ["IDATA 4 UBE 3:0:77 10", "IDATA 5 BE 3:1:77 10", "IDATA 6 UBE 3:1:77 10"];
    assert_eq!(all(&mut s).join(" + "), small.join(" + "));
    // Sent again as it was.
    s.wait(secs(1));
    assert_eq!(all(&mut s)[0], small.join(" + "));
}

/// RFC 8260 section 2.2.2 with section 3.2: a large message of one stream does not hold up a small
/// one of another.
#[test]
fn messages_are_interleaved() {
    let settings = Settings { scheduling: Scheduling::RoundRobin, ..interleaving() };
    let mut s = script(Settings { initial_cwnd: Some(50_000), max_burst: 0, ..settings });
    s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1; 10_000]).unwrap();
    s.send(1, 20);
    s.send(2, 30);
    let lines = all(&mut s);
    let first =
        ["IDATA 1 B 0:0:0 1448", "IDATA 2 BE 1:0:0 20 + IDATA 3 BE 2:0:0 30 + IDATA 4  0:0:1"];
    assert_eq!(lines[0], first[0]);
    assert!(lines[1].starts_with(&first[1][..40]), "{lines:?}");
    assert!(lines.last().unwrap().contains(" E 0:0:"), "{lines:?}");
}

/// RFC 8260 section 2.2.3: fragments are put together by message and number, not by TSN.
#[test]
fn fragments_may_come_mixed() {
    let mut s = script(interleaving());
    s.give("IDATA 1 B 0:0:7 10 + IDATA 2 B 1:0:8 20 + IDATA 3 UB 0:0:9 5");
    s.give("IDATA 4 E 1:0:1 20 + IDATA 6 E 0:0:2 10");
    s.sent.clear();
    let mut out = Vec::new();
    let got = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert_eq!((got.stream, got.ppid, got.len, got.begin, got.end), (1, 8, 40, true, true));
    assert!(s.sctp.recv(s.id(), &mut out).unwrap().is_none());
    s.give("IDATA 5 - 0:0:1 10");
    let got = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert_eq!((got.stream, got.ppid, got.len, got.unordered), (0, 7, 30, false));
    s.give("IDATA 7 UE 0:0:1 5");
    let got = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert_eq!((got.stream, got.ppid, got.len, got.unordered), (0, 9, 10, true));
    // A later message of a stream waits for the one before.
    s.give("IDATA 9 BE 0:2:0 3 + IDATA 10 UBE 0:5:0 4");
    assert_eq!(s.read(), [4]);
    s.give("IDATA 8 BE 0:1:0 2");
    assert_eq!(s.read(), [2, 3]);
    assert_eq!(snapshot(&s).unread, 0);
}

/// RFC 8260 sections 2.2.3 and 2.3.1: chunks of the other kind end the association.
#[test]
fn the_other_kind_is_a_violation() {
    for (agreed, line) in [
        (true, "DATA 1 BE 0:0 10"),
        (true, "FORWARD 5 0:0"),
        (false, "IDATA 1 BE 0:0:0 10"),
        (false, "IFORWARD 5 0:0"),
    ] {
        let mut s = script(if agreed { interleaving() } else { plain() });
        s.give(line);
        let answer = s.line().map(|l| l.1);
        if line.starts_with('F') || line.starts_with("IF") {
            // Without negotiated I-FORWARD-TSN no message is abandoned.
            assert!(answer.is_some_and(|a| a.contains("13") || a.contains("ERROR 6")), "{line}");
        } else {
            assert_eq!(answer.as_deref(), Some("ABORT 13"), "{line}");
        }
    }
}

/// RFC 8260 section 2.2.3: numbers that contradict each other.
#[test]
fn contradictions_are_violations() {
    for lines in [
        ["IDATA 1 B 0:0:0 10", "IDATA 2 B 0:0:0 10"],
        ["IDATA 1 E 0:0:3 10", "IDATA 2 - 0:0:4 10"],
        ["IDATA 1 - 0:0:3 10", "IDATA 2 E 0:0:2 10"],
        ["IDATA 1 E 0:0:3 10", "IDATA 2 E 0:0:5 10"],
        ["IDATA 1 B 0:0:0 10", "IDATA 2 - 0:0:0 10"],
    ] {
        let mut s = script(interleaving());
        s.give(lines[0]);
        s.sent.clear();
        s.give(lines[1]);
        s.expect("ABORT 13");
    }
}

/// RFC 8260 section 2.3.1: abandoned messages are named by MID, unordered ones too.
#[test]
fn abandoned_messages_are_named_by_mid() {
    let settings = Settings { scheduling: Scheduling::RoundRobin, ..interleaving() };
    let mut s = script(Settings { initial_cwnd: Some(50_000), max_burst: 0, ..settings });
    let reliability = Reliability::Lifetime(ms(500));
    let of = |stream, unordered| SendOptions {
        stream,
        unordered,
        reliability,
        ..SendOptions::default()
    };
    s.sctp.send(s.now, s.id(), &of(1, false), vec![1; 2000]).unwrap();
    s.sctp.send(s.now, s.id(), &of(2, true), vec![1; 2000]).unwrap();
    s.send(3, 10);
    assert_eq!(all(&mut s).len(), 3);
    // Only the message of stream 3 arrives: it went third.
    s.give("SACK 0 3-3");
    s.wait(secs(1));
    let lines = all(&mut s);
    assert_eq!(lines[0], "IFORWARD 2 1:0 U2:0", "{lines:?}");
    s.give("SACK 3");
    s.expect("IFORWARD 5 1:0 U2:0");
    s.give("SACK 5");
    assert_eq!(snapshot(&s).unacknowledged, 0);
    s.send(1, 10);
    s.expect("IDATA 6 BE 1:1:0 10");
}

/// RFC 8260 section 2.3.1: messages up to a MID are dropped where not whole and delivered where
/// they are.
#[test]
fn skipped_messages_are_passed_over() {
    let mut s = script(interleaving());
    s.give("IDATA 1 B 0:0:0 10 + IDATA 3 BE 0:2:0 12 + IDATA 4 UB 1:0:0 10 + IDATA 5 BE 0:4:0 14");
    s.give("IFORWARD 4 0:2 U1:0");
    s.sent.clear();
    assert_eq!(s.read(), [12]);
    s.give("IDATA 6 BE 0:3:0 13");
    assert_eq!(s.read(), [13, 14]);
    assert_eq!((snapshot(&s).unread, snapshot(&s).state), (0, State::Established));
    s.give("IFORWARD 3 0:1");
    s.sent.clear();
    s.give("IDATA 7 BE 0:5:0 15");
    assert_eq!(s.read(), [15]);
    // A late fragment of an abandoned message.
    s.give("IDATA 8 E 0:0:1 10");
    s.expect("SACK 8");
    assert_eq!((s.read(), snapshot(&s).unread), (vec![], 0));
}

/// A message larger than the buffer is delivered in parts, and others between them; one that is
/// abandoned after a part was read has an end.
#[test]
fn large_messages_come_in_parts() {
    let mut s = script(Settings { receive_buffer: 3000, ..interleaving() });
    s.give("IDATA 1 B 0:0:5 1000 + IDATA 2 - 0:0:1 1000");
    let mut out = Vec::new();
    let part = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert!(part.begin && !part.end && part.len == 2000 && part.ppid == 5, "{part:?}");
    s.give("IDATA 3 BE 1:0:0 7 + IDATA 4 - 0:0:2 100");
    let other = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert!(other.stream == 1 && other.end);
    let part = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert!(!part.begin && !part.end && part.len == 100);
    s.give("IFORWARD 5 0:0");
    let rest = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert!(!rest.begin && rest.end && rest.cut && rest.len == 0);
    s.give("IDATA 6 BE 0:1:0 9");
    assert_eq!((s.read(), snapshot(&s).unread), (vec![9], 0));
}

/// RFC 8260 section 2.3.2: with a reset both kinds of MIDs begin anew.
#[test]
fn a_reset_begins_mids_anew() {
    let mut s = script(interleaving());
    s.send(1, 10);
    s.send_with(SendOptions { stream: 1, unordered: true, ..SendOptions::default() }, 10);
    s.give("IDATA 1 BE 2:0:0 10 + IDATA 2 UBE 2:0:0 11");
    s.sent.clear();
    s.give("SACK 2");
    s.sctp.reset_streams(s.id(), Reset::Outgoing(&[1])).unwrap();
    s.expect("RECONFIG out 1 0 2 1");
    s.give("RECONFIG answer 1 1");
    s.send(1, 10);
    s.send_with(SendOptions { stream: 1, unordered: true, ..SendOptions::default() }, 10);
    assert_eq!(all(&mut s).concat(), "IDATA 3 BE 1:0:0 10 + IDATA 4 UBE 1:0:0 10");
    s.give("RECONFIG out 1 1 2 2");
    s.give("IDATA 3 BE 2:0:0 12");
    assert_eq!(s.read(), [10, 11, 12]);
}

/// RFC 8260 section 3.3: a packet has chunks of one stream.
#[test]
fn a_packet_has_one_stream() {
    let mut s = script(Settings { scheduling: Scheduling::PacketRoundRobin, ..plain() });
    for stream in [1, 2, 1, 2] {
        s.send(stream, 10);
    }
    s.expect("DATA 1 BE 1:0 10 + DATA 2 BE 1:1 10");
    s.expect("DATA 3 BE 2:0 10 + DATA 4 BE 2:1 10");
    s.expect_nothing();
}

/// RFC 8260 section 3.4: priorities of streams.
#[test]
fn streams_have_priorities() {
    let mut s = script(Settings { scheduling: Scheduling::Priority, max_burst: 1, ..plain() });
    for (stream, value) in [(1, 9), (2, 3), (3, 9)] {
        s.sctp.set_stream_value(s.id(), stream, value).unwrap();
    }
    assert!(s.sctp.set_stream_value(s.id(), 10, 1).is_err());
    for stream in [1, 1, 2, 3] {
        let options = SendOptions { stream, ..SendOptions::default() };
        s.sctp.send(s.now, s.id(), &options, vec![1; 1452]).unwrap();
    }
    let mut order = Vec::new();
    for n in 1..=4 {
        for line in all(&mut s) {
            order.push(line.split(' ').nth(3).unwrap()[..1].parse::<u16>().unwrap());
        }
        s.give(&format!("SACK {n}"));
    }
    assert_eq!(order[0..2].iter().filter(|s| **s == 2).count(), 1, "{order:?}");
}

/// RFC 7496 section 4.2: when there is no room, a message of a lower priority that was not begun is
/// evicted.
#[test]
fn messages_of_low_priority_are_evicted() {
    let mut s = script(Settings { send_buffer: 4000, initial_cwnd: Some(1468), ..plain() });
    let of =
        |value| SendOptions { reliability: Reliability::Priority(value), ..Default::default() };
    let mut give = |value| s.sctp.send(s.now, s.id(), &of(value), vec![1; 1000]);
    for value in [5, 7, 6, 5] {
        give(value).unwrap();
    }
    assert!(matches!(give(7), Err(CallError::Refused(SendError::NoRoom { .. }))));
    give(1).unwrap();
    give(2).unwrap();
    assert!(matches!(give(5), Err(CallError::Refused(SendError::NoRoom { .. }))));
    let failed = Event::SendFailed { id: s.id(), messages: 2 };
    s.collect();
    assert!(s.events().contains(&failed));
    for n in 1..=4 {
        s.expect(&format!("DATA {n} BE 0:{} 1000", n - 1));
        s.give(&format!("SACK {n}"));
    }
    s.expect_nothing();
    assert_eq!(snapshot(&s).unacknowledged, 0);
}

/// RFC 8260 section 2.3.1: fragments of an abandoned unordered message may arrive late, with TSNs above
/// the one that it was skipped at. They are not held for anything.
#[test]
fn late_fragments_of_an_abandoned_message_are_dropped() {
    let mut s = script(interleaving());
    s.give("IDATA 1 UB 0:0:0 10 + IDATA 2 UBE 0:1:0 20");
    s.give("IFORWARD 3 U0:2");
    s.give("IDATA 4 U 0:0:1 10 + IDATA 5 U 0:2:3 10 + IDATA 6 BE 0:0:0 30 + IDATA 7 UBE 0:3:0 40");
    assert_eq!(s.read(), [20, 30, 40]);
    assert_eq!((snapshot(&s).unread, snapshot(&s).state), (0, State::Established));
}
