//! What routers say of packets that were sent (RFC 9260 section 10).

use super::{Association, Close, State};
use bytes::Bytes;
use ringway_sansio::Icmp;
use std::net::IpAddr;

impl Association {
    /// Works on an ICMP message whose quoted packet is known to be ours; `init` if it was an INIT.
    pub(crate) fn handle_icmp(&mut self, remote: IpAddr, icmp: Icmp, init: bool) {
        let Some(index) = self.path_to(remote) else { return };
        match icmp {
            // Rule ICMP7.
            Icmp::TooBig(mtu) => {
                let path = &mut self.paths[index];
                let mtu = mtu as usize;
                if mtu > 0 && mtu < path.mtu() {
                    path.set_mtu(mtu);
                }
            }
            // Rule ICMP8.
            Icmp::ProtocolUnreachable if init != (self.state == State::CookieWait) => {}
            Icmp::ProtocolUnreachable => {
                self.close(Close::Aborted { code: 0, reason: Bytes::new() });
            }
            // Rule ICMP9. The timers find out what it means for the association.
            Icmp::Unreachable => {
                if self.state != State::Closed && self.paths[index].error(&self.settings) {
                    self.path_changed();
                }
            }
        }
    }
}
