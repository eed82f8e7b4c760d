//! Properties of any world: every packet is counted, and order and results depend only on the seed.
//! `seeds.txt` contains every seed that once failed; they are run first.

#![allow(clippy::unwrap_used)]

mod common;

use common::{PORT, address};
use proptest::prelude::*;
use ringway_link::loss::{GilbertElliott, RandomLoss};
use ringway_link::queue::{CodelConfig, DropTailPackets, FqCodelConfig, PieConfig, RedConfig};
use ringway_link::trace::RateStep;
use ringway_link::{
    Cells, Chance, Change, Distribution, DropReason, Generator, LinkConfig, Loss, LossList,
    LossPosition, QueueConfig, Rate, Reorder, Size, Slot, Sometimes, Span, Streams,
};
use ringway_sansio::{Random, SplitMix, Time};
use ringway_sim::traffic::{Pattern, Sink, Source, SourceConfig, Stay, Totals};
use ringway_sim::{Bind, Census, EndpointId, Reason, Record, Records, Step, World, replicate};
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
        loss_at: if pick(2) == 0 { LossPosition::BeforeQueue } else { LossPosition::AfterLink },
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

/// Further impairments, drawn separately, so that an old seed still makes the same world.
fn wilder(link: LinkConfig, r: &mut SplitMix) -> LinkConfig {
    let mut pick = |n: u64| r.next_u64() % n;
    let slots = [
        Slot::NONE,
        Slot { max: Span::from_millis(3), packets: 3, ..Slot::NONE },
        Slot {
            delay: Span::from_millis(2),
            jitter: Span::from_millis(1),
            distribution: Distribution::ParetoNormal,
            bytes: Size(4000),
            ..Slot::NONE
        },
    ];
    let step = |lasts, rate| RateStep { lasts: Span::from_millis(lasts), rate: Rate(rate) };
    LinkConfig {
        slot: slots[pick(3) as usize].clone(),
        reorder: Reorder { chance: chance(pick(3) * 10), gap: 1 + pick(3) as u32, ..Reorder::NONE },
        ecn_mark: Sometimes { chance: chance(pick(2) * 10), ..Sometimes::NEVER },
        cells: if pick(3) == 0 {
            Cells { payload: Size(48), header: Size(5) }
        } else {
            Cells::NONE
        },
        delay_correlation: chance(pick(2) * 25),
        distribution: [Distribution::Uniform, Distribution::Normal, Distribution::Pareto]
            [pick(3) as usize]
            .clone(),
        rate_trace: if pick(4) == 0 { vec![step(7, 2_000_000), step(3, 0)] } else { vec![] },
        loss_list: LossList { packets: vec![3, 4 + pick(20), 40], pattern: None },
        ..link
    }
}

/// How a world is made of a seed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// As the first seeds of the file made it.
    Plain,
    /// With more going on.
    Wild,
    /// The same as `Wild`, built in another order.
    Backwards,
}

/// A ring of nodes with chords, each node with a source to another node.
struct Some {
    world: World,
    sinks: Vec<EndpointId>,
    records: usize,
}

fn some_world(shape: u64, kind: Kind, streams: Streams) -> Some {
    let (mut r, mut wild) = (SplitMix::new(shape), SplitMix::new(!shape));
    let mut some_link = |r: &mut SplitMix| match kind {
        Kind::Plain => some_link(r),
        Kind::Wild | Kind::Backwards => wilder(some_link(r), &mut wild),
    };
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
    let mut ends = Vec::new();
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
        ends.push((node, Source::new(config, stream)));
    }
    if kind == Kind::Backwards {
        ends.reverse();
    }
    let mut sinks: Vec<EndpointId> = ends
        .into_iter()
        .map(|(node, source)| {
            world.attach(node, Bind::udp(1000), source).unwrap();
            world.attach(node, Bind::udp(PORT), Sink::keeping()).unwrap()
        })
        .collect();
    if kind == Kind::Backwards {
        sinks.reverse();
    }
    let records = world.add_recorder(Records::default());
    Some { world, sinks, records }
}

/// The complete result of a run.
type Outcome = (Census, Vec<Totals>, Vec<Record>);

fn outcome(shape: u64, kind: Kind, streams: Streams, steps: &[u64]) -> Outcome {
    let mut some = some_world(shape, kind, streams);
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
fn conserves(shape: u64, kind: Kind) {
    let mut some = some_world(shape, kind, Streams::new(shape, 0));
    for step in 1..=20u64 {
        some.world.run_until(Time::from_millis(step * step * 5)).unwrap();
        let c = some.world.census();
        assert_eq!(
            c.sent + c.copied,
            c.delivered + c.dropped + c.waiting + c.on_the_way,
            "{shape} {kind:?} {c:?}"
        );
    }
    some.world.run_until(Time::from_secs(1000)).unwrap();
    let c = some.world.census();
    assert_eq!((c.waiting, c.on_the_way), (0, 0), "{shape} {kind:?} {c:?}");
    let received: u64 = some
        .sinks
        .iter()
        .map(|&s| some.world.endpoint::<Sink>(s).unwrap().totals())
        .map(|t| t.packets + t.damaged)
        .sum();
    assert_eq!(received, c.delivered);
    let records = some.world.take_recorder::<Records>(some.records).unwrap().0;
    let dropped = records.iter().filter(|r| matches!(r.step, Step::Drop(_))).count();
    assert_eq!(dropped as u64, c.dropped);
    every_link_conserves(shape, &records);
}

/// On each link, in the end: what was offered or copied left it or was dropped, and what left it was
/// received at exactly the announced time, or lost in flight.
fn every_link_conserves(shape: u64, records: &[Record]) {
    let links = records.iter().filter_map(|r| r.interface).max().map_or(0, |max| max + 1);
    for link in 0..links {
        let here = |r: &&Record| r.interface == Some(link);
        let count =
            |step: fn(&Step) -> bool| records.iter().filter(here).filter(|r| step(&r.step)).count();
        let queued = count(|s| *s == Step::Enqueue);
        let taken = count(|s| *s == Step::Dequeue);
        let left = count(|s| matches!(s, Step::Leave { .. }));
        let inside = count(|s| matches!(s, Step::Drop(_) if !is_cut(s)));
        assert!(queued >= taken && taken >= left && queued - left <= inside, "{shape} link {link}");
        // The two interfaces of a connection have neighbouring numbers.
        let arrivals = |r: &Record| match r.step {
            Step::Leave { arrives: at, .. } if r.interface == Some(link) => Some((r.packet, at)),
            _ => None,
        };
        let ends = |r: &Record| {
            let received = r.step == Step::Receive && r.interface == Some(link ^ 1);
            (received || is_cut(&r.step) && r.interface == Some(link)).then_some((r.packet, r.at))
        };
        let mut announced: Vec<_> = records.iter().filter_map(arrivals).collect();
        let mut seen: Vec<_> = records.iter().filter_map(ends).collect();
        announced.sort_unstable();
        seen.sort_unstable();
        assert!(announced == seen, "{shape} link {link}");
    }
}

fn is_cut(step: &Step) -> bool {
    *step == Step::Drop(Reason::Link(DropReason::Cut))
}

/// Stopping on the way, and how often, changes nothing; nor does a second run, nor the order in which
/// the world was put together.
fn repeats(shape: u64, kind: Kind) {
    let run = |kind, steps: &[u64]| outcome(shape, kind, Streams::new(shape, 3), steps);
    let at_once = run(kind, &[2_000]);
    let in_steps: Vec<u64> = (1..=40).map(|i| i * 50).collect();
    assert!(at_once == run(kind, &in_steps), "{shape} {kind:?}");
    if kind == Kind::Wild {
        assert!(at_once == run(Kind::Backwards, &[2_000]), "{shape}");
    }
}

/// Times of records never go back, except for losses reported ahead; and a packet is received no earlier
/// than it was sent.
fn keeps_order(shape: u64, kind: Kind) {
    let (_, _, records) = outcome(shape, kind, Streams::new(shape, 0), &[2_000]);
    let in_time: Vec<Time> =
        records.iter().filter(|r| !matches!(r.step, Step::Drop(_))).map(|r| r.at).collect();
    assert!(in_time.is_sorted(), "{shape} {kind:?}");
    assert!(records.iter().all(|r| r.at >= r.born), "{shape} {kind:?}");
}

/// The same results on any number of threads, and in any parts, to the last record.
fn parts_do_not_matter(shape: u64, kind: Kind) {
    let run = |range, threads| {
        let one = |streams| outcome(shape, kind, streams, &[500]);
        replicate(shape, Generator::Xoshiro, range, threads, one).unwrap()
    };
    let whole = run(0..6, 1);
    assert!(whole == run(0..6, 4), "{shape} {kind:?}");
    let parts = [run(0..1, 2), run(1..4, 3), run(4..6, 1)].concat();
    assert!(whole == parts, "{shape} {kind:?}");
}

/// Replications draw other numbers. Of a world in which nothing is left to chance they are the same.
#[test]
fn replications_differ() {
    let totals = |streams| outcome(1, Kind::Plain, streams, &[2_000]).1;
    let runs = replicate(1, Generator::Xoshiro, 0..6, 2, totals).unwrap();
    assert!(runs.windows(2).all(|w| w[0] != w[1]));
}

const KINDS: [Kind; 2] = [Kind::Plain, Kind::Wild];

fn all(shape: u64) {
    for kind in KINDS {
        conserves(shape, kind);
        repeats(shape, kind);
        keeps_order(shape, kind);
        parts_do_not_matter(shape, kind);
    }
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
    fn packets_are_conserved(shape in any::<u64>(), wild in any::<bool>()) {
        conserves(shape, KINDS[usize::from(wild)]);
    }

    #[test]
    fn runs_repeat(shape in any::<u64>(), wild in any::<bool>()) {
        repeats(shape, KINDS[usize::from(wild)]);
    }

    #[test]
    fn records_are_in_order(shape in any::<u64>(), wild in any::<bool>()) {
        keeps_order(shape, KINDS[usize::from(wild)]);
    }

    #[test]
    fn threads_and_parts_do_not_matter(shape in any::<u64>(), wild in any::<bool>()) {
        parts_do_not_matter(shape, KINDS[usize::from(wild)]);
    }
}
