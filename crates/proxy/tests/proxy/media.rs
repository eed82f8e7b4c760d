//! Calls between IPv4 phones behind two routers, whose media the routers relay (`docs/media.md`): the proxy core with the
//! pure relay, in virtual time.

use crate::common::*;
use crate::routers::{Mesh, address};
use ringway_media::{Config, Forwarded, Leg, Limits, MediaRelay, Refusal, Relay, Tables};
use ringway_proxy::config::Network;
use ringway_proxy::location::MemoryStore;
use ringway_sansio::{Duration, SplitMix, Time, Transport};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// A phone behind the first router, and one with the same address behind the second.
const PHONE: Peer = ALICE.at("10.50.60.7:5060");
const FAR: Peer = BOB.at("10.50.60.7:5060");
const FAR2: Peer = BOB2.at("10.50.60.8:5060");
/// A phone on the LAN of the first.
const NEAR: Peer = BOB3.at("10.50.60.9:5060");
/// IPv6 phones.
const SIX: Peer = BOB.at("[fd02::77]:5060");

/// The pure relay, with ports that can always be bound.
struct Shared {
    relay: Mutex<(Relay, SplitMix)>,
    /// The legs of each request.
    seen: Mutex<Vec<(Leg, Leg, Option<u64>)>>,
}

impl Shared {
    fn new(config: Config) -> Arc<Shared> {
        let relay = Relay::new(config, [9; 16], Time::from_secs(1_700_000_000));
        let relay = Mutex::new((relay, SplitMix::new(5)));
        let shared = Shared { relay, seen: Mutex::default() };
        shared.call(Time::from_secs(1_700_000_000), |_| ());
        Arc::new(shared)
    }

    /// Calls the relay and binds the ports that it wants.
    fn call<R>(&self, now: Time, f: impl FnOnce(&mut Relay) -> R) -> R {
        let (relay, random) = &mut *self.relay.lock().unwrap();
        let result = f(relay);
        while relay.poll_command().is_some() {}
        while let Some(port) = relay.wanted_port(random) {
            relay.port_bound(now, port, true);
        }
        result
    }

    fn tables(&self) -> Tables {
        self.relay.lock().unwrap().0.tables()
    }

    /// Checks the numbers of dialogs and of streams with ports.
    fn holds(&self, sessions: usize, streams: usize) {
        let tables = self.tables();
        assert_eq!((tables.sessions, tables.streams), (sessions, streams));
    }
}

impl MediaRelay for Shared {
    fn request(&self, now: Time, request: &Forwarded<'_>) -> Result<Option<Vec<u8>>, Refusal> {
        self.seen.lock().unwrap().push((request.from, request.to, request.branch));
        self.call(now, |relay| relay.request(now, request))
    }

    fn response(&self, now: Time, response: &Forwarded<'_>) -> Option<Vec<u8>> {
        self.call(now, |relay| relay.response(now, response))
    }

    fn ended(&self, branch: u64) {
        self.call(Time::ZERO, |relay| relay.ended(branch));
    }
}

fn in_mesh(router: usize) -> Config {
    Config { ipv6: Some(address(router)), ..Config::default() }
}

/// Routers with relays, with a phone of alice at the first.
fn relaying(count: usize) -> (Mesh, Vec<Arc<Shared>>) {
    relaying_as(count, in_mesh)
}

fn relaying_as(count: usize, config: impl Fn(usize) -> Config) -> (Mesh, Vec<Arc<Shared>>) {
    let relays: Vec<_> = (0..count).map(|i| Shared::new(config(i))).collect();
    // Without it the phones would bypass the relay after the call is set up.
    let record_route = false;
    let mut mesh = Mesh::relaying(count, record_route, |i| Some(relays[i].clone() as _));
    mesh.register(0, PHONE, "alice");
    (mesh, relays)
}

fn sdp(addr: &str, direction: &str) -> String {
    let addr: SocketAddr = addr.parse().unwrap();
    let kind = if addr.is_ipv4() { "IP4" } else { "IP6" };
    let (ip, port) = (addr.ip(), addr.port());
    format!(
        "v=0\r\no=- 1 1 IN {kind} {ip}\r\ns=-\r\nc=IN {kind} {ip}\r\nt=0 0\r\nm=audio {port} RTP/AVP 8\r\na={direction}\r\n"
    )
}

trait Described {
    fn with_sdp(self, body: String) -> Self;
    fn media(&self) -> SocketAddr;
}

impl Described for Msg {
    fn with_sdp(self, body: String) -> Msg {
        Msg { body, ..self.set("Content-Type", "application/sdp") }
    }

    /// The address of its stream. Its Content-Length must be that of its body.
    fn media(&self) -> SocketAddr {
        assert_eq!(self.get("Content-Length"), self.body.len().to_string());
        let session = ringway_sip::sdp::Session::parse(self.body.as_bytes()).unwrap();
        let media = &session.media[0];
        SocketAddr::new(session.connection(media).unwrap().ip().unwrap(), media.port)
    }
}

fn offer() -> String {
    sdp("10.50.60.7:4000", "sendrecv")
}

/// Alice calls bob with an offer. Returns the INVITE.
fn invite(mesh: &mut Mesh) -> Msg {
    mesh.call_with(0, PHONE, "alice", "INVITE sip:bob@example.org", |m| m.with_sdp(offer()))
}

/// Bob's phone answers a request with a description. Returns the response that it sent.
fn answer(mesh: &mut Mesh, router: usize, phone: Peer, got: &Msg, status: u16) -> Msg {
    let media = SocketAddr::new(phone.remote().ip(), 6000).to_string();
    let response = response(phone, got, status).with_sdp(sdp(&media, "sendrecv"));
    mesh.from(router, phone, &response);
    response
}

const LAN_IP: IpAddr = IpAddr::V4(LAN);

/// Both routers write their own addresses, whoever describes; ports stay the same in a re-INVITE, and BYE releases them.
#[test]
fn a_call_between_ipv4_phones_behind_two_routers_is_relayed() {
    for bye_by_caller in [true, false] {
        let (mut mesh, relays) = relaying(2);
        mesh.register(1, FAR, "bob");
        let sent = invite(&mut mesh);
        let got = mesh.expect(1, FAR, "INVITE sip:bob@10.50.60.7:5060");
        assert_eq!(got.all("Record-Route").len(), 4, "two of each router (RFC 5658)");
        let offered = got.media();
        assert_eq!(offered.ip(), LAN_IP);
        assert_ne!(offered.port(), 4000);
        answer(&mut mesh, 1, FAR, &got, 183);
        let early = mesh.expect(0, PHONE, "183").media();
        let ok_sent = answer(&mut mesh, 1, FAR, &got, 200);
        let ok = mesh.expect(0, PHONE, "200 INVITE");
        let answered = ok.media();
        assert_eq!((answered.ip(), answered), (LAN_IP, early));
        assert_ne!(answered.port(), 6000);
        relays.iter().for_each(|relay| relay.holds(1, 1));
        let mut caller = Dialog::of_caller(PHONE, &sent, &ok);
        let mut callee = Dialog::of_callee(FAR, &got, &ok_sent);
        caller.cseq = 10;
        mesh.within((0, &mut caller), (1, FAR), "ACK");

        // Hold by the callee, then the call goes on (RFC 3264 section 8.4).
        for direction in ["sendonly", "sendrecv"] {
            let branch = mesh.routers[1].branch();
            let hold = callee.request("INVITE", &branch);
            mesh.from(1, FAR, &hold.with_sdp(sdp("10.50.60.7:6000", direction)));
            mesh.expect(1, FAR, "100");
            let got = mesh.expect(0, PHONE, "INVITE");
            assert_eq!(got.media(), answered);
            assert!(got.body.contains(direction));
            let reply = response(PHONE, &got, 200).with_sdp(offer());
            mesh.from(0, PHONE, &reply);
            assert_eq!(mesh.expect(1, FAR, "200 INVITE").media(), offered);
            mesh.within((1, &mut callee), (0, PHONE), "ACK");
        }
        relays.iter().for_each(|relay| relay.holds(1, 1));
        if bye_by_caller {
            mesh.within((0, &mut caller), (1, FAR), "BYE");
        } else {
            mesh.within((1, &mut callee), (0, PHONE), "BYE");
        }
        relays.iter().for_each(|relay| relay.holds(0, 0));
        mesh.finish();
    }
}

/// RFC 3261 section 13.2.1: the offer is in the 200 and the answer in the ACK, which has no transaction.
#[test]
fn an_answer_in_the_ack_is_rewritten() {
    let (mut mesh, relays) = relaying(2);
    mesh.register(1, FAR, "bob");
    let sent = mesh.call(0, PHONE, "alice", "INVITE sip:bob@example.org");
    let got = mesh.expect(1, FAR, "INVITE");
    answer(&mut mesh, 1, FAR, &got, 200);
    let ok = mesh.expect(0, PHONE, "200");
    assert_eq!(ok.media().ip(), LAN_IP);
    let mut caller = Dialog::of_caller(PHONE, &sent, &ok);
    let branch = mesh.routers[0].branch();
    mesh.from(0, PHONE, &caller.request("ACK", &branch).with_sdp(offer()));
    let media = mesh.expect(1, FAR, "ACK").media();
    assert_eq!(media.ip(), LAN_IP);
    assert_ne!(media.port(), 4000);
    relays.iter().for_each(|relay| relay.holds(1, 1));
    mesh.within((0, &mut caller), (1, FAR), "BYE");
    relays.iter().for_each(|relay| relay.holds(0, 0));
    mesh.finish();
}

#[test]
fn a_cancelled_call_releases_its_ports() {
    let (mut mesh, relays) = relaying(2);
    mesh.register(1, FAR, "bob");
    let sent = invite(&mut mesh);
    let got = mesh.expect(1, FAR, "INVITE");
    mesh.answer(1, FAR, &got, 180);
    mesh.expect(0, PHONE, "180");
    relays.iter().for_each(|relay| relay.holds(1, 1));
    mesh.from(0, PHONE, &cancel(&sent));
    mesh.expect(0, PHONE, "200 CANCEL");
    let stop = mesh.expect(1, FAR, "CANCEL");
    mesh.answer(1, FAR, &stop, 200);
    mesh.answer(1, FAR, &got, 487);
    mesh.expect(1, FAR, "ACK");
    let refused = mesh.expect(0, PHONE, "487");
    relays.iter().for_each(|relay| relay.holds(0, 0));
    mesh.from(0, PHONE, &ack(&sent, &refused));
    mesh.finish();
}

#[test]
fn a_refused_call_releases_its_ports() {
    let (mut mesh, relays) = relaying(2);
    mesh.register(1, FAR, "bob");
    let sent = invite(&mut mesh);
    let got = mesh.expect(1, FAR, "INVITE");
    mesh.answer(1, FAR, &got, 486);
    mesh.expect(1, FAR, "ACK");
    let refused = mesh.expect(0, PHONE, "486");
    relays.iter().for_each(|relay| relay.holds(0, 0));
    mesh.from(0, PHONE, &ack(&sent, &refused));
    mesh.finish();
}

/// RFC 3261 sections 16.7 and 16.9: without a response the ports are released too.
#[test]
fn a_branch_without_a_response_releases_its_ports() {
    let (mut mesh, relays) = relaying(2);
    mesh.register(1, FAR, "bob");
    let sent = invite(&mut mesh);
    mesh.expect(1, FAR, "INVITE");
    relays.iter().for_each(|relay| relay.holds(1, 1));
    mesh.routers[1].pass_secs(33);
    mesh.routers[1].count(FAR, "INVITE");
    mesh.carry();
    let refused = mesh.expect(0, PHONE, "408");
    relays.iter().for_each(|relay| relay.holds(0, 0));
    mesh.from(0, PHONE, &ack(&sent, &refused));
    mesh.finish();
}

/// Each branch has ports of its own. The one that answers keeps them; the cancelled one releases them, although its 487 is
/// not forwarded.
#[test]
fn branches_of_a_forked_call_have_ports_of_their_own() {
    let (mut mesh, relays) = relaying(2);
    mesh.register(1, FAR, "bob");
    mesh.register(1, FAR2, "bob");
    let sent = invite(&mut mesh);
    let one = mesh.expect(1, FAR, "INVITE");
    let other = mesh.expect(1, FAR2, "INVITE");
    assert_ne!(one.media(), other.media());
    relays[0].holds(1, 1);
    relays[1].holds(2, 2);
    mesh.answer(1, FAR, &one, 180);
    mesh.expect(0, PHONE, "180");
    answer(&mut mesh, 1, FAR2, &other, 200);
    let ok = mesh.expect(0, PHONE, "200");
    let stop = mesh.expect(1, FAR, "CANCEL");
    mesh.answer(1, FAR, &stop, 200);
    mesh.answer(1, FAR, &one, 487);
    mesh.expect(1, FAR, "ACK");
    relays.iter().for_each(|relay| relay.holds(1, 1));
    let mut caller = Dialog::of_caller(PHONE, &sent, &ok);
    mesh.within((0, &mut caller), (1, FAR2), "ACK");
    mesh.within((0, &mut caller), (1, FAR2), "BYE");
    relays.iter().for_each(|relay| relay.holds(0, 0));
    mesh.finish();
}

/// Two phones on one LAN reach each other, so nothing is changed.
#[test]
fn phones_on_one_lan_talk_directly() {
    let (mut mesh, relays) = relaying(2);
    mesh.register(0, NEAR, "bob");
    invite(&mut mesh);
    let got = mesh.expect(0, NEAR, "INVITE");
    assert_eq!(got.body, offer());
    let ok = answer(&mut mesh, 0, NEAR, &got, 200);
    assert_eq!(mesh.expect(0, PHONE, "200").body, ok.body);
    relays[0].holds(0, 0);
    mesh.finish();
}

/// Only the router of the IPv4 phone relays if the other phone has IPv6. Its peer there is a router, which stands for many.
#[test]
fn only_the_router_of_an_ipv4_phone_relays() {
    let (mut mesh, relays) = relaying(2);
    mesh.register(1, SIX, "bob");
    let sent = invite(&mut mesh);
    let got = mesh.expect(1, SIX, "INVITE");
    assert_eq!(got.media().ip(), IpAddr::V6(address(0)));
    answer(&mut mesh, 1, SIX, &got, 200);
    let ok = mesh.expect(0, PHONE, "200");
    assert_eq!(ok.media().ip(), LAN_IP);
    relays[0].holds(1, 1);
    relays[1].holds(0, 0);
    let seen = relays[0].seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 1, "one INVITE: the one without credentials is not forwarded");
    let (from, to, branch) = seen[0];
    assert_eq!((from.many, to.many, branch.is_some()), (false, true, true));
    let seen = relays[1].seen.lock().unwrap().clone();
    assert_eq!((seen[0].0.many, seen[0].1.many), (true, false));
    let mut caller = Dialog::of_caller(PHONE, &sent, &ok);
    mesh.within((0, &mut caller), (1, SIX), "ACK");
    mesh.within((0, &mut caller), (1, SIX), "BYE");
    relays[0].holds(0, 0);
    mesh.finish();
}

/// A call beyond a limit is refused and not sent, because it would have no media. A 503 is forwarded as 500 (RFC 3261
/// section 16.7 item 6).
#[test]
fn a_call_beyond_the_limits_is_refused() {
    let (mut mesh, relays) = relaying_as(2, |router| Config {
        limits: Limits { streams: 0, ..in_mesh(router).limits },
        ..in_mesh(router)
    });
    mesh.register(1, FAR, "bob");
    let sent = invite(&mut mesh);
    let refused = mesh.expect(0, PHONE, "500");
    mesh.from(0, PHONE, &ack(&sent, &refused));
    assert_eq!(mesh.routers[0].cores[0].stats().limits_hit, 1);
    relays.iter().for_each(|relay| relay.holds(0, 0));
    mesh.finish();
}

/// RFC 3261 section 18.1.1: a request that is too large for UDP goes by TCP, and by UDP if TCP is refused. It is shown to
/// the relay once for each transaction, and the rewritten body goes with it both times.
#[test]
fn the_body_survives_the_fall_back_to_udp() {
    let relay = Shared::new(Config::default());
    let media = Some(relay.clone() as _);
    let mut w = World::relaying(media, MemoryStore::new([3; 16]), 1, &[], |config| {
        config.trusted = vec![Network { addr: PHONE.remote().ip(), prefix: 32 }];
    });
    w.register("bob", BOB);
    w.break_way(Transport::Tcp, BOB.addr);
    let request = w.request(PHONE, "INVITE sip:bob@example.org").with_sdp(offer());
    w.from(PHONE, &request.add("Subject", "x".repeat(1_300)));
    w.expect(PHONE, "100");
    let got = w.expect(BOB, "INVITE");
    assert_eq!(got.media().ip(), IpAddr::from([192, 0, 2, 1]));
    relay.holds(1, 1);
    let seen = relay.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0].2, seen[1].2);
    assert!(seen[0].0.many, "a trusted peer");
    w.answer(BOB, &got, 486);
    w.expect(BOB, "ACK");
    w.expect(PHONE, "486");
    relay.holds(0, 0);
    w.pass(Duration::from_secs(40));
    w.ignore();
    w.finish_anyhow();
}
