//! `ringway lab report`: draws and shows results on disk.

use super::{Answer, Failure};
use crate::campaign;
use crate::output::{self, PAGE, SHEET, Sheet, columns};
use serde_json::json;
use std::path::Path;

/// Loads the report of a folder, or makes one from a campaign's results.
fn load(dir: &Path) -> Result<Sheet, Failure> {
    if dir.join(campaign::RESULTS).exists() {
        return campaign::load_report(dir);
    }
    let sheet = dir.join(SHEET);
    if !sheet.exists() {
        let what = "expected a folder that run, sweep or paper has written with --out";
        return Err(Failure::Failed(vec![format!(
            "{}: {what}, got no {SHEET} in it",
            dir.display()
        )]));
    }
    Ok(output::read_json(&sheet, "what ringway lab has written")?)
}

/// Draws the figures and the page of a folder again, and shows its tables.
pub fn report(dir: &Path) -> Result<Answer, Failure> {
    let sheet = load(dir)?;
    let made = output::draw(&sheet, dir)?;
    let mut text = format!("{}\n\n", sheet.title);
    for table in &sheet.tables {
        text += &format!("{}\n{}\n", table.caption, columns(&table.head, &table.rows));
    }
    let plural = if made.len() == 1 { "" } else { "s" };
    let page = dir.join(PAGE);
    text += &format!("{} file{plural}, {}\n", made.len(), page.display());
    let json = json!({
        "dir": dir,
        "title": sheet.title,
        "tables": sheet.tables,
        "files": made,
        "page": page,
    });
    Ok(Answer { text, json, ..Answer::default() })
}
