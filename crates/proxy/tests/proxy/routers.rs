//! Other routers of the mesh: what they may send, and whole calls from phone to phone over two and three of them.

use crate::common::*;
use crate::elsewhere::in_mesh;
use crate::relay::{answered, digest};
use crate::routing::{dial_plan, hop, rule};
use ringway_media::MediaRelay;
use ringway_proxy::config::{Config, MeshNetwork, Mode, Network};
use ringway_proxy::keys::Secret;
use ringway_proxy::location::{LocationStore, MemoryStore};
use ringway_proxy::overload::ROUTER_SOURCES;
use ringway_proxy::routes::{DomainMatch, UserMatch};
use ringway_proxy::{Question, Reply};
use ringway_sansio::{Flow, FlowId, Transport};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

fn router_with_digest(config: &mut Config) {
    in_mesh(config);
    digest(config);
}

/// A router with a user bob who is registered, and a user carol who is not.
fn closed() -> World {
    let mut w = World::with(router_with_digest);
    w.register("bob", BOB);
    w
}

/// A request of another router, from `user` at our domain.
fn from_router(w: &mut World, line: &str, user: &str) -> Msg {
    let request = w.request(ROUTER, line);
    request.set("From", format!("<sip:{user}@example.org>;tag=there"))
}

/// The users of another router call ours without credentials. What they assert is removed as from strangers (RFC 3325
/// section 5).
#[test]
fn a_router_sends_for_its_users_without_credentials() {
    let mut w = closed();
    w.speaks(ROUTER, "dave", Some(true));
    let invite = from_router(&mut w, "INVITE sip:bob@example.org", "dave");
    let invite = invite.add("Route", "<sip:[fd01::1]:5060;lr>");
    w.from(ROUTER, &invite.add("P-Asserted-Identity", "<sip:boss@example.org>"));
    w.expect(ROUTER, "100");
    let got = w.expect(BOB, "INVITE sip:bob@203.0.113.2:5060");
    assert!(!got.has("P-Asserted-Identity") && !got.has("Route"));
    let ok = response(BOB, &got, 200).add("P-Asserted-Identity", "<sip:boss@example.org>");
    w.from(BOB, &ok);
    assert!(!w.expect(ROUTER, "200").has("P-Asserted-Identity"));
    assert!(w.asks.is_empty());
    w.finish();
}

/// A router does not speak for users of others: neither for ours, nor for those of third ones, nor for nobody.
#[test]
fn a_router_does_not_speak_for_others() {
    let mut w = closed();
    w.speaks(ROUTER, "dave", Some(true));
    w.speaks(ROUTER2, "erin", Some(true));
    for user in ["alice", "bob", "erin", "nobody", "Dave", "dave%40x", ""] {
        let request = from_router(&mut w, "MESSAGE sip:bob@example.org", user);
        let request = match user {
            "" => request.set("From", "<sip:example.org>;tag=there"),
            _ => request,
        };
        w.from(ROUTER, &request);
        let refused = w.expect(ROUTER, "403");
        assert!(!refused.has("Proxy-Authenticate"), "{user}");
    }
    assert_eq!(w.cores[0].stats().forbidden, 7);
    assert_eq!(w.lines.iter().filter(|line| line.status == 403).count(), 7);
    // The name of a domain of ours counts in any form.
    for from in ["<sip:alice@EXAMPLE.ORG.>;tag=1", "<sips:alice@192.0.2.1>;tag=1"] {
        let request = w.request(ROUTER, "MESSAGE sip:bob@example.org");
        w.from(ROUTER, &request.set("From", from));
        w.expect(ROUTER, "403");
    }
    // Escapes in the name of its own user are the same name (RFC 3261 section 19.1.4).
    let request = from_router(&mut w, "MESSAGE sip:bob@example.org", "%64ave");
    w.from(ROUTER, &request);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(ROUTER, "200");
    w.finish();
}

/// Whether a router speaks for a user may have to be asked for.
#[test]
fn the_users_of_a_router_are_asked_for() {
    for (may, reply, status) in [
        (Some(true), Reply::Located, "200"),
        (Some(false), Reply::Located, "403"),
        (None, Reply::Located, "504"),
        (None, Reply::Unavailable, "504"),
        // Another request has been answered meanwhile.
        (Some(true), Reply::Unavailable, "200"),
    ] {
        let mut w = closed();
        w.speaks(ROUTER, "dave", None);
        let request = from_router(&mut w, "MESSAGE sip:bob@example.org", "dave");
        w.from(ROUTER, &request);
        w.quiet();
        let asked = w.asked();
        assert_eq!(asked.aor(), "sip:dave@example.org");
        w.speaks(ROUTER, "dave", may);
        w.reply(&asked, reply);
        if status == "200" {
            let got = w.expect(BOB, "MESSAGE");
            w.answer(BOB, &got, 200);
        }
        w.expect(ROUTER, status);
        w.finish();
    }
}

/// Anonymous callers, and users of other domains, are strangers at every router: they reach our users, and no more.
#[test]
fn strangers_come_through_a_router_as_strangers() {
    let mut w = closed();
    for from in [
        "<sip:eve@example.com>;tag=1",
        "\"Anonymous\" <sip:anonymous@anonymous.invalid>;tag=1",
        "<tel:+1555>;tag=1",
    ] {
        let request = w.request(ROUTER, "MESSAGE sip:bob@example.org");
        w.from(ROUTER, &request.set("From", from));
        let got = w.expect(BOB, "MESSAGE");
        w.answer(BOB, &got, 200);
        w.expect(ROUTER, "200");
    }
    w.finish();
}

/// A router leads to no other domain, by no rule, and through nothing: only to contacts here.
#[test]
fn a_router_reaches_users_here_only() {
    let mut w = World::with(|config| {
        router_with_digest(config);
        dial_plan(config);
        config.routes.rules.push(ringway_proxy::routes::Rule {
            next_hops: vec![hop("sip:192.0.2.60", 1, 1)],
            open: true,
            ..rule(DomainMatch::Own, UserMatch::Prefix("112".into()))
        });
        config.routes.rules.push(ringway_proxy::routes::Rule {
            next_hops: vec![hop("sip:192.0.2.60", 1, 1)],
            open: true,
            ..rule(DomainMatch::Name("open.example.net".into()), UserMatch::Any)
        });
    });
    w.speaks(ROUTER, "dave", Some(true));
    for (line, status) in [
        ("INVITE sip:0301234@example.org", "404"),
        ("INVITE sip:112@example.org", "404"),
        ("INVITE tel:0301234", "404"),
        ("INVITE sip:x@open.example.net", "403"),
        ("INVITE sip:x@203.0.113.99", "403"),
        ("MESSAGE sip:x@192.0.2.60", "403"),
        ("BYE sip:x@203.0.113.99", "403"),
        ("MESSAGE sip:bob@example.org;maddr=203.0.113.99", "403"),
        // A user here without contacts exists, another does not.
        ("INVITE sip:carol@example.org", "480"),
        ("INVITE sip:nobody@example.org", "404"),
        ("REGISTER sip:example.org", "403"),
    ] {
        let mut request = from_router(&mut w, line, "dave");
        if line.starts_with("REGISTER") {
            request = request.set("To", "<sip:dave@example.org>");
        }
        w.from(ROUTER, &request);
        let answer = w.expect(ROUTER, status);
        if line.starts_with("INVITE") {
            w.from(ROUTER, &ack(&request, &answer));
        }
    }
    let request = from_router(&mut w, "MESSAGE sip:bob@example.org", "dave");
    w.from(ROUTER, &request.add("Route", "<sip:203.0.113.99;lr>"));
    w.expect(ROUTER, "403");
    let request = from_router(&mut w, "SUBSCRIBE sip:dave@example.org", "dave");
    w.from(ROUTER, &request.add("Event", "reg"));
    w.expect(ROUTER, "403");
    // RFC 3261 section 22.1: an ACK cannot be answered.
    let request = from_router(&mut w, "ACK sip:x@203.0.113.99", "dave");
    w.from(ROUTER, &request);
    w.call(ROUTER, "OPTIONS sip:example.org");
    w.expect(ROUTER, "200");
    assert_eq!(w.store.records(), 0);
    w.finish();
}

/// No request circles among routers: what one sends is not sent to the next, whatever is known.
#[test]
fn a_request_of_a_router_goes_to_no_other_router() {
    for mode in [Mode::Proxy, Mode::Stateless, Mode::Redirect] {
        for digest in [true, false] {
            let mut w = World::with(|config| {
                in_mesh(config);
                config.auth.enabled = digest;
                config.domains[0].mode = mode;
            });
            w.speaks(ROUTER, "dave", Some(true));
            w.elsewhere("bob", &[(ROUTER, 1000), (ROUTER2, 1000)]);
            w.unknown("carol");
            w.bind("alice", bind("sip:carol@example.org"));
            for uri in ["bob@example.org", "carol@example.org", "bob@example.org;gr=urn:uuid:1"] {
                let request = from_router(&mut w, &format!("MESSAGE sip:{uri}"), "dave");
                w.from(ROUTER, &request);
                w.expect(ROUTER, "480");
            }
            assert!(w.asks.is_empty());
            w.finish();
        }
    }
}

/// A host behind a router is no router, and neither is who uses a router's address outside the mesh, or our own.
#[test]
fn other_addresses_of_the_mesh_are_strangers() {
    let mut w = closed();
    for peer in [MESH_HOST, ROUTER, ROUTER.at("[fd01::1]:5060")] {
        let user = "dave";
        w.speaks(peer, user, Some(true));
        let request = w.request(peer, "MESSAGE sip:bob@example.org");
        let request = request.set("From", format!("<sip:{user}@example.org>;tag=1"));
        let mut flow = peer.flow(0);
        if peer == ROUTER {
            flow.local = "[2001:db8::1]:5060".parse().unwrap();
        }
        w.bytes_from(0, flow, &request.bytes());
        let answer = w.sent.pop_front().expect("an answer");
        assert_eq!((answer.to.remote(), answer.msg.status()), (peer.remote(), 407));
    }
    // Without a mesh there are no routers.
    let mut w = World::with(digest);
    w.register("bob", BOB);
    w.speaks(ROUTER, "dave", Some(true));
    let request = from_router(&mut w, "MESSAGE sip:bob@example.org", "dave");
    w.from(ROUTER, &request);
    w.expect(ROUTER, "407");
    w.finish();
}

/// A router whose address is in a trusted network is no trusted peer.
#[test]
fn a_router_is_no_trusted_peer() {
    let mut w = World::with(|config| {
        router_with_digest(config);
        config.trusted = vec![Network { addr: "fd00::".parse().unwrap(), prefix: 8 }];
    });
    w.register("bob", BOB);
    let request = from_router(&mut w, "MESSAGE sip:bob@example.org", "alice");
    w.from(ROUTER, &request);
    w.expect(ROUTER, "403");
    let request = w.request(ROUTER, "MESSAGE sip:bob@example.org");
    let request = request.set("From", "<sip:eve@example.com>;tag=1");
    w.from(ROUTER, &request.add("P-Asserted-Identity", "<sip:boss@example.org>"));
    let got = w.expect(BOB, "MESSAGE");
    assert!(!got.has("P-Asserted-Identity"));
    w.answer(BOB, &got, 200);
    w.expect(ROUTER, "200");
    // RFC 3261 section 18.2.2: an `maddr` of a router would send the response to a third party.
    let request = w.request(ROUTER, "OPTIONS sip:example.org");
    let to_third = format!("{};maddr=203.0.113.99", request.get("Via"));
    w.from(ROUTER, &request.set("Via", to_third));
    w.expect(ROUTER, "200");
    w.finish();
}

/// A Contact that a router claims gives the callee no way to a gateway, in a trusted network or not.
#[test]
fn a_contact_claimed_through_a_router_leads_to_no_gateway() {
    for trusted in [false, true] {
        let mut w = World::with(|config| {
            router_with_digest(config);
            dial_plan(config);
            let network = Network { addr: "fd00::".parse().unwrap(), prefix: 8 };
            config.trusted = trusted.then_some(network).into_iter().collect();
        });
        w.register("bob", BOB);
        w.speaks(ROUTER, "dave", Some(true));
        let invite = from_router(&mut w, "INVITE sip:bob@example.org", "dave");
        // Behind another proxy, so that no flow leads back to the caller.
        let invite = invite.add("Via", "SIP/2.0/UDP 192.0.2.60;branch=z9hG4bKua");
        w.from(ROUTER, &invite.set("Contact", "<sip:1900@192.0.2.60>"));
        w.expect(ROUTER, "100");
        let got = w.expect(BOB, "INVITE");
        let ok = w.answer(BOB, &got, 200);
        w.expect(ROUTER, "200");
        let mut callee = Dialog::of_callee(BOB, &got, &ok);
        w.from(BOB, &callee.request("INFO", "z9hG4bKtoll"));
        w.expect(BOB, "403");
        w.finish();
    }
}

/// A router has the rate of many phones, and a limit like every source.
#[test]
fn a_router_has_the_rate_of_many_phones() {
    let mut w = World::with(|config| {
        router_with_digest(config);
        config.limits.requests_per_source = 5;
    });
    for _ in 0..150 {
        w.call(ROUTER, "OPTIONS sip:example.org");
        w.call(MESH_HOST, "OPTIONS sip:example.org");
    }
    assert_eq!(w.count(ROUTER, "200"), 5 * ROUTER_SOURCES as usize);
    assert_eq!(w.count(ROUTER, "503"), 150 - 5 * ROUTER_SOURCES as usize);
    assert_eq!((w.count(MESH_HOST, "200"), w.count(MESH_HOST, "503")), (5, 5));
    w.pass_secs(1);
    w.call(ROUTER2, "OPTIONS sip:example.org");
    w.expect(ROUTER2, "200");
    w.finish();
}

/// A flood of requests whose From must be asked for is one source's: others find room.
#[test]
fn a_router_whose_requests_wait_leaves_room_for_others() {
    let mut w = closed();
    w.unknown("bob");
    let mut waiting = 0;
    for n in 0..3_000 {
        let user = format!("u{n}");
        w.speaks(ROUTER, &user, None);
        let request = from_router(&mut w, "MESSAGE sip:bob@example.org", &user);
        w.from(ROUTER, &request);
        waiting += usize::from(w.count(ROUTER, "503") == 0);
    }
    assert!((900..1_300).contains(&waiting), "{waiting}");
    w.asks.clear();
    let request = w.request(PROXY, "MESSAGE sip:bob@example.org");
    w.from(PROXY, &request.set("From", "<sip:eve@example.com>;tag=1"));
    let asked = w.asked();
    w.registered_nowhere("bob", true);
    w.reply(&asked, Reply::Located);
    let got = w.expect(BOB, "MESSAGE");
    w.answer(BOB, &got, 200);
    w.expect(PROXY, "200");
    w.pass_secs(11);
    w.ignore();
    w.finish_anyhow();
}

/// Several routers as one server: each is a world of its own, and what they send to each other is carried at once.
pub struct Mesh {
    pub routers: Vec<World>,
}

const USERS: [&str; 3] = ["alice", "bob", "carol"];

pub fn address(router: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd01 + router as u16, 0, 0, 0, 0, 0, 0, 1)
}

pub fn peer_of(router: usize) -> Peer {
    ROUTER.at(["[fd01::1]:5060", "[fd02::1]:5060", "[fd03::1]:5060"][router])
}

/// What a router sees of a datagram of another.
pub fn mesh_flow(from: usize, to: usize) -> Flow {
    let (local, remote) = (peer_of(to).remote(), peer_of(from).remote());
    Flow { id: FlowId::new(0, 0), transport: Transport::Udp, local, remote }
}

impl Mesh {
    /// So many routers with digest, each with a secret of its own. At first they know nothing of each other's users.
    pub fn new(count: usize, record_route: bool) -> Mesh {
        Mesh::relaying(count, record_route, |_| None)
    }

    /// With a relay of media at each router.
    pub fn relaying(
        count: usize,
        record_route: bool,
        media: impl Fn(usize) -> Option<Arc<dyn MediaRelay>>,
    ) -> Mesh {
        let router = |i: usize| {
            let store = MemoryStore::new([3; 16]);
            let w = World::relaying(media(i), store, 1, &[], |config| {
                config.addresses = vec![LAN.into()];
                digest(config);
                config.record_route = record_route;
                config.mesh = Some(MeshNetwork { address: address(i) });
                config.secret = Secret::new(&[i as u8 + 1; 32]);
            });
            for user in USERS {
                w.unknown(user);
                (0..count).for_each(|other| w.speaks(peer_of(other), user, None));
            }
            w
        };
        Mesh { routers: (0..count).map(router).collect() }
    }

    fn has(&self, router: usize, user: &str) -> bool {
        let (w, aor) = (&self.routers[router], format!("sip:{user}@{DOMAIN}"));
        w.store.lookup(aor.as_bytes(), w.now, &mut |_| {}) > 0
    }

    /// Answers a question of a router by what the others have.
    fn find(&self, at: usize, user: &str) {
        let w = &self.routers[at];
        let others = || (0..self.routers.len()).filter(|&other| other != at);
        let there = others().filter(|&other| self.has(other, user));
        let there: Vec<_> = there.map(|other| (peer_of(other), 1000)).collect();
        w.elsewhere(user, &there);
        others().for_each(|other| w.speaks(peer_of(other), user, Some(self.has(other, user))));
    }

    /// Carries what routers send to each other, and answers their questions, until there is nothing more.
    pub fn carry(&mut self) {
        for _ in 0..1_000 {
            let mut idle = true;
            for i in 0..self.routers.len() {
                for asked in std::mem::take(&mut self.routers[i].asks) {
                    idle = false;
                    let reply = match &asked.question {
                        Question::Rules => Reply::Located,
                        Question::Keep(_) => Reply::Unavailable,
                        Question::Credentials(_) => Reply::Credentials(asked.verdict(PASSWORD)),
                        Question::Location { .. } => {
                            let aor = asked.aor();
                            self.find(i, &aor[4..aor.find('@').unwrap()]);
                            Reply::Located
                        }
                    };
                    self.routers[i].reply(&asked, reply);
                }
                for j in 0..self.routers.len() {
                    let to = peer_of(j).remote();
                    idle &= !self.carry_next(i, j, to);
                }
            }
            if idle {
                return;
            }
        }
        panic!("sends for ever");
    }

    /// Carries one message from a router to another. Returns whether there was one.
    fn carry_next(&mut self, from: usize, to: usize, address: SocketAddr) -> bool {
        let sent = &mut self.routers[from].sent;
        let at = sent.iter().position(|sent| sent.to.remote() == address);
        let Some(sent) = at.and_then(|at| sent.remove(at)) else { return false };
        assert_eq!(sent.to.transport(), Transport::Udp);
        self.routers[to].bytes_from(0, mesh_flow(from, to), &sent.msg.bytes());
        true
    }

    pub fn from(&mut self, router: usize, me: Peer, msg: &Msg) {
        self.routers[router].from(me, msg);
        self.carry();
    }

    pub fn answer(&mut self, router: usize, me: Peer, request: &Msg, status: u16) -> Msg {
        let response = self.routers[router].answer(me, request, status);
        self.carry();
        response
    }

    pub fn expect(&mut self, router: usize, peer: Peer, words: &str) -> Msg {
        self.routers[router].expect(peer, words)
    }

    /// The phone registers at a router, with its password.
    pub fn register(&mut self, router: usize, phone: Peer, user: &str) {
        let w = &mut self.routers[router];
        let request = w.request(phone, "REGISTER sip:example.org");
        let aor = format!("<sip:{user}@example.org>");
        let request = request.set("From", format!("{aor};tag=1")).set("To", aor);
        w.from(phone, &request);
        let challenged = w.expect(phone, "401");
        let branch = w.branch();
        self.from(router, phone, &answered(&request, &challenged, user, &branch));
        self.expect(router, phone, "200");
    }

    /// The phone sends a request, and answers the challenge of its own router. Returns the request with credentials.
    pub fn call(&mut self, router: usize, phone: Peer, user: &str, line: &str) -> Msg {
        self.call_with(router, phone, user, line, |request| request)
    }

    /// As [`Mesh::call`], with a request that `change` completes.
    pub fn call_with(
        &mut self,
        router: usize,
        phone: Peer,
        user: &str,
        line: &str,
        change: impl FnOnce(Msg) -> Msg,
    ) -> Msg {
        let w = &mut self.routers[router];
        let from = format!("<sip:{user}@example.org>;tag=caller");
        let request = change(w.request(phone, line).set("From", from));
        w.from(phone, &request);
        let challenged = w.expect(phone, "407");
        if request.method() == "INVITE" {
            w.from(phone, &ack(&request, &challenged));
        }
        let branch = w.branch();
        let again = answered(&request, &challenged, user, &branch);
        self.from(router, phone, &again);
        if request.method() == "INVITE" {
            self.expect(router, phone, "100");
        }
        again
    }

    /// A request within a dialog, and its answer.
    pub fn within(
        &mut self,
        (here, dialog): (usize, &mut Dialog),
        (there, other): (usize, Peer),
        method: &str,
    ) -> (Msg, Msg) {
        let branch = self.routers[here].branch();
        let request = dialog.request(method, &branch);
        let me = dialog.me;
        self.from(here, me, &request);
        if method == "INVITE" {
            self.expect(here, me, "100");
        }
        let got = self.expect(there, other, method);
        assert_eq!(got.all("Via").len(), 3, "over both routers");
        if method != "ACK" {
            self.answer(there, other, &got, 200);
            let ok = self.expect(here, me, &format!("200 {method}"));
            return (got, ok);
        }
        (got, request)
    }

    pub fn finish(self) {
        self.routers.into_iter().for_each(World::finish);
    }
}

/// RFC 3261 sections 12 and 16.6: each router adds its own Record-Route, and recognises its own mark. Requests within
/// the dialog pass both ways without credentials.
#[test]
fn a_call_over_two_routers_is_set_up_changed_and_ended() {
    for bye_by_caller in [true, false] {
        let mut mesh = Mesh::new(2, true);
        mesh.register(0, ALICE, "alice");
        mesh.register(1, BOB, "bob");
        let invite = mesh.call(0, ALICE, "alice", "INVITE sip:bob@example.org");
        let got = mesh.expect(1, BOB, "INVITE sip:bob@203.0.113.2:5060");
        assert_eq!(got.all("Record-Route").len(), 4, "two of each router (RFC 5658)");
        assert!(!got.has("Proxy-Authorization"));
        mesh.answer(1, BOB, &got, 180);
        mesh.expect(0, ALICE, "180");
        let ok = mesh.answer(1, BOB, &got, 200);
        let ok_there = mesh.expect(0, ALICE, "200");
        let mut caller = Dialog::of_caller(ALICE, &invite, &ok_there);
        let mut callee = Dialog::of_callee(BOB, &got, &ok);
        caller.cseq = 10;
        mesh.within((0, &mut caller), (1, BOB), "ACK");
        for method in ["INFO", "UPDATE", "MESSAGE", "REFER"] {
            mesh.within((0, &mut caller), (1, BOB), method);
            mesh.within((1, &mut callee), (0, ALICE), method);
        }
        // Both sides change the session. The ACK takes the path of its own 2xx.
        for turn in 0..2 {
            let (here, there) = if turn == 0 { (1, 0) } else { (0, 1) };
            let other = if turn == 0 { ALICE } else { BOB };
            let dialog = if turn == 0 { &mut callee } else { &mut caller };
            mesh.within((here, dialog), (there, other), "INVITE");
            let dialog = if turn == 0 { &mut callee } else { &mut caller };
            mesh.within((here, dialog), (there, other), "ACK");
        }
        if bye_by_caller {
            mesh.within((0, &mut caller), (1, BOB), "BYE");
        } else {
            mesh.within((1, &mut callee), (0, ALICE), "BYE");
        }
        for w in &mesh.routers {
            assert_eq!(w.cores[0].stats().forbidden, 0);
            assert_eq!(w.calls.len(), 3, "began, answered, ended");
        }
        mesh.finish();
    }
}

/// Without Record-Route the phones send to each other directly once the call is set up.
#[test]
fn a_call_over_two_routers_without_record_route() {
    let mut mesh = Mesh::new(2, false);
    mesh.register(0, ALICE, "alice");
    mesh.register(1, BOB, "bob");
    let invite = mesh.call(0, ALICE, "alice", "INVITE sip:bob@example.org");
    let got = mesh.expect(1, BOB, "INVITE");
    assert!(!got.has("Record-Route"));
    mesh.answer(1, BOB, &got, 200);
    let ok = mesh.expect(0, ALICE, "200");
    let caller = Dialog::of_caller(ALICE, &invite, &ok);
    assert!(caller.route.is_empty());
    assert_eq!(caller.target, BOB.contact());
    mesh.finish();
}

/// RFC 3261 section 9: a CANCEL follows the INVITE to the phone; the ACK of a refusal goes from hop to hop.
#[test]
fn a_call_over_two_routers_is_cancelled() {
    for record_route in [true, false] {
        let mut mesh = Mesh::new(2, record_route);
        mesh.register(0, ALICE, "alice");
        mesh.register(1, BOB, "bob");
        let invite = mesh.call(0, ALICE, "alice", "INVITE sip:bob@example.org");
        let got = mesh.expect(1, BOB, "INVITE");
        mesh.answer(1, BOB, &got, 180);
        mesh.expect(0, ALICE, "180");
        mesh.from(0, ALICE, &cancel(&invite));
        mesh.expect(0, ALICE, "200 CANCEL");
        let stop = mesh.expect(1, BOB, "CANCEL");
        mesh.answer(1, BOB, &stop, 200);
        mesh.answer(1, BOB, &got, 487);
        mesh.expect(1, BOB, "ACK");
        let answer = mesh.expect(0, ALICE, "487");
        mesh.from(0, ALICE, &ack(&invite, &answer));
        mesh.finish();
    }
}

/// A refusal of the phone, and one of its router, come back to the caller.
#[test]
fn a_call_over_two_routers_fails() {
    for record_route in [true, false] {
        let mut mesh = Mesh::new(2, record_route);
        mesh.register(0, ALICE, "alice");
        mesh.register(1, BOB, "bob");
        let invite = mesh.call(0, ALICE, "alice", "INVITE sip:bob@example.org");
        let got = mesh.expect(1, BOB, "INVITE");
        mesh.answer(1, BOB, &got, 486);
        mesh.expect(1, BOB, "ACK");
        let answer = mesh.expect(0, ALICE, "486");
        mesh.from(0, ALICE, &ack(&invite, &answer));
        // The first router still believes that bob is at the second one.
        let tag = ringway_proxy::location::CommitTag { worker: 0, id: 0 };
        let w = &mesh.routers[1];
        w.store.update(b"sip:bob@example.org", w.now, tag, &mut |edit| edit.commit());
        let invite = mesh.call(0, ALICE, "alice", "INVITE sip:bob@example.org");
        let answer = mesh.expect(0, ALICE, "480");
        mesh.from(0, ALICE, &ack(&invite, &answer));
        mesh.finish();
    }
}

/// RFC 3428: a MESSAGE each way.
#[test]
fn messages_pass_over_two_routers() {
    for record_route in [true, false] {
        let mut mesh = Mesh::new(2, record_route);
        mesh.register(0, ALICE, "alice");
        mesh.register(1, BOB, "bob");
        for (here, me, user, there, other, to) in
            [(0, ALICE, "alice", 1, BOB, "bob"), (1, BOB, "bob", 0, ALICE, "alice")]
        {
            mesh.call(here, me, user, &format!("MESSAGE sip:{to}@example.org"));
            let got = mesh.expect(there, other, "MESSAGE");
            mesh.answer(there, other, &got, 200);
            mesh.expect(here, me, "200");
        }
        mesh.finish();
    }
}

/// RFC 3261 section 16.7: a user with phones at two other routers and here. All ring; the first that answers has the
/// call, and the others are cancelled.
#[test]
fn a_call_forks_to_all_routers() {
    for answering in 0..3 {
        let mut mesh = Mesh::new(3, true);
        mesh.register(0, ALICE, "alice");
        let phones = [(0, BOB), (1, BOB2), (2, BOB3)];
        phones.iter().for_each(|&(router, phone)| mesh.register(router, phone, "bob"));
        let invite = mesh.call(0, ALICE, "alice", "INVITE sip:bob@example.org");
        let mut rings = Vec::new();
        for (router, phone) in phones {
            let got = mesh.expect(router, phone, "INVITE");
            mesh.answer(router, phone, &got, 180);
            mesh.expect(0, ALICE, "180");
            rings.push(got);
        }
        let (at, phone) = phones[answering];
        let ok = mesh.answer(at, phone, &rings[answering], 200);
        let ok_there = mesh.expect(0, ALICE, "200");
        for (n, (router, phone)) in phones.into_iter().enumerate().filter(|&(n, _)| n != answering)
        {
            let stop = mesh.expect(router, phone, "CANCEL");
            mesh.answer(router, phone, &stop, 200);
            mesh.answer(router, phone, &rings[n], 487);
            mesh.expect(router, phone, "ACK");
        }
        let mut caller = Dialog::of_caller(ALICE, &invite, &ok_there);
        caller.cseq = 10;
        if at != 0 {
            mesh.within((0, &mut caller), (at, phone), "ACK");
            let mut callee = Dialog::of_callee(phone, &rings[answering], &ok);
            mesh.within((at, &mut callee), (0, ALICE), "BYE");
        }
        mesh.finish();
    }
}

/// A user who is registered at two routers speaks from both, and a message to the own address goes to the other phone.
#[test]
fn a_user_at_two_routers_speaks_from_both() {
    let mut mesh = Mesh::new(2, true);
    mesh.register(0, BOB, "bob");
    mesh.register(1, BOB2, "bob");
    for (here, me, there, other) in [(0, BOB, 1, BOB2), (1, BOB2, 0, BOB)] {
        mesh.call(here, me, "bob", "MESSAGE sip:bob@example.org");
        let got = mesh.expect(there, other, "MESSAGE");
        mesh.answer(there, other, &got, 200);
        // The own phone is tried as well.
        let own = mesh.expect(here, me, "MESSAGE");
        mesh.expect(here, me, "200");
        mesh.answer(here, me, &own, 200);
    }
    mesh.finish();
}

/// A user whose password one router has registers at another, calls from there, and is called there.
#[test]
fn a_user_registers_at_another_router_than_the_own() {
    let mut mesh = Mesh::new(2, true);
    mesh.routers[1].at_home_elsewhere("alice");
    mesh.routers[0].at_home_elsewhere("bob");
    mesh.register(1, ALICE, "alice");
    mesh.register(0, BOB, "bob");
    for (here, me, user, there, other, to) in
        [(1, ALICE, "alice", 0, BOB, "bob"), (0, BOB, "bob", 1, ALICE, "alice")]
    {
        let invite = mesh.call(here, me, user, &format!("INVITE sip:{to}@example.org"));
        let got = mesh.expect(there, other, "INVITE");
        let ok = mesh.answer(there, other, &got, 200);
        let ok_there = mesh.expect(here, me, "200");
        let mut caller = Dialog::of_caller(me, &invite, &ok_there);
        caller.cseq = 10;
        mesh.within((here, &mut caller), (there, other), "ACK");
        let mut callee = Dialog::of_callee(other, &got, &ok);
        mesh.within((there, &mut callee), (here, me), "BYE");
    }
    for w in &mesh.routers {
        assert_eq!((w.cores[0].stats().auth_failed, w.cores[0].stats().forbidden), (0, 0));
    }
    mesh.finish();
}

/// A mark of one router opens nothing at another, nor for another target.
#[test]
fn a_mark_of_one_router_opens_nothing_at_another() {
    let mut mesh = Mesh::new(2, true);
    mesh.register(0, ALICE, "alice");
    mesh.register(1, BOB, "bob");
    let invite = mesh.call(0, ALICE, "alice", "INVITE sip:bob@example.org");
    let got = mesh.expect(1, BOB, "INVITE");
    mesh.answer(1, BOB, &got, 200);
    let ok = mesh.expect(0, ALICE, "200");
    let mut caller = Dialog::of_caller(ALICE, &invite, &ok);
    caller.cseq = 10;
    mesh.within((0, &mut caller), (1, BOB), "ACK");
    // The router of the caller forges requests within the dialog to another target.
    let w = &mut mesh.routers[1];
    let branch = w.branch();
    let bye = caller.request("BYE", &branch);
    let there = bye.all("Route")[2..].join(", ");
    for (route, uri) in [
        (there.clone(), "sip:victim@203.0.113.99"),
        (there.replace("sip:", "sip:x"), BOB.contact().leak()),
        (bye.all("Route")[1].replace("fd01", "fd02"), BOB.contact().leak()),
    ] {
        let branch = w.branch();
        let forged = bye.clone().aimed_at(uri).set("Route", route);
        let forged = forged.set("Via", via(peer_of(0), &branch));
        w.bytes_from(0, mesh_flow(0, 1), &forged.bytes());
        let answer = w.sent.pop_front().expect("an answer");
        assert_eq!(answer.to.remote(), peer_of(0).remote());
        assert_eq!(answer.msg.status(), 403, "{uri}");
    }
    mesh.finish();
}
