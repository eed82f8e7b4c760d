//! Routers in virtual time, with a network that loses, doubles and delays messages and falls apart, and disks that are
//! behind when a router crashes.
#![allow(dead_code, clippy::unwrap_used)]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use ringway_phonebook::numbers::ranges::Ranges;
use ringway_phonebook::numbers::state::State;
use ringway_phonebook::numbers::{Config, Event, Node, Numbers, Save, ShortNumber, Space, Tag};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix, Time};

/// A router: running, or what a crash has left of it.
pub(crate) struct Router {
    pub(crate) numbers: Option<Numbers>,
    /// What is on the disk.
    disk: Option<Image>,
    /// What is being written, and when that is done.
    writing: Option<(Image, Time)>,
    /// Routers of different parts do not reach each other.
    pub(crate) part: u32,
    pub(crate) events: Vec<Event>,
}

/// A state as it is stored.
#[derive(Clone)]
struct Image {
    save: Save,
    /// What its octets mean.
    state: State,
}

/// What can go wrong.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    /// Messages of a hundred that are lost.
    pub(crate) loss: u64,
    /// Messages of a hundred that come twice.
    pub(crate) double: u64,
    /// Maximum delay of a message in milliseconds.
    pub(crate) delay: u64,
    /// Maximum duration of a write in milliseconds.
    pub(crate) write: u64,
}

impl Faults {
    pub(crate) const NONE: Faults = Faults { loss: 0, double: 0, delay: 20, write: 1 };
}

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) random: SplitMix,
    pub(crate) routers: BTreeMap<Node, Router>,
    pub(crate) config: Config,
    pub(crate) faults: Faults,
    packets: BinaryHeap<Reverse<(Time, u64)>>,
    contents: BTreeMap<u64, (Node, Node, Vec<u8>)>,
    number: u64,
    /// The last messages, for [`Net::replay`].
    sent: VecDeque<(Node, Node, Vec<u8>)>,
    /// Who has been reported to have a number.
    assigned: BTreeMap<ShortNumber, (Node, Box<str>)>,
    /// The rules of reclaiming were broken on purpose: numbers may have been assigned twice.
    pub(crate) lawless: bool,
}

impl Net {
    pub(crate) fn new(seed: u64, routers: u64, space: Space) -> Net {
        let config = Config { space, grants_per_hour: 1_000, ..Config::default() };
        let mut net = Net {
            now: Time::from_secs(1_000),
            random: SplitMix::new(seed),
            routers: BTreeMap::new(),
            config,
            faults: Faults::NONE,
            packets: BinaryHeap::new(),
            contents: BTreeMap::new(),
            number: 0,
            sent: VecDeque::new(),
            assigned: BTreeMap::new(),
            lawless: false,
        };
        for id in 1..=routers {
            let numbers = Numbers::new(config, id, net.now, &mut net.random);
            let router = Router {
                numbers: Some(numbers),
                disk: None,
                writing: None,
                part: 0,
                events: Vec::new(),
            };
            net.routers.insert(id, router);
        }
        net.connect();
        net
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    /// Lets each router know the two on each side of it, as the mesh would. All others are known by hints alone.
    pub(crate) fn connect(&mut self) {
        let ids: Vec<Node> = self.routers.keys().copied().collect();
        for (index, id) in ids.iter().enumerate() {
            let count = ids.len();
            let offsets = [1, count - 1, 2, count.saturating_sub(2)];
            let mut peers: Vec<Node> = offsets.iter().map(|by| ids[(index + by) % count]).collect();
            peers.dedup();
            if let Some(numbers) = self.routers.get_mut(id).unwrap().numbers.as_mut() {
                numbers.set_peers(self.now, &peers);
            }
        }
    }

    pub(crate) fn numbers(&mut self, id: Node) -> &mut Numbers {
        self.routers.get_mut(&id).unwrap().numbers.as_mut().unwrap()
    }

    pub(crate) fn is_up(&self, id: Node) -> bool {
        self.routers[&id].numbers.is_some()
    }

    pub(crate) fn assign(&mut self, id: Node, user: &str) {
        let (now, mut random) = (self.now, self.random.clone());
        self.random.next_u64();
        self.numbers(id).assign(now, user, &mut random).unwrap();
        self.collect(id);
    }

    pub(crate) fn number_of(&self, id: Node, user: &str) -> Option<ShortNumber> {
        self.routers[&id].numbers.as_ref()?.number_of(user)
    }

    /// Ends a router without warning. What is being written may be on the disk or not.
    pub(crate) fn crash(&mut self, id: Node) {
        let written = self.below(2) == 0;
        let router = self.routers.get_mut(&id).unwrap();
        router.numbers = None;
        if let Some((image, _)) = router.writing.take()
            && written
        {
            router.disk = Some(image);
        }
    }

    pub(crate) fn start(&mut self, id: Node) {
        let (config, now) = (self.config, self.now);
        let router = self.routers.get_mut(&id).unwrap();
        let random = &mut self.random;
        let numbers = match &router.disk {
            Some(disk) => Numbers::restore(config, id, &disk.save.octets, now, random).unwrap(),
            None => Numbers::new(config, id, now, random),
        };
        router.numbers = Some(numbers);
        self.connect();
        self.collect(id);
    }

    /// Ends a router together with its disk.
    pub(crate) fn destroy(&mut self, id: Node) {
        self.crash(id);
        self.routers.get_mut(&id).unwrap().disk = None;
        // Its numbers are nobody's, and may be reclaimed.
        self.assigned.retain(|_, (by, _)| *by != id);
    }

    fn send(&mut self, from: Node, to: Node, octets: Vec<u8>) {
        self.sent.push_back((from, to, octets.clone()));
        if self.sent.len() > 2_000 {
            self.sent.pop_front();
        }
        let copies = 1 + u64::from(self.below(100) < self.faults.double);
        for _ in 0..copies {
            if self.below(100) < self.faults.loss {
                continue;
            }
            // Some come very late.
            let late = if self.below(20) == 0 { 50 } else { 1 };
            let delay = Duration::from_millis(1 + self.below(self.faults.delay * late));
            self.packets.push(Reverse((self.now + delay, self.number)));
            self.contents.insert(self.number, (from, to, octets.clone()));
            self.number += 1;
        }
    }

    /// Delivers copies of messages that were sent long ago.
    pub(crate) fn replay(&mut self, count: usize) {
        for _ in 0..count.min(self.sent.len()) {
            let index = self.below(self.sent.len() as u64) as usize;
            let (from, to, octets) = self.sent[index].clone();
            self.deliver(from, to, &octets);
        }
    }

    /// Delivers copies of all messages of the last time to one router.
    pub(crate) fn replay_all(&mut self, to: Node) {
        for (from, to, octets) in self.sent.clone().into_iter().filter(|sent| sent.1 == to) {
            self.deliver(from, to, &octets);
        }
    }

    fn deliver(&mut self, from: Node, to: Node, octets: &[u8]) {
        let connected = self.routers[&from].part == self.routers[&to].part;
        let (now, router) = (self.now, self.routers.get_mut(&to).unwrap());
        if let Some(numbers) = router.numbers.as_mut().filter(|_| connected) {
            numbers.handle(now, from, octets, &mut self.random);
            self.collect(to);
            self.check();
        }
    }

    /// Takes everything that a router has for the world.
    pub(crate) fn collect(&mut self, id: Node) {
        let write = self.below(self.faults.write);
        let now = self.now;
        let router = self.routers.get_mut(&id).unwrap();
        let Some(numbers) = router.numbers.as_mut() else { return };
        if router.writing.is_none()
            && let Some(save) = numbers.poll_save()
        {
            let state = State::parse(&save.octets).unwrap();
            assert_eq!(&state, numbers.state());
            router.writing = Some((Image { save, state }, now + Duration::from_millis(write)));
        }
        if let Some((image, _)) = router.writing.take_if(|(_, done)| *done <= now) {
            numbers.handle_saved(image.save.version);
            router.disk = Some(image);
        }
        let mut messages = Vec::new();
        while let Some(message) = numbers.poll_transmit() {
            messages.push(message);
        }
        let mut events = Vec::new();
        while let Some(event) = numbers.poll_event() {
            events.push(event);
        }
        router.events.extend(events.iter().cloned());
        messages.into_iter().for_each(|message| self.send(id, message.to, message.octets));
        for event in events {
            if let Event::Assigned { user, number, .. } = event
                && let Some((by, of)) = self.assigned.insert(number, (id, user.clone()))
            {
                let same = (by, &of) == (id, &user);
                // A released number may go to another user, but never at another router.
                assert!(
                    same || by == id || self.lawless,
                    "{number:?} of {of} at {by} and {user} at {id}"
                );
            }
        }
    }

    /// Lets milliseconds pass and checks after each event that no block has two owners.
    pub(crate) fn run(&mut self, milliseconds: u64) {
        let end = self.now + Duration::from_millis(milliseconds);
        while self.now < end {
            let mut next = end;
            if let Some(&Reverse((at, _))) = self.packets.peek() {
                next = next.min(at);
            }
            for router in self.routers.values() {
                let due = router.numbers.as_ref().and_then(Numbers::poll_timeout);
                let written = router.writing.as_ref().map(|(_, done)| *done);
                next = [due, written].into_iter().flatten().fold(next, Time::min);
            }
            self.now = next.max(self.now + Duration::from_millis(1));
            self.step();
        }
    }

    fn step(&mut self) {
        while let Some(&Reverse((at, number))) = self.packets.peek()
            && at <= self.now
        {
            self.packets.pop();
            let (from, to, octets) = self.contents.remove(&number).unwrap();
            self.deliver(from, to, &octets);
        }
        let ids: Vec<Node> = self.routers.keys().copied().collect();
        for id in ids {
            let (now, router) = (self.now, self.routers.get_mut(&id).unwrap());
            if let Some(numbers) = router.numbers.as_mut()
                && numbers.poll_timeout().is_some_and(|due| due <= now)
            {
                numbers.handle_timeout(now, &mut self.random);
            }
            self.collect(id);
        }
        self.check();
    }

    /// Asserts that no block has two owners: in memory, or on a disk that a router may wake up with.
    pub(crate) fn check(&self) {
        if self.lawless {
            return;
        }
        let mut owners: BTreeMap<Tag, Ranges> = BTreeMap::new();
        for (id, router) in &self.routers {
            let mut own: BTreeMap<Tag, Ranges> = BTreeMap::new();
            let disk = router.disk.as_ref().map(|image| &image.state);
            let memory = router.numbers.as_ref().map(Numbers::state);
            let writing = router.writing.as_ref().map(|(image, _)| &image.state);
            for state in [disk, memory, writing].into_iter().flatten() {
                let tags =
                    state.home.into_iter().chain(state.legacy.iter().map(|legacy| legacy.tag));
                for tag in tags {
                    own.entry(tag).or_default().insert_all(&state.owned(tag));
                }
            }
            for (tag, blocks) in own {
                let taken = owners.entry(tag).or_default();
                for range in blocks.iter() {
                    assert!(!taken.overlaps(range), "{range} of {tag} has two owners, one is {id}");
                }
                taken.insert_all(&blocks);
            }
        }
    }

    /// Returns the blocks of a network that are owned or on their way.
    pub(crate) fn held(&self, tag: Tag) -> Ranges {
        let mut held = Ranges::default();
        for router in self.routers.values() {
            if let Some(numbers) = &router.numbers {
                held.insert_all(&numbers.state().held(tag));
            }
        }
        held
    }

    /// Returns the events of a router since this was called last.
    pub(crate) fn take_events(&mut self, id: Node) -> Vec<Event> {
        core::mem::take(&mut self.routers.get_mut(&id).unwrap().events)
    }
}
