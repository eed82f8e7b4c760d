//! The HTML page of a run.

#![allow(clippy::unwrap_used)]

use ringway_lab::commands::{RunArgs, run};
use std::path::PathBuf;

/// The network is drawn, times when the link is down are shaded, and every reference points to a
/// file.
#[test]
fn a_page_draws_the_network_and_links_its_files() {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    let _ = std::fs::remove_dir_all(&out);
    let args =
        RunArgs { scenario: "cable-pulled".into(), out: Some(out.clone()), ..RunArgs::default() };
    run(&args).unwrap();
    let html = std::fs::read_to_string(out.join("report.html")).unwrap();
    let links: Vec<&str> =
        html.split("href=\"./").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(links.len() > 8 && links.contains(&"figures/cwnd.svg"), "{links:?}");
    assert!(links.iter().all(|link| out.join(link).is_file()), "{links:?}");
    assert!(html.contains("8 Mbit/s, 15 ms") && html.contains("stroke-dasharray"));
    assert!(html.contains("Shaded: link line is down."));
    assert!(html.matches("class=\"shaded\"").count() >= 2);
}
