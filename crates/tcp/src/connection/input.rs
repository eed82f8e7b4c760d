//! Processing of a segment after the SYN (RFC 9293 section 3.10.7.4).

use super::{CHALLENGE_PERIOD, CHALLENGES, Close, Connection, State, TS_RECENT_LIFE};
use crate::segment::{Flags, Segment};
use crate::seq::Seq;
use ringway_sansio::{Ecn, Time};

impl Connection {
    /// Handles a segment with this connection's addresses.
    pub(crate) fn handle_segment(&mut self, now: Time, ecn: Ecn, segment: &Segment<'_>) {
        self.totals.segments_received += 1;
        match self.state {
            State::Closed | State::TimeWait => {}
            State::SynSent => self.input_syn_sent(now, segment),
            _ => self.input(now, ecn, segment),
        }
    }

    fn input(&mut self, now: Time, ecn: Ecn, segment: &Segment<'_>) {
        let header = &segment.header;
        let flags = header.flags;
        if self.stamps.on && header.options.timestamps.is_none() && !flags.has(Flags::RST) {
            // RFC 7323 section 3.2: once negotiated, every segment carries them.
            return;
        }
        if self.is_older(now, segment) {
            // RFC 7323 section 5.3 (R1): the segment is answered and dropped, unless it is a reset.
            self.totals.paws_refused += 1;
            if !segment.is_empty() {
                self.due.ack = true;
            } else {
                self.challenge(now);
            }
            return;
        }
        if !self.is_acceptable(segment) {
            self.refuse(now, segment);
            return;
        }
        if flags.has(Flags::RST) {
            self.input_reset(now, header.seq);
            return;
        }
        if flags.has(Flags::SYN) {
            // RFC 5961 section 4.2, RFC 9293 section 3.10.7.4: regardless of its sequence number.
            self.challenge(now);
            return;
        }
        if !flags.has(Flags::ACK) {
            return;
        }
        self.heard_at = now;
        self.keep_alive_probes = 0;
        // RFC 7323 section 4.3: the timestamp of the segment that the last acknowledgment waits for.
        if self.stamps.on
            && let Some(stamps) = header.options.timestamps
            && header.seq.upto(self.last_ack_sent)
        {
            self.stamps.recent = stamps.value;
            self.stamps.recent_at = now;
        }
        if self.state == State::SynReceived {
            if header.ack != self.snd_nxt {
                return;
            }
            self.snd_wnd = u32::from(header.window) << self.snd_scale;
            self.snd_wl1 = header.seq;
            self.snd_wl2 = header.ack;
            self.establish(now);
        }
        if !self.input_ack(now, segment) {
            return;
        }
        if self.ecn.on {
            self.input_ecn(ecn, flags, segment.data.is_empty());
        }
        if !segment.data.is_empty() && self.state.receives() {
            self.receive_data(now, header.seq, segment.data);
        }
        if flags.has(Flags::FIN) && self.state.receives() {
            self.note_fin(header.seq + segment.data.len() as u32);
        }
        self.take_fin();
    }

    /// Returns whether the segment is older by PAWS (RFC 7323 section 5.2).
    fn is_older(&self, now: Time, segment: &Segment<'_>) -> bool {
        if !self.stamps.on || segment.header.flags.has(Flags::RST) {
            return false;
        }
        segment.header.options.timestamps.is_some_and(|stamps| {
            Seq::new(stamps.value).before(Seq::new(self.stamps.recent))
                // Section 5.5.
                && now.since(self.stamps.recent_at) < TS_RECENT_LIFE
        })
    }

    /// Returns whether one of the four cases of RFC 9293 section 3.4 holds. A window once advertised is
    /// honoured, however it was rounded since (RFC 7323 section 2.4).
    fn is_acceptable(&self, segment: &Segment<'_>) -> bool {
        let (seq, length) = (segment.header.seq, segment.len());
        let in_window = |at: Seq| at.from(self.rcv_nxt) && at.before(self.rcv_adv);
        match (length, self.rcv_adv == self.rcv_nxt) {
            (0, true) => seq == self.rcv_nxt,
            (0, false) => in_window(seq),
            (_, true) => false,
            (_, false) => in_window(seq) || in_window(seq + (length - 1)),
        }
    }

    /// Handles an unacceptable segment, which is answered unless it is a reset (RFC 9293 section
    /// 3.10.7.4).
    fn refuse(&mut self, now: Time, segment: &Segment<'_>) {
        let header = &segment.header;
        if header.flags.has(Flags::RST) {
            return;
        }
        if header.flags.has(Flags::SYN) && self.state == State::SynReceived {
            if header.seq == self.irs {
                // The peer's SYN again: the local SYN-ACK, or the ACK of its SYN-ACK, was lost.
                if header.flags.has(Flags::ACK) && header.ack == self.snd_nxt {
                    self.establish(now);
                    self.due.ack = true;
                } else {
                    self.due.syn = true;
                }
            }
            return;
        }
        if segment.data.is_empty() && !header.flags.has(Flags::FIN) {
            // RFC 9293 section 3.8.4: a keep-alive probe. The answer is rate-limited, so that two
            // endpoints that disagree do not answer each other forever.
            self.challenge(now);
        } else {
            // A zero-window probe, or data that was received already: RFC 2883 section 4.
            let end = header.seq + segment.data.len() as u32;
            if self.sack_on && end.upto(self.rcv_nxt) && !segment.data.is_empty() {
                self.duplicate = Some((header.seq, end));
            }
            self.due.ack = true;
        }
        // RFC 9293 section 3.10.7.4: with a window of zero valid acknowledgments still count.
        let zero_window = self.rcv_adv == self.rcv_nxt && header.seq == self.rcv_nxt;
        let known = zero_window || header.seq.before(self.rcv_nxt);
        if known && header.flags.has(Flags::ACK) && self.state.is_synchronised() {
            self.heard_at = now;
            self.keep_alive_probes = 0;
            self.input_ack(now, segment);
        }
    }

    /// Handles a reset, which is valid only with exactly the expected number (RFC 5961 section 3.2).
    fn input_reset(&mut self, now: Time, seq: Seq) {
        if seq != self.rcv_nxt {
            self.challenge(now);
            return;
        }
        let why = match self.state {
            State::SynReceived if !self.passive => Close::Refused,
            // Neither endpoint loses data.
            State::Closing | State::LastAck if self.fin_received.is_some() => Close::Finished,
            _ => Close::Reset,
        };
        self.finish(State::Closed, why);
    }

    /// Sends a challenge acknowledgment, within the limit of RFC 5961 section 7.
    pub(super) fn challenge(&mut self, now: Time) {
        if now.since(self.challenges_since) >= CHALLENGE_PERIOD {
            self.challenges_since = now;
            self.challenges = 0;
        }
        if self.challenges < CHALLENGES {
            self.challenges += 1;
            self.due.ack = true;
        } else {
            self.totals.challenges_withheld += 1;
        }
    }

    /// Updates the ECN state: the receiver echoes congestion until CWR arrives (RFC 3168 section
    /// 6.1.3).
    fn input_ecn(&mut self, ecn: Ecn, flags: Flags, no_data: bool) {
        if flags.has(Flags::CWR) {
            self.ecn.echo = false;
        }
        if ecn == Ecn::Ce && !no_data {
            self.ecn.echo = true;
        }
    }

    /// Notes the end of the peer's data.
    fn note_fin(&mut self, seq: Seq) {
        if self.fin_received.is_none() && seq.before(self.rcv_adv.max(self.rcv_nxt + 1)) {
            self.fin_received = Some(seq);
            if seq != self.rcv_nxt {
                self.due.ack = true;
            }
        }
    }

    /// Handles the FIN when everything before it has arrived (RFC 9293 section 3.10.7.4, eighth).
    fn take_fin(&mut self) {
        if self.fin_received != Some(self.rcv_nxt) || !self.state.receives() {
            return;
        }
        self.rcv_nxt += 1;
        self.rcv_adv = self.rcv_adv.max(self.rcv_nxt);
        self.due.ack = true;
        self.pending.peer_closed = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            // The local FIN is not acknowledged: the FINs crossed.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.finish(State::TimeWait, Close::Finished),
            _ => {}
        }
    }
}
