//! Packets on their way to the socket. Those that follow each other to the same router are one train, which goes
//! through the host once.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use ringway_mesh::link::LinkAddress;
use ringway_os::{After, Datagram, SEND_BATCH, SendBatch};
use smallvec::SmallVec;

/// Most packets and octets of a train that every kernel accepts (udp(7)).
const MAX_PACKETS: usize = 64;
const MAX_OCTETS: usize = 65_000;
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
    fn accepts(&self, to: LinkAddress, range: &Range<usize>) -> bool {
        let length = range.len();
        self.to == to
            && self.end == range.start
            && !self.is_complete
            && length <= self.size
            && self.packets < MAX_PACKETS
            && self.end - self.start + length <= MAX_OCTETS
    }
}

/// Trains that are made up, and what was learned of the kernel.
#[derive(Default)]
pub(crate) struct Trains {
    batch: SendBatch,
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

    /// Sends packets, of which are said to whom they go and where in `bytes` they are. What a full buffer of the kernel
    /// refuses is lost, as on any link.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        packets: impl Iterator<Item = (LinkAddress, Range<usize>)>,
    ) {
        for (to, range) in packets {
            if !self.append(to, &range) {
                self.send_trains(socket, bytes);
                self.append(to, &range);
            }
        }
        self.send_trains(socket, bytes);
    }

    /// Returns whether there was room.
    fn append(&mut self, to: LinkAddress, range: &Range<usize>) -> bool {
        let (start, length) = (range.start, range.len());
        let is_full = self.trains.len() == SEND_BATCH;
        match self.trains.last_mut() {
            Some(train) if train.accepts(to, range) => {
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
        true
    }

    fn send_trains(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) {
        let Trains { batch, trains, singly, neighbours, failed, lost } = self;
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

    fn append(trains: &mut Trains, end: &mut usize, port: u16, length: usize) -> bool {
        let start = std::mem::replace(end, *end + length);
        trains.append(to(port), &(start..*end))
    }

    fn shapes(trains: &Trains) -> Vec<(u16, usize, usize)> {
        let shape =
            |train: &Train| (train.to.remote.port(), train.packets, train.end - train.start);
        trains.trains.iter().map(shape).collect()
    }

    #[test]
    fn equal_packets_to_one_router_are_a_train() {
        let (mut trains, mut end) = (Trains::default(), 0);
        for (port, length) in [(1, 5), (1, 5), (1, 3), (1, 3), (2, 3), (2, 4), (2, 4)] {
            assert!(append(&mut trains, &mut end, port, length));
        }
        assert_eq!(shapes(&trains), [(1, 3, 13), (1, 1, 3), (2, 1, 3), (2, 2, 8)]);
        end += 1;
        assert!(append(&mut trains, &mut end, 2, 4));
        assert_eq!(shapes(&trains)[4..], [(2, 1, 4)], "not behind the others");
    }

    #[test]
    fn a_train_has_at_most_64_packets_and_65_000_octets() {
        let (mut trains, mut end) = (Trains::default(), 0);
        for _ in 0..65 {
            assert!(append(&mut trains, &mut end, 1, 1_000));
        }
        assert_eq!(shapes(&trains), [(1, 64, 64_000), (1, 1, 1_000)]);
        for _ in 0..48 {
            assert!(append(&mut trains, &mut end, 2, 1_400));
        }
        assert_eq!(shapes(&trains)[2..], [(2, 46, 64_400), (2, 2, 2_800)]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let (mut trains, mut end) = (Trains::default(), 0);
        let lots = (0..1_000).take_while(|n| append(&mut trains, &mut end, *n, 9)).count();
        assert_eq!(lots, SEND_BATCH);
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
            let mut bytes: Vec<u8> = (0..70).flat_map(|n| [n; 700]).collect();
            bytes.extend([70; 7]);
            let packets = (0..=70).map(|n| (to(port), n * 700..bytes.len().min(n * 700 + 700)));
            trains.send(sender.as_fd(), &bytes, packets);
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
        let packets = (0..3).map(|n| (nowhere, 10 * n..10 * n + 10));
        trains.send(sender.as_fd(), &[0; 30], packets);
        assert_eq!((trains.pop_failed(), trains.pop_failed()), (Some(nowhere), None));
    }
}
