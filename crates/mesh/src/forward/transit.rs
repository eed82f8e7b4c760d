//! The short way of a message that only follows its labels: its octets are copied once, with what a hop changes.
//!
//! Nine of ten messages at a router are of this kind. Whatever is not, [`message::forward`](super::message::forward)
//! handles; where this returns a slot, both do the same, which a property test holds.

use super::message::Here;
use crate::config::{MAX_CONTROL_NIBBLES, MAX_HOPS, MAX_TAGS};
use crate::id::NodeId;
use crate::wire::labels::append_label;
use crate::wire::{Cursor, Record, Routed, Slot};

/// Positions in the header of a message ([`routed`](crate::wire::routed)).
mod at {
    pub(super) const FLAGS: usize = 0;
    pub(super) const HOP_LIMIT: usize = 2;
    pub(super) const NIBBLES: usize = 4;
    pub(super) const POSITION: usize = 6;
    pub(super) const TARGET: usize = 8;
    pub(super) const ID: usize = 32;
    pub(super) const MTU: usize = 40;
    pub(super) const COST: usize = 42;
    pub(super) const SPACING: usize = 44;
    pub(super) const COUNT: usize = 45;
    pub(super) const RECORDED: usize = 47;
}

const REVERSE: u8 = 1;
const RECORD: u8 = 8;
const TURNED: u8 = 0x80;

/// Appends the message `body`, which came by `entered`, as it leaves this router, and returns by which slot. Returns `None`
/// and appends nothing if it does not only follow its labels, or if they cannot be followed.
pub fn transit(
    body: &[u8],
    here: Here<'_>,
    entered: Slot,
    (cost, mtu): (u16, u16),
    out: &mut Vec<u8>,
) -> Option<Slot> {
    let start = out.len();
    let passed = pass(body, here, entered, (cost, mtu), out);
    if passed.is_none() {
        out.truncate(start);
    }
    passed
}

fn pass(
    body: &[u8],
    here: Here<'_>,
    entered: Slot,
    (cost, mtu): (u16, u16),
    out: &mut Vec<u8>,
) -> Option<Slot> {
    let header: &[u8; Routed::HEADER] = body.first_chunk()?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let (flags, nibbles, recorded) = (header[at::FLAGS], number(at::NIBBLES), number(at::RECORDED));
    let (records, spacing, count) = (flags & RECORD != 0, header[at::SPACING], number(at::COUNT));
    let tags = if records { Record::tags(spacing, count)? } else { 0 };
    let labels_end = Routed::HEADER + usize::from(nibbles).div_ceil(2);
    let tags_end = labels_end + 4 * tags;
    let record_end = tags_end + usize::from(recorded).div_ceil(2);
    let hop_limit = number(at::HOP_LIMIT).min(MAX_HOPS).checked_sub(1)?;
    if usize::from(nibbles) > MAX_CONTROL_NIBBLES || record_end > body.len() {
        return None;
    }
    let start = out.len();
    out.extend_from_slice(body.get(..tags_end)?);
    let labels = out.get_mut(start + Routed::HEADER..start + labels_end)?;
    let reverse = flags & REVERSE != 0;
    let mut cursor = Cursor::new(labels, nibbles, number(at::POSITION), reverse).ok()?;
    if cursor.is_at_end() {
        return None;
    }
    let slot = cursor.swap(entered).ok()?;
    let position = cursor.at();
    if !here.is_up(slot) {
        return None;
    }
    if records {
        let long = |at: usize| u64::from_be_bytes(core::array::from_fn(|n| header[at + n]));
        let id = long(at::ID);
        // It may be for this router.
        if NodeId::new(long(at::TARGET)).prefix() == here.id.prefix() {
            return None;
        }
        // What turns, or has turned, is recorded otherwise.
        if slot == entered || flags & TURNED != 0 {
            return None;
        }
        let own = here.id.tag(id).0;
        // The last tag may be that of the router before us, which is a neighbour.
        let is_before = (tags - 1) << spacing == usize::from(count);
        let checked_end = if is_before { tags_end - 4 } else { tags_end };
        let last = is_before.then(|| &body[checked_end..tags_end]);
        if last == Some(&own.to_be_bytes()) || meets(&body[labels_end..checked_end], here, id) {
            return None;
        }
        let count = count + 1;
        if usize::from(count) % (1 << spacing) == 0 {
            if tags >= MAX_TAGS {
                return None;
            }
            out.extend(own.to_be_bytes());
        }
        let record = out.len();
        out.extend_from_slice(&body[tags_end..record_end]);
        let recorded = append_label(out, record, recorded, entered, slot).ok()?;
        out[start + at::COUNT..][..2].copy_from_slice(&count.to_be_bytes());
        out[start + at::RECORDED..][..2].copy_from_slice(&recorded.to_be_bytes());
    } else if (spacing, count, recorded) != (0, 0, 0) {
        return None;
    }
    out.extend_from_slice(&body[record_end..]);
    out[start + at::HOP_LIMIT..][..2].copy_from_slice(&hop_limit.to_be_bytes());
    out[start + at::POSITION..][..2].copy_from_slice(&position.to_be_bytes());
    let mtu = number(at::MTU).min(mtu);
    out[start + at::MTU..][..2].copy_from_slice(&mtu.to_be_bytes());
    let cost = number(at::COST).saturating_add(cost);
    out[start + at::COST..][..2].copy_from_slice(&cost.to_be_bytes());
    Some(slot)
}

/// Returns whether this router or a neighbour of it is among the tags: then there is a detour to cut.
fn meets(tags: &[u8], here: Here<'_>, id: u64) -> bool {
    let bit = |tag: u32| 1u64 << (tag & 63);
    let around = here.neighbours.iter().map(|neighbour| bit(neighbour.id.tag(id).0));
    let seen = around.fold(0, |all, bit| all | bit);
    let own = here.id.tag(id).0;
    tags.chunks_exact(4).any(|tag| {
        let tag = u32::from_be_bytes([tag[0], tag[1], tag[2], tag[3]]);
        (seen | bit(own)) & bit(tag) != 0
            && (tag == own || here.neighbours.iter().any(|other| other.id.tag(id).0 == tag))
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::{Verdict, forward};
    use super::*;
    use crate::metric::{Ring, Space};
    use crate::routes::Detours;
    use crate::wire::{Labels, Message, MessageId, Neighbour, Route};
    use proptest::prelude::*;

    fn slot() -> impl Strategy<Value = Slot> {
        prop_oneof![0u16..5, 15u16..20, 225u16..230].prop_map(Slot)
    }

    proptest! {
        /// Whatever it forwards, it forwards as the long way does, octet for octet.
        #[test]
        fn both_ways_are_the_same(
            there in proptest::collection::vec((slot(), slot()), 0..12),
            back in proptest::collection::vec((0u64..40, slot(), slot()), 0..90),
            thinned in 0usize..300,
            numbers: (u16, u64, u16, u16, bool, bool),
            entered in slot(),
            around in proptest::collection::vec((0u64..60, slot()), 1..8),
            noise in proptest::collection::vec((0usize..90, any::<u8>()), 0..2),
        ) {
            let (hop_limit, id, cost, mtu, reverse, records) = numbers;
            let mut labels = Labels::default();
            there.iter().for_each(|&(one, other)| labels.push(one, other).unwrap());
            let mut record = Record::new(NodeId::new(99).tag(id));
            for (own, came, out) in back {
                record.pass(MessageId(id), NodeId::new(own), &[], came, out).unwrap();
            }
            let route = Route { first: Slot(0), labels };
            let (origin, target) = (NodeId::new(99), NodeId::new(7));
            let mut message =
                Routed::new(Message::Connect, MessageId(id), origin, target, &route, b"contents");
            message.hop_limit = hop_limit;
            message.flags.reverse = reverse;
            message.at = if reverse { message.labels.nibbles() } else { 0 };
            message.record = records.then_some(record);
            message.fit(thinned * 3);
            let mut body = Vec::new();
            message.emit(&mut body);
            for (at, value) in noise {
                if let Some(octet) = body.get_mut(at) {
                    *octet = value;
                }
            }
            let neighbours: Vec<Neighbour> = around
                .into_iter()
                .map(|(id, slot)| Neighbour { id: NodeId::new(id), slot, back: Some(slot) })
                .collect();
            let here = Here { id: NodeId::new(50), neighbours: &neighbours, detours: &Detours::default(), closes: true, distance: Ring::distance };
            let mut short = b"before".to_vec();
            let passed = transit(&body, here, entered, (cost, mtu), &mut short);
            prop_assert!(passed.is_some() || short == b"before");
            let Ok(mut message) = Routed::parse(&body) else { return Ok(()) };
            message.path_cost = message.path_cost.saturating_add(cost);
            message.path_mtu = message.path_mtu.min(mtu);
            let verdict = forward(&mut message, here, entered, |_| None);
            if let Some(slot) = passed {
                let mut long = b"before".to_vec();
                message.emit(&mut long);
                prop_assert_eq!(verdict, Verdict::Out(slot));
                prop_assert_eq!(short, long);
            }
        }
    }
}
