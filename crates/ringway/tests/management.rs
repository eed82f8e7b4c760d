//! Management under load: peers that open connections or use up the file descriptors do not lock
//! the operator out.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ports;
mod server;
mod workdir;

use ports::port;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use workdir::Workdir;

/// A low limit of open files.
const FILES: &str = "64";

fn page(port: u16) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(server::WITHIN)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    // A connection may be closed in favour of a newer one.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn management_is_reachable_when_phones_use_all_files() {
    let workdir = Workdir::new();
    let (sip, http) = (port(), port());
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -n {FILES} && exec \"$@\""), "sh"])
        .arg(env!("CARGO_BIN_EXE_ringway"))
        .args(["serve", "--workers", "2", "--auth", "off"])
        .args(["--listen", &format!("udp://127.0.0.1:{sip}")])
        .args(["--listen", &format!("tcp://127.0.0.1:{sip}")])
        .args(["--http", &format!("127.0.0.1:{http}")])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("XDG_STATE_HOME", workdir.path(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let server = workdir.started(command);
    // More connections of phones, and of scrapers that send nothing, than there are files.
    let crowd = |port: u16, n: usize| -> Vec<TcpStream> {
        (0..n).filter_map(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()).collect()
    };
    let phones = crowd(sip, 100);
    let silent = crowd(http, 100);
    assert!(phones.len() == 100 && silent.len() == 100, "connecting is not refused by the kernel");
    std::thread::sleep(Duration::from_millis(300));
    for round in 0..3 {
        let began = Instant::now();
        assert_eq!(workdir.status()["phase"], "serving", "round {round}");
        assert!(page(http).starts_with("HTTP/1.1 200 "), "round {round}");
        assert!(workdir.fine(&["user", "add", &format!("20{round}")]).contains("added"));
        assert!(began.elapsed() < server::WITHIN / 4, "round {round}: {:?}", began.elapsed());
    }
    drop((phones, silent));
    let (_, log) = server.end();
    assert!(log.contains("the process may open few files"), "{log}");
}
