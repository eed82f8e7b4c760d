//! The receiver of CCID 2: one acknowledgement for each Ack Ratio of data packets (RFC 4341 section 6).

use crate::congestion::{Arrived, Receiver, centimillis};
use crate::wire::DccpOption;
use ringway_sansio::{Duration, Time};

/// Maximum delay of an acknowledgement.
pub const MAX_ACK_DELAY: Duration = Duration::from_millis(200);

/// The receiver of CCID 2.
#[derive(Clone, Debug)]
pub struct TcpLikeReceiver {
    ack_ratio: u16,
    /// Number of data packets since the last acknowledgement.
    pending: u32,
    due: bool,
    deadline: Option<Time>,
}

impl TcpLikeReceiver {
    /// Creates a receiver that has received nothing.
    pub fn new(ack_ratio: u16) -> TcpLikeReceiver {
        TcpLikeReceiver { ack_ratio, pending: 0, due: false, deadline: None }
    }
}

impl Receiver for TcpLikeReceiver {
    fn name(&self) -> &'static str {
        "CCID 2"
    }

    fn arrived(&mut self, arrived: &Arrived) {
        if !arrived.data {
            return;
        }
        self.pending += 1;
        // RFC 4340 section 11.3: the ratio is a minimum; loss and marks are reported at once.
        if self.pending >= u32::from(self.ack_ratio) || arrived.gap || arrived.marked {
            self.due = true;
        }
        if self.deadline.is_none() {
            self.deadline = Some(arrived.now + MAX_ACK_DELAY);
        }
    }

    fn wants_ack(&self) -> bool {
        self.due
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    fn timeout(&mut self, _now: Time) {
        self.deadline = None;
        self.due = self.pending > 0;
    }

    fn acknowledge(&mut self, _now: Time, elapsed: Duration, options: &mut Vec<u8>) {
        self.pending = 0;
        self.due = false;
        self.deadline = None;
        let elapsed = centimillis(elapsed);
        if elapsed > 0 {
            DccpOption::ElapsedTime(elapsed).emit(options);
        }
    }

    fn set_ack_ratio(&mut self, ratio: u16) {
        self.ack_ratio = ratio.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq::Seq;

    fn data(ms: u64, gap: bool) -> Arrived {
        Arrived {
            now: Time::from_millis(ms),
            seq: Seq::new(ms),
            ccval: 0,
            data: true,
            size: 100,
            marked: false,
            gap,
            ndp: None,
        }
    }

    /// RFC 4340 section 11.3, RFC 4341 section 6.1.
    #[test]
    fn acknowledgements_follow_the_ratio() {
        let mut receiver = TcpLikeReceiver::new(2);
        receiver.arrived(&data(0, false));
        assert!(!receiver.wants_ack());
        receiver.arrived(&data(1, false));
        assert!(receiver.wants_ack());
        let mut out = Vec::new();
        receiver.acknowledge(Time::from_millis(1), Duration::ZERO, &mut out);
        assert!(!receiver.wants_ack() && out.is_empty());
        receiver.arrived(&data(2, false));
        assert_eq!(receiver.deadline(), Some(Time::from_millis(202)));
        receiver.timeout(Time::from_millis(202));
        assert!(receiver.wants_ack());
        receiver.acknowledge(Time::from_millis(202), Duration::from_millis(200), &mut out);
        assert_eq!(out, [43, 4, 0x4e, 0x20]);
        receiver.arrived(&data(300, true));
        assert!(receiver.wants_ack(), "a gap is reported at once");
    }
}
