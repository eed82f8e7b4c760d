use super::*;
use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, LinkConfig, Loss, Rate, Span, Streams};
use ringway_sansio::{Duration, Time};
use ringway_sim::flows::TransportConfig;

fn transport() -> [TransportConfig; 3] {
    let tcp = ringway_tcp::Settings { nagle: false, ..Default::default() };
    [TransportConfig::Udp, TransportConfig::Tcp(tcp), TransportConfig::Sctp(Default::default(), 64)]
}

fn bed(transport: TransportConfig, loss: f64) -> TestBed {
    let link = LinkConfig {
        rate: Rate(100_000_000),
        delay: Span::from_millis(1),
        loss: Loss::Random(RandomLoss {
            chance: Chance::percent(loss).unwrap(),
            ..RandomLoss::default()
        }),
        ..LinkConfig::default()
    };
    let clean = LinkConfig { loss: Loss::default(), ..link.clone() };
    TestBed {
        transport,
        links: [link.clone(), link, clean].map(|link| [link.clone(), link]),
        pairs: 3,
        callers_register: true,
        from: Time::from_secs(60),
        until: Time::from_secs(120),
        end: Time::from_secs(260),
        talk: Duration::from_secs(2),
        pause: Duration::from_secs(1),
        answer: Duration::from_millis(500),
    }
}

/// Without loss every call follows RFC 3261 section 24, and nothing is retransmitted.
#[test]
fn calls_complete_without_retransmissions() {
    for transport in transport() {
        let calls = bed(transport, 0.0).run(Streams::new(1, 0)).unwrap();
        let transport = transport.transport();
        assert!((50..=60).contains(&calls.calls.len()), "{transport}: {}", calls.calls.len());
        assert_eq!(calls.registered.len(), 6);
        assert!(
            calls.registered.iter().all(|r| matches!(r, Some(Ok(_)))),
            "{:?}",
            calls.registered
        );
        for call in &calls.calls {
            let since = |at: Option<Time>| at.unwrap().since(call.invited).as_secs_f64();
            // Four links of 1 ms there, and four back.
            assert!((0.008..0.009).contains(&since(call.ringing)), "{transport}: {call:?}");
            assert!((0.508..0.509).contains(&since(call.answered)), "{transport}: {call:?}");
            assert!((2.516..2.52).contains(&since(call.ended)), "{transport}: {call:?}");
            assert_eq!(call.failed, None);
        }
        assert_eq!((calls.retransmitted, calls.transport_retransmits, calls.dropped), (0, 0, 0));
    }
}

/// With losses calls are completed too: lost messages are retransmitted by SIP over UDP, otherwise
/// by the transport. The same streams give the same calls.
#[test]
fn calls_complete_despite_losses() {
    for transport in transport() {
        let run = |replication| bed(transport, 10.0).run(Streams::new(1, replication)).unwrap();
        let calls = run(0);
        let answered = calls.calls.iter().filter(|c| c.answered.is_some()).count();
        let transport = transport.transport();
        assert!(answered * 20 >= calls.calls.len() * 19, "{transport}: {answered} {calls:?}");
        assert!(calls.calls.len() > 20, "{transport}: {}", calls.calls.len());
        let reliable = transport.is_reliable();
        assert_eq!(calls.transport_retransmits > 0, reliable, "{transport}");
        assert!(calls.retransmitted > 0 || reliable, "{transport}");
        assert_eq!(run(0), calls);
        assert_ne!(run(1), calls);
    }
}
