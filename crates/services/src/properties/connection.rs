//! Connection properties (RFC 9622 section 8).

use super::value::{Coverage, Limit, Timeout, words};
use core::time::Duration;

words! {
    /// How connections of one group share its capacity (RFC 9622 section 8.1.5, RFC 8260 section 3).
    #[derive(Default)]
    Scheduler, "firstComeFirstServed, roundRobin, priority, fairBandwidth or weightedFairQueueing" {
        /// Messages go in the order in which they were sent (RFC 8260 section 3.1).
        FirstComeFirstServed = "firstComeFirstServed",
        /// Connections take turns, a message each (section 3.2).
        RoundRobin = "roundRobin",
        /// A connection of lower priority waits until the others have nothing to send (section 3.4).
        Priority = "priority",
        /// Connections send as many octets each (section 3.5).
        FairBandwidth = "fairBandwidth",
        /// As fair bandwidth, in shares by the priority of the connection (section 3.6).
        #[default]
        WeightedFairQueueing = "weightedFairQueueing",
    }
}

words! {
    /// What delay and capacity are traded by (RFC 9622 section 8.1.6).
    #[derive(Default)]
    CapacityProfile, "default, scavenger, lowLatencyInteractive, lowLatencyNonInteractive, constantRateStreaming or capacitySeeking" {
        /// Nothing is known.
        #[default]
        Default = "default",
        /// Not urgent at all.
        Scavenger = "scavenger",
        /// A person waits for the answer; loss is better than delay.
        LowLatencyInteractive = "lowLatencyInteractive",
        /// Loss is better than delay.
        LowLatencyNonInteractive = "lowLatencyNonInteractive",
        /// A steady rate.
        ConstantRateStreaming = "constantRateStreaming",
        /// As much as there is, for long.
        CapacitySeeking = "capacitySeeking",
    }
}

impl CapacityProfile {
    /// Returns the differentiated services code point for it (RFC 9622 section 8.1.6).
    pub const fn dscp(self) -> u8 {
        match self {
            CapacityProfile::Default => 0,
            CapacityProfile::Scavenger => 1,
            CapacityProfile::LowLatencyInteractive => 34,
            CapacityProfile::LowLatencyNonInteractive => 18,
            CapacityProfile::ConstantRateStreaming => 26,
            CapacityProfile::CapacitySeeking => 10,
        }
    }

    /// Returns whether small messages must not wait for others (Nagle's algorithm is off).
    pub const fn is_low_latency(self) -> bool {
        matches!(
            self,
            CapacityProfile::LowLatencyInteractive | CapacityProfile::LowLatencyNonInteractive
        )
    }
}

words! {
    /// What several paths are used for (RFC 9622 section 8.1.7).
    #[derive(Default)]
    MultipathPolicy, "handover, interactive or aggregate" {
        /// Another path when one fails.
        #[default]
        Handover = "handover",
        /// The path with the least delay.
        Interactive = "interactive",
        /// All paths at once.
        Aggregate = "aggregate",
    }
}

/// Properties of a connection that a program may change at any time (RFC 9622 section 8.1 and 8.2).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionProperties {
    /// Octets of a received message that a checksum must cover.
    pub recv_checksum_len: Coverage,
    /// Priority among the connections of a group; a lower number goes first.
    pub conn_priority: u32,
    /// Time without progress of reliable data after which the connection has failed.
    pub conn_timeout: Timeout,
    /// Time without packets after which one is sent to keep the connection.
    pub keep_alive_timeout: Timeout,
    /// How the group's capacity is shared.
    pub conn_scheduler: Scheduler,
    /// What delay and capacity are traded by.
    pub conn_capacity_profile: CapacityProfile,
    /// What several paths are used for.
    pub multipath_policy: MultipathPolicy,
    /// Bits per second below which sending is of no use.
    pub min_send_rate: Limit,
    /// Bits per second below which receiving is of no use.
    pub min_recv_rate: Limit,
    /// Maximum number of bits sent in a second.
    pub max_send_rate: Limit,
    /// Maximum number of bits received in a second.
    pub max_recv_rate: Limit,
    /// Number of connections that the peer may add to the group.
    pub group_conn_limit: Limit,
    /// Whether nothing remembered of other groups is used, and no transport connection shared with them.
    pub isolate_session: bool,
    /// The timeout that TCP advertises to the peer (RFC 5482); the default is TCP's.
    pub tcp_user_timeout_value: Timeout,
    /// Whether TCP uses its User Timeout Option.
    pub tcp_user_timeout_enabled: bool,
    /// Whether the peer's option may change `connTimeout`.
    pub tcp_user_timeout_changeable: bool,
}

/// The priority of connections and messages that state none (RFC 9622 sections 8.1.2 and 9.1.3.2).
pub const DEFAULT_PRIORITY: u32 = 100;

impl Default for ConnectionProperties {
    fn default() -> Self {
        ConnectionProperties {
            recv_checksum_len: Coverage(None),
            conn_priority: DEFAULT_PRIORITY,
            conn_timeout: Timeout(None),
            keep_alive_timeout: Timeout(None),
            conn_scheduler: Scheduler::default(),
            conn_capacity_profile: CapacityProfile::default(),
            multipath_policy: MultipathPolicy::default(),
            min_send_rate: Limit(None),
            min_recv_rate: Limit(None),
            max_send_rate: Limit(None),
            max_recv_rate: Limit(None),
            group_conn_limit: Limit(None),
            isolate_session: false,
            tcp_user_timeout_value: Timeout(None),
            tcp_user_timeout_enabled: false,
            tcp_user_timeout_changeable: true,
        }
    }
}

impl ConnectionProperties {
    /// Returns the idle time after which a keep-alive packet is sent; `None` for never (RFC 9622 section 8.1.4).
    pub fn keep_alive(&self) -> Option<Duration> {
        let keep_alive = self.keep_alive_timeout.0?;
        self.conn_timeout.0.is_none_or(|timeout| keep_alive <= timeout).then_some(keep_alive)
    }
}

words! {
    /// The state of a connection (RFC 9622 section 8.1.11.1).
    ConnectionState, "establishing, established, closing or closed" {
        /// Its attempts race.
        Establishing = "establishing",
        /// It carries data.
        Established = "established",
        /// It is being closed.
        Closing = "closing",
        /// It has ended.
        Closed = "closed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9622 section 8.1.4: a keep-alive later than the timeout is none.
    #[test]
    fn a_keep_alive_after_the_timeout_is_disabled() {
        let seconds = |s| Timeout(Some(Duration::from_secs(s)));
        let mut properties =
            ConnectionProperties { keep_alive_timeout: seconds(20), ..Default::default() };
        assert_eq!(properties.keep_alive(), Some(Duration::from_secs(20)));
        properties.conn_timeout = seconds(10);
        assert_eq!(properties.keep_alive(), None);
    }

    /// RFC 9622 section 8.1.6; the numbers are those of RFC 2474, 2597 and 8622.
    #[test]
    fn capacity_profiles_have_code_points() {
        let points: Vec<u8> = CapacityProfile::ALL.iter().map(|profile| profile.dscp()).collect();
        assert_eq!(points, [0, 1, 34, 18, 26, 10]);
        assert!(CapacityProfile::LowLatencyInteractive.is_low_latency());
    }
}
