//! Several streams of bytes in one SCTP association, each as a stream of SCTP with the same number in both directions.
//!
//! Two ends share an association when each has asked for [`STREAMS`] streams and got them. The end that has opened the
//! association opens connections in it. To the messages of [`stream`](crate::stream) come those about a connection, which
//! all begin with its serial number, because a stream is used again:
//!
//! | identifier | after the serial number | message |
//! |---|---|---|
//! | [`OPEN`] | port, 2 octets | a connection begins, from that port of the opener |
//! | [`CREDIT`] | octets, 4 octets | so many octets more may be sent; the first one, which may be of none, accepts |
//! | [`RESET`] | | the connection is reset, or refused |
//!
//! SCTP has one receive window for all streams. So each connection has a window of its own, of [`WINDOW`] octets at first,
//! and both ends take in whatever comes: a connection that is not read stops itself alone.
//!
//! A connection is over when each end has sent its `FIN` or a reset and has received the peer's. Then the opener uses the
//! stream for another one.

use crate::FormatError;
use crate::cursor::{Reader, Writer};
use crate::stream::{DATA, Delivery, FIN};

/// Streams of an association that is shared.
pub const STREAMS: u16 = 64;
/// Octets of a connection that may be unread at the receiver.
pub const WINDOW: u32 = 2 << 20;
/// Octets of the longest message about a connection.
pub const MAX_CONTROL: usize = 8;

/// Identifier of the beginning of a connection: "RWO" and the version.
pub const OPEN: u32 = u32::from_be_bytes(*b"RWO\x01");
/// Identifier of a grant: "RWC" and the version.
pub const CREDIT: u32 = u32::from_be_bytes(*b"RWC\x01");
/// Identifier of a reset: "RWR" and the version.
pub const RESET: u32 = u32::from_be_bytes(*b"RWR\x01");

/// A message about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// It begins.
    Open {
        /// The opener's port, as the acceptor shows it.
        port: u16,
    },
    /// So many octets more may be sent.
    Credit(u32),
    /// It is reset.
    Reset,
}

impl Control {
    /// Returns the payload protocol identifier.
    pub fn ppid(&self) -> u32 {
        match self {
            Control::Open { .. } => OPEN,
            Control::Credit(_) => CREDIT,
            Control::Reset => RESET,
        }
    }

    /// Writes the message about a connection. Returns its length.
    ///
    /// # Errors
    /// There is no room.
    pub fn write(&self, serial: u32, out: &mut [u8]) -> Result<usize, FormatError> {
        let mut writer = Writer::new(out);
        writer.u32(serial)?;
        match self {
            Control::Open { port } => writer.u16(*port)?,
            Control::Credit(octets) => writer.u32(*octets)?,
            Control::Reset => {}
        }
        Ok(writer.len())
    }

    /// Reads a message with this identifier. Returns the connection's serial number, too; `None` for other identifiers.
    ///
    /// # Errors
    /// It is too short or too long.
    pub fn read(ppid: u32, payload: &[u8]) -> Result<Option<(u32, Control)>, FormatError> {
        if !matches!(ppid, OPEN | CREDIT | RESET) {
            return Ok(None);
        }
        let mut reader = Reader(payload);
        let serial = reader.u32()?;
        let control = match ppid {
            OPEN => Control::Open { port: reader.u16()? },
            CREDIT => Control::Credit(reader.u32()?),
            _ => Control::Reset,
        };
        match reader.0.len() {
            0 => Ok(Some((serial, control))),
            more => Err(FormatError::Value {
                what: "octets after a message about a connection",
                got: u32::try_from(more).unwrap_or(u32::MAX),
            }),
        }
    }
}

/// What a peer does not send that keeps to the format. The association is aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SharingError {
    /// Unordered bytes.
    #[error("expected ordered messages, got an unordered one")]
    Unordered,
    /// A gap in the bytes.
    #[error("expected whole messages, got one that was abandoned")]
    Cut,
    /// An identifier that means nothing here.
    #[error("expected a payload protocol identifier of this format, got {0:#x}")]
    Identifier(u32),
    /// A message about a connection is malformed.
    #[error("a message about a connection: {0}")]
    Control(#[from] FormatError),
    /// Bytes that the window does not permit.
    #[error("expected at most {window} octets, got {got}")]
    Window {
        /// The octets that were permitted.
        window: u32,
        /// The octets that came.
        got: usize,
    },
    /// Bytes on a stream without a connection.
    #[error("expected a connection on stream {0} before its bytes")]
    NoConnection(u16),
    /// A connection begins where one is open, or at the wrong end.
    #[error("expected no connection to begin on stream {0}")]
    Begins(u16),
    /// More messages are due than a peer that reads them lets wait.
    #[error("the peer does not read what is due about its connections")]
    Backlog,
}

/// What bytes, or the end of them, mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// Bytes of the connection.
    Bytes,
    /// No more bytes come.
    End,
    /// They are for nobody: the connection was reset here, or has ended.
    Late,
}

/// The state of one connection in a shared association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shared {
    /// Whether the acceptor has answered.
    accepted: bool,
    /// Octets that may be sent.
    credit: u32,
    /// Octets that may come.
    window: u32,
    /// Octets that were read and not yet granted again.
    read: u32,
    sent_end: bool,
    received_end: bool,
    is_reset: bool,
}

impl Shared {
    /// Returns a connection that begins.
    pub const fn new() -> Shared {
        Shared {
            accepted: false,
            credit: WINDOW,
            window: WINDOW,
            read: 0,
            sent_end: false,
            received_end: false,
            is_reset: false,
        }
    }

    /// Takes in what is no message about a connection.
    ///
    /// # Errors
    /// The peer does not keep to the format.
    pub fn take(&mut self, delivery: &Delivery) -> Result<Incoming, SharingError> {
        let &Delivery { ppid, unordered, cut, length, .. } = delivery;
        if unordered {
            return Err(SharingError::Unordered);
        }
        if cut {
            return Err(SharingError::Cut);
        }
        match ppid {
            FIN => {
                let late = self.is_reset || self.received_end;
                self.received_end = true;
                Ok(if late { Incoming::Late } else { Incoming::End })
            }
            DATA if self.received_end => Ok(Incoming::Late),
            DATA => {
                let left = u32::try_from(length).ok().and_then(|got| self.window.checked_sub(got));
                let over = SharingError::Window { window: self.window, got: length };
                self.window = left.ok_or(over)?;
                Ok(if self.is_reset { Incoming::Late } else { Incoming::Bytes })
            }
            other => Err(SharingError::Identifier(other)),
        }
    }

    /// Takes a grant in, which is the peer's acceptance, too.
    pub fn granted(&mut self, octets: u32) {
        self.accepted = true;
        self.credit = self.credit.saturating_add(octets);
    }

    /// Takes a reset by the peer in. Returns whether it must be answered by one.
    pub fn reset_by_peer(&mut self) -> bool {
        let answers = !self.sent_end;
        (self.is_reset, self.received_end, self.sent_end) = (true, true, true);
        answers
    }

    /// Resets the connection. Returns whether the peer must learn of it.
    pub fn reset(&mut self) -> bool {
        let sends = !self.is_reset && !self.is_over();
        (self.is_reset, self.sent_end) = (true, true);
        sends
    }

    /// Returns how many of so many octets may be sent now, which counts as sending them.
    pub fn send(&mut self, octets: usize) -> usize {
        let count = u32::try_from(octets).unwrap_or(u32::MAX).min(self.credit);
        self.credit -= count;
        count as usize
    }

    /// Notes that the end of the outgoing direction is sent.
    pub fn end(&mut self) {
        self.sent_end = true;
    }

    /// Notes that so many octets were read. Returns the grant that is due: once for each half of the window.
    pub fn read(&mut self, octets: usize) -> Option<u32> {
        self.read = self.read.saturating_add(u32::try_from(octets).unwrap_or(u32::MAX));
        if self.read < WINDOW / 2 || self.received_end {
            return None;
        }
        let grant = core::mem::take(&mut self.read);
        self.window = self.window.saturating_add(grant);
        Some(grant)
    }

    /// Returns whether the acceptor has answered.
    pub fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Returns whether one end has reset it.
    pub fn is_reset(&self) -> bool {
        self.is_reset
    }

    /// Returns whether the peer has sent its end.
    pub fn has_received_end(&self) -> bool {
        self.received_end
    }

    /// Returns whether both directions have ended.
    pub fn is_over(&self) -> bool {
        self.sent_end && self.received_end
    }
}

impl Default for Shared {
    fn default() -> Shared {
        Shared::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(ppid: u32, length: usize) -> Delivery {
        Delivery { stream: 3, ppid, unordered: false, cut: false, length }
    }

    #[test]
    fn messages_about_a_connection_are_written_and_read() {
        for control in [Control::Open { port: 65_535 }, Control::Credit(u32::MAX), Control::Reset] {
            let mut out = [0; MAX_CONTROL];
            let length = control.write(7, &mut out).unwrap();
            assert_eq!(Control::read(control.ppid(), &out[..length]), Ok(Some((7, control))));
            assert!(Control::read(control.ppid(), &out[..length - 1]).is_err());
            assert!(control.write(7, &mut out[..length - 1]).is_err());
        }
        assert!(Control::read(RESET, &[0; 5]).is_err(), "longer than a reset is");
        assert_eq!(Control::read(DATA, &[0; 4]), Ok(None));
    }

    #[test]
    fn what_is_sent_and_what_comes_stays_within_the_window() {
        let (mut sender, mut receiver) = (Shared::new(), Shared::new());
        assert_eq!(sender.send(usize::MAX), WINDOW as usize);
        assert_eq!(sender.send(1), 0);
        let half = WINDOW as usize / 2;
        assert_eq!(receiver.take(&message(DATA, half)), Ok(Incoming::Bytes));
        assert_eq!(receiver.take(&message(DATA, half)), Ok(Incoming::Bytes));
        assert_eq!(
            receiver.take(&message(DATA, 1)),
            Err(SharingError::Window { window: 0, got: 1 })
        );
        assert_eq!(receiver.read(half - 1), None);
        let grant = receiver.read(1).unwrap();
        sender.granted(grant);
        assert_eq!(sender.send(usize::MAX), half);
        assert_eq!(receiver.take(&message(DATA, half)), Ok(Incoming::Bytes));
    }

    #[test]
    fn a_connection_is_over_when_both_ends_have_ended_it() {
        let mut one = Shared::new();
        one.end();
        assert!(!one.is_over());
        assert_eq!(one.take(&message(DATA, 5)), Ok(Incoming::Bytes), "half closed");
        assert_eq!(one.take(&message(FIN, 1)), Ok(Incoming::End));
        assert!(one.is_over() && !one.is_reset());
        assert_eq!(one.take(&message(DATA, 5)), Ok(Incoming::Late));
        assert!(!one.reset(), "nothing is left to reset");
    }

    #[test]
    fn a_reset_is_answered_unless_the_end_was_sent() {
        let mut one = Shared::new();
        assert!(one.reset() && !one.is_over());
        assert!(!one.reset(), "once is enough");
        assert_eq!(one.take(&message(DATA, 5)), Ok(Incoming::Late));
        let mut other = Shared::new();
        assert!(other.reset_by_peer() && other.is_over());
        assert!(!one.reset_by_peer() && one.is_over());
        let mut ended = Shared::new();
        ended.end();
        assert!(!ended.reset_by_peer() && ended.is_over());
    }

    #[test]
    fn what_would_break_the_stream_is_an_error() {
        let take = |delivery| Shared::new().take(&delivery).unwrap_err();
        assert_eq!(take(Delivery { unordered: true, ..message(DATA, 1) }), SharingError::Unordered);
        assert_eq!(take(Delivery { cut: true, ..message(DATA, 1) }), SharingError::Cut);
        assert_eq!(take(message(0, 1)), SharingError::Identifier(0));
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(ppid in prop::sample::select(vec![OPEN, CREDIT, RESET, DATA]), octets in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(Some((serial, control))) = Control::read(ppid, &octets) {
                let mut out = [0; MAX_CONTROL];
                let length = control.write(serial, &mut out).unwrap();
                prop_assert_eq!(&out[..length], &octets[..]);
            }
        }
    }
}
