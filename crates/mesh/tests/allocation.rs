//! What a peer's octets may allocate: never more than a few times their own length.

use std::alloc::System;

use ringway_mesh::wire::{Body, Control, HelloView, Items, Message, Routed};
use ringway_sansio::{Random, SplitMix};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Packets that are tried.
const PACKETS: usize = 20_000;
/// Octets that may be allocated for each octet parsed: a hint of 12 octets on the wire takes 48 in memory, in a buffer
/// that may have grown by two, and what is outgrown counts too.
const FACTOR: usize = 16;

#[test]
fn hostile_octets_allocate_no_more_than_their_length() {
    let mut random = SplitMix::new(11);
    let mut bytes = vec![0; 1_500];
    for _ in 0..PACKETS {
        let length = (random.next_u64() % 1_500) as usize;
        let bytes = &mut bytes[..length];
        random.fill(bytes);
        // An item of a known type with a length that fits, so that its body is looked at.
        if length > 8 {
            bytes[0] = [8, 0x10, 0x12, 0x13][(random.next_u64() % 4) as usize];
            bytes[1..3].copy_from_slice(&(length as u16 - 3).to_be_bytes());
        }
        let region = Region::new(GLOBAL);
        let _ = Items::new(bytes).count();
        let _ = Control::parse(bytes);
        let _ = HelloView::parse(bytes).map(|view| view.value());
        let _ = Body::parse(Message::Connect, bytes);
        let _ = Routed::parse(bytes);
        let allocated = region.change().bytes_allocated;
        assert!(allocated <= FACTOR * length, "{allocated} octets for {length}");
    }
}
