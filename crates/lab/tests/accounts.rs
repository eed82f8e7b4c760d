//! Every packet of every flow is accounted for, whatever the settings of the links.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_lab::run::{Options, run};
use ringway_lab::scenario::Scenario;

fn queue() -> impl Strategy<Value = String> {
    let limit = 1u32..40;
    let kinds = ["drop-tail", "ns2-drop-tail", "codel", "pie", "red"];
    (prop::sample::select(kinds.to_vec()), limit).prop_map(|(kind, limit)| match kind {
        "red" => format!("{{ discipline = \"red\", limit = {limit}, min = 2, max = 8 }}"),
        kind => format!("{{ discipline = \"{kind}\", limit = {limit} }}"),
    })
}

fn link() -> impl Strategy<Value = String> {
    let percent = 0u32..20;
    let place = prop::sample::select(vec!["before-queue", "after-link"]);
    let schedule = prop::sample::select(vec![
        "",
        "schedule = [{ at = \"300 ms\", up = false }, { at = \"600 ms\", up = true }]\n",
        "schedule = [{ at = \"200 ms\", up = false, down_keeps_queue = true }, { at = \"900 ms\", up = true }]\n",
        "schedule = [{ at = \"500 ms\", queue = { discipline = \"drop-tail\", limit = 2 } }]\n",
    ]);
    (queue(), percent.clone(), percent.clone(), percent, 0u32..8, place, schedule).prop_map(
        |(queue, loss, duplicate, corrupt, jitter, place, schedule)| {
            format!(
                "rate = \"1 Mbit/s\"\ndelay = \"10 ms\"\njitter = \"{jitter} ms\"\nqueue = {queue}\n\
                 loss = {{ model = \"random\", chance = \"{loss} %\" }}\nloss_at = \"{place}\"\n\
                 duplicate = {{ chance = \"{duplicate} %\" }}\ncorrupt = {{ chance = \"{corrupt} %\" }}\n{schedule}"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_packet_is_accounted_for(first in link(), second in link(), seed: u64) {
        let text = format!(
            "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"r\", \"b\"]\nstop = \"1.5 s\"\n\
             [[link]]\nbetween = [\"a\", \"r\"]\n{first}\n[[link]]\nbetween = [\"r\", \"b\"]\n{second}\n\
             [[flow]]\nname = \"u\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"udp\"\ntraffic = \"poisson\"\n\
             rate = \"600 kbit/s\"\n\
             [[flow]]\nname = \"t\"\nfrom = \"b\"\nto = \"a\"\ntransport = \"tcp\"\ntraffic = \"bulk\"\n\
             [[flow]]\nname = \"n\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"tcp-ns2\"\ntraffic = \"bulk\"\n\
             [[flow]]\nname = \"s\"\nfrom = \"b\"\nto = \"a\"\ntransport = \"sctp\"\ntraffic = \"bulk\"\n\
             sctp = {{ streams = 3 }}\n\
             [[flow]]\nname = \"q\"\nfrom = \"b\"\nto = \"a\"\ntransport = \"udp\"\n\
             traffic = \"request-response\"\ntimeout = \"100 ms\"\n"
        );
        let scenario = Scenario::read("t.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let outcome = run(&scenario, &Options { seed: Some(seed), ..Options::default() }, |_| ()).unwrap();
        let (mut dropped, mut waiting) = (0, 0);
        for link in &outcome.links {
            dropped += link.dropped;
            waiting += link.waiting;
        }
        let (mut counted, mut under_way, mut no_port) = (0, 0, 0);
        for f in &outcome.flows {
            prop_assert_eq!(f.sent + f.copied, f.delivered + f.dropped + f.in_flight, "{}", f.flow);
            let back = &f.back;
            prop_assert_eq!(back.sent + back.copied, back.delivered + back.dropped + back.in_flight, "{}", f.flow);
            for by in [&f.dropped_by, &back.dropped_by] {
                no_port += by.get("nothing takes it").copied().unwrap_or(0);
            }
            counted += f.dropped + back.dropped;
            under_way += f.in_flight + f.back.in_flight;
        }
        // The links' own counters agree, and contain no packet that belongs to no flow.
        prop_assert_eq!(counted, dropped + no_port);
        prop_assert!(under_way >= waiting, "{} {}", under_way, waiting);
    }
}

/// The utilisation of a link includes what it adds to packets and excludes what it strips, also for
/// packets it loses at its end: 100 bytes less 14 are two cells of 53.
#[test]
fn utilisation_includes_link_overhead() {
    let busy = |link: &str| {
        let text = format!(
            "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\"]\nstop = \"1 s\"\n\
             [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\n{link}\n\
             [[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"udp\"\ntraffic = \"cbr\"\n\
             rate = \"80 kbit/s\"\npacket = \"100 B\"\npackets = 50\n"
        );
        let scenario = Scenario::read("t", &text).unwrap_or_else(|e| panic!("{e}"));
        let outcome = run(&scenario, &Options::default(), |_| ()).unwrap();
        outcome.links[0].utilisation
    };
    let cells = "stripped = \"14 B\"\ncells = { payload = \"48 B\", header = \"5 B\" }";
    for (link, bytes) in [
        ("", 100.0),
        ("overhead = \"38 B\"", 138.0),
        ("stripped = \"14 B\"", 86.0),
        (cells, 106.0),
        ("loss = { model = \"random\", chance = \"50 %\" }\nloss_at = \"after-link\"", 100.0),
        ("loss = { model = \"random\", chance = \"100 %\" }\nloss_at = \"before-queue\"", 0.0),
    ] {
        let wanted = 50.0 * bytes * 8.0 / 1e6;
        assert!((busy(link).unwrap() - wanted).abs() < 1e-12, "{link}: {:?}", busy(link));
    }
    assert_eq!(busy("schedule = [{ at = \"500 ms\", rate = \"2 Mbit/s\" }]"), None);
    assert_eq!(busy("rate_trace = [{ lasts = \"1 s\", rate = \"2 Mbit/s\" }]"), None);
}
