//! Equal replications are reported, and no interval is computed from copies.

#![allow(clippy::unwrap_used)]

use ringway_lab::commands::{RunArgs, SweepArgs, run, sweep};
use std::path::PathBuf;

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("equal").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The UDP row of Table 1 has no random element: any number of runs is one run.
#[test]
fn a_scenario_without_a_random_element_has_no_interval() {
    for reps in [2, 30] {
        let args =
            RunArgs { scenario: "gangurde-udp".into(), reps: Some(reps), ..RunArgs::default() };
        let answer = run(&args).unwrap();
        assert!(!answer.text.contains('±'), "{}", answer.text);
        let expected = format!("all {reps} replications are equal");
        assert!(answer.text.contains(&expected), "{}", answer.text);
        assert_eq!(answer.json["equal"], true);
        for figure in answer.json["summary"].as_array().unwrap() {
            assert!(figure["interval"].is_null() && figure["low"].is_null(), "{figure}");
            assert_eq!(figure["equal"], true, "{figure}");
        }
    }
    let answer = run(&RunArgs { scenario: "gangurde-udp".into(), ..RunArgs::default() }).unwrap();
    assert!(!answer.text.contains("equal"), "one run is not compared: {}", answer.text);
    assert_eq!(answer.json["equal"], false);
}

/// A figure that chance does not affect is marked as equal beside figures that it affects.
#[test]
fn equal_figures_of_unequal_runs_are_marked() {
    let folder = folder("mixed");
    let file = folder.join("mixed.toml");
    let text = "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\"]\nstop = \"5 s\"\n[[link]]\n\
                between = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\ndelay = \"5 ms\"\n\
                loss = { model = \"random\", chance = \"10 %\" }\n[[flow]]\nname = \"f\"\nfrom = \"a\"\n\
                to = \"b\"\ntransport = \"udp\"\ntraffic = \"cbr\"\nrate = \"80 kbit/s\"\npacket = \"1000 B\"\n\
                packets = 40\n";
    std::fs::write(&file, text).unwrap();
    let what = file.display().to_string();
    let answer = run(&RunArgs { scenario: what, reps: Some(5), ..RunArgs::default() }).unwrap();
    assert!(!answer.text.contains("± 0 ") && answer.text.contains("40 ="), "{}", answer.text);
    assert!(answer.text.contains("= the same in all replications"), "{}", answer.text);
    assert!(!answer.text.contains("replications are equal"), "{}", answer.text);
    assert_eq!(answer.json["equal"], false);
    let all = answer.json["summary"].as_array().unwrap();
    let of = |measure: &str| all.iter().find(|f| f["measure"] == measure).unwrap();
    assert_eq!(of("sent")["equal"], true);
    assert!(of("loss_ratio")["low"].is_number() && of("loss_ratio")["equal"] == false);
}

/// Cells of a campaign with equal replications are not compared by statistics.
#[test]
fn equal_cells_have_no_significance() {
    let folder = folder("campaign");
    let file = folder.join("campaign.toml");
    let text = "[campaign]\ntitle = \"t\"\nscenario = \"gangurde-udp\"\n\
                measures = [\"udp.delivered\", \"udp.loss_ratio\"]\nat_least = 3\nat_most = 9\nwithin = \"5 %\"\n\
                [[vary]]\nkey = \"flow.udp.rate\"\nname = \"rate\"\nvalues = [\"300 kbit/s\", \"448 kbit/s\"]\n\
                [[vary]]\nkey = \"link.*.queue.limit\"\nname = \"limit\"\nvalues = [10, 50]\n";
    std::fs::write(&file, text).unwrap();
    let args = SweepArgs {
        campaign: file.display().to_string(),
        out: Some(folder.join("out")),
        ..SweepArgs::default()
    };
    let answer = sweep(&args).unwrap();
    assert!(!answer.text.contains('±') && !answer.text.contains("yes"), "{}", answer.text);
    assert!(answer.text.contains("all equal"), "{}", answer.text);
    for cell in answer.json["cells"].as_array().unwrap() {
        assert_eq!((&cell["n"], &cell["equal"]), (&3.into(), &true.into()), "{cell}");
        let figure = &cell["figures"]["udp.loss_ratio"];
        assert!(figure["low"].is_null() && figure["equal"] == true, "{cell}");
    }
}
