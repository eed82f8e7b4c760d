//! Writing packets.

use super::timers::Timer;
use super::{Connection, MAX_ACK_RECORDS, OPTION_ROOM, Phase};
use crate::congestion::{Permit, Sent};
use crate::features::Location;
use crate::received::Received;
use crate::seq::Seq;
use crate::wire::option::emit_vector;
use crate::wire::packet::{DATA_ACK_HEADER, MAX_HEADER, MAX_OFFSET};
use crate::wire::{Carrier, DccpOption, Feature, Header, Kind, Reset};
use bytes::Bytes;
use ringway_sansio::{Addressing, Ecn, Time};

/// Room in bytes that feedback of a receiver may need: that of CCID 3 with nine loss intervals.
const FEEDBACK_ROOM: usize = 110;
/// Number of reported packets from which an acknowledgement of acknowledgements is sent on its own.
const LONG_REPORT: usize = 64;

impl Connection {
    /// Appends the next packet to `out`.
    pub(crate) fn transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Addressing> {
        if self.phase == Phase::Closed {
            return None;
        }
        if core::mem::take(&mut self.due.request) {
            return Some(self.send_handshake(now, Kind::Request(self.service), None, out));
        }
        if core::mem::take(&mut self.due.response) {
            return Some(self.send_handshake(now, Kind::Response(self.service), None, out));
        }
        if let Some(ack) = self.due.sync.take() {
            self.totals.syncs += 1;
            self.expect_answer(now);
            return Some(self.emit(now, Kind::Sync, ack, None, Bytes::new(), out));
        }
        if let Some(ack) = self.due.sync_acks.pop_front() {
            return Some(self.emit(now, Kind::SyncAck, ack, None, Bytes::new(), out));
        }
        if core::mem::take(&mut self.due.close) {
            let kind = if self.phase == Phase::CloseReq { Kind::CloseReq } else { Kind::Close };
            let sent = self.emit(now, kind, self.seq.gsr, None, Bytes::new(), out);
            self.restart_resend(now);
            return Some(sent);
        }
        if !matches!(self.phase, Phase::PartOpen { .. } | Phase::Open) {
            return None;
        }
        if let Some(sent) = self.transmit_data(now, out) {
            return Some(sent);
        }
        self.ack_is_due().then(|| self.send_ack(now, out))
    }

    /// Appends the Response with an Init Cookie, after which nothing is kept of the connection.
    pub(crate) fn transmit_cookie(
        &mut self,
        now: Time,
        cookie: &[u8],
        out: &mut Vec<u8>,
    ) -> Addressing {
        self.send_handshake(now, Kind::Response(self.service), Some(cookie), out)
    }

    /// Appends the Reset that ends the connection.
    pub(crate) fn transmit_reset(
        &mut self,
        now: Time,
        reset: Reset,
        out: &mut Vec<u8>,
    ) -> Addressing {
        self.emit(now, Kind::Reset(reset), self.seq.gsr, None, Bytes::new(), out)
    }

    fn send_handshake(
        &mut self,
        now: Time,
        kind: Kind,
        cookie: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Addressing {
        let sent = self.emit(now, kind, self.seq.gsr, cookie, Bytes::new(), out);
        self.timed = Some((self.seq.gss, now));
        if self.phase == Phase::Request {
            self.restart_resend(now);
        }
        sent
    }

    fn send_ack(&mut self, now: Time, out: &mut Vec<u8>) -> Addressing {
        self.emit(now, Kind::Ack, self.seq.gsr, None, Bytes::new(), out)
    }

    /// Returns whether an acknowledgement must be sent, with data or without.
    fn ack_is_due(&self) -> bool {
        // In PARTOPEN they are on every acknowledgement anyway.
        let features = self.phase == Phase::Open && self.features.wants_packet();
        self.due.ack || self.receiver.wants_ack() || features
    }

    /// Appends a packet with data, or the acknowledgement that must come before it.
    fn transmit_data(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Addressing> {
        let size = self.queue.next_len(now)?;
        match self.sender.permit(now, u32::try_from(size).unwrap_or(u32::MAX)) {
            Permit::Now => {}
            Permit::At(at) => {
                self.set_timer(Timer::Pace, Some(at));
                return None;
            }
            Permit::Blocked => return None,
        }
        let part_open = matches!(self.phase, Phase::PartOpen { .. });
        let due = self.ack_is_due();
        let fits = DATA_ACK_HEADER + OPTION_ROOM + size + self.ack_room() <= self.packet_room();
        // RFC 4340 section 8.1.5: in PARTOPEN every packet acknowledges and has the cookie.
        let kind = match (part_open, fits) {
            (true, false) => return None,
            (true, true) => Kind::DataAck,
            (false, true) if due || self.owes_ack => Kind::DataAck,
            (false, true) => Kind::Data,
            (false, false) if due || (self.owes_ack && self.reported() >= LONG_REPORT) => {
                return Some(self.send_ack(now, out));
            }
            (false, false) => Kind::Data,
        };
        let data = self.queue.pop()?;
        self.totals.messages_sent += 1;
        self.expect_answer(now);
        let sent = self.emit(now, kind, self.seq.gsr, None, data, out);
        self.pending.writable |= self.queue.has_room_again();
        self.close_when_drained(now);
        Some(sent)
    }

    fn reported(&self) -> usize {
        self.received.as_ref().map_or(0, Received::len)
    }

    /// Returns the room in bytes that an acknowledgement's options need, at most.
    fn ack_room(&self) -> usize {
        let cookie = match &self.phase {
            Phase::PartOpen { cookie: Some(cookie) } => cookie.len() + 2,
            _ => 0,
        };
        let feedback = if self.receiver.wants_ack() { FEEDBACK_ROOM } else { 0 };
        let mut report = Vec::new();
        if let Some(received) = &self.received {
            received.drops(&mut report);
            if self.sends_vectors() {
                received.vector(&mut report);
            }
        }
        // Elapsed Time and the headers of the options.
        cookie + feedback + self.features.room() + report.len() + 8 * (1 + report.len() / 253)
    }

    fn sends_vectors(&self) -> bool {
        self.features.get(Feature::SendAckVector, Location::Local) == 1
    }

    /// Appends a packet and notes that it was sent.
    fn emit(
        &mut self,
        now: Time,
        kind: Kind,
        ack: Seq,
        cookie: Option<&[u8]>,
        data: Bytes,
        out: &mut Vec<u8>,
    ) -> Addressing {
        let seq = self.seq.gss.next();
        let opened = !matches!(self.phase, Phase::Request | Phase::Respond);
        let is_data = matches!(kind, Kind::Data | Kind::DataAck);
        let options = self.options(now, kind, seq, cookie, &data);
        let short = self.phase == Phase::Open
            && kind.may_be_short()
            && self.features.get(Feature::AllowShortSeqnos, Location::Local) == 1;
        let header = Header {
            source: self.ends.local.port(),
            destination: self.ends.remote.port(),
            ccval: if opened { self.sender.ccval(now) } else { 0 },
            coverage: if is_data { self.coverage(data.len()) } else { 0 },
            kind,
            long: !short,
            seq,
            ack,
        };
        let mut addressing = self.addressing(kind);
        let start = out.len();
        header.emit(self.carrier(), &options, &data, out);
        if out.len() - start > self.packet_room() {
            // The MTU fell below a message that was accepted before.
            addressing.fragment = Some(self.mtu);
        }
        self.seq.gss = seq;
        self.totals.packets_sent += 1;
        self.ndp = if is_data { 0 } else { self.ndp + 1 };
        if opened {
            let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
            self.sender.sent(Sent { now, seq, data: is_data, size });
        }
        if matches!(kind, Kind::Ack | Kind::DataAck) {
            self.owes_ack = false;
            self.due.ack = false;
            // Data in between do not put off the next one.
            if matches!(self.phase, Phase::PartOpen { .. }) && !self.has_timer(Timer::Resend) {
                self.restart_resend(now);
            }
        }
        addressing
    }

    /// Returns the options of a packet.
    fn options(
        &mut self,
        now: Time,
        kind: Kind,
        seq: Seq,
        cookie: Option<&[u8]>,
        data: &[u8],
    ) -> Vec<u8> {
        let mut options = Vec::new();
        let part_open = matches!(self.phase, Phase::PartOpen { .. });
        let handshake = part_open || matches!(self.phase, Phase::Request | Phase::Respond);
        let acknowledges = matches!(kind, Kind::Ack | Kind::DataAck);
        if let Some(cookie) = cookie {
            DccpOption::InitCookie(cookie).emit(&mut options);
        }
        if acknowledges && let Phase::PartOpen { cookie: Some(cookie) } = &self.phase {
            DccpOption::InitCookie(cookie).emit(&mut options);
        }
        if acknowledges || matches!(kind, Kind::Request(_) | Kind::Response(_)) {
            self.features.emit(now, seq, handshake, part_open, &mut options);
        }
        if acknowledges || matches!(kind, Kind::Response(_)) {
            self.report_drops(&mut options);
        }
        if acknowledges {
            self.acknowledge(now, seq, &mut options);
        }
        if self.ndp > 0 && self.features.get(Feature::SendNdpCount, Location::Local) == 1 {
            DccpOption::NdpCount(self.ndp).emit(&mut options);
        }
        if kind != Kind::Sync
            && let Some((time, at)) = self.echo.take()
        {
            let elapsed = u32::try_from(now.since(at).as_micros() / 10).unwrap_or(u32::MAX);
            DccpOption::TimestampEcho(time, elapsed).emit(&mut options);
        }
        // RFC 4340 section 11.6.
        if self.inbox.len() * 8 >= self.settings.receive_queue * 7 {
            DccpOption::SlowReceiver.emit(&mut options);
        }
        if self.settings.data_checksum && matches!(kind, Kind::Data | Kind::DataAck) {
            DccpOption::DataChecksum(crc32c::crc32c(data)).emit(&mut options);
        }
        options
    }

    /// Appends Data Dropped (RFC 4340 section 11.7), on a Response too (section 8.1.3).
    fn report_drops(&self, options: &mut Vec<u8>) {
        let mut report = Vec::new();
        if let Some(received) = &self.received {
            received.drops(&mut report);
        }
        if !report.is_empty() {
            DccpOption::DataDropped(&report).emit(options);
        }
    }

    /// Appends what an acknowledgement reports besides.
    fn acknowledge(&mut self, now: Time, seq: Seq, options: &mut Vec<u8>) {
        let elapsed = now.since(self.newest_at);
        self.receiver.acknowledge(now, elapsed, options);
        if !self.sends_vectors() {
            return;
        }
        let mut report = Vec::new();
        if let Some(received) = &self.received {
            received.vector(&mut report);
        }
        let limit = MAX_OFFSET.min(self.packet_room()) - MAX_HEADER - OPTION_ROOM;
        emit_vector(&report, limit.saturating_sub(options.len()), options);
        if self.ack_records.len() >= MAX_ACK_RECORDS {
            self.ack_records.pop_front();
        }
        self.ack_records.push_back((seq, self.seq.gsr));
    }

    /// Returns the checksum coverage of data (RFC 4340 section 9.2).
    fn coverage(&self, length: usize) -> u8 {
        let wanted = self.settings.coverage;
        let min = self.features.get(Feature::MinChecksumCoverage, Location::Remote);
        let covered = usize::from(wanted.saturating_sub(1)) * 4;
        let accepted = min > 0 && u64::from(wanted) >= min;
        if accepted && covered <= length { wanted } else { 0 }
    }

    fn carrier(&self) -> Carrier {
        match self.ends.udp_port {
            0 => Carrier::Ip(self.ends.local.ip(), self.ends.remote.ip()),
            _ => Carrier::Udp,
        }
    }

    /// Returns where a packet goes. The peer says whether it reads marks (RFC 4340 section 12.1).
    fn addressing(&self, kind: Kind) -> Addressing {
        let capable = self.settings.ecn
            && matches!(kind, Kind::Data | Kind::DataAck | Kind::Ack)
            && self.features.get(Feature::EcnIncapable, Location::Remote) == 0;
        let (local, remote) = (self.ends.local.ip(), self.ends.remote.ip());
        Addressing {
            ecn: if capable { Ecn::Ect0 } else { Ecn::NotEct },
            udp_port: self.ends.udp_port,
            ..Addressing::new(local, remote, crate::PROTOCOL)
        }
    }
}
