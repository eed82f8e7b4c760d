//! The one-way TCP.

use super::path::Path;
use ringway_lab::ns2::tcp::{Sender, Settings, Sink};
use ringway_sansio::{Duration, Endpoint, Time};
use std::collections::VecDeque;
use std::net::SocketAddr;

#[derive(Clone, Copy, PartialEq)]
enum What {
    Offer,
    Data,
    Ack,
}

/// Table 1, row TCP: 712 to 713 sent, 693 to 694 received, mean delay 0.787624 s, variance 0.010288,
/// from 448 kb/s of 1000-byte packets for 28 s, cut a second later. What is sent and not received is
/// the window in flight at the cut; nothing is lost.
#[test]
fn the_published_run_is_reproduced() {
    let (a, b) = (SocketAddr::from(([1, 0, 0, 1], 1)), SocketAddr::from(([1, 0, 0, 2], 2)));
    let mut sender = Sender::new(Settings::default(), a, b);
    let mut sink = Sink::new(b, a);
    let (mut there, mut back) = (Path::default(), Path::default());
    let start = Time::from_secs(1);
    let (stop, cut) = (start + Duration::from_secs(28), start + Duration::from_secs(29));
    let mut next_offer = start;
    let mut flying: VecDeque<(Time, Time, Vec<u8>)> = VecDeque::new();
    let mut acks: VecDeque<(Time, Vec<u8>)> = VecDeque::new();
    let (mut sent, mut delays) = (0u64, Vec::new());
    loop {
        let offer = (next_offer < stop).then_some((next_offer, What::Offer));
        let data = flying.front().map(|packet| (packet.0, What::Data));
        let ack = acks.front().map(|packet| (packet.0, What::Ack));
        let Some((now, what)) = [offer, data, ack].into_iter().flatten().min_by_key(|e| e.0) else {
            break;
        };
        if now >= cut {
            break;
        }
        assert!(sender.poll_timeout().is_none_or(|at| at > now), "the timer expired");
        match what {
            What::Offer => {
                sender.offer(1);
                next_offer += Duration::from_nanos(1000 * 8 * 1_000_000_000 / 448_000);
            }
            What::Data => {
                if let Some((_, began, bytes)) = flying.pop_front() {
                    delays.push(now.since(began).as_secs_f64());
                    sink.handle_packet(now, addressing(a, b), &bytes);
                }
            }
            What::Ack => {
                if let Some((_, bytes)) = acks.pop_front() {
                    sender.handle_packet(now, addressing(b, a), &bytes);
                }
            }
        }
        let mut bytes = Vec::new();
        while sender.poll_transmit(now, &mut bytes).is_some() {
            sent += 1;
            if let Some(at) = there.carry(now, bytes.len() + 20) {
                flying.push_back((at, now, std::mem::take(&mut bytes)));
            }
            bytes.clear();
        }
        while sink.poll_transmit(now, &mut bytes).is_some() {
            if let Some(at) = back.carry(now, bytes.len() + 20) {
                acks.push_back((at, std::mem::take(&mut bytes)));
            }
            bytes.clear();
        }
    }
    let count = delays.len() as f64;
    let mean = delays.iter().sum::<f64>() / count;
    let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / count;
    let figures = format!("{sent} sent, {count} received, mean {mean}, variance {variance}");
    assert!((712..=714).contains(&sent), "{figures}");
    assert!((693.0..=694.0).contains(&count), "{figures}");
    assert!((mean / 0.787_624 - 1.0).abs() < 0.001, "{figures}");
    assert!((variance / 0.010_288 - 1.0).abs() < 0.01, "{figures}");
    assert_eq!(there.dropped() + back.dropped(), 0);
}

fn addressing(from: SocketAddr, to: SocketAddr) -> ringway_sansio::Addressing {
    ringway_sansio::Addressing::new(from.ip(), to.ip(), ringway_tcp::PROTOCOL)
}
