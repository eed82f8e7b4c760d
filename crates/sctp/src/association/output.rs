//! Sent packets (RFC 9260 sections 6.1 and 6.10).

use super::{Association, Cx, Phase};
use crate::features::Features;
use crate::settings::Multipath;
use crate::timers::PathTimer;
use crate::wire::chunk::Chunk;
use crate::wire::sack::{self, NR_SACK_HEADER, SACK_ENTRY, SACK_HEADER};
use crate::wire::{COMMON_HEADER, Gap, TLV_HEADER, Writer, padded};
use ringway_sansio::{Addressing, Time};

impl Association {
    /// Appends the next packet to `out` and returns its addressing. Returns `None` when nothing is due.
    pub fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<Addressing> {
        if self.asconf.is_some()
            && let Some(way) = self.transmit_asconf(cx, out)
        {
            self.totals.packets_sent += 1;
            return Some(way);
        }
        if self.control.probe
            && let Some(way) = self.transmit_probe(cx, out)
        {
            self.totals.packets_sent += 1;
            return Some(way);
        }
        self.max = self.max_data();
        let start = out.len();
        let path = match self.phase {
            Phase::Closed(_) => None,
            Phase::CookieWait(_) | Phase::CookieEchoed(_) => self.transmit_opening(cx, out),
            _ => self.transmit_open(cx, out),
        };
        let path = path?;
        self.totals.packets_sent += 1;
        let path_mtu = self.paths[path].mtu() as u16;
        let fragment = (out.len() - start > self.paths[path].packet()).then_some(path_mtu);
        let ecn = self.codepoint();
        Some(Addressing { fragment, ecn, ..self.way(path) })
    }

    fn transmit_open(&mut self, cx: &mut Cx<'_>, out: &mut Vec<u8>) -> Option<usize> {
        self.out.begin_packet();
        self.drop_late(cx.now);
        self.closing_progress(cx);
        self.reconfig_progress();
        let data = self.data_target();
        let Some(target) = self.control_target().or(data) else {
            self.rest(cx);
            return None;
        };
        let usable = self.paths[target].usable();
        let waiting = self.waiting_control();
        let ports = (self.ends.local_port, self.ends.remote_port);
        let limit = self.packet_limit(target);
        let start = out.len();
        let mut packet = Writer::new(out, limit, ports.0, ports.1, self.tags.outbound());
        self.begin_auth(&mut packet);
        let empty = packet.len();
        if self.control.cookie_ack == Some(target) {
            self.control.cookie_ack = None;
            Chunk::CookieAck.emit(packet.chunks());
        }
        if usable {
            let alone = packet.len() == empty;
            self.put_errors(alone, &mut packet);
            if self.agreement.has(Features::ECN) {
                self.put_cwr(&mut packet);
            }
            self.put_owed_sack(&mut packet, target, data);
            self.put_forward(cx, target, &mut packet);
            self.put_reconfig(cx, target, &mut packet);
        }
        let alone = packet.len() == empty;
        self.put_beats(cx, target, alone, &mut packet);
        if usable && self.shutdown_target() == Some(target) {
            self.put_shutdown(&mut packet);
        } else if data == Some(target) {
            self.put_data(cx, target, &mut packet);
        }
        // A chunk was due but did not fit its path.
        if packet.len() == empty {
            out.truncate(start);
            if self.waiting_control() < waiting {
                // It is dropped so that it delays nothing else.
                return self.transmit_open(cx, out);
            }
            self.rest(cx);
            return None;
        }
        self.finish_auth(&mut packet, start);
        // A peer that has already ended handles a SHUTDOWN ACK as out of the blue (RFC 9260 section
        // 8.4).
        packet.finish_with(self.zero_checksum() && !self.waits_for_shutdown_complete());
        Some(target)
    }

    /// Writes an AUTH chunk first, if every packet needs one (RFC 4895 section 6.2).
    pub(super) fn begin_auth(&self, packet: &mut Writer<'_>) {
        if self.authenticates_all()
            && let Some(agreed) = self.agreed()
        {
            agreed.begin(packet.chunks());
        }
    }

    /// Fills in the MAC of a packet that begins at `start`.
    pub(super) fn finish_auth(&self, packet: &mut Writer<'_>, start: usize) {
        if self.authenticates_all()
            && let Some(agreed) = self.agreed()
        {
            agreed.finish(&mut packet.chunks()[start + COMMON_HEADER..]);
        }
    }

    /// Returns the maximum length of the next packet on a path. A chunk that was cut for a larger MTU
    /// is sent all the same, alone, and fragmented by IP (RFC 9260 section 6.9).
    fn packet_limit(&self, target: usize) -> usize {
        let limit = self.paths[target].packet();
        match self.out.first_marked() {
            Some((len, ..)) if self.control_target().is_none() => {
                limit.max(COMMON_HEADER + self.auth_room() + self.out.chunk_size(len))
            }
            _ => limit,
        }
    }

    /// Returns the length of answers and reports that wait.
    fn waiting_control(&self) -> usize {
        self.control.beats.len() + self.control.errors.len()
    }

    /// Returns the path of the next control chunk.
    fn control_target(&self) -> Option<usize> {
        if self.control.cookie_ack.is_some() {
            return self.control.cookie_ack;
        }
        if let Some((path, _)) = self.control.beats.front() {
            return Some(*path);
        }
        if let Some(path) = self.paths.iter().position(|path| path.heartbeat.is_due()) {
            return Some(path);
        }
        if let Some(path) = self.shutdown_target() {
            return Some(path);
        }
        if !self.control.errors.is_empty() || self.owes_cwr() {
            return Some(self.chosen.current);
        }
        if self.control.forward.is_due() {
            let other = self.control.forward.path().filter(|other| self.paths[*other].usable());
            return other.or(Some(self.chosen.current));
        }
        if let Some(path) = self.reconfig_target() {
            return Some(path);
        }
        self.acks.is_due().then(|| self.ack_path())
    }

    /// Returns the path of a SACK, which is the one DATA came from (RFC 9260 section 6.4).
    pub(super) fn ack_path(&self) -> usize {
        let path = self.acks.path;
        if self.paths.get(path).is_some_and(|p| p.usable()) { path } else { self.chosen.current }
    }

    /// Writes a FORWARD TSN, which T3-rtx protects (RFC 3758 section 3.5, rules C3 to C5).
    fn put_forward(&mut self, cx: &Cx<'_>, target: usize, packet: &mut Writer<'_>) {
        if !self.control.forward.is_due() || !self.sends_data() {
            self.control.forward.cancel();
            return;
        }
        let reached = if self.out.is_ahead() { self.out.put_forward(packet) } else { None };
        if reached.is_some() || !self.out.is_ahead() {
            match reached {
                Some(position) => self.control.forward.sent(position, target, cx.now),
                None => self.control.forward.cancel(),
            }
            let path = &mut self.paths[target];
            path.note_turn();
            if !path.timers.is_running(PathTimer::T3Rtx) && self.out.is_ahead() {
                path.start_t3(cx.now);
            }
        }
    }

    /// Writes the error causes if all fit, or those that fit if the packet has nothing else (`alone`).
    fn put_errors(&mut self, alone: bool, packet: &mut Writer<'_>) {
        let errors = &mut self.control.errors;
        let room = packet.space().saturating_sub(TLV_HEADER);
        if errors.is_empty() || (errors.len() > room && !alone) {
            return;
        }
        let mut end = 0;
        while let Some(&[high, low]) = errors.get(end + 2..end + 4) {
            let next = end + padded(usize::from(u16::from_be_bytes([high, low])));
            if next > room {
                break;
            }
            end = next.min(errors.len());
        }
        if end > 0 {
            Chunk::Error(&errors[..end]).emit(packet.chunks());
        }
        errors.clear();
    }

    /// Writes a SACK that is due, or one that may wait if data is sent and both fit (RFC 9260 section
    /// 6.1).
    fn put_owed_sack(&mut self, packet: &mut Writer<'_>, target: usize, data: Option<usize>) {
        let with_data = data == Some(target);
        let here = self.acks.is_due() && (target == self.ack_path() || with_data);
        let size = self.ecne_len() + self.sack_len();
        let along = self.acks.is_owed()
            && with_data
            && self.data_len().is_some_and(|len| packet.space() >= size + self.out.chunk_size(len));
        if here || along {
            self.put_ecne(packet);
            self.put_sack(packet);
        }
    }

    /// Writes a SACK, with as many gap blocks as fit (RFC 9260 section 6.7).
    fn put_sack(&mut self, packet: &mut Writer<'_>) -> bool {
        let space = packet.space();
        let header = self.sack_header();
        if space < header {
            return false;
        }
        let max = (space - header) / SACK_ENTRY;
        let window = self.inn.window(usize::from(self.settings.mtu));
        let inn = &self.inn;
        let tracker = &inn.tracker;
        let gaps = max.min(tracker.range_count());
        let cumulative = tracker.cumulative();
        let blocks = tracker.ranges().take(gaps).map(|(start, end)| Gap {
            start: (start - cumulative) as u16,
            end: (end - cumulative) as u16,
        });
        let duplicates = tracker.duplicates().iter().take(max - gaps).map(|&p| inn.tsn(p));
        let start = packet.chunks().len();
        let (cumulative, a_rwnd) = (inn.cumulative(), window as u32);
        if self.agreement.has(Features::NR_SACK) {
            // Acknowledged data is never dropped here.
            sack::emit_final(packet.chunks(), cumulative, a_rwnd, blocks, duplicates);
        } else {
            sack::emit(packet.chunks(), cumulative, a_rwnd, blocks, duplicates);
        }
        if self.settings.multipath != Multipath::Off {
            sack::set_packets(packet.chunks(), start, self.acks.packets());
        }
        self.inn.advertise(window);
        self.inn.tracker.clear_duplicates();
        self.acks.clear();
        self.totals.sacks_sent += 1;
        true
    }

    fn sack_header(&self) -> usize {
        if self.agreement.has(Features::NR_SACK) { NR_SACK_HEADER } else { SACK_HEADER }
    }

    /// Returns the number of bytes that a SACK would need now.
    fn sack_len(&self) -> usize {
        let tracker = &self.inn.tracker;
        self.sack_header() + SACK_ENTRY * (tracker.range_count() + tracker.duplicates().len())
    }

    fn put_shutdown(&mut self, packet: &mut Writer<'_>) {
        match &mut self.phase {
            Phase::ShutdownSent(closing) => {
                closing.due = false;
                Chunk::Shutdown(self.inn.cumulative()).emit(packet.chunks());
            }
            Phase::ShutdownAckSent(closing) => {
                closing.due = false;
                Chunk::ShutdownAck.emit(packet.chunks());
            }
            _ => {}
        }
    }

    /// Returns the number of user bytes in the next chunk.
    fn data_len(&self) -> Option<usize> {
        match self.out.first_marked() {
            Some((len, ..)) => Some(len),
            None => self.out.next_len(self.max),
        }
    }

    /// Returns whether the peer's window is closed to the next new chunk (RFC 9260 section 6.1 A).
    fn is_blocked(&self, len: usize) -> bool {
        (self.out.peer_window.room() as usize) < len
    }

    /// Returns the first chunk to be sent again whose message is not abandoned.
    fn first_worth_it(&mut self, now: Time) -> Option<(usize, usize, bool)> {
        self.control.forward.request_if(self.out.abandon_first(now, &mut self.paths));
        self.out.first_marked()
    }

    /// Abandons messages whose lifetime is over: those not begun, the rest of those begun, and what
    /// would be sent again.
    fn drop_late(&mut self, now: Time) {
        self.out.drop_expired(now);
        self.control.forward.request_if(self.out.abandon_begun(now, &mut self.paths));
        self.control.forward.request_if(self.out.abandon_first(now, &mut self.paths));
        self.out.drop_expired(now);
        let abandoned = self.out.take_abandoned();
        if abandoned > 0 {
            self.pending.unsent += abandoned;
            self.check_writable();
        }
    }

    /// Returns the path that data may be sent on now.
    fn data_target(&self) -> Option<usize> {
        if !self.sends_data() {
            return None;
        }
        if let Some((_, last, timed_out)) = self.out.first_marked() {
            // One chunk at a time probes a closed window (RFC 9260 section 6.1 A).
            let asked = self.out.outstanding() > 0
                || self.paths.iter().any(|p| p.timers.is_running(PathTimer::T3Rtx));
            if self.window.is_probing() && !self.out.is_forced() && asked {
                return None;
            }
            let target = self.retransmit_to(last, timed_out);
            let path = &self.paths[target];
            return (path.usable() && (self.out.is_forced() || path.may_retransmit()))
                .then_some(target);
        }
        let len = self.out.next_len(self.max)?;
        let target = self.new_data_to();
        let path = &self.paths[target];
        let blocked = self.is_blocked(len) && !self.window.is_due() && !self.out.takes_one();
        if !path.usable() || !path.may_send() || blocked {
            return None;
        }
        Some(target)
    }

    /// Fills a packet with retransmissions, then with new data, as far as the windows allow.
    fn put_data(&mut self, cx: &mut Cx<'_>, target: usize, packet: &mut Writer<'_>) {
        let before = packet.len();
        self.marks.data = true;
        self.paths[target].before_data(cx.now);
        self.errors.data_on(target);
        if self.paths[target].pmtu().is_some() {
            self.begin_search(cx.now, target);
        }
        while let Some((len, last, timed_out)) = self.first_worth_it(cx.now) {
            let fits = packet.space() >= self.out.chunk_size(len);
            if !fits || self.retransmit_to(last, timed_out) != target {
                break;
            }
            // One packet may go beyond the window (RFC 9260 sections 6.1 B and 7.2.4).
            let may = self.out.is_forced() || self.paths[target].may_retransmit();
            if !may && packet.len() == before {
                break;
            }
            if !may && !self.paths[target].takes_one_packet() {
                break;
            }
            self.paths[target].spend_burst(self.out.chunk_size(len));
            self.out.send_again(cx.now, target, &mut self.paths, packet.chunks());
            self.totals.retransmits += 1;
            if self.window.is_probing() {
                break;
            }
        }
        if packet.len() > before {
            self.out.set_forced(false);
            if self.window.is_probing() {
                self.wait_for_window(cx, target);
            }
        }
        if self.out.has_marked() || !self.takes_new_data(target) {
            return;
        }
        self.put_new(cx, target, packet, before);
    }

    pub(super) fn put_new(
        &mut self,
        cx: &mut Cx<'_>,
        target: usize,
        packet: &mut Writer<'_>,
        before: usize,
    ) {
        let max = self.max;
        // A message that was just abandoned may have preceded others that are expired.
        self.out.drop_expired(cx.now);
        loop {
            let max = self.out.max_in(packet.space(), max);
            let Some(len) = self.out.next_len(max) else { break };
            if packet.space() < self.out.chunk_size(len) {
                break;
            }
            let path = &mut self.paths[target];
            // After a timeout the one packet is filled (RFC 9260 section 7.2.3).
            let filling = path.takes_one_packet() && packet.len() > before && path.has_burst();
            if !path.may_send() && !filling {
                break;
            }
            if (self.out.peer_window.room() as usize) < len && !self.out.takes_one() {
                if !self.window.is_due() || self.out.outstanding() > 0 {
                    break;
                }
                self.window.probe_sent();
                self.totals.window_probes += 1;
            }
            self.window.data_sent();
            path.spend_burst(self.out.chunk_size(len));
            let ask = matches!(self.phase, Phase::ShutdownPending);
            self.out.cut(cx.now, max, target, path, ask, packet.chunks());
            self.totals.chunks_sent += 1;
            if self.window.is_probing() {
                self.wait_for_window(cx, target);
            }
        }
    }

    /// Ends a burst when nothing more is sent now. The rest of the burst is forfeit, and a closed
    /// window is probed later.
    fn rest(&mut self, cx: &Cx<'_>) {
        self.count_full();
        for path in &mut self.paths {
            path.end_burst();
        }
        let idle = self.out.outstanding() == 0 && !self.out.has_marked() && !self.out.is_ahead();
        if !self.sends_data() || !idle {
            return;
        }
        let Some(len) = self.out.next_len(self.max) else { return };
        let path = &self.paths[self.chosen.current];
        if self.is_blocked(len)
            && !self.out.takes_one()
            && !path.timers.is_running(PathTimer::T3Rtx)
            && path.usable()
        {
            self.wait_for_window(cx, self.chosen.current);
        }
    }

    /// Counts that [`MAX_IN_FLIGHT`](crate::MAX_IN_FLIGHT) alone holds new data back. It counts once
    /// until an acknowledgement makes room.
    fn count_full(&mut self) {
        let held = self.sends_data()
            && self.out.len_held_by_limit(self.max).is_some_and(|len| {
                let path = &self.paths[self.new_data_to()];
                path.usable() && path.may_send() && !self.is_blocked(len)
            });
        self.totals.in_flight_full += u64::from(self.out.note_holding(held));
    }

    /// Schedules the next probe of a closed window, each after twice the time of the one before (RFC
    /// 9260 section 6.1 A).
    pub(super) fn wait_for_window(&mut self, cx: &Cx<'_>, path: usize) {
        let path = &mut self.paths[path];
        let wait = path.rto.get() * self.window.back_off();
        path.timers.start(PathTimer::T3Rtx, cx.now + wait.min(self.settings.rto_max));
    }
}
