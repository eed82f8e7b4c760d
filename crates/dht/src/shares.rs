//! What is spent for others: a pool, of which each of them has a share.
//!
//! A message costs what it costs the mesh: its octets at each link of its way, twice. While `n` others are being served, each
//! has the `n + 1`st part of the rate and of what may be spent at once. So all of them together leave a part for one who asks for the first time, and whoever
//! is alone has half.
//!
//! Shares are what is certain. While more than three quarters of all that can be spent at once are there, shares are not
//! counted: nobody needs it then. Repair goes on down to a half, and lists only down to seven eighths.

use std::collections::BTreeMap;

use ringway_mesh::NodeId;
use ringway_sansio::time::{Duration, Time};

use crate::config::Rate;
use crate::output::Message;
use crate::wire::{Span, TYPES, type_of};

/// Octets of the headers of a PAYLOAD.
const HEADERS: u64 = 180;
/// Eighths of the budget above which shares are not counted.
pub(crate) const SPARE: u32 = 6;
/// Eighths of the budget above which those of lists are not: what other answers need is left.
pub(crate) const SPARE_FOR_LISTS: u32 = 7;
/// Eighths of the budget above which those of repair are not.
pub(crate) const SPARE_FOR_REPAIR: u32 = 4;
/// How often those who are being served are counted.
const RECOUNT: Duration = Duration::from_millis(100);

/// Returns what a message of so many octets costs, in octet hops.
pub(crate) fn cost(octets: usize, hops: u16) -> u64 {
    (octets as u64 + HEADERS) * 2 * u64::from(hops)
}

/// A bucket of octet hops.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    /// When it is full again.
    full_at: Time,
}

impl Bucket {
    /// Returns when so much is there, if nothing else is spent; a time in the past if it is.
    pub(crate) fn ready_at(&self, rate: Rate, cost: u64) -> Time {
        let burst = u64::from(rate.burst);
        let (missing, all) = (rate.time(cost.min(burst), 1), rate.time(burst, 1));
        Time::from_nanos((self.full_at + missing).as_nanos().saturating_sub(all.as_nanos() as u64))
    }

    /// Takes so much, whether it is there or not.
    pub(crate) fn take(&mut self, now: Time, rate: Rate, cost: u64) {
        self.full_at = self.full_at.max(now) + rate.time(cost, 1);
    }

    /// Takes so much if it is there.
    pub(crate) fn spend(&mut self, now: Time, rate: Rate, cost: u64) -> bool {
        let is_there = self.ready_at(rate, cost) <= now;
        if is_there {
            self.take(now, rate, cost);
        }
        is_there
    }
}

/// What all messages cost, as the mesh counts it. What shares leave of it is spare.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purse {
    bucket: Bucket,
    /// Messages of those that wait to be sent that are paid.
    paid: usize,
    /// What was sent, by the type of the message.
    pub(crate) sent: [Sent; TYPES],
}

/// Messages of one type that were sent to other routers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sent {
    /// Their number.
    pub messages: u64,
    /// Their octets, without the headers of the mesh.
    pub octets: u64,
}

impl Purse {
    /// Pays for messages that wait to be sent, but not for those to positions that this router owns.
    pub(crate) fn pay(
        &mut self,
        now: Time,
        rate: Rate,
        (hops, owned): (u16, Span),
        out: &[Message],
    ) {
        let mut all = 0;
        let unpaid = out.iter().skip(self.paid);
        for message in unpaid.filter(|message| !owned.contains(message.to)) {
            all += cost(message.octets.len(), hops);
            let kind = type_of(&message.octets);
            self.sent[kind].messages += 1;
            self.sent[kind].octets += message.octets.len() as u64;
        }
        self.bucket.take(now, rate, all);
        // Beyond that the mesh refuses.
        self.bucket.full_at = self.bucket.full_at.min(now + rate.time(rate.burst.into(), 1));
        self.paid = out.len();
    }

    /// Notes that the messages have gone.
    pub(crate) fn clear(&mut self) {
        self.paid = 0;
    }

    /// Returns whether so many eighths of what can be spent at once are there.
    pub(crate) fn has_eighths(&self, now: Time, rate: Rate, eighths: u32) -> bool {
        self.bucket.ready_at(rate, u64::from(rate.burst / 8 * eighths)) <= now
    }
}

/// A pool, and what others have taken from it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    pool: Bucket,
    /// When each has earned what it has taken. Who has, is not in the table.
    debts: BTreeMap<NodeId, Time>,
    /// How many are being served.
    active: u64,
    recount: Time,
    /// Messages that were not sent.
    pub(crate) refused: u64,
}

impl Shares {
    /// Takes `cost` from the pool for another router. Returns whether its share allows that. At most `max` others are known.
    pub(crate) fn spend(
        &mut self,
        now: Time,
        rate: Rate,
        max: usize,
        other: NodeId,
        cost: u64,
    ) -> bool {
        if self.recount <= now {
            self.recount = now + RECOUNT;
            self.debts.retain(|_, at| *at > now);
            self.active = self.debts.len() as u64;
        }
        let known = self.debts.get(&other).copied().filter(|at| *at > now);
        let parts = self.active.max(1) + 1;
        let earned = known.unwrap_or(now) + rate.time(cost, parts);
        // Who has taken nothing may have one message, though a small share is less than that.
        let within = known.is_none() || earned.since(now) <= rate.time(rate.burst.into(), 1);
        if !within || !self.pool.spend(now, rate, cost) {
            self.refused += 1;
            return false;
        }
        if known.is_none() {
            self.make_room(max);
            self.active += 1;
        }
        self.debts.insert(other, earned);
        true
    }

    /// Forgets who has the least debt when too many are known.
    fn make_room(&mut self, max: usize) {
        if self.debts.len() >= max.max(1)
            && let Some(id) = self.debts.iter().min_by_key(|(_, at)| **at).map(|(&id, _)| id)
        {
            self.debts.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { rate: 1_000, burst: 10_000 };

    /// Has hogs ask for 100 octet hops as often as they can until `end`, and returns what each has got.
    fn hog(shares: &mut Shares, hogs: u64, begin: u64, end: u64) -> Vec<u64> {
        let mut got = vec![0; hogs as usize];
        for millis in (begin..end).step_by(10) {
            for id in 0..hogs {
                let now = Time::from_millis(millis);
                let paid = shares.spend(now, RATE, 99, NodeId::new(id + 1), 100);
                got[id as usize] += if paid { 100 } else { 0 };
            }
        }
        got
    }

    #[test]
    fn however_many_take_what_they_can_a_new_one_is_served() {
        for hogs in [1, 2, 5, 20, 60] {
            let mut shares = Shares::default();
            hog(&mut shares, hogs, 0, 60_000);
            let now = Time::from_secs(60);
            assert!(shares.spend(now, RATE, 99, NodeId::new(9_999), 900), "{hogs} hogs");
            let got = hog(&mut shares, hogs, 60_000, 160_000);
            let all: u64 = got.iter().sum();
            assert!(all <= 100 * 1_000, "{all}");
            let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
            assert!(most - least <= most / 4 + 200, "{hogs} hogs: {least} to {most}");
        }
    }

    #[test]
    fn who_is_alone_has_half_of_the_rate() {
        let mut shares = Shares::default();
        let burst = hog(&mut shares, 1, 0, 10)[0] + hog(&mut shares, 1, 10, 20)[0];
        assert!(burst <= 5_000);
        hog(&mut shares, 1, 20, 20_000);
        let got = hog(&mut shares, 1, 20_000, 120_000)[0];
        assert!((49_000..=51_000).contains(&got), "{got}");
        assert!(shares.refused > 1_000);
    }

    #[test]
    fn a_full_table_forgets_who_has_the_least_debt() {
        let mut shares = Shares::default();
        for id in 0..9 {
            shares.spend(Time::ZERO, RATE, 4, NodeId::new(id), 10 * (id + 1));
        }
        assert_eq!(shares.debts.len(), 4);
        // Who has earned what it took needs no room.
        shares.spend(Time::from_secs(60), RATE, 4, NodeId::new(1), 10);
        assert_eq!(shares.debts.len(), 1);
    }
}
