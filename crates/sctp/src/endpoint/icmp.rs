//! ICMP messages about packets that were sent (RFC 9260 section 10).

use super::{Associations, Endpoint};
use crate::wire::chunk::kind;
use crate::wire::{COMMON_HEADER, TLV_HEADER, u16_at, u32_at};
use ringway_sansio::{Addressing, Icmp, Time};
use ringway_transport::Key;

impl Endpoint {
    /// Handles an ICMP message about a packet that was sent from a local address to one of the peer's,
    /// given in `sent`. `quoted` is the part of the packet in the message, from the SCTP common header
    /// on. A message that names no association and its tag is counted and ignored.
    pub fn handle_icmp(
        &mut self,
        now: Time,
        associations: &mut impl Associations,
        sent: &Addressing,
        icmp: Icmp,
        quoted: &[u8],
    ) {
        if quoted.len() < 8 {
            self.counters.icmp_refused += 1;
            return;
        }
        let (source, destination) = (u16_at(quoted, 0), u16_at(quoted, 2));
        let key = Key::new(sent.source, source, sent.destination, destination);
        let Some(slot) = self.table.get(&key).copied() else {
            self.counters.icmp_refused += 1;
            return;
        };
        // Rule ICMP6.
        let tag = u32_at(quoted, 4);
        let init = tag == 0 && quoted.get(COMMON_HEADER) == Some(&kind::INIT);
        let initiate = quoted.get(COMMON_HEADER + TLV_HEADER..).filter(|rest| rest.len() >= 4);
        let ours = associations.read(self.id(slot), |association| match initiate {
            Some(rest) if init => u32_at(rest, 0) == association.tags.local,
            _ => association.tags.is_of_peer(tag),
        });
        if ours != Some(true) {
            self.counters.icmp_refused += 1;
            return;
        }
        let to = sent.destination;
        self.call(now, associations, slot, |x, cx| x.handle_icmp(cx.now, to, icmp, init));
    }
}
