//! A host on a cable to its router: TCP, and echo requests (RFC 4443 section 4.1).

use super::log::{Log, Step, contents, lock};
use ringway_mesh::icmp::Ipv6Header;
use ringway_sansio::{Addressing, Duration, Endpoint, SplitMix, Time};
use ringway_sim::graph::{Destination, GraphNode};
use ringway_tcp::{ConnId, Error, Event, Limits, Settings, Tcp};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Length in octets of an IPv6 header.
pub(super) const IPV6: usize = 40;
/// Octets of data in an echo request: the default of `ping`.
const PING_DATA: usize = 56;
/// Port of the transfer's receiver.
const PORT: u16 = 22;
const ICMPV6: u8 = 58;
const UNREACHABLE: u8 = 1;
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// Octets written and read at a time.
const CHUNK: usize = 64 << 10;

/// A file that arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Octets of the file that have arrived.
    pub octets: u64,
    /// When the last octet so far arrived.
    pub last: Option<Time>,
}

/// A host with one address and one cable.
pub struct Host {
    number: u32,
    router: u32,
    address: Ipv6Addr,
    head: usize,
    tcp: Tcp,
    connection: Option<ConnId>,
    /// Octets of the file that are not written yet.
    left: u64,
    transfer: Transfer,
    chunk: Vec<u8>,
    out: VecDeque<Vec<u8>>,
    /// When each echo request was sent, by its number.
    asked: BTreeMap<u16, Time>,
    round_trips: Vec<Duration>,
    /// ICMPv6 errors that have come.
    pub errors: Vec<(Time, u8)>,
    log: Option<Log>,
}

impl Host {
    /// Creates a host. `numbers` are those of itself and its router, `head` the octets below IPv6 on its cable.
    pub fn new(
        numbers: [u32; 2],
        address: Ipv6Addr,
        head: usize,
        settings: Settings,
        seed: u64,
        log: Option<Log>,
    ) -> Result<Self, Error> {
        let [number, router] = numbers;
        let mut random = SplitMix::new(seed ^ u64::from(number));
        let mut tcp = Tcp::new(Limits::default(), settings, &mut random)?;
        tcp.listen(SocketAddr::new(address.into(), PORT), 1, None)?;
        Ok(Host {
            number,
            router,
            address,
            head,
            tcp,
            connection: None,
            left: 0,
            transfer: Transfer::default(),
            chunk: vec![0; CHUNK],
            out: VecDeque::new(),
            asked: BTreeMap::new(),
            round_trips: Vec::new(),
            errors: Vec::new(),
            log,
        })
    }

    /// Returns its address.
    pub fn address(&self) -> Ipv6Addr {
        self.address
    }

    /// Sends an echo request with a number.
    pub fn ping(&mut self, now: Time, to: Ipv6Addr, number: u16) {
        self.asked.insert(number, now);
        self.echo(to, ECHO_REQUEST, [0, 0, (number >> 8) as u8, number as u8]);
    }

    /// Returns the round trips so far, in the order of the answers.
    pub fn round_trips(&self) -> &[Duration] {
        &self.round_trips
    }

    /// Opens a connection and sends a file of `octets` by it.
    pub fn send_file(&mut self, now: Time, to: Ipv6Addr, octets: u64) -> Result<(), Error> {
        let local = SocketAddr::new(self.address.into(), 0);
        let remote = SocketAddr::new(to.into(), PORT);
        self.connection = Some(self.tcp.connect(now, local, remote, None)?);
        self.left = octets;
        Ok(())
    }

    /// Returns the file as far as it has come here.
    pub fn transfer(&self) -> Transfer {
        self.transfer
    }

    fn echo(&mut self, to: Ipv6Addr, kind: u8, rest: [u8; 4]) {
        // No router looks at the checksum, and a link in virtual time damages nothing.
        let mut packet = header(self.address, to, ICMPV6, 8 + PING_DATA);
        packet.extend([kind, 0, 0, 0]);
        packet.extend(rest);
        packet.resize(packet.len() + PING_DATA, 0);
        self.out.push_back(packet);
    }

    fn icmp(&mut self, now: Time, from: Ipv6Addr, payload: &[u8]) {
        match payload {
            [ECHO_REQUEST, _, _, _, rest @ ..] => {
                if let Some(&rest) = rest.first_chunk() {
                    self.echo(from, ECHO_REPLY, rest);
                }
            }
            [ECHO_REPLY, _, _, _, _, _, high, low, ..] => {
                let number = u16::from_be_bytes([*high, *low]);
                if let Some(asked) = self.asked.remove(&number) {
                    self.round_trips.push(now.since(asked));
                }
            }
            [kind, ..] if *kind < ECHO_REQUEST && *kind >= UNREACHABLE => {
                self.errors.push((now, *kind));
            }
            _ => {}
        }
    }

    /// Writes what fits, and reads what has come.
    fn settle(&mut self, now: Time) {
        while let Some(event) = self.tcp.poll_event() {
            match event {
                Event::Incoming(listener) => self.connection = self.tcp.accept(listener),
                Event::Readable(connection) => {
                    while let Ok(count @ 1..) = self.tcp.read(now, connection, &mut self.chunk) {
                        self.transfer.octets += count as u64;
                        self.transfer.last = Some(now);
                    }
                }
                _ => {}
            }
        }
        let Some(connection) = self.connection else { return };
        while self.left > 0 {
            let size = self.left.min(CHUNK as u64) as usize;
            match self.tcp.write(now, connection, &self.chunk[..size]) {
                Ok(count @ 1..) => self.left -= count as u64,
                _ => break,
            }
        }
    }
}

impl GraphNode for Host {
    fn handle_packet(&mut self, now: Time, _from: u16, bytes: &mut [u8]) {
        let Some(packet) = bytes.get(self.head..) else { return };
        let Some(header) = Ipv6Header::parse(packet) else { return };
        if let Some(log) = &self.log {
            let (from, to, octets) = (self.router, self.number, packet.len());
            let contents = contents(packet);
            lock(log).push(Step { at: now, from, to, octets, contents });
        }
        let payload = packet.get(IPV6..).unwrap_or_default();
        match packet.get(6) {
            Some(&ICMPV6) => self.icmp(now, header.source, payload),
            Some(&ringway_tcp::PROTOCOL) => {
                let ends = (header.source.into(), header.destination.into());
                // Nothing in this world damages a packet, so nobody computes checksums.
                let addressing = Addressing {
                    offload: true,
                    ..Addressing::new(ends.0, ends.1, ringway_tcp::PROTOCOL)
                };
                self.tcp.handle_packet(now, addressing, payload);
                self.settle(now);
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.tcp.handle_timeout(now);
        self.settle(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.tcp.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, bytes: &mut Vec<u8>) -> Option<Destination> {
        let packet = self.out.pop_front().or_else(|| {
            let mut segment = Vec::new();
            let to = self.tcp.poll_transmit(now, &mut segment)?;
            let IpAddr::V6(destination) = to.destination else { return None };
            let mut packet = header(self.address, destination, to.protocol, segment.len());
            packet.extend_from_slice(&segment);
            Some(packet)
        })?;
        bytes.resize(self.head, 0);
        bytes.extend_from_slice(&packet);
        Some(Destination::Neighbour(0))
    }

    fn heap_bytes(&self) -> usize {
        self.chunk.capacity()
    }
}

/// Returns an IPv6 header (RFC 8200 section 3) for a payload.
pub(super) fn header(source: Ipv6Addr, to: Ipv6Addr, protocol: u8, payload: usize) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload as u16).to_be_bytes());
    packet.extend([protocol, 64]);
    packet.extend(source.octets());
    packet.extend(to.octets());
    packet
}
