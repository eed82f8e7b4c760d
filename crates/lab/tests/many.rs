//! The cost of many flows, and of many nodes, is proportional to their number.

#![allow(clippy::unwrap_used)]

use ringway_lab::commands::{RunArgs, run};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Runs a scenario twice; returns the shorter time.
fn took(name: &str, text: &str) -> Duration {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("many");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{name}.toml"));
    std::fs::write(&file, text).unwrap();
    let once = || {
        let began = Instant::now();
        let what = file.display().to_string();
        assert!(run(&RunArgs { scenario: what, ..RunArgs::default() }).unwrap().faults.is_empty());
        began.elapsed()
    };
    once().min(once())
}

/// A number of flows of one packet each.
fn flows(flows: usize) -> Duration {
    let mut text = "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\"]\nstop = \"1 s\"\n[[link]]\n\
                    between = [\"a\", \"b\"]\nrate = \"1 Gbit/s\"\n"
        .to_string();
    for flow in 0..flows {
        text += &format!(
            "[[flow]]\nname = \"f{flow}\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"udp\"\ntraffic = \"cbr\"\n\
             rate = \"8 kbit/s\"\npacket = \"100 B\"\npackets = 1\n"
        );
    }
    took(&format!("{flows}-flows"), &text)
}

/// A tree of nodes, of which ten send a packet to its root.
fn nodes(nodes: usize) -> Duration {
    let names: Vec<String> = (0..nodes).map(|node| format!("\"n{node}\"")).collect();
    let mut text = format!(
        "[scenario]\ntitle = \"t\"\nnodes = [{}]\nstop = \"1 s\"\ngenerator = \"xoshiro\"\n",
        names.join(",")
    );
    for node in 1..nodes {
        text += &format!("[[link]]\nbetween = [\"n{node}\", \"n{}\"]\n", (node - 1) / 8);
    }
    for flow in 1..=10 {
        text += &format!(
            "[[flow]]\nname = \"f{flow}\"\nfrom = \"n{}\"\nto = \"n0\"\ntransport = \"udp\"\n\
             traffic = \"cbr\"\nrate = \"8 kbit/s\"\npacket = \"100 B\"\npackets = 1\n",
            nodes - flow
        );
    }
    took(&format!("{nodes}-nodes"), &text)
}

/// Eight times the flows take about eight times as long, not sixty-four: no look-up searches all
/// flows.
#[test]
fn cost_is_proportional_to_the_number_of_flows() {
    let (few, many) = (flows(500), flows(4_000));
    assert!(many < few * 24, "500 flows took {few:?}, 4000 took {many:?}");
}

#[test]
fn cost_is_proportional_to_the_number_of_nodes() {
    let (few, many) = (nodes(2_048), nodes(16_384));
    assert!(many < few * 24, "2048 nodes took {few:?}, 16384 took {many:?}");
}
