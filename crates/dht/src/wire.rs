//! The messages between routers. Each is the octets of a PAYLOAD of the mesh, so its sender is known and cannot be forged.
//!
//! Octet 0 is the version in its high nibble and the type in its low one. Integers are big-endian. *Leaves* are a count and
//! ids: the routers beside the sender, first those before it, nearest first, and then those behind it. A record comes with
//! its *rest*: the time in seconds for which its sender will keep it.
//!
//! | type | parts | octets without lists |
//! |---|---|---|
//! | COPIES | records, each with its length (2) and rest (4) before it | 1 |
//! | PUT | request (4), rest (4), record | 9 |
//! | STORE | request (4), publisher (8), rest (4), record | 17 |
//! | STORED | request (4), outcome (1), leaves (2) | 8 |
//! | GET | request (4), kind (1), name | 6 |
//! | FOUND | request (4), index (1), count (1), flags (1): 1 settled, 2 aside; leaves (2), rest (4), record | 14 |
//! | ABSENT | request (4), settled (1), leaves (2) | 8 |
//! | DIGEST | flags (1): 1 confirm, 2 settled; life (2), leaves (2), first (8), last (8), count (2), number of renewals (1), renewals, parts | 25 |
//! | AGREE | leaves (2), first (8), last (8) | 19 |
//! | ENTRIES | first (8), last (8), marks | 17 |
//! | WANT | first (8), last (8), marks | 17 |
//! | LEAVE | - | 1 |
//! | RENEW | request (4), stamp (4), copies | 9 |
//! | LIST | request (4), kind (1), anyhow (1), first (16), last (16) | 39 |
//! | LISTED | request (4), flags (1): 1 settled, 2 the last message; first (16), last (16), records, each with its length (2) before it | 38 |
//! | RENEWED | request (4), leaves (2), exceptions: index (1), reason (1) | 7 |
//! | CHECK | request (4), copies | 5 |
//! | ASTRAY | copies | 1 |
//!
//! A position in LIST and LISTED is a key and a signer.
//!
//! A *copy* names a record: its key (8), and the first 4 octets of its mark. A *renewal* is a copy with the stamp
//! (4) and the rest (4).

use ringway_mesh::NodeId;
use ringway_mesh::wire::bodies::MAX_PAYLOAD;
use ringway_sansio::{Malformed, Reader};
use smallvec::SmallVec;

use crate::config::{BESIDE, MAX_NAME, MAX_OF_NAME};
use crate::neighbours::{Leaves, Side};
pub use crate::positions::Span;
use crate::positions::{Cursor, Stretch};
use crate::record::{MAX_RECORD, Record};

/// The first octet of a message is this and its type. Another version of the protocol has other first octets.
const VERSION: u8 = 16;
/// Numbers of types.
pub const TYPES: usize = 18;
/// Parts of a range in one DIGEST.
pub const PARTS: usize = 16;
/// Maximum number of marks in ENTRIES and WANT.
pub const MAX_MARKS: usize = (MAX_PAYLOAD - 17) / 8;

/// Maximum number of records in RENEW, CHECK and ASTRAY.
pub const MAX_COPIES: usize = 80;
/// Octets of records in COPIES, each with its length and its rest.
pub const MAX_COPIED: usize = MAX_PAYLOAD - 1;
/// Octets of records in LISTED, each with its length.
pub const MAX_LISTED: usize = MAX_PAYLOAD - 38;
/// Octets of a RENEW without copies, and of a copy.
pub(crate) const RENEW: usize = 9;
pub(crate) const COPY: usize = 12;
/// Octets of a renewal in a DIGEST.
pub(crate) const RENEWAL: usize = 20;
/// Maximum number of renewals in a DIGEST.
pub const MAX_RENEWALS: usize = 40;
/// Octets of leaves of which there are as many as possible.
const MAX_LEAVES: usize = 2 + 2 * BESIDE * 8;

const _: () = assert!(2 + MAX_RECORD <= MAX_LISTED);
const _: () = assert!(9 + 12 * MAX_COPIES <= MAX_PAYLOAD);
const _: () = assert!(23 + MAX_LEAVES + RENEWAL * MAX_RENEWALS + 8 * PARTS <= MAX_PAYLOAD);
const _: () = assert!(12 + MAX_LEAVES + MAX_RECORD <= MAX_PAYLOAD);

/// What became of a record at a keeper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is kept.
    Kept = 0,
    /// There is no room for it.
    Full = 1,
    /// It is kept, but by a router that is not one of its keepers.
    Aside = 2,
}

/// Names a record of a known signer, or one of few with the same key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Its key.
    pub key: NodeId,
    /// The first 4 octets of its mark.
    pub mark: u32,
}

/// A record that its publisher has renewed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// The record.
    pub copy: Copy,
    /// The publisher's count of renewals.
    pub stamp: u32,
    /// Rest of the lifetime, s.
    pub rest: u32,
}

/// Why a record was not renewed, or is not known to be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotRenewed {
    /// The router is not one of its keepers.
    Elsewhere = 1,
    /// It is one of its keepers, and does not have it.
    Unknown = 2,
    /// The same, but others may have it: it has not compared with all of them yet.
    Unsettled = 3,
}

/// A list of marks.
pub type Marks = Vec<u64>;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Packet<'a> {
    /// Asks a router beside the sender to keep records.
    Copies {
        /// The records and the rests of their lifetimes in seconds, at most [`MAX_COPIED`] octets with both numbers.
        records: Vec<(u32, Record)>,
    },
    /// Asks the owner of the record's key to keep it, and to have those beside it keep it.
    Put {
        /// The publisher's number for the answers.
        request: u32,
        /// Rest of the lifetime, s.
        rest: u32,
        /// The record.
        record: Record,
    },
    /// Asks a router to keep a record.
    Store {
        /// The publisher's number for the answer.
        request: u32,
        /// Whom to answer; nobody if the request is 0.
        publisher: NodeId,
        /// Rest of the lifetime, s.
        rest: u32,
        /// The record.
        record: Record,
    },
    /// What became of a record.
    Stored {
        /// The number of PUT or STORE.
        request: u32,
        /// What became of it. Who keeps a later version answers with that, by FOUND.
        outcome: Outcome,
        /// The routers beside the sender.
        leaves: Leaves,
    },
    /// Asks for the records of a name.
    Get {
        /// The number for the answers.
        request: u32,
        /// The kind.
        kind: u8,
        /// The name.
        name: &'a [u8],
    },
    /// One of the records of a name.
    Found {
        /// The number of GET.
        request: u32,
        /// Which of them it is, from 0.
        index: u8,
        /// How many there are, at most [`MAX_OF_NAME`].
        count: u8,
        /// The sender is a keeper of the name, and has the same as all others who may be.
        settled: bool,
        /// The sender is not a keeper of the name. It may have been one, and not have heard of a later version.
        aside: bool,
        /// The routers beside the sender.
        leaves: Leaves,
        /// Rest of the lifetime, s.
        rest: u32,
        /// The record.
        record: Record,
    },
    /// The sender has no records of the name.
    Absent {
        /// The number of GET.
        request: u32,
        /// It would have them: it is a keeper of the name, and has the same as all others who may be.
        settled: bool,
        /// The routers beside the sender.
        leaves: Leaves,
    },
    /// What the sender has in the parts of a range.
    Digest {
        /// The sender wants to hear if the receiver has the same.
        confirm: bool,
        /// All beside the sender have had the same: nobody else has a record of the range.
        settled: bool,
        /// A number that the sender has drawn when it started.
        life: u16,
        /// The routers beside the sender.
        leaves: Leaves,
        /// The range.
        span: Span,
        /// Number of records in all of it.
        count: u16,
        /// Records that the sender keeps, of any range, which were renewed; at most [`MAX_RENEWALS`].
        renewals: Vec<Renewal>,
        /// A hash of the records in each part: one, or [`PARTS`].
        parts: SmallVec<[u64; 1]>,
    },
    /// The sender has what a DIGEST states.
    Agree {
        /// The routers beside the sender.
        leaves: Leaves,
        /// The range.
        span: Span,
    },
    /// The marks of all records that the sender has in a range.
    Entries {
        /// The range.
        span: Span,
        /// The marks, at most [`MAX_MARKS`].
        marks: Marks,
    },
    /// Asks for the records with these marks.
    Want {
        /// The range that they are in.
        span: Span,
        /// The marks, at most [`MAX_MARKS`].
        marks: Marks,
    },
    /// The sender leaves the network.
    Leave,
    /// Asks a keeper to keep records of the sender for another lifetime, and to notify those beside it.
    Renew {
        /// The publisher's number for the answer.
        request: u32,
        /// The publisher's count of renewals.
        stamp: u32,
        /// The records, at most [`MAX_COPIES`].
        copies: Vec<Copy>,
    },
    /// Which records were not renewed, or are not there.
    Renewed {
        /// The number of RENEW or CHECK.
        request: u32,
        /// The routers beside the sender.
        leaves: Leaves,
        /// The positions of records in RENEW or CHECK, and what is the matter with them.
        exceptions: Vec<(u8, NotRenewed)>,
    },
    /// Asks the owner of the first key which of these records, of any signers, its keepers do not have.
    Check {
        /// The number for the answer.
        request: u32,
        /// The records in the order of their keys, at most [`MAX_COPIES`].
        copies: Vec<Copy>,
    },
    /// Keepers of these records of the receiver do not have them.
    Astray {
        /// The records, at most [`MAX_COPIES`].
        copies: Vec<Copy>,
    },
    /// Asks the owner of the first position for the records of a kind from there on.
    List {
        /// The number for the answers.
        request: u32,
        /// The kind.
        kind: u8,
        /// Also if the owner may lack some.
        anyhow: bool,
        /// The positions.
        stretch: Stretch,
    },
    /// Records that the sender owns.
    Listed {
        /// The number of LIST.
        request: u32,
        /// The sender has the same as all others who may have records at these positions.
        settled: bool,
        /// It is the last message that answers LIST.
        last: bool,
        /// All positions at which the sender has these records only.
        stretch: Stretch,
        /// The records, at most [`MAX_LISTED`] octets with their lengths.
        records: Vec<Record>,
    },
}

impl<'a> Packet<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// Octets that are no message.
    pub fn parse(octets: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        let mut reader = Reader::new("expected a whole message of the DHT", octets);
        let head = reader.u8()?;
        let packet = match head.wrapping_sub(VERSION) {
            0 => {
                let mut records = Vec::new();
                while !reader.is_at_end() {
                    let (length, rest) = (usize::from(reader.u16()?), reader.u32()?);
                    let at = reader.position();
                    let record = Record::parse(reader.take(length)?);
                    records.push((rest, record.map_err(|fault| fault.moved(at))?));
                }
                Packet::Copies { records }
            }
            1 => {
                let (request, rest) = (reader.u32()?, reader.u32()?);
                Packet::Put { request, rest, record: read_record(&mut reader)? }
            }
            2 => {
                let (request, publisher) = (reader.u32()?, read_id(&mut reader)?);
                let rest = reader.u32()?;
                Packet::Store { request, publisher, rest, record: read_record(&mut reader)? }
            }
            3 => {
                let (request, outcome) = (reader.u32()?, read_outcome(&mut reader)?);
                Packet::Stored { request, outcome, leaves: read_leaves(&mut reader)? }
            }
            4 => {
                let (request, kind) = (reader.u32()?, reader.u8()?);
                let name = reader.rest();
                if name.is_empty() || name.len() > MAX_NAME {
                    return Err(reader.fault("expected a name of 1 to 255 octets"));
                }
                Packet::Get { request, kind, name }
            }
            5 => {
                let (request, [index, count]) = (reader.u32()?, reader.array()?);
                if index >= count || usize::from(count) > MAX_OF_NAME {
                    return Err(reader.fault("expected an index below a count of at most 64"));
                }
                let flags = reader.u8()?;
                if flags > 2 {
                    return Err(reader.fault("expected flags of FOUND from 0 to 2"));
                }
                let (settled, aside, leaves) = (flags == 1, flags == 2, read_leaves(&mut reader)?);
                let (rest, record) = (reader.u32()?, read_record(&mut reader)?);
                Packet::Found { request, index, count, settled, aside, leaves, rest, record }
            }
            6 => {
                let (request, settled) = (reader.u32()?, reader.u8()? != 0);
                Packet::Absent { request, settled, leaves: read_leaves(&mut reader)? }
            }
            7 => read_digest(&mut reader)?,
            8 => {
                let leaves = read_leaves(&mut reader)?;
                Packet::Agree { leaves, span: read_span(&mut reader)? }
            }
            9 => Packet::Entries { span: read_span(&mut reader)?, marks: read_marks(&mut reader)? },
            10 => Packet::Want { span: read_span(&mut reader)?, marks: read_marks(&mut reader)? },
            11 => Packet::Leave,
            12 => {
                let (request, stamp) = (reader.u32()?, reader.u32()?);
                Packet::Renew { request, stamp, copies: read_copies(&mut reader)? }
            }
            13 => {
                let (request, leaves) = (reader.u32()?, read_leaves(&mut reader)?);
                Packet::Renewed { request, leaves, exceptions: read_exceptions(&mut reader)? }
            }
            14 => {
                let (request, kind) = (reader.u32()?, reader.u8()?);
                let anyhow = reader.u8()? != 0;
                Packet::List { request, kind, anyhow, stretch: read_stretch(&mut reader)? }
            }
            15 => {
                let (request, flags) = (reader.u32()?, reader.u8()?);
                if flags > 3 {
                    return Err(reader.fault("expected flags of LISTED from 0 to 3"));
                }
                let (settled, last) = (flags & 1 != 0, flags & 2 != 0);
                let stretch = read_stretch(&mut reader)?;
                let records = read_records(&mut reader)?;
                Packet::Listed { request, settled, last, stretch, records }
            }
            16 => {
                let request = reader.u32()?;
                Packet::Check { request, copies: read_copies(&mut reader)? }
            }
            17 => Packet::Astray { copies: read_copies(&mut reader)? },
            _ => return Err(reader.fault("expected version 1 of the DHT, and a type from 0 to 17")),
        };
        reader.end()?;
        Ok(packet)
    }

    /// Returns the octets.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Packet::Copies { records } => {
                out.push(VERSION);
                for (rest, record) in records {
                    out.extend((record.octets().len() as u16).to_be_bytes());
                    out.extend(rest.to_be_bytes());
                    out.extend(record.octets());
                }
            }
            Packet::Put { request, rest, record } => {
                head(&mut out, 1, *request);
                out.extend(rest.to_be_bytes());
                out.extend(record.octets());
            }
            Packet::Store { request, publisher, rest, record } => {
                head(&mut out, 2, *request);
                out.extend(publisher.to_bytes());
                out.extend(rest.to_be_bytes());
                out.extend(record.octets());
            }
            Packet::Stored { request, outcome, leaves } => {
                head(&mut out, 3, *request);
                out.push(*outcome as u8);
                put_leaves(&mut out, leaves);
            }
            Packet::Get { request, kind, name } => {
                head(&mut out, 4, *request);
                out.push(*kind);
                out.extend_from_slice(name);
            }
            Packet::Found { request, index, count, settled, aside, leaves, rest, record } => {
                head(&mut out, 5, *request);
                out.extend([*index, *count, u8::from(*settled) | u8::from(*aside) << 1]);
                put_leaves(&mut out, leaves);
                out.extend(rest.to_be_bytes());
                out.extend(record.octets());
            }
            Packet::Absent { request, settled, leaves } => {
                head(&mut out, 6, *request);
                out.push((*settled).into());
                put_leaves(&mut out, leaves);
            }
            Packet::Digest { confirm, settled, life, leaves, span, count, renewals, parts } => {
                out.push(VERSION + 7);
                out.push(u8::from(*confirm) | u8::from(*settled) << 1);
                out.extend(life.to_be_bytes());
                put_leaves(&mut out, leaves);
                put_span(&mut out, span);
                out.extend(count.to_be_bytes());
                out.push(renewals.len() as u8);
                renewals.iter().for_each(|renewal| {
                    put_copy(&mut out, &renewal.copy);
                    out.extend(renewal.stamp.to_be_bytes());
                    out.extend(renewal.rest.to_be_bytes());
                });
                parts.iter().for_each(|part| out.extend(part.to_be_bytes()));
            }
            Packet::Agree { leaves, span } => {
                out.push(VERSION + 8);
                put_leaves(&mut out, leaves);
                put_span(&mut out, span);
            }
            Packet::Entries { span, marks } => {
                out.push(VERSION + 9);
                put_span(&mut out, span);
                marks.iter().for_each(|mark| out.extend(mark.to_be_bytes()));
            }
            Packet::Want { span, marks } => {
                out.push(VERSION + 10);
                put_span(&mut out, span);
                marks.iter().for_each(|mark| out.extend(mark.to_be_bytes()));
            }
            Packet::Leave => out.push(VERSION + 11),
            Packet::Renew { request, stamp, copies } => {
                head(&mut out, 12, *request);
                out.extend(stamp.to_be_bytes());
                copies.iter().for_each(|copy| put_copy(&mut out, copy));
            }
            Packet::List { request, kind, anyhow, stretch } => {
                head(&mut out, 14, *request);
                out.extend([*kind, (*anyhow).into()]);
                put_stretch(&mut out, stretch);
            }
            Packet::Listed { request, settled, last, stretch, records } => {
                head(&mut out, 15, *request);
                out.push(u8::from(*settled) | u8::from(*last) << 1);
                put_stretch(&mut out, stretch);
                for record in records {
                    out.extend((record.octets().len() as u16).to_be_bytes());
                    out.extend(record.octets());
                }
            }
            Packet::Renewed { request, leaves, exceptions } => {
                head(&mut out, 13, *request);
                put_leaves(&mut out, leaves);
                exceptions.iter().for_each(|&(at, reason)| out.extend([at, reason as u8]));
            }
            Packet::Check { request, copies } => {
                head(&mut out, 16, *request);
                copies.iter().for_each(|copy| put_copy(&mut out, copy));
            }
            Packet::Astray { copies } => {
                out.push(VERSION + 17);
                copies.iter().for_each(|copy| put_copy(&mut out, copy));
            }
        }
        out
    }
}

/// Returns the type of a message of this router.
pub(crate) fn type_of(octets: &[u8]) -> usize {
    octets.first().map_or(0, |head| usize::from(head.wrapping_sub(VERSION))).min(TYPES - 1)
}

fn head(out: &mut Vec<u8>, kind: u8, request: u32) {
    out.push(VERSION + kind);
    out.extend(request.to_be_bytes());
}

fn read_id(reader: &mut Reader<'_>) -> Result<NodeId, Malformed> {
    reader.u64().map(NodeId::new)
}

fn read_record(reader: &mut Reader<'_>) -> Result<Record, Malformed> {
    let at = reader.position();
    Record::parse(reader.rest()).map_err(|fault| fault.moved(at))
}

fn read_outcome(reader: &mut Reader<'_>) -> Result<Outcome, Malformed> {
    Ok(match reader.u8()? {
        0 => Outcome::Kept,
        1 => Outcome::Full,
        2 => Outcome::Aside,
        _ => return Err(reader.fault("expected an outcome from 0 to 2")),
    })
}

fn read_leaves(reader: &mut Reader<'_>) -> Result<Leaves, Malformed> {
    let counts: [u8; 2] = reader.array()?;
    if counts.iter().any(|&count| usize::from(count) > BESIDE) {
        return Err(reader.fault("expected at most 2 leaves on each side"));
    }
    let mut side =
        |count: u8| (0..count).map(|_| read_id(reader)).collect::<Result<Side, Malformed>>();
    Ok(Leaves { before: side(counts[0])?, behind: side(counts[1])? })
}

fn put_leaves(out: &mut Vec<u8>, leaves: &Leaves) {
    out.extend([leaves.before.len() as u8, leaves.behind.len() as u8]);
    leaves.iter().for_each(|id| out.extend(id.to_bytes()));
}

fn read_span(reader: &mut Reader<'_>) -> Result<Span, Malformed> {
    Ok(Span { first: read_id(reader)?, last: read_id(reader)? })
}

fn put_span(out: &mut Vec<u8>, span: &Span) {
    out.extend(span.first.to_bytes());
    out.extend(span.last.to_bytes());
}

fn read_digest(reader: &mut Reader<'_>) -> Result<Packet<'static>, Malformed> {
    let flags = reader.u8()?;
    if flags > 3 {
        return Err(reader.fault("expected flags of a DIGEST from 0 to 3"));
    }
    let (confirm, settled) = (flags & 1 != 0, flags & 2 != 0);
    let (life, leaves) = (reader.u16()?, read_leaves(reader)?);
    let (span, count, number) = (read_span(reader)?, reader.u16()?, reader.u8()?);
    if usize::from(number) > MAX_RENEWALS {
        return Err(reader.fault("expected at most 40 renewals"));
    }
    let renewals = (0..number)
        .map(|_| {
            let copy = Copy { key: read_id(reader)?, mark: reader.u32()? };
            Ok(Renewal { copy, stamp: reader.u32()?, rest: reader.u32()? })
        })
        .collect::<Result<Vec<Renewal>, Malformed>>()?;
    let parts: SmallVec<[u64; 1]> = read_marks(reader)?.into();
    if parts.len() != 1 && parts.len() != PARTS {
        return Err(reader.fault("expected 1 or 16 parts of a range"));
    }
    Ok(Packet::Digest { confirm, settled, life, leaves, span, count, renewals, parts })
}

fn put_copy(out: &mut Vec<u8>, copy: &Copy) {
    out.extend(copy.key.to_bytes());
    out.extend(copy.mark.to_be_bytes());
}

fn read_copies(reader: &mut Reader<'_>) -> Result<Vec<Copy>, Malformed> {
    let (octets, rest) = reader.rest().as_chunks::<12>();
    if !rest.is_empty() || octets.len() > MAX_COPIES {
        return Err(reader.fault("expected whole copies, at most 80"));
    }
    let copies = octets.iter().map(|&[a, b, c, d, e, f, g, h, mark @ ..]| Copy {
        key: NodeId::from_bytes([a, b, c, d, e, f, g, h]),
        mark: u32::from_be_bytes(mark),
    });
    Ok(copies.collect())
}

fn read_exceptions(reader: &mut Reader<'_>) -> Result<Vec<(u8, NotRenewed)>, Malformed> {
    let (octets, rest) = reader.rest().as_chunks::<2>();
    if !rest.is_empty() || octets.len() > MAX_COPIES {
        return Err(reader.fault("expected whole exceptions, at most 80"));
    }
    let reason = |reason| match reason {
        1 => Some(NotRenewed::Elsewhere),
        2 => Some(NotRenewed::Unknown),
        3 => Some(NotRenewed::Unsettled),
        _ => None,
    };
    let exceptions = octets.iter().map(|&[at, why]| Some((at, reason(why)?)));
    let exceptions: Option<Vec<_>> = exceptions.collect();
    exceptions.ok_or_else(|| reader.fault("expected a reason from 1 to 3"))
}

fn read_stretch(reader: &mut Reader<'_>) -> Result<Stretch, Malformed> {
    let first = Cursor::new(read_id(reader)?, read_id(reader)?);
    let last = Cursor::new(read_id(reader)?, read_id(reader)?);
    if first > last {
        return Err(reader.fault("expected a last position that is not before the first"));
    }
    Ok(Stretch { first, last })
}

fn put_stretch(out: &mut Vec<u8>, stretch: &Stretch) {
    for cursor in [stretch.first, stretch.last] {
        out.extend(cursor.key().to_bytes());
        out.extend(cursor.signer().to_bytes());
    }
}

fn read_records(reader: &mut Reader<'_>) -> Result<Vec<Record>, Malformed> {
    let mut records = Vec::new();
    while !reader.is_at_end() {
        let length = usize::from(reader.u16()?);
        let at = reader.position();
        let record = Record::parse(reader.take(length)?).map_err(|fault| fault.moved(at))?;
        records.push(record);
    }
    Ok(records)
}

fn read_marks(reader: &mut Reader<'_>) -> Result<Marks, Malformed> {
    let octets = reader.rest();
    let (marks, rest) = octets.as_chunks::<8>();
    if !rest.is_empty() || marks.len() > MAX_MARKS {
        return Err(reader.fault("expected whole marks, at most 122"));
    }
    Ok(marks.iter().map(|mark| u64::from_be_bytes(*mark)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Draft;
    use proptest::prelude::*;
    use ringway_mesh::crypto::StandIn;
    use ringway_mesh::id::Sequence;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    fn packets() -> Vec<Packet<'static>> {
        let identity = Search::new(0, &mut SplitMix::new(1)).step(1).unwrap();
        let draft = Draft { kind: 1, name: b"alice", value: b"here", lifetime: 60 };
        let version = Sequence { epoch: 5, count: 6 };
        let record = Record::sign::<StandIn>(&identity, version, &draft).unwrap();
        let id = NodeId::new;
        let leaves = Leaves {
            before: [id(4), id(3)].into_iter().collect(),
            behind: [id(6)].into_iter().collect(),
        };
        let span = Span { first: id(9), last: id(3) };
        let (request, rest, marks) = (7, 8, vec![1, 2, 3]);
        let copy = Copy { key: id(5), mark: 6 };
        let stretch = Stretch { first: Cursor::new(id(1), id(2)), last: Cursor::last(id(3)) };
        let parts = SmallVec::from_slice(&[9; PARTS]);
        vec![
            Packet::Copies { records: vec![(8, record.clone()), (9, record.clone())] },
            Packet::Put { request, rest, record: record.clone() },
            Packet::Store { request, publisher: id(2), rest, record: record.clone() },
            Packet::Stored { request, outcome: Outcome::Full, leaves: leaves.clone() },
            Packet::Get { request, kind: 1, name: b"alice" },
            Packet::Found {
                request,
                index: 1,
                count: 2,
                settled: true,
                aside: false,
                leaves: leaves.clone(),
                rest,
                record: record.clone(),
            },
            Packet::Absent { request, settled: true, leaves: leaves.clone() },
            Packet::Digest {
                confirm: true,
                settled: false,
                life: 12,
                leaves: leaves.clone(),
                span,
                count: 3,
                renewals: vec![Renewal { copy, stamp: 1, rest }],
                parts,
            },
            Packet::Agree { leaves, span },
            Packet::Entries { span, marks: marks.clone() },
            Packet::Want { span, marks },
            Packet::Leave,
            Packet::List { request, kind: 1, anyhow: true, stretch },
            Packet::Listed {
                request,
                settled: true,
                last: false,
                stretch,
                records: vec![record.clone(), record.clone()],
            },
            Packet::Renew { request, stamp: 5, copies: vec![copy; 2] },
            Packet::Renewed {
                request,
                leaves: Leaves::default(),
                exceptions: vec![
                    (1, NotRenewed::Elsewhere),
                    (2, NotRenewed::Unknown),
                    (3, NotRenewed::Unsettled),
                ],
            },
            Packet::Check { request, copies: vec![copy; 3] },
            Packet::Astray { copies: vec![copy] },
        ]
    }

    #[test]
    fn messages_come_back_and_parts_of_them_are_faults() {
        for packet in packets() {
            let octets = packet.to_octets();
            assert!(octets.len() <= MAX_PAYLOAD);
            assert_eq!(Packet::parse(&octets), Ok(packet.clone()));
            for length in 0..octets.len() {
                let whole =
                    matches!(Packet::parse(&octets[..length]), Ok(other) if other == packet);
                assert!(!whole, "{packet:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn octets_are_a_message_or_a_fault(mut octets in proptest::collection::vec(any::<u8>(), 1..300)) {
            octets[0] = octets[0] % TYPES as u8 + VERSION;
            if let Ok(packet) = Packet::parse(&octets) {
                let written = packet.to_octets();
                prop_assert_eq!(Packet::parse(&written), Ok(packet));
            }
        }
    }
}
