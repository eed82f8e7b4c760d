//! Times the hot functions on one core and prints nanoseconds a call:
//! `cargo run --profile quick -p ringway-sip --example speed`.
//!
//! It measures one message again and again in a warm cache and leaves out everything a server does
//! besides; it is for comparing one version of this crate with the next.
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

fn time(name: &str, mut run: impl FnMut()) {
    const ROUNDS: u32 = 200_000;
    let best = (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..ROUNDS).for_each(|_| run());
            start.elapsed()
        })
        .min()
        .unwrap();
    println!("{name:<24} {:>8.1} ns", best.as_nanos() as f64 / ROUNDS as f64);
}

fn main() {
    println!("a message of {} octets", INVITE.len());
    let parsed = message::parse(INVITE).unwrap();
    parsed.check().unwrap();
    let flow = Flow {
        id: FlowId::new(0, 0),
        transport: Transport::Udp,
        local: "192.0.2.1:5060".parse().unwrap(),
        remote: "192.0.2.17:5060".parse().unwrap(),
    };
    let mut buf = Vec::with_capacity(4096);
    time("message::parse", || {
        black_box(message::parse(black_box(INVITE)).unwrap());
    });
    time("Message::check", || black_box(&parsed).check().unwrap());
    time("top_via", || {
        black_box(black_box(&parsed).top_via().unwrap());
    });
    time("from", || {
        black_box(black_box(&parsed).from().unwrap());
    });
    time("Via::parse", || {
        let value = parsed.first(HeaderId::Via).unwrap();
        black_box(Via::parse(black_box(value)).unwrap());
    });
    time("NameAddr::parse", || {
        let value = parsed.first(HeaderId::From).unwrap();
        black_box(NameAddr::parse(black_box(value)).unwrap());
    });
    time("CSeq::parse", || {
        black_box(CSeq::parse(black_box(b"20711 INVITE")).unwrap());
    });
    time("Uri::parse", || {
        black_box(Uri::parse(black_box(b"sip:alice@192.0.2.17:5060;transport=udp")).unwrap());
    });
    time("HeaderId::of", || {
        black_box(HeaderId::of(black_box(b"Max-Forwards")));
    });
    time("write::response", || {
        buf.clear();
        write::response(&mut buf, &parsed, Some(&flow), 200, "", Some(b"tag"), b"", b"");
        black_box(&buf);
    });
}
