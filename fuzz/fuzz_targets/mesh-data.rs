//! A DATA packet that four routers in a ring forward by its labels, from whatever position it has. It ends within its
//! hop limit, it keeps its length, the routers change nothing behind its labels, and a report of an error returns by as
//! many links as the packet has come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_mesh::forward::{Step, step};
use ringway_mesh::wire::{DataView, Slot};

const ROUTERS: usize = 4;
/// Slots of each router for the one before and the one after it: of every class.
const SLOTS: [(u16, u16); ROUTERS] = [(0, 1), (14, 15), (224, 225), (3, 65_535)];

/// Returns the router behind a slot, and its slot for this one.
fn across(router: usize, slot: Slot) -> Option<(usize, Slot)> {
    let (before, after) = ((router + ROUTERS - 1) % ROUTERS, (router + 1) % ROUTERS);
    match slot.0 {
        slot if slot == SLOTS[router].0 => Some((before, Slot(SLOTS[before].1))),
        slot if slot == SLOTS[router].1 => Some((after, Slot(SLOTS[after].0))),
        _ => None,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut packet = data.to_vec();
    if let Some(first) = packet.first_mut() {
        *first = 0x17;
    }
    let length = packet.len();
    let Ok(mut data) = DataView::parse(&mut packet) else { return };
    let (behind, hop_limit) =
        (data.sealed().1.to_vec(), data.cursor().map_or(0, |(_, limit)| limit));
    let (mut at, mut entered, mut hops) = (0, Slot(SLOTS[0].0), 0u32);
    loop {
        let Ok((mut cursor, mut limit)) = data.cursor() else { return };
        let taken = step(&mut cursor, &mut limit, entered, |slot| across(at, slot).is_some());
        let position = cursor.at();
        data.set_position(position, limit);
        match taken {
            Step::Out(out) => {
                let Some((next, back)) = across(at, out) else { panic!("a link that is up") };
                (at, entered) = (next, back);
                hops += 1;
                assert!(hops <= u32::from(hop_limit));
            }
            // Labels that must grow are a new packet.
            Step::End | Step::Widen => break,
            Step::Error(_) => {
                report(&data, at, entered, hops);
                break;
            }
        }
    }
    assert_eq!(data.sealed().1, behind);
    assert_eq!(packet.len(), length);
});

/// Follows a report of an error back: it comes at least to where the packet has begun.
fn report(data: &DataView<'_>, mut at: usize, out: Slot, hops: u32) {
    let Ok(mut labels) = data.labels() else { return };
    let (mut position, reverse) = (u16::from(data.position()), !data.reverse());
    let Some((next, mut entered)) = across(at, out) else { return };
    at = next;
    let mut back = 1;
    loop {
        let Ok(mut cursor) = labels.cursor(position, reverse) else { return };
        match step(&mut cursor, &mut u16::MAX.clone(), entered, |slot| across(at, slot).is_some()) {
            Step::Out(out) => {
                position = cursor.at();
                let Some((next, slot)) = across(at, out) else { panic!("a link that is up") };
                (at, entered) = (next, slot);
                back += 1;
                // Labels only become fewer; one that is read from within is of one nibble at least.
                assert!(back <= 1 + u32::from(labels.nibbles()));
            }
            Step::End | Step::Widen | Step::Error(_) => break,
        }
    }
    assert!(back >= hops.min(1));
}
