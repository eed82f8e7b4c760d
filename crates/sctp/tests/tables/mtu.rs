//! How large packets may be: RFC 8899 with the padding of RFC 4820.

use super::support::*;
use super::{plain, snapshot};
use ringway_sansio::{Addressing, Icmp};
use ringway_sctp::{PROTOCOL, Settings};

fn probing() -> Settings {
    Settings { mtu: 1200, largest_mtu: Some(1500), ..plain() }
}

fn mtu(s: &Script) -> usize {
    snapshot(s).paths[0].mtu
}

/// The next packet is a probe: its size with the IP header.
#[track_caller]
fn probe(s: &mut Script) -> (usize, Addressing, Vec<u8>) {
    let (way, bytes) = s.take().unwrap();
    assert_eq!(describe(&bytes, None, None), "HEARTBEAT + PAD");
    (bytes.len() + 20, way, bytes)
}

/// RFC 8899 sections 5.3 and 6.2: a search begins with data, its probes are HEARTBEAT and PAD, an
/// answer raises the size, and no error is counted for those that are lost.
#[test]
fn a_path_is_searched() {
    let mut s = Script::accepted(probing());
    s.wait(secs(50));
    s.expect_nothing();
    s.send(0, 10);
    s.expect("DATA 1 BE 0:0 10");
    let (size, ..) = probe(&mut s);
    assert_eq!(size, 1500);
    s.give("SACK 1");
    // Lost three times.
    for _ in 0..2 {
        s.wait(secs(1));
        assert_eq!(probe(&mut s).0, 1500);
    }
    s.wait(secs(1));
    let (size, way, bytes) = probe(&mut s);
    assert_eq!((size, mtu(&s), snapshot(&s).errors), (1348, 1200, 0));
    s.answer_beats(way, &bytes);
    assert_eq!(mtu(&s), 1348);
    assert_eq!(probe(&mut s).0, 1420);
    s.wait(secs(100));
    s.sent.clear();
    assert_eq!(mtu(&s), 1348);
    // The answer of a probe that counts as lost comes too late.
    s.answer_beats(way, &bytes);
    assert_eq!(mtu(&s), 1348);
    // Until the raise timer (section 5.1.1).
    s.wait(secs(400));
    s.send(0, 10);
    s.expect("DATA 2 BE 0:1 10");
    s.give("SACK 2");
    s.expect_nothing();
    s.wait(secs(200));
    s.send(0, 10);
    s.expect("DATA 3 BE 0:2 10");
    assert_eq!(probe(&mut s).0, 1500);
}

/// RFC 8899 section 4.3: large packets suddenly do not go through. What was cut before goes out as
/// it is and may be fragmented, what is cut from now on is small.
#[test]
fn a_black_hole_is_left() {
    for carried in [true, false] {
        let mut s = Script::accepted(Settings { mtu: 1500, largest_mtu: Some(1500), ..plain() });
        let large = |s: &mut Script| {
            s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
        };
        let first = u32::from(carried);
        if carried {
            large(&mut s);
            s.expect("DATA 1 BE 0:0 1452");
            s.give("SACK 1");
        }
        let lost = format!("DATA {} BE 0:{first} 1452", first + 1);
        large(&mut s);
        s.expect(&lost);
        s.wait(if carried { ms(200) } else { secs(1) });
        if carried {
            // It may be any loss.
            s.expect(&lost);
            assert_eq!(mtu(&s), 1500);
            s.wait(ms(400));
        }
        let (way, bytes) = s.take().unwrap();
        assert_eq!((mtu(&s), bytes.len(), way.fragment), (1200, 1480, Some(1200)), "{carried}");
        s.give(&format!("SACK {}", first + 1));
        large(&mut s);
        s.expect(&format!("DATA {} B 0:{} 1152", first + 2, first + 1));
    }
}

/// RFC 8899 section 4.6: a router's word lowers the size, and what is in flight and too large goes
/// out again at once; of a probe it ends the waiting.
#[test]
fn a_router_is_heard() {
    let mut s = Script::accepted(plain());
    s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).unwrap();
    s.expect("DATA 1 BE 0:0 1452");
    let quoted = [s.ports.0.to_be_bytes(), s.ports.1.to_be_bytes()].concat();
    let quoted = [quoted, s.peer_tag.to_be_bytes().to_vec()].concat();
    let way = Addressing::new(A1, B1, PROTOCOL);
    s.sctp.handle_icmp(s.now, &way, Icmp::TooBig(1280), &quoted);
    let (way, bytes) = s.take().unwrap();
    assert_eq!((mtu(&s), way.fragment, bytes.len()), (1280, Some(1280), 1480));

    let mut s = Script::accepted(Settings { largest_mtu: Some(9000), ..plain() });
    let quoted = [&quoted[..4], &s.peer_tag.to_be_bytes()].concat();
    s.send(0, 10);
    s.take().unwrap();
    assert_eq!(probe(&mut s).0, 9000);
    s.sctp.handle_icmp(s.now, &way, Icmp::TooBig(4000), &quoted);
    assert!(probe(&mut s).0 <= 4000);
}
