//! The one-way SCTP.

use super::path::Path;
use ringway_lab::ns2::sctp::{Sender, Settings, Sink, Snapshot};
use ringway_sansio::{Addressing, Duration, Endpoint, Time};
use ringway_sctp::PROTOCOL;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A packet with a message in it, without its IP header.
const DATA: usize = 1028;

/// What passed from the source to the sink.
#[derive(Default, Debug)]
struct Run {
    /// Packets with data sent, and all.
    sent: (u64, u64),
    /// Delays of packets with data that arrived, and of all.
    delays: (Vec<f64>, Vec<f64>),
    /// From when a TSN was first sent until it came.
    whole: Vec<f64>,
    dropped: u64,
    /// Packets that are on their way when the run is cut.
    in_flight: u64,
    sender: Option<Snapshot>,
}

fn mean(delays: &[f64]) -> f64 {
    delays.iter().sum::<f64>() / delays.len() as f64
}

fn variance(delays: &[f64]) -> f64 {
    let mean = mean(delays);
    delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / delays.len() as f64
}

impl Run {
    fn text(&self) -> String {
        let of = |delays: &[f64]| {
            format!("{}, {:.6} s, {:.6}", delays.len(), mean(delays), variance(delays))
        };
        format!(
            "whole {}; data: {} sent, {}; all: {} sent, {}; {} dropped, {} in flight, {:?}",
            of(&self.whole),
            self.sent.0,
            of(&self.delays.0),
            self.sent.1,
            of(&self.delays.1),
            self.dropped,
            self.in_flight,
            self.sender
        )
    }
}

/// 448 kb/s of 1000-byte messages for 28 s, cut at `cut` of the run.
fn run(settings: Settings, cut: Duration) -> Run {
    let (a, b) = (SocketAddr::from(([1, 0, 0, 1], 1)), SocketAddr::from(([1, 0, 0, 2], 2)));
    let mut sender = Sender::new(settings, a, b);
    let mut sink = Sink::new(settings, b, a);
    let (mut there, mut back) = (Path::default(), Path::default());
    let start = Time::from_secs(1);
    let (stop, cut) = (start + Duration::from_secs(28), start + cut);
    let mut next_offer = Some(start);
    let mut flying: VecDeque<(Time, Time, Vec<u8>)> = VecDeque::new();
    let mut answers: VecDeque<(Time, Vec<u8>)> = VecDeque::new();
    let mut run = Run::default();
    // When each TSN was first sent; they count from 1.
    let mut first = vec![start];
    loop {
        let now = [
            next_offer,
            flying.front().map(|packet| packet.0),
            answers.front().map(|packet| packet.0),
            sender.poll_timeout(),
            sink.poll_timeout(),
        ];
        let Some(now) = now.into_iter().flatten().min().filter(|now| *now < cut) else { break };
        if next_offer == Some(now) {
            sender.offer(now, 1);
            let next = now + Duration::from_nanos(1000 * 8 * 1_000_000_000 / 448_000);
            next_offer = Some(next).filter(|next| *next < stop);
        }
        if let Some((_, began, bytes)) = pop_if(&mut flying, |packet| packet.0 == now) {
            let delay = now.since(began).as_secs_f64();
            run.delays.1.push(delay);
            if bytes.len() == DATA {
                run.delays.0.push(delay);
                run.whole.push(now.since(first[tsn(&bytes)]).as_secs_f64());
            }
            sink.handle_packet(now, addressing(a, b), &bytes);
        }
        if let Some((_, bytes)) = pop_if(&mut answers, |packet| packet.0 == now) {
            sender.handle_packet(now, addressing(b, a), &bytes);
        }
        sender.handle_timeout(now);
        sink.handle_timeout(now);
        let mut bytes = Vec::new();
        while sender.poll_transmit(now, &mut bytes).is_some() {
            run.sent.1 += 1;
            if bytes.len() == DATA {
                run.sent.0 += 1;
                if tsn(&bytes) == first.len() {
                    first.push(now);
                }
            }
            if let Some(at) = there.carry(now, bytes.len() + 20) {
                flying.push_back((at, now, std::mem::take(&mut bytes)));
            }
            bytes.clear();
        }
        while sink.poll_transmit(now, &mut bytes).is_some() {
            if let Some(at) = back.carry(now, bytes.len() + 20) {
                answers.push_back((at, std::mem::take(&mut bytes)));
            }
            bytes.clear();
        }
    }
    run.dropped = there.dropped();
    run.in_flight = flying.len() as u64;
    run.sender = Some(sender.snapshot());
    run
}

fn pop_if<T>(queue: &mut VecDeque<T>, is_due: impl Fn(&T) -> bool) -> Option<T> {
    if queue.front().is_some_and(is_due) { queue.pop_front() } else { None }
}

fn tsn(packet: &[u8]) -> usize {
    packet[16..20].iter().fold(0, |tsn, byte| tsn << 8 | usize::from(*byte))
}

fn addressing(from: SocketAddr, to: SocketAddr) -> Addressing {
    Addressing::new(from.ip(), to.ip(), PROTOCOL)
}

/// Any end from 28.985 s to 28.998 s reproduces all three rows of the table.
const CUT: Duration = Duration::from_millis(28_990);

fn is_near(figure: f64, printed: f64, tolerance: f64) -> bool {
    (figure / printed - 1.0).abs() < tolerance
}

/// Table 1 of Gangurde et al., row SCTP: 750 sent, 687 received, mean delay 1.680858 s, variance
/// 0.315453, from 448 kb/s of 1000-byte packets for 28 s, cut a second later. Packets with data are
/// counted, retransmissions among them, and a delay begins when a TSN is sent for the first time. Of
/// the 63 "lost" 51 are in flight at the cut; 12 were dropped, when slow start filled the queue, and
/// sent again.
#[test]
fn the_published_run_is_reproduced() {
    for misses in [3, 4] {
        let run = run(Settings { misses, ..Settings::table_1() }, CUT);
        let text = run.text();
        assert_eq!((run.sent.0, run.whole.len()), (750, 687), "{text}");
        assert!(is_near(mean(&run.whole), 1.680_858, 0.000_1), "{text}");
        assert!(is_near(variance(&run.whole), 0.315_453, 0.000_3), "{text}");
        assert_eq!((run.dropped, run.in_flight), (12, 51), "{text}");
        let sender = run.sender.unwrap();
        assert_eq!((sender.retransmits, sender.timeouts), (12, 0), "{text}");
        // Figure 3.6: up to 2.3 s for the first hundred, 4.4 s at most.
        let longest = run.whole.iter().fold(0.0, |a: f64, b| a.max(*b));
        assert!((4.3..4.5).contains(&longest), "{longest}");
    }
}

/// Table 1 of Hung and Khanh, row SCTP: 750 sent, 689 received, mean delay 1.60018 s. It is reproduced
/// with delayed SACKs where every packet is counted, including INIT and COOKIE ECHO, and a delay is
/// that of a packet. The paper does not define its counting, so this is the nearest choice and not a
/// proven one.
#[test]
fn the_other_published_run_is_near() {
    let run = run(Settings::default(), CUT);
    let text = run.text();
    assert_eq!((run.sent.1, run.delays.1.len()), (750, 689), "{text}");
    assert!(is_near(mean(&run.delays.1), 1.600_18, 0.002), "{text}");
    assert_eq!((run.dropped, run.in_flight), (12, 49), "{text}");
}

/// None of the free choices moves the row by 5 %, as the first of its tables counts.
#[test]
fn free_choices_change_little() {
    for misses in [3, 4] {
        for sack_delay in [None, Some(Duration::from_millis(200))] {
            for (cwnd, confirm) in [(2936, false), (2936, true), (4380, false), (4380, true)] {
                let settings =
                    Settings { misses, sack_delay, cwnd, confirm, ..Settings::default() };
                let run = run(settings, CUT);
                let text = run.text();
                assert!(is_near(run.sent.0 as f64, 750.0, 0.003), "{text}");
                assert!(is_near(run.whole.len() as f64, 687.0, 0.002), "{text}");
                assert!(is_near(mean(&run.whole), 1.680_858, 0.025), "{text}");
                assert!(is_near(variance(&run.whole), 0.315_453, 0.03), "{text}");
            }
        }
    }
}
