//! The commands of `ringway lab`, each a function from arguments to an [`Answer`].
//!
//! They print only progress; the command line prints the answer as text or as JSON.

mod engine;
mod network;
mod paper;
mod report;
mod run;
mod scale;
mod sweep;
mod users;
mod view;

pub use engine::{Cells, Engine};
pub use paper::{PaperArgs, paper};
pub use report::report;
pub(crate) use run::with_interval;
pub use run::{RunArgs, run};
pub use sweep::{SweepArgs, sweep};
pub use view::{ViewArgs, view};

use crate::builtin;
use crate::mesh::scale::Settings;
use crate::scenario::{Document, MAX_FILE, Problem, Problems, Scenario};
use ringway_figures::table::Table;
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;

/// Result of a command.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Text for people.
    pub text: String,
    /// JSON for programs; its keys are stable.
    pub json: Value,
    /// The long tables that `--out` writes, by the names of their files, if the arguments ask for
    /// them.
    pub tables: Vec<(&'static str, Table)>,
    /// Problems of a command that still has a result: lines for standard error. Any of them makes
    /// the command fail.
    pub faults: Vec<String>,
}

/// Reason why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An argument names something that does not exist.
    Usage(Vec<String>),
    /// The command failed.
    Failed(Vec<String>),
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Failure::Failed(problems.lines())
    }
}

impl From<crate::output::OutputError> for Failure {
    fn from(error: crate::output::OutputError) -> Self {
        Failure::Failed(vec![error.to_string()])
    }
}

impl From<crate::run::RunError> for Failure {
    fn from(error: crate::run::RunError) -> Self {
        Failure::Failed(vec![error.to_string()])
    }
}

impl From<ringway_figures::table::TableError> for Failure {
    fn from(error: ringway_figures::table::TableError) -> Self {
        Failure::Failed(vec![error.to_string()])
    }
}

/// A name and a title.
type NameAndTitle = (&'static str, String);

/// Lists the built-in scenarios, campaigns and papers.
pub fn list() -> Result<Answer, Failure> {
    let mut scenarios = Vec::new();
    for b in builtin::ALL {
        scenarios.push((b.name, Scenario::read(b.name, b.text)?.title));
    }
    for b in builtin::MESHES {
        let document = Document::parse(b.name, b.text)?;
        scenarios.push((b.name, Settings::from_document(&document, Path::new(b.name))?.title));
    }
    for b in builtin::USERS {
        let document = Document::parse(b.name, b.text)?;
        let settings = crate::onesip::scale::Settings::from_document(&document)?;
        scenarios.push((b.name, settings.title));
    }
    let mut campaigns = Vec::new();
    for b in builtin::CAMPAIGNS {
        campaigns.push((b.name, crate::campaign::title(b.name, b.text)?));
    }
    let papers = crate::papers::ALL.iter().map(|p| (p.name, p.title.to_string())).collect();
    let mut text = String::new();
    let mut json = json!({});
    let sections: [(&str, &str, Vec<NameAndTitle>); 3] = [
        ("scenarios", "ringway lab run NAME", scenarios),
        ("campaigns", "ringway lab sweep NAME", campaigns),
        ("papers", "ringway lab paper NAME", papers),
    ];
    for (what, how, entries) in sections {
        text += &format!("{what} ({how}):\n");
        let width = entries.iter().map(|e| e.0.len()).max().unwrap_or(0);
        for (name, title) in &entries {
            text += &format!("  {name:width$}  {title}\n");
        }
        text.push('\n');
        let entries: Vec<Value> =
            entries.iter().map(|(name, title)| json!({ "name": name, "title": title })).collect();
        json[what] = entries.into();
    }
    Ok(Answer { text: text.trim_end().to_string() + "\n", json, ..Answer::default() })
}

/// An input file: its name for error messages, and its text.
#[derive(Clone, Debug)]
struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Takes the text if there is one, or else reads what is named.
    fn new(
        name: &str,
        text: Option<&str>,
        builtins: &[builtin::Builtin],
        kind: &str,
    ) -> Result<Self, Failure> {
        let Some(text) = text else { return source(name, builtins, kind) };
        if text.len() > MAX_FILE {
            let what = format!("expected at most {MAX_FILE} bytes, got {}", text.len());
            return Err(Failure::Failed(vec![Problem::whole(name, what).to_string()]));
        }
        Ok(Source { name: name.into(), text: text.into() })
    }
}

/// Reads a built-in file by its name, or a file by its path.
fn source(what: &str, builtins: &[builtin::Builtin], kind: &str) -> Result<Source, Failure> {
    if let Some(b) = builtins.iter().find(|b| b.name == what) {
        return Ok(Source { name: b.name.into(), text: b.text.into() });
    }
    let path = Path::new(what);
    if !path.exists() {
        let known: Vec<&str> = builtins.iter().map(|b| b.name).collect();
        let near = ringway_document::nearest(what, &known);
        let hint = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
        return Err(Failure::Usage(vec![format!(
            "expected the name of a {kind} (ringway lab list) or a file, got {what:?}{hint}"
        )]));
    }
    read(path).map(|text| Source { name: what.into(), text })
}

/// Reads a file of limited size.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let name = path.display().to_string();
    let failed = |what: String| Failure::Failed(vec![Problem::whole(&name, what).to_string()]);
    let file = std::fs::File::open(path).map_err(|e| failed(e.to_string()))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes).map_err(|e| failed(e.to_string()))?;
    if bytes.len() > MAX_FILE {
        return Err(failed(format!("expected at most {MAX_FILE} bytes, got more")));
    }
    String::from_utf8(bytes).map_err(|_| failed("expected UTF-8 text, got other bytes".into()))
}
