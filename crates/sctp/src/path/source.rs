//! The local address of a path, which changes when packets from it seem to be lost.

use std::net::IpAddr;

/// The local address that packets are sent from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    address: IpAddr,
    /// Number of changes, modulo 256.
    turns: u8,
    /// Its value when data was last sent.
    data_turn: u8,
    /// Whether the address was changed because of a loss and nothing has arrived there since.
    guessed: bool,
}

impl Source {
    pub(super) fn new(address: IpAddr) -> Source {
        Source { address, turns: 0, data_turn: 0, guessed: false }
    }

    #[inline]
    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    /// Sets the address. Returns whether it is another one.
    pub(super) fn set(&mut self, address: IpAddr) -> bool {
        let changed = core::mem::replace(&mut self.address, address) != address;
        self.turns = self.turns.wrapping_add(u8::from(changed));
        changed
    }

    /// Sets the address because of a loss, which it may not repair. Returns whether it is another one.
    pub(super) fn guess(&mut self, address: IpAddr) -> bool {
        let changed = self.set(address);
        self.guessed = changed;
        changed
    }

    /// Returns whether the address was set because of a loss and nothing has arrived since, and forgets it.
    #[inline]
    pub(super) fn take_guess(&mut self) -> bool {
        core::mem::take(&mut self.guessed)
    }

    /// Returns the number of changes, modulo 256.
    pub(super) fn turns(&self) -> u8 {
        self.turns
    }

    /// Returns the number of changes when data was last sent.
    pub(super) fn data_turn(&self) -> u8 {
        self.data_turn
    }

    /// Notes that data is sent.
    #[inline]
    pub(super) fn data_sent(&mut self) {
        self.data_turn = self.turns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn changes_are_counted_and_guesses_are_known_once() {
        let mut source = Source::new(A);
        assert!(!source.guess(A) && !source.take_guess());
        assert!(source.guess(B) && source.take_guess() && !source.take_guess());
        assert_eq!((source.turns(), source.data_turn()), (1, 0));
        source.data_sent();
        assert_eq!(source.data_turn(), 1);
    }
}
