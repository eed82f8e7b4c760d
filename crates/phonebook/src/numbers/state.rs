//! What a router must remember across a restart, and its octets.
//!
//! Octets of a state begin with their version. Lists are preceded by their length (4), texts by theirs (1).

use std::collections::{BTreeMap, BTreeSet};

use ringway_sansio::{Malformed, Reader};

use super::Node;
use super::ranges::{Range, Ranges};
use super::space::{BLOCK, Tag};
use super::wire::{
    put_optional, put_range, put_tag, read_flag, read_optional, read_range, read_tag,
};

/// The version of the form.
const VERSION: u8 = 1;
/// Maximum length of a user's name in octets.
pub const MAX_USER: usize = 255;
/// Maximum number of ranges that a router owns. A grant that would make more is refused.
pub const MAX_RANGES: usize = 4_096;
/// Maximum number of users at a router, and of numbers that were released and rest.
pub const MAX_SLOTS: usize = 65_536;
/// Maximum number of grants that no ACK has come for.
pub const MAX_GRANTS: usize = 256;
/// Maximum number of accepted grants that no DONE has come for.
pub const MAX_ACCEPTED: usize = 256;
/// Maximum number of earlier networks whose numbers are valid.
pub const MAX_LEGACY: usize = 4;
/// Maximum number of routers whose blocks were reclaimed.
pub const MAX_BANNED: usize = 64;
/// Maximum number of censuses by which this router has lost its blocks that it remembers.
pub const MAX_RESETS: usize = 8;

/// Who has a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A user.
    User(Box<str>),
    /// Nobody until this time, in seconds since the epoch: a user had it.
    Nobody(u64),
}

/// Blocks that are handed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The router that asked.
    pub to: Node,
    /// Its incarnation.
    pub incarnation: u64,
    /// Its request.
    pub request: u64,
    /// The network of the blocks.
    pub tag: Tag,
    /// The blocks.
    pub blocks: Ranges,
    /// The router has lost its state since: nobody knows what became of the blocks.
    pub orphan: bool,
}

/// Numbers of a network that this router has left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Legacy {
    /// The network.
    pub tag: Tag,
    /// The users by their numbers.
    pub users: BTreeMap<u32, Box<str>>,
}

/// A census that this router takes part in, or has taken part in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Freeze {
    /// The census.
    pub census: u64,
    /// Whose it is.
    pub by: Node,
}

/// What a router must remember.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// A random number that is as old as the state.
    pub incarnation: u64,
    /// The network.
    pub home: Option<Tag>,
    /// Blocks of it that this router owns and that no number of is used.
    pub free: Ranges,
    /// The used numbers. This router owns their blocks.
    pub slots: BTreeMap<u32, Holder>,
    /// Earlier networks, the latest last.
    pub legacy: Vec<Legacy>,
    /// Blocks that are handed over and belong to neither side until the other acknowledges them.
    pub grants: BTreeMap<u64, Grant>,
    /// Grants that this router has accepted and that their givers may not have removed: giver and grant.
    pub accepted: BTreeSet<(Node, u64)>,
    /// Routers that have been granted blocks of this network.
    pub kin: BTreeSet<Node>,
    /// Some of them are not in `kin` any longer.
    pub kin_incomplete: bool,
    /// Routers that own nothing any longer, and by which census.
    pub banned: BTreeMap<Node, u64>,
    /// Censuses by which this router has lost its blocks, the latest last.
    pub resets: Vec<u64>,
    /// While there is one, no grant is accepted.
    pub freeze: Option<Freeze>,
}

impl State {
    /// Returns the blocks of a network that this router owns, the used ones too.
    pub fn owned(&self, tag: Tag) -> Ranges {
        let mut owned = Ranges::default();
        if self.home == Some(tag) {
            owned = self.free.clone();
            insert_blocks(&mut owned, self.slots.keys());
        }
        for legacy in self.legacy.iter().filter(|legacy| legacy.tag == tag) {
            insert_blocks(&mut owned, legacy.users.keys());
        }
        owned
    }

    /// Returns the blocks of a network that this router owns or is handing over to a router that has not lost its state.
    pub fn held(&self, tag: Tag) -> Ranges {
        let mut held = self.owned(tag);
        let grants = self.grants.values().filter(|grant| grant.tag == tag && !grant.orphan);
        grants.for_each(|grant| held.insert_all(&grant.blocks));
        held
    }

    /// Returns the octets.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.incarnation.to_be_bytes());
        put_optional(&mut out, self.home);
        put_set(&mut out, &self.free);
        put_length(&mut out, self.slots.len());
        for (number, holder) in &self.slots {
            out.extend(number.to_be_bytes());
            match holder {
                Holder::User(user) => put_text(&mut out, user),
                Holder::Nobody(until) => {
                    out.push(0);
                    out.extend(until.to_be_bytes());
                }
            }
        }
        put_length(&mut out, self.legacy.len());
        for legacy in &self.legacy {
            put_tag(&mut out, legacy.tag);
            put_length(&mut out, legacy.users.len());
            for (number, user) in &legacy.users {
                out.extend(number.to_be_bytes());
                put_text(&mut out, user);
            }
        }
        put_length(&mut out, self.grants.len());
        for (id, grant) in &self.grants {
            [*id, grant.to, grant.incarnation, grant.request]
                .iter()
                .for_each(|number| out.extend(number.to_be_bytes()));
            put_tag(&mut out, grant.tag);
            out.push(grant.orphan.into());
            put_set(&mut out, &grant.blocks);
        }
        put_pairs(&mut out, self.accepted.iter().copied());
        put_numbers(&mut out, self.kin.iter().copied());
        out.push(self.kin_incomplete.into());
        put_pairs(&mut out, self.banned.iter().map(|(node, census)| (*node, *census)));
        put_numbers(&mut out, self.resets.iter().copied());
        put_pairs(&mut out, self.freeze.iter().map(|freeze| (freeze.census, freeze.by)));
        out
    }

    /// Parses the octets of a state.
    ///
    /// # Errors
    /// Octets that are no state.
    pub fn parse(octets: &[u8]) -> Result<State, Malformed> {
        let mut reader = Reader::new("expected a whole state of short numbers", octets);
        let reader = &mut reader;
        if reader.u8()? != VERSION {
            return Err(reader.fault("expected version 1 of the state of short numbers"));
        }
        let (incarnation, home) = (reader.u64()?, read_optional(reader)?);
        let (free, slots) = (read_set(reader, MAX_RANGES)?, read_slots(reader)?);
        let legacy = read_list(reader, MAX_LEGACY, read_legacy)?;
        let grants = read_list(reader, MAX_GRANTS, read_grant)?.into_iter().collect();
        let accepted = read_list(reader, MAX_ACCEPTED, read_pair)?.into_iter().collect();
        let kin =
            read_list(reader, super::wire::MAX_KIN, |reader| reader.u64())?.into_iter().collect();
        let kin_incomplete = read_flag(reader)?;
        let banned = read_list(reader, MAX_BANNED, read_pair)?.into_iter().collect();
        let resets = read_list(reader, MAX_RESETS, |reader| reader.u64())?;
        let freeze = read_list(reader, 1, read_pair)?.pop();
        let freeze = freeze.map(|(census, by)| Freeze { census, by });
        reader.clone().end()?;
        Ok(State {
            incarnation,
            home,
            free,
            slots,
            legacy,
            grants,
            accepted,
            kin,
            kin_incomplete,
            banned,
            resets,
            freeze,
        })
    }
}

fn insert_blocks<'a>(ranges: &mut Ranges, numbers: impl Iterator<Item = &'a u32>) {
    let mut before = None;
    for block in numbers.map(|number| number / BLOCK) {
        if before != Some(block) {
            ranges.insert(Range { first: block, last: block });
        }
        before = Some(block);
    }
}

fn put_length(out: &mut Vec<u8>, length: usize) {
    // Every list of a state has a limit far below.
    out.extend((length as u32).to_be_bytes());
}

/// Writes a text of 1 to 255 octets.
fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn put_set(out: &mut Vec<u8>, ranges: &Ranges) {
    put_length(out, ranges.len());
    ranges.iter().for_each(|range| put_range(out, range));
}

fn put_numbers(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>) {
    put_length(out, numbers.len());
    numbers.for_each(|number| out.extend(number.to_be_bytes()));
}

fn put_pairs(out: &mut Vec<u8>, pairs: impl Iterator<Item = (u64, u64)>) {
    let pairs: Vec<_> = pairs.collect();
    put_length(out, pairs.len());
    for (one, other) in pairs {
        out.extend(one.to_be_bytes());
        out.extend(other.to_be_bytes());
    }
}

fn read_list<T>(
    reader: &mut Reader<'_>,
    max: usize,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.u32()? as usize;
    if count > max {
        return Err(reader.fault("expected a list of a state within its limit"));
    }
    (0..count).map(|_| read(reader)).collect()
}

fn read_pair(reader: &mut Reader<'_>) -> Result<(u64, u64), Malformed> {
    Ok((reader.u64()?, reader.u64()?))
}

fn read_set(reader: &mut Reader<'_>, max: usize) -> Result<Ranges, Malformed> {
    Ok(read_list(reader, max, read_range)?.into_iter().collect())
}

fn read_text(reader: &mut Reader<'_>, length: u8) -> Result<Box<str>, Malformed> {
    let octets = reader.take(length.into())?;
    core::str::from_utf8(octets).map(Box::from).map_err(|_| reader.fault("expected UTF-8"))
}

fn read_slots(reader: &mut Reader<'_>) -> Result<BTreeMap<u32, Holder>, Malformed> {
    let slot = |reader: &mut Reader<'_>| {
        let number = reader.u32()?;
        Ok(match reader.u8()? {
            0 => (number, Holder::Nobody(reader.u64()?)),
            length => (number, Holder::User(read_text(reader, length)?)),
        })
    };
    Ok(read_list(reader, MAX_SLOTS, slot)?.into_iter().collect())
}

fn read_legacy(reader: &mut Reader<'_>) -> Result<Legacy, Malformed> {
    let tag = read_tag(reader)?;
    let user = |reader: &mut Reader<'_>| {
        let (number, length) = (reader.u32()?, reader.u8()?);
        Ok((number, read_text(reader, length)?))
    };
    Ok(Legacy { tag, users: read_list(reader, MAX_SLOTS, user)?.into_iter().collect() })
}

fn read_grant(reader: &mut Reader<'_>) -> Result<(u64, Grant), Malformed> {
    let (id, to) = read_pair(reader)?;
    let (incarnation, request) = read_pair(reader)?;
    let (tag, orphan) = (read_tag(reader)?, read_flag(reader)?);
    let blocks = read_set(reader, MAX_RANGES)?;
    Ok((id, Grant { to, incarnation, request, tag, blocks, orphan }))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn full() -> State {
        let (home, old) = (Tag { created: 1, random: 2 }, Tag { created: 3, random: 4 });
        let range = |first, last| [Range { first, last }].into_iter().collect::<Ranges>();
        let grant = Grant {
            to: 7,
            incarnation: 8,
            request: 9,
            tag: home,
            blocks: range(70, 79),
            orphan: false,
        };
        State {
            incarnation: 5,
            home: Some(home),
            free: range(30, 39),
            slots: BTreeMap::from([
                (200, Holder::User("alice".into())),
                (219, Holder::Nobody(1_000)),
            ]),
            legacy: vec![Legacy { tag: old, users: BTreeMap::from([(500, "alice".into())]) }],
            grants: BTreeMap::from([
                (11, grant.clone()),
                (12, Grant { orphan: true, blocks: range(90, 99), ..grant }),
            ]),
            accepted: BTreeSet::from([(7, 13)]),
            kin: BTreeSet::from([7]),
            kin_incomplete: true,
            banned: BTreeMap::from([(14, 15)]),
            resets: vec![16],
            freeze: Some(Freeze { census: 17, by: 18 }),
        }
    }

    #[test]
    fn a_state_is_parsed_as_it_was_written_and_never_in_part() {
        let state = full();
        let octets = state.to_octets();
        assert_eq!(State::parse(&octets), Ok(state));
        for length in 0..octets.len() {
            assert!(State::parse(&octets[..length]).is_err(), "{length}");
        }
        assert!(State::parse(&[&octets[..], &[0]].concat()).is_err());
        assert_eq!(State::parse(&State::default().to_octets()), Ok(State::default()));
    }

    #[test]
    fn what_is_held_is_what_is_owned_or_on_its_way() {
        let state = full();
        let text = |ranges: Ranges| ranges.iter().map(|r| r.to_string()).collect::<Vec<_>>();
        assert_eq!(text(state.owned(Tag { created: 1, random: 2 })), ["20-21", "30-39"]);
        assert_eq!(text(state.held(Tag { created: 1, random: 2 })), ["20-21", "30-39", "70-79"]);
        assert_eq!(text(state.held(Tag { created: 3, random: 4 })), ["50-50"]);
    }
}
