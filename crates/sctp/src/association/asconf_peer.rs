//! Addresses that the peer changes (RFC 5061 sections 5.2 and 5.3).

use super::addresses::is_unicast;
use super::change::{Change, MAX_CHANGES};
use super::{Association, Cx};
use crate::wire::asconf::{AddressChange, Outcome, Request, requests};
use crate::wire::cause::code;
use ringway_sansio::Addressing;
use std::net::IpAddr;

/// Maximum number of requests processed in one ASCONF.
const MAX_ADDRESS_CHANGES: usize = 32;

impl Association {
    /// Handles an authenticated ASCONF. `addressing` is that of its packet.
    pub(super) fn handle_asconf(
        &mut self,
        cx: &mut Cx<'_>,
        addressing: &Addressing,
        serial: u32,
        value: &[u8],
    ) {
        // Section 5.1.1, C4.
        if !self.takes_data() && !self.sends_data() {
            return;
        }
        let Addressing { source, destination, udp_port, .. } = *addressing;
        let way =
            Addressing { udp_port, ..Addressing::new(destination, source, addressing.protocol) };
        if !self.asconf_mut().expects(serial, way) {
            return;
        }
        let answer = self.perform_all(cx, addressing, value);
        self.asconf_mut().answer(way, serial, answer);
    }

    /// Performs the requests in order. Returns the answer, which is empty when all succeeded (V1, V2).
    fn perform_all(&mut self, cx: &mut Cx<'_>, from: &Addressing, value: &[u8]) -> Vec<u8> {
        let Some((_, list)) = requests(value) else { return Vec::new() };
        let mut results: Vec<(Outcome, &[u8])> = Vec::new();
        let mut short = false;
        for Request { correlation, change, whole } in list.take(MAX_ADDRESS_CHANGES) {
            let cause = match change {
                None => Some(code::UNRECOGNIZED_PARAMETERS),
                // F11.
                Some(AddressChange::Add(_) | AddressChange::Delete(_)) if short => {
                    Some(code::RESOURCE_SHORTAGE)
                }
                Some(change) => self.perform_change(cx, from, change),
            };
            short |= cause == Some(code::RESOURCE_SHORTAGE);
            results.push((Outcome { correlation, cause }, whole));
        }
        let mut answer = Vec::new();
        if results.iter().any(|(outcome, _)| outcome.cause.is_some()) {
            for (outcome, whole) in results {
                outcome.emit(whole, &mut answer);
            }
        }
        answer
    }

    /// Performs one request. Returns `None` on success, or the cause code of the refusal.
    fn perform_change(
        &mut self,
        cx: &mut Cx<'_>,
        from: &Addressing,
        change: AddressChange,
    ) -> Option<u16> {
        let named = change.address();
        let address = if named.is_unspecified() { from.source } else { named };
        if self.pending.changes.len() >= MAX_CHANGES {
            return Some(code::RESOURCE_SHORTAGE);
        }
        match change {
            AddressChange::Add(_) => self.add_remote(cx, from, address),
            AddressChange::Delete(_) if named.is_unspecified() => {
                let others: Vec<IpAddr> =
                    self.remotes().filter(|remote| *remote != from.source).collect();
                // All addresses but the source are deleted, if the source is one of them.
                if self.path_to(from.source).is_none() {
                    return Some(code::DELETE_LAST_ADDRESS);
                }
                for other in others {
                    self.remove_remote(cx, other);
                }
                None
            }
            AddressChange::Delete(_) => {
                self.path_to(address)?;
                if self.remotes().count() == 1 {
                    return Some(code::DELETE_LAST_ADDRESS);
                }
                if address == from.source {
                    return Some(code::DELETE_SOURCE_ADDRESS);
                }
                self.remove_remote(cx, address);
                None
            }
            AddressChange::Primary(_) => {
                // Section 5.4: the request is advice, and an unknown address is ignored.
                let path = self.path_to(address)?;
                if self.set_primary(address).is_err() {
                    self.paths[path].heartbeat.request();
                    self.asconf_mut().request_primary(address);
                }
                self.pending.changes.push_back(Change::PeerPrimary(address));
                None
            }
        }
    }

    fn add_remote(&mut self, cx: &mut Cx<'_>, from: &Addressing, address: IpAddr) -> Option<u16> {
        if self.path_to(address).is_some() {
            return None;
        }
        if !is_unicast(address) {
            return Some(code::UNRESOLVABLE_ADDRESS);
        }
        // F14: a new address is verified before it is used.
        let here = (address == from.source).then_some(from.destination);
        self.add_path(address, here, false, cx.now);
        let Some(index) = self.path_to(address) else { return Some(code::RESOURCE_SHORTAGE) };
        let path = &mut self.paths[index];
        if here.is_some() {
            path.encapsulate(from.udp_port);
        }
        path.heartbeat.request();
        path.plan_beat(cx.now, &self.settings, cx.random);
        self.pending.changes.push_back(Change::PeerAddressAdded(address));
        None
    }

    /// Removes an address of the peer (F12 and F13).
    fn remove_remote(&mut self, cx: &Cx<'_>, address: IpAddr) {
        let Some(index) = self.path_to(address) else { return };
        self.remove_path(cx.now, index);
        self.pending.changes.push_back(Change::PeerAddressDeleted(address));
    }
}
