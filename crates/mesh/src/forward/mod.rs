//! Forwarding: one step of a packet at one router.
//!
//! [`step`] is the only way by which a label is consumed, for control messages and for data. It knows nothing of the
//! ring: when the labels are used up, the packet has arrived, or goes on greedily ([`message`]).
//!
//! Loops: a packet takes at most as many steps as its hop limit. A message that goes on greedily has a new hop limit at
//! each router from which it goes on, and only goes on when the distance to its target falls strictly below any before.
//! So it visits no router as the end of a route twice, also while routes change, and needs no count of refreshments. What
//! walks ([`apart`]) has the tags of those that it has come to.

pub mod apart;
pub mod message;
pub mod transit;

use crate::wire::control::Code;
use crate::wire::{Cursor, Slot};

/// What to do with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Send it to this neighbour.
    Out(Slot),
    /// The labels are used up.
    End,
    /// Send it to the next neighbour with labels that are rewritten: the one that was read has no room for the way back,
    /// because the packet has come by a detour. They are unchanged.
    Widen,
    /// Drop it and report this to its sender. The labels are unchanged: the report goes back by them.
    Error(Code),
}

/// Takes one step with a packet that came by `entered`.
pub fn step(
    cursor: &mut Cursor<'_>,
    hop_limit: &mut u16,
    entered: Slot,
    is_up: impl FnOnce(Slot) -> bool,
) -> Step {
    if cursor.is_at_end() {
        return Step::End;
    }
    let Ok((_, out)) = cursor.peek() else {
        return Step::Error(Code::BadRoute);
    };
    if *hop_limit == 0 {
        return Step::Error(Code::HopLimit);
    }
    if !is_up(out) {
        return Step::Error(Code::LinkDown);
    }
    *hop_limit -= 1;
    cursor.swap(entered).map_or(Step::Widen, Step::Out)
}

#[cfg(test)]
mod tests;
