//! Properties of any world: nothing is lost from the count, order and results depend on nothing but
//! the seed. `seeds.txt` keeps every seed that once failed; they are run first, for ever.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PORT, address};
use proptest::prelude::*;
use ringway_link::loss::{GilbertElliott, RandomLoss};
use ringway_link::queue::{CodelConfig, DropTailPackets, FqCodelConfig, PieConfig, RedConfig};
use ringway_link::{
    Chance, Change, Generator, LinkConfig, Loss, LossPlace, QueueConfig, Rate, Size, Sometimes,
    Span, Streams,
};
use ringway_sansio::{Random, SplitMix, Time};
use ringway_sim::traffic::{Pattern, Sink, Source, SourceConfig, Stay, Totals};
use ringway_sim::{Bind, Census, EndpointId, Record, Records, Step, World, replicate};
use std::net::SocketAddr;

fn chance(percent: u64) -> Chance {
    Chance::percent(percent as f64).unwrap()
}

/// A link with some impairments of many.
fn some_link(r: &mut SplitMix) -> LinkConfig {
    let mut pick = |n: u64| r.next_u64() % n;
    let change = |at, up| Change { at: Span::from_millis(at), up: Some(up), ..Change::default() };
    LinkConfig {
        rate: [Rate::UNLIMITED, Rate(1_000_000), Rate(300_000)][pick(3) as usize],
        delay: Span::from_millis(pick(20)),
        jitter: Span::from_millis(pick(3) * 4),
        keep_order: pick(2) == 0,
        loss: match pick(3) {
            0 => Loss::default(),
            1 => Loss::Random(RandomLoss { chance: chance(5), correlation: chance(20) }),
            _ => Loss::GilbertElliott(GilbertElliott {
                p: chance(2),
                r: chance(30),
                bad_loss: Chance::ALWAYS,
                good_loss: Chance::NEVER,
            }),
        },
        loss_at: if pick(2) == 0 { LossPlace::BeforeQueue } else { LossPlace::AfterLink },
        duplicate: Sometimes { chance: chance(pick(3) * 5), ..Sometimes::NEVER },
        corrupt: Sometimes { chance: chance(pick(3) * 3), ..Sometimes::NEVER },
        mtu: if pick(5) == 0 { Size(900) } else { Size::UNLIMITED },
        down_keeps_queue: pick(2) == 0,
        queue: match pick(5) {
            0 => QueueConfig::DropTail(DropTailPackets { limit: 10 }),
            1 => QueueConfig::Red(RedConfig { weight: 0.1, ..RedConfig::default() }),
            2 => QueueConfig::Codel(CodelConfig::default()),
            3 => QueueConfig::Pie(PieConfig::default()),
            _ => QueueConfig::FqCodel(FqCodelConfig { flows: 8, ..FqCodelConfig::default() }),
        },
        schedule: if pick(3) == 0 { vec![change(700, false), change(900, true)] } else { vec![] },
        ..LinkConfig::default()
    }
}

/// A ring of nodes with chords, each node with a source to another node.
struct Some {
    world: World,
    sinks: Vec<EndpointId>,
    records: usize,
}

fn some_world(shape: u64, streams: Streams) -> Some {
    let mut r = SplitMix::new(shape);
    let n = 3 + (r.next_u64() % 5) as usize;
    let mut world = World::new(streams);
    let nodes: Vec<_> = (0..n).map(|i| world.add_node(&format!("n{i}")).unwrap()).collect();
    for i in 0..n {
        let next = (i + 1) % n;
        let (there, back) = (some_link(&mut r), some_link(&mut r));
        let (out, _) = world.connect(nodes[i], nodes[next], there, back).unwrap();
        world.add_address(out, address(i)).unwrap();
    }
    let (there, back) = (some_link(&mut r), some_link(&mut r));
    world.connect(nodes[0], nodes[n / 2], there, back).unwrap();
    let mut sinks = Vec::new();
    for (i, &node) in nodes.iter().enumerate() {
        let to = (r.next_u64() % n as u64) as usize;
        let rate = Rate(100_000 + r.next_u64() % 500_000);
        let pattern = match r.next_u64() % 3 {
            0 => Pattern::Constant(rate),
            1 => Pattern::Poisson(rate),
            _ => Pattern::OnOff {
                rate,
                on: Span::from_millis(50),
                off: Span::from_millis(50),
                stay: Stay::Exponential,
            },
        };
        let destination = SocketAddr::new(address(to), PORT);
        let config = SourceConfig {
            pattern,
            packet: Size(100 + r.next_u64() % 1300),
            stop: Time::from_millis(1500),
            ..SourceConfig::ns2(SocketAddr::new(address(i), 1000), destination)
        };
        let stream = streams.stream(&format!("n{i}/source"));
        world.attach(node, Bind::udp(1000), Source::new(config, stream)).unwrap();
        sinks.push(world.attach(node, Bind::udp(PORT), Sink::keeping()).unwrap());
    }
    let records = world.add_recorder(Records::default());
    Some { world, sinks, records }
}

/// Everything a run gives.
type Outcome = (Census, Vec<Totals>, Vec<Record>);

fn outcome(shape: u64, streams: Streams, steps: &[u64]) -> Outcome {
    let mut some = some_world(shape, streams);
    for &ms in steps {
        some.world.run_until(Time::from_millis(ms)).unwrap();
    }
    let totals =
        some.sinks.iter().map(|&s| *some.world.endpoint::<Sink>(s).unwrap().totals()).collect();
    let records = some.world.take_recorder::<Records>(some.records).unwrap().0;
    (some.world.census(), totals, records)
}

/// Every packet is delivered, dropped, waiting or on its way, at any time; in the end none is on
/// its way.
fn conserves(shape: u64) {
    let mut some = some_world(shape, Streams::new(shape, 0));
    for step in 1..=20u64 {
        some.world.run_until(Time::from_millis(step * step * 5)).unwrap();
        let c = some.world.census();
        assert_eq!(
            c.sent + c.copied,
            c.delivered + c.dropped + c.waiting + c.on_the_way,
            "{shape} {c:?}"
        );
    }
    some.world.run_until(Time::from_secs(1000)).unwrap();
    let c = some.world.census();
    assert_eq!((c.waiting, c.on_the_way), (0, 0), "{shape} {c:?}");
    let received: u64 = some
        .sinks
        .iter()
        .map(|&s| some.world.endpoint::<Sink>(s).unwrap().totals())
        .map(|t| t.packets + t.damaged)
        .sum();
    assert_eq!(received, c.delivered);
    let dropped = some.world.recorder::<Records>(some.records).unwrap().0.iter();
    let dropped = dropped.filter(|r| matches!(r.step, Step::Drop(_))).count();
    assert_eq!(dropped as u64, c.dropped);
}

/// Stopping on the way, and how often, changes nothing; nor does a second run.
fn repeats(shape: u64) {
    let at_once = outcome(shape, Streams::new(shape, 3), &[2_000]);
    let in_steps: Vec<u64> = (1..=40).map(|i| i * 50).collect();
    assert!(at_once == outcome(shape, Streams::new(shape, 3), &in_steps), "{shape}");
    let other = outcome(shape, Streams::new(shape, 4), &[2_000]);
    assert_eq!(at_once.1.len(), other.1.len());
}

/// Times of records never go back, but for losses told ahead; and a packet is received no earlier
/// than it was sent.
fn keeps_order(shape: u64) {
    let (_, _, records) = outcome(shape, Streams::new(shape, 0), &[2_000]);
    let in_time: Vec<Time> =
        records.iter().filter(|r| !matches!(r.step, Step::Drop(_))).map(|r| r.at).collect();
    assert!(in_time.is_sorted(), "{shape}");
    assert!(records.iter().all(|r| r.at >= r.born), "{shape}");
}

/// The same results on any number of threads, and in any parts.
fn parts_do_not_matter(shape: u64) {
    let run = |range, threads| {
        let one = |streams| {
            let (census, totals, _) = outcome(shape, streams, &[2_000]);
            (census, totals)
        };
        replicate(shape, Generator::Xoshiro, range, threads, one).unwrap()
    };
    let whole = run(0..6, 1);
    assert_eq!(whole, run(0..6, 4));
    let parts = [run(0..1, 2), run(1..4, 3), run(4..6, 1)].concat();
    assert_eq!(whole, parts);
}

/// Replications draw other numbers. Of a world in which nothing is left to chance they are the same.
#[test]
fn replications_differ() {
    let totals = |streams| outcome(1, streams, &[2_000]).1;
    let runs = replicate(1, Generator::Xoshiro, 0..6, 2, totals).unwrap();
    assert!(runs.windows(2).all(|w| w[0] != w[1]));
}

fn all(shape: u64) {
    conserves(shape);
    repeats(shape);
    keeps_order(shape);
    parts_do_not_matter(shape);
}

#[test]
fn seeds_that_once_failed() {
    let lines = include_str!("seeds.txt").lines();
    let seeds = lines.map(|l| l.split('#').next().unwrap().trim()).filter(|l| !l.is_empty());
    let seeds: Vec<u64> = seeds.map(|s| s.parse().unwrap()).collect();
    assert!(!seeds.is_empty());
    seeds.into_iter().for_each(all);
}

proptest! {
    // Seeds that fail are kept in seeds.txt, by hand and with the reason.
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_are_conserved(shape in any::<u64>()) {
        conserves(shape);
    }

    #[test]
    fn runs_repeat(shape in any::<u64>()) {
        repeats(shape);
    }

    #[test]
    fn records_are_in_order(shape in any::<u64>()) {
        keeps_order(shape);
    }

    #[test]
    fn threads_and_parts_do_not_matter(shape in any::<u64>()) {
        parts_do_not_matter(shape);
    }
}
