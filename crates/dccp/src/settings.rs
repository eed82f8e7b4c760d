//! Settings of a connection, limits of a host, and the reasons why a call was refused.

use crate::wire::feature::{MAX_SEQUENCE_WINDOW, MIN_SEQUENCE_WINDOW};
use ringway_sansio::Duration;

/// Minimum MTU in bytes: the longest headers and some data must fit.
pub const MIN_MTU: u16 = 256;
/// Maximum number of messages in a queue.
pub const MAX_QUEUE: usize = 1 << 16;
/// The default UDP port of a server of DCCP-UDP (RFC 6773 section 3.8).
pub const UDP_PORT: u16 = 6511;

/// The service code that no service has (RFC 4340 section 8.1.2).
pub const INVALID_SERVICE: u32 = u32::MAX;

/// A congestion control, by its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Ccid {
    /// CCID 2: a window that grows and falls like TCP's (RFC 4341).
    #[default]
    TcpLike,
    /// CCID 3: a rate that changes smoothly, TFRC (RFC 4342).
    Tfrc,
}

impl Ccid {
    /// Returns the identifier on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Ccid::TcpLike => 2,
            Ccid::Tfrc => 3,
        }
    }

    /// Returns the congestion control with this identifier.
    pub const fn from_number(number: u64) -> Option<Ccid> {
        match number {
            2 => Some(Ccid::TcpLike),
            3 => Some(Ccid::Tfrc),
            _ => None,
        }
    }
}

/// Settings of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum length of an IP packet in bytes. An ICMP message may lower it.
    pub mtu: u16,
    /// The preferred congestion control, for both directions. The other one is accepted unless
    /// `ccid_mandatory` is set.
    pub ccid: Ccid,
    /// Whether a peer without the preferred congestion control is refused.
    pub ccid_mandatory: bool,
    /// Sequence Window that the connection begins with (RFC 4340 section 7.5.2). It grows with the number
    /// of packets in a round trip.
    pub sequence_window: u64,
    /// Whether short sequence numbers are offered and accepted.
    pub short_seqnos: bool,
    /// Whether ECN marks can be read. Without it the peer's packets are not ECN-capable.
    pub ecn: bool,
    /// Whether NDP Counts are sent and requested.
    pub ndp_count: bool,
    /// Checksum Coverage of sent data, 0 to 15 (RFC 4340 section 9.2). In UDP it is stated, and all is covered nevertheless
    /// (RFC 6773 section 3.3.1).
    pub coverage: u8,
    /// Minimum Checksum Coverage that is accepted, 0 to 15; 0 accepts full coverage only.
    pub min_coverage: u8,
    /// Whether data carry a CRC-32c, and the peer is asked to check it.
    pub data_checksum: bool,
    /// Whether a CCID 3 receiver is asked for Loss Event Rates. The local receiver sends them in any case.
    pub loss_event_rate: bool,
    /// Maximum number of messages that wait to be sent.
    pub send_queue: usize,
    /// Maximum number of messages that wait to be read. More are dropped and reported to the peer.
    pub receive_queue: usize,
    /// Maximum duration of a handshake.
    pub handshake_timeout: Duration,
    /// Time without a packet from the peer, with packets to it unacknowledged, after which the connection
    /// ends.
    pub user_timeout: Duration,
    /// Maximum duration of a close, in which queued messages are still sent.
    pub close_timeout: Duration,
    /// The peer's UDP port, where packets are carried in UDP (RFC 6773). The host has one UDP port of its own.
    pub udp_port: Option<u16>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mtu: 1500,
            ccid: Ccid::default(),
            ccid_mandatory: false,
            sequence_window: 100,
            short_seqnos: false,
            ecn: true,
            ndp_count: false,
            coverage: 0,
            min_coverage: 0,
            data_checksum: false,
            loss_event_rate: false,
            send_queue: 64,
            receive_queue: 256,
            handshake_timeout: Duration::from_secs(180),
            user_timeout: Duration::from_secs(300),
            close_timeout: Duration::from_secs(60),
            udp_port: None,
        }
    }
}

impl Settings {
    /// Checks that every value is within its bounds.
    pub fn check(&self) -> Result<(), SettingError> {
        let ms = |d: Duration| d.as_millis().min(u128::from(u64::MAX)) as u64;
        let (min, max) = (MIN_SEQUENCE_WINDOW, MAX_SEQUENCE_WINDOW);
        for (what, low, high, got) in [
            ("an MTU", MIN_MTU.into(), u16::MAX.into(), self.mtu.into()),
            ("a sequence window", min, max, self.sequence_window),
            ("a checksum coverage", 0, 15, self.coverage.into()),
            ("a minimum checksum coverage", 0, 15, self.min_coverage.into()),
            ("a send queue", 1, MAX_QUEUE as u64, self.send_queue as u64),
            ("a receive queue", 1, MAX_QUEUE as u64, self.receive_queue as u64),
            ("a handshake timeout in ms", 1, 1 << 40, ms(self.handshake_timeout)),
            ("a user timeout in ms", 1, 1 << 40, ms(self.user_timeout)),
            ("a close timeout in ms", 1, 1 << 40, ms(self.close_timeout)),
        ] {
            if !(low..=high).contains(&got) {
                return Err(SettingError::Range { what, low, high, got });
            }
        }
        Ok(())
    }
}

/// Limits of a host's DCCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of connections in any state. One source opens at most a fifth.
    pub connections: usize,
    /// Maximum number of handshakes that a listener keeps, for one source at most a fifth. Further Requests are answered with
    /// an Init Cookie, and nothing is kept.
    pub half_open: usize,
    /// Maximum number of listeners.
    pub listeners: usize,
    /// Maximum number of service codes of a listener.
    pub services: usize,
    /// Maximum number of address pairs in TIMEWAIT. The oldest is evicted.
    pub time_wait: usize,
    /// Time that an address pair stays in TIMEWAIT: twice the maximum segment lifetime (RFC 4340 section
    /// 8.3).
    pub time_wait_for: Duration,
    /// Validity of an Init Cookie.
    pub cookie_life: Duration,
    /// Time after which the key of Init Cookies is replaced. The previous key remains valid.
    pub cookie_key_life: Duration,
    /// Maximum number of answers to packets without a connection, per second. One source has at most a fifth.
    pub strays_per_second: u32,
    /// Maximum number of Requests answered with an Init Cookie, per second. One source has at most a fifth.
    pub cookies_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 65_536,
            half_open: 256,
            listeners: 1024,
            services: 32,
            time_wait: 32_768,
            time_wait_for: Duration::from_secs(240),
            cookie_life: Duration::from_secs(60),
            cookie_key_life: Duration::from_secs(3600),
            strays_per_second: 1000,
            cookies_per_second: 10_000,
        }
    }
}

/// A setting that is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// A value is out of its bounds.
    #[error("expected {what} of {low} to {high}, got {got}")]
    Range {
        /// The setting.
        what: &'static str,
        /// Minimum value.
        low: u64,
        /// Maximum value.
        high: u64,
        /// The value given.
        got: u64,
    },
}

/// The reason why a listener was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// A setting is not allowed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The address cannot be listened on.
    #[error("expected a unicast or unspecified address and a port, got another")]
    Address,
    /// A listener has the address and port.
    #[error("the address and port are already in use")]
    InUse,
    /// The number of service codes is zero or above the limit.
    #[error("expected 1 to {limit} service codes, got {got}")]
    Services {
        /// Maximum number.
        limit: usize,
        /// Actual number.
        got: usize,
    },
    /// A service code is [`INVALID_SERVICE`].
    #[error("expected service codes below 4294967295, got that")]
    InvalidService,
    /// The limit of listeners is reached.
    #[error("the limit of {limit} listeners is reached")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// The reason why a connection was not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting is not allowed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The addresses cannot be used, alone or together.
    #[error("expected two unicast addresses of one family and a remote port, got others")]
    Address,
    /// A connection, or one in TIMEWAIT, has the addresses and ports.
    #[error("the addresses and ports are already in use")]
    InUse,
    /// The service code is [`INVALID_SERVICE`].
    #[error("expected a service code below 4294967295, got that")]
    InvalidService,
    /// No ephemeral port is free for this pair of addresses.
    #[error("no ephemeral port is free")]
    NoPort,
    /// The limit of connections is reached.
    #[error("the limit of {limit} connections is reached")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// The reason why a message was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection does not exist or no longer exists.
    #[error("no connection has this id")]
    NoConnection,
    /// The connection is closing.
    #[error("the connection is closing and accepts no more messages")]
    Closing,
    /// The queue is full. An event reports when it has room again.
    #[error("the queue of {limit} messages is full")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// The message does not fit a packet (RFC 4340 section 14).
    #[error("expected a message of at most {max} bytes, got {got}")]
    TooLong {
        /// Maximum length in bytes.
        max: usize,
        /// Actual length in bytes.
        got: usize,
    },
}

/// The reason why another call was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The connection does not exist or no longer exists.
    #[error("no connection has this id")]
    NoConnection,
    /// The listener does not exist or no longer exists.
    #[error("no listener has this id")]
    NoListener,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_out_of_bounds_is_named() {
        assert_eq!(Settings::default().check(), Ok(()));
        let wrong = Settings { mtu: 60, ..Settings::default() };
        assert_eq!(
            wrong.check().map_err(|e| e.to_string()),
            Err("expected an MTU of 256 to 65535, got 60".to_owned())
        );
    }
}
