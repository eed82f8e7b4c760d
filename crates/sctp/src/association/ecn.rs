//! Explicit congestion notification (RFC 4960 appendix A, whose chunk types RFC 9260 keeps; RFC 3168).
//! ECNE reports routers' marks to the sender and is repeated until CWR confirms that it arrived.

mod marks;

pub(super) use marks::Marks;

use super::Association;
use crate::Tsn;
use crate::features::Features;
use crate::wire::Writer;
use crate::wire::chunk::Chunk;
use ringway_sansio::{Ecn, Time};

/// Length in bytes of ECNE and of CWR.
const CHUNK: usize = 8;

impl Association {
    /// Returns the codepoint of the packet just written.
    pub(super) fn codepoint(&mut self) -> Ecn {
        let data = core::mem::take(&mut self.marks.data);
        if data && self.agreement.has(Features::ECN) { Ecn::Ect0 } else { Ecn::NotEct }
    }

    /// Notes that a packet arrived marked, with its last DATA chunk's TSN.
    pub(super) fn marked(&mut self, tsn: Tsn) {
        if !self.agreement.has(Features::ECN) {
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

    /// Returns the number of bytes that an ECNE needs beside the next SACK.
    pub(super) fn ecne_len(&self) -> usize {
        if self.marks.seen.is_some() { CHUNK } else { 0 }
    }

    /// Writes ECNE beside a SACK. It is never sent alone, since a packet of ECNE alone would be
    /// repeated without end.
    pub(super) fn put_ecne(&mut self, packet: &mut Writer<'_>) {
        if let Some(tsn) = self.marks.seen
            && packet.space() >= CHUNK
        {
            Chunk::Ecne(tsn).emit(packet.chunks());
        }
    }

    /// Returns whether a CWR is due.
    pub(super) fn owes_cwr(&self) -> bool {
        self.marks.answer.is_some()
    }

    /// Handles ECNE: reduces the window of the path that the TSN was sent on, once a round trip.
    pub(super) fn handle_ecne(&mut self, now: Time, tsn: Tsn) {
        if !self.agreement.has(Features::ECN) || !self.sends_data() {
            return;
        }
        let Some((position, path)) = self.out.whereabouts(tsn) else { return };
        if position > self.marks.exit {
            let path = path.unwrap_or(self.chosen.current);
            if !self.paths[path].in_recovery() && !self.out.in_recovery() {
                self.paths[path].lost(now);
                self.totals.marks += 1;
            }
            self.marks.exit = self.out.last_position();
        }
        self.marks.answer = Some(self.out.next_tsn().minus(1));
    }

    /// Handles CWR.
    pub(super) fn handle_cwr(&mut self, tsn: Tsn) {
        self.marks.seen.take_if(|seen| !seen.after(tsn));
    }
}
