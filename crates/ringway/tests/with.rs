//! `ringway with` as users type it, as far as it needs no library: what it refuses and how.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn with(args: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    let Output { status, stderr, .. } = command.arg("with").args(args).output().unwrap();
    (status.code().unwrap(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn wrong_usage_has_exit_status_two_and_says_what_was_expected() {
    for (args, expected) in [
        (&[][..], "SERVICE"),
        (&["multihoming"], "PROGRAM"),
        (&["--", "true"], "SERVICE"),
        (&["multihome", "--", "true"], "the nearest is ringway.multihoming"),
        (&["keepAlive=yes", "--", "true"], "expected require, prefer, noPreference"),
        (&["require:security", "--", "true"], "no protocol fits"),
        (
            &["--datagrams", "require:multihoming", "--", "true"],
            "expected services that UDP has too",
        ),
    ] {
        let (status, error) = with(args);
        assert_eq!(status, 2, "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn a_program_that_cannot_be_served_has_the_status_of_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = folder.path().join("fixed");
    // An ELF header without program headers: nothing names a dynamic linker.
    let mut head = vec![0; 64];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    head[18..20].copy_from_slice(&machine.to_le_bytes());
    std::fs::write(&fixed, head).unwrap();
    let (status, error) = with(&["multihoming", "--", fixed.to_str().unwrap()]);
    assert!(status == 126 && error.contains("statically linked"), "{status}: {error}");
    let (status, error) = with(&["multihoming", "--", "no-such-program"]);
    assert!(status == 127 && error.contains("no-such-program"), "{status}: {error}");
}
