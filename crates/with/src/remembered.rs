//! What is remembered of peers between runs: a file under the user's state directory.
//!
//! Its lines are those of [`Memory::to_text`]. One that cannot be read is skipped, for the file is only a saving of time.

use ringway_sansio::Time;
use ringway_services::Memory;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Octets of a file that are read: far more than the table has room for.
const MAX_FILE: u64 = 1 << 20;

/// Returns the file: `ringway/with.txt` in `$XDG_STATE_HOME`, or in `~/.local/state`.
pub(crate) fn file() -> Option<PathBuf> {
    let state = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".local/state"));
    Some(state.or_else(home)?.join("ringway/with.txt"))
}

/// Adds what a file has to a memory, unless that knows better. A file that is absent has nothing.
pub(crate) fn load(path: &Path, now: Time, memory: &mut Memory) {
    let Ok(file) = fs::File::open(path) else { return };
    let mut text = String::new();
    if io::Read::read_to_string(&mut io::Read::take(file, MAX_FILE), &mut text).is_err() {
        return;
    }
    memory.add_text(now, &text);
    memory.expire(now);
}

/// Writes a memory, with what another process has written since. The file is replaced at once, so that it is never half
/// written.
pub(crate) fn save(path: &Path, now: Time, memory: &mut Memory) -> io::Result<()> {
    load(path, now, memory);
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".with.{}", std::process::id()));
    let written =
        fs::File::create(&new).and_then(|mut file| file.write_all(memory.to_text().as_bytes()));
    written.and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        // What is left of it is of no use; that it cannot be removed changes nothing.
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::Duration;
    use ringway_services::Protocol;
    use ringway_services::memory::{Key, Outcome};

    fn key(peer: &str) -> Key {
        Key { network: String::new(), peer: peer.into(), protocol: Protocol::SctpUdp }
    }

    #[test]
    fn outcomes_are_written_and_read_by_another_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/with.txt");
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
        let path = folder.path().join("with.txt");
        let at = |seconds: u64| seconds * 1_000_000_000;
        let lines = format!(
            "no entry\n{}\tnone\ta:1\t\n{}\tsctp-udp\tb:1\t\n{}\tsctp-udp\tc:1\t\n{}\tsctp-udp\td:1\t\n",
            at(900),
            at(100),
            at(900),
            at(99_999_999)
        );
        fs::write(&path, lines).unwrap();
        let mut memory = Memory::new();
        load(&path, Time::from_secs(1_000), &mut memory);
        assert_eq!(memory.len(), 1, "the others are none, too old, or of the future");
        assert!(memory.recall(Time::from_secs(1_499), &key("c:1")).is_some());
        assert!(memory.recall(Time::from_secs(1_501), &key("c:1")).is_none());
    }
}
