//! The order in which nodes, links and flows are listed does not matter.

#![allow(clippy::unwrap_used)]

use ringway_lab::run::{Options, Outcome, run};
use ringway_lab::scenario::Scenario;
use std::collections::BTreeMap;

/// Three sources that send at the same times through one queue that overflows, two of them over
/// paths of the same cost, and losses on parallel links.
fn text(nodes: &str, links: [usize; 6], flows: [usize; 4]) -> String {
    const LINKS: [&str; 6] = [
        "name = \"x\"\nbetween = [\"a\", \"r\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n",
        "name = \"y\"\nbetween = [\"b\", \"r\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n",
        "name = \"z\"\nbetween = [\"c\", \"r\"]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\n",
        "name = \"wide\"\nbetween = [\"r\", \"s\"]\nrate = \"2 Mbit/s\"\ndelay = \"5 ms\"\n\
         queue = { discipline = \"fq-codel\", flows = 4 }\n\
         loss = { model = \"random\", chance = \"1 %\" }\n",
        "name = \"other\"\nbetween = [\"r\", \"s\"]\nrate = \"2 Mbit/s\"\ndelay = \"5 ms\"\n\
         queue = { discipline = \"drop-tail\", limit = 7 }\nloss = { model = \"random\", chance = \"2 %\" }\n",
        "name = \"last\"\nbetween = [\"s\", \"d\"]\nrate = \"3 Mbit/s\"\n\
         queue = { discipline = \"drop-tail\", limit = 5 }\n",
    ];
    const FLOWS: [&str; 4] = [
        "name = \"one\"\nfrom = \"a\"\nto = \"d\"\ntransport = \"udp\"\ntraffic = \"cbr\"\nrate = \"1 Mbit/s\"\n\
         packet = \"1000 B\"\n",
        "name = \"two\"\nfrom = \"b\"\nto = \"d\"\ntransport = \"udp\"\ntraffic = \"cbr\"\nrate = \"1 Mbit/s\"\n\
         packet = \"1000 B\"\n",
        "name = \"three\"\nfrom = \"c\"\nto = \"d\"\ntransport = \"tcp\"\ntraffic = \"bulk\"\n",
        "name = \"four\"\nfrom = \"c\"\nto = \"d\"\ntransport = \"sctp\"\ntraffic = \"bulk\"\n",
    ];
    let mut text =
        format!("[scenario]\ntitle = \"t\"\nnodes = [{nodes}]\nstop = \"5 s\"\nseed = 7\n");
    links.iter().for_each(|i| text += &format!("[[link]]\n{}", LINKS[*i]));
    flows.iter().for_each(|i| text += &format!("[[flow]]\n{}", FLOWS[*i]));
    text + "[[probe]]\nwhat = \"delay\"\nflow = \"two\"\n[[probe]]\nwhat = \"queue\"\nlink = \"other\"\n\
            [[route]]\nat = \"r\"\nto = \"d\"\nlink = \"other\"\n"
}

fn outcome(text: &str) -> Outcome {
    let scenario = Scenario::read("t", text).unwrap();
    let options = Options { probes: true, ..Options::default() };
    let outcome = run(&scenario, &options, |_| ()).unwrap();
    let names: Vec<&str> = outcome.flows.iter().map(|f| f.flow.as_str()).collect();
    let listed: Vec<&str> = scenario.flows.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, listed, "figures stand in the order of the file");
    outcome
}

/// The same seed with nodes, links and flows listed in another order gives the same figures of
/// every flow, link and probe.
#[test]
fn listing_order_does_not_change_figures() {
    let by_name = |o: &Outcome| {
        let flows: BTreeMap<_, _> = o.flows.iter().map(|f| (f.flow.clone(), f.clone())).collect();
        let links: BTreeMap<_, _> =
            o.links.iter().map(|l| ((l.link.clone(), l.from.clone()), l.clone())).collect();
        (flows, links, o.events, o.series.clone())
    };
    let plain = outcome(&text(
        "\"a\", \"b\", \"c\", \"d\", \"r\", \"s\"",
        [0, 1, 2, 3, 4, 5],
        [0, 1, 2, 3],
    ));
    assert!(plain.flows.iter().all(|f| f.dropped > 0), "the queues are shared");
    for (nodes, links, flows) in [
        ("\"s\", \"r\", \"d\", \"c\", \"b\", \"a\"", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3]),
        ("\"a\", \"b\", \"c\", \"d\", \"r\", \"s\"", [5, 4, 3, 2, 1, 0], [0, 1, 2, 3]),
        ("\"a\", \"b\", \"c\", \"d\", \"r\", \"s\"", [0, 1, 2, 3, 4, 5], [3, 1, 0, 2]),
        ("\"c\", \"s\", \"a\", \"r\", \"d\", \"b\"", [3, 0, 5, 4, 1, 2], [2, 3, 1, 0]),
    ] {
        let other = outcome(&text(nodes, links, flows));
        assert_eq!(by_name(&plain), by_name(&other), "{nodes} {links:?} {flows:?}");
    }
}
