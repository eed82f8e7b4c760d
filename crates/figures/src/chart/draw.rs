//! The layout as SVG 1.1: groups from the ground up, all coordinates in points of the page.

use std::fmt::Write as _;

use super::figure::{ChartError, Figure, MAX_TEXT};
use super::layout::{
    Dress, LABEL, LEADING, Layout, Line, SAMPLE_GAP, SLANT, SMALL, TICK, TICK_GAP, TITLE, lay_out,
    sample,
};
use super::look::{Look, Marker};
use super::prepare::{Bar, Drawn, Shape, prepare};
use super::text::{FAMILY, bounded, number};
use super::thin::{Bounds, Position};
use crate::markup::escape;

/// Radius of a mark, and of one among very many.
const RADIUS: f64 = 1.55;
const SMALL_RADIUS: f64 = 0.75;
/// Marks of a series above which they are drawn small.
const MANY_MARKS: usize = 250;
/// Width of the strokes of curves, of marks that are strokes, of frame and grid.
const CURVE: f64 = 1.0;
const STROKE: f64 = 0.8;
const FRAME: f64 = 0.6;
const GRID: f64 = 0.35;
/// Least distance between the marks of a curve along x: where its points matter, and where marks
/// only tell it from others.
const MARK_EVERY: f64 = 7.0;
const STEP_MARK_EVERY: f64 = 30.0;
/// Part of its position that a group of bars takes, and the widest bar.
const BARS: f64 = 0.72;
const WIDEST_BAR: f64 = 26.0;

impl Figure {
    /// The figure as a document of its own, on white, with title and caption.
    ///
    /// # Errors
    /// Too many series or bars, or bars beside series that are none.
    pub fn svg(&self) -> Result<String, ChartError> {
        Ok(draw(self, Dress::Document)?.0)
    }

    /// The figure as an element for an HTML page that shows title and caption itself: without them,
    /// without ground, and with text in the page's own colour. Beside it the whole caption: what was
    /// said, then n, the intervals, the seed and what is not drawn.
    pub(crate) fn inline(&self) -> Result<(String, String), ChartError> {
        draw(self, Dress::Inline)
    }
}

/// The SVG, and the whole caption.
fn draw(figure: &Figure, dress: Dress) -> Result<(String, String), ChartError> {
    let layout = lay_out(figure, prepare(figure)?, dress);
    let mut svg = Svg(String::with_capacity(16 << 10));
    let (width, height) = (number(layout.width), number(layout.height));
    let label = escape(&bounded(&figure.title, MAX_TEXT));
    svg.add(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{label}\" font-family=\"{FAMILY}\" fill=\"currentColor\""
    ));
    if dress == Dress::Document {
        let wide = figure.size.millimetres();
        let tall = number(wide * layout.height / layout.width);
        svg.add(format_args!(" width=\"{wide}mm\" height=\"{tall}mm\" color=\"#000\""));
    }
    svg.add(format_args!(">\n<title>{label}</title>\n"));
    svg.add(format_args!("<desc>{}</desc>\n", escape(&layout.caption_text)));
    if dress == Dress::Document {
        svg.add(format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"));
    }
    svg.lines(&layout.title, TITLE, "start");
    svg.shaded(figure, &layout);
    svg.frame(&layout);
    svg.series(&layout);
    svg.legend(&layout);
    svg.lines(&layout.caption, SMALL, "start");
    svg.0.push_str("</svg>\n");
    Ok((svg.0, layout.caption_text))
}

/// The document as far as it is written.
struct Svg(String);

impl Svg {
    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.0.write_fmt(what);
    }

    fn text(&mut self, x: f64, y: f64, size: f64, anchor: &str, turn: f64, text: &str) {
        if text.is_empty() {
            return;
        }
        let (x, y) = (number(x), number(y));
        self.add(format_args!("<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\""));
        if anchor != "start" {
            self.add(format_args!(" text-anchor=\"{anchor}\""));
        }
        if turn != 0.0 {
            self.add(format_args!(" transform=\"rotate({turn} {x} {y})\""));
        }
        self.add(format_args!(">{}</text>\n", escape(text)));
    }

    fn lines(&mut self, lines: &[Line], size: f64, anchor: &str) {
        for line in lines {
            self.text(line.x, line.y, size, anchor, 0.0, &line.text);
        }
    }

    fn path(&mut self, data: &str, rest: std::fmt::Arguments<'_>) {
        if !data.is_empty() {
            self.add(format_args!("<path d=\"{data}\" {rest}/>\n"));
        }
    }

    /// Shaded stretches of the horizontal axis, as far as they lie within it.
    fn shaded(&mut self, figure: &Figure, layout: &Layout<'_>) {
        let plot = &layout.plot;
        let at = |x: f64| layout.x_at(x).clamp(plot.left, plot.right());
        for (from, to) in figure.shaded.iter().filter(|s| s.0.is_finite() && s.1 >= s.0) {
            let (left, width) = (at(*from), at(*to) - at(*from));
            if width <= 0.0 {
                continue;
            }
            self.add(format_args!(
                "<rect class=\"shaded\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#D55E00\" \
                 fill-opacity=\"0.16\"/>\n",
                number(left),
                number(plot.top),
                number(width.max(STROKE)),
                number(plot.height)
            ));
        }
    }

    /// Grid, axes, ticks and their labels.
    fn frame(&mut self, layout: &Layout<'_>) {
        let plot = &layout.plot;
        let (left, bottom) = (number(plot.left), number(plot.bottom()));
        let (mut grid, mut ticks) = (String::new(), String::new());
        let at_y = |value: f64| number(layout.y_at(value));
        let at_x = |value: f64| number(layout.x_at(value));
        for (value, _) in &layout.y_ticks.major {
            let _ = write!(grid, "M{left} {}h{}", at_y(*value), number(plot.width));
            let _ = write!(ticks, "M{left} {}h-{TICK}", at_y(*value));
        }
        for value in &layout.y_ticks.minor {
            let _ = write!(ticks, "M{left} {}h-{}", at_y(*value), TICK / 2.0);
        }
        for (value, _) in &layout.x_ticks.major {
            let _ = write!(grid, "M{} {bottom}v-{}", at_x(*value), number(plot.height));
            let _ = write!(ticks, "M{} {bottom}v{TICK}", at_x(*value));
        }
        for value in &layout.x_ticks.minor {
            let _ = write!(ticks, "M{} {bottom}v{}", at_x(*value), TICK / 2.0);
        }
        let stroke = "fill=\"none\" stroke=\"currentColor\" stroke-width";
        self.path(&grid, format_args!("{stroke}=\"{GRID}\" stroke-opacity=\"0.25\""));
        let axes = format!("M{left} {}V{bottom}H{}{ticks}", number(plot.top), number(plot.right()));
        self.path(&axes, format_args!("{stroke}=\"{FRAME}\""));
        for (value, label) in &layout.y_ticks.major {
            let y = layout.y_at(*value) + SMALL * 0.35;
            self.text(plot.left - TICK - TICK_GAP, y, SMALL, "end", 0.0, label);
        }
        let below = plot.bottom() + TICK + TICK_GAP + SMALL * 0.72;
        for (value, label) in &layout.x_ticks.major {
            self.text(layout.x_at(*value), below, SMALL, "middle", 0.0, label);
        }
        self.names(layout, below);
        self.lines(&layout.x_title, LABEL, "middle");
        for line in &layout.y_title {
            self.text(line.x, line.y, LABEL, "middle", -90.0, &line.text);
        }
    }

    fn names(&mut self, layout: &Layout<'_>, below: f64) {
        let slot = layout.plot.width / layout.names.lines.len().max(1) as f64;
        for (i, lines) in layout.names.lines.iter().enumerate() {
            let centre = layout.plot.left + slot * (i as f64 + 0.5);
            for (j, line) in lines.iter().enumerate() {
                let y = below + j as f64 * SMALL * LEADING;
                if layout.names.slanted {
                    self.text(centre + SMALL * 0.3, y, SMALL, "end", -SLANT, line);
                } else {
                    self.text(centre, y, SMALL, "middle", 0.0, line);
                }
            }
        }
    }

    fn legend(&mut self, layout: &Layout<'_>) {
        for (line, series) in layout.legend.iter().zip(&layout.prepared.series) {
            let middle = line.y - SMALL * 0.35;
            self.sample(series, line.x, middle);
            let x = line.x + sample(&series.shape) + SAMPLE_GAP;
            self.text(x, line.y, SMALL, "start", 0.0, &line.text);
        }
    }

    /// What a series looks like, from `x` on and around `y`.
    fn sample(&mut self, series: &Drawn<'_>, x: f64, y: f64) {
        let (colour, w) = (series.look.colour.code(), sample(&series.shape));
        match &series.shape {
            Shape::Marks(_) => {}
            Shape::Curve { band, .. } => {
                let (left, top) = (number(x), number(y - 2.6));
                if !band.is_empty() {
                    self.add(format_args!(
                        "<rect x=\"{left}\" y=\"{top}\" width=\"{w}\" height=\"5.2\" \
                         fill=\"{colour}\" fill-opacity=\"0.2\"/>\n"
                    ));
                }
                let line = format!("M{left} {}h{w}", number(y));
                self.curve(&line, colour);
            }
            Shape::Bars(_) => {
                let (left, top) = (number(x + 2.0), number(y - 2.8));
                self.add(format_args!(
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"5.6\" fill=\"{colour}\" \
                     fill-opacity=\"0.35\" stroke=\"{colour}\" stroke-width=\"{FRAME}\"/>\n",
                    w - 4.0
                ));
            }
        }
        self.marks(&[(x + w / 2.0, y)], series.look, RADIUS);
    }

    fn curve(&mut self, data: &str, colour: &str) {
        self.path(
            data,
            format_args!(
                "fill=\"none\" stroke=\"{colour}\" stroke-width=\"{CURVE}\" \
                 stroke-linejoin=\"round\" stroke-linecap=\"round\""
            ),
        );
    }

    /// Marks at places of the page, all in one path.
    fn marks(&mut self, places: &[Position], look: Look, radius: f64) {
        if look.marker == Marker::None {
            return;
        }
        let (outline, colour) = (look.marker.outline(radius), look.colour.code());
        let mut data = String::with_capacity(places.len() * (outline.len() + 14));
        for (x, y) in places {
            let _ = write!(data, "M{} {}{outline}", number(*x), number(*y));
        }
        let style = match look.marker {
            Marker::Circle => format!(
                "fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\" stroke-linecap=\"round\"",
                number(2.0 * radius)
            ),
            Marker::Cross | Marker::Plus => format!(
                "fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\"",
                number(STROKE * (radius / RADIUS).sqrt())
            ),
            _ => format!("fill=\"{colour}\""),
        };
        self.path(&data, format_args!("{style}"));
    }

    /// Bands, curves and bars, then all marks above them.
    fn series(&mut self, layout: &Layout<'_>) {
        for (i, series) in layout.prepared.series.iter().enumerate() {
            let colour = series.look.colour.code();
            match &series.shape {
                Shape::Marks(_) => {}
                Shape::Curve { step, .. } => {
                    for run in &layout.bands[i] {
                        let fill = format_args!("fill=\"{colour}\" fill-opacity=\"0.2\"");
                        self.path(&band(run), fill);
                    }
                    let mut data = String::new();
                    for run in &layout.curves[i] {
                        trace(&mut data, run, *step);
                    }
                    self.curve(&data, colour);
                }
                Shape::Bars(bars) => self.bars(layout, i, bars, series.look),
            }
        }
        let many = layout.prepared.series.len() > 1;
        for (i, series) in layout.prepared.series.iter().enumerate() {
            let curve = match &series.shape {
                Shape::Curve { step, .. } if many || !step => curve_marks(layout, i, series),
                _ => Vec::new(),
            };
            let places = if curve.is_empty() { &layout.marks[i] } else { &curve };
            let radius = if places.len() > MANY_MARKS { SMALL_RADIUS } else { RADIUS };
            self.marks(places, series.look, radius);
        }
    }

    fn bars(&mut self, layout: &Layout<'_>, i: usize, bars: &[Bar], look: Look) {
        let (plot, colour) = (&layout.plot, look.colour.code());
        let slot = plot.width / layout.prepared.categories.len().max(1) as f64;
        let count = layout.prepared.series.len() as f64;
        let wide = (slot * BARS / count).min(WIDEST_BAR);
        let (mut boxes, mut whiskers, mut tips) = (String::new(), String::new(), Vec::new());
        let foot = number(layout.y_at(0.0f64.clamp(layout.y.low, layout.y.high)));
        for &Bar { category, value, bounds } in bars {
            let beside = wide * (i as f64 - (count - 1.0) / 2.0);
            let (x, top) =
                (plot.left + slot * (category as f64 + 0.5) + beside, layout.y_at(value));
            let gap = wide * 0.06;
            let (left, right) = (number(x - wide / 2.0 + gap), number(x + wide / 2.0 - gap));
            let _ = write!(boxes, "M{left} {foot}V{}H{right}V{foot}z", number(top));
            if let Some((low, high)) = bounds {
                let cap = (wide * 0.22).min(3.0);
                let (x0, w) = (number(x - cap), number(2.0 * cap));
                let (low, high) = (number(layout.y_at(low)), number(layout.y_at(high)));
                let _ =
                    write!(whiskers, "M{} {low}V{high}M{x0} {low}h{w}M{x0} {high}h{w}", number(x));
            }
            tips.push((x, top));
        }
        self.path(
            &boxes,
            format_args!(
                "fill=\"{colour}\" fill-opacity=\"0.35\" stroke=\"{colour}\" stroke-width=\"{FRAME}\""
            ),
        );
        let ink = "fill=\"none\" stroke=\"currentColor\" stroke-width=\"0.7\"";
        self.path(&whiskers, format_args!("{ink}"));
        if count > 1.0 {
            self.marks(&tips, look, RADIUS.min(wide * 0.3));
        }
    }
}

/// Adds a run to the path of a curve.
fn trace(data: &mut String, run: &[Position], step: bool) {
    for (i, &(x, y)) in run.iter().enumerate() {
        let (x, y) = (number(x), number(y));
        let _ = match (i, step) {
            (0, _) => write!(data, "M{x} {y}"),
            (_, true) => write!(data, "H{x}V{y}"),
            (_, false) => write!(data, "L{x} {y}"),
        };
    }
    if run.len() == 1 {
        // A point on its own is a dot: a line of no length with round ends.
        data.push_str("h0");
    }
}

/// The outline of a ribbon: along its upper bound and back along the lower one.
fn band(run: &[Bounds]) -> String {
    let mut data = String::new();
    for (i, (x, _, high)) in run.iter().enumerate() {
        let command = if i == 0 { 'M' } else { 'L' };
        let _ = write!(data, "{command}{} {}", number(*x), number(*high));
    }
    for (x, low, _) in run.iter().rev() {
        let _ = write!(data, "L{} {}", number(*x), number(*low));
    }
    data.push('z');
    data
}

/// Points of a curve that get a mark: not closer than can be told apart.
/// Series begin at different distances, so that curves on one another do not hide their marks.
fn curve_marks(layout: &Layout<'_>, i: usize, series: &Drawn<'_>) -> Vec<Position> {
    let Shape::Curve { step, distribution, .. } = series.shape else { return Vec::new() };
    let (plot, count) = (&layout.plot, layout.prepared.series.len() as f64);
    let every = if step { STEP_MARK_EVERY } else { MARK_EVERY };
    let all: usize = layout.curves[i].iter().map(Vec::len).sum();
    let dense = all as f64 > plot.width / MARK_EVERY;
    let first = plot.left + every * (i as f64 + 0.5) / count;
    let mut next = if step || dense { first } else { f64::NEG_INFINITY };
    let mut marks = Vec::new();
    for &(x, y) in layout.curves[i].iter().flatten() {
        // Where a distribution function leaves the plot there is no observation.
        if x >= next && !(distribution && x >= plot.right()) {
            marks.push((x, y));
            next = x + every;
        }
    }
    marks
}
