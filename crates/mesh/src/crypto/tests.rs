//! What both implementations must do alike: sizes, order and refusals.

use super::*;
use crate::identity::Search;
use crate::wire::bodies::{SESSION_FIRST, SESSION_SECOND};
use crate::wire::handshake::{FIRST, INIT_PAYLOAD, LINK_PAYLOAD, SECOND, THIRD};
use ringway_sansio::SplitMix;

fn identity(seed: u64) -> Identity {
    Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
}

fn begin<C: Crypto>(role: Role, purpose: Purpose, network: &NetworkKey) -> C::Handshake {
    let seed = role as u8 + 1;
    C::begin(role, purpose, &identity(seed.into()), network, [seed; 32]).unwrap()
}

/// Carries `payloads` from one side to the other in turn. Returns the lengths of the messages and both results.
fn shake<C: Crypto>(
    purpose: Purpose,
    payloads: [usize; 3],
) -> ([usize; 3], [Established<C::Keys>; 2]) {
    let key = NetworkKey::derive(b"a network");
    let mut sides = [Role::Initiator, Role::Responder].map(|role| begin::<C>(role, purpose, &key));
    let mut lengths = [0; 3];
    for (at, length) in payloads.into_iter().enumerate() {
        let (payload, mut message, mut read) = (vec![at as u8; length], vec![9], vec![8]);
        C::write(&mut sides[at % 2], &payload, &mut message).unwrap();
        C::read(&mut sides[1 - at % 2], &message[1..], &mut read).unwrap();
        assert_eq!((message[0], read[0], &read[1..]), (9, 8, &payload[..]));
        lengths[at] = message.len() - 1;
    }
    (lengths, sides.map(|side| C::finish(side).unwrap()))
}

fn sizes_are_those_of_the_formats<C: Crypto>() {
    let (lengths, _) = shake::<C>(Purpose::Link, [INIT_PAYLOAD, LINK_PAYLOAD, LINK_PAYLOAD]);
    assert_eq!(lengths, [FIRST, SECOND, THIRD]);
    let (lengths, _) = shake::<C>(Purpose::Session, [16, 63, 0]);
    assert_eq!(lengths[..2], [SESSION_FIRST, SESSION_SECOND]);
}

fn both_ends_have_the_keys_and_know_each_other<C: Crypto>() {
    let (_, [one, other]) = shake::<C>(Purpose::Link, [0, 0, 0]);
    let [first, second] = [1, 2].map(|seed| C::static_key(&identity(seed).proof().key).unwrap());
    assert_eq!((one.peer, other.peer), (second, first));
    for (from, to) in [(&one.keys, &other.keys), (&other.keys, &one.keys)] {
        let mut out = b"headsome octets".to_vec();
        C::seal(from, 7, b"head", &mut out, 4);
        assert_eq!(out.len(), 15 + SEAL);
        let open = |counter, header: &[u8], change: usize| {
            let mut sealed = out[4..].to_vec();
            if let Some(octet) = sealed.get_mut(change) {
                *octet ^= 1;
            }
            C::open(to, counter, header, &mut sealed).map(|opened| opened.to_vec())
        };
        assert_eq!(open(7, b"head", usize::MAX), Some(b"some octets".to_vec()));
        assert_eq!(open(8, b"head", usize::MAX), None);
        assert_eq!(open(7, b"heat", usize::MAX), None);
        assert!((0..27).all(|change| open(7, b"head", change).is_none()));
        // What one has sent cannot be sent back to it.
        assert!(C::open(from, 7, b"head", &mut out[4..]).is_none());
        assert!(C::open(to, 7, b"head", &mut [0; 15]).is_none());
    }
}

fn another_network_key_or_purpose_is_refused<C: Crypto>() {
    let key = NetworkKey::derive(b"a network");
    for (purpose, other) in [
        (Purpose::Link, NetworkKey::derive(b"another")),
        (Purpose::Link, NetworkKey::OPEN),
        (Purpose::Session, key.clone()),
    ] {
        let mut one = begin::<C>(Role::Initiator, Purpose::Link, &key);
        let mut two = begin::<C>(Role::Responder, purpose, &other);
        let (mut message, mut payload) = (Vec::new(), Vec::new());
        C::write(&mut one, b"hello", &mut message).unwrap();
        assert_eq!(C::read(&mut two, &message, &mut payload), Err(HandshakeError::Refused));
        assert!(payload.is_empty());
    }
}

fn a_changed_message_is_refused<C: Crypto>() {
    let mut message = Vec::new();
    let start = || begin::<C>(Role::Initiator, Purpose::Link, &NetworkKey::OPEN);
    C::write(&mut start(), &[3; 20], &mut message).unwrap();
    for at in 0..message.len() {
        let mut changed = message.clone();
        changed[at] ^= 0x40;
        let mut responder = begin::<C>(Role::Responder, Purpose::Link, &NetworkKey::OPEN);
        assert!(C::read(&mut responder, &changed, &mut Vec::new()).is_err(), "octet {at}");
    }
    for length in 0..message.len() {
        let mut responder = begin::<C>(Role::Responder, Purpose::Link, &NetworkKey::OPEN);
        assert!(C::read(&mut responder, &message[..length], &mut Vec::new()).is_err());
    }
    // Out of turn.
    let mut initiator = start();
    assert_eq!(C::read(&mut initiator, &message, &mut Vec::new()), Err(HandshakeError::OutOfTurn));
    let mut responder = begin::<C>(Role::Responder, Purpose::Link, &NetworkKey::OPEN);
    assert_eq!(C::write(&mut responder, &[], &mut Vec::new()), Err(HandshakeError::OutOfTurn));
    assert!(matches!(C::finish(responder), Err(HandshakeError::OutOfTurn)));
}

fn a_handshake_is_repeated_octet_for_octet<C: Crypto>() {
    let message = |seed| {
        let mut out = Vec::new();
        let key = NetworkKey::OPEN;
        let mut side =
            C::begin(Role::Initiator, Purpose::Link, &identity(1), &key, [seed; 32]).unwrap();
        C::write(&mut side, b"hello", &mut out).unwrap();
        out
    };
    assert_eq!(message(1), message(1));
    assert_ne!(message(1), message(2));
}

fn a_signature_is_for_one_key_purpose_and_text<C: Crypto>() {
    let (one, other) = (identity(1), identity(2));
    let signature = C::sign(&one, Domain::Message, b"text");
    let verify = |who: &Identity, domain, text: &[u8], signature: &[u8; SIGNATURE]| {
        C::verify(&who.proof().key, domain, text, signature)
    };
    assert!(verify(&one, Domain::Message, b"text", &signature));
    assert!(!verify(&other, Domain::Message, b"text", &signature));
    assert!(!verify(&one, Domain::Payload, b"text", &signature));
    assert!(!verify(&one, Domain::Message, b"texts", &signature));
    let mut changed = signature;
    changed[40] ^= 1;
    assert!(!verify(&one, Domain::Message, b"text", &changed));
}

/// Each behaviour, for both implementations.
macro_rules! alike {
    ($($behaviour:ident)*) => {
        mod real {
            $(#[test] fn $behaviour() { super::$behaviour::<crate::crypto::Real>(); })*
        }
        mod stand_in {
            $(#[test] fn $behaviour() { super::$behaviour::<crate::crypto::StandIn>(); })*
        }
    };
}

alike! {
    sizes_are_those_of_the_formats
    both_ends_have_the_keys_and_know_each_other
    another_network_key_or_purpose_is_refused
    a_changed_message_is_refused
    a_handshake_is_repeated_octet_for_octet
    a_signature_is_for_one_key_purpose_and_text
}

fn only_who_it_is_sealed_for_opens_an_envelope<C: Crypto>() {
    let (one, other) = (identity(1), identity(2));
    let mut out = vec![9];
    assert!(C::seal_for(&one.proof().key, [7; 32], b"some octets", &mut out));
    assert_eq!((out[0], out.len()), (9, 1 + 11 + ENVELOPE));
    let sealed = &out[1..];
    assert_eq!(C::open_sealed(&one, sealed).as_deref(), Some(&b"some octets"[..]));
    assert_eq!(C::open_sealed(&other, sealed), None);
    for at in 0..sealed.len() {
        let mut changed = sealed.to_vec();
        changed[at] ^= 1;
        assert_eq!(C::open_sealed(&one, &changed), None, "octet {at}");
        assert_eq!(C::open_sealed(&one, &sealed[..at]), None, "{at} octets");
    }
}

#[test]
fn an_envelope_is_opened_by_one_router_alone() {
    only_who_it_is_sealed_for_opens_an_envelope::<Real>();
    only_who_it_is_sealed_for_opens_an_envelope::<StandIn>();
}

#[test]
fn an_envelope_shows_neither_its_octets_nor_the_same_ones_twice() {
    let key = identity(1).proof().key;
    let seal = |seed| {
        let mut out = Vec::new();
        assert!(Real::seal_for(&key, [seed; 32], b"some octets", &mut out));
        out
    };
    let (one, other) = (seal(1), seal(2));
    assert_ne!(one, other);
    assert!(!one.windows(11).any(|part| part == b"some octets"));
    // No key at all: no point of the curve has this y.
    let mut out = vec![9];
    assert!(!Real::seal_for(&[2; 32], [1; 32], b"x", &mut out));
    assert_eq!(out, [9]);
}
