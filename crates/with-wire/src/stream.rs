//! A stream of bytes with an end in each direction, as messages of an SCTP association of its own: what peers without
//! [`sharing`](crate::sharing) have.
//!
//! SCTP has no half close: after SHUTDOWN neither end sends (RFC 9260 section 9.2). So the end of a direction is a
//! message of its own, which arrives after all before it, because all are ordered on stream 0. Payload protocol
//! identifiers (RFC 9260 section 3.3.1) distinguish them:
//!
//! | identifier | message |
//! |---|---|
//! | [`DATA`], 0 | bytes of the stream; where they are split means nothing |
//! | [`FIN`] | one octet, zero: the end of this direction |
//!
//! A reset is the ABORT of the association, with [`RESET`] as its reason. When both directions have ended, either end
//! shuts the association down. A peer that shuts down without a FIN has ended, too: then nothing more can come.
//!
//! Identifier 0 is what a program sends that knows SCTP and not this format.

/// Identifier of bytes: "RWB" and the version.
pub const DATA: u32 = u32::from_be_bytes(*b"RWB\x01");
/// Identifier of the end of a direction: "RWF" and the version.
pub const FIN: u32 = u32::from_be_bytes(*b"RWF\x01");
/// The payload of [`FIN`]: SCTP has no empty messages (RFC 9260 section 3.3.1).
pub const FIN_PAYLOAD: &[u8] = &[0];
/// The reason of an ABORT by which the program's end, or the lack of one, resets the connection.
pub const RESET: &[u8] = b"connection reset";

/// One message, or part of one, as SCTP delivers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The stream.
    pub stream: u16,
    /// The payload protocol identifier.
    pub ppid: u32,
    /// Whether it came without regard to order.
    pub unordered: bool,
    /// Whether the sender has abandoned the rest of it.
    pub cut: bool,
    /// Octets.
    pub length: usize,
}

/// What a delivery means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    /// Bytes of the stream.
    Bytes,
    /// No more bytes come.
    End,
}

/// What a peer of this format does not send. The association is aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Bytes on another stream would have no order.
    #[error("expected messages on stream 0, got stream {0}")]
    Stream(u16),
    /// Unordered bytes.
    #[error("expected ordered messages, got an unordered one")]
    Unordered,
    /// A gap in the bytes.
    #[error("expected whole messages, got one that was abandoned")]
    Cut,
    /// An identifier that means nothing here.
    #[error("expected payload protocol identifier {DATA:#x} or {FIN:#x}, got {0:#x}")]
    Identifier(u32),
    /// A message after the end.
    #[error("expected nothing after the end, got {0} octets")]
    AfterEnd(usize),
}

/// The receiving direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Receiving {
    /// Bytes may come.
    #[default]
    Open,
    /// The peer has sent its end.
    Ended,
}

impl Receiving {
    /// Takes a delivery in.
    ///
    /// # Errors
    /// The peer does not keep to the format.
    pub fn take(&mut self, delivery: &Delivery) -> Result<Piece, Violation> {
        let &Delivery { stream, ppid, unordered, cut, length } = delivery;
        if *self == Receiving::Ended {
            return Err(Violation::AfterEnd(length));
        }
        if stream != 0 {
            return Err(Violation::Stream(stream));
        }
        if unordered {
            return Err(Violation::Unordered);
        }
        if cut {
            return Err(Violation::Cut);
        }
        match ppid {
            DATA | 0 => Ok(Piece::Bytes),
            FIN => {
                *self = Receiving::Ended;
                Ok(Piece::End)
            }
            other => Err(Violation::Identifier(other)),
        }
    }

    /// Returns whether the end has come.
    pub fn is_ended(self) -> bool {
        self == Receiving::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(ppid: u32) -> Delivery {
        Delivery { stream: 0, ppid, unordered: false, cut: false, length: 3 }
    }

    #[test]
    fn bytes_come_until_the_end() {
        let mut receiving = Receiving::default();
        assert_eq!(receiving.take(&message(DATA)), Ok(Piece::Bytes));
        assert_eq!(receiving.take(&message(0)), Ok(Piece::Bytes));
        assert!(!receiving.is_ended());
        assert_eq!(receiving.take(&message(FIN)), Ok(Piece::End));
        assert!(receiving.is_ended());
        assert_eq!(receiving.take(&message(DATA)), Err(Violation::AfterEnd(3)));
        assert_eq!(receiving.take(&message(FIN)), Err(Violation::AfterEnd(3)));
    }

    #[test]
    fn what_would_break_the_stream_is_a_violation() {
        let take = |delivery| Receiving::default().take(&delivery).unwrap_err();
        assert_eq!(take(Delivery { stream: 1, ..message(DATA) }), Violation::Stream(1));
        assert_eq!(take(Delivery { unordered: true, ..message(DATA) }), Violation::Unordered);
        assert_eq!(take(Delivery { cut: true, ..message(DATA) }), Violation::Cut);
        assert_eq!(take(message(7)), Violation::Identifier(7));
        assert!(take(message(7)).to_string().contains("got 0x7"));
    }

    proptest! {
        #[test]
        fn there_is_at_most_one_end(ppids in prop::collection::vec(prop::sample::select(vec![0, 7, DATA, FIN]), 0..20)) {
            let mut receiving = Receiving::default();
            let taken: Vec<_> = ppids.iter().map(|ppid| receiving.take(&message(*ppid))).collect();
            let end = taken.iter().position(|piece| *piece == Ok(Piece::End));
            prop_assert_eq!(end.is_some(), receiving.is_ended());
            if let Some(end) = end {
                prop_assert!(taken[end + 1..].iter().all(|piece| piece.is_err()));
            }
        }
    }
}
