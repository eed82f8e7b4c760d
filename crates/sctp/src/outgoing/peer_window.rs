//! The peer's receive window (RFC 9260 section 6.2.1).

use crate::path::subtract;

/// The room in the peer's receive buffer, and the data in flight to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerWindow {
    /// The room that is left beside the data in flight.
    room: u32,
    /// The room that the peer reported last.
    reported: u32,
    /// The room that the peer offered first.
    first: u32,
    /// Bytes of user data in flight.
    outstanding: u32,
}

impl PeerWindow {
    /// Handles the window that a peer offers when the association is opened (rule A).
    pub(super) fn offer(&mut self, a_rwnd: u32) {
        (self.room, self.reported, self.first) = (a_rwnd, a_rwnd, a_rwnd);
    }

    /// Handles the window of a SACK (rule D ii).
    pub(super) fn report(&mut self, a_rwnd: u32) {
        self.reported = a_rwnd;
        self.room = a_rwnd.saturating_sub(self.outstanding);
    }

    /// Notes data that is sent (rule B).
    #[inline]
    pub(super) fn send(&mut self, len: u32) {
        self.outstanding += len;
        self.room = self.room.saturating_sub(len);
    }

    /// Notes data in flight that is to be sent again or is abandoned (rule C).
    pub(super) fn unsend(&mut self, len: u32) {
        subtract(&mut self.outstanding, len);
        self.room = self.room.saturating_add(len);
    }

    /// Notes data in flight that is acknowledged.
    #[inline]
    pub(super) fn acknowledge(&mut self, len: u32) {
        subtract(&mut self.outstanding, len);
    }

    /// Notes data that the peer has dropped after it acknowledged it.
    pub(super) fn renege(&mut self, len: u32) {
        self.outstanding += len;
    }

    /// Notes that everything in flight takes no room any more.
    pub(super) fn release_all(&mut self) {
        self.room = self.room.saturating_add(self.outstanding);
        self.outstanding = 0;
    }

    /// Notes that nothing is in flight any more. The peer reports its room anew.
    pub(super) fn forget_outstanding(&mut self) {
        self.outstanding = 0;
    }

    /// Returns the bytes of user data in flight.
    #[inline]
    pub(super) fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Returns the room that is left beside the data in flight.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Returns the room that the peer reported last.
    pub(super) fn reported(&self) -> u32 {
        self.reported
    }

    /// Returns the room that the peer offered first.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_in_flight_takes_room() {
        let mut window = PeerWindow::default();
        window.offer(1000);
        window.send(600);
        window.send(600);
        assert_eq!((window.room(), window.reported(), window.first()), (0, 1000, 1000));
        window.unsend(600);
        assert_eq!((window.room(), window.outstanding()), (600, 600));
        window.acknowledge(400);
        window.report(500);
        assert_eq!((window.room(), window.reported(), window.first()), (300, 500, 1000));
        window.report(100);
        assert_eq!(window.room(), 0);
        window.renege(400);
        assert_eq!(window.outstanding(), 600);
        window.release_all();
        assert_eq!((window.room(), window.outstanding()), (600, 0));
    }
}
