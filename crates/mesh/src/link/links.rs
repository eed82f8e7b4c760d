//! The neighbours of a router, and everything that makes and ends a link.

mod packets;

use std::collections::VecDeque;
use std::sync::Arc;

use ringway_sansio::time::{Duration, sooner};
use ringway_sansio::{Malformed, Random, Time};
use smallvec::SmallVec;

use super::Task;
use super::handshake::{Handshakes, LinkAddress, Local, Refused, Verified};
use super::interface::{Discovery, Interface, InterfaceConfig};
use super::neighbour::{Judgement, Neighbour, micros, short_tag};
use super::numbers::Numbers;
use super::slots::{NoSlot, Slots};
use crate::config::Limits;
use crate::crypto::{CodeKey, Crypto};
use crate::id::NodeId;
use crate::local::LocalRouter;
use crate::output::{Destination, Output};
use crate::wire::hello::{MAX_REPORTS, Report};
use crate::wire::{Hello, HelloView, Item, Kind, Slot};

/// Time that the router with the higher id leaves the lower one to begin a handshake.
const SECOND_WAIT: Duration = Duration::from_millis(150);
/// Longest time before the first does.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// Strangers that are waited for.
const MAX_STRANGERS: usize = 64;

/// Why a link has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// The neighbour was silent, also when probed.
    Silent,
    /// The neighbour has left, or has closed the link.
    Closed,
    /// Too many HELLOs are lost. The link is kept and may become usable again.
    Lossy,
    /// The neighbour has started again.
    Restarted,
    /// The interface has gone.
    Interface,
}

impl core::fmt::Display for DownReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            DownReason::Silent => "it does not answer",
            DownReason::Closed => "it has left",
            DownReason::Lossy => "too many packets are lost",
            DownReason::Restarted => "it has started again",
            DownReason::Interface => "the interface is gone",
        })
    }
}

/// What has happened to the links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// A link can be used.
    Up {
        /// The neighbour's slot.
        slot: Slot,
        /// The neighbour.
        id: NodeId,
    },
    /// A link costs something else now.
    Cost {
        /// The neighbour's slot.
        slot: Slot,
        /// The neighbour.
        id: NodeId,
    },
    /// A neighbour has left a probe without an answer, and is probed further.
    Silent {
        /// The neighbour's slot.
        slot: Slot,
        /// The neighbour.
        id: NodeId,
    },
    /// A link cannot be used any more.
    Down {
        /// The neighbour's slot.
        slot: Slot,
        /// The neighbour.
        id: NodeId,
        /// Why.
        reason: DownReason,
    },
    /// A handshake has failed.
    Refused(LinkAddress, Refused),
    /// There is no slot for a neighbour.
    NoSlot(NodeId, NoSlot),
}

/// Why a CONTROL packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Dropped {
    /// It is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// No link has this number.
    #[error("expected the number of a link, got {0}")]
    UnknownLink(u32),
    /// It came before, or is too old to know.
    #[error("expected a packet that has not come yet, got number {0} again")]
    Replayed(u64),
    /// It cannot be opened.
    #[error("expected a packet sealed with the keys of its link, got another")]
    Forged,
}

struct Stranger {
    address: LinkAddress,
    due: Time,
}

/// The links of a router.
pub struct Links<C: Crypto> {
    limits: Arc<Limits>,
    interfaces: Vec<Interface>,
    neighbours: Slots<Neighbour<C::Keys>>,
    /// Which link has a number.
    by_index: Numbers,
    handshakes: Handshakes<C>,
    strangers: Vec<Stranger>,
    hello_key: CodeKey,
    /// The links that are up, as forwarding needs them.
    up: Vec<crate::wire::Neighbour>,
    events: VecDeque<LinkEvent>,
    /// When something is due, unless something has changed since it was computed.
    due: Option<Time>,
    changed: bool,
    /// HELLOs of neighbours with a bad code.
    pub forged_hellos: u64,
    /// Strangers that found no room, or came too fast.
    pub ignored_strangers: u64,
}

impl<C: Crypto> Links<C> {
    /// No links.
    pub fn new(now: Time, limits: impl Into<Arc<Limits>>, random: &mut dyn Random) -> Self {
        let limits = limits.into();
        let mut hello_key = [0; 16];
        random.fill(&mut hello_key);
        Links {
            interfaces: Vec::new(),
            neighbours: Slots::new(limits.clone()),
            by_index: Numbers::default(),
            handshakes: Handshakes::new(now, limits.clone(), random),
            limits,
            strangers: Vec::new(),
            hello_key: CodeKey(hello_key),
            up: Vec::new(),
            events: VecDeque::new(),
            due: None,
            changed: false,
            forged_hellos: 0,
            ignored_strangers: 0,
        }
    }

    /// Adds an interface; one with the same number is replaced, and its links go on.
    pub fn add_interface(&mut self, now: Time, config: InterfaceConfig, random: &mut dyn Random) {
        self.changed = true;
        let is_it = |interface: &&mut Interface| interface.config.index == config.index;
        match self.interfaces.iter_mut().find(is_it) {
            Some(interface) => interface.replace(now, config),
            None => {
                // Routers have few interfaces, and very many routers are simulated.
                self.interfaces.reserve_exact(1);
                self.interfaces.push(Interface::new(now, config, random));
            }
        }
    }

    /// Removes an interface; its links are down at once.
    pub fn remove_interface(&mut self, now: Time, index: u32) {
        self.changed = true;
        self.interfaces.retain(|interface| interface.config.index != index);
        self.strangers.retain(|stranger| stranger.address.interface != index);
        for slot in self.slots_where(|neighbour| neighbour.address.interface == index) {
            self.down(now, slot, DownReason::Interface);
        }
    }

    /// Returns the links that are up.
    pub fn up(&self) -> &[crate::wire::Neighbour] {
        &self.up
    }

    /// Returns whether the link of a slot is up.
    pub fn is_up(&self, slot: Slot) -> bool {
        self.neighbours.get(slot).is_some_and(Neighbour::is_usable)
    }

    /// Returns whether a neighbour has left a probe without an answer.
    pub fn is_silent(&self, slot: Slot) -> bool {
        self.neighbours.get(slot).is_some_and(|neighbour| neighbour.liveness.is_silent())
    }

    /// Returns a neighbour.
    pub fn neighbour(&self, slot: Slot) -> Option<&Neighbour<C::Keys>> {
        self.neighbours.get(slot)
    }

    /// Returns all neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = (Slot, &Neighbour<C::Keys>)> {
        self.neighbours.iter().map(|(slot, _, neighbour)| (slot, neighbour))
    }

    /// Returns the first event that has not been handled.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        let event = self.events.pop_front();
        if event.is_none() {
            self.events = VecDeque::new();
        }
        event
    }

    /// Handles a packet that is not CONTROL or data.
    pub fn handle(
        &mut self,
        now: Time,
        local: &LocalRouter,
        from: LinkAddress,
        kind: Kind,
        bytes: &[u8],
        random: &mut dyn Random,
        output: &mut Output,
    ) -> Result<(), Malformed> {
        if kind == Kind::Hello {
            let hello = HelloView::parse(bytes)?;
            self.hear(now, local, from, &hello, random);
            return Ok(());
        }
        self.changed = true;
        if let Err(refused) = self.shake(now, local, from, kind, bytes, random, output) {
            match refused {
                Refused::Malformed(malformed) => return Err(malformed),
                // Both are of every day: packets that cross or come late.
                Refused::OursGoesOn | Refused::Unknown(_) => {}
                refused => self.events.push_back(LinkEvent::Refused(from, refused)),
            }
        }
        Ok(())
    }

    /// Returns whether anything has changed since the last [`review`](Self::review).
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    /// Handles an item that concerns the link alone, and appends items that answer it. Returns whether it was one.
    pub fn item(&mut self, now: Time, slot: Slot, item: &Item<'_>, answer: &mut Vec<u8>) -> bool {
        match *item {
            // More than one in a packet ask for no more than one answer.
            Item::Probe if answer.is_empty() => put(&Item::Slot(slot), answer),
            Item::Probe | Item::Feedback => {}
            Item::Slot(back) => {
                if let Some(neighbour) = self.neighbours.get_mut(slot)
                    && neighbour.back.replace(back) != Some(back)
                {
                    self.list_up();
                }
            }
            Item::LinkClose => self.down(now, slot, DownReason::Closed),
            _ => return false,
        }
        true
    }

    /// The system has reported that it cannot send to an address.
    pub fn send_failed(&mut self, now: Time, to: LinkAddress) {
        self.changed = true;
        for slot in self.slots_where(|neighbour| neighbour.address == to) {
            if let Some(neighbour) = self.neighbours.get_mut(slot) {
                neighbour.liveness.send_failed(now);
            }
        }
    }

    /// Closes every link.
    pub fn leave(&mut self, output: &mut Output) {
        let mut items = Vec::new();
        put(&Item::LinkClose, &mut items);
        for slot in self.slots_where(|_| true) {
            self.seal(slot, &items, output);
        }
    }

    /// Does what is due.
    pub fn timeout(
        &mut self,
        now: Time,
        local: &LocalRouter,
        random: &mut dyn Random,
        output: &mut Output,
    ) {
        self.changed = true;
        for at in 0..self.interfaces.len() {
            if self.interfaces[at].due <= now {
                self.call_named(now, local, at, random, output);
                self.say_hello(now, local, at, random, output);
            }
        }
        while let Some(at) = self.strangers.iter().position(|stranger| stranger.due <= now) {
            let address = self.strangers.swap_remove(at).address;
            self.initiate(now, local, address, random, output);
        }
        if self.strangers.is_empty() {
            self.strangers = Vec::new();
        }
        let mut packet = Vec::new();
        while let Some(address) = self.handshakes.timeout(now, random, &mut packet) {
            let to = Destination::One(address.remote);
            output.packet(address.interface, to, |out| out.append(&mut packet));
        }
        for slot in
            self.slots_where(|neighbour| neighbour.feedback_due().is_some_and(|due| due <= now))
        {
            let mut items = Vec::new();
            put(&Item::Feedback, &mut items);
            self.seal(slot, &items, output);
        }
        self.check_liveness(now, output);
    }

    /// Returns when something may be due, as of the last [`review`](Self::review). It is never too late: what packets
    /// that are only opened and sealed move, they move into the future.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Computes when something is due, after whatever may have changed it.
    pub fn review(&mut self) {
        if !core::mem::take(&mut self.changed) {
            return;
        }
        let hello = self.interfaces.iter().map(|interface| interface.due).min();
        let stranger = self.strangers.iter().map(|stranger| stranger.due).min();
        let count = self.by_index.len();
        let neighbours = self.neighbours.iter();
        let neighbour = neighbours.filter_map(|(_, _, neighbour)| neighbour.poll_timeout(count));
        let handshake = self.handshakes.poll_timeout();
        self.due = sooner(sooner(hello, stranger), sooner(neighbour.min(), handshake));
    }

    fn hear(
        &mut self,
        now: Time,
        local: &LocalRouter,
        from: LinkAddress,
        view: &HelloView<'_>,
        random: &mut dyn Random,
    ) {
        let (id, instance) = (view.id(), view.instance());
        if id == local.id() && instance == local.instance {
            return; // Our own, which a hub has sent back.
        }
        let Some(at) =
            self.interfaces.iter().position(|entry| entry.config.index == from.interface)
        else {
            return;
        };
        let sent = self.interfaces[at].sent;
        let count = self.by_index.len();
        let known = self.find(from.interface, id);
        if let Some(slot) = known
            && let Some(neighbour) = self.neighbours.get_mut(slot)
            && neighbour.instance == instance
        {
            if neighbour.hello_key.code(view.signed()) != view.code() {
                self.forged_hellos += 1;
            } else if neighbour.has_other_clock(now, view.stamp(), count) {
                // Only a handshake shows what its clock is now. Until then answers to probes keep the link up.
                self.meet(now, local, at, from, id, random);
            } else {
                let [_, key] = C::codes(&neighbour.keys);
                neighbour.hear_hello(now, key, view, (short_tag(local.id()), sent));
                self.judge(now, slot);
            }
            return;
        }
        // Who is named is called without it; anybody else must begin a handshake.
        if self.interfaces[at].config.discovery == Discovery::Multicast {
            self.meet(now, local, at, from, id, random);
        }
    }

    /// Somebody has been heard with whom a handshake is needed.
    fn meet(
        &mut self,
        now: Time,
        local: &LocalRouter,
        at: usize,
        from: LinkAddress,
        id: NodeId,
        random: &mut dyn Random,
    ) {
        self.changed = true;
        let interface = &mut self.interfaces[at];
        if self.strangers.iter().any(|stranger| stranger.address == from) {
            return;
        }
        let all = self.neighbours.iter().map(|(_, _, neighbour)| neighbour);
        let mut there = all.filter(|other| other.address == from && other.id != id);
        if there.any(|other| !other.liveness.is_suspect()) {
            self.ignored_strangers += 1;
            return; // A neighbour speaks in the name of others: the handshake would be with it.
        }
        interface.hurry(now, random);
        // Who is heard may not be there at all: there is room for those who call us.
        let is_busy = self.handshakes.initiated() >= self.limits.handshakes / 4;
        if self.strangers.len() >= MAX_STRANGERS || is_busy || !interface.handshakes.spend(now, 1) {
            self.ignored_strangers += 1;
            return;
        }
        let jitter = FIRST_WAIT.mul_f64((random.next_u64() >> 56) as f64 / 256.0);
        let wait = if local.id() < id { jitter } else { SECOND_WAIT + jitter };
        self.strangers.push(Stranger { address: from, due: now + wait });
    }

    /// Begins handshakes with the named routers that are no neighbours.
    fn call_named(
        &mut self,
        now: Time,
        local: &LocalRouter,
        at: usize,
        random: &mut dyn Random,
        output: &mut Output,
    ) {
        let InterfaceConfig { index, discovery, .. } = self.interfaces[at].config.clone();
        let Discovery::Named(named) = discovery else { return };
        for remote in named {
            let address = LinkAddress { interface: index, remote };
            if self.slots_where(|neighbour| neighbour.address == address).is_empty() {
                self.initiate(now, local, address, random, output);
            }
        }
    }

    fn initiate(
        &mut self,
        now: Time,
        local: &LocalRouter,
        to: LinkAddress,
        random: &mut dyn Random,
        output: &mut Output,
    ) {
        let Some(description) =
            describe(now, &self.interfaces, self.hello_key, local, to.interface)
        else {
            return;
        };
        let handshakes = &mut self.handshakes;
        let result = output.packet(to.interface, Destination::One(to.remote), |out| {
            handshakes.initiate(now, to, &description, random, out)
        });
        if let Err(refused) = result {
            self.events.push_back(LinkEvent::Refused(to, refused));
        }
    }

    /// Handles a packet of a handshake.
    fn shake(
        &mut self,
        now: Time,
        local: &LocalRouter,
        from: LinkAddress,
        kind: Kind,
        bytes: &[u8],
        random: &mut dyn Random,
        output: &mut Output,
    ) -> Result<(), Refused> {
        let Some(description) =
            describe(now, &self.interfaces, self.hello_key, local, from.interface)
        else {
            return Ok(());
        };
        let handshakes = &mut self.handshakes;
        let verified =
            output.packet(from.interface, Destination::One(from.remote), |out| match kind {
                Kind::Init => {
                    handshakes.init(now, from, bytes, &description, random, out).map(|_| None)
                }
                Kind::Resp => handshakes.resp(now, from, bytes, &description, out),
                Kind::Conf => handshakes.conf(from, bytes, &description).map(Some),
                Kind::Cookie => handshakes.cookie(from, bytes, out).map(|()| None),
                Kind::Hello | Kind::Control | Kind::Data => Ok(None),
            })?;
        if let Some(verified) = verified {
            self.link(now, from, verified, random, output);
        }
        Ok(())
    }

    /// Makes a neighbour of who has ended a handshake, or renews its keys.
    fn link(
        &mut self,
        now: Time,
        from: LinkAddress,
        verified: Verified<C::Keys>,
        random: &mut dyn Random,
        output: &mut Output,
    ) {
        let (id, index, instance) = (verified.id, verified.index, verified.payload.instance);
        let Some(interface) =
            self.interfaces.iter_mut().find(|entry| entry.config.index == from.interface)
        else {
            return;
        };
        // It is no stranger any more, and need not be called.
        self.strangers.retain(|stranger| stranger.address != from);
        if self.strangers.is_empty() {
            self.strangers = Vec::new();
        }
        interface.change(now);
        interface.hurry(now, random);
        let (mtu, hellos) = (interface.config.mtu, interface.sent);
        let known = self.find(from.interface, id);
        if let Some(slot) = known
            && let Some(neighbour) = self.neighbours.get_mut(slot)
            && neighbour.instance == instance
        {
            self.by_index.remove(neighbour.index);
            self.by_index.insert(index, slot);
            neighbour.renew(now, from, (mtu, hellos), verified);
            return self.greet(slot, output);
        }
        // What the neighbour knew of us before its start is lost.
        if let Some(slot) = known {
            self.down(now, slot, DownReason::Restarted);
        }
        let neighbour = Neighbour::new(now, from, (mtu, hellos), verified);
        let slot = match self.neighbours.insert(now, id, from.interface, neighbour) {
            Ok(slot) => slot,
            Err(no_slot) => return self.events.push_back(LinkEvent::NoSlot(id, no_slot)),
        };
        self.by_index.insert(index, slot);
        self.list_up();
        self.greet(slot, output);
        self.events.push_back(LinkEvent::Up { slot, id });
    }

    /// Sends the first packet with new keys, which proves to the neighbour that they are in use.
    fn greet(&mut self, slot: Slot, output: &mut Output) {
        let mut items = Vec::new();
        put(&Item::Slot(slot), &mut items);
        put(&Item::Probe, &mut items);
        self.seal(slot, &items, output);
    }

    fn say_hello(
        &mut self,
        now: Time,
        local: &LocalRouter,
        at: usize,
        random: &mut dyn Random,
        output: &mut Output,
    ) {
        let interface = &mut self.interfaces[at];
        let index = interface.config.index;
        let (reports, keys) = reports::<C>(now, &mut self.neighbours, interface);
        let interval = interface.say_hello(now, random);
        let hello = Hello {
            interval,
            id: local.id(),
            instance: local.instance,
            sequence: interface.sequence,
            stamp: micros(now),
            reports,
        };
        let mut bytes = Vec::new();
        hello.emit(&mut bytes, &keys, |signed| self.hello_key.code(signed));
        match &interface.config.discovery {
            Discovery::Multicast => {
                output.packet(index, Destination::All, |out| out.extend_from_slice(&bytes));
            }
            Discovery::Named(_) => {
                let all = self.neighbours.iter().map(|(_, _, neighbour)| neighbour);
                for neighbour in all.filter(|neighbour| neighbour.address.interface == index) {
                    let to = Destination::One(neighbour.address.remote);
                    output.packet(index, to, |out| out.extend_from_slice(&bytes));
                }
            }
        }
    }

    fn check_liveness(&mut self, now: Time, output: &mut Output) {
        let count = self.by_index.len();
        for slot in self.slots_where(|neighbour| {
            neighbour.liveness.poll_timeout(count).is_some_and(|due| due <= now)
        }) {
            self.judge(now, slot);
            while let Some(neighbour) = self.neighbours.get_mut(slot)
                && let Some(task) = neighbour.liveness.timeout(now, count)
            {
                match task {
                    Task::Probe => {
                        let mut items = Vec::new();
                        put(&Item::Probe, &mut items);
                        if neighbour.liveness.is_silent() {
                            self.events.push_back(LinkEvent::Silent { slot, id: neighbour.id });
                        }
                        self.seal(slot, &items, output);
                    }
                    Task::Dead => self.down(now, slot, DownReason::Silent),
                }
            }
        }
    }

    /// Decides whether a link is usable, and reports a change.
    fn judge(&mut self, now: Time, slot: Slot) {
        let Some(neighbour) = self.neighbours.get_mut(slot) else { return };
        let id = neighbour.id;
        let event = match neighbour.judge(now) {
            Judgement::Same => return,
            Judgement::Cost => {
                self.changed = true;
                return self.events.push_back(LinkEvent::Cost { slot, id });
            }
            Judgement::Usable => LinkEvent::Up { slot, id },
            Judgement::Lossy => LinkEvent::Down { slot, id, reason: DownReason::Lossy },
        };
        self.changed = true;
        self.list_up();
        self.events.push_back(event);
    }

    fn down(&mut self, now: Time, slot: Slot, reason: DownReason) {
        let Some(neighbour) = self.neighbours.remove(now, slot) else { return };
        self.changed = true;
        self.by_index.remove(neighbour.index);
        self.handshakes.cancel(neighbour.address);
        self.list_up();
        for interface in &mut self.interfaces {
            if interface.config.index == neighbour.address.interface {
                interface.change(now);
            }
        }
        self.events.push_back(LinkEvent::Down { slot, id: neighbour.id, reason });
    }

    fn find(&self, interface: u32, id: NodeId) -> Option<Slot> {
        let is_there = |slot: &Slot| {
            self.neighbours.get(*slot).is_some_and(|known| known.address.interface == interface)
        };
        let up = self.up.iter().filter(|neighbour| neighbour.id == id);
        if let Some(slot) = up.map(|neighbour| neighbour.slot).find(is_there) {
            return Some(slot);
        }
        let mut all = self.neighbours.iter();
        let is_it = |(_, other, neighbour): &(Slot, NodeId, &Neighbour<C::Keys>)| {
            *other == id && neighbour.address.interface == interface
        };
        all.find(is_it).map(|(slot, ..)| slot)
    }

    fn slots_where(&self, is_it: impl Fn(&Neighbour<C::Keys>) -> bool) -> Vec<Slot> {
        let all = self.neighbours.iter();
        all.filter(|(_, _, neighbour)| is_it(neighbour)).map(|(slot, ..)| slot).collect()
    }

    /// Lists the links that are up anew.
    fn list_up(&mut self) {
        let all = self.neighbours.iter();
        let usable = all.filter(|(_, _, neighbour)| neighbour.is_usable());
        let listed = usable.map(|(slot, id, neighbour)| crate::wire::Neighbour {
            id,
            slot,
            back: neighbour.back,
        });
        self.up = listed.collect();
        self.up.shrink_to_fit();
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.neighbours.heap_bytes()
            + self.handshakes.heap_bytes()
            + self.by_index.heap_bytes()
            + self.interfaces.capacity() * size_of::<Interface>()
            + self.strangers.capacity() * size_of::<Stranger>()
            + self.up.capacity() * size_of::<crate::wire::Neighbour>()
            + self.events.capacity() * size_of::<LinkEvent>()
    }

    /// Returns the counts of handshakes that did not become a link.
    pub fn handshake_counters(&self) -> super::handshake::Counters {
        self.handshakes.counters
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// Returns what the next HELLO of an interface reports, and the keys for it: first of neighbours that nothing was reported
/// of, because they do not use their link for long without; then all take turns.
fn reports<C: Crypto>(
    now: Time,
    neighbours: &mut Slots<Neighbour<C::Keys>>,
    interface: &mut Interface,
) -> (SmallVec<[Report; MAX_REPORTS]>, SmallVec<[CodeKey; MAX_REPORTS]>) {
    let index = interface.config.index;
    let mut reports = SmallVec::<[_; MAX_REPORTS]>::new();
    let all = neighbours.iter_mut().filter(|neighbour| neighbour.address.interface == index);
    let mut count = 0;
    for neighbour in all {
        count += 1;
        if reports.len() < MAX_REPORTS {
            let report = neighbour.first_report(now);
            reports.extend(report.map(|report| (report, C::codes(&neighbour.keys)[0])));
        }
    }
    let room = MAX_REPORTS - reports.len();
    let turn = interface.take_turn(count, room);
    let all = neighbours.iter().map(|(_, _, neighbour)| neighbour);
    let all = all.filter(|neighbour| neighbour.address.interface == index);
    let others = all.cycle().skip(turn).take(count.min(room));
    let keyed = |neighbour: &Neighbour<C::Keys>| {
        Some((neighbour.report(now)?, C::codes(&neighbour.keys)[0]))
    };
    reports.extend(others.filter_map(keyed));
    reports.into_iter().unzip()
}

/// Returns the description of this router in handshakes on an interface, or `None` if there is no such interface.
fn describe<'a>(
    now: Time,
    interfaces: &[Interface],
    hello_key: CodeKey,
    local: &'a LocalRouter,
    index: u32,
) -> Option<Local<'a>> {
    let interface = interfaces.iter().find(|interface| interface.config.index == index)?;
    Some(Local {
        identity: &local.identity,
        network: &local.network,
        extension_bits: local.extension_bits,
        instance: local.instance,
        hello: interface.sequence,
        hello_key,
        mtu: interface.config.mtu,
        stamp: micros(now),
    })
}

/// Appends an item that is short by construction.
fn put(item: &Item<'_>, out: &mut Vec<u8>) {
    let _ = item.emit(out);
}
