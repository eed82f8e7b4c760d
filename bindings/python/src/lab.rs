//! The laboratory's commands.

use crate::failure::{failed, failure, usage};
use crate::table::Table;
use crate::work;
use pyo3::prelude::*;
use ringway_lab::builtin::{ALL, CAMPAIGNS, MESHES, USERS};
use ringway_lab::commands::{self, Answer, PaperArgs, RunArgs, SweepArgs};
use ringway_lab::output;
use std::path::PathBuf;

/// What a command returns: text, JSON, tables with their names, faults.
type Parts = (String, String, Vec<(&'static str, Table)>, Vec<String>);

fn parts(answer: Answer) -> PyResult<Parts> {
    let json = serde_json::to_string(&answer.json).map_err(failed)?;
    let tables = answer.tables.iter().map(|(name, table)| Ok((*name, Table::new(table)?)));
    Ok((answer.text, json, tables.collect::<PyResult<_>>()?, answer.faults))
}

/// Names the file of this library, whose hash results of a campaign are kept by.
#[pyfunction]
pub(crate) fn set_program(path: PathBuf) {
    output::set_program(path);
}

/// Returns the version.
#[pyfunction]
pub(crate) fn version() -> String {
    output::version()
}

/// Returns the hash of this library.
#[pyfunction]
pub(crate) fn build(py: Python<'_>) -> String {
    py.detach(output::build)
}

/// Returns the JSON of the built-in scenarios, campaigns and papers.
#[pyfunction]
pub(crate) fn catalogue() -> PyResult<String> {
    serde_json::to_string(&commands::list().map_err(failure)?.json).map_err(failed)
}

/// Returns the text of a built-in scenario or campaign.
#[pyfunction]
pub(crate) fn builtin(name: &str) -> PyResult<&'static str> {
    let mut all = [ALL, MESHES, USERS, CAMPAIGNS].into_iter().flatten();
    all.find(|b| b.name == name).map(|b| b.text).ok_or_else(|| {
        usage(format!("expected the name of a built-in scenario or campaign, got {name:?}"))
    })
}

/// Returns the TOML text of a document in JSON.
fn toml(json: &str) -> PyResult<String> {
    let value: toml::Value = serde_json::from_str(json).map_err(|e| {
        usage(format!("expected a document of tables, lists, texts and numbers: {e}"))
    })?;
    toml::to_string(&value).map_err(usage)
}

/// Returns a text as it is, or that of a document in JSON.
fn text(text: Option<String>, json: Option<String>) -> PyResult<Option<String>> {
    json.map_or(Ok(text), |json| toml(&json).map(Some))
}

/// Runs a scenario.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn run(
    py: Python<'_>,
    name: String,
    json: Option<String>,
    seed: Option<u64>,
    reps: Option<u64>,
    out: Option<PathBuf>,
    threads: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Parts> {
    let text = text(None, json)?;
    let args = RunArgs { scenario: name, text, out, seed, reps, tables: true };
    let answer = work::run(py, threads, progress.as_ref(), move || commands::run(&args))?;
    parts(answer.map_err(failure)?)
}

/// What a campaign is: its name, its document, and that of its scenario.
type Campaign = (String, Option<String>, Option<String>);

fn sweep_args(
    (campaign, json, scenario): Campaign,
    seed: Option<u64>,
    reps: Option<u64>,
    out: PathBuf,
    threads: usize,
) -> PyResult<SweepArgs> {
    let text = text(None, json)?;
    let scenario = scenario.map(|json| PyResult::Ok(("scenario".to_string(), toml(&json)?)));
    let scenario = scenario.transpose()?;
    let out = Some(out);
    Ok(SweepArgs { campaign, text, scenario, out, seed, reps, threads, tables: true })
}

/// Runs a campaign, or resumes it.
#[pyfunction]
pub(crate) fn sweep(
    py: Python<'_>,
    campaign: Campaign,
    seed: Option<u64>,
    reps: Option<u64>,
    out: PathBuf,
    threads: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Parts> {
    let args = sweep_args(campaign, seed, reps, out, threads)?;
    let answer = work::run(py, threads, progress.as_ref(), move || commands::sweep(&args))?;
    parts(answer.map_err(failure)?)
}

/// Reproduces a paper.
#[pyfunction]
pub(crate) fn paper(
    py: Python<'_>,
    name: String,
    seed: Option<u64>,
    reps: Option<u64>,
    out: Option<PathBuf>,
    threads: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Parts> {
    let args = PaperArgs { name: Some(name), out, seed, reps, tables: true };
    let answer = work::run(py, threads, progress.as_ref(), move || commands::paper(&args))?;
    parts(answer.map_err(failure)?)
}

/// A campaign whose runs an engine schedules.
#[pyclass(module = "ringway._ringway")]
pub(crate) struct Engine(Option<commands::Engine>);

impl Engine {
    fn open(&self) -> PyResult<&commands::Engine> {
        self.0.as_ref().ok_or_else(|| usage("the campaign is finished"))
    }

    fn open_mut(&mut self) -> PyResult<&mut commands::Engine> {
        self.0.as_mut().ok_or_else(|| usage("the campaign is finished"))
    }
}

#[pymethods]
impl Engine {
    #[new]
    fn new(
        py: Python<'_>,
        campaign: Campaign,
        seed: Option<u64>,
        reps: Option<u64>,
        out: PathBuf,
    ) -> PyResult<Self> {
        let args = sweep_args(campaign, seed, reps, out, 0)?;
        let engine = py.detach(move || commands::Engine::open(&args)).map_err(failure)?;
        Ok(Engine(Some(engine)))
    }

    /// The text that a worker's `Cells` reads.
    #[getter]
    fn spec(&self) -> PyResult<&str> {
        Ok(self.open()?.spec())
    }

    /// The number of cells.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.open()?.cells())
    }

    /// The first replication that a cell needs next, and the one after the last.
    fn next(&self, cell: usize) -> PyResult<(u64, u64)> {
        let next = self.open()?.next(cell);
        Ok((next.start, next.end))
    }

    /// Adds the line of a run.
    fn add(&mut self, cell: usize, replication: u64, line: &str) -> PyResult<()> {
        self.open_mut()?.add(cell, replication, line).map_err(failure)
    }

    /// Notes why a run failed.
    fn fail(&mut self, cell: usize, fault: String) -> PyResult<()> {
        self.open_mut()?.fail(cell, fault);
        Ok(())
    }

    /// Writes the results so far to stable storage.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let engine = self.open()?;
        py.detach(|| engine.sync()).map_err(failure)
    }

    /// Closes the folder, also where a traceback still refers to this object.
    fn close(&mut self) {
        self.0 = None;
    }

    /// Writes tables and report, and ends the campaign.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Parts> {
        let engine = self.0.take().ok_or_else(|| usage("the campaign is finished"))?;
        parts(py.detach(move || engine.finish()).map_err(failure)?)
    }
}

/// The cells of a campaign, for a worker.
#[pyclass(frozen, module = "ringway._ringway")]
pub(crate) struct Cells(commands::Cells);

#[pymethods]
impl Cells {
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<Self> {
        py.detach(|| commands::Cells::new(spec)).map(Cells).map_err(failure)
    }

    /// Makes one run and returns its line.
    fn run(&self, py: Python<'_>, cell: usize, replication: u64) -> PyResult<String> {
        py.detach(|| self.0.run(cell, replication)).map_err(failure)
    }
}
