//! DCCP in UDP (RFC 6773).

use crate::support::*;
use ringway_dccp::{Ccid, Settings, UDP_PORT};
use ringway_sansio::Endpoint;

fn udp() -> Settings {
    Settings { udp_port: Some(UDP_PORT), ..Settings::default() }
}

/// RFC 6773 sections 3.2, 3.3 and 3.8: the same headers, no checksum of DCCP, and the answer goes to the port
/// that the Request came from.
#[test]
fn a_connection_in_udp_carries_data() {
    for ccid in [Ccid::TcpLike, Ccid::Tfrc] {
        let settings = Settings { ccid, ..Settings::default() };
        let mut pair = Pair::new(Settings { ccid, ..udp() }, settings, ms(10));
        pair.capture = Some(Vec::new());
        pair.links[0].lose = 10;
        let (a, b) = pair.open();
        let mut flows = [Flow::new(0, (a, b), 900), Flow::new(1, (b, a), 900)];
        drive(&mut pair, &mut flows, secs(10));
        assert!(flows.iter().all(|flow| flow.got.len() > 300), "{ccid:?}");
        for (_, flying) in pair.capture.as_ref().unwrap() {
            assert_eq!(flying.addressing.udp_port, UDP_PORT);
            assert_eq!(flying.bytes[6..8], [0, 0]);
        }
        let plain = pair.snapshot(1, b).max_message;
        assert_eq!(plain, 1500 - 20 - 8 - 24 - 32);
    }
}

/// RFC 6773 sections 3.2 and 3.3.1: short numbers and partial coverage are negotiated and stated as above IP, and
/// the UDP checksum covers all nevertheless.
#[test]
fn short_numbers_and_partial_coverage_are_negotiated_in_udp() {
    let wide = Settings { short_seqnos: true, coverage: 1, min_coverage: 1, ..Settings::default() };
    let mut pair = Pair::new(Settings { udp_port: Some(UDP_PORT), ..wide }, wide, ms(10));
    let (a, b) = pair.open();
    pair.run(secs(1));
    pair.capture = Some(Vec::new());
    let mut flows = [Flow::new(0, (a, b), 900), Flow::new(1, (b, a), 900)];
    drive(&mut pair, &mut flows, secs(2));
    assert!(flows.iter().all(|flow| flow.got.len() > 300));
    let sent = pair.capture.as_ref().unwrap();
    let data = sent.iter().map(|(_, flying)| flying.packet()).filter(|p| !p.data.is_empty());
    assert!(data.clone().all(|packet| !packet.header.long && packet.header.coverage == 1));
    assert!(data.count() > 600);
}

/// RFC 6773 section 3.8: clients behind one translator differ by their UDP ports.
#[test]
fn clients_behind_one_address_are_distinguished() {
    let mut pair = Pair::new(udp(), Settings::default(), ms(10));
    pair.b.listen(server(), &[SERVICE], None).unwrap();
    let mut other = host(50, Default::default(), udp());
    let port = std::net::SocketAddr::new(A, 700);
    pair.a.connect(pair.now, port, server(), SERVICE, None).unwrap();
    other.connect(pair.now, port, server(), SERVICE, None).unwrap();
    for (host, udp_port) in [(&mut pair.a, 1000), (&mut other, 1001)] {
        let mut bytes = Vec::new();
        let mut way = host.poll_transmit(pair.now, &mut bytes).unwrap();
        way.udp_port = udp_port;
        pair.b.handle_packet(pair.now, way, &bytes);
    }
    assert_eq!(pair.b.len(), 2);
    let mut ports = Vec::new();
    let mut bytes = Vec::new();
    while let Some(way) = pair.b.poll_transmit(pair.now, &mut bytes) {
        ports.push(way.udp_port);
        bytes.clear();
    }
    assert_eq!(ports, [1000, 1001]);
}
