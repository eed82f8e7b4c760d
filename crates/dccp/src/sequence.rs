//! The sequence number variables of a connection and their validity windows (RFC 4340 section 7).

use crate::seq::Seq;
use crate::wire::Kind;

/// Sequence numbers of both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    /// Initial number sent, ISS.
    pub(crate) iss: Seq,
    /// Greatest number sent, GSS.
    pub(crate) gss: Seq,
    /// Initial number received, ISR.
    pub(crate) isr: Seq,
    /// Greatest number received, GSR.
    pub(crate) gsr: Seq,
    /// Greatest acknowledgement number received, GAR.
    pub(crate) gar: Seq,
    /// First number received in OPEN, OSR.
    pub(crate) osr: Option<Seq>,
}

/// The widths of the windows: of the numbers that the peer sends, and of those sent to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Widths {
    pub(crate) remote: u64,
    pub(crate) local: u64,
}

/// Whether the numbers of a packet are valid (RFC 4340 section 8.5, steps 5 and 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Validity {
    Valid,
    /// Answered by a Sync with this Acknowledgement Number.
    Resynchronize(Seq),
    /// Dropped.
    Invalid,
}

impl Sequence {
    /// Begins before the first packet is sent.
    pub(crate) fn new(iss: Seq) -> Sequence {
        let before = iss.minus(1);
        Sequence {
            iss,
            gss: before,
            isr: Seq::default(),
            gsr: Seq::default(),
            gar: before,
            osr: None,
        }
    }

    /// Sets the numbers of the peer from its first packet.
    pub(crate) fn begin(&mut self, seq: Seq) {
        self.isr = seq;
        self.gsr = seq;
    }

    /// Returns the low end of the window of sequence numbers, SWL (RFC 4340 section 7.5.1).
    fn swl(&self, widths: Widths) -> Seq {
        self.gsr.next().minus(widths.remote / 4).max(self.isr)
    }

    /// Returns the high end of the window of sequence numbers, SWH.
    fn swh(&self, widths: Widths) -> Seq {
        self.gsr.plus(widths.remote - widths.remote / 4)
    }

    /// Returns whether an acknowledgement number is within AWL and AWH.
    pub(crate) fn acknowledges(&self, ack: Seq, widths: Widths) -> bool {
        let awl = self.gss.next().minus(widths.local).max(self.iss);
        ack.within(awl, self.gss)
    }

    /// Checks a packet's numbers, and updates the variables when they are valid (RFC 4340 section 8.5,
    /// steps 5 and 6).
    pub(crate) fn check(
        &mut self,
        kind: Kind,
        seq: Seq,
        ack: Option<Seq>,
        widths: Widths,
    ) -> Validity {
        if matches!(kind, Kind::Sync | Kind::SyncAck) {
            let known = ack.is_some_and(|ack| self.acknowledges(ack, widths));
            if !known || seq.before(self.swl(widths)) {
                return Validity::Invalid;
            }
        } else {
            let ends = matches!(kind, Kind::CloseReq | Kind::Close | Kind::Reset(_));
            let (low, gar) =
                if ends { (self.gsr.next(), Some(self.gar)) } else { (self.swl(widths), None) };
            let ack_valid = ack.is_none_or(|ack| {
                self.acknowledges(ack, widths) && gar.is_none_or(|gar| !ack.before(gar))
            });
            if !seq.within(low, self.swh(widths)) || !ack_valid {
                let reset = matches!(kind, Kind::Reset(_));
                return Validity::Resynchronize(if reset { self.gsr } else { seq });
            }
        }
        self.gsr = self.gsr.max(seq);
        if let Some(ack) = ack
            && kind != Kind::Sync
        {
            self.gar = self.gar.max(ack);
        }
        Validity::Valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Reset, ResetCode};

    const WIDTHS: Widths = Widths { remote: 100, local: 100 };

    fn sequence() -> Sequence {
        let mut sequence = Sequence::new(Seq::new(1000));
        sequence.gss = Seq::new(1500);
        sequence.gar = Seq::new(1490);
        sequence.begin(Seq::new(5000));
        sequence.gsr = Seq::new(5500);
        sequence
    }

    fn check(kind: Kind, seq: u64, ack: u64) -> Validity {
        let ack = kind.has_ack().then_some(Seq::new(ack));
        sequence().check(kind, Seq::new(seq), ack, WIDTHS)
    }

    /// RFC 4340 section 7.5.1: a quarter of the window is before GSR, three quarters are after it.
    #[test]
    fn packets_are_valid_within_the_windows() {
        for (seq, valid) in [(5475, false), (5476, true), (5500, true), (5575, true), (5576, false)]
        {
            let expected =
                if valid { Validity::Valid } else { Validity::Resynchronize(Seq::new(seq)) };
            assert_eq!(check(Kind::Data, seq, 0), expected, "{seq}");
        }
        for (ack, valid) in [(1400, false), (1401, true), (1500, true), (1501, false)] {
            assert_eq!(check(Kind::Ack, 5501, ack) == Validity::Valid, valid, "{ack}");
        }
    }

    /// RFC 4340 section 7.5.1: the windows do not begin before the initial numbers.
    #[test]
    fn windows_begin_at_the_initial_numbers() {
        let mut young = Sequence::new(Seq::new(1000));
        young.gss = Seq::new(1001);
        young.begin(Seq::new(5000));
        let ack = |n| Some(Seq::new(n));
        assert_ne!(young.check(Kind::Ack, Seq::new(4999), ack(1000), WIDTHS), Validity::Valid);
        assert_ne!(young.check(Kind::Ack, Seq::new(5001), ack(999), WIDTHS), Validity::Valid);
        assert_eq!(young.check(Kind::Ack, Seq::new(5001), ack(1000), WIDTHS), Validity::Valid);
    }

    /// RFC 4340 section 7.5.3: what ends a connection must be newer than all that came before.
    #[test]
    fn closing_packets_have_narrower_windows() {
        let reset = Kind::Reset(Reset::new(ResetCode::Closed));
        assert_eq!(check(Kind::Close, 5501, 1490), Validity::Valid);
        assert_ne!(check(Kind::Close, 5500, 1490), Validity::Valid);
        assert_ne!(check(Kind::Close, 5501, 1489), Validity::Valid);
        assert_eq!(check(reset, 5499, 1490), Validity::Resynchronize(Seq::new(5500)));
    }

    /// RFC 4340 section 8.5, step 5: a Sync may be far ahead, and moves the window there.
    #[test]
    fn a_sync_moves_the_window() {
        let mut sequence = sequence();
        let far = Seq::new(90_000);
        let old = Some(Seq::new(1300));
        assert_eq!(sequence.check(Kind::SyncAck, far, old, WIDTHS), Validity::Invalid);
        assert_eq!(check(Kind::Sync, 5400, 1500), Validity::Invalid);
        let ack = Some(Seq::new(1500));
        assert_eq!(sequence.check(Kind::Sync, far, ack, WIDTHS), Validity::Valid);
        assert_eq!((sequence.gsr, sequence.gar), (far, Seq::new(1490)));
        assert_eq!(sequence.check(Kind::SyncAck, far.next(), ack, WIDTHS), Validity::Valid);
        assert_eq!((sequence.gsr, sequence.gar), (far.next(), Seq::new(1500)));
    }
}
