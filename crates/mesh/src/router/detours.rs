//! Repair of routes by the routers beside a link that carries nothing ([`crate::routes::detours`]).

use ringway_sansio::Time;

use super::carrier::Road;
use super::{NOTICE, Router};
use crate::crypto::Crypto;
use crate::id::NodeId;
use crate::link::PATH_COST;
use crate::metric::Space;
use crate::routes::Detour;
use crate::wire::control::ErrorReport;
use crate::wire::{Class, Item, Slot};

impl<C: Crypto, S: Space> Router<C, S> {
    /// A neighbour does not answer: the others are asked for a way to it, unless there is another link.
    pub(super) fn silent(&mut self, now: Time, slot: Slot, id: NodeId) {
        if !self.detours.ask(now, slot, id) {
            return;
        }
        let is_other = |other: &Slot| *other != slot && !self.links.is_silent(*other);
        let links = || self.links.up().iter().filter(|neighbour| neighbour.id == id);
        match links().map(|neighbour| neighbour.slot).find(is_other) {
            Some(via) => self.detour_found(now, id, Detour { via, label: None }),
            None => self.ask_for_detour(id),
        }
    }

    fn ask_for_detour(&mut self, to: NodeId) {
        let neighbours = self.links.up().iter().filter(|neighbour| neighbour.id != to);
        for neighbour in neighbours.filter(|neighbour| !self.links.is_silent(neighbour.slot)) {
            self.outbox.push(neighbour.slot, &Item::DetourRequest { to });
        }
    }

    /// Answers a neighbour that asks for a way to another.
    pub(super) fn detour_request(&mut self, now: Time, from: Slot, to: NodeId) {
        if !self.links.allows(now, from, NOTICE) {
            self.counters.policed += 1;
            return;
        }
        let mut links = self.links.up().iter().filter(|neighbour| neighbour.id == to);
        let link = links.find(|neighbour| !self.links.is_silent(neighbour.slot));
        if let Some(slot) = link.map(|neighbour| neighbour.slot).filter(|&slot| slot != from) {
            self.outbox.push(from, &Item::DetourReply { to, slot });
        }
    }

    /// A neighbour has answered that it has a link to another.
    pub(super) fn detour_reply(&mut self, now: Time, via: Slot, to: NodeId, slot: Slot) {
        // A label of it must fit its slot for us.
        let Some(back) = self.links.neighbour(via).and_then(|neighbour| neighbour.back) else {
            return;
        };
        let label = Some((Class::for_both(slot, back), slot));
        self.detour_found(now, to, Detour { via, label });
    }

    fn detour_found(&mut self, now: Time, id: NodeId, detour: Detour) {
        if let Some(slot) = self.detours.found(now, id, detour) {
            // Packets of hosts here must not wait until the link is given up.
            let mtu = self.links.neighbour(detour.via).map_or(0, |neighbour| neighbour.mtu);
            self.carrier.sessions.detour(slot, detour, mtu);
        }
    }

    /// Forwards a report of which the labels must grow, if there is a way.
    pub(super) fn rewrite_error(&mut self, entered: Slot, mut report: ErrorReport) {
        let ErrorReport { reverse, at, labels, .. } = &mut report;
        let next = labels.cursor(*at, *reverse).and_then(|cursor| cursor.peek());
        let Ok((_, slot)) = next else { return };
        let out = match self.detours.get(slot) {
            Some(detour) => detour.step(labels, at, *reverse, &mut u16::MAX.clone(), entered),
            None => labels.rewrite(*at, *reverse, entered, None).ok().map(|(out, behind)| {
                *at = behind;
                out
            }),
        };
        if let Some(out) = out.filter(|&out| self.links.is_up(out)) {
            self.outbox.push(out, &Item::Error(report));
        }
    }

    /// A link is down. Returns whether there is a way round it: then the routes by it are longer, and nothing else is
    /// wrong with them.
    pub(super) fn go_round(&mut self, now: Time, slot: Slot) -> bool {
        for id in self.detours.lose(now, slot) {
            self.ask_for_detour(id);
        }
        let Some(detour) = self.detours.down(now, slot) else { return false };
        let cost = |neighbour: &crate::link::Neighbour<C::Keys>| neighbour.cost(now);
        let first = self.links.neighbour(detour.via).and_then(cost).unwrap_or(u16::MAX);
        // Of the second link nothing is known.
        let cost = (first / PATH_COST).saturating_mul(2);
        self.overlay.detour(slot, detour, cost, &mut self.actions);
        for (mark, out) in self.marks.along(slot) {
            self.outbox.push(out, &Item::Detoured { mark });
        }
        true
    }

    /// A marked route has become longer.
    pub(super) fn detoured(&mut self, mark: u32, entered: Slot) {
        match self.marks.other_end(mark, entered) {
            Some(out) => self.outbox.push(out, &Item::Detoured { mark }),
            None => {
                self.overlay.detoured(mark, entered, &mut self.actions);
                self.carrier.sessions.detoured(mark, entered);
            }
        }
    }

    /// Ends the detours that are over: the users of routes by them look for others.
    pub(super) fn expire_detours(&mut self, now: Time) {
        while let Some(slot) = self.detours.expire(now) {
            self.break_marks(slot);
        }
    }

    /// Notifies the users of routes by a slot that they are broken.
    pub(super) fn break_marks(&mut self, slot: Slot) {
        for (mark, out) in self.marks.broken(slot) {
            self.outbox.push(out, &Item::Broken { mark });
        }
    }

    /// Ends the detours round links that carry packets again.
    pub(super) fn review_detours(&mut self, now: Time) {
        if !self.detours.is_empty() {
            let links = &self.links;
            self.detours.review(now, |slot| links.is_silent(slot));
        }
    }
}

impl<C: Crypto> Road<'_, C> {
    /// Returns whether packets leave by the link of a slot, and not by a detour round it.
    pub(super) fn is_open(&self, slot: Slot) -> bool {
        self.links.is_up(slot) && self.detours.get(slot).is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{IpAddr, SocketAddr};

    use super::*;
    use crate::config::{Config, Limits};
    use crate::crypto::{NetworkKey, StandIn};
    use crate::identity::Search;
    use crate::link::{Discovery, InterfaceConfig, LinkAddress};
    use crate::local::LocalRouter;
    use crate::metric::Ring;
    use crate::output::Destination;
    use ringway_sansio::SplitMix;
    use ringway_sansio::time::Duration;

    type Node = Router<StandIn, Ring>;

    /// The sender of packets, the router beside the link that fails, their owner, and a liar beside the second.
    const SENDER: usize = 0;
    const BESIDE: usize = 1;
    const OWNER: usize = 2;
    const LIAR: usize = 3;
    const ANOTHER: usize = 4;
    const TICK: Duration = Duration::from_millis(5);

    struct Net {
        now: Time,
        random: SplitMix,
        nodes: Vec<Node>,
        links: BTreeSet<(usize, usize)>,
        wire: Vec<(usize, usize, Vec<u8>)>,
        arrived: Vec<(Time, Vec<u8>)>,
    }

    impl Net {
        fn new() -> Net {
            let (now, mut random) = (Time::from_secs(1_000), SplitMix::new(5));
            let limits =
                Limits { neighbour_rate: 2_000, neighbour_burst: 20_000, ..Limits::default() };
            let config = Config { extension_bits: 0, limits: limits.into(), ..Config::default() };
            let nodes = (0..5).map(|at| {
                let Some(identity) = Search::new(0, &mut random).step(1) else {
                    panic!("no identity")
                };
                let local = LocalRouter::new(identity, NetworkKey::OPEN, 0, at, &mut random);
                let mut node = Router::new(&config, local, now, &mut random);
                let interface =
                    InterfaceConfig { index: 1, discovery: Discovery::Multicast, mtu: 1_452 };
                node.add_interface(now, interface, &mut random);
                node
            });
            let nodes: Vec<Node> = nodes.collect();
            let links = [
                (SENDER, BESIDE),
                (BESIDE, OWNER),
                (BESIDE, LIAR),
                (SENDER, ANOTHER),
                (OWNER, ANOTHER),
            ];
            let (wire, arrived) = (Vec::new(), Vec::new());
            let mut net = Net { now, random, nodes, links: links.into(), wire, arrived };
            net.pass(Duration::from_secs(20), |_| {});
            net
        }

        fn is_linked(&self, one: usize, other: usize) -> bool {
            self.links.contains(&(one.min(other), one.max(other)))
        }

        fn pass(&mut self, time: Duration, mut act: impl FnMut(&mut Net)) {
            let end = self.now + time;
            while self.now < end {
                self.now += TICK;
                act(self);
                for (from, to, mut bytes) in core::mem::take(&mut self.wire) {
                    if self.is_linked(from, to) {
                        let from = LinkAddress { interface: 1, remote: address(from) };
                        let node = &mut self.nodes[to];
                        let range =
                            node.handle_packet(self.now, from, &mut bytes, &mut self.random);
                        let packet =
                            range.filter(|_| to == OWNER).map(|range| bytes[range].to_vec());
                        self.arrived.extend(packet.map(|packet| (self.now, packet)));
                    }
                }
                for at in 0..self.nodes.len() {
                    let node = &mut self.nodes[at];
                    if node.poll_timeout().is_some_and(|due| due <= self.now) {
                        node.handle_timeout(self.now, &mut self.random);
                    }
                    while let Some(packet) = node.poll_transmit() {
                        let to = match packet.to {
                            Destination::All => 0..5,
                            Destination::One(to) => host(to)..host(to) + 1,
                        };
                        let others = to.filter(|&to| to != at);
                        self.wire.extend(others.map(|to| (at, to, packet.bytes.to_vec())));
                    }
                }
            }
        }

        /// The liar sends items to the router beside the link.
        fn lie(&mut self, items: &[Item<'_>]) {
            let liar = &mut self.nodes[LIAR];
            let slot = liar.links.up()[0].slot;
            items.iter().for_each(|item| liar.outbox.push(slot, item));
            liar.settle(self.now, &mut self.random);
        }

        fn send(&mut self, number: u32) {
            let (from, to) = (self.nodes[SENDER].id(), self.nodes[OWNER].id());
            let mut packet = vec![0x60, 0, 0, 0, 0, 4, 17, 64];
            packet.extend(from.prefix().router().octets());
            packet.extend(to.prefix().router().octets());
            packet.extend(number.to_be_bytes());
            self.nodes[SENDER].handle_local(self.now, &packet, &mut self.random);
        }
    }

    fn address(host: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host as u8], 5267))
    }

    fn host(address: SocketAddr) -> usize {
        match address.ip() {
            IpAddr::V4(ip) => ip.octets()[3].into(),
            IpAddr::V6(_) => usize::MAX,
        }
    }

    #[test]
    fn an_answer_that_nobody_has_asked_for_changes_nothing() {
        let mut net = Net::new();
        let ids: Vec<NodeId> = net.nodes.iter().map(Node::id).collect();
        let replies: Vec<Item<'_>> =
            ids.iter().map(|&to| Item::DetourReply { to, slot: Slot(0) }).collect();
        net.pass(Duration::from_secs(2), |net| net.lie(&replies));
        let beside = &net.nodes[BESIDE];
        assert!(beside.detours.is_empty() && beside.detours.heap_bytes() == 0);
        assert_eq!(beside.links.up().len(), 3);
    }

    /// It is answered no more often than its rate allows, and leaves nothing behind.
    #[test]
    fn requests_without_end_are_policed() {
        let mut net = Net::new();
        let (to, before) = (net.nodes[OWNER].id(), net.nodes[BESIDE].heap_bytes());
        let requests = vec![Item::DetourRequest { to }; 50];
        net.pass(Duration::from_secs(5), |net| net.lie(&requests));
        let beside = &net.nodes[BESIDE];
        // A burst of 20,000 octets and five seconds of 2,000, of 50,000 requests.
        let allowed = (20_000 + 5 * 2_000) / NOTICE as u64;
        assert!(beside.counters.policed >= 50_000 - allowed - 200, "{:?}", beside.counters);
        assert!(beside.detours.is_empty() && beside.heap_bytes() < before + 10_000);
        net.send(1);
        net.pass(Duration::from_secs(1), |_| {});
        assert_eq!(net.arrived.len(), 1);
    }

    /// A false answer has packets of others lost, as a router on their way can, until their ends look for another way.
    #[test]
    fn a_false_answer_costs_packets_until_another_way_is_found() {
        for slot in [0, 1, 7] {
            let mut net = Net::new();
            let owner = net.nodes[OWNER].id();
            // The session goes by the router beside the link that fails.
            net.links.remove(&(OWNER, ANOTHER));
            net.pass(Duration::from_secs(5), |_| {});
            net.send(0);
            net.pass(Duration::from_secs(3), |_| {});
            net.links.insert((OWNER, ANOTHER));
            net.pass(Duration::from_secs(5), |_| {});
            net.links.remove(&(BESIDE, OWNER));
            let (cut, mut number) = (net.now, 0);
            net.pass(Duration::from_secs(10), |net| {
                if net.now.since(cut).as_millis() as u32 / 100 > number {
                    number += 1;
                    net.send(number);
                }
                net.lie(&[Item::DetourReply { to: owner, slot: Slot(slot) }]);
            });
            let late = net.arrived.iter().filter(|(at, _)| at.since(cut) > Duration::from_secs(5));
            let late = late.count();
            assert!(late >= 45, "{late} of 50 packets arrive after 5 s");
            let different: BTreeSet<&Vec<u8>> =
                net.arrived.iter().map(|(_, packet)| packet).collect();
            assert_eq!(different.len(), net.arrived.len(), "packets arrive again");
        }
    }
}
