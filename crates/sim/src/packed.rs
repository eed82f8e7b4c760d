//! The events of a world, in the form in which they wait.

use crate::pool::MAX_PACKETS;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet arrives over the link that leaves interface `link`.
    Arrive { packet: u32, link: u32 },
    /// The first of the packets in flight on that link arrives.
    First { link: u32 },
    /// A packet to an address of its sender's node arrives.
    Loop { packet: u32 },
    /// The link that leaves this interface is to be polled.
    Wake { link: u32 },
    /// The timer of this endpoint is due.
    Timer { endpoint: u32 },
}

/// A pending event in one word, which moves in one piece: its kind, the packet and an index.
#[derive(Clone, Copy)]
pub(crate) struct PackedEvent(u64);

const ARRIVE: u64 = 0;
const FIRST: u64 = 1;
const LOOP: u64 = 2;
const WAKE: u64 = 3;
const TIMER: u64 = 4;
/// Position of the kind, above a packet's number.
const KIND_SHIFT: u32 = 56;
const _: () = assert!(MAX_PACKETS <= 1 << (KIND_SHIFT - 32));

impl Event {
    #[inline]
    pub(crate) fn pack(self) -> PackedEvent {
        let (kind, packet, index) = match self {
            Event::Arrive { packet, link } => (ARRIVE, packet, link),
            Event::First { link } => (FIRST, 0, link),
            Event::Loop { packet } => (LOOP, packet, 0),
            Event::Wake { link } => (WAKE, 0, link),
            Event::Timer { endpoint } => (TIMER, 0, endpoint),
        };
        PackedEvent(kind << KIND_SHIFT | u64::from(packet) << 32 | u64::from(index))
    }
}

impl PackedEvent {
    #[inline]
    pub(crate) fn unpack(self) -> Event {
        let (packet, index) = ((self.0 >> 32) as u32 & (MAX_PACKETS as u32 - 1), self.0 as u32);
        match self.0 >> KIND_SHIFT {
            ARRIVE => Event::Arrive { packet, link: index },
            FIRST => Event::First { link: index },
            LOOP => Event::Loop { packet },
            WAKE => Event::Wake { link: index },
            _ => Event::Timer { endpoint: index },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_unpacked_as_they_were() {
        let (packet, link, endpoint) = (MAX_PACKETS as u32 - 1, u32::MAX, u32::MAX);
        for event in [
            Event::Arrive { packet, link },
            Event::Arrive { packet: 0, link: 7 },
            Event::First { link },
            Event::Loop { packet },
            Event::Wake { link },
            Event::Timer { endpoint },
        ] {
            assert_eq!(event.pack().unpack(), event);
        }
    }
}
