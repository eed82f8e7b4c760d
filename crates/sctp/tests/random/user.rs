//! What users do at random.

use crate::plan::Plan;
use crate::support::{PORT, host, ms};
use crate::wires::ADDRESSES;
use crate::world::{OPENER_PORT, World};
use ringway_sctp::{AssocId, CallError, Reliability, Reset, SendError, SendOptions};

/// Pauses between two actions, in milliseconds.
const PAUSES: [u64; 6] = [0, 1, 5, 20, 100, 500];
/// Streams that are used of those there are.
const STREAMS: u16 = 12;

impl World {
    /// Users act, and time goes on between.
    pub fn live(&mut self) {
        for _ in 0..20 + self.dice.below(150) {
            let end = self.dice.below(2) as usize;
            if let Some(id) = self.ends[end].id {
                self.act(end, id);
                self.flush();
            }
            let pause = ms(self.dice.of(&PAUSES));
            self.run(pause);
        }
    }

    fn act(&mut self, end: usize, id: AssocId) {
        let Plan { resets, large_packets, udp, sleeps, clocks, crashes, .. } = self.plan;
        let link = self.dice.below(3) as usize;
        match self.dice.below(100) {
            0..=54 => self.send_some(end, id),
            55..=69 => {
                let most = 1 + self.dice.below(20);
                self.read(end, most as usize);
            }
            70..=74 if resets => self.change_streams(end, id),
            75..=79 => self.change_address(end, id),
            80..=82 => drop(self.ends[end].host.set_primary(id, ADDRESSES[1 - end][link])),
            83..=84 => drop(self.ends[end].host.request_heartbeat(id, ADDRESSES[1 - end][link])),
            85..=86 => {
                let (stream, value) = (self.dice.below(6) as u16, self.dice.below(6) as u16);
                drop(self.ends[end].host.set_stream_value(id, stream, value));
            }
            87..=90 => {
                let until = self.now + ms(self.dice.of(&[50, 500, 4000]));
                self.tell(|| format!("link {link} is cut until {until:?}"));
                self.wires.cut(link, until);
            }
            91 if large_packets => self.wires.set_mtu(link, self.dice.of(&[1500, 1700, 4000])),
            92 if udp => self.wires.set_nat(10_000 + self.dice.below(50_000) as u16),
            93 if sleeps => self.now += ms(self.dice.of(&[100, 2000, 20_000])),
            94 if clocks => {
                self.ends[end].clock += self.dice.of(&[1, 1000, -1000, 30_000]) * 1_000_000
            }
            95 if crashes => self.crash(),
            96..=97 => self.share_key(end),
            _ => {
                let most = self.dice.below(40);
                self.read(end, most as usize);
            }
        }
    }

    fn send_some(&mut self, end: usize, id: AssocId) {
        for _ in 0..1 + self.dice.below(6) {
            let streams = self.ends[end].host.snapshot(id).map_or(1, |s| s.streams.0);
            let most = match self.dice.below(10) {
                0..=4 => 200,
                5..=7 => 3000,
                8 => 12_000,
                _ => 60_000,
            };
            let size = 1 + self.dice.below(most) as usize;
            let (ppid, data) = self.ledgers[end].next(size);
            let options = SendOptions {
                stream: self.dice.below(u64::from(streams.min(STREAMS))) as u16,
                ppid,
                unordered: self.dice.chance(25),
                immediate: self.dice.chance(10),
                reliability: self.reliability(),
            };
            let now = self.clock(end);
            match self.ends[end].host.send(now, id, &options, data) {
                Ok(()) => self.ledgers[end].give(&options, size),
                Err(error) => {
                    self.ends[end].refused |=
                        matches!(error, CallError::Refused(SendError::NoRoom { .. }));
                    return;
                }
            }
            self.tell(|| format!("{end} gives {size} bytes: {options:?}"));
        }
    }

    fn reliability(&mut self) -> Reliability {
        match self.dice.below(12) {
            0 => Reliability::Lifetime(ms(self.dice.of(&[0, 50, 300, 2000]))),
            1 => Reliability::Retransmits(self.dice.below(3) as u8),
            2 => Reliability::Priority(self.dice.below(3) as u16),
            _ => Reliability::Full,
        }
    }

    fn change_streams(&mut self, end: usize, id: AssocId) {
        let Ok(snapshot) = self.ends[end].host.snapshot(id) else { return };
        let outgoing = self.dice.below(u64::from(snapshot.streams.0)) as u16;
        let incoming = self.dice.below(u64::from(snapshot.streams.1)) as u16;
        let (more, give) = (self.dice.below(3) as u16, self.dice.below(3) as u16);
        let kind = self.dice.below(5);
        let host = &mut self.ends[end].host;
        let result = match kind {
            0 => host.reset_streams(id, Reset::Outgoing(&[outgoing])),
            1 => host.reset_streams(id, Reset::Outgoing(&[])),
            2 => host.reset_streams(id, Reset::Incoming(&[incoming])),
            3 => host.reset_streams(id, Reset::Incoming(&[])),
            _ if self.plan.everything => {
                let result = host.reset_streams(id, Reset::Everything);
                self.everything |= result.is_ok();
                result
            }
            _ => host.add_streams(id, more, give),
        };
        self.tell(|| {
            format!("{end} changes streams: {kind} of {outgoing} and {incoming}: {result:?}")
        });
    }

    fn change_address(&mut self, end: usize, id: AssocId) {
        let address = ADDRESSES[end][self.dice.below(3) as usize];
        let kind = self.dice.below(3);
        let now = self.clock(end);
        let host = &mut self.ends[end].host;
        let result = match kind {
            0 => host.add_address(now, id, address),
            // Without a way from each address to each there might be none left.
            1 if self.plan.across => host.delete_address(now, id, address),
            _ => host.request_primary(now, id, address),
        };
        self.tell(|| format!("{end} changes addresses: {kind} of {address}: {result:?}"));
    }

    /// Sets a secret at both ends; then one uses it (RFC 4895 section 4.1).
    fn share_key(&mut self, end: usize) {
        let key = self.dice.below(4) as u16;
        let set = self.ends.iter_mut().all(|end| {
            end.id.is_some_and(|id| end.host.set_auth_key(id, key, &[key as u8; 20]).is_ok())
        });
        let Some(id) = self.ends[end].id.filter(|_| set) else { return };
        let result = self.ends[end].host.use_auth_key(id, key);
        self.tell(|| format!("{end} goes over to key {key}: {result:?}"));
    }

    /// Restarts the opener, which opens again from the same port, with other settings.
    fn crash(&mut self) {
        self.tell(|| "0 crashes".to_owned());
        self.crashed = true;
        let settings = self.plan.settings(&mut self.dice, true);
        self.ends[0].host = host(self.dice.below(1 << 60), settings);
        self.ends[0].closed = None;
        self.ends[0].refused = false;
        let (locals, now) = (self.locals(0), self.clock(0));
        let remotes = &ADDRESSES[1][..1];
        let id = self.ends[0].host.connect(now, &locals, OPENER_PORT, remotes, PORT, None).unwrap();
        self.ends[0].id = Some(id);
        self.ledgers[1].forget_reader();
    }
}
