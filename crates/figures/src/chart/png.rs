//! A PNG from the SVG, with the font of this crate and no other.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::figure::{ChartError, Figure};
use super::text::FONT;

/// Pixels of a PNG for each inch of print.
pub const DPI: f64 = 300.0;
/// Most pixels of an image; a figure over two columns has about a seventh of that.
const MAX_PIXELS: f32 = 50e6;
/// The resolution that CSS, and so SVG, means by a millimetre.
const CSS_DPI: f64 = 96.0;

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_source(fontdb::Source::Binary(Arc::new(FONT)));
    fonts.set_sans_serif_family("Liberation Sans");
    Arc::new(fonts)
});

impl Figure {
    /// The figure as PNG, rendered from [`Figure::svg`] at [`DPI`].
    ///
    /// # Errors
    /// As for [`Figure::svg`].
    pub fn png(&self) -> Result<Vec<u8>, ChartError> {
        render(&self.svg()?)
    }
}

/// A drawing of a report as PNG on white. The ground that labels cover lines with is a variable of the page.
///
/// # Errors
/// A drawing that is too large.
pub(crate) fn render_png(svg: &str) -> Result<Vec<u8>, ChartError> {
    let white = "fill=\"currentColor\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
    let svg = svg.replacen("fill=\"currentColor\">\n", white, 1);
    render(&svg.replace("var(--ground, #fff)", "#fff"))
}

fn render(svg: &str) -> Result<Vec<u8>, ChartError> {
    let options = Options { fontdb: FONTS.clone(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| ChartError::Png(error.to_string()))?;
    let scale = (DPI / CSS_DPI) as f32;
    let (width, height) = (tree.size().width() * scale, tree.size().height() * scale);
    let mut pixmap = (width * height <= MAX_PIXELS)
        .then(|| Pixmap::new(width.ceil() as u32, height.ceil() as u32))
        .flatten()
        .ok_or_else(|| ChartError::Png(format!("an image of {width} by {height} pixels")))?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|error| ChartError::Png(error.to_string()))
}
