//! What an owner lists of its records.

use crate::positions::{Cursor, Stretch};
use crate::record::Record;
use crate::table::Table;
use crate::wire::{MAX_LISTED, Packet, Span};

/// Maximum number of messages that answer a LIST.
pub(crate) const MAX_MESSAGES: usize = 8;

/// Returns the messages by which the owner of `owned` lists records of a kind, from the first position on.
pub(crate) fn list(
    table: &Table,
    owned: Span,
    (request, kind, settled): (u32, u8, bool),
    is_claimed: bool,
    stretch: Stretch,
) -> Vec<Packet<'static>> {
    let stretch = stretch.until(owned.first, owned.width());
    let (mut messages, mut records, mut octets) = (Vec::new(), Vec::<Record>::new(), 0);
    let (mut first, mut before) = (stretch.first, stretch.first);
    for entry in table.of_kind(kind, is_claimed, stretch) {
        let cursor = Cursor::new(entry.record.key(), entry.signer);
        let length = 2 + entry.record.octets().len();
        if octets + length > MAX_LISTED {
            let records = core::mem::take(&mut records);
            let stretch = Stretch { first, last: before };
            let last = messages.len() + 1 == MAX_MESSAGES;
            messages.push(Packet::Listed { request, settled, last, stretch, records });
            if last {
                return messages;
            }
            (first, octets) = (before.after().unwrap_or(cursor), 0);
        }
        octets += length;
        records.push(entry.record.clone());
        before = cursor;
    }
    let stretch = Stretch { first, last: stretch.last };
    messages.push(Packet::Listed { request, settled, last: true, stretch, records });
    messages
}
