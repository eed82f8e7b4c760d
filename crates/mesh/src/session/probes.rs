//! Probes: packets of a session that show whether its owner answers, how long that takes, and which routers are on the way.
//!
//! A probe is a keep-alive of the session, so that it goes where packets of hosts go, and only the holder of the keys can
//! answer. A probe with a small hop limit ends at a router on the way, which reports that with its id. Nobody signs such
//! a report: a router on the way can name another.

use ringway_sansio::time::Duration;
use ringway_sansio::{Random, Time};

use super::track::Track;
use crate::config::HOP_LIMIT;
use crate::id::NodeId;
use crate::wire::Slot;
use crate::wire::control::{Code, ErrorReport};

/// Maximum number of probes under way.
const MAX_PROBES: usize = 64;
/// Time after which a probe is forgotten. Its caller has given up before.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// Number of a probe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProbeId(pub u64);

/// Why a probe is not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProbeRefused {
    /// The destination is no address of the mesh.
    #[error("the destination is no address of the mesh")]
    NotMesh,
    /// The destination is behind this router.
    #[error("the destination is behind this router")]
    Own,
    /// Too many probes are under way.
    #[error("{MAX_PROBES} probes are under way")]
    Busy,
}

/// What became of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeOutcome {
    /// The router that owns the destination has answered.
    Answered {
        /// The router.
        owner: NodeId,
        /// Time from sending to the answer.
        rtt: Duration,
        /// Links on the way there.
        hops: u16,
        /// Length in octets of the longest packet of a host that passes.
        mtu: u16,
    },
    /// The hop limit ended here.
    Expired {
        /// The router on the way, as it says.
        by: NodeId,
        /// Time from sending to the report.
        rtt: Duration,
    },
    /// The probe was not forwarded.
    Refused {
        /// The router on the way, as it says.
        by: NodeId,
        /// What was wrong.
        code: Code,
    },
    /// Nobody owns the destination, or nobody who does was found.
    NoRoute,
}

/// A probe under way.
struct Probe {
    id: ProbeId,
    track: Track,
    hop_limit: u8,
    begun: Time,
    sent: Option<Sent>,
}

/// What is known of a probe that was sent.
#[derive(Clone, Copy)]
struct Sent {
    at: Time,
    first: Slot,
    quote: u64,
    hops: u16,
    mtu: u16,
}

/// A probe that can be sent: its number, which the packet contains, and its hop limit as on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub(crate) id: ProbeId,
    pub(crate) hop_limit: u8,
}

/// How a packet of a session leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departure {
    /// The slot of the first link.
    pub first: Slot,
    /// What a report about the packet quotes.
    pub quote: u64,
    /// Links on the way.
    pub hops: u16,
    /// Length in octets of the longest packet of a host that passes.
    pub mtu: u16,
}

/// The probes under way.
#[derive(Default)]
pub(crate) struct Probes {
    all: Vec<Probe>,
}

impl Probes {
    /// Begins a probe that may take `hop_limit` hops; 0 is as many as any packet.
    pub(crate) fn begin(
        &mut self,
        now: Time,
        track: Track,
        hop_limit: u8,
        random: &mut dyn Random,
    ) -> Result<ProbeId, ProbeRefused> {
        self.all.retain(|probe| now.since(probe.begun) < FORGOTTEN);
        if self.all.len() >= MAX_PROBES {
            return Err(ProbeRefused::Busy);
        }
        // Zero is a keep-alive that is no probe.
        let id = ProbeId(random.next_u64().max(1));
        // The first router decides with what is on the wire, so one hop is 0 there.
        let hop_limit = hop_limit.checked_sub(1).unwrap_or(HOP_LIMIT);
        self.all.push(Probe { id, track, hop_limit, begun: now, sent: None });
        Ok(id)
    }

    /// Returns a probe that waits for a session with the owner of a prefix.
    pub(crate) fn waiting(&self, track: Track) -> Option<Ready> {
        let probe = self.all.iter().find(|probe| probe.track == track && probe.sent.is_none())?;
        Some(Ready { id: probe.id, hop_limit: probe.hop_limit })
    }

    /// A probe was sent.
    pub(crate) fn sent(&mut self, now: Time, id: ProbeId, by: Departure) {
        if let Some(probe) = self.all.iter_mut().find(|probe| probe.id == id) {
            let Departure { first, quote, hops, mtu } = by;
            probe.sent = Some(Sent { at: now, first, quote, hops, mtu });
        }
    }

    /// The owner of a prefix has answered.
    pub(crate) fn answered(
        &mut self,
        now: Time,
        owner: NodeId,
        token: u64,
    ) -> Option<(ProbeId, ProbeOutcome)> {
        let is_it = |probe: &Probe| probe.id.0 == token && probe.track.prefix() == owner.prefix();
        let index = self.all.iter().position(is_it)?;
        let Sent { at, hops, mtu, .. } = self.all[index].sent?;
        let id = self.all.swap_remove(index).id;
        Some((id, ProbeOutcome::Answered { owner, rtt: now.since(at), hops, mtu }))
    }

    /// A router on the way has reported a packet that was not forwarded. Returns the probe's number and what became of
    /// it, if it was one.
    pub(crate) fn reported(
        &mut self,
        now: Time,
        entered: Slot,
        report: &ErrorReport,
    ) -> Option<(ProbeId, ProbeOutcome)> {
        let is_it = |sent: Sent| sent.quote == report.quoted && sent.first == entered;
        let index = self.all.iter().position(|probe| probe.sent.is_some_and(is_it))?;
        let probe = self.all.swap_remove(index);
        let rtt = now.since(probe.sent?.at);
        let (by, code) = (report.by, report.code);
        let outcome = if code == Code::HopLimit && probe.hop_limit < HOP_LIMIT {
            ProbeOutcome::Expired { by, rtt }
        } else {
            ProbeOutcome::Refused { by, code }
        };
        Some((probe.id, outcome))
    }

    /// Removes and returns a probe to a prefix that nobody owns.
    pub(crate) fn absent(&mut self, track: Track) -> Option<ProbeId> {
        let is_it = |probe: &Probe| probe.track == track && probe.sent.is_none();
        let index = self.all.iter().position(is_it)?;
        Some(self.all.swap_remove(index).id)
    }

    /// Returns the octets that are allocated.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.all.capacity() * size_of::<Probe>()
    }
}
