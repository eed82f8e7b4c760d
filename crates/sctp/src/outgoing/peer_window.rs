//! The peer's receive window (RFC 9260 section 6.2.1).

/// The room in the peer's receive buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerWindow {
    /// The room that is left beside the data in flight.
    room: u32,
    /// The room that the peer reported last.
    reported: u32,
    /// The room that the peer offered first.
    first: u32,
}

impl PeerWindow {
    /// Returns the window that a peer offers when the association is opened (rule A).
    pub(super) fn offered(a_rwnd: u32) -> PeerWindow {
        PeerWindow { room: a_rwnd, reported: a_rwnd, first: a_rwnd }
    }

    /// Handles the window of a SACK while data is in flight (rule D ii).
    pub(super) fn report(&mut self, a_rwnd: u32, outstanding: u32) {
        self.reported = a_rwnd;
        self.room = a_rwnd.saturating_sub(outstanding);
    }

    /// Subtracts data that is sent (rule B).
    #[inline]
    pub(super) fn take(&mut self, len: u32) {
        self.room = self.room.saturating_sub(len);
    }

    /// Adds data that is to be sent again (rule C).
    pub(super) fn release(&mut self, len: u32) {
        self.room = self.room.saturating_add(len);
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
        let mut window = PeerWindow::offered(1000);
        window.take(600);
        window.take(600);
        assert_eq!((window.room(), window.reported(), window.first()), (0, 1000, 1000));
        window.release(600);
        assert_eq!(window.room(), 600);
        window.report(500, 200);
        assert_eq!((window.room(), window.reported(), window.first()), (300, 500, 1000));
        window.report(100, 200);
        assert_eq!(window.room(), 0);
    }
}
