//! Captures, and their dissection by tshark where it is installed.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Line, PORT};
use ringway_link::queue::DropTailPackets;
use ringway_link::{LinkConfig, QueueConfig, Rate, Sometimes, Span, Streams};
use ringway_sansio::{Addressing, Ecn, Endpoint, Time};
use ringway_sim::headers;
use ringway_sim::traffic::{Sink, SourceConfig};
use ringway_sim::{Bind, Capture, World};
use std::net::IpAddr;
use std::process::Command;

/// Returns tshark's output of `fields` for a capture; `None` where there is no tshark.
fn tshark(capture: &[u8], name: &str, fields: &[&str]) -> Option<Vec<String>> {
    let path = std::env::temp_dir().join(format!("ringway-sim-{}-{name}", std::process::id()));
    std::fs::write(&path, capture).unwrap();
    let checks = ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"];
    let mut command = Command::new("tshark");
    command.arg("-n").args(["-T", "fields"]).arg("-r").arg(&path);
    checks.iter().for_each(|c| {
        command.args(["-o", &format!("{c}:TRUE")]);
    });
    fields.iter().for_each(|f| {
        command.args(["-e", f]);
    });
    let output = command.output();
    std::fs::remove_file(&path).unwrap();
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_string).collect())
}

#[test]
fn drops_carry_their_reason() {
    let link = LinkConfig {
        rate: Rate(80_000),
        delay: Span::from_millis(5),
        queue: QueueConfig::DropTail(DropTailPackets { limit: 1 }),
        ..LinkConfig::default()
    };
    // A packet each 50 ms onto a link that takes 100 ms.
    let config = |a, b| SourceConfig {
        pattern: ringway_sim::traffic::Pattern::Constant(Rate(160_000)),
        max_packets: 6,
        ..SourceConfig::ns2(a, b)
    };
    let mut line = Line::new(Streams::new(1, 0), &[link], config, Sink::new());
    let capture = Capture::new(&line.world, &[line.onward[0]], Vec::new()).unwrap();
    let number = line.world.add_recorder(capture);
    line.run(Time::from_secs(2));
    let capture = line.world.take_recorder::<Capture<Vec<u8>>>(number).unwrap().finish().unwrap();
    let fields = [
        "frame.time_epoch",
        "ip.src",
        "ip.dst",
        "ip.len",
        "ip.ttl",
        "ip.checksum.status",
        "udp.dstport",
        "udp.checksum.status",
        "frame.comment",
        "frame.interface_name",
    ];
    let Some(lines) = tshark(&capture, "drops", &fields) else { return };
    let common = |at: &str, comment: &str| {
        format!("{at}\t10.0.0.1\t10.0.0.2\t1000\t64\t1\t{PORT}\t1\t{comment}\tn0-n1")
    };
    let expected = [
        common("0.000000000", ""),
        common("0.100000000", ""),
        common("0.150000000", "dropped: queue full"),
        common("0.200000000", ""),
        common("0.250000000", "dropped: queue full"),
        common("0.300000000", ""),
    ];
    assert_eq!(lines, expected);
}

/// An endpoint that sends one prepared segment.
struct Once(Option<(Addressing, Vec<u8>)>);

impl Endpoint for Once {
    fn handle_packet(&mut self, _: Time, _: Addressing, _: &[u8]) {}
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_transmit(&mut self, _: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let (addressing, segment) = self.0.take()?;
        payload.extend_from_slice(&segment);
        Some(addressing)
    }
}

/// A SYN over IPv6 that is marked on the path: tshark dissects TCP, finds a correct checksum, and sees
/// the mark.
#[test]
fn tcp_over_ipv6_is_dissected() {
    let ip = |n: u16| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
    let mut world = World::new(Streams::new(1, 0));
    let a = world.add_node("a").unwrap();
    let b = world.add_node("b").unwrap();
    let always = Sometimes { chance: ringway_link::Chance::ALWAYS, ..Sometimes::NEVER };
    let link = LinkConfig { ecn_mark: always, ..LinkConfig::default() };
    let (out, far) = world.connect(a, b, link, LinkConfig::default()).unwrap();
    world.add_address(out, ip(1)).unwrap();
    world.add_address(far, ip(2)).unwrap();
    let capture = Capture::new(&world, &[out, far], Vec::new()).unwrap();
    let number = world.add_recorder(capture);

    let addressing = Addressing { ecn: Ecn::Ect0, ..Addressing::new(ip(1), ip(2), 6) };
    let mut syn = vec![0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0x40, 0, 0, 0, 0, 0];
    let sum = headers::pseudo_sum(&addressing, syn.len()) + headers::sum(&syn);
    syn[16..18].copy_from_slice(&headers::fold(sum).to_be_bytes());
    world.attach(a, Bind::protocol(6), Once(Some((addressing, syn)))).unwrap();
    world.attach(b, Bind::protocol(6), Once(None)).unwrap();
    world.run_until(Time::from_secs(1)).unwrap();
    let file = world.take_recorder::<Capture<Vec<u8>>>(number).unwrap().finish().unwrap();
    let fields = [
        "frame.interface_name",
        "ipv6.src",
        "tcp.dstport",
        "tcp.flags.syn",
        "tcp.checksum.status",
        "ipv6.tclass.ecn",
    ];
    let Some(lines) = tshark(&file, "tcp", &fields) else { return };
    let line = |name: &str| {
        let syn = ["1", "True"].map(|t| format!("{name}\tfd00::1\t80\t{t}\t1\t3"));
        syn.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(lines.len(), 2);
    assert!(line("a-b").contains(&lines[0]) && line("b-a").contains(&lines[1]), "{lines:?}");
}
