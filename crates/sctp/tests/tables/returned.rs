//! Messages that go back to their user: RFC 9260 sections 11.1.14 and 11.1.15.

use super::plain;
use super::support::*;
use ringway_sctp::{Event, Reliability, SendOptions, Settings, UndeliveredMessage};

fn returned(s: &mut Script) -> Vec<(u16, usize, bool)> {
    let mut all = Vec::new();
    for event in s.events() {
        if let Event::Returned { message: UndeliveredMessage { stream, sent, data, .. }, .. } =
            event
        {
            assert_eq!(data, pattern(0, data.len()));
            all.push((stream, data.len(), sent));
        }
    }
    all
}

fn script(settings: Settings) -> Script {
    Script::accepted(Settings { return_undelivered: true, initial_cwnd: Some(1468), ..settings })
}

/// When the association ends: what was sent and not acknowledged, what was half cut, and what was
/// never sent; not what was acknowledged.
#[test]
fn everything_undelivered_is_returned_at_the_end() {
    let mut s = script(plain());
    for (stream, bytes) in [(1, 20), (2, 3000), (3, 40), (3, 50)] {
        s.send(stream, bytes);
    }
    s.take().unwrap();
    s.give("SACK 1");
    s.send(4, 60);
    while s.take().is_some() {}
    s.give("ABORT");
    let back = returned(&mut s);
    assert_eq!(back, [(2, 3000, true), (3, 40, false), (3, 50, false), (4, 60, false)]);
    assert!(s.sctp.is_empty());
}

/// An abandoned message is returned when it is abandoned, and once.
#[test]
fn an_abandoned_message_is_returned() {
    let mut s = script(plain());
    let reliability = Reliability::Lifetime(ms(500));
    s.send_with(SendOptions { stream: 1, reliability, ..SendOptions::default() }, 3000);
    s.send_with(SendOptions { stream: 2, reliability, ..SendOptions::default() }, 30);
    s.take().unwrap();
    s.wait(secs(1));
    assert_eq!(returned(&mut s), [(1, 3000, true), (2, 30, false)]);
    s.give("ABORT");
    assert_eq!(returned(&mut s), []);
    assert!(s.sctp.is_empty());
}

/// Nothing goes back unless it is asked for; and what waits for its user counts in the send buffer.
#[test]
fn returned_messages_are_bounded() {
    let mut s = Script::accepted(plain());
    s.send(1, 20);
    s.give("ABORT");
    assert_eq!(returned(&mut s), []);
    let mut s = script(Settings { send_buffer: 5000, ..plain() });
    let reliability = Reliability::Lifetime(ms(100));
    let options = SendOptions { stream: 2, reliability, ..SendOptions::default() };
    let mut count = 0;
    for _ in 0..100 {
        let data = pattern(0, 1000);
        count += usize::from(s.sctp.send(s.now, s.id(), &options, data).is_ok());
        s.collect();
        s.wait(ms(200));
    }
    assert!(count <= 6, "{count}");
    assert!(returned(&mut s).len() + 1 >= count);
    assert!(s.sctp.send(s.now, s.id(), &options, pattern(0, 1000)).is_ok());
}
