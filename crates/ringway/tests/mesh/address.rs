//! Commands without a router that runs.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::spaces::{errors, ringway};

#[test]
fn an_address_without_an_identity_is_an_error_that_creates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let output = ringway(&["mesh", "address", "--state", state.to_str().unwrap()]);
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("state/identity: No such file"), "{errors}");
    assert!(!state.exists());
}

#[test]
fn a_broken_identity_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("identity");
    std::fs::write(&file, "nonsense").unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let output = ringway(&["mesh", "address", "--state", folder.path().to_str().unwrap()]);
    let errors = errors(&output);
    assert!(errors.contains("line 1 of the identity file"), "{errors}");
}

#[test]
fn commands_without_a_router_and_wrong_arguments_have_a_clear_line() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_str().unwrap();
    for words in [&["status"][..], &["ping", "fd00::1"], &["trace", "0123456789abcdef"]] {
        let output = ringway(&[&["mesh"], words, &["--state", state]].concat());
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(errors.contains("no router answers at") && errors.contains("/control"), "{errors}");
    }
    for (words, expected) in [
        (&["ping", "router"][..], "expected an IPv6 address or an id of 16 hex digits"),
        (&["ping", "192.0.2.1"], "expected an IPv6 address or an id of 16 hex digits"),
        (&["ping", "fd00::1", "--count", "0"], "0 is not in 1..=10000"),
        (&["trace"], "<ADDRESS|ID>"),
        (&["run", "--http", "0.0.0.0:9000"], "on loopback only"),
        (&["run", "--http", "9000"], "expected ADDRESS:PORT"),
    ] {
        let output = ringway(&[&["mesh"], words].concat());
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(errors.contains(expected), "{errors}");
    }
}
