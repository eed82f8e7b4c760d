//! Bounds of a system of transport services.

use ringway_services::{pool, race};
use std::time::Duration;

/// Connections that the peer has added to a group of a connection opened here, and that wait to be accepted.
pub const GROUP_QUEUE: usize = 64;
/// Events of a connection that wait to be read. The oldest are dropped beyond that.
pub const EVENT_QUEUE: usize = 64;
/// Datagrams of one peer that wait to be read. More are dropped, as UDP and its relatives may.
pub const DATAGRAM_QUEUE: usize = 256;
/// The time for which the end of a byte stream waits for that of the peer, once what was sent is delivered.
pub const LINGER: Duration = Duration::from_secs(5);

/// The time in which a peer must read more of what was sent before the end of a byte stream.
pub const CLOSING: Duration = Duration::from_secs(60);

/// Bounds of a system. Each connection and each listener has its own of what concerns one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Octets of a message, sent or received.
    pub message: usize,
    /// Octets of a connection that were received and not read. Then the peer waits, where the protocol has flow control.
    pub window: u32,
    /// Octets of a group that wait to be handed to the transport. Each connection has an equal share, and room for one
    /// message in any case. Then `send` waits.
    pub queue: usize,
    /// Connections of a listener that are in their handshake or wait to be accepted. A source that has a quarter of what
    /// the others have left is refused, so one alone has a fifth at most.
    pub waiting: usize,
    /// Connections that were closed more than [`LINGER`] ago and whose peers have not read everything, a quarter of them of
    /// one source. Beyond that the one that was read least recently is aborted: of the source that has more than its share,
    /// or else of the one that has the most.
    pub draining: usize,
    /// The time of a handshake that a peer has begun.
    pub handshake: Duration,
    /// Associations and connections in total, and how long an association without connections is kept.
    pub pool: pool::Limits,
    /// Times and numbers of the attempts to connect.
    pub race: race::Settings,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            message: 4 * 1024 * 1024,
            window: 256 * 1024,
            queue: 4 * 1024 * 1024,
            waiting: 1_024,
            draining: 256,
            handshake: Duration::from_secs(10),
            pool: pool::Limits::default(),
            race: race::Settings::default(),
        }
    }
}
