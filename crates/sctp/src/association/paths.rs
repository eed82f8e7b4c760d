//! Where to send (RFC 9260 sections 6.4 and 8.2; RFC 7829 section 4).

use super::Association;
use crate::path::{Path, PathState};
use crate::wire::init::MAX_ADDRESSES;
use ringway_sansio::{Addressing, Time};
use std::net::IpAddr;

/// Whether an address can be one end of an association.
pub(crate) fn is_unicast(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || broadcast)
}

/// Our address for the `nth` address of the peer that is of its family: the lists are taken side
/// by side, so that two links make two paths and not four.
pub(super) fn beside(locals: &[IpAddr], remote: IpAddr, nth: usize) -> Option<IpAddr> {
    let same = || locals.iter().filter(|local| local.is_ipv4() == remote.is_ipv4());
    let count = same().count();
    same().nth(nth.checked_rem(count)?).copied()
}

impl Association {
    /// Adds a path to an address if there is not one and an address of ours has its family.
    pub(super) fn add_path(
        &mut self,
        remote: IpAddr,
        local: Option<IpAddr>,
        confirmed: bool,
        now: Time,
    ) {
        if self.paths.len() >= MAX_ADDRESSES || !is_unicast(remote) {
            return;
        }
        if let Some(path) = self.path_to(remote) {
            self.paths[path].confirmed |= confirmed;
            return;
        }
        let nth = self.paths.iter().filter(|p| p.remote.is_ipv4() == remote.is_ipv4()).count();
        let Some(local) = local.or_else(|| beside(&self.ends.locals, remote, nth)) else { return };
        let ssthresh = self.out.peer_rwnd;
        let udp_port = self.ends.udp_port;
        let path = Path::new(&self.settings, local, remote, udp_port, confirmed, ssthresh, now);
        self.paths.push(path);
    }

    /// Path and packet agree on the way until the path carries data: the peer's choice of
    /// addresses shows which pairs work.
    pub(super) fn learn_way(&mut self, path: usize, addressing: &Addressing) {
        let (path, local) = (&mut self.paths[path], addressing.destination);
        // RFC 6951 section 5.4: the tag was checked.
        path.encapsulate(addressing.udp_port);
        if path.local != local && !path.active() && self.ends.locals.contains(&local) {
            path.local = local;
        }
    }

    /// Most user data in a chunk: the Association Maximum DATA Chunk Size (RFC 9260 section 6.9).
    pub(super) fn most_data(&self) -> usize {
        self.paths.iter().map(|path| path.most_data(&self.settings)).min().unwrap_or(1)
    }

    /// Chooses where data goes: the primary path, or while that does not work one that does
    /// (RFC 9260 section 6.4.1); of those that may have failed, the least bad.
    pub(super) fn choose_current(&mut self) {
        let before = self.current;
        self.current = self.best();
        if self.current != before {
            self.allow_bursts();
        }
    }

    fn best(&self) -> usize {
        if self.paths[self.primary].active() {
            return self.primary;
        }
        if self.paths[self.current].active() {
            return self.current;
        }
        let usable = || self.paths.iter().enumerate().filter(|(_, path)| path.usable());
        if let Some((index, _)) = usable().find(|(_, path)| path.active()) {
            return index;
        }
        let failed = |path: &Path| path.state() == PathState::Inactive;
        usable()
            .min_by_key(|(index, path)| (failed(path), path.errors, *index != self.primary))
            .map_or(self.primary, |(index, _)| index)
    }

    /// Where a chunk goes again (RFC 9260 section 6.4): after a timeout to another path that works,
    /// after gap reports where it went before.
    pub(super) fn retransmit_to(&self, last: usize, timed_out: bool) -> usize {
        let stays = !timed_out && self.paths.get(last).is_some_and(Path::active);
        if stays { last } else { self.other_than(last) }
    }

    /// A path that works, another than `last` if there is one.
    pub(super) fn other_than(&self, last: usize) -> usize {
        let count = self.paths.len();
        let others = (1..count).map(|step| (last + step) % count);
        if self.current != last && self.paths[self.current].active() {
            return self.current;
        }
        let mut usable = others.filter(|&index| self.paths[index].usable());
        match usable.clone().find(|&index| self.paths[index].active()) {
            Some(index) => index,
            // None works: try them in turn.
            None => usable.next().unwrap_or(self.current),
        }
    }

    /// Leave for new data on every path (RFC 9260 section 6.1 D).
    pub(super) fn allow_bursts(&mut self) {
        for path in &mut self.paths {
            path.allow_burst(&self.settings);
        }
    }

    /// A path's state may have changed: data may have to go elsewhere, and the user is told.
    pub(super) fn path_changed(&mut self) {
        self.pending.paths |= self.paths.iter().any(|path| path.told != path.state());
        self.choose_current();
    }
}
