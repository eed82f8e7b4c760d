//! What a peer may not do: RFC 9260 sections 3.2, 3.3.10, 6.2 and 6.10.

use super::support::*;
use super::{plain, snapshot};
use proptest::prelude::*;
use ringway_sansio::{Addressing, Endpoint};
use ringway_sctp::wire::Writer;
use ringway_sctp::wire::chunk::{self, Chunk};
use ringway_sctp::{Close, Event, Settings, State};

fn violated(s: &mut Script) -> bool {
    s.events().iter().any(|e| matches!(e, Event::Closed(_, Close::Violation(_))))
}

/// RFC 9260 section 3.2: what the two highest bits of an unknown type ask for.
#[test]
fn unknown_chunks() {
    for (kind, goes_on, reported) in
        [(0x3e, false, false), (0x7e, false, true), (0xbe, true, false), (0xfe, true, true)]
    {
        let mut s = Script::accepted(plain());
        s.give(&format!("UNKNOWN {kind} + DATA 1 BE 0:0 10"));
        let expected = match (reported, goes_on) {
            (true, true) => Some("ERROR 6 + SACK 1"),
            (true, false) => Some("ERROR 6"),
            (false, true) => Some("SACK 1"),
            (false, false) => None,
        };
        assert_eq!(s.line().map(|l| l.1).as_deref(), expected, "{kind}");
        assert_eq!(s.read().len(), usize::from(goes_on));
    }
}

/// Reports are bounded: a packet of unknown chunks makes no larger answer.
#[test]
fn reports_are_bounded() {
    let mut s = Script::accepted(plain());
    let line = vec!["UNKNOWN 254"; 1000].join(" + ");
    s.give(&line);
    let (_, bytes) = s.take().unwrap();
    assert!(bytes.len() < 600, "{}", bytes.len());
    s.expect_nothing();
}

/// RFC 9260 section 6.2: DATA without data.
#[test]
fn empty_data_ends_it() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 0");
    s.expect("ABORT 9");
    assert!(violated(&mut s));
}

/// An acknowledgement of what was never sent ends the association.
#[test]
fn a_forged_acknowledgement_ends_it() {
    let mut s = Script::accepted(plain());
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    s.give("SACK 2");
    s.expect("ABORT 13");
    assert!(violated(&mut s));
    let mut s = Script::accepted(plain());
    s.give("SHUTDOWN 1");
    s.expect("ABORT 13");
}

/// RFC 9260 section 6.10: a partial chunk is dropped, what came before it is not.
#[test]
fn a_partial_chunk_is_dropped() {
    let mut s = Script::accepted(plain());
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 2000, s.ports.1, s.ports.0, s.tag);
    writer.chunks().extend_from_slice(&[4, 0, 0, 12, 0, 1, 0, 8, 1, 2, 3, 4]);
    writer.chunks().extend_from_slice(&[0, 3, 0, 40, 1, 2, 3, 4]);
    writer.finish();
    s.give_bytes(B1, A1, &out);
    s.expect("HEARTBEAT_ACK");
    s.expect_nothing();
    assert_eq!(snapshot(&s).state, State::Established);
}

/// More heartbeats in a packet than are answered.
#[test]
fn heartbeats_are_bounded() {
    let mut s = Script::accepted(plain());
    s.give(&["HEARTBEAT"; 50].join(" + "));
    s.expect(&["HEARTBEAT_ACK"; 4].join(" + "));
    s.expect_nothing();
    assert_eq!(snapshot(&s).totals.heartbeats_refused, 46);
}

/// A packet with a wrong checksum is nothing (RFC 9260 section 6.8).
#[test]
fn a_packet_with_a_wrong_checksum_is_dropped() {
    let mut s = Script::accepted(plain());
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 2000, s.ports.1, s.ports.0, s.tag);
    writer.chunks().extend_from_slice(&[6, 0, 0, 4]);
    writer.finish();
    out[9] ^= 1;
    s.give_bytes(B1, A1, &out);
    assert_eq!((snapshot(&s).state, s.sctp.counters().checksum), (State::Established, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Any chunks, in any state, with the right tag: nothing panics, memory stays bounded, and time
    /// goes on.
    #[test]
    fn any_chunks_are_borne(
        state in 0u8..5, two in any::<bool>(),
        packets in proptest::collection::vec(
            proptest::collection::vec(
                (
                    prop_oneof![0u8..16, any::<u8>()], any::<u8>(),
                    proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(19), any::<u8>()], 0..40),
                    any::<u16>(),
                ),
                1..4,
            ),
            1..20,
        ),
        waits in proptest::collection::vec(0u64..3000, 20),
    ) {
        let settings = Settings { receive_buffer: 5000, ..plain() };
        let mut s = if two { Script::two_paths(settings) } else { Script::accepted(settings) };
        match state {
            0 => s = Script::connecting(settings),
            1 => s.send(0, 9000),
            2 => s.sctp.shutdown(s.now, s.id()).unwrap(),
            3 => s.give("SHUTDOWN 0"),
            _ => s.give("DATA 2 B 0:0 10"),
        }
        for (chunks, wait) in packets.iter().zip(waits) {
            let mut out = Vec::new();
            let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, s.tag);
            for (kind, flags, value, tweak) in chunks {
                let mut value = value.clone();
                // Often near the numbers in use, so that it is looked at.
                if tweak % 3 != 0 && value.len() >= 4 {
                    let base = if *kind == 0 { s.peer_tsn } else { s.tsn };
                    let near = base.plus(u32::from(tweak % 17)).minus(2).raw();
                    value[..4].copy_from_slice(&near.to_be_bytes());
                }
                chunk::put(writer.chunks(), *kind, *flags, &[&value]);
            }
            writer.finish();
            let way = Addressing::new(B1, A1, 132);
            s.sctp.handle_packet(s.now, way, &out);
            s.collect();
            s.sent.clear();
            s.wait(ms(wait));
            s.sent.clear();
        }
        s.wait(secs(10_000));
        if let Ok(snapshot) = s.sctp.snapshot(s.id()) {
            prop_assert!(snapshot.unread <= 2 * 5000);
        }
    }
}

/// RFC 9260 sections 6.10 and 8.3: a heartbeat whose answer does not fit a packet, here by the padding,
/// is not answered and holds up nothing else.
#[test]
fn an_answer_that_does_not_fit_delays_nothing() {
    let mut s = Script::two_paths(Settings { mtu: 1499, ..plain() });
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, s.tag);
    let mut value = vec![0, 1];
    value.extend_from_slice(&1463u16.to_be_bytes());
    value.resize(1463, 7);
    Chunk::Heartbeat(&value).emit(writer.chunks());
    writer.finish();
    s.give_bytes(B2, A2, &out);
    s.expect_nothing();
    assert_eq!(snapshot(&s).totals.heartbeats_refused, 1);
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
}

/// RFC 9260 section 3.2: a report that does not fit a packet is left out and holds up nothing else.
#[test]
fn a_report_that_does_not_fit_delays_nothing() {
    let mut s = Script::two_paths(Settings { mtu: 512, ..plain() });
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 65_535, s.ports.1, s.ports.0, s.tag);
    chunk::put(writer.chunks(), 0xfe, 0, &[&[7; 490]]);
    writer.finish();
    s.give_bytes(B1, A1, &out);
    s.expect_nothing();
    s.give_from(B2, A2, "DATA 1 BE 0:0 10");
    s.expect_to(B2, "SACK 1");
}
