//! The built-in scenarios: each runs, and shows what its description states.

#![allow(clippy::unwrap_used)]

use ringway_lab::builtin;
use ringway_lab::run::{FlowMeasures, Options, Outcome, run};
use ringway_lab::scenario::Scenario;

fn scenario(name: &str) -> Scenario {
    let text = builtin::find(name).unwrap().text;
    Scenario::read(name, text).unwrap_or_else(|e| panic!("{e}"))
}

fn outcome(name: &str, replication: u64) -> Outcome {
    let options = Options { probes: true, replication, ..Options::default() };
    run(&scenario(name), &options, |_| ()).unwrap()
}

fn flow<'a>(outcome: &'a Outcome, name: &str) -> &'a FlowMeasures {
    outcome.flows.iter().find(|f| f.flow == name).unwrap()
}

/// Conservation: every packet is dropped, under way or delivered.
#[test]
fn all_scenarios_account_for_every_packet() {
    for b in builtin::ALL {
        let outcome = outcome(b.name, 0);
        assert!(!outcome.flows.is_empty(), "{}", b.name);
        for f in &outcome.flows {
            let name = format!("{}: {}", b.name, f.flow);
            assert!(f.sent > 100, "{name}");
            assert_eq!(f.failed, None, "{name}");
            assert_eq!(f.sent + f.copied, f.delivered + f.dropped + f.in_flight, "{name}");
            assert_eq!(f.dropped, f.dropped_by.values().sum::<u64>(), "{name}");
            let back = &f.back;
            assert_eq!(
                back.sent + back.copied,
                back.delivered + back.dropped + back.in_flight,
                "{name}"
            );
        }
        for s in &outcome.series {
            assert!(s.points.len() > 10, "{}: {:?}", b.name, s.what);
        }
    }
}

/// The same seed gives the same figures, another gives others.
#[test]
fn a_run_is_reproducible_to_the_last_bit() {
    let text = |o: &Outcome| serde_json::to_string(o).unwrap();
    let first = outcome("jitter", 0);
    let again = outcome("jitter", 0);
    assert_eq!(text(&first), text(&again));
    assert_eq!(first.series, again.series);
    assert_eq!(first.records.unwrap().rows, again.records.unwrap().rows);
    assert_ne!(text(&outcome("jitter", 1)), text(&outcome("jitter", 0)));
}

/// The rows of Table 1, and the composition of what the papers call lost.
#[test]
fn table_1_is_reproduced() {
    let udp = outcome("gangurde-udp", 0);
    let udp = flow(&udp, "udp");
    assert_eq!((udp.sent, udp.delivered, udp.dropped, udp.in_flight), (1569, 723, 819, 27));
    let tcp = outcome("gangurde-tcp", 0);
    let tcp = flow(&tcp, "tcp");
    assert_eq!((tcp.sent, tcp.delivered, tcp.dropped, tcp.in_flight), (713, 694, 0, 19));
    let sctp = outcome("gangurde-sctp", 0);
    let sctp = flow(&sctp, "sctp");
    assert_eq!((sctp.sent, sctp.delivered, sctp.dropped, sctp.in_flight), (750, 687, 12, 51));
    let near = |name, printed: f64| (sctp.value(name).unwrap() / printed - 1.0).abs() < 0.001;
    assert!(near("delay_mean", 1.680858) && near("delay_variance", 0.315453), "{sctp:?}");
}

/// With CoDel and FQ-CoDel voice does not wait as with drop-tail, and the download loses nothing.
#[test]
fn aqm_removes_bufferbloat() {
    let [tail, codel, fair] =
        ["drop-tail", "codel", "fq-codel"].map(|name| outcome(&format!("bufferbloat-{name}"), 0));
    let delay = |o: &Outcome| flow(o, "voice").value("delay_p90").unwrap();
    assert!(delay(&tail) > 1.0, "{}", delay(&tail));
    assert!(delay(&codel) < 0.03, "{}", delay(&codel));
    assert!(delay(&fair) < 0.02, "{}", delay(&fair));
    let goodput = |o: &Outcome| flow(o, "download").goodput;
    assert!(goodput(&codel) > 0.95 * goodput(&tail));
    assert!(goodput(&fair) > 0.95 * goodput(&tail));
}

/// Pollaczek and Khinchine: 3 ms at a load of 0.8 and a service time of 1 ms.
#[test]
fn m_d_1_has_the_expected_mean_delay() {
    let delays = (0..4).map(|r| flow(&outcome("m-d-1", r), "poisson").value("delay_mean").unwrap());
    let mean = delays.sum::<f64>() / 4.0;
    assert!((mean / 0.003 - 1.0).abs() < 0.03, "{mean}");
}

/// A download continues after the link comes back, and every packet on the link when it failed is
/// lost.
#[test]
fn a_pulled_cable_delays_a_file() {
    let outcome = outcome("cable-pulled", 0);
    let file = flow(&outcome, "file");
    let seconds = file.completion.unwrap();
    // 10 MB at 8 Mbit/s take 10.5 s, and the link is down for three.
    assert!((13.0..16.0).contains(&seconds), "{seconds}");
    assert!(file.dropped_by["link went down on the way"] > 0);
    assert!(file.dropped_by["link down"] > 0);
    assert_eq!(file.bytes, 10_000_000);
    assert!(file.timeouts > 0);
}

/// When the primary path fails nothing is lost or duplicated, and short timers detect the failure
/// sooner.
#[test]
fn a_transfer_continues_on_the_second_path() {
    let stalls = (0..4).map(|replication| {
        let outcome = outcome("two-cables", replication);
        let stall = |name| {
            let flow = flow(&outcome, name);
            let messages = flow.messages.unwrap();
            assert_eq!((messages.written, messages.delivered), (1000, 1000), "{flow:?}");
            assert!(flow.dropped > 0, "{flow:?}");
            flow.stall.unwrap()
        };
        (stall("default"), stall("ss7"))
    });
    for (default, ss7) in stalls {
        assert!((0.9..2.5).contains(&default), "{default}");
        assert!((0.05..0.8).contains(&ss7), "{ss7}");
    }
}

/// Lost messages delay all calls in one stream, and one call in eight streams.
#[test]
fn streams_isolate_calls() {
    let runs: Vec<Outcome> = (0..3).map(|r| outcome("head-of-line", r)).collect();
    let p90 = |name: &str| {
        let delays = runs.iter().map(|o| {
            let messages = flow(o, name).messages.unwrap();
            assert_eq!((messages.written, messages.delivered), (2400, 2400), "{name}");
            messages.delay.unwrap().p90
        });
        delays.sum::<f64>() / runs.len() as f64
    };
    for (eight, one) in [("streams-8", "streams-1"), ("streams-8-rfc9260", "streams-1-rfc9260")] {
        assert!(p90(one) > 1.5 * p90(eight), "{} {}", p90(one), p90(eight));
    }
    // Detected as early and acknowledged alike, a lost packet costs TCP as much as one stream.
    assert!((0.7..1.5).contains(&(p90("tcp") / p90("streams-1"))), "{}", p90("tcp"));
}

/// Every request is answered, and responses that meet bursts take longer.
#[test]
fn requests_are_answered() {
    let outcome = outcome("web", 0);
    let messages = flow(&outcome, "pages").messages.unwrap();
    assert_eq!((messages.written, messages.delivered), (200, 200));
    let delay = messages.delay.unwrap();
    // 20 kB at 5 Mbit/s, and at least three round trips of 40 ms: connecting, and two windows.
    assert!(delay.p50 > 0.1 && delay.p50 < 0.5, "{delay:?}");
    assert!(delay.p99 > 1.5 * delay.p50, "{delay:?}");
}

/// A node that exceeds its budget is named.
#[test]
fn an_exceeded_budget_names_the_node() {
    let mut scenario = scenario("lossy-bulk");
    scenario.events = 1000;
    let error = run(&scenario, &Options::default(), |_| ()).unwrap_err().to_string();
    assert!(error.contains("event budget of 1000") && error.contains("node "), "{error}");
}

/// RFC 5061: an association moves to another address while it carries data, and nothing is lost when the first is gone.
#[test]
fn an_association_moves_to_another_address() {
    let text = |moves: &str| {
        format!(
            "[scenario]\ntitle = \"moves\"\nnodes = [\"mobile\", \"router\", \"host\"]\nstop = \"12 s\"\n\
             [[link]]\nname = \"first\"\nbetween = [\"mobile\", \"router\"]\ndelay = \"5 ms\"\n\
             schedule = [{{ at = \"6 s\", up = false }}]\n\
             [[link]]\nname = \"second\"\nbetween = [\"mobile\", \"router\"]\ndelay = \"9 ms\"\n\
             [[link]]\nname = \"wire\"\nbetween = [\"router\", \"host\"]\n\
             [[flow]]\nname = \"f\"\nfrom = \"mobile\"\nto = \"host\"\ntransport = \"sctp\"\n\
             traffic = \"cbr\"\nrate = \"400 kbit/s\"\npacket = \"500 B\"\nstop = \"11 s\"\n\
             sctp = {{ paths = [\"first\", \"second\"]{moves} }}\n"
        )
    };
    let run_text = |moves: &str| {
        let scenario = Scenario::read("moves", &text(moves)).unwrap_or_else(|e| panic!("{e}"));
        run(&scenario, &Options::default(), |_| ()).unwrap()
    };
    let moved = run_text(", moves = \"5 s\"");
    let f = flow(&moved, "f");
    let messages = f.messages.unwrap();
    assert_eq!((messages.delivered, f.timeouts), (messages.written, 0), "{f:?}");
    assert!(f.stall.unwrap() < 0.05, "{f:?}");
    // With both addresses from the start, the change waits for a timeout.
    assert!(flow(&run_text(""), "f").stall.unwrap() > 0.5);
    let wrong = text(", moves = \"5 s\"").replace("\"first\", \"second\"", "\"first\"");
    let why = Scenario::read("moves", &wrong).unwrap_err().to_string();
    assert!(why.contains("flow.f.sctp.moves") && why.contains("two `paths`"), "{why}");
}

/// A response over SCTP has the stream of its request, and the next request comes after it.
#[test]
fn requests_are_answered_over_sctp() {
    let text = "[scenario]\ntitle = \"requests\"\nnodes = [\"browser\", \"server\"]\nstop = \"flows done\"\n\
                [[link]]\nbetween = [\"browser\", \"server\"]\nrate = \"10 Mbit/s\"\ndelay = \"20 ms\"\n\
                [[flow]]\nname = \"f\"\nfrom = \"browser\"\nto = \"server\"\ntransport = \"sctp\"\n\
                traffic = \"request-response\"\nrequest = \"300 B\"\nresponse = \"20 kB\"\nrequests = 7\n\
                think = \"100 ms\"\nsctp = { streams = 3 }\n";
    let scenario = Scenario::read("requests", text).unwrap_or_else(|e| panic!("{e}"));
    let done = run(&scenario, &Options::default(), |_| ()).unwrap();
    let f = flow(&done, "f");
    let messages = f.messages.unwrap();
    assert_eq!((messages.written, messages.delivered, f.failed), (7, 7, None));
    // A round trip and 16 ms of sending at least, and the pauses between.
    assert!(messages.delay.unwrap().min > 0.056, "{f:?}");
    assert!(f.completion.unwrap() > 7.0 * 0.056 + 6.0 * 0.1, "{f:?}");
}
