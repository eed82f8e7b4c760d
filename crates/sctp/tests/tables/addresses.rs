//! Addresses that change: RFC 5061, in chunks authenticated by RFC 4895.

use super::support::*;
use super::{plain, snapshot};
use hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::{Addressing, Endpoint};
use ringway_sctp::wire::asconf::{AddressChange, Outcome, outcomes, requests};
use ringway_sctp::wire::cause::code;
use ringway_sctp::wire::chunk::{self, Chunk, kind};
use ringway_sctp::wire::{AuthParameters, Packet, Parameter, Writer};
use ringway_sctp::{AddressError, CallError, Change, Close, Event, Settings, State};
use sha2::Sha256;
use std::net::IpAddr;

const C1: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 3, 2));
const A3: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 3, 1));
const EXTENSIONS: [u8; 3] = [kind::AUTH, kind::ASCONF, kind::ASCONF_ACK];

fn dynamic() -> Settings {
    Settings { dynamic_addresses: true, ..plain() }
}

fn ours() -> AuthParameters {
    let chunks = Some(vec![kind::ASCONF, kind::ASCONF_ACK]);
    AuthParameters { random: vec![9; 32], chunks, hmacs: vec![3, 1] }
}

/// A script that authenticates.
struct Keyed {
    s: Script,
    key: Vec<u8>,
}

impl Keyed {
    fn over(addresses: &[IpAddr], locals: &[IpAddr], auth: AuthParameters) -> Keyed {
        let mut s = Script::new(dynamic());
        s.addresses = addresses.to_vec();
        s.extensions = EXTENSIONS.to_vec();
        s.auth = Some(auth.clone());
        s.listen(locals);
        s.give_init();
        let theirs = s.take_init_ack().auth.unwrap();
        // RFC 4895 section 6.1.
        let mut vectors = [auth.key_vector(), theirs.key_vector()];
        vectors.sort_by_key(|vector| (vector.len(), vector.clone()));
        s.echo("");
        while let Some((way, bytes)) = s.take() {
            s.answer_beats(way, &bytes);
        }
        s.events();
        Keyed { s, key: vectors.concat() }
    }

    fn new() -> Keyed {
        Keyed::over(&[B1], &[A1], ours())
    }

    fn two_paths() -> Keyed {
        Keyed::over(&[B1, B2], &[A1, A2], ours())
    }

    /// A packet whose chunks are authenticated.
    fn sealed(&self, key: &[u8], chunks: &[Chunk<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out, 65_535, self.s.ports.1, self.s.ports.0, self.s.tag);
        chunk::put(writer.chunks(), kind::AUTH, 0, &[&[0, 0, 0, 3], &[0; 32]]);
        for chunk in chunks {
            chunk.emit(writer.chunks());
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(&writer.chunks()[12..]);
        let made = mac.finalize().into_bytes();
        writer.chunks()[20..52].copy_from_slice(&made);
        writer.finish();
        out
    }

    fn give(&mut self, source: IpAddr, chunks: &[Chunk<'_>]) {
        let bytes = self.sealed(&self.key, chunks);
        self.s.give_bytes(source, A1, &bytes);
    }

    /// An ASCONF whose number is relative to the script's first TSN.
    fn ask(&mut self, source: IpAddr, number: u32, lookup: IpAddr, changes: &[AddressChange]) {
        let value = asconf(lookup, changes);
        self.give(source, &[Chunk::Asconf(self.s.peer_tsn.plus(number - 1).raw(), &value)]);
    }

    /// The next packet, its AUTH checked: where it comes from and goes, and its chunk.
    #[track_caller]
    fn take(&mut self) -> (Addressing, u32, Vec<u8>, u8) {
        let (way, bytes) = self.s.take().unwrap();
        let mut zeroed = bytes[12..].to_vec();
        zeroed[8..40].fill(0);
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).unwrap();
        mac.update(&zeroed);
        assert_eq!(mac.finalize().into_bytes()[..], bytes[20..52]);
        let packet = Packet::parse(&bytes).unwrap();
        let raw = packet.chunks().nth(1).unwrap().unwrap();
        match raw.parse().unwrap() {
            Chunk::Asconf(serial, value) => {
                (way, serial.wrapping_sub(self.s.tsn.raw()) + 1, value.to_vec(), raw.kind)
            }
            Chunk::AsconfAck(serial, value) => {
                (way, serial.wrapping_sub(self.s.peer_tsn.raw()) + 1, value.to_vec(), raw.kind)
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next packet is an ASCONF-ACK with these outcomes, none for success.
    #[track_caller]
    fn expect_answer(&mut self, to: IpAddr, number: u32, causes: &[Option<u16>]) {
        let (way, serial, value, which) = self.take();
        assert_eq!((which, way.destination, serial), (kind::ASCONF_ACK, to, number));
        let told: Vec<_> = outcomes(&value).map(|outcome| outcome.cause).collect();
        assert_eq!(told, causes);
    }

    fn answer(&mut self, number: u32, value: &[u8]) {
        let serial = self.s.tsn.plus(number - 1).raw();
        self.give(B1, &[Chunk::AsconfAck(serial, value)]);
    }

    fn changes(&mut self) -> Vec<Change> {
        let change = |event| match event {
            Event::Changed { change, .. } => Some(change),
            _ => None,
        };
        self.s.events().into_iter().filter_map(change).collect()
    }

    fn remotes(&self) -> Vec<IpAddr> {
        snapshot(&self.s).paths.iter().map(|path| path.remote).collect()
    }
}

fn asconf(lookup: IpAddr, changes: &[AddressChange]) -> Vec<u8> {
    let mut value = Vec::new();
    Parameter::Address(lookup).emit(&mut value);
    for (n, change) in changes.iter().enumerate() {
        change.emit(n as u32, &mut value);
    }
    value
}

/// RFC 5061 sections 5.2 and 5.3 F14: an address is added, verified by a heartbeat, and used only
/// then; the same request again gets the same answer and does nothing.
#[test]
fn the_peer_adds_an_address() {
    let mut k = Keyed::new();
    k.ask(B1, 1, B1, &[AddressChange::Add(C1)]);
    k.expect_answer(B1, 1, &[]);
    let (way, beat) = k.s.take().unwrap();
    assert_eq!(way.destination, C1);
    assert_eq!(k.changes(), [Change::PeerAddressAdded(C1)]);
    assert_eq!(k.remotes(), [B1, C1]);
    k.ask(B1, 1, B1, &[AddressChange::Add(C1)]);
    k.expect_answer(B1, 1, &[]);
    assert_eq!(k.changes(), []);
    assert!(k.s.sctp.set_primary(k.s.id(), C1).is_err(), "not verified");
    k.s.answer_beats(way, &beat);
    k.s.sctp.set_primary(k.s.id(), C1).unwrap();
    k.s.send(0, 10);
    k.s.expect_to(C1, "DATA 1 BE 0:0 10");
    k.s.give_from(C1, A1, "SACK 1");
    assert_eq!(snapshot(&k.s).unacknowledged, 0, "packets from there are taken");
}

/// RFC 5061 section 5.3, F7, F8, F12 and F13: what is deleted is used no more, what was under way
/// goes elsewhere; not the last, and not the one that asks.
#[test]
fn the_peer_deletes_an_address() {
    let mut k = Keyed::two_paths();
    k.s.send(0, 10);
    k.s.expect_to(B1, "DATA 1 BE 0:0 10");
    k.ask(B1, 1, B1, &[AddressChange::Delete(B1)]);
    k.expect_answer(B1, 1, &[Some(code::DELETE_SOURCE_ADDRESS)]);
    let bytes = k.sealed(
        &k.key,
        &[Chunk::Asconf(k.s.peer_tsn.plus(1).raw(), &asconf(B2, &[AddressChange::Delete(B1)]))],
    );
    k.s.give_bytes(B2, A2, &bytes);
    k.expect_answer(B2, 2, &[]);
    k.s.expect_to(B2, "DATA 1 BE 0:0 10");
    assert_eq!((k.remotes(), k.changes()), (vec![B2], vec![Change::PeerAddressDeleted(B1)]));
    // Out of the blue from now on (F13).
    k.s.give_from(B1, A1, "SACK 1");
    k.s.expect("ABORT T");
    assert_eq!(snapshot(&k.s).unacknowledged, 1);
    let bytes = k.sealed(
        &k.key,
        &[Chunk::Asconf(k.s.peer_tsn.plus(2).raw(), &asconf(B2, &[AddressChange::Delete(B2)]))],
    );
    k.s.give_bytes(B2, A2, &bytes);
    k.expect_answer(B2, 3, &[Some(code::DELETE_LAST_ADDRESS)]);
    // Its slot is free for another.
    let bytes = k.sealed(
        &k.key,
        &[Chunk::Asconf(k.s.peer_tsn.plus(3).raw(), &asconf(B2, &[AddressChange::Add(C1)]))],
    );
    k.s.give_bytes(B2, A2, &bytes);
    k.expect_answer(B2, 4, &[]);
    assert_eq!(k.remotes(), [C1, B2]);
    k.s.give_from(B2, A2, "SACK 1");
    assert_eq!(snapshot(&k.s).unacknowledged, 0);
}

/// RFC 5061 section 5.3.2 and rule D2: the request comes from the new address and names the old one;
/// the unspecified address stands for where it comes from (section 4.2.1), and for all others when
/// it is deleted (section 4.2.2).
#[test]
fn the_peer_moves() {
    let mut k = Keyed::new();
    let any = IpAddr::from([0, 0, 0, 0]);
    k.ask(C1, 1, B1, &[AddressChange::Add(any), AddressChange::Delete(any)]);
    k.expect_answer(C1, 1, &[]);
    assert_eq!(k.remotes(), [C1]);
    let moved = [Change::PeerAddressAdded(C1), Change::PeerAddressDeleted(B1)];
    assert_eq!(k.changes(), moved);
    let (way, bytes) = k.s.take().unwrap();
    k.s.send(0, 10);
    k.s.expect_nothing();
    k.s.answer_beats(way, &bytes);
    k.s.expect_to(C1, "DATA 1 BE 0:0 10");
    assert_eq!(snapshot(&k.s).state, State::Established);
}

/// RFC 5061 section 5.4: the peer names the address that it likes best; one that is not verified is
/// used once it is.
#[test]
fn the_peer_prefers_an_address() {
    let mut k = Keyed::two_paths();
    k.ask(B1, 1, B1, &[AddressChange::Primary(B2)]);
    k.expect_answer(B1, 1, &[]);
    assert_eq!(k.changes(), [Change::PeerPrimary(B2)]);
    k.s.send(0, 10);
    k.s.expect_to(B2, "DATA 1 BE 0:0 10");
    k.s.give_from(B2, A2, "SACK 1");
    k.ask(
        B1,
        2,
        B1,
        &[AddressChange::Add(C1), AddressChange::Primary(C1), AddressChange::Primary(A3)],
    );
    k.expect_answer(B1, 2, &[]);
    let (way, bytes) = k.s.take().unwrap();
    k.s.answer_beats(way, &bytes);
    k.s.send(0, 10);
    k.s.expect_to(C1, "DATA 2 BE 0:1 10");
}

/// RFC 5061 section 5.2, V2: an unknown request is reported with its id.
#[test]
fn unknown_requests_are_reported() {
    let mut k = Keyed::new();
    let mut value = asconf(B1, &[AddressChange::Add(C1)]);
    value.extend_from_slice(&[0xc0, 0x7f, 0, 8, 0, 0, 0, 5]);
    AddressChange::Add(IpAddr::from([224, 0, 0, 1])).emit(6, &mut value);
    k.give(B1, &[Chunk::Asconf(k.s.peer_tsn.raw(), &value)]);
    let (_, _, answer, _) = k.take();
    let told: Vec<_> = outcomes(&answer).collect();
    let outcome = |correlation, cause| Outcome { correlation, cause };
    let unknown = outcome(5, Some(code::UNRECOGNIZED_PARAMETERS));
    let multicast = outcome(6, Some(code::UNRESOLVABLE_ADDRESS));
    assert_eq!(told, [outcome(0, None), unknown, multicast]);
}

/// RFC 5061 section 5.2 D5 and RFC 4895 section 6.3: without AUTH, with a wrong key, changed on the
/// way, or out of turn, nothing happens and nothing is answered.
#[test]
fn forged_requests_are_refused() {
    let mut k = Keyed::new();
    let value = asconf(B1, &[AddressChange::Add(C1), AddressChange::Delete(B1)]);
    let serial = k.s.peer_tsn.raw();
    let chunk = Chunk::Asconf(serial, &value);
    let mut plain = Vec::new();
    let mut writer = Writer::new(&mut plain, 65_535, k.s.ports.1, k.s.ports.0, k.s.tag);
    chunk.emit(writer.chunks());
    writer.finish();
    let wrong_key = k.sealed(b"guess", &[chunk]);
    let mut changed = k.sealed(&k.key, &[chunk]);
    changed[70] ^= 1;
    let sum = ringway_sctp::wire::packet::checksum(&changed);
    changed[8..12].copy_from_slice(&sum.to_le_bytes());
    for bytes in [&plain, &wrong_key, &changed] {
        k.s.give_bytes(B1, A1, bytes);
        k.s.give_bytes(C1, A1, bytes);
    }
    // What does not come from the peer at all is out of the blue.
    let strays = core::iter::from_fn(|| k.s.line()).collect::<Vec<_>>();
    assert_eq!(strays, [(C1, "ABORT T".to_owned())]);
    let later = Chunk::Asconf(serial.wrapping_add(1), &value);
    k.give(B1, &[later]);
    k.s.expect_nothing();
    // A right AUTH does not vouch for what stands before it.
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, k.s.ports.1, k.s.ports.0, k.s.tag);
    chunk.emit(writer.chunks());
    writer.chunks().extend_from_slice(&k.sealed(&k.key, &[Chunk::CookieAck])[12..]);
    writer.finish();
    k.s.give_bytes(B1, A1, &out);
    k.s.expect_nothing();
    assert_eq!((k.remotes(), k.changes()), (vec![B1], vec![]));
    assert!(snapshot(&k.s).totals.auth_refused >= 3);
}

/// RFC 4895 section 6.3: an HMAC that was not offered is reported.
#[test]
fn an_unknown_hmac_is_reported() {
    let mut k = Keyed::new();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, k.s.ports.1, k.s.ports.0, k.s.tag);
    chunk::put(writer.chunks(), kind::AUTH, 0, &[&[0, 0, 0, 2], &[0; 32]]);
    Chunk::CookieAck.emit(writer.chunks());
    writer.finish();
    k.s.give_bytes(B1, A1, &out);
    k.s.expect("ERROR 261");
}

/// RFC 4895 section 6.1: a random number of another length ends it.
#[test]
fn a_random_number_has_32_bytes() {
    let mut s = Script::new(dynamic());
    s.auth = Some(AuthParameters { random: vec![9; 31], ..ours() });
    s.listen(&[A1]);
    s.give_init();
    s.expect("ABORT 13");
}

/// RFC 4895 section 6.2: a peer may ask that more is authenticated; then all is.
#[test]
fn data_is_authenticated_where_required() {
    let chunks = Some(vec![kind::DATA, kind::SACK, kind::ABORT, kind::INIT]);
    let mut k = Keyed::over(&[B1], &[A1], AuthParameters { chunks, ..ours() });
    k.s.sctp.send(k.s.now, k.s.id(), &Default::default(), vec![1; 1452]).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..2 {
        let (_, bytes) = k.s.take().unwrap();
        let mut zeroed = bytes[12..].to_vec();
        zeroed[8..40].fill(0);
        let mut mac = Hmac::<Sha256>::new_from_slice(&k.key).unwrap();
        mac.update(&zeroed);
        assert_eq!(mac.finalize().into_bytes()[..], bytes[20..52]);
        sizes.push(bytes.len());
    }
    assert_eq!(sizes, [1480, 12 + 40 + 16 + 40]);
    k.s.give("DATA 1 IBE 0:0 10");
    assert!(k.s.line().unwrap().1.starts_with("AUTH "));
    k.s.sctp.abort(k.s.id(), b"").unwrap();
    assert!(k.s.line().unwrap().1.starts_with("AUTH "));
}

/// RFC 5061 section 5.3, F1 and F2: a local address is added; it is not used as a source before the
/// answer, but packets to it are accepted.
#[test]
fn an_address_is_added() {
    let mut k = Keyed::two_paths();
    k.s.sctp.add_address(k.s.now, k.s.id(), A3).unwrap();
    let (way, number, value, which) = k.take();
    assert_eq!((which, way.source, number), (kind::ASCONF, A1, 1));
    let (lookup, list) = requests(&value).unwrap();
    assert_eq!(lookup, A1);
    assert_eq!(list.map(|r| r.change).collect::<Vec<_>>(), [Some(AddressChange::Add(A3))]);
    k.s.give_from(B1, A3, "DATA 1 IBE 0:0 10");
    let (way, _) = k.s.take().unwrap();
    assert_eq!(way.source, A1);
    // RFC 9260 section 8.4: so a peer answers what came from there when the address was not known to it.
    k.s.give_tagged(PEER_TAG, B1, A3, "ABORT T");
    assert_eq!(snapshot(&k.s).state, State::Established);
    k.answer(1, &[]);
    assert_eq!(k.changes(), [Change::AddressAdded(A3)]);
    assert_eq!(k.s.sctp.addresses(k.s.id()).unwrap().0, [A1, A2, A3]);
    // Again, and what was never asked but may have been: nothing.
    k.answer(1, &[]);
    assert_eq!(k.changes(), []);
    // RFC 5061 section 5.3, F10.
    k.s.sctp.add_address(k.s.now, k.s.id(), C1).unwrap();
    let (_, number, ..) = k.take();
    let mut value = Vec::new();
    let serial = k.s.tsn.plus(number - 1).raw();
    Outcome { correlation: serial, cause: Some(code::RESOURCE_SHORTAGE) }.emit(&[], &mut value);
    k.answer(number, &value);
    let refused = Change::AddressRefused { address: C1, code: code::RESOURCE_SHORTAGE };
    assert_eq!(k.changes(), [refused]);
    assert_eq!(k.s.sctp.addresses(k.s.id()).unwrap().0, [A1, A2, A3]);
    k.s.give_from(B1, C1, "HEARTBEAT");
    k.s.expect("ABORT T");
}

/// RFC 5061 section 5.1, T-4: sent again unchanged, from the new address every second time (section
/// 5.3.2), until the peer is unreachable.
#[test]
fn a_request_is_sent_again() {
    let mut k = Keyed::new();
    k.s.sctp.add_address(k.s.now, k.s.id(), A3).unwrap();
    k.s.sctp.add_address(k.s.now, k.s.id(), A2).unwrap();
    let (first, number, value, _) = k.take();
    k.s.wait(secs(1));
    let (second, again, same, _) = k.take();
    assert_eq!((number, &value), (again, &same));
    assert_eq!((first.source, second.source), (A1, A3));
    k.s.expect_nothing();
    k.s.wait(secs(10_000));
    let over = |event: &Event| matches!(event, Event::Closed(_, Close::Unreachable));
    assert!(k.s.events().iter().any(over));
    assert!(k.s.sctp.is_empty());
}

/// RFC 5061 section 5.3, F4 to F6, and section 5.3.1: a local address is deleted; it is not used as a
/// source from now on, and an ABORT to it is ignored.
#[test]
fn an_address_is_deleted() {
    let mut k = Keyed::two_paths();
    assert!(k.s.sctp.delete_address(k.s.now, k.s.id(), A3).is_err());
    k.s.sctp.delete_address(k.s.now, k.s.id(), A1).unwrap();
    assert!(k.s.sctp.delete_address(k.s.now, k.s.id(), A2).is_err(), "the last");
    let (way, _, value, _) = k.take();
    assert_eq!(way.source, A2);
    assert_eq!(requests(&value).unwrap().0, A2);
    k.s.give_from(B1, A1, "ABORT");
    k.s.send(0, 10);
    let (way, _) = k.s.take().unwrap();
    assert_eq!((way.source, way.destination), (A2, B1));
    k.s.give_from(B1, A1, "SACK 1");
    assert_eq!(snapshot(&k.s).unacknowledged, 0);
    k.answer(1, &[]);
    assert_eq!(k.changes(), [Change::AddressDeleted(A1)]);
    k.s.sent.clear();
    k.s.give_from(B1, A1, "HEARTBEAT");
    k.s.expect("ABORT T");
    assert_eq!(snapshot(&k.s).state, State::Established);
}

/// RFC 5061 section 5.3, F0: an answer to what was not asked ends the association.
#[test]
fn an_answer_to_nothing_is_a_violation() {
    let mut k = Keyed::new();
    k.answer(1, &[]);
    k.s.expect("ABORT 163");
}

/// RFC 5061 section 5.1, A9, and section 4.2.7: a peer that does not know ASCONF is not asked.
#[test]
fn without_negotiation_nothing_is_requested() {
    let mut s = Script::accepted(dynamic());
    let refused = s.sctp.add_address(s.now, s.id(), A2);
    assert!(matches!(refused, Err(CallError::Refused(AddressError::NotSupported))));
    s.give("RECONFIG answer 1 1 + HEARTBEAT");
    s.expect("HEARTBEAT_ACK");
    let mut k = Keyed::new();
    k.s.sctp.add_address(k.s.now, k.s.id(), A3).unwrap();
    k.take();
    let causes = chunk::causes(ringway_sctp::wire::Cause::UnrecognizedChunk(&[193, 0, 0, 4]));
    k.give(B1, &[Chunk::Error(&causes)]);
    let refused = Change::AddressRefused { address: A3, code: code::UNRECOGNIZED_CHUNK };
    assert_eq!(k.changes(), [refused]);
    let refused = k.s.sctp.add_address(k.s.now, k.s.id(), A3);
    assert!(matches!(refused, Err(CallError::Refused(AddressError::NotSupported))));
    k.s.wait(secs(100));
    k.s.expect_nothing();
}

/// The stored state is bounded, however often a peer adds and deletes addresses.
#[test]
fn addresses_are_bounded() {
    let mut k = Keyed::new();
    let many: Vec<AddressChange> =
        (0..20).map(|n| AddressChange::Add(IpAddr::from([10, 9, 9, n]))).collect();
    k.ask(B1, 1, B1, &many);
    let (_, _, value, _) = k.take();
    let refused = outcomes(&value).filter(|o| o.cause == Some(code::RESOURCE_SHORTAGE)).count();
    assert_eq!((k.remotes().len(), refused), (16, 5));
    for n in 2..=100 {
        k.s.sent.clear();
        k.ask(
            B1,
            n,
            B1,
            &[
                AddressChange::Delete(IpAddr::from([10, 9, 9, 1])),
                AddressChange::Add(IpAddr::from([10, 9, 9, 1])),
            ],
        );
    }
    assert_eq!(k.changes().len(), 32);
}

/// RFC 4895 section 6.2: the bound that the user sets on chunks is not one on AUTH, so small ones are
/// cut where everything is authenticated.
#[test]
fn small_chunks_are_cut_beside_auth() {
    let mut s = Script::new(Settings { dynamic_addresses: true, chunk: 40, ..plain() });
    s.extensions = vec![kind::AUTH, kind::ASCONF, kind::ASCONF_ACK];
    s.auth = Some(AuthParameters {
        random: vec![9; 32],
        chunks: Some(vec![kind::ASCONF, kind::ASCONF_ACK, kind::DATA]),
        hmacs: vec![3, 1],
    });
    s.listen(&[A1]);
    s.give_init();
    s.take_init_ack();
    s.echo("");
    s.sent.clear();
    s.send(0, 100);
    let (_, line) = s.line().unwrap();
    assert!(
        line.ends_with(
            "DATA 1 B 0:0 24 + DATA 2  0:0 24 + DATA 3  0:0 24 + DATA 4  0:0 24 + DATA 5 E 0:0 4"
        ),
        "{line}"
    );
}

/// RFC 9260 section 5.2.2: the INIT of an association is repeated late, after its sender has deleted an
/// address that it lists: it adds no new address, and no ABORT is sent.
#[test]
fn an_old_init_with_a_deleted_address_is_ignored() {
    let mut pair = Pair::new(dynamic(), dynamic(), ms(10));
    pair.listen(&[B1]);
    let a = pair.connect(&[A1, A2], &[B1]);
    pair.flush();
    let init = pair.flying[0].clone();
    pair.run(secs(3));
    let b = pair.up(1).unwrap();
    pair.a.delete_address(pair.now, a, A2).unwrap();
    pair.run(secs(3));
    assert_eq!(pair.b.addresses(b).unwrap().1, [A1]);
    pair.b.handle_packet(pair.now, init.addressing, &init.bytes);
    pair.run(secs(3));
    assert_eq!((pair.closed(0), pair.closed(1)), (None, None));
}

/// RFC 9260 section 5.2.4: an INIT ACK that listed no address bound the restart to the one it came from. When
/// that one has been deleted before the cookie returns, the cookie is refused and the association goes on.
#[test]
fn a_restart_from_a_deleted_address_is_refused() {
    let mut k = Keyed::over(&[B1, B2], &[A1], ours());
    let (tag, tsn, peer_tag) = (k.s.tag, k.s.tsn, k.s.peer_tag);
    k.s.peer_tag += 1;
    k.s.give_init();
    assert!(k.s.take_init_ack().addresses.is_empty());
    let restarted = std::mem::replace(&mut k.s.tag, tag);
    (k.s.tsn, k.s.peer_tag) = (tsn, peer_tag);
    k.s.sctp.add_address(k.s.now, k.s.id(), A2).unwrap();
    k.take();
    k.answer(1, &[]);
    k.s.sent.clear();
    k.s.sctp.delete_address(k.s.now, k.s.id(), A1).unwrap();
    k.take();
    k.answer(2, &[]);
    assert_eq!(k.changes(), [Change::AddressAdded(A2), Change::AddressDeleted(A1)]);
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, k.s.ports.1, k.s.ports.0, restarted);
    Chunk::CookieEcho(&k.s.cookie).emit(writer.chunks());
    writer.finish();
    let refused = k.s.sctp.counters().cookies_refused;
    k.s.give_bytes(B1, A2, &out);
    assert_eq!(k.s.sctp.counters().cookies_refused, refused + 1);
    assert_eq!(k.s.sctp.addresses(k.s.id()).unwrap().0, [A2]);
}
