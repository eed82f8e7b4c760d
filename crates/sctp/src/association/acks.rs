//! When to acknowledge (RFC 9260 section 6.2).

use crate::settings::Settings;
use ringway_sansio::Time;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Due {
    #[default]
    No,
    Later,
    Now,
}

/// Maximum number of SACKs of one packet that are processed. RFC 9260 section 6.2 has one in a packet,
/// and a SACK that reneges on what another acknowledged costs a step for each chunk in flight.
pub(super) const MAX_SACKS: u8 = 2;

/// Summary of the DATA chunks of one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketData {
    /// Number of SACKs in the packet.
    pub(super) sacks: u8,
    pub(super) data: bool,
    pub(super) at_once: bool,
    pub(super) duplicate: bool,
    /// TSN of the last DATA chunk.
    pub(super) last: Option<crate::Tsn>,
}

/// Acknowledgements that are owed to the peer.
#[derive(Debug, Default)]
pub(super) struct Acks {
    due: Due,
    pub(super) timer: Option<Time>,
    /// Number of packets with DATA since the last SACK.
    packets: u8,
    /// Whether DATA has arrived: the first is acknowledged at once (RFC 9260 section 5.1).
    began: bool,
    /// The path on which DATA last came.
    pub(super) path: usize,
}

impl Acks {
    /// Returns a state in which nothing is owed; later acknowledgements go to `path`.
    pub(super) fn on(path: usize) -> Acks {
        Acks { path, ..Acks::default() }
    }

    pub(super) fn is_due(&self) -> bool {
        self.due == Due::Now
    }

    pub(super) fn is_owed(&self) -> bool {
        self.due != Due::No
    }

    /// Returns the number of packets with DATA since the last SACK.
    pub(super) fn packets(&self) -> u8 {
        self.packets
    }

    pub(super) fn now(&mut self) {
        self.due = Due::Now;
        self.timer = None;
    }

    pub(super) fn clear(&mut self) {
        self.due = Due::No;
        self.timer = None;
        self.packets = 0;
    }

    /// Notes what a packet contained, and decides when it is acknowledged.
    pub(super) fn packet(&mut self, now: Time, path: usize, seen: PacketData, settings: &Settings) {
        if !seen.data {
            return;
        }
        self.path = path;
        self.packets = self.packets.saturating_add(1);
        let first = !core::mem::replace(&mut self.began, true);
        if first
            || seen.at_once
            || seen.duplicate
            || self.packets >= settings.sack_packets
            || settings.sack_delay.is_zero()
        {
            self.now();
        } else if self.due == Due::No {
            self.due = Due::Later;
            self.timer = Some(now + settings.sack_delay);
        }
    }
}
