//! The counters of a worker for the operator. The world publishes them.

use ringway_sansio::Duration;

/// Upper bounds of the delay histograms, in microseconds.
pub const DELAY_BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

/// A histogram of delays over [`DELAY_BOUNDS_US`], with one more bucket for what lies above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// The number of delays in each bucket (not cumulative).
    pub buckets: [u64; DELAY_BOUNDS_US.len() + 1],
    /// The sum of the delays, in microseconds.
    pub sum_us: u64,
}

impl Delays {
    /// Counts one delay.
    pub fn add(&mut self, delay: Duration) {
        let us = delay.as_micros() as u64;
        self.buckets[DELAY_BOUNDS_US.partition_point(|&b| b < us)] += 1;
        self.sum_us += us;
    }

    /// Returns the number of delays.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Counters since the worker started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests received.
    pub requests: u64,
    /// Responses received.
    pub responses: u64,
    /// Bytes that were not a SIP message, or were one that cannot be answered.
    pub garbage: u64,
    /// Requests answered with 400 or a similar status because of their form.
    pub malformed: u64,
    /// Requests answered with 401 or 407.
    pub challenged: u64,
    /// Credentials that were wrong.
    pub auth_failed: u64,
    /// Requests whose credentials were not checked, because there were too many wrong ones.
    pub backed_off: u64,
    /// Requests answered with 403.
    pub forbidden: u64,
    /// Requests dropped because their source sends too many.
    pub rate_limited: u64,
    /// Requests answered with 503 because of overload.
    pub overloaded: u64,
    /// Requests that loop (482 and 483).
    pub looped: u64,
    /// REGISTER requests answered with 200.
    pub registers_ok: u64,
    /// REGISTER requests answered otherwise, challenges excluded.
    pub registers_failed: u64,
    /// INVITE requests outside a dialog that were accepted (RFC 6076: session attempts).
    pub sessions: u64,
    /// Of these, answered with 2xx (RFC 6076 section 4.6: session establishment ratio).
    pub sessions_established: u64,
    /// Of these, answered with 3xx: excluded from the ratio (RFC 6076 section 4.6).
    pub sessions_redirected: u64,
    /// Of these, answered with 480, 486, 600 or 603: effective but not established (RFC 6076
    /// section 4.7: session establishment effectiveness ratio).
    pub sessions_refused: u64,
    /// Of these, failed with 408, 500, 503 or 504 (RFC 6076 section 4.8: ineffective attempts).
    pub sessions_ineffective: u64,
    /// Requests forwarded, retransmissions excluded.
    pub forwarded: u64,
    /// Responses that belong to no transaction, dropped (RFC 6026 section 8.8).
    pub stray_responses: u64,
    /// Branches that timed out.
    pub timeouts: u64,
    /// Next hops that failed and were replaced by another.
    pub failovers: u64,
    /// Messages that belonged to another worker and were handed over.
    pub handed_over: u64,
    /// Responses not sent because they would have been several times as large as the datagram of the request.
    pub amplification_avoided: u64,
    /// Questions asked about users of other servers.
    pub asked: u64,
    /// Of these, not answered.
    pub unanswered: u64,
    /// Messages answered with 202, as they are kept for users who are away.
    pub kept: u64,
    /// The number of times that a bounded table was full.
    pub limits_hit: u64,
    /// Time from INVITE to the first 18x or 2xx sent back (RFC 6076 section 4.3: session request delay).
    pub session_request_delay: Delays,
    /// Time from REGISTER to its 200 (RFC 6076 section 4.1: registration request delay).
    pub registration_request_delay: Delays,
}

/// The present sizes of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Server transactions.
    pub server_transactions: usize,
    /// Client transactions.
    pub client_transactions: usize,
    /// Response contexts (RFC 3261 section 16.2).
    pub contexts: usize,
    /// Registrations that wait for the store.
    pub pending_commits: usize,
    /// Branches that wait for server location.
    pub resolving: usize,
    /// Requests that wait for an answer about users of other servers.
    pub parked: usize,
    /// Octets of requests stored until they are answered.
    pub kept_octets: usize,
    /// Event subscriptions.
    pub subscriptions: usize,
    /// Sources whose rate is limited separately.
    pub sources: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_fall_into_their_buckets() {
        let mut d = Delays::default();
        d.add(Duration::from_micros(100));
        d.add(Duration::from_micros(101));
        d.add(Duration::from_secs(60));
        assert_eq!((d.buckets[0], d.buckets[1], d.buckets[16]), (1, 1, 1));
        assert_eq!((d.count(), d.sum_us), (3, 60_000_201));
    }
}
