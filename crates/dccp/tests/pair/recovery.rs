//! Sequence numbers come together again (RFC 4340 section 7.5).

use crate::support::*;
use ringway_dccp::{Ccid, Settings, State};

/// RFC 4340 section 7.5.4: after a burst of losses that is longer than the window a Sync and a SyncAck
/// bring both ends together, and data flow again.
#[test]
fn a_burst_longer_than_the_window_is_healed_by_a_sync() {
    for ccid in [Ccid::TcpLike, Ccid::Tfrc] {
        let narrow = Settings {
            sequence_window: 32,
            ccid,
            user_timeout: secs(100_000),
            ..Settings::default()
        };
        let mut pair = Pair::new(narrow, narrow, ms(10));
        let (a, b) = pair.open();
        let mut flows = [Flow::new(1, (b, a), 100).paced(ms(100))];
        drive(&mut pair, &mut flows, secs(2));
        // The server sends on without an answer, far beyond the window.
        pair.links[1].filter = Box::new(|_| false);
        drive(&mut pair, &mut flows, secs(2500));
        let (sent, got) = (pair.snapshot(1, b).gss, pair.snapshot(0, a).gsr);
        assert!(sent.distance(got) > 30, "{ccid:?} {sent} {got}");
        pair.links[1].filter = Box::new(|_| true);
        let before = flows[0].got.len();
        drive(&mut pair, &mut flows, secs(150));
        assert!(pair.count("Sync") >= 1 && pair.count("SyncAck") >= 1, "{ccid:?}");
        assert!(flows[0].got.len() > before + 50, "{ccid:?} {}", flows[0].got.len() - before);
        assert_eq!((pair.closed(0), pair.closed(1)), (None, None));
    }
}

/// RFC 4340 section 7.5.4: Syncs are limited, however many packets are out of the window.
#[test]
fn syncs_are_limited() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(10));
    let (a, _) = pair.open();
    pair.run(ms(100));
    pair.capture = Some(Vec::new());
    pair.a.send(pair.now, a, &b"x"[..], Default::default()).unwrap();
    pair.flush();
    let (_, data) = pair.capture.take().unwrap().pop().unwrap();
    for _ in 0..100 {
        let mut forged = data.clone();
        let packet = forged.packet();
        let header =
            ringway_dccp::wire::Header { seq: packet.header.seq.plus(1 << 40), ..packet.header };
        let mut bytes = Vec::new();
        header.emit(forged.carrier(), &[], b"forged", &mut bytes);
        forged.bytes = bytes;
        pair.launch(pair.now + ms(1), forged);
    }
    pair.run(secs(1));
    let b = pair.opened(1)[0];
    let totals = pair.snapshot(1, b).totals;
    assert_eq!((totals.out_of_window, totals.syncs, totals.syncs_limited), (100, 8, 92));
    assert_eq!(pair.snapshot(0, a).state, State::Open);
}

/// RFC 4340 section 7.5.2: the window grows with the packets of a round trip, before they outgrow it.
#[test]
fn the_sequence_window_grows_with_the_path() {
    let mut pair = Pair::new(Settings::default(), Settings::default(), ms(100));
    pair.keep_log = false;
    pair.links[0].rate = Some(3_000_000);
    pair.links[0].queue = 400;
    let (a, b) = pair.open();
    let mut flows = [Flow::new(0, (a, b), 1000)];
    drive(&mut pair, &mut flows, secs(30));
    let snapshot = pair.snapshot(0, a);
    assert!(snapshot.sender.cwnd > 150, "{:?}", snapshot.sender);
    assert!(snapshot.local_window >= 5 * u64::from(snapshot.sender.cwnd) / 2, "{snapshot:?}");
    assert_eq!(pair.snapshot(1, b).remote_window, snapshot.local_window);
    assert_eq!(pair.snapshot(1, b).totals.syncs, 0);
}

/// RFC 4340 section 7.6: once agreed, data and acknowledgements have short numbers.
#[test]
fn short_numbers_carry_data() {
    let short = Settings { short_seqnos: true, ..Settings::default() };
    let mut pair = Pair::new(short, short, ms(5));
    pair.capture = Some(Vec::new());
    let (a, b) = pair.open();
    let mut flows = [Flow::new(0, (a, b), 200), Flow::new(1, (b, a), 200)];
    drive(&mut pair, &mut flows, secs(3));
    let sent = pair.capture.take().unwrap();
    let count = sent.iter().filter(|(_, flying)| !flying.packet().header.long).count();
    assert!(count * 100 > sent.len() * 95, "{count} of {}", sent.len());
    assert!(flows.iter().all(|flow| flow.got.len() > 1000));
    assert_eq!(pair.snapshot(1, b).totals.out_of_window, 0);
}
