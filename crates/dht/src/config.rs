//! Every limit and interval by name. Each limit has a counter where it is enforced.

use ringway_mesh::config::{APPLICATION_BURST, APPLICATION_RATE};
use ringway_sansio::time::Duration;

pub use crate::shares::Rate;

/// Maximum length in octets of a name.
pub const MAX_NAME: usize = 255;
/// Maximum length in octets of a value.
pub const MAX_VALUE: usize = 512;
/// Keepers of a record beside its owner, on each side of the ring.
pub const BESIDE: usize = 2;
/// Keepers of a record: its owner and those beside it.
pub const KEEPERS: usize = 1 + 2 * BESIDE;
/// Keepers that have a record when it counts as stored, and that deny it when it counts as absent. Any two sets of so many
/// keepers of one record have a member in common.
pub const QUORUM: usize = KEEPERS / 2 + 1;
/// Maximum number of messages of a look-up.
pub const MAX_ATTEMPTS: u8 = 32;
/// Maximum number of records of one name in an answer.
pub const MAX_OF_NAME: usize = 64;
/// Lifetime in seconds from which on a record is renewed without being sent again.
pub const MIN_RENEWABLE: u32 = 120;
/// Maximum lifetime in seconds of a record.
pub const MAX_LIFETIME: u32 = 86_400;

/// A quarter of what the mesh allows to its applications.
const SHARE: Rate = Rate { rate: APPLICATION_RATE / 4, burst: APPLICATION_BURST / 4 };

/// Sizes and intervals of a router's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Records that are kept for others and for this router.
    pub records: usize,
    /// Records of one signer.
    pub records_of_signer: usize,
    /// Records with one name, of different signers; at most [`MAX_OF_NAME`].
    pub records_of_name: usize,
    /// Records of this router.
    pub publications: usize,
    /// Records of this router that are being written at a time. Others wait.
    pub writes: usize,
    /// Look-ups under way.
    pub look_ups: usize,
    /// Time after which a write or a look-up is given up.
    pub patience: Duration,
    /// Least time to wait for an answer.
    pub min_wait: Duration,
    /// Maximum time to wait for an answer.
    pub max_wait: Duration,
    /// Time after which a write that was given up is begun again.
    pub pause: Duration,
    /// Interval between digests while nothing changes. It varies by a quarter of it.
    pub repair: Duration,
    /// Time without a change of the routers beside this one before which it neither denies a record nor believes that the
    /// network is small.
    pub settle: Duration,
    /// Records that are sent to other keepers in one turn of repair, and the interval of turns.
    pub repair_burst: usize,
    /// See `repair_burst`.
    pub repair_pace: Duration,
    /// Records that wait for their turn.
    pub repair_queue: usize,
    /// Records that were renewed here, and of which other keepers are not notified yet.
    pub renewals: usize,
    /// Other routers whose rates are known.
    pub origins: usize,
    /// Messages a second that are taken from one other router, and at once; eight times as many from those beside this one.
    pub origin_rate: u32,
    /// See `origin_rate`.
    pub origin_burst: u32,
    /// What writes of this router's records may cost.
    pub own_writes: Rate,
    /// What answers to questions of other routers may cost. Together with the others it should be at most what the mesh
    /// allows to its applications.
    pub answers: Rate,
    /// What may be spent to pass on what other routers write, and to acknowledge it.
    pub passing_on: Rate,
    /// What may be spent to compare with the routers beside this one, and to send them what they lack.
    pub repairs: Rate,
    /// Zero bits that hash extensions of identities must have.
    pub extension_bits: u8,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            records: 32_768,
            records_of_signer: 10_240,
            records_of_name: 8,
            publications: 10_240,
            writes: 32,
            look_ups: 256,
            patience: Duration::from_secs(5),
            min_wait: Duration::from_millis(100),
            max_wait: Duration::from_secs(1),
            pause: Duration::from_secs(2),
            repair: Duration::from_secs(20),
            settle: Duration::from_secs(5),
            repair_burst: 8,
            repair_pace: Duration::from_millis(50),
            repair_queue: 1_024,
            renewals: 4_096,
            origins: 1_024,
            origin_rate: 32,
            origin_burst: 256,
            own_writes: SHARE,
            answers: SHARE,
            passing_on: SHARE,
            repairs: SHARE,
            extension_bits: ringway_mesh::identity::HASH_EXTENSION_BITS,
        }
    }
}
