//! Networks and scenes for the tests of this module, and the tests of reading.

#![allow(clippy::unwrap_used)]

use super::network::{Direction, FORMAT, Flow, Link, Network, Node};
use super::page::page;
use super::read::{Curve, Hop, Packet, Scene, read};
use super::{ViewError, network, tables};
use crate::commands::{RunArgs, run};
use std::path::{Path, PathBuf};

/// Returns a network of `nodes` nodes with these links and one flow.
pub(super) fn network(nodes: usize, links: &[[usize; 2]], (from, to): (usize, usize)) -> Network {
    let node = |n: usize| Node { name: format!("n{n}"), position: None };
    let link = |(n, between): (usize, &[usize; 2])| Link {
        name: format!("l{n}"),
        between: *between,
        there: Direction::default(),
        back: Direction { text: "1 Mbit/s".into(), down_ns: vec![[5, 9], [10, 12]] },
    };
    Network {
        format: FORMAT,
        title: "t".into(),
        version: "0".into(),
        seed: 1,
        ended_ns: 100,
        left_out: 0,
        tables: Default::default(),
        nodes: (0..nodes).map(node).collect(),
        links: links.iter().enumerate().map(link).collect(),
        flows: vec![Flow { name: "f".into(), from, to, transport: "udp".into() }],
    }
}

/// Returns a scene of one packet in which every name is `name`.
pub(super) fn scene(name: &str) -> Scene {
    let mut network = network(2, &[[0, 1]], (0, 1));
    network.title = name.into();
    network.nodes[0].name = name.into();
    network.links[0].name = name.into();
    network.links[0].there.text = name.into();
    network.flows[0].name = name.into();
    let hop = Hop { lane: 0, packet: 0, node: 0, at: 3, waited: 1, sending: 2, flying: 3, lost: 1 };
    let curve = Curve {
        path: name.into(),
        at: vec![1],
        values: [vec![1.0], vec![f64::NAN], vec![0.0]],
        srtt: vec![0],
        ..Curve::default()
    };
    Scene {
        network,
        packets: vec![Packet { flow: 1, size: 1000, seq: 1, ..Packet::default() }],
        hops: vec![hop],
        words: vec![name.into()],
        reasons: vec![name.into()],
        curves: vec![curve],
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ringway-view-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run_to(name: &str, scenario: &str) -> Folder {
    let out = folder(name);
    let args = RunArgs {
        scenario: scenario.into(),
        out: Some(out.clone()),
        reps: Some(1),
        ..RunArgs::default()
    };
    run(&args).unwrap();
    Folder(out)
}

/// Returns the columns `of`, `x` and `y` of one probe of `series.csv`.
fn probe(dir: &Path, what: &str) -> Vec<(f64, f64)> {
    let text = std::fs::read_to_string(dir.join("series.csv")).unwrap();
    let rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    rows.filter(|row| row[0] == what)
        .map(|row| (row[3].parse().unwrap(), row[4].parse().unwrap()))
        .collect()
}

/// Returns whether a hop waits at a time.
fn waits(hop: &Hop, t: u64) -> bool {
    hop.at <= t && (hop.waited == 0 || t < hop.at + hop.waited - 1)
}

/// The UDP row of Table 1: as many packets and losses as it has, and at each sample of the probe as many waiting ones.
#[test]
fn a_page_has_the_packets_of_the_run() {
    let dir = run_to("udp", "gangurde-udp");
    let scene = read(&dir.0).unwrap();
    assert_eq!(scene.packets.len(), 1569);
    let json = std::fs::read_to_string(dir.0.join("runs.json")).unwrap();
    let runs: serde_json::Value = serde_json::from_str(&json).unwrap();
    let flow = &runs[0]["flows"][0];
    let lost = scene.hops.iter().filter(|hop| hop.lost > 0).count() as u64;
    assert_eq!(flow["dropped"].as_u64(), Some(lost));
    assert_eq!(scene.reasons, ["queue full"]);
    let samples = probe(&dir.0, "queue");
    assert!(samples.len() > 100, "{}", samples.len());
    for (at, queue) in samples {
        let t = (at * 1e9).round() as u64;
        let waiting = scene.hops.iter().filter(|hop| hop.lane == 0 && waits(hop, t)).count();
        assert_eq!(waiting as f64, queue, "at {at} s");
    }
    assert_eq!(page(&scene), page(&read(&dir.0).unwrap()));
}

/// What links count is what hops show: packets offered, lost and waiting, in each direction of each link, with copies,
/// reordering, losses before and after the link, and damaged packets.
#[test]
fn hops_agree_with_the_counters_of_links() {
    let text = "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\", \"c\"]\nstop = \"20 s\"\n[[link]]\nname = \"one\"\n\
        between = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\ndelay = \"20 ms\"\njitter = \"15 ms\"\n\
        queue = { discipline = \"codel\" }\nduplicate = { chance = \"3 %\" }\n\
        reorder = { chance = \"5 %\", gap = 3 }\ncorrupt = { chance = \"1 %\" }\nloss_at = \"after-link\"\n\
        loss = { model = \"random\", chance = \"2 %\" }\n\
        schedule = [{ at = \"4 s\", up = false }, { at = \"6 s\", up = true }]\n[[link]]\nname = \"two\"\n\
        between = [\"b\", \"c\"]\nrate = \"800 kbit/s\"\ndelay = \"5 ms\"\nmtu = \"1400 B\"\n\
        queue = { discipline = \"drop-tail\", limit = 5 }\nduplicate = { chance = \"4 %\" }\n\
        loss = { model = \"random\", chance = \"3 %\" }\n[[flow]]\nname = \"u\"\nfrom = \"a\"\nto = \"c\"\n\
        transport = \"udp\"\ntraffic = \"poisson\"\nrate = \"700 kbit/s\"\npacket = \"700 B\"\n[[flow]]\nname = \"s\"\n\
        from = \"c\"\nto = \"a\"\ntransport = \"sctp\"\ntraffic = \"bulk\"\nstop = \"18 s\"\n";
    let source = Folder(folder("counters-file"));
    let file = source.0.join("links.toml");
    std::fs::write(&file, text).unwrap();
    let dir = run_to("counters", &file.display().to_string());
    let scene = read(&dir.0).unwrap();
    let json = std::fs::read_to_string(dir.0.join("runs.json")).unwrap();
    let runs: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (lane, counted) in runs[0]["links"].as_array().unwrap().iter().enumerate() {
        let of: Vec<&Hop> = scene.hops.iter().filter(|hop| hop.lane == lane).collect();
        let lost = of.iter().filter(|hop| hop.lost > 0).count() as u64;
        let waiting = of.iter().filter(|hop| hop.waited == 0).count() as u64;
        let got = [of.len() as u64, lost, waiting];
        let expected = ["offered", "dropped", "waiting"].map(|key| counted[key].as_u64().unwrap());
        assert_eq!(got, expected, "{counted}");
        assert!(expected[0] > 100 && expected[1] > 0, "{counted}");
    }
    let kinds = |kind: u64| scene.packets.iter().filter(|packet| packet.kind == kind).count();
    assert!((0..4).all(|kind| kinds(kind) > 0), "{:?}", [0, 1, 2, 3].map(kinds));
}

/// Packets on a link that goes down are lost when it does, not when they would have arrived; the windows are those of the
/// probe.
#[test]
fn a_cut_link_loses_packets_at_once() {
    let dir = run_to("cut", "cable-pulled");
    let scene = read(&dir.0).unwrap();
    let link = &scene.network.links[0];
    assert_eq!(link.there.down_ns, [[5_000_000_000, 8_000_000_000]]);
    let cut = scene.reasons.iter().position(|r| r == "link went down on the way").unwrap();
    let lost: Vec<&Hop> = scene.hops.iter().filter(|h| h.lost == cut as u64 + 1).collect();
    assert!(lost.len() > 5, "{}", lost.len());
    for hop in lost {
        let parts = [hop.waited, hop.sending, hop.flying].iter().sum::<u64>();
        assert_eq!(hop.at + parts - 3, 5_000_000_000, "{hop:?}");
    }
    let curve = &scene.curves[0];
    let windows = probe(&dir.0, "cwnd");
    assert!(windows.len() > 500 && scene.curves.len() == 1);
    for (at, cwnd) in windows {
        let index = curve.at.partition_point(|t| *t <= (at * 1e9).round() as u64);
        // Without a connection the probe has the last window, and the page none.
        let got = curve.values[0][index.max(1) - 1];
        assert!(got == cwnd || index == 0 || got.is_nan(), "at {at} s: {got}, {cwnd}");
    }
    assert!(curve.values[0].iter().filter(|v| v.is_finite()).count() > 100);
}

/// The paths of an association have a window each, named by their links, and data moves from one to the other.
#[test]
fn paths_have_their_own_windows() {
    let dir = run_to("paths", "two-cables");
    let scene = read(&dir.0).unwrap();
    let mut names: Vec<(usize, &str)> =
        scene.curves.iter().map(|c| (c.flow, c.path.as_str())).collect();
    names.sort_unstable();
    assert_eq!(names, [(0, "first"), (0, "second"), (1, "first"), (1, "second")]);
    let data = |hop: &&Hop| scene.packets[hop.packet as usize].kind == 0;
    let latest =
        |lane: usize| scene.hops.iter().filter(data).filter(|h| h.lane == lane).map(|h| h.at).max();
    assert!(latest(0).unwrap() < 6_100_000_000 && latest(2).unwrap() > 9_000_000_000);
}

/// Every way in which a folder can be wrong has an error that names the file, what is expected and what is there.
#[test]
fn a_wrong_folder_is_reported() {
    let empty = Folder(folder("empty"));
    let error = read(&empty.0).unwrap_err().to_string();
    assert!(error.contains("expected a folder that ringway lab run"), "{error}");
    let dir = run_to("wrong", "gangurde-udp");
    without_sums(&dir.0);
    let file = dir.0.join(network::FILE);
    let good = std::fs::read_to_string(&file).unwrap();
    for (old, new, expected) in [
        ("\"format\":1", "\"format\":2", "network.json: format: expected 1, got 2"),
        ("\"n1\"", "\"n0\"", "nodes: expected different names, got \"n0\" twice"),
        ("\"from\":0", "\"from\":4", "flows[0].from: expected an index below 4, got 4"),
        ("\"seed\"", "\"sead\"", "unknown field `sead`"),
        ("28990000000", "-1", "invalid value"),
        ("28990000000", "18446744073709551615", "ended_ns: expected at most"),
        ("\"n0\"", "\"\"", "nodes[0].name: expected 1 to 256 bytes of text, got 0"),
        (
            "\"udp\"",
            "\"up\"",
            "hops.parquet: row 0: flow: expected a flow of network.json, got \"udp\"",
        ),
        ("{", "", "expected the network of a run"),
    ] {
        assert!(good.contains(old), "{old}");
        std::fs::write(&file, good.replacen(old, new, 1)).unwrap();
        let error = read(&dir.0).unwrap_err().to_string();
        assert!(error.contains(expected), "{new}: {error}");
    }
    std::fs::write(&file, &good).unwrap();
    // Tables of other columns, no table, and none at all.
    let hops = dir.0.join(tables::HOPS);
    std::fs::copy(dir.0.join("measures.parquet"), &hops).unwrap();
    let error = read(&dir.0).unwrap_err().to_string();
    assert!(error.contains("hops.parquet: expected the columns packet (U64), flow"), "{error}");
    std::fs::write(&hops, "PAR1 this is no table PAR1").unwrap();
    assert!(read(&dir.0).unwrap_err().to_string().starts_with("hops.parquet: Parquet: "));
    std::fs::remove_file(&hops).unwrap();
    let error: ViewError = read(&dir.0).unwrap_err();
    assert_eq!(error.file, tables::HOPS);
}

/// Removes the sums of tables, which another program may not know.
fn without_sums(dir: &Path) {
    let file = dir.join(network::FILE);
    let mut network: Network = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(network.tables.len(), 2);
    network.tables.clear();
    std::fs::write(&file, serde_json::to_vec(&network).unwrap()).unwrap();
}

/// A damaged table, or one of another run, is not shown.
#[test]
fn a_damaged_table_is_found() {
    let dir = run_to("damaged", "gangurde-sctp");
    for file in [tables::HOPS, tables::WINDOWS] {
        let path = dir.0.join(file);
        let good = std::fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(good.len() / 20) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bad).unwrap();
            let error = read(&dir.0).unwrap_err().to_string();
            let expected = format!("{file}: expected the table of the same run, with the SHA-256 ");
            assert!(error.starts_with(&expected), "{error}");
        }
        std::fs::write(&path, &good).unwrap();
    }
    assert!(read(&dir.0).is_ok());
}

/// A table without a sum is an error or has other numbers where it is changed, and never a panic.
#[test]
fn a_changed_table_does_no_harm() {
    let dir = run_to("changed", "gangurde-sctp");
    without_sums(&dir.0);
    for file in [tables::HOPS, tables::WINDOWS] {
        let path = dir.0.join(file);
        let good = std::fs::read(&path).unwrap();
        let step = good.len() / 40 + 1;
        let footer = good.len().saturating_sub(900)..good.len();
        for at in (0..good.len()).step_by(step).chain(footer.step_by(30)) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bad).unwrap();
            if let Ok(scene) = read(&dir.0) {
                page(&scene);
            }
            std::fs::write(&path, &good[..at]).unwrap();
            assert!(read(&dir.0).is_err(), "{file} of {at} bytes");
        }
        std::fs::write(&path, &good).unwrap();
    }
    assert!(read(&dir.0).is_ok());
}
