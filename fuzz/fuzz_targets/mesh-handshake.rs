//! Packets of handshakes and time, step by step, for a router that has a handshake with an honest one under way. The
//! table stays bounded, no answer is longer than its question, and if the handshake ends in a link both ends have it.
#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use ringway_mesh::config::Limits;
use ringway_mesh::crypto::{CodeKey, NetworkKey, StandIn};
use ringway_mesh::id::Instance;
use ringway_mesh::identity::{Identity, Search};
use ringway_mesh::link::{Handshakes, LinkAddress, Local};
use ringway_mesh::wire::Kind;
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

const HANDSHAKES: usize = 8;

fn address(host: u8) -> LinkAddress {
    LinkAddress { interface: 1, remote: SocketAddr::from(([10, 0, 0, host], 5267)) }
}

fn identity(seed: u64) -> Identity {
    Search::new(0, &mut SplitMix::new(seed)).step(1).expect("any modifier has no zero bits to miss")
}

fn local(identity: &Identity) -> Local<'_> {
    Local {
        identity,
        network: &NetworkKey::OPEN,
        extension_bits: 0,
        instance: Instance(1),
        hello: 1,
        hello_key: CodeKey([1; 16]),
        mtu: 1_452,
        stamp: 0,
    }
}

fn receive(
    table: &mut Handshakes<StandIn>,
    now: Time,
    from: u8,
    packet: &[u8],
    own: &Identity,
    random: &mut SplitMix,
) -> (Vec<u8>, bool) {
    let (from, own, mut out) = (address(from), local(own), Vec::new());
    // Whether it made a link.
    let up = match Kind::of(packet) {
        Ok(Kind::Init) => {
            let _ = table.init(now, from, packet, &own, random, &mut out);
            false
        }
        Ok(Kind::Resp) => {
            table.resp(now, from, packet, &own, &mut out).is_ok_and(|up| up.is_some())
        }
        Ok(Kind::Conf) => table.conf(from, packet, &own).is_ok(),
        Ok(Kind::Cookie) => {
            let _ = table.cookie(from, packet, &mut out);
            false
        }
        _ => false,
    };
    (out, up)
}

fuzz_target!(|data: &[u8]| {
    let (own, honest) = (identity(1), identity(2));
    let mut random = SplitMix::new(3);
    let mut now = Time::from_secs(1);
    let limits =
        Limits { handshakes: HANDSHAKES, handshakes_busy: HANDSHAKES, ..Limits::default() };
    let mut table = Handshakes::<StandIn>::new(now, limits, &mut random);
    let mut other = Handshakes::<StandIn>::new(now, limits, &mut random);
    let mut init = Vec::new();
    table.initiate(now, address(2), &local(&own), &mut random, &mut init).expect("room");
    let (resp, _) = receive(&mut other, now, 1, &init, &honest, &mut random);

    let mut rest = data;
    // Kind, host, time in ms, length; then the octets.
    while let [kind, host, millis, length, tail @ ..] = rest {
        let (bytes, tail) = tail.split_at(tail.len().min((*length).into()));
        rest = tail;
        now += Duration::from_millis((*millis).into());
        let mut packet = vec![0x10 | (2 + kind % 4)];
        packet.extend_from_slice(bytes);
        packet.resize([192, 183, 147, 40][usize::from(kind % 4)], 0);
        let (answer, _) = receive(&mut table, now, 2 + host % 20, &packet, &own, &mut random);
        assert!(answer.len() <= packet.len());
        let mut again = Vec::new();
        table.timeout(now, &mut random, &mut again);
        assert!(table.len() <= HANDSHAKES);
    }
    let (conf, up) = receive(&mut table, now, 2, &resp, &own, &mut random);
    if up {
        assert!(receive(&mut other, now, 1, &conf, &honest, &mut random).1);
    }
});
