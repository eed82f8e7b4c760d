//! The congestion controls of both half-connections, as the features decide them.

use super::Connection;
use crate::congestion::ccid2::MAX_CWND;
use crate::congestion::{
    Receiver, Sender, TcpLikeReceiver, TcpLikeSender, TfrcReceiver, TfrcSender,
};
use crate::features::Location;
use crate::seq::Seq;
use crate::settings::Ccid;
use crate::wire::Feature;
use ringway_sansio::Duration;

/// Returns a sender of this kind.
pub(super) fn sender(ccid: Ccid, iss: Seq, size: u32, rtt: Option<Duration>) -> Box<dyn Sender> {
    match ccid {
        Ccid::TcpLike => Box::new(TcpLikeSender::new(iss, size, rtt)),
        Ccid::Tfrc => Box::new(TfrcSender::new(size, rtt)),
    }
}

/// Returns a receiver of this kind.
pub(super) fn receiver(ccid: Ccid, ack_ratio: u16) -> Box<dyn Receiver> {
    match ccid {
        Ccid::TcpLike => Box::new(TcpLikeReceiver::new(ack_ratio)),
        Ccid::Tfrc => Box::new(TfrcReceiver::new()),
    }
}

impl Connection {
    /// Returns the value of a feature that is a congestion control.
    fn ccid(&self, location: Location) -> Ccid {
        Ccid::from_number(self.features.get(Feature::Ccid, location)).unwrap_or_default()
    }

    /// Creates the congestion controls that were negotiated. Nothing but the handshake has been sent.
    pub(super) fn start_congestion_control(&mut self) {
        self.ccids = (self.ccid(Location::Local), self.ccid(Location::Remote));
        let size = u32::try_from(self.max_message()).unwrap_or(u32::MAX);
        self.sender = sender(self.ccids.0, self.seq.gss, size, self.handshake_rtt);
        self.receiver = receiver(self.ccids.1, 2);
        self.apply_features();
    }

    /// Applies features that may change at any time.
    pub(super) fn apply_features(&mut self) {
        let ratio = self.features.get(Feature::AckRatio, Location::Remote);
        self.receiver.set_ack_ratio(u16::try_from(ratio).unwrap_or(u16::MAX));
    }

    /// Begins the Changes by which receivers of CCID 2 send Ack Vectors. The sender asks for them (RFC 4341 section 4). The
    /// receiver offers them as well: Linux does not ask where CCID 2 was not its first choice, and needs them nevertheless.
    pub(super) fn require_vectors(&mut self) {
        for (sender, receiver) in
            [(Location::Local, Location::Remote), (Location::Remote, Location::Local)]
        {
            if self.ccid(sender) == Ccid::TcpLike
                && !self.features.is_changing(Feature::Ccid, sender)
                && self.features.get(Feature::SendAckVector, receiver) == 0
                && !self.features.is_changing(Feature::SendAckVector, receiver)
            {
                self.features.change(Feature::SendAckVector, receiver);
            }
        }
    }

    /// Begins the changes that the congestion controls need now.
    pub(super) fn adjust_features(&mut self) {
        self.require_vectors();
        let local = Location::Local;
        // RFC 4340 section 7.5.2: several times the packets of a round trip, acknowledgements too.
        let flight = self.seq.gss.distance(self.seq.gar).clamp(0, MAX_CWND.into());
        let window = self.sender.window().max(flight.unsigned_abs());
        let current = self.features.get(Feature::SequenceWindow, local);
        if window * 5 > current
            && current < super::MAX_LOCAL_WINDOW
            && !self.features.is_changing(Feature::SequenceWindow, local)
        {
            let wanted = (window * 10).min(super::MAX_LOCAL_WINDOW);
            self.features.set(Feature::SequenceWindow, wanted);
        }
        // RFC 4341 section 6.1.2.
        if let Some(ratio) = self.sender.ack_ratio()
            && u64::from(ratio) != self.features.get(Feature::AckRatio, local)
            && !self.features.is_changing(Feature::AckRatio, local)
        {
            self.features.set(Feature::AckRatio, ratio.into());
        }
    }
}
