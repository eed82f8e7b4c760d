//! Backup and restore: the data of a server is restored completely.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ports;
mod server;
mod workdir;

use ports::port;
use server::{WITHIN, register};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use workdir::Workdir;

/// Users added with `user add` while the server runs.
const USERS: [&str; 3] = ["alice", "bob", "carol"];

fn store(workdir: &Workdir, name: &str) -> String {
    format!("redb:{}", workdir.path(name).display())
}

fn serve(workdir: &Workdir, sip: u16, store: &str, control: &str) -> server::Server {
    let listen = format!("udp://127.0.0.1:{sip}");
    let http = format!("127.0.0.1:{}", port());
    let args = ["--listen", &listen, "--http", &http, "--store", store, "--domain", "a.test"];
    let mut command = workdir.command(&[&["serve", "--workers", "2"][..], &args].concat());
    command.args(["--auth", "off"]);
    let server = server::Server { child: Some(command.spawn().unwrap()) };
    let until = std::time::Instant::now() + WITHIN;
    while !workdir.path(control).exists() {
        assert!(std::time::Instant::now() < until, "the server did not start");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    server
}

#[test]
fn a_store_is_backed_up_and_restored() {
    let workdir = Workdir::new();
    let (from, to) = (store(&workdir, "a/x.redb"), store(&workdir, "b/y.redb"));
    let sip = port();
    let server = serve(&workdir, sip, &from, "a/x.control/socket");
    let address = SocketAddr::from(([127, 0, 0, 1], sip));
    for user in USERS {
        let args = ["user", "add", user, "--password-stdin", "--store", &from];
        let mut child = workdir.command(&args).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"secret words\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert!(register(address, user).starts_with("SIP/2.0 200 "));
    }
    let file = workdir.path("backup");
    let name = file.to_str().unwrap();
    let made = workdir.fine(&["backup", name, "--store", &from]);
    assert!(made.contains("3 users"), "{made}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(12).any(|w| w == b"secret words"), "clear text in the backup");
    assert!(workdir.fails(&["backup", name, "--store", &from]).contains("--force replaces it"));
    workdir.fine(&["backup", name, "--force", "--store", &from]);
    let running = workdir.fails(&["restore", name, "--store", &from, "--force"]);
    assert!(running.contains("a server is running on it"), "{running}");

    workdir.fine(&["restore", name, "--store", &to]);
    assert!(workdir.fails(&["restore", name, "--store", &to]).contains("--force replaces it"));
    let list = workdir.fine(&["user", "list", "--store", &from]);
    assert_eq!(workdir.fine(&["user", "list", "--store", &to]), list);
    assert_eq!(list, "alice@a.test\nbob@a.test\ncarol@a.test\n");
    drop(server);
    let server = serve(&workdir, sip, &to, "b/y.control/socket");
    for user in USERS {
        // The response to a REGISTER without Contact: RFC 3261 section 10.2.3.
        let answer = server::fetch(address, user);
        assert!(answer.contains(&format!("<sip:{user}@127.0.0.1:")), "{answer}");
    }
    server.signal("-TERM");
    server.wait();

    // A damaged backup changes nothing; a backup of a store without a server is equivalent.
    let mut damaged = bytes.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let error = workdir.fails(&["restore", name, "--store", &to, "--force"]);
    assert!(error.contains("checksum does not fit"), "{error}");
    assert_eq!(workdir.fine(&["user", "list", "--store", &to]), list);
    workdir.fine(&["backup", name, "--force", "--store", &to]);
    workdir.fine(&["restore", name, "--store", &to, "--force"]);
    assert_eq!(workdir.fine(&["user", "list", "--store", &to]), list);
    let left: Vec<_> = ["a", "b", ""]
        .iter()
        .flat_map(|d| std::fs::read_dir(workdir.path(d)).unwrap())
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".restoring") || n.ends_with(".part"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let error = workdir.fails(&["backup", name, "--force", "--store", "redb:no/x.redb"]);
    assert!(error.contains("No such file") && !Path::new("no").exists(), "{error}");
}
