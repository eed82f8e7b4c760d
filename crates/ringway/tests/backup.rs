//! Backup and restore: what a server had is there again.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod place;
mod ports;
mod server;

use place::Place;
use ports::port;
use server::{WITHIN, register};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

/// `user add` of these with these passwords, while the server runs.
const USERS: [&str; 3] = ["alice", "bob", "carol"];

fn store(place: &Place, name: &str) -> String {
    format!("redb:{}", place.path(name).display())
}

fn serve(place: &Place, sip: u16, store: &str, control: &str) -> server::Server {
    let listen = format!("udp://127.0.0.1:{sip}");
    let http = format!("127.0.0.1:{}", port());
    let args = ["--listen", &listen, "--http", &http, "--store", store, "--domain", "a.test"];
    let mut command = place.command(&[&["serve", "--workers", "2"][..], &args].concat());
    command.args(["--auth", "off"]);
    let server = server::Server { child: Some(command.spawn().unwrap()) };
    let until = std::time::Instant::now() + WITHIN;
    while !place.path(control).exists() {
        assert!(std::time::Instant::now() < until, "the server did not start");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    server
}

#[test]
fn a_store_is_backed_up_and_restored() {
    let place = Place::new();
    let (from, to) = (store(&place, "a/x.redb"), store(&place, "b/y.redb"));
    let sip = port();
    let server = serve(&place, sip, &from, "a/x.control/socket");
    let address = SocketAddr::from(([127, 0, 0, 1], sip));
    for user in USERS {
        let args = ["user", "add", user, "--password-stdin", "--store", &from];
        let mut child = place.command(&args).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"secret words\n").unwrap();
        assert!(child.wait().unwrap().success());
        assert!(register(address, user).starts_with("SIP/2.0 200 "));
    }
    let file = place.path("backup");
    let name = file.to_str().unwrap();
    let made = place.fine(&["backup", name, "--store", &from]);
    assert!(made.contains("3 users"), "{made}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(12).any(|w| w == b"secret words"), "clear text in the backup");
    assert!(place.fails(&["backup", name, "--store", &from]).contains("--force replaces it"));
    place.fine(&["backup", name, "--force", "--store", &from]);
    let running = place.fails(&["restore", name, "--store", &from, "--force"]);
    assert!(running.contains("a server is running on it"), "{running}");

    place.fine(&["restore", name, "--store", &to]);
    assert!(place.fails(&["restore", name, "--store", &to]).contains("--force replaces it"));
    let list = place.fine(&["user", "list", "--store", &from]);
    assert_eq!(place.fine(&["user", "list", "--store", &to]), list);
    assert_eq!(list, "alice@a.test\nbob@a.test\ncarol@a.test\n");
    drop(server);
    let server = serve(&place, sip, &to, "b/y.control/socket");
    for user in USERS {
        // What a REGISTER without a Contact is answered: RFC 3261 section 10.2.3.
        let answer = server::fetch(address, user);
        assert!(answer.contains(&format!("<sip:{user}@127.0.0.1:")), "{answer}");
    }
    server.signal("-TERM");
    server.wait();

    // A backup that is damaged changes nothing; one of a store at rest is as good.
    let mut damaged = bytes.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let error = place.fails(&["restore", name, "--store", &to, "--force"]);
    assert!(error.contains("checksum does not fit"), "{error}");
    assert_eq!(place.fine(&["user", "list", "--store", &to]), list);
    place.fine(&["backup", name, "--force", "--store", &to]);
    place.fine(&["restore", name, "--store", &to, "--force"]);
    assert_eq!(place.fine(&["user", "list", "--store", &to]), list);
    let left: Vec<_> = ["a", "b", ""]
        .iter()
        .flat_map(|d| std::fs::read_dir(place.path(d)).unwrap())
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".restoring") || n.ends_with(".part"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let error = place.fails(&["backup", name, "--force", "--store", "redb:no/x.redb"]);
    assert!(error.contains("No such file") && !Path::new("no").exists(), "{error}");
}
