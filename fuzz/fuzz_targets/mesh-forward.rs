//! A message of the mesh that four routers in a ring forward. Whatever its labels and its record are, it ends: the loop
//! checker of forwarding. What it has become can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_mesh::NodeId;
use ringway_mesh::config::{MAX_CONTROL_NIBBLES, MAX_HOPS};
use ringway_mesh::forward::apart::{Choice, Entered, WALK_LIMIT, Walk, walk};
use ringway_mesh::forward::message::{Here, Verdict, forward};
use ringway_mesh::routes::{Contact, Detours};
use ringway_mesh::wire::{Body, Message, Neighbour, Route, Routed, Slot};

const ROUTERS: usize = 4;
/// Slots of each router for the one before and the one after it: of every class.
const SLOTS: [(u16, u16); ROUTERS] = [(0, 1), (14, 15), (224, 225), (3, 65_535)];
/// Greedy steps that the target allows.
const GREEDY: u64 = 30;

fn neighbours(router: usize) -> [Neighbour; 2] {
    let (before, after) = ((router + ROUTERS - 1) % ROUTERS, (router + 1) % ROUTERS);
    let neighbour = |id: usize, slot, back| {
        Neighbour { id: NodeId::new(id as u64), slot: Slot(slot), back: Some(Slot(back)) }
    };
    [neighbour(before, SLOTS[router].0, SLOTS[before].1), neighbour(after, SLOTS[router].1, SLOTS[after].0)]
}

/// Has no contacts, and neighbours that are all as close.
struct Nobody;

impl Choice for Nobody {
    fn best(&self, _: NodeId, _: &dyn Fn(&Contact) -> bool) -> Option<Route> {
        None
    }

    fn closest(&self, _: NodeId, allowed: &[Neighbour]) -> Option<Slot> {
        allowed.first().map(|neighbour| neighbour.slot)
    }
}

/// A message that walks ends, too.
fn walks(mut message: Routed<'_>) {
    let Ok((Body::LookUpApart { mut avoided, .. }, ..)) = Body::parse(message.message, message.body) else { return };
    let (mut at, mut entered, mut hops) = (0, Slot(SLOTS[0].0), 0);
    loop {
        let around = neighbours(at);
        let here = Here { id: NodeId::new(at as u64), neighbours: &around, detours: &Detours::default(), closes: true, distance: |_, _| 0 };
        let step = walk(&mut message, &mut avoided, here, Entered::By(entered), &Nobody);
        let Walk::Out(slot) = step else { break };
        let Some(next) = around.iter().find(|neighbour| neighbour.slot == slot) else { break };
        (at, entered) = (next.id.raw() as usize, next.back.unwrap());
        hops += 1;
        assert!(hops <= WALK_LIMIT);
    }
    let mut out = Vec::new();
    message.emit(&mut out);
    assert_eq!(Routed::parse(&out).as_ref(), Ok(&message));
}

fuzz_target!(|data: &[u8]| {
    let Ok(mut message) = Routed::parse(data) else { return };
    if message.message == Message::LookUpApart {
        return walks(message);
    }
    let (mut at, mut entered, mut hops) = (0, Slot(SLOTS[0].0), 0);
    let mut greedy = GREEDY;
    message.best = GREEDY;
    loop {
        let around = neighbours(at);
        let here = Here { id: NodeId::new(at as u64), neighbours: &around, detours: &Detours::default(), closes: true, distance: |_, _| 0 };
        let verdict = forward(&mut message, here, entered, |_| {
            greedy = greedy.checked_sub(1)?;
            Some((Route::direct(around[greedy as usize % 2].slot), greedy))
        });
        assert!(message.labels.nibbles() as usize <= MAX_CONTROL_NIBBLES);
        let Verdict::Out(slot) = verdict else { break };
        let next = around.iter().find(|neighbour| neighbour.slot == slot).expect("a link that is up");
        (at, entered) = (next.id.raw() as usize, next.back.unwrap());
        hops += 1;
        assert!(hops <= (GREEDY + 2) * u64::from(MAX_HOPS));
    }
    let mut out = Vec::new();
    message.emit(&mut out);
    assert_eq!(Routed::parse(&out).as_ref(), Ok(&message));
});
