//! `ringway import`: users of other servers, without a server and with one that runs.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod ports;
mod server;
mod workdir;

use ports::port;
use std::path::Path;
use workdir::Workdir;

const DUMP: &str = include_str!("../../import/tests/data/mysqldump.sql");
const PJSIP_CONF: &str = include_str!("../../import/tests/data/pjsip.conf");
/// The secrets in these files.
const SECRETS: [&str; 4] = ["8312c55030fd44b0", "a'b", "a;b", "say"];

fn write(workdir: &Workdir, name: &str, text: &str) -> String {
    let path = workdir.path(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn store(workdir: &Workdir) -> std::path::PathBuf {
    workdir.path("ringway/ringway.redb")
}

fn silent(texts: &(String, String)) {
    for secret in SECRETS {
        assert!(!texts.0.contains(secret) && !texts.1.contains(secret), "{texts:?}");
    }
}

fn contains(path: &Path, text: &str) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(text.len()).any(|w| w == text.as_bytes())
}

#[test]
fn a_dump_is_imported_without_a_server() {
    let workdir = Workdir::new();
    let file = write(&workdir, "dump.sql", DUMP);
    let import = ["import", "kamailio", &file, "--domain", "example.org"];

    let dry = workdir.ends(0, &[&import[..], &["--dry-run"]].concat());
    silent(&dry);
    let expected = "101@example.org would be added\n102@example.org would be added\n\
                    103@example.org would be added\ndry run: 3 imported, 0 kept, 1 refused\n";
    assert_eq!(dry.0, expected);
    let why = format!("ringway: {file}:45: user \"104\": has only ha1b");
    assert!(dry.1.starts_with(&why) && dry.1.lines().count() == 1, "{}", dry.1);
    assert!(!store(&workdir).exists());

    let done = workdir.ends(0, &import);
    silent(&done);
    assert_eq!(done.0, "3 imported, 0 kept, 1 refused\n");
    assert!(done.1.contains("is new"), "{}", done.1);
    assert_eq!(workdir.fine(&["user", "list"]).lines().count(), 3);
    assert!(!contains(&store(&workdir), "a'b\\c"), "clear text in the store");

    let again = workdir.ends(0, &import);
    assert_eq!(again.0, "0 imported, 3 kept, 1 refused\n");
    let dry = workdir.fine(&[&import[..], &["--dry-run", "--replace"]].concat());
    assert!(dry.starts_with("101@example.org would get the password of the file\n"), "{dry}");
    let replaced = workdir.ends(0, &[&import[..], &["--replace", "--json"]].concat());
    silent(&replaced);
    let json: serde_json::Value = serde_json::from_str(&replaced.0).unwrap();
    let first = serde_json::json!({
        "user": "101", "realm": "example.org", "replaced": true, "without": [],
    });
    assert_eq!(json["imported"][0], first);
    assert_eq!((&json["dry_run"], &json["kept"]), (&false.into(), &serde_json::json!([])));
    assert_eq!(json["refused"][0]["line"], 45);
    assert_eq!(json["refused"][0]["user"], "104");
}

#[test]
fn nothing_is_changed_by_a_file_that_cannot_be_read() {
    let workdir = Workdir::new();
    let import = |text: &str| {
        let file = write(&workdir, "f", text);
        workdir.fails(&["import", "kamailio", &file, "--domain", "example.org"])
    };
    let error = import(&DUMP[..DUMP.find("'104'").unwrap() + 3]);
    assert!(
        error.contains(":45: expected the end of a string, got the end of the file"),
        "{error}"
    );
    assert!(import("username,domain\n").contains("with a column `password`"));
    assert!(!store(&workdir).exists());
    // Every user is refused.
    let error = import("username,password\na b,x\n");
    assert!(error.contains("no user of the file can be imported"), "{error}");
    assert!(workdir.fails(&["import", "kamailio", "none.sql"]).contains("none.sql: No such file"));
    workdir.ends(2, &["import", "kamailio"]);
    workdir.ends(2, &["import", "freeswitch", "x"]);
    workdir.ends(2, &["import", "asterisk", "x", "--domain", "a b"]);
}

#[test]
fn users_are_imported_into_a_running_server() {
    let workdir = Workdir::new();
    let (sip, http) = (port(), port());
    let config = format!(
        "domains = [\"example.org\"]\nlisten = [\"udp://127.0.0.1:{sip}\"]\nhttp = \"127.0.0.1:{http}\"\n\
         [auth]\nalgorithms = [\"SHA-256\", \"MD5\"]\n"
    );
    let config = write(&workdir, "r.toml", &config);
    let server = workdir.serve(&["--config", &config]);
    write(
        &workdir,
        "more.conf",
        "[103](phone)\nauth=103\n[103](password)\nusername=103\npassword=x\n",
    );
    let file = write(&workdir, "pjsip.conf", PJSIP_CONF);
    let import = ["import", "asterisk", &file];
    let dry = workdir.fine(&[&import[..], &["--dry-run"]].concat());
    assert!(dry.ends_with("dry run: 3 imported, 0 kept, 1 refused\n"), "{dry}");
    assert_eq!(workdir.status()["users"], 0);
    let done = workdir.ends(0, &import);
    silent(&done);
    assert_eq!(done.0, "3 imported, 0 kept, 1 refused\n");
    // The server's challenges count, not those of the configuration that the command was started without.
    assert!(done.1.contains("imported without a hash of SHA-256: 1;"), "{}", done.1);
    assert_eq!(workdir.status()["users"], 3);
    assert_eq!(workdir.fine(&import), "0 imported, 3 kept, 1 refused\n");
    assert_eq!(
        workdir.fine(&[&import[..], &["--replace"]].concat()),
        "3 imported, 0 kept, 1 refused\n"
    );
    let wrong = workdir.fails(&[&import[..], &["--domain", "a.org"]].concat());
    assert!(wrong.contains("--domain: \"a.org\" is not a domain of this server"), "{wrong}");
    server.signal("-TERM");
    let (code, out, log) = server.wait();
    assert_eq!(code, Some(0), "{log}");
    silent(&(out, log));
    let list = workdir.fine(&["user", "list", "--config", &config]);
    assert_eq!(list, "101@example.org\n102@example.org\n103@example.org\n");
}
