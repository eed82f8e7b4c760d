//! Two of four addresses are removed while data flows, and two paths stay good.
//!
//! The limits of errors are the defaults: an association that ends has failed although its peer was
//! reachable.

use crate::plan::Plan;
use crate::support::{Dice, ms, secs};
use crate::wires::{ADDRESSES, Wires};
use crate::world::World;
use ringway_sctp::{AssocId, SendOptions, Settings};

/// Turns of load until the addresses are removed, and after that.
const BEFORE: u64 = 60;
const AFTER: u64 = 300;
/// How an end loses its addresses.
#[derive(Clone, Copy, Debug)]
enum Removal {
    /// Its user deletes them (RFC 5061).
    Delete,
    /// Its host has them no more.
    Vanish,
    /// Its host has them no more, and its user deletes them then.
    VanishAndDelete,
    /// Its user deletes them, and its host has them no more at once.
    DeleteAndVanish,
    /// Their links are cut, and its user deletes them then.
    CutAndDelete,
}

impl World {
    /// A world of two hosts with four addresses each.
    pub fn with_four_addresses(seed: u64, log: bool) -> World {
        let mut dice = Dice::new(seed);
        let mut plan = Plan::draw(&mut dice);
        plan.homes = 4;
        plan.dynamic = true;
        (plan.large_packets, plan.udp) = (false, false);
        (plan.crashes, plan.sleeps, plan.clocks, plan.everything) = (false, false, false, false);
        let mut wires = Wires::draw(&plan, &mut dice);
        wires.spare(&mut dice);
        World::of(dice, plan, wires, log, settings)
    }

    /// Load, in the middle of which two addresses are removed.
    pub fn remove_under_load(&mut self) {
        // Until all paths are verified.
        self.run(secs(10));
        let loser = self.dice.below(2) as usize;
        let removal = self.dice.of(&[
            Removal::Delete,
            Removal::Vanish,
            Removal::VanishAndDelete,
            Removal::DeleteAndVanish,
            Removal::CutAndDelete,
        ]);
        let both = self.dice.chance(50);
        let first = self.dice.below(4) as usize;
        let second = (first + 1 + self.dice.below(3) as usize) % 4;
        let pause = ms(self.dice.of(&[1, 5, 20]));
        let between = self.dice.of(&[0, 0, 1, 10]);
        for turn in 0..BEFORE + AFTER {
            for end in 0..2 {
                if both || end == loser {
                    self.load(end);
                }
                self.read(end, 1000);
            }
            if turn == BEFORE {
                self.remove(loser, first, removal);
            }
            if turn == BEFORE + between {
                self.remove(loser, second, removal);
            }
            self.run(pause);
            for end in &self.ends {
                assert!(end.closed.is_none(), "{removal:?} ends it: {:?}", end.closed);
            }
        }
    }

    fn load(&mut self, end: usize) {
        let Some(id) = self.ends[end].id else { return };
        for _ in 0..self.dice.below(8) {
            let size = 1 + self.dice.below(3000) as usize;
            let (ppid, data) = self.ledgers[end].next(size);
            let options = SendOptions { ppid, ..SendOptions::default() };
            let now = self.clock(end);
            if self.ends[end].host.send(now, id, &options, data).is_ok() {
                self.ledgers[end].give(&options, size);
            } else {
                self.ends[end].refused = true;
                return;
            }
        }
    }

    fn remove(&mut self, end: usize, link: usize, removal: Removal) {
        let Some(id) = self.ends[end].id else { return };
        self.tell(|| format!("{end} loses address {link}: {removal:?}"));
        match removal {
            Removal::Delete => self.delete(end, id, link),
            Removal::Vanish => self.vanish(end, id, link),
            Removal::VanishAndDelete => {
                self.vanish(end, id, link);
                self.delete(end, id, link);
            }
            Removal::DeleteAndVanish => {
                self.delete(end, id, link);
                self.vanish(end, id, link);
            }
            Removal::CutAndDelete => {
                self.wires.cut(link, self.now + secs(100_000));
                self.delete(end, id, link);
            }
        }
    }

    fn delete(&mut self, end: usize, id: AssocId, link: usize) {
        let now = self.clock(end);
        let result = self.ends[end].host.delete_address(now, id, ADDRESSES[end][link]);
        self.tell(|| format!("{end} deletes address {link}: {result:?}"));
        self.flush();
    }

    /// As the shells do: paths from an address that is gone are asked at once.
    fn vanish(&mut self, end: usize, id: AssocId, link: usize) {
        let address = ADDRESSES[end][link];
        self.wires.vanish(address);
        let paths = self.ends[end].host.snapshot(id).map(|snapshot| snapshot.paths);
        for path in paths.unwrap_or_default() {
            if path.local == address {
                let _ = self.ends[end].host.request_heartbeat(id, path.remote);
            }
        }
        self.flush();
    }
}

/// Settings drawn from the seed, or the defaults; the limits of errors are those of RFC 9260 section
/// 16.
fn settings(plan: &Plan, dice: &mut Dice, opener: bool) -> Settings {
    let drawn = plan.settings(dice, opener);
    let base = match dice.below(3) {
        0 => Settings::default(),
        1 => Settings::ss7(),
        _ => drawn,
    };
    let usual = Settings::default();
    Settings {
        dynamic_addresses: true,
        association_max_retrans: usual.association_max_retrans,
        max_init_retransmits: usual.max_init_retransmits,
        // How long the end may take is not the question here.
        shutdown_guard: Some(secs(3000)),
        mtu: 1500,
        ..base
    }
}
