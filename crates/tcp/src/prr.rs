//! Proportional rate reduction (RFC 6937), with the slow-start reduction bound.

/// The state of RFC 6937 section 3, in bytes, for one recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// `RecoverFS`: flight size when recovery began.
    recover_fs: u32,
    prr_delivered: u64,
    prr_out: u64,
}

impl Prr {
    pub(crate) fn new(flight: u32) -> Self {
        Prr { recover_fs: flight.max(1), prr_delivered: 0, prr_out: 0 }
    }

    /// Notes that data was sent during recovery.
    pub(crate) fn sent(&mut self, bytes: u32) {
        self.prr_out += u64::from(bytes);
    }

    /// Returns the number of bytes that may be sent after an acknowledgment of `delivered` bytes.
    pub(crate) fn allow(&mut self, delivered: u32, pipe: u32, ssthresh: u32, mss: u32) -> u32 {
        self.prr_delivered += u64::from(delivered);
        let allowed = if pipe > ssthresh {
            let share = self.prr_delivered * u64::from(ssthresh);
            share.div_ceil(u64::from(self.recover_fs)).saturating_sub(self.prr_out)
        } else {
            // PRR-SSRB.
            let limit = self.prr_delivered.saturating_sub(self.prr_out).max(u64::from(delivered))
                + u64::from(mss);
            limit.min(u64::from(ssthresh - pipe))
        };
        allowed.min(u64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6937 section 3: while pipe is above ssthresh, what is sent is the same share of what is
    /// delivered as ssthresh is of the flight.
    #[test]
    fn sends_in_proportion() {
        let mut prr = Prr::new(20_000);
        let mut out = 0;
        for _ in 0..8 {
            let allowed = prr.allow(1000, 15_000, 10_000, 1000);
            out += allowed;
            prr.sent(allowed);
        }
        assert_eq!(out, 4000);
    }

    /// RFC 6937 section 3: below ssthresh it grows by at most one segment more than is delivered.
    #[test]
    fn the_bound_is_slow_start() {
        let mut prr = Prr::new(20_000);
        assert_eq!(prr.allow(1000, 4000, 10_000, 1000), 2000);
        prr.sent(2000);
        assert_eq!(prr.allow(1000, 5000, 10_000, 1000), 2000);
        prr.sent(2000);
        assert_eq!(prr.allow(1000, 9500, 10_000, 1000), 500);
    }
}
