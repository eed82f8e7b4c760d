//! Times the registrar: parse, check, refresh and answer of a REGISTER, each separately, on one
//! thread. Run it with `cargo run --profile quick --example registers`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ringway_proxy::gruu::Gruus;
use ringway_proxy::keys::{Keyring, Secret};
use ringway_proxy::location::{CommitTag, MemoryStore};
use ringway_proxy::registrar::{Registrar, RegistrarConfig};
use ringway_sansio::{Flow, FlowId, SplitMix, Time, Transport};
use ringway_sip::message::parse;
use std::hint::black_box;
use std::time::Instant;

/// Default number of registrations of a run.
const ROUNDS: u32 = 50_000;
/// The fastest of this number of runs counts: other processes slow down the others.
const RUNS: usize = 20;
const TAG: CommitTag = CommitTag { worker: 0, id: 0 };

const PLAIN: &str = "Contact: <sip:alice@192.0.2.17:5060;transport=udp>\r\nExpires: 3600\r\n";
const OUTBOUND: &str = "Contact: <sip:alice@192.0.2.17:5060;transport=tcp>;reg-id=1\
    ;+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000a95a0e128>\"\r\n\
    Supported: path, outbound\r\nExpires: 3600\r\n";
const GRUU: &str = "Contact: <sip:alice@192.0.2.17:5060;transport=tcp>;reg-id=1\
    ;+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000a95a0e128>\"\r\n\
    Supported: path, outbound, gruu\r\nExpires: 3600\r\n";

fn request(cseq: u32, lines: &str) -> String {
    format!(
        "REGISTER sip:example.com SIP/2.0\r\n\
         Via: SIP/2.0/UDP 192.0.2.17:5060;rport;branch=z9hG4bKnashds7{cseq:08}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:alice@example.com>;tag=456248\r\n\
         To: <sip:alice@example.com>\r\nCall-ID: 843817637684230@998sdasdh09-0123456789ab\r\n\
         CSeq: {cseq:08} REGISTER\r\n{lines}User-Agent: phone/1.0\r\nContent-Length: 0\r\n\r\n"
    )
}

fn fastest(mut work: impl FnMut()) -> u128 {
    let rounds = std::env::args().nth(1).map_or(ROUNDS, |n| n.parse().unwrap());
    let mut best = u128::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        for _ in 0..rounds {
            work();
        }
        best = best.min(start.elapsed().as_nanos() / u128::from(rounds));
    }
    best
}

fn main() {
    for (label, lines) in [("plain", PLAIN), ("outbound", OUTBOUND), ("with GRUUs", GRUU)] {
        let gruus = Gruus::new(&Keyring::of(Secret::new(&[1; 32])), None);
        let mut registrar = Registrar::new(RegistrarConfig::default(), gruus);
        let store = MemoryStore::new([2; 16]);
        let mut random = SplitMix::new(1);
        let flow = Flow {
            id: FlowId::new(0, 1),
            transport: Transport::Udp,
            local: "192.0.2.1:5060".parse().unwrap(),
            remote: "192.0.2.17:5060".parse().unwrap(),
        };
        let now = Time::from_secs(1_700_000_000);
        // The CSeq is incremented in place, so that only the registrar is timed.
        let mut bytes = request(1, lines).into_bytes();
        let at = bytes.windows(6).position(|w| w == b"CSeq: ").unwrap() + 6;
        let count_up = |bytes: &mut Vec<u8>| {
            for digit in bytes[at..at + 8].iter_mut().rev() {
                *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
                if *digit != b'0' {
                    break;
                }
            }
        };

        let parsing = fastest(|| {
            let message = parse(black_box(&bytes)).unwrap();
            message.check().unwrap();
            black_box(&message);
        });
        let mut headers = Vec::with_capacity(1024);
        let whole = fastest(|| {
            count_up(&mut bytes);
            headers.clear();
            let message = parse(black_box(&bytes)).unwrap();
            message.check().unwrap();
            let done = registrar.register(
                now,
                &flow,
                &message,
                b"sip:alice@example.com",
                TAG,
                &store,
                &mut random,
                &mut headers,
            );
            assert_eq!(done.status, 200);
        });
        let more = whole.saturating_sub(parsing);
        println!("{label:<12} parse and check {parsing:>6} ns, registrar {more:>6} ns");
    }
}
