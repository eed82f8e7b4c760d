//! A growing mesh by its commands: files, and the built-in scenario.

#![allow(clippy::unwrap_used)]

use ringway_lab::commands::{Failure, RunArgs, list, report, run};

const TEXT: &str = "[scenario]\ntitle = \"A small mesh\"\nreplications = 2\n[mesh]\n\
                    topologies = [\"grid\", \"tree\"]\nsizes = [16, 25]\npackets = 40\nrest = \"30 s\"\n\
                    disturbed = \"5 s\"\n";

/// A run writes its tables and figures, and equal seeds give equal figures.
#[test]
fn a_mesh_is_written_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mesh.toml");
    std::fs::write(&file, TEXT).unwrap();
    let out = folder.path().join("out");
    let args = |out| RunArgs {
        scenario: file.display().to_string(),
        out,
        seed: Some(3),
        ..RunArgs::default()
    };
    let answer = run(&args(Some(out.clone()))).unwrap();
    assert_eq!(answer.json["runs"].as_array().unwrap().len(), 2 * 2 * 2);
    assert_eq!(answer.json["runs"][0]["measures"]["delivery"], 1.0);
    assert!(answer.text.contains("A small mesh") && answer.faults.is_empty(), "{}", answer.text);
    assert_eq!(run(&args(None)).unwrap().json, answer.json);
    let lines = |file: &str| std::fs::read_to_string(out.join(file)).unwrap().lines().count();
    assert_eq!((lines("cells.csv"), lines("wall.csv")), (1 + 8 * 12, 1 + 8));
    assert!(lines("summary.csv") > 4 * 10 && out.join("figures/stretch.png").exists());
    assert!(report(&out).unwrap().text.contains("grid"));
}

#[test]
fn the_built_in_mesh_is_listed_and_valid() {
    assert!(list().unwrap().text.contains("mesh-scale"));
    let wrong = RunArgs { scenario: "mesh-scale".into(), reps: Some(0), ..RunArgs::default() };
    assert!(matches!(run(&wrong), Err(Failure::Usage(_))));
}
