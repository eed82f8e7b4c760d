//! The sessions of two routers that look each other up, step by step: messages of handshakes, sealed data, reports and
//! time, from anybody between them. Tables stay bounded, and what nobody has sealed is not opened.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_mesh::LocalRouter;
use ringway_mesh::config::Limits;
use ringway_mesh::crypto::{NetworkKey, StandIn};
use ringway_mesh::identity::Search;
use ringway_mesh::session::{SessionAction, Sessions, Way};
use ringway_mesh::wire::{MessageId, Route, Slot};
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

const LIMITS: fn() -> Limits =
    || Limits { sessions: 4, half_sessions: 4, queued_packets: 2, ..Limits::default() };
/// Octets that a table of these limits may have.
const HEAP: usize = 64 * 1024;

fn local(seed: u64) -> LocalRouter {
    let mut random = SplitMix::new(seed);
    let identity = Search::new(0, &mut random).step(1).expect("any modifier fits");
    LocalRouter::new(identity, NetworkKey::OPEN, 0, 1, &mut random)
}

fn way(route: Route, mtu: u16) -> Way {
    Way { route, mtu }
}

/// Two routers that look each other up, and what an attacker has seen of it.
struct Pair {
    now: Time,
    random: SplitMix,
    locals: [LocalRouter; 2],
    sessions: [Sessions<StandIn>; 2],
    seen: Vec<MessageId>,
}

impl Pair {
    /// Carries the actions of one to the other, each as it is, at once.
    fn carry(&mut self, from: usize, mut actions: Vec<SessionAction>) {
        let (to, now) = (1 - from, self.now);
        let back = Route::direct(Slot(1));
        while let Some(action) = actions.pop() {
            match action {
                SessionAction::LookUp { id, index, noise, prefix, .. } => {
                    self.seen.push(id);
                    if prefix != self.locals[to].id().prefix() {
                        continue;
                    }
                    let answer = self.sessions[to].look_up(
                        now,
                        &self.locals[to],
                        index,
                        &noise,
                        &back,
                        1_452,
                        id,
                        None,
                        &mut self.random,
                    );
                    if let Some((index, noise)) = answer {
                        self.sessions[from].look_up_ack(
                            now,
                            &self.locals[from],
                            id,
                            (index, &noise),
                            way(back.clone(), 1_452),
                            &mut actions,
                        );
                    }
                }
                SessionAction::Confirm { receiver, noise, .. } => {
                    let mut others = Vec::new();
                    self.sessions[to].confirm(now, &self.locals[to], receiver, &noise, &mut others);
                }
                SessionAction::Ready(prefix) => drop(self.sessions[from].take_queue(prefix)),
                _ => {}
            }
        }
    }

    fn check(&self) {
        for sessions in &self.sessions {
            assert!(sessions.up() <= 4);
            assert!(sessions.heap_bytes() <= HEAP, "{} octets", sessions.heap_bytes());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut pair = Pair {
        now: Time::from_secs(1_000),
        random: SplitMix::new(3),
        locals: [local(1), local(2)],
        sessions: [Sessions::new(LIMITS()), Sessions::new(LIMITS())],
        seen: Vec::new(),
    };
    let mut rest = data;
    // What, to whom and a number, length; then the octets.
    while let [what, number, length, tail @ ..] = rest {
        let (bytes, tail) = tail.split_at(tail.len().min((*length).into()));
        rest = tail;
        let (to, slot) = (usize::from(number & 1), Slot(u16::from(number >> 1 & 3)));
        let route = Route::direct(slot);
        let id = match pair.seen.get(usize::from(number >> 3)) {
            Some(id) => *id,
            None => MessageId((*number).into()),
        };
        let (now, mut out) = (pair.now, Vec::new());
        let by = pair.locals[1 - to].id();
        let (sessions, local) = (&mut pair.sessions[to], &pair.locals[to]);
        let index =
            bytes.first_chunk().map_or(u32::from(*number), |index| u32::from_be_bytes(*index));
        match what % 10 {
            // An honest packet of a host.
            0 | 1 => {
                let prefix = pair.locals[1 - to].id().prefix();
                let packet = vec![0x60; 40 + bytes.len()];
                sessions.offer(now, local, prefix, &packet, &mut pair.random, &mut out);
            }
            2 => {
                pair.now += Duration::from_millis(10 << (number & 15).min(13));
                for at in 0..2 {
                    let mut out = Vec::new();
                    pair.sessions[at].timeout(
                        pair.now,
                        &pair.locals[at],
                        &mut pair.random,
                        &mut out,
                    );
                    pair.carry(at, out);
                }
            }
            3 => {
                let mut noise = bytes.to_vec();
                noise.resize(64, 7);
                let _ = sessions.look_up(
                    now,
                    local,
                    index,
                    &noise,
                    &route,
                    index as u16,
                    id,
                    None,
                    &mut pair.random,
                );
            }
            4 => {
                let mut noise = bytes.to_vec();
                noise.resize(159, 7);
                sessions.look_up_ack(
                    now,
                    local,
                    id,
                    (index, &noise),
                    way(route, index as u16),
                    &mut out,
                );
            }
            5 => {
                let mut noise = bytes.to_vec();
                noise.resize(127, 7);
                sessions.confirm(now, local, index, &noise, &mut out);
            }
            6 => sessions.not_responsible(now, id, by, |_| number & 4 != 0, &mut out),
            7 => {
                let mut sealed = bytes.to_vec();
                let nonce = u64::from(*number);
                let opened = sessions.open(now, index, nonce, &[0; 12], &mut sealed);
                assert_eq!(opened, None, "nobody has sealed it");
            }
            8 => {
                let quoted = u64::from(index) << 32 | u64::from(*number);
                sessions.failed(quoted, slot, (number & 2 != 0).then_some(index as u16));
            }
            _ => {
                sessions.broken(index, slot);
                if number & 0x80 != 0 {
                    sessions.link_down(slot);
                }
            }
        }
        pair.carry(to, out);
        pair.check();
    }
});
