//! The cases.

use super::probe::{CLOSING, RESPONSE, SILENT};
use super::{Bed, Event, request};
use ringway_flow::Limits;
use ringway_sansio::{CloseReason, Flow, FlowId, Target, Transport};
use std::net::SocketAddr;
use std::time::Duration;

/// A limit that a test waits for.
const SHORT: Duration = Duration::from_millis(200);

fn to(transport: Transport, remote: SocketAddr) -> Target {
    Target::Peer { transport, remote, name: None }
}

fn tcp(remote: SocketAddr) -> Target {
    to(Transport::Tcp, remote)
}

fn not_sent(event: &Event) -> Option<(usize, u64)> {
    match event {
        Event::NotSent { worker, report } => Some((*worker, *report)),
        _ => None,
    }
}

fn closed(event: &Event) -> Option<(Flow, CloseReason)> {
    match event {
        Event::Closed { flow, reason } => Some((*flow, *reason)),
        _ => None,
    }
}

fn opened(event: &Event) -> Option<(Flow, bool)> {
    match event {
        Event::Opened { flow, peer } => Some((*flow, peer.inbound)),
        _ => None,
    }
}

/// RFC 3261 section 18: messages to one peer share a connection, whichever end opened it; a response leaves by
/// the connection of its request.
pub fn a_connection_is_shared_and_found_again<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[1, 1]);
    let (a, b) = (bed.address(0), bed.address(1));
    for n in 0..3 {
        bed.send(0, 0, tcp(b), n, &request("OPTIONS", &format!("c{n}"), n as usize * 700));
    }
    let (_, inbound) = bed.wait(0, opened);
    assert!(!inbound);
    for n in 0..3 {
        let (_, bytes) = bed.wait_message(1);
        assert_eq!(bytes, request("OPTIONS", &format!("c{n}"), n * 700));
        assert_eq!(bed.wait_message(0).1, RESPONSE);
    }
    // The other end finds it by the address that its peer has on it.
    bed.send(0, 0, tcp(b), 0, &request(SILENT, "last", 0));
    let (flow, _) = bed.wait_message(1);
    assert_eq!((flow.local, flow.remote.ip()), (b, a.ip()));
    bed.send(1, 0, tcp(flow.remote), 0, &request(SILENT, "back", 0));
    assert_eq!(bed.wait_message(0).1, request(SILENT, "back", 0));
    for host in [0, 1] {
        assert_eq!(
            (bed.count(host, "accepted"), bed.count(host, "connected")),
            match host {
                0 => (0, 1),
                _ => (1, 0),
            }
        );
    }
}

pub fn a_message_that_cannot_be_sent_is_reported<B: Bed>() {
    let limits = Limits { connect: SHORT, ..Limits::default() };
    let mut bed = B::start(Transport::Tcp, limits, &[1]);
    let nobody = SocketAddr::new(bed.address(0).ip(), 9);
    for report in [1, 0, 2] {
        bed.send(0, 0, tcp(nobody), report, &request("INVITE", "a", 0));
    }
    assert_eq!([bed.wait(0, not_sent), bed.wait(0, not_sent)], [(0, 1), (0, 2)]);
    assert_eq!(bed.count(0, "connect_failed"), 1);
    assert_eq!(bed.count(0, "stream_not_sent"), 3);
}

pub fn a_message_on_an_unknown_flow_is_reported<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[2]);
    let local = bed.address(0);
    let flow = |worker| Flow {
        id: FlowId::new(worker, 4711),
        transport: Transport::Tcp,
        local,
        remote: local,
    };
    // Of this worker, of another, of none.
    for (report, worker) in [(1, 0), (2, 1), (3, 77)] {
        bed.send(0, 0, Target::Flow(flow(worker)), report, &request("BYE", "a", 0));
        assert_eq!(bed.wait(0, not_sent), (0, report));
    }
}

/// RFC 3261 section 18.3.
pub fn messages_are_framed_however_the_stream_is_cut<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[1]);
    let mut raw = bed.connect(0);
    let messages: Vec<_> =
        [0, 1, 1_500, 40_000].map(|n| request(SILENT, &format!("c{n}"), n)).into();
    let all = messages.concat();
    for piece in [1, 7, 400, all.len()] {
        for part in all.chunks(piece).take(60) {
            bed.write(&mut raw, part);
        }
        if let Some(rest) = all.get(60 * piece..) {
            bed.write(&mut raw, rest);
        }
        for message in &messages {
            assert!(bed.wait_message(0).1 == *message, "pieces of {piece} bytes");
        }
    }
}

pub fn a_malformed_message_is_answered_and_the_next_is_taken<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[1]);
    let mut raw = bed.connect(0);
    let bad = b"not a start line\r\nContent-Length: 3\r\n\r\nabc".to_vec();
    bed.write(&mut raw, &[bad, request(SILENT, "good", 5)].concat());
    let malformed = |e: &Event| matches!(e, Event::Malformed { status: 400 }).then_some(());
    bed.wait(0, malformed);
    assert_eq!(bed.wait_message(0).1, request(SILENT, "good", 5));
    let answer = bed.read_exactly(&mut raw, 12);
    assert!(answer.starts_with(b"SIP/2.0 400 "));
    // Where no next message can be found, the connection is closed, after the response.
    bed.write(&mut raw, b"BYE sip:a SIP/2.0\r\nl: 1\r\nl: 2\r\n\r\n");
    assert!(bed.read_to_end(&mut raw).ends_with(b"SIP/2.0 400 No\r\nl: 0\r\n\r\n"));
    assert_eq!(bed.wait(0, closed).1, CloseReason::Malformed);
}

/// RFC 5626 section 4.4.1.
pub fn a_ping_is_answered_by_a_pong<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[1]);
    let mut raw = bed.connect(0);
    bed.write(&mut raw, b"\r\n\r\n");
    assert_eq!(bed.read_exactly(&mut raw, 2), b"\r\n");
    bed.write(&mut raw, &request("OPTIONS", "a", 0));
    assert_eq!(bed.read_exactly(&mut raw, RESPONSE.len()), RESPONSE);
    assert_eq!(bed.count(0, "stream_keepalives"), 1);
}

pub fn a_connection_without_a_message_is_closed<B: Bed>() {
    let limits = Limits { first_message: SHORT, ..Limits::default() };
    let mut bed = B::start(Transport::Tcp, limits, &[1]);
    let mut raw = bed.connect(0);
    bed.write(&mut raw, b"INVITE sip:a@b SIP/2.0\r\n");
    assert_eq!(bed.wait(0, closed).1, CloseReason::HalfOpen);
    assert_eq!(bed.read_to_end(&mut raw), b"");
    assert_eq!(bed.count(0, "closed_half_open"), 1);
}

pub fn the_oldest_silent_connection_makes_room<B: Bed>() {
    let limits = Limits { half_open: 2, ..Limits::default() };
    let mut bed = B::start(Transport::Tcp, limits, &[1]);
    let mut spoke = bed.connect(0);
    bed.write(&mut spoke, &request("OPTIONS", "a", 0));
    assert_eq!(bed.read_exactly(&mut spoke, RESPONSE.len()), RESPONSE);
    let mut silent = Vec::new();
    for accepted in 2..=4 {
        silent.push(bed.connect(0));
        bed.wait_count(0, "accepted", accepted);
    }
    assert_eq!(bed.wait(0, closed).1, CloseReason::HalfOpen);
    assert_eq!(bed.read_to_end(&mut silent[0]), b"");
    for raw in silent.iter_mut().skip(1).chain([&mut spoke]) {
        bed.write(raw, &request("OPTIONS", "b", 0));
        assert_eq!(bed.read_exactly(raw, RESPONSE.len()), RESPONSE);
    }
}

/// RFC 5626 section 4.2: a phone whose connection is closed registers elsewhere. What it was sent before has arrived.
pub fn a_program_closes_a_connection<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[1]);
    let mut raw = bed.connect(0);
    bed.write(&mut raw, &request(CLOSING, "a", 0));
    assert_eq!(bed.read_to_end(&mut raw), RESPONSE);
    bed.close(raw);
    let (flow, _) = bed.wait_message(0);
    let (gone, reason) = bed.wait(0, closed);
    assert_eq!((gone.id, reason), (flow.id, CloseReason::Stopped));
}

pub fn a_message_that_comes_too_slowly_is_refused<B: Bed>() {
    let limits = Limits { partial: SHORT, ..Limits::default() };
    let mut bed = B::start(Transport::Tcp, limits, &[1]);
    let mut raw = bed.connect(0);
    let slow = request("INVITE", "slow", 100);
    bed.write(&mut raw, &[request(SILENT, "a", 0), slow[..slow.len() - 1].to_vec()].concat());
    assert!(bed.read_to_end(&mut raw).starts_with(b"SIP/2.0 408 "));
    assert_eq!(bed.wait(0, closed).1, CloseReason::Slow);
}

pub fn silence_closes_a_connection_and_keep_alives_prevent_it<B: Bed>() {
    // Much longer than a busy machine holds up a test.
    let idle = Duration::from_secs(4);
    let mut bed = B::start(Transport::Tcp, Limits { idle, ..Limits::default() }, &[1]);
    let mut raw = bed.connect(0);
    bed.write(&mut raw, &request("OPTIONS", "a", 0));
    assert_eq!(bed.read_exactly(&mut raw, RESPONSE.len()), RESPONSE);
    for _ in 0..10 {
        bed.pass(idle / 8);
        bed.write(&mut raw, b"\r\n\r\n");
        bed.read_exactly(&mut raw, 2);
    }
    assert_eq!((bed.count(0, "closed_idle"), bed.count(0, "stream_keepalives")), (0, 10));
    assert_eq!(bed.read_to_end(&mut raw), b"");
    assert_eq!(bed.wait(0, closed).1, CloseReason::Idle);
}

/// A peer that does not read delays nobody, and every message that waited for it is reported once.
pub fn a_slow_reader_is_closed_and_what_waited_is_reported<B: Bed>() {
    let limits = Limits { write_queue: 100_000, ..Limits::default() };
    let mut bed = B::start(Transport::Tcp, limits, &[1]);
    let mut raw = bed.connect(0);
    bed.write(&mut raw, &request(SILENT, "a", 0));
    let (flow, _) = bed.wait_message(0);
    // More than sockets hold, and than may wait.
    for report in 1..=1_000 {
        bed.send(0, 0, Target::Flow(flow), report, &request("INFO", "a", 60_000));
        if report % 100 == 0 {
            bed.pass(Duration::from_millis(1));
        }
    }
    assert_eq!(bed.wait(0, closed), (flow, CloseReason::SlowReader));
    bed.send(0, 0, Target::Flow(flow), 1_001, &request("INFO", "a", 0));
    let mut reports = Vec::new();
    while reports.last() != Some(&1_001) {
        reports.push(bed.wait(0, not_sent).1);
    }
    let unique: std::collections::BTreeSet<_> = reports.iter().collect();
    assert_eq!(unique.len(), reports.len());
    assert_eq!(bed.count(0, "closed_slow_reader"), 1);
    let mut other = bed.connect(0);
    bed.write(&mut other, &request("OPTIONS", "b", 0));
    assert_eq!(bed.read_exactly(&mut other, RESPONSE.len()), RESPONSE);
}

/// RFC 3261 section 16.9: a server that closes the connection in the midst of a request has failed, and the
/// next is tried at once.
pub fn a_request_on_a_connection_that_closes_is_cut_off_and_fails_over<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[1, 1]);
    let dies = bed.listen();
    bed.send(0, 0, tcp(dies), 5, &request("INVITE", "a", 0));
    let mut raw = bed.accept();
    let begun = bed.read_exactly(&mut raw, 20);
    assert!(begun.starts_with(b"INVITE "));
    bed.close(raw);
    let cut = bed.wait(0, |e| match e {
        Event::CutOff { report, .. } => Some(*report),
        _ => None,
    });
    assert_eq!(cut, 5);
    assert_eq!(bed.wait_message(1).1, request("INVITE", "again", 0));
    assert_eq!(bed.wait_message(0).1, RESPONSE);
}

/// Returns a flow of each of two workers.
fn flows_of_two_workers<B: Bed>(bed: &mut B) -> (Vec<B::Raw>, [Flow; 2]) {
    let (mut raws, mut flows) = (Vec::new(), [None; 2]);
    while let [None, _] | [_, None] = flows {
        let mut raw = bed.connect(0);
        bed.write(&mut raw, &request(SILENT, "a", 0));
        let (flow, _) = bed.wait_message(0);
        flows[usize::from(flow.id.worker())] = Some(flow);
        raws.push(raw);
        assert!(raws.len() < 100, "one worker accepts all connections");
    }
    (raws, flows.map(|flow| flow.expect("one of each")))
}

fn read_any<B: Bed>(bed: &mut B, raws: &mut [B::Raw]) -> Vec<u8> {
    for _ in 0..10_000 {
        for raw in raws.iter_mut() {
            let bytes = bed.read(raw).expect("an open connection");
            if !bytes.is_empty() {
                return bytes;
            }
        }
        bed.pass(Duration::from_millis(2));
    }
    panic!("nothing came");
}

pub fn a_message_on_another_workers_connection_is_handed_over<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[2]);
    let (mut raws, [first, second]) = flows_of_two_workers(&mut bed);
    for (worker, flow) in [(0, second), (1, first)] {
        // By the flow, and by the address of the peer.
        for to in [Target::Flow(flow), tcp(flow.remote)] {
            bed.send(0, worker, to, 0, &request("BYE", "a", 0));
            assert_eq!(read_any(&mut bed, &mut raws), request("BYE", "a", 0));
        }
    }
    bed.wait_count(0, "sends_handed_over", 4);
    assert_eq!(bed.count(0, "connected"), 0);
}

pub fn what_fails_at_another_worker_is_reported<B: Bed>() {
    let mut bed = B::start(Transport::Tcp, Limits::default(), &[2]);
    let (raws, [_, second]) = flows_of_two_workers(&mut bed);
    bed.send(0, 0, Target::Flow(second), 1, &request("INVITE", "a", 0));
    bed.wait_count(0, "stream_sent", 1);
    raws.into_iter().for_each(|raw| bed.close(raw));
    let cut = bed.wait(0, |e| match e {
        Event::CutOff { worker, report } => Some((*worker, *report)),
        _ => None,
    });
    assert_eq!(cut, (0, 1));
    bed.send(0, 0, Target::Flow(second), 2, &request("INVITE", "a", 0));
    assert_eq!(bed.wait(0, not_sent), (0, 2));
}

/// RFC 4168: one association serves both ends, every worker, and calls on streams of their own.
pub fn an_association_is_shared_by_both_ends_and_all_workers<B: Bed>() {
    let mut bed = B::start(Transport::Sctp, Limits::default(), &[2, 2]);
    let (a, b) = (bed.address(0), bed.address(1));
    for worker in [0, 1] {
        for n in 0..5 {
            let message = request(SILENT, &format!("w{worker}c{n}"), 300 * n);
            bed.send(0, worker, to(Transport::Sctp, b), 0, &message);
            assert_eq!(bed.wait_message(1).1, message);
            bed.send(1, worker, to(Transport::Sctp, a), 0, &message);
            assert_eq!(bed.wait_message(0).1, message);
        }
    }
    assert_eq!((bed.count(0, "connected"), bed.count(1, "accepted")), (1, 1));
    assert_eq!((bed.count(1, "connected"), bed.count(0, "accepted")), (0, 0));
}

/// RFC 9260 section 5.2.4.1: the flow of a peer that restarts is closed, and the association continues as
/// another.
pub fn a_peer_that_restarts_is_another_flow<B: Bed>() {
    let mut bed = B::start(Transport::Sctp, Limits::default(), &[1]);
    bed.associate(0, &request(SILENT, "a", 0));
    let (flow, bytes) = bed.wait_message(0);
    assert_eq!(bytes, request(SILENT, "a", 0));
    bed.send(0, 0, Target::Flow(flow), 9, &request("INVITE", "x", 0));
    bed.wait_count(0, "stream_sent", 1);
    bed.associate(0, &request(SILENT, "b", 0));
    assert_eq!(bed.wait(0, closed), (flow, CloseReason::Restarted));
    bed.wait(0, |e| matches!(e, Event::CutOff { report: 9, .. }).then_some(()));
    let (other, bytes) = bed.wait_message(0);
    assert_eq!(bytes, request(SILENT, "b", 0));
    assert!(other.id != flow.id && other.remote == flow.remote);
}
