//! The home of a user for whom hostile routers leave messages, and keeps messages itself: octets, lists, parts and sealed
//! messages that a fuzzer chooses, private messages, deliveries that succeed or fail, and time. What it keeps stays bounded,
//! only messages of routers that may send as their sender are delivered, and each of them is delivered once.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use ringway_dht::wire::Packet;
use ringway_dht::{Draft, Record};
use ringway_directory::config::{KIND_ACCOUNT, KIND_MAIL, KIND_MAIL_PART};
use ringway_directory::mail::format::{part_name, Entry, Letter, List, MAX_SEALED, PART};
use ringway_directory::{Account, Config, Delivery, Directory, Event, Grant, Mail};
use ringway_mesh::crypto::{Crypto, StandIn};
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::{Identity, Search};
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

const ALICE: &str = "alice@mesh";
/// Users of the first and the second peer.
const SENDERS: [&str; 2] = ["bob@mesh", "carol@mesh"];

fn identity(seed: u64) -> Identity {
    Search::new(0, &mut SplitMix::new(seed)).step(1).expect("any modifier has no zero bits to miss")
}

/// Has the router, which is alone, be the keeper of its own records.
fn settle(directory: &mut Directory<StandIn>, now: Time, random: &mut SplitMix) {
    let own = directory.id();
    for _ in 0..64 {
        let messages = directory.take_messages();
        assert!(messages.len() < 4_000, "one message has caused thousands");
        if messages.is_empty() {
            return;
        }
        for message in messages {
            directory.handle(now, own, &message.octets, random);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let random = &mut SplitMix::new(1);
    let mut config = Config { mail: 8, mail_done: 64, ..Config::default() };
    config.dht.extension_bits = 0;
    let home = identity(1);
    let key = home.proof().key;
    let peers: Vec<Identity> = (2..6).map(identity).collect();
    let mut now = Time::from_secs(1_000);
    let mut directory: Directory<StandIn> = Directory::new(config, home, now);
    now += Duration::from_secs(10);
    let own = directory.id();
    let account = Account { password_set: 900, ..Account::default() };
    directory.set_account(now, ALICE, (&account, b""), random).expect("room for a user");
    _ = directory.register(now, ALICE, 1_000, random);
    settle(&mut directory, now, random);
    let (mut open, mut seen): (Vec<Delivery>, _) = (Vec::new(), BTreeSet::new());
    let (mut tag, mut count) = (0, 0);
    let mut rest = data;
    while let Some((&[action, peer, a, b], more)) = rest.split_first_chunk::<4>() {
        rest = more;
        let number = usize::from(peer) % peers.len();
        let by = &peers[number];
        let (taken, more) = rest.split_at(usize::from(a).min(rest.len()));
        count += 1;
        let mut put = |directory: &mut Directory<StandIn>, kind, name: &[u8], value: &[u8]| {
            let draft = Draft { kind, name, value, lifetime: 80_000 };
            let version = Sequence { epoch: 1, count };
            let record = Record::sign::<StandIn>(by, version, &draft).expect("within all limits");
            let packet = Packet::Put { request: count, rest: 80_000, record };
            directory.handle(now, by.id(), &packet.to_octets(), random);
        };
        let from = SENDERS[usize::from(b) % 2];
        match action % 9 {
            0 => {
                rest = more;
                directory.handle_private(now, by.id().prefix(), taken, random);
            }
            1 => {
                let end = now.as_secs() as u32 + 1_000 * u32::from(b % 32);
                let length = u16::from(a) * 9;
                let entries = (0..a % 6).map(|at| Entry { id: [at ^ b; 16], length, end });
                let list = List { home: own, entries: entries.collect() };
                put(&mut directory, KIND_MAIL, ALICE.as_bytes(), &list.to_octets());
            }
            2 => {
                rest = more;
                put(&mut directory, KIND_MAIL_PART, &part_name(&[b; 16], 0), taken);
            }
            3 | 4 => {
                // A message that is whole, but perhaps not of its sender.
                let end = (now + Duration::from_secs(9_999)).as_secs() as u32;
                let grant = Grant::sign::<StandIn>(by, from, peers[2].id(), (end, 900));
                let letter = Letter {
                    accepted: now.as_secs() as u32,
                    to: if b % 7 == 0 { from.into() } else { ALICE.into() },
                    from: from.into(),
                    grant: (a % 2 == 0).then_some(grant),
                    octets: vec![a; usize::from(a) * 6].into(),
                };
                let mut sealed = Vec::new();
                let octets = letter.to_octets().expect("within all limits");
                StandIn::seal_for(&key, [b; 32], &octets, &mut sealed);
                let id = [a; 16];
                for (at, part) in sealed.chunks(PART).enumerate() {
                    put(&mut directory, KIND_MAIL_PART, &part_name(&id, at), part);
                }
                let entries = vec![Entry { id, length: sealed.len() as u16, end }];
                let list = List { home: own, entries };
                put(&mut directory, KIND_MAIL, ALICE.as_bytes(), &list.to_octets());
            }
            5 => {
                // Only the first two are homes of senders.
                if let Some(name) = SENDERS.get(number) {
                    let account = Account { password_set: 800, ..Account::default() };
                    put(&mut directory, KIND_ACCOUNT, name.as_bytes(), &account.to_octets());
                }
            }
            6 => {
                tag += 1;
                let to = if a % 2 == 0 { from } else { ALICE };
                let (lifetime, octets) = (u32::from(b) + 1, taken.into());
                let mail = Mail { to: to.into(), from: ALICE.into(), lifetime, octets };
                directory.keep(now, tag, mail, random);
            }
            7 => {
                if let Some(delivery) = open.pop() {
                    let before = directory.mail_counters().delivered;
                    directory.delivered(now, delivery.id, b % 2 == 0, random);
                    // One that was given up meanwhile does not count. Alice may have sent herself the same twice.
                    let is_new = directory.mail_counters().delivered > before;
                    if is_new && *delivery.from != *ALICE {
                        assert!(seen.insert((delivery.from, delivery.accepted, delivery.octets)));
                    }
                }
            }
            _ => {
                now += Duration::from_millis(u64::from(a) * 400);
                directory.handle_timeout(now, random);
            }
        }
        settle(&mut directory, now, random);
        directory.take_private();
        assert!(directory.mail() <= config.mail);
        while let Some(event) = directory.poll_event() {
            if let Event::Deliver(delivery) = event {
                assert!(*delivery.to == *ALICE && delivery.octets.len() <= MAX_SEALED);
                assert!(*delivery.from == *ALICE || SENDERS.contains(&&*delivery.from));
                open.push(delivery);
            }
        }
        open.drain(..open.len().saturating_sub(4));
    }
});
