//! LIST and LISTED.

use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_sansio::{Random, Time};

use super::{Dht, Event};
use crate::config::Config;
use crate::listing::list;
use crate::output::Message;
use crate::positions::{Cursor, Stretch};
use crate::record::Record;
use crate::scans::Listed;
use crate::search::Desk;
use crate::shares::{SPARE_FOR_LISTS, cost};

impl<C: Crypto> Dht<C> {
    /// Lists records that this router owns, as far as the share of who asks allows that.
    pub(super) fn list(
        &mut self,
        now: Time,
        origin: NodeId,
        (request, kind, anyhow): (u32, u8, bool),
        stretch: Stretch,
    ) {
        let (key, owned) = (stretch.first.key(), self.neighbours.owned());
        if !self.config.listable.contains(kind) {
            self.counters.refused += 1;
            return;
        }
        let settled = self.is_settled(now, key);
        if !owned.contains(key) || !(settled || anyhow) {
            return;
        }
        let is_claimed = self.config.claims.contains(kind);
        for packet in list(&self.table, owned, (request, kind, settled), is_claimed, stretch) {
            let message = Message::to(origin, &packet);
            let cost = cost(message.octets.len(), self.hops);
            if !self.may_list(now, origin, cost) {
                break;
            }
            self.out.push(message);
        }
    }

    /// Returns whether the share of another router allows a part of a list that costs so much.
    fn may_list(&mut self, now: Time, origin: NodeId, cost: u64) -> bool {
        let Config { lists, origins, .. } = self.config;
        let is_free = origin == self.id() || self.has_spare(now, SPARE_FOR_LISTS);
        is_free || self.lists.spend(now, lists, origins, origin, cost)
    }

    /// Handles LISTED. It counts only of a router that may own the positions, and only as far as that may own them.
    pub(super) fn listed(
        &mut self,
        now: Time,
        origin: NodeId,
        listed: Listed,
        records: Vec<Record>,
        random: &mut dyn Random,
    ) {
        let Some(kind) = self.scans.kind_of(listed.request) else { return };
        if !self.may_keep(now, origin, listed.stretch.first.key()) {
            return;
        }
        let mut verified = Vec::with_capacity(records.len());
        for record in records {
            match self.signer(&record) {
                Some(signer) if record.kind() == kind && !record.is_withdrawal() => {
                    verified.push((Cursor::new(record.key(), signer), record));
                }
                Some(_) => {}
                None => self.counters.forged += 1,
            }
        }
        let mut desk = desk!(self, now, random);
        let stretch = match origin == desk.identity.id() {
            true => listed.stretch,
            false => listed.stretch.until(origin, desk.measure.reach),
        };
        let found = self.scans.listed(&mut desk, Listed { stretch, records: verified, ..listed });
        let scanned = self.scans.timeout(&mut desk);
        found.into_iter().for_each(|(id, records)| self.notify(Event::Listed(id, records)));
        scanned.into_iter().for_each(|(id, end)| self.notify(Event::Scanned(id, end)));
    }
}
