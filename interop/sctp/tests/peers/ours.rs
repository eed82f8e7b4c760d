//! Ringway's SCTP.

use super::end::{End, Ended, Limit, Offer, Post};
use super::wire::PORT;
use ringway_sansio::{Addressing, Duration, Endpoint, SplitMix, Time};
use ringway_sctp::{
    AssocId, Change, Close, Event, Limits, PROTOCOL, Reliability, Reset, Scheduling, Sctp,
    SendOptions, Settings,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))];

struct Ours {
    sctp: Sctp,
    here: IpAddr,
    there: IpAddr,
    id: Option<AssocId>,
    ended: Option<Ended>,
    resets: BTreeSet<u16>,
    /// Beginnings of messages that come in parts, by stream and order.
    parts: BTreeMap<(u16, bool), Vec<u8>>,
}

pub(crate) fn end(side: usize, seed: u64, offer: Offer) -> Box<dyn End> {
    let settings = Settings {
        mtu: 1200,
        rto_min: Duration::from_millis(300),
        send_buffer: 4 << 20,
        receive_buffer: 4 << 20,
        interleaving: offer.interleaving,
        scheduling: if offer.interleaving { Scheduling::RoundRobin } else { Scheduling::Fcfs },
        over_dtls: offer.zero_checksum,
        ..Settings::default()
    };
    let random = Box::new(SplitMix::new(seed * 2 + side as u64));
    Box::new(Ours {
        sctp: Sctp::new(Limits::default(), settings, random).unwrap(),
        here: ADDRESSES[side],
        there: ADDRESSES[1 - side],
        id: None,
        ended: None,
        resets: BTreeSet::new(),
        parts: BTreeMap::new(),
    })
}

fn how(close: Close) -> Ended {
    match close {
        Close::Finished => Ended::Orderly,
        other => Ended::Aborted(format!("{other:?}")),
    }
}

fn reliability(limit: Limit) -> Reliability {
    match limit {
        Limit::Never => Reliability::Full,
        Limit::Retransmits(count) => Reliability::Retransmits(count),
        Limit::Lifetime(ms) => Reliability::Lifetime(Duration::from_millis(u64::from(ms))),
    }
}

impl Ours {
    fn events(&mut self) {
        while let Some(event) = self.sctp.poll_event() {
            match event {
                Event::Up { id, .. } => self.id = Some(id),
                Event::Closed(_, why) => self.ended = Some(how(why)),
                Event::PeerError { code, .. } => panic!("the peer reports error {code}"),
                Event::Changed { change, .. } => self.changed(change),
                _ => {}
            }
        }
    }

    fn changed(&mut self, change: Change) {
        match change {
            Change::StreamsReset { incoming: true, streams } => self.resets.extend(streams),
            Change::ReconfigRefused(result) => panic!("reset refused: {result}"),
            _ => {}
        }
    }
}

impl End for Ours {
    fn open(&mut self, now: Time, opens: bool) {
        let here = [self.here];
        if opens {
            self.sctp.connect(now, &here, PORT, &[self.there], PORT, None).unwrap();
        } else {
            self.sctp.listen(&here, PORT, None).unwrap();
        }
    }

    fn give(&mut self, now: Time, packet: &[u8]) {
        self.sctp.handle_packet(now, Addressing::new(self.there, self.here, PROTOCOL), packet);
    }

    fn take(&mut self, now: Time) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = Vec::new();
        while self.sctp.poll_transmit(now, &mut buffer).is_some() {
            all.push(core::mem::take(&mut buffer));
        }
        self.events();
        all
    }

    fn deadline(&self) -> Option<Time> {
        self.sctp.poll_timeout()
    }

    fn wake(&mut self, now: Time) {
        self.sctp.handle_timeout(now);
    }

    fn send(&mut self, now: Time, post: &Post) -> bool {
        let options = SendOptions {
            stream: post.stream,
            ppid: 53,
            unordered: post.unordered,
            reliability: reliability(post.limit),
            ..SendOptions::default()
        };
        self.id.is_some_and(|id| self.sctp.send(now, id, &options, post.data.clone()).is_ok())
    }

    fn received(&mut self) -> Vec<(u16, Vec<u8>)> {
        let Some(id) = self.id else { return Vec::new() };
        let mut whole = Vec::new();
        let mut out = Vec::new();
        while let Ok(Some(received)) = self.sctp.recv(id, &mut out) {
            let place = (received.stream, received.unordered);
            let part = core::mem::take(&mut out);
            if received.cut {
                self.parts.remove(&place);
                continue;
            }
            let mut message = self.parts.remove(&place).unwrap_or_default();
            message.extend(part);
            if received.end {
                whole.push((received.stream, message));
            } else {
                self.parts.insert(place, message);
            }
        }
        whole
    }

    fn reset(&mut self, streams: &[u16]) {
        self.sctp.reset_streams(self.id.unwrap(), Reset::Outgoing(streams)).unwrap();
    }

    fn resets(&mut self) -> BTreeSet<u16> {
        core::mem::take(&mut self.resets)
    }

    fn shutdown(&mut self, now: Time) {
        self.sctp.shutdown(now, self.id.unwrap()).unwrap();
    }

    fn abort(&mut self, _now: Time) {
        self.sctp.abort(self.id.unwrap(), b"enough").unwrap();
        self.ended = Some(Ended::Somehow);
    }

    fn is_up(&self) -> bool {
        self.id.is_some()
    }

    fn ended(&self) -> Option<Ended> {
        self.ended.clone().inspect(|_| assert!(self.sctp.is_empty(), "something is left"))
    }
}
