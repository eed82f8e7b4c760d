//! Both directions of a link.

use crate::direction::Direction;
use ringway_link::{Change, ConfigError, LinkConfig, Streams};
use ringway_sansio::Time;

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

impl LinkSettings {
    /// Creates both directions, empty, which start at `start`. Neither knows of the other: each draws its random numbers
    /// from streams of its own.
    ///
    /// # Errors
    /// Parameters that are not valid.
    pub fn directions(self, streams: &Streams, start: Time) -> Result<[Direction; 2], ConfigError> {
        let LinkSettings { configs: [there, back], names } = self;
        let there = Direction::new(there, &names[0], streams, start)?;
        Ok([there, Direction::new(back, &names[1], streams, start)?])
    }
}

/// Changes of the parameters of one direction or of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes(pub [Change; 2]);
