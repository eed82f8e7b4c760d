//! Choice of the path (RFC 9260 sections 6.4 and 8.2; RFC 7829 section 4).

use super::Association;
use super::addresses::{beside, is_unicast};
use crate::path::{Path, PathState};
use crate::settings::Multipath;
use crate::wire::init::MAX_ADDRESSES;
use ringway_sansio::{Addressing, Time};
use std::net::IpAddr;

impl Association {
    /// Adds a path to an address if there is none and a local address has its family.
    pub(super) fn add_path(
        &mut self,
        remote: IpAddr,
        local: Option<IpAddr>,
        confirmed: bool,
        now: Time,
    ) {
        let count = self.paths.iter().filter(|path| !path.is_gone()).count();
        if count >= MAX_ADDRESSES || !is_unicast(remote) {
            return;
        }
        if let Some(path) = self.path_to(remote) {
            if confirmed {
                self.paths[path].confirm();
            }
            return;
        }
        let same = |p: &&Path| !p.is_gone() && p.remote.is_ipv4() == remote.is_ipv4();
        let nth = self.paths.iter().filter(same).count();
        let Some(local) = local.or_else(|| self.local_beside(remote, nth)) else { return };
        let ssthresh = self.out.peer_window.first();
        let udp_port = self.ends.udp_port;
        let path = Path::new(&self.settings, local, remote, udp_port, confirmed, ssthresh, now);
        match self.paths.iter_mut().find(|path| path.is_gone()) {
            Some(slot) => *slot = path,
            None => {
                // Most associations have one path, and there are many associations.
                self.paths.reserve_exact(1);
                self.paths.push(path);
            }
        }
    }

    fn local_beside(&self, remote: IpAddr, nth: usize) -> Option<IpAddr> {
        if self.ends.resting.is_empty() {
            return beside(&self.ends.locals, remote, nth);
        }
        let awake = |local: &&IpAddr| self.may_send_from(**local);
        let locals: Vec<IpAddr> = self.ends.locals.iter().filter(awake).copied().collect();
        beside(&locals, remote, nth)
    }

    /// Moves the paths of a removed local address to another. The other paths keep theirs, since only
    /// these pairs are known to work.
    pub(super) fn leave_local(&mut self, now: Time) {
        self.choose_locals(now, |this, index| this.may_send_from(this.paths[index].local()));
    }

    /// Assigns a new local address to the path of the same index, unless data uses that path or it
    /// works from an address that no other path has.
    pub(super) fn share_locals(&mut self, now: Time) {
        self.choose_locals(now, |this, index| {
            let path = &this.paths[index];
            let mut others = this.paths.iter().enumerate().filter(|(other, _)| *other != index);
            let alone = !others.any(|(_, other)| !other.is_gone() && other.local() == path.local());
            this.may_send_from(path.local())
                && (index == this.chosen.current || (path.active() && alone))
        });
    }

    /// Assigns to each path the local address of the same index, except to those that `keeps` selects.
    fn choose_locals(&mut self, now: Time, keeps: impl Fn(&Association, usize) -> bool) {
        let mut counts = [0; 2];
        for index in 0..self.paths.len() {
            let (local, remote) = (self.paths[index].local(), self.paths[index].remote);
            if self.paths[index].is_gone() {
                continue;
            }
            let nth = &mut counts[usize::from(remote.is_ipv4())];
            let beside = self.local_beside(remote, *nth);
            *nth += 1;
            if keeps(self, index) {
                continue;
            }
            match beside {
                Some(beside) if beside != local => {
                    let path = &mut self.paths[index];
                    path.send_from(beside, &self.settings, self.out.peer_window.first());
                    path.heartbeat.request();
                }
                Some(_) => {}
                None if self.remotes().count() > 1 => self.remove_path(now, index),
                None => {}
            }
        }
        self.path_changed();
    }

    /// Returns whether an address is certainly the peer's: it was verified, or the association is being
    /// opened to it.
    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        let opening = self.is_opening();
        self.path_to(address).is_some_and(|path| opening || self.paths[path].usable())
    }

    /// Removes an address that the peer listed but that belongs to another association.
    pub(crate) fn lose_address(&mut self, now: Time, address: IpAddr) {
        self.keep_identity();
        if let Some(path) = self.path_to(address) {
            self.remove_path(now, path);
        }
    }

    /// Removes a path. Its outstanding data goes to other paths.
    pub(super) fn remove_path(&mut self, now: Time, index: usize) {
        let path = &mut self.paths[index];
        self.out.mark_all(index, path, true);
        path.leave();
        self.control.beats.retain(|(path, _)| *path != index);
        let other = (0..self.paths.len()).find(|path| self.paths[*path].usable());
        let other =
            other.or_else(|| (0..self.paths.len()).find(|path| !self.paths[*path].is_gone()));
        let other = other.unwrap_or(index);
        self.chosen.replace(|chosen| chosen == index, other);
        if let Some(closing) = self.phase.closing_mut().filter(|closing| closing.path == index) {
            closing.path = other;
        }
        if self.acks.path == index {
            self.acks.path = other;
        }
        if self.control.cookie_ack == Some(index) {
            self.control.cookie_ack = Some(other);
        }
        self.requests_leave(index, other);
        if !self.paths.iter().any(Path::usable) {
            // The remaining path is verified before anything is sent to it.
            if !self.paths[other].is_gone() {
                self.paths[other].heartbeat.request();
            }
        }
        self.abandon_expired(now);
        self.path_changed();
        self.allow_bursts();
    }

    /// Adapts a path to the addresses of a received packet, unless the path is known to work. The
    /// peer's choice of addresses shows which pairs work.
    pub(super) fn learn_way(&mut self, path: usize, addressing: &Addressing) {
        let local = addressing.destination;
        let moves = self.paths[path].local() != local && self.may_send_from(local);
        let path = &mut self.paths[path];
        // RFC 6951 section 5.4: the tag was checked.
        path.encapsulate(addressing.udp_port);
        let open = path.take_guess() || !path.active();
        if moves && open {
            path.send_from(local, &self.settings, self.out.peer_window.first());
        }
    }

    /// Returns the maximum user data in a chunk: the Association Maximum DATA Chunk Size (RFC 9260
    /// section 6.9).
    pub(super) fn max_data(&self) -> usize {
        let there = self.paths.iter().filter(|path| !path.is_gone());
        let (header, auth) = (self.out.header(), self.auth_room());
        there.map(|path| path.max_data(&self.settings, header, auth)).min().unwrap_or(1)
    }

    /// Chooses the path for data: the primary path, or one that works while that does not (RFC 9260
    /// section 6.4.1). Of potentially failed paths it takes the one with the fewest errors.
    pub(super) fn choose_current(&mut self) {
        let before = self.chosen.current;
        self.chosen.current = self.best();
        if self.chosen.current != before {
            self.allow_bursts();
        }
    }

    fn best(&self) -> usize {
        if self.paths[self.chosen.primary].active() {
            return self.chosen.primary;
        }
        if self.paths[self.chosen.current].active() {
            return self.chosen.current;
        }
        let usable = || self.paths.iter().enumerate().filter(|(_, path)| path.usable());
        if let Some((index, _)) = usable().find(|(_, path)| path.active()) {
            return index;
        }
        let failed = |path: &Path| path.state() == PathState::Inactive;
        usable()
            .min_by_key(|(index, path)| {
                (failed(path), path.errors(), *index != self.chosen.primary)
            })
            .map_or(self.chosen.primary, |(index, _)| index)
    }

    /// Returns the path of a retransmission (RFC 9260 section 6.4): after a timeout another path that
    /// works, after gap reports the same path.
    pub(super) fn retransmit_to(&self, last: usize, timed_out: bool) -> usize {
        let stays = !timed_out && self.paths.get(last).is_some_and(Path::active);
        if self.settings.multipath != Multipath::Off
            && !self.out.is_forced()
            && !(stays && self.paths[last].may_retransmit())
        {
            // Any path with a free window serves.
            let open = |path: &Path| path.active() && path.may_retransmit();
            let other = (0..self.paths.len()).find(|i| *i != last && open(&self.paths[*i]));
            if let Some(other) = other {
                return other;
            }
        }
        if stays { last } else { self.other_than(last) }
    }

    /// Returns the path of new data. With several paths in use (CMT) it is the one with the most room
    /// that delays no faster path.
    pub(super) fn new_data_to(&self) -> usize {
        if self.settings.multipath == Multipath::Off {
            return self.chosen.current;
        }
        let active = || self.paths.iter().enumerate().filter(|(_, path)| path.active());
        let Some((fastest, fast)) = active().min_by_key(|(_, path)| path.round_trip()) else {
            return self.chosen.current;
        };
        let room = |path: &Path| path.window().cwnd.saturating_sub(path.flight.bytes());
        let open = |(index, path): &(usize, &Path)| {
            path.may_send() && (*index == fastest || self.leaves_room(fast, path))
        };
        let best =
            active().filter(open).max_by_key(|(index, path)| (room(path), usize::MAX - index));
        best.map_or(fastest, |(index, _)| index)
    }

    /// Returns whether the peer's window has room for data on a slow path beside everything that the
    /// fastest path could carry until it arrives. Otherwise the fastest path would wait (RFC 6356
    /// section 2, goal 1; the blocking estimation of Ferlin et al., "BLEST").
    fn leaves_room(&self, fast: &Path, slow: &Path) -> bool {
        let window = u64::from(self.out.peer_window.room()) + u64::from(self.out.outstanding());
        // In slow start the window grows by half during the measured round trip.
        let grows = if slow.window().in_slow_start() { 1.5 } else { 1.0 };
        let slow_trip = slow.round_trip().as_nanos() as f64 * grows;
        let turns = slow_trip / fast.round_trip().as_nanos().max(1) as f64;
        let meanwhile = (f64::from(fast.window().cwnd) * turns) as u64;
        meanwhile + u64::from(slow.flight.bytes()) + u64::from(slow.window().pmdcs) <= window
    }

    /// Returns whether data arrives over several paths, so that a chunk out of order is not a sign of
    /// loss (DAC).
    pub(super) fn is_patient(&self) -> bool {
        self.settings.multipath != Multipath::Off
            && self.paths.iter().filter(|path| path.active()).count() > 1
    }

    /// Returns whether new data may be sent on a path.
    pub(super) fn takes_new_data(&self, path: usize) -> bool {
        match self.settings.multipath {
            Multipath::Off => path == self.chosen.current,
            _ => self.paths[path].active() || path == self.chosen.current,
        }
    }

    /// Reacts to a loss on the only path: it is used from the next local address, which makes another
    /// pair (RFC 9260 section 6.4.1). Where a packet of the peer has changed the pair since the lost
    /// packet was sent, that pair is used.
    pub(super) fn try_other_local(&mut self, index: usize, turn: u8) {
        let usable = self.paths.iter().filter(|path| path.usable()).count();
        let path = &self.paths[index];
        let (local, remote) = (path.local(), path.remote);
        if usable != usize::from(path.usable()) || path.turns() != turn {
            return;
        }
        let fits =
            |other: &IpAddr| other.is_ipv4() == remote.is_ipv4() && self.may_send_from(*other);
        let locals: Vec<IpAddr> = self.ends.locals.iter().copied().filter(fits).collect();
        let at = locals.iter().position(|other| *other == local);
        if let Some(next) = at.and_then(|at| locals.get((at + 1) % locals.len())) {
            let path = &mut self.paths[index];
            path.guess_local(*next, &self.settings, self.out.peer_window.first());
        }
    }

    /// Returns a path that works, other than `last` if there is one: of those with the fewest errors
    /// the current path, or the next one. A path that is active by its state may be the one that lost
    /// the last attempt, and two such paths must not take turns until the association ends although
    /// others work (RFC 9260 section 6.4.1, RFC 7829 section 3.2, rule 4).
    pub(super) fn other_than(&self, last: usize) -> usize {
        let count = self.paths.len();
        let others = (1..count).map(|step| (last + step) % count);
        let usable = others.filter(|&index| self.paths[index].usable());
        let worth = |&index: &usize| {
            let path = &self.paths[index];
            (!path.active(), path.errors(), index != self.chosen.current)
        };
        usable.min_by_key(worth).unwrap_or(self.chosen.current)
    }

    /// Allows a burst of new data on every path (RFC 9260 section 6.1 D).
    pub(super) fn allow_bursts(&mut self) {
        for path in &mut self.paths {
            path.allow_burst(&self.settings);
        }
    }

    /// Handles a possible change of a path's state: data may have to move, and the user is notified.
    pub(super) fn path_changed(&mut self) {
        self.pending.paths |= self.paths.iter().any(Path::has_changed);
        self.choose_current();
    }
}
