//! Charts for print and screen: described once, drawn as SVG, and as PNG from that very SVG.
//!
//! A [`Figure`] says what to show: title, axes with units, series, and on what the numbers rest. It
//! is laid out in points of the printed page, so that text of 7 pt is 7 pt in a column of 85 mm
//! ([`Size::Column`]). Colours are those of Okabe and Ito, which remain distinct for colour-blind
//! readers; every series has a marker as well. The legend stands above the plot, where no data is.
//! The caption always ends with n, the seed and the kind of every interval drawn, and says what was
//! left out: points that are no numbers, points that would lie on one another.
//!
//! The SVG is written here, with text as text; resvg, pure Rust, turns it into the PNG with a font
//! that is part of this crate (Liberation Sans, which has the widths of Arial and Helvetica, so that
//! nothing moves where a viewer uses those). `docs/lab.md` has why no plotting library draws it, with
//! what was measured.
//!
//! However many points there are, a file stays below about 500 KiB: [`thin`] says how.
//!
//! Not here: interaction, animation, other coordinates than x and y.
//!
//! Read `figure`, then `axis`, `layout` and `draw`.

mod axis;
mod caption;
mod draw;
mod figure;
mod layout;
mod look;
mod png;
mod prepare;
mod text;
pub mod thin;

pub(crate) use look::colour;
pub(crate) use png::render_png;
pub(crate) use text::{FAMILY, bounded, width as text_width};

pub use axis::{Axis, MAX_MAGNITUDE, MIN_MAGNITUDE, Scale, Unit};
pub use figure::{
    ChartError, Data, Figure, MAX_BARS, MAX_SERIES, MAX_SHADED, MAX_TEXT, Series, Size,
};
pub use look::{Colour, Look, Marker};
pub use png::DPI;

#[cfg(test)]
mod tests;
