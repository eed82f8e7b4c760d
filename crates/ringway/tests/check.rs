//! `ringway config check` finds what `ringway serve` would refuse, in the same words.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ports;
mod server;
mod workdir;

use ports::port;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use workdir::Workdir;

/// Writes NAME.pem and NAME.key for a host of that name.
fn certificate(workdir: &Workdir, name: &str, not_after: (i32, u8, u8)) {
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(not_after.0, not_after.1, not_after.2);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    std::fs::write(workdir.path(&format!("{name}.pem")), pem).unwrap();
    std::fs::write(workdir.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
}

struct Config<'a> {
    workdir: &'a Workdir,
    file: std::path::PathBuf,
}

impl Config<'_> {
    fn write(&self, text: &str) -> &str {
        std::fs::write(&self.file, text).unwrap();
        self.file.to_str().unwrap()
    }

    /// Both commands refuse this file; each of `expected` is in one line of the check.
    fn refused(&self, text: &str, expected: &[&str]) {
        let name = self.write(text);
        let lines = |error: String| -> Vec<String> { error.lines().map(str::to_owned).collect() };
        let check = lines(self.workdir.fails(&["config", "check", name]));
        let serve = lines(self.workdir.fails(&["serve", "--config", name]));
        assert_eq!(check.len(), expected.len(), "{text}\n{check:#?}");
        for part in expected {
            assert!(check.iter().any(|l| l.contains(part)), "{part:?} in {check:#?}");
        }
        for line in serve.iter().filter(|l| l.starts_with("ringway: ")) {
            assert!(check.contains(line), "serve: {line:?}\ncheck: {check:#?}");
        }
        assert!(serve.iter().any(|l| l.starts_with("ringway: ")), "{serve:#?}");
    }
}

#[test]
fn a_check_finds_what_serve_refuses() {
    let workdir = Workdir::new();
    let config = Config { workdir: &workdir, file: workdir.path("r.toml") };
    let head = format!("listen = [\"udp://127.0.0.1:{}\"]\nhttp = \"off\"\n", port());
    let with = |rest: &str| format!("{head}{rest}");
    let path = |name: &str| workdir.path(name).display().to_string();

    // Certificates and keys.
    certificate(&workdir, "a.org", (2050, 1, 1));
    certificate(&workdir, "b.org", (2050, 1, 1));
    certificate(&workdir, "old.org", (2024, 5, 6));
    let tls = |certificate: &str, key: &str| {
        with(&format!("[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n"))
    };
    config.refused(&tls("no.pem", "a.org.key"), &[&format!("{}: no such file", path("no.pem"))]);
    config.refused(&tls("a.org.pem", "no.key"), &[&format!("{}: no such file", path("no.key"))]);
    config.refused(&tls("a.org.pem", "b.org.key"), &["a.org.pem: "]);
    config.refused(&tls("a.org.key", "a.org.key"), &["expected a certificate in PEM, got none"]);
    config.refused(&tls("old.org.pem", "old.org.key"), &["expired on 2024-05-06 00:00:00 UTC"]);
    let domain = |name: &str, certificate: &str, key: &str| {
        format!(
            "[[tls.domain]]\nname = \"{name}\"\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n"
        )
    };
    let three = [
        domain("b.org", "b.org.pem", "a.org.key"),
        domain("c.org", "b.org.pem", "b.org.key"),
        domain("old.org", "old.org.pem", "old.org.key"),
    ];
    let text = [tls("a.org.pem", "a.org.key"), three.concat()].concat();
    let named = ["b.org.pem: keys", "expected a certificate for c.org", "expired on 2024-05-06"];
    config.refused(&text, &named);
    config.refused(&with("[tls]\nroots = \"no-roots.pem\"\n"), &["no-roots.pem: no such file"]);

    // The store.
    std::fs::write(workdir.path("file"), "no directory").unwrap();
    std::fs::write(workdir.path("thesis.redb"), "This is somebody's thesis. ".repeat(400)).unwrap();
    for (store, what) in [
        ("redb:file/x.redb", format!("store {}", path("file"))),
        ("redb:/proc/x.redb", "store /proc".to_owned()),
        ("redb:thesis.redb", format!("store {}: not a redb file", path("thesis.redb"))),
    ] {
        let text = with(&format!("store = \"{store}\"\n"));
        let name = config.write(&text);
        for args in [&["config", "check", name][..], &["serve", "--config", name]] {
            let error = workdir.fails(args);
            assert!(error.contains(&what) && error.lines().count() == 1, "{store} {error}");
        }
    }
    let left = std::fs::read_dir(workdir.path("")).unwrap().map(|e| e.unwrap().file_name());
    let left: Vec<_> = left.filter(|n| n.to_string_lossy().starts_with(".ringway")).collect();
    assert!(left.is_empty(), "the check has left {left:?}");

    // Addresses and ports.
    let listen = |uri: &str| format!("listen = [\"{uri}\"]\nhttp = \"off\"\n");
    config.refused(
        &listen("udp://192.0.2.77:5060"),
        &["192.0.2.77:5060: no such address on this host"],
    );
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = format!("udp://{}", taken.local_addr().unwrap());
    config.refused(&listen(&uri), &[&format!("{uri}: address in use")]);
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = held.local_addr().unwrap();
    let text = format!("listen = [\"udp://127.0.0.1:0\"]\nhttp = \"{http}\"\n");
    config.refused(&text, &[&format!("http://{http}: address in use")]);
    let twice = "listen = [\"tcp://127.0.0.1:5099\", \"ws://0.0.0.0:5099\"]\nhttp = \"off\"\n";
    config.refused(
        twice,
        &["r.toml:1:35: listen.2: ws://0.0.0.0:5099 needs the port of tcp://127.0.0.1"],
    );

    // Rules.
    let rules = "[[route]]\npattern = \"_0X.\"\nreject = 403\n\
                 [[route]]\nprefix = \"1\"\nreject = 403\n[[route]]\nprefix = \"12\"\nreject = 404\n";
    config.refused(
        &with(rules),
        &["did you mean \"0X.\"?", "rule 2 matches everything that this rule matches"],
    );
}

/// A check before a reload must not report the running server's own ports and store as in use.
#[test]
fn a_check_beside_the_running_server_succeeds() {
    let workdir = Workdir::new();
    let config = Config { workdir: &workdir, file: workdir.path("r.toml") };
    let text =
        format!("listen = [\"udp://127.0.0.1:{}\"]\nhttp = \"127.0.0.1:{}\"\n", port(), port());
    let name = config.write(&text);
    assert_eq!(workdir.fine(&["config", "check", name]), "ok\n");
    assert!(!Path::new(&workdir.path("ringway")).exists(), "a check makes no store");
    let server = workdir.serve(&["--config", name]);
    assert_eq!(workdir.fine(&["config", "check", name]), "ok\n");
    let name = config
        .write(&text.replace("127.0.0.1", "192.0.2.77").replace("http = \"192", "http = \"127"));
    let error = workdir.fails(&["config", "check", name]);
    assert!(error.contains("no such address on this host"), "{error}");
    drop(server);
    let name = config.write(&text);
    assert_eq!(workdir.fine(&["config", "check", name]), "ok\n");
}
