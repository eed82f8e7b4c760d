//! A scenario file: reading it never panics, what is wrong is told in lines that fit, and what is
//! right holds together and reads the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_lab::scenario::{MAX_PROBLEMS, Scenario};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match Scenario::read("fuzz", &text) {
        Ok(scenario) => {
            for flow in &scenario.flows {
                assert!(flow.from < scenario.nodes.len() && flow.to < scenario.nodes.len());
            }
            for link in &scenario.links {
                assert!(link.between.iter().all(|end| *end < scenario.nodes.len()));
            }
            let again = Scenario::read("fuzz", &text).expect("it was right before");
            assert_eq!(format!("{scenario:?}"), format!("{again:?}"));
        }
        Err(problems) => {
            let lines = problems.lines();
            assert!((1..=MAX_PROBLEMS + 1).contains(&lines.len()));
            for line in lines {
                assert!(line.starts_with("fuzz:") && !line.contains('\n'), "{line:?}");
            }
        }
    }
});
