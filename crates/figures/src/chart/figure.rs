//! What a figure shows, as it is described.

use super::axis::Axis;
use super::look::{Colour, Look, Marker};
use crate::statistics::Estimate;

/// Most series of a figure: with more nobody tells them apart.
pub const MAX_SERIES: usize = 12;
/// Most shaded stretches of a figure.
pub const MAX_SHADED: usize = 200;
/// Most bars of a figure, over all series.
pub const MAX_BARS: usize = 240;
/// Most characters of a title, a caption, a label or a name; what is longer is cut, with an ellipsis.
pub const MAX_TEXT: usize = 1_200;

/// How wide a figure is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// One column of a paper, 85 mm.
    #[default]
    Column,
    /// Both columns, 178 mm.
    Page,
}

/// What a series is.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// One mark for each point, such as the delay of each packet.
    Scatter(Vec<(f64, f64)>),
    /// Points joined by straight lines in the order of x, with markers. A point whose y is not
    /// finite leaves a gap.
    Line(Vec<(f64, f64)>),
    /// A value that holds until the next one, such as a congestion window or the length of a queue.
    Step(Vec<(f64, f64)>),
    /// The empirical distribution function of observations; y is the fraction not above x.
    Ecdf(Vec<f64>),
    /// Estimates over x with their intervals as a ribbon.
    Ribbon(Vec<(f64, Estimate)>),
    /// One bar for each category with its interval as an error bar. Categories of one name share a
    /// position on the axis; the scale and range of x are not used.
    Bars(Vec<(String, Estimate)>),
}

/// Points or observations of one kind and name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// What it is.
    pub data: Data,
    /// Its colour and marker; by its position among the series if none.
    pub look: Option<Look>,
}

impl Series {
    /// A series that takes its look from its position.
    pub fn new(name: impl Into<String>, data: Data) -> Self {
        Self { name: name.into(), data, look: None }
    }

    /// The same series with a look of its own.
    #[must_use]
    pub fn look(mut self, colour: Colour, marker: Marker) -> Self {
        self.look = Some(Look { colour, marker });
        self
    }
}

/// A description of one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its title.
    pub title: String,
    /// What it shows, in sentences; n, seed and intervals are added.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, the first below.
    pub series: Vec<Series>,
    /// The seed from which everything drawn comes.
    pub seed: u64,
    /// How many of what the figure rests on, such as 10 "replications"; if none, the caption counts
    /// the observations that the series hold.
    pub n: Option<(usize, String)>,
    /// How wide it is printed.
    pub size: Size,
    /// Stretches of the horizontal axis that are shaded, such as times when a link was down.
    pub shaded: Vec<(f64, f64)>,
}

impl Figure {
    /// A figure without series.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, seed: u64) -> Self {
        Self {
            title: title.into(),
            caption: String::new(),
            x,
            y,
            series: Vec::new(),
            seed,
            n: None,
            size: Size::Column,
            shaded: Vec::new(),
        }
    }

    /// The figure with one series more.
    #[must_use]
    pub fn with(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The figure with this caption.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }

    /// The figure over both columns of a page.
    #[must_use]
    pub fn wide(mut self) -> Self {
        self.size = Size::Page;
        self
    }

    /// The figure with stretches of its horizontal axis shaded, from and to; what they are belongs into
    /// the caption. Of more than [`MAX_SHADED`] the first are drawn.
    #[must_use]
    pub fn shading(mut self, stretches: impl IntoIterator<Item = (f64, f64)>) -> Self {
        self.shaded.extend(stretches.into_iter().take(MAX_SHADED));
        self
    }

    /// The figure resting on `n` of `what`, a noun in the plural.
    #[must_use]
    pub fn resting_on(mut self, n: usize, what: impl Into<String>) -> Self {
        self.n = Some((n, what.into()));
        self
    }
}

/// Why a figure could not be drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChartError {
    /// More series than can be told apart.
    #[error("expected at most {MAX_SERIES} series, got {0}")]
    TooManySeries(usize),
    /// More bars than can be told apart.
    #[error("expected at most {MAX_BARS} bars, got {0}")]
    TooManyBars(usize),
    /// Bars beside series that are none: they have no axis in common.
    #[error("expected bars alone or no bars, got both in one figure")]
    MixedBars,
    /// The SVG could not be rendered.
    #[error("PNG: {0}")]
    Png(String),
}
