//! `ringway emulate` as operators run it. What needs interfaces needs root and network namespaces; without them such a
//! test does nothing.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time within which what is waited for must be.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `ringway emulate`, in a folder of its own, to its end.
fn emulate(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.arg("emulate").args(args).current_dir(folder);
    command.env("RUNTIME_DIRECTORY", folder.join("run")).stdin(Stdio::null());
    command
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

#[test]
fn wrong_usage_has_exit_status_two_and_says_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad.toml"), "[[link]]\ndealy = '1 ms'\n").unwrap();
    for (args, expected) in [
        (&[][..], "expected --between IF1 IF2 or --tun NAME"),
        (&["--between", "a0"], "2 values required"),
        (&["--between", "a0", "a0"], "expected two interfaces"),
        (&["--between", "a0", "b0", "--tun", "t0"], "cannot be used with"),
        (&["--between", "a0", "b0", "--delay", "35"], "delay: expected a time with its unit"),
        (&["--tun", "t0", "--loss", "120%"], "loss"),
        (
            &["--tun", "t0", "--config", "bad.toml"],
            "bad.toml:2:1: link.a-b: unknown key `dealy`; did you mean `delay`?",
        ),
        (&["--tun", "t0", "--trace", "none"], "none: No such file"),
        (&["--between", "a0", "b0", "--", "true"], "--tun"),
        (&["set", "delay"], "2 values"),
        (&["set", "delay", "5ms", "loss"], "expected a value after each name"),
    ] {
        let output = emulate(folder.path(), args);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

#[test]
fn no_emulation_that_runs_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["status"][..], &["status", "--json"], &["set", "delay", "5ms"]] {
        let output = emulate(folder.path(), args);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("no emulation runs"), "{}", text(&output.stderr));
    }
    let output = emulate(folder.path(), &["status", "--name", "x"]);
    assert!(text(&output.stderr).contains("no emulation answers"), "{}", text(&output.stderr));
    let output = emulate(folder.path(), &["status", "--name", "../x"]);
    assert!(text(&output.stderr).contains("expected a name"), "{}", text(&output.stderr));
}

/// A namespace with two interfaces, which ends with the test.
struct Space(String);

impl Space {
    fn new() -> Option<Space> {
        let space = Space(format!("rw-emulate-{}", std::process::id()));
        let made = ip(&format!("netns add {}", space.0)) && {
            let name = &space.0;
            ip(&format!("-n {name} link add west type veth peer name far-west"))
                && ip(&format!("-n {name} link add east type veth peer name far-east"))
        };
        if !made {
            eprintln!("no namespace to be had");
            return None;
        }
        for name in ["west", "far-west", "east", "far-east"] {
            assert!(ip(&format!("-n {} link set {name} up", space.0)));
        }
        Some(space)
    }

    fn start(&self, folder: &Path, args: &[&str]) -> Running {
        let inner = command(folder, args);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(inner.get_program()).args(inner.get_args());
        command.current_dir(folder).env("RUNTIME_DIRECTORY", folder.join("run"));
        let log = std::fs::File::create(folder.join("stderr")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        Running(command.spawn().unwrap())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.0));
    }
}

/// An emulation that is stopped in the end.
struct Running(Child);

impl Running {
    /// Ends it as an operator does. Returns what it prints.
    fn end(mut self) -> String {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let mut out = self.0.stdout.take().unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut out, &mut text).unwrap();
        assert!(self.0.wait().unwrap().success());
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended if the test went well.
        let _ = self.0.kill();
    }
}

fn ip(words: &str) -> bool {
    Command::new("ip")
        .args(words.split(' '))
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn parameters_change_while_it_runs_and_a_lost_interface_is_waited_for() {
    let Some(space) = Space::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let args = ["--between", "west", "east", "--delay", "5ms", "--json", "--log", "log"];
    let running = space.start(folder.path(), &args);
    let status = || -> Option<Value> {
        let output = emulate(folder.path(), &["status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    };
    wait("a state", || status().is_some());
    let set = |args: &[&str]| emulate(folder.path(), &[&["set"], args].concat());
    assert!(set(&["delay", "7ms", "back.loss", "2%"]).status.success());
    let state = status().unwrap();
    let of = |way: usize, key: &str| state["directions"][way]["parameters"][key].clone();
    assert_eq!((of(0, "delay"), of(1, "delay")), ("7 ms".into(), "7 ms".into()));
    assert_eq!(of(1, "loss")["chance"], "0.02");
    assert_eq!(of(0, "loss")["model"], "none");
    for (args, expected) in [
        (["dealy", "7ms"], "unknown key `dealy`; did you mean `delay`?"),
        (["rate", "0 bit/s"], "rate: expected more than 0"),
    ] {
        let output = set(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    // The same name cannot run twice.
    let output = emulate(folder.path(), &["--between", "west", "east"]);
    assert!(text(&output.stderr).contains("another emulation has this name"));
    let printed = || std::fs::read_to_string(folder.path().join("stderr")).unwrap();
    assert!(ip(&format!("-n {} link del east", space.0)));
    let gone = "interface east does not exist; waiting for it";
    wait("a line", || printed().contains(gone));
    assert!(ip(&format!("-n {} link add east type veth peer name far-east", space.0)));
    for name in ["east", "far-east"] {
        assert!(ip(&format!("-n {} link set {name} up", space.0)));
    }
    let after = |text: &str| text.split(gone).last().is_some_and(|s| s.contains("east is up"));
    wait("a line", || after(&printed()));
    let report: Value = serde_json::from_str(&running.end()).unwrap();
    assert_eq!((&report["name"], &report["directions"][1]["to"]), (&"west".into(), &"west".into()));
    assert!(folder.path().join("log.back").exists());
    assert!(!folder.path().join("run/west.sock").exists());
}
