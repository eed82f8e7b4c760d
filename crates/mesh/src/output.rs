//! Packets that wait to be sent.

use core::net::SocketAddr;
use core::ops::Range;
use std::collections::VecDeque;

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
#[derive(Clone, Debug)]
pub struct Output {
    bytes: Vec<u8>,
    packets: VecDeque<Packet>,
    kept: usize,
}

impl Output {
    /// An empty queue that keeps a buffer of up to `kept` octets between bursts.
    pub fn new(kept: usize) -> Output {
        Output { bytes: Vec::new(), packets: VecDeque::new(), kept }
    }

    /// Appends the packet that `build` appends to its argument; nothing if it appends nothing. Returns what `build` does.
    pub fn packet<R>(
        &mut self,
        interface: u32,
        to: Destination,
        build: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> R {
        let start = self.bytes.len();
        let result = build(&mut self.bytes);
        if self.bytes.len() > start {
            self.packets.push_back(Packet { interface, to, range: start..self.bytes.len() });
        }
        result
    }

    /// Appends the packet that `build` appends to its argument, for the interface and destination that it returns; nothing
    /// if it returns `None`. Returns what else `build` does.
    pub fn packet_to<R>(
        &mut self,
        build: impl FnOnce(&mut Vec<u8>) -> Option<(u32, Destination, R)>,
    ) -> Option<R> {
        let start = self.bytes.len();
        let Some((interface, to, result)) = build(&mut self.bytes) else {
            self.bytes.truncate(start);
            return None;
        };
        self.packets.push_back(Packet { interface, to, range: start..self.bytes.len() });
        Some(result)
    }

    /// Removes and returns the first packet.
    pub fn pop(&mut self) -> Option<Transmit<'_>> {
        if self.packets.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(self.kept);
            self.packets.shrink_to(self.kept / size_of::<Packet>());
        }
        let Packet { interface, to, range } = self.packets.pop_front()?;
        Some(Transmit { interface, to, bytes: &self.bytes[range] })
    }

    /// Returns the octets that are allocated.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.packets.capacity() * size_of::<Packet>()
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
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
}
