//! The wire between Ringway's SCTP and another.

use super::Peer;
use ringway_sansio::{Addressing, Duration, Endpoint, Random, SplitMix, Time};
use ringway_sctp::{AssocId, Event, Limits, PROTOCOL, Sctp, SendOptions, Settings};
use std::net::{IpAddr, Ipv4Addr};

const US: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const THEM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The port at both ends: the others' default.
pub(crate) const PORT: u16 = 5000;

/// Which end does something.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Opener {
    Ringway,
    Peer,
}

struct Flying {
    at: Time,
    serial: u64,
    to_us: bool,
    bytes: Vec<u8>,
}

pub(crate) struct Meeting {
    now: Time,
    us: Sctp,
    id: Option<AssocId>,
    over: bool,
    peer: Box<dyn Peer>,
    flying: Vec<Flying>,
    dice: SplitMix,
    loss: u64,
    serial: u64,
}

fn pattern(message: usize, count: usize) -> Vec<u8> {
    (0..count).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ message.wrapping_mul(7)) as u8).collect()
}

impl Meeting {
    pub(crate) fn new(peer: Box<dyn Peer>, loss: u64, seed: u64) -> Meeting {
        let settings = Settings {
            mtu: 1200,
            rto_min: Duration::from_millis(300),
            send_buffer: 4 << 20,
            receive_buffer: 4 << 20,
            ..Settings::default()
        };
        let random = Box::new(SplitMix::new(seed));
        Meeting {
            now: Time::from_secs(1000),
            us: Sctp::new(Limits::default(), settings, random).unwrap(),
            id: None,
            over: false,
            peer,
            flying: Vec::new(),
            dice: SplitMix::new(seed + 1),
            loss,
            serial: 0,
        }
    }

    fn roll(&mut self, below: u64) -> u64 {
        self.dice.next_u64() % below
    }

    fn launch(&mut self, to_us: bool, bytes: Vec<u8>) {
        if self.roll(100) < self.loss {
            return;
        }
        let copies = 1 + u64::from(self.loss > 0 && self.roll(100) < 2);
        for _ in 0..copies {
            let late = if self.loss > 0 && self.roll(10) == 0 { self.roll(15) } else { 0 };
            let at = self.now + Duration::from_millis(10 + late);
            self.serial += 1;
            self.flying.push(Flying { at, serial: self.serial, to_us, bytes: bytes.clone() });
        }
    }

    fn flush(&mut self) {
        let mut buffer = Vec::new();
        while self.us.poll_transmit(self.now, &mut buffer).is_some() {
            let bytes = core::mem::take(&mut buffer);
            self.launch(false, bytes);
        }
        for bytes in self.peer.take(self.now) {
            self.launch(true, bytes);
        }
        while let Some(event) = self.us.poll_event() {
            match event {
                Event::Up { id, .. } => self.id = Some(id),
                Event::Closed(_, why) => {
                    assert_eq!(why, ringway_sctp::Close::Finished);
                    self.over = true;
                }
                Event::PeerError { code, .. } => panic!("the peer reports error {code}"),
                _ => {}
            }
        }
    }

    fn step(&mut self) {
        self.flush();
        let flying = self.flying.iter().map(|f| f.at).min();
        let deadlines = [flying, self.us.poll_timeout(), self.peer.deadline()];
        let next = deadlines.into_iter().flatten().min().expect("something is to happen");
        self.now = self.now.max(next);
        let now = self.now;
        while let Some(index) = (0..self.flying.len())
            .filter(|&i| self.flying[i].at <= now)
            .min_by_key(|&i| (self.flying[i].at, self.flying[i].serial))
        {
            let packet = self.flying.swap_remove(index);
            if packet.to_us {
                let way = Addressing::new(THEM, US, PROTOCOL);
                self.us.handle_packet(now, way, &packet.bytes);
            } else {
                self.peer.give(now, &packet.bytes);
            }
            self.flush();
        }
        if self.us.poll_timeout().is_some_and(|at| at <= now) {
            self.us.handle_timeout(now);
        }
        if self.peer.deadline().is_some_and(|at| at <= now) {
            self.peer.wake(now);
        }
        self.flush();
    }

    pub(crate) fn open(&mut self, opener: Opener) {
        match opener {
            Opener::Ringway => {
                self.us.connect(self.now, &[US], PORT, &[THEM], PORT, None).unwrap();
            }
            Opener::Peer => {
                self.us.listen(&[US], PORT, None).unwrap();
                self.peer.connect(self.now);
            }
        }
        let until = self.now + Duration::from_secs(300);
        while self.id.is_none() || !self.peer.is_up() {
            assert!(self.now < until, "no association");
            self.step();
        }
    }

    /// Messages of these sizes both ways, on two streams; then that each came once, whole and in
    /// its stream's order.
    pub(crate) fn exchange(&mut self, sizes: &[usize]) {
        let id = self.id.unwrap();
        let list: Vec<(u16, Vec<u8>)> =
            sizes.iter().enumerate().map(|(n, &size)| (n as u16 % 2, pattern(n, size))).collect();
        let (mut given_us, mut given_them) = (0, 0);
        let (mut here, mut there): (Vec<_>, Vec<_>) = Default::default();
        let mut out = Vec::new();
        let until = self.now + Duration::from_secs(3000);
        while here.len() < list.len() || there.len() < list.len() {
            assert!(
                self.now < until,
                "{} of {given_them} here, {} of {given_us} there: {:?}",
                here.len(),
                there.len(),
                self.us.snapshot(id)
            );
            while let Some((stream, data)) = list.get(given_us) {
                let options = SendOptions { stream: *stream, ppid: 53, ..SendOptions::default() };
                if self.us.send(self.now, id, &options, data.clone()).is_err() {
                    break;
                }
                given_us += 1;
            }
            while let Some((stream, data)) = list.get(given_them) {
                if !self.peer.send(*stream, data) {
                    break;
                }
                given_them += 1;
            }
            self.step();
            while let Some(received) = self.us.recv(id, &mut out).unwrap() {
                if received.end {
                    here.push((received.stream, core::mem::take(&mut out)));
                }
            }
            there.extend(self.peer.received());
        }
        let of = |list: &[(u16, Vec<u8>)], stream| -> Vec<Vec<u8>> {
            list.iter().filter(|m| m.0 == stream).map(|m| m.1.clone()).collect()
        };
        for stream in 0..2 {
            assert!(of(&here, stream) == of(&list, stream), "here, stream {stream}");
            assert!(of(&there, stream) == of(&list, stream), "there, stream {stream}");
        }
    }

    pub(crate) fn close(&mut self, closer: Opener) {
        // Whatever acknowledgements are on their way arrive first.
        let quiet = self.now + Duration::from_secs(5);
        while self.now < quiet {
            self.step();
        }
        match closer {
            Opener::Ringway => self.us.shutdown(self.now, self.id.unwrap()).unwrap(),
            Opener::Peer => self.peer.shutdown(),
        }
        let until = self.now + Duration::from_secs(300);
        while !self.over || !self.peer.is_over() {
            assert!(self.now < until, "not over: {} {}", self.over, self.peer.is_over());
            self.step();
        }
        assert!(self.us.is_empty());
    }
}
