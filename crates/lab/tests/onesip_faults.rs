//! All routers as one SIP server through random faults, and after them: whatever happened, nothing acknowledged is lost,
//! nothing goes round, and everybody reaches everybody. A seed that fails is run alone with
//! `SIP_FAULTS=SEED cargo test -p ringway-lab --test onesip_faults`.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "onesip_checks/mod.rs"]
mod checks;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use checks::full_name;
use ringway_directory::{Account, Command, Secret};
use ringway_lab::onesip::users::OUTSIDE;
use ringway_lab::onesip::{Network, PhoneTimes, Settings};
use ringway_link::Chance;
use ringway_proxy::routes::Share;
use ringway_sansio::{Duration, Random, SplitMix, Time};
use ringway_sim::graph::faults::{Churn, Outages, Skew};
use ringway_sim::graph::{Adjacency, Fault, FaultRates, Faults, LinkModel, Topology};

/// Time of the faults, of the calm before and of the calm after, in seconds.
const BUILD: u64 = 30;
const FAULTS: u64 = 90;
const CALM: u64 = 90;
/// Time between two looks at what must always hold, in seconds.
const LOOK: u64 = 5;
/// Seeds of a test without `SIP_FAULTS`; `make soak` has thousands.
const SEEDS: u64 = 12;
/// Users of each router.
const USERS: u32 = 2;
/// Pairs who call each other at last, and the time within which each callee rings.
const PAIRS: u64 = 40;
const RINGS_WITHIN: Duration = Duration::from_secs(4);
/// Time in seconds from the end of a router until all its users are registered at another one.
const HOMELESS: u64 = 60;
/// Time from the INVITE of a call until all who watch a party see that it is answered. The callee rings for a second of it.
const SHOWN_WITHIN: Duration = Duration::from_secs(4);

fn outages(per_minute: f64, median_s: u64) -> Outages {
    Outages { per_minute, median: Duration::from_secs(median_s) }
}

fn rates(seed: u64, loss: Chance) -> FaultRates {
    let is = |bit: u64| seed >> bit & 1 == 1;
    let churn = Churn { session: Duration::from_secs(120), absence: Duration::from_secs(10) };
    let skew = Skew { ahead: Duration::from_secs(100), drift_ppm: 200 };
    FaultRates {
        from: Time::from_secs(BUILD),
        until: Time::from_secs(BUILD + FAULTS),
        crashes: outages(if is(0) { 3.0 } else { 0.5 }, 5),
        flaps: outages(if is(1) { 10.0 } else { 1.0 }, 4),
        losses: (outages(10.0, 20), loss),
        splits: outages(if is(2) { 1.0 } else { 0.0 }, 20),
        churn: is(3).then_some(churn),
        skew: is(4).then_some(skew),
    }
}

fn topology(seed: u64) -> Topology {
    let mut random = SplitMix::new(seed);
    let topology = match seed % 5 {
        0 => Topology::grid(4, 4),
        1 => Topology::line(10),
        2 => Topology::tree(16, 3),
        3 => Topology::small_world(20, 4, 0.2, &mut random),
        _ => Topology::disk(24, 6.0, &mut random),
    };
    topology.largest_part()
}

/// Returns whether all others reach each other without this node.
fn hold_together_without(adjacency: &Adjacency, node: u32) -> bool {
    let mut reached = vec![false; adjacency.nodes() as usize];
    let mut next = vec![u32::from(node == 0)];
    while let Some(at) = next.pop() {
        if at != node && !core::mem::replace(&mut reached[at as usize], true) {
            next.extend(adjacency.neighbours(at));
        }
    }
    reached.iter().filter(|reached| !**reached).count() == 1
}

/// A run of one seed.
struct Run {
    network: Network,
    faults: Faults,
    crashes: Vec<Time>,
    random: SplitMix,
    acknowledged: checks::Acknowledged,
    /// The routers with a way to the other domain.
    gateways: [u32; 2],
    /// Two routers that add the same name, and that name.
    rivals: [u32; 2],
    contested: String,
    /// A router without which the others still reach each other.
    dispensable: u32,
}

impl Run {
    fn new(seed: u64) -> Result<Run, String> {
        let text = |error: ringway_sim::Error| error.to_string();
        let link = LinkModel::new(Duration::from_millis(1));
        let adjacency = Adjacency::new(&topology(seed), |_, _| link).map_err(text)?;
        let loss = Chance::percent(30.0).map_err(|error| error.to_string())?;
        let schedule = rates(seed, loss).draw(&adjacency, seed).map_err(text)?;
        let is_crash = |fault: &Fault| matches!(fault, Fault::Crash { .. });
        let crashes = schedule.faults().iter().filter(|(_, fault)| is_crash(fault));
        let crashes = crashes.map(|&(at, _)| at).collect();
        let routers = adjacency.nodes();
        let homes: Vec<u32> = (0..USERS * routers).map(|user| user % routers).collect();
        let mut settings = Settings::new(homes, seed);
        settings.directory.audit = Duration::from_secs(20);
        let talk = Duration::from_secs(5);
        settings.phones =
            PhoneTimes { expires: Duration::from_secs(60), ring: Duration::from_secs(1), talk };
        // One is cheaper, or they share the load.
        let gateways = [seed as u32 % routers, (seed as u32 + routers / 3) % routers];
        let cost = |at: usize| if at == 0 { 10 } else { 10 + (seed % 2) as u16 };
        let share = |at| Share { cost: cost(at), capacity: 1 };
        settings.gateways = gateways.into_iter().zip([share(0), share(1)]).collect();
        let dispensable =
            (0..routers).rev().find(|&router| hold_together_without(&adjacency, router));
        let dispensable = dispensable.unwrap_or_default();
        let network = Network::new(adjacency, settings).map_err(text)?;
        let mut random = SplitMix::new(seed ^ 0xfa);
        let first = (random.next_u64() % u64::from(routers)) as u32;
        let rivals = [first, (first + routers / 2) % routers];
        let contested = full_name(network.roster().len());
        let (faults, acknowledged) = (Faults::new(schedule), checks::Acknowledged::default());
        Ok(Run {
            network,
            faults,
            crashes,
            random,
            acknowledged,
            gateways,
            rivals,
            contested,
            dispensable,
        })
    }

    fn draw(&mut self, below: u32) -> u32 {
        (self.random.next_u64() % u64::from(below.max(1))) as u32
    }

    fn draw_user(&mut self) -> u32 {
        self.draw(self.network.roster().len())
    }

    /// Every third user is not at home.
    fn somewhere(&mut self, user: u32) -> u32 {
        match user % 3 {
            0 => self.draw(self.network.graph.len()),
            _ => self.network.roster().home(user).unwrap_or_default(),
        }
    }

    /// What users do in a second.
    fn act(&mut self, second: u64) {
        if second == BUILD / 2 {
            for user in 0..self.network.roster().len() {
                let location = self.somewhere(user);
                self.network.come(location, user);
            }
        }
        if second >= BUILD && second.is_multiple_of(20) {
            // Those that have crashed have nobody who watches.
            checks::watch(&mut self.network);
        }
        if second >= BUILD + FAULTS / 2 {
            self.claim();
        }
        if !(BUILD..BUILD + FAULTS).contains(&second) {
            return;
        }
        let (from, to) = (self.draw_user(), self.draw_user());
        let to = if second % 5 == 1 { OUTSIDE + to } else { to };
        if let Some(location) = self.network.location(from) {
            match second % 3 {
                0 => self.network.message(location, from, to),
                _ => self.network.call(location, from, to),
            };
        }
        if second.is_multiple_of(7) {
            let user = self.draw_user() / 3 * 3;
            let politely = self.draw(2) == 0;
            if let Some(location) = self.network.location(user) {
                self.network.go(location, user, politely);
            }
            let location = self.somewhere(user);
            self.network.come(location, user);
        }
    }

    /// Two routers add a user of the same name, and have it registered. They would know that after a restart.
    fn claim(&mut self) {
        for router in self.rivals {
            let name = self.contested.clone();
            let account = Account { password_set: 100, ..Account::default() };
            self.network.act(router, |node, now| {
                if !node.directory().accounts().is_own(&name) {
                    let name: Box<str> = name.into();
                    let secret = Secret::default();
                    node.command(now, Command::SetAccount { name: name.clone(), account, secret });
                    node.command(now, Command::Register { name, preference: 1_000 });
                }
            });
        }
    }

    /// What must always hold.
    fn look(&mut self) -> Result<(), String> {
        checks::state_is_bounded(&self.network)?;
        checks::requests_do_not_loop(&self.network)?;
        checks::no_call_reaches_a_stale_contact(&mut self.network)?;
        self.acknowledged.are_kept(&self.network, &self.crashes)
    }

    /// Returns whether all routers with a way to the other domain run.
    fn has_gateways(&self) -> bool {
        self.gateways.iter().all(|&router| self.network.graph.node(router).is_some())
    }

    /// Calls between pairs of users, and to the other domain, all within a second.
    fn call_pairs(&mut self) -> Result<usize, String> {
        let mut begun = 0;
        for number in 0..PAIRS {
            let from = self.draw_user();
            let to = self.draw_user();
            let is_outside = number % 4 == 1 && self.has_gateways();
            let to = if is_outside { OUTSIDE + to } else { to };
            if from != to
                && let Some(location) = self.network.location(from)
            {
                begun += usize::from(self.network.call(location, from, to));
            }
            if number % 4 == 0 {
                let pause = Duration::from_millis(100);
                self.network.run(pause).map_err(|error| error.to_string())?;
            }
        }
        Ok(begun)
    }

    /// Two users talk: everybody who watches them sees it, and its end.
    fn lamps(&mut self) -> Result<(), String> {
        let text = |error: ringway_sim::Error| error.to_string();
        checks::lamps_show_what_is(&mut self.network, &[])?;
        let users = self.network.roster().len();
        let (from, to) = (self.draw_user(), self.draw_user());
        let to = if from == to { (to + 1) % users } else { to };
        let Some(location) = self.network.location(from) else { return Ok(()) };
        self.network.call(location, from, to);
        self.network.run(SHOWN_WITHIN).map_err(text)?;
        checks::lamps_show_what_is(&mut self.network, &[from, to])
            .map_err(|error| format!("u{from} and u{to} talk: {error}"))?;
        self.network.run(Duration::from_secs(10)).map_err(text)?;
        checks::lamps_show_what_is(&mut self.network, &[])
            .map_err(|error| format!("after a call of u{from} and u{to}: {error}"))
    }

    /// One router ends for good. Its users, and those of others who were there, go to another one, register there though their home
    /// may be the one that has ended, call and are called.
    fn stop_a_home(&mut self) -> Result<(), String> {
        let gone = self.dispensable;
        self.network.graph.stop(gone).map_err(|error| error.to_string())?;
        let (users, roster) = (0..self.network.roster().len(), self.network.roster().clone());
        let other = (gone + 1) % self.network.graph.len();
        let is_affected = |user: &u32| {
            roster.home(*user) == Some(gone) || self.network.location(*user) == Some(gone)
        };
        let affected: Vec<u32> = users.filter(is_affected).collect();
        for &user in &affected {
            if let Some(before) = self.network.location(user) {
                self.network.go(before, user, false);
            }
            self.network.come(other, user);
        }
        let text = |error: ringway_sim::Error| error.to_string();
        self.network.run(Duration::from_secs(HOMELESS)).map_err(text)?;
        checks::everybody_is_registered(&self.network)?;
        self.network.take_calls();
        let mut begun = 0;
        for &user in &affected {
            let peer = self.network.roster().len() - 1 - user;
            for (from, to) in [(user, peer), (peer, user)] {
                if from != to
                    && let Some(location) = self.network.location(from)
                {
                    begun += usize::from(self.network.call(location, from, to));
                }
            }
        }
        self.network.run(Duration::from_secs(60)).map_err(text)?;
        checks::everybody_was_reached(&self.network.take_calls(), begun, RINGS_WITHIN)
    }

    fn run(&mut self) -> Result<(), String> {
        let text = |error: ringway_sim::Error| error.to_string();
        for second in 0..=BUILD + FAULTS + CALM {
            self.network.run_until(&mut self.faults, Time::from_secs(second)).map_err(text)?;
            self.act(second);
            if second.is_multiple_of(LOOK) {
                let at = |error| format!("after {second} s: {error}");
                self.look().map_err(at)?;
            }
        }
        checks::names_have_one_owner(&self.network)?;
        checks::everybody_is_registered(&self.network)?;
        self.network.take_calls();
        let begun = self.call_pairs()?;
        self.network.run(Duration::from_secs(60)).map_err(text)?;
        let calls = self.network.take_calls();
        checks::everybody_was_reached(&calls, begun, RINGS_WITHIN)?;
        self.look()?;
        let (contested, rivals) = (self.contested.clone(), self.rivals);
        checks::names_are_unique(&mut self.network, &contested, rivals)?;
        self.lamps()?;
        self.stop_a_home()?;
        checks::lamps_show_what_is(&mut self.network, &[])?;
        for user in 0..self.network.roster().len() {
            if let Some(location) = self.network.location(user) {
                self.network.go(location, user, false);
            }
        }
        // Longer than any timer of a transaction.
        self.network.run(Duration::from_secs(40)).map_err(text)?;
        checks::nothing_is_left(&self.network)
    }
}

#[test]
fn whatever_happened_everybody_reaches_everybody_afterwards() {
    let seeds: Vec<u64> = match std::env::var("SIP_FAULTS") {
        Ok(range) => match range.split_once("..") {
            Some((from, to)) => (from.parse().unwrap()..to.parse().unwrap()).collect(),
            None => vec![range.parse().unwrap()],
        },
        Err(_) => (0..SEEDS).collect(),
    };
    let run = |&seed: &u64| {
        let error = Run::new(seed).and_then(|mut run| run.run()).err()?;
        let again = "cargo test --release -p ringway-lab --test onesip_faults";
        Some(format!("SIP_FAULTS={seed} {again}    # {error}"))
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let seeds = std::iter::from_fn(|| seeds.get(next.fetch_add(1, Relaxed)));
        seeds.filter_map(run).collect::<Vec<String>>()
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        runs.into_iter().flat_map(|run| run.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), seeds.len(), failed.join("\n"));
}
