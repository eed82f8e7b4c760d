//! `ringway lab` from the user's point of view: each test runs the program in its own folder.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod workdir;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use workdir::Workdir;

impl Workdir {
    /// Runs `ringway lab`, which must end with that status; returns standard output and standard
    /// error.
    fn lab(&self, status: i32, args: &[&str]) -> (String, String) {
        self.ends(status, &[&["lab"], args].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.lab(0, args).0).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
}

/// Returns every file below a folder with its bytes; of the manifest all but the host.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let mut bytes = std::fs::read(&path).unwrap();
            if name == "manifest.json" {
                let mut manifest: Value = serde_json::from_slice(&bytes).unwrap();
                assert!(manifest["host"]["processors"].as_u64().unwrap() > 0);
                manifest.as_object_mut().unwrap().remove("host");
                bytes = manifest.to_string().into_bytes();
            }
            found.insert(name, bytes);
        }
    }
    found
}

const CAMPAIGN: &str = r#"
[campaign]
title = "A file against loss"
scenario = "line.toml"
measures = ["file.completion", "file.retransmits"]
at_least = 10
at_most = 14
within = "5 %"

[[vary]]
key = "link.line.there.loss.chance"
name = "loss"
values = ["1 %", "3 %"]

[[vary]]
key = "flow.file.tcp.algorithm"
name = "algorithm"
values = ["cubic", "new-reno"]
"#;

const LINE: &str = r#"
[scenario]
title = "A file over a lossy line"
nodes = ["a", "b"]
stop = "flows done"

[[link]]
name = "line"
between = ["a", "b"]
rate = "5 Mbit/s"
delay = "10 ms"

[link.there]
loss = { model = "random", chance = "4 %" }

[[flow]]
name = "file"
from = "a"
to = "b"
transport = "tcp"
traffic = "file"
size = "200 kB"

[[probe]]
what = "cwnd"
flow = "file"
"#;

#[test]
fn built_in_files_are_listed() {
    let workdir = Workdir::new();
    let list = workdir.json(&["list", "--json"]);
    let names = |what: &str| -> Vec<String> {
        let entries = list[what].as_array().unwrap();
        assert!(entries.iter().all(|e| e["title"].as_str().unwrap().len() > 20), "{entries:?}");
        entries.iter().map(|e| e["name"].as_str().unwrap().to_string()).collect()
    };
    for name in ["gangurde-udp", "four-nodes", "lossy-bulk", "bufferbloat-codel", "bursty-loss"] {
        assert!(names("scenarios").contains(&name.to_string()), "{name}");
    }
    assert!(names("campaigns").contains(&"gangurde-udp-search".to_string()));
    assert_eq!(names("papers"), PAPERS);
    let (text, _) = workdir.lab(0, &["list"]);
    assert!(text.contains("\n  cable-pulled"), "{text}");
}

#[test]
fn a_run_prints_results_and_writes_files() {
    let workdir = Workdir::new();
    workdir.write("line.toml", LINE);
    let run = workdir.json(&["run", "line.toml", "--out", "one", "--json", "--seed", "7"]);
    assert_eq!((run["seed"].as_u64(), run["replications"].as_u64()), (Some(7), Some(1)));
    let flow = &run["runs"][0]["flows"][0];
    assert_eq!(flow["bytes"].as_u64(), Some(200_000));
    let count = |key: &str| flow[key].as_u64().unwrap();
    assert_eq!(
        count("sent") + count("copied"),
        count("delivered") + count("dropped") + count("in_flight")
    );
    assert!(flow["dropped_by"]["random loss"].as_u64().unwrap() > 0);
    // The same seed gives the same bytes, another seed gives others.
    workdir.lab(0, &["run", "line.toml", "--out", "two", "--seed", "7"]);
    let (one, two) = (files(&workdir.path("one")), files(&workdir.path("two")));
    let names: Vec<&str> = one.keys().map(String::as_str).collect();
    for name in [
        "figures/cwnd.png",
        "figures/cwnd.svg",
        "hops.parquet",
        "manifest.json",
        "measures.csv",
        "measures.parquet",
        "network.json",
        "report.html",
        "report.json",
        "runs.json",
        "scenario.toml",
        "series.csv",
        "windows.csv",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert_eq!(one, two);
    // The page of the run, in its folder or elsewhere.
    let view = workdir.json(&["view", "one", "--json"]);
    assert!(view["hops"].as_u64() >= Some(200) && view["left_out"] == 0, "{view}");
    let (text, _) = workdir.lab(0, &["view", "two", "--out", "pages/two.html"]);
    assert!(text.contains("pages/two.html"), "{text}");
    let page = std::fs::read(workdir.path("one/view.html")).unwrap();
    assert_eq!(view["bytes"].as_u64(), Some(page.len() as u64));
    assert!(page == std::fs::read(workdir.path("pages/two.html")).unwrap());
    let other = workdir.json(&["run", "line.toml", "--json", "--seed", "8"]);
    assert_ne!(other["runs"], run["runs"]);
    // Means with their intervals over several runs.
    let many = workdir.json(&["run", "line.toml", "--json", "--reps", "5"]);
    let goodput = many["summary"].as_array().unwrap().iter().find(|s| s["measure"] == "goodput");
    let goodput = goodput.unwrap();
    assert_eq!(goodput["n"].as_u64(), Some(5));
    assert!(goodput["low"].as_f64() < goodput["mean"].as_f64());
    assert_eq!(goodput["unit"], "bit/s");
    assert_eq!(goodput["interval"], "95 % Student t");
    let (text, err) = workdir.lab(0, &["run", "line.toml"]);
    assert!(text.contains("random loss") && text.contains("goodput (kbit/s)"), "{text}");
    // Standard error is not a terminal: no progress.
    assert_eq!(err, "");
}

/// Exit status 2: an argument names something that does not exist. 1: the command failed.
#[test]
fn mistakes_are_reported_with_location() {
    let workdir = Workdir::new();
    let (_, err) = workdir.lab(2, &["run", "lossy-bluk"]);
    assert!(err.contains("did you mean lossy-bulk?"), "{err}");
    workdir.lab(2, &["run"]);
    workdir.lab(2, &["walk"]);
    let (_, err) = workdir.lab(2, &["run", "lossy-bulk", "--reps", "0"]);
    assert!(err.contains("--reps: expected 1 to"), "{err}");
    let (_, err) = workdir.lab(2, &["paper", "nobody"]);
    assert!(
        err.contains(
            "expected a paper (gangurde, pang, hung-khanh, nayak, darakji) or all, got \"nobody\""
        ),
        "{err}"
    );
    let (_, err) = workdir.lab(2, &["paper", "gangurde", "--reps", "3"]);
    assert!(err.contains("the paper has no random elements"), "{err}");
    workdir.lab(2, &["paper", "pang", "--reps", "0"]);

    workdir.write(
        "bad.toml",
        &LINE.replace("delay = \"10 ms\"", "delay = \"10 ms\"\njiter = \"1 ms\""),
    );
    let (_, err) = workdir.lab(1, &["run", "bad.toml"]);
    assert!(
        err.contains("bad.toml:12:1: link.line: unknown key `jiter`; did you mean `jitter`?"),
        "{err}"
    );
    workdir.write("bad.toml", &LINE.replace("delay = \"10 ms\"", "delay = \"10\""));
    let (_, err) = workdir.lab(1, &["run", "bad.toml"]);
    assert!(err.contains("bad.toml:11:9: link.line.delay: expected a time with its unit (ns, us, ms, s, min), such as \"35 ms\", got \"10\""), "{err}");
    workdir.write("bad.toml", &LINE.replace("to = \"b\"", "to = \"c\""));
    let (_, err) = workdir.lab(1, &["run", "bad.toml"]);
    assert!(err.contains("bad.toml:19:6: flow.file.to: no node \"c\""), "{err}");
    workdir.write(
        "bad.toml",
        &LINE.replace("stop = \"flows done\"", "stop = \"flows done\"\nevents = 100"),
    );
    let (_, err) = workdir.lab(1, &["run", "bad.toml"]);
    assert!(err.contains("event budget of 100 used up") && err.contains("node a"), "{err}");
    std::fs::write(workdir.path("bad.toml"), b"\xff\xfe").unwrap();
    let (_, err) = workdir.lab(1, &["run", "bad.toml"]);
    assert!(err.contains("expected UTF-8 text"), "{err}");

    workdir.write("line.toml", LINE);
    for (old, new, expected) in [
        (
            "values = [\"1 %\", \"3 %\"]",
            "values = [\"1 %\", \"3\"]",
            "c.toml:13:18: link.line.there.loss.chance: with loss = 3, algorithm = cubic",
        ),
        ("loss.chance\"", "loss.chanse\"", "unknown key `chanse`; did you mean `chance`?"),
        (
            "link.line.",
            "link.lin.",
            "c.toml:11:7: vary.loss.key: \"link.lin.there.loss.chance\": unknown key `lin`; did you mean `line`?",
        ),
        (
            "file.completion",
            "file.complete",
            "c.toml:5:12: campaign.measures: \"file.complete\": unknown key `complete`; did you mean `completion`?",
        ),
        ("at_most = 14", "at_most = 4", "campaign.at_most: expected 10 to 100000, got 4"),
        ("line.toml", "lien.toml", "c.toml: campaign.scenario: expected the name of a scenario"),
    ] {
        workdir.write("c.toml", &CAMPAIGN.replacen(old, new, 1));
        let (_, err) = workdir.lab(1, &["sweep", "c.toml"]);
        assert!(err.contains(expected), "{new}\nexpected {expected}\ngot      {err}");
    }
    let (_, err) = workdir.lab(1, &["view", "."]);
    assert!(err.contains("./network.json: expected a folder that ringway lab run"), "{err}");
    workdir.lab(1, &["report", "nowhere"]);
}

/// Table 1: UDP within 0.1 %, TCP within 2 %, SCTP within 5 %, the composition of "lost", and the
/// figures.
#[test]
fn a_paper_is_reproduced() {
    let workdir = Workdir::new();
    let paper = workdir.json(&["paper", "gangurde", "--json", "--out", "out"]);
    assert_eq!(paper["ok"], true);
    let rows = paper["rows"].as_array().unwrap();
    let row = |protocol: &str, at: usize| {
        rows.iter().filter(|r| r["protocol"] == protocol).nth(at).unwrap()
    };
    for (protocol, allowed) in [("UDP", 0.1), ("TCP", 2.0), ("SCTP", 5.0)] {
        for at in 0..2 {
            for figure in row(protocol, at)["figures"].as_array().unwrap() {
                let off = (figure["ours"].as_f64().unwrap() / figure["paper"].as_f64().unwrap()
                    - 1.0)
                    .abs();
                assert!(off * 100.0 <= allowed, "{protocol}: {figure}");
                assert_eq!(figure["tolerance_percent"].as_f64(), Some(allowed));
                assert_eq!(figure["within"], true);
            }
        }
    }
    let account = |protocol: &str| {
        let account = &row(protocol, 0)["account"];
        ["sent", "dropped", "in_flight", "delivered"].map(|k| account[k].as_u64().unwrap())
    };
    assert_eq!(account("UDP"), [1569, 819, 27, 723]);
    assert_eq!(account("TCP"), [713, 0, 19, 694]);
    assert_eq!(account("SCTP"), [750, 12, 51, 687]);
    assert_eq!(paper["figures"].as_array().unwrap().len(), 5);
    for name in ["3-2-tcp-delays", "3-4-udp-delays", "3-6-sctp-delays", "3-7-comparison"] {
        let png = std::fs::read(workdir.path(&format!("out/figures/figure-{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
    }
    let (text, _) = workdir.lab(0, &["paper", "gangurde"]);
    for part in [
        "51 were in flight at the cut",
        "The papers conclude that TCP loses the fewest packets",
        "within its tolerance",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(workdir.lab(0, &["paper"]).0.starts_with("gangurde  "));
}

/// All papers, in their order.
const PAPERS: [&str; 5] = ["gangurde", "pang", "hung-khanh", "nayak", "darakji"];

/// The claims of all papers come out as expected; every table and figure of Pang 2003 has the paper's column.
#[test]
fn all_papers_are_reproduced() {
    let workdir = Workdir::new();
    // Two replications cannot decide every claim; each undecided claim is reported as a failure.
    let (text, err) = workdir.lab(1, &["paper", "all", "--json", "--reps", "2", "--out", "out"]);
    let all: Value = serde_json::from_str(&text).unwrap();
    assert!(err.contains("is undecided"), "{err}");
    let papers: Vec<&str> =
        all.as_array().unwrap().iter().map(|p| p["paper"].as_str().unwrap()).collect();
    assert_eq!(papers, PAPERS);
    let paper = |name: &str| all.as_array().unwrap().iter().find(|p| p["paper"] == name).unwrap();
    let pang = paper("pang");
    assert_eq!((&pang["ok"], pang["replications"].as_u64()), (&false.into(), Some(2)));
    let tables = pang["measured"].as_array().unwrap();
    let table = |source: &str| tables.iter().find(|t| t["source"] == source).unwrap();
    let figure = |source: &str, row: &str, column: &str| {
        let rows = table(source)["rows"].as_array().unwrap();
        let row = rows.iter().find(|r| r["name"] == row).unwrap();
        let figures = row["figures"].as_array().unwrap();
        let figure = figures.iter().find(|f| f["column"] == column).unwrap();
        (figure["ours"].as_f64().unwrap(), figure["paper"].as_f64())
    };
    // REGISTER: one round trip over UDP, two over SCTP, as the paper measured.
    let register = "REGISTER, with the flow to be opened";
    let (udp, sctp) = (figure("Table 5.5", register, "UDP"), figure("Table 5.5", register, "SCTP"));
    assert_eq!((udp.1, sctp.1), (Some(7.0), Some(14.0)));
    assert!(
        (udp.0 / 7.0 - 1.0).abs() < 0.02 && (sctp.0 / 14.0 - 1.0).abs() < 0.02,
        "{udp:?} {sctp:?}"
    );
    let (calls, printed) = figure("Table 5.3", "5 %", "UDP");
    assert_eq!(printed, Some(70.0));
    assert!((60.0..=72.0).contains(&calls), "{calls}");
    // Fast retransmission has the effect that Pang describes if enough is sent and not too much is lost. Two
    // replications vary much (a ratio of 1.2 here): eight have 1.8.
    let dialled = |row, transport| figure("Table 5.3, without people", row, transport).0;
    assert!(dialled("5 % in each direction", "SCTP") > dialled("5 % in each direction", "UDP"));
    assert!(dialled("20 % in each direction", "SCTP") < dialled("20 % in each direction", "UDP"));
    let (gap, _) = figure("Section 5.5", "two cables at both, ss7", "gap");
    assert!((50.0..800.0).contains(&gap), "{gap}");
    let (halt, printed) = figure("Figures 3.10 and 3.11", "one path", "halt");
    assert!(halt > 3.0 && printed == Some(3.0));
    for source in ["Figure 5.2", "Figure 3.7", "Figure 3.8", "Gangurde et al., announced"] {
        assert!(!table(source)["rows"].as_array().unwrap().is_empty(), "{source}");
    }
    let claims = all.as_array().unwrap().iter().flat_map(|p| p["claims"].as_array().unwrap());
    for claim in claims.filter(|c| c["sure"] == true) {
        assert_eq!(claim["holds"], claim["expected"], "{claim}");
    }
    // Figures are within their tolerances with two replications too; open parts have no figures.
    let darakji = paper("darakji");
    let rows = darakji["rows"].as_array().unwrap().iter();
    let figures = rows.flat_map(|r| r["figures"].as_array().unwrap());
    assert!(figures.clone().count() > 20 && figures.clone().all(|f| f["within"] == true));
    let parts = darakji["parts"].as_array().unwrap();
    assert!(parts.iter().any(|p| p["progress"] == "open"), "{parts:?}");
    let written = files(&workdir.path("out/pang"));
    for name in ["figures.csv", "figures.parquet", "points.csv", "report.html"] {
        assert!(written.contains_key(name), "{name}");
    }
    for name in ["figure-5-2-throughput", "table-5-3-calls", "section-5-5-gap", "call-setup"] {
        assert!(written.contains_key(&format!("figures/{name}.svg")), "{name}");
        assert!(written[&format!("figures/{name}.png")].starts_with(b"\x89PNG"));
    }
}

/// The built-in search finds the known settings, and no others.
#[test]
fn a_search_finds_the_settings_of_table_1() {
    let workdir = Workdir::new();
    let sweep = workdir.json(&["sweep", "gangurde-udp-search", "--json"]);
    let search = &sweep["search"];
    assert_eq!((search["found"].as_u64(), search["tried"].as_u64()), (Some(1), Some(300)));
    let best = &search["best"][0];
    let choices = &best["choices"];
    assert_eq!(choices["rate of all links"], "0.2 Mbit/s");
    assert_eq!(choices["queue limit"], "50");
    assert_eq!((&choices["source stops"], &choices["cut"]), (&"28 s".into(), &"29 s".into()));
    assert!(best["error_percent"].as_f64().unwrap() < 0.1);
    assert!(search["best"][1]["error_percent"].as_f64().unwrap() > 0.1);
    let (text, _) = workdir.lab(0, &["report", "lab-results/gangurde-udp-search"]);
    assert!(text.contains("1 of 300 settings"), "{text}");
    // A target that no setting meets is a failure.
    let impossible = "[campaign]\ntitle = \"t\"\nscenario = \"gangurde-udp\"\n[target]\ntolerance = \"1 %\"\n\
                      [target.figures]\n\"udp.sent\" = 7\n";
    workdir.write("impossible.toml", impossible);
    let (_, err) = workdir.lab(1, &["sweep", "impossible.toml"]);
    assert!(err.contains("no setting gives every figure to within 1 %"), "{err}");
}

/// A campaign that is killed repeatedly ends with the same bytes as one that is not interrupted,
/// and as one on a single thread.
#[test]
fn a_campaign_survives_being_killed() {
    let workdir = Workdir::new();
    workdir.write("line.toml", LINE);
    workdir.write("c.toml", CAMPAIGN);
    let whole = workdir.json(&["sweep", "c.toml", "--out", "whole", "--json", "--threads", "2"]);
    let total = whole["ran"].as_u64().unwrap();
    assert!((40..=56).contains(&total), "{total}");
    assert_eq!(whole["reused"].as_u64(), Some(0));
    let log = workdir.path("killed/results.log");
    let lines = || std::fs::read(&log).map_or(0, |b| b.iter().filter(|&&b| b == b'\n').count());
    let kill_after = |share| {
        let mut child = workdir
            .command(&["lab", "sweep", "c.toml", "--out", "killed", "--threads", "1"])
            .spawn()
            .unwrap();
        let began = Instant::now();
        while lines() < share && began.elapsed() < Duration::from_secs(300) {
            std::thread::sleep(Duration::from_millis(2));
        }
        // SIGKILL: the process cannot clean up.
        child.kill().unwrap();
        child.wait().unwrap();
        lines() as u64
    };
    // The campaign may end before this thread can kill it; then it is started once more.
    let killed = (0..20).find_map(|_| {
        let _ = std::fs::remove_dir_all(workdir.path("killed"));
        kill_after(3);
        Some(kill_after(15)).filter(|known| *known < total)
    });
    let known = killed.expect("a campaign that was killed in the middle");
    assert!(known >= 15, "{known}");
    // The replication of a truncated line runs again.
    let mut bytes = std::fs::read(&log).unwrap();
    bytes.truncate(bytes.len() - 5);
    std::fs::write(&log, bytes).unwrap();
    // The results so far can be shown.
    let (text, _) = workdir.lab(0, &["report", "killed"]);
    assert!(text.contains("report.html"), "{text}");
    let resumed = workdir.json(&["sweep", "c.toml", "--out", "killed", "--json", "--threads", "1"]);
    let (ran, reused) = (resumed["ran"].as_u64().unwrap(), resumed["reused"].as_u64().unwrap());
    assert_eq!(resumed["cells"], whole["cells"]);
    assert!(reused >= 1 && ran < total, "{ran} {reused}");
    let again = workdir.json(&["sweep", "c.toml", "--out", "killed", "--json"]);
    assert_eq!(again["ran"].as_u64(), Some(0));
    let (mut one, mut two) = (files(&workdir.path("whole")), files(&workdir.path("killed")));
    // What suffices when a campaign goes on may be a run less than what was made by batches.
    assert!(one.remove("results.log").is_some() && two.remove("results.log").is_some());
    let names: Vec<&String> = one.keys().collect();
    assert_eq!(names, two.keys().collect::<Vec<_>>());
    for (name, bytes) in &one {
        assert!(two[name] == *bytes, "{name} differs");
    }
    for name in [
        "results.csv",
        "results.parquet",
        "summary.csv",
        "report.html",
        "figures/file-completion.png",
    ] {
        assert!(one.contains_key(name), "{name}");
    }
    // Another seed is another campaign: none of its results are known.
    let other = workdir
        .json(&["sweep", "c.toml", "--out", "killed", "--json", "--seed", "2", "--reps", "1"]);
    assert_eq!((other["ran"].as_u64(), other["reused"].as_u64()), (Some(4), Some(0)));
}

/// A program instead of Python: `script` is run by sh.
fn python(work: &Workdir, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = work.path("python");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_sweep_on_an_engine_says_what_is_missing() {
    let work = Workdir::new();
    let sweep = |python: &str, args: &[&str]| {
        let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_ringway"));
        program.args(["lab", "sweep"]).args(args).env("RINGWAY_PYTHON", python);
        let done = program.output().unwrap();
        let [out, err] = [done.stdout, done.stderr].map(|text| String::from_utf8(text).unwrap());
        (done.status.code(), out, err)
    };
    let on = ["loss-and-tcp", "--on", "ray"];
    let (status, _, err) = sweep("/nowhere/python", &on);
    assert!(status == Some(1) && err.contains("/nowhere/python: No such file"), "{err}");
    let absent =
        python(&work, "echo \"ModuleNotFoundError: No module named 'ringway'\" >&2; exit 1");
    let (status, _, err) = sweep(&absent, &on);
    assert!(status == Some(1) && err.contains("No module named 'ringway'"), "{err}");
    // Debian's pip installs nothing outside of a virtual environment (PEP 668).
    assert!(err.contains("`python3 -m venv ENV && ENV/bin/pip install bindings/python`"), "{err}");
    assert!(err.contains("RINGWAY_PYTHON=ENV/bin/python"), "{err}");
    let old = python(&work, "echo 0.0.1");
    let (status, _, err) = sweep(&old, &on);
    assert!(status == Some(1) && err.contains("expected version 0.1.0"), "{err}");
    assert!(err.contains("got 0.0.1"), "{err}");
}

#[test]
fn a_sweep_on_an_engine_hands_its_arguments_over() {
    let work = Workdir::new();
    let there = python(&work, "if [ \"$2\" = -c ]; then echo 0.1.0; else echo \"$@\"; exit 7; fi");
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_ringway"));
    let args = [
        "--on",
        "dask://h:1",
        "--out",
        "s3://b/f",
        "--seed",
        "5",
        "--threads",
        "3",
        "--json",
        "c.toml",
    ];
    program.args(["lab", "sweep"]).args(args).env("RINGWAY_PYTHON", there);
    let done = program.output().unwrap();
    let expected = "-P -m ringway.sweep --on dask://h:1 --workers 3 --out s3://b/f --seed 5 --json -- c.toml\n";
    assert_eq!(
        (done.status.code(), String::from_utf8(done.stdout).unwrap()),
        (Some(7), expected.into())
    );
}
