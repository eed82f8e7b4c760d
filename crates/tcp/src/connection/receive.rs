//! The receiving side: ordering of data, acknowledgments, and the advertised window.

use super::Connection;
use super::timers::{NEVER, Timer};
use crate::segment::{MAX_SACK_BLOCKS, Sack};
use crate::seq::Seq;
use ringway_sansio::Time;

impl Connection {
    /// Handles data that overlaps the window, in a state that receives.
    pub(super) fn receive_data(&mut self, now: Time, seq: Seq, data: &[u8]) {
        let (mut left, mut data) = (seq, data);
        let mut end = seq + data.len() as u32;
        if left.before(self.rcv_nxt) {
            // RFC 2883 section 4.1: the part received before is reported.
            if self.sack_on {
                self.duplicate = Some((left, end.min(self.rcv_nxt)));
            }
            let cut = (self.rcv_nxt - left) as usize;
            if cut >= data.len() {
                self.due.ack = true;
                return;
            }
            data = &data[cut..];
            left = self.rcv_nxt;
        }
        // Nothing beyond the window or the peer's FIN is accepted.
        let edge = self.fin_received.map_or(self.rcv_adv, |fin| fin.min(self.rcv_adv));
        if end.after(edge) {
            end = edge;
            data = &data[..edge.ahead_of(left) as usize];
            self.due.ack = true;
        }
        if data.is_empty() {
            return;
        }
        if left == self.rcv_nxt {
            self.receive_in_order(now, data);
        } else {
            self.receive_out_of_order(left, end, data);
        }
    }

    fn receive_in_order(&mut self, now: Time, data: &[u8]) {
        let placed = self.receive.write_at(self.receive.len(), data);
        self.advance(placed as u32);
        self.pending.readable = true;
        if !self.out_of_order.is_empty() {
            // RFC 5681 section 4.2: what fills a gap is acknowledged at once.
            self.due.ack = true;
            while let Some(end) = self.out_of_order.take_joined(self.rcv_nxt) {
                self.advance(end.ahead_of(self.rcv_nxt));
            }
            let next = self.rcv_nxt;
            let mut retained = 0;
            for n in 0..self.sacks_len {
                if self.sacks[n].0.after(next) {
                    self.sacks[retained] = self.sacks[n];
                    retained += 1;
                }
            }
            self.sacks_len = retained;
        }
        // RFC 9293 section 3.8.6.3, RFC 5681 section 4.2: at least every second segment.
        self.unacked_segments += 1;
        if self.unacked_segments >= 2 || self.settings.delayed_ack.is_zero() {
            self.due.ack = true;
        } else if !self.due.ack && self.timer(Timer::DelayedAck) == NEVER {
            self.set_timer(Timer::DelayedAck, now + self.settings.delayed_ack);
        }
    }

    fn advance(&mut self, count: u32) {
        self.receive.extend(count as usize);
        self.rcv_nxt += count;
        self.totals.bytes_received += u64::from(count);
    }

    fn receive_out_of_order(&mut self, left: Seq, right: Seq, data: &[u8]) {
        // RFC 5681 section 4.2: at once, for the sender's fast retransmit.
        self.due.ack = true;
        if self.sack_on && self.out_of_order.gap(left, right).is_none() {
            self.duplicate = Some((left, right));
        }
        let Some(range) = self.out_of_order.insert(left, right) else {
            self.totals.ranges_refused += 1;
            return;
        };
        let offset = self.receive.len() + (left - self.rcv_nxt) as usize;
        self.receive.write_at(offset, data);
        // RFC 2018 section 4: the block of the latest segment is first, the others follow by age.
        let mut latest = [range; MAX_SACK_BLOCKS];
        let mut len = 1;
        for &(low, high) in &self.sacks[..self.sacks_len] {
            let within = low.from(range.0) && high.upto(range.1);
            if !within && len < MAX_SACK_BLOCKS {
                latest[len] = (low, high);
                len += 1;
            }
        }
        self.sacks = latest;
        self.sacks_len = len;
    }

    /// Returns the blocks for the next acknowledgment: a duplicate first (RFC 2883 section 4), then the
    /// ranges that changed last (RFC 2018 section 4).
    pub(super) fn sack_blocks(&mut self) -> Sack {
        let mut sack = Sack::default();
        if !self.sack_on {
            return sack;
        }
        if let Some((left, right)) = self.duplicate.take() {
            sack.push(left, right);
            // RFC 2883 section 4.2: a duplicate within a larger block is followed by that block.
            let within = self.out_of_order.iter().find(|r| r.0.upto(left) && right.upto(r.1));
            if let Some((low, high)) = within {
                sack.push(low, high);
            }
        }
        for &(left, right) in &self.sacks[..self.sacks_len] {
            if !sack.blocks().contains(&(left, right)) {
                sack.push(left, right);
            }
        }
        sack
    }

    /// Returns the window to advertise, in bytes. It never shrinks the advertised edge, and grows only
    /// in useful steps (RFC 9293 section 3.8.6.2.2).
    pub(super) fn window_to_advertise(&mut self) -> u32 {
        let scale = self.scale();
        let edge = self.rcv_nxt + self.receive.space() as u32;
        let step = (self.receive.limit() as u32 / 2).min(self.mss);
        if edge.ahead_of(self.rcv_adv) >= step {
            self.rcv_adv = edge;
        }
        let window = self.rcv_adv.ahead_of(self.rcv_nxt).min(0xffff << scale);
        (window >> scale) << scale
    }

    /// Advertises the window after a read, if it has at least doubled.
    pub(super) fn window_may_open(&mut self) {
        if !self.state.receives() {
            return;
        }
        let edge = self.rcv_nxt + self.receive.space() as u32;
        let gain = edge.ahead_of(self.rcv_adv);
        let left = self.rcv_adv.ahead_of(self.rcv_nxt);
        if gain >= (self.receive.limit() as u32 / 2).min(self.mss) && gain >= left {
            self.due.ack = true;
        }
    }
}
