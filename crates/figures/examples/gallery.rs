//! Writes one chart of each kind, as SVG and PNG, and a report: `gallery DIR`.
//!
//! To be viewed. The numbers are invented, and the same in each run.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use ringway_figures::chart::{Axis, Colour, Data, Figure, Marker, Series};
use ringway_figures::report::{Compared, Entry, Grid, Head, Report, Section};
use ringway_figures::statistics::{Estimate, mean, percentile, ratio};

/// Any error ends the program.
type Outcome<T> = Result<T, Box<dyn Error>>;

/// The seed that the captions name.
const SEED: u64 = 12_345;

/// Pseudo-random numbers between 0 and 1.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn main() -> Outcome<()> {
    let directory = env::args().nth(1).ok_or("usage: gallery DIR")?;
    let directory = Path::new(&directory);
    fs::create_dir_all(directory)?;
    let figures = [
        ("delay", delay()),
        ("dense", dense()),
        ("loss", loss()?),
        ("ecdf", ecdf()),
        ("sequence", sequence()),
        ("cwnd", cwnd()),
        ("queue", queue()),
        ("bars", bars()?),
        ("names", names()?),
        ("log", log()),
        ("odd", odd()),
        (
            "empty",
            Figure::new("Nothing was sent", Axis::si("time", "s"), Axis::si("delay", "s"), SEED),
        ),
    ];
    for (name, figure) in &figures {
        fs::write(directory.join(format!("{name}.svg")), figure.svg()?)?;
        fs::write(directory.join(format!("{name}.png")), figure.png()?)?;
    }
    fs::write(directory.join("report.html"), report(&figures)?.html()?)?;
    Ok(())
}

fn report(figures: &[(&str, Figure)]) -> Outcome<Report> {
    let mut report = Report::new("Every kind of figure, with <angles> & ampersands");
    report.lead = "Made-up numbers, for looking at.\n\nNothing here was measured.".to_owned();
    report.manifest =
        [("version", "0.1.0"), ("seed", "12345"), ("host", "none, these are made up")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
    let mut dice = Dice(7);
    let mut ours = |value: f64| {
        let sample: Vec<f64> = (0..12).map(|_| value * (0.99 + 0.02 * dice.roll())).collect();
        mean(&sample)
    };
    let rows = [
        Compared { what: "sent".into(), paper: Some(1_569.0), ours: ours(1_568.5)?, decimals: 0 },
        Compared { what: "received".into(), paper: Some(723.0), ours: ours(723.0)?, decimals: 0 },
        Compared { what: "dropped".into(), paper: None, ours: ours(797.0)?, decimals: 0 },
        Compared {
            what: "mean delay (s)".into(),
            paper: Some(1.930_832),
            ours: ours(1.9311)?,
            decimals: 6,
        },
        Compared {
            what: "variance (s²)".into(),
            paper: Some(0.142_85),
            ours: ours(0.1429)?,
            decimals: 6,
        },
    ];
    let grid = Grid::new(
        "Seconds for a file.",
        [
            Head::text("loss"),
            Head::number("1 MB", 1),
            Head::number("25 MB", 1),
            Head::text("remark"),
        ],
    )
    .row(["0".into(), 2.0.into(), 47.3.into(), Entry::Nothing])
    .row(["10 %".into(), 1.9.into(), 145.4.into(), "does not react to loss".into()]);
    report.sections.push(
        Section::new("Tables")
            .text("The paper's figures beside ours.")
            .grid(Grid::comparison("UDP, 0.2 Mbit/s.", &rows))
            .grid(grid),
    );
    for (name, figure) in figures {
        report.sections.push(Section::new(*name).figure(figure.clone()));
    }
    Ok(report)
}

/// The delay of a constant stream through a queue that fills and then drops.
fn delay() -> Figure {
    let of = |n: usize, most: f64, dice: &mut Dice| -> Vec<(f64, f64)> {
        (0..n)
            .map(|i| {
                let sent = 28.0 * i as f64 / n as f64;
                (sent, (0.1 + sent * 0.9).min(most) + 0.02 * dice.roll())
            })
            .collect()
    };
    let mut dice = Dice(1);
    let axis = Axis::si("delay", "s");
    Figure::new("Delay of each packet", Axis::si("time sent", "s"), axis, SEED)
        .with(Series::new("UDP", Data::Scatter(of(723, 2.02, &mut dice))))
        .with(Series::new("TCP", Data::Scatter(of(693, 0.8, &mut dice))))
        .caption(
            "Constant bit rate over a link of 0.2 Mbit/s with a drop-tail queue of 50 packets.",
        )
}

/// A hundred thousand points, some of which are NaN.
fn dense() -> Figure {
    let mut dice = Dice(2);
    let mut points: Vec<(f64, f64)> = (0..100_000)
        .map(|i| {
            let t = f64::from(i) / 1_000.0;
            (t, 0.02 + 0.01 * (t / 7.0).sin().abs() - 0.004 * dice.roll().ln())
        })
        .collect();
    points[500].1 = f64::NAN;
    points[501].1 = f64::INFINITY;
    Figure::new(
        "Delay of each packet, many of them",
        Axis::si("time", "s"),
        Axis::si("delay", "s"),
        SEED,
    )
    .with(Series::new("UDP", Data::Scatter(points)))
}

fn loss() -> Outcome<Figure> {
    let mut dice = Dice(3);
    let mut curve = |base: f64| -> Outcome<Vec<(f64, Estimate)>> {
        (0..=10)
            .map(|i| {
                let loss = f64::from(i) / 2.0;
                let n = 10 + i as usize;
                let sample: Vec<f64> = (0..n)
                    .map(|_| base / (1.0 + loss) * (1.0 + 0.35 * (dice.roll() - 0.5)))
                    .collect();
                Ok((loss, mean(&sample)?))
            })
            .collect()
    };
    let (cubic, reno) = (curve(4.2e6)?, curve(3.1e6)?);
    Ok(Figure::new(
        "Throughput against loss",
        Axis::plain("loss", "%"),
        Axis::si("throughput", "bit/s"),
        SEED,
    )
    .with(Series::new("CUBIC", Data::Ribbon(cubic)))
    .with(Series::new("NewReno", Data::Ribbon(reno)))
    .caption("Bulk transfers over 35 ms, loss at random before the queue"))
}

fn ecdf() -> Figure {
    let mut dice = Dice(4);
    let mut delays =
        |scale: f64| -> Vec<f64> { (0..5_000).map(|_| 0.035 - scale * dice.roll().ln()).collect() };
    let series =
        [("UDP", 0.004), ("TCP", 0.011), ("SCTP, one path", 0.014), ("SCTP, two paths", 0.008)];
    let figure = Figure::new(
        "Set-up time of calls",
        Axis::si("set-up time", "s"),
        Axis::bare("fraction of calls"),
        SEED,
    );
    series.into_iter().fold(figure, |figure, (name, scale)| {
        figure.with(Series::new(name, Data::Ecdf(delays(scale))))
    })
}

fn sequence() -> Figure {
    let (mut data, mut acknowledged) = (Vec::new(), Vec::new());
    let (mut lost, mut retransmitted) = (Vec::new(), Vec::new());
    let (mut t, mut seq) = (0.0, 0.0);
    while seq < 400.0 {
        data.push((t, seq * 1_448.0));
        if (seq as i64) % 67 == 40 {
            lost.push((t, seq * 1_448.0));
            retransmitted.push((t + 0.12, seq * 1_448.0));
            t += 0.03;
        }
        acknowledged.push((t + 0.07, (seq + 1.0) * 1_448.0));
        seq += 1.0;
        t += if (seq as i64) % 10 == 0 { 0.03 } else { 0.002 };
    }
    let (x, y) = (Axis::si("time", "s"), Axis::si("sequence number", "B"));
    Figure::new("A TCP transfer with losses", x, y, SEED)
        .with(Series::new("data", Data::Scatter(data)))
        .with(
            Series::new("acknowledged", Data::Step(acknowledged)).look(Colour::Green, Marker::None),
        )
        .with(
            Series::new("retransmitted", Data::Scatter(retransmitted))
                .look(Colour::Orange, Marker::Triangle),
        )
        .with(Series::new("lost", Data::Scatter(lost)).look(Colour::Vermillion, Marker::Cross))
        .caption("The first 400 segments.")
        .wide()
}

fn cwnd() -> Figure {
    let window = |beta: f64, growth: f64| -> Vec<(f64, f64)> {
        let mut cwnd = 10.0;
        (0..3_000)
            .map(|i| {
                cwnd += growth / cwnd * 8.0;
                if cwnd > 90.0 {
                    cwnd *= beta;
                }
                (f64::from(i) * 0.01, cwnd.floor())
            })
            .collect()
    };
    let (reno, cubic) = (window(0.5, 1.0), window(0.7, 1.4));
    Figure::new("Congestion window", Axis::si("time", "s"), Axis::plain("cwnd", "segments"), SEED)
        .with(Series::new("NewReno", Data::Step(reno)))
        .with(Series::new("CUBIC", Data::Step(cubic)))
        .resting_on(1, "run")
}

fn queue() -> Figure {
    let mut dice = Dice(5);
    let mut length = 0.0f64;
    let steps = (0..200_000)
        .map(|i| {
            length = (length + (dice.roll() - 0.49).signum()).clamp(0.0, 50.0);
            (f64::from(i) * 1e-3, length)
        })
        .collect();
    Figure::new(
        "Queue of the bottleneck",
        Axis::si("time", "s"),
        Axis::plain("queue", "packets"),
        SEED,
    )
    .with(Series::new("queue", Data::Step(steps)))
    .resting_on(1, "run")
    .wide()
}

fn bars() -> Outcome<Figure> {
    let completed = |counts: [u64; 4]| -> Outcome<Vec<(String, Estimate)>> {
        let losses = ["5 %", "10 %", "20 %", "30 %"];
        losses
            .iter()
            .zip(counts)
            .map(|(loss, k)| {
                let mut estimate = ratio(k, 100)?;
                estimate.value *= 100.0;
                if let Some(interval) = &mut estimate.interval {
                    interval.low *= 100.0;
                    interval.high *= 100.0;
                }
                Ok(((*loss).to_owned(), estimate))
            })
            .collect()
    };
    Ok(Figure::new("Calls completed", Axis::bare("loss"), Axis::plain("completed", "%"), SEED)
        .with(Series::new("UDP", Data::Bars(completed([70, 40, 32, 20])?)))
        .with(Series::new("SCTP", Data::Bars(completed([60, 43, 37, 26])?))))
}

fn names() -> Outcome<Figure> {
    let mut dice = Dice(6);
    let disciplines = [
        "drop-tail by packets",
        "drop-tail by bytes",
        "RED",
        "CoDel",
        "PIE",
        "FQ-CoDel",
        "ns-2 drop-tail",
    ];
    let bars = disciplines
        .iter()
        .enumerate()
        .map(|(i, name)| {
            let sample: Vec<f64> =
                (0..200).map(|_| 0.2 / (i + 1) as f64 - 0.03 * dice.roll().ln()).collect();
            Ok(((*name).to_owned(), percentile(&sample, 0.95)?))
        })
        .collect::<Outcome<Vec<_>>>()?;
    Ok(Figure::new(
        "95th percentile of the delay under seven queue disciplines, with a title that needs two lines",
        Axis::bare("discipline"),
        Axis::si("delay", "s"),
        SEED,
    )
    .with(Series::new("delay", Data::Bars(bars))))
}

fn log() -> Figure {
    let points = |factor: f64| -> Vec<(f64, f64)> {
        (0..13)
            .map(|i| 10f64.powf(-5.0 + f64::from(i) / 3.0))
            .map(|p| (p, factor / p.sqrt()))
            .collect()
    };
    Figure::new(
        "Throughput of long transfers",
        Axis::bare("loss probability").log(),
        Axis::si("throughput", "bit/s").log(),
        SEED,
    )
    .with(Series::new("formula", Data::Line(points(4.1e5))))
    .with(Series::new("measured", Data::Scatter(points(3.7e5))))
    .with(Series::new(
        "with <zero> & \"quotes\"",
        Data::Line(vec![(0.0, 1.0), (1e-3, 2e7), (1e-1, -4.0)]),
    ))
}

/// Charts that are hard to read: one point, a huge offset, very long names.
fn odd() -> Figure {
    Figure::new(
        "Odd things",
        Axis::si("time", "s"),
        Axis::plain("temperature of the machine room", "°C"),
        0,
    )
    .with(Series::new("one point", Data::Line(vec![(1_000_000.0, -40.0)])))
    .with(Series::new(
        "gaps",
        Data::Line(vec![
            (1_000_001.0, 3.0),
            (1_000_002.0, 5.0),
            (1_000_003.0, f64::NAN),
            (1_000_004.0, 4.0),
            (1_000_006.0, 8.0),
        ]),
    ))
    .with(Series::new(
        "a name that goes on and on and on until nobody is left who wants to read what it says",
        Data::Scatter(vec![(1_000_005.0, 20.0)]),
    ))
}
