//! A router's part of the DHT, to which others send whatever they like: octets, and well-formed messages with parts that a
//! fuzzer chooses. What it keeps and what it sends stays bounded, every record that it keeps is good, and what it writes is
//! parsed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_dht::neighbours::{Leaves, Side};
use ringway_dht::positions::{Cursor, Stretch};
use ringway_dht::wire::{Copy, NotRenewed, Packet, Renewal, Span};
use ringway_dht::{Config, Dht, Draft, Event, Kinds, Record};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::StandIn;
use ringway_mesh::id::Sequence;
use ringway_mesh::identity::{Identity, Search};
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

fn identity(seed: u64) -> Identity {
    Search::new(0, &mut SplitMix::new(seed)).step(1).expect("any modifier has no zero bits to miss")
}

/// Returns a record by one of a few signers.
fn record(by: &Identity, a: u8, b: u8) -> Record {
    let name = [a % 8];
    let value = &[b; 40][..usize::from(b % 40)];
    let draft = Draft { kind: 1, name: &name, value, lifetime: u32::from(b) + 1 };
    Record::sign::<StandIn>(by, Sequence { epoch: 1, count: b.into() }, &draft)
        .expect("within all limits")
}

/// Returns positions between two of 256 keys.
fn stretch(a: u8, b: u8) -> Stretch {
    let key = |at: u8| NodeId::new(u64::from(at) << 56);
    Stretch { first: Cursor::first(key(a.min(b))), last: Cursor::last(key(a.max(b))) }
}

fuzz_target!(|data: &[u8]| {
    let random = &mut SplitMix::new(1);
    let config = Config {
        extension_bits: 0,
        listable: Kinds::none().with(1),
        records: 12,
        records_of_signer: 6,
        ..Config::default()
    };
    let peers: Vec<Identity> = (2..8).map(identity).collect();
    let mut now = Time::from_secs(1_000);
    let mut dht: Dht<StandIn> = Dht::new(config, identity(1), now);
    let mut ids: Vec<NodeId> = peers.iter().map(Identity::id).collect();
    ids.sort();
    let mut rest = data;
    while let Some((&[action, peer, a, b], more)) = rest.split_first_chunk::<4>() {
        rest = more;
        let by = &peers[usize::from(peer) % peers.len()];
        let origin = by.id();
        let span =
            Span { first: NodeId::new(u64::from(a) << 56), last: NodeId::new(u64::from(b) << 56) };
        let (request, age) = (u32::from(a), u32::from(b));
        match action % 12 {
            0 => {
                let length = usize::from(a).min(rest.len());
                let (octets, more) = rest.split_at(length);
                rest = more;
                dht.handle(now, origin, octets, random);
            }
            1 => {
                let packet = Packet::Put { request, rest: age, record: record(by, a, b) };
                dht.handle(now, origin, &packet.to_octets(), random);
            }
            2 => {
                let other = &peers[usize::from(a) % peers.len()];
                let record = record(other, a, b);
                let packet = Packet::Store { request, publisher: other.id(), rest: age, record };
                dht.handle(now, origin, &packet.to_octets(), random);
            }
            3 => dht.handle(
                now,
                origin,
                &Packet::Get { request, kind: 1, name: &[a % 8] }.to_octets(),
                random,
            ),
            4 => {
                // Answers to whatever was asked last.
                for message in dht.take_messages() {
                    let packet = Packet::parse(&message.octets);
                    if let Ok(Packet::Get { request, .. }) = packet {
                        let found = record(by, a, b);
                        let leaves = Leaves::default();
                        let found = Packet::Found {
                            request,
                            index: 0,
                            count: 1,
                            settled: true,
                            aside: a % 5 == 0,
                            leaves,
                            rest: age,
                            record: found,
                        };
                        dht.handle(now, origin, &found.to_octets(), random);
                    }
                    if let Ok(
                        Packet::Put { request, record, .. } | Packet::Store { request, record, .. },
                    ) = packet
                    {
                        let leaves = Leaves {
                            before: Side::new(),
                            behind: [ids[usize::from(a) % 6]].into_iter().collect(),
                        };
                        let (index, count, settled) = (a % 3, a % 3 + 1, b % 2 == 0);
                        let found = Packet::Found {
                            request,
                            index,
                            count,
                            settled,
                            aside: !settled && b % 3 == 0,
                            leaves,
                            rest: age,
                            record,
                        };
                        dht.handle(now, origin, &found.to_octets(), random);
                    }
                }
            }
            5 => {
                _ = dht.publish(
                    now,
                    &Draft { kind: 1, name: &[a % 8], value: &[b], lifetime: 30 },
                    random,
                )
            }
            6 if b % 4 == 0 => _ = dht.scan(now, 1, random),
            6 => _ = dht.withdraw(now, 1, &[a % 8], random),
            7 if b % 2 == 0 => _ = dht.look_up(now, 1, &[a % 8], random),
            7 => _ = dht.look_up_all(now, 1, &[a % 8], random),
            8 => {
                let near = ids.iter().copied().take(usize::from(a) % 5);
                dht.update_neighbours(now, near, ids.get(usize::from(b) % 7).copied(), random);
            }
            9 => {
                let copy = Copy { key: record(by, a, b).key(), mark: age };
                let packet =
                    match b % 8 {
                        0 => Packet::Entries { span, marks: vec![u64::from(a)] },
                        6 => Packet::List {
                            request,
                            kind: 1,
                            anyhow: a % 2 == 0,
                            stretch: stretch(a, b),
                        },
                        7 => {
                            // An answer to the scan that was begun first.
                            let asked = dht.take_messages().into_iter().find_map(|message| {
                                match Packet::parse(&message.octets) {
                                    Ok(Packet::List { request, .. }) => Some(request),
                                    _ => None,
                                }
                            });
                            let (request, settled) = (asked.unwrap_or(request), a % 3 > 0);
                            let records = vec![record(by, a, b), record(by, b, a)];
                            Packet::Listed {
                                request,
                                settled,
                                last: b % 16 < 8,
                                stretch: stretch(a, b),
                                records,
                            }
                        }
                        2 if a % 2 == 0 => Packet::Check { request, copies: vec![copy; 2] },
                        2 => Packet::Astray { copies: vec![copy] },
                        3 => Packet::Renew { request, stamp: age, copies: vec![copy] },
                        4 => {
                            let reason = |at: u8| match at % 3 {
                                0 => NotRenewed::Elsewhere,
                                1 => NotRenewed::Unknown,
                                _ => NotRenewed::Unsettled,
                            };
                            let asked = dht.take_messages().into_iter().find_map(|message| {
                                match Packet::parse(&message.octets) {
                                    Ok(Packet::Check { request, .. }) => Some(request),
                                    _ => None,
                                }
                            });
                            let request = asked.unwrap_or(request);
                            let exceptions = vec![(a % 2, reason(a)), (b % 2, reason(b))];
                            Packet::Renewed { request, leaves: Leaves::default(), exceptions }
                        }
                        5 => {
                            let renewals = vec![Renewal { copy, stamp: age, rest: request }];
                            let (confirm, settled, count) = (a % 2 == 0, a % 3 == 0, 1);
                            let (leaves, parts) = (Leaves::default(), [7].as_slice().into());
                            Packet::Digest {
                                confirm,
                                settled,
                                life: age as u16,
                                leaves,
                                span,
                                count,
                                renewals,
                                parts,
                            }
                        }
                        1 => Packet::Want { span, marks: vec![u64::from(a)] },
                        _ => Packet::Leave,
                    };
                dht.handle(now, origin, &packet.to_octets(), random);
            }
            10 => {
                for message in dht.take_messages() {
                    let packet =
                        Packet::parse(&message.octets).expect("what is sent is well-formed");
                    assert_eq!(packet.to_octets(), message.octets);
                    dht.handle(
                        now,
                        if a % 2 == 0 { dht.id() } else { origin },
                        &message.octets,
                        random,
                    );
                }
            }
            _ => {
                now += Duration::from_millis(u64::from(a) * 40);
                dht.handle_timeout(now, random);
            }
        }
        assert!(dht.table().len() <= config.records);
        while let Some(event) = dht.poll_event() {
            if let Event::Stored((1, name), _) = event {
                assert!(name.len() == 1);
            }
        }
        if dht.take_messages().len() > 4_000 {
            panic!("one message has caused thousands");
        }
    }
    let all = Span { first: NodeId::new(0), last: NodeId::new(u64::MAX) };
    for entry in dht.table().passed_on(now, all) {
        assert_eq!(entry.record.verify::<StandIn>(0), Some(entry.signer));
    }
});
