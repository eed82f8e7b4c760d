//! Three routers in a line: rights, commands, metrics.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::spaces::{Router, Spaces, errors, wait};

const NAMES: &[&str] = &["a", "b", "c"];

/// Starts the three routers. Returns them, and the address of the last when the first reaches it.
fn start(spaces: &Spaces, first: &str) -> ([Router; 3], String) {
    spaces.connect();
    let routers = [
        spaces.start("a", &format!("--interface right {first}")),
        spaces.start("b", "--interface left --interface right"),
        spaces.start("c", "--interface left"),
    ];
    routers[2].logs("ready");
    let address = text(&routers[2].json("address"), "address");
    routers[0].logs("ready");
    wait("the last router", || spaces.run("a", &format!("ping -c 1 -W 1 {address}")).map(|_| ()));
    (routers, address)
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}")).to_owned()
}

#[test]
fn a_router_keeps_no_rights_and_shows_itself() {
    let Some(spaces) = Spaces::new("r", NAMES) else { return };
    let ([a, b, c], address) = start(&spaces, "");
    for router in [&a, &b, &c] {
        for field in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            assert_eq!(router.field(field), "0000000000000000", "{field}");
        }
        assert_eq!(router.field("NoNewPrivs"), "1");
    }
    // The three share a file system and a TUN device's name could be one: the state directory selects.
    let status = c.json("status");
    assert_eq!(text(&status, "address"), address);
    assert_eq!(c.json("address")["id"], status["id"]);
    assert!(status["octets"]["control_sent"].as_u64() > Some(0), "{status}");
    assert!(status["octets"]["delivered"].as_u64() >= Some(104), "{status}");
    assert!(b.json("status")["octets"]["forwarded"].as_u64() >= Some(2 * 104));
    let look_ups = &a.json("status")["look_ups"];
    assert_eq!(look_ups["found"], 1, "{look_ups}");
    assert!(look_ups["seconds"].as_f64() > Some(0.0), "{look_ups}");
    // An interface that vanishes and comes back needs no right.
    spaces.ip("c", "link set left down");
    c.logs("interface left is not used any more");
    spaces.ip("c", "link set left up");
    wait("the last router again", || {
        spaces.run("a", &format!("ping -c 1 -W 1 {address}")).map(|_| ())
    });
    // A second router with the same state is refused, and the first goes on.
    let second = spaces.start("c", "--interface left");
    second.logs("another router uses this state directory");
    assert_eq!(second.fails(), Some(1));
    assert_eq!(text(&c.json("status"), "address"), address);
    // The socket is gone with its router, and the address is still known.
    assert!(c.stop());
    assert!(!spaces.state("c").join("control").exists());
    for router in [a, b] {
        assert!(router.stop());
    }
}

#[test]
fn pings_and_traces_name_the_routers_on_the_way() {
    let Some(spaces) = Spaces::new("p", NAMES) else { return };
    let ([a, b, c], address) = start(&spaces, "");
    let (middle, last) = (b.json("address"), c.json("address"));
    let host = address.replace("::1", "::1234");
    for name in [&address, &host, &text(&last, "id")] {
        let ping = a.json(&format!("ping {name} --count 2"));
        assert_eq!((&ping["sent"], &ping["answered"]), (&2.into(), &2.into()), "{ping}");
        assert!(ping["min_ms"].as_f64() <= ping["max_ms"].as_f64() && ping["avg_ms"].is_number());
        let probe = &ping["probes"][1];
        assert_eq!((&probe["sequence"], &probe["outcome"]), (&2.into(), &"answered".into()));
        assert_eq!((&probe["id"], &probe["hops"]), (&last["id"], &2.into()), "{probe}");
        let trace = a.json(&format!("trace {name}"));
        assert_eq!(trace["reached"], true, "{trace}");
        let hops = trace["hops"].as_array().unwrap();
        assert_eq!(hops.len(), 2, "{trace}");
        for (hop, router) in hops.iter().zip([&middle, &last]) {
            for probe in hop["probes"].as_array().unwrap() {
                assert_eq!(probe["id"], router["id"], "{trace}");
                assert!(probe["rtt_ms"].as_f64() > Some(0.0), "{trace}");
            }
        }
    }
    let output = a.ask(&format!("ping {address} --count 1"));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(shown.contains("seq=1 hops=2 mtu=") && shown.contains("1 sent, 1 answered, 0% lost"));
    assert!(shown.contains("rtt min/avg/max = "), "{shown}");
    let output = a.ask(&format!("trace {address}"));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains(&format!("  2  {}", text(&last, "id"))), "{shown}");

    // What cannot be reached, for three reasons.
    let nobody = a.ask("ping fd12:3456:789a:bcde::1 --count 1");
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stdout).contains("seq=1 no route"));
    assert_eq!(
        a.json("trace fd12:3456:789a:bcde::1")["hops"][0]["probes"][0]["outcome"],
        "no-route"
    );
    let own = text(&a.json("address"), "address");
    for (to, expected) in [("2001:db8::1", "is no address of the mesh"), (&own, "is behind this")] {
        let refused = a.ask(&format!("ping {to}"));
        assert_eq!(refused.status.code(), Some(1));
        assert!(errors(&refused).contains(expected), "{}", errors(&refused));
    }
    // A router that is gone without leaving: the one before it still names itself.
    drop(c);
    let trace = a.json(&format!("trace {address}"));
    assert_eq!(trace["reached"], false, "{trace}");
    assert_eq!(trace["hops"][0]["probes"][0]["id"], middle["id"], "{trace}");
}

#[test]
fn clients_that_hang_up_or_come_in_crowds_stop_nobody() {
    let Some(spaces) = Spaces::new("x", NAMES) else { return };
    let ([a, _b, _c], address) = start(&spaces, "");
    let connect = |command: &str| {
        let stream = UnixStream::connect(spaces.state("a").join("control")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let command = format!("{{\"command\":{command}}}\n");
        (&stream).write_all(command.as_bytes()).unwrap();
        stream
    };
    let first_line = |stream: &UnixStream| {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    };
    let ping = format!("\"ping\",\"destination\":\"{address}\",\"count\":1000");
    let crowd: Vec<_> = (0..12).map(|_| connect(&ping)).collect();
    let refused = crowd.iter().filter(|&one| first_line(one).contains("8 pings and traces are"));
    assert_eq!(refused.count(), 4);
    let status = a.json("status");
    assert_eq!(status["limits"]["probing-clients"], 4, "{status}");
    // All of them hang up: the room is there again.
    crowd.iter().for_each(|one| one.shutdown(Shutdown::Both).unwrap());
    drop(crowd);
    wait("room for a trace", || a.ask(&format!("trace {address}")).status.success().then_some(()));
    for question in ["\"dance\"", "\"ping\",\"destination\":\"x\",\"count\":1"] {
        let answer = first_line(&connect(question));
        assert!(answer.contains("\"error\":\"expected a question: "), "{answer}");
    }
    let half = UnixStream::connect(spaces.state("a").join("control")).unwrap();
    (&half).write_all(b"{\"command\":").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert!(first_line(&half).contains("expected a question"));
    assert!(a.stop());
}

/// Asks for a page of the first router.
fn get(spaces: &Spaces, port: u16, path: &str) -> String {
    ask(spaces, port, &format!("GET {path} HTTP/1.1"))
}

/// Sends a request line to a port in the first namespace and returns the answer.
fn ask(spaces: &Spaces, port: u16, line: &str) -> String {
    let script =
        "exec 3<>/dev/tcp/127.0.0.1/$1; printf '%s\\r\\nHost: x\\r\\n\\r\\n' \"$2\" >&3; cat <&3";
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &spaces.name("a"), "timeout", "20", "bash", "-c", script]);
    let output = command.args(["bash", &port.to_string(), line]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn metrics_are_served_on_loopback() {
    const PORT: u16 = 8061;
    let Some(spaces) = Spaces::new("m", NAMES) else { return };
    let (routers, address) = start(&spaces, &format!("--http 127.0.0.1:{PORT}"));
    let page = get(&spaces, PORT, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("Content-Type: application/openmetrics-text; version=1.0.0"), "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
    for line in [
        "ringway_mesh_neighbours 1",
        "ringway_mesh_sessions 1",
        "ringway_mesh_packets_total{path=\"forwarded\"} 0",
        "ringway_mesh_limits_hit_total{limit=\"messages-of-neighbour\"} 0",
        "ringway_mesh_dropped_total{reason=\"packet-no-session\"} 0",
        "ringway_mesh_look_up_seconds_count 1",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in {page}");
    }
    let value = |page: &str, name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse::<f64>().unwrap()
    };
    let name = "ringway_mesh_packets_total{path=\"sent\"}";
    let before = value(&page, name);
    assert!(spaces.run("a", &format!("ping -c 3 -i 0.2 {address}")).is_some());
    let page = get(&spaces, PORT, "/metrics");
    assert!(value(&page, name) >= before + 3.0, "{page}");
    assert!(value(&page, "ringway_mesh_control_octets_total{direction=\"sent\"}") > 0.0);
    assert!(get(&spaces, PORT, "/").starts_with("HTTP/1.1 404 Not Found\r\n"));
    let posted = ask(&spaces, PORT, "POST /metrics HTTP/1.1");
    assert!(posted.starts_with("HTTP/1.1 405 Method Not Allowed\r\n"), "{posted}");
    for router in routers {
        assert!(router.stop());
    }
}

#[test]
fn a_service_manager_is_notified() {
    let Some(spaces) = Spaces::new("n", &["a"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("notify");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let next = || {
        let mut buffer = [0; 512];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    let router = spaces.start_with(
        "a",
        "--interface none",
        &[("NOTIFY_SOCKET", address.to_str().unwrap()), ("WATCHDOG_USEC", "600000")],
    );
    assert_eq!(next(), "READY=1");
    router.logs("ready");
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1");
    }
    assert!(router.stop());
    let rest: Vec<String> =
        std::iter::from_fn(|| Some(next())).take_while(|text| text != "STOPPING=1").collect();
    assert!(rest.iter().all(|text| text == "WATCHDOG=1"), "{rest:?}");
}
