//! Which primary of the database has a user: the slots of Redis Cluster.
//!
//! A database of one server is one shard that has all slots. What the servers of a database say of themselves is checked as a
//! whole: a map with anything wrong in it is refused, and the one before stays.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::config::MAX_SHARDS;
use crate::record;

/// Number of slots (Redis Cluster specification, "Key distribution model").
pub const SLOTS: u16 = 16_384;
/// Maximum length of the name of a host (RFC 1035 section 2.3.4).
const MAX_HOST: usize = 255;

/// CRC-16/XMODEM of each octet.
const CRC: [u16; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        let (mut crc, mut bit) = ((octet as u16) << 8, 0);
        while bit < 8 {
            crc = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
            bit += 1;
        }
        table[octet] = crc;
        octet += 1;
    }
    table
};

fn slot_of_tag(tag: &[u8]) -> u16 {
    let step = |crc: u16, &octet: &u8| (crc << 8) ^ CRC[usize::from((crc >> 8) as u8 ^ octet)];
    tag.iter().fold(0, step) % SLOTS
}

/// Returns the slot of a key: that of its hash tag, which is what is between the first `{` and the next `}`, unless that is
/// empty.
pub fn slot(key: &[u8]) -> u16 {
    let tag = || {
        let rest = &key[key.iter().position(|&b| b == b'{')? + 1..];
        let tag = &rest[..rest.iter().position(|&b| b == b'}')?];
        (!tag.is_empty()).then_some(tag)
    };
    slot_of_tag(tag().unwrap_or(key))
}

/// Returns the slot of a user: that of [`record::key`], whose hash tag begins with the user.
pub fn slot_of_user(user: &[u8]) -> u16 {
    match user.split(|&b| b == b'}').next() {
        Some(tag) if !tag.is_empty() => slot_of_tag(tag),
        _ => slot(&record::key(user)),
    }
}

/// Returns the slot of the leases.
pub fn slot_of_leases() -> u16 {
    slot(record::LEASES.as_bytes())
}

/// A part of the database: a primary, by its address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Shard {
    /// The host.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

impl Shard {
    /// Returns the one shard of a database that has no others.
    pub fn whole() -> Shard {
        Shard { host: "".into(), port: 0 }
    }

    /// Returns whether this is the one shard of a database.
    pub fn is_whole(&self) -> bool {
        self.port == 0
    }

    /// Returns the server at an address that a server of the database has reported.
    ///
    /// # Errors
    /// Fails for what is no host, or no port.
    pub fn new(host: &str, port: i64) -> Result<Shard, BadSlots> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if host.is_empty() || host.len() > MAX_HOST || !host.chars().all(is_name) {
            let start: String = host.chars().take(40).collect();
            return Err(BadSlots { expected: "a host", got: format!("{start:?}") });
        }
        let valid = u16::try_from(port).ok().filter(|port| *port > 0);
        let port = valid.ok_or(BadSlots { expected: "a port", got: port.to_string() })?;
        Ok(Shard { host: host.into(), port })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A map of slots that is not used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSlots {
    /// What was expected.
    pub expected: &'static str,
    /// What came.
    pub got: String,
}

impl fmt::Display for BadSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the map of slots: expected {}, got {}", self.expected, self.got)
    }
}

impl std::error::Error for BadSlots {}

/// Consecutive slots of one primary, as a server of the database reports them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first slot.
    pub first: i64,
    /// The last one.
    pub last: i64,
    /// The primary.
    pub primary: Shard,
}

/// Which primary has which slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slots {
    /// Number of the state of the cluster that this is: a failover or a migration has a greater one.
    epoch: u64,
    /// All primaries, in order.
    shards: Arc<[Shard]>,
    /// First slot, last slot and index of the primary, in order.
    ranges: Vec<(u16, u16, usize)>,
}

impl Slots {
    /// Returns the map of a database that has one server.
    pub fn whole() -> Slots {
        Slots { epoch: 0, shards: [Shard::whole()].into(), ranges: vec![(0, SLOTS - 1, 0)] }
    }

    /// Returns the map of a database of which nothing is known yet.
    pub fn none() -> Slots {
        Slots { epoch: 0, shards: [].into(), ranges: Vec::new() }
    }

    /// Returns the map that has these ranges, in any order. Slots may be missing.
    ///
    /// # Errors
    /// Fails for ranges that are none, overlap, or have more than [`MAX_SHARDS`] primaries.
    pub fn new(epoch: u64, ranges: Vec<Range>) -> Result<Slots, BadSlots> {
        let bad = |expected, got| Err(BadSlots { expected, got });
        if ranges.len() > usize::from(SLOTS) {
            return bad("at most 16384 ranges", ranges.len().to_string());
        }
        let shards: BTreeSet<&Shard> = ranges.iter().map(|range| &range.primary).collect();
        let shards: Arc<[Shard]> = shards.into_iter().cloned().collect();
        let mut sorted = Vec::new();
        for Range { first, last, primary } in &ranges {
            if *first < 0 || last < first || *last >= i64::from(SLOTS) {
                return bad("slots from 0 to 16383", format!("{first} to {last}"));
            }
            let index = shards.partition_point(|shard| shard < primary);
            sorted.push((*first as u16, *last as u16, index));
        }
        sorted.sort();
        if let Some(two) = sorted.windows(2).find(|two| two[1].0 <= two[0].1) {
            return bad("one primary for each slot", format!("two for slot {}", two[1].0));
        }
        match shards.len() {
            0 => bad("slots", "none".to_owned()),
            count if count > MAX_SHARDS => bad("at most 500 primaries", count.to_string()),
            _ => Ok(Slots { epoch, shards, ranges: sorted }),
        }
    }

    /// Returns the number of the state of the cluster that this is.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether both have the same primaries for all slots.
    pub fn is_as(&self, other: &Slots) -> bool {
        self.shards == other.shards && self.ranges == other.ranges
    }

    /// Returns the primary that has a slot.
    pub fn of(&self, slot: u16) -> Option<&Shard> {
        let next = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, index) = self.ranges.get(next.checked_sub(1)?)?;
        self.shards.get(*index).filter(|_| slot <= *last)
    }

    /// Returns all primaries.
    pub fn shards(&self) -> &Arc<[Shard]> {
        &self.shards
    }

    /// Returns the slots at which another primary may begin, or none.
    pub fn boundaries(&self) -> impl Iterator<Item = u16> {
        let ranges = self.ranges.iter();
        let slots = ranges.flat_map(|(first, last, _)| [*first, last + 1]);
        slots.filter(|slot| *slot < SLOTS)
    }

    /// Returns a slot of a primary, another for each number.
    pub fn slot_of(&self, shard: &Shard, number: u64) -> Option<u16> {
        let index = self.shards.binary_search(shard).ok()?;
        let its = || self.ranges.iter().filter(|(.., of)| *of == index);
        let total: u64 = its().map(|(first, last, _)| u64::from(last - first) + 1).sum();
        let mut rest = number.checked_rem(total)?;
        for (first, last, _) in its() {
            let count = u64::from(last - first) + 1;
            if rest < count {
                return Some(first + rest as u16);
            }
            rest -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(first: i64, last: i64, port: i64) -> Range {
        Range { first, last, primary: Shard::new("10.0.0.1", port).unwrap() }
    }

    /// The values of the Redis Cluster specification, and of its command CLUSTER KEYSLOT.
    #[test]
    fn keys_have_the_slots_of_the_specification() {
        assert_eq!(slot(b"123456789"), 0x31c3);
        for (key, expected) in [("foo", 12_182), ("bar", 5061), ("somekey", 11_058), ("", 0)] {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        for (key, tag) in [
            ("{user1000}.following", "user1000"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{hash_tag}", "hash_tag"),
        ] {
            assert_eq!(slot(key.as_bytes()), slot(tag.as_bytes()), "{key}");
        }
        // An empty tag is none: the whole key counts.
        assert_ne!(slot(b"foo{}{bar}"), slot(b"bar"));
        assert_eq!(slot_of_user(b"sip:bob@a"), slot(b"sip:bob@a"));
    }

    proptest! {
        #[test]
        fn the_slot_of_a_user_is_that_of_the_key(
            user in prop::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), any::<u8>()], 0..20),
        ) {
            prop_assert_eq!(slot_of_user(&user), slot(&record::key(&user)));
        }
    }

    #[test]
    fn each_slot_has_its_primary() {
        let slots =
            Slots::new(1, vec![range(8000, 16_383, 2), range(0, 4999, 1), range(5000, 5000, 3)]);
        let slots = slots.unwrap();
        let port = |slot| slots.of(slot).map(|shard| shard.port);
        assert_eq!(
            [0, 4999, 5000, 5001, 7999, 8000, 16_383].map(port),
            [Some(1), Some(1), Some(3), None, None, Some(2), Some(2)]
        );
        assert_eq!(slots.shards().len(), 3);
        for number in 0..20_000 {
            for shard in slots.shards().iter() {
                let slot = slots.slot_of(shard, number).unwrap();
                assert_eq!(slots.of(slot), Some(shard));
            }
        }
        assert_eq!(Slots::whole().of(16_383), Some(&Shard::whole()));
        assert_eq!(Slots::none().of(0), None);
        assert_eq!(Slots::none().slot_of(&Shard::whole(), 3), None);
    }

    #[test]
    fn a_wrong_map_is_refused_with_what_was_expected_and_what_came() {
        let error = |ranges| Slots::new(1, ranges).unwrap_err().to_string();
        for (ranges, what) in [
            (vec![], "expected slots, got none"),
            (vec![range(0, 16_384, 1)], "expected slots from 0 to 16383, got 0 to 16384"),
            (vec![range(-1, 5, 1)], "expected slots from 0 to 16383, got -1 to 5"),
            (vec![range(6, 5, 1)], "expected slots from 0 to 16383, got 6 to 5"),
            (
                vec![range(0, 9, 1), range(9, 20, 2)],
                "one primary for each slot, got two for slot 9",
            ),
        ] {
            assert!(error(ranges).ends_with(what), "{what}");
        }
        let many = (0..501).map(|i| range(i, i, i + 1)).collect();
        assert!(error(many).ends_with("expected at most 500 primaries, got 501"));
        let many = (0..16_385).map(|_| range(0, 0, 1)).collect();
        assert!(error(many).ends_with("expected at most 16384 ranges, got 16385"));
        for (host, port) in [("", 1), ("a b", 1), ("a\r\nb", 1), ("a", 0), ("a", 65_536), ("a", -1)]
        {
            assert!(Shard::new(host, port).is_err(), "{host:?} {port}");
        }
        assert!(Shard::new(&"a".repeat(256), 1).is_err());
        assert_eq!(Shard::new("2001:db8::1", 7000).unwrap().to_string(), "[2001:db8::1]:7000");
    }

    proptest! {
        #[test]
        fn any_ranges_are_refused_or_used(
            ranges in prop::collection::vec((-5..16_500i64, 0..3000i64, 1..9i64), 0..12),
            at in 0..SLOTS,
        ) {
            let all = ranges.iter().map(|(first, count, port)| range(*first, first + count, *port));
            let Ok(slots) = Slots::new(1, all.collect()) else { return Ok(()) };
            let has = |(first, count, _): &&(i64, i64, i64)| (*first..=first + count).contains(&at.into());
            let expected = ranges.iter().find(has).map(|(.., port)| *port as u16);
            prop_assert_eq!(slots.of(at).map(|shard| shard.port), expected);
        }
    }
}
