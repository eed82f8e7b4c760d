//! `ringway lab sweep`: a campaign, or a search.

use super::{Answer, Failure, Source, source};
use crate::builtin;
use crate::campaign::{self, CAMPAIGN, RESULTS, SCENARIO, Store};
use crate::output::{self, MANIFEST, Manifest, PAGE, SHEET, build, columns, host, version};
use crate::progress::Progress;
use crate::search;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where a campaign goes if nothing else is said: a folder of its name in this one.
const DEFAULT_OUT: &str = "lab-results";

/// What `ringway lab sweep` is asked.
#[derive(Clone, Debug, Default)]
pub struct SweepArgs {
    /// A built-in campaign's name or a file.
    pub what: String,
    /// Where files go.
    pub out: Option<PathBuf>,
    /// Another seed.
    pub seed: Option<u64>,
    /// So many replications of each cell, no more and no fewer.
    pub reps: Option<u64>,
    /// Threads; 0 for one a core.
    pub threads: usize,
}

/// The scenario a campaign names: built in, or a file beside the campaign's.
fn base(campaign: &Source, name: &str) -> Result<Source, Failure> {
    if builtin::find(name).is_none() {
        let beside = Path::new(&campaign.name).parent().map(|dir| dir.join(name));
        if let Some(beside) = beside.filter(|b| b.exists()) {
            return source(&beside.display().to_string(), &[], "scenario");
        }
    }
    source(name, builtin::ALL, "scenario").map_err(|failure| match failure {
        // The mistake stands in the file, not on the command line.
        Failure::Usage(lines) => {
            let lines = lines.iter().map(|l| format!("{}: campaign.scenario: {l}", campaign.name));
            Failure::Failed(lines.collect())
        }
        other => other,
    })
}

/// Runs a campaign, or goes on with it.
pub fn sweep(args: &SweepArgs) -> Result<Answer, Failure> {
    let began = Instant::now();
    let file = source(&args.what, builtin::CAMPAIGNS, "campaign")?;
    let (name, _) = campaign::named(&file.name, &file.text)?;
    let base = base(&file, &name)?;
    let mut campaign = campaign::read(&file.name, &file.text, (&base.name, &base.text), args.seed)?;
    if let Some(reps) = args.reps {
        if !(1..=campaign::MAX_REPLICATIONS).contains(&reps) {
            let what = format!("--reps: expected 1 to {}, got {reps}", campaign::MAX_REPLICATIONS);
            return Err(Failure::Usage(vec![what]));
        }
        (campaign.at_least, campaign.at_most) = (reps, reps);
    }
    let stem = Path::new(&file.name).file_stem().map_or("campaign".into(), PathBuf::from);
    let out = args.out.clone().unwrap_or_else(|| Path::new(DEFAULT_OUT).join(stem));
    output::folder(&out)?;
    let build = build();
    let manifest = |took: f64| Manifest {
        kind: "sweep".into(),
        version: version(),
        what: file.name.clone(),
        seed: campaign.seed,
        replications: campaign.at_most,
        parameters: json!({
            "campaign": file.text,
            "scenario": base.text,
            "at_least": campaign.at_least,
            "at_most": campaign.at_most,
            "within": campaign.within,
        }),
        host: host(took),
    };
    // Before anything is run, so that what a kill leaves can be read.
    output::write(&out.join(CAMPAIGN), file.text.as_bytes())?;
    output::write(&out.join(SCENARIO), base.text.as_bytes())?;
    output::write_json(&out.join(MANIFEST), &manifest(0.0))?;
    let (store, known) = Store::open(&out.join(RESULTS))?;
    let done = {
        let progress = Progress::start();
        campaign::run(&campaign, &build, store, known, args.threads, &progress)?
    };
    output::write_both(&out, "results", &campaign::long_table(&campaign, &done)?)?;
    output::write_both(&out, "summary", &campaign::summary_table(&campaign, &done)?)?;
    let sheet = campaign::sheet(&campaign, &done);
    output::write_json(&out.join(SHEET), &sheet)?;
    output::draw(&sheet, &out)?;
    output::write_json(&out.join(MANIFEST), &manifest(began.elapsed().as_secs_f64()))?;

    let mut text = format!("{}\n\n", campaign.title);
    for table in &sheet.tables {
        text += &format!("{}\n{}\n", table.caption, columns(&table.head, &table.rows));
    }
    let (ran, reused) = (done.ran, done.reused);
    text += &format!(
        "{ran} runs made, {reused} known before; written to {}\n",
        out.join(PAGE).display()
    );
    let mut json = campaign::json(&campaign, &done);
    json["campaign"] = file.name.clone().into();
    json["out"] = out.display().to_string().into();
    json["ran"] = ran.into();
    json["reused"] = reused.into();
    let mut faults = done.faults.clone();
    if let Some(target) = &campaign.target
        && search::found(&campaign, &done) == 0
    {
        let tolerance = output::figure(target.tolerance * 100.0);
        faults.push(format!("no setting gives every figure to within {tolerance} %"));
    }
    Ok(Answer { text, json, faults })
}
