//! The contract of flows in the virtual world.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
#[path = "../../flow/contract/mod.rs"]
mod contract;

use contract::{Bed, Event, Probe};
use ringway_flow::Limits;
use ringway_link::{LinkConfig, Rate, Span, Streams};
use ringway_sansio::{Addressing, Duration, Endpoint, SplitMix, Target, Time, Transport};
use ringway_sim::flows::{Host, TransportConfig};
use ringway_sim::{Bind, EndpointId, NodeId, World};
use ringway_tcp::{ConnId, ListenerId, Tcp};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, channel};

const PORT: u16 = 5060;

/// The port at which the peer accepts connections.
const PEER_PORT: u16 = 5080;

/// The last byte of the peer's address.
const PEER: u8 = 200;

fn at(last: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, last]), PORT)
}

struct Virtual {
    world: World,
    hosts: Vec<(EndpointId, Receiver<Event>)>,
    peer: (NodeId, EndpointId),
    association: Option<EndpointId>,
}

/// A TCP connection of the peer.
struct Raw(ConnId);

/// The peer's TCP.
struct Peer {
    tcp: Tcp,
    listener: ListenerId,
}

/// The peer's SCTP, which a successor replaces.
struct Sctp(ringway_sctp::Sctp);

impl Endpoint for Peer {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.tcp.handle_packet(now, addressing, payload);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tcp.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.tcp.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.tcp.poll_transmit(now, payload)
    }
}

impl Endpoint for Sctp {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.0.handle_packet(now, addressing, payload);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.0.poll_transmit(now, payload)
    }
}

fn sctp(seed: u64) -> ringway_sctp::Sctp {
    let settings = ringway_sctp::Settings::default();
    let random = Box::new(SplitMix::new(seed));
    ringway_sctp::Sctp::new(ringway_sctp::Limits::default(), settings, random).unwrap()
}

impl Virtual {
    fn with_peer<R>(&mut self, act: impl FnOnce(&mut Peer, Time) -> R) -> R {
        self.world.with_endpoint(self.peer.1, act).unwrap().unwrap()
    }
}

impl Bed for Virtual {
    type Raw = Raw;

    fn start(transport: Transport, limits: Limits, workers: &[usize]) -> Self {
        let mut world = World::new(Streams::new(7, 0));
        let router = world.add_node("router").unwrap();
        let line = LinkConfig {
            rate: Rate(100_000_000),
            delay: Span::from_millis(1),
            ..LinkConfig::default()
        };
        let node = |world: &mut World, last: u8| {
            let node = world.add_node(&format!("n{last}")).unwrap();
            let (out, _) = world.connect(node, router, line.clone(), line.clone()).unwrap();
            world.add_address(out, at(last).ip()).unwrap();
            node
        };
        let config = match transport {
            Transport::Tcp => TransportConfig::Tcp(ringway_tcp::Settings::default()),
            _ => TransportConfig::Sctp(ringway_sctp::Settings::default(), 16),
        };
        let mut hosts = Vec::new();
        for (index, count) in workers.iter().enumerate() {
            let last = index as u8 + 1;
            let node = node(&mut world, last);
            let (sender, events) = channel();
            let mut probe = |worker| {
                let mut probe = Probe::new(worker, sender.clone());
                probe.spare = (workers.len() > 1).then(|| at(2));
                probe
            };
            let probes = (0..*count).map(&mut probe).collect();
            let random = SplitMix::new(index as u64);
            let locals = [at(last).ip()];
            let host = Host::attach_workers(
                &mut world,
                node,
                (&locals, PORT),
                config,
                limits,
                probes,
                random,
            );
            hosts.push((host.unwrap(), events));
        }
        let settings = ringway_tcp::Settings::default();
        let mut random = SplitMix::new(99);
        let mut tcp = Tcp::new(ringway_tcp::Limits::default(), settings, &mut random).unwrap();
        let listener = tcp.listen(SocketAddr::new(at(PEER).ip(), PEER_PORT), 8, None).unwrap();
        let peer = node(&mut world, PEER);
        let bind = Bind::protocol(ringway_tcp::PROTOCOL);
        let endpoint = world.attach(peer, bind, Peer { tcp, listener }).unwrap();
        let mut bed = Virtual { world, hosts, peer: (peer, endpoint), association: None };
        bed.pass(Duration::from_millis(1));
        bed
    }

    fn address(&self, host: usize) -> SocketAddr {
        at(host as u8 + 1)
    }

    fn events(&self, host: usize) -> &Receiver<Event> {
        &self.hosts[host].1
    }

    fn pass(&mut self, time: Duration) {
        let end = self.world.now() + time;
        self.world.run_until(end).unwrap();
    }

    fn send(&mut self, host: usize, worker: usize, to: Target, report: u64, bytes: &[u8]) {
        let act = |host: &mut Host<Probe>, now| {
            host.with_program(now, worker, |_, _, out| {
                out.push(to, report, |b| b.extend_from_slice(bytes));
            });
        };
        self.world.with_endpoint(self.hosts[host].0, act).unwrap().unwrap();
    }

    fn count(&mut self, host: usize, name: &str) -> u64 {
        let host = self.world.endpoint::<Host<Probe>>(self.hosts[host].0).unwrap();
        let mut sum = None;
        for worker in (0..).map_while(|worker| host.worker(worker)) {
            worker.counters().visit(&mut |n, _, value| {
                if n == name {
                    *sum.get_or_insert(0) += value;
                }
            });
        }
        sum.expect("a counter of that name")
    }

    fn connect(&mut self, host: usize) -> Raw {
        let (local, remote) = (SocketAddr::new(at(PEER).ip(), 0), self.address(host));
        let raw = self.with_peer(|peer, now| peer.tcp.connect(now, local, remote, None).unwrap());
        self.pass(Duration::from_millis(2));
        Raw(raw)
    }

    fn listen(&mut self) -> SocketAddr {
        SocketAddr::new(at(PEER).ip(), PEER_PORT)
    }

    fn accept(&mut self) -> Raw {
        self.pass(Duration::from_millis(10));
        Raw(self.with_peer(|peer, _| peer.tcp.accept(peer.listener)).expect("a connection"))
    }

    fn write(&mut self, raw: &mut Raw, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.with_peer(|peer, now| peer.tcp.write(now, raw.0, rest).unwrap());
            rest = &rest[count..];
            self.pass(Duration::from_micros(500));
        }
    }

    fn read(&mut self, raw: &mut Raw) -> Option<Vec<u8>> {
        self.with_peer(|peer, now| {
            let mut bytes = vec![0; 100_000];
            let count = peer.tcp.read(now, raw.0, &mut bytes).unwrap_or(0);
            bytes.truncate(count);
            let open = peer.tcp.snapshot(raw.0).is_ok_and(|s| {
                use ringway_tcp::State::{Established, FinWait1, FinWait2, SynReceived, SynSent};
                matches!(s.state, Established | FinWait1 | FinWait2 | SynReceived | SynSent)
            });
            (count > 0 || open).then_some(bytes)
        })
    }

    fn close(&mut self, raw: Raw) {
        self.with_peer(|peer, now| {
            let mut bytes = vec![0; 100_000];
            let _ = peer.tcp.read(now, raw.0, &mut bytes);
            peer.tcp.shutdown(now, raw.0).unwrap();
        });
    }

    fn associate(&mut self, host: usize, bytes: &[u8]) {
        let (local, remote) = (at(PEER).ip(), self.address(host));
        let bind = Bind::protocol(ringway_sctp::PROTOCOL);
        let endpoint = match self.association {
            Some(endpoint) => endpoint,
            None => self.world.attach(self.peer.0, bind, Sctp(sctp(1))).unwrap(),
        };
        let seed = 1 + u64::from(self.association.is_some());
        self.association = Some(endpoint);
        let connect = |peer: &mut Sctp, now| {
            peer.0 = sctp(seed);
            peer.0.listen(&[local], PORT, None).unwrap();
            let remotes = [remote.ip()];
            peer.0.connect(now, &[local], PORT, &remotes, remote.port(), None).unwrap()
        };
        let id = self.world.with_endpoint(endpoint, connect).unwrap().unwrap();
        self.pass(Duration::from_millis(10));
        let bytes = bytes.to_vec();
        let send = |peer: &mut Sctp, now| {
            peer.0.send(now, id, &ringway_sctp::SendOptions::default(), bytes).unwrap();
        };
        self.world.with_endpoint(endpoint, send).unwrap().unwrap();
        self.pass(Duration::from_millis(10));
    }
}

cases!(Virtual);

/// The same seed, the same packets: nothing of the flows depends on the order of a hash table.
#[test]
fn a_run_is_repeated_exactly() {
    let run = || {
        let mut bed = Virtual::start(Transport::Tcp, Limits::default(), &[3, 2]);
        for n in 0..20 {
            let to = Target::Peer {
                transport: Transport::Tcp,
                remote: bed.address(1 - n % 2),
                name: None,
            };
            let worker = if n % 2 == 0 { n % 3 } else { n % 2 };
            bed.send(n % 2, worker, to, n as u64, &contract::request("OPTIONS", &n.to_string(), n));
            bed.pass(Duration::from_millis(1));
        }
        bed.pass(Duration::from_secs(1));
        let events: Vec<Vec<Event>> =
            bed.hosts.iter().map(|(_, events)| events.try_iter().collect()).collect();
        (events, bed.world.census().sent, bed.world.happened())
    };
    assert_eq!(run(), run());
}
