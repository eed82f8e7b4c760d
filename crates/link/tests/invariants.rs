//! Properties of any link with any configuration.

#![allow(clippy::unwrap_used)]

mod common;

use common::Bench;
use proptest::prelude::*;
use ringway_link::{LinkConfig, Streams};
use ringway_sansio::{Ecn, Random, SplitMix, Time};

const QUEUES: [&str; 7] = [
    "{ discipline = \"drop-tail\", limit = 10 }",
    "{ discipline = \"drop-tail-bytes\", limit = \"9 kB\" }",
    "{ discipline = \"ns2-drop-tail\", limit = 10 }",
    "{ discipline = \"red\", limit = 20, ecn = true, weight = 0.1 }",
    "{ discipline = \"codel\", interval = \"10 ms\", target = \"1 ms\", ecn = true }",
    "{ discipline = \"pie\", target = \"2 ms\", max_burst = \"5 ms\", ecn = true }",
    "{ discipline = \"fq-codel\", flows = 4, codel = { limit = 15, target = \"1 ms\", interval = \"10 ms\" } }",
];
const LOSSES: [&str; 4] = [
    "{ model = \"none\" }",
    "{ model = \"random\", chance = \"5 %\", correlation = \"25 %\" }",
    "{ model = \"gilbert-elliott\", p = \"5 %\", r = \"30 %\" }",
    "{ model = \"four-state\", p13 = \"3 %\", p31 = \"40 %\", p32 = \"10 %\", p14 = \"1 %\" }",
];

/// A configuration with many impairments.
fn config(seed: u64) -> LinkConfig {
    let mut r = SplitMix::new(seed);
    let mut pick = |n: usize| (r.next_u64() % n as u64) as usize;
    let text = format!(
        "rate = \"{} Mbit/s\"\noverhead = \"20 B\"\ndelay = \"3 ms\"\njitter = \"{} ms\"\n\
         delay_correlation = \"25 %\"\ndistribution = \"{}\"\nkeep_order = {}\nloss = {}\n\
         loss_at = \"{}\"\nloss_list = {{ packets = [2, 9] }}\nduplicate = {{ chance = \"5 %\" }}\n\
         corrupt = {{ chance = \"5 %\" }}\nreorder = {{ chance = \"20 %\", gap = 3 }}\n\
         slot = {{ {} packets = 4 }}\ncells = {{ payload = \"{} B\", header = \"5 B\" }}\necn_mark = {{ chance = \"5 %\" }}\n\
         mtu = \"1400 B\"\ndown_keeps_queue = {}\nqueue = {}\nschedule_period = \"150 ms\"\n\
         schedule = [{{ at = \"40 ms\", up = false }}, {{ at = \"55 ms\", up = true }}, \
         {{ at = \"90 ms\", rate = \"2 Mbit/s\", queue = {} }}]\n{}",
        [1, 4, 10][pick(3)],
        [0, 2][pick(2)],
        ["uniform", "normal", "pareto", "pareto-normal"][pick(4)],
        pick(2) == 0,
        LOSSES[pick(4)],
        ["before-queue", "after-link"][pick(2)],
        [
            "",
            "max = \"1 ms\",",
            "max = \"2 ms\",",
            "delay = \"1 ms\", jitter = \"500 us\", distribution = \"pareto\","
        ][pick(4)],
        [0, 48][pick(2)],
        pick(2) == 0,
        QUEUES[pick(7)],
        QUEUES[pick(7)],
        [
            "",
            "rate_trace = [{ lasts = \"7 ms\", rate = \"5 Mbit/s\" }, { lasts = \"3 ms\", rate = \"0 bit/s\" }]",
            "deliveries = { at = [\"1 ms\", \"2 ms\", \"2 ms\", \"9 ms\"] }",
        ][pick(3)],
    );
    toml::from_str(&text).unwrap()
}

/// Times and lengths of packets over about 300 ms.
fn arrivals(seed: u64, n: usize) -> Vec<(Time, u32, Ecn)> {
    let mut r = SplitMix::new(seed);
    let mut at = 0;
    (0..n)
        .map(|_| {
            at += r.next_u64() % (600_000_000 / n as u64);
            let ecn = Ecn::from_bits((r.next_u64() % 3) as u8);
            (Time::from_nanos(at), 40 + (r.next_u64() % 1400) as u32, ecn)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Every packet and every copy is delivered, dropped, waiting or on its way, and only once.
    #[test]
    fn packets_are_conserved(seed in any::<u64>()) {
        let mut b = Bench::new(config(seed), seed);
        for (i, &(at, size, ecn)) in arrivals(seed, 400).iter().enumerate() {
            b.run(at);
            b.offer_as(at, size, ecn);
            let seen = b.delivered.len() + b.sink.dropped.len() + b.sink.flight.len();
            prop_assert_eq!(seen + b.link.queue_len(), i + 1 + b.sink.copies as usize);
        }
        b.run(Time::from_secs(1000));
        prop_assert_eq!(b.link.queue_len(), 0);
        prop_assert_eq!(b.link.queue_bytes(), 0);
        let mut ids = b.ids();
        ids.extend(b.sink.dropped.iter().map(|d| d.1));
        let n = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), n);
    }

    /// The log depends on the arrivals alone: worlds that poll at every event, only when a packet
    /// arrives, and too often write the same.
    #[test]
    fn the_log_does_not_depend_on_when_the_world_calls(seed in any::<u64>()) {
        let offers = arrivals(seed, 300);
        let end = Time::from_secs(2);
        let logs: Vec<String> = (0..3)
            .map(|style| {
                let mut b = Bench::new(config(seed), seed);
                let mut last = Time::ZERO;
                for &(at, size, ecn) in &offers {
                    match style {
                        0 => while let Some(t) = b.link.poll_timeout().filter(|&t| t <= at) {
                            b.poll(t);
                        },
                        1 => {}
                        _ => for k in 1..5 {
                            b.poll(Time::from_nanos(
                                last.as_nanos() + at.since(last).as_nanos() as u64 * k / 5));
                        },
                    }
                    b.offer_as(at, size, ecn);
                    last = at;
                }
                while let Some(t) = b.link.poll_timeout().filter(|&t| t <= end) {
                    b.poll(t);
                }
                b.log
            })
            .collect();
        prop_assert_eq!(&logs[0], &logs[1]);
        prop_assert_eq!(&logs[0], &logs[2]);
        prop_assert!(logs[0].contains("deliver"));
    }

    /// The fast path of packets on a link with only rate and delay has the same result as the full
    /// path, which a rule that never selects a packet enforces.
    #[test]
    fn the_fast_path_matches_the_full_path(seed in any::<u64>()) {
        let mut c = config(seed);
        let plain = LinkConfig {
            rate: c.rate,
            overhead: c.overhead,
            delay: c.delay,
            queue: c.queue.clone(),
            mtu: c.mtu,
            down_keeps_queue: c.down_keeps_queue,
            schedule: core::mem::take(&mut c.schedule),
            schedule_period: c.schedule_period,
            ..LinkConfig::default()
        };
        let run = |long: bool| {
            let mut b = Bench::new(plain.clone(), seed);
            if long {
                b.link.lose_if(Box::new(|_, _| false));
            }
            for (at, size, ecn) in arrivals(seed, 300) {
                b.run(at);
                b.offer_as(at, size, ecn);
            }
            b.run(Time::from_secs(10));
            b.log
        };
        let short = run(false);
        prop_assert!(short.contains("deliver") && short.contains("drop"));
        prop_assert_eq!(short, run(true));
    }

    /// Without jitter, reordering and fair queues, packets stay in order; with `keep_order` they do so
    /// in spite of jitter.
    #[test]
    fn order_is_kept_where_nothing_breaks_it(seed in any::<u64>(), jitter in any::<bool>()) {
        let mut c = config(seed);
        c.reorder = ringway_link::Reorder::NONE;
        let queue = format!("queue = {}", QUEUES[seed as usize % 6]);
        c.queue = toml::from_str::<LinkConfig>(&queue).unwrap().queue;
        c.schedule.clear();
        c.schedule_period = ringway_link::Span(0);
        c.keep_order = jitter;
        if !jitter {
            c.jitter = ringway_link::Span(0);
        }
        c.duplicate = ringway_link::Sometimes::NEVER;
        let mut b = Bench::new(c, seed);
        for (at, size, ecn) in arrivals(seed, 300) {
            b.run(at);
            b.offer_as(at, size, ecn);
        }
        b.run(Time::from_secs(1000));
        prop_assert!(b.ids().is_sorted());
        prop_assert!(b.arrivals().is_sorted());
    }
}

/// A change of one impairment does not change the draws of the others.
#[test]
fn each_decision_draws_from_a_separate_stream() {
    let text = "jitter = \"1 ms\"\ndelay = \"5 ms\"\n";
    let with = |more: &str| {
        let mut b = Bench::new(toml::from_str(&format!("{text}{more}")).unwrap(), 4);
        for i in 0..100 {
            b.offer(Time::from_millis(i), 100);
        }
        b.run(Time::from_secs(1));
        let mut all: Vec<_> = b.delivered.iter().map(|d| (d.packet.id, d.arrives)).collect();
        all.sort_unstable();
        all
    };
    let plain = with("");
    assert_eq!(plain, with("corrupt = { chance = 0.5 }\necn_mark = { chance = 0.5 }"));
    assert_ne!(plain, with("keep_order = true"));
    assert_eq!(Streams::new(4, 0).seed(), 4);
}
