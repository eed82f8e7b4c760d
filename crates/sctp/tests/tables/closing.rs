//! The end: RFC 9260 section 9.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::{CallError, Close, Event, SendError, SendOptions, Settings, State};

fn closed(s: &mut Script) -> Option<Close> {
    s.events().into_iter().find_map(|event| match event {
        Event::Closed(_, why) => Some(why),
        _ => None,
    })
}

fn shutdown(s: &mut Script) {
    let (now, id) = (s.now, s.id());
    s.sctp.shutdown(now, id).unwrap();
}

/// RFC 9260 section 9.2: everything is acknowledged before SHUTDOWN goes out; the I bit asks for
/// that without delay (section 6.1).
#[test]
fn data_comes_before_shutdown() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.send(0, 20_000);
    s.collect();
    s.sent.clear();
    shutdown(&mut s);
    assert_eq!(
        s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1]),
        Err(CallError::Refused(SendError::Closing))
    );
    s.give("DATA 1 BE 0:0 5");
    s.expect("SACK 1");
    let mut acked = 4;
    while snapshot(&s).outstanding > 0 {
        s.give(&format!("SACK {acked}"));
        acked += 3;
        acked = acked.min(15);
        let last = core::iter::from_fn(|| s.line()).last();
        if snapshot(&s).unacknowledged == 0 {
            assert_eq!(last.unwrap().1, "SHUTDOWN 1");
        }
    }
    assert_eq!(snapshot(&s).state, State::ShutdownSent);
    s.give("SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE");
    assert_eq!(closed(&mut s), Some(Close::Finished));
    assert_eq!(s.read(), [5], "what was received can still be read");
    assert!(s.sctp.is_empty());
}

/// RFC 9260 section 9.2: SHUTDOWN is sent again by T2-shutdown, until the peer is unreachable.
#[test]
fn shutdown_is_sent_again() {
    let mut s = Script::accepted(Settings { association_max_retrans: 3, ..plain() });
    shutdown(&mut s);
    s.expect("SHUTDOWN 0");
    for wait in [1, 2, 4] {
        s.wait(secs(wait));
        s.expect("SHUTDOWN 0");
        s.expect_nothing();
    }
    s.wait(secs(8));
    s.expect_nothing();
    assert_eq!(closed(&mut s), Some(Close::Unreachable));
}

/// RFC 9260 section 9.2: in SHUTDOWN-SENT each packet with DATA is answered with SHUTDOWN, and with a
/// SACK for the window and gaps, which SHUTDOWN cannot carry.
#[test]
fn data_after_shutdown_is_acknowledged() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 5");
    s.expect("SACK 1");
    shutdown(&mut s);
    s.expect("SHUTDOWN 1");
    s.give("DATA 2 BE 0:1 5");
    s.expect("SACK 2 + SHUTDOWN 2");
    s.give("DATA 4 BE 0:3 5");
    s.expect("SACK 2 4-4 + SHUTDOWN 2");
    s.give("DATA 3 BE 0:2 5");
    s.expect("SACK 4 + SHUTDOWN 4");
    assert_eq!(s.read(), [5; 4]);
}

/// RFC 9260 section 9.2: the receiver of SHUTDOWN sends what it has, then SHUTDOWN ACK.
#[test]
fn shutdown_waits_for_queued_messages() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.send(0, 11);
    s.collect();
    s.sent.clear();
    s.give("SHUTDOWN 1");
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::ShutdownReceived);
    assert!(s.events().contains(&Event::PeerShutdown(s.id())));
    assert_eq!(
        s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1]),
        Err(CallError::Refused(SendError::Closing))
    );
    // The user's own shutdown changes nothing now.
    shutdown(&mut s);
    assert_eq!(snapshot(&s).state, State::ShutdownReceived);
    s.wait(ms(200));
    s.expect("DATA 2 BE 0:1 11");
    s.give("SHUTDOWN 2");
    s.expect("SHUTDOWN_ACK");
    s.wait(ms(400));
    s.expect("SHUTDOWN_ACK");
    s.give("SHUTDOWN_COMPLETE");
    assert_eq!(closed(&mut s), Some(Close::Finished));
}

/// RFC 9260 section 9.2: SHUTDOWN meets SHUTDOWN, SHUTDOWN ACK meets SHUTDOWN ACK.
#[test]
fn shutdowns_cross() {
    let mut s = Script::accepted(plain());
    shutdown(&mut s);
    s.expect("SHUTDOWN 0");
    s.give("SHUTDOWN 0");
    s.expect("SHUTDOWN_ACK");
    assert_eq!(snapshot(&s).state, State::ShutdownAckSent);
    s.give("SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE");
    assert_eq!(closed(&mut s), Some(Close::Finished));
}

/// RFC 9260 section 9.2: SHUTDOWN COMPLETE in any other state is dropped.
#[test]
fn shutdown_complete_out_of_turn() {
    let mut s = Script::accepted(plain());
    s.give("SHUTDOWN_COMPLETE");
    assert_eq!(snapshot(&s).state, State::Established);
    shutdown(&mut s);
    s.expect("SHUTDOWN 0");
    s.give("SHUTDOWN_COMPLETE");
    assert_eq!(snapshot(&s).state, State::ShutdownSent);
}

/// RFC 9260 section 9.2: the guard ends a shutdown that goes on for ever.
#[test]
fn the_guard_ends_it() {
    let settings = Settings { shutdown_guard: Some(secs(10)), ..plain() };
    let mut s = Script::accepted(settings);
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    shutdown(&mut s);
    for _ in 0..99 {
        s.wait(ms(100));
        // Always a sign of life, never an acknowledgement.
        s.give("SACK 0");
    }
    s.sent.clear();
    s.wait(ms(100));
    s.expect("ABORT 12");
    assert_eq!(closed(&mut s), Some(Close::ShutdownTimeout));
}

/// RFC 9260 section 9.2: an INIT in SHUTDOWN-ACK-SENT brings SHUTDOWN ACK again; section 5.2.4 A:
/// and a cookie that with an ERROR.
#[test]
fn a_peer_comes_back_too_soon() {
    let mut s = Script::accepted(plain());
    let (tag, peer_tag, tsn) = (s.tag, s.peer_tag, s.tsn);
    // A cookie for a restart, made before the end.
    s.peer_tag = 99;
    s.give_init();
    s.take_init_ack();
    let new_tag = s.tag;
    (s.tag, s.tsn) = (tag, tsn);
    s.give("SHUTDOWN 0");
    s.expect("SHUTDOWN_ACK");
    s.give_init();
    s.expect("SHUTDOWN_ACK");
    s.tag = new_tag;
    s.echo("");
    s.expect("ERROR 10 + SHUTDOWN_ACK");
    s.tag = tag;
    s.peer_tag = peer_tag;
    s.give("SHUTDOWN_COMPLETE");
    assert_eq!(closed(&mut s), Some(Close::Finished));
}

/// RFC 9260 section 8.3: no heartbeats once SHUTDOWN is sent. Those of the peer are answered, for it may
/// have data left.
#[test]
fn heartbeats_end_with_shutdown() {
    let mut s = Script::accepted(Settings::default());
    shutdown(&mut s);
    s.expect("SHUTDOWN 0");
    s.give("HEARTBEAT");
    s.expect("HEARTBEAT_ACK");
    s.wait(secs(100));
    while let Some((_, line)) = s.line() {
        assert_eq!(line, "SHUTDOWN 0");
    }
}

/// What never became whole does not keep an association that is over.
#[test]
fn an_unfinished_message_stores_nothing() {
    let mut s = Script::accepted(plain());
    s.give(
        "DATA 1 BE 0:0 5 + DATA 2 B 0:1 10 + DATA 4 BE 1:0 6 + DATA 6 BE 0:3 7 + DATA 8 - 0:4 9",
    );
    s.give("ABORT");
    assert!(closed(&mut s).is_some());
    assert_eq!(s.read(), [5, 6]);
    assert!(s.sctp.is_empty());
}

/// RFC 9260 section 9.1: the user's ABORT, without DATA.
#[test]
fn the_user_aborts() {
    let mut s = Script::accepted(plain());
    s.send(0, 20_000);
    s.collect();
    s.sent.clear();
    s.sctp.abort(s.id(), b"why").unwrap();
    s.expect("ABORT 12");
    s.expect_nothing();
    assert!(s.sctp.is_empty() && s.events().is_empty());
    s.give("SACK 1");
    s.expect("ABORT T");
}

/// Shut down while opening: queued messages are sent first.
#[test]
fn a_shutdown_while_opening() {
    let mut s = Script::connecting(plain());
    s.send(0, 10);
    shutdown(&mut s);
    s.give_init_ack();
    s.expect("COOKIE_ECHO + DATA 1 BE 0:0 10");
    s.give("COOKIE_ACK + SACK 1");
    s.expect("SHUTDOWN 0");
}

/// RFC 9260 section 9.2: a SHUTDOWN that was lost goes again though the peer's heartbeats come more
/// often than T2-shutdown runs.
#[test]
fn heartbeats_do_not_put_off_a_shutdown() {
    let mut s = Script::accepted(plain());
    shutdown(&mut s);
    s.expect("SHUTDOWN 0");
    for _ in 0..2 {
        s.wait(ms(400));
        s.give("HEARTBEAT");
        s.expect("HEARTBEAT_ACK");
    }
    s.wait(ms(400));
    s.expect("SHUTDOWN 0");
    assert_eq!(snapshot(&s).errors, 1);
    s.give("HEARTBEAT");
    assert_eq!(snapshot(&s).errors, 0);
}

/// RFC 9260 sections 5.2.4 A and 9.2: a peer that comes back while the user shuts down finds an
/// association that is shut down.
#[test]
fn a_restart_does_not_undo_a_shutdown() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    shutdown(&mut s);
    s.expect_nothing();
    s.peer_tag = 0x777;
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.expect("COOKIE_ACK + SHUTDOWN 0");
    assert_eq!(snapshot(&s).state, State::ShutdownSent);
    s.give("SHUTDOWN_ACK");
    assert_eq!(closed(&mut s), Some(Close::Finished));
}
