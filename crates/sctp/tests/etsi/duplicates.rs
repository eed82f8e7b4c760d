//! Duplicate messages, and messages in states where none is expected (DM).

use super::*;
use ringway_sctp::State;

/// DM 4.1: an INIT in COOKIE-WAIT is answered with an INIT ACK that bears our tag (RFC 9260 section
/// 5.2.1; the purpose has it dropped, which no RFC did).
#[test]
fn dm_o_4_1() {
    let mut s = Script::connecting(plain());
    let tag = s.tag;
    s.give_init();
    s.take_init_ack();
    assert_eq!((s.tag, snapshot(&s).state), (tag, State::CookieWait));
}

/// DM 4.2.1: an INIT in ESTABLISHED is answered, and the association goes on.
#[test]
fn dm_o_4_2_1() {
    let mut s = Script::accepted(plain());
    let tag = s.tag;
    s.give_init();
    s.take_init_ack();
    s.tag = tag;
    s.give("HEARTBEAT");
    s.expect("HEARTBEAT_ACK");
}

/// DM 4.2.2: an INIT in SHUTDOWN-ACK-SENT is answered with SHUTDOWN ACK.
#[test]
fn dm_o_4_2_2() {
    let mut s = shutdown_ack_sent();
    s.give_init();
    s.expect("SHUTDOWN_ACK");
}

/// DM 4.3: an INIT ACK in COOKIE-ECHOED is dropped: the first cookie is sent again.
#[test]
fn dm_o_4_3() {
    let mut s = echoed();
    let (fixed, mut parameters) = s.init();
    parameters.cookie = Some(vec![7; 50]);
    s.give_init_ack_with(&fixed, &parameters);
    s.expect_nothing();
    s.wait(secs(1));
    let (_, bytes) = s.take().unwrap();
    assert!(matches!(chunks(&bytes)[..], [Chunk::CookieEcho(cookie)] if cookie == [9; 50]));
}

/// DM 4.4: COOKIE ACK in ESTABLISHED is dropped.
#[test]
fn dm_o_4_4() {
    let mut s = Script::connected(plain());
    s.give("COOKIE_ACK");
    s.expect_nothing();
    s.give("HEARTBEAT");
    s.expect("HEARTBEAT_ACK");
}

/// DM 4.5: SHUTDOWN in SHUTDOWN-SENT is answered with SHUTDOWN ACK.
#[test]
fn dm_o_4_5() {
    let mut s = shutdown_sent();
    s.give("SHUTDOWN 0");
    s.expect("SHUTDOWN_ACK");
    assert_eq!(snapshot(&s).state, State::ShutdownAckSent);
}

/// DM 4.6.1: SHUTDOWN in COOKIE-WAIT is dropped.
#[test]
fn dm_o_4_6_1() {
    let mut s = Script::connecting(plain());
    s.give("SHUTDOWN 0");
    s.expect_nothing();
    s.wait(secs(1));
    s.expect("INIT");
}

/// DM 4.6.2: SHUTDOWN where there is no association is answered with ABORT.
#[test]
fn dm_o_4_6_2() {
    let mut s = closed();
    s.give_tagged(4711, B1, A1, "SHUTDOWN 0");
    s.expect("ABORT T");
}

/// DM 4.6.3: SHUTDOWN in SHUTDOWN-SENT: SHUTDOWN ACK goes out again by a timer that starts over.
#[test]
fn dm_o_4_6_3() {
    let mut s = shutdown_sent();
    s.wait(ms(700));
    s.give("SHUTDOWN 0");
    s.expect("SHUTDOWN_ACK");
    s.wait(ms(999));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("SHUTDOWN_ACK");
}

/// DM 4.7.1: SHUTDOWN ACK in COOKIE-WAIT does not end the opening (RFC 9260 section 8.5.1 E: it is
/// answered as if out of the blue).
#[test]
fn dm_o_4_7_1() {
    let mut s = Script::connecting(plain());
    s.give("SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE T");
    s.wait(secs(1));
    s.expect("INIT");
}

/// DM 4.7.2: SHUTDOWN ACK in ESTABLISHED changes nothing.
#[test]
fn dm_o_4_7_2() {
    let mut s = Script::accepted(plain());
    s.give("SHUTDOWN_ACK");
    s.expect_nothing();
    s.give("HEARTBEAT");
    s.expect("HEARTBEAT_ACK");
    let mut s = echoed();
    s.give("SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE T");
    assert_eq!(snapshot(&s).state, State::CookieEchoed);
}

/// DM 4.7.3: SHUTDOWN ACK in SHUTDOWN-ACK-SENT is answered with SHUTDOWN COMPLETE; what comes after
/// is out of the blue.
#[test]
fn dm_o_4_7_3() {
    let mut s = shutdown_ack_sent();
    s.give("SHUTDOWN_ACK");
    s.expect("SHUTDOWN_COMPLETE");
    s.give("HEARTBEAT");
    s.expect("ABORT T");
}

/// DM 4.8: a COOKIE ECHO in ESTABLISHED whose cookie was changed is dropped.
#[test]
fn dm_o_4_8() {
    let mut s = Script::accepted(plain());
    s.cookie[2] ^= 1;
    s.echo("");
    s.expect_nothing();
    s.give("HEARTBEAT");
    s.expect("HEARTBEAT_ACK");
}

/// DM 4.9: SHUTDOWN COMPLETE in any state but SHUTDOWN-ACK-SENT is dropped.
#[test]
fn dm_o_4_9() {
    let mut s = Script::connecting(plain());
    s.give("SHUTDOWN_COMPLETE");
    s.expect_nothing();
    s.wait(secs(1));
    s.expect("INIT");
    for mut s in [echoed(), Script::accepted(plain()), shutdown_sent()] {
        let state = snapshot(&s).state;
        s.give("SHUTDOWN_COMPLETE");
        s.expect_nothing();
        assert_eq!(snapshot(&s).state, state);
    }
}

/// DM 4.10: DATA in SHUTDOWN-ACK-SENT is not delivered to the user.
#[test]
fn dm_o_4_10() {
    let mut s = shutdown_ack_sent();
    s.give("DATA 1 BE 0:0 10");
    s.expect_nothing();
    assert!(s.read().is_empty());
}
