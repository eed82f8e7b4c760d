//! Campaigns: a scenario whose parameters are crossed, each combination run again and again until
//! its figures are sure enough.
//!
//! `file` reads what is asked for, `runner` runs what is missing on all cores and keeps each result
//! in `store` as it comes, and `sheet` makes tables and figures of it. Replication
//! r of every cell meets the same random numbers, so differences between cells are differences of
//! the parameters and not of chance. What comes out does not depend on the number of threads, nor on
//! how often the campaign was killed and gone on with.

mod file;
mod runner;
mod sheet;
mod store;

pub use file::{
    Campaign, Cell, Choice, MAX_CELLS, MAX_REPLICATIONS, MAX_SET, MAX_VALUES, MAX_VARY, Target,
    Vary, named, read,
};
pub(crate) use runner::{Done, gather, run};
pub(crate) use sheet::{json, long_table, sheet, summary_table};
pub(crate) use store::{Store, hash};

use crate::commands::Failure;
use crate::output::{self, MANIFEST, Manifest, Sheet};
use std::path::Path;

/// The file of results in a campaign's folder.
pub const RESULTS: &str = "results.log";
/// Copies of the campaign and of its scenario there.
pub const CAMPAIGN: &str = "campaign.toml";
/// The scenario.
pub const SCENARIO: &str = "scenario.toml";

/// The title of a campaign.
pub fn title(name: &str, text: &str) -> Result<String, crate::scenario::Problems> {
    Ok(named(name, text)?.1)
}

/// The report of a campaign's folder as far as its results go, whether it ever came to its end.
pub(crate) fn again(dir: &Path) -> Result<Sheet, Failure> {
    let manifest: Manifest = output::read_json(&dir.join(MANIFEST), "a manifest")?;
    let text = |name: &str| -> Result<String, Failure> { crate::commands::read(&dir.join(name)) };
    let (campaign, scenario) = (text(CAMPAIGN)?, text(SCENARIO)?);
    let mut campaign = read(CAMPAIGN, &campaign, (SCENARIO, &scenario), Some(manifest.seed))?;
    let chosen = |name: &str| manifest.parameters.get(name).and_then(serde_json::Value::as_u64);
    campaign.at_least = chosen("at_least").unwrap_or(campaign.at_least);
    campaign.at_most = chosen("at_most").unwrap_or(campaign.at_most);
    let known = Store::load(&dir.join(RESULTS))?;
    let done = gather(&campaign, &manifest.host.build, &known);
    if done.samples.iter().all(Vec::is_empty) && dir.join(output::SHEET).exists() {
        // Run by a build that names cells otherwise; what it said is there.
        return Ok(output::read_json(&dir.join(output::SHEET), "what ringway lab has written")?);
    }
    Ok(sheet(&campaign, &done))
}
