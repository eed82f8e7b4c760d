//! Both directions of an emulation.

use crate::direction::{Arrival, Direction, Transmit};
use crate::report::DirectionReport;
use ringway_link::{Change, ConfigError, LinkConfig, Streams};
use ringway_sansio::Time;
use ringway_sansio::time::sooner;

/// One of the two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the first end to the second.
    There,
    /// From the second end to the first.
    Back,
}

impl Way {
    /// Both.
    pub const BOTH: [Way; 2] = [Way::There, Way::Back];

    /// Returns 0 or 1: the end where packets come from.
    pub const fn index(self) -> usize {
        match self {
            Way::There => 0,
            Way::Back => 1,
        }
    }
}

/// The parameters of a link, and the names of its random streams, in each direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Parameters.
    pub configs: [LinkConfig; 2],
    /// Names.
    pub names: [String; 2],
}

/// Changes of the parameters of one direction or of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(pub [Change; 2]);

/// A link between two ends, as a machine without a clock or a socket.
///
/// A packet is handed over with the time of its arrival; [`Emulator::poll_transmit`] returns it when it is to be sent at
/// the other end. Decisions depend on the seed and on what has arrived when, and on nothing else.
#[derive(Debug)]
pub struct Emulator {
    directions: [Direction; 2],
}

impl Emulator {
    /// Creates an empty link that starts at `start`.
    ///
    /// # Errors
    /// Parameters that are not valid.
    pub fn new(
        settings: LinkSettings,
        streams: &Streams,
        start: Time,
    ) -> Result<Emulator, ConfigError> {
        let LinkSettings { configs: [there, back], names } = settings;
        let there = Direction::new(there, &names[0], streams, start)?;
        let back = Direction::new(back, &names[1], streams, start)?;
        Ok(Emulator { directions: [there, back] })
    }

    /// Begins a log of everything that is decided from now on.
    pub fn start_log(&mut self) {
        self.directions.iter_mut().for_each(Direction::start_log);
    }

    /// Returns what was logged of a direction since the last call.
    pub fn take_log(&mut self, way: Way) -> String {
        self.directions[way.index()].take_log()
    }

    /// Handles a packet that has arrived at `now`.
    pub fn handle_packet(&mut self, now: Time, way: Way, arrival: &Arrival<'_>) {
        self.directions[way.index()].handle_packet(now, arrival);
    }

    /// Returns the next packet of a direction that is to be sent at `now` or was to be sent before.
    pub fn poll_transmit(&mut self, now: Time, way: Way) -> Option<Transmit> {
        self.directions[way.index()].poll_transmit(now)
    }

    /// Notes that a packet was sent at `now`.
    pub fn sent(&mut self, now: Time, way: Way, packet: Transmit) {
        self.directions[way.index()].sent(now, packet);
    }

    /// Notes that the system has refused to send a packet.
    pub fn refused(&mut self, way: Way, packet: Transmit, reason: &'static str) {
        self.directions[way.index()].refused(packet, reason);
    }

    /// Returns the time of the next [`Emulator::poll_transmit`]; `None` while nothing is under way.
    pub fn poll_timeout(&self) -> Option<Time> {
        let [there, back] = &self.directions;
        sooner(there.poll_timeout(), back.poll_timeout())
    }

    /// Changes parameters at `now`, in both directions or in none.
    ///
    /// # Errors
    /// What is wrong with the result.
    pub fn set(&mut self, now: Time, changes: &Changes) -> Result<(), ConfigError> {
        for (direction, change) in self.directions.iter().zip(&changes.0) {
            direction.check(change)?;
        }
        let mut changes = self.directions.iter_mut().zip(&changes.0);
        changes.try_for_each(|(direction, change)| direction.set(now, change))
    }

    /// Returns the state of both directions at `now`, without the names of the interfaces.
    pub fn report(&mut self, now: Time) -> [DirectionReport; 2] {
        self.directions.each_mut().map(|direction| direction.report(now))
    }
}

#[cfg(test)]
mod tests;
