//! Laws of rewriting, and of a relay under any sequence of messages and packets.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use proptest::prelude::*;
use ringway_media::body::locate;
use ringway_media::config::MAX_STREAMS;
use ringway_media::description::Description;
use ringway_media::rewrite::{Plan, rewrite};
use ringway_media::{Config, Leg, Limits};
use ringway_sansio::Duration;
use ringway_sip::sdp::Session;
use std::net::{IpAddr, SocketAddr};

/// Lines that a description may have, right ones and odd ones.
fn line() -> impl Strategy<Value = String> {
    let port = prop_oneof![Just(0u16), any::<u16>()];
    prop_oneof![
        (
            port.clone(),
            prop::sample::select(vec![
                "RTP/AVP 0",
                "udptl t38",
                "TCP/MSRP *",
                "UDP/TLS/RTP/SAVPF 96 97"
            ])
        )
            .prop_map(|(port, rest)| format!("m=audio {port} {rest}")),
        port.clone().prop_map(|port| format!("m=video {port}/2 RTP/AVP 31")),
        prop::sample::select(vec![
            "c=IN IP4 10.50.60.7",
            "c=IN IP6 fd00::7",
            "c=IN IP4 0.0.0.0",
            "c=IN IP6 x.invalid",
            "c=IN IP4 phone.example",
            "c=IN IP4 224.1.1.1/127",
            "i=x",
            "b=AS:64",
            "a=sendonly",
            "a=rtcp-mux",
            "a=ice-ufrag:x",
            "a=candidate:1 1 UDP 1 10.0.0.1 9 typ host",
            "a=ICE-PWD:y",
            "a=source-filter: incl IN IP4 * 10.0.0.1",
            "a=rtpmap:0 PCMU/8000",
            "a=",
            "a=fingerprint:sha-256 AA",
            "s=again",
            "k=clear:x",
            "t=0 0",
        ])
        .prop_map(str::to_owned),
        port.prop_map(|port| format!("a=rtcp:{port} IN IP4 10.50.60.9")),
        "[ -~]{0,30}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    let line_end = prop::sample::select(vec!["\r\n", "\n"]);
    let head = prop::sample::select(vec![
        "v=0\r\no=- 1 1 IN IP4 10.50.60.7\r\ns=-\r\n",
        "v=0\no=a  2 3  IN IP6 fd00::7\ns=-\nc=IN IP6 fd00::7\nt=0 0\n",
        "v=0\r\no=- 1 1 IN IP4 h.example\r\ns=-\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n",
    ]);
    (head, prop::collection::vec((line(), line_end), 0..12), any::<bool>()).prop_map(
        |(head, lines, ends)| {
            let mut text = head.to_owned();
            lines.into_iter().for_each(|(line, end)| text += &(line + end));
            if !ends {
                text.truncate(text.trim_end_matches(['\r', '\n']).len());
            }
            text
        },
    )
}

/// Returns the lines that a relay never touches.
fn untouched(text: &[u8]) -> Vec<&[u8]> {
    let touched = |line: &[u8]| {
        let lower = String::from_utf8_lossy(line).to_ascii_lowercase();
        [
            "o=",
            "c=",
            "m=",
            "a=rtcp:",
            "a=rtcp\r",
            "a=rtcp\n",
            "a=ice",
            "a=candidate",
            "a=source-filter",
        ]
        .iter()
        .any(|start| lower.starts_with(start))
    };
    text.split_inclusive(|&b| b == b'\n').filter(|line| !touched(line)).collect()
}

fn check(text: &[u8], address: &str, choice: &[bool]) -> Result<(), TestCaseError> {
    let Ok(description) = Description::parse(text) else { return Ok(()) };
    let ports: Vec<_> = description
        .streams()
        .iter()
        .zip(choice)
        .zip((20_000..).step_by(2))
        .map(|((stream, &relayed), port)| (relayed && stream.is_relayable()).then_some(port))
        .collect();
    let plan = Plan { address: address.parse().unwrap(), ports: &ports };
    let once = rewrite(&description, &plan);
    let again = Description::parse(&once).unwrap();
    prop_assert_eq!(again.streams().len(), description.streams().len());
    for (index, (before, after)) in description.streams().iter().zip(again.streams()).enumerate() {
        match ports.get(index).copied().flatten() {
            Some(port) => {
                prop_assert_eq!(after.port, port);
                let ip = match after.address {
                    Some(ringway_media::description::Address::Ip(ip)) => Some(ip),
                    _ => None,
                };
                let is_held =
                    before.address == Some(ringway_media::description::Address::Unspecified);
                prop_assert_eq!(ip, (!is_held).then_some(plan.address));
            }
            None if before.port != 0 => {
                prop_assert_eq!(
                    (before.port, before.address, before.rtcp),
                    (after.port, after.address, after.rtcp)
                );
            }
            None => prop_assert_eq!(after.port, 0),
        }
    }
    let twice = rewrite(&again, &plan);
    prop_assert_eq!(String::from_utf8_lossy(&twice), String::from_utf8_lossy(&once));
    if Session::parse(text).is_ok() {
        prop_assert!(Session::parse(&once).is_ok(), "{}", String::from_utf8_lossy(&once));
    }
    // A line end may be added before an inserted line; at the end of all else nothing changes.
    let strip = |lines: Vec<&[u8]>| {
        lines.iter().map(|line| line.trim_ascii_end().to_vec()).collect::<Vec<_>>()
    };
    prop_assert_eq!(strip(untouched(text)), strip(untouched(&once)));
    Ok(())
}

fn body_of(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "INVITE sip:a@b SIP/2.0\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

const SOURCES: [&str; 5] = ["10.50.60.7", "10.50.60.8", "fd0b::1", "fd0b::77", "198.51.100.9"];

#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    method: u8,
    status: u16,
    call: u8,
    tags: (u8, u8),
    legs: (u8, u8),
    body: u8,
    port: u16,
}

/// A message of a call that goes right, or a packet of one of its parties.
fn honest() -> impl Strategy<Value = Step> {
    (prop::sample::select(vec![0u8, 2, 5, 6]), 0u8..3, any::<bool>()).prop_map(
        |(kind, call, back)| {
            let (legs, port) =
                if (kind == 2) != (kind > 4 && back) { ((3, 0), 6_000) } else { ((0, 3), 4_000) };
            Step { kind, method: 0, status: 200, call, tags: (0, 1), legs, body: legs.0, port }
        },
    )
}

fn wild() -> impl Strategy<Value = Step> {
    (
        0u8..8,
        0u8..7,
        prop::sample::select(vec![100u16, 180, 183, 200, 401, 486]),
        (0u8..3, (0u8..3, 0u8..3), (0u8..5, 0u8..5)),
        0u8..7,
        prop::sample::select(vec![4_000u16, 4_001, 6_000, 53]),
    )
        .prop_map(|(kind, method, status, (call, tags, legs), body, port)| Step {
            kind,
            method,
            status,
            call,
            tags,
            legs,
            body,
            port,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![2 => honest(), 1 => wild()]
}

fn side(index: u8) -> Leg {
    let remote = SOURCES[usize::from(index)];
    let local = match remote {
        remote if remote.contains(':') => A,
        remote if remote.starts_with("10.") => LAN,
        _ => "198.51.100.1",
    };
    leg(local, remote)
}

fn message(step: &Step) -> Msg {
    const METHODS: [&str; 7] = ["INVITE", "ACK", "BYE", "PRACK", "UPDATE", "CANCEL", "INFO"];
    const TAGS: [&str; 3] = ["alice", "bob", "carol"];
    let address = SOURCES[usize::from(step.body) % SOURCES.len()];
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let media = format!("{address}:{}", step.port);
    let body = match step.body {
        5 => String::new(),
        6 => sdp_of(&[media.as_str(); MAX_STREAMS + 1]),
        _ => sdp_of(&[&media, &media]),
    };
    let tags = (TAGS[usize::from(step.tags.0)], TAGS[usize::from(step.tags.1)]);
    let to = if step.kind == 0 { "" } else { tags.1 };
    Msg {
        from: tags.0.into(),
        ..request(METHODS[usize::from(step.method)], 1 + u32::from(step.method))
    }
    .to(to)
    .call(step.call.to_string())
    .body(body)
}

/// Sends packets from an address to ports that a relay has written, and to those beside them.
fn packets(
    router: &mut Router,
    source: IpAddr,
    port: u16,
    ports: &[SocketAddr],
) -> Result<(), TestCaseError> {
    for to in ports.iter().flat_map(|to| [*to, SocketAddr::new(to.ip(), to.port() ^ 1)]) {
        for source in [SocketAddr::new(source, port), SocketAddr::new(source, port + 1)] {
            let Some((_, to)) = router.packet(source, to) else { continue };
            prop_assert!(SOURCES.contains(&to.ip().to_string().as_str()), "{to}");
            prop_assert!(to.port() >= 1_024, "{to}");
        }
    }
    Ok(())
}

proptest! {
    /// What is rewritten is read again, is rewritten to itself, and is changed only where it must be.
    #[test]
    fn a_description_is_changed_only_where_it_must_be(
        text in text(),
        ipv4: bool,
        choice in prop::collection::vec(any::<bool>(), 12),
    ) {
        check(text.as_bytes(), if ipv4 { LAN } else { A }, &choice)?;
    }

    #[test]
    fn any_octets_are_read_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        head: bool,
        choice in prop::collection::vec(any::<bool>(), 8),
    ) {
        let bytes = if head { [&b"v=0\nm=a 9 RTP/AVP 0\n"[..], &bytes].concat() } else { bytes };
        let _ = Description::parse(&bytes);
        if bytes.is_ascii() {
            check(&bytes, A, &choice)?;
        }
    }

    /// A description that replaces itself changes nothing, and one that is found lies within the body.
    #[test]
    fn parts_of_any_body_are_found_without_harm(
        parts in prop::collection::vec(prop::sample::select(vec![
            "--b", "--", "\r\n", "\n", "Content-Type: application/sdp\r\n", "\r\n\r\n", "v=0\r\n", "x", "--b--",
            "Content-Transfer-Encoding: binary\r\n", "\r\n--b\r\n",
        ]), 0..20),
    ) {
        let body = parts.concat();
        let bytes = body_of("multipart/mixed;boundary=b", body.as_bytes());
        let message = ringway_sip::message::parse(&bytes).unwrap();
        if let Some(located) = locate(&message) {
            let description = &body[located.description.clone()];
            prop_assert_eq!(located.replace(body.as_bytes(), description.as_bytes()), body.as_bytes());
        }
    }

    /// Whatever comes in whatever order: nothing is sent to or taken from an address that no party may use, limits hold,
    /// and everything is released in the end.
    #[test]
    fn a_relay_withstands_any_sequence(steps in prop::collection::vec(step(), 1..120)) {
        let limits = Limits { streams: 24, of_many: 16, of_network: 12, of_address: 6, unanswered: 12 };
        let mut router = Router::new(Config { limits, ..Config::default() });
        let mut ports = Vec::new();
        for step in steps {
            let msg = message(&step);
            let (from, to) = (side(step.legs.0), side(step.legs.1));
            let branch = (step.kind % 2 == 0).then_some(u64::from(step.call));
            let sent = match step.kind {
                0 | 1 => router.request(&msg, from, to, branch).ok(),
                2 | 3 => {
                    let answer = msg.answer(step.status, "bob").body(msg.body.clone());
                    Some(router.response(&answer, from, to, branch))
                }
                4 => {
                    router.wait(Duration::from_millis(u64::from(step.port) * 3));
                    None
                }
                _ => {
                    packets(&mut router, from.remote, step.port, &ports)?;
                    None
                }
            };
            ports.extend(sent.filter(|msg| msg.rewritten).map(|msg| msg.media(0)));
            let tables = router.relay.tables();
            prop_assert!(tables.charged <= limits.streams && tables.streams <= tables.charged);
            prop_assert_eq!(tables.commands, 0);
        }
        router.wait(Duration::from_secs(3_600));
        router.wait(Duration::from_secs(60));
        let tables = router.relay.tables();
        prop_assert_eq!((tables.sessions, tables.streams, tables.charged), (0, 0, 0));
        prop_assert!(router.forwarder.is_empty());
    }
}
