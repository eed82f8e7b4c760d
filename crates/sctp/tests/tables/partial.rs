//! Partial reliability: RFC 3758, and the policies of RFC 7496.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::{Event, Reliability, SendOptions, Settings, State};

fn lifetime(stream: u16, millis: u64) -> SendOptions {
    let reliability = Reliability::Lifetime(ms(millis));
    SendOptions { stream, reliability, ..SendOptions::default() }
}

/// RFC 3758 section 3.5: a message that is lost and late is abandoned, and the peer is notified
/// repeatedly until it confirms.
#[test]
fn a_late_message_is_abandoned() {
    let mut s = Script::accepted(plain());
    s.send_with(lifetime(3, 500), 10);
    s.expect("DATA 1 BE 3:0 10");
    s.send(4, 11);
    s.expect("DATA 2 BE 4:0 11");
    s.give("SACK 0 2-2");
    s.wait(secs(1));
    s.expect("FORWARD 1 3:0");
    assert!(s.events().contains(&Event::SendFailed { id: s.id(), messages: 1 }));
    s.wait(secs(2));
    s.expect("FORWARD 1 3:0");
    s.give("SACK 2");
    s.expect_nothing();
    assert_eq!((snapshot(&s).unacknowledged, snapshot(&s).errors), (0, 0));
    s.wait(secs(100));
    s.expect_nothing();
    s.send(3, 12);
    s.expect("DATA 3 BE 3:1 12");
}

/// RFC 3758 section 3.5, rule C4: a FORWARD TSN that is lost is sent again, also where the peer's window
/// opens meanwhile and nothing else is outstanding.
#[test]
fn a_forward_tsn_outlives_a_closed_window() {
    let mut s = Script::accepted(plain());
    s.send_with(lifetime(3, 1500), 10);
    s.expect("DATA 1 BE 3:0 10");
    s.give("SACK 0 w 0");
    s.wait(secs(1));
    s.expect("DATA 1 BE 3:0 10");
    s.wait(secs(2));
    s.expect("FORWARD 1 3:0");
    s.give("SACK 0");
    s.wait(secs(4));
    s.expect("FORWARD 1 3:0");
    s.give("SACK 1");
    s.wait(secs(100));
    s.expect_nothing();
}

/// RFC 3758 section 3.5: what was never sent is dropped without a word, and leaves no gap in its
/// stream.
#[test]
fn unsent_messages_leave_no_gap() {
    let mut s = Script::accepted(plain());
    for _ in 0..3 {
        s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1; 1452]).unwrap();
    }
    s.send_with(lifetime(0, 100), 10);
    s.send(0, 20);
    for n in 0..3 {
        s.expect(&format!("DATA {} BE 0:{n} 1452", n + 1));
    }
    s.wait(ms(150));
    s.give("SACK 3");
    s.expect("DATA 4 BE 0:3 20");
    assert!(s.events().contains(&Event::SendFailed { id: s.id(), messages: 1 }));
}

/// RFC 7496 section 4.1: a chunk is sent again so many times.
#[test]
fn retransmissions_can_be_limited() {
    for most in [0, 1, 2] {
        let mut s = Script::accepted(plain());
        let reliability = Reliability::Retransmits(most);
        s.send_with(SendOptions { reliability, unordered: true, ..SendOptions::default() }, 10);
        s.expect("DATA 1 UBE 0:0 10");
        for again in 0..most {
            s.wait(secs(1 << again));
            s.expect("DATA 1 UBE 0:0 10");
        }
        s.wait(secs(1 << most));
        // Unordered: no stream is named.
        s.expect("FORWARD 1");
    }
}

/// RFC 3758 section 3.5: all fragments of a message are abandoned together, including those not cut
/// yet.
#[test]
fn all_fragments_of_a_message_are_abandoned() {
    let mut s = Script::accepted(plain());
    s.send_with(lifetime(1, 500), 20_000);
    for flags in ["B", "", ""] {
        assert!(s.line().unwrap().1.contains(&format!(" {flags} 1:0 1452")));
    }
    s.send(2, 10);
    s.expect_nothing();
    s.wait(secs(1));
    // The end that was not cut has a TSN too, which the peer cannot have.
    s.expect("FORWARD 4 1:0 + DATA 5 BE 2:0 10");
    s.give("SACK 5");
    assert_eq!(snapshot(&s).unacknowledged, 0);
}

/// RFC 3758 section 3.3.1: a peer that does not take FORWARD TSN is sent everything, and its own is
/// unknown.
#[test]
fn without_negotiation_no_message_is_abandoned() {
    let mut s = Script::new(plain());
    s.forwards = false;
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK");
    s.send_with(lifetime(0, 100), 10);
    s.expect("DATA 1 BE 0:0 10");
    s.wait(secs(1));
    s.expect("DATA 1 BE 0:0 10");
    s.give("FORWARD 5");
    s.expect("ERROR 6");
}

/// RFC 3758 section 3.6: messages that waited for an abandoned one are delivered, and its fragments are
/// dropped.
#[test]
fn a_gap_is_passed_over() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 1");
    s.expect("SACK 1");
    // 2 and 5 are lost; 3 begins what 5 would end.
    s.give("DATA 3 B 1:0 30 + DATA 4 - 1:0 40 + DATA 6 BE 0:2 6 + DATA 7 BE 1:1 7");
    s.expect("SACK 1 3-4 6-7");
    assert_eq!(s.read(), [1]);
    s.give("FORWARD 2 0:1");
    s.expect("SACK 4 6-7");
    assert_eq!(s.read(), [6]);
    s.give("FORWARD 5 1:0");
    s.expect("SACK 7");
    assert_eq!(s.read(), [7]);
    s.give("FORWARD 4 1:0");
    s.expect("SACK 7");
    s.give("DATA 8 BE 0:3 8 + DATA 9 BE 1:2 9");
    assert_eq!(s.read(), [8, 9]);
    assert_eq!((snapshot(&s).unread, snapshot(&s).state), (0, State::Established));
}

/// A peer that abandons a message of which every sent fragment has arrived.
#[test]
fn a_message_without_an_end_is_dropped() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 B 0:0 30 + DATA 2 - 0:0 40");
    s.expect("SACK 2");
    s.give("FORWARD 2 0:0");
    s.expect("SACK 2");
    s.give("DATA 3 BE 0:1 5");
    assert_eq!((s.read(), snapshot(&s).unread), (vec![5], 0));
}

/// The reader of a part is notified that the rest is missing.
#[test]
fn a_part_that_was_read_is_cut() {
    let settings = Settings { receive_buffer: 3000, ..plain() };
    let mut s = Script::accepted(settings);
    s.give("DATA 1 B 0:0 1000 + DATA 2 - 0:0 1000");
    let mut out = Vec::new();
    let part = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert!(part.begin && !part.end && part.len == 2000);
    s.give("FORWARD 3 0:0");
    let rest = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
    assert!(!rest.begin && rest.end && rest.cut && rest.len == 0);
    s.give("DATA 4 BE 0:1 5");
    assert_eq!(s.read(), [5]);
}

/// RFC 3758 section 3.6: a late FORWARD TSN has no effect, also after its stream was reset.
#[test]
fn an_old_forward_tsn_is_ignored() {
    let mut s = Script::accepted(plain());
    s.give("FORWARD 1 0:4");
    s.give("RECONFIG out 1 0 1 0");
    s.give("FORWARD 1 0:4");
    s.give("DATA 2 BE 0:0 10");
    assert_eq!(snapshot(&s).state, State::Established);
    assert_eq!(s.read(), [10]);
}

/// RFC 7496 section 4.2: a message without room evicts no other in vain, whether room is limited by
/// bytes or by number, and whether or not evicted messages are returned.
#[test]
fn no_message_is_evicted_in_vain() {
    for return_undelivered in [false, true] {
        for size in [1usize, 1000] {
            let mut s =
                Script::accepted(Settings { send_buffer: 6400, return_undelivered, ..plain() });
            let with = |priority| SendOptions {
                reliability: Reliability::Priority(priority),
                ..SendOptions::default()
            };
            // Nothing leaves: the script's window is not asked before packets are collected.
            for _ in 0..6400 / size.max(64) {
                s.sctp.send(s.now, s.id(), &with(5), vec![1; size]).unwrap();
            }
            s.sctp.send(s.now, s.id(), &with(1), vec![2; size]).unwrap();
            let refused = s.sctp.send(s.now, s.id(), &with(9), vec![3; size]);
            assert!(refused.is_err());
            let lost = |event: &Event| match event {
                Event::SendFailed { messages, .. } => *messages,
                _ => 0,
            };
            s.collect();
            let events = s.events();
            assert_eq!(events.iter().map(lost).sum::<u32>(), 1, "{return_undelivered} {size}");
            let back = events.iter().filter(|e| matches!(e, Event::Returned { .. })).count();
            assert_eq!(back, usize::from(return_undelivered), "{size}");
        }
    }
}

/// RFC 3758 section 3.6: a message with an abandoned fragment is removed completely, including
/// fragments above the new Cumulative TSN. A peer that follows section 3.5 C2 literally stops at data
/// acknowledged in gap blocks.
#[test]
fn a_forward_tsn_into_a_message_removes_it() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 B 0:0 10");
    s.give("DATA 3 - 0:0 10");
    s.give("DATA 4 E 0:0 10");
    s.give("DATA 5 BE 0:1 10");
    s.give("FORWARD 2 0:0");
    assert_eq!(snapshot(&s).state, State::Established);
    assert_eq!((s.read(), snapshot(&s).unread), (vec![10], 0));
}

/// RFC 9260 section 11.1.5: expired messages make room, and a refused writer is notified, also where
/// nothing is in flight and so no SACK will arrive.
#[test]
fn expired_messages_make_room() {
    let mut s = Script::accepted(Settings { send_buffer: 10_000, ..plain() });
    s.give("SACK 0 w 0");
    for _ in 0..10 {
        s.send_with(lifetime(0, 50), 1000);
    }
    assert!(s.sctp.send(s.now, s.id(), &lifetime(0, 50), vec![1; 1000]).is_err());
    s.wait(secs(60));
    assert!(s.events().iter().any(|e| matches!(e, Event::Writable(_))));
}

/// RFC 3758 section 4.1, TR3 and TR4: no TSN is assigned to an expired message, so the rest of a large
/// one is not sent, and the peer is notified.
#[test]
fn an_expired_message_is_not_sent_to_its_end() {
    let mut s = Script::accepted(plain());
    s.send_with(lifetime(0, 150), 200_000);
    let mut last = 0;
    for _ in 0..5 {
        while let Some((_, line)) = s.line() {
            assert!(line.starts_with("DATA") || line.starts_with("FORWARD"), "{line}");
            if line.starts_with("DATA") {
                last = line.split(' ').nth(1).unwrap().parse().unwrap();
            }
        }
        s.wait(ms(100));
        s.give(&format!("SACK {last}"));
    }
    assert!((5..30).contains(&last), "{last} chunks");
    // One TSN more was used, and never sent.
    s.sent.clear();
    s.give(&format!("SACK {}", last + 1));
    s.send(0, 10);
    s.expect(&format!("DATA {} BE 0:1 10", last + 2));
}

/// RFC 9260 section 6.2: an evicted message is never sent as a DATA chunk without data, also where the
/// message before it is abandoned while a packet is written.
#[test]
fn an_evicted_message_is_not_sent() {
    let mut s = Script::accepted(Settings { send_buffer: 8000, ..plain() });
    let with = |stream, reliability| SendOptions { stream, reliability, ..SendOptions::default() };
    s.send_with(with(0, Reliability::Lifetime(ms(1500))), 6000);
    s.wait(secs(1));
    s.send_with(with(1, Reliability::Priority(5)), 1500);
    s.send_with(with(1, Reliability::Priority(1)), 1500);
    s.wait(ms(600));
    s.send(2, 10);
    s.wait(secs(5));
    while let Some((_, line)) = s.line() {
        let empty = |chunk: &str| chunk.starts_with("DATA") && chunk.ends_with(" 0");
        assert!(!line.split(" + ").any(empty), "{line}");
    }
}
