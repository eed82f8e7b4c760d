//! The files of the log, each of which a thread of its own writes: a slow disk delays no packet.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Pieces of a log that wait for the disk.
const WAITING: usize = 8;
/// Maximum number of bytes that wait besides.
const MAX_PENDING: usize = 64 << 20;

/// Creates the files of both directions. The second has `.back` behind its name.
///
/// # Errors
/// The error of open(2), or of starting a thread.
pub(crate) fn create(path: &Path) -> io::Result<[LogFile; 2]> {
    Ok([LogFile::create(path)?, LogFile::create(&back(path))?])
}

/// The log of one direction.
#[derive(Debug)]
pub(crate) struct LogFile {
    pending: String,
    lost: u64,
    /// `None` when it has ended.
    writer: Option<(SyncSender<String>, JoinHandle<io::Result<()>>)>,
}

impl LogFile {
    fn create(path: &Path) -> io::Result<LogFile> {
        let mut file = File::create(path)?;
        let (sender, receiver) = sync_channel::<String>(WAITING);
        let writer = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || receiver.iter().try_for_each(|text| file.write_all(text.as_bytes())))?;
        Ok(LogFile { pending: String::new(), lost: 0, writer: Some((sender, writer)) })
    }

    /// Appends lines to the file, now or later.
    pub(crate) fn push(&mut self, text: String) {
        let pending = &mut self.pending;
        if pending.is_empty() {
            *pending = text;
        } else if pending.len() + text.len() <= MAX_PENDING {
            pending.push_str(&text);
        } else {
            self.lost += text.lines().count() as u64;
        }
        let Some((sender, _)) = self.writer.as_ref().filter(|_| !pending.is_empty()) else {
            return;
        };
        if let Err(TrySendError::Full(text) | TrySendError::Disconnected(text)) =
            sender.try_send(std::mem::take(pending))
        {
            *pending = text;
        }
    }

    /// Returns the number of lines that are missing.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Writes what waits, and ends.
    ///
    /// # Errors
    /// The first error of write(2).
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let Some((sender, writer)) = self.writer.take() else { return Ok(()) };
        // It fails when the writer has ended, whose error is returned below.
        let _ = sender.send(std::mem::take(&mut self.pending));
        drop(sender);
        writer.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

/// Returns the name of the file of the second direction.
fn back(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".back");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_to_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut logs = create(&path).unwrap();
        let mut expected = String::new();
        for n in 0..1_000 {
            let line = format!("{n} 1 enqueue\n");
            expected.push_str(&line);
            logs[0].push(line);
        }
        logs[1].push("back\n".to_owned());
        for log in &mut logs {
            log.finish().unwrap();
            assert_eq!(log.lost(), 0);
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(std::fs::read_to_string(back(&path)).unwrap(), "back\n");
    }

    #[test]
    fn what_cannot_be_written_is_counted_or_reported() {
        // A device that is always full.
        let mut log = LogFile::create(Path::new("/dev/full")).unwrap();
        let text = "x\n".repeat(MAX_PENDING / 4);
        while log.lost() == 0 {
            log.push(text.clone());
        }
        assert_eq!(log.lost(), (MAX_PENDING / 4) as u64);
        assert!(log.finish().is_err());
        let folder = tempfile::tempdir().unwrap();
        assert!(create(&folder.path().join("no/file")).is_err());
    }
}
