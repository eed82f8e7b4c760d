//! Reports: one HTML page that holds everything it shows.
//!
//! A [`Report`] is a title, a manifest of what was run, and sections of text, tables and figures.
//! [`Report::html`] needs no other file, no network and no script: the style is within, figures are
//! SVG elements, and the reader's wish for light or dark is followed. It prints. Every text is
//! escaped, and the page is well-formed XML too, so that any tool can read it. It is not a template
//! language: what a report says is the caller's.
//!
//! Read [`Report`], then [`Grid`] for tables whose numbers stand below one another, and
//! [`Grid::comparison`] for a paper's figures beside ours.

mod diagram;
mod grid;
mod ladder;
mod picture;
mod ring;

use std::fmt::Write as _;

pub use diagram::{Diagram, Edge, MAX_NODES};
pub use grid::{Compared, Entry, Grid, Head};
pub use ladder::{Ladder, MAX_ENDS, MAX_STEPS, Rung};
pub use picture::{
    MAX_SPOTS, MAX_WAYS, Picture, RING_RADIUS, Spot, SpotKind, Way, WayKind, on_ring,
};
pub use ring::{MAX_RING_KEYS, MAX_RING_NODES, Ring};

use crate::chart::{ChartError, Figure, Size};
use crate::markup::escape;

/// The style of the page.
const STYLE: &str = include_str!("style.css");
/// Sections from which on a list of them stands at the top.
const LISTED_FROM: usize = 4;

/// One page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it is about.
    pub title: String,
    /// What was found, in a few sentences; empty lines part paragraphs.
    pub lead: String,
    /// What was run: version, seed, parameters, host, each with its name.
    pub manifest: Vec<(String, String)>,
    /// The rest.
    pub sections: Vec<Section>,
}

/// A part of a report with a heading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// What stands below, in order.
    pub parts: Vec<Part>,
}

/// What a section is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Sentences; empty lines part paragraphs.
    Text(String),
    /// A table.
    Grid(Grid),
    /// A figure with its whole caption.
    Figure(Figure),
    /// A drawing of nodes and what joins them.
    Diagram(Diagram),
    /// A drawing of a ring of ids.
    Ring(Ring),
    /// A picture of nodes and the ways of packets.
    Picture(Picture),
    /// A ladder of messages.
    Ladder(Ladder),
}

impl Section {
    /// A section without parts.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), parts: Vec::new() }
    }

    /// The section with sentences more.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.parts.push(Part::Text(text.into()));
        self
    }

    /// The section with a table more.
    #[must_use]
    pub fn grid(mut self, grid: Grid) -> Self {
        self.parts.push(Part::Grid(grid));
        self
    }

    /// The section with a drawing more.
    #[must_use]
    pub fn diagram(mut self, diagram: Diagram) -> Self {
        self.parts.push(Part::Diagram(diagram));
        self
    }

    /// The section with a ring more.
    #[must_use]
    pub fn ring(mut self, ring: Ring) -> Self {
        self.parts.push(Part::Ring(ring));
        self
    }

    /// The section with a picture more.
    #[must_use]
    pub fn picture(mut self, picture: Picture) -> Self {
        self.parts.push(Part::Picture(picture));
        self
    }

    /// The section with a ladder more.
    #[must_use]
    pub fn ladder(mut self, ladder: Ladder) -> Self {
        self.parts.push(Part::Ladder(ladder));
        self
    }

    /// The section with a figure more.
    #[must_use]
    pub fn figure(mut self, figure: Figure) -> Self {
        self.parts.push(Part::Figure(figure));
        self
    }
}

/// The page as far as it is written, and how many tables and figures it has.
struct Page {
    html: String,
    tables: usize,
    figures: usize,
}

impl Report {
    /// A report without sections.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// The page as HTML.
    ///
    /// # Errors
    /// A figure that cannot be drawn.
    pub fn html(&self) -> Result<String, ChartError> {
        let title = escape(&self.title);
        let mut page = Page { html: String::new(), tables: 0, figures: 0 };
        page.add(format_args!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n"
        ));
        page.text(&self.lead);
        page.manifest(&self.manifest);
        if self.sections.len() >= LISTED_FROM {
            page.contents(&self.sections);
        }
        for (i, section) in self.sections.iter().enumerate() {
            page.add(format_args!("<section id=\"s{i}\">\n<h2>{}</h2>\n", escape(&section.title)));
            for part in &section.parts {
                page.part(part)?;
            }
            page.html.push_str("</section>\n");
        }
        page.html.push_str("</main>\n</body>\n</html>\n");
        Ok(page.html)
    }
}

impl Page {
    fn add(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing into a string cannot fail.
        let _ = self.html.write_fmt(what);
    }

    fn text(&mut self, text: &str) {
        for paragraph in text.split("\n\n").map(str::trim).filter(|p| !p.is_empty()) {
            self.add(format_args!("<p>{}</p>\n", escape(paragraph)));
        }
    }

    fn manifest(&mut self, manifest: &[(String, String)]) {
        if manifest.is_empty() {
            return;
        }
        self.html.push_str("<div class=\"wide\"><table class=\"facts\">\n<tbody>\n");
        for (name, value) in manifest {
            self.add(format_args!(
                "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n",
                escape(name),
                escape(value)
            ));
        }
        self.html.push_str("</tbody>\n</table></div>\n");
    }

    fn contents(&mut self, sections: &[Section]) {
        self.html.push_str("<nav aria-label=\"Sections\">\n<ul>\n");
        for (i, section) in sections.iter().enumerate() {
            self.add(format_args!("<li><a href=\"#s{i}\">{}</a></li>\n", escape(&section.title)));
        }
        self.html.push_str("</ul>\n</nav>\n");
    }

    fn part(&mut self, part: &Part) -> Result<(), ChartError> {
        match part {
            Part::Text(text) => self.text(text),
            Part::Grid(grid) => self.grid(grid),
            Part::Figure(figure) => self.figure(figure)?,
            Part::Diagram(diagram) => {
                self.drawing(&diagram.title, &diagram.svg(), &diagram.full_caption());
            }
            Part::Ring(ring) => self.drawing(&ring.title, &ring.svg(), &ring.full_caption()),
            Part::Picture(picture) => {
                self.drawing(&picture.title, &picture.svg(), &picture.full_caption());
            }
            Part::Ladder(ladder) => {
                self.drawing(&ladder.title, &ladder.svg(), &ladder.full_caption());
            }
        }
        Ok(())
    }

    fn figure(&mut self, figure: &Figure) -> Result<(), ChartError> {
        self.figures += 1;
        let (number, (svg, caption)) = (self.figures, figure.inline()?);
        let class = match figure.size {
            Size::Column => "column",
            Size::Page => "page",
        };
        self.add(format_args!(
            "<figure class=\"{class}\">\n{svg}<figcaption><b>Figure {number}. {}.</b> {}\
             </figcaption>\n</figure>\n",
            escape(figure.title.trim_end_matches('.')),
            escape(&caption)
        ));
        Ok(())
    }

    fn drawing(&mut self, title: &str, svg: &str, caption: &str) {
        self.figures += 1;
        let number = self.figures;
        self.add(format_args!(
            "<figure class=\"diagram\">\n<div class=\"wide\" tabindex=\"0\">{svg}</div>\n<figcaption><b>Figure \
             {number}. {}.</b> {}</figcaption>\n</figure>\n",
            escape(title.trim_end_matches('.')),
            escape(caption)
        ));
    }

    fn grid(&mut self, grid: &Grid) {
        self.tables += 1;
        let number = self.tables;
        self.add(format_args!(
            "<div class=\"wide\" tabindex=\"0\"><table>\n<caption><span><b>Table {number}.</b> {}</span></caption>\n\
             <thead><tr>",
            escape(&grid.caption)
        ));
        for head in &grid.heads {
            let class = if head.is_number() { " class=\"n\"" } else { "" };
            self.add(format_args!("<th scope=\"col\"{class}>{}</th>", escape(&head.title)));
        }
        self.html.push_str("</tr></thead>\n<tbody>\n");
        for row in &grid.rows {
            self.html.push_str("<tr>");
            for (i, head) in grid.heads.iter().enumerate() {
                let entry = row.get(i).unwrap_or(&Entry::Nothing);
                let class = if head.is_number() || entry.is_number() { " class=\"n\"" } else { "" };
                let shown = escape(&entry.spell(head));
                match entry {
                    Entry::File(name) => {
                        let to = path(name);
                        self.add(format_args!("<td{class}><a href=\"./{to}\">{shown}</a></td>"));
                    }
                    _ => self.add(format_args!("<td{class}>{shown}</td>")),
                }
            }
            self.html.push_str("</tr>\n");
        }
        self.html.push_str("</tbody>\n</table></div>\n");
    }
}

/// A file's name as the path of a relative reference (RFC 3986 section 2.1).
fn path(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests;
