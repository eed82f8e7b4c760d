//! Text: how wide it is, how it is broken and cut, and how numbers are written.

use std::sync::LazyLock;

use skrifa::charmap::Charmap;
use skrifa::instance::{LocationRef, Size};
use skrifa::metrics::GlyphMetrics;
use skrifa::{FontRef, MetadataProvider};

/// Liberation Sans, under the SIL Open Font License 1.1 that lies beside it.
pub(super) static FONT: &[u8] = include_bytes!("../../assets/LiberationSans-Regular.ttf");

/// What SVG asks for, the font above first; the others have its widths, or are narrower.
pub(crate) const FAMILY: &str = "Liberation Sans, Arial, Helvetica, sans-serif";

/// Part of the size that a character takes which the font lacks.
const UNKNOWN: f32 = 1.0;

struct Measure {
    charmap: Charmap<'static>,
    advances: GlyphMetrics<'static>,
}

static MEASURE: LazyLock<Option<Measure>> = LazyLock::new(|| {
    let font = FontRef::new(FONT).ok()?;
    Some(Measure {
        charmap: font.charmap(),
        advances: font.glyph_metrics(Size::new(1.0), LocationRef::default()),
    })
});

/// The width of `text` at `size`, in the unit of `size`, without kerning.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let sum: f32 = text.chars().map(advance).sum();
    f64::from(sum) * size
}

fn advance(c: char) -> f32 {
    let measured = MEASURE.as_ref().and_then(|m| m.advances.advance_width(m.charmap.map(c)?));
    measured.unwrap_or(UNKNOWN)
}

/// Breaks `text` into lines no wider than `room`, at white space of ASCII (the others
/// hold numbers together), or within a word that is wider
/// on its own. What exceeds `max` lines is cut, with an ellipsis.
pub(super) fn wrap(text: &str, size: f64, room: f64, max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_ascii_whitespace() {
        let joined = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&joined, size) <= room {
            line = joined;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        let mut rest = word;
        while width(rest, size) > room {
            let at = fitting(rest, size, room);
            lines.push(rest[..at].to_owned());
            rest = &rest[at..];
        }
        line = rest.to_owned();
    }
    if !line.is_empty() {
        lines.push(line);
    }
    if lines.len() > max {
        lines.truncate(max);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last} …"), size, room);
            if !last.ends_with('…') {
                last.push('…');
            }
        }
    }
    lines
}

/// `text`, or as much of it as fits into `room` with an ellipsis.
pub(super) fn cut(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let at = fitting(text, size, room - width("…", size));
    format!("{}…", text[..at].trim_end())
}

/// The bytes of `text`, at least one character, that fit into `room`.
fn fitting(text: &str, size: f64, room: f64) -> usize {
    let mut used = 0.0;
    for (at, c) in text.char_indices() {
        used += f64::from(advance(c)) * size;
        if used > room && at > 0 {
            return at;
        }
    }
    text.len()
}

/// A coordinate with two decimals at most, in the fewest characters.
pub(super) fn number(x: f64) -> String {
    let mut text = format!("{x:.2}");
    let keep = text.trim_end_matches('0').trim_end_matches('.').len();
    text.truncate(keep);
    if text == "-0" { "0".to_owned() } else { text }
}

/// The digits of a whole number in groups of three, by thin spaces, from five digits on.
pub(super) fn grouped(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 * '\u{2009}'.len_utf8());
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && digits.len() > 4 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(c);
    }
    out
}

/// At most `max` characters of `text`, in one line.
pub(crate) fn bounded(text: &str, max: usize) -> String {
    let mut chars = text.chars();
    let mut kept: String = chars.by_ref().take(max).collect();
    if chars.next().is_some() {
        kept.pop();
        kept.push('…');
    }
    kept
}
