//! The page: the whole sheet in one self-contained HTML file.

use super::pictures::{ladder, picture};
use super::text::is_numbers;
use super::{LinkSheet, NetworkSheet, RingSheet, Sheet, TableSheet};
use ringway_figures::chart::{ChartError, Figure};
use ringway_figures::report::{Diagram, Edge, Entry, Grid, Head, Report, Ring, Section};

/// Renders the page.
pub(super) fn page(sheet: &Sheet, figures: Vec<Figure>) -> Result<String, ChartError> {
    let mut report = Report::new(&sheet.title);
    report.lead = sheet.text.join("\n\n");
    report.manifest.clone_from(&sheet.facts);
    let results = sheet.tables.iter().fold(Section::new("Results"), |s, t| s.grid(grid(t)));
    let drawn = figures.into_iter().fold(Section::new("Figures"), Section::figure);
    let drawn = sheet.rings.iter().map(ring).fold(drawn, Section::ring);
    let drawn = sheet.pictures.iter().map(picture).fold(drawn, Section::picture);
    let drawn = sheet.ladders.iter().map(ladder).fold(drawn, Section::ladder);
    let mut network = Section::new("Network");
    if let Some(sheet) = &sheet.network {
        network = network.diagram(diagram(sheet));
    }
    let mut files = Section::new("Files beside this page");
    if !sheet.files.is_empty() {
        let heads = [Head::text("file"), Head::text("what it holds")];
        let charts = sheet.charts.iter().flat_map(|chart| {
            let file = |ending: &str| format!("figures/{}.{ending}", chart.name);
            [(file("svg"), chart.title.clone()), (file("png"), "the same as PNG".into())]
        });
        let rings = sheet.rings.iter();
        let rings = rings.map(|ring| (format!("figures/{}.svg", ring.name), ring.title.clone()));
        let all = sheet.files.iter().cloned().chain(charts).chain(rings);
        let pictures = sheet.pictures.iter().map(|p| (&p.name, &p.title));
        let drawings = pictures.chain(sheet.ladders.iter().map(|l| (&l.name, &l.title)));
        let drawings = drawings.flat_map(|(name, title)| {
            let file = |ending: &str| format!("figures/{name}.{ending}");
            [(file("svg"), title.clone()), (file("png"), "the same as PNG".into())]
        });
        let all = all.chain(drawings);
        let rows = all.map(|(file, what)| [Entry::File(file), what.into()]);
        files = files.grid(rows.fold(Grid::new("", heads), Grid::row));
    }
    report.sections =
        { [network, results, drawn, files] }.into_iter().filter(|s| !s.parts.is_empty()).collect();
    report.html()
}

/// Converts the network into the form of the drawing library.
fn diagram(sheet: &NetworkSheet) -> Diagram {
    let edge =
        |l: &LinkSheet| Edge { between: l.between, label: l.label.clone(), dashed: l.goes_down };
    let dashed = sheet.links.iter().any(|l| l.goes_down);
    Diagram {
        title: "Nodes and links".into(),
        caption: format!(
            "Rate, delay and loss of each link; an arrow where they differ by direction.{}",
            if dashed { " Dashed: down at times." } else { "" }
        ),
        nodes: sheet.nodes.clone(),
        edges: sheet.links.iter().map(edge).collect(),
    }
}

/// Converts a ring into the form of the drawing library.
pub(super) fn ring(sheet: &RingSheet) -> Ring {
    let RingSheet { name: _, title, caption, nodes, keys } = sheet.clone();
    Ring { title, caption, nodes, keys }
}

/// Converts a table: words are aligned left, numbers right.
fn grid(table: &TableSheet) -> Grid {
    let heads =
        table.head.iter().enumerate().map(|(i, head)| match i > 0 && is_numbers(&table.rows, i) {
            false => Head::text(head),
            true => Head::number(head, 0),
        });
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| Entry::Text(cell.clone())));
    rows.fold(Grid::new(&table.caption, heads), Grid::row)
}
