//! A path: one address of the peer, the local address that it is reached from, and the state of the way
//! between (RFC 9260 sections 5.4, 6.3, 7.2 and 8; RFC 7829). `source` is the local address, `reach` whether
//! the path works, `mtu` the size of its packets, `send_window` how much may be sent and `flight` what was.

mod flight;
mod heartbeat;
mod mtu;
mod reach;
mod send_window;
mod source;

pub(crate) use flight::{Flight, Tally, subtract};
pub(crate) use heartbeat::Heartbeat;

use crate::congestion::{Acked, Window};
use crate::pmtu::Pmtu;
use crate::rack::Rack;
use crate::rto::Rto;
use crate::settings::Settings;
use crate::timers::{PathTimer, PathTimers};
use crate::wire::COMMON_HEADER;
use core::fmt;
use mtu::PathMtu;
use reach::Reach;
use ringway_sansio::{Duration, Random, Time};
use send_window::SendWindow;
use source::Source;
use std::net::IpAddr;

/// The state of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PathState {
    /// Not verified yet (RFC 9260 section 5.4): carries heartbeats alone.
    Unconfirmed,
    /// Works, as far as known.
    Active,
    /// Had a loss recently: data uses other paths if there are any (RFC 7829).
    PotentiallyFailed,
    /// Failed (RFC 9260 section 8.2); heartbeats continue.
    Inactive,
}

/// A chunk that is newly acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivedChunk {
    pub(crate) position: u64,
    pub(crate) size: u32,
    pub(crate) sent: Time,
    /// Whether it was sent again.
    pub(crate) again: bool,
    /// Whether it was sent over several paths.
    pub(crate) several: bool,
    /// Whether it counted as in flight.
    pub(crate) in_flight: bool,
}

pub(crate) struct Path {
    source: Source,
    pub(crate) remote: IpAddr,
    /// The peer's UDP port there (RFC 6951); 0 for straight over IP.
    pub(crate) udp_port: u16,
    mtu: PathMtu,
    reach: Reach,
    /// The state last reported to the user.
    reported: PathState,
    pub(crate) timers: PathTimers,
    sending: SendWindow,
    /// What is in flight here.
    pub(crate) flight: Flight,
    /// What the SACK being processed says of it.
    pub(crate) tally: Tally,
    pub(crate) rto: Rto,
    pub(crate) heartbeat: Heartbeat,
    /// The position at which the fast recovery of this path ends, where data uses several paths.
    recovery: Option<u64>,
    /// Loss detection by time, where configured.
    rack: Option<Box<Rack>>,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} {:?} {:?}", self.local(), self.remote, self.state(), self.window())?;
        write!(
            f,
            " flight {} errors {} t3 {:?}",
            self.flight.bytes(),
            self.errors(),
            self.timers.get(PathTimer::T3Rtx)
        )
    }
}

/// Returns the length of the largest DATA chunk in a packet of `packet` bytes.
fn pmdcs(packet: usize) -> u32 {
    ((packet - COMMON_HEADER) & !3) as u32
}

impl Path {
    pub(crate) fn new(
        settings: &Settings,
        local: IpAddr,
        remote: IpAddr,
        udp_port: u16,
        confirmed: bool,
        ssthresh: u32,
        now: Time,
    ) -> Path {
        let mtu = PathMtu::new(settings, remote, udp_port);
        let reach = Reach::new(confirmed);
        Path {
            source: Source::new(local),
            remote,
            udp_port,
            reach,
            reported: reach.state(),
            timers: PathTimers::default(),
            sending: SendWindow::new(settings, pmdcs(mtu.packet()), remote, ssthresh),
            mtu,
            flight: Flight::default(),
            tally: Tally::default(),
            rto: Rto::new(settings),
            heartbeat: Heartbeat::new(settings.heartbeat_interval.is_some(), now),
            recovery: None,
            rack: settings.rack.then(Box::default),
        }
    }

    /// Sets the initial window, after a change of the path (RFC 9260 section 7.2.5).
    fn reset_window(&mut self, settings: &Settings, ssthresh: u32) {
        self.sending.reset(settings, pmdcs(self.packet()), self.remote, ssthresh);
    }

    /// Returns the local address.
    #[inline]
    pub(crate) fn local(&self) -> IpAddr {
        self.source.address()
    }

    /// Sets the local address. Another address makes another path through the network, whose window
    /// starts over (RFC 9260 section 7.2.5.2).
    pub(crate) fn send_from(&mut self, local: IpAddr, settings: &Settings, ssthresh: u32) {
        if self.source.set(local) {
            self.reset_window(settings, ssthresh);
        }
    }

    /// Handles the expiry of a timer for a number of bytes, which may be caused by packets that are too
    /// large.
    pub(crate) fn suspect_black_hole(&mut self, now: Time, lost: usize) {
        if let Some(size) = self.mtu.suspect(now, lost, self.errors()) {
            self.set_mtu(size);
            self.timers.cancel(PathTimer::PmtuProbe);
        }
    }

    /// Returns the maximum length of an IP packet to here.
    #[inline]
    pub(crate) fn mtu(&self) -> usize {
        self.mtu.ip()
    }

    /// Returns the maximum length of a packet to here from the common header on.
    #[inline]
    pub(crate) fn packet(&self) -> usize {
        self.mtu.packet()
    }

    /// Sets the MTU.
    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.mtu.set(mtu, self.remote, self.udp_port);
        self.sending.set_pmdcs(pmdcs(self.packet()));
    }

    /// Clears a path whose address is no longer the peer's.
    pub(crate) fn leave(&mut self) {
        self.reach = Reach::Gone;
        self.reported = self.state();
        self.heartbeat.forget();
        self.heartbeat.cancel();
        self.mtu.end_search();
        self.rack = None;
        self.timers.stop();
    }

    /// Notes that nothing is in flight to here any more.
    pub(crate) fn empty(&mut self) {
        self.flight = Flight::default();
        self.timers.cancel(PathTimer::T3Rtx);
        self.reset_rack();
    }

    /// Resets the detection of losses by time.
    pub(crate) fn reset_rack(&mut self) {
        if let Some(rack) = &mut self.rack {
            rack.reset();
        }
    }

    /// Sends packets in UDP to a port, or directly over IP (RFC 6951 sections 5.4 and 5.6).
    pub(crate) fn encapsulate(&mut self, udp_port: u16) {
        if self.udp_port != udp_port {
            self.udp_port = udp_port;
            self.set_mtu(self.mtu());
        }
    }

    /// Returns the maximum user data in one chunk to here, with a header of `header` bytes and beside
    /// an AUTH chunk.
    pub(crate) fn max_data(&self, settings: &Settings, header: usize, auth: usize) -> usize {
        let room = self.window().pmdcs as usize - auth;
        let chunk = match settings.chunk {
            0 => room,
            limit => room.min(usize::from(limit)),
        };
        (chunk & !3) - header
    }

    pub(crate) fn state(&self) -> PathState {
        self.reach.state()
    }

    /// Returns whether the address is no longer the peer's and the slot is free.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.reach.is_gone()
    }

    /// Returns whether data may be sent here at all.
    #[inline]
    pub(crate) fn usable(&self) -> bool {
        self.reach.is_confirmed()
    }

    #[inline]
    pub(crate) fn active(&self) -> bool {
        self.reach.is_active()
    }

    /// Returns the errors in a row.
    pub(crate) fn errors(&self) -> u32 {
        self.reach.errors()
    }

    /// Counts an error (RFC 9260 section 8.2, RFC 7829 section 4). Returns `true` when the state has
    /// become worse.
    pub(crate) fn error(&mut self, settings: &Settings) -> bool {
        self.reach.error(settings)
    }

    /// Marks the path as failed.
    pub(crate) fn fail(&mut self, settings: &Settings) {
        self.reach.fail(settings);
    }

    /// Resets the errors after an acknowledgement (RFC 9260 section 8.2).
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.reach.answered();
    }

    /// Returns the congestion window.
    #[inline]
    pub(crate) fn window(&self) -> &Window {
        self.sending.window()
    }

    /// Returns whether the window and the burst allow new data (RFC 9260 section 6.1 B and D).
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.sending.may_send(&self.flight)
    }

    /// Returns whether the window and the burst allow a retransmission.
    #[inline]
    pub(crate) fn may_retransmit(&self) -> bool {
        self.sending.may_retransmit(&self.flight)
    }

    /// Allows a burst (RFC 9260 section 6.1 D).
    #[inline]
    pub(crate) fn allow_burst(&mut self, settings: &Settings) {
        self.sending.allow_burst(settings);
    }

    /// Allows one more burst: several acknowledgements may arrive before anything is sent.
    #[inline]
    pub(crate) fn add_burst(&mut self, settings: &Settings) {
        self.sending.add_bursts(settings, self.sacks());
    }

    /// Subtracts a chunk from the burst.
    #[inline]
    pub(crate) fn spend_burst(&mut self, size: usize) {
        self.sending.spend_burst(size);
    }

    /// Returns the number of SACKs that the one just processed stands for.
    fn sacks(&self) -> u32 {
        self.tally.acked().div_ceil(2 * self.window().pmdcs).max(1)
    }

    /// Reduces a window that was idle for long (RFC 9260 section 7.2.1).
    pub(crate) fn before_data(&mut self, now: Time) {
        self.sending.before_data(now, &self.flight, self.rto.get());
        self.source.data_sent();
    }

    /// Returns the time of a round trip, as far as it is known.
    pub(crate) fn round_trip(&self) -> Duration {
        self.rto.srtt().unwrap_or(self.rto.get())
    }

    /// Returns whether what was sent at a time should have been acknowledged half a round trip ago.
    pub(crate) fn is_overdue(&self, now: Time, sent: Time) -> bool {
        self.rto.srtt().is_some_and(|srtt| now.since(sent) > srtt * 3 / 2)
    }

    pub(crate) fn start_t3(&mut self, now: Time) {
        self.timers.start(PathTimer::T3Rtx, now + self.rto.get());
    }

    /// Begins to process a SACK.
    pub(crate) fn begin_sack(&mut self) {
        self.tally = Tally::begin(&self.flight);
    }

    /// Handles a chunk that is newly acknowledged.
    pub(crate) fn chunk_arrived(&mut self, now: Time, chunk: ArrivedChunk) {
        let ArrivedChunk { position, size, sent, again, several, in_flight } = chunk;
        if in_flight {
            self.flight.remove(size);
        }
        self.mtu.arrived(size as usize);
        // RFC 7829 section 3.2, rules 9 and 10.
        if !several {
            self.answered();
        }
        if self.flight.take_timed(position) {
            // Rule C5: a retransmission at or below it ends the measurement.
            self.rto.measure(now.since(sent));
        }
        // It is unknown which transmission of a retransmitted chunk arrived, so it is no evidence about
        // chunks that were sent again before it.
        let at = if again { Time::ZERO } else { sent };
        self.tally.add(position, size, at, in_flight && position == self.flight.earliest());
        if let Some(rack) = &mut self.rack {
            rack.acked(now, position, sent, again);
        }
    }

    /// Schedules a probe of the tail where RACK is configured.
    pub(crate) fn plan_probe(&mut self, now: Time) {
        if let Some(rack) = &mut self.rack {
            let srtt = self.rto.srtt().filter(|_| !self.flight.is_empty());
            let single = self.flight.bytes() <= self.sending.window().pmdcs;
            rack.plan_probe(now, srtt, single, self.timers.get(PathTimer::T3Rtx));
        }
    }

    /// Returns the detection of losses by time, where configured.
    pub(crate) fn rack(&self) -> Option<&Rack> {
        self.rack.as_deref()
    }

    /// Returns the detection of losses by time for changes, where configured.
    pub(crate) fn rack_mut(&mut self) -> Option<&mut Rack> {
        self.rack.as_deref_mut()
    }

    /// Lets the window fall for a loss that begins a recovery. `exit` is the position at which that of this path ends.
    pub(crate) fn begin_recovery(&mut self, now: Time, exit: Option<u64>) {
        self.lost(now);
        if let Some(rack) = &mut self.rack {
            rack.window_fell(now);
            rack.shrink();
        }
        self.recovery = exit;
    }

    /// Returns whether this path is in a fast recovery of its own.
    pub(crate) fn in_recovery(&self) -> bool {
        self.recovery.is_some()
    }

    /// Ends the fast recovery of this path. Returns whether there was one.
    pub(crate) fn end_recovery(&mut self) -> bool {
        self.recovery.take().is_some()
    }

    /// Ends the fast recovery of this path if everything before its exit has arrived.
    pub(crate) fn leave_recovery(&mut self) {
        let (empty, earliest) = (self.flight.is_empty(), self.flight.earliest());
        self.recovery.take_if(|exit| empty || earliest > *exit);
    }

    /// Handles the peer's offer of a window, when the association is opened.
    pub(crate) fn offered(&mut self, now: Time, settings: &Settings, peer_rwnd: u32) {
        self.heartbeat.note_use(now);
        self.sending.offered(settings, peer_rwnd);
    }

    /// Starts over, because the peer has restarted.
    pub(crate) fn restart(&mut self, settings: &Settings, peer_rwnd: u32) {
        self.reset_window(settings, peer_rwnd);
        self.empty();
        self.heartbeat.forget();
        self.timers.cancel(PathTimer::HeartbeatLost);
        self.sending.admit_more();
        self.recovery = None;
        self.answered();
    }

    /// Ends heartbeats, probes and timers, because the association is shut down (RFC 9260 section 8.3).
    pub(crate) fn rest(&mut self) {
        self.timers.stop();
        self.heartbeat.cancel();
        self.reset_rack();
    }

    /// Ends heartbeats, timers and the detection of losses, because the association has ended.
    pub(crate) fn close(&mut self) {
        self.timers.stop();
        self.heartbeat.cancel();
        self.rack = None;
    }

    /// Notes that the address is verified (RFC 9260 section 5.4). Returns whether it was not before.
    pub(crate) fn confirm(&mut self) -> bool {
        self.reach.confirm()
    }

    /// Handles the answer to a heartbeat. Returns whether it is that of the last one.
    pub(crate) fn heartbeat_answered(&mut self, now: Time, nonce: u64) -> bool {
        let Some(round_trip) = self.heartbeat.take_answered(now, nonce) else { return false };
        self.timers.cancel(PathTimer::HeartbeatLost);
        self.rto.measure(round_trip);
        self.answered();
        true
    }

    /// Notes that a heartbeat is sent.
    pub(crate) fn heartbeat_sent(&mut self, now: Time, nonce: u64) {
        self.heartbeat.sent(now, nonce, self.turns());
        self.timers.start(PathTimer::HeartbeatLost, now + self.rto.get());
    }

    /// Returns whether the state differs from the one last reported to the user.
    #[inline]
    pub(crate) fn has_changed(&self) -> bool {
        self.reported != self.state()
    }

    /// Returns the state if it differs from the one last reported to the user, and counts it as reported.
    pub(crate) fn take_change(&mut self) -> Option<PathState> {
        let state = self.state();
        (core::mem::replace(&mut self.reported, state) != state).then_some(state)
    }

    /// Returns the number of changes of the local address, modulo 256.
    pub(crate) fn turns(&self) -> u8 {
        self.source.turns()
    }

    /// Returns the number of changes of the local address when data was last sent.
    pub(crate) fn data_turn(&self) -> u8 {
        self.source.data_turn()
    }

    /// Notes that something that T3-rtx protects is sent.
    pub(crate) fn note_turn(&mut self) {
        self.source.data_sent();
    }

    /// Sets the local address because of a loss, which it may not repair.
    pub(crate) fn guess_local(&mut self, local: IpAddr, settings: &Settings, ssthresh: u32) {
        if self.source.guess(local) {
            self.reset_window(settings, ssthresh);
        }
    }

    /// Returns whether the local address was set because of a loss and nothing has arrived since, and forgets it.
    #[inline]
    pub(crate) fn take_guess(&mut self) -> bool {
        self.source.take_guess()
    }

    /// Returns whether the window admits only one packet.
    pub(crate) fn takes_one_packet(&self) -> bool {
        self.sending.takes_one_packet()
    }

    /// Returns whether a burst is in progress.
    pub(crate) fn has_burst(&self) -> bool {
        self.sending.has_burst()
    }

    /// Forfeits the rest of a burst.
    pub(crate) fn end_burst(&mut self) {
        self.sending.end_burst();
    }

    /// Returns the search for the MTU.
    pub(crate) fn pmtu(&self) -> Option<&Pmtu> {
        self.mtu.search()
    }

    /// Returns the search for the MTU for changes.
    pub(crate) fn pmtu_mut(&mut self) -> Option<&mut Pmtu> {
        self.mtu.search_mut()
    }

    /// Sets the MTU to that of a probe that has arrived.
    pub(crate) fn mtu_found(&mut self, mtu: usize) {
        self.timers.cancel(PathTimer::PmtuProbe);
        self.set_mtu(mtu);
        self.mtu.arrived(mtu);
    }

    /// Updates the window after a SACK.
    pub(crate) fn settle_acked(&mut self, now: Time, recovering: bool, step: u32) {
        if self.tally.acked() == 0 {
            return;
        }
        self.mtu.data_acknowledged();
        let acked = Acked {
            now,
            bytes: self.tally.acked(),
            sacks: self.sacks(),
            flight: self.tally.before(),
            all: self.flight.is_empty(),
            recovering,
            step,
            srtt: self.rto.srtt(),
        };
        self.sending.acked(acked);
    }

    pub(crate) fn lost(&mut self, now: Time) {
        self.sending.lost(now);
    }

    pub(crate) fn timeout(&mut self, now: Time, recovering: bool) {
        self.sending.timeout(now, recovering);
    }

    /// Schedules a heartbeat an RTO later on a potentially failed path, whatever the heartbeat interval
    /// is, if heartbeats are enabled (RFC 7829 section 3.2, rules 5 and 6).
    pub(crate) fn ask_soon(&mut self, now: Time) {
        if self.heartbeat.is_enabled()
            && self.usable()
            && self.state() == PathState::PotentiallyFailed
        {
            self.heartbeat.watch(now);
            self.timers.start(PathTimer::Heartbeat, now + self.rto.get());
        }
    }

    /// Sends a heartbeat now, unless one is under way: the path is silent.
    pub(crate) fn ask_now(&mut self) {
        let usable = self.usable();
        let heartbeat = &mut self.heartbeat;
        if heartbeat.is_enabled() && usable && !heartbeat.is_under_way() {
            heartbeat.request();
        }
    }

    /// Schedules the next heartbeat (RFC 9260 section 8.3): after the RTO, plus or minus half of it,
    /// and the interval. While an address is verified or a path is potentially failed, after the RTO
    /// alone (section 5.4, RFC 7829 section 4).
    pub(crate) fn plan_beat(&mut self, now: Time, settings: &Settings, random: &mut dyn Random) {
        let rto = self.rto.get();
        self.heartbeat.watch(now);
        let heartbeats = self.heartbeat.is_enabled();
        let due = match self.state() {
            PathState::Unconfirmed => Some(now + rto),
            PathState::PotentiallyFailed if heartbeats => Some(now + rto),
            _ if !self.usable() && !heartbeats => Some(now + rto),
            _ => settings.heartbeat_interval.filter(|_| heartbeats).map(|interval| {
                let share = random.next_u64() % 1024;
                let jittered = (rto.as_nanos() as u64 / 2)
                    .saturating_add((rto.as_nanos() as u64 / 1024).saturating_mul(share));
                now + interval + Duration::from_nanos(jittered)
            }),
        };
        self.timers.set(PathTimer::Heartbeat, due);
    }
}
