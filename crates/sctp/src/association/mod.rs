//! The state machine of an association (RFC 9260 section 4).
//!
//! This file holds an association and the calls of its user. `phase` is the state with the data that only
//! that state has. `opening` is the handshake, `input` and `output` are the two directions of packets,
//! `acks` decides when to acknowledge, `forward` when a FORWARD TSN is due, and `errors` when the peer is
//! unreachable. `paths` chooses the destination, `beats` sends heartbeats, `timers` handles time, and
//! `closing` is the graceful shutdown. `tags` and `offer` are what the endpoints know of each other. The
//! state that `asconf`, `reconfig` and `ecn` work on is in a folder of each, below this file.

mod acks;
mod addresses;
mod asconf;
mod asconf_peer;
mod beats;
mod calls;
mod change;
mod chosen;
mod closing;
mod ecn;
mod errors;
mod event;
mod forward;
mod icmp;
mod input;
mod offer;
mod opening;
mod output;
mod paths;
mod phase;
mod probing;
mod reconfig;
mod tags;
mod timers;
mod zero_window;

pub(crate) use addresses::{families_match, is_unicast};
pub use asconf::MAX_ADDRESS_REQUESTS;
pub use change::Change;
pub use event::AssociationEvent;
pub(crate) use offer::{Offer, local_parameters};
pub use reconfig::{MAX_REQUESTS, MAX_RESET_STREAMS, Reset};

use crate::PROTOCOL;
use crate::auth::Agreed;
use crate::error::{NoPath, NoStream, SendError};
use crate::features::Features;
use crate::incoming::{Incoming, Received};
use crate::outgoing::{Outgoing, SendOptions};
use crate::path::{Path, PathState};
use crate::settings::Settings;
use crate::timers::AssociationTimers;
use crate::wire::cause::Cause;
use crate::wire::chunk;
use crate::wire::{AuthParameters, Packet};
use acks::Acks;
use asconf::Asconf;
use bytes::Bytes;
use chosen::Chosen;
use ecn::Marks;
use errors::ErrorCount;
use event::Pending;
use forward::Forwards;
use offer::Agreement;
use phase::Phase;
use reconfig::Reconfig;
use ringway_sansio::{Addressing, Duration, Random, Time};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use tags::Tags;
use zero_window::ZeroWindow;

/// Maximum number of heartbeats that wait for an answer. More are not answered.
const MAX_BEATS: usize = 4;
/// Maximum number of bytes of error causes that wait to be sent. More are left out.
const MAX_ERRORS: usize = 512;
/// Maximum number of bytes of a peer's reason for an ABORT that are stored.
pub const MAX_REASON: usize = 1024;

/// The states of RFC 9260 section 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[allow(missing_docs)]
pub enum State {
    CookieWait,
    CookieEchoed,
    Established,
    ShutdownPending,
    ShutdownSent,
    ShutdownReceived,
    ShutdownAckSent,
    Closed,
}

/// The reason why an association ended.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Close {
    /// Shut down gracefully by either endpoint.
    Finished,
    /// The peer does not answer.
    Unreachable,
    /// The peer answered every INIT, and the last answer had a receive window below the 1500 bytes of
    /// RFC 9260 section 3.3.3. A peer that is busy with unread data does so.
    SmallWindow {
        /// The last window it offered, in bytes.
        a_rwnd: u32,
    },
    /// The peer aborted the association.
    Aborted {
        /// Its first error cause (RFC 9260 section 3.3.10), 0 for none.
        code: u16,
        /// The reason that came with the cause, cut at [`MAX_REASON`] bytes.
        reason: Bytes,
    },
    /// The peer violated the protocol and the local endpoint aborted. The text names the rule.
    Violation(&'static str),
    /// The shutdown exceeded T5-shutdown-guard.
    ShutdownTimeout,
}

/// The last chunk that an association sends when it has ended.
#[derive(Debug)]
pub(crate) enum FinalChunk {
    /// An ABORT with these causes.
    Abort(Vec<u8>),
    ShutdownComplete,
}

/// Counters of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Packets sent and received.
    pub packets_sent: u64,
    /// See `packets_sent`.
    pub packets_received: u64,
    /// DATA chunks sent, without those sent again.
    pub chunks_sent: u64,
    /// DATA chunks sent again.
    pub retransmits: u64,
    /// DATA chunks that fast retransmit marked.
    pub fast_retransmits: u64,
    /// Times that T3-rtx expired.
    pub timeouts: u64,
    /// Fast recoveries begun.
    pub recoveries: u64,
    /// DATA chunks received that had come before.
    pub duplicates: u64,
    /// DATA chunks dropped for lack of room.
    pub dropped: u64,
    /// Chunks that the peer acknowledged and then dropped.
    pub reneged: u64,
    /// Number of times that [`MAX_IN_FLIGHT`](crate::MAX_IN_FLIGHT) held new data back.
    pub in_flight_full: u64,
    /// Zero window probes sent.
    pub window_probes: u64,
    /// SACK chunks sent and received.
    pub sacks_sent: u64,
    /// See `sacks_sent`.
    pub sacks_received: u64,
    /// Probes of a silent tail (RFC 8985).
    pub tail_probes: u64,
    /// Number of times that the window was reduced because of ECN marks.
    pub marks: u64,
    /// AUTH chunks that were invalid.
    pub auth_refused: u64,
    /// Heartbeats not answered because the queue was full.
    pub heartbeats_refused: u64,
}

/// State of a path at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathSnapshot {
    /// The local address.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// The peer's UDP port (RFC 6951); 0 for straight over IP.
    pub udp_port: u16,
    /// Largest IP packet sent there, in bytes.
    pub mtu: usize,
    /// State of the path.
    pub state: PathState,
    /// Whether it is the primary path.
    pub primary: bool,
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Slow-start threshold in bytes.
    pub ssthresh: u32,
    /// Bytes acknowledged towards the next growth in congestion avoidance.
    pub partial_bytes_acked: u32,
    /// Bytes in flight.
    pub flight: u32,
    /// The smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// The retransmission timeout.
    pub rto: Duration,
    /// Errors in a row.
    pub errors: u32,
}

/// State of an association at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// State of the association.
    pub state: State,
    /// Number of streams: those the local endpoint may send on, and those the peer may send on.
    pub streams: (u16, u16),
    /// Its paths.
    pub paths: Vec<PathSnapshot>,
    /// Free bytes in the peer's receive buffer, as last known.
    pub peer_rwnd: u32,
    /// Bytes of user data in flight.
    pub outstanding: u32,
    /// Messages that are not fully acknowledged.
    pub unacknowledged: usize,
    /// Bytes received and not read.
    pub unread: usize,
    /// Errors in a row, over all paths.
    pub errors: u32,
    /// Whether a fast recovery is in progress.
    pub recovering: bool,
    /// Counters.
    pub totals: Totals,
}

/// Control chunks that wait to be sent.
#[derive(Debug, Default)]
struct Control {
    /// The path of a COOKIE ACK.
    cookie_ack: Option<usize>,
    /// Error causes.
    errors: Vec<u8>,
    forward: Forwards,
    /// Whether a probe of a path's MTU is due.
    probe: bool,
    /// HEARTBEATs to answer: path and parameters.
    beats: VecDeque<(usize, Box<[u8]>)>,
}

/// The authentication parameters of the local endpoint and what was negotiated.
#[derive(Debug, Default)]
struct Auth {
    local: AuthParameters,
    agreed: Option<Agreed>,
}

/// The time and the random source, for the length of a call.
pub struct Cx<'a> {
    /// The time now.
    pub now: Time,
    /// The source of nonces, tags and jitter. Outside tests it must be unpredictable.
    pub random: &'a mut dyn Random,
}

impl core::fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Cx").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The ports of both endpoints and the local addresses.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) locals: Vec<IpAddr>,
    /// Local addresses that nothing is sent from, because they are being added or deleted.
    pub(crate) resting: Vec<IpAddr>,
    /// The UDP port that new paths are sent to (RFC 6951); 0 for none.
    pub(crate) udp_port: u16,
}

/// What the tables of an endpoint find an association by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) tag: u32,
    /// The local port and the peer's.
    pub(crate) ports: (u16, u16),
    pub(crate) locals: Vec<IpAddr>,
    pub(crate) remotes: Vec<IpAddr>,
}

/// An association: what two hosts with several addresses each share of the protocol. It sends and receives packets,
/// handles time and reports events; an [`Endpoint`](crate::Endpoint) finds it by the addresses and the tag of a packet.
#[derive(Debug)]
pub struct Association {
    settings: Arc<Settings>,
    phase: Phase,
    pub(crate) ends: Ends,
    paths: Vec<Path>,
    chosen: Chosen,
    pub(crate) tags: Tags,
    agreement: Agreement,
    reconfig: Option<Box<Reconfig>>,
    asconf: Option<Box<Asconf>>,
    auth: Option<Box<Auth>>,
    out: Outgoing,
    inn: Incoming,
    acks: Acks,
    control: Control,
    errors: ErrorCount,
    timers: AssociationTimers,
    window: ZeroWindow,
    /// Maximum user data in a chunk of the packet being written, in bytes.
    max: usize,
    marks: Marks,
    pub(crate) pending: Pending,
    totals: Totals,
    /// By which the endpoint's tables list it, if that is no longer its identity.
    previous_identity: Option<Box<Identity>>,
}

impl Association {
    /// Returns the state (RFC 9260 section 4).
    #[inline]
    pub fn state(&self) -> State {
        self.phase.state()
    }

    /// Returns whether the handshake is not complete.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self.phase, Phase::CookieWait(_) | Phase::CookieEchoed(_))
    }

    /// Returns what it is listed by.
    pub(crate) fn identity(&self) -> Identity {
        Identity {
            tag: self.tags.local,
            ports: (self.ends.local_port, self.ends.remote_port),
            locals: self.ends.locals.clone(),
            remotes: self.remotes().collect(),
        }
    }

    /// Keeps what it is listed by, because the addresses or the tag may change now.
    pub(crate) fn keep_identity(&mut self) {
        if self.previous_identity.is_none() {
            self.previous_identity = Some(Box::new(self.identity()));
        }
    }

    /// Removes and returns what it is still listed by, if that differs from what it is.
    #[inline]
    pub(crate) fn take_previous_identity(&mut self) -> Option<Identity> {
        let previous = *self.previous_identity.take()?;
        (previous != self.identity()).then_some(previous)
    }

    /// Returns whether a packet has the ports and is between addresses of the association.
    #[inline]
    pub(crate) fn is_between(&self, addressing: &Addressing, packet: &Packet<'_>) -> bool {
        self.ends.local_port == packet.destination
            && self.ends.remote_port == packet.source
            && self.ends.locals.contains(&addressing.destination)
            && self.knows_address(addressing.source)
    }

    pub(crate) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    pub(crate) fn remotes(&self) -> impl Iterator<Item = IpAddr> {
        self.paths.iter().filter(|path| !path.is_gone()).map(|path| path.remote)
    }

    /// The path to an address of the peer.
    pub(crate) fn path_to(&self, remote: IpAddr) -> Option<usize> {
        self.paths.iter().position(|path| path.remote == remote && !path.is_gone())
    }

    /// Returns the addressing of a packet on a path.
    pub(super) fn way(&self, path: usize) -> Addressing {
        let path = &self.paths[path];
        let udp_port = path.udp_port;
        Addressing { udp_port, ..Addressing::new(path.local(), path.remote, PROTOCOL) }
    }

    /// Returns the addressing of the final chunk.
    pub(crate) fn final_addressing(&self) -> Addressing {
        self.way(self.chosen.current)
    }

    /// Returns whether it has ended and its user has read all messages and events.
    pub fn is_spent(&self) -> bool {
        self.is_closed() && self.inn.is_empty() && !self.has_events()
    }

    /// Returns whether an event waits for the user.
    pub fn has_events(&self) -> bool {
        self.pending.any() || self.out.has_returned()
    }

    /// Returns whether packets are sent with a checksum of zero.
    fn zero_checksum(&self) -> bool {
        self.agreement.has(Features::ZERO_CHECKSUM)
    }

    /// Queues a message (RFC 9260 section 11.1.5). Its bytes are shared until they are acknowledged, not copied.
    pub fn send(&mut self, now: Time, options: &SendOptions, data: Bytes) -> Result<(), SendError> {
        if !self.accepts_messages() {
            return Err(SendError::Closing);
        }
        let streams = self.agreement.streams.0;
        let result = self.out.push(now, options, data, streams, self.settings.send_buffer);
        if result.is_ok() {
            self.allow_bursts();
        }
        result
    }

    /// Sets the scheduler's value of a stream (RFC 8260): its weight, or its priority, of which 0 is the highest.
    pub fn set_stream_value(&mut self, stream: u16, value: u16) -> Result<(), NoStream> {
        let streams = self.agreement.streams.0;
        if stream >= streams {
            return Err(NoStream { streams, got: stream });
        }
        self.out.set_value(stream, value);
        Ok(())
    }

    /// Appends the next message, or part of one, to `out` (RFC 9260 section 11.1.7). Returns `None` when none is waiting.
    /// An acknowledgement may be due afterwards, see [`Association::owes_ack`].
    pub fn recv(&mut self, out: &mut Vec<u8>) -> Option<Received> {
        let received = self.inn.read(out)?;
        if self.inn.window_opened(usize::from(self.settings.mtu)) && self.takes_data() {
            self.acks.now();
        }
        Some(received)
    }

    /// Returns whether reading has made an acknowledgement due.
    pub fn owes_ack(&self) -> bool {
        self.acks.is_due()
    }

    /// Returns whether DATA is accepted in this state (RFC 9260 section 6).
    fn takes_data(&self) -> bool {
        use Phase::*;
        matches!(self.phase, Established | ShutdownPending | ShutdownSent(_))
    }

    /// Returns whether messages are accepted from the user.
    fn accepts_messages(&self) -> bool {
        match &self.phase {
            Phase::Established => true,
            phase => phase.attempt().is_some_and(|attempt| !attempt.shutdown_requested),
        }
    }

    /// Returns whether it is established and no shutdown has begun.
    fn is_established(&self) -> bool {
        matches!(self.phase, Phase::Established)
    }

    /// Returns whether it has ended.
    #[inline]
    fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_))
    }

    /// Returns whether DATA is sent and SACKs are processed in this state (RFC 9260 section 6).
    fn sends_data(&self) -> bool {
        use Phase::*;
        matches!(self.phase, Established | ShutdownPending | ShutdownReceived { .. })
    }

    /// Sets the primary path to an address of the peer (RFC 9260 section 11.1.6).
    pub fn set_primary(&mut self, remote: IpAddr) -> Result<(), NoPath> {
        let path = self.path_to(remote).ok_or(NoPath { remote })?;
        if !self.paths[path].usable() {
            return Err(NoPath { remote });
        }
        self.chosen.primary = path;
        self.choose_current();
        Ok(())
    }

    /// Aborts the association (RFC 9260 section 9.1). The peer receives `reason`, cut at [`MAX_REASON`] bytes, once
    /// [`Endpoint::remove`](crate::Endpoint::remove) is called; no event follows.
    pub fn abort(&mut self, reason: &[u8]) {
        let cut = &reason[..reason.len().min(MAX_REASON)];
        let abort = || Box::new(FinalChunk::Abort(chunk::causes(Cause::UserAbort(cut))));
        self.enter(Phase::Closed(self.tags.knows_peer().then(abort)));
    }

    /// Removes and returns the last chunk, which is sent once it has ended.
    pub(crate) fn take_final_chunk(&mut self) -> Option<FinalChunk> {
        self.phase.take_final_chunk().map(|last| *last)
    }

    /// Aborts the association because the peer violated the protocol (RFC 9260 section 3.3.10.13).
    fn violation(&mut self, what: &'static str) {
        self.fail(Cause::ProtocolViolation(what.as_bytes()), Close::Violation(what));
    }

    /// Ends the association with an ABORT.
    fn fail(&mut self, cause: Cause<'_>, why: Close) {
        self.close_with(FinalChunk::Abort(chunk::causes(cause)), why);
    }

    /// Ends the association without a packet.
    fn close(&mut self, why: Close) {
        self.end(None, why);
    }

    /// Ends the association with a last chunk.
    fn close_with(&mut self, last: FinalChunk, why: Close) {
        self.end(Some(Box::new(last)), why);
    }

    fn end(&mut self, last: Option<Box<FinalChunk>>, why: Close) {
        // One that waits to be sent is sent.
        let last = last.or_else(|| self.phase.take_final_chunk());
        self.enter(Phase::Closed(last));
        self.out.return_all();
        self.inn.finish();
        self.reconfig = None;
        self.asconf = None;
        self.acks.clear();
        for path in &mut self.paths {
            path.close();
        }
        self.pending.closed = Some(why);
    }

    /// Returns the negotiated authentication.
    pub(crate) fn agreed(&self) -> Option<&Agreed> {
        self.auth.as_ref()?.agreed.as_ref()
    }

    /// Returns the keys of authenticated chunks.
    pub(crate) fn keys(&mut self) -> Option<&mut Agreed> {
        self.auth.as_mut()?.agreed.as_mut()
    }

    /// Returns whether addresses may change.
    pub(crate) fn changes_addresses(&self) -> bool {
        self.agreement.has(Features::ASCONF)
    }

    /// Returns the authentication parameters of an INIT ACK while the association is not established.
    pub(crate) fn local_auth(&self) -> Option<AuthParameters> {
        self.auth.as_ref().map(|auth| auth.local.clone()).filter(AuthParameters::is_complete)
    }

    /// Returns whether every packet is authenticated.
    fn authenticates_all(&self) -> bool {
        self.auth.is_some() && self.agreed().is_some_and(Agreed::requires_more)
    }

    /// Counts an error of the association (RFC 9260 section 8.1). Returns `true` when the limit is
    /// exceeded.
    fn count_error(&mut self) -> bool {
        if self.errors.add(self.settings.association_max_retrans) {
            self.close(Close::Unreachable);
            return true;
        }
        false
    }

    /// Handles a sign of life on a path. While data is sent on other paths, their errors do not show
    /// that the peer is unreachable until this path was used too (RFC 9260 section 8.1). Each path
    /// counts at most once between two acknowledgements of data.
    fn life_on(&mut self, path: usize) {
        if !self.errors.is_tried(path)
            && self.paths[path].usable()
            && self.paths[path].flight.is_empty()
        {
            self.errors.peer_answered();
        }
    }

    /// Adds an error cause to the next packet if it fits.
    fn report(&mut self, cause: Cause<'_>) {
        let before = self.control.errors.len();
        cause.emit(&mut self.control.errors);
        if self.control.errors.len() > MAX_ERRORS {
            self.control.errors.truncate(before);
        }
    }

    /// Abandons messages that are not to be sent again (RFC 3758 section 3.5).
    fn abandon_expired(&mut self, now: Time) {
        self.control.forward.request_if(self.out.abandon(now, &mut self.paths));
        self.pending.unsent += self.out.take_abandoned();
        self.check_writable();
    }

    /// Reports that the send buffer has room again.
    fn check_writable(&mut self) {
        self.pending.writable |= self.out.take_writable(self.settings.send_buffer);
    }

    /// Returns the state at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let path = |(index, path): (usize, &Path)| PathSnapshot {
            local: path.local(),
            remote: path.remote,
            udp_port: path.udp_port,
            mtu: path.mtu(),
            state: path.state(),
            primary: index == self.chosen.primary,
            cwnd: path.window().cwnd,
            ssthresh: path.window().ssthresh,
            partial_bytes_acked: path.window().partial_bytes_acked,
            flight: path.flight.bytes(),
            srtt: path.rto.srtt(),
            rto: path.rto.get(),
            errors: path.errors(),
        };
        Snapshot {
            state: self.state(),
            streams: self.agreement.streams,
            paths: self.paths.iter().enumerate().filter(|(_, p)| !p.is_gone()).map(path).collect(),
            peer_rwnd: self.out.peer_window.room(),
            outstanding: self.out.outstanding(),
            unacknowledged: self.out.messages(),
            unread: self.inn.buffered(),
            errors: self.errors.get(),
            recovering: self.out.in_recovery() || self.paths.iter().any(Path::in_recovery),
            totals: self.totals,
        }
    }
}
