//! Packets without an association, in numbers: what is answered is bounded, and shared among sources.

use super::plain;
use super::support::*;
use ringway_sansio::{Addressing, Endpoint};
use ringway_sctp::wire::Writer;
use ringway_sctp::wire::chunk::kind;
use ringway_sctp::{Limits, Settings};
use std::net::IpAddr;

/// Returns a listener with these limits, and an INIT for it.
fn flooded(limits: Limits) -> (Script, Vec<u8>) {
    let mut s = Script::accepted(Settings::default());
    s.sctp = host_with(3, plain(), limits);
    s.listen(&[A1]);
    let init = init_to(&s, s.ports.0);
    (s, init)
}

fn init_to(s: &Script, port: u16) -> Vec<u8> {
    let (fixed, parameters) = s.init();
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 2000, s.ports.1, port, 0);
    parameters.emit(writer.chunks(), kind::INIT, &fixed);
    writer.finish();
    out
}

fn source(n: u32) -> IpAddr {
    IpAddr::V4((0x0b00_0000 + n).into())
}

/// 20,000 INITs from as many addresses: nothing is stored, and unanswered ones are counted.
#[test]
fn a_flood_of_inits_stores_nothing() {
    let (mut s, init) = flooded(Limits { inits_per_second: 1000, ..Limits::default() });
    for n in 0..20_000 {
        s.give_bytes(source(n), A1, &init);
        s.sent.clear();
    }
    assert_eq!((s.sctp.len(), s.sctp.poll_timeout()), (0, None));
    let counters = s.sctp.counters();
    assert_eq!((counters.inits, counters.inits_limited), (1000, 19_000));
    // Without anybody taking the answers, they do not pile up either.
    s.wait(secs(2));
    for n in 0..1000 {
        s.sctp.handle_packet(s.now, Addressing::new(source(n), A1, 132), &init);
    }
    assert_eq!(s.sctp.counters().replies_full, 1000 - 256);
}

#[test]
fn a_source_that_floods_leaves_answers_for_others() {
    let limits = Limits { inits_per_second: 1000, strays_per_second: 1000, ..Limits::default() };
    let (mut s, init) = flooded(limits);
    let to_closed_port = init_to(&s, 9);
    for packet in [init, to_closed_port] {
        for (n, answers) in [(1, 200), (2, 160), (3, 128)] {
            for _ in 0..5000 {
                s.give_bytes(source(n), A1, &packet);
            }
            assert_eq!(s.sent.len(), answers);
            s.sent.clear();
        }
        s.wait(secs(2));
    }
}
