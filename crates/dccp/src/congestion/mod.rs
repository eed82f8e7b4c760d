//! Congestion control: a sender and a receiver for each half-connection (RFC 4340 section 10).
//!
//! A sender decides when a data packet may be sent, from what was sent and what is acknowledged. A
//! receiver decides when an acknowledgement is due and what its congestion control adds to it. Ack
//! Vectors are written by the connection.

pub mod ccid2;
pub mod ccid3;

pub use ccid2::{TcpLikeReceiver, TcpLikeSender};
pub use ccid3::{TfrcReceiver, TfrcSender};

use crate::seq::Seq;
use crate::wire::vector::{self, DropCode};
use core::fmt;
use ringway_sansio::{Duration, Time};

/// Number of packets that arrive after a missing one until it counts as lost (RFC 4341 section 5, RFC
/// 5348 section 5.1).
pub const NDUPACK: usize = 3;

/// Whether a data packet may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// Now.
    Now,
    /// At this time, unless something arrives before.
    At(Time),
    /// When something has arrived.
    Blocked,
}

/// A packet that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// When.
    pub now: Time,
    /// Its sequence number.
    pub seq: Seq,
    /// Whether it carries data.
    pub data: bool,
    /// Length in bytes of the data.
    pub size: u32,
}

/// What an acknowledgement states.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// When it arrived.
    pub now: Time,
    /// Acknowledgement Number.
    pub ack: Seq,
    /// Ack Vectors, which continue each other.
    pub vectors: &'a [&'a [u8]],
    /// Time between the arrival of the acknowledged packet and the acknowledgement.
    pub elapsed: Duration,
    /// Blocks of Data Dropped.
    pub dropped: &'a [u8],
    /// Whether the receiver has difficulty in keeping up.
    pub slow_receiver: bool,
    /// Number of packets of the peer that were lost since the last acknowledgement.
    pub lost_acks: u64,
    /// Inverse of the loss event rate.
    pub loss_event_rate: Option<u32>,
    /// Value of Loss Intervals.
    pub loss_intervals: Option<&'a [u8]>,
    /// Bytes per second.
    pub receive_rate: Option<u32>,
}

impl Feedback<'_> {
    /// Returns the packets whose data were dropped, in descending order, and why (RFC 4340 section 11.7).
    fn drops(&self) -> impl Iterator<Item = (Seq, DropCode)> + '_ {
        let mut next = self.ack;
        vector::dropped(self.dropped).flat_map(move |(code, count)| {
            let first = next;
            next = next.minus(count);
            code.into_iter()
                .flat_map(move |code| (0..count).map(move |back| (first.minus(back), code)))
        })
    }
}

/// A packet that arrived, for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// When.
    pub now: Time,
    /// Its sequence number.
    pub seq: Seq,
    /// CCVal of its header.
    pub ccval: u8,
    /// Whether it carries data.
    pub data: bool,
    /// Length in bytes of the data.
    pub size: u32,
    /// Whether a router marked congestion.
    pub marked: bool,
    /// Whether packets before it are missing.
    pub gap: bool,
    /// NDP Count, where it has one.
    pub ndp: Option<u64>,
}

/// The state of a sender.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SenderSnapshot {
    /// Congestion window in packets; 0 where there is none.
    pub cwnd: u32,
    /// Number of data packets in flight.
    pub pipe: u32,
    /// Allowed rate in bytes per second; 0 where there is none.
    pub rate: f64,
    /// Loss event rate; 0 where there is none.
    pub loss_event_rate: f64,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Number of congestion events.
    pub congestion_events: u64,
    /// Number of expired timers.
    pub timeouts: u64,
    /// Number of data packets that were found lost.
    pub lost: u64,
}

/// The sender of a half-connection.
pub trait Sender: fmt::Debug + Send {
    /// Returns its name, for traces.
    fn name(&self) -> &'static str;

    /// Returns whether the next message, of `size` bytes, may be sent. A call means that one waits.
    fn permit(&mut self, now: Time, size: u32) -> Permit;

    /// Handles a packet that was sent.
    fn sent(&mut self, sent: Sent);

    /// Handles an acknowledgement.
    fn feedback(&mut self, feedback: &Feedback<'_>);

    /// Returns when [`Sender::timeout`] is to be called.
    fn deadline(&self) -> Option<Time>;

    /// Handles the deadline.
    fn timeout(&mut self, now: Time);

    /// Returns CCVal for the next packet.
    fn ccval(&mut self, now: Time) -> u8;

    /// Returns the Ack Ratio that the receiver should have, if there is one.
    fn ack_ratio(&self) -> Option<u16>;

    /// Returns the number of packets that one round trip may hold.
    fn window(&self) -> u64;

    /// Returns the state.
    fn snapshot(&self) -> SenderSnapshot;
}

/// The receiver of a half-connection.
pub trait Receiver: fmt::Debug + Send {
    /// Returns its name, for traces.
    fn name(&self) -> &'static str;

    /// Handles a packet.
    fn arrived(&mut self, arrived: &Arrived);

    /// Returns whether an acknowledgement is due.
    fn wants_ack(&self) -> bool;

    /// Returns when an acknowledgement becomes due.
    fn deadline(&self) -> Option<Time>;

    /// Handles the deadline.
    fn timeout(&mut self, now: Time);

    /// Appends the options of an acknowledgement, which is sent at once. `elapsed` is the time since the
    /// acknowledged packet arrived.
    fn acknowledge(&mut self, now: Time, elapsed: Duration, options: &mut Vec<u8>);

    /// Sets the number of data packets for each acknowledgement.
    fn set_ack_ratio(&mut self, ratio: u16);
}

/// Returns a time in units of 10 us, as options state it.
fn centimillis(elapsed: Duration) -> u32 {
    u32::try_from(elapsed.as_micros() / 10).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4340 section 11.7: blocks count down from the Acknowledgement Number.
    #[test]
    fn drops_are_found() {
        let feedback = Feedback {
            now: Time::ZERO,
            ack: Seq::new(100),
            vectors: &[],
            elapsed: Duration::ZERO,
            // Three normal, two of drop code 2, one of drop code 3, one of drop code 2.
            dropped: &[0x02, 0xa1, 0xb0, 0xa0],
            slow_receiver: false,
            lost_acks: 0,
            loss_event_rate: None,
            loss_intervals: None,
            receive_rate: None,
        };
        let found: Vec<_> = feedback.drops().map(|(seq, code)| (seq.raw(), code)).collect();
        let (buffer, corrupt) = (DropCode::ReceiveBuffer, DropCode::Corrupt);
        assert_eq!(found, [(97, buffer), (96, buffer), (95, corrupt), (94, buffer)]);
    }
}
