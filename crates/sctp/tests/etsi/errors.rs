//! Errors (E).

use super::*;
use ringway_sctp::State;

/// Stale Cookie, 9 microseconds too old.
const STALE: [u8; 12] = [9, 0, 0, 12, 0, 3, 0, 8, 0, 0, 0, 9];

/// E 6.1: Stale Cookie in COOKIE-ECHOED: a new INIT that asks for more life.
#[test]
fn e_o_6_1() {
    let mut s = echoed();
    s.wait(ms(100));
    let tag = s.tag;
    give_chunks(&mut s, tag, &STALE);
    let (_, bytes) = s.take().unwrap();
    let list = chunks(&bytes);
    let [Chunk::Init(init)] = &list[..] else { panic!("{list:?}") };
    assert!(InitParameters::read(init, false).unwrap().cookie_preservative.is_some());
}

/// E 6.2: Stale Cookie in any other state is dropped.
#[test]
fn e_o_6_2() {
    for mut s in [Script::connecting(plain()), Script::connected(plain()), shutdown_sent()] {
        let (tag, state) = (s.tag, snapshot(&s).state);
        give_chunks(&mut s, tag, &STALE);
        s.expect_nothing();
        assert_eq!(snapshot(&s).state, state);
    }
}

/// E 6.3: DATA of an invalid stream is acknowledged and reported (Invalid Stream Identifier).
#[test]
fn e_i_6_3() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 77:0 10");
    let (_, bytes) = s.take().unwrap();
    let list = chunks(&bytes);
    let [Chunk::Error(causes), Chunk::Sack(_)] = &list[..] else { panic!("{list:?}") };
    assert_eq!(causes[..6], [0, 1, 0, 8, 0, 77]);
    assert!(s.read().is_empty());
}

/// E 6.4: an INIT ACK without a cookie is answered with ABORT (Missing Mandatory Parameter).
#[test]
fn e_i_6_4() {
    let mut s = Script::connecting(plain());
    let (fixed, parameters) = s.init();
    s.give_init_ack_with(&fixed, &parameters);
    s.expect("ABORT 2");
    assert!(matches!(end(&mut s), Some(Close::Violation(_))));
}

/// E 6.5: an unknown parameter of an INIT ACK whose type requires a report is returned in an ERROR with
/// the COOKIE ECHO (Unrecognized Parameters).
#[test]
fn e_i_6_5() {
    let mut s = Script::connecting(plain());
    let (fixed, mut parameters) = s.init();
    parameters.cookie = Some(vec![9; 48]);
    let unknown = [0xff, 0xfe, 0, 8, 1, 2, 3, 4];
    give_raw(&mut s, kind::INIT_ACK, &fixed, &parameters, &unknown);
    let (_, bytes) = s.take().unwrap();
    let list = chunks(&bytes);
    let [Chunk::CookieEcho(_), Chunk::Error(causes)] = &list[..] else { panic!("{list:?}") };
    assert_eq!(**causes, [&[0, 8, 0, 12][..], &unknown].concat());
}

/// E 6.6: a COOKIE ECHO with an ERROR about unknown parameters opens the association.
#[test]
fn e_i_6_6() {
    let mut s = closed();
    s.give_init();
    s.take_init_ack();
    let mut packet = Vec::new();
    Chunk::CookieEcho(&s.cookie).emit(&mut packet);
    packet.extend_from_slice(&[9, 0, 0, 12, 0, 8, 0, 8, 0xc0, 0, 0, 4]);
    let tag = s.tag;
    give_chunks(&mut s, tag, &packet);
    s.expect("COOKIE_ACK");
    s.id = s.events().into_iter().find_map(|event| match event {
        Event::Up { id, .. } => Some(id),
        _ => None,
    });
    assert_eq!(snapshot(&s).state, State::Established);
}
