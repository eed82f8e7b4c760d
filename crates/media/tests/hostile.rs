//! What strangers, and parties that lie, can do.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use ringway_media::{Config, Family, Limits, PacketCounters, Port, Rate, Refusal};
use ringway_sansio::Duration;

const CALLER: &str = "10.50.60.7:4000";
const CALLEE: &str = "[fd0b::77]:6000";

fn counters(path: &mut Path) -> PacketCounters {
    *path.router(0).forwarder.counters()
}

#[test]
fn packets_of_strangers_are_dropped_and_counted() {
    let mut path = Path::of_one();
    let (offer, answer) = path.call(&sdp(CALLER), &sdp(CALLEE));
    for stranger in ["10.50.60.8:4000", "10.50.60.1:4000", "127.0.0.1:4000"] {
        assert_eq!(path.packet(true, addr(stranger), answer.media(0)), None);
    }
    for stranger in ["[fd0c::1]:6000", "[fd0b::78]:6000", "[::1]:6000"] {
        assert_eq!(path.packet(false, addr(stranger), offer.media(0)), None);
    }
    assert_eq!(counters(&mut path), PacketCounters { stranger: 6, ..PacketCounters::default() });
    // A party at the port of the other side, and another port of a party that is heard already.
    assert_eq!(path.router(0).packet(addr(CALLER), offer.media(0)), None);
    assert!(path.packet(true, addr(CALLER), answer.media(0)).is_some());
    assert_eq!(path.packet(true, addr("10.50.60.7:4002"), answer.media(0)), None);
    assert_eq!(counters(&mut path).stranger, 8);
    // To an address of the host other than that of the port.
    let to = std::net::SocketAddr::new(ip("192.0.2.1"), answer.media(0).port());
    assert_eq!(path.router(0).packet(addr(CALLER), to), None);
    assert_eq!(counters(&mut path).wrong_address, 1);
}

#[test]
fn a_port_scan_yields_nothing() {
    let mut path = Path::of_one();
    let (offer, answer) = path.call(&sdp(CALLER), &sdp(CALLEE));
    let router = path.router(0);
    for (family, local, source) in
        [(Family::V4, LAN, "10.50.60.99:1234"), (Family::V6, A, "[fd0c::1]:1234")]
    {
        for number in 20_000..30_000u16 {
            let port = Port { family, number };
            let len = usize::from(number) % 1_400;
            assert!(
                router
                    .forwarder
                    .receive(router.now, port, Some(ip(local)), addr(source), len)
                    .is_err()
            );
        }
    }
    let counters = router.forwarder.counters();
    assert_eq!((counters.forwarded, counters.stranger, counters.no_stream), (0, 4, 19_996));
    // The party is not shut out by it.
    assert!(path.packet(true, addr(CALLER), answer.media(0)).is_some());
    assert!(path.packet(false, addr(CALLEE), offer.media(0)).is_some());
}

#[test]
fn a_source_is_replaced_only_after_silence() {
    let mut path = Path::of_one();
    let (_, answer) = path.call(&sdp(CALLER), &sdp(CALLEE));
    let other = addr("10.50.60.7:4242");
    for _ in 0..10 {
        assert!(path.packet(true, addr(CALLER), answer.media(0)).is_some());
        path.wait(Duration::from_secs(2));
        assert_eq!(path.packet(true, other, answer.media(0)), None);
    }
    path.wait(Duration::from_secs(1));
    assert!(path.packet(true, other, answer.media(0)).is_some());
    assert_eq!(path.packet(true, addr(CALLER), answer.media(0)), None);
}

#[test]
fn one_stream_is_limited_to_its_rate() {
    let rate = Rate { packets: 100, octets: 10_000 };
    let mut path = Path::of_one();
    path.hops[0].0 = Router::new(Config { rate, ..Config::default() });
    let (_, answer) = path.call(&sdp(CALLER), &sdp(CALLEE));
    let router = path.router(0);
    let burst = |router: &mut Router, len| {
        (0..1_000)
            .filter(|_| router.packet_of(len, addr(CALLER), answer.media(0)).is_some())
            .count()
    };
    assert_eq!(burst(router, 100), 100, "packets");
    router.wait(Duration::from_millis(500));
    assert_eq!(burst(router, 500), 10, "octets");
    router.wait(Duration::from_secs(10));
    assert_eq!(burst(router, 0), 100, "no more than a second's");
    assert_eq!(router.forwarder.counters().rate, 900 + 990 + 900);
    // Changing the session gives no more.
    let again = request("INVITE", 2).to("bob").body(sdp("10.50.60.7:4100"));
    path.request(again.clone());
    path.response(again.answer(200, "").body(sdp(CALLEE)));
    let router = path.router(0);
    assert_eq!(router.packet_of(1, addr("10.50.60.7:4100"), answer.media(0)), None);
    // RTCP has a part of it.
    let to = std::net::SocketAddr::new(answer.media(0).ip(), answer.media(0).port() + 1);
    let sent = (0..100).filter(|_| router.packet_of(50, addr("10.50.60.7:4101"), to).is_some());
    assert_eq!(sent.count(), 12);
}

/// A description is a claim: it directs no media to others, to services, or in a circle.
#[test]
fn media_is_not_directed_at_others() {
    for claim in [
        "[fd0c::1]:6000",
        "[fd0b::77]:53",
        "[ff02::1]:6000",
        "[::1]:6000",
        "[fd0a::1]:20002",
        "192.0.2.1:6000",
        "10.50.60.8:6000",
    ] {
        let mut path = Path::of_one();
        let text = sdp(claim);
        let (_, answer) = path.call(&sdp(CALLER), &text);
        assert_eq!(path.packet(true, addr(CALLER), answer.media(0)), None, "{claim}");
        assert_eq!(counters(&mut path).no_destination, 1, "{claim}");
        let counted = path.router(0).relay.counters().refused_addresses;
        assert_eq!(counted, u64::from(!claim.starts_with("[ff02")), "{claim}");
    }
    // The RTCP port alone.
    let mut path = Path::of_one();
    let text = format!("{}a=rtcp:53\r\n", sdp(CALLEE));
    let (_, answer) = path.call(&sdp(CALLER), &text);
    assert!(path.packet(true, addr(CALLER), answer.media(0)).is_some());
    let to = std::net::SocketAddr::new(answer.media(0).ip(), answer.media(0).port() + 1);
    assert_eq!(path.packet(true, addr("10.50.60.7:4001"), to), None);
}

/// Calls from `from` until one is refused. Returns how many there were.
fn calls(router: &mut Router, from: &str, prefix: &str) -> (usize, Refusal) {
    let (from, to) = if from.contains(':') {
        (leg(A, from), leg(LAN, PHONE))
    } else {
        (leg(LAN, from), leg(A, B))
    };
    let media = if from.remote.is_ipv4() { CALLER } else { CALLEE };
    for n in 0..10_000 {
        let invite = request("INVITE", 1).call(format!("{prefix}{n}")).body(sdp(media));
        if let Err(refusal) = router.request(&invite, from, to, None) {
            return (n, refusal);
        }
    }
    panic!("never refused");
}

/// A phone, a router, and all routers together leave ports for others.
#[test]
fn no_source_exhausts_the_ports() {
    let mut router = Router::in_mesh(A);
    assert_eq!(calls(&mut router, PHONE, "a"), (16, Refusal::Share));
    assert_eq!(calls(&mut router, OTHER_PHONE, "b"), (16, Refusal::Share));
    // What nobody answers has a limit of its own.
    assert_eq!(calls(&mut router, "fd0b::1", "c"), (256 - 32, Refusal::Unanswered));
    assert_eq!(router.relay.counters().share, 2);
    let limits = Limits { unanswered: 10_000, ..Config::default().limits };
    let mut router = Router::new(Config { limits, ..Config::default() });
    for n in 0..3 {
        let taken = calls(&mut router, &format!("fd0{n}::1"), &format!("r{n}-"));
        assert_eq!(taken, (256, Refusal::Share));
    }
    assert_eq!(calls(&mut router, "fd09::1", "r9-"), (0, Refusal::Share));
    // A router cannot pass for its phones.
    assert_eq!(calls(&mut router, "fd00::77", "p-"), (0, Refusal::Share));
    assert_eq!(calls(&mut router, PHONE, "l-"), (16, Refusal::Share));
    assert!(router.relay.tables().streams < 1_024);
}

#[test]
fn one_dialog_has_a_limit() {
    let mut path = Path::of_one();
    let many = vec![CALLER; 9];
    let refused = path.try_request(request("INVITE", 1).body(sdp_of(&many))).unwrap_err();
    assert_eq!((refused, refused.status()), (Refusal::TooMany, 488));
    assert_eq!(path.router(0).relay.tables().sessions, 0);
    path.try_request(request("INVITE", 1).body(sdp_of(&many[..8]))).unwrap();
    // A re-INVITE that is refused changes nothing.
    let mut path = Path::of_one();
    let (offer, answer) = path.call(&sdp(CALLER), &sdp(CALLEE));
    let again = request("INVITE", 2).to("bob").body(sdp_of(&many));
    assert_eq!(path.try_request(again).unwrap_err(), Refusal::TooMany);
    assert!(path.packet(false, addr(CALLEE), offer.media(0)).is_some());
    assert!(path.packet(true, addr(CALLER), answer.media(0)).is_some());
    assert_eq!(path.router(0).relay.tables().streams, 1);
}

/// Who does not know a dialog's tags cannot change or end it; neither can the tags of another dialog.
#[test]
fn a_dialog_is_changed_only_by_its_own_messages() {
    let mut path = Path::of_one();
    let (offer, answer) = path.call(&sdp(CALLER), &sdp(CALLEE));
    let elsewhere = leg(LAN, "10.50.60.9");
    let router = path.router(0);
    for (from, to) in [("mallory", "bob"), ("alice", "mallory"), ("bob", "mallory"), ("alice", "")]
    {
        let base = |method, cseq| Msg { from: from.into(), ..request(method, cseq).to(to) };
        router.request(&base("BYE", 9), elsewhere, leg(A, B), None).unwrap();
        let ack = base("ACK", 1).body(sdp("10.50.60.9:4000"));
        assert!(!router.request(&ack, elsewhere, leg(A, B), None).unwrap().rewritten);
        router.response(&base("BYE", 9).answer(200, to), leg(A, B), elsewhere, None);
        router.response(&base("INVITE", 1).answer(487, to), leg(A, B), elsewhere, Some(5));
    }
    router.wait(Duration::from_secs(60));
    assert!(path.packet(true, addr(CALLER), answer.media(0)).is_some());
    assert_eq!(path.packet(false, addr(CALLEE), offer.media(0)).unwrap().0, addr(CALLER));
}

/// A tag that is not known yet is not learnt from somebody else who knows the Call-ID.
#[test]
fn an_early_dialog_is_not_taken_over() {
    let mut path = Path::of_one();
    let invite = request("INVITE", 1).body(sdp(CALLER));
    path.request(invite.clone());
    let router = path.router(0);
    let elsewhere = leg(LAN, "10.50.60.9");
    let bye = request("BYE", 2).to("mallory");
    router.request(&bye, elsewhere, leg(A, B), None).unwrap();
    router.response(&bye.answer(200, ""), leg(A, B), elsewhere, None);
    assert_eq!(router.relay.tables().sessions, 1);
    let answer = path.response(invite.answer(200, "bob").body(sdp(CALLEE)));
    assert!(path.packet(true, addr(CALLER), answer.media(0)).is_some());
}

/// A message that passes a server twice has two sessions (RFC 3261 section 16.6); each request finds its own.
#[test]
fn a_message_that_passes_twice_is_relayed_twice() {
    let mut path = Path::of_two();
    let first = path.hops.remove(0);
    let router = first.0;
    // Phone, this router, a proxy elsewhere, this router again, another phone.
    let legs = [(leg(LAN, PHONE), leg(A, B)), (leg(A, B), leg(LAN, OTHER_PHONE))];
    let mut twice = (router, legs);
    let pass = |twice: &mut (Router, [(ringway_media::Leg, ringway_media::Leg); 2]), msg: Msg| {
        let (router, legs) = twice;
        (1u64..).zip(*legs).fold(msg, |msg, (branch, (from, to))| {
            let branch = msg.to.is_empty().then_some(branch);
            router.request(&msg, from, to, branch).unwrap()
        })
    };
    let invite = request("INVITE", 1).body(sdp(CALLER));
    let offer = pass(&mut twice, invite.clone());
    let mut answer = invite.answer(200, "bob").body(sdp("10.50.60.8:6000"));
    for (branch, (to, from)) in [(2, legs[1]), (1, legs[0])] {
        answer = twice.0.response(&answer, from, to, Some(branch));
    }
    assert_eq!(twice.0.relay.tables().sessions, 2);
    let again = request("INVITE", 2).to("bob").body(sdp(CALLER));
    let sent = pass(&mut twice, again.clone());
    assert_eq!(sent.body, offer.body);
    let mut answer2 = again.answer(200, "").body(sdp("10.50.60.8:6000"));
    for (to, from) in [legs[1], legs[0]] {
        answer2 = twice.0.response(&answer2, from, to, None);
    }
    assert_eq!(answer2.body, answer.body);
}
