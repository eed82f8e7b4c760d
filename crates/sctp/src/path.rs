//! A path: one address of the peer, the local address that it is reached from, and the state of the way
//! between (RFC 9260 sections 5.4, 6.3, 7.2 and 8; RFC 7829).

mod flight;
mod heartbeat;

pub(crate) use flight::{Flight, Tally, subtract};
pub(crate) use heartbeat::Heartbeat;

use crate::congestion::{Acked, Congestion, Window};
use crate::pmtu::{BASE, Pmtu};
use crate::rack::Rack;
use crate::rto::Rto;
use crate::settings::{MIN_MTU, Settings};
use crate::timers::{PathTimer, PathTimers};
use crate::wire::COMMON_HEADER;
use core::fmt;
use ringway_sansio::{Duration, Random, Time};
use std::net::IpAddr;

/// Length in bytes of a UDP header.
const UDP_HEADER: usize = 8;

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
    pub(crate) local: IpAddr,
    /// Number of changes of that address, modulo 256, and its value when data was last sent.
    turns: u8,
    data_turn: u8,
    /// Whether it was changed because of a loss and nothing has arrived there since.
    guessed: bool,
    pub(crate) remote: IpAddr,
    /// The peer's UDP port there (RFC 6951); 0 for straight over IP.
    pub(crate) udp_port: u16,
    /// Maximum length of an IP packet on this path, including a UDP header.
    mtu: usize,
    /// The search for the MTU.
    pmtu: Option<Box<Pmtu>>,
    pub(crate) timers: PathTimers,
    /// Whether the address is no longer the peer's and the slot is free.
    pub(crate) gone: bool,
    confirmed: bool,
    reach: PathState,
    /// The state last reported to the user.
    reported: PathState,
    /// Errors in a row.
    pub(crate) errors: u32,
    pub(crate) window: Window,
    control: Box<dyn Congestion>,
    /// Maximum length of a packet on this path, from the common header on.
    pub(crate) packet: usize,
    /// What is in flight here.
    pub(crate) flight: Flight,
    /// What the SACK being processed says of it.
    pub(crate) tally: Tally,
    /// Bytes of data that may still be sent in this burst (RFC 9260 section 6.1 D).
    burst: u32,
    /// Whether only one packet may be in flight after a timeout until something is acknowledged
    /// (section 7.2.3).
    one_packet: bool,
    pub(crate) rto: Rto,
    /// The time when data was last sent here.
    data_at: Option<Time>,
    pub(crate) heartbeat: Heartbeat,
    /// Whether a chunk larger than the minimum MTU allows has arrived.
    large: bool,
    /// The position at which the fast recovery of this path ends, where data uses several paths.
    recovery: Option<u64>,
    /// Loss detection by time, where configured.
    rack: Option<Box<Rack>>,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} {:?} {:?}", self.local, self.remote, self.state(), self.window)?;
        write!(
            f,
            " flight {} errors {} t3 {:?}",
            self.flight.bytes(),
            self.errors,
            self.timers.get(PathTimer::T3Rtx)
        )
    }
}

/// Returns the length of the headers before a packet to `address`, in UDP where a port is given.
const fn headers(address: IpAddr, udp_port: u16) -> usize {
    let ip = match address {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    };
    if udp_port == 0 { ip } else { ip + UDP_HEADER }
}

/// Returns the initial window of RFC 9260 section 7.2.1.
fn initial_cwnd(settings: &Settings, pmdcs: u32, remote: IpAddr) -> u32 {
    let floor = if remote.is_ipv4() { 4404 } else { 4344 };
    settings.initial_cwnd.unwrap_or((4 * pmdcs).min(floor.max(2 * pmdcs)))
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
        let mtu = usize::from(settings.mtu);
        let mut path = Path {
            local,
            turns: 0,
            data_turn: 0,
            guessed: false,
            remote,
            udp_port,
            mtu,
            pmtu: Pmtu::new(settings),
            timers: PathTimers::default(),
            gone: false,
            confirmed,
            reach: PathState::Active,
            reported: if confirmed { PathState::Active } else { PathState::Unconfirmed },
            errors: 0,
            window: Window { cwnd: 0, ssthresh: 0, partial_bytes_acked: 0, pmdcs: 0 },
            control: settings.algorithm.make(),
            packet: mtu - headers(remote, udp_port),
            flight: Flight::default(),
            tally: Tally::default(),
            burst: 0,
            one_packet: false,
            rto: Rto::new(settings),
            data_at: None,
            heartbeat: Heartbeat::new(settings.heartbeat_interval.is_some(), now),
            large: false,
            recovery: None,
            rack: settings.rack.then(Box::default),
        };
        path.reset_window(settings, ssthresh);
        path
    }

    /// Sets the initial window, at the start and after a change of the path (RFC 9260 section 7.2.5).
    pub(crate) fn reset_window(&mut self, settings: &Settings, ssthresh: u32) {
        let pmdcs = self.pmdcs();
        self.window = Window {
            cwnd: initial_cwnd(settings, pmdcs, self.remote),
            ssthresh: settings.initial_ssthresh.unwrap_or(ssthresh),
            partial_bytes_acked: 0,
            pmdcs,
        };
        self.control = settings.algorithm.make();
    }

    /// Sets the local address. Another address makes another path through the network, whose window
    /// starts over (RFC 9260 section 7.2.5.2).
    pub(crate) fn send_from(&mut self, local: IpAddr, settings: &Settings, ssthresh: u32) {
        if core::mem::replace(&mut self.local, local) != local {
            self.turns = self.turns.wrapping_add(1);
            self.reset_window(settings, ssthresh);
        }
    }

    /// Handles the expiry of a timer for a number of bytes, which may be caused by packets that are too
    /// large. After the second timeout in a row the packets become smaller and the MTU is searched from
    /// there. If a search is configured and no large packet has ever arrived, the first timeout is
    /// enough (RFC 8899 section 4.3).
    pub(crate) fn suspect_black_hole(&mut self, now: Time, lost: usize) {
        let mtu = self.mtu;
        let large = lost > BASE && mtu > BASE;
        let pmtu = match &mut self.pmtu {
            None if large && self.errors > 0 => self.pmtu.insert(Pmtu::up_to(mtu)),
            None => return,
            Some(pmtu) => pmtu,
        };
        if large && (self.errors > 0 || !self.large) {
            pmtu.suspect();
        }
        if let Some(size) = pmtu.data_lost(now, mtu) {
            self.set_mtu(size);
            self.timers.cancel(PathTimer::PmtuProbe);
        }
    }

    /// Returns the maximum length of a chunk in one packet to here.
    fn pmdcs(&self) -> u32 {
        ((self.packet - COMMON_HEADER) & !3) as u32
    }

    /// Returns the maximum length of an IP packet to here.
    pub(crate) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Sets the MTU, at least [`MIN_MTU`].
    pub(crate) fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu.max(usize::from(MIN_MTU));
        self.packet = self.mtu - headers(self.remote, self.udp_port);
        self.window.pmdcs = self.pmdcs();
    }

    /// Clears a path whose address is no longer the peer's.
    pub(crate) fn leave(&mut self) {
        self.gone = true;
        self.confirmed = false;
        self.reach = PathState::Active;
        self.reported = self.state();
        self.heartbeat.forget();
        self.heartbeat.cancel();
        self.pmtu = None;
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
            self.set_mtu(self.mtu);
        }
    }

    /// Returns the maximum user data in one chunk to here, with a header of `header` bytes and beside
    /// an AUTH chunk.
    pub(crate) fn max_data(&self, settings: &Settings, header: usize, auth: usize) -> usize {
        let room = self.window.pmdcs as usize - auth;
        let chunk = match settings.chunk {
            0 => room,
            limit => room.min(usize::from(limit)),
        };
        (chunk & !3) - header
    }

    pub(crate) fn state(&self) -> PathState {
        match self.reach {
            PathState::Active if !self.confirmed => PathState::Unconfirmed,
            reach => reach,
        }
    }

    /// Returns whether data may be sent here at all.
    pub(crate) fn usable(&self) -> bool {
        self.confirmed
    }

    pub(crate) fn active(&self) -> bool {
        self.confirmed && self.reach == PathState::Active
    }

    /// Counts an error (RFC 9260 section 8.2, RFC 7829 section 4). Returns `true` when the state has
    /// become worse.
    pub(crate) fn error(&mut self, settings: &Settings) -> bool {
        let before = self.reach;
        // The count continues beyond the limit: of paths that all failed, the one with the fewest
        // errors is used.
        self.errors = self.errors.saturating_add(1);
        if self.errors > settings.path_max_retrans {
            self.reach = PathState::Inactive;
        } else if settings.potentially_failed.is_some_and(|max| self.errors > max) {
            self.reach = PathState::PotentiallyFailed;
        }
        self.reach != before
    }

    /// Marks the path as failed.
    pub(crate) fn fail(&mut self, settings: &Settings) {
        self.errors = self.errors.max(settings.path_max_retrans.saturating_add(1));
        self.reach = PathState::Inactive;
    }

    /// Resets the errors after an acknowledgement (RFC 9260 section 8.2).
    pub(crate) fn answered(&mut self) {
        self.errors = 0;
        self.reach = PathState::Active;
    }

    /// Returns whether the window and the burst allow new data (RFC 9260 section 6.1 B and D).
    pub(crate) fn may_send(&self) -> bool {
        let window = if self.one_packet { 1 } else { self.window.cwnd };
        self.flight.bytes() < window && self.burst > 0
    }

    /// Returns whether the window and the burst allow a retransmission. Losses found at one time are
    /// limited to a burst as new data is, unless nothing is in flight that would trigger the rest.
    pub(crate) fn may_retransmit(&self) -> bool {
        let window = if self.one_packet { 1 } else { self.window.cwnd };
        self.flight.bytes() < window && (self.burst > 0 || self.flight.is_empty())
    }

    /// Returns the length in bytes of a burst (RFC 9260 section 6.1 D).
    fn one_burst(&self, settings: &Settings) -> u32 {
        match settings.max_burst {
            0 => u32::MAX,
            packets => packets.saturating_mul(self.window.pmdcs),
        }
    }

    /// Allows a burst.
    pub(crate) fn allow_burst(&mut self, settings: &Settings) {
        self.burst = self.burst.max(self.one_burst(settings));
    }

    /// Allows one more burst: several acknowledgements may arrive before anything is sent.
    pub(crate) fn add_burst(&mut self, settings: &Settings) {
        let leave = self.one_burst(settings).saturating_mul(self.sacks());
        self.burst = self.burst.saturating_add(leave);
    }

    /// Subtracts a chunk from the burst.
    pub(crate) fn spend_burst(&mut self, size: usize) {
        self.burst = self.burst.saturating_sub(size as u32);
    }

    /// Returns the number of SACKs that the one just processed stands for.
    fn sacks(&self) -> u32 {
        self.tally.acked().div_ceil(2 * self.window.pmdcs).max(1)
    }

    /// Reduces a window that was idle for long (RFC 9260 section 7.2.1).
    pub(crate) fn before_data(&mut self, now: Time) {
        if self.flight.is_empty()
            && let Some(last) = self.data_at
        {
            let rto = self.rto.get().as_nanos().max(1);
            let rtos = (now.since(last).as_nanos() / rto).min(64) as u32;
            self.control.idle(&mut self.window, rtos);
        }
        self.data_at = Some(now);
        self.data_turn = self.turns;
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
        self.large |= size as usize > BASE;
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
            let single = self.flight.bytes() <= self.window.pmdcs;
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
        if settings.initial_ssthresh.is_none() && self.data_at.is_none() {
            self.window.ssthresh = peer_rwnd;
        }
    }

    /// Starts over, because the peer has restarted.
    pub(crate) fn restart(&mut self, settings: &Settings, peer_rwnd: u32) {
        self.reset_window(settings, peer_rwnd);
        self.empty();
        self.heartbeat.forget();
        self.timers.cancel(PathTimer::HeartbeatLost);
        self.one_packet = false;
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

    /// Returns whether the address is verified.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Notes that the address is verified (RFC 9260 section 5.4). Returns whether it was not before.
    pub(crate) fn confirm(&mut self) -> bool {
        !core::mem::replace(&mut self.confirmed, true)
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
        self.heartbeat.sent(now, nonce, self.turns);
        self.timers.start(PathTimer::HeartbeatLost, now + self.rto.get());
    }

    /// Returns whether the state differs from the one last reported to the user.
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
        self.turns
    }

    /// Returns the number of changes of the local address when data was last sent.
    pub(crate) fn data_turn(&self) -> u8 {
        self.data_turn
    }

    /// Notes that something that T3-rtx protects is sent.
    pub(crate) fn note_turn(&mut self) {
        self.data_turn = self.turns;
    }

    /// Sets the local address because of a loss, which it may not repair.
    pub(crate) fn guess_local(&mut self, local: IpAddr, settings: &Settings, ssthresh: u32) {
        self.guessed = local != self.local;
        self.send_from(local, settings, ssthresh);
    }

    /// Returns whether the local address was set because of a loss and nothing has arrived since, and forgets it.
    pub(crate) fn take_guess(&mut self) -> bool {
        core::mem::take(&mut self.guessed)
    }

    /// Returns whether the window admits only one packet.
    pub(crate) fn takes_one_packet(&self) -> bool {
        self.one_packet
    }

    /// Returns whether a burst is in progress.
    pub(crate) fn has_burst(&self) -> bool {
        self.burst > 0
    }

    /// Forfeits the rest of a burst.
    pub(crate) fn end_burst(&mut self) {
        self.burst = 0;
    }

    /// Returns the search for the MTU.
    pub(crate) fn pmtu(&self) -> Option<&Pmtu> {
        self.pmtu.as_deref()
    }

    /// Returns the search for the MTU for changes.
    pub(crate) fn pmtu_mut(&mut self) -> Option<&mut Pmtu> {
        self.pmtu.as_deref_mut()
    }

    /// Sets the MTU to that of a probe that has arrived.
    pub(crate) fn mtu_found(&mut self, mtu: usize) {
        self.timers.cancel(PathTimer::PmtuProbe);
        self.set_mtu(mtu);
        self.large |= mtu > BASE;
    }

    /// Updates the window after a SACK.
    pub(crate) fn settle_acked(&mut self, now: Time, recovering: bool, step: u32) {
        if self.tally.acked() == 0 {
            return;
        }
        if let Some(pmtu) = &mut self.pmtu {
            pmtu.data_arrived();
        }
        self.one_packet = false;
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
        self.control.acked(&mut self.window, acked);
    }

    pub(crate) fn lost(&mut self, now: Time) {
        self.control.lost(&mut self.window, now);
    }

    pub(crate) fn timeout(&mut self, now: Time, recovering: bool) {
        self.control.timeout(&mut self.window, now, recovering);
        self.one_packet = true;
    }

    /// Schedules a heartbeat an RTO later on a potentially failed path, whatever the heartbeat interval
    /// is, if heartbeats are enabled (RFC 7829 section 3.2, rules 5 and 6).
    pub(crate) fn ask_soon(&mut self, now: Time) {
        if self.heartbeat.is_enabled()
            && self.confirmed
            && self.reach == PathState::PotentiallyFailed
        {
            self.heartbeat.watch(now);
            self.timers.start(PathTimer::Heartbeat, now + self.rto.get());
        }
    }

    /// Sends a heartbeat now, unless one is under way: the path is silent.
    pub(crate) fn ask_now(&mut self) {
        let heartbeat = &mut self.heartbeat;
        if heartbeat.is_enabled() && self.confirmed && !heartbeat.is_under_way() {
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
            _ if !self.confirmed && !heartbeats => Some(now + rto),
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
