//! Bundling of DATA with control chunks (BDC).

use super::*;
use ringway_sctp::State;

/// The bytes of a DATA chunk with the script's first TSN.
fn data(s: &Script) -> Vec<u8> {
    let tsn = s.peer_tsn.raw().to_be_bytes();
    [&[0, 3, 0, 20][..], &tsn, &[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]].concat()
}

/// BDC 7.1: an INIT in company is dropped.
#[test]
fn bdc_i_7_1() {
    let mut s = closed();
    let (fixed, parameters) = s.init();
    let mut packet = Vec::new();
    parameters.emit(&mut packet, kind::INIT, &fixed);
    packet.extend_from_slice(&data(&s));
    give_chunks(&mut s, 0, &packet);
    s.expect_nothing();
    assert_eq!(s.sctp.len(), 0);
}

/// BDC 7.2: an INIT ACK in company opens nothing.
#[test]
fn bdc_i_7_2() {
    let mut s = Script::connecting(plain());
    let (fixed, mut parameters) = s.init();
    parameters.cookie = Some(vec![9; 48]);
    let mut packet = Vec::new();
    parameters.emit(&mut packet, kind::INIT_ACK, &fixed);
    packet.extend_from_slice(&data(&s));
    let tag = s.tag;
    give_chunks(&mut s, tag, &packet);
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::CookieWait);
}

/// BDC 7.3: SHUTDOWN COMPLETE in company ends nothing.
#[test]
fn bdc_i_7_3() {
    let mut s = shutdown_ack_sent();
    let mut packet = vec![14, 0, 0, 4];
    packet.extend_from_slice(&data(&s));
    let tag = s.tag;
    give_chunks(&mut s, tag, &packet);
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::ShutdownAckSent);
}

/// BDC 7.4: COOKIE ECHO with DATA: both are taken.
#[test]
fn bdc_v_7_4() {
    let mut s = closed();
    s.give_init();
    s.take_init_ack();
    s.echo("DATA 1 BE 0:0 10");
    s.expect("COOKIE_ACK + SACK 1");
    assert_eq!(s.read(), [10]);
}

/// BDC 7.5: COOKIE ACK with DATA.
#[test]
fn bdc_v_7_5() {
    let mut s = echoed();
    s.give("COOKIE_ACK + DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    assert_eq!((s.read(), snapshot(&s).state), (vec![10], State::Established));
}

/// BDC 7.6: SACK with SHUTDOWN.
#[test]
fn bdc_v_7_6() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SACK 1 + SHUTDOWN 1");
    s.expect("SHUTDOWN_ACK");
}

/// BDC 7.7: SACK with DATA.
#[test]
fn bdc_v_7_7() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SACK 1 + DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    assert_eq!((s.read(), snapshot(&s).unacknowledged), (vec![10], 0));
}

/// BDC 7.8: SHUTDOWN ACK with DATA behind it: it is over, and the DATA comes too late.
#[test]
fn bdc_v_7_8() {
    let mut s = shutdown_sent();
    s.give("SHUTDOWN_ACK + DATA 1 BE 0:0 10");
    s.expect("SHUTDOWN_COMPLETE");
    s.expect_nothing();
    assert_eq!(end(&mut s), Some(Close::Finished));
}
