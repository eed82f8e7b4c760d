//! Packets that wait to be sent.

use core::net::SocketAddr;
use core::ops::Range;

/// Where a packet goes on its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// To every router on the link.
    All,
    /// To one address.
    One(SocketAddr),
}

/// A packet to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit<'a> {
    /// The interface to send it by.
    pub interface: u32,
    /// Who it goes to.
    pub to: Destination,
    /// The payload of one UDP datagram.
    pub bytes: &'a [u8],
}

#[derive(Clone, Debug)]
struct Packet {
    interface: u32,
    to: Destination,
    range: Range<usize>,
}

/// Packets in the order in which they are to be sent, in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

impl Burst {
    /// Returns the buffer.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns for each packet the interface, who it goes to, and where in the buffer it is.
    pub fn packets(&self) -> impl Iterator<Item = (u32, Destination, Range<usize>)> {
        self.packets.iter().map(|packet| (packet.interface, packet.to, packet.range.clone()))
    }

    /// Removes all packets, and keeps a buffer of up to `kept` octets.
    fn clear(&mut self, kept: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(kept);
        self.packets.clear();
        self.packets.shrink_to(kept / size_of::<Packet>());
    }
}

/// Packets that wait to be sent.
#[derive(Clone, Debug)]
pub struct Output {
    burst: Burst,
    /// Packets that were removed.
    removed: usize,
    kept: usize,
}

impl Output {
    /// An empty queue that keeps a buffer of up to `kept` octets between bursts.
    pub fn new(kept: usize) -> Output {
        Output { burst: Burst::default(), removed: 0, kept }
    }

    /// Appends the packet that `build` appends to its argument; nothing if it appends nothing. Returns what `build` does.
    pub fn packet<R>(
        &mut self,
        interface: u32,
        to: Destination,
        build: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let Burst { bytes, packets } = &mut self.burst;
        let start = bytes.len();
        let result = build(bytes);
        if bytes.len() > start {
            packets.push(Packet { interface, to, range: start..bytes.len() });
        }
        result
    }

    /// Appends the packet that `build` appends to its argument, for the interface and destination that it returns; nothing
    /// if it returns `None`. Returns what else `build` does.
    pub fn packet_to<R>(
        &mut self,
        build: impl FnOnce(&mut Vec<u8>) -> Option<(u32, Destination, R)>,
    ) -> Option<R> {
        let Burst { bytes, packets } = &mut self.burst;
        let start = bytes.len();
        let Some((interface, to, result)) = build(bytes) else {
            bytes.truncate(start);
            return None;
        };
        packets.push(Packet { interface, to, range: start..bytes.len() });
        Some(result)
    }

    /// Removes and returns the first packet.
    pub fn pop(&mut self) -> Option<Transmit<'_>> {
        if self.is_empty() {
            self.burst.clear(self.kept);
            self.removed = 0;
        }
        let Burst { bytes, packets } = &self.burst;
        let Packet { interface, to, range } = packets.get(self.removed)?.clone();
        self.removed += 1;
        Some(Transmit { interface, to, bytes: &bytes[range] })
    }

    /// Exchanges all packets for an empty burst: `burst`, of which nothing but the memory is kept.
    pub fn take(&mut self, burst: &mut Burst) {
        burst.clear(self.kept);
        self.burst.packets.drain(..self.removed);
        self.removed = 0;
        core::mem::swap(&mut self.burst, burst);
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.burst.bytes.capacity() + self.burst.packets.capacity() * size_of::<Packet>()
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.removed == self.burst.packets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_in_order_and_empty_ones_do_not() {
        let mut output = Output::new(64);
        let one = Destination::One("[fe80::1]:5267".parse().unwrap());
        output.packet(2, Destination::All, |out| out.extend(b"hello"));
        assert!(!output.packet(2, one, |_| false));
        output.packet(3, one, |out| out.push(7));
        let hello = Transmit { interface: 2, to: Destination::All, bytes: b"hello" };
        assert_eq!(output.pop(), Some(hello));
        assert_eq!(output.pop(), Some(Transmit { interface: 3, to: one, bytes: &[7] }));
        assert!(output.is_empty() && output.pop().is_none());
    }

    #[test]
    fn a_burst_has_what_was_not_removed() {
        let mut output = Output::new(64);
        for octets in [b"one", b"two"] {
            output.packet(2, Destination::All, |out| out.extend(octets));
        }
        assert_eq!(output.pop().unwrap().bytes, b"one");
        let mut burst = Burst::default();
        output.take(&mut burst);
        assert_eq!(burst.packets().collect::<Vec<_>>(), [(2, Destination::All, 3..6)]);
        assert_eq!(&burst.bytes()[3..6], b"two");
        output.packet(3, Destination::All, |out| out.extend(b"three"));
        output.take(&mut burst);
        assert_eq!(burst.packets().collect::<Vec<_>>(), [(3, Destination::All, 0..5)]);
        assert!(output.is_empty());
    }
}
