//! Limits and intervals of short numbers by name.

use ringway_sansio::time::Duration;

use super::space::Space;

/// Maximum number of routers that a router states its free blocks to.
pub const MAX_PEERS: usize = 16;
/// Maximum number of users that wait for a number, beside those of an earlier network.
pub const MAX_WAITING: usize = 1_024;
/// Maximum number of requests that may still be granted.
pub const MAX_OPEN: usize = 8;
/// Maximum number of messages that wait for the caller. Others are dropped: all of them are repeated.
pub const MAX_MESSAGES: usize = 512;
/// Number of events from which on no users are assigned numbers until the caller takes some.
pub const MAX_EVENTS: usize = 1_024;
/// Free numbers below which a router without a free block asks for one in reserve.
pub const RESERVE: usize = 3;
/// Maximum number of askers whose grants are counted.
pub const MAX_ASKERS: usize = 256;
/// Maximum number of routers in a census.
pub const MAX_CENSUS: usize = 1_024;
/// First interval of repetitions.
pub const RESEND: Duration = Duration::from_secs(1);
/// Maximum interval of repetitions.
pub const MAX_RESEND: Duration = Duration::from_secs(60);
/// Maximum pause after nobody has had blocks.
pub const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Minimum interval between two statements.
pub const STATUS_PACE: Duration = Duration::from_secs(1);
/// Interval of repetitions in a census.
pub const CENSUS_RESEND: Duration = Duration::from_secs(2);
/// Time after which a census fails.
pub const CENSUS_PATIENCE: Duration = Duration::from_secs(300);
/// Time for which a router accepts no grants after it has taken part in a census whose end it has not heard of.
pub const FREEZE: Duration = Duration::from_secs(1_200);

const _: () = assert!(FREEZE.as_secs() >= 4 * CENSUS_PATIENCE.as_secs());

/// Sizes and intervals of a router's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The numbers there are; the same at all routers of a network.
    pub space: Space,
    /// Users with numbers, at most 32,768.
    pub max_users: usize,
    /// Time for which a released number is given to nobody.
    pub rest: Duration,
    /// Time without a word of another network after which a router creates one, if a user waits. Up to twice as long, so
    /// that not all do at once.
    pub settle: Duration,
    /// Time after which a user is reported to have got no number.
    pub patience: Duration,
    /// Time to wait for an answer before another router is asked.
    pub ask_wait: Duration,
    /// Interval between statements of what is free.
    pub status: Duration,
    /// Grants to one asker in an hour.
    pub grants_per_hour: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            space: Space::default(),
            max_users: 16_384,
            rest: Duration::from_secs(7 * 86_400),
            settle: Duration::from_secs(30),
            patience: Duration::from_secs(90),
            ask_wait: Duration::from_secs(1),
            status: Duration::from_secs(20),
            grants_per_hour: 16,
        }
    }
}
