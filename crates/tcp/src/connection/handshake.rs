//! The handshake: active, passive and simultaneous open.

use super::timers::Timer;
use super::{Close, Connection, EcnState, State};
use crate::segment::{Flags, MAX_WINDOW_SCALE, Segment};
use crate::seq::Seq;
use crate::settings::Settings;
use ringway_sansio::Time;
use std::net::SocketAddr;

impl Connection {
    /// Creates a connection by an active open (RFC 9293 section 3.10.1).
    pub(crate) fn connect(
        local: SocketAddr,
        remote: SocketAddr,
        settings: &Settings,
        iss: Seq,
        stamp_offset: u32,
        now: Time,
    ) -> Self {
        let mut connection = Connection::new(local, remote, settings, iss, stamp_offset, now);
        connection.state = State::SynSent;
        connection.snd_nxt = iss + 1;
        connection.due.syn = true;
        connection.set_timer(Timer::Retransmit, now + connection.rtt.rto());
        connection
    }

    /// Creates a connection from a SYN for a listener (RFC 9293 section 3.10.7.2).
    pub(crate) fn accept(
        local: SocketAddr,
        remote: SocketAddr,
        settings: &Settings,
        (iss, stamp_offset): (Seq, u32),
        syn: &Segment<'_>,
        now: Time,
    ) -> Self {
        let mut connection = Connection::new(local, remote, settings, iss, stamp_offset, now);
        connection.state = State::SynReceived;
        connection.passive = true;
        connection.snd_nxt = iss + 1;
        connection.learn(syn, now);
        // RFC 3168 section 6.1.1: an ECN-setup SYN has both bits.
        connection.ecn.on &= syn.header.flags.has(Flags::ECE | Flags::CWR);
        connection.due.syn = true;
        connection.set_timer(Timer::Retransmit, now + connection.rtt.rto());
        connection
    }

    /// Reads the options of the peer's SYN. An option that only one endpoint supports is off.
    fn learn(&mut self, syn: &Segment<'_>, now: Time) {
        let header = &syn.header;
        let options = &header.options;
        self.irs = header.seq;
        self.rcv_nxt = header.seq + 1;
        self.rcv_adv = self.rcv_nxt + self.receive.limit().min(0xffff) as u32;
        self.last_ack_sent = self.rcv_nxt;
        self.sack_on &= options.sack_permitted;
        match options.window_scale {
            Some(shift) if self.scale_on => self.snd_scale = shift.min(MAX_WINDOW_SCALE),
            _ => self.scale_on = false,
        }
        match options.timestamps {
            Some(stamps) if self.stamps.on => {
                self.stamps.recent = stamps.value;
                self.stamps.recent_at = now;
            }
            _ => self.stamps.on = false,
        }
        if !self.scale_on {
            self.receive = crate::ring::Ring::new(self.receive.limit().min(0xffff));
        }
        self.set_mss(options.mss);
        // RFC 7323 section 2.2: the window of a SYN is never scaled.
        self.snd_wnd = u32::from(header.window);
        self.max_snd_wnd = self.snd_wnd;
        self.snd_wl1 = header.seq;
        self.heard_at = now;
    }

    /// Returns whether a segment is answered with a reset that carries its acknowledgment (RFC 9293
    /// sections 3.10.7.3 and 3.10.7.4, fifth): it acknowledges what this handshake never sent.
    pub(crate) fn resets(&self, segment: &Segment<'_>) -> bool {
        let header = &segment.header;
        if !header.flags.has(Flags::ACK)
            || header.flags.has(Flags::RST)
            || header.ack == self.snd_nxt
        {
            return false;
        }
        match self.state {
            State::SynSent => true,
            State::SynReceived => header.seq == self.rcv_nxt && !header.flags.has(Flags::SYN),
            _ => false,
        }
    }

    /// Completes the handshake: the local SYN is acknowledged and the peer's was received.
    pub(super) fn establish(&mut self, now: Time) {
        self.state = State::Established;
        self.snd_una = self.iss + 1;
        self.window.cwnd = self.initial_window();
        self.rtt_mark = self.snd_una;
        self.rack = crate::rack::Rack::new(self.snd_una);
        if self.syn_retransmitted {
            self.rtt.syn_was_lost();
        } else {
            // RFC 6298 section 2.2: the handshake is the first measurement.
            self.rtt.sample(now.since(self.sent_at));
        }
        self.progress_at = now;
        self.stop_timer(Timer::Retransmit);
        self.due.syn = false;
        self.pending.connected = true;
        if let Some(keep_alive) = self.settings.keep_alive {
            self.set_timer(Timer::KeepAlive, now + keep_alive.idle);
        }
    }

    /// Handles a segment in SYN-SENT (RFC 9293 section 3.10.7.3).
    pub(super) fn input_syn_sent(&mut self, now: Time, segment: &Segment<'_>) {
        let header = &segment.header;
        let acks = header.flags.has(Flags::ACK);
        // The endpoint answers an acknowledgment of what was never sent.
        if acks && header.ack != self.snd_nxt {
            return;
        }
        if header.flags.has(Flags::RST) {
            if acks {
                self.finish(State::Closed, Close::Refused);
            }
            return;
        }
        if !header.flags.has(Flags::SYN) {
            return;
        }
        self.learn(segment, now);
        if acks {
            // RFC 3168 section 6.1.1: an ECN-setup SYN-ACK has ECE and not CWR.
            self.ecn.on &= header.flags.has(Flags::ECE) && !header.flags.any(Flags::CWR);
            self.snd_wl2 = header.ack;
            self.establish(now);
            self.due.ack = true;
        } else {
            // Simultaneous open (RFC 9293 section 3.5, figure 7). RFC 3168 does not define how ECN is
            // negotiated then, so it is off.
            self.ecn = EcnState::default();
            self.state = State::SynReceived;
            self.due.syn = true;
        }
    }

    /// Handles a SYN or SYN-ACK that was not answered (RFC 6298 section 5, RFC 9293 section 3.8.3).
    pub(super) fn handshake_timeout(&mut self, now: Time) {
        if now.since(self.progress_at) >= self.settings.handshake_timeout {
            self.finish(State::Closed, Close::TimedOut);
            return;
        }
        self.rtt.back_off();
        self.syn_retransmitted = true;
        self.totals.retransmits += 1;
        if self.state == State::SynSent {
            // RFC 3168 section 6.1.1.1: a middlebox may drop SYNs with ECN bits.
            self.ecn.on = false;
        }
        self.due.syn = true;
        let end = self.progress_at + self.settings.handshake_timeout;
        self.set_timer(Timer::Retransmit, (now + self.rtt.rto()).min(end));
    }
}
