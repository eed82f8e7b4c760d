//! Data, acknowledged and in order: RFC 9260 sections 6.1, 6.2, 6.5 to 6.7, 6.9 and 6.10.

use super::support::*;
use super::{plain, snapshot};
use ringway_sctp::{Algorithm, Event, PathState, SendOptions, Settings, State};

/// RFC 9260 sections 5.1 and 6.2: the first DATA is acknowledged at once, then every second packet,
/// or one after 200 ms.
#[test]
fn every_second_packet_is_acknowledged() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    s.give("DATA 2 BE 0:1 10 + DATA 3 BE 0:2 10");
    s.expect_nothing();
    s.give("DATA 4 BE 0:3 10");
    s.expect("SACK 4");
    s.give("DATA 5 BE 0:4 10");
    s.wait(ms(199));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("SACK 5");
    s.expect_nothing();
    assert_eq!(s.read(), [10; 5]);
}

/// RFC 9260 section 6.2: the I bit asks for no delay.
#[test]
fn the_i_bit_is_obeyed() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    s.give("DATA 2 IBE 0:1 10");
    s.expect("SACK 2");
}

/// RFC 9260 sections 6.2 and 6.7: gaps and duplicates are reported at once.
#[test]
fn gaps_and_duplicates_are_reported() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    s.give("DATA 3 BE 1:0 10");
    s.expect("SACK 1 3-3");
    s.give("DATA 4 BE 1:1 10 + DATA 6 BE 1:2 10");
    s.expect("SACK 1 3-4 6-6");
    s.give("DATA 3 BE 1:0 10");
    s.expect("SACK 1 3-4 6-6 dup 3");
    s.give("DATA 1 BE 0:0 10 + DATA 1 BE 0:0 10");
    s.expect("SACK 1 3-4 6-6 dup 1 dup 1");
    s.give("DATA 2 BE 0:1 10");
    s.expect("SACK 4 6-6");
    s.give("DATA 5 BE 0:2 10");
    s.expect("SACK 6");
    assert_eq!(s.read().len(), 6);
}

/// RFC 9260 section 6.7: as many gap blocks as fit a packet, from the lowest.
#[test]
fn gap_blocks_fill_a_packet_at_most() {
    let mut s = Script::accepted(Settings { mtu: 512, ..plain() });
    for n in 1..200 {
        s.give(&format!("DATA {} UBE 0:0 1", 2 * n));
    }
    let (_, last) = core::iter::from_fn(|| s.line()).last().unwrap();
    let blocks: Vec<&str> = last.split(' ').skip(2).collect();
    assert_eq!((blocks[0], blocks[1]), ("2-2", "4-4"));
    // 512 bytes less IP, common header and the fixed part of SACK.
    assert_eq!(blocks.len(), (512 - 20 - 12 - 16) / 4);
}

/// RFC 9260 section 6.1: a SACK that waits goes along with data.
#[test]
fn a_sack_goes_along_with_data() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 0:0 10");
    s.expect("SACK 1");
    s.give("DATA 2 BE 0:1 10");
    s.expect_nothing();
    s.send(0, 20);
    s.expect("SACK 2 + DATA 1 BE 0:0 20");
    s.wait(secs(1));
    s.expect("DATA 1 BE 0:0 20");
}

/// RFC 9260 section 6.5: DATA of an invalid stream is acknowledged and reported.
#[test]
fn data_on_an_invalid_stream_is_reported() {
    let mut s = Script::accepted(plain());
    s.give("DATA 1 BE 10:0 10");
    s.expect("ERROR 1 + SACK 1");
    assert!(s.read().is_empty());
    s.give("DATA 2 BE 9:0 10");
    s.give("DATA 3 BE 9:1 10");
    s.expect("SACK 3");
    assert_eq!(s.read(), [10, 10]);
}

/// RFC 9260 section 6.6: order within a stream, none among streams, none for unordered data.
#[test]
fn order_is_by_stream() {
    let mut s = Script::accepted(plain());
    s.give("DATA 2 BE 0:1 2 + DATA 3 BE 1:0 3 + DATA 4 UBE 0:9 4 + DATA 5 BE 0:2 5");
    assert_eq!(s.read(), [3, 4]);
    s.give("DATA 1 BE 0:0 1");
    assert_eq!(s.read(), [1, 2, 5]);
}

/// RFC 9260 section 6.9: a large message in chunks with B, none, E, and one SSN; and back again.
#[test]
fn large_messages_are_cut() {
    let mut s = Script::accepted(plain());
    s.send(3, 3500);
    s.expect("DATA 1 B 3:0 1452");
    s.expect("DATA 2  3:0 1452");
    s.expect("DATA 3 E 3:0 596");
    s.give("SACK 3");
    s.send_with(SendOptions { stream: 3, unordered: true, ..SendOptions::default() }, 1500);
    s.expect("DATA 4 UB 3:1 1452");
    s.expect("DATA 5 UE 3:1 48");
    s.send(3, 10);
    s.expect("DATA 6 BE 3:1 10");
}

/// RFC 9260 sections 6.9 and 6.10: a message that needs several chunks fills the packet that the one before it leaves
/// open, unless the rest is below a quarter; one that fits in a chunk stays whole.
#[test]
fn large_messages_fill_packets() {
    let mut s = Script::accepted(Settings { initial_cwnd: Some(20_000), max_burst: 0, ..plain() });
    let options = SendOptions::default();
    for size in [10, 1800, 1700, 2500, 1452] {
        s.sctp.send(s.now, s.id(), &options, vec![1; size]).unwrap();
    }
    s.expect("DATA 1 BE 0:0 10 + DATA 2 B 0:1 1424");
    s.expect("DATA 3 E 0:1 376 + DATA 4 B 0:2 1060");
    s.expect("DATA 5 E 0:2 640 + DATA 6 B 0:3 796");
    s.give("SACK 6");
    s.expect("DATA 7  0:3 1452");
    s.expect("DATA 8 E 0:3 252");
    s.expect("DATA 9 BE 0:4 1452");
}

/// RFC 9260 section 6.10: small messages share a packet; chunks are padded; none is larger than
/// the MTU lets through.
#[test]
fn small_messages_share_a_packet() {
    let mut s = Script::accepted(plain());
    s.send(0, 700);
    s.expect("DATA 1 BE 0:0 700");
    s.give("SACK 1");
    s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1; 1400]).unwrap();
    for (stream, size) in [(0, 13), (1, 14), (2, 1)] {
        let options = SendOptions { stream, ..SendOptions::default() };
        s.sctp.send(s.now, s.id(), &options, vec![1; size]).unwrap();
    }
    let (_, bytes) = s.take().unwrap();
    let line = describe(&bytes, Some(s.tsn), None);
    assert_eq!(line, "DATA 2 BE 0:1 1400 + DATA 3 BE 0:2 13");
    assert_eq!(bytes.len(), 12 + 16 + 1400 + 16 + 16);
    s.expect("DATA 4 BE 1:0 14 + DATA 5 BE 2:0 1");
}

/// RFC 9260 section 7.2.1: the first window, and one packet beyond it.
#[test]
fn the_first_window() {
    let mut s = Script::accepted(plain());
    s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1; 20_000]).unwrap();
    for tsn in 1..=3 {
        let flags = if tsn == 1 { "B" } else { "" };
        s.expect(&format!("DATA {tsn} {flags} 0:0 1452"));
    }
    s.expect_nothing();
    // Section 7.2.1: slow start adds what was acknowledged, one chunk at most.
    s.give("SACK 2");
    for tsn in 4..=6 {
        s.expect(&format!("DATA {tsn}  0:0 1452"));
    }
    s.expect_nothing();
    assert_eq!(snapshot(&s).paths[0].cwnd, 4404 + 1468);
}

/// RFC 9260 section 6.1 D: no more than four packets at one go, for each two packets that a SACK is for.
#[test]
fn a_burst_is_bounded() {
    for (max_burst, count, then) in [(4, 4, 12), (2, 2, 4), (0, 20, 20)] {
        let settings = Settings { initial_cwnd: Some(100_000), max_burst, ..plain() };
        let mut s = Script::accepted(settings);
        s.sctp.send(s.now, s.id(), &SendOptions::default(), vec![1; 20 * 1452]).unwrap();
        s.collect();
        assert_eq!(s.sent.len(), count);
        s.give(&format!("SACK {count}"));
        assert_eq!(s.sent.len(), then);
    }
}

/// RFC 9260 section 6.1 A: a closed window holds data back; it is probed after an RTO.
#[test]
fn a_closed_window_holds_data_back() {
    let mut s = Script::accepted(plain());
    s.send(0, 1000);
    s.expect("DATA 1 BE 0:0 1000");
    s.wait(ms(10));
    s.give("SACK 1 w 0");
    s.send(0, 1000);
    s.send(0, 1000);
    s.expect_nothing();
    s.wait(ms(199));
    s.expect_nothing();
    s.wait(ms(1));
    s.expect("DATA 2 BE 0:1 1000");
    s.give("SACK 1 w 0");
    // The probe again, later each time, without an error.
    for wait in [400, 800, 1600] {
        s.wait(ms(wait - 1));
        s.expect_nothing();
        s.wait(ms(1));
        s.expect("DATA 2 BE 0:1 1000");
        s.give("SACK 1 w 0");
    }
    assert_eq!(snapshot(&s).errors, 0);
    s.give("SACK 2 w 5000");
    s.expect("DATA 3 BE 0:2 1000");
}

/// RFC 9260 section 6.2: a full buffer is advertised, data beyond it is dropped and not acknowledged,
/// and reading opens the window again.
#[test]
fn a_full_buffer_is_reported() {
    let mut s = Script::accepted(Settings { receive_buffer: 3000, ..plain() });
    s.give("DATA 1 BE 0:0 1400");
    s.expect("SACK 1");
    s.give("DATA 2 BE 0:1 1400");
    s.give("DATA 3 BE 0:2 1400");
    s.expect("SACK 2");
    assert_eq!(snapshot(&s).totals.dropped, 1);
    assert_eq!(s.read(), [1400, 1400]);
    s.expect("SACK 2");
}

/// RFC 9260 section 8.3: a HEARTBEAT is answered at once with what it brought.
#[test]
fn a_heartbeat_is_answered() {
    let mut s = Script::accepted(plain());
    s.give("HEARTBEAT");
    let (to, bytes) = s.take().unwrap();
    assert_eq!(to.destination, B1);
    assert_eq!(describe(&bytes, None, None), "HEARTBEAT_ACK");
    assert_eq!(bytes[16..], [0, 1, 0, 8, 1, 2, 3, 4]);
}

/// RFC 9260 section 8.3: an idle path is asked from time to time, one in use is not.
#[test]
fn an_idle_path_is_probed() {
    let mut s = Script::accepted(Settings::default());
    let start = s.now;
    let (addressing, bytes) = loop {
        s.wait(ms(1));
        if let Some(packet) = s.take() {
            break packet;
        }
    };
    // RTO of 1 s, plus or minus half, and 30 s.
    let after = s.now - start;
    assert!(after > ms(30_400) && after < ms(31_600), "{after:?}");
    assert_eq!(describe(&bytes, None, None), "HEARTBEAT");
    s.wait(ms(50));
    s.answer_beats(addressing, &bytes);
    let srtt = snapshot(&s).paths[0].srtt.unwrap();
    assert!(srtt >= ms(50) && srtt <= ms(51), "{srtt:?}");
    // A nonce that was answered is invalid a second time, and so is another one.
    s.wait(ms(300));
    s.answer_beats(addressing, &bytes);
    assert_eq!(snapshot(&s).paths[0].srtt, Some(srtt));
    for n in 0..40 {
        s.wait(secs(1));
        s.send(0, 10);
        s.take().unwrap();
        s.give(&format!("SACK {}", n + 1));
        s.expect_nothing();
    }
}

/// The user hears of data once, until it has read it.
#[test]
fn data_is_reported() {
    let mut s = Script::accepted(plain());
    s.events();
    s.give("DATA 1 BE 0:0 10");
    assert_eq!(s.events(), [Event::Readable(s.id())]);
    assert_eq!(s.read(), [10]);
    assert!(s.events().is_empty());
    s.give("DATA 2 BE 0:1 10");
    assert_eq!(s.events(), [Event::Readable(s.id())]);
}

/// RFC 9260 section 6.9: a message that does not fit the buffer goes on when what was received of it
/// is less than half of the buffer and the next fragment does not fit beside it.
#[test]
fn large_fragments_do_not_block() {
    for (agreed, lines) in [
        (false, ["DATA 1 B 0:0 1452", "DATA 2 E 0:0 1549"]),
        (true, ["IDATA 1 B 0:0:0 1452", "IDATA 2 E 0:0:1 1549"]),
    ] {
        let mut s = Script::new(Settings { receive_buffer: 3000, interleaving: agreed, ..plain() });
        s.extensions = if agreed { vec![ringway_sctp::wire::chunk::kind::I_DATA] } else { vec![] };
        s.listen(&[A1]);
        s.give_init();
        s.take_init_ack();
        s.echo("");
        let mut out = Vec::new();
        s.give(lines[0]);
        assert!(s.sctp.recv(s.id(), &mut out).unwrap().is_none());
        s.give(lines[1]);
        let part = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
        assert!(part.begin && !part.end && part.len == 1452);
        s.give(lines[1]);
        let rest = s.sctp.recv(s.id(), &mut out).unwrap().unwrap();
        assert!(!rest.begin && rest.end && rest.len == 1549, "{rest:?}");
    }
}

/// RFC 9260 section 6.1 A: a peer whose window is closed for half an hour and that answers each probe
/// has not failed, also when there is nothing but the probe to send.
#[test]
fn a_closed_window_is_no_failure() {
    for more in [false, true] {
        let mut s = Script::accepted(plain());
        s.send(0, 1000);
        s.expect("DATA 1 BE 0:0 1000");
        s.give("SACK 1 w 0");
        s.send(0, 500);
        if more {
            s.send(0, 500);
        }
        s.expect_nothing();
        answer_probes(&mut s, 1800, "DATA 2 BE 0:1 500", "SACK 1 w 0");
        let now = snapshot(&s);
        assert_eq!((now.state, now.errors), (State::Established, 0), "{more}");
        assert_eq!(now.paths[0].state, PathState::Active, "{more}");
    }
}

/// Answers each packet, which must be the same, for so many seconds.
fn answer_probes(s: &mut Script, seconds: u64, probe: &str, answer: &str) {
    let until = s.now + secs(seconds);
    let mut count = 0;
    while s.now < until {
        s.wait(ms(50));
        while let Some((_, line)) = s.line() {
            assert_eq!(line, probe);
            s.give(answer);
            count += 1;
        }
    }
    assert!(count > 1, "{probe}");
}

/// RFC 9260 sections 6.1 A and 6.2: the same where the peer had no room for what was already on its
/// way when its window closed.
#[test]
fn refused_data_is_no_failure() {
    let mut s = Script::accepted(plain());
    for n in 1..=2 {
        s.send(0, 1000);
        s.expect(&format!("DATA {n} BE 0:{} 1000", n - 1));
    }
    s.give("SACK 1 w 0");
    answer_probes(&mut s, 1800, "DATA 2 BE 0:1 1000", "SACK 1 w 0");
    let now = snapshot(&s);
    assert_eq!((now.state, now.errors), (State::Established, 0));
}

/// RFC 9260 sections 6.1 A and 6.2: when the window opens, what was refused goes out at once and not
/// when the next probe would, and in its order with what comes after it.
#[test]
fn a_refused_probe_does_not_wait() {
    let mut s = Script::accepted(plain());
    s.send(0, 1000);
    s.expect("DATA 1 BE 0:0 1000");
    s.give("SACK 1 w 0");
    s.send(0, 500);
    s.send(0, 600);
    answer_probes(&mut s, 110, "DATA 2 BE 0:1 500", "SACK 1 w 0");
    s.give("SACK 1 w 100000");
    s.expect("DATA 2 BE 0:1 500 + DATA 3 BE 0:2 600");
    s.give("SACK 3");
    assert_eq!(snapshot(&s).unacknowledged, 0);
    s.wait(secs(100));
    s.expect_nothing();
}

/// RFC 9260 section 6.1: of each stream up to 65,535 ordered messages may be under way, so one whose
/// number lies more than half the circle ahead is no violation.
#[test]
fn all_numbers_of_a_stream_may_be_under_way() {
    let mut s = Script::accepted(Settings { receive_buffer: 8 << 20, ..plain() });
    let most = 40_000u32;
    for ssn in 1..most {
        s.give(&format!("DATA {} BE 0:{ssn} 4", ssn + 1));
        s.sent.clear();
    }
    assert_eq!(snapshot(&s).state, State::Established);
    s.give("DATA 1 BE 0:0 4");
    assert_eq!(s.read().len() as u32, most);
}

/// RFC 9260 sections 6.1 D and 7.2.1: Max.Burst bounds what goes out at one go, not the rate. Where one
/// SACK comes for all packets of a round trip, as for packets that arrive together, it stands for those
/// that section 6.2 asks for, and the window opens.
#[test]
fn a_window_opens_though_acknowledgements_are_few() {
    for algorithm in [Algorithm::Rfc9260, Algorithm::Cubic] {
        let mut s = Script::accepted(Settings { algorithm, ..plain() });
        s.give("SACK 0 w 1000000");
        s.window = 1_000_000;
        let (mut last, mut count) = (0, 0);
        for _ in 0..10 {
            while s.sctp.send(s.now, s.id(), &Default::default(), vec![1; 1452]).is_ok() {}
            count = 0;
            while s.line().is_some_and(|(_, line)| line.starts_with("DATA")) {
                (last, count) = (last + 1, count + 1);
            }
            s.wait(ms(50));
            s.give(&format!("SACK {last}"));
        }
        assert!(count > 80, "{algorithm:?}: {count} packets in the last round trip");
    }
}

/// RFC 9260 section 6.1 A: one chunk may be in flight whatever the window; where that has some room, it
/// goes at once, and not after the RTO of a closed one.
#[test]
fn a_window_with_some_room_takes_a_chunk() {
    let mut s = Script::accepted(plain());
    s.send(0, 1000);
    s.expect("DATA 1 BE 0:0 1000");
    s.give("SACK 1 w 200");
    s.send(0, 1000);
    s.send(0, 1000);
    s.expect("DATA 2 BE 0:1 1000");
    s.expect_nothing();
    s.give("SACK 1 w 200");
    s.expect_nothing();
    s.give("SACK 2 w 100");
    s.expect("DATA 3 BE 0:2 1000");
}

/// RFC 9260 sections 6.1 A and 9.2: data refused by a closed window is sent again in time, however
/// often the peer reports that it is closed, or repeats its SHUTDOWN, meanwhile.
#[test]
fn a_probe_is_not_put_off() {
    for chunk in ["SHUTDOWN 1", "SACK 1 w 0"] {
        let mut s = Script::accepted(plain());
        for _ in 0..4 {
            s.send(0, 1000);
        }
        s.collect();
        s.give("SACK 0 w 0");
        s.wait(secs(1));
        s.sent.clear();
        let mut again = 0;
        for _ in 0..600 {
            s.give(chunk);
            s.wait(ms(100));
            while let Some((_, line)) = s.line() {
                again += usize::from(line.contains("DATA 2"));
            }
        }
        assert!(again >= 3, "{chunk}: {again} in a minute");
        assert_eq!(snapshot(&s).errors, 0);
    }
}

/// RFC 9260 section 6.1: retransmissions are bounded by the congestion window alone. A peer whose
/// buffer is full of data after a gap advertises no window, and accepts what fills the gap. One chunk
/// per probe, with growing intervals, would take forever.
#[test]
fn gaps_are_filled_though_they_close_the_window() {
    let mut s = Script::accepted(plain());
    for _ in 0..4 {
        s.send(0, 1000);
    }
    s.collect();
    s.give("SACK 0 2-2 4-4 w 1");
    s.sent.clear();
    s.wait(secs(1));
    s.expect("DATA 1 BE 0:0 1000");
    s.give("SACK 2 4-4 w 1");
    s.expect("DATA 3 BE 0:2 1000");
    s.give("SACK 4 w 5000");
    assert_eq!((snapshot(&s).unacknowledged, snapshot(&s).errors), (0, 0));
}
