//! The next segment to send.

use super::timers::{NEVER, Timer};
use super::{Connection, Recovery, State, TailProbe};
use crate::board::MAX_IN_FLIGHT;
use crate::segment::{Flags, Header, Options, Sack, Timestamps};
use crate::seq::Seq;
use ringway_sansio::{Ecn, Time};

impl Connection {
    /// Appends the next segment to `out`. Returns `None` when nothing is due.
    pub(crate) fn transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Ecn> {
        if self.state.is_synchronised() {
            if self.state != State::TimeWait
                && let Some(ecn) = self.transmit_data(now, out)
            {
                return Some(ecn);
            }
            return self.transmit_ack(now, out);
        }
        if !self.due.syn || self.state == State::Closed {
            return None;
        }
        self.transmit_syn(now, out);
        Some(Ecn::NotEct)
    }

    fn transmit_data(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Ecn> {
        if self.board.lost_bytes() > 0
            && let Some(ecn) = self.retransmit(now, out)
        {
            return Some(ecn);
        }
        let nothing_new = self.unsent() == 0 && !(self.fin_queued && self.fin_sent.is_none());
        if self.due.tail_probe {
            self.due.tail_probe = false;
            // RFC 8985 section 7.3: new data if there is any and the peer's window allows it.
            if !nothing_new && let Some(ecn) = self.send_new(now, out, Force::TailProbe) {
                self.tail_probe = Some(TailProbe { end: self.snd_nxt, retransmitted: false });
                return Some(ecn);
            }
            if let Some(id) = self.board.last() {
                self.resend(now, id, out);
                self.tail_probe = Some(TailProbe { end: self.snd_nxt, retransmitted: true });
                return Some(Ecn::NotEct);
            }
        }
        if nothing_new {
            return None;
        }
        let force = if self.due.window_probe { Force::Window } else { Force::No };
        self.due.window_probe = false;
        self.send_new(now, out, force)
    }

    /// Sends the first lost segment again, if the window allows it.
    fn retransmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Ecn> {
        let id = self.board.next_lost()?;
        let length = self.board.get(id)?.len();
        if !self.due.retransmission && self.pipe() + length > self.window.cwnd {
            return None;
        }
        self.due.retransmission = false;
        self.resend(now, id, out);
        // RFC 3168 section 6.1.5: retransmissions are not ECN-capable.
        Some(Ecn::NotEct)
    }

    fn resend(&mut self, now: Time, id: u64, out: &mut Vec<u8>) {
        let Some(&record) = self.board.get(id) else { return };
        let fin = self.fin_sent.is_some_and(|fin| record.end.after(fin));
        let length = record.len() - u32::from(fin);
        self.board.resent(id, now);
        self.prr.sent(record.len());
        self.totals.retransmits += 1;
        let mut flags = Flags::ACK | Flags::PSH;
        if fin {
            flags |= Flags::FIN;
        }
        self.emit(now, flags, record.seq, length as usize, out);
        if self.timer(Timer::Retransmit) == NEVER {
            self.arm_rto(now);
        }
    }

    /// Sends as much new data as fits a segment, if every window allows it.
    fn send_new(&mut self, now: Time, out: &mut Vec<u8>, force: Force) -> Option<Ecn> {
        let full = self.board.len() >= MAX_IN_FLIGHT;
        let held = full && self.unsent() > 0;
        // Counted once until an acknowledgment makes room.
        self.totals.in_flight_full += u64::from(held && !self.held_by_limit);
        self.held_by_limit = held;
        if full {
            return None;
        }
        let mss = self.mss as usize;
        let unsent = self.unsent();
        let in_flight = self.snd_nxt - self.snd_una;
        let room = self.snd_wnd.saturating_sub(in_flight) as usize;
        let mut length = unsent.min(mss).min(room);
        let quiet = self.board.is_empty();
        let last = self.fin_queued && length == unsent;
        if force == Force::Window {
            // RFC 9293 section 3.8.6.1: at least one byte, or the FIN.
            length = length.max(unsent.min(1));
        } else if length < mss && !self.worth_sending(length, unsent, room, quiet) {
            if quiet && !self.is_held_by_nagle_only(length, unsent) {
                self.arm_persist(now);
            }
            return None;
        }
        if force == Force::No {
            self.restart_after_idle(now, quiet);
            let pipe = self.pipe();
            if pipe + length as u32 > self.window.cwnd && pipe > 0 {
                return None;
            }
        }
        let fin = self.fin_queued
            && length == unsent
            && (length < room || force == Force::Window && length == 0);
        if length == 0 && !fin {
            if quiet && last {
                self.arm_persist(now);
            }
            return None;
        }
        let mut flags = Flags::ACK;
        if length == unsent && length > 0 {
            flags |= Flags::PSH;
        }
        let seq = self.snd_nxt;
        let mut end = seq + length as u32;
        if fin {
            flags |= Flags::FIN;
            self.fin_sent = Some(end);
            end += 1;
            self.state = match self.state {
                State::CloseWait => State::LastAck,
                _ => State::FinWait1,
            };
        }
        let mut ecn = Ecn::NotEct;
        if self.ecn.on && length > 0 && force == Force::No {
            ecn = Ecn::Ect0;
            if self.ecn.reduced {
                // RFC 3168 section 6.1.2: on the first new data after the reduction.
                self.ecn.reduced = false;
                flags |= Flags::CWR;
            }
        }
        if quiet {
            self.progress_at = now;
        }
        self.board.push(seq, end, now);
        self.snd_nxt = end;
        self.sent_at = now;
        self.totals.bytes_sent += length as u64;
        if matches!(self.recovery, Recovery::Fast { .. }) {
            self.prr.sent(end - seq);
        }
        self.emit(now, flags, seq, length, out);
        // RFC 6298 section 5.1, RFC 8985 section 7.2.
        if self.timer(Timer::Retransmit) == NEVER {
            self.arm_rto(now);
        }
        if force == Force::No {
            self.arm_tail_probe(now);
        }
        Some(ecn)
    }

    /// Returns whether less than a full segment is sent: the sender's silly window avoidance (RFC 9293
    /// section 3.8.6.2.1) and Nagle (section 3.7.4). All data counts as pushed.
    fn worth_sending(&self, length: usize, unsent: usize, room: usize, quiet: bool) -> bool {
        let all = length == unsent;
        let free = quiet || !self.settings.nagle || self.fin_queued;
        if all && free && (length > 0 || (self.fin_queued && room > 0)) {
            return true;
        }
        free && length > 0 && length as u32 >= self.max_snd_wnd / 2
    }

    /// Returns whether the peer's window has room, so that no probe is needed.
    fn is_held_by_nagle_only(&self, length: usize, unsent: usize) -> bool {
        length == unsent && unsent > 0
    }

    /// Restarts an idle connection with a small window (RFC 5681 section 4.1).
    fn restart_after_idle(&mut self, now: Time, quiet: bool) {
        if quiet && now.since(self.sent_at) > self.rtt.rto() {
            self.window.cwnd = self.window.cwnd.min(self.initial_window());
            self.congestion.idle();
        }
    }

    fn transmit_ack(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Ecn> {
        if self.due.keep_alive {
            // RFC 9293 section 3.8.4: one below the number that the peer expects.
            self.due.keep_alive = false;
            self.emit(now, Flags::ACK, self.snd_una.back(1), 0, out);
            return Some(Ecn::NotEct);
        }
        if !self.due.ack {
            return None;
        }
        self.emit(now, Flags::ACK, self.snd_nxt, 0, out);
        Some(Ecn::NotEct)
    }

    fn transmit_syn(&mut self, now: Time, out: &mut Vec<u8>) {
        self.due.syn = false;
        self.due.ack = false;
        self.sent_at = now;
        let answers = self.state == State::SynReceived;
        let mut flags = Flags::SYN;
        let window = self.receive.limit().min(0xffff) as u16;
        if answers {
            flags |= Flags::ACK;
            if self.ecn.on {
                flags |= Flags::ECE;
            }
        } else if self.ecn.on {
            flags |= Flags::ECE | Flags::CWR;
        }
        let timestamps = self.stamps.on.then(|| Timestamps {
            value: self.stamp(now),
            echo: if answers { self.stamps.recent } else { 0 },
        });
        let header = Header {
            source: self.local.port(),
            destination: self.remote.port(),
            seq: self.iss,
            ack: if answers { self.rcv_nxt } else { Seq::default() },
            flags,
            window,
            options: Options {
                mss: Some(self.mss_option()),
                window_scale: self.scale_on.then_some(self.rcv_scale),
                sack_permitted: self.sack_on,
                timestamps,
                sack: Sack::default(),
            },
        };
        self.totals.segments_sent += 1;
        header.write(out, (&[], &[]));
    }

    /// Writes a segment with `length` bytes of data from `seq` on. It acknowledges everything received.
    fn emit(&mut self, now: Time, flags: Flags, seq: Seq, length: usize, out: &mut Vec<u8>) {
        let window = self.window_to_advertise();
        let flags = if self.ecn.echo { flags | Flags::ECE } else { flags };
        let sack = if self.sacks_len == 0 && self.duplicate.is_none() {
            Sack::NONE
        } else if length == 0 {
            self.sack_blocks()
        } else {
            // Data leaves no room for blocks, which follow on a separate acknowledgment.
            Sack::NONE
        };
        let owed = length > 0 && self.due.ack && (self.sacks_len > 0 || self.duplicate.is_some());
        let header = Header {
            source: self.local.port(),
            destination: self.remote.port(),
            seq,
            ack: self.rcv_nxt,
            flags,
            window: (window >> self.scale()) as u16,
            options: Options {
                timestamps: self
                    .stamps
                    .on
                    .then(|| Timestamps { value: self.stamp(now), echo: self.stamps.recent }),
                sack,
                ..Options::NONE
            },
        };
        let offset = seq.ahead_of(self.snd_una) as usize;
        let data = self.send.slices(offset, length);
        header.write(out, data);
        self.due.ack = owed;
        self.unacked_segments = 0;
        self.last_ack_sent = self.rcv_nxt;
        self.stop_timer(Timer::DelayedAck);
        self.totals.segments_sent += 1;
    }
}

/// The windows that a segment may exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Force {
    /// Nothing.
    No,
    /// The congestion window, for a tail loss probe.
    TailProbe,
    /// Both windows, for a zero-window probe.
    Window,
}
