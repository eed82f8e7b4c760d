//! Every limit and interval by name.

use ringway_proxy::config::NodeKey;
use ringway_sansio::Duration;

use crate::record::NodeName;

/// Time for which a node lives without renewing its lease.
pub const LEASE: Duration = Duration::from_secs(5);
/// Interval at which it is renewed.
pub const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval of renewals when a run of another node is heard of that is not known: it has begun.
pub const MEET_INTERVAL: Duration = Duration::from_millis(100);
/// Pause before the lease is renewed after a failure.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Time within which the database must have renewed a lease, or counts as absent.
pub const RENEW_LIMIT: Duration = Duration::from_secs(1);
/// Time within which a registration must be in the database, or is refused.
pub const COMMIT_LIMIT: Duration = Duration::from_secs(1);
/// Time that the database has for its replicas to acknowledge a change. Shorter than [`COMMIT_LIMIT`].
pub const REPLICA_LIMIT: Duration = Duration::from_millis(600);
/// Time that a call waits for the nodes at which a user is registered.
pub const READ_LIMIT: Duration = Duration::from_millis(500);
/// Time for which a read is used that a message has overtaken: the request that has asked for it must find it.
pub const READ_GRACE: Duration = Duration::from_secs(1);
/// Time after which what was read is read again, even if no change was reported.
pub const MAX_AGE: Duration = Duration::from_secs(60);
/// Time for which the database remembers that a user is no longer at a node, so that an older change that comes late has no
/// effect.
pub const REMOVED: Duration = Duration::from_secs(60);
/// Pause before a user is published again whose key has what is not ours.
pub const UNUSABLE_PAUSE: Duration = Duration::from_secs(30);
/// Interval at which such a key is reported, at most.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Time for which a node that has left is awaited: requests for users who are registered only there wait for it. Shorter than
/// the time that a worker waits for an answer.
pub const HOLD: Duration = Duration::from_secs(8);
/// Maximum number of users in one command.
pub const MAX_BATCH: usize = 512;
/// Number of users at first that are published again in one command.
pub const FIRST_REPAIR: usize = 16;
/// By how many that number grows with each command that takes no longer than [`REPAIR_TIME`]; it is halved by one that does.
pub const REPAIR_STEP: usize = 8;
/// Time that a command may take while all users are published again. All nodes do so at once when the database has lost
/// something, and registrations wait behind it.
pub const REPAIR_TIME: Duration = Duration::from_millis(50);
/// Maximum number of users that a repair looks at for one command: it looks for those of one shard among all, and workers wait
/// meanwhile.
pub const MAX_LOOKED: usize = 4096;
/// Pause before it looks at the next, if none of them was of the shard.
pub const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// Maximum number of registrations that wait for the database.
pub const MAX_WAITING: usize = 20_000;
/// Maximum number of requests that wait for a read.
pub const MAX_ASKS: usize = 10_000;
/// Number of users whose nodes are remembered, at least; at most twice as many.
pub const CACHED_USERS: usize = 50_000;
/// Maximum number of primaries of a database.
pub const MAX_SHARDS: usize = 500;
/// Pause before a shard is asked again whose slots have moved.
pub const MOVED_PAUSE: Duration = Duration::from_millis(50);
/// Time for which a map of slots is ignored that is older than the one in use.
pub const STALE_MAP: Duration = Duration::from_secs(30);
/// Maximum number of nodes.
pub const MAX_NODES: usize = 1000;
/// Maximum number of nodes that one user is registered at.
pub const MAX_NODES_PER_USER: usize = 64;

/// What a node has to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its name, by which others reach it.
    pub name: NodeName,
    /// Number of this run: greater than that of any run of a node of this name before.
    pub boot: u64,
    /// Number of replicas that must have a registration before it is acknowledged.
    pub replicas: u32,
    /// Whether the database has many shards, and reports which.
    pub sharded: bool,
    /// The secret by which this run recognises requests of other nodes.
    pub key: NodeKey,
}
