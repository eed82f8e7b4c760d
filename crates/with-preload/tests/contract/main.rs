//! One contract in three worlds: the same program observes the same of its sockets on plain TCP, with services over SCTP,
//! and with services that fall back to TCP.
//!
//! A body in `bodies` is the program: it uses sockets as programs do, on the loopback interface, and notes what it observes.
//! This test program is executed for it again, alone or by a broker, which is this test program once more.

#![allow(clippy::unwrap_used, unsafe_code)]

mod bodies;
mod calls;
mod strangers;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// Which part a process plays, and the body: `broker SERVICE BODY` or `program BODY`.
const ROLE: &str = "RINGWAY_CONTRACT";
/// The file for what a body observes.
const NOTES: &str = "RINGWAY_CONTRACT_NOTES";

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum World {
    /// Without a broker.
    Plain,
    /// With a broker and this service.
    With(&'static str),
}

pub(crate) const OVER_SCTP: World = World::With("require:multihoming");
pub(crate) const OVER_TCP: World = World::With("prohibit:preserveMsgBoundaries");

/// Runs a body. Returns what it has observed, and what it and the broker have printed.
pub(crate) fn run(world: World, body: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let role = match world {
        World::Plain => format!("program {body}"),
        World::With(service) => format!("broker {service} {body}"),
    };
    let output = this(&role, folder.path(), &notes).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let printed = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    let observed = fs::read_to_string(&notes).unwrap_or_default();
    assert!(status.success(), "{world:?} {body}: {status}\n{observed}\n{printed}");
    (observed, printed)
}

/// This test program in another role.
fn this(role: &str, folder: &Path, notes: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "role", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(NOTES, notes).env("XDG_STATE_HOME", folder);
    command.stdin(Stdio::null());
    command
}

/// Is no test, but what the other roles of this program are.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.split(' ').collect::<Vec<_>>()[..] {
        ["broker", service, body] => std::process::exit(broker(service, body)),
        ["program", body] => {
            let observed = bodies::run(body);
            fs::write(std::env::var(NOTES).unwrap(), observed.join("\n")).unwrap();
        }
        _ => panic!("{role}: expected a role"),
    }
}

/// Runs a body with services.
fn broker(service: &str, body: &str) -> i32 {
    let services = ringway_with::Services::read(&[service.to_owned()]).unwrap();
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "role", "--nocapture", "--test-threads=1"].map(Into::into);
    let program = [vec![program.into_os_string()], arguments.to_vec()].concat();
    // The program inherits the environment.
    // SAFETY: the other threads of a test program wait for this one.
    unsafe { std::env::set_var(ROLE, format!("program {body}")) };
    let with = ringway_with::With { services, program, explain: true, datagrams: false };
    match ringway_with::run(&with, Arc::new(|line: &str| eprintln!("{line}"))) {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

/// Compares what a body observes in all worlds.
fn same_everywhere(body: &str) {
    let (plain, _) = run(World::Plain, body);
    assert!(!plain.is_empty());
    let (over_sctp, printed) = run(OVER_SCTP, body);
    assert_eq!(plain, over_sctp, "over SCTP\n{printed}");
    assert!(!printed.contains("by TCP"), "{printed}");
    let (over_tcp, printed) = run(OVER_TCP, body);
    assert_eq!(plain, over_tcp, "over TCP\n{printed}");
    assert!(!printed.contains("by SCTP"), "{printed}");
}

macro_rules! contract {
    ($($test:ident: $body:literal;)*) => {
        $(
            #[test]
            fn $test() {
                same_everywhere($body);
            }
        )*
    };
}

contract! {
    bytes_and_ends_travel_in_both_directions: "stream";
    a_port_that_is_closed_refuses: "refused";
    a_connection_that_opens_becomes_writable: "waiting";
    options_have_the_values_and_errors_of_tcp: "options";
    flags_and_addresses_of_messages_mean_what_they_mean_to_tcp: "messages";
    resets_are_errors_and_closed_peers_break_pipes: "resets";
    descriptors_are_duplicated_inherited_and_executed_with: "processes";
    accepted_sockets_have_their_flags_and_the_queue_holds_peers: "accepting";
    addresses_are_bound_once_and_shown: "names";
    calls_by_number_are_covered: "numbers";
    many_threads_carry_much: "threads";
    times_out_as_configured: "times";
    wrong_calls_fail_as_of_tcp: "mistakes";
    connections_that_share_an_association_know_nothing_of_each_other: "sharing";
}

#[test]
fn connections_to_one_listener_are_streams_of_one_association() {
    let (_, printed) = run(OVER_SCTP, "sharing");
    let streams = |number: u16| printed.matches(&format!(", stream {number}:")).count();
    // One end has opened each, the other has accepted it.
    assert!(streams(1) >= 2 && streams(63) >= 2, "{printed}");
    assert_eq!(streams(64), 0, "{printed}");
}

#[test]
fn a_program_that_cannot_be_served_is_reported_once_when_it_is_executed() {
    let (observed, printed) = run(OVER_SCTP, "static");
    assert_eq!(observed, "by itself: true\nby a shell: false\nanother: true");
    let reports = printed.lines().filter(|line| line.contains("sockets stay those of TCP"));
    let reports: Vec<_> = reports.collect();
    assert_eq!(reports.len(), 1, "{printed}");
    assert!(reports[0].contains("static-program is statically linked:"), "{printed}");
    let (plain, printed) = run(World::Plain, "static");
    assert_eq!(plain, observed);
    assert!(!printed.contains("statically linked"), "{printed}");
}

#[test]
fn io_uring_is_refused_with_one_line() {
    let (observed, printed) = run(OVER_SCTP, "uring");
    assert_eq!(observed, "io_uring: ENOSYS\nio_uring: ENOSYS");
    assert_eq!(printed.matches("io_uring is refused").count(), 1, "{printed}");
}

#[test]
fn the_exit_status_is_that_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    for (body, status) in [("exits", 7), ("killed", 128 + libc::SIGKILL)] {
        let role = format!("broker multihoming {body}");
        let output = this(&role, folder.path(), &folder.path().join("notes")).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{body}");
    }
}
