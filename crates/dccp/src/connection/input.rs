//! Processing of a packet, by the steps of RFC 4340 section 8.5. Steps 1 to 3 are the endpoint's.

use super::options::Stated;
use super::timers::Timer;
use super::{Close, Connection, Ends, MAX_SYNC_ACKS, Phase};
use crate::congestion::{Arrived, Feedback};
use crate::features::Location;
use crate::received::{Novelty, Received};
use crate::seq::Seq;
use crate::sequence::Validity;
use crate::settings::Settings;
use crate::wire::vector::DropCode;
use crate::wire::{Arrival, Feature, Kind, Packet, Reset, ResetCode, Runs};
use bytes::Bytes;
use ringway_sansio::{Ecn, Time};
use std::sync::Arc;

impl Connection {
    /// Accepts a Request; the Response is sent by the next poll.
    pub(crate) fn accept(
        now: Time,
        ends: Ends,
        settings: Arc<Settings>,
        iss: Seq,
        request: &Packet<'_>,
    ) -> Connection {
        let service = match request.header.kind {
            Kind::Request(service) => service,
            _ => 0,
        };
        let mut connection = Connection::new(ends, settings, true, service, iss);
        let seq = request.header.seq;
        connection.begin_peer(now, seq);
        connection.drop_handshake_data(request, seq);
        connection.due.response = true;
        let until = now + connection.settings.handshake_timeout;
        connection.set_timer(Timer::GiveUp, Some(until));
        match connection.handle_options(request, seq, None) {
            Ok(stated) => {
                connection.echo = stated.timestamp.map(|time| (time, now));
                connection.require_vectors();
            }
            Err(reset) => connection.violate(reset),
        }
        connection
    }

    /// Restores a connection whose Response, with this initial sequence number, carried an Init Cookie.
    pub(crate) fn restore(&mut self, now: Time) {
        let response = self.seq.gss.next();
        self.seq.gss = response;
        self.due.response = false;
        self.echo = None;
        // The Changes of the Response may be confirmed; its Confirms have arrived.
        self.features.emit(now, response, true, false, &mut Vec::new());
    }

    fn begin_peer(&mut self, now: Time, seq: Seq) {
        self.seq.begin(seq);
        self.received = Some(Received::new(seq));
        self.newest_at = now;
    }

    /// Handles a packet with this connection's addresses and ports. Returns the Reset that answers it
    /// without touching the connection.
    pub(crate) fn handle_packet(
        &mut self,
        now: Time,
        ecn: Ecn,
        packet: &Packet<'_>,
    ) -> Option<Reset> {
        self.totals.packets_received += 1;
        if self.phase == Phase::Closed {
            return None;
        }
        let kind = packet.header.kind;
        let Some((seq, ack)) = self.numbers(packet) else {
            self.totals.unexpected += 1;
            return None;
        };
        let before = self.seq.gsr;
        let first = self.phase == Phase::Request;
        if first {
            if let Err(answer) = self.check_in_request(now, kind, seq, ack) {
                return answer;
            }
        } else if !self.check_numbers(now, kind, seq, ack) {
            return None;
        }
        // Step 8, first half: what came before is not handled again.
        let marked = ecn == Ecn::Ce;
        if !first
            && self.received.as_mut().is_some_and(|r| r.record(seq, marked) == Novelty::Duplicate)
        {
            self.totals.duplicates += 1;
            return None;
        }
        let ahead = if first { 1 } else { seq.distance(before) };
        if ahead > 0 {
            self.newest_at = now;
            self.lost_acks = self.lost_acks.saturating_add(ahead.unsigned_abs() - 1);
        } else {
            self.lost_acks = self.lost_acks.saturating_sub(1);
        }
        self.heard();
        self.owes_ack = true;
        self.process(now, packet, (seq, ack), (marked, ahead > 1));
        None
    }

    /// Returns the numbers of a packet, short ones extended (RFC 4340 section 7.6); `None` where short ones
    /// are not allowed.
    fn numbers(&self, packet: &Packet<'_>) -> Option<(Seq, Option<Seq>)> {
        let header = &packet.header;
        if header.long {
            return Some((header.seq, packet.ack()));
        }
        let opened = !matches!(self.phase, Phase::Request | Phase::Respond);
        if !opened || self.features.get(Feature::AllowShortSeqnos, Location::Remote) == 0 {
            return None;
        }
        let seq = Seq::extend(header.seq.short(), self.seq.gsr);
        Some((seq, packet.ack().map(|ack| Seq::extend(ack.short(), self.seq.gss))))
    }

    /// Step 4: in REQUEST only a Response or Reset that acknowledges a Request is accepted.
    fn check_in_request(
        &mut self,
        now: Time,
        kind: Kind,
        seq: Seq,
        ack: Option<Seq>,
    ) -> Result<(), Option<Reset>> {
        let expected = matches!(kind, Kind::Response(_) | Kind::Reset(_));
        let known = ack.is_some_and(|ack| self.seq.acknowledges(ack, self.widths()));
        if !expected || !known {
            self.totals.unexpected += 1;
            let reset = Reset { code: ResetCode::PacketError, data: [kind.number(), 0, 0] };
            return Err((!matches!(kind, Kind::Reset(_))).then_some(reset));
        }
        self.begin_peer(now, seq);
        self.seq.gar = ack.unwrap_or(self.seq.gar);
        Ok(())
    }

    /// Steps 5 to 7. Returns whether the packet is processed further.
    fn check_numbers(&mut self, now: Time, kind: Kind, seq: Seq, ack: Option<Seq>) -> bool {
        match self.seq.check(kind, seq, ack, self.widths()) {
            Validity::Valid => {}
            Validity::Resynchronize(number) => {
                self.totals.out_of_window += 1;
                self.ask_for_sync(now, number);
                return false;
            }
            Validity::Invalid => {
                self.totals.out_of_window += 1;
                return false;
            }
        }
        let late = self.seq.osr.is_some_and(|osr| !seq.before(osr));
        let unexpected = match kind {
            Kind::Response(_) => self.is_server || late,
            Kind::Request(_) => !self.is_server || late,
            Kind::CloseReq => self.is_server,
            Kind::Data => self.phase == Phase::Respond,
            _ => false,
        };
        if unexpected {
            self.totals.unexpected += 1;
            self.ask_for_sync(now, seq);
        }
        !unexpected
    }

    /// Has a Sync sent, unless there were too many (RFC 4340 section 7.5.4).
    fn ask_for_sync(&mut self, now: Time, ack: Seq) {
        if self.syncs.take(now) {
            self.due.sync = Some(ack);
        } else {
            self.totals.syncs_limited += 1;
        }
    }

    /// Steps 8 to 16.
    fn process(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        (seq, ack): (Seq, Option<Seq>),
        (marked, gap): (bool, bool),
    ) {
        let kind = packet.header.kind;
        if let Kind::Reset(reset) = kind {
            // Step 9. The other end has no state: this one rests.
            let ours = matches!(self.phase, Phase::CloseReq | Phase::Closing);
            let finished = ours && reset.code == ResetCode::Closed;
            self.end(if finished { Close::Finished } else { Close::Reset(reset) }, None, true);
            return;
        }
        let stated = match self.handle_options(packet, seq, ack) {
            Ok(stated) => stated,
            Err(reset) => return self.violate(reset),
        };
        if let Some(time) = stated.timestamp {
            self.echo = Some((time, now));
        }
        if let Some(ack) = ack {
            self.measure_handshake(now, ack);
        }
        self.advance(now, kind, seq, &stated);
        if self.phase == Phase::Closed {
            return;
        }
        if !matches!(kind, Kind::Sync | Kind::SyncAck | Kind::Response(_))
            && let Some(ack) = ack
        {
            self.handle_acknowledgement(now, ack, &stated);
        }
        let data = matches!(kind, Kind::Data | Kind::DataAck);
        // RFC 4340 section 9.3.
        let crc = stated.data_checksum.filter(|_| data);
        let corrupt = crc.is_some_and(|crc| crc != crc32c::crc32c(packet.data));
        if !matches!(self.phase, Phase::Respond) {
            self.receiver.arrived(&Arrived {
                now,
                seq,
                ccval: packet.header.ccval,
                data,
                size: u32::try_from(packet.data.len()).unwrap_or(u32::MAX),
                // RFC 4340 section 11.7.2: what is corrupt counts as marked.
                marked: marked || corrupt,
                gap,
                ndp: stated.ndp,
            });
        }
        if data {
            self.deliver(packet, seq, corrupt);
        } else {
            self.drop_handshake_data(packet, seq);
        }
        self.adjust_features();
        self.close_when_drained(now);
    }

    /// Steps 10 to 15: the states.
    fn advance(&mut self, now: Time, kind: Kind, seq: Seq, stated: &Stated<'_>) {
        match (&self.phase, kind) {
            (Phase::Request, Kind::Response(service)) => {
                if service != self.service {
                    return self.violate(Reset::new(ResetCode::BadServiceCode));
                }
                self.phase = Phase::PartOpen { cookie: stated.cookie.map(<[u8]>::to_vec) };
                self.attempts = 0;
                self.establish();
                self.due.ack = true;
            }
            (Phase::Respond, Kind::Request(_)) => self.due.response = true,
            (Phase::Respond, _) => {
                self.opened_with = Some(self.seq.gss.next());
                self.open(seq);
                self.establish();
            }
            (Phase::PartOpen { .. }, Kind::Response(_)) => self.due.ack = true,
            (Phase::PartOpen { .. }, Kind::Sync) => {}
            (Phase::PartOpen { .. }, _) => {
                self.features.drop_confirms();
                self.open(seq);
            }
            _ => {}
        }
        match kind {
            Kind::CloseReq if matches!(self.phase, Phase::PartOpen { .. } | Phase::Open) => {
                self.phase = Phase::Closing;
                self.begin_close();
                self.set_timer(Timer::GiveUp, Some(now + self.settings.close_timeout));
            }
            Kind::Close if self.phase != Phase::Respond => {
                self.end(Close::Finished, Some(Reset::new(ResetCode::Closed)), false);
            }
            Kind::Sync => {
                if self.due.sync_acks.len() < MAX_SYNC_ACKS {
                    self.due.sync_acks.push_back(seq);
                } else {
                    self.totals.syncs_limited += 1;
                }
            }
            _ => {}
        }
    }

    /// Enters OPEN.
    fn open(&mut self, seq: Seq) {
        self.seq.osr = Some(seq);
        self.phase = Phase::Open;
        self.due.response = false;
        self.set_timer(Timer::Resend, None);
        if !self.closing {
            self.set_timer(Timer::GiveUp, None);
        }
    }

    /// Begins the congestion control and reports the connection.
    fn establish(&mut self) {
        self.features.fix_ccids();
        self.start_congestion_control();
        self.pending.open = true;
        self.set_timer(Timer::Resend, None);
    }

    fn measure_handshake(&mut self, now: Time, ack: Seq) {
        if let Some((seq, at)) = self.timed
            && seq == ack
            && self.handshake_rtt.is_none()
        {
            self.handshake_rtt = Some(now.since(at));
        }
    }

    /// Handles what a packet acknowledges.
    fn handle_acknowledgement(&mut self, now: Time, ack: Seq, stated: &Stated<'_>) {
        self.sender.feedback(&Feedback {
            now,
            ack,
            vectors: stated.vectors(),
            elapsed: stated.elapsed,
            dropped: stated.dropped,
            slow_receiver: stated.slow_receiver,
            lost_acks: core::mem::take(&mut self.lost_acks),
            loss_event_rate: stated.loss_event_rate,
            loss_intervals: stated.loss_intervals,
            receive_rate: stated.receive_rate,
        });
        // RFC 4340 section 8.1.5: only a packet that is no Response ends PARTOPEN.
        self.due.ack |= self.opened_with.is_some_and(|first| ack.before(first));
        self.release_reported(ack, stated.vectors());
    }

    /// Releases what acknowledgements of ours reported that have arrived (RFC 4340 appendix A.3).
    fn release_reported(&mut self, ack: Seq, vectors: &[&[u8]]) {
        let mut arrived = None;
        let mut high = ack;
        let whole = [(Arrival::Received, 1)];
        let runs = whole.into_iter().filter(|_| vectors.is_empty()).chain(Runs::new(vectors));
        let mut records = self.ack_records.iter().enumerate().rev().peekable();
        for (arrival, count) in runs {
            let low = high.minus(count - 1);
            while let Some(&(index, &(seq, reported))) = records.peek()
                && !seq.before(low)
            {
                records.next();
                if arrival != Arrival::Missing && !seq.after(high) && arrived.is_none() {
                    arrived = Some((index, reported));
                }
            }
            if arrived.is_some() || records.peek().is_none() {
                break;
            }
            high = low.minus(1);
        }
        if let Some((index, reported)) = arrived {
            self.ack_records.drain(..=index);
            if let Some(received) = &mut self.received {
                received.forget(reported);
            }
        }
    }

    /// Step 16: passes data on, or notes why not.
    fn deliver(&mut self, packet: &Packet<'_>, seq: Seq, corrupt: bool) {
        let min = self.features.get(Feature::MinChecksumCoverage, Location::Local);
        let coverage = u64::from(packet.header.coverage);
        let drop = if coverage != 0 && (min == 0 || coverage < min) {
            // RFC 4340 section 9.2.1.
            self.totals.coverage += 1;
            DropCode::ProtocolConstraints
        } else if corrupt {
            self.totals.corrupt += 1;
            DropCode::Corrupt
        } else if self.inbox.len() >= self.settings.receive_queue {
            self.totals.receive_queue_full += 1;
            DropCode::ReceiveBuffer
        } else {
            self.inbox.push_back(Bytes::copy_from_slice(packet.data));
            self.totals.messages_received += 1;
            self.pending.readable = true;
            return;
        };
        if let Some(received) = &mut self.received {
            received.dropped(seq, drop);
        }
    }

    /// Notes that data on a packet of the handshake are not delivered (RFC 4340 section 11.7, drop code
    /// 0). They would have to be kept for whoever sends a Request.
    fn drop_handshake_data(&mut self, packet: &Packet<'_>, seq: Seq) {
        if packet.header.kind.may_carry_data() && !packet.data.is_empty() {
            self.totals.handshake_data += 1;
            if let Some(received) = &mut self.received {
                received.dropped(seq, DropCode::ProtocolConstraints);
            }
        }
    }
}
