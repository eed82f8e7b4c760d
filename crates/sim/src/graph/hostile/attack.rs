//! What hostile routers do with what passes them, and what they send of their own.

use super::forge;
use super::keys::LinkKeys;
use crate::graph::node::Destination;
use ringway_mesh::config::HOP_LIMIT;
use ringway_mesh::wire::hello::MAX_REPORTS;
use ringway_mesh::wire::{
    Body, Control, DataView, HelloView, Hints, Item, Items, Kind, Labels, Message, Routed, SEAL,
    Slot,
};
use ringway_mesh::{Identity, NodeId};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix, Time};
use std::collections::{BTreeMap, VecDeque};

/// Time between what an attacker does of its own accord.
const TICK: Duration = Duration::from_millis(100);
/// Packets of each kind that a flood has for each neighbour in a tick.
const FLOOD: usize = 4;
/// Packets that are remembered, to be sent again.
const MAX_RECORDED: usize = 256;
/// Of them, those that are sent again in a tick.
const REPLAYED: usize = 8;
/// Packets that wait.
const MAX_QUEUE: usize = 4_096;
/// A time that does not come.
const NEVER: Time = Time::from_nanos(u64::MAX);
/// Octets of sealed contents above which a data packet is one of a host.
const KEEP_ALIVE: usize = 17;

/// What a hostile router does. Each is done by an otherwise real router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Drops data that it should forward.
    BlackHole,
    /// Drops data and control messages that it should forward.
    Silence,
    /// Drops half of the data and control messages that it should forward, at random.
    GreyHole,
    /// Drops packets of hosts that it should forward, but no keep-alive.
    Selective,
    /// States that whatever passes has cost nothing, and so do its hints.
    CheapRoutes,
    /// The same, and drops data.
    Sinkhole,
    /// States that the way of a session takes only small packets.
    SmallMtu,
    /// Offers routers that do not exist, by routes that lead anywhere.
    FalseHints,
    /// Changes labels, positions, distances and hop limits of what passes, and sends half of it elsewhere.
    Mangler,
    /// Returns what passes on its way over the ring, as if its route had failed.
    Returner,
    /// Answers requests of others first, in the name of their target and in its own.
    Impostor,
    /// Answers each LOOKUP that nobody has the prefix, and drops it.
    Denier,
    /// Sends CONTROL, data, HELLO and handshake packets again that it has received or sent.
    Replay,
    /// Sends CONNECTs of others again as if their senders were where it is, and drops what is for them.
    Hijack,
    /// Sends CONNECTs, LOOKUPs, HELLOs and INITs of and to routers that do not exist.
    Flood,
    /// Reports routes as broken, to their users and along their marks, and guesses others.
    Breaker,
    /// Sends HELLOs in the name of its neighbours, with later numbers and stamps, which state that they hear nobody.
    FalseHello,
    /// States that it can lead packets round any link, whether or not it was asked, by slots that lead elsewhere; drops
    /// reports of what became of them; asks for detours and reports routes as longer without end.
    FalseDetour,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Attack; 18] = [
        Attack::BlackHole,
        Attack::Silence,
        Attack::GreyHole,
        Attack::Selective,
        Attack::CheapRoutes,
        Attack::Sinkhole,
        Attack::SmallMtu,
        Attack::FalseHints,
        Attack::Mangler,
        Attack::Returner,
        Attack::Impostor,
        Attack::Denier,
        Attack::Replay,
        Attack::Hijack,
        Attack::Flood,
        Attack::Breaker,
        Attack::FalseHello,
        Attack::FalseDetour,
    ];

    /// Returns the name by which it is chosen.
    pub fn name(self) -> &'static str {
        match self {
            Attack::BlackHole => "black-hole",
            Attack::Silence => "silence",
            Attack::GreyHole => "grey-hole",
            Attack::Selective => "selective",
            Attack::CheapRoutes => "cheap-routes",
            Attack::Sinkhole => "sinkhole",
            Attack::SmallMtu => "small-mtu",
            Attack::FalseHints => "false-hints",
            Attack::Mangler => "mangler",
            Attack::Returner => "returner",
            Attack::Impostor => "impostor",
            Attack::Denier => "denier",
            Attack::Replay => "replay",
            Attack::Hijack => "hijack",
            Attack::Flood => "flood",
            Attack::Breaker => "breaker",
            Attack::FalseHello => "false-hello",
            Attack::FalseDetour => "false-detour",
        }
    }

    /// Returns the attack with a name.
    pub fn named(name: &str) -> Option<Attack> {
        Attack::ALL.into_iter().find(|attack| attack.name() == name)
    }
}

/// A packet that was made up.
enum Forged {
    /// Items for a neighbour, to be sealed.
    Items(u16, Vec<u8>),
    /// A data packet for a neighbour, without its link's numbers.
    Data(u16, Vec<u8>),
    /// A packet as it is.
    Raw(Destination, Vec<u8>),
}

/// What becomes of an item.
enum Fate {
    Keep,
    Drop,
    Replace(Vec<u8>),
}

/// The attacker at a hostile router.
pub(super) struct Attacker {
    attack: Attack,
    identity: Identity,
    from: Time,
    until: Time,
    due: Time,
    keys: LinkKeys,
    random: SplitMix,
    queue: VecDeque<Forged>,
    recorded: VecDeque<(Destination, Vec<u8>)>,
    /// The newest stamp and number of each neighbour's HELLOs, and when it came.
    heard: BTreeMap<NodeId, (u32, u16, Time)>,
    deeds: u64,
}

impl Attacker {
    pub(super) fn new(attack: Attack, identity: Identity, from: Time, random: SplitMix) -> Self {
        Attacker {
            attack,
            keys: LinkKeys::new(identity.clone()),
            identity,
            from,
            until: NEVER,
            due: from,
            random,
            queue: VecDeque::new(),
            recorded: VecDeque::new(),
            heard: BTreeMap::new(),
            deeds: 0,
        }
    }

    pub(super) fn deeds(&self) -> u64 {
        self.deeds
    }

    pub(super) fn due(&self) -> Time {
        self.due
    }

    pub(super) fn set_until(&mut self, until: Time) {
        self.until = until;
    }

    fn is_active(&self, now: Time) -> bool {
        (self.from..self.until).contains(&now)
    }

    fn own(&self) -> NodeId {
        self.identity.id()
    }

    /// Reads a packet before the router does.
    pub(super) fn receive(&mut self, now: Time, from: u16, bytes: &[u8]) {
        self.keys.note(from, false, bytes);
        if !self.is_active(now) {
            return;
        }
        match Kind::of(bytes) {
            Ok(Kind::Control) => {
                for item in opened(bytes).map_while(Result::ok) {
                    match item {
                        Item::Routed(body) => self.read(from, body),
                        Item::DetourRequest { to } if self.attack == Attack::FalseDetour => {
                            let slot = Slot(self.random.next_u64() as u16 & 7);
                            let reply = written(&Item::DetourReply { to, slot });
                            self.forge(Forged::Items(from, reply));
                        }
                        _ => {}
                    }
                }
            }
            Ok(Kind::Data) if self.attack == Attack::Breaker => {
                let mut copy = bytes.to_vec();
                if let Ok(data) = DataView::parse(&mut copy)
                    && let Ok(labels) = data.labels()
                {
                    let at = data.position();
                    let report = forge::report(data.reverse(), at, data.quote(), &labels);
                    self.forge(Forged::Items(from, report));
                }
            }
            Ok(Kind::Hello) if self.attack == Attack::FalseHello => {
                if let Ok(hello) = HelloView::parse(bytes).map(|view| view.value()) {
                    self.heard.insert(hello.id, (hello.stamp, hello.sequence, now));
                }
            }
            _ => {}
        }
        if self.attack == Attack::Replay {
            self.record(Destination::Neighbour(from), bytes);
        }
    }

    /// Reads a message that has come.
    fn read(&mut self, from: u16, body: &[u8]) {
        let Ok(message) = Routed::parse(body) else { return };
        if message.origin == self.own() || message.target == self.own() {
            return;
        }
        let item = match (self.attack, message.message) {
            (Attack::Denier, Message::LookUp) => forge::denial(&self.identity, &message),
            (Attack::Impostor, Message::Connect) => forge::false_ack(&self.identity, &message),
            (Attack::Impostor, Message::LookUp) => {
                forge::false_session(&self.identity, &message, &mut self.random)
            }
            (Attack::Returner, _) if message.flags.greedy && !message.flags.reverse => {
                let mut message = message;
                message.turn_back();
                Some(forge::written(&message))
            }
            (Attack::Breaker, Message::Connect | Message::LookUp) => {
                let (reverse, quoted) = (message.flags.reverse, message.id.0);
                Some(forge::report(reverse, message.at, quoted, &message.labels))
            }
            (Attack::Breaker, Message::ConnectAck | Message::LookUpAck) => {
                Some(broken(message.id.mark()))
            }
            (Attack::FalseDetour, Message::ConnectAck | Message::LookUpAck) => {
                Some(written(&Item::Detoured { mark: message.id.mark() }))
            }
            (Attack::Hijack, Message::Connect) => {
                self.record(Destination::Neighbour(from), body);
                None
            }
            _ => None,
        };
        if let Some(item) = item {
            self.forge(Forged::Items(from, item));
        }
    }

    /// Changes a packet that the router sends. Returns whether it leaves.
    pub(super) fn send(&mut self, now: Time, to: Destination, bytes: &mut Vec<u8>) -> bool {
        let Destination::Neighbour(peer) = to else { return true };
        match Kind::of(bytes) {
            Ok(Kind::Control) => self.send_control(now, peer, bytes),
            Ok(Kind::Data) => {
                let is_own = bytes.get(2) == Some(&HOP_LIMIT);
                if self.is_active(now) && !is_own && self.drops_data(bytes) {
                    self.deeds += 1;
                    return false;
                }
                if self.is_active(now) && !is_own && self.attack == Attack::Replay {
                    self.record(to, bytes);
                }
                self.keys.complete(peer, bytes);
                true
            }
            _ => {
                self.keys.note(peer, true, bytes);
                true
            }
        }
    }

    fn drops_data(&mut self, bytes: &mut [u8]) -> bool {
        match self.attack {
            Attack::BlackHole | Attack::Silence | Attack::Sinkhole | Attack::Hijack => true,
            Attack::GreyHole => self.random.next_u64() & 1 == 0,
            Attack::Selective => DataView::parse(bytes)
                .is_ok_and(|mut data| data.sealed().1.len() > KEEP_ALIVE + SEAL),
            _ => false,
        }
    }

    fn send_control(&mut self, now: Time, peer: u16, bytes: &mut Vec<u8>) -> bool {
        let Ok(Control { receiver, .. }) = Control::parse(bytes) else { return true };
        let mut items = Vec::new();
        let mut is_dropped = false;
        for item in opened(bytes).map_while(Result::ok) {
            let fate = if !self.is_active(now) { Fate::Keep } else { self.judge(peer, &item) };
            match fate {
                Fate::Keep => forge::put(&item, &mut items),
                Fate::Drop => is_dropped = true,
                Fate::Replace(other) => items.extend(other),
            }
        }
        if is_dropped && items.is_empty() {
            return false;
        }
        // A link that is not known is left alone.
        let mut out = Vec::new();
        if self.keys.seal(peer, Some(receiver), &items, &mut out) {
            *bytes = out;
        }
        true
    }

    /// Decides about an item that the router sends.
    fn judge(&mut self, peer: u16, item: &Item<'_>) -> Fate {
        let body = match item {
            Item::Routed(body) => *body,
            Item::Error(_) | Item::Broken { .. } => {
                let drops =
                    matches!(self.attack, Attack::Silence | Attack::Hijack | Attack::FalseDetour);
                self.deeds += u64::from(drops);
                return if drops { Fate::Drop } else { Fate::Keep };
            }
            Item::DetourReply { .. } if self.attack == Attack::FalseDetour => return Fate::Drop,
            _ => return Fate::Keep,
        };
        let Ok(message) = Routed::parse(body) else { return Fate::Keep };
        let is_own = message.origin == self.own();
        let fate = match self.attack {
            Attack::Silence if !is_own => Fate::Drop,
            Attack::GreyHole if !is_own && self.random.next_u64() & 1 == 0 => Fate::Drop,
            Attack::Denier | Attack::Hijack if !is_own && message.message == Message::LookUp => {
                Fate::Drop
            }
            Attack::CheapRoutes | Attack::Sinkhole => self.cheapen(message, is_own),
            Attack::Returner if !is_own && message.flags.greedy && !message.flags.reverse => {
                Fate::Drop
            }
            Attack::SmallMtu if !is_own => {
                let mut message = message;
                message.path_mtu = 68;
                rewritten(&message)
            }
            Attack::FalseHints if is_own => self.lie(message),
            Attack::Mangler if !is_own => self.mangle(peer, message),
            Attack::Breaker if !is_own => {
                if matches!(message.message, Message::ConnectAck | Message::LookUpAck) {
                    self.forge(Forged::Items(peer, broken(message.id.mark())));
                }
                Fate::Keep
            }
            _ => Fate::Keep,
        };
        self.deeds += u64::from(!matches!(fate, Fate::Keep));
        fate
    }

    /// Takes what a message has cost off it, and what hints of this router cost.
    fn cheapen(&mut self, mut message: Routed<'_>, is_own: bool) -> Fate {
        message.path_cost = 0;
        let parsed = Body::parse(message.message, message.body);
        if let (true, Ok((Body::Connect(mut connect), ..))) = (is_own, parsed) {
            connect.hints.iter_mut().for_each(|hint| hint.cost = 0);
            let item = forge::message(&self.identity, message, &Body::Connect(connect));
            return Fate::Replace(item);
        }
        rewritten(&message)
    }

    /// Replaces the hints of a CONNECT of this router.
    fn lie(&mut self, message: Routed<'_>) -> Fate {
        let parsed = Body::parse(message.message, message.body);
        let Ok((Body::Connect(mut connect), ..)) = parsed else { return Fate::Keep };
        connect.hints = forge::false_hints(message.target, 16, &mut self.random);
        connect.settled = true;
        Fate::Replace(forge::message(&self.identity, message, &Body::Connect(connect)))
    }

    fn mangle(&mut self, peer: u16, mut message: Routed<'_>) -> Fate {
        let bits = self.random.next_u64();
        if bits & 1 != 0 {
            let mut labels = Labels::default();
            for label in 0..bits >> 8 & 15 {
                // Short enough for any route.
                let _ = labels.push(Slot((bits >> (label + 12)) as u16 & 7), Slot(0));
            }
            (message.labels, message.at) = (labels, 0);
        }
        if bits & 2 != 0 {
            message.best = u64::MAX;
        }
        if bits & 4 != 0 {
            (message.hop_limit, message.flags.wrapped) = (u16::MAX, false);
        }
        if bits & 8 != 0 {
            message.path_cost = (bits >> 40) as u16;
        }
        if bits & 16 != 0 {
            message.flags.greedy = true;
        }
        if bits & 32 != 0 {
            message.record = None;
        }
        if bits & 64 != 0 {
            let item = forge::written(&message);
            let peers = self.keys.peers();
            let other = peers.get(bits as usize >> 20 & 15).copied().unwrap_or(peer);
            self.forge(Forged::Items(other, item));
            return Fate::Drop;
        }
        rewritten(&message)
    }

    /// Does what is due.
    pub(super) fn timeout(&mut self, now: Time) {
        if now < self.due {
            return;
        }
        self.due = if now < self.until { now + TICK } else { NEVER };
        if !self.is_active(now) {
            return;
        }
        match self.attack {
            Attack::Flood => self.flood(),
            Attack::FalseHints => self.introduce(),
            Attack::Replay => self.replay(),
            Attack::Hijack => self.hijack(),
            Attack::Breaker => {
                for peer in self.keys.peers() {
                    let mut items = broken(self.random.next_u64() as u32);
                    let quoted = self.random.next_u64();
                    items.extend(forge::report(true, 0, quoted, &Labels::default()));
                    self.forge(Forged::Items(peer, items));
                }
            }
            Attack::FalseHello => self.speak_for_others(now),
            Attack::FalseDetour => self.mislead(),
            // Nothing is sent that nothing has caused.
            _ => self.due = NEVER,
        }
    }

    /// States to all neighbours ways round links that nobody has asked for, and asks them for some.
    fn mislead(&mut self) {
        let known: Vec<NodeId> = self.keys.known.values().map(|known| known.id).collect();
        for peer in self.keys.peers() {
            let mut items = Vec::new();
            for &to in &known {
                let bits = self.random.next_u64();
                items.extend(written(&Item::DetourReply { to, slot: Slot(bits as u16 & 7) }));
                items.extend(written(&Item::DetourRequest { to }));
                items.extend(written(&Item::Detoured { mark: (bits >> 16) as u32 }));
            }
            self.forge(Forged::Items(peer, items));
        }
    }

    fn speak_for_others(&mut self, now: Time) {
        let known: Vec<_> = self.keys.known.values().copied().collect();
        for neighbour in &known {
            let Some((stamp, sequence, at)) = self.heard.get_mut(&neighbour.id) else { continue };
            *sequence = sequence.wrapping_add(8);
            let stamp = stamp.wrapping_add((now.since(*at).as_nanos() / 1_000) as u32 + 9_000_000);
            let from = self.random.next_u64() as usize % known.len();
            let others = known.iter().cycle().skip(from).take(MAX_REPORTS).map(|other| other.id);
            let others: Vec<NodeId> = others.collect();
            let hello = forge::false_hello(neighbour, (stamp, *sequence), &others);
            self.forge(Forged::Raw(Destination::Neighbours, hello));
        }
    }

    fn flood(&mut self) {
        for peer in self.keys.peers() {
            let Some(at) = self.keys.known.get(&peer).map(|known| known.id) else { continue };
            for _ in 0..FLOOD {
                let target = NodeId::new(self.random.next_u64());
                let connect = forge::connect(&self.identity, Hints::new());
                let request =
                    forge::greedy(Message::Connect, self.own(), target, at, &mut self.random);
                let item = forge::message(&self.identity, request, &Body::Connect(connect));
                self.forge(Forged::Items(peer, item));
                let request = forge::look_up(&self.identity, target, at, &mut self.random);
                self.queue.extend(request.map(|item| Forged::Items(peer, item)));
                let init = forge::init(&self.identity, &mut self.random);
                let to = Destination::Neighbour(peer);
                self.queue.extend(init.map(|init| Forged::Raw(to, init)));
            }
        }
        for _ in 0..FLOOD {
            let hello = forge::stray_hello(&mut self.random);
            self.forge(Forged::Raw(Destination::Neighbours, hello));
        }
    }

    /// Introduces routers that do not exist to the neighbours.
    fn introduce(&mut self) {
        for peer in self.keys.peers() {
            let Some(at) = self.keys.known.get(&peer).map(|known| known.id) else { continue };
            for hint in forge::false_hints(at, 4, &mut self.random) {
                let request =
                    forge::greedy(Message::Introduce, self.own(), at, at, &mut self.random);
                let item = forge::message(&self.identity, request, &Body::Introduce(hint));
                self.forge(Forged::Items(peer, item));
            }
        }
    }

    fn replay(&mut self) {
        let peers = self.keys.peers();
        for _ in 0..if self.recorded.is_empty() || peers.is_empty() { 0 } else { REPLAYED } {
            let at = self.random.next_u64() as usize % self.recorded.len();
            let Some((to, bytes)) = self.recorded.get(at).cloned() else { return };
            let peer = peers[self.random.next_u64() as usize % peers.len()];
            match Kind::of(&bytes) {
                Ok(Kind::Control) => {
                    // What has come from one neighbour goes to another, over a link that is this router's.
                    let items = opened(&bytes).map_while(Result::ok);
                    let items = items.filter(|item| matches!(item, Item::Routed(_)));
                    let mut out = Vec::new();
                    items.for_each(|item| forge::put(&item, &mut out));
                    self.forge(Forged::Items(peer, out));
                    self.forge(Forged::Raw(Destination::Neighbour(peer), bytes));
                }
                Ok(Kind::Data) => {
                    if let Destination::Neighbour(peer) = to {
                        self.forge(Forged::Data(peer, bytes));
                    }
                }
                _ => self.forge(Forged::Raw(Destination::Neighbours, bytes)),
            }
        }
    }

    fn hijack(&mut self) {
        let peers = self.keys.peers();
        for _ in 0..if self.recorded.is_empty() || peers.is_empty() { 0 } else { REPLAYED } {
            let at = self.random.next_u64() as usize % self.recorded.len();
            let peer = peers[self.random.next_u64() as usize % peers.len()];
            let id = self.keys.known.get(&peer).map(|known| known.id);
            let recorded = self.recorded.get(at).zip(id);
            if let Some(item) = recorded.and_then(|((_, body), id)| forge::hijack(body, id)) {
                self.forge(Forged::Items(peer, item));
            }
        }
    }

    fn record(&mut self, at: Destination, bytes: &[u8]) {
        if self.recorded.len() >= MAX_RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back((at, bytes.to_vec()));
    }

    fn forge(&mut self, forged: Forged) {
        if self.queue.len() < MAX_QUEUE {
            self.queue.push_back(forged);
        }
    }

    /// Writes the next packet that was made up.
    pub(super) fn poll_forged(&mut self, bytes: &mut Vec<u8>) -> Option<Destination> {
        loop {
            let to = match self.queue.pop_front()? {
                Forged::Items(_, items) if items.is_empty() => continue,
                Forged::Items(peer, items) => {
                    if !self.keys.seal(peer, None, &items, bytes) {
                        continue;
                    }
                    Destination::Neighbour(peer)
                }
                Forged::Data(peer, packet) => {
                    bytes.clear();
                    bytes.extend(packet);
                    if !self.keys.complete(peer, bytes) {
                        continue;
                    }
                    Destination::Neighbour(peer)
                }
                Forged::Raw(to, packet) => {
                    bytes.clear();
                    bytes.extend(packet);
                    to
                }
            };
            self.deeds += 1;
            return Some(to);
        }
    }
}

/// Returns the items of a CONTROL packet, which the stand-in for cryptography does not hide.
fn opened(bytes: &[u8]) -> Items<'_> {
    let end = bytes.len().saturating_sub(SEAL).max(Control::HEADER);
    Items::new(bytes.get(Control::HEADER..end).unwrap_or_default())
}

fn written(item: &Item<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    forge::put(item, &mut out);
    out
}

fn broken(mark: u32) -> Vec<u8> {
    written(&Item::Broken { mark })
}

fn rewritten(message: &Routed<'_>) -> Fate {
    Fate::Replace(forge::written(message))
}
