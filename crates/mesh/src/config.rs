//! Every limit by name. Each has a counter of the same meaning where it is enforced.

use std::sync::Arc;

use ringway_sansio::time::Duration;

/// Maximum number of nibbles in the route of an ordinary data packet: 241 links between routers with up to 15 neighbours.
/// A packet with a longer one is a *long* one.
pub const MAX_ORDINARY_NIBBLES: usize = 240;
/// Maximum number of nibbles in the route of any data packet.
pub const MAX_DATA_NIBBLES: usize = MAX_CONTROL_NIBBLES;
/// Least MTU in octets of a link: what every IPv4 host accepts (576), less headers of IPv4 and UDP. A way of which a router
/// claims less counts as one of this.
pub const LEAST_MTU: u16 = 548;
/// Maximum number of nibbles in the route or record of a control message.
pub const MAX_CONTROL_NIBBLES: usize = 1_022;
/// Maximum number of tags in the record of a request. A longer record has a tag for every second, fourth, eighth... router.
pub const MAX_TAGS: usize = 64;
/// Hops that an ordinary data packet may take.
pub const HOP_LIMIT: u8 = 255;
/// Hops that a message or a long data packet may take, and maximum number of links of a route.
pub const MAX_HOPS: u16 = 1_023;

/// Octets a second that the control messages of a router may cost while the network changes, counted at every hop they
/// take.
pub const CONTROL_RATE: u32 = 4_096;
/// Octets that they may cost at once, for each hop of the mean route.
pub const CONTROL_BURST: u32 = 64 * 1024;

/// Octets a second that the messages of its applications may cost, counted at every hop they take.
pub const APPLICATION_RATE: u32 = 32 * 1024;
/// Octets that they may cost at once.
pub const APPLICATION_BURST: u32 = 1024 * 1024;

/// How a router is configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Sizes of its tables. Routers of one process share them.
    pub limits: Arc<Limits>,
    /// Octets a second that its control messages may cost, counted at every hop.
    pub control_rate: u32,
    /// Octets that they may cost at once, for each hop of the mean route.
    pub control_burst: u32,
    /// Octets a second that messages of its applications may cost, counted at every hop.
    pub application_rate: u32,
    /// Octets that they may cost at once.
    pub application_burst: u32,
    /// Zero bits that hash extensions of identities must have.
    pub extension_bits: u8,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            limits: Arc::default(),
            control_rate: CONTROL_RATE,
            control_burst: CONTROL_BURST,
            application_rate: APPLICATION_RATE,
            application_burst: APPLICATION_BURST,
            extension_bits: crate::identity::HASH_EXTENSION_BITS,
        }
    }
}

/// Sizes of a router's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Neighbours; at most half of them on one interface.
    pub neighbours: usize,
    /// Octets a second of messages that are taken from one neighbour, and at once.
    pub neighbour_rate: u32,
    /// See `neighbour_rate`.
    pub neighbour_burst: u32,
    /// Time for which the slot of a lost neighbour is kept for it.
    pub slot_quarantine: Duration,
    /// Handshakes of links under way.
    pub handshakes: usize,
    /// Handshakes above which an INIT must carry a cookie.
    pub handshakes_busy: usize,
    /// Contacts: routers to which a verified route is known.
    pub contacts: usize,
    /// Contacts on each side of the ring that a router must know.
    pub near: usize,
    /// Contacts at about the same distance, of which the cheapest are kept.
    pub candidates: usize,
    /// Marks of the routes of others; at most half of them from one neighbour.
    pub marks: usize,
    /// Sessions with the routers of other hosts.
    pub sessions: usize,
    /// Sessions that others have begun and not confirmed; at most half of them by one neighbour.
    pub half_sessions: usize,
    /// Packets that wait for one session.
    pub queued_packets: usize,
    /// Octets of a buffer for packets to send that is kept between bursts.
    pub output: usize,
    /// Own requests under way.
    pub pending: usize,
    /// Times that a request is sent again before it is given up.
    pub retransmissions: u8,
    /// Least time to wait for an answer.
    pub min_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            neighbours: 512,
            neighbour_rate: 256 * 1024,
            neighbour_burst: 2 * 1024 * 1024,
            slot_quarantine: Duration::from_secs(120),
            handshakes: 128,
            handshakes_busy: 32,
            contacts: 255,
            near: 2,
            candidates: 3,
            marks: 255,
            sessions: 1_024,
            half_sessions: 64,
            queued_packets: 8,
            output: 256 * 1024,
            pending: 64,
            retransmissions: 2,
            min_wait: Duration::from_millis(200),
        }
    }
}
