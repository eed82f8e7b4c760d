//! Times the hot functions on one core and prints nanoseconds a call:
//! `cargo run --profile quick -p ringway-sip --example speed [ROUNDS [NAME]]`.
//!
//! It measures one message repeatedly in a warm cache, without the other work of a server; it is for
//! comparing two versions of this crate.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ringway_sansio::{Flow, FlowId, Transport};
use ringway_sip::header::{CSeq, HeaderId, NameAddr, Via};
use ringway_sip::{Uri, message, write};
use std::hint::black_box;
use std::time::Instant;

const INVITE: &[u8] = b"INVITE sip:bob@biloxi.example.com SIP/2.0\r\n\
    Via: SIP/2.0/UDP 192.0.2.17:5060;rport;branch=z9hG4bKPjd8a9c0f2-7be1-4b0c\r\n\
    Max-Forwards: 70\r\n\
    From: \"Alice\" <sip:alice@atlanta.example.com>;tag=9fxced76sl3848231774\r\n\
    To: <sip:bob@biloxi.example.com>\r\n\
    Call-ID: 3848276298220188511-0192837465@192.0.2.17\r\n\
    CSeq: 20711 INVITE\r\n\
    Contact: <sip:alice@192.0.2.17:5060;transport=udp>\r\n\
    Allow: INVITE, ACK, CANCEL, BYE, OPTIONS, NOTIFY, UPDATE\r\n\
    Supported: replaces, 100rel, timer\r\n\
    User-Agent: Phone 4.2.1\r\n\
    Content-Type: application/sdp\r\n\
    Content-Length: 126\r\n\
    \r\n\
    v=0\r\no=- 3868331 3868331 IN IP4 192.0.2.17\r\ns=call\r\nc=IN IP4 192.0.2.17\r\n\
    t=0 0\r\nm=audio 4000 RTP/AVP 8 0\r\na=rtpmap:8 PCMA/8000\r\n";

const REGISTER: &[u8] = b"REGISTER sip:example.com SIP/2.0\r\n\
    Via: SIP/2.0/UDP 192.0.2.17:5060;rport;branch=z9hG4bKnashds700000001\r\n\
    Max-Forwards: 70\r\n\
    From: <sip:alice@example.com>;tag=456248\r\n\
    To: <sip:alice@example.com>\r\n\
    Call-ID: 843817637684230@998sdasdh09-0123456789ab\r\n\
    CSeq: 00000001 REGISTER\r\n\
    Contact: <sip:alice@192.0.2.17:5060;transport=udp>\r\n\
    Expires: 3600\r\n\
    User-Agent: phone/1.0\r\n\
    Content-Length: 0\r\n\
    \r\n";

const OK: &[u8] = b"SIP/2.0 200 OK\r\n\
    Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK-3f9c2a70b8d14e65\r\n\
    Via: SIP/2.0/UDP 192.0.2.17:5060;branch=z9hG4bKPjd8a9c0f2-7be1-4b0c;received=192.0.2.17;rport=5060\r\n\
    Record-Route: <sip:192.0.2.1:5060;lr>\r\n\
    From: \"Alice\" <sip:alice@atlanta.example.com>;tag=9fxced76sl3848231774\r\n\
    To: <sip:bob@biloxi.example.com>;tag=8321234356\r\n\
    Call-ID: 3848276298220188511-0192837465@192.0.2.17\r\n\
    CSeq: 20711 INVITE\r\n\
    Contact: <sip:bob@192.0.2.33:5060>\r\n\
    Content-Length: 0\r\n\
    \r\n";

/// The arguments: the number of rounds of each function, and a part of its name.
struct Asked {
    rounds: u32,
    name: String,
}

impl Asked {
    fn time(&self, name: &str, mut run: impl FnMut()) {
        if !name.contains(&self.name) {
            return;
        }
        let best = (0..7)
            .map(|_| {
                let start = Instant::now();
                (0..self.rounds).for_each(|_| run());
                start.elapsed()
            })
            .min()
            .unwrap();
        println!("{name:<24} {:>8.1} ns", best.as_nanos() as f64 / self.rounds as f64);
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let asked = Asked {
        rounds: arguments.next().map_or(200_000, |n| n.parse().unwrap()),
        name: arguments.next().unwrap_or_default(),
    };
    let flow = Flow {
        id: FlowId::new(0, 0),
        transport: Transport::Udp,
        local: "192.0.2.1:5060".parse().unwrap(),
        remote: "192.0.2.17:5060".parse().unwrap(),
    };
    let mut buf = Vec::with_capacity(4096);
    for (kind, bytes) in [("INVITE", INVITE), ("REGISTER", REGISTER), ("OK", OK)] {
        let parsed = message::parse(bytes).unwrap();
        parsed.check().unwrap();
        asked.time(&format!("parse {kind}"), || {
            black_box(message::parse(black_box(bytes)).unwrap());
        });
        asked.time(&format!("parse, check {kind}"), || {
            let parsed = message::parse(black_box(bytes)).unwrap();
            parsed.check().unwrap();
            black_box(&parsed);
        });
        asked.time(&format!("write::response {kind}"), || {
            buf.clear();
            write::response(&mut buf, &parsed, Some(&flow), 200, "", Some(b"tag"), b"", b"");
            black_box(&buf);
        });
    }
    let parsed = message::parse(INVITE).unwrap();
    asked.time("top_via", || {
        black_box(black_box(&parsed).top_via().unwrap());
    });
    asked.time("from", || {
        black_box(black_box(&parsed).from().unwrap());
    });
    asked.time("Via::parse", || {
        let value = parsed.first(HeaderId::Via).unwrap();
        black_box(Via::parse(black_box(value)).unwrap());
    });
    asked.time("NameAddr::parse", || {
        let value = parsed.first(HeaderId::From).unwrap();
        black_box(NameAddr::parse(black_box(value)).unwrap());
    });
    asked.time("CSeq::parse", || {
        black_box(CSeq::parse(black_box(b"20711 INVITE")).unwrap());
    });
    asked.time("Uri::parse", || {
        black_box(Uri::parse(black_box(b"sip:alice@192.0.2.17:5060;transport=udp")).unwrap());
    });
    asked.time("HeaderId::of", || {
        black_box(HeaderId::of(black_box(b"Max-Forwards")));
    });
}
