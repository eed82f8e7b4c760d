//! What passes between a node and its world: commands, reports and events.

use ringway_proxy::keys::SharedSecret;
use ringway_proxy::location::CommitTag;
use ringway_proxy::{AskId, Reply};

#[cfg(doc)]
use crate::config::REPORT_INTERVAL;
use crate::record::{Found, Lease, Message, NodeName, Publication};
use crate::secrets::StoredSecret;
use crate::slots::{Shard, Slots};

/// A command for the database. Each is answered by one [`Report`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Renew the lease of this run: [`Report::Renewed`].
    Renew {
        /// The shard that has the leases.
        shard: Shard,
        /// The run.
        boot: u64,
    },
    /// End the lease of this run: [`Report::Left`].
    Leave {
        /// The shard that has the leases.
        shard: Shard,
        /// The run.
        boot: u64,
    },
    /// Publish changes of this run, and have replicas take them: [`Report::Published`].
    Publish {
        /// The shard that has the users.
        shard: Shard,
        /// The run.
        boot: u64,
        /// The changes.
        changes: Vec<Publication>,
    },
    /// Read users: [`Report::Read`].
    Read {
        /// The shard that has them.
        shard: Shard,
        /// The users.
        users: Vec<Box<[u8]>>,
    },
    /// Read the secrets that nodes share, and make one if one is needed: [`Report::Shared`].
    Share {
        /// The shard that has the leases.
        shard: Shard,
        /// Those that are known, for a database that has lost them.
        known: Vec<StoredSecret>,
    },
    /// Write to a shard, and have replicas take it: [`Report::Probed`].
    Probe {
        /// The shard.
        shard: Shard,
        /// A slot that it has.
        slot: u16,
    },
}

impl Command {
    /// Returns the shard that it is for.
    pub fn shard(&self) -> &Shard {
        match self {
            Command::Renew { shard, .. }
            | Command::Leave { shard, .. }
            | Command::Publish { shard, .. }
            | Command::Read { shard, .. }
            | Command::Share { shard, .. }
            | Command::Probe { shard, .. } => shard,
        }
    }
}

/// What the database has answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The leases of all nodes, and the number of replicas that have this one's; none if a later run of a node of this name
    /// has the lease. `None` if the command has failed.
    Renewed(Option<(Vec<Lease>, u32)>),
    /// What became of each change at this shard; of none if the command has failed.
    Published(Shard, Vec<Written>),
    /// What was found of each user at this shard; of none if the command has failed.
    Read(Shard, Vec<Reading>),
    /// The secrets that nodes share; `None` if the command has failed.
    Shared(Option<Vec<StoredSecret>>),
    /// What has become of the probe of this shard.
    Probed(Shard, Probed),
    /// Which primary has which slot, as the database reports it; `None` if no server has answered.
    Slots(Option<Slots>),
    /// Whether the lease has ended.
    Left(bool),
    /// The connection for a command to this shard was lost, and another carries it.
    Reconnected(Shard),
    /// Changes are reported from now on.
    Subscribed,
    /// Changes are no longer reported.
    Unsubscribed,
    /// A change.
    Heard(Message),
}

/// What the database has done with a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It has it, and so have this many replicas.
    Stored(u32),
    /// A later run of a node of this name has published the user.
    Outrun {
        /// That run.
        boot: u64,
    },
    /// The key of the user has what is not ours.
    Unusable,
    /// Another shard has the user: the map of slots is read again.
    Moved,
    /// It does not have it.
    Failed,
}

/// What has become of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Probed {
    /// This many replicas have it.
    Stored(u32),
    /// Another shard has the slot.
    Moved,
    /// It was not stored.
    Failed,
}

/// What the database knows of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reading {
    /// The nodes.
    Found(Vec<Found>),
    /// The key of the user has what is not ours.
    Unusable,
    /// Another shard has the user: the map of slots is read again.
    Moved,
    /// Nothing was read.
    Failed,
}

/// The state of the database, or of a shard, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// It does not answer.
    Absent,
    /// A later run of a node of this name has the lease.
    Superseded,
    /// It answers, and has too few replicas.
    Unreplicated {
        /// The number of replicas.
        replicas: u32,
    },
    /// Registrations are taken.
    Ready,
}

impl State {
    /// Returns whether nothing is written and read there.
    pub fn is_absent(self) -> bool {
        matches!(self, State::Absent | State::Superseded)
    }
}

/// What the machine has to say to the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A registration is in the database and on the disk, or is not.
    Committed {
        /// The registration.
        tag: CommitTag,
        /// Whether it is.
        stored: bool,
    },
    /// The reply to a question.
    Answered {
        /// The worker.
        worker: u8,
        /// Its question.
        id: AskId,
        /// The reply.
        reply: Reply,
    },
    /// The other nodes that live. It is reported again when another run of one has begun.
    Nodes(Vec<NodeName>),
    /// Nodes whose lease has ended without a word: what waits for them waits in vain.
    Gone(Vec<NodeName>),
    /// The secrets that nodes share, in the order of use.
    Secrets(Vec<SharedSecret>),
    /// A user who is followed ([`Machine::follow`](crate::Machine::follow)) has moved: what is known of the nodes is read again.
    Moved(Box<[u8]>),
    /// Changes may not have been reported: what is known of all users is read again.
    Gap,
    /// The database has another state.
    State(State),
    /// A shard of a database with many has another state.
    Shard(Shard, State),
    /// The key of this user has what is not ours; reported at most once in [`REPORT_INTERVAL`].
    Unusable(Box<[u8]>),
    /// The key of the secrets that nodes share has what is not ours; reported as seldom.
    UnusableSecrets,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Whether registrations are taken.
    pub ready: bool,
    /// Whether the database answers.
    pub present: bool,
    /// The number of its replicas, as it was reported last.
    pub replicas: u32,
    /// Shards of the database.
    pub shards: usize,
    /// Those that take registrations.
    pub shards_present: usize,
    /// Those that do not answer.
    pub shards_absent: usize,
    /// Other nodes that live.
    pub nodes: usize,
    /// Users of this node.
    pub users: usize,
    /// Registrations that wait for the database.
    pub waiting: usize,
    /// Requests that wait for a read, or for a node that is being restarted.
    pub asks: usize,
    /// Users of whom something is remembered.
    pub cached: usize,
    /// Changes that are in the database.
    pub published: u64,
    /// Users that were read.
    pub read: u64,
    /// Registrations refused because the shard of the user is absent or has too few replicas, or too many wait.
    pub refused: u64,
    /// Registrations that the database did not take in time.
    pub failed: u64,
    /// Questions without an answer.
    pub unanswered: u64,
    /// Times at which a shard became absent.
    pub outages: u64,
    /// Times at which changes were no longer reported.
    pub gaps: u64,
    /// Changes that were reported of users of whom something is remembered.
    pub invalidated: u64,
    /// Changes and reads that found a key with what is not ours.
    pub unusable: u64,
}
