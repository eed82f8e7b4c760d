//! Received packets (RFC 9260 sections 3.2, 6 and 8.5).

use super::acks::{MAX_SACKS, PacketData};
use super::{Association, Close, Cx, MAX_REASON};
use crate::PROTOCOL;
use crate::auth::{self, REQUIRED};
use crate::features::Features;
use crate::incoming::Arrival;
use crate::outgoing::{Acknowledgement, SackError};
use crate::path::Path;
use crate::timers::PathTimer;
use crate::wire::cause::{Cause, Causes, code};
use crate::wire::chunk::{Chunk, ForwardTsn, Raw, kind};
use crate::wire::data::{DataFlags, IData};
use crate::wire::packet::Chunks;
use crate::wire::{Data, Gap, NrSack, Packet, Sack, WireError};
use bytes::Bytes;
use ringway_sansio::{Addressing, Ecn, Time};

impl Association {
    /// Handles a packet. `payload` begins with the common header. Returns `false`, and does nothing, if the packet is one
    /// for [`Endpoint::handle_packet`](crate::Endpoint::handle_packet): it is invalid, has another tag or other addresses,
    /// opens an association or restarts one, or is out of the blue (RFC 9260 section 8.5.1 E).
    pub fn handle_packet(
        &mut self,
        cx: &mut Cx<'_>,
        addressing: &Addressing,
        payload: &[u8],
    ) -> bool {
        let Some(packet) = self.parse_own(addressing, payload) else { return false };
        let Some(Ok(first)) = packet.chunks().next() else { return false };
        // A COOKIE ECHO may come behind an AUTH chunk (RFC 4895 section 6.3).
        let opens = match first.kind {
            kind::AUTH => packet.chunks().nth(1).and_then(Result::ok).map(|second| second.kind),
            first => Some(first),
        };
        opens != Some(kind::COOKIE_ECHO) && self.handle_from(cx, addressing, &packet, first)
    }

    /// Returns the packet if it is valid, has the local tag, and is between addresses of the association.
    fn parse_own<'a>(&self, addressing: &Addressing, payload: &'a [u8]) -> Option<Packet<'a>> {
        let ours = |packet: &Packet<'_>| {
            packet.tag == self.tags.local
                && !self.is_closed()
                && self.is_between(addressing, packet)
        };
        // The checksum is what takes time.
        let packet = Packet::parse_unchecked(payload).ok().filter(ours)?;
        match Packet::parse(payload) {
            Ok(_) if addressing.protocol == PROTOCOL => Some(packet),
            Err(WireError::Checksum { .. }) if self.settings.over_dtls => {
                Packet::parse_zero_checksum(payload)
            }
            _ => None,
        }
    }

    /// Handles a packet between its addresses with the local tag, whose first chunk is `first`. Returns `false`, and does
    /// nothing, if the packet is to be handled as one out of the blue (RFC 9260 section 8.5.1 E).
    pub(crate) fn handle_from(
        &mut self,
        cx: &mut Cx<'_>,
        addressing: &Addressing,
        packet: &Packet<'_>,
        first: Raw<'_>,
    ) -> bool {
        let Some(path) = self.path_to(addressing.source) else { return true };
        if first.kind == kind::SHUTDOWN_ACK && self.is_opening() {
            return false;
        }
        if first.kind == kind::INIT_ACK {
            // RFC 9260 section 6.10: never bundled.
            if packet.chunks().count() == 1
                && let Ok(Chunk::InitAck(init)) = first.parse()
            {
                self.keep_identity();
                self.handle_init_ack(cx, path, addressing, &init);
            }
            return true;
        }
        let changes = |raw: Raw<'_>| REQUIRED.contains(&raw.kind) || raw.kind == kind::ERROR;
        if self.changes_addresses() && packet.chunks().map_while(Result::ok).any(changes) {
            self.keep_identity();
        }
        self.handle_chunks(cx, path, addressing, false, packet.chunks());
        self.out.check_accounting(&self.paths);
        true
    }

    /// Handles a packet with the peer's tag.
    pub(crate) fn handle_reflected(
        &mut self,
        cx: &mut Cx<'_>,
        addressing: &Addressing,
        packet: &Packet<'_>,
    ) {
        if let Some(path) = self.path_to(addressing.source) {
            self.handle_chunks(cx, path, addressing, true, packet.chunks());
        }
    }

    /// Processes the chunks of a packet that arrived on a path. Its tag is the local one, or the peer's
    /// where `reflected`.
    pub(crate) fn handle_chunks(
        &mut self,
        cx: &mut Cx<'_>,
        path: usize,
        addressing: &Addressing,
        reflected: bool,
        chunks: Chunks<'_>,
    ) {
        self.totals.packets_received += 1;
        self.learn_way(path, addressing);
        let mut seen = PacketData::default();
        let mut authenticated = false;
        let (mut chunks, mut first) = (chunks, true);
        while let Some(raw) = chunks.next() {
            // RFC 9260 section 6.10: a partial chunk is dropped.
            let Ok(raw) = raw else { break };
            let first = core::mem::take(&mut first);
            // The same section: SHUTDOWN COMPLETE is never bundled.
            if raw.kind == kind::SHUTDOWN_COMPLETE && !(first && chunks.is_empty()) {
                break;
            }
            if raw.kind >= kind::AUTH && self.auth.is_some() {
                // RFC 4895 section 6.3.
                if raw.kind == kind::AUTH {
                    authenticated = self.is_vouched_for(&raw, chunks.rest());
                    if !authenticated {
                        break;
                    }
                    continue;
                }
                if REQUIRED.contains(&raw.kind) {
                    // RFC 5061 section 5.2, D5.
                    if !authenticated {
                        break;
                    }
                    self.handle_address_chunk(cx, path, addressing, &raw);
                    if self.is_closed() {
                        return;
                    }
                    continue;
                }
            }
            if raw.kind == kind::ABORT && self.is_stray_abort(addressing.destination, raw.flags) {
                continue;
            }
            let action = raw.unknown();
            match raw.parse() {
                Ok(chunk) => {
                    if !self.handle_chunk(cx, path, reflected, &chunk, &mut seen) {
                        if action.report {
                            self.report(Cause::UnrecognizedChunk(raw.whole));
                        }
                        if !action.skip {
                            break;
                        }
                    }
                }
                Err(_) => {
                    self.violation("a chunk is too short or its lists too long");
                }
            }
            if self.is_closed() {
                return;
            }
        }
        if self.reconfig.is_some() {
            self.deferred_reset(&mut seen);
        }
        if addressing.ecn == Ecn::Ce
            && let Some(tsn) = seen.last
        {
            self.marked(tsn);
        }
        self.acks.packet(cx.now, path, seen, &self.settings);
        if seen.data {
            self.life_on(path);
        }
        self.closing_heard(cx, seen.data);
        if seen.data && self.inn.is_readable() {
            self.pending.readable = true;
        }
    }

    /// Returns whether an AUTH chunk is valid. An HMAC identifier that is unknown here is reported to
    /// the peer.
    fn is_vouched_for(&mut self, raw: &Raw<'_>, rest: &[u8]) -> bool {
        let right = self.agreed().is_some_and(|agreed| agreed.vouches(raw.whole, rest));
        if !right {
            self.totals.auth_refused += 1;
            if let Ok(Chunk::Auth(_, which, _)) = raw.parse()
                && auth::names_unknown_hmac(which)
            {
                self.report(Cause::Other(code::UNSUPPORTED_HMAC, &which.to_be_bytes()));
            }
        }
        right
    }

    /// Handles an authenticated ASCONF or ASCONF-ACK.
    fn handle_address_chunk(
        &mut self,
        cx: &mut Cx<'_>,
        path: usize,
        addressing: &Addressing,
        raw: &Raw<'_>,
    ) {
        if !self.agreement.has(Features::ASCONF) {
            return;
        }
        match raw.parse() {
            Ok(Chunk::Asconf(serial, value)) => self.handle_asconf(cx, addressing, serial, value),
            Ok(Chunk::AsconfAck(serial, value)) => self.handle_asconf_ack(cx, path, serial, value),
            _ => self.violation("a chunk is too short or its lists too long"),
        }
    }

    /// Handles a packet with the right tag from an address that is not the peer's yet. Only an
    /// authenticated ASCONF in it is processed (RFC 5061 section 5.3.2).
    pub(crate) fn handle_from_elsewhere(
        &mut self,
        cx: &mut Cx<'_>,
        addressing: &Addressing,
        mut chunks: Chunks<'_>,
    ) {
        self.keep_identity();
        let Some(Ok(first)) = chunks.next() else { return };
        if first.kind != kind::AUTH || !self.is_vouched_for(&first, chunks.rest()) {
            return;
        }
        for raw in chunks.map_while(Result::ok).take_while(|raw| raw.kind == kind::ASCONF) {
            let path = self.chosen.current;
            self.handle_address_chunk(cx, path, addressing, &raw);
        }
    }

    /// Handles one chunk. Returns `false` when its type is unknown or was not negotiated.
    fn handle_chunk(
        &mut self,
        cx: &mut Cx<'_>,
        path: usize,
        reflected: bool,
        chunk: &Chunk<'_>,
        seen: &mut PacketData,
    ) -> bool {
        match *chunk {
            Chunk::Abort { reflected: bit, causes } => {
                // RFC 9260 section 8.5.1 B.
                if bit == reflected {
                    self.handle_abort(causes);
                }
                return true;
            }
            Chunk::ShutdownComplete { reflected: bit } => {
                // Section 8.5.1 C.
                if bit == reflected {
                    self.handle_shutdown_complete();
                }
                return true;
            }
            _ if reflected => return true,
            Chunk::Data(ref data) if !self.inn.is_interleaved() => self.handle_data(data, seen),
            Chunk::IData(ref data) if self.inn.is_interleaved() => self.handle_i_data(data, seen),
            // RFC 8260 section 2.2.3.
            Chunk::Data(_) | Chunk::IData(_) if self.takes_data() => {
                self.violation("a chunk of data is of the kind that was not agreed on");
            }
            Chunk::Data(_) | Chunk::IData(_) => {}
            Chunk::Sack(_) | Chunk::NrSack(_) if seen.sacks >= MAX_SACKS => {}
            Chunk::Sack(ref sack) => {
                seen.sacks += 1;
                self.handle_sack(cx, sack);
            }
            Chunk::NrSack(ref sack) if self.agreement.has(Features::NR_SACK) => {
                seen.sacks += 1;
                self.handle_nr_sack(cx, sack);
            }
            Chunk::Heartbeat(value) => self.handle_heartbeat(path, value),
            Chunk::HeartbeatAck(value) => self.handle_heartbeat_ack(cx, value),
            Chunk::Shutdown(cumulative) => self.handle_shutdown(cx, path, cumulative),
            Chunk::ShutdownAck => self.handle_shutdown_ack(),
            Chunk::CookieAck => self.handle_cookie_ack(cx, path),
            Chunk::ForwardTsn(ref forward) | Chunk::IForwardTsn(ref forward)
                if self.out.forwards() =>
            {
                let other = matches!(chunk, Chunk::IForwardTsn(_)) != self.inn.is_interleaved();
                if other {
                    // RFC 8260 section 2.3.1.
                    self.violation("a FORWARD TSN is of the kind that was not agreed on");
                } else {
                    self.handle_forward_tsn(forward, seen);
                }
            }
            Chunk::ReConfig(value) if self.agreement.has(Features::RECONFIG) => {
                self.handle_reconfig(cx, value);
            }
            Chunk::Error(causes) => self.handle_error(cx, causes),
            // These are handled before a packet comes here, or have no meaning among other chunks (RFC
            // 9260 section 6.10).
            Chunk::Init(_) | Chunk::InitAck(_) | Chunk::CookieEcho(_) => {}
            // RFC 9260 keeps the chunk types. Without negotiated ECN they have no meaning.
            Chunk::Ecne(tsn) => self.handle_ecne(cx.now, tsn),
            Chunk::Cwr(tsn) => self.handle_cwr(tsn),
            Chunk::Pad => {}
            _ => return false,
        }
        true
    }

    pub(super) fn handle_data(&mut self, data: &Data<'_>, seen: &mut PacketData) {
        let early = self.awaits_new_numbers() || self.is_too_new(data);
        if !self.takes_data() || early || self.holds_back(data, seen) {
            return;
        }
        if data.user.is_empty() {
            // RFC 9260 section 6.2.
            let tsn = data.tsn.raw();
            return self.fail(Cause::NoUserData(tsn), Close::Violation("a DATA chunk has no data"));
        }
        let gaps = self.inn.tracker.has_gaps();
        let known = data.stream < self.agreement.streams.1;
        let arrival = if known { self.inn.take(data) } else { self.inn.discard(data.tsn) };
        let unknown = (!known).then_some(data.stream);
        seen.last = Some(data.tsn);
        let soon = (gaps && !self.is_patient()) || data.flags.has(DataFlags::IMMEDIATE);
        self.arrived(arrival, soon, unknown, seen);
    }

    /// Handles I-DATA as [`Self::handle_data`] handles DATA (RFC 8260 section 2.2.3).
    pub(super) fn handle_i_data(&mut self, data: &IData<'_>, seen: &mut PacketData) {
        let early = self.awaits_new_numbers() || self.is_too_new(data);
        if !self.takes_data() || early || self.holds_back(data, seen) {
            return;
        }
        if data.user.is_empty() {
            let tsn = data.tsn.raw();
            return self.fail(Cause::NoUserData(tsn), Close::Violation("a DATA chunk has no data"));
        }
        let gaps = self.inn.tracker.has_gaps();
        let known = data.stream < self.agreement.streams.1;
        let arrival =
            if known { self.inn.take_interleaved(data) } else { self.inn.discard(data.tsn) };
        let unknown = (!known).then_some(data.stream);
        seen.last = Some(data.tsn);
        let soon = (gaps && !self.is_patient()) || data.flags.has(DataFlags::IMMEDIATE);
        self.arrived(arrival, soon, unknown, seen);
    }

    /// Processes the outcome of a chunk of data. `soon` requests an acknowledgement at once.
    fn arrived(
        &mut self,
        arrival: Arrival,
        soon: bool,
        unknown: Option<u16>,
        seen: &mut PacketData,
    ) {
        match arrival {
            Arrival::Taken { in_order } => {
                self.goes_by_new_numbers();
                seen.at_once |= soon || (!in_order && !self.is_patient());
                if let Some(stream) = unknown {
                    // RFC 9260 section 6.5.
                    self.report(Cause::InvalidStream(stream));
                    seen.at_once = true;
                }
            }
            Arrival::Duplicate => {
                seen.duplicate = true;
                self.totals.duplicates += 1;
            }
            Arrival::Dropped => {
                seen.at_once = true;
                self.totals.dropped += 1;
            }
            Arrival::Violation(what) => return self.violation(what),
        }
        seen.data = true;
    }

    /// RFC 3758 section 3.6.
    fn handle_forward_tsn(&mut self, forward: &ForwardTsn<'_>, seen: &mut PacketData) {
        if !self.takes_data() || self.awaits_new_numbers() {
            return;
        }
        seen.data = true;
        seen.at_once = true;
        let known = self.agreement.streams.1;
        let tsn = forward.new_cumulative_tsn;
        let result = if self.inn.is_interleaved() {
            let messages = forward.messages().filter(|(stream, ..)| *stream < known);
            self.inn.forward_messages(tsn, messages)
        } else {
            let streams = forward.streams().filter(|(stream, _)| *stream < known);
            self.inn.forward(tsn, streams)
        };
        if let Err(what) = result {
            self.violation(what);
        }
    }

    fn handle_sack(&mut self, cx: &mut Cx<'_>, sack: &Sack<'_>) {
        if !self.sends_data() || self.awaits_new_numbers() {
            return;
        }
        self.totals.sacks_received += 1;
        self.window.peer_heard();
        if self.settings.rack {
            self.out.came_twice(&mut self.paths, sack.duplicates());
        }
        let acknowledgement = Acknowledgement {
            cumulative: sack.cumulative_tsn_ack,
            a_rwnd: Some(sack.a_rwnd),
            gaps: sack.gaps(),
            packets: sack.packets,
            for_good: false,
        };
        self.acknowledged(cx, acknowledgement);
        if self.settings.rack {
            self.out.settle_probes(cx.now, &mut self.paths);
        }
        self.closing_progress(cx);
    }

    fn handle_nr_sack(&mut self, cx: &mut Cx<'_>, sack: &NrSack<'_>) {
        if !self.sends_data() || self.awaits_new_numbers() {
            return;
        }
        self.totals.sacks_received += 1;
        self.window.peer_heard();
        if self.settings.rack {
            self.out.came_twice(&mut self.paths, sack.duplicates());
        }
        let acknowledgement = Acknowledgement {
            cumulative: sack.cumulative_tsn_ack,
            a_rwnd: Some(sack.a_rwnd),
            gaps: sack.gaps(),
            packets: 0,
            for_good: sack.is_final(),
        };
        self.acknowledged(cx, acknowledgement);
        if self.settings.rack {
            self.out.settle_probes(cx.now, &mut self.paths);
        }
        self.closing_progress(cx);
    }

    /// Processes the acknowledgement in a SACK or SHUTDOWN.
    pub(super) fn acknowledged(
        &mut self,
        cx: &mut Cx<'_>,
        acknowledgement: Acknowledgement<impl Iterator<Item = Gap>>,
    ) {
        let outcome = self.out.sack(cx.now, acknowledgement, &mut self.paths, &self.settings);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(SackError::Old) => return,
            Err(SackError::NeverSent) => {
                return self.violation("an acknowledgement is of what was never sent");
            }
        };
        self.totals.reneged += u64::from(outcome.reneged);
        self.totals.fast_retransmits += u64::from(outcome.marked);
        for path in &mut self.paths {
            if path.tally.acked() > 0 {
                path.add_burst(&self.settings);
            } else {
                path.allow_burst(&self.settings);
            }
        }
        if outcome.acked {
            self.errors.data_acknowledged();
            self.check_writable();
            if self.paths.iter().any(Path::has_changed) {
                self.path_changed();
            }
        }
        self.forward_arrived(cx.now);
        let overdue = self.out.abandon_overdue(cx.now, &mut self.paths);
        self.control.forward.request_if(overdue);
        // RFC 3758 section 3.5, rules C1 to C4.
        if self.out.advance() {
            self.control.forward.request_if(outcome.advanced || outcome.acked);
        } else if outcome.advanced && !self.window.is_probing() {
            for path in self.paths.iter_mut().filter(|path| path.flight.is_empty()) {
                path.timers.cancel(PathTimer::T3Rtx);
            }
        }
        if outcome.fast {
            self.out.set_forced(true);
            self.totals.recoveries += 1;
        }
        if self.window.was_probed() {
            self.after_probe(cx, outcome.advanced);
        }
    }

    /// Confirms the round-trip time by a FORWARD TSN that was sent once and acknowledged, where no data
    /// is left that would.
    fn forward_arrived(&mut self, now: Time) {
        let passed = |position| self.out.has_passed(position);
        let Some(last) = self.control.forward.take_arrived(passed) else { return };
        if !last.again {
            self.paths[usize::from(last.path)].rto.confirm(now.since(last.at));
        }
    }

    /// Sends what the peer refused while its window was closed, at once and not with the next probe.
    /// Where the peer accepted the probe and holds data after a gap, the gap keeps its window closed,
    /// and chunks that fill it need no window.
    fn after_probe(&mut self, cx: &Cx<'_>, advanced: bool) {
        let fills = advanced && self.out.has_gaps();
        if self.out.is_shut(self.max_data()) && !fills {
            let waits = self.paths.iter().any(|path| path.timers.is_running(PathTimer::T3Rtx));
            if self.out.outstanding() == 0 && self.out.has_marked() && !waits {
                self.wait_for_window(cx, self.chosen.current);
            }
            return;
        }
        // A FORWARD TSN that is not acknowledged needs the timer too (RFC 3758 section 3.5, rule C4).
        let ahead = self.out.is_ahead();
        for (index, path) in self.paths.iter_mut().enumerate() {
            if self.window.is_probing() && !path.flight.is_empty() && !fills {
                self.out.mark_all(index, path, false);
            }
            if path.flight.is_empty() && !ahead {
                path.timers.cancel(PathTimer::T3Rtx);
            }
        }
        self.window.opened();
    }

    /// RFC 9260 section 9.1.
    fn handle_abort(&mut self, causes: &[u8]) {
        let (mut code, mut reason) = (0, Bytes::new());
        if let Some(Ok(cause)) = Causes::new(causes).next() {
            code = cause.code();
            if let Cause::UserAbort(text) | Cause::ProtocolViolation(text) = cause {
                reason = Bytes::copy_from_slice(&text[..text.len().min(MAX_REASON)]);
            }
        }
        self.close(Close::Aborted { code, reason });
    }

    fn handle_error(&mut self, cx: &mut Cx<'_>, causes: &[u8]) {
        let Some(Ok(cause)) = Causes::new(causes).next() else { return };
        if cause.code() == code::STALE_COOKIE {
            return self.handle_stale_cookie(cx);
        }
        if let Cause::UnrecognizedChunk(reported) = cause {
            self.asconf_unknown(cx, reported);
        }
        self.pending.error = Some(cause.code());
    }

    /// Returns whether a chunk with this T bit may belong to the association when its tag is the
    /// peer's.
    pub(crate) fn accepts_reflected(&self, tag: u32, kind: u8, flags: u8) -> bool {
        use crate::wire::chunk::{T_BIT, kind as kinds};
        let ends = kind == kinds::ABORT || kind == kinds::SHUTDOWN_COMPLETE;
        ends && flags & T_BIT != 0 && self.tags.is_of_peer(tag)
    }
}
