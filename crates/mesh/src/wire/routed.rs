//! ROUTED: a message between routers that are not neighbours.
//!
//! It travels by labels, from router to router over links; at each hop the item is opened, changed and sealed again. A
//! *greedy* message whose labels are used up goes on from there by a contact that is closer to its target, so that it
//! needs no route to be sent.
//!
//! ```text
//!  0 flags: 1 reverse, 2 greedy, 4 closest, 8 record, 10 linear, 20 returned, 40 wrapped, 80 turned
//!  1 type  2 hop limit (2)  4 nibbles (2)  6 position (2)  8 target (8)  16 origin (8)  24 best distance so far (8)
//! 32 message id (8)  40 path MTU (2)  42 path cost (2)  44 spacing of tags (1)  45 recorded labels (2)
//! 47 recorded nibbles (2)  49 labels, tags of 4 octets, recorded labels, body
//! ```
//!
//! The **record** is the way back. Each router on the way appends its tag and the label of the slot by which the message
//! came; when it finds itself or a neighbour among the tags, it cuts the detour between. The answer travels by the
//! record in reverse, so its labels turn into the way there: the requester's route is what arrived with the answer, and
//! a route is used only after that.
//!
//! There are at most [`MAX_TAGS`] tags, so that a record of a thousand hops fits a packet: of a longer record, or when a
//! message is too long for its next link, every second tag is removed, and from then on every second router leaves one.
//! Such a detour is cut to the nearest router with a tag.
//!
//! Where a request leaves by the link by which it came, the router is not recorded, and the record is marked as *turned*: its
//! last label is that of the next router, which removes it. So the way back never goes to and fro, with tags or without.

use ringway_sansio::{Got, Malformed};
use smallvec::SmallVec;

use super::{Labels, Reader, Route, RouteTooLong, Slot, read_labels};
use crate::config::{MAX_CONTROL_NIBBLES, MAX_HOPS, MAX_TAGS};
use crate::id::{NodeId, Tag};

/// A random number that joins a request and its answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId(pub u64);

impl MessageId {
    /// Returns the mark that the answer leaves on its way.
    pub const fn mark(self) -> u32 {
        self.0 as u32
    }
}

/// Types of messages; [`bodies`](super::bodies) has what they contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// A router makes itself known to another.
    Connect = 1,
    /// The answer to CONNECT.
    ConnectAck = 2,
    /// A router tells another of a third.
    Introduce = 3,
    /// Looks a router up and begins a session with it.
    LookUp = 4,
    /// The answer to LOOKUP.
    LookUpAck = 5,
    /// LOOKUP by a way that shares nothing with another.
    LookUpApart = 7,
    /// Octets of an application.
    Payload = 8,
    /// The target of an exact message does not exist.
    NotResponsible = 9,
    /// Ends the handshake that LOOKUP began.
    Confirm = 6,
}

impl Message {
    fn from_octet(octet: u8) -> Option<Message> {
        use Message::{
            Confirm, Connect, ConnectAck, Introduce, LookUp, LookUpAck, LookUpApart,
            NotResponsible, Payload,
        };
        let all = [
            Connect,
            ConnectAck,
            Introduce,
            LookUp,
            LookUpAck,
            Payload,
            NotResponsible,
            Confirm,
            LookUpApart,
        ];
        all.into_iter().find(|&message| message as u8 == octet)
    }
}

/// Flags of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoutedFlags {
    /// The labels are read from their end.
    pub reverse: bool,
    /// When the labels are used up, the message goes on by a contact that is closer to the target.
    pub greedy: bool,
    /// It is for whoever is responsible for the target, if that is not the target itself.
    pub closest: bool,
    /// The step from the first router of the ring to the last is not taken.
    pub linear: bool,
    /// It could not follow its labels, and is on its way back to the router that chose them.
    pub returned: bool,
    /// The target is before the first router of the ring, so the message goes on to the last one.
    pub wrapped: bool,
}

const RECORD: u8 = 8;
const TURNED: u8 = 0x80;
/// Maximum of the spacing of tags: then one is left of the longest record.
const MAX_SPACING: u8 = 10;
const _: () = assert!(MAX_CONTROL_NIBBLES < 1 << MAX_SPACING);

impl RoutedFlags {
    fn from_octet(octet: u8) -> Self {
        let is = |bit| octet & bit != 0;
        RoutedFlags {
            reverse: is(1),
            greedy: is(2),
            closest: is(4),
            linear: is(0x10),
            returned: is(0x20),
            wrapped: is(0x40),
        }
    }

    fn to_octet(self) -> u8 {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        bit(self.reverse, 1)
            | bit(self.greedy, 2)
            | bit(self.closest, 4)
            | bit(self.linear, 0x10)
            | bit(self.returned, 0x20)
            | bit(self.wrapped, 0x40)
    }
}

/// A message on its way. The body is borrowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routed<'a> {
    /// Flags.
    pub flags: RoutedFlags,
    /// Hops that it may still take.
    pub hop_limit: u16,
    /// What the body is.
    pub message: Message,
    /// The labels, of which those up to the position are used.
    pub labels: Labels,
    /// Position in the labels, in nibbles.
    pub at: u16,
    /// Whom it is for, or a key.
    pub target: NodeId,
    /// Who sent it.
    pub origin: NodeId,
    /// The smallest distance to the target so far; a greedy step must go below.
    pub best: u64,
    /// Number of the message.
    pub id: MessageId,
    /// Smallest MTU on the way.
    pub path_mtu: u16,
    /// Sum of the costs of the links on the way.
    pub path_cost: u16,
    /// The way back, if it is recorded.
    pub record: Option<Record>,
    /// The contents.
    pub body: &'a [u8],
}

impl<'a> Routed<'a> {
    /// Length in octets without labels, tags and body.
    pub const HEADER: usize = 49;

    /// A message from `origin` along `route`, with its way recorded.
    pub fn new(
        message: Message,
        id: MessageId,
        origin: NodeId,
        target: NodeId,
        route: &Route,
        body: &'a [u8],
    ) -> Routed<'a> {
        Routed {
            flags: RoutedFlags::default(),
            hop_limit: MAX_HOPS,
            message,
            labels: route.labels.clone(),
            at: 0,
            target,
            origin,
            best: u64::MAX,
            id,
            path_mtu: u16::MAX,
            path_cost: 0,
            record: Some(Record::new(origin.tag(id.0))),
            body,
        }
    }

    /// Parses an item's body.
    pub fn parse(bytes: &'a [u8]) -> Result<Routed<'a>, Malformed> {
        let mut reader = Reader::new("expected a whole message", bytes);
        let [flags, message] = reader.array()?;
        let Some(message) = Message::from_octet(message) else {
            return Err(reader.fault("expected a type of message from 1 to 9"));
        };
        let hop_limit = reader.u16()?.min(MAX_HOPS);
        let (nibbles, at) = (reader.u16()?, reader.u16()?);
        if at > nibbles {
            let got = Got::Number(at.into());
            return Err(Malformed::bad("expected a position within the labels", got, 6));
        }
        let target = NodeId::new(reader.u64()?);
        let origin = NodeId::new(reader.u64()?);
        let (best, id) = (reader.u64()?, MessageId(reader.u64()?));
        let (path_mtu, path_cost) = (reader.u16()?, reader.u16()?);
        let (spacing, count, recorded) = (reader.u8()?, reader.u16()?, reader.u16()?);
        let labels = read_labels(&mut reader, nibbles)?;
        let record = match (flags & RECORD != 0, spacing, count, recorded) {
            (true, ..) => {
                let record = Record::parse(&mut reader, (spacing, count), recorded)?;
                Some(Record { turned: flags & TURNED != 0, ..record })
            }
            (false, 0, 0, 0) => None,
            (false, ..) => {
                let got = Got::Number(spacing.into());
                return Err(Malformed::bad("expected no record without its flag", got, 44));
            }
        };
        Ok(Routed {
            flags: RoutedFlags::from_octet(flags),
            hop_limit,
            message,
            labels,
            at,
            target,
            origin,
            best,
            id,
            path_mtu,
            path_cost,
            record,
            body: reader.rest(),
        })
    }

    /// Returns the type and the number of a message that is not parsed.
    pub fn peek(bytes: &[u8]) -> Option<(Message, MessageId)> {
        let header: &[u8; Routed::HEADER] = bytes.first_chunk()?;
        let id = u64::from_be_bytes(core::array::from_fn(|at| header[32 + at]));
        Some((Message::from_octet(header[1])?, MessageId(id)))
    }

    /// Appends the item's body.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let none = Record::default();
        let record = self.record.as_ref().unwrap_or(&none);
        let flag = if self.record.is_some() { RECORD } else { 0 };
        let flag = if record.turned { flag | TURNED } else { flag };
        out.extend([self.flags.to_octet() | flag, self.message as u8]);
        out.extend(self.hop_limit.to_be_bytes());
        out.extend(self.labels.nibbles().to_be_bytes());
        out.extend(self.at.to_be_bytes());
        out.extend(self.target.to_bytes());
        out.extend(self.origin.to_bytes());
        out.extend(self.best.to_be_bytes());
        out.extend(self.id.0.to_be_bytes());
        out.extend(self.path_mtu.to_be_bytes());
        out.extend(self.path_cost.to_be_bytes());
        out.push(record.spacing);
        out.extend(record.labels.count().to_be_bytes());
        out.extend(record.labels.nibbles().to_be_bytes());
        out.extend_from_slice(self.labels.as_bytes());
        record.tags.iter().for_each(|tag| out.extend(tag.0.to_be_bytes()));
        out.extend_from_slice(record.labels.as_bytes());
        out.extend_from_slice(self.body);
    }

    /// Removes tags of the record until the item's body has at most `room` octets, as far as that helps.
    pub fn fit(&mut self, room: usize) {
        let around = Routed::HEADER + self.labels.as_bytes().len() + self.body.len();
        let Some(record) = &mut self.record else { return };
        while around + record.octets() > room && record.tags.len() > 1 {
            record.thin();
        }
    }

    /// Appends the octets that a signature at the end of the body covers: what does not change on the way. Header fields
    /// that do change are not signed, because nothing relies on them: a route is used when an answer has come by it.
    pub fn put_signed(&self, unsigned_body: &[u8], out: &mut Vec<u8>) {
        out.push(self.message as u8);
        out.extend(self.target.to_bytes());
        out.extend(self.origin.to_bytes());
        out.extend(self.id.0.to_be_bytes());
        out.extend_from_slice(unsigned_body);
    }

    /// Goes on by `route` at a router that is the end of the labels. The labels so far are dropped: an error on the
    /// way returns to the router whose contact was out of date, and the answer goes by the record.
    pub fn go_on(&mut self, route: &Route) {
        (self.labels, self.at) = (route.labels.clone(), 0);
    }

    /// Turns back to the router that has chosen the labels, by those that are used up.
    pub fn turn_back(&mut self) {
        (self.flags.reverse, self.flags.returned, self.hop_limit) = (true, true, MAX_HOPS);
    }

    /// Begins anew at the router that has chosen the labels. Returns the labels.
    pub fn begin_anew(&mut self) -> Labels {
        (self.flags.reverse, self.flags.returned) = (false, false);
        (self.at, self.best) = (0, u64::MAX);
        core::mem::take(&mut self.labels)
    }

    /// Returns the key that greedy steps approach: the target, or the end of the line for a wrapped message, because
    /// keys before the first router belong to the last.
    pub fn key(&self) -> NodeId {
        if self.flags.wrapped { NodeId::new(u64::MAX) } else { self.target }
    }

    /// Returns the route that the labels of an answer have become on their way to the requester, who received it by
    /// `entered`.
    pub fn route_there(&self, entered: Slot) -> Option<Route> {
        let arrived = self.flags.reverse && self.at == 0;
        arrived.then(|| Route { first: entered, labels: self.labels.clone() })
    }
}

/// A neighbour as far as a record needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its id.
    pub id: NodeId,
    /// Our slot for it.
    pub slot: Slot,
    /// Its slot for us, if it is known.
    pub back: Option<Slot>,
}

/// The way back to the origin of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Tags of the origin and of routers on the way.
    tags: SmallVec<[Tag; 8]>,
    /// Logarithm to the base 2 of the number of routers to each tag.
    spacing: u8,
    /// Labels of the routers on the way: the slots by which the request came to them.
    labels: Labels,
    /// Whether the last label is that of the router that the request goes to.
    turned: bool,
}

impl Record {
    /// The record of a request that is at its origin.
    pub fn new(origin: Tag) -> Record {
        let (tags, labels) = (SmallVec::from_slice(&[origin]), Labels::default());
        Record { tags, spacing: 0, labels, turned: false }
    }

    fn parse(
        reader: &mut Reader<'_>,
        (spacing, count): (u8, u16),
        nibbles: u16,
    ) -> Result<Record, Malformed> {
        let tags = Record::tags(spacing, count).ok_or(Malformed::bad(
            "expected at most 64 tags in the record",
            Got::Number(spacing.into()),
            44,
        ))?;
        let tags = reader.take(4 * tags)?;
        let tags: SmallVec<[Tag; 8]> = tags
            .chunks_exact(4)
            .map(|tag| Tag(u32::from_be_bytes([tag[0], tag[1], tag[2], tag[3]])))
            .collect();
        let labels = read_labels(reader, nibbles)?;
        if labels.count() != count {
            let got = Got::Number(labels.count().into());
            return Err(Malformed::bad("expected as many labels as the record has", got, 45));
        }
        Ok(Record { tags, spacing, labels, turned: false })
    }

    /// Returns how many tags a record of so many labels has, if that is allowed.
    pub(crate) fn tags(spacing: u8, labels: u16) -> Option<usize> {
        let routers = usize::from(labels) + 1;
        let tags = routers.div_ceil(1usize.checked_shl(spacing.into())?);
        (spacing <= MAX_SPACING && tags <= MAX_TAGS).then_some(tags)
    }

    /// Returns its length in octets.
    fn octets(&self) -> usize {
        4 * self.tags.len() + self.labels.as_bytes().len()
    }

    /// Removes every second tag.
    fn thin(&mut self) {
        let tags = self.tags.iter().step_by(2).copied().collect();
        (self.tags, self.spacing) = (tags, self.spacing + 1);
    }

    /// Returns whether the request comes back from the router that it was last sent to.
    pub(crate) fn is_turned(&self) -> bool {
        self.turned
    }

    /// Returns the labels, which lead back in reverse.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Returns the number of links from the origin to the router behind the record.
    pub fn hops(&self) -> u16 {
        self.labels.count() + 1
    }

    /// Adds the router `own`, by which the request goes from `entered` to `out`.
    pub fn pass(
        &mut self,
        id: MessageId,
        own: NodeId,
        neighbours: &[Neighbour],
        entered: Slot,
        out: Slot,
    ) -> Result<(), RouteTooLong> {
        let Some(entered) = self.enter(id, own, neighbours, entered) else {
            return Ok(());
        };
        self.leave(id, own, entered, out)
    }

    /// Adds the router `own`, which [`enter`](Self::enter) was called for, by which the request goes to `out`.
    pub(crate) fn leave(
        &mut self,
        id: MessageId,
        own: NodeId,
        entered: Slot,
        out: Slot,
    ) -> Result<(), RouteTooLong> {
        if entered == out {
            self.turned = true;
            return Ok(());
        }
        self.labels.push(entered, out)?;
        if usize::from(self.labels.count()) % (1 << self.spacing) == 0 {
            self.tags.push(own.tag(id.0));
        }
        if self.tags.len() > MAX_TAGS {
            self.thin();
        }
        Ok(())
    }

    /// Ends the record at the router `own`. Returns the route back to the origin, or `None` if `own` is the origin.
    pub fn finish(
        &mut self,
        id: MessageId,
        own: NodeId,
        neighbours: &[Neighbour],
        entered: Slot,
    ) -> Option<Route> {
        let first = self.enter(id, own, neighbours, entered)?;
        Some(Route { first, labels: self.labels.reversed() })
    }

    /// Removes what is not on the way to this router. Returns the slot by which the request has come then, or `None` at the
    /// origin.
    pub(crate) fn enter(
        &mut self,
        id: MessageId,
        own: NodeId,
        neighbours: &[Neighbour],
        entered: Slot,
    ) -> Option<Slot> {
        let entered = match core::mem::take(&mut self.turned) {
            false => entered,
            true => {
                let first = self.labels.pop()?;
                self.truncate(usize::from(self.labels.count()) + 1);
                first
            }
        };
        self.cut(id, own, neighbours, entered)
    }

    /// Removes the detour between this router and the earliest one in the record that is itself or its neighbour.
    /// Returns the slot by which the request has come then, or `None` at the origin.
    fn cut(
        &mut self,
        id: MessageId,
        own: NodeId,
        neighbours: &[Neighbour],
        entered: Slot,
    ) -> Option<Slot> {
        let own = own.tag(id.0);
        // The router before us is our neighbour anyway.
        let before = usize::from(self.labels.count());
        let tags: SmallVec<[Tag; 16]> = neighbours.iter().map(|other| other.id.tag(id.0)).collect();
        for (at, &tag) in self.tags.iter().enumerate() {
            let at = at << self.spacing;
            if tag == own {
                // At the position of our label is the slot by which it came the first time.
                let label = at.checked_sub(1);
                let slot = label.and_then(|label| self.labels.iter().nth(label));
                self.truncate(at.max(1));
                return slot.map(|(_, slot)| slot);
            }
            if at == before {
                break;
            }
            if let Some(neighbour) = tags.iter().position(|&other| other == tag)
                && let Neighbour { slot: entered, back: Some(back), .. } = neighbours[neighbour]
            {
                self.truncate(at + 1);
                // Its label must fit the slot that it has for us now. What was longer has been removed.
                if let Some(slot) = self.labels.pop() {
                    self.labels.push(slot, back).ok()?;
                }
                return Some(entered);
            }
        }
        Some(entered)
    }

    /// Keeps the origin and the routers up to the `routers`th.
    fn truncate(&mut self, routers: usize) {
        self.tags.truncate(routers.div_ceil(1 << self.spacing));
        self.labels.truncate((routers - 1) as u16);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::labels::tests::{labels, slot};
    use super::*;
    use proptest::prelude::*;

    const ID: MessageId = MessageId(0xabcd);

    pub(crate) fn routed(labels: Labels, record: Option<Record>, body: &[u8]) -> Routed<'_> {
        Routed {
            flags: RoutedFlags { greedy: true, linear: true, ..RoutedFlags::default() },
            at: labels.nibbles(),
            labels,
            record,
            path_cost: 77,
            ..Routed::new(
                Message::Connect,
                ID,
                NodeId::new(1),
                NodeId::new(2),
                &Route::direct(Slot(0)),
                body,
            )
        }
    }

    /// A neighbour with the same slot at both ends.
    fn neighbour(id: u64, slot: u16) -> Neighbour {
        Neighbour { id: NodeId::new(id), slot: Slot(slot), back: Some(Slot(slot)) }
    }

    fn recorded(record: &Record) -> Vec<u16> {
        record.labels().iter().map(|(_, slot)| slot.0).collect()
    }

    /// 1 - 2 - 3 - 4, where 4 is a neighbour of 2 by slot 300 (2's slot for it is 400): 3 is cut out.
    #[test]
    fn a_detour_is_cut_at_the_earliest_neighbour() {
        let mut record = Record::new(NodeId::new(1).tag(ID.0));
        record
            .pass(ID, NodeId::new(2), &[neighbour(1, 5), neighbour(3, 6)], Slot(5), Slot(6))
            .unwrap();
        record
            .pass(ID, NodeId::new(3), &[neighbour(2, 7), neighbour(4, 8)], Slot(7), Slot(8))
            .unwrap();
        assert_eq!((recorded(&record), record.hops()), (vec![5, 7], 3));
        let two = Neighbour { id: NodeId::new(2), slot: Slot(300), back: Some(Slot(400)) };
        let back = record.finish(ID, NodeId::new(4), &[neighbour(3, 9), two], Slot(9)).unwrap();
        assert_eq!((back.first, back.hops()), (Slot(300), 2));
        // Two's label was short; it must hold 400 on the way back.
        assert_eq!(back.labels.iter().collect::<Vec<_>>(), [(super::super::Class::Wide, Slot(5))]);
    }

    #[test]
    fn a_loop_is_cut_at_the_router_itself() {
        let mut record = Record::new(NodeId::new(1).tag(ID.0));
        for (id, entered, out) in [(2, 5, 6), (3, 7, 8), (4, 9, 10)] {
            record.pass(ID, NodeId::new(id), &[], Slot(entered), Slot(out)).unwrap();
        }
        record.pass(ID, NodeId::new(2), &[], Slot(11), Slot(12)).unwrap();
        assert_eq!(recorded(&record), [5]);
        // And at the origin nothing is left.
        record.pass(ID, NodeId::new(1), &[], Slot(13), Slot(14)).unwrap();
        assert_eq!((recorded(&record), record.tags.len()), (vec![], 1));
        assert_eq!(record.finish(ID, NodeId::new(1), &[], Slot(1)), None);
    }

    /// The longest record has a tag for every sixteenth router, and fits a packet with labels as long as itself.
    #[test]
    fn a_long_record_has_fewer_tags() {
        let mut record = Record::new(NodeId::new(0).tag(ID.0));
        for id in 1..=MAX_CONTROL_NIBBLES as u64 {
            record.pass(ID, NodeId::new(id), &[], Slot(1), Slot(2)).unwrap();
        }
        assert_eq!((record.tags.len(), record.spacing, record.hops()), (64, 4, MAX_HOPS));
        let labels = record.labels().clone();
        let mut message = routed(labels, Some(record), &[0; 68]);
        let mut out = Vec::new();
        message.emit(&mut out);
        assert_eq!(
            (out.len(), Routed::parse(&out).as_ref()),
            (49 + 511 + 256 + 511 + 68, Ok(&message))
        );
        message.fit(1_300);
        let record = message.record.as_ref().unwrap();
        assert_eq!((record.tags.len(), record.spacing), (32, 5));
        // As short as it gets.
        message.fit(1);
        out.clear();
        message.emit(&mut out);
        assert_eq!(
            (out.len(), Routed::parse(&out).as_ref()),
            (49 + 511 + 4 + 511 + 68, Ok(&message))
        );
        assert_eq!(message.record.unwrap().finish(ID, NodeId::new(0), &[], Slot(9)), None);
    }

    /// A walk that turns back is cut to the last router with a tag that it comes to, or beside which it comes.
    #[test]
    fn a_detour_of_a_long_record_is_cut_at_a_tag() {
        let mut record = Record::new(NodeId::new(0).tag(ID.0));
        let pass = |record: &mut Record, id: u64| {
            let around = [neighbour(id - 1, 1), neighbour(id + 1, 2)];
            record.pass(ID, NodeId::new(id), &around, Slot(1), Slot(2)).unwrap();
        };
        (1..=200).for_each(|id| pass(&mut record, id));
        assert_eq!((record.tags.len(), record.hops()), (51, 201));
        // Router 198 has left no tag, and nor has 197; 196 has.
        pass(&mut record, 198);
        assert_eq!(record.hops(), 202);
        pass(&mut record, 197);
        assert_eq!((record.tags.len(), record.hops()), (50, 198));
        pass(&mut record, 100);
        assert_eq!((record.tags.len(), record.hops()), (26, 101));
    }

    /// A walk of 300 routers turns, and ends at the 150th, which has left no tag, or goes on from there by another link.
    #[test]
    fn a_walk_that_turns_is_recorded_without_what_lies_behind() {
        let mut record = Record::new(NodeId::new(0).tag(ID.0));
        let pass = |record: &mut Record, id: u64, entered, out| {
            record.pass(ID, NodeId::new(id), &[], Slot(entered), Slot(out)).unwrap();
        };
        (1..=300).for_each(|id| pass(&mut record, id, 1, 2));
        assert_eq!((record.spacing, record.hops()), (3, 301));
        pass(&mut record, 301, 1, 1);
        (158..=300).rev().for_each(|id| pass(&mut record, id, 2, 1));
        assert_eq!((record.hops(), record.turned), (158, true));
        let message = routed(Labels::default(), Some(record.clone()), &[]);
        let mut out = Vec::new();
        message.emit(&mut out);
        assert_eq!(Routed::parse(&out), Ok(message));
        let back = record.clone().finish(ID, NodeId::new(157), &[], Slot(2)).unwrap();
        assert_eq!((back.first, back.hops()), (Slot(1), 157));
        pass(&mut record, 157, 2, 3);
        assert_eq!((record.hops(), record.turned), (158, false));
        // And back to the origin.
        let mut record = Record::new(NodeId::new(0).tag(ID.0));
        pass(&mut record, 1, 1, 1);
        assert_eq!(record.clone().finish(ID, NodeId::new(0), &[], Slot(4)), None);
        pass(&mut record, 0, 4, 5);
        assert_eq!((record.hops(), record.turned), (1, false));
    }

    #[test]
    fn a_faulty_message_is_refused() {
        let mut out = Vec::new();
        routed(Labels::default(), Some(Record::new(Tag(1))), &[]).emit(&mut out);
        let refused = |at: usize, value: u8, fault: &str| {
            let mut bytes = out.clone();
            bytes[at] = value;
            assert_eq!(Routed::parse(&bytes).unwrap_err().to_string(), fault);
        };
        refused(1, 10, "expected a type of message from 1 to 9, got octet 0x0a at octet 1");
        refused(7, 1, "expected a position within the labels, got 1 at octet 6");
        refused(44, 11, "expected at most 64 tags in the record, got 11 at octet 44");
        refused(46, 1, "expected a whole message, got the end at octet 53");
        refused(48, 1, "expected a whole message, got the end at octet 53");
        (out[44], out[46]) = (1, 1);
        let refused = Routed::parse(&out).unwrap_err().to_string();
        assert_eq!(refused, "expected as many labels as the record has, got 0 at octet 45");
    }

    proptest! {
        #[test]
        fn messages_are_parsed_back(
            labels in labels(),
            hops in proptest::collection::vec((any::<u64>(), slot(), slot()), 0..30),
            flags: u8,
            body: Vec<u8>,
        ) {
            let mut record = Record::new(Tag(1));
            for (own, entered, out) in hops {
                record.pass(ID, NodeId::new(own), &[], entered, out).unwrap();
            }
            record.turned = flags & TURNED != 0;
            let record = (flags & RECORD != 0).then_some(record);
            let mut message = routed(labels, record, &body);
            message.flags = RoutedFlags::from_octet(flags);
            let mut out = Vec::new();
            message.emit(&mut out);
            prop_assert_eq!(Routed::parse(&out).unwrap(), message);
        }

        #[test]
        fn any_octets_are_read_without_a_panic(mut bytes: Vec<u8>, own: u64, entered in slot(), out in slot()) {
            if bytes.len() > 49 {
                (bytes[1], bytes[4], bytes[6], bytes[45], bytes[47]) = (1 + bytes[1] % 9, 0, 0, 0, 0);
                let (hops, spacing) = (bytes[48] % 16, bytes[44] % 4);
                (bytes[48], bytes[46], bytes[44], bytes[5], bytes[7]) = (hops, hops, spacing, bytes[5] % 16, 0);
            }
            if let Ok(mut message) = Routed::parse(&bytes) {
                let neighbours = [neighbour(own ^ 1, 3)];
                if let Some(record) = &mut message.record {
                    let _ = record.pass(message.id, NodeId::new(own), &neighbours, entered, out);
                    let _ = record.finish(message.id, NodeId::new(own ^ 2), &neighbours, entered);
                }
                let mut out = Vec::new();
                message.emit(&mut out);
                prop_assert!(Routed::parse(&out).is_ok());
            }
        }
    }
}
