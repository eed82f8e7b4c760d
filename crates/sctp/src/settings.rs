//! What can be chosen: how an association behaves, and how much an endpoint holds.

use crate::congestion::{Congestion, Cubic, Rfc9260};
use crate::scheduler::{Fcfs, PacketRoundRobin, Priority, RoundRobin, Scheduler, Weighted};
use ringway_sansio::Duration;

/// Least MTU accepted; a cookie with its addresses and a chunk of data must fit (RFC 9260
/// section 3.3.2: nothing that sets up an association may be split).
pub const MIN_MTU: u16 = 512;
/// Least receive buffer accepted, in bytes (RFC 9260 section 3.3.2: a_rwnd of an INIT).
pub const MIN_RECEIVE_BUFFER: usize = 1500;
/// Largest buffer accepted in either direction, in bytes.
pub const MAX_BUFFER: usize = 1 << 30;
/// RFC 9260 section 6.2: an acknowledgement may not wait longer than this.
pub const MAX_SACK_DELAY: Duration = Duration::from_millis(500);

/// How congestion is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 9260 section 7.2.
    #[default]
    Rfc9260,
    /// RFC 9438.
    Cubic,
}

impl Algorithm {
    /// A controller of this kind.
    pub(crate) fn make(self) -> Box<dyn Congestion> {
        match self {
            Algorithm::Rfc9260 => Box::new(Rfc9260),
            Algorithm::Cubic => Box::new(Cubic::default()),
        }
    }
}

/// Which stream's message is sent next (RFC 8260 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Scheduling {
    /// In the order in which they were given (section 3.1).
    #[default]
    Fcfs,
    /// A message of each stream in turn, or where messages are interleaved a chunk (section 3.2).
    RoundRobin,
    /// A packet of each stream in turn (section 3.3).
    PacketRoundRobin,
    /// The stream of the highest priority first; 0 is the highest (section 3.4).
    Priority,
    /// The same number of bytes for each stream (section 3.5).
    FairCapacity,
    /// Bytes in proportion to the weights of streams, 1 unless set (section 3.6).
    WeightedFair,
}

impl Scheduling {
    /// A scheduler of this kind.
    pub(crate) fn make(self) -> Box<dyn Scheduler> {
        match self {
            Scheduling::Fcfs => Box::new(Fcfs::default()),
            Scheduling::RoundRobin => Box::new(RoundRobin::default()),
            Scheduling::PacketRoundRobin => Box::new(PacketRoundRobin::default()),
            Scheduling::Priority => Box::new(Priority::default()),
            Scheduling::FairCapacity | Scheduling::WeightedFair => Box::new(Weighted::default()),
        }
    }
}

/// Whether data goes over several paths at once (concurrent multipath transfer: Iyengar, Amer and
/// Stewart 2006).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Multipath {
    /// Over one path at a time (RFC 9260 section 6.4).
    #[default]
    Off,
    /// Over all that work, each with a window that knows nothing of the others.
    Independent,
    /// Over all that work, with windows that together are no greedier than one (resource pooling, by
    /// the linked increases of RFC 6356).
    Pooled,
}

/// How an association behaves. The names in brackets are those of RFC 9260 section 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Largest IP packet in bytes, on every path; a UDP header (RFC 6951) is part of it.
    pub mtu: u16,
    /// Up to which size of IP packets the paths are probed (RFC 8899); `None` to send none larger than
    /// `mtu`, come what may.
    pub largest_mtu: Option<u16>,
    /// The peer's UDP port to which an association that is opened from here sends (RFC 6951
    /// section 5.1); 0 to send straight over IP. From then on, and where the peer opens, each path
    /// goes to where its packets come from.
    pub udp_port: u16,
    /// Largest DATA chunk with its header, in bytes, where less than the MTU lets through; 0 for
    /// no such limit.
    pub chunk: u16,
    /// Most bytes of messages given and not acknowledged. Memory is taken as needed.
    pub send_buffer: usize,
    /// Most bytes received and not read; the a_rwnd of our INIT. Memory is taken as needed.
    pub receive_buffer: usize,
    /// Streams asked for to send on.
    pub outbound_streams: u16,
    /// Most streams that the peer may send on.
    pub inbound_streams: u16,
    /// Up to how many the peer may add to them later (RFC 6525).
    pub max_inbound_streams: u16,
    /// First congestion window in bytes; `None` for that of RFC 9260 section 7.2.1.
    pub initial_cwnd: Option<u32>,
    /// First slow-start threshold in bytes; `None` for the peer's first window.
    pub initial_ssthresh: Option<u32>,
    /// Retransmission timeout before a round trip was measured (RTO.Initial).
    pub rto_initial: Duration,
    /// Least retransmission timeout (RTO.Min).
    pub rto_min: Duration,
    /// Largest retransmission timeout (RTO.Max).
    pub rto_max: Duration,
    /// How long an acknowledgement may wait for a second packet (SACK.Delay); zero sends each at
    /// once.
    pub sack_delay: Duration,
    /// Packets with DATA until one is acknowledged at once.
    pub sack_packets: u8,
    /// Packets sent at one go (Max.Burst); 0 for no such limit.
    pub max_burst: u32,
    /// Find loss by time and probe a silent tail (RFC 8985) instead of counting miss indications.
    pub rack: bool,
    /// Miss indications until a fast retransmit (section 7.2.4).
    pub misses: u8,
    /// Time between heartbeats on an idle path, besides its RTO (HB.interval); `None` for none,
    /// except where an address must be verified.
    pub heartbeat_interval: Option<Duration>,
    /// Heartbeats sent at one go (HB.Max.Burst).
    pub heartbeat_max_burst: u32,
    /// Errors in a row until the peer is given up (Association.Max.Retrans).
    pub association_max_retrans: u32,
    /// Errors in a row until a path is given up (Path.Max.Retrans).
    pub path_max_retrans: u32,
    /// Errors in a row above which a path is potentially failed and data goes elsewhere (RFC 7829
    /// PotentiallyFailed.Max.Retrans); `None` for never.
    pub potentially_failed: Option<u32>,
    /// How often INIT and COOKIE ECHO are sent again (Max.Init.Retransmits).
    pub max_init_retransmits: u32,
    /// How long a State Cookie is good for (Valid.Cookie.Life).
    pub cookie_life: Duration,
    /// How long a shutdown may take, T5-shutdown-guard; `None` for five times RTO.Max.
    pub shutdown_guard: Option<Duration>,
    /// Offer and take partial reliability (RFC 3758).
    pub partial_reliability: bool,
    /// Offer and take re-configuration of streams (RFC 6525).
    pub reconfiguration: bool,
    /// Offer and take changes of addresses while an association lives (RFC 5061), in authenticated
    /// chunks (RFC 4895).
    pub dynamic_addresses: bool,
    /// Offer and take interleaved messages (RFC 8260). Their reader must then be ready for parts of
    /// large messages of several streams in turn.
    pub interleaving: bool,
    /// Offer and take NR-SACK (draft-natarajan-tsvwg-sctp-nrsack): what arrived after a gap is
    /// acknowledged for good, and leaves the send buffer.
    pub final_acks: bool,
    /// Offer and take explicit congestion notification (RFC 4960 appendix A).
    pub ecn: bool,
    /// What carries the packets finds their errors, as DTLS does: offer and use checksums of zero
    /// (RFC 9653, method 1). Never to be set over plain IP or UDP.
    pub over_dtls: bool,
    /// Messages that cannot be delivered go back to their user by
    /// [`Event::Returned`](crate::Event::Returned) (RFC 9260 sections 11.1.14 and 11.1.15).
    pub return_undelivered: bool,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Whether data goes over several paths at once.
    pub multipath: Multipath,
    /// The order among streams.
    pub scheduling: Scheduling,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mtu: 1500,
            largest_mtu: None,
            udp_port: 0,
            chunk: 0,
            send_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            outbound_streams: 1024,
            inbound_streams: 1024,
            max_inbound_streams: u16::MAX,
            initial_cwnd: None,
            initial_ssthresh: None,
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_secs(1),
            rto_max: Duration::from_secs(60),
            sack_delay: Duration::from_millis(200),
            sack_packets: 2,
            max_burst: 4,
            rack: false,
            misses: 3,
            heartbeat_interval: Some(Duration::from_secs(30)),
            heartbeat_max_burst: 1,
            association_max_retrans: 10,
            path_max_retrans: 5,
            potentially_failed: Some(0),
            max_init_retransmits: 8,
            cookie_life: Duration::from_secs(60),
            shutdown_guard: None,
            partial_reliability: true,
            reconfiguration: true,
            dynamic_addresses: false,
            interleaving: false,
            final_acks: false,
            ecn: false,
            over_dtls: false,
            return_undelivered: false,
            algorithm: Algorithm::default(),
            multipath: Multipath::default(),
            scheduling: Scheduling::default(),
        }
    }
}

impl Settings {
    /// For signalling networks: another path is used within 800 ms of the loss of one, as SS7 asks.
    /// The floor of the retransmission timeout is below what RFC 9260 section 16 recommends, so it
    /// is for paths whose delay is known to be short.
    pub fn ss7() -> Settings {
        Settings {
            rto_initial: Duration::from_millis(400),
            rto_min: Duration::from_millis(100),
            rto_max: Duration::from_millis(400),
            sack_delay: Duration::from_millis(40),
            heartbeat_interval: Some(Duration::from_millis(400)),
            path_max_retrans: 2,
            potentially_failed: Some(0),
            ..Settings::default()
        }
    }

    /// Whether every value is within its bounds.
    pub fn check(&self) -> Result<(), Error> {
        let ms = |d: Duration| d.as_millis().min(u128::from(u64::MAX)) as u64;
        let (long, max) = (1 << 40, MAX_BUFFER as u64);
        for (what, low, high, got) in [
            ("an MTU", u64::from(MIN_MTU), u64::from(u16::MAX), u64::from(self.mtu)),
            (
                "a maximum MTU",
                u64::from(self.mtu),
                u64::from(u16::MAX),
                u64::from(self.largest_mtu.unwrap_or(self.mtu)),
            ),
            ("a send buffer", 1, max, self.send_buffer as u64),
            ("a receive buffer", MIN_RECEIVE_BUFFER as u64, max, self.receive_buffer as u64),
            ("a number of outbound streams", 1, 65_535, u64::from(self.outbound_streams)),
            ("a number of inbound streams", 1, 65_535, u64::from(self.inbound_streams)),
            ("an acknowledgement delay in ms", 0, ms(MAX_SACK_DELAY), ms(self.sack_delay)),
            ("packets per acknowledgement", 1, 255, u64::from(self.sack_packets)),
            ("miss indications", 1, 255, u64::from(self.misses)),
            ("a minimum RTO in ms", 1, ms(self.rto_max), ms(self.rto_min)),
            ("an initial RTO in ms", ms(self.rto_min), ms(self.rto_max), ms(self.rto_initial)),
            ("a maximum RTO in ms", 1, 1 << 32, ms(self.rto_max)),
            ("a cookie life in ms", 1, long, ms(self.cookie_life)),
            ("heartbeats in one burst", 1, 1 << 16, u64::from(self.heartbeat_max_burst)),
        ] {
            if !(low..=high).contains(&got) {
                return Err(Error::Setting { what, low, high, got });
            }
        }
        let min = crate::wire::data::I_DATA_HEADER as u64 + 4;
        if self.chunk != 0 && u64::from(self.chunk) < min {
            let (high, got) = (u64::from(u16::MAX), u64::from(self.chunk));
            return Err(Error::Setting { what: "a chunk", low: min, high, got });
        }
        Ok(())
    }

    /// RFC 9260 section 9.2: the value recommended for T5-shutdown-guard.
    pub(crate) fn guard(&self) -> Duration {
        self.shutdown_guard.unwrap_or(self.rto_max * 5)
    }
}

/// How much an endpoint holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Associations, however far they are.
    pub associations: usize,
    /// Listeners.
    pub listeners: usize,
    /// INITs answered a second. An answer leaves nothing behind but has its price.
    pub inits_per_second: u32,
    /// Packets of no association answered a second, other than by INIT ACK; 0 answers none, for
    /// a host that shares its addresses with others.
    pub strays_per_second: u32,
    /// How long a key makes cookies. It then checks them for as long again.
    pub cookie_key_life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            associations: 131_072,
            listeners: 1024,
            inits_per_second: 100_000,
            strays_per_second: 10_000,
            cookie_key_life: Duration::from_secs(3600),
        }
    }
}

/// Why a call was refused. All are the caller's doing or the state of things; none is a fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The association is gone, or never was.
    #[error("no association has this id")]
    NoAssociation,
    /// The listener is gone, or never was.
    #[error("no listener has this id")]
    NoListener,
    /// What is called for cannot be done in this state, such as sending after `shutdown`.
    #[error("the association is closing and accepts no more messages")]
    Closing,
    /// A limit is reached.
    #[error("the limit of {limit} {what} is reached")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The send buffer has no room for the message now; [`Event::Writable`](crate::Event::Writable)
    /// follows.
    #[error("the send buffer has room for {room} bytes, the message has {got}")]
    NoRoom {
        /// What fits now.
        room: usize,
        /// What was given.
        got: usize,
    },
    /// The message is larger than the send buffer, or empty.
    #[error("expected a message of 1 to {limit} bytes, got {got}")]
    Size {
        /// The send buffer.
        limit: usize,
        /// What was given.
        got: usize,
    },
    /// The stream does not exist.
    #[error("expected a stream below {streams}, got {got}")]
    Stream {
        /// How many there are.
        streams: u16,
        /// What was given.
        got: u16,
    },
    /// The stream is being reset (RFC 6525); [`Change::StreamsReset`](crate::Change) follows.
    #[error("the stream is being reset and accepts no messages")]
    Resetting,
    /// No key has this number, or the one that has it is in use (RFC 4895).
    #[error("expected the identifier of a key that is set and not in use, got {got}")]
    Key {
        /// The number.
        got: u16,
    },
    /// The peer does not take an extension.
    #[error("the peer does not support {what}")]
    NotSupported {
        /// Which.
        what: &'static str,
    },
    /// The addresses or the pair of addresses are in use.
    #[error("the address and port are already in use")]
    InUse,
    /// No port is left.
    #[error("no ephemeral port is free")]
    NoPort,
    /// Addresses that cannot be used together or at all.
    #[error(
        "expected 1 to {max} unicast addresses on each side with a family in common, and ports"
    )]
    Address {
        /// Most addresses on one side.
        max: usize,
    },
    /// The peer has no such address, or it is not verified yet.
    #[error("the address is not a verified address of the peer")]
    NoPath,
    /// A setting is out of its bounds.
    #[error("expected {what} of {low} to {high}, got {got}")]
    Setting {
        /// Which.
        what: &'static str,
        /// Least value.
        low: u64,
        /// Largest value.
        high: u64,
        /// The value.
        got: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_bounds_is_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        assert_eq!(Settings::ss7().check(), Ok(()));
        let wrong = Settings { mtu: 60, ..Settings::default() };
        assert_eq!(
            wrong.check().map_err(|e| e.to_string()),
            Err("expected an MTU of 512 to 65535, got 60".to_owned())
        );
        assert!(Settings { chunk: 23, ..Settings::default() }.check().is_err());
        let late = Settings { sack_delay: Duration::from_millis(501), ..Settings::default() };
        assert!(late.check().is_err(), "RFC 9260 section 6.2");
    }
}
