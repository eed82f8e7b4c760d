//! A registration that was confirmed survives `kill -9`.
//!
//! The test starts itself as a child. The child registers continuously and prints each number once
//! the store has reported it durable. The test kills it, opens the file and looks for every number.

#![allow(clippy::unwrap_used)]

use ringway_proxy::location::{BindingView, CommitTag, LocationStore};
use ringway_sansio::Time;
use ringway_server::config::StoreKind;
use ringway_server::store::{Others, Store};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CHILD: &str = "RINGWAY_TEST_CRASH_STORE";
const NAME: &str = "confirmed_registrations_survive_kill_9";

/// The longest registration.
const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Time {
    Time::from_secs(1_800_000_000)
}

fn open(path: &Path) -> Store {
    Store::open(&StoreKind::Redb(path.to_owned()), now(), HOUR, &mut |_| None, Others::None)
        .unwrap()
}

fn aor(id: u64) -> String {
    // Spread over the key space, as names are.
    format!("sip:{:016x}@example.org", id.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn register(store: &Store, id: u64) {
    store.location().update(aor(id).as_bytes(), now(), CommitTag { worker: 0, id }, &mut |edit| {
        let binding = BindingView {
            contact: b"sip:101@192.0.2.9:5060",
            params: b"",
            q: 1000,
            expires: now() + Duration::from_secs(3600),
            path: b"",
            instance: b"",
            reg_id: 0,
            flow: None,
            call_id: b"call",
            cseq: 1,
            first_cseq: 0,
            outbound: false,
            epoch: 0,
            nat: false,
        };
        edit.put(&binding).unwrap();
        edit.commit();
    });
}

fn child(path: &Path) -> ! {
    let store = open(path);
    store.set_commit_sink(Arc::new(|_, ids, ok| {
        assert!(ok);
        let lines: String = ids.iter().map(|id| format!("durable {id}\n")).collect();
        std::io::stderr().write_all(lines.as_bytes()).unwrap();
    }));
    for id in 0.. {
        register(&store, id);
        if id % 20 == 0 {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
    unreachable!()
}

#[test]
fn confirmed_registrations_survive_kill_9() {
    if let Some(path) = std::env::var_os(CHILD) {
        child(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let mut confirmed = Vec::new();
    // Several runs on one file: a crash must not damage what an earlier run wrote either.
    for round in 1..=3 {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap());
        let enough = 700 * round;
        let mut seen = 0;
        let mut line = String::new();
        // The kill may have truncated the last line.
        while lines.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            let Some(id) = line.trim_end().strip_prefix("durable ") else { panic!("{line}") };
            confirmed.push(id.parse::<u64>().unwrap());
            line.clear();
            seen += 1;
            if seen == enough {
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        assert!(seen >= enough, "the child ended by itself after {seen}");
        let store = open(&path);
        assert_eq!(store.load_summary().corrupt, 0);
        let lost = confirmed
            .iter()
            .filter(|id| store.location().lookup(aor(**id).as_bytes(), now(), &mut |_| ()) == 0)
            .count();
        assert_eq!(lost, 0, "of {} confirmed", confirmed.len());
    }
}
