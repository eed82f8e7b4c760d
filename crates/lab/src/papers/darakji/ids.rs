//! Tables 4 to 8, Figures 20 and 21: how evenly ids of routers share the keys of a hash table.
//!
//! A router is responsible for the keys from its own id up to the next router's. The paper's ids are MAC addresses,
//! which differ in their last octets only; its remedy is to reverse their octets. Ours are hashes of public keys.

use super::{Study, StudyResult};
use crate::output::{AxisSheet, ChartSheet, RingSheet, SeriesSheet, Style};
use crate::papers::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable};
use crate::run::RunError;
use rayon::prelude::*;
use ringway_figures::statistics::{Estimate, mean};
use ringway_link::Streams;
use ringway_link::random::Stream;
use ringway_mesh::identity::{KEY, MODIFIER, Search};
use ringway_mesh::{NodeId, Proof};
use ringway_sansio::Random;
use ringway_sim::Interrupt;

/// Table 4: MAC addresses of routers 1 to 3.
const MACS: [u64; 3] = [0x001c_1052_1dbf, 0x001c_1052_4456, 0x001c_1052_47b3];
/// Table 5: ten hashes.
const HASHES: [u64; 10] = [
    0x3c29_f07c_159d,
    0x5a36_2661_bcc9,
    0x6684_10e2_e917,
    0x9d9f_7b21_4fec,
    0x9da9_2295_8665,
    0xb2f3_fb21_2ee0,
    0xc60a_f26f_d113,
    0xcf78_98f6_0304,
    0xe14f_0022_25f8,
    0xeacf_8df7_b802,
];
/// The first four octets of all three addresses; the others are drawn for more routers.
const BATCH: u64 = 0x001c_1052_0000;
/// Addresses that differ in the last two octets only.
const BATCH_SIZE: u64 = 1 << 16;

/// Numbers of routers.
const ROUTERS: [usize; 8] = [3, 10, 30, 100, 300, 1_000, 3_000, 10_000];
/// From this number on, the spread is compared with its expectation.
const COMPARED_FROM: usize = 100;
/// Number of keys.
const KEYS: usize = 100_000;
/// Allowed ratio of a mean to its expectation, less 1.
const ALLOWED: f64 = 0.15;

/// How a router gets its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ids {
    Mac,
    Reversed,
    Ours,
}

impl Ids {
    const ALL: [Ids; 3] = [Ids::Mac, Ids::Reversed, Ids::Ours];

    const fn name(self) -> &'static str {
        match self {
            Ids::Mac => "MAC address",
            Ids::Reversed => "reversed MAC address",
            Ids::Ours => "ours",
        }
    }

    /// Returns the ids of routers 1 to 3.
    fn three(self, seed: u64) -> [NodeId; 3] {
        let key = |router| {
            let mut random = Streams::new(seed, 0).stream(&format!("router {router}"));
            // Without the search for a hash extension, on which the id does not depend.
            Search::new(0, &mut random).step(1).map_or(NodeId::default(), |found| found.id())
        };
        match self {
            Ids::Mac => MACS.map(of_48_bits),
            Ids::Reversed => MACS.map(|mac| of_48_bits(reversed(mac))),
            Ids::Ours => [1, 2, 3].map(key),
        }
    }

    /// Draws the ids of many routers, in ascending order.
    fn many(self, routers: usize, random: &mut Stream) -> Vec<NodeId> {
        let mut ids: Vec<NodeId> = match self {
            Ids::Mac => batch(routers, random).map(of_48_bits).collect(),
            Ids::Reversed => batch(routers, random).map(|m| of_48_bits(reversed(m))).collect(),
            Ids::Ours => (0..routers).map(|_| of_a_key(random)).collect(),
        };
        ids.sort_unstable();
        ids
    }
}

/// Returns the id at the same part of a ring of 2^64.
const fn of_48_bits(id: u64) -> NodeId {
    NodeId::new(id << 16)
}

/// Returns a MAC address with its octets in reverse.
const fn reversed(mac: u64) -> u64 {
    mac.swap_bytes() >> 16
}

/// Returns the id of a router whose public key is drawn: 32 octets stand for it, since nothing is signed.
fn of_a_key(random: &mut Stream) -> NodeId {
    let mut proof = Proof { key: [0; KEY], modifier: [0; MODIFIER] };
    random.fill(&mut proof.key);
    random.fill(&mut proof.modifier);
    proof.id()
}

/// Draws addresses of one batch, all different.
fn batch(routers: usize, random: &mut Stream) -> impl Iterator<Item = u64> {
    let mut left: Vec<u64> = (0..BATCH_SIZE).collect();
    for i in 0..routers {
        let other = i + random.below(BATCH_SIZE - i as u64) as usize;
        left.swap(i, other);
    }
    left.into_iter().take(routers).map(|last| BATCH | last)
}

/// Counts the keys of each router; both lists are in ascending order.
fn shares(routers: &[NodeId], keys: &[NodeId]) -> Vec<usize> {
    let from: Vec<usize> = routers.iter().map(|id| keys.partition_point(|key| key < id)).collect();
    let mut counts: Vec<usize> = from.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // The last router has the keys up to the first one.
    counts.extend(from.first().zip(from.last()).map(|(first, last)| keys.len() - last + first));
    counts
}

/// Returns the keys of each of three routers.
fn shares_of_three(routers: [NodeId; 3], keys: &[NodeId]) -> [usize; 3] {
    let mut sorted = routers;
    sorted.sort_unstable();
    let counts = shares(&sorted, keys);
    routers.map(|id| sorted.iter().position(|other| *other == id).map_or(0, |at| counts[at]))
}

/// Returns the part of the ring that each of three routers is responsible for.
fn parts_of_ring(routers: [NodeId; 3]) -> [f64; 3] {
    let next = |id: NodeId| {
        let distance = |other: &NodeId| other.raw().wrapping_sub(id.raw());
        routers.iter().map(distance).filter(|d| *d > 0).min().unwrap_or(u64::MAX)
    };
    routers.map(|id| next(id) as f64 / 2f64.powi(64))
}

/// The spread of keys over routers.
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// Keys of the router with most of them, relative to the mean.
    largest: f64,
    /// Standard deviation of the routers' keys, relative to the mean.
    variation: f64,
}

impl Spread {
    fn of(counts: &[usize]) -> Self {
        let n = counts.len() as f64;
        let mean = counts.iter().sum::<usize>() as f64 / n;
        let square = |count: &usize| (*count as f64 / mean - 1.0).powi(2);
        let largest = counts.iter().max().map_or(0.0, |count| *count as f64 / mean);
        Spread { largest, variation: (counts.iter().map(square).sum::<f64>() / n).sqrt() }
    }

    /// Returns the expectation for uniform ids and keys. The variance is exact; the largest share is that of independent
    /// geometric numbers, which the keys of many routers nearly are.
    fn expected(routers: usize) -> Self {
        let n = routers as f64;
        let mean = KEYS as f64 / n;
        let harmonic: f64 = (1..=routers).map(|i| 1.0 / i as f64).sum();
        Spread {
            largest: (harmonic / (1.0 / mean).ln_1p() - 0.5) / mean,
            variation: ((n - 1.0) / (n + 1.0) * (1.0 + 1.0 / mean)).sqrt(),
        }
    }
}

/// Returns the spread for each number of routers and kind of ids.
fn replication(seed: u64, number: u64) -> Result<Vec<[Spread; 3]>, RunError> {
    let streams = Streams::new(seed, number);
    let mut random = streams.stream("keys");
    let mut keys: Vec<NodeId> = (0..KEYS).map(|_| NodeId::new(random.next_u64())).collect();
    keys.sort_unstable();
    let mut random = streams.stream("routers");
    let mut spread =
        |ids: Ids, routers| Spread::of(&shares(&ids.many(routers, &mut random), &keys));
    let interrupt = Interrupt::current();
    let of = |routers: &usize| {
        interrupt.check()?;
        Ok(Ids::ALL.map(|ids| spread(ids, *routers)))
    };
    ROUTERS.iter().map(of).collect()
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let replications = (0..study.replications).into_par_iter();
    let spreads: Vec<Vec<[Spread; 3]>> =
        replications.map(|r| replication(study.seed, r)).collect::<Result<_, RunError>>()?;
    let largest = spread_table(
        &spreads,
        "largest share",
        "keys of the router that has most of them, relative to the mean",
        |s| s.largest,
    );
    let variation = spread_table(
        &spreads,
        "coefficient of variation",
        "standard deviation of the routers' keys, relative to the mean (expected is the root of the mean \
         square, which is more for few routers)",
        |s| s.variation,
    );
    let mut claims = claims_of_three(study);
    claims.extend(claims_of_many(&largest, &variation));
    let charts = vec![spread_chart(study, &largest)];
    let rings = Ids::ALL.map(|ids| ring(study, ids)).to_vec();
    let findings = vec![finding(&largest)];
    let tables = vec![table_of_hashes(study), table_of_parts(study), largest, variation];
    Ok(StudyResult { tables, claims, charts, rings, findings, ..StudyResult::default() })
}

fn finding(largest: &MeasuredTable) -> String {
    let n = ROUTERS[5];
    let [mac, reversed, ours] = Ids::ALL.map(|ids| value(largest, n, ids.name()));
    format!(
        "Of {n} routers, the one with most keys has {mac:.0} times the mean with MAC addresses, {reversed:.1} times \
         with reversed ones and {ours:.1} times with ours. Uniform ids have {:.1} on average; ln n is {:.1}.",
        Spread::expected(n).largest,
        (n as f64).ln(),
    )
}

fn sorted_hashes() -> Vec<NodeId> {
    // Table 5 is in order.
    HASHES.map(of_48_bits).to_vec()
}

fn table_of_hashes(study: &Study) -> MeasuredTable {
    // The entries of Table 8 follow from Tables 5 and 7; those of Table 6 are printed.
    let row = |ids: Ids| {
        let counts = shares_of_three(ids.three(study.seed), &sorted_hashes());
        let printed = match ids {
            Ids::Mac => Some([0.0, 0.0, 10.0]),
            Ids::Reversed => Some([5.0, 5.0, 0.0]),
            Ids::Ours => None,
        };
        let figure = |i: usize| {
            let ours = MeasuredFigure::exact(&format!("router {}", i + 1), "", counts[i] as f64);
            match (ids, printed) {
                (Ids::Mac, Some(printed)) => ours.with_other_quantity(printed[i]),
                (_, Some(printed)) => ours.with_other_quantity(printed[i]).derived(),
                (_, None) => ours,
            }
        };
        MeasuredRow { name: ids.name().into(), figures: [0, 1, 2].map(figure).to_vec() }
    };
    MeasuredTable {
        source: "Tables 6 and 8",
        what: "the ten hashes of Table 5 by the router that is responsible for them, for the addresses of Table 4, \
               reversed as in Table 7, and for ids of three keys."
            .into(),
        replications: 1,
        rows: Ids::ALL.map(row).to_vec(),
    }
}

fn table_of_parts(study: &Study) -> MeasuredTable {
    let row = |ids: Ids| {
        let parts = parts_of_ring(ids.three(study.seed));
        let figure =
            |i: usize| MeasuredFigure::exact(&format!("router {}", i + 1), "%", parts[i] * 100.0);
        MeasuredRow { name: ids.name().into(), figures: [0, 1, 2].map(figure).to_vec() }
    };
    MeasuredTable {
        source: "Figures 20 and 21",
        what: "the part of the ring that each router is responsible for. The figures are not to scale.".into(),
        replications: 1,
        rows: Ids::ALL.map(row).to_vec(),
    }
}

fn spread_table(
    spreads: &[Vec<[Spread; 3]>],
    name: &str,
    what: &str,
    of: impl Fn(&Spread) -> f64,
) -> MeasuredTable {
    let row = |(i, routers): (usize, &usize)| {
        let column = |(column, ids): (usize, &Ids)| {
            let values: Vec<f64> = spreads.iter().map(|s| of(&s[i][column])).collect();
            let none = Estimate { value: f64::NAN, n: 0, interval: None, equal: false };
            MeasuredFigure::new(ids.name(), "", mean(&values).unwrap_or(none))
        };
        let mut figures: Vec<MeasuredFigure> = Ids::ALL.iter().enumerate().map(column).collect();
        let expected = of(&Spread::expected(*routers));
        figures.push(MeasuredFigure::exact(EXPECTED, "", expected));
        if name == "largest share" {
            figures.push(MeasuredFigure::exact("ln n", "", (*routers as f64).ln()));
        }
        MeasuredRow { name: row_name(*routers), figures }
    };
    MeasuredTable {
        source: "Section 3.4.2, more routers",
        what: format!(
            "{name}: {what}; {KEYS} random keys, addresses that differ in their last two octets."
        ),
        replications: spreads.len(),
        rows: ROUTERS.iter().enumerate().map(row).collect(),
    }
}

/// Column of the expectation.
const EXPECTED: &str = "uniform ids, expected";

fn row_name(routers: usize) -> String {
    format!("{routers} routers")
}

fn value(table: &MeasuredTable, routers: usize, column: &str) -> f64 {
    table.get(&row_name(routers), column).map_or(f64::NAN, |f| f.ours)
}

fn claims_of_three(study: &Study) -> Vec<Claim> {
    let counts = Ids::ALL.map(|ids| shares_of_three(ids.three(study.seed), &sorted_hashes()));
    let [one, two, three] = parts_of_ring(Ids::Reversed.three(study.seed));
    let few = MACS[2] - MACS[0];
    vec![
        Claim {
            source: "Table 6",
            says: "with MAC addresses as ids, router 3 stores all ten entries".into(),
            ours: format!("{:?} of the hashes", counts[0]),
            holds: counts[0] == [0, 0, 10],
            sure: true,
            expected: true,
            why: String::new(),
        },
        Claim {
            source: "Section 3.4.2",
            says: "less than 256^2 of 256^6 values belong to routers 1 and 2".into(),
            ours: format!("{few} values"),
            holds: few < 1 << 16,
            sure: true,
            expected: true,
            why: String::new(),
        },
        Claim {
            source: "Table 8",
            says:
                "with reversed addresses the distribution is much improved, but still not very even"
                    .into(),
            ours: format!(
                "{:?} of the hashes; {:.1}, {:.1} and {:.1} % of the ring",
                counts[1],
                one * 100.0,
                two * 100.0,
                three * 100.0
            ),
            holds: counts[1] == [5, 5, 0] && three < 0.1,
            sure: true,
            expected: true,
            why: String::new(),
        },
    ]
}

fn claims_of_many(largest: &MeasuredTable, variation: &MeasuredTable) -> Vec<Claim> {
    let [few, many] = [ROUTERS[0], ROUTERS[ROUTERS.len() - 1]];
    let reversed = |table, routers| value(table, routers, Ids::Reversed.name());
    let mut claims = vec![Claim {
        source: "Section 3.4.2",
        says: "for more routers, reversed addresses are distributed more evenly".into(),
        ours: format!(
            "largest share {:.2} times the mean of {few} routers, {:.2} of {many}; coefficient of variation {:.2} and \
             {:.2}",
            reversed(largest, few),
            reversed(largest, many),
            reversed(variation, few),
            reversed(variation, many)
        ),
        holds: reversed(largest, many) <= reversed(largest, few),
        sure: true,
        expected: false,
        why: "Each router's share falls, but relative to the mean the largest grows as ln n, and the coefficient of \
              variation grows to 1, as with any random ids."
            .into(),
    }];
    for ids in [Ids::Reversed, Ids::Ours] {
        let compared = [largest, variation].into_iter().flat_map(|table| {
            let rows = ROUTERS.iter().filter(|n| **n >= COMPARED_FROM);
            rows.filter_map(move |n| {
                let ours = table.get(&row_name(*n), ids.name())?;
                let expected = value(table, *n, EXPECTED);
                Some([ours.low?, ours.ours, ours.high?].map(|v| v / expected - 1.0))
            })
        });
        let compared: Vec<[f64; 3]> = compared.collect();
        let far = compared.iter().map(|c| c[1].abs()).fold(0.0, f64::max);
        let inside = |c: &[f64; 3]| c[0] > -ALLOWED && c[2] < ALLOWED;
        let outside = |c: &[f64; 3]| c[2] < -ALLOWED || c[0] > ALLOWED;
        let holds = !compared.is_empty() && compared.iter().all(inside);
        claims.push(Claim {
            source: "Section 3.4.2",
            says: format!(
                "{} share keys as uniform ids do, within {} %, from {COMPARED_FROM} to {many} routers",
                match ids {
                    Ids::Ours => "our ids",
                    _ => "reversed addresses",
                },
                ALLOWED * 100.0
            ),
            ours: format!("{:.1} % from the expectation at most", far * 100.0),
            holds,
            sure: holds || compared.iter().any(outside),
            expected: true,
            why: match ids {
                Ids::Reversed => "The paper's remedy works while vendors count in the last octets.".into(),
                _ => String::new(),
            },
        });
    }
    claims
}

/// The three routers on the ring, with the hashes of Table 5.
fn ring(study: &Study, ids: Ids) -> RingSheet {
    let position = |id: NodeId| id.raw() as f64 / 2f64.powi(64);
    let node = |(i, id): (usize, NodeId)| (format!("router {}", i + 1), position(id));
    let (name, title) = match ids {
        Ids::Mac => ("figure-20-mac-addresses", "Figure 20, MAC addresses as ids"),
        Ids::Reversed => ("figure-21-reversed", "Figure 21, reversed MAC addresses as ids"),
        Ids::Ours => ("figure-21-ours", "Figure 21, hashes of three keys as ids"),
    };
    RingSheet {
        name: name.into(),
        title: title.into(),
        caption:
            "Part of the ring that each router is responsible for. Dots: the hashes of Table 5."
                .into(),
        nodes: ids.three(study.seed).into_iter().enumerate().map(node).collect(),
        keys: sorted_hashes().into_iter().map(position).collect(),
    }
}

fn spread_chart(study: &Study, largest: &MeasuredTable) -> ChartSheet {
    let of = |name: &str, style: Style| {
        let figures = ROUTERS.iter().map(|n| (*n as f64, largest.get(&row_name(*n), name)));
        let figures: Vec<_> = figures.filter_map(|(n, f)| Some((n, f?))).collect();
        let points: Vec<[f64; 2]> = figures.iter().map(|(n, f)| [*n, f.ours]).collect();
        let bounds = figures.iter().map(|(_, f)| (f.low.zip(f.high).map(|(l, h)| [l, h]), f.n));
        let bounds = if style == Style::Ribbon { bounds.collect() } else { Vec::new() };
        SeriesSheet { bounds, ..SeriesSheet::new(name, style, &points) }
    };
    ChartSheet {
        shaded: Vec::new(),
        name: "section-3-4-2-largest-share".into(),
        title: "Section 3.4.2, keys of the router that has most of them".into(),
        caption: format!("{KEYS} random keys; relative to the mean of all routers."),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("routers", "").log(),
        y: AxisSheet::new("largest share / mean", "").log(),
        series: [
            of(Ids::Mac.name(), Style::Ribbon),
            of(Ids::Reversed.name(), Style::Ribbon),
            of(Ids::Ours.name(), Style::Ribbon),
            of(EXPECTED, Style::Line),
            of("ln n", Style::Line),
        ]
        .to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mesh::Ring;
    use ringway_mesh::metric::responsible;

    /// Tables 4 to 8: all hashes at router 3, and 5 / 5 / 0 with the octets reversed.
    #[test]
    fn the_papers_hashes_are_where_it_says() {
        let hashes = sorted_hashes();
        assert!(hashes.is_sorted());
        let of = |ids: Ids| shares_of_three(ids.three(1), &hashes);
        assert_eq!((of(Ids::Mac), of(Ids::Reversed)), ([0, 0, 10], [5, 5, 0]));
        assert_eq!(of(Ids::Ours).iter().sum::<usize>(), 10);
        assert_eq!(MACS.map(reversed), [0xbf1d_5210_1c00, 0x5644_5210_1c00, 0xb347_5210_1c00]);
        let [one, two, three] = parts_of_ring(Ids::Reversed.three(1));
        assert!((one + two + three - 1.0).abs() < 1e-12);
        assert!((0.589..0.591).contains(&one) && (0.046..0.047).contains(&three), "{one} {three}");
    }

    /// The count is that of the rule by which routers route, and all kinds of ids are distinct.
    #[test]
    fn shares_agree_with_responsibility() {
        let mut random = Streams::new(7, 0).stream("test");
        for ids in Ids::ALL {
            let routers = ids.many(40, &mut random);
            assert!(routers.windows(2).all(|pair| pair[0] < pair[1]));
            let mut keys: Vec<NodeId> = (0..500).map(|_| NodeId::new(random.next_u64())).collect();
            keys.sort_unstable();
            let mut counts = vec![0; routers.len()];
            for key in &keys {
                let owner = responsible::<Ring>(routers.iter().copied(), *key).unwrap();
                counts[routers.iter().position(|id| *id == owner).unwrap()] += 1;
            }
            assert_eq!(shares(&routers, &keys), counts);
        }
    }

    /// The expectation for three uniform arcs is 11/6 and the square root of 1/2.
    #[test]
    fn the_expectation_is_that_of_uniform_arcs() {
        let three = Spread::expected(3);
        assert!((three.largest - 11.0 / 6.0).abs() < 1e-4, "{three:?}");
        assert!((three.variation - 0.5f64.sqrt()).abs() < 1e-4, "{three:?}");
        let spread = Spread::of(&[0, 0, 10]);
        assert!((spread.largest, spread.variation.powi(2).round()) == (3.0, 2.0), "{spread:?}");
    }
}
