//! The short numbers of a router to which others send whatever they like: octets, well-formed messages with parts that a
//! fuzzer chooses, and copies of what it has sent itself, in any order with users, time, censuses and restarts. Its state
//! stays within its limits and survives a restart, nothing is sent before it is stored, no number has two users, and blocks
//! that are granted are no longer owned.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use ringway_phonebook::numbers::ranges::{Range, Ranges};
use ringway_phonebook::numbers::state::State;
use ringway_phonebook::numbers::wire::{Hint, MAX_MESSAGE, Packet};
use ringway_phonebook::numbers::{Config, Event, Numbers, Space, Tag};
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

fn tag(a: u8) -> Tag {
    Tag { created: 900 + u64::from(a % 4) * 60, random: u64::from(a % 2) }
}

fuzz_target!(|data: &[u8]| {
    let random = &mut SplitMix::new(1);
    let space = Space::new(2, 3, 2).expect("a good space");
    let config = Config { space, max_users: 20, ..Config::default() };
    let mut now = Time::from_secs(1_000);
    let mut numbers = Numbers::new(config, 1, now, random);
    numbers.set_peers(now, &[2, 3, 4]);
    let mut disk: Option<Vec<u8>> = None;
    let mut sent: Vec<Packet> = Vec::new();
    let mut rest = data;
    while let Some((&[action, peer, a, b], more)) = rest.split_first_chunk::<4>() {
        rest = more;
        let from = u64::from(peer % 6);
        let blocks: Ranges =
            Range::new(u32::from(a), u32::from(a) + u32::from(b % 16)).into_iter().collect();
        let last =
            |kind: fn(&Packet) -> bool| sent.iter().rev().find(|packet| kind(packet)).cloned();
        let packet = match action % 16 {
            0 => {
                let (octets, more) = rest.split_at(usize::from(a).min(rest.len()));
                rest = more;
                numbers.handle(now, from, octets, random);
                None
            }
            1 => {
                let hint = Hint {
                    node: u64::from(b % 8),
                    tag: tag(b),
                    free: u32::from(a),
                    age: u16::from(b),
                };
                Some(Packet::Status {
                    request: 0,
                    tag: Some(tag(a)),
                    free: u32::from(b),
                    hints: vec![hint],
                })
            }
            2 => Some(Packet::Ask {
                request: u64::from(a),
                incarnation: u64::from(b % 2),
                tag: (b % 3 > 0).then(|| tag(b)),
                urgent: b % 2 == 0,
            }),
            3 => match last(|packet| matches!(packet, Packet::Ask { .. })) {
                Some(Packet::Ask { request, incarnation, .. }) => Some(Packet::Grant {
                    incarnation,
                    request,
                    grant: u64::from(b % 4),
                    tag: tag(b),
                    blocks,
                }),
                _ => None,
            },
            4 => match last(|packet| matches!(packet, Packet::Grant { .. })) {
                Some(Packet::Grant { grant, .. }) if a % 2 == 0 => Some(Packet::Ack { grant }),
                Some(Packet::Grant { grant, .. }) => Some(Packet::Refuse { grant }),
                _ => None,
            },
            5 => Some(Packet::Done { grant: u64::from(b % 4) }),
            6 => Some(Packet::Census {
                census: u64::from(a % 3),
                tag: tag(b),
                lost: vec![u64::from(b % 6)],
            }),
            7 => match last(|packet| matches!(packet, Packet::Census { .. })) {
                Some(Packet::Census { census, .. }) if a % 2 == 0 => {
                    let part = Range { first: 0, last: u32::MAX };
                    Some(Packet::Holds { census, part, blocks })
                }
                Some(Packet::Census { census, .. }) => {
                    Some(Packet::Kin { census, complete: true, routers: vec![u64::from(b % 6)] })
                }
                _ => None,
            },
            8 => Some(Packet::End { census: u64::from(a % 3), reclaimed: b % 2 == 0 }),
            9 => Some(match b % 3 {
                0 => Packet::Banned { census: u64::from(a % 3) },
                1 => Packet::Busy { census: u64::from(a % 3) },
                _ => Packet::Reset { census: u64::from(a % 3) },
            }),
            10 => {
                _ = numbers.assign(now, &format!("user{}", a % 32), random);
                None
            }
            11 => {
                numbers.release(now, &format!("user{}", a % 32));
                None
            }
            12 => {
                _ = numbers.reclaim(now, &[u64::from(a % 6)], &[u64::from(b % 6)], a > 128, random);
                None
            }
            13 => {
                now += Duration::from_millis(u64::from(a) * 400);
                numbers.handle_timeout(now, random);
                None
            }
            14 => {
                if let Some(disk) = &disk {
                    numbers =
                        Numbers::restore(config, 1, disk, now, random).expect("what was stored");
                    numbers.set_peers(now, &[2, 3, 4]);
                }
                None
            }
            _ => {
                if a % 4 == 0 {
                    numbers.retire(tag(b));
                }
                sent.iter().rev().nth(usize::from(b) % 8).cloned()
            }
        };
        if let Some(packet) = packet {
            numbers.handle(now, from, &packet.to_octets(), random);
        }
        // Without a word that it is stored, nothing of a change gets out.
        let pending = numbers.poll_save();
        if let Some(save) = &pending {
            let state = State::parse(&save.octets).expect("what is stored can be read");
            assert_eq!(&state, numbers.state());
        }
        if b % 8 != 7 {
            if let Some(save) = pending {
                disk = Some(save.octets);
                numbers.handle_saved(save.version);
            }
        } else if pending.is_some() {
            numbers.handle_save_failed();
        }
        while let Some(message) = numbers.poll_transmit() {
            assert!(message.octets.len() <= MAX_MESSAGE);
            let packet = Packet::parse(&message.octets).expect("what is sent is well-formed");
            assert_eq!(packet.to_octets(), message.octets);
            sent.push(packet);
        }
        sent.drain(..sent.len().saturating_sub(32));
        let mut users: BTreeMap<_, Box<str>> = BTreeMap::new();
        while let Some(event) = numbers.poll_event() {
            if let Event::Assigned { user, number, .. } = event {
                assert!(space.contains(number.number));
                users.insert(number, user);
            }
        }
        let state = numbers.state();
        let used: Vec<_> = state.slots.keys().map(|number| number / 10).collect();
        assert!(
            used.iter().all(|&block| !state.free.overlaps(Range { first: block, last: block }))
        );
        assert!(
            state.grants.len() <= 256 && state.accepted.len() <= 256 && state.legacy.len() <= 4
        );
        assert!(state.banned.len() <= 64 && state.free.len() <= 4_096);
    }
});
