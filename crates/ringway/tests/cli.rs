//! The program from the operator's point of view: each test runs it on loopback in its own folder.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ports;
mod server;
mod workdir;

use ports::port;
use server::{WITHIN, register};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use workdir::Workdir;

const README: &str = include_str!("../../../README.md");

fn metrics(port: u16) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn wrong_usage_has_exit_status_two() {
    let workdir = Workdir::new();
    for args in [&[][..], &["serv"], &["serve", "--workers", "0"], &["serve", "--listen", "udp:1"]]
    {
        workdir.ends(2, args);
    }
    let (_, error) = workdir.ends(2, &["serve", "--listen", "tcp://127.0.0.1,127.0.0.2:5060"]);
    assert!(error.contains("tcp listens on one address"), "{error}");
    assert!(workdir.fine(&["--version"]).starts_with("ringway "));
}

/// The URI of a database may have a password, and standard error is often a log.
#[test]
fn a_wrong_store_is_not_repeated() {
    let workdir = Workdir::new();
    for store in
        ["redis://u:secret%4@db", "redis:u:secret@db", "redi://u:secret@db", "rediss://secret@db"]
    {
        for command in [&["serve", "--store", store][..], &["status", "--store", store]] {
            let (_, error) = workdir.ends(2, command);
            assert!(error.contains("--store: ") && !error.contains("secret"), "{error}");
        }
        let file = workdir.path("r.toml");
        std::fs::write(&file, format!("store = \"{store}\"\n")).unwrap();
        let error = workdir.fails(&["config", "check", file.to_str().unwrap()]);
        assert!(error.contains("store: ") && !error.contains("secret"), "{error}");
    }
}

#[test]
fn a_configuration_is_checked() {
    let workdir = Workdir::new();
    let file = workdir.path("r.toml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "workers = 2\n").unwrap();
    assert_eq!(workdir.fine(&["config", "check", name]), "ok\n");
    std::fs::write(&file, "wokers = 2\n[log]\nlevel = 3\n").unwrap();
    let error = workdir.fails(&["config", "check", name]);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines[0].contains("r.toml:1:1: unknown key `wokers`; did you mean `workers`?"));
    assert!(lines[1].contains("r.toml:3:9: log.level: expected \"error\" or "));
}

#[test]
fn users_are_managed_without_a_server() {
    let workdir = Workdir::new();
    let made = workdir.fine(&["user", "add", "101"]);
    let (first, second) = made.split_once('\n').unwrap();
    assert!(first.starts_with("101@") && first.ends_with(" added"), "{made}");
    assert_eq!(second.trim().strip_prefix("password: ").unwrap().len(), 19, "{made}");
    assert!(workdir.fails(&["user", "add", "101"]).contains("exists already"));
    assert!(workdir.fails(&["user", "passwd", "102"]).contains("does not exist"));
    assert!(
        workdir.fails(&["user", "add", "1@else.where"]).contains("not a domain of this server")
    );
    assert!(workdir.fails(&["user", "add", "a b"]).contains("user name: expected"));

    let mut child = workdir
        .command(&["user", "passwd", "101", "--password-stdin", "--json"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"secret words\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["user"], "101");
    assert!(json.get("password").is_none(), "a given password is not shown: {json}");
    let mut store = Vec::new();
    let path = workdir.path("ringway/ringway.redb");
    std::fs::File::open(&path).unwrap().read_to_end(&mut store).unwrap();
    assert!(!store.windows(12).any(|w| w == b"secret words"), "clear text in the store");

    let list = workdir.fine(&["user", "list"]);
    assert!(list.starts_with("101@") && list.lines().count() == 1, "{list}");
    assert!(workdir.fine(&["user", "del", "101"]).ends_with(" removed\n"));
    assert!(workdir.fails(&["user", "del", "101"]).contains("does not exist"));
    assert_eq!(workdir.fine(&["user", "list", "--json"]), "[]\n");
    assert!(workdir.fails(&["status"]).contains("no server is running on store redb:"));
}

#[test]
fn the_first_start_creates_two_users() {
    let workdir = Workdir::new();
    let (sip, http) = (port(), port());
    let args =
        ["--listen", &format!("udp://127.0.0.1:{sip}"), "--http", &format!("127.0.0.1:{http}")];
    let server = workdir.serve(&args);
    let list = workdir.fine(&["user", "list"]);
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(workdir.fine(&["user", "add", "103"]).contains("103@"));
    assert!(workdir.fine(&["user", "passwd", "103"]).contains("has a new password"));
    assert!(workdir.fails(&["user", "add", "103"]).contains("exists already"));
    assert!(workdir.fine(&["user", "del", "103"]).contains("removed"));
    assert!(workdir.fails(&["user", "del", "103"]).contains("does not exist"));
    server.signal("-TERM");
    let (code, out, log) = server.wait();
    assert_eq!(code, Some(0), "{log}");
    assert!(!workdir.path("ringway/ringway.control/socket").exists());
    // Standard output is a journal: it names a file that has the passwords.
    let path = workdir.path("ringway/first-users.txt");
    assert!(out.contains(&format!("is in {}", path.display())), "{out}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("Type this into two phones"), "{text}");
    assert!(text.contains(&format!("127.0.0.1:{sip}")), "{text}");
    let password = text.lines().find_map(|l| l.trim().strip_prefix("password")).unwrap();
    let password = password.split_whitespace().next().unwrap().to_owned();
    assert!(password.len() == 19 && !out.contains(&password) && !log.contains(&password));

    let server = workdir.serve(&args);
    // It can be managed a moment before it prints, and stops after that.
    server.signal("-TERM");
    let (_, out, log) = server.wait();
    assert!(out.contains("Users are kept from before: 101, 102"), "{out}");
    assert!(!out.contains(&password) && !log.contains(&password));
}

/// With a configuration file, the operator decides about users.
#[test]
fn a_configuration_prevents_default_users() {
    let workdir = Workdir::new();
    let file = workdir.path("r.toml");
    let text = format!("listen = [\"udp://127.0.0.1:0\"]\nhttp = \"127.0.0.1:{}\"\n", port());
    std::fs::write(&file, text).unwrap();
    let name = file.to_str().unwrap();
    let server = workdir.serve(&["--config", name]);
    assert_eq!(workdir.fine(&["user", "list", "--config", name]), "");
    server.signal("-TERM");
    let (_, out, _) = server.wait();
    assert_eq!(
        out,
        format!("There are no users. To make one: ringway user add NAME --config {name}\n")
    );
    assert!(!workdir.path("ringway/first-users.txt").exists());
}

#[test]
fn a_mistyped_store_is_not_created() {
    let workdir = Workdir::new();
    let path = workdir.path("mistyped/x.redb");
    let store = format!("redb:{}", path.display());
    for args in [&["user", "del", "101"][..], &["user", "passwd", "101"], &["user", "list"]] {
        let error = workdir.fails(&[args, &["--store", &store]].concat());
        assert_eq!(error, format!("ringway: store {}: does not exist\n", path.display()));
        assert!(!path.parent().unwrap().exists());
    }
    let (_, note) = workdir.ends(0, &["user", "add", "101", "--store", &store]);
    assert_eq!(note, format!("ringway: store {} is new\n", path.display()));
    let (_, note) = workdir.ends(0, &["user", "add", "102", "--store", &store]);
    assert_eq!(note, "");
}

#[test]
fn a_server_is_reloaded_queried_and_stopped() {
    let workdir = Workdir::new();
    let (sip, http) = (port(), port());
    let file = workdir.path("r.toml");
    let config = |domains: &str| {
        let text = format!(
            "listen = [\"udp://127.0.0.1:{sip}\"]\nhttp = \"127.0.0.1:{http}\"\ndomains = {domains}\n\
             [auth]\nmode = \"off\"\n[log]\nformat = \"json\"\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    config("[\"a.test\"]");
    let server = workdir.serve(&["--config", file.to_str().unwrap()]);
    let address = SocketAddr::from(([127, 0, 0, 1], sip));
    assert!(register(address, "alice").starts_with("SIP/2.0 200 "));
    let status = workdir.status();
    assert_eq!((&status["contacts"], &status["phase"]), (&1.into(), &"serving".into()), "{status}");
    assert_eq!(status["counters"]["registers_ok"], 1);
    assert!(workdir.fine(&["status"]).contains("1 contacts registered"));

    config("[\"a.test\", \"b.test\"]");
    server.signal("-HUP");
    let until = Instant::now() + WITHIN;
    while workdir.status()["domains"][0]["aliases"] != serde_json::json!(["b.test"]) {
        assert!(Instant::now() < until, "not reloaded");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = |n: u32| {
        server.signal("-HUP");
        let line = format!("ringway_reloads_failed_total {n}");
        let until = Instant::now() + WITHIN;
        while !metrics(http).lines().any(|l| l == line) {
            assert!(Instant::now() < until, "not refused");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    config("[\"a.test\"");
    refused(1);
    // A truncated file, or one mistaken for another, changes nothing.
    std::fs::write(&file, "# nothing\n").unwrap();
    refused(2);
    config("[\"b.test\"]");
    refused(3);
    assert_eq!(workdir.status()["domains"][0]["aliases"], serde_json::json!(["b.test"]));
    assert!(register(address, "bob").starts_with("SIP/2.0 200 "));

    server.signal("-INT");
    let (code, _, log) = server.wait();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{l}: {e}")))
        .collect();
    let said = |text: &str| lines.iter().any(|l| l["message"].as_str().unwrap().contains(text));
    assert!(said("configuration reloaded") && said("not reloaded") && said("stopped"), "{log}");
    assert!(said("r.toml: is empty") && said("no longer has the domain a.test"), "{log}");

    // Registrations answered with 200 are loaded again.
    config("[\"a.test\"]");
    let server = workdir.serve(&["--config", file.to_str().unwrap()]);
    assert_eq!(workdir.status()["contacts"], 2);
    drop(server);
}

fn refused(workdir: &Workdir, args: &[&str], what: &str) {
    let error = workdir.fails(args);
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines.len(), 1, "{error}");
    assert!(lines[0].starts_with("ringway: ") && lines[0].contains(what), "{error}");
}

/// A failure at start is reported in one line with its cause and location.
#[test]
fn a_failed_start_is_reported_in_one_line() {
    let workdir = Workdir::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listen = format!("udp://{}", taken.local_addr().unwrap());
    let off = ["serve", "--http", "off", "--listen"];
    let with = |rest: &[&'static str]| [&off[..], &["udp://127.0.0.1:0"], rest].concat();
    refused(&workdir, &[&off[..], &[&listen]].concat(), &format!("{listen}: address in use"));
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = held.local_addr().unwrap().to_string();
    let args = ["serve", "--listen", "udp://127.0.0.1:0", "--http", &http];
    refused(&workdir, &args, &format!("http://{http}: address in use"));
    refused(&workdir, &with(&["--store", "redb:/proc/x/y.redb"]), "store /proc/x/y.redb: ");
    refused(&workdir, &with(&["--config", "/nonexistent.toml"]), "/nonexistent.toml: No such file");
    let file = workdir.path("tls.toml");
    let text =
        "listen = [\"tls://127.0.0.1:0\"]\n[tls]\ncertificate = \"no.pem\"\nkey = \"no.key\"\n";
    std::fs::write(&file, text).unwrap();
    let missing = workdir.path("no.pem");
    refused(
        &workdir,
        &["serve", "--http", "off", "--config", file.to_str().unwrap()],
        missing.to_str().unwrap(),
    );
    std::fs::write(&file, "lisen = []\n").unwrap();
    refused(&workdir, &["serve", "--config", file.to_str().unwrap()], "did you mean `listen`?");
}

#[test]
fn a_store_in_use_is_locked() {
    let workdir = Workdir::new();
    let http = format!("127.0.0.1:{}", port());
    let args = ["--listen", "udp://127.0.0.1:0", "--auth", "off"];
    let server = workdir.serve(&[&args[..], &["--http", &http]].concat());
    refused(
        &workdir,
        &[&["serve", "--http", "off"], &args[..]].concat(),
        "ringway.redb: in use by another process",
    );
    assert_eq!(workdir.status()["phase"], "serving");
    let pid = workdir.status()["pid"].as_u64().unwrap();
    assert_eq!(pid, u64::from(server.child.as_ref().unwrap().id()));
    // After a kill the store is free, and the socket it left behind is not trusted.
    let (_, log) = server.end();
    assert!(Path::new(&workdir.path("ringway/ringway.control/socket")).exists(), "{log}");
    assert!(workdir.fails(&["status"]).contains("no server is running"));
    assert!(workdir.fine(&["user", "add", "7"]).contains("added"));
}

/// Returns the arguments of each `ringway` command in README.md: in code blocks without a language, without
/// comments.
fn readme_commands() -> Vec<Vec<&'static str>> {
    let (mut found, mut block) = (Vec::new(), None);
    for line in README.lines() {
        match (block, line.strip_prefix("```")) {
            (None, Some(language)) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (Some(""), None) => {
                let command = line.split('#').next().and_then(|code| code.split_once("ringway "));
                found.extend(command.map(|(_, args)| args.split_whitespace().collect()));
            }
            _ => {}
        }
    }
    found
}

/// Every command that README.md shows is one of the program, with the flags that it shows.
#[test]
fn commands_of_the_readme_exist() {
    let workdir = Workdir::new();
    let commands = readme_commands();
    assert!(commands.len() >= 8, "{commands:?}");
    for args in commands {
        let is_name = |word: &&str| word.chars().all(char::is_alphabetic);
        let names: Vec<&str> = args.iter().copied().take_while(is_name).collect();
        // The help of a command has its names in its usage. The last words may be arguments.
        let help = (1..=names.len()).rev().find_map(|depth| {
            let output =
                workdir.command(&[&names[..depth], &["--help"]].concat()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            text.contains(&format!("Usage: ringway {}", names[..depth].join(" "))).then_some(text)
        });
        let Some(help) = help else { panic!("README.md shows {args:?}, which is no command") };
        for flag in args.iter().filter(|word| word.starts_with("--")) {
            assert!(help.contains(flag), "README.md shows {args:?}: no flag {flag}");
        }
    }
}
