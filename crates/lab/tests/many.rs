//! The cost of many flows is proportional to their number.

#![allow(clippy::unwrap_used)]

use ringway_lab::commands::{RunArgs, run};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Runs a number of flows of one packet each, twice; returns the shorter time.
fn took(flows: usize) -> Duration {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("many");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(format!("{flows}.toml"));
    let mut text = "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\"]\nstop = \"1 s\"\n[[link]]\n\
                    between = [\"a\", \"b\"]\nrate = \"1 Gbit/s\"\n"
        .to_string();
    for flow in 0..flows {
        text += &format!(
            "[[flow]]\nname = \"f{flow}\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"udp\"\ntraffic = \"cbr\"\n\
             rate = \"8 kbit/s\"\npacket = \"100 B\"\npackets = 1\n"
        );
    }
    std::fs::write(&file, text).unwrap();
    let once = || {
        let began = Instant::now();
        let what = file.display().to_string();
        assert!(run(&RunArgs { scenario: what, ..RunArgs::default() }).unwrap().faults.is_empty());
        began.elapsed()
    };
    once().min(once())
}

/// Eight times the flows take about eight times as long, not sixty-four: no look-up searches all
/// flows.
#[test]
fn cost_is_proportional_to_the_number_of_flows() {
    let (few, many) = (took(500), took(4_000));
    assert!(many < few * 24, "500 flows took {few:?}, 4000 took {many:?}");
}
