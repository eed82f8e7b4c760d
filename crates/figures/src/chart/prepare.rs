//! From what a figure describes to what can be drawn: points that are numbers, in order, and the
//! ranges they span.

use super::axis::{Axis, MAX_MAGNITUDE, MIN_MAGNITUDE, Scale};
use super::figure::{ChartError, Data, Figure, MAX_BARS, MAX_SERIES};
use super::look::Look;
use crate::statistics::{Estimate, Interval};

/// A point in the units of the axes.
pub(super) type Point = (f64, f64);

/// What remains of a figure's data.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub(super) series: Vec<Drawn<'a>>,
    /// Names of the places of bars, in the order in which they first occur.
    pub(super) categories: Vec<&'a str>,
    /// Points that are no numbers, or not positive where the axis is logarithmic.
    pub(super) skipped: usize,
    /// Lowest and highest value on either axis.
    pub(super) x: Option<(f64, f64)>,
    pub(super) y: Option<(f64, f64)>,
    /// Whether all values on an axis are whole numbers.
    pub(super) whole: (bool, bool),
}

/// What remains of a series.
#[derive(Debug)]
pub(super) struct Drawn<'a> {
    pub(super) name: &'a str,
    pub(super) look: Look,
    pub(super) shape: Shape,
    /// On how many observations its points rest: fewest and most of any of them.
    pub(super) rests_on: Option<(usize, usize)>,
    /// Observations or points that it was given.
    pub(super) given: usize,
    /// The intervals that are drawn: each kind and level once.
    pub(super) intervals: Vec<Interval>,
}

/// One bar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    /// Its position, from 0.
    pub(super) category: usize,
    pub(super) value: f64,
    /// The bounds of its interval.
    pub(super) bounds: Option<(f64, f64)>,
}

/// What is drawn.
#[derive(Debug)]
pub(super) enum Shape {
    Marks(Vec<Point>),
    Curve {
        /// Runs between gaps, ascending in x.
        runs: Vec<Vec<Point>>,
        step: bool,
        /// Whether it is a distribution function, which goes on at 1 for ever.
        distribution: bool,
        /// Runs of (x, low, high).
        band: Vec<Vec<(f64, f64, f64)>>,
    },
    Bars(Vec<Bar>),
}

impl Shape {
    fn curve(runs: Vec<Vec<Point>>, step: bool) -> Self {
        Self::Curve { runs, step, distribution: false, band: Vec::new() }
    }
}

/// Keeps what can be drawn and notes what it spans.
struct Sieve<'a> {
    log: (bool, bool),
    prepared: Prepared<'a>,
}

pub(super) fn prepare(figure: &Figure) -> Result<Prepared<'_>, ChartError> {
    if figure.series.len() > MAX_SERIES {
        return Err(ChartError::TooManySeries(figure.series.len()));
    }
    let bars = |data: &Data| match data {
        Data::Bars(bars) => Some(bars.len()),
        _ => None,
    };
    let bars: Vec<usize> = figure.series.iter().filter_map(|s| bars(&s.data)).collect();
    if !bars.is_empty() && bars.len() < figure.series.len() {
        return Err(ChartError::MixedBars);
    }
    let bars: usize = bars.iter().sum();
    if bars > MAX_BARS {
        return Err(ChartError::TooManyBars(bars));
    }
    let log = |axis: &Axis| axis.scale == Scale::Log;
    let mut sieve = Sieve {
        log: (log(&figure.x), log(&figure.y)),
        prepared: Prepared {
            series: Vec::with_capacity(figure.series.len()),
            categories: Vec::new(),
            skipped: 0,
            x: None,
            y: None,
            whole: (true, true),
        },
    };
    for (i, series) in figure.series.iter().enumerate() {
        let mut drawn = Drawn {
            name: &series.name,
            look: series.look.unwrap_or(Look::at(i)),
            shape: Shape::Marks(Vec::new()),
            rests_on: None,
            given: 0,
            intervals: Vec::new(),
        };
        drawn.shape = sieve.shape(&series.data, &mut drawn);
        sieve.prepared.series.push(drawn);
    }
    Ok(sieve.prepared)
}

impl<'a> Sieve<'a> {
    fn shape(&mut self, data: &'a Data, drawn: &mut Drawn<'_>) -> Shape {
        match data {
            Data::Scatter(points) => {
                drawn.given = points.len();
                Shape::Marks(points.iter().copied().filter(|&point| self.keep(point)).collect())
            }
            Data::Line(points) | Data::Step(points) => {
                drawn.given = points.len();
                Shape::curve(self.runs(points), matches!(data, Data::Step(_)))
            }
            Data::Ecdf(observations) => {
                drawn.given = observations.len();
                let points = self.distribution(observations);
                let runs = self.runs(&points);
                Shape::Curve { runs, step: true, distribution: true, band: Vec::new() }
            }
            Data::Ribbon(estimates) => {
                drawn.given = estimates.len();
                let points: Vec<Point> = estimates.iter().map(|(x, e)| (*x, e.value)).collect();
                let runs = self.runs(&points);
                let band = self.band(estimates, drawn);
                Shape::Curve { runs, step: false, distribution: false, band }
            }
            Data::Bars(bars) => {
                drawn.given = bars.len();
                Shape::Bars(bars.iter().filter_map(|(name, e)| self.bar(name, e, drawn)).collect())
            }
        }
    }

    fn shows(&self, x: f64, y: f64) -> bool {
        let shows = |value: f64, log: bool| {
            value.is_finite() && value.abs() <= MAX_MAGNITUDE && (!log || value >= MIN_MAGNITUDE)
        };
        shows(x, self.log.0) && shows(y, self.log.1)
    }

    /// Whether a point can be drawn; counts it either way.
    fn keep(&mut self, (x, y): Point) -> bool {
        if !self.shows(x, y) {
            self.prepared.skipped += 1;
            return false;
        }
        grow(&mut self.prepared.x, x);
        grow(&mut self.prepared.y, y);
        let whole = &mut self.prepared.whole;
        *whole = (whole.0 && x == x.trunc(), whole.1 && y == y.trunc());
        true
    }

    /// Points in order, in runs between those that cannot be drawn.
    fn runs(&mut self, points: &[Point]) -> Vec<Vec<Point>> {
        let mut sorted: Vec<Point> = Vec::with_capacity(points.len());
        for &(x, y) in points {
            // Without an x nobody knows where the gap would be.
            if x.is_finite() { sorted.push((x, y)) } else { self.prepared.skipped += 1 }
        }
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut runs = vec![Vec::new()];
        for point in sorted {
            if self.keep(point) {
                if let Some(run) = runs.last_mut() {
                    run.push(point);
                }
            } else if runs.last().is_some_and(|run| !run.is_empty()) {
                runs.push(Vec::new());
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }

    /// The corners of an empirical distribution function.
    fn distribution(&mut self, observations: &[f64]) -> Vec<Point> {
        let log = self.log.0;
        let mut sorted: Vec<f64> = observations.to_vec();
        sorted.retain(|x| x.is_finite() && (!log || *x >= MIN_MAGNITUDE));
        self.prepared.skipped += observations.len() - sorted.len();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let mut corners = Vec::with_capacity(sorted.len() + 1);
        if let (Some(&first), false) = (sorted.first(), self.log.1) {
            corners.push((first, 0.0));
        }
        for (i, &x) in sorted.iter().enumerate() {
            let is_last = sorted.get(i + 1).is_none_or(|&next| next > x);
            if is_last {
                corners.push((x, (i + 1) as f64 / n));
            }
        }
        corners
    }

    fn band(
        &mut self,
        estimates: &[(f64, Estimate)],
        drawn: &mut Drawn<'_>,
    ) -> Vec<Vec<(f64, f64, f64)>> {
        let mut sorted: Vec<&(f64, Estimate)> =
            estimates.iter().filter(|(x, e)| self.shows(*x, e.value)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut runs = vec![Vec::new()];
        for (x, estimate) in sorted {
            match self.bounds(estimate, drawn) {
                Some((low, high)) => {
                    if let Some(run) = runs.last_mut() {
                        run.push((*x, low, high));
                    }
                }
                None => runs.push(Vec::new()),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }

    fn bar(&mut self, name: &'a str, estimate: &Estimate, drawn: &mut Drawn<'_>) -> Option<Bar> {
        let known = self.prepared.categories.iter().position(|&other| other == name);
        let position = known.unwrap_or_else(|| {
            self.prepared.categories.push(name);
            self.prepared.categories.len() - 1
        });
        // The places of bars are not on a scale: 1 can be shown on any.
        self.keep((1.0, estimate.value)).then(|| {
            if !self.log.1 {
                grow(&mut self.prepared.y, 0.0);
            }
            Bar { category: position, value: estimate.value, bounds: self.bounds(estimate, drawn) }
        })
    }

    /// The bounds of an estimate's interval, as far as they can be drawn.
    fn bounds(&mut self, estimate: &Estimate, drawn: &mut Drawn<'_>) -> Option<Point> {
        let (fewest, most) = drawn.rests_on.unwrap_or((estimate.n, estimate.n));
        drawn.rests_on = Some((fewest.min(estimate.n), most.max(estimate.n)));
        let interval = estimate.interval?;
        let drawable = |x: f64| x.is_finite() && x.abs() <= MAX_MAGNITUDE;
        if !drawable(interval.low) || !drawable(interval.high) {
            return None;
        }
        let same = |i: &Interval| i.kind == interval.kind && i.level == interval.level;
        if !drawn.intervals.iter().any(same) {
            drawn.intervals.push(interval);
        }
        for bound in [interval.low, interval.high] {
            // What lies at zero or below reaches to the foot of a logarithmic axis.
            if !self.log.1 || bound >= MIN_MAGNITUDE {
                grow(&mut self.prepared.y, bound);
            }
        }
        Some((interval.low, interval.high))
    }
}

fn grow(span: &mut Option<(f64, f64)>, value: f64) {
    *span = Some(span.map_or((value, value), |(low, high)| (low.min(value), high.max(value))));
}
