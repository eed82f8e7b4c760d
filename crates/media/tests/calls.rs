//! Whole calls: the session description each party receives, and where its media goes.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use ringway_media::{Config, Refusal};
use ringway_sansio::Duration;
use std::net::SocketAddr;

const RTP: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 50, 60, 7)), 4_000);

fn rtcp(rtp: SocketAddr) -> SocketAddr {
    SocketAddr::new(rtp.ip(), rtp.port() + 1)
}

/// Two phones with the same address talk to each other through two routers, each of which relays.
#[test]
fn two_ipv4_phones_with_one_address_talk() {
    let mut path = Path::of_two();
    let (offer, answer) = path.call(&sdp("10.50.60.7:4000"), &sdp("10.50.60.7:6000"));
    assert_eq!(offer.media(0).ip(), ip(LAN));
    assert_eq!(answer.media(0).ip(), ip(LAN));
    let callee = addr("10.50.60.7:6000");
    let there = path.packet(true, RTP, answer.media(0));
    assert_eq!(there, Some((callee, offer.media(0))));
    let back = path.packet(false, callee, offer.media(0));
    assert_eq!(back, Some((RTP, answer.media(0))));
    let there = path.packet(true, rtcp(RTP), rtcp(answer.media(0)));
    assert_eq!(there, Some((rtcp(callee), rtcp(offer.media(0)))));
    path.request(request("BYE", 2).to("bob"));
    assert!(path.packet(true, RTP, answer.media(0)).is_some(), "until it is answered");
    path.response(request("BYE", 2).to("bob").answer(200, ""));
    assert_eq!(path.packet(true, RTP, answer.media(0)), None);
    path.check_empty();
}

#[test]
fn only_the_router_of_the_ipv4_phone_relays() {
    let mut path = Path::of_one();
    let (offer, answer) = path.call(&sdp("10.50.60.7:4000"), &sdp("[fd0b::77]:6000"));
    assert_eq!(offer.media(0).ip(), ip(A));
    assert_eq!(path.router(1).relay.tables().sessions, 0);
    let callee = addr("[fd0b::77]:6000");
    assert_eq!(path.packet(true, RTP, answer.media(0)), Some((callee, offer.media(0))));
    assert_eq!(path.packet(false, callee, offer.media(0)), Some((RTP, answer.media(0))));
}

#[test]
fn peers_that_reach_each_other_are_left_alone() {
    let mut router = Router::in_mesh(A);
    for (from, to, media) in [
        (leg(LAN, PHONE), leg(LAN, OTHER_PHONE), "10.50.60.7:4000"),
        (leg(A, "fd0a::77"), leg(A, B), "[fd0a::77]:4000"),
        (leg("192.0.2.1", "192.0.2.7"), leg("192.0.2.1", "198.51.100.7"), "192.0.2.7:4000"),
    ] {
        let invite = request("INVITE", 1).body(sdp(media));
        assert!(!router.request(&invite, from, to, Some(1)).unwrap().rewritten);
        let answer = invite.answer(200, "bob").body(sdp(media));
        assert!(!router.response(&answer, to, from, Some(1)).rewritten);
    }
    assert_eq!(router.relay.tables().sessions, 0);
    // From a LAN whose addresses mean nothing outside, to somebody outside.
    let invite = request("INVITE", 1).body(sdp("10.50.60.7:4000"));
    let (from, to) = (leg(LAN, PHONE), leg("192.0.2.1", "198.51.100.7"));
    let relayed = router.request(&invite, from, to, Some(1)).unwrap();
    assert_eq!(relayed.media(0).ip(), ip("192.0.2.1"));
}

/// RFC 3264 section 5: nothing is forwarded while there is only an offer.
#[test]
fn nothing_is_forwarded_before_an_answer() {
    let mut path = Path::of_one();
    let invite = request("INVITE", 1).body(sdp("10.50.60.7:4000"));
    let offer = path.request(invite.clone());
    let callee = addr("[fd0b::77]:6000");
    assert_eq!(path.packet(false, callee, offer.media(0)), None);
    path.response(invite.answer(180, "bob"));
    assert_eq!(path.packet(false, callee, offer.media(0)), None);
    let early = path.response(invite.answer(183, "bob").body(sdp("[fd0b::77]:6000")));
    assert_eq!(path.packet(false, callee, offer.media(0)), Some((RTP, early.media(0))));
    // The same answer again in the 200 changes nothing.
    let last = path.response(invite.answer(200, "bob").body(sdp("[fd0b::77]:6000")));
    assert_eq!(last.body, early.body);
    assert_eq!(path.packet(false, callee, offer.media(0)), Some((RTP, early.media(0))));
}

/// RFC 3261 section 13.2.1: the offer in the 200 and the answer in the ACK.
#[test]
fn an_offer_may_come_late() {
    let mut path = Path::of_two();
    let invite = request("INVITE", 1);
    path.request(invite.clone());
    let offer = path.response(invite.answer(200, "bob").body(sdp("10.50.60.7:6000")));
    assert_eq!(offer.media(0).ip(), ip(LAN));
    assert_eq!(path.packet(true, RTP, offer.media(0)), None);
    let ack = request("ACK", 1).to("bob").body(sdp("10.50.60.7:4000"));
    let answer = path.request(ack.clone());
    assert_eq!(path.request(ack).body, answer.body, "a 200 that comes again is acknowledged again");
    let callee = addr("10.50.60.7:6000");
    assert_eq!(path.packet(true, RTP, offer.media(0)), Some((callee, answer.media(0))));
    assert_eq!(path.packet(false, callee, answer.media(0)), Some((RTP, offer.media(0))));
}

/// RFC 3262 section 5: the offer in a reliable 183, the answer in its PRACK; then another offer in an UPDATE (RFC 3311).
#[test]
fn prack_and_update_carry_descriptions() {
    let mut path = Path::of_two();
    let invite = request("INVITE", 1);
    path.request(invite.clone());
    let offer = path.response(invite.answer(183, "bob").body(sdp("10.50.60.7:6000")));
    let prack = request("PRACK", 2).to("bob").body(sdp("10.50.60.7:4000"));
    let answer = path.request(prack.clone());
    path.response(prack.answer(200, ""));
    let callee = addr("10.50.60.7:6000");
    assert_eq!(path.packet(true, RTP, offer.media(0)), Some((callee, answer.media(0))));
    let update = request("UPDATE", 3).to("bob").body(sdp("10.50.60.7:4444"));
    let new = path.request(update.clone());
    assert_eq!(new.media(0), answer.media(0), "a stream keeps its ports");
    path.response(update.answer(200, "").body(sdp("10.50.60.7:6000")));
    assert_eq!(
        path.packet(false, callee, new.media(0)),
        Some((addr("10.50.60.7:4444"), offer.media(0)))
    );
    // A PRACK with an offer of its own.
    let prack = request("PRACK", 4).to("bob").body(sdp("10.50.60.7:4446"));
    path.request(prack.clone());
    path.response(prack.answer(200, "").body(sdp("10.50.60.7:6000")));
    let to = path.packet(false, callee, new.media(0)).unwrap().0;
    assert_eq!(to, addr("10.50.60.7:4446"));
}

/// RFC 3261 section 14.1: a re-INVITE that is refused leaves the session as it was; RFC 3264 section 8: either side may
/// change it.
#[test]
fn a_reinvite_moves_media_only_when_it_is_accepted() {
    let mut path = Path::of_two();
    let (offer, answer) = path.call(&sdp("10.50.60.7:4000"), &sdp("10.50.60.7:6000"));
    let callee = addr("10.50.60.7:6000");
    let again = request("INVITE", 2).to("bob").body(sdp("10.50.60.7:4800"));
    let sent = path.request(again.clone());
    assert_eq!(sent.media(0), offer.media(0));
    assert_eq!(path.packet(false, callee, offer.media(0)).unwrap().0, RTP);
    path.response(again.answer(488, ""));
    assert_eq!(path.packet(false, callee, offer.media(0)).unwrap().0, RTP);
    assert_eq!(path.packet(true, addr("10.50.60.7:4800"), answer.media(0)).unwrap().0, callee);
    let back = request("INVITE", 9).to("bob").backwards().body(sdp("10.50.60.7:6600"));
    let moved = path.request_back(back.clone());
    assert_eq!(moved.media(0), answer.media(0));
    path.response_back(back.answer(200, "").body(sdp("10.50.60.7:4000")));
    assert_eq!(path.packet(true, RTP, answer.media(0)), None, "4800 was heard last");
    path.wait(Duration::from_secs(4));
    assert_eq!(path.packet(true, RTP, answer.media(0)).unwrap().0, addr("10.50.60.7:6600"));
}

/// RFC 3264 sections 8.2 and 6: streams that end, come back and are refused.
#[test]
fn several_streams_come_and_go() {
    let mut path = Path::of_two();
    let two = sdp_of(&["10.50.60.7:4000", "10.50.60.7:4010"]);
    let refused = two.replace("m=audio 4010", "m=audio 0");
    let (offer, answer) = path.call(&two, &refused);
    assert_eq!((answer.media(0).port() == 0, answer.media(1).port()), (false, 0));
    let second = offer.media(1);
    assert!(second.port() >= 20_000 && second != offer.media(0));
    assert_eq!(path.packet(false, addr("10.50.60.7:4010"), second), None);
    let again = request("INVITE", 2).to("bob").body(two.clone());
    let sent = path.request(again.clone());
    assert_eq!(sent.media(1), second, "at the ports that it had");
    let answer = path.response(again.answer(200, "").body(two));
    let there = path.packet(true, addr("10.50.60.7:4010"), answer.media(1));
    assert_eq!(there, Some((addr("10.50.60.7:4010"), second)));
    let third = request("INVITE", 3).to("bob").body(sdp_of(&[
        "10.50.60.7:4000",
        "10.50.60.7:4010",
        "10.50.60.7:4020",
    ]));
    assert!(path.request(third).media(2).port() >= 20_000);
    assert_eq!(path.router(0).relay.tables().streams, 3);
}

/// RFC 3264 section 8.4.
#[test]
fn a_party_on_hold_receives_nothing_and_may_send() {
    let mut path = Path::of_two();
    let (offer, answer) = path.call(&sdp("10.50.60.7:4000"), &sdp("10.50.60.7:6000"));
    let callee = addr("10.50.60.7:6000");
    assert!(path.packet(true, RTP, answer.media(0)).is_some());
    let hold = request("INVITE", 2).to("bob").body(sdp("0.0.0.0:4000"));
    let held = path.request(hold.clone());
    assert_eq!(held.media(0), SocketAddr::new(ip("0.0.0.0"), offer.media(0).port()));
    let first = path.hops[0].0.request(&hold, leg(LAN, PHONE), leg(A, B), None).unwrap();
    assert!(first.body.contains("c=IN IP6 ::\r\n"), "{}", first.body);
    path.response(hold.answer(200, "").body(sdp("10.50.60.7:6000")));
    assert_eq!(path.packet(false, callee, offer.media(0)), None);
    assert_eq!(path.packet(true, RTP, answer.media(0)).unwrap().0, callee, "music");
    let resume = request("INVITE", 3).to("bob").body(sdp("10.50.60.7:4000"));
    path.request(resume.clone());
    path.response(resume.answer(200, "").body(sdp("10.50.60.7:6000")));
    assert_eq!(path.packet(false, callee, offer.media(0)).unwrap().0, RTP);
}

/// RFC 3261 section 16.7: each branch has ports of its own, so that two early dialogs do not mix, and two that are both
/// answered both work.
#[test]
fn branches_of_a_fork_are_relayed_apart() {
    let mut router = Router::in_mesh(A);
    let phone = leg(LAN, PHONE);
    let invite = request("INVITE", 1).body(sdp("10.50.60.7:4000"));
    let mut sides = Vec::new();
    for (branch, remote) in [(1, "fd0b::1"), (2, "fd0c::1")] {
        let to = leg(A, remote);
        let offer = router.request(&invite, phone, to, Some(branch)).unwrap();
        let media = format!("[{remote}]:6000");
        let answer = invite.answer(183, remote).body(sdp(&media));
        let answer = router.response(&answer, to, phone, Some(branch));
        sides.push((offer.media(0), answer.media(0), addr(&media)));
    }
    assert!(sides[0].0 != sides[1].0 && sides[0].1 != sides[1].1);
    for (offer, answer, callee) in &sides {
        assert_eq!(router.packet(*callee, *offer), Some((*answer, RTP)));
        assert_eq!(router.packet(RTP, *answer).unwrap().1, *callee);
    }
    assert_eq!(router.packet(sides[1].2, sides[0].0), None, "a packet of one for the other");
    // The third is a phone on the same LAN, which reaches the caller itself.
    let to = leg(LAN, OTHER_PHONE);
    assert!(!router.request(&invite, phone, to, Some(3)).unwrap().rewritten);
    let direct = invite.answer(183, "direct").body(sdp("10.50.60.8:6000"));
    assert!(!router.response(&direct, to, phone, Some(3)).rewritten);
    // One is answered, the other cancelled.
    let answer = invite.answer(200, "fd0b::1").body(sdp("[fd0b::1]:6000"));
    router.response(&answer, leg(A, "fd0b::1"), phone, Some(1));
    router.response(&invite.answer(487, "fd0c::1"), leg(A, "fd0c::1"), phone, Some(2));
    assert_eq!(router.packet(sides[1].2, sides[1].0), None);
    assert!(router.packet(sides[0].2, sides[0].0).is_some());
    assert_eq!(router.relay.tables().sessions, 1);
}

/// A fork behind the next proxy: the dialog that answers last, and then the one that is confirmed, is relayed.
#[test]
fn early_dialogs_of_one_branch_follow_each_other() {
    let mut path = Path::of_one();
    let invite = request("INVITE", 1).body(sdp("10.50.60.7:4000"));
    let offer = path.request(invite.clone());
    let first = path.response(invite.answer(183, "one").body(sdp("[fd0b::77]:6000")));
    let second = path.response(invite.answer(183, "two").body(sdp("[fd0b::78]:6000")));
    assert_eq!(first.media(0), second.media(0));
    let two = addr("[fd0b::78]:6000");
    assert_eq!(path.packet(false, two, offer.media(0)).unwrap().0, RTP);
    assert_eq!(path.packet(false, addr("[fd0b::77]:6000"), offer.media(0)), None);
    path.response(invite.answer(200, "two").body(sdp("[fd0b::78]:6000")));
    // Another 200, which the caller will end: its media is not relayed, and changes nothing.
    let late = path.response(invite.answer(200, "one").body(sdp("[fd0b::77]:6000")));
    assert_eq!(late.media(0), second.media(0));
    path.request(request("BYE", 2).to("one"));
    path.response(request("BYE", 2).to("one").answer(200, ""));
    assert_eq!(path.packet(false, two, offer.media(0)).unwrap().0, RTP);
}

#[test]
fn calls_that_fail_leave_nothing() {
    for status in [302, 407, 486, 487, 503, 600] {
        let mut path = Path::of_two();
        let invite = request("INVITE", 1).body(sdp("10.50.60.7:4000"));
        path.request(invite.clone());
        path.response(invite.answer(183, "bob").body(sdp("10.50.60.7:6000")));
        path.request(request("CANCEL", 1));
        path.response(invite.answer(status, "bob"));
        path.check_empty();
    }
    // A branch that ends without a response.
    let mut path = Path::of_two();
    path.request(request("INVITE", 1).body(sdp("10.50.60.7:4000")));
    path.hops.iter_mut().for_each(|(router, ..)| {
        router.relay.ended(77);
        router.pump();
    });
    path.check_empty();
    // And one that nobody is notified of.
    let mut path = Path::of_two();
    path.request(request("INVITE", 1).body(sdp("10.50.60.7:4000")));
    path.wait(Duration::from_secs(299));
    assert_eq!(path.router(0).relay.tables().sessions, 1);
    path.wait(Duration::from_secs(1));
    path.check_empty();
}

#[test]
fn a_dialog_without_media_and_signalling_is_released() {
    let mut path = Path::of_two();
    let (offer, answer) = path.call(&sdp("10.50.60.7:4000"), &sdp("10.50.60.7:6000"));
    for _ in 0..5 {
        path.wait(Duration::from_secs(500));
        assert!(path.packet(true, RTP, answer.media(0)).is_some());
        for (router, ..) in &mut path.hops {
            let active = router.forwarder.take_active();
            assert_eq!(active.len(), 1);
            router.relay.media_seen(router.now, active);
        }
    }
    path.wait(Duration::from_secs(599));
    assert!(path.packet(true, RTP, answer.media(0)).is_some());
    path.wait(Duration::from_secs(1));
    assert_eq!(path.packet(true, RTP, answer.media(0)), None);
    assert_eq!(path.router(1).relay.counters().idle, 1);
    // The next re-INVITE brings it back, as after a restart of the router.
    let again = request("INVITE", 5).to("bob").body(sdp("10.50.60.7:4000"));
    let new = path.request(again.clone());
    assert_ne!(new.media(0), offer.media(0));
    let answer = path.response(again.answer(200, "").body(sdp("10.50.60.7:6000")));
    assert!(path.packet(true, RTP, answer.media(0)).is_some());
}

/// RFC 3261 section 15, section 22: a BYE that is challenged does not end the call; one that is never answered does.
#[test]
fn a_bye_ends_the_relay_when_it_is_answered_or_after_a_while() {
    let mut path = Path::of_two();
    let (_, answer) = path.call(&sdp("10.50.60.7:4000"), &sdp("10.50.60.7:6000"));
    path.request(request("BYE", 2).to("bob"));
    path.response(request("BYE", 2).to("bob").answer(407, ""));
    path.wait(Duration::from_secs(60));
    assert!(path.packet(true, RTP, answer.media(0)).is_some());
    path.request_back(request("BYE", 8).to("bob").backwards());
    path.wait(Duration::from_secs(31));
    assert!(path.packet(true, RTP, answer.media(0)).is_some());
    path.wait(Duration::from_secs(1));
    assert_eq!(path.packet(true, RTP, answer.media(0)), None);
    path.check_empty();
}

#[test]
fn what_is_no_media_over_udp_is_left_alone_and_counted() {
    let mut path = Path::of_two();
    let msrp = "v=0\r\no=- 1 1 IN IP4 10.50.60.7\r\ns=-\r\nc=IN IP4 10.50.60.7\r\nt=0 0\r\n\
                m=message 2855 TCP/MSRP *\r\na=path:msrp://10.50.60.7:2855/s;tcp\r\n";
    let sent = path.request(request("INVITE", 1).body(msrp));
    assert_eq!(sent.body, msrp);
    assert_eq!(path.router(0).relay.counters().left_alone, 1);
    path.branch = 78;
    let both = format!("{msrp}m=image 4000 udptl t38\r\n");
    let sent = path.request(request("INVITE", 2).body(both));
    assert!(sent.body.contains("c=IN IP4 10.50.60.7\r\nt=0 0\r\nm=message 2855"), "{}", sent.body);
    assert_eq!(sent.media(1).ip(), ip(LAN));
    path.branch = 79;
    let unreadable = "v=0\r\nm=audio x RTP/AVP 0\r\n";
    assert_eq!(path.request(request("INVITE", 3).body(unreadable)).body, unreadable);
    assert_eq!(path.router(0).relay.counters().unreadable, 1);
}

/// RFC 5621: the description in a part of the body.
#[test]
fn the_description_may_be_a_part_of_the_body() {
    let mut path = Path::of_two();
    let body = format!(
        "--b\r\nContent-Type: application/sdp\r\n\r\n{}\r\n--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--\r\n",
        sdp("10.50.60.7:4000")
    );
    let invite = Msg { kind: "multipart/mixed;boundary=b", ..request("INVITE", 1).body(body) };
    let sent = path.request(invite);
    assert!(sent.body.contains("c=IN IP4 10.50.60.1\r\n\r\n--b\r\n"), "{}", sent.body);
}

/// RFC 3605.
#[test]
fn rtcp_goes_where_the_description_says() {
    let mut path = Path::of_two();
    let offer = format!("{}a=rtcp:4_444\r\n", sdp("10.50.60.7:4000")).replace('_', "");
    let (_, answer) = path.call(&offer, &sdp("10.50.60.7:6000"));
    let callee = addr("10.50.60.7:6001");
    assert_eq!(
        path.packet(true, addr("10.50.60.7:4444"), rtcp(answer.media(0))).unwrap().0,
        callee
    );
}

/// A phone behind a NAT, or with a wrong idea of its address: media comes from where signalling comes from.
#[test]
fn media_from_the_address_of_signalling_is_sent_back_there() {
    let mut path = Path::of_one();
    let (offer, answer) = path.call(&sdp("192.168.1.9:4000"), &sdp("[fd0b::77]:6000"));
    assert_eq!(path.router(0).relay.counters().refused_addresses, 1);
    let (callee, source) = (addr("[fd0b::77]:6000"), addr("10.50.60.7:51000"));
    assert_eq!(path.packet(false, callee, offer.media(0)), None, "the address is unknown yet");
    assert_eq!(path.packet(true, addr("192.168.1.9:4000"), answer.media(0)), None);
    assert_eq!(path.packet(true, source, answer.media(0)).unwrap().0, callee);
    assert_eq!(path.packet(false, callee, offer.media(0)).unwrap().0, source);
    let config = Config { latch: false, ..Config::default() };
    path.hops[0].0 = Router::new(config);
    let (_, answer) = path.call(&sdp("192.168.1.9:4000"), &sdp("[fd0b::77]:6000"));
    assert_eq!(path.packet(true, source, answer.media(0)), None);
}

/// Each retransmission and each attempt of a branch is rewritten alike.
#[test]
fn the_same_request_is_rewritten_alike() {
    let mut path = Path::of_two();
    let invite = request("INVITE", 1).body(sdp("10.50.60.7:4000"));
    let first = path.request(invite.clone());
    assert_eq!(path.request(invite).body, first.body);
    assert_eq!(path.router(0).relay.tables().streams, 1);
}

#[test]
fn a_call_is_refused_when_no_port_is_ready() {
    let mut router = Router::in_mesh(A);
    let mut refused = 0;
    for n in 0..200u64 {
        let invite = request("INVITE", 1).call(n.to_string()).body(sdp("10.50.60.7:4000"));
        // Each from another network, so that no share is used up.
        let from = Leg4(n).leg();
        let bytes = invite.bytes();
        let message = &ringway_sip::message::parse(&bytes).unwrap();
        let forwarded = ringway_media::Forwarded { message, from, to: leg(A, B), branch: Some(n) };
        // Nobody binds more.
        match router.relay.request(router.now, &forwarded) {
            Ok(body) => assert!(body.is_some()),
            Err(refusal) => {
                assert_eq!((refusal, refusal.status()), (Refusal::NoPorts, 503));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 200 - ringway_media::config::SPARE_PAIRS);
    assert_eq!(router.relay.counters().no_ports, refused as u64);
    assert_eq!(router.relay.tables().sessions, 200 - refused);
}

struct Leg4(u64);

impl Leg4 {
    fn leg(&self) -> ringway_media::Leg {
        leg("192.0.2.1", &format!("198.{}.{}.7", 18 + self.0 / 256, self.0 % 256))
    }
}
