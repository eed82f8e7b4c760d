//! ICMP messages about packets that were sent (RFC 9260 section 10).

use super::{Association, Close};
use crate::path::{Path, PathState};
use crate::timers::{PathTimer, Timer};
use bytes::Bytes;
use ringway_sansio::{Icmp, Time};
use std::net::IpAddr;

impl Association {
    /// Handles an ICMP message whose quoted packet belongs to this association. `init` states that it
    /// was an INIT.
    pub(crate) fn handle_icmp(&mut self, now: Time, remote: IpAddr, icmp: Icmp, init: bool) {
        let Some(index) = self.path_to(remote) else { return };
        match icmp {
            // Rule ICMP7.
            Icmp::TooBig(mtu) => self.packet_too_big(now, index, mtu as usize),
            // Rule ICMP8.
            Icmp::ProtocolUnreachable if init != self.waits_for_init_ack() => {}
            Icmp::ProtocolUnreachable => self.refused(now, index),
            // Rule ICMP9. The timers decide what it means for the association.
            Icmp::Unreachable => self.unreachable(now, index),
        }
    }

    /// Handles an address without SCTP. The association ends unless the peer has other addresses: one
    /// of several may be another host's by now, or behind a firewall that answers so for everything it
    /// rejects.
    fn refused(&mut self, now: Time, index: usize) {
        let works = |path: &Path| path.usable() && path.state() != PathState::Inactive;
        let mut others = self.paths.iter().enumerate().filter(|(other, _)| *other != index);
        if !others.any(|(_, path)| works(path)) {
            self.close(Close::Aborted { code: 0, reason: Bytes::new() });
        } else if self.waits_for_init_ack() {
            // The next address is used at once.
            self.paths[index].fail(&self.settings);
            self.timers.start(Timer::T1, now);
        } else {
            self.unreachable(now, index);
        }
    }

    fn unreachable(&mut self, now: Time, index: usize) {
        if self.is_closed() || !self.paths[index].error(&self.settings) {
            return;
        }
        self.path_changed();
        if self.chosen.current != index && self.paths[self.chosen.current].active() {
            // Data may arrive over another path and need not wait for a timer.
            self.out.mark_all(index, &mut self.paths[index], true);
            self.paths[index].timers.cancel(PathTimer::T3Rtx);
            self.abandon_expired(now);
            self.allow_bursts();
        }
    }
}
