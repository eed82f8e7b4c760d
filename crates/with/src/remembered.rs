//! What is remembered of peers between runs: a file under the user's state directory.
//!
//! It has a line of JSON for each outcome. A line that cannot be read is skipped, for the file is only a saving of time.

use ringway_sansio::{Duration, Time};
use ringway_services::memory::{Key, MAX_ENTRIES, Outcome};
use ringway_services::{Memory, Protocol};
use serde::{Deserialize, Serialize};
use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Octets of a file that are read: far more than the table has room for.
const MAX_FILE: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Line {
    peer: String,
    protocol: String,
    /// Seconds since the epoch.
    at: u64,
    /// The address that worked; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    /// The time of a round trip, in microseconds.
    #[serde(default)]
    rtt: u64,
}

/// Returns the file: `ringway/with.jsonl` in `$XDG_STATE_HOME`, or in `~/.local/state`.
pub(crate) fn file() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("ringway/with.jsonl"))
}

/// Adds what a file has to a memory, unless that knows better. A file that is absent has nothing.
pub(crate) fn load(path: &Path, now: Time, memory: &mut Memory) {
    let Ok(file) = fs::File::open(path) else { return };
    let mut text = String::new();
    if io::Read::read_to_string(&mut io::Read::take(file, MAX_FILE), &mut text).is_err() {
        return;
    }
    for line in text.lines().take(MAX_ENTRIES) {
        let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
        let Ok(protocol) = line.protocol.parse::<Protocol>() else { continue };
        let key = Key { network: String::new(), peer: line.peer, protocol };
        let outcome = match line.address {
            Some(address) => Outcome::Worked { rtt: Duration::from_micros(line.rtt), address },
            None => Outcome::Failed,
        };
        // A clock that was set back must not make an entry last.
        let at = Time::from_secs(line.at).min(now);
        let known = memory.outcomes().any(|(other, since, _)| *other == key && since >= at);
        if !known {
            memory.record(at, key, outcome);
        }
    }
    memory.expire(now);
}

/// Writes a memory, with what another process has written since. The file is replaced at once, so that it is never half
/// written.
pub(crate) fn save(path: &Path, now: Time, memory: &mut Memory) -> io::Result<()> {
    load(path, now, memory);
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".with.{}", std::process::id()));
    let mut text = String::new();
    for (key, at, outcome) in memory.outcomes() {
        let (address, rtt) = match outcome {
            Outcome::Worked { rtt, address } => (Some(address), rtt.as_micros() as u64),
            Outcome::Failed => (None, 0),
        };
        let protocol = key.protocol.to_string();
        let line = Line { peer: key.peer.clone(), protocol, at: at.as_secs(), address, rtt };
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
    }
    let written = fs::File::create(&new).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        // What is left of it is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: &str) -> Key {
        Key { network: String::new(), peer: peer.into(), protocol: Protocol::SctpUdp }
    }

    #[test]
    fn outcomes_are_written_and_read_by_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/with.jsonl");
        let now = Time::from_secs(1_000);
        let rtt = Duration::from_millis(3);
        let worked = Outcome::Worked { rtt, address: "192.0.2.1".parse().unwrap() };
        let mut one = Memory::new();
        one.record(now, key("192.0.2.1:80"), worked);
        save(&path, now, &mut one).unwrap();
        let mut other = Memory::new();
        other.record(now, key("192.0.2.2:80"), Outcome::Failed);
        save(&path, now, &mut other).unwrap();
        let mut both = Memory::new();
        load(&path, now, &mut both);
        assert_eq!(both.recall(now, &key("192.0.2.1:80")), Some(worked));
        assert_eq!(both.recall(now, &key("192.0.2.2:80")), Some(Outcome::Failed));
        assert_eq!(fs::read_dir(folder.path().join("state")).unwrap().count(), 1);
    }

    #[test]
    fn what_has_expired_or_means_nothing_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("with.jsonl");
        let mut lines =
            String::from("no JSON\n{\"peer\":\"a:1\",\"protocol\":\"none\",\"at\":9}\n");
        lines.push_str("{\"peer\":\"b:1\",\"protocol\":\"sctp-udp\",\"at\":100}\n");
        lines.push_str("{\"peer\":\"c:1\",\"protocol\":\"sctp-udp\",\"at\":99999999}\n");
        fs::write(&path, lines).unwrap();
        let mut memory = Memory::new();
        load(&path, Time::from_secs(1_000), &mut memory);
        assert_eq!(memory.len(), 1, "the first has failed more than ten minutes ago");
        assert!(memory.recall(Time::from_secs(1_599), &key("c:1")).is_some());
        assert!(memory.recall(Time::from_secs(1_601), &key("c:1")).is_none());
    }
}
