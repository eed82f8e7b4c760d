//! Association termination (AT).

use super::*;
use ringway_sctp::{CallError, SendError, SendOptions, State};

fn refused(s: &mut Script) -> bool {
    s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1])
        == Err(CallError::Refused(SendError::Closing))
}

/// AT 2.2: ABORT ends an association at once, without an answer.
#[test]
fn at_v_2_2() {
    let mut s = Script::accepted(plain());
    s.give("ABORT");
    s.expect_nothing();
    assert!(matches!(end(&mut s), Some(Close::Aborted { code: 12, .. })));
    assert!(s.sctp.is_empty());
}

/// AT 2.3: no SHUTDOWN before queued messages are acknowledged.
#[test]
fn at_i_2_3() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    shutdown(&mut s);
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::ShutdownPending);
    s.give("SACK 1");
    s.expect("SHUTDOWN 0");
}

/// AT 2.4: no SHUTDOWN ACK comes: SHUTDOWN again when T2-shutdown runs out.
#[test]
fn at_i_2_4() {
    let mut s = shutdown_sent();
    s.wait(ms(999));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("SHUTDOWN 0");
}

/// AT 2.5: SHUTDOWN goes out again Association.Max.Retrans times, and no more.
#[test]
fn at_i_2_5() {
    let settings = Settings { association_max_retrans: 4, rto_max: secs(2), ..plain() };
    let mut s = Script::accepted(settings);
    shutdown(&mut s);
    s.expect("SHUTDOWN 0");
    for _ in 0..4 {
        s.wait(secs(2));
        s.expect("SHUTDOWN 0");
    }
    s.wait(secs(100));
    s.expect_nothing();
    assert_eq!(end(&mut s), Some(Close::Unreachable));
}

/// AT 2.6: SHUTDOWN ACK in SHUTDOWN-SENT is answered with SHUTDOWN COMPLETE, and it is over.
#[test]
fn at_v_2_6() {
    let mut s = shutdown_sent();
    s.give("SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE");
    assert_eq!(end(&mut s), Some(Close::Finished));
    assert!(s.sctp.is_empty());
}

/// AT 2.7.1: in SHUTDOWN-SENT the user's data is refused.
#[test]
fn at_i_2_7_1() {
    assert!(refused(&mut shutdown_sent()));
}

/// AT 2.7.2: in SHUTDOWN-RECEIVED.
#[test]
fn at_i_2_7_2() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SHUTDOWN 0");
    assert_eq!(snapshot(&s).state, State::ShutdownReceived);
    assert!(refused(&mut s));
}

/// AT 2.7.3: in SHUTDOWN-PENDING.
#[test]
fn at_i_2_7_3() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    shutdown(&mut s);
    assert_eq!(snapshot(&s).state, State::ShutdownPending);
    assert!(refused(&mut s));
}

/// AT 2.7.4: in SHUTDOWN-ACK-SENT.
#[test]
fn at_i_2_7_4() {
    assert!(refused(&mut shutdown_ack_sent()));
}

/// AT 2.8: DATA in SHUTDOWN-SENT is acknowledged, SHUTDOWN is sent with it, and T2-shutdown restarts.
/// The SHUTDOWN acknowledges too (RFC 9260 section 9.2); the SACK with it carries the window.
#[test]
fn at_i_2_8() {
    let mut s = shutdown_sent();
    s.wait(ms(600));
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1 + SHUTDOWN 1");
    s.wait(ms(999));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("SHUTDOWN 1");
    assert_eq!(s.read(), [10]);
}

/// AT 2.9: DATA in SHUTDOWN-RECEIVED, after the peer's SHUTDOWN, is not delivered to the user.
#[test]
fn at_i_2_9() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SHUTDOWN 0");
    s.give("DATA 1 BE 0:0 20");
    assert!(s.read().is_empty());
}

/// AT 2.10: after SHUTDOWN what is outstanding is sent until it is acknowledged, then SHUTDOWN ACK.
#[test]
fn at_i_2_10() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SHUTDOWN 0");
    s.expect_nothing();
    s.wait(secs(1));
    s.expect("DATA 1 BE 0:0 10");
    s.give("SACK 1");
    s.expect("SHUTDOWN_ACK");
}

/// AT 2.11: no SHUTDOWN COMPLETE comes: SHUTDOWN ACK again when T2-shutdown runs out.
#[test]
fn at_i_2_11() {
    let mut s = shutdown_ack_sent();
    s.wait(ms(999));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("SHUTDOWN_ACK");
}

/// AT 2.12: SHUTDOWN ACK goes out again Association.Max.Retrans times, and no more.
#[test]
fn at_i_2_12() {
    let settings = Settings { association_max_retrans: 4, rto_max: secs(2), ..plain() };
    let mut s = Script::accepted(settings);
    s.give("SHUTDOWN 0");
    s.expect("SHUTDOWN_ACK");
    for _ in 0..4 {
        s.wait(secs(2));
        s.expect("SHUTDOWN_ACK");
    }
    s.wait(secs(100));
    s.expect_nothing();
    assert_eq!(end(&mut s), Some(Close::Unreachable));
}

/// AT 2.13: SHUTDOWN COMPLETE in SHUTDOWN-ACK-SENT: it is over.
#[test]
fn at_i_2_13() {
    let mut s = shutdown_ack_sent();
    s.give("SHUTDOWN_COMPLETE");
    s.expect_nothing();
    assert_eq!(end(&mut s), Some(Close::Finished));
    assert!(s.sctp.is_empty());
}

/// AT 2.14: a SHUTDOWN that acknowledges all that is outstanding is answered with SHUTDOWN ACK.
#[test]
fn at_v_2_14() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SHUTDOWN 1");
    s.expect("SHUTDOWN_ACK");
}
