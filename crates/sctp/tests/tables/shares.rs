//! Associations that sources hold of the limit: one source leaves room for others, and what ends gives its room back.

use super::plain;
use super::support::*;
use ringway_sctp::wire::{Chunk, Packet, Writer, chunk::kind};
use ringway_sctp::{AssocId, Event, Limits};
use std::net::IpAddr;

/// A listener with room for so many associations, and the ports of peers in turn.
struct Host {
    s: Script,
    next_port: u16,
}

fn host_for(associations: usize) -> Host {
    let mut s = Script::new(plain());
    s.sctp = host_with(3, plain(), Limits { associations, ..Limits::default() });
    s.listen(&[A1]);
    Host { s, next_port: 1024 }
}

fn source(n: u32) -> IpAddr {
    IpAddr::V4((0x0b00_0000 + n).into())
}

impl Host {
    /// Has a source open an association. Returns its id, if it came up.
    fn open(&mut self, source: IpAddr) -> Option<AssocId> {
        self.open_from(&[source], source)
    }

    /// Has a peer with these addresses open an association, whose COOKIE ECHO comes from `echo`.
    fn open_from(&mut self, addresses: &[IpAddr], echo: IpAddr) -> Option<AssocId> {
        self.next_port += 1;
        self.s.ports.1 = self.next_port;
        self.s.addresses = addresses.to_vec();
        self.s.collect();
        self.s.sent.clear();
        self.s.give_init();
        self.s.take_init_ack();
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, 65_535, self.s.ports.1, PORT, self.s.tag);
        Chunk::CookieEcho(&self.s.cookie).emit(writer.chunks());
        writer.finish();
        self.s.give_bytes(echo, A1, &bytes);
        let (_, answer) = self.s.take()?;
        let first = Packet::parse(&answer).unwrap().chunks().next().unwrap().unwrap();
        let up = self.s.events().into_iter().find_map(|event| match event {
            Event::Up { id, .. } => Some(id),
            _ => None,
        });
        assert_eq!(first.kind, if up.is_some() { kind::COOKIE_ACK } else { kind::ABORT });
        up
    }

    fn open_all(&mut self, source: IpAddr) -> Vec<AssocId> {
        core::iter::from_fn(|| self.open(source)).collect()
    }

    /// Ends an association without its peer's help.
    fn abort(&mut self, id: AssocId) {
        self.s.sctp.abort(id, b"enough").unwrap();
        self.s.events();
    }
}

#[test]
fn one_source_leaves_room_for_others() {
    let mut host = host_for(80);
    assert_eq!(host.open_all(source(1)).len(), 70);
    assert_eq!(host.s.sctp.counters().associations_full, 1);
    // Of what is left each gets a quarter: of ten, of eight, and of five.
    assert_eq!(host.open_all(source(2)).len(), 2);
    assert_eq!(host.open_all(source(3)).len(), 2);
    assert!(host.open(source(1)).is_none());
    // The local user may use what is free.
    host.s.sctp.connect(host.s.now, &[A1], 0, &[B1], PORT, None).unwrap();
    assert_eq!((host.open_all(source(4)).len(), host.s.sctp.len()), (1, 76));
}

/// A /64 is one source, as is an IPv4 address.
#[test]
fn a_network_of_ipv6_is_one_source() {
    let mut host = host_for(80);
    let local: IpAddr = "2001:db8::1".parse().unwrap();
    host.s.listen(&[local]);
    let v6 = |n: u128| IpAddr::V6((0x2001_0db8_0001_u128 << 80 | n).into());
    let open = |host: &mut Host, from: IpAddr| {
        host.next_port += 1;
        let mut init = Vec::new();
        let (fixed, parameters) = host.s.init();
        let mut writer = Writer::new(&mut init, 65_535, host.next_port, PORT, 0);
        parameters.emit(writer.chunks(), kind::INIT, &fixed);
        writer.finish();
        host.s.sent.clear();
        host.s.give_bytes(from, local, &init);
        host.s.take_init_ack();
        let mut echo = Vec::new();
        let mut writer = Writer::new(&mut echo, 65_535, host.next_port, PORT, host.s.tag);
        Chunk::CookieEcho(&host.s.cookie).emit(writer.chunks());
        writer.finish();
        host.s.give_bytes(from, local, &echo);
        host.s.events().iter().any(|event| matches!(event, Event::Up { .. }))
    };
    assert_eq!((1..200).filter(|n| open(&mut host, v6(*n))).count(), 70);
    assert!(!open(&mut host, v6(777)) && open(&mut host, v6(1 << 64)));
}

#[test]
fn many_sources_share_the_room() {
    let mut host = host_for(80);
    let opened: Vec<_> = (0..200).filter_map(|n| host.open(source(n))).collect();
    assert_eq!((opened.len(), host.s.sctp.len()), (80, 80));
    assert!(host.s.sctp.connect(host.s.now, &[A1], 0, &[B1], PORT, None).is_err());
    host.abort(opened[3]);
    assert!(host.open(source(1)).is_none() && host.open(source(500)).is_some());
}

/// An association opened from one address and echoed from another that its INIT lists counts for the first.
#[test]
fn an_association_counts_for_the_source_of_its_init() {
    let mut host = host_for(80);
    for _ in 0..70 {
        host.open_from(&[source(1), source(2)], source(2)).unwrap();
    }
    assert!(host.open(source(1)).is_none());
    assert_eq!(host.open_all(source(2)).len(), 2);
}

#[test]
fn room_is_released_with_the_association() {
    let mut host = host_for(80);
    let opened: Vec<AssocId> = (0..70).filter_map(|_| host.open(source(1))).collect();
    // By the peer's ABORT, to the association that was opened last.
    host.s.give_from(source(1), A1, "ABORT");
    assert_eq!((host.s.events().len(), host.s.sctp.len()), (1, 69));
    assert!(host.open(source(1)).is_some() && host.open(source(1)).is_none());
    // By the user's.
    host.abort(opened[0]);
    assert!(host.open(source(1)).is_some() && host.open(source(1)).is_none());
    // By timeouts.
    let ids = opened[1..5].to_vec();
    for id in &ids {
        let options = ringway_sctp::SendOptions::default();
        host.s.sctp.send(host.s.now, *id, &options, vec![1; 100]).unwrap();
    }
    host.s.wait(secs(600));
    host.s.events();
    assert!(ids.iter().all(|id| host.s.sctp.snapshot(*id).is_err()));
    assert_eq!(host.open_all(source(1)).len(), 4);
}

/// Random sources open and end in random ways; afterwards one source has all it had at first.
#[test]
fn nothing_is_held_after_any_end() {
    for seed in 0..40 {
        let mut dice = Dice::new(seed);
        let mut host = host_for(24);
        let mut open: Vec<AssocId> = Vec::new();
        for _ in 0..200 {
            match dice.below(6) {
                0..=2 => open.extend(host.open(source(dice.below(5) as u32))),
                3 => {
                    let to = host.next_port + 1;
                    host.next_port = to;
                    let id = host.s.sctp.connect(host.s.now, &[A1], 0, &[source(9)], to, None);
                    open.extend(id.ok());
                }
                4 if !open.is_empty() => {
                    let id = open.swap_remove(dice.below(open.len() as u64) as usize);
                    let _ = host.s.sctp.abort(id, b"enough");
                }
                _ => {
                    let id = open.get(dice.below(24) as usize).copied();
                    let now = host.s.now;
                    id.map(|id| host.s.sctp.shutdown(now, id));
                }
            }
            if dice.chance(3) {
                host.s.wait(secs(dice.below(100)));
            }
            host.s.events();
            assert!(host.s.sctp.len() <= 24);
        }
        for id in open {
            let _ = host.s.sctp.abort(id, b"enough");
        }
        host.s.events();
        assert!(host.s.sctp.is_empty());
        assert_eq!(host.open_all(source(3)).len(), 21, "seed {seed}");
    }
}
