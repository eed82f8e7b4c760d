//! Many nodes and contacts on one database, in virtual time: the code of the server over a model of Redis.
//!
//!     cargo run --release -p ringway-cluster --example scale [-- NODES CONTACTS]
//!
//! Without numbers, 100 nodes and ten million contacts: some 5 GB of memory. What is printed is the table in
//! `docs/cluster.md`.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod database;
mod world;

use ringway_sansio::{Duration, Time};

use world::{Cluster, LIFETIME, Measured};

/// Registrations a second while the nodes fill.
const FILL_RATE: u64 = 8000;
/// Calls a second.
const CALL_RATE: u64 = 2000;
/// Time that a phase lasts at least.
const PHASE: Duration = Duration::from_secs(30);
/// Time within which the phones of a node that has died register elsewhere.
const RETURN: Duration = Duration::from_secs(60);
/// Time for which the database is down while a replica is promoted.
const PROMOTION: Duration = Duration::from_secs(2);
/// The longest phase.
const LIMIT: Duration = Duration::from_secs(3600);

/// Numbers that look random and are the same each time (Knuth's MMIX).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

struct Run {
    cluster: Cluster,
    numbers: Numbers,
    nodes: usize,
    users: usize,
}

/// What happens in a phase: how many registrations and calls a second, and who registers.
#[derive(Clone, Copy)]
struct Load {
    registrations: u64,
    whose: Whose,
    calls: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Whose {
    /// Each user once, in order.
    Each,
    /// Some users, refreshed.
    Some,
    /// Each user of this node once, who moves to another.
    Of(usize),
}

impl Run {
    fn new(nodes: usize, users: usize) -> Self {
        let mut cluster = Cluster::new(nodes, users);
        cluster.listeners = 1;
        let mut run = Run { cluster, numbers: Numbers(1), nodes, users };
        run.until(run.cluster.now + Duration::from_secs(3));
        assert_eq!(run.cluster.ready(), nodes, "not all nodes are ready");
        run
    }

    fn until(&mut self, end: Time) {
        while self.cluster.next().is_some_and(|at| at <= end) {
            self.cluster.step();
        }
        self.cluster.now = end;
    }

    /// A node that lives.
    fn any_node(&mut self) -> usize {
        loop {
            let node = self.numbers.below(self.nodes);
            if self.cluster.lives(node) {
                return node;
            }
        }
    }

    /// Runs with this load until `done`, at least for a time, and prints what was seen. `done` is asked each second.
    fn phase(
        &mut self,
        name: &str,
        load: Load,
        least: Duration,
        done: impl Fn(&Cluster, usize) -> bool,
    ) {
        let began = self.cluster.now;
        let before = (self.cluster.database.busy, self.cluster.database.messages);
        let (published, outages) = (self.cluster.published(), self.cluster.outages());
        self.cluster.measured = Measured::default();
        let (mut registered, mut called) = (0, 0);
        let movers: Vec<usize> = match load.whose {
            Whose::Of(node) => {
                (0..self.users).filter(|u| usize::from(self.cluster.homes[*u]) == node).collect()
            }
            _ => Vec::new(),
        };
        loop {
            let elapsed = self.cluster.now - began;
            let is_whole = elapsed.subsec_nanos() == 0;
            if is_whole && elapsed >= least && done(&self.cluster, registered) || elapsed > LIMIT {
                break;
            }
            // A thousandth of a second after the other, each with its part.
            let tick = elapsed.as_millis() as u64 + 1;
            while (registered as u64) < load.registrations * tick / 1000 {
                let user = match load.whose {
                    Whose::Each if registered < self.users => registered,
                    Whose::Of(_) if registered < movers.len() => {
                        let node = self.any_node();
                        self.cluster.homes[movers[registered]] = node as u16;
                        movers[registered]
                    }
                    Whose::Some => self.user_who_can_register(),
                    _ => break,
                };
                registered += 1;
                self.cluster.register(user);
            }
            while called < load.calls * tick / 1000 {
                let (node, user) = (self.any_node(), self.numbers.below(self.users));
                self.cluster.call(node, user);
                called += 1;
            }
            self.until(began + Duration::from_millis(tick));
        }
        let time = self.cluster.now - began;
        self.until(self.cluster.now + Duration::from_secs(3));
        let database = &self.cluster.database;
        let busy = (database.busy - before.0).as_secs_f64() / (time.as_secs_f64() + 3.0);
        let heard = (database.messages - before.1) as f64 / (time.as_secs_f64() + 3.0);
        let changes = self.cluster.published() - published;
        let outages = self.cluster.outages() - outages;
        let m = &mut self.cluster.measured;
        let (stored, located) = (quantiles(&mut m.stored), quantiles(&mut m.located));
        println!(
            "| {name} | {} s | {:.0} % | {heard:.0} | {} ({} refused) | {stored} | {} ({} unanswered, {} astray) | \
             {located} | {} | {} |",
            time.as_secs(),
            busy * 100.0,
            m.stored.len(),
            m.refused,
            m.located.len(),
            m.unanswered,
            m.astray,
            changes,
            outages,
        );
    }

    fn user_who_can_register(&mut self) -> usize {
        loop {
            let user = self.numbers.below(self.users);
            if self.cluster.lives(usize::from(self.cluster.homes[user])) {
                return user;
            }
        }
    }
}

/// Median, 99 of 100 and maximum in milliseconds.
fn quantiles(micros: &mut [u32]) -> String {
    if micros.is_empty() {
        return "-".to_owned();
    }
    micros.sort_unstable();
    let at = |share: f64| f64::from(micros[((micros.len() - 1) as f64 * share) as usize]) / 1000.0;
    format!("{:.1} / {:.1} / {:.1}", at(0.5), at(0.99), at(1.0))
}

/// Resident memory of this process in bytes.
fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0.0) * 4096.0
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let nodes = numbers.first().copied().unwrap_or(100);
    let users = numbers.get(1).copied().unwrap_or(10_000_000);
    println!("{nodes} nodes, {users} contacts, each refreshed once in {} s\n", LIFETIME.as_secs());
    println!(
        "| phase | time | database busy | messages/s | registrations | REGISTER to 200, ms: median / 99 of 100 / max | \
         calls | wait for the database, ms | changes published | times taken for absent |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    let mut run = Run::new(nodes, users);
    let before = resident();
    let refreshes = users as u64 / LIFETIME.as_secs();
    let usual = Load { registrations: refreshes.max(1), whose: Whose::Some, calls: CALL_RATE };
    let filling = Load { registrations: FILL_RATE, whose: Whose::Each, calls: 0 };
    run.phase("all register", filling, PHASE, |_, n| n == users);
    let grown = resident() - before;
    run.cluster.listeners = nodes;
    run.phase("refreshes and calls", usual, PHASE, |_, _| true);
    // Another server is the primary: it has all, and the nodes do not know.
    run.cluster.cut();
    run.phase("the primary is lost", usual, PROMOTION, |_, _| true);
    run.cluster.restore();
    let published = run.cluster.published();
    run.phase("a replica is promoted", usual, PHASE, |c, _| {
        c.published() - published >= users as u64 && !c.database.is_busy()
    });
    let dead = nodes / 2;
    run.cluster.kill(dead);
    let lost = run.cluster.database.count_at(dead);
    let moving = Load {
        registrations: lost as u64 / RETURN.as_secs(),
        whose: Whose::Of(dead),
        calls: CALL_RATE,
    };
    run.phase("a node has died, its phones move", moving, RETURN, |_, n| n >= lost);
    run.cluster.database.lose_everything();
    run.cluster.cut();
    run.cluster.restore();
    let published = run.cluster.published();
    run.phase("the database is empty", usual, PHASE, |c, _| {
        c.published() - published >= users as u64 && !c.database.is_busy()
    });
    let missing = (0..users).filter(|user| {
        let home = usize::from(run.cluster.homes[*user]);
        run.cluster.lives(home) && !run.cluster.database.nodes_of(*user).any(|node| node == home)
    });
    println!("\nbindings of nodes that live and are not in the database: {}", missing.count());
    println!("memory of a node: {:.0} bytes a contact", grown / users as f64);
}
