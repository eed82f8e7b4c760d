//! A path: one address of the peer, the local address that it is reached from, and the state of the way
//! between (RFC 9260 sections 5.4, 6.3, 7.2 and 8; RFC 7829).

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

/// A heartbeat that was sent and not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beat {
    pub(crate) at: Time,
    pub(crate) nonce: u64,
}

pub(crate) struct Path {
    pub(crate) local: IpAddr,
    /// Number of changes of that address, modulo 256, and its values when data and a heartbeat were
    /// last sent.
    pub(crate) turns: u8,
    pub(crate) data_turn: u8,
    pub(crate) beat_turn: u8,
    /// Whether it was changed because of a loss and nothing has arrived there since.
    pub(crate) guessed: bool,
    pub(crate) remote: IpAddr,
    /// The peer's UDP port there (RFC 6951); 0 for straight over IP.
    pub(crate) udp_port: u16,
    /// Maximum length of an IP packet on this path, including a UDP header.
    mtu: usize,
    /// The search for the MTU.
    pub(crate) pmtu: Option<Box<Pmtu>>,
    pub(crate) timers: PathTimers,
    /// Whether the address is no longer the peer's and the slot is free.
    pub(crate) gone: bool,
    pub(crate) confirmed: bool,
    reach: PathState,
    /// The state last reported to the user.
    pub(crate) reported: PathState,
    /// Errors in a row.
    pub(crate) errors: u32,
    pub(crate) window: Window,
    control: Box<dyn Congestion>,
    /// Maximum length of a packet on this path, from the common header on.
    pub(crate) packet: usize,
    /// Bytes of DATA chunks in flight, with header and padding.
    pub(crate) flight: u32,
    /// Bytes of data that may still be sent in this burst (RFC 9260 section 6.1 D).
    pub(crate) burst: u32,
    /// Whether only one packet may be in flight after a timeout until something is acknowledged
    /// (section 7.2.3).
    pub(crate) one_packet: bool,
    pub(crate) rto: Rto,
    /// The position of the chunk whose round trip is being measured.
    pub(crate) timed: Option<u64>,
    /// The lowest position that may be in flight here.
    pub(crate) earliest: u64,
    /// The time when a packet that measures a round trip was last sent here.
    pub(crate) used: Time,
    /// The time when data was last sent here.
    pub(crate) data_at: Option<Time>,
    /// The time since which the path is idle.
    pub(crate) beat_from: Time,
    /// Whether a heartbeat is due now.
    pub(crate) beat_now: bool,
    pub(crate) beat: Option<Beat>,
    pub(crate) heartbeats: bool,
    /// Of the SACK being processed: bytes in flight before it, newly acknowledged bytes, and whether
    /// the earliest chunk was among them.
    pub(crate) flight_before: u32,
    pub(crate) acked: u32,
    pub(crate) acked_earliest: bool,
    /// The highest chunk that it newly acknowledges, and its send time.
    pub(crate) highest: Option<(u64, Time)>,
    /// Whether a chunk larger than the minimum MTU allows has arrived.
    pub(crate) large: bool,
    /// The position at which the fast recovery of this path ends, where data uses several paths.
    pub(crate) recovery: Option<u64>,
    /// Loss detection by time, where configured.
    pub(crate) rack: Option<Box<Rack>>,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} {:?} {:?}", self.local, self.remote, self.state(), self.window)?;
        write!(
            f,
            " flight {} errors {} t3 {:?}",
            self.flight,
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
            beat_turn: 0,
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
            flight: 0,
            burst: 0,
            one_packet: false,
            rto: Rto::new(settings),
            timed: None,
            earliest: 0,
            used: now,
            data_at: None,
            beat_from: now,
            beat_now: false,
            beat: None,
            heartbeats: settings.heartbeat_interval.is_some(),
            flight_before: 0,
            acked: 0,
            acked_earliest: false,
            highest: None,
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
        self.beat = None;
        self.beat_now = false;
        self.pmtu = None;
        self.rack = None;
        self.timers.stop();
    }

    /// Notes that nothing is in flight to here any more.
    pub(crate) fn empty(&mut self) {
        self.flight = 0;
        self.timers.cancel(PathTimer::T3Rtx);
        self.timed = None;
        self.earliest = 0;
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
        self.flight < window && self.burst > 0
    }

    /// Returns whether the window and the burst allow a retransmission. Losses found at one time are
    /// limited to a burst as new data is, unless nothing is in flight that would trigger the rest.
    pub(crate) fn may_retransmit(&self) -> bool {
        let window = if self.one_packet { 1 } else { self.window.cwnd };
        self.flight < window && (self.burst > 0 || self.flight == 0)
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
        self.acked.div_ceil(2 * self.window.pmdcs).max(1)
    }

    /// Reduces a window that was idle for long (RFC 9260 section 7.2.1).
    pub(crate) fn before_data(&mut self, now: Time) {
        if self.flight == 0
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

    /// Updates the window after a SACK.
    pub(crate) fn settle_acked(&mut self, now: Time, recovering: bool, step: u32) {
        if self.acked == 0 {
            return;
        }
        if let Some(pmtu) = &mut self.pmtu {
            pmtu.data_arrived();
        }
        self.one_packet = false;
        let acked = Acked {
            now,
            bytes: self.acked,
            sacks: self.sacks(),
            flight: self.flight_before,
            all: self.flight == 0,
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
        if self.heartbeats && self.confirmed && self.reach == PathState::PotentiallyFailed {
            self.beat_from = now;
            self.timers.start(PathTimer::Heartbeat, now + self.rto.get());
        }
    }

    /// Sends a heartbeat now, unless one is under way: the path is silent.
    pub(crate) fn ask_now(&mut self) {
        self.beat_now |= self.heartbeats && self.confirmed && self.beat.is_none();
    }

    /// Schedules the next heartbeat (RFC 9260 section 8.3): after the RTO, plus or minus half of it,
    /// and the interval. While an address is verified or a path is potentially failed, after the RTO
    /// alone (section 5.4, RFC 7829 section 4).
    pub(crate) fn plan_beat(&mut self, now: Time, settings: &Settings, random: &mut dyn Random) {
        let rto = self.rto.get();
        self.beat_from = now;
        let due = match self.state() {
            PathState::Unconfirmed => Some(now + rto),
            PathState::PotentiallyFailed if self.heartbeats => Some(now + rto),
            _ if !self.confirmed && !self.heartbeats => Some(now + rto),
            _ => settings.heartbeat_interval.filter(|_| self.heartbeats).map(|interval| {
                let share = random.next_u64() % 1024;
                let jittered = (rto.as_nanos() as u64 / 2)
                    .saturating_add((rto.as_nanos() as u64 / 1024).saturating_mul(share));
                now + interval + Duration::from_nanos(jittered)
            }),
        };
        self.timers.set(PathTimer::Heartbeat, due);
    }
}
