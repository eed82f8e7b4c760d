//! An endpoint whose associations have a lock each, as another owner than `Sctp` stores them.

#![allow(clippy::unwrap_used)]

use ringway_sansio::{Addressing, SplitMix, Time};
use ringway_sctp::{
    AssocId, Association, AssociationEvent, Associations, Cx, Endpoint, Limits, SendOptions,
    Settings, Settled, State,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const NOW: Time = Time::from_secs(1);

/// Associations behind a lock each, and those that were called.
#[derive(Default)]
struct Locked {
    stored: BTreeMap<AssocId, Arc<Mutex<Association>>>,
    called: Vec<AssocId>,
}

impl Associations for Locked {
    fn insert(&mut self, id: AssocId, association: Association) {
        self.stored.insert(id, Arc::new(Mutex::new(association)));
        self.called.push(id);
    }

    fn with<R>(&mut self, id: AssocId, call: impl FnOnce(&mut Association) -> R) -> Option<R> {
        self.called.push(id);
        Some(call(&mut self.stored.get(&id)?.lock().unwrap()))
    }

    fn read<R>(&self, id: AssocId, call: impl FnOnce(&Association) -> R) -> Option<R> {
        Some(call(&self.stored.get(&id)?.lock().unwrap()))
    }
}

struct Host {
    endpoint: Endpoint,
    associations: Locked,
    random: SplitMix,
}

impl Host {
    fn new(seed: u64) -> Host {
        let random = Box::new(SplitMix::new(seed));
        let endpoint = Endpoint::new(Limits::default(), Settings::default(), random).unwrap();
        Host { endpoint, associations: Locked::default(), random: SplitMix::new(seed + 100) }
    }

    fn connect(&mut self, port: u16) -> Result<AssocId, ringway_sctp::ConnectError> {
        self.endpoint.connect(NOW, &mut self.associations, &[A], port, &[B], 5060, None)
    }

    fn handle(&mut self, addressing: &Addressing, payload: &[u8]) {
        self.endpoint.handle_packet(NOW, &mut self.associations, addressing, payload);
        for id in std::mem::take(&mut self.associations.called) {
            let Some(association) = self.associations.stored.get(&id).cloned() else { continue };
            if self.endpoint.settle(id, &mut association.lock().unwrap()) == Settled::Released {
                self.associations.stored.remove(&id);
            }
        }
    }

    fn transmit(&mut self, payload: &mut Vec<u8>) -> Option<Addressing> {
        let reply = self.endpoint.poll_transmit(payload);
        let mut cx = Cx { now: NOW, random: &mut self.random };
        let mut locked = self.associations.stored.values().map(|one| one.lock().unwrap());
        reply.or_else(|| locked.find_map(|mut one| one.poll_transmit(&mut cx, payload)))
    }

    fn only(&self) -> (AssocId, Arc<Mutex<Association>>) {
        let (id, association) = self.associations.stored.first_key_value().unwrap();
        (*id, association.clone())
    }
}

fn exchange(a: &mut Host, b: &mut Host) {
    let mut bytes = Vec::new();
    loop {
        if let Some(addressing) = a.transmit(&mut bytes) {
            b.handle(&addressing, &bytes);
        } else if let Some(addressing) = b.transmit(&mut bytes) {
            a.handle(&addressing, &bytes);
        } else {
            return;
        }
        bytes.clear();
    }
}

#[test]
fn associations_with_a_lock_each_exchange_messages_and_end() {
    let (mut a, mut b) = (Host::new(1), Host::new(2));
    b.endpoint.listen(&[B], 5060, None).unwrap();
    a.connect(0).unwrap();
    exchange(&mut a, &mut b);
    let ((_, ours), (id, theirs)) = (a.only(), b.only());
    assert_eq!(theirs.lock().unwrap().poll_event(), Some(AssociationEvent::Up));
    assert!(b.endpoint.listener(id).is_some());
    ours.lock().unwrap().send(NOW, &SendOptions::default(), "hello".into()).unwrap();
    exchange(&mut a, &mut b);
    let mut text = Vec::new();
    theirs.lock().unwrap().recv(&mut text).unwrap();
    assert_eq!(text, b"hello");
    ours.lock().unwrap().shutdown(&mut Cx { now: NOW, random: &mut SplitMix::new(3) });
    exchange(&mut a, &mut b);
    for (host, one) in [(&mut a, ours), (&mut b, theirs)] {
        let mut one = one.lock().unwrap();
        assert_eq!(one.state(), State::Closed);
        while one.poll_event().is_some() {}
        let (id, _) = *host.associations.stored.first_key_value().as_ref().unwrap();
        assert_eq!(host.endpoint.settle(*id, &mut one), Settled::Released);
        assert!(host.endpoint.is_empty());
    }
}

/// Nothing of it stays in the tables, though its owner has not aborted it.
#[test]
fn an_association_that_is_removed_frees_its_addresses() {
    let mut a = Host::new(1);
    let id = a.connect(7000).unwrap();
    assert!(a.connect(7000).is_err(), "in use");
    let (_, association) = a.only();
    a.endpoint.remove(id, &mut association.lock().unwrap());
    a.associations.stored.clear();
    assert!(a.endpoint.is_empty() && !a.endpoint.contains(id));
    let next = a.connect(7000).unwrap();
    assert_ne!(next, id);
    let back = Addressing::new(B, A, ringway_sctp::PROTOCOL);
    assert!(a.endpoint.owns(&back, 5060, 7000));
    let (_, association) = a.only();
    a.endpoint.remove(next, &mut association.lock().unwrap());
    assert!(!a.endpoint.owns(&back, 5060, 7000));
}

/// An owner that divides packets by their tag divides the associations evenly.
#[test]
fn tags_take_turns_among_classes() {
    let mut a = Host::new(1);
    a.endpoint.spread_tags(4);
    let ids: Vec<AssocId> = (7000..7008).map(|port| a.connect(port).unwrap()).collect();
    let tag = |id: &AssocId| a.associations.stored[id].lock().unwrap().tag();
    let classes: Vec<u32> = ids.iter().map(|id| tag(id) % 4).collect();
    assert_eq!(classes, [0, 1, 2, 3, 0, 1, 2, 3]);
    assert!(ids.iter().all(|id| a.endpoint.find(tag(id)) == Some(*id)));
    assert_eq!(a.endpoint.find(0), None);
}

/// Only packets that open an association, or belong to none, need the endpoint.
#[test]
fn an_established_association_handles_its_packets_alone() {
    let (mut a, mut b) = (Host::new(1), Host::new(2));
    b.endpoint.listen(&[B], 5060, None).unwrap();
    let mut init = Vec::new();
    a.connect(0).unwrap();
    let there = a.transmit(&mut init).unwrap();
    b.handle(&there, &init);
    exchange(&mut b, &mut a);
    let ((_, ours), (_, theirs)) = (a.only(), b.only());
    ours.lock().unwrap().send(NOW, &SendOptions::default(), "hello".into()).unwrap();
    let mut packet = Vec::new();
    a.transmit(&mut packet).unwrap();
    let mut random = SplitMix::new(3);
    let mut handle = |addressing: &Addressing, packet: &[u8]| {
        let mut cx = Cx { now: NOW, random: &mut random };
        theirs.lock().unwrap().handle_packet(&mut cx, addressing, packet)
    };
    assert!(!handle(&there, &init), "opens an association");
    let elsewhere = Addressing { source: B, ..there };
    assert!(!handle(&elsewhere, &packet), "other addresses");
    for index in 0..packet.len() {
        let mut wrong = packet.clone();
        wrong[index] ^= 1;
        assert!(!handle(&there, &wrong), "byte {index}");
    }
    assert!(handle(&there, &packet));
    let mut text = Vec::new();
    theirs.lock().unwrap().recv(&mut text).unwrap();
    assert_eq!(text, b"hello");
    assert!(!theirs.lock().unwrap().is_unsettled());
}
