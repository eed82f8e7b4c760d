//! Probes of a path's MTU (RFC 8899): a HEARTBEAT enlarged by PAD (RFC 4820).

use super::{Association, Cx};
use crate::pmtu::MIN_WAIT;
use crate::timers::PathTimer;
use crate::wire::chunk::{self, Chunk, kind};
use crate::wire::{Parameter, TLV_HEADER, Writer};
use ringway_sansio::{Addressing, Time};

impl Association {
    /// Starts a search, if one is due, when data is sent on a path.
    pub(super) fn begin_search(&mut self, now: Time, index: usize) {
        let path = &mut self.paths[index];
        let mtu = path.mtu();
        if let Some(pmtu) = path.pmtu_mut() {
            self.control.probe |= pmtu.begin(now, mtu);
        }
    }

    /// Writes the next probe, alone in its packet.
    pub(super) fn transmit_probe(
        &mut self,
        cx: &mut Cx<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Addressing> {
        let wants = |path: &crate::path::Path| {
            path.active() && path.pmtu().is_some_and(|pmtu| pmtu.probe_due)
        };
        let index = self.paths.iter().position(wants).filter(|_| self.is_established());
        let Some(index) = index else {
            self.control.probe = false;
            return None;
        };
        let way = self.way(index);
        let path = &mut self.paths[index];
        let mtu = path.mtu();
        let pmtu = path.pmtu_mut()?;
        let size = pmtu.size(mtu);
        let nonce = cx.random.next_u64();
        pmtu.sent(size, nonce);
        path.timers.start(PathTimer::PmtuProbe, cx.now + path.rto.get().max(MIN_WAIT));
        let limit = path.packet() + size - mtu;
        let mut parameter = Vec::new();
        Parameter::HeartbeatInfo(&super::beats::info(index, cx.now, nonce)).emit(&mut parameter);
        let (ours, theirs) = (self.ends.local_port, self.ends.remote_port);
        let mut packet = Writer::new(out, limit, ours, theirs, self.tags.outbound());
        Chunk::Heartbeat(&parameter).emit(packet.chunks());
        let rest = packet.space().saturating_sub(TLV_HEADER);
        chunk::put(packet.chunks(), kind::PAD, 0, &[&vec![0; rest]]);
        packet.finish();
        Some(way)
    }

    /// Handles a HEARTBEAT ACK that may answer a probe. Returns `true` if it does.
    pub(super) fn probe_answered(&mut self, now: Time, index: usize, nonce: u64) -> bool {
        let path = &mut self.paths[index];
        let Some(pmtu) = path.pmtu_mut() else { return false };
        let Some(size) = pmtu.answered(now, nonce) else { return false };
        self.control.probe |= pmtu.probe_due;
        path.mtu_found(size);
        true
    }

    /// Handles the loss of a probe.
    pub(super) fn probe_timeout(&mut self, now: Time, index: usize) {
        let path = &mut self.paths[index];
        let mtu = path.mtu();
        if let Some(pmtu) = path.pmtu_mut() {
            pmtu.timeout(now, mtu);
            self.control.probe |= pmtu.probe_due;
        }
    }

    /// Handles an ICMP report that packets are too big (RFC 8899 section 4.6). Larger packets in flight
    /// do not arrive.
    pub(super) fn packet_too_big(&mut self, now: Time, index: usize, reported: usize) {
        let path = &mut self.paths[index];
        let mtu = path.mtu();
        if reported == 0 {
            return;
        }
        let falls = match path.pmtu_mut() {
            Some(pmtu) => pmtu.too_big(now, mtu, reported),
            None => (reported < mtu).then_some(reported),
        };
        if let Some(size) = falls {
            path.set_mtu(size);
            path.timers.cancel(PathTimer::PmtuProbe);
            self.out.mark_larger(index, path);
            self.abandon_expired(now);
        } else if let Some(pmtu) = path.pmtu() {
            self.control.probe |= pmtu.probe_due;
        }
    }
}
