//! Settings of an association and limits of an endpoint.

use crate::congestion::{Congestion, Cubic, Rfc9260};
use crate::error::SettingError;
use crate::scheduler::{Fcfs, PacketRoundRobin, Priority, RoundRobin, Scheduler, Weighted};
use core::fmt;
use ringway_sansio::Duration;

/// Minimum MTU, in bytes. A cookie with its addresses and a chunk of data must fit (RFC 9260 section
/// 3.3.2: nothing that sets up an association may be split).
pub const MIN_MTU: u16 = 512;
/// Minimum receive buffer, in bytes (RFC 9260 section 3.3.2: a_rwnd of an INIT).
pub const MIN_RECEIVE_BUFFER: usize = 1500;
/// Maximum buffer in either direction, in bytes.
pub const MAX_BUFFER: usize = 1 << 30;
/// Maximum delay of an acknowledgement (RFC 9260 section 6.2).
pub const MAX_SACK_DELAY: Duration = Duration::from_millis(500);

/// A function of the caller that makes a controller or a scheduler. Two are equal if they are the same function, which a
/// compiler may merge with others of the same code or split; settings that are equal are merely shared.
pub struct Factory<T: ?Sized>(pub fn() -> Box<T>);

impl<T: ?Sized> Clone for Factory<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Factory<T> {}

impl<T: ?Sized> PartialEq for Factory<T> {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl<T: ?Sized> Eq for Factory<T> {}

impl<T: ?Sized> fmt::Debug for Factory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Factory")
    }
}

/// The congestion control algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Algorithm {
    /// RFC 9260 section 7.2.
    #[default]
    Rfc9260,
    /// RFC 9438.
    Cubic,
    /// A controller of the caller's, which is made for each path.
    Custom(Factory<dyn Congestion>),
}

impl Algorithm {
    /// Creates a controller of this kind.
    pub(crate) fn make(self) -> Box<dyn Congestion> {
        match self {
            Algorithm::Rfc9260 => Box::new(Rfc9260),
            Algorithm::Cubic => Box::new(Cubic::default()),
            Algorithm::Custom(Factory(make)) => make(),
        }
    }
}

/// The order of messages among streams (RFC 8260 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Scheduling {
    /// The order in which they were queued (section 3.1).
    #[default]
    Fcfs,
    /// One message of each stream in turn or, with interleaving, one chunk (section 3.2).
    RoundRobin,
    /// One packet of each stream in turn (section 3.3).
    PacketRoundRobin,
    /// The stream of the highest priority first; 0 is the highest (section 3.4).
    Priority,
    /// The same number of bytes for each stream (section 3.5).
    FairCapacity,
    /// Bytes in proportion to the weights of streams, 1 unless set (section 3.6).
    WeightedFair,
    /// A scheduler of the caller's, which is made for each association.
    Custom(Factory<dyn Scheduler>),
}

impl Scheduling {
    /// Creates a scheduler of this kind.
    pub(crate) fn make(self) -> Box<dyn Scheduler> {
        match self {
            Scheduling::Fcfs => Box::new(Fcfs::default()),
            Scheduling::RoundRobin => Box::new(RoundRobin::default()),
            Scheduling::PacketRoundRobin => Box::new(PacketRoundRobin::default()),
            Scheduling::Priority => Box::new(Priority::default()),
            Scheduling::FairCapacity | Scheduling::WeightedFair => Box::new(Weighted::default()),
            Scheduling::Custom(Factory(make)) => make(),
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
    /// Over all paths that work, each with an independent window.
    Independent,
    /// Over all paths that work, with windows that together are no greedier than one (resource pooling,
    /// by the linked increases of RFC 6356).
    Pooled,
}

/// Settings of an association. The names in brackets are those of RFC 9260 section 16.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum length of an IP packet on every path, in bytes, including a UDP header (RFC 6951).
    pub mtu: u16,
    /// Maximum length of IP packets up to which the paths are probed (RFC 8899); `None` to send none
    /// larger than `mtu`.
    pub largest_mtu: Option<u16>,
    /// The peer's UDP port that a locally opened association sends to (RFC 6951 section 5.1); 0 to send
    /// directly over IP. Later, and where the peer opens, each path uses the port that its packets come
    /// from.
    pub udp_port: u16,
    /// Maximum length of a DATA chunk with its header, in bytes, below what the MTU allows; 0 for no
    /// such limit.
    pub chunk: u16,
    /// Maximum number of bytes of messages queued and not acknowledged. Memory is allocated as needed.
    pub send_buffer: usize,
    /// Maximum number of bytes received and not read; the a_rwnd of the INIT. Memory is allocated as
    /// needed.
    pub receive_buffer: usize,
    /// Number of outbound streams to request.
    pub outbound_streams: u16,
    /// Maximum number of streams that the peer may send on.
    pub inbound_streams: u16,
    /// Maximum number of streams that the peer may have after adding some (RFC 6525).
    pub max_inbound_streams: u16,
    /// Initial congestion window in bytes; `None` for that of RFC 9260 section 7.2.1.
    pub initial_cwnd: Option<u32>,
    /// Initial slow-start threshold in bytes; `None` for the peer's first window.
    pub initial_ssthresh: Option<u32>,
    /// Retransmission timeout before a round trip was measured (RTO.Initial).
    pub rto_initial: Duration,
    /// Minimum retransmission timeout (RTO.Min).
    pub rto_min: Duration,
    /// Maximum retransmission timeout (RTO.Max).
    pub rto_max: Duration,
    /// Time that an acknowledgement may wait for a second packet (SACK.Delay); zero sends each at once.
    pub sack_delay: Duration,
    /// Number of packets with DATA after which an acknowledgement is sent at once.
    pub sack_packets: u8,
    /// Maximum number of packets in a burst (Max.Burst); 0 for no such limit.
    pub max_burst: u32,
    /// Whether loss is found by time and a silent tail is probed (RFC 8985) instead of counting miss
    /// indications.
    pub rack: bool,
    /// Whether a silent tail is probed on another path that works, if there is one, and the silent path by a HEARTBEAT.
    /// What was lost with a path arrives without waiting for T3-rtx, which alone would move it (RFC 9260 section
    /// 6.4.1).
    pub probe_elsewhere: bool,
    /// Number of miss indications that cause a fast retransmit (section 7.2.4).
    pub misses: u8,
    /// Time between heartbeats on an idle path, in addition to its RTO (HB.interval); `None` for no
    /// heartbeats except to verify an address.
    pub heartbeat_interval: Option<Duration>,
    /// Maximum number of heartbeats in a burst (HB.Max.Burst).
    pub heartbeat_max_burst: u32,
    /// Number of consecutive errors after which the peer counts as unreachable
    /// (Association.Max.Retrans).
    pub association_max_retrans: u32,
    /// Number of consecutive errors after which a path is inactive (Path.Max.Retrans).
    pub path_max_retrans: u32,
    /// Number of consecutive errors above which a path is potentially failed and data uses another (RFC
    /// 7829 PotentiallyFailed.Max.Retrans); `None` for never.
    pub potentially_failed: Option<u32>,
    /// Maximum number of retransmissions of INIT and COOKIE ECHO (Max.Init.Retransmits).
    pub max_init_retransmits: u32,
    /// Lifetime of a State Cookie (Valid.Cookie.Life).
    pub cookie_life: Duration,
    /// Maximum duration of a shutdown, T5-shutdown-guard; `None` for five times RTO.Max.
    pub shutdown_guard: Option<Duration>,
    /// Whether partial reliability is offered and accepted (RFC 3758).
    pub partial_reliability: bool,
    /// Whether re-configuration of streams is offered and accepted (RFC 6525).
    pub reconfiguration: bool,
    /// Whether changes of addresses of an established association are offered and accepted (RFC 5061),
    /// in authenticated chunks (RFC 4895).
    pub dynamic_addresses: bool,
    /// Whether interleaved messages are offered and accepted (RFC 8260). Their reader must handle parts
    /// of large messages of several streams in turn.
    pub interleaving: bool,
    /// Whether NR-SACK is offered and accepted (draft-natarajan-tsvwg-sctp-nrsack): data after a gap is
    /// acknowledged for good and leaves the send buffer.
    pub final_acks: bool,
    /// Whether explicit congestion notification is offered and accepted (RFC 4960 appendix A).
    pub ecn: bool,
    /// Whether the packets are carried in DTLS, which detects errors: checksums of zero are offered and
    /// used (RFC 9653, method 1). Never set it over plain IP or UDP.
    pub over_dtls: bool,
    /// Whether undelivered messages are returned by [`Event::Returned`](crate::Event::Returned) (RFC
    /// 9260 sections 11.1.14 and 11.1.15).
    pub return_undelivered: bool,
    /// The congestion control algorithm.
    pub algorithm: Algorithm,
    /// Whether data uses several paths at once.
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
            probe_elsewhere: false,
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
    /// Returns settings for signalling networks: another path is used within 800 ms of a loss, as SS7
    /// requires. The minimum retransmission timeout is below the recommendation of RFC 9260 section 16,
    /// so it is for paths with a known short delay.
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

    /// Checks that every value is within its bounds.
    pub fn check(&self) -> Result<(), SettingError> {
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
                return Err(SettingError { what, low, high, got });
            }
        }
        let min = crate::wire::data::I_DATA_HEADER as u64 + 4;
        if self.chunk != 0 && u64::from(self.chunk) < min {
            let (high, got) = (u64::from(u16::MAX), u64::from(self.chunk));
            return Err(SettingError { what: "a chunk", low: min, high, got });
        }
        Ok(())
    }

    /// Returns the duration of T5-shutdown-guard, by default the recommended one (RFC 9260 section
    /// 9.2).
    pub(crate) fn guard(&self) -> Duration {
        self.shutdown_guard.unwrap_or(self.rto_max * 5)
    }
}

/// Limits of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of associations in any state. An eighth is a reserve, in which a source that peers open
    /// associations from may hold a quarter of what is free. `connect` may use all.
    pub associations: usize,
    /// Maximum number of listeners.
    pub listeners: usize,
    /// Maximum number of INITs answered per second. An answer stores nothing but costs time. One source gets a
    /// fifth of them, less while others take theirs.
    pub inits_per_second: u32,
    /// Maximum number of packets out of the blue answered per second, without INIT ACKs, shared among sources
    /// like those of INITs; 0 answers none, for a host that shares its addresses with others.
    pub strays_per_second: u32,
    /// Time for which a key makes cookies. It checks them for as long again.
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
