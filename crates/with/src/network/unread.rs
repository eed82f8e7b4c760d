//! Room for what has come and was not read, of which sources have shares: the bytes of connections that share an
//! association wait here and not in SCTP, and a peer has as many connections as it wants.

use crate::locking::lock;
use ringway_transport::Holdings;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Octets that are counted as one. What a connection has below that is not counted.
const UNIT: usize = 16 << 10;
/// Octets that may be unread.
const MAX: usize = 512 << 20;
/// The part of the room that is a reserve, in which one source may hold a quarter of what is free.
const RESERVE: usize = 8;

/// The room of a broker.
#[derive(Clone)]
pub(super) struct Unread(Arc<Mutex<Holdings>>);

impl Default for Unread {
    fn default() -> Unread {
        Unread::new(MAX)
    }
}

impl Unread {
    /// Returns room for so many octets.
    pub(super) fn new(octets: usize) -> Unread {
        let units = octets / UNIT;
        Unread(Arc::new(Mutex::new(Holdings::with_reserve(units, units.div_ceil(RESERVE)))))
    }

    /// Returns the room that a connection of a peer holds: none yet.
    pub(super) fn held(&self, peer: IpAddr) -> Held {
        Held { room: self.clone(), source: peer, octets: 0, units: 0 }
    }
}

/// What one connection holds, until it is dropped.
pub(super) struct Held {
    room: Unread,
    source: IpAddr,
    octets: usize,
    units: usize,
}

impl Held {
    /// Counts octets that have come. Returns whether there is room for them.
    pub(super) fn add(&mut self, octets: usize) -> bool {
        self.octets += octets;
        self.settle()
    }

    /// Counts octets that were read.
    pub(super) fn remove(&mut self, octets: usize) {
        self.octets = self.octets.saturating_sub(octets);
        self.settle();
    }

    fn settle(&mut self) -> bool {
        let expected = self.octets / UNIT;
        if expected == self.units {
            return true;
        }
        let mut room = lock(&self.room.0);
        while self.units > expected {
            room.release(self.source);
            self.units -= 1;
        }
        while self.units < expected && room.take(self.source) {
            self.units += 1;
        }
        self.units == expected
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.remove(self.octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn one_source_leaves_room_for_others() {
        let room = Unread::new(80 * UNIT);
        let mut first: Vec<Held> = (0..7).map(|_| room.held(peer(1))).collect();
        assert!(first.iter_mut().all(|held| held.add(10 * UNIT + UNIT / 2)));
        assert!(!first[0].add(UNIT));
        let mut other = room.held(peer(2));
        assert!(other.add(2 * UNIT) && !other.add(UNIT));
        // What is read or ends is free again, for others first.
        first[0].remove(8 * UNIT);
        let mut third = room.held(peer(3));
        assert!(third.add(4 * UNIT));
        drop((first, other, third));
        assert_eq!(lock(&room.0).taken(), 0);
    }

    #[test]
    fn octets_are_counted_whatever_the_steps() {
        let room = Unread::new(80 * UNIT);
        let mut held = room.held(peer(1));
        for _ in 0..4 * UNIT {
            assert!(held.add(1));
        }
        assert_eq!(lock(&room.0).taken(), 4);
        held.remove(3 * UNIT + 1);
        assert_eq!(lock(&room.0).taken(), 0);
    }
}
