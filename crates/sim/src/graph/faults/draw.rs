//! Schedules drawn from a seed.

use super::schedule::{Fault, MAX_FAULTS, Schedule};
use crate::error::Error;
use crate::graph::adjacency::Adjacency;
use crate::graph::engine::mix;
use crate::graph::random::{below, uniform};
use ringway_link::Chance;
use ringway_sansio::{Duration, Random, SplitMix, Time};

/// Faults of one kind that come independently of each other, and end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outages {
    /// Mean number a minute in the whole graph.
    pub per_minute: f64,
    /// Median of their exponentially distributed lengths.
    pub median: Duration,
}

/// Nodes that come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Churn {
    /// Median of the exponentially distributed time that a node runs.
    pub session: Duration,
    /// Median of the exponentially distributed time that it does not.
    pub absence: Duration,
}

/// Clocks that are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// Maximum time that a clock is ahead; each value up to it is equally likely.
    pub ahead: Duration,
    /// Maximum microseconds that a clock gains or loses in a second.
    pub drift_ppm: u32,
}

/// How many faults of each kind there are. Each kind and each node draws its own random numbers, so that more
/// faults of one kind change no other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRates {
    /// The time from when there are faults.
    pub from: Time,
    /// The time when all of them have ended, but wrong clocks.
    pub until: Time,
    /// Crashes of random nodes.
    pub crashes: Outages,
    /// Cuts of random links.
    pub flaps: Outages,
    /// Losses of random links, and what they lose.
    pub losses: (Outages, Chance),
    /// Splits, each of a random part of the nodes around a random one, at most half of them.
    pub splits: Outages,
    /// Nodes that come and go.
    pub churn: Option<Churn>,
    /// Clocks that are wrong from the beginning.
    pub skew: Option<Skew>,
}

impl FaultRates {
    /// Creates the rates of no faults.
    pub fn new(from: Time, until: Time) -> Self {
        let none = Outages::default();
        FaultRates {
            from,
            until,
            crashes: none,
            flaps: none,
            losses: (none, Chance::NEVER),
            splits: none,
            churn: None,
            skew: None,
        }
    }

    /// Draws a schedule for a graph with these links, all of whose nodes run.
    pub fn draw(&self, adjacency: &Adjacency, seed: u64) -> Result<Schedule, Error> {
        let mut draw = Draw { rates: self, seed, faults: Vec::new() };
        let (nodes, links) = (adjacency.nodes(), adjacency.links() as u64);
        if nodes > 0 {
            self.skew.iter().try_for_each(|skew| draw.skew(*skew, nodes))?;
            self.churn.iter().try_for_each(|churn| draw.churn(*churn, nodes))?;
            draw.outages(self.crashes, 2, |random| {
                let node = below(random, nodes.into()) as u32;
                [Fault::Crash { node }, Fault::Start { node }]
            })?;
            draw.outages(self.splits, 3, |random| {
                let from = below(random, nodes.into()) as u32;
                let nodes = 1 + below(random, (nodes / 2).max(1).into()) as u32;
                [Fault::Split { from, nodes }, Fault::Join { from, nodes }]
            })?;
        }
        if links > 0 {
            let link = |random: &mut SplitMix| adjacency.ends(below(random, links) as u32);
            draw.outages(self.flaps, 4, |random| {
                let [a, b] = link(random);
                [Fault::Cut { a, b }, Fault::Mend { a, b }]
            })?;
            let (losses, loss) = self.losses;
            draw.outages(losses, 5, |random| {
                let [a, b] = link(random);
                [Fault::Loss { a, b, loss }, Fault::EndLoss { a, b }]
            })?;
        }
        Ok(Schedule::new(draw.faults))
    }
}

impl Schedule {
    /// Returns the starts of `nodes` nodes at random times within `length` from `from`, for a graph in which
    /// none runs.
    pub fn starts(nodes: u32, from: Time, length: Duration, seed: u64) -> Schedule {
        let start = |node| {
            let after = length.mul_f64(uniform(&mut stream(seed, 6, node)));
            (from + after, Fault::Start { node })
        };
        Schedule::new((0..nodes).map(start).collect())
    }
}

/// A schedule that is drawn.
struct Draw<'a> {
    rates: &'a FaultRates,
    seed: u64,
    faults: Vec<(Time, Fault)>,
}

impl Draw<'_> {
    fn add(&mut self, at: Time, fault: Fault) -> Result<(), Error> {
        if self.faults.len() == MAX_FAULTS {
            return Err(Error::TooMany { what: "faults", max: MAX_FAULTS as u64 });
        }
        self.faults.push((at, fault));
        Ok(())
    }

    fn skew(&mut self, skew: Skew, nodes: u32) -> Result<(), Error> {
        for node in 0..nodes {
            let mut random = stream(self.seed, 0, node);
            let shows = self.rates.from + skew.ahead.mul_f64(uniform(&mut random));
            let range = 2 * u64::from(skew.drift_ppm) + 1;
            let drift = below(&mut random, range) as i64 - i64::from(skew.drift_ppm);
            let drift_ppm = drift.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            self.add(self.rates.from, Fault::Clock { node, shows, drift_ppm })?;
        }
        Ok(())
    }

    fn churn(&mut self, churn: Churn, nodes: u32) -> Result<(), Error> {
        for node in 0..nodes {
            let mut random = stream(self.seed, 1, node);
            let mut at = self.rates.from;
            loop {
                at = after(at, exponential(churn.session, &mut random));
                if at >= self.rates.until {
                    break;
                }
                self.add(at, Fault::Crash { node })?;
                at = after(at, exponential(churn.absence, &mut random)).min(self.rates.until);
                self.add(at, Fault::Start { node })?;
            }
        }
        Ok(())
    }

    /// Adds outages, of which `draw` returns the beginning and the end.
    fn outages(
        &mut self,
        outages: Outages,
        kind: u32,
        mut draw: impl FnMut(&mut SplitMix) -> [Fault; 2],
    ) -> Result<(), Error> {
        if outages.per_minute <= 0.0 {
            return Ok(());
        }
        let mut random = stream(self.seed, kind, 0);
        let between = core::f64::consts::LN_2 * 60.0 / outages.per_minute;
        let between = Duration::try_from_secs_f64(between).unwrap_or(Duration::MAX);
        let mut at = self.rates.from;
        loop {
            at = after(at, exponential(between, &mut random));
            if at >= self.rates.until {
                return Ok(());
            }
            let end = after(at, exponential(outages.median, &mut random)).min(self.rates.until);
            let [begin, finish] = draw(&mut random);
            self.add(at, begin)?;
            self.add(end, finish)?;
        }
    }
}

/// Returns the generator of one kind of fault, of one node.
fn stream(seed: u64, kind: u32, node: u32) -> SplitMix {
    SplitMix::new(mix(mix(seed, kind), node))
}

/// Returns a time later than another by a number of seconds.
fn after(at: Time, seconds: f64) -> Time {
    let nanos = (seconds * 1e9) as u64;
    Time::from_nanos(at.as_nanos().saturating_add(nanos))
}

/// Returns an exponentially distributed number of seconds with a median.
fn exponential(median: Duration, random: &mut impl Random) -> f64 {
    -(1.0 - uniform(random)).log2() * median.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{LinkModel, Topology};

    const FROM: Time = Time::from_secs(30);
    const UNTIL: Time = Time::from_secs(3_630);

    fn links(nodes: u32) -> Adjacency {
        Adjacency::new(&Topology::ring(nodes), |_, _| LinkModel::new(Duration::from_millis(1)))
            .unwrap()
    }

    fn rates() -> FaultRates {
        let outages = |per_minute, secs| Outages { per_minute, median: Duration::from_secs(secs) };
        FaultRates {
            crashes: outages(6.0, 10),
            flaps: outages(30.0, 5),
            losses: (outages(10.0, 20), Chance::new(0.3).unwrap()),
            splits: outages(0.5, 60),
            churn: Some(Churn {
                session: Duration::from_secs(1_800),
                absence: Duration::from_secs(60),
            }),
            skew: Some(Skew { ahead: Duration::from_secs(5), drift_ppm: 100 }),
            ..FaultRates::new(FROM, UNTIL)
        }
    }

    fn count(schedule: &Schedule, is: impl Fn(&Fault) -> bool) -> usize {
        schedule.faults().iter().filter(|(_, fault)| is(fault)).count()
    }

    #[test]
    fn there_are_as_many_faults_as_their_rates_say() {
        let schedule = rates().draw(&links(400), 1).unwrap();
        let times = schedule.faults().iter().map(|(at, _)| *at);
        assert!(times.clone().min() == Some(FROM) && times.max() <= Some(UNTIL));
        assert_eq!(count(&schedule, |f| matches!(f, Fault::Clock { .. })), 400);
        let flaps = count(&schedule, |f| matches!(f, Fault::Cut { .. }));
        assert!((1_650..1_950).contains(&flaps), "{flaps}");
        let splits = count(&schedule, |f| matches!(f, Fault::Split { .. }));
        assert!((18..45).contains(&splits), "{splits}");
        // A node that runs for 1800 s in the median has a session for each 2597 + 87 s.
        let crashes = count(&schedule, |f| matches!(f, Fault::Crash { .. }));
        assert!((360 + 450..360 + 620).contains(&crashes), "{crashes}");
        for (begins, ends) in [
            (crashes, count(&schedule, |f| matches!(f, Fault::Start { .. }))),
            (flaps, count(&schedule, |f| matches!(f, Fault::Mend { .. }))),
            (splits, count(&schedule, |f| matches!(f, Fault::Join { .. }))),
            (
                count(&schedule, |f| matches!(f, Fault::Loss { .. })),
                count(&schedule, |f| matches!(f, Fault::EndLoss { .. })),
            ),
        ] {
            assert_eq!(begins, ends);
        }
    }

    #[test]
    fn a_kind_of_fault_does_not_depend_on_the_others() {
        let (links, all) = (links(100), rates());
        let schedule = all.draw(&links, 7).unwrap();
        assert_eq!(schedule, all.draw(&links, 7).unwrap());
        assert_ne!(schedule, all.draw(&links, 8).unwrap());
        let only = FaultRates { churn: all.churn, ..FaultRates::new(FROM, UNTIL) };
        let churn = only.draw(&links, 7).unwrap();
        assert!(churn.faults().iter().all(|fault| schedule.faults().contains(fault)));
        let crashes = FaultRates { crashes: all.crashes, ..FaultRates::new(FROM, UNTIL) };
        let both = churn.and(crashes.draw(&links, 7).unwrap());
        let is_of_a_node = |f: &Fault| matches!(f, Fault::Crash { .. } | Fault::Start { .. });
        assert_eq!(both.faults().len(), count(&schedule, is_of_a_node));
    }

    #[test]
    fn endless_faults_are_an_error() {
        let crashes = Outages { per_minute: 1e12, median: Duration::ZERO };
        let rates = FaultRates { crashes, ..FaultRates::new(FROM, UNTIL) };
        let error = rates.draw(&links(5), 1).unwrap_err();
        assert_eq!(error.to_string(), "too many faults: at most 16777216");
        let none = FaultRates::new(FROM, UNTIL).draw(&links(0), 1).unwrap();
        assert_eq!(none, Schedule::default());
    }

    #[test]
    fn nodes_start_within_the_time_they_have() {
        let starts = Schedule::starts(1_000, FROM, Duration::from_secs(60), 3);
        let seconds: Vec<u64> = starts.faults().iter().map(|(at, _)| at.as_secs() / 10).collect();
        for tens in 3..9 {
            let started = seconds.iter().filter(|second| **second == tens).count();
            assert!((120..220).contains(&started), "{started} at {tens}0 s");
        }
        assert_eq!(seconds.len(), 1_000);
        assert!(starts.faults().iter().all(|(at, _)| *at >= FROM && at.as_secs() < 90));
    }
}
