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

/// Default output folder of campaigns; each has a folder of its name inside it.
const DEFAULT_OUT: &str = "lab-results";

/// Arguments of `ringway lab sweep`.
#[derive(Clone, Debug, Default)]
pub struct SweepArgs {
    /// Name of a built-in campaign, or a file.
    pub campaign: String,
    /// Output folder.
    pub out: Option<PathBuf>,
    /// Seed; replaces that of the campaign.
    pub seed: Option<u64>,
    /// Exact number of replications of each cell.
    pub reps: Option<u64>,
    /// Number of threads; 0 for one per core.
    pub threads: usize,
}

/// Reads the scenario of a campaign: a built-in one, or a file beside the campaign's.
fn base(campaign: &Source, name: &str) -> Result<Source, Failure> {
    if builtin::find(name).is_none() {
        let beside = Path::new(&campaign.name).parent().map(|dir| dir.join(name));
        if let Some(beside) = beside.filter(|b| b.exists()) {
            return source(&beside.display().to_string(), &[], "scenario");
        }
    }
    source(name, builtin::ALL, "scenario").map_err(|failure| match failure {
        // The mistake is in the file, not on the command line.
        Failure::Usage(lines) => {
            let lines = lines.iter().map(|l| format!("{}: campaign.scenario: {l}", campaign.name));
            Failure::Failed(lines.collect())
        }
        other => other,
    })
}

/// Runs a campaign, or resumes it.
pub fn sweep(args: &SweepArgs) -> Result<Answer, Failure> {
    let began = Instant::now();
    let file = source(&args.campaign, builtin::CAMPAIGNS, "campaign")?;
    let (name, _) = campaign::scenario_and_title(&file.name, &file.text)?;
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
    // Written before the first run, so that the results of a killed campaign can be read.
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
