//! Every limit and interval by name. Each limit has a counter where it is enforced.

use ringway_mesh::config::{APPLICATION_BURST, APPLICATION_RATE};
use ringway_sansio::time::Duration;

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
/// Claims of one name in an answer: of the one who has the name, and of another, so that it is known to be disputed.
pub const MAX_CLAIMS: usize = 2;
/// Lifetime in seconds from which on a record is renewed without being sent again.
pub const MIN_RENEWABLE: u32 = 120;
/// Maximum lifetime in seconds of a record.
pub const MAX_LIFETIME: u32 = 86_400;

/// A quarter of what the mesh allows to its applications, and `eighths` of what it allows at once.
const fn share(eighths: u32) -> Rate {
    Rate { rate: APPLICATION_RATE / 4, burst: APPLICATION_BURST / 8 * eighths }
}

/// A rate in octet hops a second, and what may be spent at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Octet hops a second, at least 1.
    pub rate: u32,
    /// Octet hops at once.
    pub burst: u32,
}

impl Rate {
    /// Returns the time in which so much is earned by one of `parts` parts of the rate.
    pub(crate) fn time(self, cost: u64, parts: u64) -> Duration {
        let nanos = cost.saturating_mul(1_000_000_000).saturating_mul(parts);
        Duration::from_nanos(nanos / u64::from(self.rate.max(1)))
    }
}

/// Kinds of records: a set of octets.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kinds([u64; 4]);

impl Kinds {
    /// Returns the set of no kinds.
    pub const fn none() -> Self {
        Kinds([0; 4])
    }

    /// Returns this set and one more kind.
    #[must_use]
    pub const fn with(mut self, kind: u8) -> Self {
        self.0[kind as usize / 64] |= 1 << (kind % 64);
        self
    }

    /// Returns whether a kind is in the set.
    pub const fn contains(&self, kind: u8) -> bool {
        self.0[kind as usize / 64] & 1 << (kind % 64) != 0
    }
}

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
    /// Withdrawals of this router that are remembered while what they withdraw may last.
    pub withdrawals: usize,
    /// Records of this router that are being written at a time. Others wait.
    pub writes: usize,
    /// Look-ups under way.
    pub look_ups: usize,
    /// Scans under way.
    pub scans: usize,
    /// Records that a scan returns.
    pub scan_records: usize,
    /// Kinds of which this router lists the records that it owns to any other router.
    pub listable: Kinds,
    /// Kinds of which a name has one holder: whose record keepers had first. What they have had first they find out together.
    pub claims: Kinds,
    /// Kinds whose records are named by the id of their signer: nobody else's record with that name is taken.
    pub own_names: Kinds,
    /// Time after which a write is given up.
    pub patience: Duration,
    /// Time after which a look-up is given up: as long as the mesh may take to mend the ring.
    pub look_up_patience: Duration,
    /// Time after which a thorough look-up ends with what a quorum of keepers has that are not settled.
    pub partial_patience: Duration,
    /// Time for which a look-up of a claim that others dispute waits for the last keepers.
    pub dispute_patience: Duration,
    /// Time for which a keeper that has a claim does not know whether it was the first.
    pub dispute_age: Duration,
    /// Interval at which a keeper asks the others who has claimed a disputed name first.
    pub dispute_pace: Duration,
    /// Disputed names about which a keeper still has to ask.
    pub disputes: usize,
    /// Of these, names that one signer has claimed last.
    pub disputes_of_signer: usize,
    /// Least time to wait for an answer.
    pub min_wait: Duration,
    /// Maximum time to wait for an answer.
    pub max_wait: Duration,
    /// Time after which a write that was given up is begun again.
    pub pause: Duration,
    /// Interval between the first digests after the routers beside this one have changed. It varies by a quarter of it.
    pub repair: Duration,
    /// Interval between digests while nothing changes. It varies as well.
    pub rest: Duration,
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
    /// What all messages may cost: what the mesh allows to its applications.
    pub budget: Rate,
    /// What writes of this router's records may cost when not much more than the shares of the budget is there.
    pub own_writes: Rate,
    /// What scans may cost.
    pub listing: Rate,
    /// What answers to questions of other routers may cost. Together with the next three and own writes it should be at most
    /// what the mesh allows to its applications.
    pub answers: Rate,
    /// What lists for other routers may cost. They are long, and nobody waits for them as a caller waits for an answer.
    pub lists: Rate,
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
            withdrawals: 1_024,
            writes: 32,
            look_ups: 256,
            scans: 2,
            scan_records: 20_000,
            listable: Kinds::none(),
            claims: Kinds::none(),
            own_names: Kinds::none(),
            patience: Duration::from_secs(5),
            look_up_patience: Duration::from_secs(10),
            partial_patience: Duration::from_secs(1),
            dispute_patience: Duration::from_secs(1),
            dispute_age: Duration::from_secs(60),
            dispute_pace: Duration::from_secs(2),
            disputes: 1_024,
            disputes_of_signer: 64,
            min_wait: Duration::from_millis(100),
            max_wait: Duration::from_secs(1),
            pause: Duration::from_secs(2),
            repair: Duration::from_secs(20),
            rest: Duration::from_secs(60),
            settle: Duration::from_secs(5),
            repair_burst: 8,
            repair_pace: Duration::from_millis(50),
            repair_queue: 1_024,
            renewals: 4_096,
            origins: 1_024,
            origin_rate: 32,
            origin_burst: 256,
            budget: Rate { rate: APPLICATION_RATE, burst: APPLICATION_BURST },
            own_writes: share(1),
            listing: Rate { rate: APPLICATION_RATE / 4, burst: APPLICATION_BURST / 4 * 3 },
            answers: Rate { rate: APPLICATION_RATE / 16 * 3, burst: APPLICATION_BURST / 8 * 2 },
            lists: Rate { rate: APPLICATION_RATE / 16, burst: APPLICATION_BURST / 8 },
            passing_on: share(2),
            repairs: share(2),
            extension_bits: ringway_mesh::identity::HASH_EXTENSION_BITS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_kinds_has_those_that_were_put_in() {
        let kinds = Kinds::none().with(0).with(63).with(64).with(255);
        let has: Vec<u8> = (0..=255).filter(|&kind| kinds.contains(kind)).collect();
        assert_eq!(has, [0, 63, 64, 255]);
    }
}
