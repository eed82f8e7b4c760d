//! What can be chosen: how a connection behaves, and how much a host holds.

use crate::congestion::{Congestion, Cubic, NewReno};
use ringway_sansio::Duration;

/// Smallest MTU accepted: one byte of data must fit beside the longest headers.
pub const MIN_MTU: u16 = 128;
/// Largest buffer accepted in either direction, in bytes: the largest window that RFC 7323
/// section 2.3 can tell.
pub const MAX_BUFFER: usize = 1 << 30;
/// Smallest buffer accepted in either direction, in bytes.
pub const MIN_BUFFER: usize = 2048;
/// RFC 9293 section 3.8.6.3: an acknowledgment may not wait longer than this.
pub const MAX_DELAYED_ACK: Duration = Duration::from_millis(500);

/// How congestion is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
}

impl Algorithm {
    /// A controller of this kind.
    pub(crate) fn make(self) -> Box<dyn Congestion> {
        match self {
            Algorithm::NewReno => Box::new(NewReno::default()),
            Algorithm::Cubic => Box::new(Cubic::default()),
        }
    }
}

/// How loss is noticed when the peer sends SACK blocks. Without them it is always NewReno's three
/// duplicate acknowledgments (RFC 6582).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Detection {
    /// By time, with tail loss probes (RFC 8985).
    #[default]
    RackTlp,
    /// By counting what arrived above (RFC 6675).
    Sack,
}

/// Keep-alive (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepAlive {
    /// Silence before the first probe. RFC 9293 asks for a default of two hours or more.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer until the connection is given up.
    pub probes: u32,
}

impl Default for KeepAlive {
    fn default() -> Self {
        KeepAlive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// How a connection behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Largest IP packet in bytes; what is sent and the MSS option follow from it.
    pub mtu: u16,
    /// Most bytes written and not acknowledged. Memory is taken as needed.
    pub send_buffer: usize,
    /// Most bytes received and not read; also the largest window. Memory is taken as needed.
    pub receive_buffer: usize,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Loss detection.
    pub detection: Detection,
    /// Offer and take selective acknowledgments (RFC 2018).
    pub sack: bool,
    /// Offer and take timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Offer and take window scaling (RFC 7323 section 2).
    pub window_scaling: bool,
    /// Offer and take explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Hold small segments back while data is in flight (Nagle, RFC 9293 section 3.7.4).
    pub nagle: bool,
    /// How long an acknowledgment may wait for a second segment; zero sends each at once.
    pub delayed_ack: Duration,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// Least retransmission timeout (RFC 6298 section 2.4 asks for one second).
    pub min_rto: Duration,
    /// Largest retransmission timeout, at least 60 s by RFC 6298 section 2.5.
    pub max_rto: Duration,
    /// How long data may stay unacknowledged until the connection is given up.
    pub user_timeout: Duration,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// Keep-alive; off unless given.
    pub keep_alive: Option<KeepAlive>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mtu: 1500,
            send_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            algorithm: Algorithm::default(),
            detection: Detection::default(),
            sack: true,
            timestamps: true,
            window_scaling: true,
            ecn: false,
            nagle: true,
            delayed_ack: Duration::from_millis(40),
            initial_window: 10,
            min_rto: Duration::from_secs(1),
            max_rto: Duration::from_secs(60),
            user_timeout: Duration::from_secs(300),
            handshake_timeout: Duration::from_secs(180),
            keep_alive: None,
        }
    }
}

/// How much the TCP of a host holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections, however far they are.
    pub connections: usize,
    /// Handshakes under way on one listener; more SYNs are dropped.
    pub half_open: usize,
    /// 4-tuples in TIME-WAIT; the oldest make room.
    pub time_wait: usize,
    /// How long a 4-tuple stays in TIME-WAIT: twice the maximum segment lifetime (RFC 9293
    /// section 3.4.2).
    pub time_wait_for: Duration,
    /// Listeners.
    pub listeners: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 65_536,
            half_open: 256,
            time_wait: 32_768,
            time_wait_for: Duration::from_secs(240),
            listeners: 1024,
        }
    }
}

/// Why a call was refused. All are the caller's doing or the state of things; none is a fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection is gone, or never was.
    #[error("no connection has this id")]
    NoConnection,
    /// The listener is gone, or never was.
    #[error("no listener has this id")]
    NoListener,
    /// What is called for cannot be done in this state, such as writing after `shutdown`.
    #[error("the connection is closing and accepts no more data")]
    Closing,
    /// A limit is reached.
    #[error("the limit of {limit} {what} is reached")]
    Full {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The address or the pair of addresses is in use.
    #[error("the address and port are already in use")]
    InUse,
    /// No port is left for this pair of addresses.
    #[error("no ephemeral port is free")]
    NoPort,
    /// Addresses that cannot be used together or at all.
    #[error("expected two unicast addresses of one family and a remote port, got others")]
    Address,
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

impl Settings {
    /// Whether every value is within its bounds.
    pub fn check(&self) -> Result<(), Error> {
        let ms = |d: Duration| d.as_millis().min(u128::from(u64::MAX)) as u64;
        let (min, max) = (MIN_BUFFER as u64, MAX_BUFFER as u64);
        let keep_alive = self.keep_alive.unwrap_or_default();
        for (what, low, high, got) in [
            ("an MTU", u64::from(MIN_MTU), u64::from(u16::MAX), u64::from(self.mtu)),
            ("a send buffer", min, max, self.send_buffer as u64),
            ("a receive buffer", min, max, self.receive_buffer as u64),
            ("an acknowledgment delay in ms", 0, ms(MAX_DELAYED_ACK), ms(self.delayed_ack)),
            ("an initial window", 1, 1024, u64::from(self.initial_window)),
            ("a minimum RTO in ms", 1, ms(self.max_rto), ms(self.min_rto)),
            ("a maximum RTO in ms", 1, 1 << 32, ms(self.max_rto)),
            ("a user timeout in ms", 1, 1 << 40, ms(self.user_timeout)),
            ("a handshake timeout in ms", 1, 1 << 40, ms(self.handshake_timeout)),
            ("a keep-alive interval in ms", 1, 1 << 40, ms(keep_alive.interval)),
            ("a keep-alive idle time in ms", 1, 1 << 40, ms(keep_alive.idle)),
        ] {
            if !(low..=high).contains(&got) {
                return Err(Error::Setting { what, low, high, got });
            }
        }
        Ok(())
    }
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
            Err("expected an MTU of 128 to 65535, got 60".to_owned())
        );
    }
}
