//! Campaigns whose runs something else schedules, and commands that are ended early.

#![allow(clippy::unwrap_used)]

use ringway_lab::commands::{self, Cells, Engine, Failure, RunArgs, SweepArgs};
use ringway_lab::watch::Watch;
use std::collections::BTreeMap;
use std::path::Path;

const CAMPAIGN: &str = r#"
[campaign]
title = "A file over TCP"
scenario = "lossy-bulk"
measures = ["file.completion"]
at_least = 3
at_most = 12
within = "20 %"

[[set]]
key = "flow.file.size"
value = "200 kB"

[[vary]]
key = "link.line.there.loss.chance"
name = "loss"
values = ["0.1 %", "3 %"]
"#;

fn args(out: &Path) -> SweepArgs {
    SweepArgs {
        campaign: "file".into(),
        text: Some(CAMPAIGN.into()),
        out: Some(out.into()),
        threads: 1,
        tables: true,
        ..SweepArgs::default()
    }
}

/// Every file of a folder but the manifest, which has the time.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if path.is_dir() {
            all.extend(files(&path));
        } else if name != "manifest.json" {
            all.insert(name, std::fs::read(path).unwrap());
        }
    }
    all
}

/// The last missing run first, each made twice: as by workers of which some were killed.
fn run_backwards(engine: &mut Engine, cells: &Cells) -> usize {
    let mut made = 0;
    loop {
        let next: Vec<(usize, u64)> =
            (0..engine.cells()).flat_map(|c| engine.next(c).map(move |r| (c, r))).collect();
        if next.is_empty() {
            return made;
        }
        for (cell, replication) in next.into_iter().rev() {
            let line = cells.run(cell, replication).unwrap();
            engine.add(cell, replication, &line).unwrap();
            engine.add(cell, replication, &cells.run(cell, replication).unwrap()).unwrap();
            made += 1;
        }
    }
}

#[test]
fn a_campaign_of_workers_writes_what_a_sweep_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (alone, apart) = (dir.path().join("alone"), dir.path().join("apart"));
    let expected = commands::sweep(&args(&alone)).unwrap();
    let mut engine = Engine::open(&args(&apart)).unwrap();
    let cells = Cells::new(engine.spec()).unwrap();
    let made = run_backwards(&mut engine, &cells);
    // The stopping rule ends the cells at different numbers of replications.
    assert!((7..24).contains(&made), "{made}");
    let got = engine.finish().unwrap();
    assert_eq!(got.tables, expected.tables);
    assert_eq!(got.json["ran"], made);
    let (expected, got) = (files(&alone), files(&apart));
    assert!(expected.keys().eq(got.keys()), "{:?} {:?}", expected.keys(), got.keys());
    for (name, bytes) in &expected {
        assert!(got[name] == *bytes, "{name} differs");
    }
    // All results are known now.
    assert_eq!(run_backwards(&mut Engine::open(&args(&apart)).unwrap(), &cells), 0);
}

#[test]
fn a_damaged_or_foreign_line_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = Engine::open(&args(dir.path())).unwrap();
    let cells = Cells::new(engine.spec()).unwrap();
    let line = cells.run(0, 0).unwrap();
    let refused = |result: Result<(), Failure>, why: &str| {
        let Err(Failure::Failed(lines)) = result else { panic!("{result:?}") };
        assert!(lines[0].contains(why), "{lines:?}");
    };
    refused(engine.add(1, 0, &line), "another run");
    refused(engine.add(0, 1, &line), "another run");
    refused(engine.add(9, 0, &line), "another run");
    refused(engine.add(0, 0, &line.replace("sent=", "sent=1")), "wrong checksum");
    refused(engine.add(0, 0, ""), "wrong checksum");
    assert_eq!(engine.next(0), 0..3);
    assert!(matches!(cells.run(2, 0), Err(Failure::Usage(_))));
    let other = engine.spec().replacen("build\":\"", "build\":\"0", 1);
    assert!(matches!(Cells::new(&other), Err(Failure::Failed(l)) if l[0].contains("build")));
}

#[test]
fn an_interrupted_command_ends_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::default();
    watch.interrupt();
    let run = RunArgs { scenario: "calls".into(), ..RunArgs::default() };
    let mesh = RunArgs { scenario: "mesh-scale".into(), ..RunArgs::default() };
    let users = RunArgs { scenario: "users-scale".into(), ..RunArgs::default() };
    let paper = commands::PaperArgs { name: Some("all".into()), ..Default::default() };
    let interrupted = Err(Failure::Failed(vec!["interrupted".into()]));
    let json = |answer: Result<commands::Answer, Failure>| answer.map(|answer| answer.json);
    for args in [&run, &mesh, &users] {
        let result = watch.run(2, || commands::run(args)).unwrap();
        assert_eq!(json(result), interrupted, "{}", args.scenario);
    }
    assert_eq!(json(watch.run(2, || commands::sweep(&args(dir.path()))).unwrap()), interrupted);
    assert_eq!(json(watch.run(2, || commands::paper(&paper)).unwrap()), interrupted);
}
