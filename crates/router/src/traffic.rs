//! The path of packets between the kernel and the router, many at a time.
//!
//! What comes from the TUN device may be a super-packet: its segments are sent as one train. A train that comes from a
//! neighbour is decrypted where it was received, and gathered to a super-packet again. One call does a bounded amount
//! of work, so that everything else has its turn.

use std::io::{ErrorKind, IoSlice};
use std::os::fd::AsFd;

use ringway_mesh::Router;
use ringway_mesh::crypto::Real;
use ringway_mesh::link::{InterfaceConfig, LinkAddress};
use ringway_mesh::router::Event;
use ringway_os::tun::{
    Coalescer, PACKET_BUFFER, Segments, TunQueue, VnetHeader, complete_checksum, verify_checksum,
};
use ringway_os::{ChaCha, RECEIVE_BATCH, ReceiveBatch, Watched};
use ringway_sansio::Time;
use ringway_sansio::time::Duration;
use socket2::Socket;

use crate::socket;
use crate::trains::Trains;

/// Packets after which everything else has its turn; what was read at once is handled nevertheless.
const TURN: usize = 64;
/// Time between two looks at which neighbours are heard.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);

/// What packets come from and go to.
pub(crate) struct Ports {
    pub(crate) udp: Watched<Socket>,
    pub(crate) tun: Watched<TunQueue>,
}

impl Ports {
    /// Passes a packet to the hosts here. A full queue of the kernel is loss as on any link.
    fn deliver(&self, header: &VnetHeader, parts: &[IoSlice<'_>]) {
        let _ = self.tun.get_ref().write(header, parts);
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
    /// A packet from the TUN device, and one of its segments.
    packet: Vec<u8>,
    segment: Vec<u8>,
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
            packet: vec![0; PACKET_BUFFER],
            segment: Vec::new(),
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

    /// Handles packets of other routers. Returns whether none is left.
    pub(crate) fn receive(&mut self, ports: &Ports, now: Time) -> bool {
        let Traffic { router, random, received, .. } = self;
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
        let Traffic { router, random, packet, segment, .. } = self;
        let mut packets = 0;
        while packets < TURN {
            packets += 1;
            let (header, packet) = match ports.tun.get_ref().read(packet) {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::InvalidData => continue,
                Err(_) => return true,
            };
            if header.segmentation.is_none() {
                if complete_checksum(packet, header.checksum) {
                    router.handle_local(now, packet, random);
                }
                continue;
            }
            // The mesh carries IPv6 alone.
            let Ok(mut segments) = Segments::new(&header, packet) else { continue };
            packets += segments.remaining();
            while let Some(next) = segments.next_segment() {
                segment.clear();
                segment.extend_from_slice(next.headers);
                segment.extend_from_slice(next.payload);
                complete_checksum(segment, next.checksum);
                router.handle_local(now, segment, random);
            }
        }
        false
    }

    /// Sends what the router has to send.
    pub(crate) fn flush(&mut self, ports: &Ports, now: Time) {
        while let Some(error) = self.router.poll_error() {
            ports.deliver(&VnetHeader::default(), &[IoSlice::new(&error)]);
        }
        if now >= self.confirm_at {
            self.confirm_at = now + CONFIRM_INTERVAL;
            let heard = |neighbour: &ringway_mesh::link::Neighbour<_>| {
                neighbour.cost(now).map(|_| neighbour.address.remote)
            };
            let neighbours = self.router.links().neighbours();
            self.trains.confirm(neighbours.filter_map(|(_, neighbour)| heard(neighbour)));
        }
        let udp = ports.udp.get_ref().as_fd();
        while let Some(packet) = self.router.poll_transmit() {
            let remote = socket::destination(packet.interface, packet.to, self.port);
            let to = LinkAddress { interface: packet.interface, remote };
            self.trains.push(udp, to, packet.bytes);
        }
        self.trains.send(udp);
        while let Some(to) = self.trains.pop_failed() {
            self.router.send_failed(now, to, &mut self.random);
        }
    }
}
