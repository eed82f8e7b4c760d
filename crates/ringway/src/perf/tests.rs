//! Tests of the protocol between client and server, and of the report.

use super::args::size;
use super::error::PerfError;
use super::location::{Location, ResolvedLocation};
use super::protocol::{Begin, Control, DATA, ECHO, End, Reply, Session};
use super::report::{Latency, Report, Row, Throughput};
use super::transport::Transport;
use hdrhistogram::Histogram;
use std::net::IpAddr;
use std::time::{Duration, Instant};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn resolved(text: &str, from: &[IpAddr]) -> Result<ResolvedLocation, PerfError> {
    block_on(text.parse::<Location>().unwrap().resolve(from))
}

#[test]
fn locations_are_addresses_and_names_with_a_port() {
    for text in ["127.0.0.1:5000", "10.0.0.1,[fd00::1]:7?encap=9899", "[::1]:1"] {
        let location = resolved(text, &[]).ok().unwrap();
        assert_eq!(location.to_string(), text);
    }
    for text in
        ["", "127.0.0.1", "127.0.0.1:0", "::1:5", "1.2.3:5", "1.2.3.4:5?encap=x", "1.2.3.4,:5"]
    {
        let error = text.parse::<Location>().unwrap_err();
        assert!(error.starts_with("expected HOST") && error.contains(text), "{error}");
    }
    let name = |length| format!("{}:5", "a".repeat(length)).parse::<Location>();
    assert!(name(253).is_ok() && name(254).is_err(), "RFC 1035 section 2.3.4");
    let many = vec!["127.0.0.1"; 17].join(",");
    assert!(format!("{many}:5").parse::<Location>().is_err(), "more than an association has");
    let two = resolved("127.0.0.1,127.0.0.2:5", &[]).ok().unwrap();
    assert!(matches!(two.single(Transport::Tcp), Err(PerfError::Usage(_))));
    let over_udp = resolved("127.0.0.1:5", &[]).ok().unwrap().for_sctp(Transport::SctpUdp);
    let over_udp = over_udp.ok().unwrap();
    assert_eq!(over_udp.encap, Some(9899), "RFC 6951 section 1");
    assert!(matches!(over_udp.for_sctp(Transport::Sctp), Err(PerfError::Usage(_))));
}

#[test]
fn a_name_is_resolved() {
    let location = resolved("localhost:7?encap=9", &[]).ok().unwrap();
    assert_eq!(location.to_string(), "127.0.0.1:7?encap=9", "IPv4 before IPv6");
    // RFC 6761 section 6.4: never an address.
    let missing = resolved("no-such-host.invalid:7", &[]);
    let Err(PerfError::Failed(line)) = missing else { panic!("an address for a name without one") };
    assert!(line.starts_with("no-such-host.invalid: "), "{line}");
}

#[test]
fn sizes_have_units() {
    let sizes = [
        ("1", 1),
        ("100B", 100),
        ("1k", 1000),
        ("1kB", 1000),
        ("64KiB", 65_536),
        ("2Ki", 2048),
        ("1M", 1_000_000),
        ("4MiB", 4 << 20),
    ];
    for (text, bytes) in sizes {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    for text in ["", "k", "0", "0k", "1.5k", "-1", "1G", "5MiB", "1 k", "99999999999999999999M"] {
        assert!(size(text).unwrap_err().starts_with("expected 1 to 4194304 bytes"), "{text}");
    }
}

const BEGIN: Begin = Begin { run: 7, size: 10 };

fn sent_message(reply: Reply) -> Control {
    match reply {
        Reply::Send(bytes) => Control::read(&bytes).unwrap(),
        other => panic!("expected an answer, got {other:?}"),
    }
}

/// Returns a session that has begun and received `count` messages, 10 ms apart.
fn session(count: u64) -> (Session, Instant) {
    let (mut session, mut now) = (Session::default(), Instant::now());
    let begun = session.take(now, &Control::Begin(BEGIN).bytes(), 0, false);
    assert_eq!(sent_message(begun), Control::Begun(BEGIN));
    for _ in 0..count {
        now += Duration::from_millis(10);
        assert_eq!(session.take(now, &[DATA; 10], 10, false), Reply::Nothing);
    }
    (session, now)
}

#[test]
fn counts_follow_the_last_message() {
    let (mut session, now) = session(4);
    let end = Control::End(End { run: 7, sent: 5 }).bytes();
    assert_eq!(session.take(now, &end, end.len(), false), Reply::Nothing);
    assert!(session.result().is_none());
    // The end arrived on another stream, before the last message.
    let last = session.take(now, &[DATA; 10], 10, false);
    let Control::Counts(counted) = sent_message(last) else { panic!("expected a count") };
    assert_eq!((counted.run, counted.messages, counted.bytes), (7, 5, 50));
    assert!((counted.seconds - 0.03).abs() < 1e-9, "{}", counted.seconds);
    assert_eq!(session.result().map(|(begin, _)| begin), Some(BEGIN));
    assert!(session.result().is_none(), "told once");
}

#[test]
fn lost_datagrams_are_not_waited_for() {
    let (mut session, now) = session(3);
    let end = Control::End(End { run: 7, sent: 5 }).bytes();
    let first = sent_message(session.take(now, &end, end.len(), true));
    assert!(matches!(first, Control::Counts(counted) if counted.messages == 3));
    // The answer was lost, so it is sent again. A late message does not change it.
    assert_eq!(session.take(now, &[DATA; 10], 10, true), Reply::Nothing);
    assert_eq!(sent_message(session.take(now, &end, end.len(), true)), first);
    // The answer to Begin was lost too: the counts stay until another measurement begins.
    session.take(now, &Control::Begin(BEGIN).bytes(), 0, true);
    assert_eq!(sent_message(session.take(now, &end, end.len(), true)), first);
    session.take(now, &Control::Begin(Begin { run: 8, size: 1 }).bytes(), 0, true);
    assert_eq!(session.take(now, &end, end.len(), true), Reply::Nothing, "of the one before");
}

#[test]
fn unknown_messages_are_ignored() {
    let (mut session, now) = session(0);
    assert_eq!(session.take(now, &[ECHO, 1, 2], 3, false), Reply::Echo);
    for nonsense in [&b""[..], &[9, 9], &[2, b'{'], &[4; 600], &[2; 100]] {
        assert_eq!(session.take(now, nonsense, nonsense.len(), false), Reply::Nothing);
    }
}

#[test]
fn a_report_has_a_line_for_each_size() {
    let mut times = Histogram::new(3).unwrap();
    for us in 1..=1000u64 {
        times.record(us * 1000).unwrap();
    }
    let throughput = Throughput::new(2000, (1000, 1_000_000), 0.5, 0.25, 0.75);
    let row = Row { size: 1000, throughput, latency: Latency::new(&times, 0) };
    let nothing = Throughput::new(10, (0, 0), 0.0, 0.1, 0.1);
    let unanswered = Row {
        size: 60_000,
        throughput: nothing,
        latency: Latency::new(&Histogram::new(3).unwrap(), 5),
    };
    let report = Report {
        transport: Transport::SctpUdp,
        to: "127.0.0.1:7109".to_owned(),
        streams: 2,
        seconds: 3.0,
        sizes: vec![row, unanswered],
    };
    let text = report.text();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(text.starts_with("sctp+udp to 127.0.0.1:7109, 2 streams, 3.00 s a size"), "{text}");
    assert_eq!(lines[2][..6], ["1000", "16.00", "Mbit/s", "2000", "50.00", "1000.00"], "{text}");
    assert_eq!(lines[3][..6], ["60000", "0.00", "kbit/s", "0", "100.00", "0.00"], "{text}");
    assert_eq!(lines[3][6], "-", "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["transport"], "sctp+udp");
    let latency = &json["sizes"][0]["latency"];
    assert!((latency["p99_us"].as_f64().unwrap() - 990.0).abs() < 2.0, "{latency}");
    assert_eq!(json["sizes"][0]["throughput"]["bits_per_second"], 16e6);
}
