//! Heartbeats and the verification of paths (RFC 9260 sections 5.4 and 8.3; RFC 7829 section 4).

use super::{Association, Cx, MAX_BEATS, Phase};
use crate::path::{Path, PathState};
use crate::timers::PathTimer;
use crate::wire::chunk::{self, Chunk};
use crate::wire::{COMMON_HEADER, Parameter, Writer};
use ringway_sansio::Time;

/// Length in bytes of the Heartbeat Info sent here: path, time and nonce.
const INFO: usize = 20;

/// Returns the Heartbeat Info of a heartbeat on a path.
pub(super) fn info(index: usize, now: Time, nonce: u64) -> [u8; INFO] {
    let mut info = [0; INFO];
    info[..4].copy_from_slice(&(index as u32).to_be_bytes());
    info[4..12].copy_from_slice(&now.as_nanos().to_be_bytes());
    info[12..].copy_from_slice(&nonce.to_be_bytes());
    info
}

impl Association {
    /// Returns whether heartbeats are sent in this state (RFC 9260 section 8.3).
    fn beats_go(&self) -> bool {
        use Phase::*;
        matches!(self.phase, Established | ShutdownPending | ShutdownReceived { .. })
    }

    /// Starts heartbeats on an established association. Unverified paths are probed, a limited number
    /// at a time (RFC 9260 section 5.4). The other paths are probed periodically.
    pub(super) fn begin_beats(&mut self, cx: &mut Cx<'_>) {
        let (mut burst, max) = (0, self.settings.heartbeat_max_burst);
        for path in self.paths.iter_mut().filter(|path| !path.is_gone()) {
            path.heartbeat.note_use(cx.now);
            path.plan_beat(cx.now, &self.settings, cx.random);
            if path.state() == PathState::Unconfirmed {
                if burst < max {
                    path.heartbeat.request();
                } else {
                    path.heartbeat.cancel();
                }
                path.timers.start(PathTimer::Heartbeat, cx.now + path.rto.get() * (burst / max));
                burst += 1;
            }
        }
    }

    /// Answers a HEARTBEAT with its parameters unchanged. RFC 9260 section 8.3 does not require it
    /// after a SHUTDOWN, but a peer with unsent data must find a path that works.
    pub(super) fn handle_heartbeat(&mut self, path: usize, value: &[u8]) {
        if matches!(self.phase, Phase::CookieWait(_) | Phase::ShutdownAckSent(_)) {
            return;
        }
        let size = crate::wire::TLV_HEADER + crate::wire::padded(value.len());
        let fits = COMMON_HEADER + self.auth_room() + size <= self.paths[path].packet();
        if self.control.beats.len() >= MAX_BEATS || !fits {
            self.totals.heartbeats_refused += 1;
            return;
        }
        self.control.beats.push_back((path, value.into()));
    }

    /// Handles a HEARTBEAT ACK. It counts only with the nonce last sent on its path.
    pub(super) fn handle_heartbeat_ack(&mut self, cx: &mut Cx<'_>, value: &[u8]) {
        let Some(info) = chunk::heartbeat_info(value).and_then(|i| <[u8; INFO]>::try_from(i).ok())
        else {
            return;
        };
        let number = |at: usize| info[at..at + 8].iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
        let index = (number(0) >> 32) as usize;
        if index < self.paths.len() && self.probe_answered(cx.now, index, number(12)) {
            return;
        }
        let Some(path) = self.paths.get_mut(index) else { return };
        if !path.heartbeat_answered(cx.now, number(12)) {
            return;
        }
        if path.confirm() {
            // Data that waited for a verified address may be sent.
            path.allow_burst(&self.settings);
        }
        let remote = path.remote;
        path.plan_beat(cx.now, &self.settings, cx.random);
        if let Some(asconf) = &mut self.asconf
            && asconf.takes_primary(remote)
        {
            self.chosen.primary = index;
        }
        if self.out.outstanding() == 0 {
            // RFC 9260 section 8.1: not while data is outstanding, which may be lost although
            // heartbeats are not.
            self.errors.peer_answered();
        }
        self.life_on(index);
        self.path_changed();
    }

    /// Writes the answers and the heartbeat of a path. `alone` states that the packet is still empty.
    pub(super) fn put_beats(
        &mut self,
        cx: &mut Cx<'_>,
        index: usize,
        mut alone: bool,
        packet: &mut Writer<'_>,
    ) {
        while let Some((to, value)) = self.control.beats.front()
            && *to == index
        {
            let fits = packet.space() >= crate::wire::TLV_HEADER + crate::wire::padded(value.len());
            if fits {
                Chunk::HeartbeatAck(value).emit(packet.chunks());
            } else if !alone {
                break;
            } else {
                // The path's MTU has shrunk since the heartbeat arrived, and nothing else is to wait
                // for it.
                self.totals.heartbeats_refused += 1;
            }
            alone = false;
            self.control.beats.pop_front();
        }
        let path = &mut self.paths[index];
        if !path.heartbeat.is_due() || packet.space() < INFO + 2 * crate::wire::TLV_HEADER {
            return;
        }
        let nonce = cx.random.next_u64();
        let info = info(index, cx.now, nonce);
        let mut parameter = Vec::with_capacity(INFO + crate::wire::TLV_HEADER);
        Parameter::HeartbeatInfo(&info).emit(&mut parameter);
        Chunk::Heartbeat(&parameter).emit(packet.chunks());
        path.heartbeat_sent(cx.now, nonce);
        path.plan_beat(cx.now, &self.settings, cx.random);
        if !self.paths.iter().any(Path::usable) {
            // Nothing is sent to any path before one is verified.
            let path = &mut self.paths[index];
            path.timers.start(PathTimer::Heartbeat, cx.now + path.rto.get());
        }
    }

    /// Handles the timers of heartbeats.
    pub(super) fn beat_timers(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let mut changed = false;
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            if path.timers.take_expired(PathTimer::HeartbeatLost, now) {
                let turn = path.heartbeat.lose();
                changed |= path.error(&self.settings);
                path.rto.back_off();
                // RFC 9260 section 8.1: only on the path that data uses, and section 5.4: not for
                // an address that is being verified.
                let counts = index == self.chosen.current && path.usable();
                // Where no path is verified, heartbeats are the only sign of a failure.
                let none = !self.paths.iter().any(Path::usable);
                if (counts || none) && self.count_error() {
                    return;
                }
                if let Some(turn) = turn {
                    self.try_other_local(index, turn);
                }
            }
            let path = &mut self.paths[index];
            if path.timers.take_expired(PathTimer::Heartbeat, now) {
                let idle = path.heartbeat.is_idle() || path.state() != PathState::Active;
                if self.beats_go() {
                    let path = &mut self.paths[index];
                    if idle && !path.heartbeat.is_under_way() {
                        path.heartbeat.request();
                    } else {
                        path.plan_beat(now, &self.settings, cx.random);
                    }
                    if path.state() == PathState::Active && self.out.is_done() {
                        self.trim();
                    }
                }
            }
        }
        if changed {
            self.path_changed();
        }
    }

    /// Sends a heartbeat on a path now (RFC 9260 section 11.1.10).
    pub(super) fn send_heartbeat(&mut self, index: usize) {
        if self.beats_go() {
            self.paths[index].heartbeat.request();
        }
    }

    fn trim(&mut self) {
        self.out.trim();
        self.inn.trim();
        self.control.beats.shrink_to_fit();
        self.control.errors.shrink_to_fit();
    }
}
