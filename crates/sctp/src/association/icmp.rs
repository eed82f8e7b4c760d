//! What routers say of packets that were sent (RFC 9260 section 10).

use super::{Association, Close, State};
use bytes::Bytes;
use ringway_sansio::{Icmp, Time};
use std::net::IpAddr;

impl Association {
    /// Works on an ICMP message whose quoted packet is known to be ours; `init` if it was an INIT.
    pub(crate) fn handle_icmp(&mut self, now: Time, remote: IpAddr, icmp: Icmp, init: bool) {
        let Some(index) = self.path_to(remote) else { return };
        match icmp {
            // Rule ICMP7.
            Icmp::TooBig(mtu) => self.packet_too_big(now, index, mtu as usize),
            // Rule ICMP8.
            Icmp::ProtocolUnreachable if init != (self.state == State::CookieWait) => {}
            Icmp::ProtocolUnreachable => {
                self.close(Close::Aborted { code: 0, reason: Bytes::new() });
            }
            // Rule ICMP9. The timers find out what it means for the association.
            Icmp::Unreachable => {
                if self.state == State::Closed || !self.paths[index].error(&self.settings) {
                    return;
                }
                self.path_changed();
                if self.current != index && self.paths[self.current].active() {
                    // Elsewhere it may arrive, and need not wait for a timer.
                    self.out.mark_all(index, &mut self.paths[index], true);
                    self.paths[index].t3 = None;
                    self.give_up(now);
                    self.allow_bursts();
                }
            }
        }
    }
}
