//! Statistics against published values, closed forms and their own promises.

use proptest::prelude::*;

use super::*;
use crate::seed::Seed;

fn near(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "expected {expected}, got {got}");
}

/// Numbers between 0 and 1.
fn uniform(seed: &mut Seed) -> f64 {
    (seed.below(1 << 53) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Fisher and Yates, table III, to the digits that newer tables print.
#[test]
fn student_quantiles_are_those_of_the_tables() {
    let table = [
        (0.975, 1.0, 12.706_205),
        (0.975, 2.0, 4.302_653),
        (0.975, 3.0, 3.182_446),
        (0.975, 4.0, 2.776_445),
        (0.975, 5.0, 2.570_582),
        (0.975, 9.0, 2.262_157),
        (0.975, 10.0, 2.228_139),
        (0.975, 20.0, 2.085_963),
        (0.975, 30.0, 2.042_272),
        (0.975, 60.0, 2.000_298),
        (0.975, 100.0, 1.983_972),
        (0.975, 1_000.0, 1.962_339),
        (0.995, 1.0, 63.656_741),
        (0.995, 2.0, 9.924_843),
        (0.995, 3.0, 5.840_909),
        (0.995, 10.0, 3.169_273),
        (0.995, 30.0, 2.749_996),
        (0.95, 1.0, 6.313_752),
        (0.95, 2.0, 2.919_986),
        (0.95, 10.0, 1.812_461),
        (0.95, 30.0, 1.697_261),
    ];
    for (p, degrees, expected) in table {
        near(student_quantile(p, degrees).unwrap(), expected, 6e-7);
        near(student_quantile(1.0 - p, degrees).unwrap(), -expected, 6e-7);
    }
}

/// For 1, 2 and 4 degrees of freedom the quantile has a closed form (Shaw 2006).
#[test]
fn student_quantiles_agree_with_closed_forms() {
    for p in [0.5, 0.6, 0.75, 0.9, 0.975, 0.995, 0.9999] {
        let cauchy = (std::f64::consts::PI * (p - 0.5)).tan();
        near(student_quantile(p, 1.0).unwrap(), cauchy, 1e-9 * cauchy.max(1.0));
        let a = 4.0 * p * (1.0 - p);
        let two = 2.0 * (p - 0.5) * (2.0 / a).sqrt();
        near(student_quantile(p, 2.0).unwrap(), two, 1e-9 * two.max(1.0));
        let q = (a.sqrt().acos() / 3.0).cos() / a.sqrt();
        let four = 2.0 * (q - 1.0).max(0.0).sqrt();
        near(student_quantile(p, 4.0).unwrap(), four, 1e-7 * four.max(1.0));
    }
}

#[test]
fn student_quantiles_run_on_into_the_normal_one() {
    for p in [0.9, 0.975, 0.995, 0.9995] {
        // The two ways of computing meet without a step.
        let (below, above) = (student_quantile(p, 2_000.0), student_quantile(p, 2_000.000_001));
        near(below.unwrap(), above.unwrap(), 1e-9);
        near(student_quantile(p, 1e12).unwrap(), normal_quantile(p).unwrap(), 1e-9);
    }
    near(normal_quantile(0.975).unwrap(), 1.959_963_984_540_054, 1e-12);
    for p in [0.0, 1.0, -1.0, f64::NAN] {
        assert!(matches!(student_quantile(p, 3.0), Err(SampleError::NotAProbability(_))));
        assert!(normal_quantile(p).is_err());
    }
}

/// The tail beyond a quantile is the one asked for, by the distribution function of the library.
#[test]
fn student_quantiles_leave_the_tail_that_was_asked_for() {
    use statrs::distribution::{ContinuousCDF, StudentsT};
    for degrees in [1.0, 1.5, 2.0, 3.0, 7.0, 29.0, 150.0, 999.0, 2_000.0, 3_000.0, 50_000.0] {
        let student = StudentsT::new(0.0, 1.0, degrees).unwrap();
        for tail in [0.4, 0.1, 0.025, 1e-3, 1e-5, 1e-7] {
            let t = -student_quantile(tail, degrees).unwrap();
            near(student.sf(t) / tail, 1.0, 1e-6);
        }
    }
}

#[test]
fn a_mean_has_its_student_interval() {
    let estimate = mean(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
    assert_eq!((estimate.value, estimate.n), (5.0, 8));
    let interval = estimate.interval.unwrap();
    // s = sqrt(32 / 7), t(0.975, 7) = 2.364624
    near(interval.half_width(), 2.364_624 * (32.0f64 / 7.0).sqrt() / 8f64.sqrt(), 1e-6);
    assert_eq!(interval.to_string(), "95 % Student t");
    assert!(interval.contains(5.0) && !interval.contains(7.0));
}

#[test]
fn samples_without_a_statistic_say_why() {
    assert_eq!(mean(&[]), Err(SampleError::Empty));
    assert_eq!(mean(&[3.0]).unwrap(), Estimate { value: 3.0, n: 1, interval: None, equal: false });
    let error = mean(&[1.0, f64::NAN, 2.0]).unwrap_err();
    assert_eq!(error.to_string(), "expected finite observations, got NaN at position 1");
    assert!(mean(&[1.0, f64::INFINITY]).is_err());
    assert_eq!(paired(&[1.0], &[1.0, 2.0]), Err(SampleError::Unpaired { left: 1, right: 2 }));
    assert!(paired(&[f64::MAX, 0.0], &[f64::MIN, 0.0]).is_err());
    assert_eq!(ratio(0, 0), Err(SampleError::Empty));
    let error = ratio(3, 2).unwrap_err();
    assert_eq!(error.to_string(), "expected at most 2 successes, got 3");
    assert_eq!(percentile(&[], 0.5), Err(SampleError::Empty));
    assert_eq!(percentile(&[1.0], 1.0), Err(SampleError::NotAProbability(1.0)));
    assert_eq!(percentile(&[1.0], 0.5).unwrap().interval, None);
    let none: [Vec<f64>; 0] = [];
    assert_eq!(percentile_of_replications(&none, 0.5), Err(SampleError::Empty));
    assert!(percentile_of_replications(&[vec![1.0], vec![]], 0.5).is_err());
    assert_eq!(percentile_of_replications(&[vec![1.0, 2.0]], 0.5).unwrap().interval, None);
}

#[test]
fn pairs_that_met_the_same_numbers_tell_apart_what_means_do_not() {
    let left: Vec<f64> = (0..10).map(|i| f64::from(i) + 0.5).collect();
    let right: Vec<f64> = (0..10).map(|i| f64::from(i) + 0.01 * f64::from(i % 3)).collect();
    let difference = paired(&left, &right).unwrap();
    assert!(difference.interval.unwrap().low > 0.4);
    assert_eq!(difference.interval.unwrap().kind, Kind::PairedT);
    let (a, b) = (mean(&left).unwrap().interval.unwrap(), mean(&right).unwrap().interval.unwrap());
    assert!(a.low < b.high, "the means' own intervals overlap");
}

/// Newcombe (1998), table I, method 3: Wilson's score without correction.
#[test]
fn ratios_have_the_published_wilson_intervals() {
    let published = [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ];
    for (successes, trials, low, high) in published {
        let interval = ratio(successes, trials).unwrap().interval.unwrap();
        near(interval.low, low, 5e-5);
        near(interval.high, high, 5e-5);
        let mirrored = ratio(trials - successes, trials).unwrap().interval.unwrap();
        near(mirrored.high, 1.0 - low, 5e-5);
    }
    let all = ratio(20, 20).unwrap();
    assert_eq!((all.value, all.interval.unwrap().high), (1.0, 1.0));
}

#[test]
fn a_percentile_is_an_observation() {
    let sample: Vec<f64> = (1..=100).rev().map(f64::from).collect();
    for (p, expected) in [(0.01, 1.0), (0.07, 7.0), (0.5, 50.0), (0.501, 51.0), (0.95, 95.0)] {
        assert_eq!(percentile(&sample, p).unwrap().value, expected, "{p}");
    }
}

/// A draw whose mean is 0.
type Shape = fn(&mut Seed) -> f64;

/// Draws, and the least coverage that was measured of the interval of 2 to 30 of them, in per cent.
const SHAPES: [(&str, Shape, f64); 3] = [
    ("normal", |seed| (0..12).map(|_| uniform(seed)).sum::<f64>() - 6.0, 94.0),
    ("exponential", |seed| -uniform(seed).ln() - 1.0, 88.0),
    // The 198th of 200: the sum of exponential gaps, of which the k-th largest has the mean 1/k.
    ("p99", |seed| (3..=200).map(|k| (-uniform(seed).ln() - 1.0) / f64::from(k)).sum(), 94.0),
];

/// Of so many means of replications, how many intervals hold the true one.
fn held(shape: Shape, n: usize, of: usize) -> usize {
    let mut seed = Seed::new(29 + n as u64);
    let covers = |_: &usize| {
        let sample: Vec<f64> = (0..n).map(|_| shape(&mut seed)).collect();
        mean(&sample).unwrap().interval.is_some_and(|i| i.contains(0.0))
    };
    (0..of).filter(covers).count()
}

/// Few replications: the interval of a mean, which percentiles of replications have too, holds the
/// truth about as often as it says.
#[test]
fn a_mean_of_few_replications_is_covered() {
    for (name, shape, least) in SHAPES {
        let covered = [2, 3, 5, 10, 20, 30].map(|n| held(shape, n, 4_000) as f64 / 40.0);
        assert!(covered.iter().all(|c| (least..=96.0).contains(c)), "{name} {covered:?}");
    }
}

/// The rank interval holds a quantile at least as often as it says, and is none where it cannot.
#[test]
fn a_percentile_of_independent_observations_is_covered() {
    let mut seed = Seed::new(11);
    for (n, p) in [(6, 0.5), (10, 0.5), (60, 0.5), (40, 0.9), (400, 0.99)] {
        let covered = (0..2_000)
            .filter(|_| {
                let sample: Vec<f64> = (0..n).map(|_| uniform(&mut seed)).collect();
                percentile(&sample, p).unwrap().interval.unwrap().contains(p)
            })
            .count() as f64
            / 20.0;
        assert!((94.0..=99.5).contains(&covered), "{n} {p} {covered}");
    }
    let five = [1.0, 2.0, 3.0, 4.0, 5.0];
    assert_eq!(percentile(&five, 0.5).unwrap().interval, None);
    assert!(!percentile(&five, 0.5).unwrap().equal && percentile(&[1.0; 5], 0.5).unwrap().equal);
}

/// Woodruff's interval over replications that each have a level of their own, few or many.
#[test]
fn a_percentile_of_few_replications_is_covered() {
    // Observations are exponential around the level of their replication: the true quantile is found
    // from very many.
    let replication = |seed: &mut Seed, spread: f64| -> Vec<f64> {
        let level = 1.0 + spread * (-uniform(seed).ln() - 1.0);
        (0..200).map(|_| level * -uniform(seed).ln()).collect()
    };
    let least = [[94.0, 94.0, 95.0], [94.0, 90.0, 84.0]];
    for (spread, least) in [0.0, 0.2].into_iter().zip(least) {
        for (p, least) in [0.5, 0.9, 0.99].into_iter().zip(least) {
            let mut seed = Seed::new(3);
            let all: Vec<f64> = (0..4_000).flat_map(|_| replication(&mut seed, spread)).collect();
            let truth = percentile(&all, p).unwrap().value;
            let covered = [2, 3, 5, 10, 30].map(|n| {
                let covers = |_: &usize| {
                    let all: Vec<Vec<f64>> =
                        (0..n).map(|_| replication(&mut seed, spread)).collect();
                    let found = percentile_of_replications(&all, p).unwrap();
                    found.interval.unwrap().contains(truth)
                };
                (0..400).filter(covers).count() as f64 / 4.0
            });
            assert!(covered.iter().all(|c| *c >= least), "{spread} {p} {covered:?}");
        }
    }
}

#[test]
fn replications_that_differ_widen_the_interval_of_a_percentile() {
    // Each replication sits on a level of its own: a thousand observations, but only twelve levels.
    let mut seed = Seed::new(3);
    let replications: Vec<Vec<f64>> = (0..12)
        .map(|i| (0..1_000).map(|_| f64::from(i) + 0.1 * uniform(&mut seed)).collect())
        .collect();
    let whole: Vec<f64> = replications.iter().flatten().copied().collect();
    let clustered = percentile_of_replications(&replications, 0.5).unwrap();
    let naive = percentile(&whole, 0.5).unwrap();
    assert_eq!(clustered.value, naive.value);
    assert_eq!((clustered.n, naive.n), (12, 12_000));
    let (wide, narrow) = (clustered.interval.unwrap(), naive.interval.unwrap());
    assert!(wide.half_width() > 5.0 * narrow.half_width(), "{wide:?} {narrow:?}");
    let same = percentile_of_replications(&vec![replications[0].clone(); 9], 0.5).unwrap();
    assert_eq!((same.n, same.interval, same.equal), (9, None, true));
}

#[test]
fn a_cell_stops_at_ten_replications_within_five_per_cent() {
    let rule = StoppingRule::default();
    let narrow: Vec<f64> = (0..10).map(|i| 100.0 + f64::from(i % 3)).collect();
    assert!(!rule.met(&narrow[..9]));
    assert!(rule.met(&narrow));
    let wide: Vec<f64> = (0..10).map(|i| 100.0 + 40.0 * f64::from(i % 3)).collect();
    assert!(!rule.met(&wide));
    let needed = rule.needed(&wide).unwrap();
    assert!((100..200).contains(&needed), "{needed}");
    assert!(rule.met(&[0.0; 10]) && !rule.met(&[0.0; 9]), "more would be copies");
    assert_eq!(rule.needed(&[0.0; 3]), Some(10));
    let copies = mean(&[7.0; 10]).unwrap();
    assert_eq!((copies.value, copies.interval, copies.equal), (7.0, None, true));
    let rounded = mean(&[0.013, 0.013_000_000_000_000_001, 0.013]).unwrap();
    assert!(rounded.equal && paired(&[3.0; 5], &[2.0; 5]).unwrap().equal);
    let around_zero: Vec<f64> = (0..10).map(|i| f64::from(i) - 4.5).collect();
    assert!(!rule.met(&around_zero));
    assert!(rule.needed(&around_zero).unwrap() >= 1_000_000);
    let mut broken = narrow.clone();
    broken[3] = f64::NAN;
    assert!(!rule.met(&broken));
    assert_eq!(rule.needed(&broken), None);
    assert_eq!(rule.needed(&[1.0]), None);
    assert_eq!(rule.needed(&narrow), Some(10));
}

#[test]
fn an_interval_survives_a_large_mean() {
    let sample = [4.0, 7.0, 13.0, 16.0].map(|x| x + 1e9);
    let estimate = mean(&sample).unwrap();
    assert_eq!(estimate.value, 1e9 + 10.0);
    // The variance is 30, and t(0.975, 3) = 3.182446.
    near(estimate.interval.unwrap().half_width(), 3.182_446 * 7.5f64.sqrt(), 1e-5);
}

proptest! {
    #[test]
    fn a_ratio_lies_in_its_interval_and_the_interval_within_one(
        trials in 1u64..1_000_000, part in 0.0f64..=1.0,
    ) {
        let successes = (trials as f64 * part) as u64;
        let estimate = ratio(successes, trials).unwrap();
        let interval = estimate.interval.unwrap();
        prop_assert!(interval.contains(estimate.value));
        prop_assert!(interval.low >= 0.0 && interval.high <= 1.0 && interval.half_width() > 0.0);
    }

    #[test]
    fn a_percentile_lies_in_its_interval(
        sample in prop::collection::vec(-1e3f64..1e3, 2..300), p in 0.01f64..0.99, seed: u64,
    ) {
        let estimate = percentile(&sample, p).unwrap();
        prop_assert!(estimate.interval.is_none_or(|i| i.contains(estimate.value)));
        prop_assert!(sample.contains(&estimate.value));
        let halves: Vec<&[f64]> = sample.chunks(sample.len().div_ceil(3)).collect();
        let clustered = percentile_of_replications(&halves, p).unwrap();
        prop_assert_eq!(clustered.value, estimate.value);
        if let Some(interval) = clustered.interval {
            prop_assert!(interval.low <= interval.high);
        }
    }

    #[test]
    fn nothing_panics_whatever_the_sample(
        bits in prop::collection::vec(any::<u64>(), 0..40), p: f64, degrees: f64, seed: u64,
    ) {
        let sample: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        let _ = (mean(&sample), paired(&sample, &sample), percentile(&sample, p));
        let _ = percentile_of_replications(&[&sample[..], &sample[..]], p);
        let _ = student_quantile(p.abs().fract(), degrees);
        let _ = (StoppingRule::default().met(&sample), StoppingRule::default().needed(&sample));
    }
}
