//! Campaigns: a scenario whose parameters are crossed. Each combination is replicated until its
//! figures are accurate enough.
//!
//! `file` reads the campaign, `plan` decides which replications are missing, `runner` runs them on all
//! cores and appends each result to `store`, and `sheet` makes tables and figures of the results. Replication r of every
//! cell uses the same random numbers, so differences between cells come from the parameters and not
//! from chance. The output does not depend on the number of threads, nor on how often the campaign
//! was interrupted and resumed.

mod file;
mod plan;
mod runner;
mod sheet;
mod store;

pub use file::{
    Campaign, Cell, Choice, MAX_CELLS, MAX_REPLICATIONS, MAX_SET, MAX_VALUES, MAX_VARY, Target,
    Vary, read, scenario_and_title,
};
pub(crate) use plan::{CampaignResults, Plan};
pub(crate) use runner::{bounded, run, run_line};
pub(crate) use sheet::{json, long_table, sheet, summary_table};
pub(crate) use store::{KnownResults, Store, hash, parse};

use crate::commands::Failure;
use crate::output::{self, MANIFEST, Manifest, Sheet};
use std::path::Path;

/// File of results in the folder of a campaign.
pub const RESULTS: &str = "results.log";
/// Copy of the campaign's file in the same folder.
pub const CAMPAIGN: &str = "campaign.toml";
/// Copy of the scenario's file in the same folder.
pub const SCENARIO: &str = "scenario.toml";

/// Returns the title of a campaign.
pub fn title(name: &str, text: &str) -> Result<String, crate::scenario::Problems> {
    Ok(scenario_and_title(name, text)?.1)
}

/// Returns the report of a campaign's folder from the results so far, whether or not the campaign
/// is complete.
pub(crate) fn load_report(dir: &Path) -> Result<Sheet, Failure> {
    let manifest: Manifest = output::read_json(&dir.join(MANIFEST), "a manifest")?;
    let text = |name: &str| -> Result<String, Failure> { crate::commands::read(&dir.join(name)) };
    let (campaign, scenario) = (text(CAMPAIGN)?, text(SCENARIO)?);
    let mut campaign = read(CAMPAIGN, &campaign, (SCENARIO, &scenario), Some(manifest.seed))?;
    let chosen = |name: &str| manifest.parameters.get(name).and_then(serde_json::Value::as_u64);
    campaign.at_least = chosen("at_least").unwrap_or(campaign.at_least);
    campaign.at_most = chosen("at_most").unwrap_or(campaign.at_most);
    let known = Store::load(&dir.join(RESULTS))?;
    let done = Plan::new(&campaign, &manifest.host.build, known).gather(&campaign);
    if done.samples.iter().all(Vec::is_empty) && dir.join(output::SHEET).exists() {
        // The folder was written by a build that names cells differently; its own report is in the
        // folder.
        return Ok(output::read_json(&dir.join(output::SHEET), "what ringway lab has written")?);
    }
    Ok(sheet(&campaign, &done))
}
