//! Links of routers of which the clocks do not run alike: one that stands still while its machine sleeps, or that is set.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ringway_mesh::crypto::{NetworkKey, StandIn};
use ringway_mesh::identity::Search;
use ringway_mesh::link::{Discovery, InterfaceConfig, LinkAddress};
use ringway_mesh::router::Event;
use ringway_mesh::{Config, LocalRouter, Ring, Router};
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

const STEP: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Two neighbours, what has happened to their link, and how far each clock is ahead.
struct Pair {
    now: Time,
    routers: Vec<(Router<StandIn, Ring>, SplitMix)>,
    ahead: [Duration; 2],
    events: Vec<Event>,
}

fn address(at: usize) -> LinkAddress {
    let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, at as u16);
    LinkAddress { interface: 1, remote: SocketAddr::new(IpAddr::V6(ip), 5267) }
}

impl Pair {
    fn new() -> Pair {
        let (now, config) =
            (Time::from_secs(50), Config { extension_bits: 0, ..Config::default() });
        let start = |seed| {
            let mut random = SplitMix::new(seed);
            let Some(identity) = Search::new(0, &mut random).step(1) else { panic!("no identity") };
            let identity = Arc::new(identity);
            let local = LocalRouter::new(identity, NetworkKey::OPEN, 0, 1, &mut random);
            let mut router = Router::new(&config, local, now, &mut random);
            let discovery = Discovery::Multicast;
            router.add_interface(
                now,
                InterfaceConfig { index: 1, discovery, mtu: 1_452 },
                &mut random,
            );
            (router, random)
        };
        let routers = [3, 4].map(start).into();
        Pair { now, routers, ahead: [Duration::ZERO; 2], events: Vec::new() }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            for at in [0, 1] {
                let now = self.now + self.ahead[at];
                let (router, random) = &mut self.routers[at];
                if router.poll_timeout().is_some_and(|due| due <= now) {
                    router.handle_timeout(now, random);
                }
                let mut sent = Vec::new();
                while let Some(packet) = router.poll_transmit() {
                    sent.push(packet.bytes.to_vec());
                }
                self.events.extend(core::iter::from_fn(|| router.poll_event()));
                let now = self.now + self.ahead[1 - at];
                let (peer, random) = &mut self.routers[1 - at];
                for mut bytes in sent {
                    peer.handle_packet(now, address(at), &mut bytes, random);
                }
            }
        }
    }

    /// Returns which of the last 16 HELLOs of its neighbour have come to each router.
    fn received(&self) -> Vec<u16> {
        let neighbour = |at: usize| self.routers[at].0.links().neighbours().next();
        let received = |at| neighbour(at).map_or(0, |(_, neighbour)| neighbour.quality.received());
        [0, 1].map(received).into()
    }
}

/// HELLOs of another time are refused, and answers to probes keep the link up meanwhile. Those HELLOs were not lost, also if
/// both clocks agree again later.
#[test]
fn hellos_that_did_not_count_are_no_losses() {
    let mut pair = Pair::new();
    pair.run(SECOND * 40);
    pair.ahead[1] = SECOND * 12;
    pair.run(SECOND * 60);
    pair.ahead[0] = SECOND * 4;
    pair.run(SECOND * 60);
    assert_eq!(pair.received(), [u16::MAX; 2]);
    assert_eq!(pair.events.len(), 2, "{:?}", pair.events);
}
