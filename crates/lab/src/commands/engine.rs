//! A campaign whose runs something else schedules, such as a cluster of machines.
//!
//! [`Engine`] decides which runs are missing and keeps their results; [`Cells`] makes runs, in any
//! process of the same build. What passes between them is the text of [`Engine::spec`] and lines of
//! the file of results, with their checksums.

use super::sweep::{Prepared, read};
use super::{Answer, Failure, SweepArgs};
use crate::campaign::{self, Campaign, Plan, Store};
use crate::output::build;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// All that a worker has to know of a campaign.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    build: String,
    campaign: [String; 2],
    scenario: [String; 2],
    seed: Option<u64>,
    reps: Option<u64>,
}

/// A campaign in its folder.
#[derive(Debug)]
pub struct Engine {
    prepared: Prepared,
    spec: String,
    store: Store,
    plan: Plan,
    faults: Vec<String>,
}

impl Engine {
    /// Reads the campaign, and the results that are in its folder.
    ///
    /// # Errors
    /// As of [`super::sweep`].
    pub fn open(args: &SweepArgs) -> Result<Self, Failure> {
        let (prepared, store, known) = Prepared::new(args)?;
        let Prepared { file, base, build, .. } = &prepared;
        let spec = Spec {
            build: build.clone(),
            campaign: [file.name.clone(), file.text.clone()],
            scenario: [base.name.clone(), base.text.clone()],
            seed: args.seed,
            reps: args.reps,
        };
        let spec =
            serde_json::to_string(&spec).map_err(|e| Failure::Failed(vec![e.to_string()]))?;
        let plan = Plan::new(&prepared.campaign, &prepared.build, known);
        Ok(Engine { prepared, spec, store, plan, faults: Vec::new() })
    }

    /// Returns the text that [`Cells::new`] reads.
    pub fn spec(&self) -> &str {
        &self.spec
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> usize {
        self.prepared.campaign.cells.len()
    }

    /// Returns the replications that a cell needs next; none if it is done. Once all of them are
    /// added, the cell may need more.
    pub fn next(&self, cell: usize) -> Range<u64> {
        if cell >= self.cells() {
            return 0..0;
        }
        self.plan.next(&self.prepared.campaign, cell).1
    }

    /// Adds a line that [`Cells::run`] has returned for a run. A second line of one run changes nothing.
    ///
    /// # Errors
    /// The line is damaged, or of another run; the file cannot be written.
    pub fn add(&mut self, cell: usize, replication: u64, line: &str) -> Result<(), Failure> {
        let refused = |what: String| Failure::Failed(vec![what]);
        let expected = self.plan.ids().get(cell).copied();
        let Some(((id, number), figures)) = campaign::parse(line.trim_end_matches('\n')) else {
            return Err(refused(
                "expected a line of results, got one with a wrong checksum".into(),
            ));
        };
        if expected != Some(id) || number != replication {
            return Err(refused(format!(
                "expected a result of cell {cell}, replication {replication}, got one of another run"
            )));
        }
        if self.plan.has(id, number) {
            return Ok(());
        }
        self.store.add(id, number, &figures)?;
        self.plan.add(id, number, figures);
        Ok(())
    }

    /// Notes why a run failed. Its cell is done with what it has.
    pub fn fail(&mut self, cell: usize, fault: String) {
        if cell < self.cells() {
            self.plan.give_up(cell);
        }
        self.faults.push(fault);
    }

    /// Writes the results so far to stable storage.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn sync(&self) -> Result<(), Failure> {
        Ok(self.store.sync()?)
    }

    /// Writes the tables and the report.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(self) -> Result<Answer, Failure> {
        self.store.put_in_order(self.plan.ids(), self.plan.known())?;
        let mut done = self.plan.gather(&self.prepared.campaign);
        done.faults = campaign::bounded(self.faults);
        self.prepared.finish(&done)
    }
}

/// The cells of a campaign, for a worker.
#[derive(Debug)]
pub struct Cells {
    campaign: Campaign,
    build: String,
}

impl Cells {
    /// Reads the text of [`Engine::spec`].
    ///
    /// # Errors
    /// Another text, or one of another build of the program.
    pub fn new(spec: &str) -> Result<Self, Failure> {
        let refused = |what: String| Failure::Failed(vec![what]);
        let spec: Spec = serde_json::from_str(spec)
            .map_err(|e| refused(format!("expected the text of a campaign for workers: {e}")))?;
        let build = build();
        if spec.build != build {
            return Err(refused(format!(
                "expected build {} of the program as at the sweep's start, got {build}",
                spec.build
            )));
        }
        let Spec { campaign: [name, text], scenario: [scenario, scenario_text], .. } = spec;
        let args = SweepArgs {
            campaign: name,
            text: Some(text),
            scenario: Some((scenario, scenario_text)),
            seed: spec.seed,
            reps: spec.reps,
            ..SweepArgs::default()
        };
        Ok(Cells { campaign: read(&args)?.2, build })
    }

    /// Makes one run, and returns its line in the file of results.
    ///
    /// # Errors
    /// There is no such cell; the run fails.
    pub fn run(&self, cell: usize, replication: u64) -> Result<String, Failure> {
        let cells = self.campaign.cells.len();
        if cell >= cells {
            let what = format!("expected a cell from 0 to {}, got {cell}", cells.saturating_sub(1));
            return Err(Failure::Usage(vec![what]));
        }
        campaign::run_line(&self.campaign, &self.build, cell, replication)
            .map_err(|fault| Failure::Failed(vec![fault]))
    }
}
