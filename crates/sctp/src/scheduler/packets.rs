//! Round-robin by packet (RFC 8260 section 3.3).

use super::{RoundRobin, Scheduler};

/// Fills one packet for each stream in turn, with chunks of that stream alone: a lost packet delays one
/// stream only.
#[derive(Debug, Default)]
pub struct PacketRoundRobin {
    turns: RoundRobin,
    /// The stream of the current packet, and whether it has more messages.
    holds: Option<(u16, bool)>,
}

impl Scheduler for PacketRoundRobin {
    fn name(&self) -> &'static str {
        "round-robin by packet"
    }

    fn queued(&mut self, stream: u16, bytes: usize) {
        if let Some((holder, more)) = &mut self.holds
            && *holder == stream
            && !*more
        {
            *more = true;
        }
        self.turns.queued(stream, bytes);
    }

    fn next(&self) -> Option<u16> {
        match self.holds {
            Some((stream, more)) => more.then_some(stream),
            None => self.turns.next(),
        }
    }

    fn taken(&mut self, _bytes: usize, more: bool) {
        let Some(stream) = self.next() else { return };
        self.holds = Some((stream, more));
        if !more {
            self.turns.removed(stream, false);
        }
    }

    fn cut(&mut self, _bytes: usize) {
        if let Some(stream) = self.next() {
            self.holds = Some((stream, true));
        }
    }

    fn spent(&mut self, stream: u16, _bytes: usize) {
        self.holds = Some((stream, self.turns.has(stream)));
    }

    fn removed(&mut self, stream: u16, more: bool) {
        self.turns.removed(stream, more);
        if let Some((holder, left)) = &mut self.holds
            && *holder == stream
        {
            *left = more;
        }
    }

    fn packet(&mut self) {
        if let Some((stream, more)) = self.holds.take()
            && more
        {
            self.turns.move_back(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8260 section 3.3: the stream changes with the packet and not within.
    #[test]
    fn goes_by_packets() {
        let mut s = PacketRoundRobin::default();
        let mut left = [0, 2, 3];
        for stream in [1, 1, 2, 2, 2] {
            s.queued(stream, 10);
        }
        let mut packets = Vec::new();
        for room in [1, 2, 4, 4, 4] {
            s.packet();
            let mut packet = Vec::new();
            while packet.len() < room
                && let Some(stream) = s.next()
            {
                left[usize::from(stream)] -= 1;
                s.taken(10, left[usize::from(stream)] > 0);
                packet.push(stream);
            }
            packets.push(packet);
        }
        assert_eq!(packets, [vec![1], vec![2, 2], vec![1], vec![2], vec![]]);
    }

    /// A message that continues from packet to packet keeps its last packet to itself.
    #[test]
    fn a_message_keeps_its_packets() {
        let mut s = PacketRoundRobin::default();
        s.queued(1, 3000);
        s.queued(2, 10);
        s.packet();
        assert_eq!(s.next(), Some(1));
        s.taken(1000, false);
        s.packet();
        s.spent(1, 1000);
        assert_eq!(s.next(), None);
        s.packet();
        assert_eq!(s.next(), Some(2));
        s.removed(2, false);
        assert_eq!(s.next(), None);
    }
}
