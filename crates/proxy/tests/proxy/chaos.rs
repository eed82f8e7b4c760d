//! Whatever comes in, in whatever order: the proxy does not panic, forgets everything in the end,
//! answers every INVITE it took on finally and in one way, and sends nothing to strangers.

use crate::common::*;
use proptest::prelude::*;
use ringway_proxy::routes::{DomainMatch, NextHop, Rewrite, Rule, UserMatch};
use ringway_sansio::Transport::{Tcp, Udp};
use ringway_sansio::{Random, SplitMix};
use std::collections::BTreeMap;

const CALLERS: [Peer; 4] = [ALICE, CAROL_TCP, ERIN_WS, PROXY];
const CALLEES: [Peer; 6] = [BOB, BOB2, BOB3, DAVE_TCP, GATEWAY, GATEWAY2];
const USERS: [&str; 8] = ["bob", "forked", "serial", "dave", "named", "twice", "0301", "nobody"];
const METHODS: [&str; 6] = ["INVITE", "INVITE", "INVITE", "MESSAGE", "SUBSCRIBE", "OPTIONS"];

/// The responses to one request that callers have received, by its branch.
#[derive(Default)]
struct Told {
    invite: bool,
    taken: bool,
    finals: Vec<u16>,
}

struct Chaos {
    w: World,
    random: SplitMix,
    workers: u8,
    /// Requests sent by callers.
    requests: Vec<(Peer, Msg)>,
    /// The worker each of them came to.
    came_to: Vec<u8>,
    /// Requests that reached callees.
    inbox: Vec<(Peer, Msg)>,
    /// Final responses to INVITE that reached callers.
    answers: Vec<(Peer, Msg)>,
    told: BTreeMap<(String, String), Told>,
    /// Whose connections have gone.
    gone: Vec<Peer>,
    /// Whether messages are broken on purpose.
    broken: bool,
}

impl Chaos {
    fn new(seed: u64, broken: bool) -> Chaos {
        let mut random = SplitMix::new(seed);
        let workers = 1 + (random.next_u64() % 3) as u8;
        let mut w = World::build(workers, &[], |config| {
            let hop = |uri: &str, priority| NextHop { uri: uri.into(), priority, weight: 1 };
            config.routes.rules = vec![Rule {
                domain: DomainMatch::Own,
                user: UserMatch::Prefix("0".into()),
                rewrite: Rewrite { strip: 1, prepend: "+49".into(), domain: None },
                next_hops: vec![hop("sip:192.0.2.60", 1), hop("sip:192.0.2.61", 2)],
                reject: None,
                open: false,
                shared: None,
            }];
            config.limits.max_forks = 3;
        });
        w.lenient = broken;
        w.register("bob", BOB);
        for (peer, q) in [(BOB, 500), (BOB2, 500), (BOB3, 500)] {
            w.bind("forked", bind(peer.contact()).q(q));
        }
        for (peer, q) in [(BOB, 900), (BOB2, 500), (BOB3, 500)] {
            w.bind("serial", bind(peer.contact()).q(q));
        }
        w.bind("dave", bind("sip:dave@203.0.113.31:40002;transport=tcp").over(DAVE_TCP));
        w.bind("named", bind("sip:named@pbx.example.net"));
        w.bind("named", bind(BOB2.contact()));
        w.bind("twice", bind(DAVE_TCP.contact()).over(DAVE_TCP).outbound("urn:uuid:1", 1));
        w.bind("twice", bind(BOB.contact()).over(BOB).outbound("urn:uuid:1", 2));
        w.name("gw.example.net", &[(Udp, BOB.addr), (Tcp, BOB2.addr)]);
        Chaos {
            w,
            random,
            workers,
            requests: vec![],
            came_to: vec![],
            inbox: vec![],
            answers: vec![],
            told: BTreeMap::new(),
            gone: vec![],
            broken,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.random.next_u64() % n.max(1) as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Sends a message to some worker, broken if that is what this run is about.
    fn send(&mut self, peer: Peer, msg: &Msg) -> u8 {
        let worker = match peer.transport {
            // A connection belongs to one worker; for datagrams the kernel chooses.
            Udp if self.one_in(4) => self.below(self.workers as usize) as u8,
            _ => 0,
        };
        let mut bytes = msg.bytes();
        if self.broken && self.one_in(3) {
            for _ in 0..=self.below(4) {
                let at = self.below(bytes.len());
                match self.below(4) {
                    0 => bytes[at] ^= 1 << self.below(8),
                    1 => bytes.truncate(at + 1),
                    2 => drop(bytes.remove(at)),
                    _ => {
                        let end = (at + self.below(40)).min(bytes.len());
                        let piece = bytes[at..end].to_vec();
                        let to = self.below(bytes.len());
                        bytes.splice(to..to, piece);
                    }
                }
                if bytes.is_empty() {
                    return worker;
                }
            }
        }
        self.w.bytes_from(worker, peer.flow(worker), &bytes);
        worker
    }

    fn step(&mut self) {
        match self.below(16) {
            0..=2 => self.begin(),
            3..=7 => self.respond(),
            8 => self.repeat(),
            9 => self.cancel(),
            10 => self.acknowledge(),
            11 => self.resolve(),
            12 => self.fail(),
            13 if !self.requests.is_empty() && self.broken => {
                // A response that a caller makes up.
                let (peer, msg) = self.pick(&self.requests.clone());
                let status = self.status();
                self.send(peer, &response(peer, &msg, status));
            }
            _ => {
                let ms = match self.below(4) {
                    0 => 0,
                    1 => self.below(1000),
                    2 => self.below(40_000),
                    _ => self.below(5000),
                };
                self.w.pass_ms(ms as u64);
            }
        }
        self.collect();
    }

    fn begin(&mut self) {
        let (caller, user, method) = (self.pick(&CALLERS), self.pick(&USERS), self.pick(&METHODS));
        let mut msg = self.w.request(caller, &format!("{method} sip:{user}@{DOMAIN}"));
        if self.one_in(8) {
            msg = msg.padded(1500);
        }
        if self.one_in(8) {
            msg = msg.top("Route", "<sip:example.org;lr>");
        }
        if self.one_in(12) {
            msg = msg.set("Max-Forwards", self.below(2));
        }
        if self.one_in(12) {
            msg = msg.add("Max-Breadth", self.below(4));
        }
        if self.one_in(12) {
            let old = msg.get("Via").split(';').next().unwrap().to_string();
            msg = msg.set("Via", old);
        }
        if self.one_in(12) {
            msg = msg.add("Route", "<sip:192.0.2.50;lr>, <sip:192.0.2.60>");
        }
        let key = (msg.branch(), msg.get("Call-ID").to_string());
        self.told.insert(key, Told { invite: method == "INVITE", ..Told::default() });
        let worker = self.send(caller, &msg);
        self.requests.push((caller, msg));
        self.came_to.push(worker);
    }

    fn status(&mut self) -> u16 {
        self.pick(&[
            100, 180, 183, 200, 200, 202, 302, 401, 407, 404, 408, 430, 486, 487, 500, 503, 603,
        ])
    }

    fn respond(&mut self) {
        if self.inbox.is_empty() {
            return;
        }
        // Mostly to what came last, now and then to what is long over.
        let recent = self.inbox.len().saturating_sub(6);
        let at = if self.one_in(4) { 0 } else { recent };
        let at = at + self.below(self.inbox.len() - at);
        let (peer, request) = self.inbox[at].clone();
        let status = self.status();
        let mut msg = response(peer, &request, status);
        if matches!(status, 401 | 407) {
            msg = msg.add("WWW-Authenticate", format!("Digest realm=\"{}\"", peer.name));
        }
        match self.below(20) {
            0 => msg = msg.set("CSeq", "1 INVITE"),
            1 => {
                let vias = msg.all("Via");
                msg = msg.set("Via", vias[0].replace("z9hG4bKA", "z9hG4bKB"));
                for via in &vias[1..] {
                    msg = msg.add("Via", via);
                }
            }
            2 => {
                let first = msg.all("Via")[0].clone();
                msg = msg.set("Via", first);
            }
            _ => {}
        }
        self.send(peer, &msg);
        if self.one_in(4) {
            self.collect();
            self.send(peer, &msg);
        }
    }

    fn repeat(&mut self) {
        if !self.requests.is_empty() {
            let at = self.below(self.requests.len());
            let ((peer, msg), worker) = (self.requests[at].clone(), self.came_to[at]);
            // Only over UDP, and by nobody who has been answered (section 17.1).
            let key = (msg.branch(), msg.get("Call-ID").to_string());
            if peer.transport != Udp || !self.told[&key].finals.is_empty() {
                return;
            }
            // A copy comes from where the first came from, so to the same worker.
            self.w.bytes_from(worker, peer.flow(worker), &msg.bytes());
        }
    }

    fn cancel(&mut self) {
        let invites: Vec<_> =
            self.requests.iter().filter(|(_, m)| m.method() == "INVITE").cloned().collect();
        if !invites.is_empty() {
            let at = invites.len() - 1 - self.below(invites.len().min(4));
            let (peer, msg) = invites[at].clone();
            self.send(peer, &cancel(&msg));
        }
    }

    fn acknowledge(&mut self) {
        if self.answers.is_empty() {
            return;
        }
        let (peer, answer) = self.pick(&self.answers.clone());
        let call_id = answer.get("Call-ID").to_string();
        let Some((_, invite)) =
            self.requests.iter().find(|(_, m)| m.get("Call-ID") == call_id).cloned()
        else {
            return;
        };
        if answer.status() >= 300 {
            self.send(peer, &ack(&invite, &answer));
            return;
        }
        if answer.has("Contact") {
            let mut dialog = Dialog::of_caller(peer, &invite, &answer);
            let branch = self.w.branch();
            self.send(peer, &dialog.request("ACK", &branch));
            if self.one_in(2) {
                let branch = self.w.branch();
                self.send(peer, &dialog.request("BYE", &branch));
            }
        }
    }

    fn resolve(&mut self) {
        if self.w.questions.is_empty() {
            return;
        }
        let question = {
            let at = self.below(self.w.questions.len());
            self.w.questions.remove(at)
        };
        let hops: &[(_, &str)] = match self.below(4) {
            0 => &[],
            1 => &[(Udp, BOB3.addr)],
            2 => &[(Udp, GATEWAY.addr), (Udp, BOB3.addr)],
            _ => &[(Tcp, BOB3.addr), (Udp, BOB3.addr)],
        };
        self.w.resolved(question, hops);
    }

    fn fail(&mut self) {
        match self.below(4) {
            0 => {
                let number = self.random.next_u64();
                self.w.not_sent(0, number);
            }
            1 => self.w.mend(),
            2 => {
                let (peer, transport) = (self.pick(&CALLEES), self.pick(&[Tcp, Udp]));
                self.w.break_way(transport, peer.addr);
            }
            _ => {
                let peer = self.pick(&[DAVE_TCP, CAROL_TCP, ERIN_WS]);
                self.w.break_flow(peer);
                self.gone.push(peer);
            }
        }
    }

    /// Takes in what was sent and holds it to the laws.
    fn collect(&mut self) {
        while let Some(sent) = self.w.sent.pop_front() {
            let (to, transport) = (sent.to.remote(), sent.to.transport());
            let known = CALLERS.iter().chain(&CALLEES).find(|p| p.remote() == to);
            let Some(peer) = known else {
                // A broken request may name anybody.
                assert!(self.broken, "sent to a stranger: {sent:?}\n{}", self.w.ladder());
                continue;
            };
            let peer = Peer { transport, ..*peer };
            let msg = sent.msg;
            if !is_whole(&msg) {
                assert!(self.broken, "half a message: {msg}");
                continue;
            }
            if msg.is_request() {
                if !matches!(msg.method(), "ACK" | "CANCEL") {
                    self.inbox.push((peer, msg));
                }
                continue;
            }
            if msg.method() == "CANCEL" {
                continue;
            }
            self.hold(peer, msg);
        }
    }

    fn hold(&mut self, peer: Peer, msg: Msg) {
        let key = (msg.branch(), msg.get("Call-ID").to_string());
        let ladder = self.w.ladder();
        let Some(told) = self.told.get_mut(&key).filter(|_| msg.method() != "BYE") else { return };
        let status = msg.status();
        match status {
            100 => told.taken = true,
            101..200 => {
                assert!(told.invite || self.broken, "{status} to a non-INVITE\n{ladder}");
                told.taken = true;
            }
            _ => {
                told.taken = true;
                if !told.finals.contains(&status) {
                    told.finals.push(status);
                }
                // Section 16.7: one non-2xx, or any number of 2xx. A 2xx that comes when a refusal
                // has gone back already is forwarded all the same; never the other way round.
                let refusals = told.finals.iter().filter(|&&s| s >= 300).count();
                let first = told.finals[0];
                let fits = refusals == 0 || refusals == 1 && (first >= 300);
                assert!(fits || self.broken, "{:?} to {key:?}\n{ladder}", told.finals);
                assert!(
                    told.invite || told.finals.len() == 1 || self.broken,
                    "two answers to a non-INVITE\n{ladder}"
                );
                if told.invite {
                    self.answers.push((peer, msg));
                }
            }
        }
    }

    fn end(mut self) {
        while !self.w.questions.is_empty() {
            self.resolve();
            self.collect();
        }
        // Timer C, its CANCEL, and everything after it.
        for _ in 0..4 {
            self.w.pass_secs(100);
            while !self.w.questions.is_empty() {
                self.resolve();
            }
            self.collect();
        }
        if !self.broken {
            for (key, told) in &self.told {
                if key.1.ends_with(ERIN_WS.name) && self.gone.contains(&ERIN_WS) {
                    // A WebSocket that has gone cannot be answered on.
                    continue;
                }
                assert!(
                    !(told.invite && told.taken && told.finals.is_empty()),
                    "{key:?} was never answered\n{}",
                    self.w.ladder()
                );
            }
        }
        self.w.finish_anyhow();
    }
}

/// Whether a message has what user agents rely on.
fn is_whole(msg: &Msg) -> bool {
    ["Via", "From", "To", "Call-ID", "CSeq"].iter().all(|name| msg.has(name))
        && msg.get("CSeq").split(' ').count() == 2
        && msg.start.split(' ').count() >= 3
        && (!msg.is_request() || msg.method() != "INVITE" || msg.has("Contact"))
}

fn run(seed: u64, steps: usize, broken: bool) {
    let mut chaos = Chaos::new(seed, broken);
    for _ in 0..steps {
        chaos.step();
    }
    chaos.end();
}

/// A run is long, so few by default; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    let asked = ProptestConfig::default().cases;
    if asked == 256 { 48 } else { asked }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Requests, responses, CANCELs, time-outs, lost connections and late names in any order (RFC 3261
    /// sections 9, 16 and 17).
    #[test]
    fn any_order(seed: u64, steps in 1usize..150) {
        run(seed, steps, false);
    }

    /// The same with messages that are corrupted in transit.
    #[test]
    fn any_order_and_broken_messages(seed: u64, steps in 1usize..150) {
        run(seed, steps, true);
    }
}
