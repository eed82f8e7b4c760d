//! Packets on their way to the socket. Those that follow each other to the same router are one train, which goes
//! through the host once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use ringway_mesh::link::LinkAddress;
use ringway_os::{After, Datagram, SEND_BATCH, SendBatch};
use smallvec::SmallVec;

/// Most packets and octets of a train that every kernel accepts (udp(7)).
const MAX_PACKETS: usize = 64;
const MAX_OCTETS: usize = 65_000;
/// Octets after which what waits is sent.
const BUFFER: usize = 1 << 18;
/// The error of an interface that computes no checksums, for which the kernel cannot split a train (EIO).
const NO_CHECKSUMS: i32 = 5;

/// Packets to one router that are all of one size, but for the last, which may be shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Train {
    to: LinkAddress,
    /// Where its octets begin and end.
    start: usize,
    end: usize,
    /// Octets of each packet.
    size: usize,
    packets: usize,
    /// The last packet was shorter.
    is_complete: bool,
}

impl Train {
    /// Returns whether a packet may follow.
    fn accepts(&self, to: LinkAddress, length: usize) -> bool {
        self.to == to
            && !self.is_complete
            && length <= self.size
            && self.packets < MAX_PACKETS
            && self.end - self.start + length <= MAX_OCTETS
    }
}

/// Packets that wait to be sent, in order.
#[derive(Default)]
pub(crate) struct Trains {
    batch: SendBatch,
    bytes: Vec<u8>,
    trains: Vec<Train>,
    /// Trains are sent packet by packet.
    singly: bool,
    /// Neighbours that were heard lately, sorted.
    neighbours: Vec<SocketAddr>,
    /// Where the kernel could not send to.
    failed: Vec<LinkAddress>,
    /// Trains that a full buffer of the kernel refused.
    lost: u64,
}

impl Trains {
    /// Notes which neighbours were heard lately, so that the kernel need not ask whether they are there.
    pub(crate) fn confirm(&mut self, neighbours: impl Iterator<Item = SocketAddr>) {
        self.neighbours.clear();
        self.neighbours.extend(neighbours);
        self.neighbours.sort_unstable();
    }

    /// Adds a packet. What waits is sent when there is no room.
    pub(crate) fn push(&mut self, socket: BorrowedFd<'_>, to: LinkAddress, packet: &[u8]) {
        if !self.append(to, packet) {
            self.send(socket);
            self.append(to, packet);
        }
    }

    /// Returns whether there was room.
    fn append(&mut self, to: LinkAddress, packet: &[u8]) -> bool {
        if self.bytes.len() + packet.len() > BUFFER && !self.bytes.is_empty() {
            return false;
        }
        let (start, length) = (self.bytes.len(), packet.len());
        let is_full = self.trains.len() == SEND_BATCH;
        match self.trains.last_mut() {
            Some(train) if train.accepts(to, length) => {
                train.is_complete = length < train.size;
                train.end += length;
                train.packets += 1;
            }
            _ if is_full => return false,
            _ => {
                let end = start + length;
                let train = Train { to, start, end, size: length, packets: 1, is_complete: false };
                self.trains.push(train);
            }
        }
        self.bytes.extend_from_slice(packet);
        true
    }

    /// Sends what waits. What a full buffer of the kernel refuses is lost, as on any link.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>) {
        let Trains { batch, bytes, trains, singly, neighbours, failed, lost } = self;
        let is_neighbour = |train: &Train| neighbours.binary_search(&train.to.remote).is_ok();
        for trains in trains.chunk_by(|a, b| is_neighbour(a) == is_neighbour(b)) {
            let is_confirmed = trains.first().is_some_and(is_neighbour);
            let mut has_no_checksums = false;
            let mut again = SmallVec::<[usize; SEND_BATCH]>::new();
            let datagrams: SmallVec<[Datagram<'_>; SEND_BATCH]> =
                trains.iter().map(|train| datagram(bytes, train)).collect();
            let mut on_error = |at: usize, code| {
                let train = &trains[at];
                if train.packets > 1 && !is_transient(code) {
                    has_no_checksums |= code == NO_CHECKSUMS;
                    again.push(at);
                } else if !is_transient(code) {
                    failed.push(train.to);
                } else {
                    *lost += 1;
                }
                After::Skip
            };
            if *singly {
                again.extend(0..trains.len());
            } else if is_confirmed {
                batch.send_confirming(socket, &datagrams, &mut on_error);
            } else {
                batch.send(socket, &datagrams, &mut on_error);
            }
            *singly |= has_no_checksums;
            for at in again {
                *lost += send_singly(batch, socket, bytes, &trains[at], failed);
            }
        }
        self.trains.clear();
        self.bytes.clear();
    }

    /// Returns how many trains, and packets that were sent singly, a full buffer of the kernel refused.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Removes and returns an address that the kernel could not send to.
    pub(crate) fn pop_failed(&mut self) -> Option<LinkAddress> {
        self.failed.pop()
    }
}

/// Returns a train as the kernel splits it.
fn datagram<'a>(bytes: &'a [u8], train: &Train) -> Datagram<'a> {
    let datagram = Datagram::new(&bytes[train.start..train.end], train.to.remote, None);
    // A packet is no longer than a train.
    let segment = if train.packets > 1 { train.size as u16 } else { 0 };
    Datagram { segment, ..datagram }
}

/// Sends each packet of a train for itself. Returns how many a full buffer of the kernel refused.
fn send_singly(
    batch: &mut SendBatch,
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    train: &Train,
    failed: &mut Vec<LinkAddress>,
) -> u64 {
    let packets = bytes[train.start..train.end].chunks(train.size.max(1));
    let packets: SmallVec<[Datagram<'_>; MAX_PACKETS]> =
        packets.map(|packet| Datagram::new(packet, train.to.remote, None)).collect();
    let (mut has_failed, mut lost) = (false, 0);
    batch.send(socket, &packets, |_, code| {
        has_failed |= !is_transient(code);
        lost += u64::from(is_transient(code));
        After::Skip
    });
    if has_failed {
        failed.push(train.to);
    }
    lost
}

/// Returns whether an error is of this host and this moment, not of the destination: no room in a buffer.
fn is_transient(code: i32) -> bool {
    let kind = io::Error::from_raw_os_error(code).kind();
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn to(port: u16) -> LinkAddress {
        LinkAddress { interface: 1, remote: SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port)) }
    }

    fn shapes(trains: &Trains) -> Vec<(u16, usize, usize)> {
        let shape =
            |train: &Train| (train.to.remote.port(), train.packets, train.end - train.start);
        trains.trains.iter().map(shape).collect()
    }

    #[test]
    fn equal_packets_to_one_router_are_a_train() {
        let mut trains = Trains::default();
        for (port, length) in [(1, 5), (1, 5), (1, 3), (1, 3), (2, 3), (2, 4), (2, 4)] {
            assert!(trains.append(to(port), &vec![0; length]));
        }
        assert_eq!(shapes(&trains), [(1, 3, 13), (1, 1, 3), (2, 1, 3), (2, 2, 8)]);
    }

    #[test]
    fn a_train_has_at_most_64_packets_and_65_000_octets() {
        let mut trains = Trains::default();
        for _ in 0..65 {
            assert!(trains.append(to(1), &[0; 1_000]));
        }
        assert_eq!(shapes(&trains), [(1, 64, 64_000), (1, 1, 1_000)]);
        for _ in 0..48 {
            assert!(trains.append(to(2), &[0; 1_400]));
        }
        assert_eq!(shapes(&trains)[2..], [(2, 46, 64_400), (2, 2, 2_800)]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut trains = Trains::default();
        let lots = (0..1_000).take_while(|n| trains.append(to(*n), &[0; 9])).count();
        assert_eq!(lots, SEND_BATCH);
        let mut trains = Trains::default();
        let lots = (0..1_000).take_while(|_| trains.append(to(1), &[0; 9_000])).count();
        assert_eq!(lots, BUFFER / 9_000);
    }

    #[test]
    fn all_packets_arrive_in_order_also_singly() {
        let receiver = UdpSocket::bind("[::1]:0").unwrap();
        receiver.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let sender = UdpSocket::bind("[::]:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        for singly in [false, true] {
            let mut trains = Trains { singly, ..Trains::default() };
            trains.confirm([to(port).remote].into_iter());
            for n in 0..70_u8 {
                trains.push(sender.as_fd(), to(port), &[n; 700]);
            }
            trains.push(sender.as_fd(), to(port), &[70; 7]);
            trains.send(sender.as_fd());
            let mut buffer = [0; 2_000];
            for n in 0..=70_u8 {
                let length = if n < 70 { 700 } else { 7 };
                assert_eq!((receiver.recv(&mut buffer).unwrap(), buffer[0]), (length, n));
            }
            assert_eq!(trains.pop_failed(), None);
        }
    }

    #[test]
    fn an_address_that_cannot_be_sent_to_is_reported_once() {
        let sender = UdpSocket::bind("[::]:0").unwrap();
        let mut trains = Trains::default();
        // A link that does not exist.
        let remote = std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 0x7fff_fff0);
        let nowhere = LinkAddress { interface: 0x7fff_fff0, remote: remote.into() };
        for _ in 0..3 {
            trains.push(sender.as_fd(), nowhere, &[0; 10]);
        }
        trains.send(sender.as_fd());
        assert_eq!((trains.pop_failed(), trains.pop_failed()), (Some(nowhere), None));
    }
}
