//! The page: everything of a sheet in one HTML file that needs nothing else.

use super::text::is_numbers;
use super::{Sheet, TableSheet};
use ringway_figures::chart::{ChartError, Figure};
use ringway_figures::report::{Entry, Grid, Head, Report, Section};

/// Writes the page.
pub(super) fn page(sheet: &Sheet, figures: Vec<Figure>) -> Result<String, ChartError> {
    let mut report = Report::new(&sheet.title);
    report.lead = sheet.text.join("\n\n");
    report.manifest.clone_from(&sheet.facts);
    let results = sheet.tables.iter().fold(Section::new("Results"), |s, t| s.grid(grid(t)));
    let drawn = figures.into_iter().fold(Section::new("Figures"), Section::figure);
    let mut files = Section::new("Files beside this page");
    if !sheet.files.is_empty() {
        let heads = [Head::text("file"), Head::text("what it holds")];
        let rows =
            sheet.files.iter().map(|(file, what)| [file.as_str().into(), what.as_str().into()]);
        files = files.grid(rows.fold(Grid::new("", heads), Grid::row));
    }
    report.sections =
        { [results, drawn, files] }.into_iter().filter(|s| !s.parts.is_empty()).collect();
    report.html()
}

/// A table: words to the left, numbers to the right.
fn grid(table: &TableSheet) -> Grid {
    let heads =
        table.head.iter().enumerate().map(|(i, head)| match i > 0 && is_numbers(&table.rows, i) {
            false => Head::text(head),
            true => Head::number(head, 0),
        });
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| Entry::Text(cell.clone())));
    rows.fold(Grid::new(&table.caption, heads), Grid::row)
}
