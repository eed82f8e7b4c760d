//! Routers that lie: they route as others do, and misuse the directory.

use std::collections::{BTreeMap, VecDeque};

use ringway_dht::neighbours::Leaves;
use ringway_dht::wire::Packet;
use ringway_dht::{Draft, Record};
use ringway_directory::config::KIND_ACCOUNT;
use ringway_directory::{Account, Command, Secret};
use ringway_mesh::crypto::StandIn;
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::Search;
use ringway_mesh::metric::Space;
use ringway_mesh::{Identity, NodeId, Ring};
use ringway_sansio::{Duration, Random, SplitMix, Time};
use serde::Deserialize;

use super::users::{DOMAIN, name};

/// Time between two acts of a hostile router.
const EVERY: Duration = Duration::from_secs(1);
/// Names that a router claims or adds in one act, and in all.
const NAMES: u32 = 50;
const MAX_NAMES: u32 = 2_000;
/// Messages that are recorded and sent again, and how many in one act.
const RECORDED: usize = 512;
const REPLAYED: usize = 16;
/// Identities of which the nearest to a key are taken.
const CANDIDATES: u32 = 20_000;
/// Lifetime of a record with a lie, s.
const LIFETIME: u32 = 86_400;

/// What a hostile router does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// It drops all messages of the directory: keeps nothing and answers nothing.
    Drop,
    /// It claims to be the home of users of others, and to have them registered. As a keeper it answers that its own claim
    /// is the only one.
    Forge,
    /// It sends messages of others again.
    Replay,
    /// It adds as many names as it can, so that others keep no records of users.
    Hoard,
    /// Five routers, whose ids were sought for it, are the nearest to each key of one user, and drop what is for them.
    Eclipse,
    /// As a deputy of a home that is silent it calls each password wrong, and keeps its share.
    Betray,
}

/// The first octets of private messages of deputies (`crates/directory/src/private.rs`): CHECK, RELEASE, PROBED and JUDGED.
const CHECK: u8 = 0x18;
const RELEASE: u8 = 0x19;
const PROBED: u8 = 0x14;
const JUDGED: u8 = 0x12;
/// The verdict that a password is wrong.
const WRONG: u8 = 1;

/// A hostile router.
#[derive(Debug)]
pub(super) struct Hostile {
    attack: Attack,
    identity: Identity,
    next: Time,
    names: u32,
    recorded: VecDeque<(NodeId, Vec<u8>)>,
}

impl Hostile {
    pub(super) fn new(attack: Attack, identity: Identity, from: Time) -> Hostile {
        Hostile { attack, identity, next: from, names: 0, recorded: VecDeque::new() }
    }

    /// Returns the lie with which it answers a question, as the router beside `leaves`.
    pub(super) fn lie(&self, octets: &[u8], leaves: &Leaves) -> Option<Vec<u8>> {
        let Ok(Packet::Get { request, kind: KIND_ACCOUNT, name }) = Packet::parse(octets) else {
            return None;
        };
        let value = Account::default().to_octets();
        let draft = Draft { kind: KIND_ACCOUNT, name, value: &value, lifetime: LIFETIME };
        let version = Sequence { epoch: u32::MAX, count: 0 };
        let record = Record::sign::<StandIn>(&self.identity, version, &draft).ok()?;
        let found = Packet::Found {
            request,
            index: 0,
            count: 1,
            settled: true,
            aside: false,
            leaves: leaves.clone(),
            rest: LIFETIME,
            record,
        };
        (self.attack == Attack::Forge && self.names > 0).then(|| found.to_octets())
    }

    /// Returns what it answers a private message with, instead of handling it.
    pub(super) fn betrays(&self, now: Time, octets: &[u8]) -> Option<Vec<Vec<u8>>> {
        if self.attack != Attack::Betray || now < self.next {
            return None;
        }
        match octets {
            [CHECK, rest @ ..] => {
                // Behind the id of the home.
                let request = rest.get(8..12)?;
                let judged = [&[JUDGED], request, &[WRONG]].concat();
                Some(vec![[&[PROBED], request].concat(), judged])
            }
            [RELEASE, ..] => Some(Vec::new()),
            _ => None,
        }
    }

    /// Returns whether a message of the directory is handled, and records it.
    pub(super) fn hears(&mut self, now: Time, origin: NodeId, octets: &[u8]) -> bool {
        match self.attack {
            Attack::Drop | Attack::Eclipse => return now < self.next,
            Attack::Replay => {
                if self.recorded.len() == RECORDED {
                    self.recorded.pop_front();
                }
                self.recorded.push_back((origin, octets.to_vec()));
            }
            Attack::Forge | Attack::Hoard | Attack::Betray => {}
        }
        true
    }

    /// Returns when it acts next.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let acts = matches!(self.attack, Attack::Forge | Attack::Replay | Attack::Hoard);
        acts.then_some(self.next)
    }

    /// Returns what it has its directory do, and what it sends: the key, and the octets.
    pub(super) fn act(
        &mut self,
        now: Time,
        users: u32,
        random: &mut SplitMix,
    ) -> (Vec<Command>, Vec<(NodeId, Vec<u8>)>) {
        let (mut commands, mut sent) = (Vec::new(), Vec::new());
        if self.poll_timeout().is_none_or(|at| at > now) {
            return (commands, sent);
        }
        self.next = now + EVERY;
        if self.attack == Attack::Replay {
            for _ in 0..REPLAYED.min(self.recorded.len()) {
                let at = random.next_u64() as usize % self.recorded.len();
                let (origin, octets) = &self.recorded[at];
                // To the one that it came from, or to anybody.
                let to =
                    if at.is_multiple_of(2) { *origin } else { NodeId::new(random.next_u64()) };
                sent.push((to, octets.clone()));
            }
            return (commands, sent);
        }
        for _ in 0..NAMES {
            if self.names == MAX_NAMES {
                break;
            }
            self.names += 1;
            let draw = random.next_u64();
            let name: Box<str> = match self.attack {
                Attack::Forge => format!("{}@{DOMAIN}", name((draw % u64::from(users)) as u32)),
                _ => format!("{draw:x}@{DOMAIN}"),
            }
            .into();
            let account = Account::default();
            commands.push(Command::SetAccount {
                name: name.clone(),
                account,
                secret: Secret::default(),
            });
            commands.push(Command::Register { name, preference: 1_000 });
        }
        (commands, sent)
    }
}

/// Replaces identities by those nearest to keys, five of many that were drawn for each. Returns the nodes that have them.
pub(super) fn besiege(
    identities: &mut [Identity],
    keys: &[NodeId],
    seed: u64,
) -> BTreeMap<u32, Attack> {
    let mut random = SplitMix::new(seed ^ 0x0ec1_195e);
    let draw = |_| Search::new(0, &mut random).step(1);
    let candidates: Vec<Identity> = (0..CANDIDATES).filter_map(draw).collect();
    let mut taken = BTreeMap::new();
    // The last routers: the first user is at home at the first.
    let mut nodes = (0..identities.len()).rev();
    for &key in keys {
        let mut order: Vec<&Identity> = candidates.iter().collect();
        order.sort_unstable_by_key(|identity| Ring::distance(identity.id(), key));
        for identity in order.into_iter().take(5) {
            if let Some(node) = nodes.next() {
                identities[node] = identity.clone();
                taken.insert(node as u32, Attack::Eclipse);
            }
        }
    }
    taken
}
