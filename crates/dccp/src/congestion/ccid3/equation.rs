//! The TCP throughput equation (RFC 5348 section 3.1) and the average loss interval (section 5.4).

/// Weights of the loss intervals, the newest first (RFC 5348 section 5.4).
pub const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Returns the rate in bytes per second of a TCP connection with packets of `size` bytes, a round-trip
/// time of `rtt` seconds and a loss event rate of `p`, above 0 and at most 1.
pub fn throughput(size: f64, rtt: f64, p: f64) -> f64 {
    let rto = 4.0 * rtt;
    let losses = rtt * (2.0 * p / 3.0).sqrt();
    let timeouts = rto * 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    size / (losses + timeouts)
}

/// Returns the loss event rate at which [`throughput`] is `rate`, within 1e-8 and 1.
pub fn loss_event_rate(size: f64, rtt: f64, rate: f64) -> f64 {
    let (mut low, mut high) = (1e-8f64, 1.0f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if throughput(size, rtt, middle) > rate {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low * high).sqrt()
}

/// Returns the average of loss intervals, the newest first, which is still open (RFC 5348 section 5.4).
/// `None` for fewer than two.
pub fn average_interval(lengths: &[f64]) -> Option<f64> {
    let closed = lengths.len().checked_sub(1).filter(|closed| *closed > 0)?.min(WEIGHTS.len());
    let mean = |lengths: &[f64]| {
        let total: f64 = lengths.iter().zip(WEIGHTS).map(|(length, weight)| length * weight).sum();
        total / WEIGHTS[..closed].iter().sum::<f64>()
    };
    // The open interval counts only where it lowers the loss event rate.
    Some(mean(&lengths[..closed]).max(mean(&lengths[1..=closed])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 5348 section 3.1: for small `p` the rate is about `s * sqrt(3/2) / (R * sqrt(p))`.
    #[test]
    fn a_small_loss_event_rate_follows_the_square_root() {
        let rate = throughput(1000.0, 0.1, 1e-6);
        assert!((rate / 12_247_448.0 - 1.0).abs() < 0.01, "{rate}");
        assert!(throughput(1000.0, 0.1, 1.0) < 1000.0);
    }

    /// RFC 5348 section 5.4: a long open interval counts, a short one does not.
    #[test]
    fn the_open_interval_only_helps() {
        let closed = [100.0; 8];
        let with = |open: f64| {
            let list: Vec<f64> = [open].into_iter().chain(closed).collect();
            average_interval(&list)
        };
        assert_eq!(with(3.0), Some(100.0));
        assert!(with(1000.0).is_some_and(|mean| mean > 200.0));
        assert_eq!(average_interval(&[5.0]), None);
        assert_eq!(average_interval(&[5.0, 9.0]), Some(9.0));
    }

    proptest! {
        #[test]
        fn the_inverse_finds_the_rate(p in 1e-6f64..0.9, rtt in 0.001f64..2.0) {
            let rate = throughput(1200.0, rtt, p);
            let found = loss_event_rate(1200.0, rtt, rate);
            prop_assert!((found / p - 1.0).abs() < 0.001, "{} {}", found, p);
        }
    }
}
