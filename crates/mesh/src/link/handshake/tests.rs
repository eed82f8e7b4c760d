use super::*;
use crate::crypto::{Real, StandIn};
use crate::identity::Search;
use crate::wire::Kind;
use proptest::prelude::*;
use ringway_sansio::SplitMix;

const START: Time = Time::from_secs(50);

fn address(host: u8) -> LinkAddress {
    LinkAddress { interface: 2, remote: SocketAddr::from(([10, 0, 0, host], 5267)) }
}

/// One end of a link. Its address is 10.0.0.host.
struct End<C: Crypto> {
    host: u8,
    identity: Identity,
    network: NetworkKey,
    handshakes: Handshakes<C>,
    random: SplitMix,
    up: Vec<Verified<C::Keys>>,
    refused: Vec<Refused>,
}

impl<C: Crypto> End<C> {
    fn new(host: u8, limits: Limits) -> Self {
        let mut random = SplitMix::new(host.into());
        let identity = Search::new(0, &mut random).step(1).unwrap();
        let handshakes = Handshakes::new(START, limits, &mut random);
        let network = NetworkKey::OPEN;
        End { host, identity, network, handshakes, random, up: Vec::new(), refused: Vec::new() }
    }

    fn local(&self) -> Local<'static> {
        Local {
            identity: Box::leak(Box::new(self.identity.clone())),
            network: Box::leak(Box::new(self.network.clone())),
            extension_bits: 0,
            instance: Instance(self.host.into()),
            hello: 7,
            hello_key: CodeKey([self.host; 16]),
            mtu: 1_452,
            stamp: 0,
        }
    }

    fn initiate(&mut self, now: Time, to: u8) -> Vec<u8> {
        let (local, mut out) = (self.local(), Vec::new());
        self.handshakes.initiate(now, address(to), &local, &mut self.random, &mut out).unwrap();
        out
    }

    /// Handles a packet and returns the answer, or nothing.
    fn receive(&mut self, now: Time, from: u8, bytes: &[u8]) -> Vec<u8> {
        let (from, local, mut out) = (address(from), self.local(), Vec::new());
        let table = &mut self.handshakes;
        let result = match Kind::of(bytes).unwrap() {
            Kind::Init => {
                table.init(now, from, bytes, &local, &mut self.random, &mut out).map(|_| None)
            }
            Kind::Resp => table.resp(now, from, bytes, &local, &mut out),
            Kind::Conf => table.conf(from, bytes, &local).map(Some),
            _ => table.cookie(from, bytes, &mut out).map(|()| None),
        };
        match result {
            Ok(up) => self.up.extend(up),
            Err(refused) => self.refused.push(refused),
        }
        out
    }
}

/// Two ends, and packets between them that take 1 ms.
struct Pair<C: Crypto> {
    ends: [End<C>; 2],
    wire: Vec<(Time, usize, Vec<u8>)>,
}

impl<C: Crypto> Pair<C> {
    fn new() -> Self {
        let mut ends = [1, 2].map(|host| End::new(host, Limits::default()));
        ends.sort_by_key(|end| end.identity.id());
        Pair { ends, wire: Vec::new() }
    }

    /// The end `from` begins.
    fn initiate(&mut self, now: Time, from: usize) {
        let to = self.ends[1 - from].host;
        let packet = self.ends[from].initiate(now, to);
        self.send(now, from, packet);
    }

    fn send(&mut self, now: Time, from: usize, packet: Vec<u8>) {
        if !packet.is_empty() {
            self.wire.push((now + Duration::from_millis(1), 1 - from, packet));
        }
    }

    /// Runs until `until`. `is_lost` decides on each packet by its number.
    fn drive(&mut self, until: Time, is_lost: impl Fn(usize) -> bool) {
        let mut number = 0;
        loop {
            let timers = self.ends.iter().filter_map(|end| end.handshakes.poll_timeout());
            let next = timers.chain(self.wire.iter().map(|packet| packet.0)).min();
            let Some(now) = next.filter(|&now| now <= until) else { return };
            if let Some(at) = self.wire.iter().position(|packet| packet.0 <= now) {
                let (_, to, packet) = self.wire.remove(at);
                number += 1;
                if !is_lost(number - 1) {
                    let from = self.ends[1 - to].host;
                    let answer = self.ends[to].receive(now, from, &packet);
                    self.send(now, to, answer);
                }
                continue;
            }
            for from in 0..2 {
                let end = &mut self.ends[from];
                let mut packet = Vec::new();
                end.handshakes.timeout(now, &mut end.random, &mut packet);
                self.send(now, from, packet);
            }
        }
    }

    /// Asserts that both ends have the link, and that it carries sealed octets both ways.
    fn assert_up(&mut self) {
        let [one, other] = &self.ends;
        let (Some(a), Some(b)) = (one.up.last(), other.up.last()) else {
            panic!(
                "{} and {} links; {:?} {:?}",
                one.up.len(),
                other.up.len(),
                one.refused,
                other.refused
            )
        };
        assert_eq!((a.id, b.id), (other.identity.id(), one.identity.id()));
        assert_eq!((a.index, a.remote_index), (b.remote_index, b.index));
        assert_eq!((a.payload.hello_key, b.payload.hello_key), ([other.host; 16], [one.host; 16]));
        for (from, to) in [(a, b), (b, a)] {
            let mut out = b"octets".to_vec();
            C::seal(&from.keys, 0, &[], &mut out, 0);
            assert_eq!(
                C::open(&to.keys, 0, &[], &mut out).map(|opened| &*opened),
                Some(&b"octets"[..])
            );
        }
    }
}

fn at(millis: u64) -> Time {
    START + Duration::from_millis(millis)
}

fn two_routers_link<C: Crypto>() {
    for from in 0..2 {
        let mut pair = Pair::<C>::new();
        pair.initiate(START, from);
        pair.drive(at(3), |_| false);
        pair.assert_up();
        pair.drive(at(60_000), |_| false);
        assert!(pair.ends.iter().all(|end| end.handshakes.is_empty() && end.up.len() == 1));
    }
}

#[test]
fn two_routers_link_with_real_keys() {
    two_routers_link::<Real>();
}

#[test]
fn two_routers_link_with_stand_ins() {
    two_routers_link::<StandIn>();
}

#[test]
fn the_lower_of_two_simultaneous_handshakes_goes_on() {
    let mut pair = Pair::<StandIn>::new();
    pair.initiate(START, 0);
    pair.initiate(START, 1);
    pair.drive(at(100), |_| false);
    pair.assert_up();
    // The lower one has refused the other's INIT; each has one link.
    assert_eq!(pair.ends[0].refused, [Refused::OursGoesOn]);
    assert_eq!(pair.ends.each_ref().map(|end| end.up.len()), [1, 1]);
}

#[test]
fn another_network_key_makes_no_link() {
    let mut pair = Pair::<Real>::new();
    pair.ends[1].network = NetworkKey::derive(b"another");
    pair.initiate(START, 0);
    pair.drive(at(2_000), |_| false);
    assert!(pair.ends.iter().all(|end| end.up.is_empty()));
    assert_eq!(pair.ends[1].refused[0], Refused::Handshake(HandshakeError::Refused));
    pair.ends[0].handshakes.cancel(address(pair.ends[1].host));
    assert!(pair.ends[0].handshakes.is_empty());
}

#[test]
fn a_copied_key_is_noticed() {
    let mut pair = Pair::<Real>::new();
    pair.ends[1].identity = pair.ends[0].identity.clone();
    pair.initiate(START, 0);
    pair.drive(at(10), |_| false);
    assert_eq!(pair.ends[0].refused, [Refused::OwnIdentity]);
}

/// Somebody on the link answers faster, and confirms faster, with what nobody can open.
fn a_forged_answer_leaves_the_handshake<C: Crypto>() {
    let mut pair = Pair::<C>::new();
    let hosts = pair.ends.each_ref().map(|end| end.host);
    pair.initiate(START, 0);
    let (_, _, init) = pair.wire.remove(0);
    let resp = pair.ends[1].receive(START, hosts[0], &init);
    let forge = |packet: &[u8], at: usize| {
        let mut forged = packet.to_vec();
        forged[at] ^= 1;
        forged
    };
    for octet in [20, 60, 182] {
        assert!(pair.ends[0].receive(START, hosts[1], &forge(&resp, octet)).is_empty());
    }
    let conf = pair.ends[0].receive(START, hosts[1], &resp);
    pair.ends[1].receive(START, hosts[0], &forge(&conf, 20));
    pair.ends[1].receive(START, hosts[0], &conf);
    pair.assert_up();
}

#[test]
fn a_forged_answer_leaves_the_handshake_with_real_keys() {
    a_forged_answer_leaves_the_handshake::<Real>();
}

#[test]
fn a_forged_answer_leaves_the_handshake_with_stand_ins() {
    a_forged_answer_leaves_the_handshake::<StandIn>();
}

/// An INIT with another's source address replaces no handshake; a peer that has restarted proves its address first.
#[test]
fn a_forged_init_leaves_the_handshake() {
    let mut pair = Pair::<StandIn>::new();
    let hosts = pair.ends.each_ref().map(|end| end.host);
    pair.initiate(START, 0);
    let (_, _, init) = pair.wire.remove(0);
    let resp = pair.ends[1].receive(START, hosts[0], &init);
    let mut other = End::<StandIn>::new(3, Limits::default());
    let forged = other.initiate(START, hosts[1]);
    let cookie = pair.ends[1].receive(START, hosts[0], &forged);
    assert_eq!(Kind::of(&cookie).unwrap(), Kind::Cookie);
    let conf = pair.ends[0].receive(START, hosts[1], &resp);
    pair.ends[1].receive(START, hosts[0], &conf);
    pair.assert_up();

    // The peer restarts between RESP and CONF.
    let mut pair = Pair::<StandIn>::new();
    pair.initiate(START, 0);
    let (_, _, init) = pair.wire.remove(0);
    pair.ends[1].receive(START, hosts[0], &init);
    pair.ends[0].handshakes = Handshakes::new(START, Limits::default(), &mut SplitMix::new(9));
    pair.initiate(at(10), 0);
    pair.drive(at(200), |_| false);
    pair.assert_up();
}

#[test]
fn an_identity_without_extension_is_refused() {
    let mut pair = Pair::<StandIn>::new();
    pair.initiate(START, 0);
    let (host, mut local) = (pair.ends[1].host, pair.ends[0].local());
    local.extension_bits = 40;
    let (_, _, init) = pair.wire.remove(0);
    let resp = pair.ends[1].receive(START, pair.ends[0].host, &init);
    let refused =
        pair.ends[0].handshakes.resp(START, address(host), &resp, &local, &mut Vec::new());
    assert!(matches!(
        refused,
        Err(Refused::Identity(IdentityError::Extension { expected: 40, .. }))
    ));
}

/// Above the limit a COOKIE is asked for. A sender that receives at its address comes through, others cost a hash.
#[test]
fn a_flood_of_handshakes_lets_neighbours_in() {
    let limits = Limits { handshakes: 6, handshakes_busy: 3, ..Limits::default() };
    let mut server = End::<StandIn>::new(100, limits);
    for host in 1..=50 {
        let init = End::<StandIn>::new(host, Limits::default()).initiate(START, 100);
        let answer = server.receive(START, host, &init);
        assert!(answer.len() <= init.len());
        let expected = if host <= 3 { Kind::Resp } else { Kind::Cookie };
        assert_eq!(Kind::of(&answer), Ok(expected));
    }
    assert_eq!((server.handshakes.len(), server.handshakes.counters.cookies), (3, 47));
    let mut neighbour = End::<StandIn>::new(60, Limits::default());
    let init = neighbour.initiate(START, 100);
    let cookie = server.receive(START, 60, &init);
    // A cookie from elsewhere, or for another INIT, is not used.
    assert!(neighbour.receive(START, 61, &cookie).is_empty());
    let mut forged = cookie.clone();
    forged[30] ^= 1;
    assert!(neighbour.receive(START, 100, &forged).is_empty());
    let again = neighbour.receive(START, 100, &cookie);
    assert!(neighbour.receive(START, 100, &cookie).is_empty());
    let stolen = server.receive(START, 62, &again);
    assert_eq!(Kind::of(&stolen), Ok(Kind::Cookie));
    let resp = server.receive(START, 60, &again);
    let conf = neighbour.receive(START, 100, &resp);
    server.receive(START, 60, &conf);
    assert_eq!((server.up.len(), neighbour.up.len()), (1, 1));
    // What never confirms ends, and room is there again.
    while let Some(now) = server.handshakes.poll_timeout() {
        server.handshakes.timeout(now, &mut server.random, &mut Vec::new());
    }
    assert_eq!((server.handshakes.counters.unconfirmed, server.handshakes.is_empty()), (3, true));
}

#[test]
fn the_table_is_bounded() {
    let limits = Limits { handshakes: 2, ..Limits::default() };
    let mut end = End::<StandIn>::new(1, limits);
    let (local, mut out) = (end.local(), Vec::new());
    let mut initiate =
        |host| end.handshakes.initiate(START, address(host), &local, &mut end.random, &mut out);
    // The second to one address is the same handshake.
    assert_eq!([2, 2, 3].map(&mut initiate), [Ok(()); 3]);
    assert_eq!(initiate(4), Err(Refused::Full(2)));
    assert_eq!((out.len(), end.handshakes.counters.full), (2 * Init::LENGTH, 1));
}

/// Whatever is lost of the first six packets, both ends have the link in the end, with the same keys.
#[test]
fn lost_packets_are_sent_again() {
    for (lost, both) in (0..64).flat_map(|lost| [(lost, false), (lost, true)]) {
        let mut pair = Pair::<StandIn>::new();
        pair.initiate(START, 0);
        if both {
            pair.initiate(START, 1);
        }
        pair.drive(at(40_000), |number| number < 6 && lost >> number & 1 == 1);
        pair.assert_up();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_packets_change_nothing(kind in 2u8..6, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut pair = Pair::<StandIn>::new();
        pair.initiate(START, 0);
        let host = pair.ends[1].host;
        let length = [192, 183, 147, 40][usize::from(kind) - 2];
        let mut packet = vec![0x10 | kind];
        packet.extend(bytes);
        packet.resize(length, 0);
        prop_assert!(pair.ends[0].receive(START, host, &packet).len() <= packet.len());
        pair.drive(at(1_000), |_| false);
        pair.assert_up();
    }
}
