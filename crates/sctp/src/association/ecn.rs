//! Explicit congestion notification (RFC 4960 appendix A, whose chunk types RFC 9260 keeps;
//! RFC 3168): marks that routers make are told back by ECNE until CWR says that they were heard.

use super::Association;
use crate::Tsn;
use crate::features::Features;
use crate::wire::Writer;
use crate::wire::chunk::Chunk;
use ringway_sansio::{Ecn, Time};

/// Bytes of ECNE and of CWR.
const CHUNK: usize = 8;

/// What is known of marks.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The highest TSN that came marked and was not answered by CWR.
    seen: Option<Tsn>,
    /// The window was reduced, and the peer is to hear of it: up to which TSN.
    answer: Option<Tsn>,
    /// Marks up to this place are those that the window was reduced for.
    exit: u64,
    /// The packet being written has data in it.
    pub(super) data: bool,
}

impl Association {
    /// The codepoint of the packet just written.
    pub(super) fn codepoint(&mut self) -> Ecn {
        let data = core::mem::take(&mut self.marks.data);
        if data && self.features.has(Features::ECN) { Ecn::Ect0 } else { Ecn::NotEct }
    }

    /// A packet came whose last DATA chunk was this one, marked on its way.
    pub(super) fn marked(&mut self, tsn: Tsn) {
        if !self.features.has(Features::ECN) {
            return;
        }
        if self.marks.seen.is_none_or(|seen| tsn.after(seen)) {
            self.marks.seen = Some(tsn);
        }
        self.acks.now();
    }

    /// Writes CWR.
    pub(super) fn put_cwr(&mut self, packet: &mut Writer<'_>) {
        if let Some(tsn) = self.marks.answer
            && packet.space() >= CHUNK
        {
            Chunk::Cwr(tsn).emit(packet.chunks());
            self.marks.answer = None;
        }
    }

    /// Bytes that an ECNE takes beside the next SACK.
    pub(super) fn ecne_len(&self) -> usize {
        if self.marks.seen.is_some() { CHUNK } else { 0 }
    }

    /// Writes ECNE, where a SACK goes: with nothing else, lest a packet of it alone go again and
    /// again.
    pub(super) fn put_ecne(&mut self, packet: &mut Writer<'_>) {
        if let Some(tsn) = self.marks.seen
            && packet.space() >= CHUNK
        {
            Chunk::Ecne(tsn).emit(packet.chunks());
        }
    }

    /// Whether the peer is to hear that the window was reduced.
    pub(super) fn owes_cwr(&self) -> bool {
        self.marks.answer.is_some()
    }

    /// ECNE came: the window of the path that the TSN took is reduced, once a round trip.
    pub(super) fn handle_ecne(&mut self, now: Time, tsn: Tsn) {
        if !self.features.has(Features::ECN) || !self.sends_data() {
            return;
        }
        let Some((position, path)) = self.out.whereabouts(tsn) else { return };
        if position > self.marks.exit {
            let path = path.unwrap_or(self.current);
            if self.paths[path].recovery.is_none() && !self.out.in_recovery() {
                self.paths[path].lost(now);
                self.totals.marks += 1;
            }
            self.marks.exit = self.out.last_position();
        }
        self.marks.answer = Some(self.out.next_tsn().minus(1));
    }

    /// CWR came.
    pub(super) fn handle_cwr(&mut self, tsn: Tsn) {
        self.marks.seen.take_if(|seen| !seen.after(tsn));
    }
}
