//! Addresses that change while the association lives (RFC 5061): the requests of the local endpoint,
//! and the packets of both directions. The peer's requests are handled in `asconf_peer`.
//!
//! Each request is a separate ASCONF in a separate packet, and one is outstanding at a time.

mod requests;

pub(super) use requests::Asconf;
pub use requests::MAX_ADDRESS_REQUESTS;

use super::addresses::is_unicast;
use super::change::Change;
use super::{Association, Close, Cx};
use crate::auth::AUTH_CHUNK;
use crate::error::AddressError;
use crate::features::Features;
use crate::wire::asconf::{AddressChange, outcomes};
use crate::wire::cause::{Cause, code};
use crate::wire::chunk::{Chunk, T_BIT, kind};
use crate::wire::init::MAX_ADDRESSES;
use crate::wire::{COMMON_HEADER, Parameter, Writer};
use requests::PendingRequest;
use ringway_sansio::{Addressing, Time};
use std::net::IpAddr;

impl Association {
    pub(super) fn asconf_mut(&mut self) -> &mut Asconf {
        let (local, peer) = self.agreement.initial_tsns;
        let (next_serial, expected) = (local.raw(), peer.raw());
        self.asconf.get_or_insert_with(|| Box::new(Asconf::new(next_serial, expected)))
    }

    /// Returns whether packets may be sent from a local address.
    pub(super) fn may_send_from(&self, local: IpAddr) -> bool {
        self.ends.locals.contains(&local) && !self.ends.resting.contains(&local)
    }

    /// Requests that the peer add, delete or prefer a local address (RFC 5061). An added address is used as a source
    /// after [`Change::AddressAdded`](crate::Change::AddressAdded); a deleted one, which cannot be the last, no
    /// longer, and packets to it are accepted until [`Change::AddressDeleted`](crate::Change::AddressDeleted).
    pub fn change_address(
        &mut self,
        cx: &Cx<'_>,
        change: AddressChange,
    ) -> Result<(), AddressError> {
        self.keep_identity();
        if !self.is_established() {
            return Err(AddressError::NotEstablished);
        }
        if !self.agreement.has(Features::ASCONF) {
            return Err(AddressError::NotSupported);
        }
        let address = change.address();
        let known = self.ends.locals.contains(&address);
        let resting = self.ends.resting.contains(&address);
        let others = self.ends.locals.iter().filter(|local| **local != address);
        // Section 5.3, F5: the last address cannot be deleted.
        let left = others.filter(|local| !self.ends.resting.contains(local)).count();
        let right = match change {
            AddressChange::Add(_) => {
                is_unicast(address) && !known && self.ends.locals.len() < MAX_ADDRESSES
            }
            AddressChange::Delete(_) => {
                known && !resting && left > 0 && self.reaches_without(address)
            }
            AddressChange::Primary(_) => known && !resting,
        };
        if !right {
            return Err(AddressError::Address { address, max: MAX_ADDRESSES });
        }
        self.asconf_mut().queue(change)?;
        match change {
            // Packets to the new address are accepted from now on, and none is sent from it (F1).
            AddressChange::Add(_) => {
                self.ends.locals.push(address);
                self.ends.resting.push(address);
            }
            // F4.
            AddressChange::Delete(_) => {
                self.ends.resting.push(address);
                self.leave_local(cx.now);
            }
            AddressChange::Primary(_) => {}
        }
        self.asconf_progress();
        Ok(())
    }

    /// Returns whether a verified address of the peer is reachable without a given local address.
    fn reaches_without(&self, local: IpAddr) -> bool {
        let others = |remote: IpAddr| {
            let fits = |l: &IpAddr| {
                *l != local && l.is_ipv4() == remote.is_ipv4() && self.may_send_from(*l)
            };
            self.ends.locals.iter().any(fits)
        };
        self.paths.iter().any(|path| path.usable() && others(path.remote))
    }

    /// Starts the next request.
    fn asconf_progress(&mut self) {
        let (path, established) = (self.chosen.current, self.is_established());
        if let Some(asconf) = self.asconf.as_mut().filter(|_| established) {
            asconf.start_next(path);
        }
    }

    /// Writes an ASCONF-ACK or an ASCONF, alone after its AUTH chunk, if one is due.
    pub(super) fn transmit_asconf(&mut self, cx: &Cx<'_>, out: &mut Vec<u8>) -> Option<Addressing> {
        let asconf = self.asconf.as_mut()?;
        let agreed = self.auth.as_ref()?.agreed.as_ref()?;
        let ports = (self.ends.local_port, self.ends.remote_port);
        let limit = usize::from(u16::MAX);
        let start = out.len();
        if let Some((way, serial, value)) = asconf.take_answer() {
            let mut packet = Writer::new(out, limit, ports.0, ports.1, self.tags.outbound());
            agreed.begin(packet.chunks());
            Chunk::AsconfAck(serial, &value).emit(packet.chunks());
            agreed.finish(&mut packet.chunks()[start + COMMON_HEADER..]);
            packet.finish();
            return Some(way);
        }
        let PendingRequest { serial, change, path: index, sent, .. } = asconf.take_request()?;
        asconf.start_timer(cx.now + self.paths[index].rto.get());
        let mut way = self.way(index);
        // The new address may be the only one that still works (section 5.3.2). So every second attempt comes from it.
        if let AddressChange::Add(new) = change
            && sent % 2 == 0
            && new.is_ipv4() == way.destination.is_ipv4()
        {
            way.source = new;
        }
        // The lookup address must be one that the peer knows.
        let known = |local: &&IpAddr| match change {
            AddressChange::Add(new) => **local != new && self.may_send_from(**local),
            AddressChange::Delete(_) | AddressChange::Primary(_) => self.may_send_from(**local),
        };
        let lookup = self.ends.locals.iter().find(known).copied().unwrap_or(way.source);
        let mut value = Vec::new();
        Parameter::Address(lookup).emit(&mut value);
        change.emit(serial, &mut value);
        let agreed = self.auth.as_ref()?.agreed.as_ref()?;
        let mut packet = Writer::new(out, limit, ports.0, ports.1, self.tags.outbound());
        agreed.begin(packet.chunks());
        Chunk::Asconf(serial, &value).emit(packet.chunks());
        agreed.finish(&mut packet.chunks()[start + COMMON_HEADER..]);
        packet.finish();
        Some(way)
    }

    /// Handles the expiry of T-4 (section 5.1, B1 to B5).
    pub(super) fn asconf_timeout(&mut self, now: Time) {
        let Some(last) = self.asconf.as_mut().and_then(|asconf| asconf.repeat()) else { return };
        self.paths[last].rto.back_off();
        self.paths[last].error(&self.settings);
        if self.count_error() {
            return;
        }
        self.paths[last].ask_soon(now);
        self.path_changed();
        let next = self.other_than(last);
        if let Some(asconf) = &mut self.asconf {
            asconf.move_to(next);
        }
    }

    /// Handles an authenticated ASCONF-ACK (section 5.1, A5 to A8).
    pub(super) fn handle_asconf_ack(
        &mut self,
        cx: &Cx<'_>,
        path: usize,
        serial: u32,
        value: &[u8],
    ) {
        let asconf = self.asconf_mut();
        let Some(change) = asconf.complete(serial) else {
            if asconf.answers_nothing(serial) {
                let cause = Cause::Other(code::ILLEGAL_ASCONF_ACK, &[]);
                self.fail(cause, Close::Violation("an ASCONF-ACK answers nothing"));
            }
            return;
        };
        self.errors.peer_answered();
        self.paths[path].answered();
        let cause = outcomes(value).find(|o| o.correlation == serial).and_then(|o| o.cause);
        self.address_changed(cx, change, cause);
        self.asconf_progress();
    }

    /// Completes a request that the peer performed, or refused with the code of a cause.
    fn address_changed(&mut self, cx: &Cx<'_>, change: AddressChange, cause: Option<u16>) {
        let address = change.address();
        let report = match (change, cause) {
            (AddressChange::Add(_), None) => Change::AddressAdded(address),
            (AddressChange::Delete(_), None) => Change::AddressDeleted(address),
            (AddressChange::Primary(_), None) => Change::PrimaryRequested(address),
            (_, Some(code)) => Change::AddressRefused { address, code },
        };
        self.pending.changes.push_back(report);
        let known = match (change, cause.is_none()) {
            (AddressChange::Primary(_), _) => return,
            // F2. An address that is not deleted stays in use.
            (AddressChange::Add(_), done) => done,
            (AddressChange::Delete(_), done) => !done,
        };
        self.ends.resting.retain(|local| *local != address);
        if known {
            self.share_locals(cx.now);
        } else {
            self.ends.locals.retain(|local| *local != address);
            self.leave_local(cx.now);
        }
    }

    /// Handles the report that the peer does not support ASCONF (section 5.1, A9).
    pub(super) fn asconf_unknown(&mut self, cx: &Cx<'_>, reported: &[u8]) {
        if reported.first() != Some(&kind::ASCONF) {
            return;
        }
        self.agreement.drop_feature(Features::ASCONF);
        let Some(asconf) = self.asconf.take() else { return };
        for change in asconf.changes() {
            self.address_changed(cx, change, Some(code::UNRECOGNIZED_CHUNK));
        }
    }

    /// Returns whether an ABORT to a local address is to be ignored. It was sent before the address was
    /// deleted (section 5.3.1), or it answers a packet from an address that the peer did not know yet
    /// (RFC 9260 section 8.4, rule 8).
    pub(super) fn is_stray_abort(&self, local: IpAddr, flags: u8) -> bool {
        let leaves = |change: AddressChange| change == AddressChange::Delete(local);
        let leaving = self.asconf.as_ref().is_some_and(|asconf| asconf.changes().any(leaves));
        leaving || (flags & T_BIT != 0 && self.ends.resting.contains(&local))
    }

    /// Returns the number of bytes to reserve in a packet for an AUTH chunk.
    pub(super) fn auth_room(&self) -> usize {
        if self.authenticates_all() { AUTH_CHUNK } else { 0 }
    }
}
