//! Where everything stands, in points of the printed page.
//!
//! From top to bottom: title, legend, plot, labels of the ticks, title of the x axis, caption. The
//! plot's height is fixed, so the ticks of y are chosen first; their labels fix its width, and then
//! come the ticks of x.

use super::axis::{Domain, Room, Scale, Ticks, ticks};
use super::caption;
use super::figure::{Data, Figure, MAX_TEXT, Size};
use super::prepare::{Point, Prepared, Shape};
use super::text::{bounded, cut, width, wrap};
use super::thin::{self, Bounds, Position, Thinned};

/// Size of the title.
pub(super) const TITLE: f64 = 8.5;
/// Size of the titles of the axes.
pub(super) const LABEL: f64 = 7.5;
/// Size of everything else: the smallest that is read with ease in print.
pub(super) const SMALL: f64 = 7.0;
/// Distance of lines of text over their size.
pub(super) const LEADING: f64 = 1.22;
/// Free edge around everything.
pub(super) const EDGE: f64 = 4.0;
/// Length of a tick.
pub(super) const TICK: f64 = 2.5;
/// Between a tick and its label.
pub(super) const TICK_GAP: f64 = 2.0;
/// Width of a legend's sample, and the gap behind it.
pub(super) const SAMPLE: f64 = 15.0;
/// The same for marks that no line joins.
pub(super) const MARK_SAMPLE: f64 = 5.0;
/// Between a legend's sample and its name.
pub(super) const SAMPLE_GAP: f64 = 3.0;
/// Between the names of a legend.
const LEGEND_GAP: f64 = 10.0;
/// Angle of names below bars that have no room side by side, in degrees.
pub(super) const SLANT: f64 = 35.0;
/// Widest name of a slanted category.
const SLANTED_ROOM: f64 = 72.0;
/// The narrowest plot, however wide the labels of y are.
const NARROWEST: f64 = 40.0;
/// Lines of a title at most; a caption is bounded by its characters.
const TITLE_LINES: usize = 3;
const CAPTION_LINES: usize = 40;
/// Most labels of an axis.
const X_LABELS: usize = 8;
const Y_LABELS: usize = 7;
/// Points of a page in a millimetre.
const PT_PER_MM: f64 = 72.0 / 25.4;

/// Where the SVG will stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dress {
    /// A file of its own, on white.
    Document,
    /// Within a page that shows title and caption itself and chooses the colours.
    Inline,
}

impl Size {
    pub(super) fn millimetres(self) -> f64 {
        match self {
            Self::Column => 85.0,
            Self::Page => 178.0,
        }
    }

    fn plot_height(self) -> f64 {
        match self {
            Self::Column => 132.0,
            Self::Page => 190.0,
        }
    }
}

/// A line of text, and the point from which it is anchored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) text: String,
}

/// The plot's rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Plot {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// What is given from the plot's lower left corner, on the page.
    fn on_page(&self, (x, y): Position) -> Position {
        (self.left + x, self.bottom() - y)
    }
}

/// Names below bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Names {
    /// Lines of each name.
    pub(super) lines: Vec<Vec<String>>,
    pub(super) slanted: bool,
    height: f64,
}

impl Names {
    /// How far from the page's edge the plot has to begin for the first name to stay on the page.
    fn reach(&self, plot_width: f64) -> f64 {
        match self.lines.first() {
            Some(lines) if self.slanted => {
                let name = lines.iter().map(|line| width(line, SMALL)).fold(0.0, f64::max);
                let slot = plot_width / self.lines.len() as f64;
                EDGE + name * SLANT.to_radians().cos() - slot / 2.0
            }
            _ => 0.0,
        }
    }
}

/// Everything that a figure draws, with its position.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    pub(super) prepared: Prepared<'a>,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) plot: Plot,
    pub(super) title: Vec<Line>,
    /// For each series, where its sample begins and its name.
    pub(super) legend: Vec<Line>,
    pub(super) x: Domain,
    pub(super) y: Domain,
    pub(super) x_ticks: Ticks,
    pub(super) y_ticks: Ticks,
    pub(super) x_title: Vec<Line>,
    pub(super) y_title: Vec<Line>,
    pub(super) names: Names,
    pub(super) caption: Vec<Line>,
    /// The caption in one piece.
    pub(super) caption_text: String,
    /// For each series, its marks or none, on the page.
    pub(super) marks: Vec<Vec<Position>>,
    /// For each series, its runs or none, on the page.
    pub(super) curves: Vec<Vec<Vec<Position>>>,
    /// For each series, the runs of its ribbon or none, likewise.
    pub(super) bands: Vec<Vec<Vec<Bounds>>>,
}

impl Layout<'_> {
    /// Where a value of x stands on the page.
    pub(super) fn x_at(&self, value: f64) -> f64 {
        self.plot.left + self.x.position(value) * self.plot.width
    }

    /// Where a value of y stands on the page; zero and below at the foot of a logarithmic axis.
    pub(super) fn y_at(&self, value: f64) -> f64 {
        self.plot.bottom() - self.y.place_or_foot(value) * self.plot.height
    }
}

pub(super) fn lay_out<'a>(figure: &Figure, prepared: Prepared<'a>, dress: Dress) -> Layout<'a> {
    let page = figure.size.millimetres() * PT_PER_MM;
    let height = figure.size.plot_height();
    let room = page - 2.0 * EDGE;
    let mut top = EDGE;
    let mut title = Vec::new();
    if dress == Dress::Document {
        title = block(&figure.title, TITLE, EDGE, room, &mut top, TITLE_LINES);
        top += 3.0;
    }
    let legend = legend(&prepared, room, &mut top);
    // The label of the highest tick of y stands half above the plot.
    top += SMALL * 0.8;

    let (y, y_ticks) = fit_y(figure, &prepared, height);
    let y_title = wrap(&bounded(&y_ticks.title, MAX_TEXT), LABEL, height, 2);
    let widest = y_ticks.major.iter().map(|(_, l)| width(l, SMALL)).fold(0.0, f64::max);
    let titles = y_title.len() as f64 * LABEL * LEADING;
    let left = EDGE + titles + 3.0 + widest + TICK + TICK_GAP;
    let mut plot = Plot { left, top, width: (page - EDGE - left).max(NARROWEST), height };
    let bars = !prepared.categories.is_empty();
    let mut names = Names::default();
    let (mut x, mut x_ticks) = (Domain::of(&figure.x, prepared.x, false), Ticks::default());
    if bars {
        names = self::names(&prepared.categories, plot.width);
        // The first of slanted names reaches out to the left, and pushes the plot if it must.
        let pushed = (names.reach(plot.width) - plot.left).max(0.0);
        plot.left += pushed;
        plot.width -= pushed;
        x_ticks.title.clone_from(&figure.x.label);
    } else {
        x_ticks = fit_x(figure, &prepared, &mut x, &mut plot, page);
    }
    let labels = if bars { names.height } else { SMALL };
    let mut below = plot.bottom() + TICK + TICK_GAP + labels + 2.0;
    let x_title = centred(&x_ticks.title, &plot, &mut below);

    let (marks, thinned) = place_marks(&prepared, &x, &y, &plot);
    let curves = place_curves(&prepared, &x, &y, &plot);
    let bands = prepared.series.iter().map(|s| place_band(&s.shape, &x, &y, &plot)).collect();
    let caption_text = caption::write(figure, &prepared, thinned);
    let mut caption = Vec::new();
    if dress == Dress::Document {
        below += 4.0;
        caption = block(&caption_text, SMALL, EDGE, room, &mut below, CAPTION_LINES);
    }
    let y_title = turned(y_title, plot.left - left, &plot);
    Layout {
        prepared,
        width: page,
        height: below + EDGE,
        plot,
        title,
        legend,
        x,
        y,
        x_ticks,
        y_ticks,
        x_title,
        y_title,
        names,
        caption,
        caption_text,
        marks,
        curves,
        bands,
    }
}

/// The ticks of y, whose axis may grow to them.
fn fit_y(figure: &Figure, prepared: &Prepared<'_>, length: f64) -> (Domain, Ticks) {
    let grow = !is_distribution(figure);
    let mut y = Domain::of(&figure.y, span_of_y(figure, prepared), grow);
    let takes = |_: &str| SMALL * 1.7;
    let room = Room { length, takes: &takes, max: Y_LABELS, whole: prepared.whole.1, grow };
    let ticks = ticks(&figure.y, &mut y, &room);
    (y, ticks)
}

/// The ticks of x. Half of the last label may stand beyond the plot's end, which makes room for it.
fn fit_x(
    figure: &Figure,
    prepared: &Prepared<'_>,
    x: &mut Domain,
    plot: &mut Plot,
    page: f64,
) -> Ticks {
    let takes = |label: &str| width(label, SMALL) + SMALL;
    let whole = prepared.whole.0;
    let room = |length| Room { length, takes: &takes, max: X_LABELS, whole, grow: false };
    let tried = ticks(&figure.x, x, &room(plot.width));
    let beyond = tried
        .major
        .iter()
        .map(|(value, label)| width(label, SMALL) / 2.0 - (1.0 - x.position(*value)) * plot.width);
    plot.width -= (beyond.fold(0.0, f64::max) - EDGE + 1.0).max(1.0);
    let mut ticks = ticks(&figure.x, x, &room(plot.width));
    for (value, label) in &mut ticks.major {
        let (at, half) = (plot.left + x.position(*value) * plot.width, width(label, SMALL) / 2.0);
        // Other ticks than those that were tried: a label without room is left out.
        if at - half < 0.0 || at + half > page {
            label.clear();
        }
    }
    ticks
}

/// Broken text whose first line begins below `top`, which moves below the last one.
fn block(text: &str, size: f64, x: f64, room: f64, top: &mut f64, max: usize) -> Vec<Line> {
    let lines = wrap(&bounded(text, 2 * MAX_TEXT), size, room, max);
    let position = |text| {
        *top += size * LEADING;
        Line { x, y: *top - size * (LEADING - 1.0), text }
    };
    lines.into_iter().map(position).collect()
}

fn centred(title: &str, plot: &Plot, below: &mut f64) -> Vec<Line> {
    let centre = plot.left + plot.width / 2.0;
    block(title, LABEL, centre, plot.width, below, 2)
}

/// The title of y, read from below: x and y are those of the page before it is turned.
fn turned(lines: Vec<String>, pushed: f64, plot: &Plot) -> Vec<Line> {
    let y = plot.top + plot.height / 2.0;
    let position =
        |(i, text)| Line { x: EDGE + pushed + LABEL * (0.85 + LEADING * i as f64), y, text };
    lines.into_iter().enumerate().map(position).collect()
}

/// Names in rows, each behind its sample. A single series needs none: the title names it.
fn legend(prepared: &Prepared<'_>, room: f64, top: &mut f64) -> Vec<Line> {
    if prepared.series.len() < 2 {
        return Vec::new();
    }
    let mut x = EDGE;
    let mut lines = Vec::new();
    *top += SMALL * LEADING;
    for series in &prepared.series {
        let name = bounded(series.name, MAX_TEXT);
        let before = sample(&series.shape) + SAMPLE_GAP;
        let text = cut(&name, SMALL, room - before);
        let takes = before + width(&text, SMALL);
        if x > EDGE && x + takes > EDGE + room {
            x = EDGE;
            *top += SMALL * LEADING;
        }
        lines.push(Line { x, y: *top - SMALL * (LEADING - 1.0), text });
        x += takes + LEGEND_GAP;
    }
    lines
}

/// The width of a series' sample in the legend.
pub(super) fn sample(shape: &Shape) -> f64 {
    if matches!(shape, Shape::Marks(_)) { MARK_SAMPLE } else { SAMPLE }
}

fn is_distribution(figure: &Figure) -> bool {
    !figure.series.is_empty() && figure.series.iter().all(|s| matches!(s.data, Data::Ecdf(_)))
}

/// What y has to show: for distribution functions all of 0 to 1.
fn span_of_y(figure: &Figure, prepared: &Prepared<'_>) -> Option<Point> {
    let log = figure.y.scale == Scale::Log;
    if is_distribution(figure) && !log { Some((0.0, 1.0)) } else { prepared.y }
}

/// Names side by side, broken at white space; slanted if that does not do.
fn names(categories: &[&str], plot_width: f64) -> Names {
    let slot = plot_width / categories.len().max(1) as f64;
    let room = slot - 3.0;
    let categories: Vec<String> = categories.iter().map(|name| bounded(name, MAX_TEXT)).collect();
    let fits = |name: &String| name.split_whitespace().all(|word| width(word, SMALL) <= room);
    if categories.iter().all(fits) {
        let lines: Vec<Vec<String>> =
            categories.iter().map(|name| wrap(name, SMALL, room, usize::MAX)).collect();
        let most = lines.iter().map(Vec::len).max().unwrap_or(1).max(1);
        if most <= 3 {
            let height = SMALL * (1.0 + LEADING * (most - 1) as f64);
            return Names { lines, slanted: false, height };
        }
    }
    let cut: Vec<String> = categories.iter().map(|name| cut(name, SMALL, SLANTED_ROOM)).collect();
    let widest = cut.iter().map(|name| width(name, SMALL)).fold(0.0, f64::max);
    let (sin, cos) = SLANT.to_radians().sin_cos();
    let height = widest * sin + SMALL * cos;
    Names { lines: cut.into_iter().map(|name| vec![name]).collect(), slanted: true, height }
}

fn position(point: &Point, x: &Domain, y: &Domain, plot: &Plot) -> Position {
    (x.position(point.0) * plot.width, y.position(point.1) * plot.height)
}

/// Marks, thinned.
fn place_marks(
    prepared: &Prepared<'_>,
    x: &Domain,
    y: &Domain,
    plot: &Plot,
) -> (Vec<Vec<Position>>, Thinned) {
    let all: Vec<Vec<Position>> = prepared
        .series
        .iter()
        .map(|series| match &series.shape {
            Shape::Marks(points) => {
                points.iter().map(|point| position(point, x, y, plot)).collect()
            }
            _ => Vec::new(),
        })
        .collect();
    let count = |marks: &[Vec<Position>]| marks.iter().map(Vec::len).sum::<usize>();
    let (mut left, side) = thin::marks(&all, (plot.width, plot.height));
    let thinned = side.map(|side| (count(&left), count(&all), side));
    left.iter_mut().flatten().for_each(|position| *position = plot.on_page(*position));
    (left, thinned)
}

/// The ribbon of a series, thinned. Zero and below is the foot of a logarithmic axis.
fn place_band(shape: &Shape, x: &Domain, y: &Domain, plot: &Plot) -> Vec<Vec<Bounds>> {
    let Shape::Curve { band, .. } = shape else { return Vec::new() };
    let place_run = |run: &Vec<(f64, f64, f64)>| {
        run.iter()
            .map(|&(at, low, high)| {
                let up = |value: f64| y.place_or_foot(value) * plot.height;
                (x.position(at) * plot.width, up(low), up(high))
            })
            .collect()
    };
    let mut left = thin::band(&band.iter().map(place_run).collect::<Vec<_>>());
    for (x, low, high) in left.iter_mut().flatten() {
        (*x, *low, *high) = (plot.left + *x, plot.bottom() - *low, plot.bottom() - *high);
    }
    left
}

/// Curves, thinned.
fn place_curves(
    prepared: &Prepared<'_>,
    x: &Domain,
    y: &Domain,
    plot: &Plot,
) -> Vec<Vec<Vec<Position>>> {
    let all: Vec<Vec<Vec<Position>>> = prepared
        .series
        .iter()
        .map(|series| match &series.shape {
            Shape::Curve { runs, distribution, .. } => {
                let mut runs: Vec<Vec<Position>> = runs
                    .iter()
                    .map(|run| run.iter().map(|point| position(point, x, y, plot)).collect())
                    .collect();
                if let (true, Some(run)) = (distribution, runs.last_mut()) {
                    // Above the largest observation a distribution function stays at 1.
                    let top = run.last().copied().filter(|last| last.0 < plot.width);
                    run.extend(top.map(|(_, y)| (plot.width, y)));
                }
                runs
            }
            _ => Vec::new(),
        })
        .collect();
    let mut left = thin::curves(&all);
    left.iter_mut().flatten().flatten().for_each(|position| *position = plot.on_page(*position));
    left
}
