//! `ringway lab paper`: the printed figures of a paper beside the simulated ones.

use super::{Answer, Failure};
use crate::output::{self, MANIFEST, Manifest, PAGE, SHEET, columns, host, version};
use crate::papers::{self, Paper, Reproduction};
use crate::scenario::MAX_REPLICATIONS;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `ringway lab paper`.
#[derive(Clone, Debug, Default)]
pub struct PaperArgs {
    /// A paper's name, or `all`; `None` lists the papers.
    pub name: Option<String>,
    /// Output folder; with `all`, one folder per paper inside it.
    pub out: Option<PathBuf>,
    /// Seed; only for papers with random experiments.
    pub seed: Option<u64>,
    /// Number of replications; only for papers with random experiments.
    pub reps: Option<u64>,
    /// Whether the answer has the long tables, of one paper.
    pub tables: bool,
}

/// Reproduces papers. Figures outside of their tolerance are faults.
pub fn paper(args: &PaperArgs) -> Result<Answer, Failure> {
    let Some(name) = args.name.as_deref() else { return Ok(list()) };
    if name == "all" {
        let mut all = Answer { json: json!([]), ..Answer::default() };
        for paper in papers::ALL {
            let out = args.out.as_ref().map(|out| out.join(paper.name));
            let answer = run_one(paper, args, out.as_deref())?;
            all.text += &answer.text;
            all.faults.extend(answer.faults);
            if let Value::Array(list) = &mut all.json {
                list.push(answer.json);
            }
        }
        return Ok(all);
    }
    let Some(paper) = papers::find(name) else {
        let known: Vec<&str> = papers::ALL.iter().map(|p| p.name).collect();
        let known = known.join(", ");
        return Err(Failure::Usage(vec![format!(
            "expected a paper ({known}) or all, got {name:?}"
        )]));
    };
    run_one(paper, args, args.out.as_deref())
}

fn list() -> Answer {
    let line = |p: &Paper| format!("{}  {}\n", p.name, p.title);
    Answer {
        text: papers::ALL.iter().map(line).collect(),
        json: papers::ALL.iter().map(|p| json!({ "name": p.name, "title": p.title })).collect(),
        ..Answer::default()
    }
}

fn run_one(paper: &Paper, args: &PaperArgs, out: Option<&Path>) -> Result<Answer, Failure> {
    let began = Instant::now();
    let fixed = paper.replications.is_none();
    if fixed && args.name.as_deref() != Some("all") && (args.seed.is_some() || args.reps.is_some())
    {
        let what = format!(
            "{}: expected no --seed and no --reps: the paper has no random elements",
            paper.name
        );
        return Err(Failure::Usage(vec![what]));
    }
    let replications = args.reps.or(paper.replications).unwrap_or(1);
    if !(1..=MAX_REPLICATIONS).contains(&replications) {
        let what = format!("--reps: expected 1 to {MAX_REPLICATIONS}, got {replications}");
        return Err(Failure::Usage(vec![what]));
    }
    let done = paper.run(args.seed.unwrap_or(papers::SEED), replications)?;
    let sheet = done.sheet();
    let mut text = text(&done);
    if let Some(out) = out {
        output::folder(out)?;
        output::write_json(&out.join("paper.json"), &done)?;
        output::write_both(out, "figures", &done.table()?)?;
        output::write_both(out, "points", &done.points()?)?;
        output::write_json(&out.join(SHEET), &sheet)?;
        output::draw(&sheet, out)?;
        let manifest = Manifest {
            kind: "paper".into(),
            version: version(),
            what: paper.name.into(),
            seed: done.seed,
            replications: done.replications,
            parameters: json!({}),
            host: host(began.elapsed().as_secs_f64()),
        };
        output::write_json(&out.join(MANIFEST), &manifest)?;
        text += &format!("\nwritten to {}\n", out.join(PAGE).display());
    }
    let faults = done.outside();
    let json = serde_json::to_value(&done).map_err(|e| Failure::Failed(vec![e.to_string()]))?;
    let mut tables = Vec::new();
    if args.tables {
        tables.push(("figures", done.table()?));
        tables.push(("points", done.points()?));
    }
    Ok(Answer { text, json, tables, faults })
}

fn text(done: &Reproduction) -> String {
    let mut text = format!("{}\n\n", done.title);
    for table in done.sheet().tables {
        text += &format!("{}\n{}\n", table.caption, columns(&table.head, &table.rows));
    }
    for finding in &done.findings {
        text += &wrap(finding);
    }
    text += match (done.rows.is_empty(), done.claims.is_empty(), done.ok) {
        (_, true, true) => "every figure is within its tolerance\n",
        (_, true, false) => "not every figure is within its tolerance (!)\n",
        (true, _, true) => "every claim has the expected outcome\n",
        (true, _, false) => "not every claim has the expected outcome (!)\n",
        (_, _, true) => {
            "every figure is within its tolerance, and every claim has the expected outcome\n"
        }
        (_, _, false) => {
            "a figure is not within its tolerance, or a claim has another outcome than expected (!)\n"
        }
    };
    text
}

/// Wraps a paragraph to lines of at most 100 characters, with a mark before the first.
fn wrap(paragraph: &str) -> String {
    const WIDTH: usize = 98;
    let mut out = String::new();
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out += &format!("{}{line}\n", if out.is_empty() { "* " } else { "  " });
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    out += &format!("{}{line}\n", if out.is_empty() { "* " } else { "  " });
    out
}
