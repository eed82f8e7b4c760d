//! A network of directories over a mesh that is reduced to delivery: messages reach whoever is responsible for a position,
//! late or never, and everybody knows who is there. A crash is noticed after three seconds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use ringway_directory::{
    Account, Config, CredentialsCheck, Directory, Event, ListEnd, Listed, Located, QuestionId,
    Subject, Verdict, Whereabouts,
};
use ringway_mesh::crypto::StandIn;
use ringway_mesh::identity::{Identity, Search};
use ringway_mesh::metric::{Ring, responsible};
use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::time::Duration;
use ringway_sansio::{Random, SplitMix, Time};

/// Time until the mesh notices that a router is gone.
const NOTICED: Duration = Duration::from_secs(3);

/// Returns what stands for the hash of a password: the sealing of the stand-in does not hide it.
pub(crate) fn secret(password: &[u8]) -> Vec<u8> {
    password.iter().map(|octet| octet ^ 0x55).collect()
}

/// What a router does that is asked to check credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lie {
    /// It says that they are wrong.
    Deny,
    /// It confirms that it was asked, and no more.
    Keep,
    /// It says that they are right, with a grant that nobody has signed.
    Forge,
}

pub(crate) struct Node {
    pub(crate) directory: Directory<StandIn>,
    gone: Option<Time>,
    pub(crate) part: u32,
    pub(crate) events: Vec<Event>,
    /// The passwords of the users of this router, as if the credentials were the password itself.
    pub(crate) passwords: BTreeMap<String, String>,
}

enum Packet {
    Dht { from: NodeId, to: NodeId, octets: Vec<u8> },
    Private { from: NodeId, to: Prefix, octets: Vec<u8> },
}

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) identities: BTreeMap<NodeId, Identity>,
    pub(crate) liars: BTreeMap<NodeId, Lie>,
    pub(crate) random: SplitMix,
    pub(crate) config: Config,
    /// Messages of 100 that are lost.
    pub(crate) loss: u64,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    packets: BTreeMap<u64, Packet>,
    number: u64,
    /// Octets of private messages, for whoever reads them.
    pub(crate) private: Vec<(NodeId, Vec<u8>)>,
    /// Octets of messages that routers on the way read.
    pub(crate) dht_octets: Vec<Vec<u8>>,
}

impl Net {
    /// A network of routers that have started and know each other.
    pub(crate) fn new(count: usize, seed: u64) -> Net {
        Net::with(count, seed, Config::default())
    }

    /// The same with other limits and intervals.
    pub(crate) fn with(count: usize, seed: u64, mut config: Config) -> Net {
        config.dht.extension_bits = 0;
        let mut net = Net {
            now: Time::from_secs(1_000_000),
            nodes: BTreeMap::new(),
            identities: BTreeMap::new(),
            liars: BTreeMap::new(),
            random: SplitMix::new(seed),
            config,
            loss: 0,
            queue: BinaryHeap::new(),
            packets: BTreeMap::new(),
            number: 0,
            private: Vec::new(),
            dht_octets: Vec::new(),
        };
        for _ in 0..count {
            let identity = Search::new(0, &mut net.random).step(1).unwrap();
            net.start(identity, 0);
        }
        net.run(15_000);
        net
    }

    pub(crate) fn start(&mut self, identity: Identity, part: u32) -> NodeId {
        let directory = Directory::new(self.config, identity.clone(), self.now);
        let id = directory.id();
        self.identities.insert(id, identity);
        let node =
            Node { directory, gone: None, part, events: Vec::new(), passwords: BTreeMap::new() };
        self.nodes.insert(id, node);
        self.notice();
        id
    }

    pub(crate) fn crash(&mut self, id: NodeId) {
        self.nodes.get_mut(&id).unwrap().gone = Some(self.now);
    }

    /// Divides the network into the routers of `first` and the others.
    pub(crate) fn divide(&mut self, first: &[NodeId]) {
        for (id, node) in &mut self.nodes {
            node.part = u32::from(!first.contains(id));
        }
        self.notice();
    }

    pub(crate) fn unite(&mut self) {
        self.nodes.values_mut().for_each(|node| node.part = 0);
        self.notice();
    }

    pub(crate) fn up(&self) -> Vec<NodeId> {
        self.nodes.iter().filter(|(_, node)| node.gone.is_none()).map(|(&id, _)| id).collect()
    }

    fn visible(&self, part: u32) -> Vec<NodeId> {
        let is_seen = |node: &Node| node.gone.is_none_or(|at| self.now < at + NOTICED);
        let of_part = self.nodes.iter().filter(|(_, node)| node.part == part && is_seen(node));
        of_part.map(|(&id, _)| id).collect()
    }

    fn notice(&mut self) {
        for id in self.up() {
            let visible = self.visible(self.nodes[&id].part);
            let at = visible.binary_search(&id).unwrap();
            let near = &visible[at.saturating_sub(2)..visible.len().min(at + 3)];
            let others = || near.iter().copied().filter(|&other| other != id);
            let last = visible.len() - 1;
            let partner = if at == 0 { visible.last() } else { visible.first() };
            let partner = partner.filter(|&&other| other != id && (at == 0 || at == last));
            let (now, random) = (self.now, &mut self.random);
            let directory = &mut self.nodes.get_mut(&id).unwrap().directory;
            directory.update_neighbours(now, others(), partner.copied(), random);
        }
    }

    /// Adds a user on a router.
    pub(crate) fn add(&mut self, home: NodeId, name: &str, password: &str) {
        let second = self.now.as_secs() as u32;
        let account = Account { password_set: second, ..Account::default() };
        let node = self.nodes.get_mut(&home).unwrap();
        node.passwords.insert(name.into(), password.into());
        let (account, secret) = (&account, secret(password.as_bytes()));
        let account = (account, &secret[..]);
        node.directory.set_account(self.now, name, account, &mut self.random).unwrap();
        self.collect(home);
    }

    /// Has a user register at a router, with the password. Returns whether that is acknowledged within 12 s.
    pub(crate) fn register(&mut self, at: NodeId, name: &str, password: &str) -> bool {
        if !self.nodes[&at].directory.accounts().is_own(name)
            && self.verify(at, name, password) != Some(Verdict::Right)
        {
            return false;
        }
        let node = self.nodes.get_mut(&at).unwrap();
        let Ok(stored) = node.directory.register(self.now, name, 1_000, &mut self.random) else {
            return false;
        };
        self.collect(at);
        let end = self.now + Duration::from_secs(12);
        let mut is_stored = stored;
        while !is_stored && self.now < end {
            self.run(10);
            let is_it = |event: &Event| matches!(event, Event::Registered { name: other, stored: true } if **other == *name);
            is_stored = self.nodes[&at].events.iter().any(is_it);
        }
        is_stored
    }

    /// Has the password of a user checked by its home.
    pub(crate) fn verify(&mut self, at: NodeId, name: &str, password: &str) -> Option<Verdict> {
        let check = CredentialsCheck {
            name: name.into(),
            method: "REGISTER".into(),
            credentials: password.as_bytes().into(),
        };
        let directory = &mut self.nodes.get_mut(&at).unwrap().directory;
        let id = directory.verify(self.now, check, &mut self.random).unwrap();
        self.collect(at);
        self.wait(at, |event| match event {
            Event::Verified(other, verdict) if *other == id => Some(*verdict),
            _ => None,
        })
    }

    pub(crate) fn ask(&mut self, by: NodeId, name: &str) -> QuestionId {
        let directory = &mut self.nodes.get_mut(&by).unwrap().directory;
        let id = directory.locate(self.now, name, &mut self.random).unwrap();
        self.collect(by);
        id
    }

    /// Returns where a router finds a user; `None` if it is not to be found out.
    pub(crate) fn locate(&mut self, by: NodeId, name: &str) -> Option<Located> {
        let id = self.ask(by, name);
        let whereabouts = self.wait(by, |event| match event {
            Event::Located(other, _, whereabouts) if *other == id => Some(whereabouts.clone()),
            _ => None,
        });
        match whereabouts {
            Whereabouts::Found(located) => Some(located),
            Whereabouts::Unavailable => None,
        }
    }

    /// Returns the routers at which a router finds a user.
    pub(crate) fn routers(&mut self, by: NodeId, name: &str) -> Vec<NodeId> {
        let mut routers: Vec<NodeId> = match self.locate(by, name) {
            Some(located) => located.routers.iter().map(|&(router, _)| router).collect(),
            None => panic!("{name} cannot be looked for"),
        };
        routers.sort();
        routers
    }

    /// Returns all that is listed: names and routers.
    pub(crate) fn list(&mut self, by: NodeId, subject: Subject) -> Vec<(String, NodeId)> {
        self.nodes.get_mut(&by).unwrap().events.clear();
        assert!(self.change(by, |directory, now, random| directory.list(now, subject, random)));
        let end = self.wait(by, |event| match event {
            Event::ListEnded(of, end) if *of == subject => Some(*end),
            _ => None,
        });
        assert_eq!(end, ListEnd::Whole);
        let mut found = Vec::new();
        for event in &self.nodes[&by].events {
            match event {
                Event::Listed(Listed::Accounts(list)) if subject == Subject::Accounts => {
                    found.extend(list.iter().map(|one| (one.name.to_string(), one.router)));
                }
                Event::Listed(Listed::Locations(list)) if subject == Subject::Locations => {
                    found.extend(list.iter().map(|one| (one.name.to_string(), one.router)));
                }
                _ => {}
            }
        }
        found
    }

    pub(crate) fn wait<T>(&mut self, at: NodeId, found: impl Fn(&Event) -> Option<T>) -> T {
        let end = self.now + Duration::from_secs(30);
        while self.now < end {
            if let Some(found) = self.nodes[&at].events.iter().find_map(&found) {
                return found;
            }
            self.run(10);
        }
        panic!("nothing has happened in 30 s");
    }

    /// Does to a directory what a world does.
    pub(crate) fn change<T>(
        &mut self,
        at: NodeId,
        change: impl FnOnce(&mut Directory<StandIn>, Time, &mut SplitMix) -> T,
    ) -> T {
        let changed =
            change(&mut self.nodes.get_mut(&at).unwrap().directory, self.now, &mut self.random);
        self.collect(at);
        changed
    }

    /// Sends a private message.
    pub(crate) fn send_private(&mut self, from: NodeId, to: Prefix, octets: Vec<u8>) {
        self.send(Packet::Private { from, to, octets }, false);
    }

    fn send(&mut self, packet: Packet, is_local: bool) {
        if !is_local && self.random.next_u64() % 100 < self.loss {
            return;
        }
        let delay = if is_local { 0 } else { 5 + self.random.next_u64() % 45 };
        self.queue.push(Reverse((self.now + Duration::from_millis(delay), self.number)));
        self.packets.insert(self.number, packet);
        self.number += 1;
    }

    fn collect(&mut self, id: NodeId) {
        loop {
            let node = self.nodes.get_mut(&id).unwrap();
            while let Some(event) = node.directory.poll_event() {
                if let Event::Judge { id, check, secret, .. } = &event {
                    let own = node.passwords.get(&*check.name);
                    let own = own.map(|password| self::secret(password.as_bytes()));
                    let lie = self.liars.get(&node.directory.id()).copied();
                    let given = secret.as_ref().map(|secret| secret.0.to_vec());
                    let verdict = match given.or(own) {
                        None => Verdict::NoSuchUser,
                        _ if lie == Some(Lie::Deny) => Verdict::Wrong,
                        Some(known) if known == self::secret(&check.credentials) => Verdict::Right,
                        Some(_) => Verdict::Wrong,
                    };
                    if lie != Some(Lie::Keep) {
                        node.directory.judge(self.now, *id, verdict);
                    }
                }
                node.events.push(event);
            }
            let (part, messages) = (node.part, node.directory.take_messages());
            let private = node.directory.take_private();
            if messages.is_empty() && private.is_empty() {
                return;
            }
            let visible = self.visible(part);
            for message in messages {
                self.dht_octets.push(message.octets.clone());
                let to = responsible::<Ring>(visible.iter().copied(), message.to).unwrap_or(id);
                self.send(Packet::Dht { from: id, to, octets: message.octets }, to == id);
            }
            for mut message in private {
                // JUDGED: the end of it is the signature.
                if self.liars.get(&id) == Some(&Lie::Forge) && message.octets[0] == 0x12 {
                    message.octets.last_mut().into_iter().for_each(|octet| *octet ^= 1);
                }
                self.private.push((id, message.octets.clone()));
                self.send_private(id, message.to, message.octets);
            }
        }
    }

    fn deliver(&mut self, packet: &Packet) {
        let (from, to) = match packet {
            Packet::Dht { from, to, .. } => (*from, Some(*to)),
            Packet::Private { from, to, .. } => {
                (*from, self.nodes.keys().copied().find(|&id| to.contains(id)))
            }
        };
        let part = self.nodes.get(&from).map(|node| node.part);
        let Some(to) = to else { return };
        let Some(node) = self.nodes.get_mut(&to) else { return };
        if node.gone.is_some() || part != Some(node.part) {
            return;
        }
        match packet {
            Packet::Dht { octets, .. } => {
                node.directory.handle(self.now, from, octets, &mut self.random);
            }
            Packet::Private { octets, .. } => {
                node.directory.handle_private(self.now, from.prefix(), octets, &mut self.random);
            }
        }
        self.collect(to);
    }

    /// Lets milliseconds pass.
    pub(crate) fn run(&mut self, milliseconds: u64) {
        let end = self.now + Duration::from_millis(milliseconds);
        while self.now < end {
            let before = self.now;
            self.now = (self.now + Duration::from_millis(10)).min(end);
            while let Some(&Reverse((at, number))) = self.queue.peek()
                && at <= self.now
            {
                self.queue.pop();
                let packet = self.packets.remove(&number).unwrap();
                self.deliver(&packet);
            }
            let noticed = |at: Time| (before..self.now).contains(&(at + NOTICED));
            if self.nodes.values().any(|node| node.gone.is_some_and(noticed)) {
                self.notice();
            }
            for id in self.up() {
                let node = self.nodes.get_mut(&id).unwrap();
                if node.directory.poll_timeout().is_some_and(|due| due <= self.now) {
                    node.directory.handle_timeout(self.now, &mut self.random);
                    self.collect(id);
                }
            }
        }
    }
}
