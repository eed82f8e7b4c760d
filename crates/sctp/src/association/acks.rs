//! When to acknowledge (RFC 9260 section 6.2).

use super::Association;
use crate::features::Features;
use crate::settings::{Multipath, Settings};
use crate::wire::sack::{self, NR_SACK_HEADER, SACK_ENTRY, SACK_HEADER};
use crate::wire::{Gap, Writer};
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

impl Association {
    /// Writes a SACK, with as many gap blocks as fit beside `reserve` bytes (RFC 9260 section 6.7).
    pub(super) fn put_sack(&mut self, packet: &mut Writer<'_>) -> bool {
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
        if self.features.has(Features::NR_SACK) {
            // Acknowledged data is never dropped here.
            sack::emit_final(packet.chunks(), cumulative, a_rwnd, blocks, duplicates);
        } else {
            sack::emit(packet.chunks(), cumulative, a_rwnd, blocks, duplicates);
        }
        if self.settings.multipath != Multipath::Off {
            sack::set_packets(packet.chunks(), start, self.acks.packets);
        }
        self.inn.advertise(window);
        self.inn.tracker.clear_duplicates();
        self.acks.clear();
        self.totals.sacks_sent += 1;
        true
    }

    fn sack_header(&self) -> usize {
        if self.features.has(Features::NR_SACK) { NR_SACK_HEADER } else { SACK_HEADER }
    }

    /// Returns whether data arrives over several paths, so that a chunk out of order is not a sign of
    /// loss (DAC).
    pub(super) fn is_patient(&self) -> bool {
        self.settings.multipath != Multipath::Off
            && self.paths.iter().filter(|path| path.active()).count() > 1
    }

    /// Returns the number of bytes that a SACK would need now.
    pub(super) fn sack_len(&self) -> usize {
        let tracker = &self.inn.tracker;
        self.sack_header() + SACK_ENTRY * (tracker.range_count() + tracker.duplicates().len())
    }
}
