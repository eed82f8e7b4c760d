//! Invalid message handling (IMH).

use super::*;
use ringway_sctp::State;

/// IMH 3.1: an INIT that is too short for its fixed part is dropped.
#[test]
fn imh_i_3_1() {
    let mut s = closed();
    give_chunks(&mut s, 0, &[1, 0, 0, 5, 1, 0, 0, 0]);
    s.expect_nothing();
    assert_eq!((s.sctp.len(), s.sctp.counters().malformed), (0, 1));
}

/// IMH 3.2: so is an INIT ACK; INIT goes out again.
#[test]
fn imh_i_3_2() {
    let mut s = Script::connecting(plain());
    let tag = s.tag;
    give_chunks(&mut s, tag, &[2, 0, 0, 5, 1, 0, 0, 0]);
    s.expect_nothing();
    s.wait(secs(1));
    s.expect("INIT");
}

/// IMH 3.3: a COOKIE ECHO whose tag is not that of the cookie is dropped.
#[test]
fn imh_i_3_3() {
    let mut s = closed();
    s.give_init();
    s.take_init_ack();
    s.tag ^= 1;
    s.echo("");
    s.expect_nothing();
    assert_eq!(s.sctp.len(), 0);
}

/// IMH 3.4: a packet with a wrong checksum is dropped.
#[test]
fn imh_i_3_4() {
    let mut s = closed();
    let (fixed, parameters) = s.init();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, 0);
    parameters.emit(writer.chunks(), kind::INIT, &fixed);
    writer.finish();
    out[11] ^= 1;
    s.give_bytes(B1, A1, &out);
    s.expect_nothing();
    assert_eq!(s.sctp.counters().checksum, 1);
}

/// IMH 3.5: a cookie that was changed is dropped.
#[test]
fn imh_i_3_5() {
    let mut s = closed();
    s.give_init();
    s.take_init_ack();
    s.cookie[12] ^= 1;
    s.echo("");
    s.expect_nothing();
    assert_eq!(s.sctp.len(), 0);
}

/// IMH 3.6: a stale cookie is reported with its staleness in microseconds.
#[test]
fn imh_i_3_6() {
    let mut s = closed();
    s.give_init();
    s.take_init_ack();
    s.wait(secs(61));
    s.echo("");
    let (_, bytes) = s.take().unwrap();
    let list = chunks(&bytes);
    let [Chunk::Error(causes)] = &list[..] else { panic!("{list:?}") };
    assert_eq!(causes[..4], [0, 3, 0, 8]);
    let late = u32::from_be_bytes(causes[4..8].try_into().unwrap());
    assert!((900_000..=1_100_000).contains(&late), "{late}");
    assert_eq!(s.sctp.len(), 0);
}

/// IMH 3.7: ABORT with a wrong tag is dropped.
#[test]
fn imh_i_3_7() {
    let mut s = Script::accepted(plain());
    s.give_tagged(s.tag ^ 1, B1, A1, "ABORT");
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::Established);
}

/// IMH 3.8: a packet that ends before its INIT does is dropped.
#[test]
fn imh_i_3_8() {
    let mut s = closed();
    let chunk = [&[1, 0, 0, 60][..], &[0, 0, 0, 9, 0, 1, 0, 0, 0, 9, 0, 9, 0, 0, 0, 1]].concat();
    give_chunks(&mut s, 0, &chunk);
    s.expect_nothing();
    assert_eq!(s.sctp.len(), 0);
}

/// IMH 3.9: SHUTDOWN ACK with a wrong tag does not end a shutdown. (RFC 9260 section 8.5.1 E has it
/// taken for out of the blue only while opening.)
#[test]
fn imh_i_3_9() {
    let mut s = shutdown_sent();
    s.give_tagged(s.tag ^ 1, B1, A1, "SHUTDOWN_ACK");
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::ShutdownSent);
}

/// IMH 3.10: nor does SHUTDOWN COMPLETE with a wrong tag.
#[test]
fn imh_i_3_10() {
    let mut s = shutdown_ack_sent();
    s.give_tagged(s.tag ^ 1, B1, A1, "SHUTDOWN_COMPLETE");
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::ShutdownAckSent);
}
