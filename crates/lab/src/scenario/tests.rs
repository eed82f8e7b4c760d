use super::*;
use proptest::prelude::*;

const GOOD: &str = r#"
[scenario]
title = "A line"
nodes = ["a", "b", "c"]
stop = "10 s"

[[link]]
name = "line"
between = ["a", "b"]
rate = "1 Mbit/s"
delay = "10 ms"
queue = { discipline = "red", min = 5, max = 15 }

[link.back]
rate = "128 kbit/s"
loss = { model = "random", chance = "1 %" }

[[link]]
between = ["b", "c"]

[[flow]]
name = "calls"
from = "a"
to = "c"
transport = "udp"
traffic = "cbr"
rate = "64 kbit/s"
packet = "200 B"

[[flow]]
name = "file"
from = "a"
to = "c"
transport = "tcp"
traffic = "file"
size = "1 MB"
tcp = { algorithm = "new-reno", delayed_ack = "0 s" }

[[probe]]
what = "queue"
link = "line"
every = "50 ms"
"#;

fn good() -> Scenario {
    Scenario::read("good.toml", GOOD).unwrap()
}

/// Returns the problems of the valid file with one change.
fn wrong(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    let text = GOOD.replacen(old, new, 1);
    match Scenario::read("x.toml", &text) {
        Ok(_) => panic!("{new:?} was taken"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn a_scenario_is_read() {
    let s = good();
    assert_eq!(s.stop, Stop::At(Span::from_secs(10)));
    assert_eq!(s.links[0].there.rate.0, 1_000_000);
    assert_eq!(s.links[0].back.rate.0, 128_000);
    // A direction's missing settings are those of both directions.
    assert_eq!(s.links[0].back.delay, Span::from_millis(10));
    assert_eq!(s.links[0].there.loss, ringway_link::Loss::None {});
    assert_eq!(s.links[1].name, "b-c");
    assert_eq!((s.flows[0].from, s.flows[0].to), (0, 2));
    assert_eq!(s.flows[1].tcp.algorithm, ringway_tcp::Algorithm::NewReno);
    assert_eq!(s.probes[0].link, Some((0, true)));
}

/// Each mistake is reported with file, line, key, and the nearest valid key or what was expected.
#[test]
fn mistakes_are_reported_with_line_key_and_expectation() {
    for (old, new, expected) in [
        (
            "stop = \"10 s\"",
            "stop = \"10 s\"\npositions = { a = [0, 0], B = [1, 0.5], c = [2, 0] }",
            "x.toml:6:13: scenario.positions: no node \"B\"; did you mean \"b\"?",
        ),
        (
            "stop = \"10 s\"",
            "stop = \"10 s\"\npositions = { a = [0, 0], b = [1, 0] }",
            "scenario.positions: expected a position of each node, got none of \"c\"",
        ),
        (
            "stop = \"10 s\"",
            "stop = \"10 s\"\npositions = { a = [0, inf], b = [1, 0], c = [2, 0] }",
            "scenario.positions: expected numbers of at most 1000000, got [0.0, inf]",
        ),
        (
            "delay = \"10",
            "delya = \"10",
            "x.toml:11:1: link.line: unknown key `delya`; did you mean `delay`?",
        ),
        (
            "\"10 ms\"",
            "\"10\"",
            "x.toml:11:9: link.line.delay: expected a time with its unit (ns, us, ms, s, min), such as \"35 ms\", got \"10\"",
        ),
        (
            "\"10 ms\"",
            "10",
            "x.toml:11:9: link.line.delay: expected a time with its unit (ns, us, ms, s, min), such as \"35 ms\", got the number 10",
        ),
        (
            "\"1 Mbit/s\"",
            "\"1 MB\"",
            "x.toml:10:8: link.line.rate: expected a bit rate with its unit",
        ),
        (
            "min = 5",
            "mni = 5",
            "x.toml:12:31: link.line.queue: unknown key `mni`; did you mean `min`?",
        ),
        (
            "chance = \"1 %\"",
            "chance = \"101 %\"",
            "x.toml:16:37: link.line.back.loss.chance: expected a probability",
        ),
        (
            "\"red\"",
            "\"rde\"",
            "x.toml:12:24: link.line.queue.discipline: expected one of \"drop-tail\"",
        ),
        (
            "min = 5",
            "min = 50",
            "x.toml:12:9: link.line.queue: expected a `min` of 1 or more and below `max`",
        ),
        (
            "between = [\"b\", \"c\"]",
            "between = [\"b\", \"C\"]",
            "x.toml:19:11: link.2.between: no node \"C\"; did you mean \"c\"?",
        ),
        (
            "between = [\"b\", \"c\"]",
            "betwen = [\"b\", \"c\"]",
            "link.2: the key `between` is missing",
        ),
        (
            "between = [\"b\", \"c\"]",
            "between = [\"a\", \"b\"]\nname = \"line\"",
            "an earlier link has the name \"line\"",
        ),
        (
            "between = [\"b\", \"c\"]",
            "between = [\"a\", \"b\"]",
            "x.toml:24:6: flow.calls.to: no route: no links lead from \"a\" to \"c\"",
        ),
        ("nodes = [\"a\"", "nodes = [\"b\"", "the node \"b\" is listed twice"),
        (
            "nodes = [\"a\"",
            "nodes = [\"a b\"",
            "x.toml:4:9: scenario.nodes: expected a name of 1 to 64 letters, digits, - and _, got \"a b\"",
        ),
        (
            "from = \"a\"",
            "from = \"d\"",
            "x.toml:23:8: flow.calls.from: no node \"d\"; there are: a, b, c",
        ),
        (
            "packet = \"200 B\"",
            "packets = \"200 B\"",
            "x.toml:28:11: flow.calls.packets: expected a whole number from 0, got \"200 B\"",
        ),
        (
            "packet = \"200 B\"",
            "size = \"200 B\"",
            "x.toml:28:8: flow.calls.size: not a key of this traffic, which knows: rate, packet, packets, stop",
        ),
        (
            "packet = \"200 B\"",
            "packet = \"20 B\"",
            "flow.calls.packet: expected 44 B to 65535 B, got 20 B",
        ),
        ("rate = \"64 kbit/s\"\n", "", "flow.calls: the key `rate` is missing"),
        ("traffic = \"cbr\"", "traffic = \"crb\"", "did you mean \"cbr\"?"),
        ("traffic = \"cbr\"", "traffic = \"bulk\"", "needs a transport with congestion control"),
        (
            "delayed_ack = \"0 s\"",
            "delayed_ack = \"2 s\"",
            "x.toml:37:7: flow.file.tcp: expected an acknowledgment delay in ms of 0 to 500, got 2000",
        ),
        (
            "delayed_ack",
            "delay_ack",
            "flow.file.tcp: unknown key `delay_ack`; did you mean `delayed_ack`?",
        ),
        (
            "name = \"file\"",
            "name = \"calls\"",
            "x.toml:31:8: flow.calls.name: an earlier flow has the name \"calls\"",
        ),
        (
            "link = \"line\"",
            "link = \"lines\"",
            "x.toml:41:8: probe.1.link: no link \"lines\"; did you mean \"line\"?",
        ),
        ("what = \"queue\"", "what = \"cwnd\"", "a probe of \"cwnd\" has no `link`"),
        ("\"50 ms\"", "\"1 us\"", "x.toml:42:9: probe.1.every: expected 10 us to"),
        (
            "stop = \"10 s\"",
            "stop = \"ten\"",
            "x.toml:5:8: scenario.stop: expected a time with its unit (ns, us, ms, s, min), such as \"29 s\", or \"flows done\", got",
        ),
        ("stop = \"10 s\"", "stop = \"0 s\"", "scenario.stop: expected more than 0 s"),
        ("[[probe]]", "[probe]", "probe: expected [[probe]], a table each"),
        ("[[flow]]", "[[flows]]", "unknown key `flows`; did you mean `flow`?"),
        ("[[flow]]", "[[flow]", "x.toml:"),
        ("title = \"A line\"", "", "scenario.title: expected a title in a line"),
    ] {
        let got = wrong(old, new);
        assert!(got.contains(expected), "{new:?}\nexpected {expected}\ngot      {got}");
    }
}

/// Contradicting settings of SCTP are reported at the surplus key.
#[test]
fn mistakes_of_sctp_are_reported() {
    let file = "transport = \"tcp\"\ntraffic = \"file\"\nsize = \"1 MB\"\n\
                tcp = { algorithm = \"new-reno\", delayed_ack = \"0 s\" }";
    let with = |traffic: &str, sctp: &str| {
        wrong(file, &format!("transport = \"sctp\"\n{traffic}\nsctp = {{ {sctp} }}"))
    };
    let messages = "traffic = \"cbr\"\nrate = \"1 Mbit/s\"";
    for (sctp, expected) in [
        (
            "retransmissions = 0, lifetime = \"1 s\"",
            "flow.file.sctp.retransmissions: expected only one",
        ),
        ("retransmissions = 300", "expected a whole number from 0 to 255, got the number 300"),
        ("scheduling = \"weighted\"", "did you mean \"weighted-fair\"?"),
        (
            "weights = [1]",
            "flow.file.sctp.weights: expected with scheduling = \"weighted-fair\" only",
        ),
        ("scheduling = \"weighted-fair\", weights = [0]", "expected 1 or more each, got 0"),
        (
            "scheduling = \"priority\", priorities = [0, 1]",
            "at most one for each of 1 streams, got 2",
        ),
        ("multipath = \"pooled\"", "flow.file.sctp.multipath: expected with two `paths` or more"),
        ("deal = \"random\"", "did you mean \"at-random\"?"),
        ("paths = [\"lime\"]", "no link \"lime\"; did you mean \"line\"?"),
        ("stream = 8", "unknown key `stream`; did you mean `streams`?"),
    ] {
        let reported = with(messages, sctp);
        assert!(reported.contains(expected), "{sctp}: {reported}");
    }
    let reported = with("traffic = \"file\"\nsize = \"1 MB\"", "lifetime = \"1 s\"");
    assert!(reported.contains("a file needs all of its messages"), "{reported}");
}

#[test]
fn all_mistakes_are_reported_together() {
    let text = GOOD.replace("delay = \"10", "delya = \"10").replace("size = \"1 MB\"", "size = 1");
    let problems = Scenario::read("x.toml", &text).unwrap_err();
    assert_eq!(problems.iter().count(), 2, "{problems}");
    assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [11, 36]);
    // In one table too, one problem does not hide another.
    let text = GOOD
        .replace("chance = \"1 %\"", "chance = \"1 %%\"")
        .replace("min = 5, max", "min = \"5\", mxa")
        .replace("delay = \"10", "delya = \"10");
    let problems = Scenario::read("x.toml", &text).unwrap_err();
    let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
    let queue = "link.line.queue";
    assert_eq!(keys, ["link.line", &format!("{queue}.min"), queue, "link.line.back.loss.chance"]);
}

#[test]
fn everything_is_bounded() {
    let many = |what: &str, table: &str, max: usize| {
        let text = format!("{GOOD}\n{}", table.repeat(max + 1));
        let problems = Scenario::read("x.toml", &text).unwrap_err().to_string();
        assert!(problems.contains(&format!("{what}: expected at most {max}")), "{problems}");
    };
    many("probe", "[[probe]]\n", MAX_PROBES);
    many("flow", "[[flow]]\n", MAX_FLOWS);
    many("route", "[[route]]\n", MAX_ROUTES);
    let few = wrong("nodes = [\"a\", \"b\", \"c\"]", "nodes = [\"a\"]");
    assert!(few.contains("expected at least 2 names, got 1"), "{few}");
    let long = format!("{GOOD}#{}", "x".repeat(MAX_FILE));
    assert!(Scenario::read("x.toml", &long).unwrap_err().to_string().contains("16777216 bytes"));
    // Deep nesting is refused by the TOML parser before the stack overflows.
    let deep = format!("x = {}", "[".repeat(100_000));
    assert!(Scenario::read("x.toml", &deep).is_err());
}

#[test]
fn values_are_set_by_key_path() {
    let mut document = Document::parse("x.toml", GOOD).unwrap();
    let value = |text: &'static str| toml::de::DeValue::parse(text).unwrap();
    document.set("link.*.delay", &value("'70 ms'")).unwrap();
    document.set("link.line.queue.limit", &value("7")).unwrap();
    document.set("flow.2.size", &value("'2 MB'")).unwrap();
    document.set("link.b-c.rate", &value("'3 Mbit/s'")).unwrap_err();
    document.set("link.2.rate", &value("'3 Mbit/s'")).unwrap();
    document.set("flow.calls.tcp.sack", &value("true")).unwrap();
    let error = Scenario::from_document(&document).unwrap_err().to_string();
    assert!(error.contains("settings of transport \"tcp\""), "{error}");
    let mut document = Document::parse("x.toml", GOOD).unwrap();
    document.set("link.*.delay", &value("'70 ms'")).unwrap();
    let s = Scenario::from_document(&document).unwrap();
    assert_eq!(s.links[1].there.delay, Span::from_millis(70));
    for (path, expected) in [
        ("flow.call.rate", "did you mean `calls`?"),
        ("flws.calls.rate", "did you mean `flow`?"),
        ("flow", "expected a key path"),
        ("flow..x", "expected a key path"),
        ("scenario.title.x", "expected a table above `x`, got \"A line\""),
    ] {
        let error = document.set(path, &value("1")).unwrap_err();
        assert!(error.contains(expected), "{path}: {error}");
    }
}

/// Reads a text that may be invalid; it must not panic.
fn survive(text: &str) {
    if let Err(problems) = Scenario::read("x.toml", text) {
        assert!(!problems.lines().is_empty());
        assert!(problems.lines().iter().all(|l| !l.contains('\n')), "{problems}");
    }
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in ".{0,400}") {
        survive(&text);
    }

    /// Words of the format in any order, which pass more checks than random text.
    #[test]
    fn arbitrary_words_never_panic(words in prop::collection::vec(
        prop::sample::select(vec![
            "[scenario]\n", "[[link]]\n", "[[flow]]\n", "[[probe]]\n", "[link.back]\n", "[[route]]\n",
            "nodes = [\"a\", \"b\"]\n", "between = [\"a\", \"b\"]\n", "title = \"t\"\n", "stop = \"1 s\"\n",
            "rate = \"1 Mbit/s\"\n", "queue = { discipline = \"pie\" }\n", "loss = {}\n", "name = \"x\"\n",
            "from = \"a\"\n", "to = \"b\"\n", "transport = \"tcp\"\n", "traffic = \"file\"\n", "size = 1\n",
            "tcp = { mtu = \"1 B\" }\n", "what = \"delay\"\n", "flow = \"x\"\n", "back = 3\n", "x.y.z = 1\n",
            "schedule = [{}]\n", "rate_trace = [{ lasts = \"1 s\" }]\n", "name = 7\n", "\u{0}", "=", "\"",
        ]), 0..40)) {
        survive(&words.concat());
    }

    /// The valid file with a few bytes changed.
    #[test]
    fn changed_bytes_never_panic(changes in prop::collection::vec((0..GOOD.len(), any::<u8>()), 1..6)) {
        let mut bytes = GOOD.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        survive(&String::from_utf8_lossy(&bytes));
    }
}
