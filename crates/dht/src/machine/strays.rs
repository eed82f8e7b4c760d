//! CHECK and ASTRAY, and the rounds over records that this router is no keeper of any more.

use std::collections::BTreeMap;

use ringway_mesh::NodeId;
use ringway_mesh::crypto::Crypto;
use ringway_sansio::{Random, Time};

use super::Dht;
use crate::output::Message;
use crate::positions::Cursor;
use crate::repair;
use crate::search::Desk;
use crate::shares::cost;
use crate::strays::Check;
use crate::wire::{Copy, MAX_COPIES, NotRenewed, Packet, Span};

impl<C: Crypto> Dht<C> {
    /// Goes on with a round over the records that others should keep.
    pub(super) fn seek_strays(&mut self, now: Time, random: &mut dyn Random) {
        while let Some(check) = self.strays.take_unanswered(now) {
            self.send_check(now, check, random);
        }
        let (is_due, is_new) = self.strays.timeout(now);
        if !is_due {
            return;
        }
        let kept = self.neighbours.kept();
        if is_new {
            let all = Span { first: NodeId::new(0), last: NodeId::new(u64::MAX) };
            self.table.uncheck(kept.unwrap_or(all));
        }
        let mut records = Vec::new();
        if let (Some(kept), Some(after)) = (kept, self.strays.next()) {
            let (first, last) = (kept.last.raw().wrapping_add(1), kept.first.raw().wrapping_sub(1));
            let others = Span { first: NodeId::new(first), last: NodeId::new(last) };
            let unchecked = self.table.unchecked(now, others, after).take(MAX_COPIES);
            records.extend(unchecked.map(|entry| (entry.slot(), entry.copy())));
        }
        if records.is_empty() {
            self.strays.end_round(now);
        } else if !self.send_check(now, Check::new(self.id(), records, true), random) {
            self.strays.postpone(now);
        }
    }

    /// Asks the owner of the first key for records, if the share of whoever has caused that allows it.
    fn send_check(&mut self, now: Time, check: Check, random: &mut dyn Random) -> bool {
        let copies: Vec<Copy> = check.records.iter().map(|&(_, copy)| copy).collect();
        let Some(key) = copies.first().map(|copy| copy.key) else { return false };
        let request = random.next_u64() as u32 | 1;
        let message = Message::to(key, &Packet::Check { request, copies });
        let is_paid = bench!(self, now).spend(check.cause, message);
        if is_paid {
            self.strays.begin(now, request, check);
        }
        is_paid
    }

    /// Handles CHECK: answers what this router would have as a keeper, and does not.
    pub(super) fn check(&mut self, now: Time, origin: NodeId, request: u32, copies: &[Copy]) {
        let reason = |copy: Copy| match () {
            () if !self.neighbours.keeps(copy.key) => Some(NotRenewed::Elsewhere),
            () if self.table.has(copy) => None,
            () if self.is_settled(now, copy.key) => Some(NotRenewed::Unknown),
            () => Some(NotRenewed::Unsettled),
        };
        let exceptions =
            (0..).zip(copies).filter_map(|(at, &copy)| Some((at, reason(copy)?))).collect();
        let leaves = self.neighbours.leaves().clone();
        let message = Message::to(origin, &Packet::Renewed { request, leaves, exceptions });
        if self.may_answer(now, origin, cost(message.octets.len(), self.hops)) {
            self.out.push(message);
        }
    }

    /// Handles ASTRAY: asks for those of the records that are this router's.
    pub(super) fn astray(
        &mut self,
        now: Time,
        origin: NodeId,
        copies: Vec<Copy>,
        random: &mut dyn Random,
    ) {
        if !self.strays.has_room() {
            return;
        }
        let own = self.id();
        let copies = self.publications.take_due_checks(now, copies);
        let records = copies.into_iter().map(|copy| ((copy.key, own), copy)).collect();
        self.send_check(now, Check::new(origin, records, false), random);
    }

    /// Handles the answer to CHECK.
    pub(super) fn checked(
        &mut self,
        now: Time,
        request: u32,
        exceptions: &[(u8, NotRenewed)],
        random: &mut dyn Random,
    ) {
        let Some(check) = self.strays.end(request) else { return };
        let mut lacking: BTreeMap<NodeId, Vec<Copy>> = BTreeMap::new();
        // Behind the last record before the first that others keep the round goes on.
        let (mut after, mut is_elsewhere, mut is_open) = (None, false, false);
        for (at, &(slot, copy)) in (0u8..).zip(&check.records) {
            let exception = exceptions.iter().find(|(index, _)| *index == at);
            match exception.map(|(_, reason)| *reason) {
                None => self.table.set_checked(slot, copy),
                Some(NotRenewed::Elsewhere) => is_elsewhere = true,
                Some(NotRenewed::Unsettled) => is_open = true,
                Some(NotRenewed::Unknown) => {
                    is_open = true;
                    lacking.entry(slot.1).or_default().push(copy);
                }
            }
            if !is_elsewhere {
                after = Some(Cursor::new(slot.0, slot.1));
            }
        }
        if check.of_round {
            let failed = after.is_none();
            let skipped = check.records.first().map(|(slot, _)| Cursor::last(slot.0));
            let due = now + self.config.repair_pace;
            self.strays.advance(due, after.or(skipped), is_open || failed, failed);
        }
        let own = self.id();
        for (signer, copies) in lacking {
            if signer == own {
                self.publications.write_astray(&mut desk!(self, now, random), &copies);
            } else {
                let message = Message::to(signer, &Packet::Astray { copies });
                bench!(self, now).spend(signer, message);
            }
        }
    }
}
