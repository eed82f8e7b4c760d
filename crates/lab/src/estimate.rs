//! The estimate of one figure over replications: its value, and the interval for its kind.
//!
//! A mean has Student's t interval over the replications. A ratio of packets is that of all packets
//! of all replications. It has Wilson's interval, for the number of independent packets that the
//! spread between replications implies. A percentile is the mean of the replications' own
//! percentiles, with Student's t interval, because only one number per replication is stored.
//! Replications with equal values have no interval; a table marks them with [`EQUAL`].

use crate::run::{Kind, kind};
use ringway_figures::statistics::{self, Estimate, mean, ratio_of_replications};

/// Suffix of a value that is equal in all replications.
pub(crate) const EQUAL: &str = " =";

/// Estimates a measure from its values in the replications, or from the counts it is computed from.
/// `of` returns a value by replication and name. Returns `None` if no replication has the measure.
pub(crate) fn estimate(
    measure: &str,
    replications: usize,
    of: impl Fn(usize, &str) -> Option<f64>,
) -> Option<Estimate> {
    let sample = || (0..replications).filter_map(|r| of(r, measure)).collect::<Vec<f64>>();
    let found = match kind(measure) {
        Kind::Mean | Kind::Percentile => mean(&sample()),
        Kind::Ratio(part, rest) => {
            let count = |r: usize, name: &str| of(r, name).map(|value| value as u64);
            let counts = |r: usize| {
                let part = count(r, part)?;
                Some((part, part.saturating_add(count(r, rest)?)))
            };
            ratio_of_replications(&(0..replications).filter_map(counts).collect::<Vec<_>>())
        }
    };
    found.ok()
}

/// Returns a note on how many runs an estimate is based on, if some have no value: a file that was
/// never complete has no completion time, and those that were complete are the faster ones.
pub(crate) fn runs_note(estimate: Option<Estimate>, runs: usize) -> String {
    match estimate {
        Some(e) if e.n < runs => format!(" ({} of {runs} runs)", e.n),
        _ => String::new(),
    }
}

/// Returns whether an interval is shown as a half-width: only Student's is symmetric.
pub(crate) fn is_even(kind: statistics::Kind) -> bool {
    matches!(kind, statistics::Kind::StudentT | statistics::Kind::PairedT)
}

/// Returns the part of a caption that explains the kinds of intervals in a table, and the mark of
/// equal values. The input is each estimate with the head of its column. Returns nothing if there
/// is neither.
pub(crate) fn kinds<'a>(
    shown: impl IntoIterator<Item = (&'a str, Option<Estimate>)>,
) -> Option<String> {
    let mut named: Vec<(String, statistics::Kind, Vec<&str>)> = Vec::new();
    let mut shows_equal = false;
    for (head, estimate) in shown {
        shows_equal |= estimate.is_some_and(|e| e.equal);
        let Some(interval) = estimate.and_then(|e| e.interval) else { continue };
        match named.iter_mut().find(|n| n.1 == interval.kind) {
            Some(known) if known.2.contains(&head) => {}
            Some(known) => known.2.push(head),
            None => named.push((interval.to_string(), interval.kind, vec![head])),
        }
    }
    let words = named.iter().map(|(name, kind, heads)| match is_even(*kind) {
        true => format!("mean ± half of the {name} interval"),
        false => format!("[low, high] of the {name} interval for {}", heads.join(", ")),
    });
    let mut words: Vec<String> = words.collect();
    if shows_equal {
        words.push("= the same in all replications".into());
    }
    (!words.is_empty()).then(|| words.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(r: usize, name: &str) -> Option<f64> {
        Some(match name {
            "dropped" => 10.0 + 5.0 * r as f64,
            "delivered" => 90.0,
            "loss_ratio" => unreachable!("a ratio is that of its counts"),
            "delay_p99" => [0.1, 0.2, 0.1, 0.4][r],
            "completion" => return [Some(1.0), None, Some(3.0), None][r],
            _ => return None,
        })
    }

    /// Each kind of measure has its kind of interval.
    #[test]
    fn each_measure_has_its_kind_of_interval() {
        let loss = estimate("loss_ratio", 4, of).unwrap();
        assert!((loss.value - 70.0 / 430.0).abs() < 1e-12);
        let p99 = estimate("delay_p99", 4, of).unwrap();
        assert!((p99.value - 0.2).abs() < 1e-12);
        let completion = estimate("completion", 4, of).unwrap();
        assert_eq!((completion.value, completion.n), (2.0, 2));
        assert_eq!(runs_note(Some(completion), 4), " (2 of 4 runs)");
        assert_eq!(runs_note(Some(p99), 4), "");
        let kind = |e: Estimate| e.interval.unwrap().to_string();
        assert_eq!(kind(loss), "95 % Wilson");
        assert_eq!(kind(p99), "95 % Student t");
        assert_eq!(kind(completion), "95 % Student t");
        assert_eq!(estimate("goodput", 4, of), None);
        let one = estimate("loss_ratio", 1, of).unwrap();
        assert_eq!((one.value, one.interval), (0.1, None));
        let caption = kinds([("loss", Some(loss)), ("p99", Some(p99)), ("t", Some(completion))]);
        assert_eq!(
            caption.unwrap(),
            "[low, high] of the 95 % Wilson interval for loss; \
             mean ± half of the 95 % Student t interval"
        );
        assert_eq!(kinds([("loss", Some(one))]), None);
        let equal = estimate("dropped", 4, |_, _| Some(3.0)).unwrap();
        assert!(equal.equal && equal.interval.is_none());
        let caption = kinds([("t", Some(completion)), ("dropped", Some(equal))]).unwrap();
        assert_eq!(
            caption,
            "mean ± half of the 95 % Student t interval; = the same in all replications"
        );
    }
}
