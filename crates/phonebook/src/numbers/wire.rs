//! The messages between routers. The world that carries them knows the sender, which cannot be forged.
//!
//! Octet 0 is the version in its high nibble and the type in its low one. Integers are big-endian. A *tag* is created (8) and
//! random (8); an optional one is preceded by an octet 0 or 1. *Ranges* are the first (4) and the last (4) block of each, up
//! to the end of the message.
//!
//! | type | parts |
//! |---|---|
//! | STATUS | request (8) or 0, optional tag, free blocks (4), hints: router (8), tag (16), free blocks (4), age in s (2) |
//! | ASK | request (8), incarnation (8), optional tag, urgent (1) |
//! | GRANT | incarnation (8), request (8), grant (8), tag (16), ranges |
//! | ACK | grant (8) |
//! | REFUSE | grant (8) |
//! | DONE | grant (8) |
//! | CENSUS | census (8), tag (16), lost routers (8 each) |
//! | HOLDS | census (8), from (4), to (4), ranges |
//! | KIN | census (8), complete (1), routers (8 each) |
//! | END | census (8), reclaimed (1) |
//! | BUSY | census (8) |
//! | BANNED | census (8) |
//! | RESET | census (8) |

use ringway_sansio::{Malformed, Reader};

use super::Node;
use super::ranges::{Range, Ranges};
use super::space::Tag;

/// The version of the protocol.
const VERSION: u8 = 1;
/// Maximum number of ranges in a message.
pub const MAX_RANGES_SENT: usize = 64;
/// Maximum number of hints in STATUS.
pub const MAX_HINTS: usize = 8;
/// Maximum number of lost routers in CENSUS.
pub const MAX_LOST: usize = 16;
/// Maximum number of routers in KIN.
pub const MAX_KIN: usize = 96;
/// Maximum length of a message in octets: less than a PAYLOAD of the mesh.
pub const MAX_MESSAGE: usize = 960;

const _: () = assert!(10 + 8 * MAX_KIN <= MAX_MESSAGE);
const _: () = assert!(41 + 8 * MAX_RANGES_SENT <= MAX_MESSAGE);

/// A router that is said to have free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hint {
    /// The router.
    pub node: Node,
    /// Its network.
    pub tag: Tag,
    /// Its free blocks.
    pub free: u32,
    /// Seconds since it said so itself.
    pub age: u16,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// What the sender has, and which others have free blocks.
    Status {
        /// The request of the ASK that this answers, or 0.
        request: u64,
        /// The sender's network.
        tag: Option<Tag>,
        /// Its free blocks.
        free: u32,
        /// Other routers, at most [`MAX_HINTS`].
        hints: Vec<Hint>,
    },
    /// Asks for blocks.
    Ask {
        /// A random number, never used again.
        request: u64,
        /// The sender's incarnation: a random number that is as old as its state.
        incarnation: u64,
        /// Its network.
        tag: Option<Tag>,
        /// It needs a block now, not just a reserve.
        urgent: bool,
    },
    /// Hands blocks over.
    Grant {
        /// The incarnation that has asked.
        incarnation: u64,
        /// The request that this answers.
        request: u64,
        /// A random number, never used again.
        grant: u64,
        /// The network of the blocks.
        tag: Tag,
        /// The blocks, in 1 to [`MAX_RANGES_SENT`] ranges.
        blocks: Ranges,
    },
    /// The sender owns the blocks of a grant.
    Ack {
        /// The grant.
        grant: u64,
    },
    /// The sender does not own the blocks of a grant and never will.
    Refuse {
        /// The grant.
        grant: u64,
    },
    /// The sender has removed a grant: the receiver need not remember it.
    Done {
        /// The grant.
        grant: u64,
    },
    /// Asks what the receiver holds, so that what nobody holds can be reclaimed.
    Census {
        /// A random number, never used again.
        census: u64,
        /// The network.
        tag: Tag,
        /// Routers that never return, at most [`MAX_LOST`].
        lost: Vec<Node>,
    },
    /// What the sender holds of a part of the space.
    Holds {
        /// The census.
        census: u64,
        /// The part: its first and its last block.
        part: Range,
        /// The blocks, in at most [`MAX_RANGES_SENT`] ranges.
        blocks: Ranges,
    },
    /// To whom the sender has ever handed blocks.
    Kin {
        /// The census.
        census: u64,
        /// Whether these are all.
        complete: bool,
        /// The routers, at most [`MAX_KIN`].
        routers: Vec<Node>,
    },
    /// A census has ended.
    End {
        /// The census.
        census: u64,
        /// Whether blocks were reclaimed: the lost routers own nothing any longer.
        reclaimed: bool,
    },
    /// The sender cannot take part in a census: it takes part in another one, or it is said to be lost.
    Busy {
        /// The census.
        census: u64,
    },
    /// The receiver's blocks were reclaimed.
    Banned {
        /// The census.
        census: u64,
    },
    /// The sender owns nothing of what it owned before a census.
    Reset {
        /// The census.
        census: u64,
    },
}

impl Packet {
    /// Parses a message.
    ///
    /// # Errors
    /// Octets that are no message.
    pub fn parse(octets: &[u8]) -> Result<Packet, Malformed> {
        let mut reader = Reader::new("expected a whole message about short numbers", octets);
        let head = reader.u8()?;
        if head >> 4 != VERSION {
            return Err(reader.fault("expected version 1 of the messages about short numbers"));
        }
        if octets.len() > MAX_MESSAGE {
            return Err(reader.fault("expected a message of at most 960 octets"));
        }
        // The number that every message begins with.
        let number = reader.u64()?;
        let packet = match head & 15 {
            1 => {
                let (tag, free) = (read_optional(&mut reader)?, reader.u32()?);
                Packet::Status { request: number, tag, free, hints: read_hints(&mut reader)? }
            }
            2 => {
                let (incarnation, tag) = (reader.u64()?, read_optional(&mut reader)?);
                Packet::Ask { request: number, incarnation, tag, urgent: read_flag(&mut reader)? }
            }
            3 => {
                let (request, grant) = (reader.u64()?, reader.u64()?);
                let (tag, blocks) = (read_tag(&mut reader)?, read_ranges(&mut reader)?);
                if blocks.is_empty() {
                    return Err(reader.fault("expected a grant of at least one block"));
                }
                Packet::Grant { incarnation: number, request, grant, tag, blocks }
            }
            4 => Packet::Ack { grant: number },
            5 => Packet::Refuse { grant: number },
            6 => Packet::Done { grant: number },
            7 => {
                let (tag, lost) = (read_tag(&mut reader)?, read_nodes(&mut reader, MAX_LOST)?);
                Packet::Census { census: number, tag, lost }
            }
            8 => {
                let part = read_range(&mut reader)?;
                Packet::Holds { census: number, part, blocks: read_ranges(&mut reader)? }
            }
            9 => {
                let complete = read_flag(&mut reader)?;
                Packet::Kin { census: number, complete, routers: read_nodes(&mut reader, MAX_KIN)? }
            }
            10 => Packet::End { census: number, reclaimed: read_flag(&mut reader)? },
            11 => Packet::Busy { census: number },
            12 => Packet::Banned { census: number },
            13 => Packet::Reset { census: number },
            _ => return Err(reader.fault("expected a type of a message from 1 to 13")),
        };
        reader.end()?;
        Ok(packet)
    }

    /// Returns the octets.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let mut head = |kind: u8, number: u64| {
            out.push(VERSION << 4 | kind);
            out.extend(number.to_be_bytes());
        };
        match *self {
            Packet::Status { request, tag, free, ref hints } => {
                head(1, request);
                put_optional(&mut out, tag);
                out.extend(free.to_be_bytes());
                for hint in hints {
                    out.extend(hint.node.to_be_bytes());
                    put_tag(&mut out, hint.tag);
                    out.extend(hint.free.to_be_bytes());
                    out.extend(hint.age.to_be_bytes());
                }
            }
            Packet::Ask { request, incarnation, tag, urgent } => {
                head(2, request);
                out.extend(incarnation.to_be_bytes());
                put_optional(&mut out, tag);
                out.push(urgent.into());
            }
            Packet::Grant { incarnation, request, grant, tag, ref blocks } => {
                head(3, incarnation);
                out.extend(request.to_be_bytes());
                out.extend(grant.to_be_bytes());
                put_tag(&mut out, tag);
                put_ranges(&mut out, blocks);
            }
            Packet::Ack { grant } => head(4, grant),
            Packet::Refuse { grant } => head(5, grant),
            Packet::Done { grant } => head(6, grant),
            Packet::Census { census, tag, ref lost } => {
                head(7, census);
                put_tag(&mut out, tag);
                lost.iter().for_each(|node| out.extend(node.to_be_bytes()));
            }
            Packet::Holds { census, part, ref blocks } => {
                head(8, census);
                put_range(&mut out, part);
                put_ranges(&mut out, blocks);
            }
            Packet::Kin { census, complete, ref routers } => {
                head(9, census);
                out.push(complete.into());
                routers.iter().for_each(|node| out.extend(node.to_be_bytes()));
            }
            Packet::End { census, reclaimed } => {
                head(10, census);
                out.push(reclaimed.into());
            }
            Packet::Busy { census } => head(11, census),
            Packet::Banned { census } => head(12, census),
            Packet::Reset { census } => head(13, census),
        }
        out
    }
}

pub(super) fn read_tag(reader: &mut Reader<'_>) -> Result<Tag, Malformed> {
    Ok(Tag { created: reader.u64()?, random: reader.u64()? })
}

pub(super) fn put_tag(out: &mut Vec<u8>, tag: Tag) {
    out.extend(tag.created.to_be_bytes());
    out.extend(tag.random.to_be_bytes());
}

pub(super) fn read_flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(reader.fault("expected a flag of 0 or 1")),
    }
}

pub(super) fn read_optional(reader: &mut Reader<'_>) -> Result<Option<Tag>, Malformed> {
    match read_flag(reader)? {
        false => Ok(None),
        true => read_tag(reader).map(Some),
    }
}

pub(super) fn put_optional(out: &mut Vec<u8>, tag: Option<Tag>) {
    out.push(tag.is_some().into());
    tag.into_iter().for_each(|tag| put_tag(out, tag));
}

pub(super) fn read_range(reader: &mut Reader<'_>) -> Result<Range, Malformed> {
    let (first, last) = (reader.u32()?, reader.u32()?);
    Range::new(first, last)
        .ok_or(reader.fault("expected a range that does not end before it begins"))
}

pub(super) fn put_range(out: &mut Vec<u8>, range: Range) {
    out.extend(range.first.to_be_bytes());
    out.extend(range.last.to_be_bytes());
}

fn read_ranges(reader: &mut Reader<'_>) -> Result<Ranges, Malformed> {
    let (mut ranges, mut count) = (Ranges::default(), 0);
    while !reader.is_at_end() {
        let range = read_range(reader)?;
        count += 1;
        // In ascending order and apart, so that a set has one form.
        let ascending =
            ranges.iter().last().is_none_or(|before| before.last.saturating_add(1) < range.first);
        if count > MAX_RANGES_SENT || !ascending {
            return Err(
                reader.fault("expected at most 64 ranges in ascending order, none beside another")
            );
        }
        ranges.insert(range);
    }
    Ok(ranges)
}

pub(super) fn put_ranges(out: &mut Vec<u8>, ranges: &Ranges) {
    ranges.iter().for_each(|range| put_range(out, range));
}

fn read_nodes(reader: &mut Reader<'_>, max: usize) -> Result<Vec<Node>, Malformed> {
    let (nodes, rest) = reader.rest().as_chunks::<8>();
    if !rest.is_empty() || nodes.len() > max {
        return Err(reader.fault("expected whole ids of routers, not more than fit"));
    }
    Ok(nodes.iter().map(|node| Node::from_be_bytes(*node)).collect())
}

fn read_hints(reader: &mut Reader<'_>) -> Result<Vec<Hint>, Malformed> {
    let mut hints = Vec::new();
    while !reader.is_at_end() {
        if hints.len() == MAX_HINTS {
            return Err(reader.fault("expected at most 8 hints"));
        }
        let (node, tag) = (reader.u64()?, read_tag(reader)?);
        hints.push(Hint { node, tag, free: reader.u32()?, age: reader.u16()? });
    }
    Ok(hints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packets() -> Vec<Packet> {
        let tag = Tag { created: 5, random: 6 };
        let hint = Hint { node: 1, tag, free: 9, age: 3 };
        let part = Range { first: 0, last: 99 };
        let blocks: Ranges =
            [Range { first: 20, last: 30 }, Range { first: 40, last: 40 }].into_iter().collect();
        vec![
            Packet::Status { request: 0, tag: None, free: 0, hints: vec![] },
            Packet::Status { request: 7, tag: Some(tag), free: 8, hints: vec![hint; MAX_HINTS] },
            Packet::Ask { request: 7, incarnation: 8, tag: Some(tag), urgent: true },
            Packet::Ask { request: 7, incarnation: 8, tag: None, urgent: false },
            Packet::Grant { incarnation: 1, request: 2, grant: 3, tag, blocks: blocks.clone() },
            Packet::Ack { grant: 3 },
            Packet::Refuse { grant: 3 },
            Packet::Done { grant: 3 },
            Packet::Census { census: 4, tag, lost: vec![1; MAX_LOST] },
            Packet::Holds { census: 4, part, blocks },
            Packet::Holds { census: 4, part, blocks: Ranges::default() },
            Packet::Kin { census: 4, complete: true, routers: vec![2; MAX_KIN] },
            Packet::End { census: 4, reclaimed: true },
            Packet::Busy { census: 4 },
            Packet::Banned { census: 4 },
            Packet::Reset { census: 4 },
        ]
    }

    #[test]
    fn every_message_is_parsed_as_it_was_written() {
        for packet in packets() {
            let octets = packet.to_octets();
            assert!(octets.len() <= MAX_MESSAGE);
            assert_eq!(Packet::parse(&octets), Ok(packet));
        }
    }

    #[test]
    fn messages_beyond_their_limits_are_refused() {
        let tag = Tag { created: 5, random: 6 };
        let hint = Hint { node: 1, tag, free: 9, age: 3 };
        let many: Ranges = (0..65).map(|n| Range { first: n * 2, last: n * 2 }).collect();
        let part = Range { first: 0, last: 99 };
        for packet in [
            Packet::Status { request: 0, tag: None, free: 0, hints: vec![hint; MAX_HINTS + 1] },
            Packet::Census { census: 4, tag, lost: vec![1; MAX_LOST + 1] },
            Packet::Kin { census: 4, complete: true, routers: vec![2; MAX_KIN + 1] },
            Packet::Holds { census: 4, part, blocks: many },
            Packet::Grant { incarnation: 1, request: 2, grant: 3, tag, blocks: Ranges::default() },
        ] {
            assert!(Packet::parse(&packet.to_octets()).is_err(), "{packet:?}");
        }
        let grant = packets()[4].to_octets();
        for (at, octet) in [(0, 0x23), (0, 0x1e), (41, 0xff), (44, 41)] {
            let mut octets = grant.clone();
            octets[at] = octet;
            assert!(Packet::parse(&octets).is_err(), "{at}");
        }
    }

    proptest! {
        /// What is parsed is written as the same octets.
        #[test]
        fn octets_that_are_a_message_are_its_only_form(which in 0..16_usize, at in 0..600_usize, octet: u8, cut in 0..3_usize) {
            let mut octets = packets()[which].to_octets();
            let length = octets.len();
            octets[at % length] = octet;
            octets.truncate(length - cut.min(length));
            if let Ok(packet) = Packet::parse(&octets) {
                prop_assert_eq!(packet.to_octets(), octets);
            }
        }
    }
}
