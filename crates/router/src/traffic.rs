//! The path of packets between the kernel and the router, many at a time.
//!
//! What comes from the TUN device may be a super-packet: its segments are sent as one train. A train that comes from a
//! neighbour is decrypted where it was received, and gathered to a super-packet again. One call does a bounded amount
//! of work, so that everything else has its turn.
//!
//! A packet is copied once, into the buffer that it is sealed in and sent from; one that ends here is not copied.

use std::cell::Cell;
use std::io::{ErrorKind, IoSlice};
use std::net::Ipv6Addr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use ringway_mesh::crypto::Real;
use ringway_mesh::link::{InterfaceConfig, LinkAddress};
use ringway_mesh::output::Burst;
use ringway_mesh::router::{Closest, Event, Refusal};
use ringway_mesh::session::{ProbeId, ProbeRefused};
use ringway_mesh::wire::Kind;
use ringway_mesh::{NodeId, Router};
use ringway_os::tun::{
    Coalescer, PACKET_BUFFER, TunQueue, VnetHeader, complete_checksum, split_in_place,
    verify_checksum,
};
use ringway_os::{ChaCha, RECEIVE_BATCH, ReceiveBatch, Watched};
use ringway_sansio::Time;
use ringway_sansio::time::Duration;
use socket2::Socket;

use crate::socket;
use crate::status::Counters;
use crate::trains::Trains;
use crate::users::APPLICATION;

/// Packets after which everything else has its turn; what was read at once is handled nevertheless.
const TURN: usize = 64;
/// Time between two looks at which neighbours are heard.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);

/// What packets come from and go to.
pub(crate) struct Ports {
    pub(crate) udp: Watched<Socket>,
    pub(crate) tun: Watched<TunQueue>,
    /// Packets that the TUN device did not take.
    tun_full: Cell<u64>,
}

impl Ports {
    /// These two.
    pub(crate) fn new(udp: Watched<Socket>, tun: Watched<TunQueue>) -> Ports {
        Ports { udp, tun, tun_full: Cell::new(0) }
    }

    /// Returns how many packets the TUN device did not take.
    pub(crate) fn tun_full(&self) -> u64 {
        self.tun_full.get()
    }

    /// Passes a packet to the hosts here. A full queue of the kernel is loss as on any link.
    fn deliver(&self, header: &VnetHeader, parts: &[IoSlice<'_>]) {
        if self.tun.get_ref().write(header, parts).is_err() {
            self.tun_full.set(self.tun_full.get() + 1);
        }
    }
}

/// The router and its buffers.
pub(crate) struct Traffic {
    router: Router<Real>,
    random: ChaCha,
    port: u16,
    received: ReceiveBatch,
    /// Receptions of the next call, which are about a turn's packets.
    limit: usize,
    trains: Trains,
    confirm_at: Time,
    /// Packets that are sent.
    burst: Burst,
    /// A packet from the TUN device.
    packet: Vec<u8>,
    /// Octets of packets of the mesh itself.
    control_sent: u64,
    control_received: u64,
}

impl Traffic {
    /// Traffic of a router that sends to `port` of all routers it discovers.
    pub(crate) fn new(router: Router<Real>, random: ChaCha, port: u16) -> Traffic {
        Traffic {
            router,
            random,
            port,
            received: ReceiveBatch::new(),
            limit: RECEIVE_BATCH,
            trains: Trains::default(),
            confirm_at: Time::ZERO,
            burst: Burst::default(),
            packet: vec![0; PACKET_BUFFER],
            control_sent: 0,
            control_received: 0,
        }
    }

    /// Returns the router.
    pub(crate) fn router(&self) -> &Router<Real> {
        &self.router
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.router.handle_timeout(now, &mut self.random);
    }

    /// Removes and returns the next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.router.poll_event()
    }

    /// Adds an interface.
    pub(crate) fn add_interface(&mut self, now: Time, config: InterfaceConfig) {
        self.router.add_interface(now, config, &mut self.random);
    }

    /// Removes an interface.
    pub(crate) fn remove_interface(&mut self, now: Time, index: u32) {
        self.router.remove_interface(now, index, &mut self.random);
    }

    /// Leaves the mesh.
    pub(crate) fn leave(&mut self) {
        self.router.leave();
    }

    /// Sends a probe.
    ///
    /// # Errors
    /// A destination that cannot be probed, or too many probes under way.
    pub(crate) fn probe(
        &mut self,
        now: Time,
        destination: Ipv6Addr,
        hop_limit: u8,
    ) -> Result<ProbeId, ProbeRefused> {
        self.router.probe(now, destination, hop_limit, &mut self.random)
    }

    /// Sends octets of the directory to the router that is responsible for a key.
    ///
    /// # Errors
    /// The budget of applications is used up, or there are too many octets.
    pub(crate) fn send_closest(
        &mut self,
        now: Time,
        key: NodeId,
        octets: &[u8],
        by_another: bool,
    ) -> Result<(), Refusal> {
        let closest = Closest { key, application: APPLICATION, octets, by_another };
        self.router.send_closest(now, &closest, &mut self.random)
    }

    /// Returns what was counted here.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            control_sent: self.control_sent,
            control_received: self.control_received,
            socket_full: self.trains.lost(),
            ..Counters::default()
        }
    }

    /// Handles packets of other routers. Returns whether none is left.
    pub(crate) fn receive(&mut self, ports: &Ports, now: Time) -> bool {
        let Traffic { router, random, received, control_received, .. } = self;
        // An error of the socket is one of an earlier datagram.
        let Ok(receptions) = received.receive_at_most(ports.udp.get_ref().as_fd(), self.limit)
        else {
            return true;
        };
        let (mut packets, mut coalescer) = (0, Coalescer::new());
        for reception in received.receptions_mut() {
            let from = socket::source(reception.remote);
            for datagram in reception.datagrams() {
                packets += 1;
                *control_received += control_octets(datagram);
                let opened = router.handle_packet(now, from, datagram, random);
                let Some(packet) = opened.and_then(|range| datagram.get_mut(range)) else {
                    continue;
                };
                let checksum = verify_checksum(packet);
                if !coalescer.push(packet, checksum) {
                    coalescer.finish(|header, parts| ports.deliver(header, parts));
                    coalescer.push(packet, checksum);
                }
            }
        }
        coalescer.finish(|header, parts| ports.deliver(header, parts));
        let is_empty = receptions < self.limit;
        let limit = if packets > TURN { self.limit / 2 } else { self.limit * 2 };
        self.limit = limit.clamp(1, RECEIVE_BATCH);
        is_empty
    }

    /// Handles packets of hosts. Returns whether none is left.
    pub(crate) fn read_tun(&mut self, ports: &Ports, now: Time) -> bool {
        let mut packets = 0;
        while packets < TURN {
            match self.read_packet(ports, now) {
                ControlFlow::Continue(count) => packets += count,
                ControlFlow::Break(()) => return true,
            }
        }
        false
    }

    /// Handles one packet of a host, or one that stands for several. Returns how many there were.
    fn read_packet(&mut self, ports: &Ports, now: Time) -> ControlFlow<(), usize> {
        let Traffic { router, random, packet, .. } = self;
        let (header, packet) = match ports.tun.get_ref().read(packet) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return ControlFlow::Continue(1);
            }
            Err(_) => return ControlFlow::Break(()),
        };
        // The mesh carries IPv6 alone: what cannot be split is something else.
        let count = split_in_place(&header, packet, |segment, checksum| {
            if complete_checksum(segment, checksum) {
                router.handle_local(now, segment, random);
            }
        });
        ControlFlow::Continue(count.unwrap_or(1))
    }

    /// Sends what the router has to send.
    pub(crate) fn flush(&mut self, ports: &Ports, now: Time) {
        while let Some(packet) = self.router.poll_local() {
            ports.deliver(&VnetHeader::default(), &[IoSlice::new(&packet)]);
        }
        if now >= self.confirm_at {
            self.confirm_at = now + CONFIRM_INTERVAL;
            let heard = |neighbour: &ringway_mesh::link::Neighbour<_>| {
                neighbour.cost(now).map(|_| neighbour.address.remote)
            };
            let neighbours = self.router.links().neighbours();
            self.trains.confirm(neighbours.filter_map(|(_, neighbour)| heard(neighbour)));
        }
        self.router.take_burst(&mut self.burst);
        let (bytes, port) = (self.burst.bytes(), self.port);
        let packets = self.burst.packets().map(|(interface, to, range)| {
            let remote = socket::destination(interface, to, port);
            self.control_sent += control_octets(&bytes[range.clone()]);
            (LinkAddress { interface, remote }, range)
        });
        self.trains.send(ports.udp.get_ref().as_fd(), bytes, packets);
        while let Some(to) = self.trains.pop_failed() {
            self.router.send_failed(now, to, &mut self.random);
        }
    }
}

/// Returns the length of a packet of the mesh itself; 0 for one that carries a packet of a host.
fn control_octets(packet: &[u8]) -> u64 {
    match Kind::of(packet) {
        Ok(Kind::Data) => 0,
        _ => packet.len() as u64,
    }
}
