//! Random runs of strangers, users, a trusted gateway, another router and their dialogs against one proxy with the
//! shipped rules. Whatever they send, no request leaves for another domain or for a rule's next hop
//! unless its sender has proved to be a user, is trusted, or is a party of a dialog this proxy has built,
//! and then to the peer; and no source holds more of the request budget than its share.
//!
//! `RIGHTS_SEED` is the first seed and `RIGHTS_SEEDS` how many are run.

use crate::common::msg::uri_of;
use crate::common::*;
use crate::elsewhere::in_mesh;
use crate::relay::{answered, digest};
use crate::routing::dial_plan;
use ringway_proxy::Reply;
use ringway_proxy::config::Network;
use ringway_proxy::core::{MAX_NEW_BUDGET, MAX_UNAUTHENTICATED_BUDGET};
use ringway_sansio::{Flow, FlowId, Random, SplitMix, Transport};
use std::collections::{BTreeMap, BTreeSet};

const STEPS: usize = 120;

const PEERS: [Peer; 7] = [PROXY, ALICE, BOB, BOB2, CAROL_TCP, TRUNK, ROUTER];
/// The trusted gateway, beside the rule's next hops.
const TRUNK: Peer = Peer { name: "trunk", addr: "192.0.2.55:5060", ..GATEWAY };

/// What the model knows of a dialog: its tags and where its parties are.
#[derive(Default)]
struct Known {
    targets: BTreeSet<String>,
}

struct Run {
    w: World,
    random: SplitMix,
    /// By the branch of a request: whether its sender had the right to send it anywhere.
    free: BTreeMap<String, bool>,
    /// The branches of requests that another router has sent.
    of_router: BTreeSet<String>,
    /// Dialogs that were built through the proxy, by Call-ID and the two tags in order.
    dialogs: BTreeMap<(String, String, String), Known>,
    /// Messages seen by anybody, to be used again.
    seen: Vec<Msg>,
    challenges: Vec<(Peer, Msg, Msg)>,
    /// Contacts of attempted registrations: users may be anywhere but at a gateway.
    contacts: BTreeSet<String>,
    /// The claimed targets of callers: Call-ID, tag and Contact. None may lead to a gateway.
    claims: BTreeSet<(String, String, String)>,
}

fn dialog_key(msg: &Msg) -> Option<(String, String, String)> {
    let (from, to) = (msg.tag("From")?.to_string(), msg.tag("To")?.to_string());
    let call_id = msg.get("Call-ID").to_string();
    Some(if from < to { (call_id, from, to) } else { (call_id, to, from) })
}

/// User, host and port of a URI.
fn bare(uri: &str) -> String {
    uri.split(';').next().unwrap_or_default().to_string()
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut w = World::build(1 + (seed % 3) as u8, &[], |config| {
            digest(config);
            in_mesh(config);
            dial_plan(config);
            config.trusted = vec![Network { addr: TRUNK.remote().ip(), prefix: 32 }];
        });
        w.lenient = true;
        w.register("alice", ALICE);
        w.bind("bob", bind(BOB.contact()).over(BOB));
        w.bind("bob", bind("sip:bob@10.0.0.9;transport=tcp").over(CAROL_TCP));
        w.bind("carol", bind("sip:0301234@192.0.2.1").over(BOB2));
        w.bind("carol", bind("sip:+4930@192.0.2.60").over(BOB2));
        w.elsewhere("carol", &[(ROUTER2, 1000)]);
        w.speaks(ROUTER, "bob", Some(true));
        let (free, dialogs, of_router) = Default::default();
        let random = SplitMix::new(seed);
        Run {
            w,
            random,
            free,
            of_router,
            dialogs,
            seen: Vec::new(),
            challenges: Vec::new(),
            contacts: BTreeSet::new(),
            claims: BTreeSet::new(),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn step(&mut self) {
        match self.below(10) {
            0..=2 => self.fresh(),
            3..=5 => self.reused(),
            6 if self.below(2) == 0 => self.questions(),
            6 => self.with_credentials(),
            7 => {
                let seconds = self.below(40) as u64;
                self.w.pass_secs(seconds);
            }
            _ => {}
        }
        self.judge();
    }

    fn send(&mut self, peer: Peer, request: Msg, free: bool) {
        let free = free || peer.addr == TRUNK.addr;
        if peer.addr == TRUNK.addr {
            // Where a trusted peer says it is, requests of its dialogs may follow.
            self.contacts.extend(request.uris("Contact").into_iter().map(|c| bare(&c)));
        }
        if request.method() == "REGISTER" {
            if peer.addr == TRUNK.addr {
                return;
            }
            let contacts = request.uris("Contact").into_iter().map(|c| bare(&c));
            self.contacts.extend(contacts.filter(|c| !c.contains("192.0.2.6")));
        }
        self.free.insert(request.branch(), free);
        if peer == ROUTER {
            self.of_router.insert(request.branch());
        }
        self.seen.push(request.clone());
        let worker = self.below(self.w.cores.len()) as u8;
        self.w.arrives(worker, peer, &request);
    }

    /// Returns a forged request.
    fn fresh(&mut self) {
        let peer = PEERS[self.below(PEERS.len())];
        let method = self.pick(&[
            "INVITE",
            "MESSAGE",
            "BYE",
            "ACK",
            "OPTIONS",
            "REGISTER",
            "SUBSCRIBE",
            "REFER",
            "FOO",
        ]);
        let uri = self.pick(&[
            "sip:bob@example.org",
            "sip:alice@example.org",
            "sip:carol@example.org",
            "sip:0301234@example.org",
            "tel:0301234",
            "sip:x@203.0.113.99",
            "sip:+49@192.0.2.60",
            "sip:0301234@192.0.2.1",
            "sip:example.org",
            "sip:x@y;maddr=192.0.2.60",
            "sip:bob@example.org;maddr=192.0.2.1",
        ]);
        let mut request = self.w.request(peer, &format!("{method} {uri}"));
        let from = self.pick(&[
            "<sip:eve@example.com>",
            "<sip:alice@example.org>",
            "<sip:bob@example.org>",
            "<tel:+1555>",
            "<urn:service:sos>",
            "<sip:anonymous@anonymous.invalid>",
        ]);
        let tag = self.below(1000);
        request = request.set("From", format!("{from};tag=f{tag}"));
        if self.below(4) == 0 {
            request = request.set("To", format!("<{uri}>;tag=t{tag}"));
        }
        if self.below(6) == 0 {
            let route =
                self.pick(&["<sip:192.0.2.60;lr>", "<sip:192.0.2.1;lr>", "<sip:203.0.113.99;lr>"]);
            request = request.add("Route", route);
        }
        if self.below(200) == 0 {
            request = request.padded(50_000);
        }
        self.send(peer, request, false);
    }

    /// Returns a request made of parts of several: the Route of one, the tags of a second, the target of a third.
    fn reused(&mut self) {
        if self.seen.is_empty() {
            return;
        }
        let n = self.seen.len();
        let (a, b) = (self.below(n), self.below(n));
        let (a, b) = (self.seen[a].clone(), self.seen[b].clone());
        let peer = PEERS[self.below(PEERS.len())];
        let method = self.pick(&[
            "INVITE", "BYE", "ACK", "INFO", "UPDATE", "MESSAGE", "REGISTER", "PUBLISH", "NOTIFY",
        ]);
        let dialog = if self.below(3) == 0 { &b } else { &a };
        let swapped = self.below(2) == 0;
        let (from, to) = if swapped { ("To", "From") } else { ("From", "To") };
        let mut uri = a.all("Contact").first().map_or("sip:x@y".into(), |c| uri_of(c).to_string());
        match self.below(4) {
            0 => {
                uri = self
                    .pick(&["sip:1900@192.0.2.60", "sip:x@203.0.113.99", "sip:0301234@example.org"])
                    .into()
            }
            1 => uri = b.all("Contact").first().map_or(uri, |c| uri_of(c).to_string()),
            _ => {}
        }
        let branch = self.w.branch();
        let mut msg =
            Msg { start: format!("{method} {uri} SIP/2.0"), headers: vec![], body: String::new() }
                .add("Via", via(peer, &branch))
                .add("From", dialog.get(from))
                .add("To", dialog.get(to))
                .add("Call-ID", dialog.get("Call-ID"))
                .add("CSeq", format!("{} {method}", 2 + self.below(1000)))
                .add("Max-Forwards", "70");
        let contact = self.pick(&["own", "sip:1900@192.0.2.60", "sip:x@203.0.113.99"]).to_string();
        let contact = if contact == "own" { peer.contact() } else { contact };
        msg = msg.add("Contact", format!("<{contact}>"));
        let mut routes = a.all("Record-Route");
        if self.below(2) == 0 {
            routes.reverse();
        }
        if self.below(6) == 0 {
            routes.extend(b.all("Record-Route"));
        }
        for route in routes {
            msg = msg.add("Route", route);
        }
        self.send(peer, msg, false);
    }

    /// Alice, who knows her password, answers a challenge.
    fn with_credentials(&mut self) {
        let Some((peer, request, challenge)) = self.challenges.pop() else { return };
        let branch = self.w.branch();
        let own = request.get("From").contains("sip:alice@")
            || request.get("From").contains("anonymous.invalid");
        let answer = answered(&request, &challenge, "alice", &branch);
        self.send(peer, answer, own && challenge.status() == 407);
    }

    /// The world answers what it was asked, and knows something else now.
    fn questions(&mut self) {
        for asked in std::mem::take(&mut self.w.asks) {
            let reply = [Reply::Located, Reply::Unavailable][self.below(2)];
            self.w.reply(&asked, reply);
        }
        let user = self.pick(&["alice", "bob", "carol", "0301234"]);
        match self.below(4) {
            0 => self.w.unknown(user),
            1 => self.w.elsewhere(user, &[(ROUTER2, 500)]),
            2 => self.w.registered_nowhere(user, true),
            _ => {
                let may = [Some(true), Some(false), None][self.below(3)];
                self.w.speaks(ROUTER, user, may);
            }
        }
    }

    /// Looks at what the proxy has sent, and lets phones answer some of it.
    fn judge(&mut self) {
        for _ in 0..200 {
            let Some(sent) = self.w.sent.pop_front() else { break };
            let msg = sent.msg.clone();
            if msg.start.is_empty() || !msg.has("Call-ID") || !msg.has("Via") {
                continue;
            }
            self.seen.push(msg.clone());
            if msg.is_request() {
                self.judge_request(&sent, &msg);
                self.note_claim(&msg);
                self.maybe_answer(&sent, &msg);
            } else {
                self.note_answer(&sent, &msg);
            }
        }
        let kept: usize = self.w.cores.iter().map(|core| core.tables().kept_octets).sum();
        let cores = self.w.cores.len();
        assert!(kept <= (MAX_UNAUTHENTICATED_BUDGET + MAX_NEW_BUDGET) * cores);
    }

    fn judge_request(&mut self, sent: &Sent, msg: &Msg) {
        // A CANCEL or an ACK of the proxy's own follows the INVITE.
        let Some(origin) = msg.all("Via").get(1).cloned() else { return };
        let branch = origin.split("branch=").nth(1).unwrap_or_default().split(';').next().unwrap();
        let to = sent.to.remote();
        // Telephones that are registered; the last is behind a lost connection.
        let ours = PEERS.iter().any(|p| p.remote() == to) || to.ip().to_string() == "10.0.0.9";
        if ours || self.free.get(branch).copied().unwrap_or(false) {
            return;
        }
        let known = dialog_key(msg).and_then(|key| self.dialogs.get(&key));
        let in_dialog = known.is_some_and(|dialog| dialog.targets.contains(&bare(msg.uri())));
        // The callee has seen the caller's Contact in the request, before anybody has answered.
        let to_tag = msg.tag("To").unwrap_or_default().to_string();
        let claim = (msg.get("Call-ID").to_string(), to_tag, bare(msg.uri()));
        let elsewhere = to == ROUTER2.remote() && !self.of_router.contains(branch);
        let registered =
            elsewhere || self.contacts.contains(&bare(msg.uri())) || self.claims.contains(&claim);
        assert!(in_dialog || registered, "left for {to} without a right:\n{msg}");
    }

    fn note_claim(&mut self, msg: &Msg) {
        let Some(contact) = msg.uris("Contact").first().map(|c| bare(c)) else { return };
        if !contact.contains("192.0.2.6") {
            let tag = msg.tag("From").unwrap_or_default().to_string();
            self.claims.insert((msg.get("Call-ID").to_string(), tag, contact));
        }
    }

    fn maybe_answer(&mut self, sent: &Sent, msg: &Msg) {
        if matches!(msg.method(), "ACK") || self.below(3) == 0 {
            return;
        }
        let me = Peer { serial: 0, ..BOB };
        let status = [180, 200, 200, 486, 404][self.below(5)];
        let ok = response(me, msg, status);
        let uri = self.pick(&["own", "other"]);
        let contact =
            if uri == "own" { bare(msg.uri()) } else { format!("sip:bob@{}", sent.to.remote()) };
        let ok = if ok.has("Contact") { ok.set("Contact", format!("<{contact}>")) } else { ok };
        if (101..300).contains(&status)
            && let Some(key) = dialog_key(&ok)
        {
            let known = self.dialogs.entry(key).or_default();
            known.targets.insert(bare(&contact));
            if let Some(caller) = msg.all("Contact").first() {
                known.targets.insert(bare(uri_of(caller)));
            }
        }
        let flow = match &sent.to {
            ringway_sansio::Target::Flow(flow) => *flow,
            ringway_sansio::Target::Peer { transport: Transport::Udp, remote, .. } => {
                let id = FlowId::new(sent.worker, 0);
                Flow {
                    id,
                    transport: Transport::Udp,
                    local: local(Transport::Udp, *remote),
                    remote: *remote,
                }
            }
            ringway_sansio::Target::Peer { .. } => return,
        };
        self.w.bytes_from(sent.worker, flow, &ok.bytes());
    }

    fn note_answer(&mut self, sent: &Sent, msg: &Msg) {
        if !matches!(msg.status(), 401 | 407) {
            return;
        }
        let Some(peer) = PEERS.iter().find(|p| p.remote() == sent.to.remote()) else { return };
        let branch = msg.branch();
        if let Some(request) =
            self.seen.iter().rev().find(|m| m.is_request() && m.branch() == branch)
        {
            self.challenges.push((*peer, request.clone(), msg.clone()));
        }
    }
}

/// The invariants hold whatever is sent.
#[test]
fn nothing_leaves_without_a_right() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(default)
    };
    let (first, count) = (number("RIGHTS_SEED", 0), number("RIGHTS_SEEDS", 150));
    for seed in first..first + count {
        let outcome = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            for _ in 0..STEPS {
                run.step();
            }
        });
        if let Err(panic) = outcome {
            eprintln!("seed {seed}: RIGHTS_SEED={seed} RIGHTS_SEEDS=1");
            std::panic::resume_unwind(panic);
        }
    }
}
