//! `ringway lab sweep`: a campaign, or a search.

use super::{Answer, Failure, Source, source};
use crate::builtin;
use crate::campaign::{
    self, CAMPAIGN, Campaign, CampaignResults, KnownResults, RESULTS, SCENARIO, Store,
};
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
    /// Text of the campaign; then `campaign` is only its name.
    pub text: Option<String>,
    /// Name and text of the scenario, instead of the one that the campaign names.
    pub scenario: Option<(String, String)>,
    /// Output folder.
    pub out: Option<PathBuf>,
    /// Seed; replaces that of the campaign.
    pub seed: Option<u64>,
    /// Exact number of replications of each cell.
    pub reps: Option<u64>,
    /// Number of threads; 0 for one per core.
    pub threads: usize,
    /// Whether the answer has the long tables.
    pub tables: bool,
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

/// A campaign whose files are written and whose earlier results are read.
#[derive(Debug)]
pub(super) struct Prepared {
    began: Instant,
    pub(super) file: Source,
    pub(super) base: Source,
    pub(super) campaign: Campaign,
    pub(super) build: String,
    out: PathBuf,
    tables: bool,
}

/// Reads the campaign of the arguments.
pub(super) fn read(args: &SweepArgs) -> Result<(Source, Source, Campaign), Failure> {
    let text = args.text.as_deref();
    let file = Source::new(&args.campaign, text, builtin::CAMPAIGNS, "campaign")?;
    let (name, _) = campaign::scenario_and_title(&file.name, &file.text)?;
    let base = match &args.scenario {
        Some((name, text)) => Source::new(name, Some(text), &[], "scenario")?,
        None => base(&file, &name)?,
    };
    let mut campaign = campaign::read(&file.name, &file.text, (&base.name, &base.text), args.seed)?;
    if let Some(reps) = args.reps {
        if !(1..=campaign::MAX_REPLICATIONS).contains(&reps) {
            let what = format!("--reps: expected 1 to {}, got {reps}", campaign::MAX_REPLICATIONS);
            return Err(Failure::Usage(vec![what]));
        }
        (campaign.at_least, campaign.at_most) = (reps, reps);
    }
    Ok((file, base, campaign))
}

impl Prepared {
    /// Reads the campaign, writes the input into its folder, and opens its results.
    pub(super) fn new(args: &SweepArgs) -> Result<(Self, Store, KnownResults), Failure> {
        let began = Instant::now();
        let (file, base, campaign) = read(args)?;
        let stem = Path::new(&file.name).file_stem().map_or("campaign".into(), PathBuf::from);
        let out = args.out.clone().unwrap_or_else(|| Path::new(DEFAULT_OUT).join(stem));
        output::folder(&out)?;
        let tables = args.tables;
        // Locked before any file of a sweep that runs already is replaced.
        let (store, known) = Store::open(&out.join(RESULTS))?;
        let prepared = Prepared { began, file, base, campaign, build: build(), out, tables };
        // Written before the first run, so that the results of a killed campaign can be read.
        output::write(&prepared.out.join(CAMPAIGN), prepared.file.text.as_bytes())?;
        output::write(&prepared.out.join(SCENARIO), prepared.base.text.as_bytes())?;
        output::write_json(&prepared.out.join(MANIFEST), &prepared.manifest(0.0))?;
        Ok((prepared, store, known))
    }

    fn manifest(&self, took: f64) -> Manifest {
        let campaign = &self.campaign;
        Manifest {
            kind: "sweep".into(),
            version: version(),
            what: self.file.name.clone(),
            seed: campaign.seed,
            replications: campaign.at_most,
            parameters: json!({
                "campaign": self.file.text,
                "scenario": self.base.text,
                "at_least": campaign.at_least,
                "at_most": campaign.at_most,
                "within": campaign.within,
            }),
            host: host(took),
        }
    }

    /// Writes the tables and the report of a campaign, and returns its answer.
    pub(super) fn finish(&self, done: &CampaignResults) -> Result<Answer, Failure> {
        let (campaign, out) = (&self.campaign, &self.out);
        let results = campaign::long_table(campaign, done)?;
        let summary = campaign::summary_table(campaign, done)?;
        output::write_both(out, "results", &results)?;
        output::write_both(out, "summary", &summary)?;
        let sheet = campaign::sheet(campaign, done);
        output::write_json(&out.join(SHEET), &sheet)?;
        output::draw(&sheet, out)?;
        let took = self.began.elapsed().as_secs_f64();
        output::write_json(&out.join(MANIFEST), &self.manifest(took))?;

        let mut text = format!("{}\n\n", campaign.title);
        for table in &sheet.tables {
            text += &format!("{}\n{}\n", table.caption, columns(&table.head, &table.rows));
        }
        let (ran, reused) = (done.ran, done.reused);
        text += &format!(
            "{ran} runs made, {reused} known before; written to {}\n",
            out.join(PAGE).display()
        );
        let mut json = campaign::json(campaign, done);
        json["campaign"] = self.file.name.clone().into();
        json["out"] = out.display().to_string().into();
        json["ran"] = ran.into();
        json["reused"] = reused.into();
        let mut faults = done.faults.clone();
        if let Some(target) = &campaign.target
            && search::found(campaign, done) == 0
        {
            let tolerance = output::figure(target.tolerance * 100.0);
            faults.push(format!("no setting gives every figure to within {tolerance} %"));
        }
        let tables = match self.tables {
            true => vec![("results", results), ("summary", summary)],
            false => Vec::new(),
        };
        Ok(Answer { text, json, tables, faults })
    }
}

/// Runs a campaign, or resumes it.
pub fn sweep(args: &SweepArgs) -> Result<Answer, Failure> {
    let (prepared, store, known) = Prepared::new(args)?;
    let done = {
        let progress = Progress::start();
        let Prepared { campaign, build, .. } = &prepared;
        campaign::run(campaign, build, store, known, args.threads, &progress)?
    };
    prepared.finish(&done)
}
