//! The sessions of two routers that look each other up, step by step: messages of handshakes, sealed data, reports and
//! time, from anybody between them. Tables stay bounded, and what nobody has sealed is not opened. Packets of hosts at the
//! first, in pieces if need be, are lost, repeated, altered and late on their way to the second: each comes once and as it
//! was, or not at all. The second has a session and no manners: it seals pieces of anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_mesh::config::Limits;
use ringway_mesh::crypto::{NetworkKey, StandIn};
use ringway_mesh::identity::Search;
use ringway_mesh::session::{Contents, Delivery, Piece, SessionAction, Sessions, Track, Way};
use ringway_mesh::wire::{DataView, MessageId, Route, Slot};
use ringway_mesh::LocalRouter;
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

const LIMITS: fn() -> Limits =
    || Limits { sessions: 4, half_sessions: 4, queued_packets: 2, ..Limits::default() };
/// Octets that a table of these limits may have: mostly 64 packets of which pieces are missing.
const HEAP: usize = 192 * 1024;
/// Packets on their way.
const MAX_WIRE: usize = 64;
/// Sizes of the smallest link on the way.
const MTUS: [u16; 4] = [1_452, 548, 700, 900];

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
    mtu: u16,
    /// What is on its way to the second, and to the first.
    wire: [Vec<Vec<u8>>; 2],
    /// Packets of hosts at the first, and whether they have come.
    packets: Vec<(Vec<u8>, bool)>,
}

impl Pair {
    /// A host at the first router sends a packet.
    fn send(&mut self, length: usize) {
        let number = self.packets.len() as u32;
        let mut packet = number.to_be_bytes().to_vec();
        packet.resize(length.max(4), number as u8);
        self.packets.push((packet.clone(), false));
        self.offer(&packet);
    }

    fn offer(&mut self, packet: &[u8]) {
        let (track, mut out) = (Track::ordinary(self.locals[1].id().prefix()), Vec::new());
        let sessions = &mut self.sessions[0];
        if sessions.offer(self.now, &self.locals[0], track, packet, &mut self.random, &mut out) == Delivery::Send {
            let pieces: Vec<Piece<'_>> = sessions.pieces(track, packet).collect();
            if pieces.is_empty() {
                self.seal(0, &Contents::Packet(packet));
            }
            pieces.into_iter().for_each(|piece| self.seal(0, &Contents::Piece(piece)));
        }
        self.carry(0, out);
    }

    fn seal(&mut self, from: usize, contents: &Contents<'_>) {
        let (track, mut out) = (Track::ordinary(self.locals[1 - from].id().prefix()), Vec::new());
        if self.sessions[from].seal(track, contents, 9, &mut out).is_none() {
            return;
        }
        assert!(from == 1 || out.len() <= MTUS[0].into(), "{} octets", out.len());
        let wire = &mut self.wire[from];
        if wire.len() >= MAX_WIRE {
            wire.remove(0);
        }
        wire.push(out);
    }

    /// A sealed packet comes, altered if `change` is not zero, and may come again if it `stays`.
    fn come(&mut self, from: usize, (at, stays): (usize, bool), change: u8) {
        let wire = &mut self.wire[from];
        if wire.is_empty() {
            return;
        }
        let at = at % wire.len();
        let mut packet = if stays { wire[at].clone() } else { wire.remove(at) };
        let length = packet.len();
        packet[usize::from(change).wrapping_mul(31) % length] ^= change;
        let Ok(mut data) = DataView::parse(&mut packet) else { return };
        let (index, nonce) = (data.session(), data.nonce());
        let (header, sealed, _) = data.sealed();
        let sessions = &mut self.sessions[1 - from];
        let mut actions = Vec::new();
        let opened = match sessions.open(self.now, (index, nonce), &header, sealed, &mut actions) {
            Some((_, Contents::Packet(packet))) => Some(packet.to_vec()),
            Some((_, Contents::Piece(piece))) => sessions.join(self.now, (index, nonce), Slot(1), &piece),
            _ => None,
        };
        if let Some(packet) = opened.filter(|_| from == 0) {
            let number = packet.first_chunk().map(|number| u32::from_be_bytes(*number)).expect("a number");
            let (sent, has_come) = &mut self.packets[number as usize];
            assert_eq!(*sent, packet);
            assert!(!core::mem::replace(has_come, true), "packet {number} comes again");
        }
        self.carry(1 - from, actions);
    }

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
                        now, &self.locals[to], index, &noise, &back, self.mtu, (id, false), None, &mut self.random,
                    );
                    if let Some((index, noise)) = answer {
                        self.sessions[from].look_up_ack(
                            now, &self.locals[from], id, (index, &noise), way(back.clone(), self.mtu), &mut actions,
                        );
                    }
                }
                SessionAction::Confirm { receiver, noise, .. } => {
                    let mut others = Vec::new();
                    self.sessions[to].confirm(now, &self.locals[to], receiver, &noise, &mut others);
                    self.carry(to, others);
                }
                SessionAction::Ready(prefix) => {
                    let queue = self.sessions[from].take_queue(prefix);
                    queue.iter().filter(|_| from == 0).for_each(|packet| self.offer(packet));
                }
                SessionAction::KeepAlive(..) => self.seal(from, &Contents::KeepAlive(0)),
                SessionAction::Alive(_, _, number) => self.seal(from, &Contents::Alive(number, 1)),
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
        mtu: MTUS[0],
        wire: [Vec::new(), Vec::new()],
        packets: Vec::new(),
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
        let index = bytes.first_chunk().map_or(u32::from(*number), |index| u32::from_be_bytes(*index));
        match what % 14 {
            // Packets of hosts at the first.
            10 => pair.send(usize::from(*length) * 6),
            11 => pair.come(usize::from(what >> 7), (usize::from(number >> 1), number & 1 != 0), 0),
            12 => pair.come(usize::from(what >> 7), (usize::from(number >> 1), number & 1 != 0), *length),
            13 if what & 0x80 != 0 => pair.mtu = MTUS[usize::from(number & 3)],
            // Pieces that the second has made up.
            13 => pair.seal(1, &Contents::Piece(Piece { index: number & 15, count: number >> 4, octets: bytes })),
            0 | 1 if to == 0 => pair.send(40 + bytes.len()),
            0 | 1 => {
                let track = Track::ordinary(pair.locals[1 - to].id().prefix());
                let packet = vec![0x60; 40 + bytes.len()];
                sessions.offer(now, local, track, &packet, &mut pair.random, &mut out);
            }
            2 => {
                pair.now += Duration::from_millis(10 << (number & 15).min(13));
                for at in 0..2 {
                    let mut out = Vec::new();
                    pair.sessions[at].timeout(pair.now, &pair.locals[at], &mut pair.random, &mut out);
                    pair.carry(at, out);
                }
            }
            3 => {
                let mut noise = bytes.to_vec();
                noise.resize(64, 7);
                let id = (id, what >> 7 != 0);
                let _ = sessions.look_up(now, local, index, &noise, &route, index as u16, id, None, &mut pair.random);
            }
            4 => {
                let mut noise = bytes.to_vec();
                noise.resize(159, 7);
                sessions.look_up_ack(now, local, id, (index, &noise), way(route, index as u16), &mut out);
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
                let opened = sessions.open(now, (index, nonce), &[0; 12], &mut sealed, &mut out);
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
