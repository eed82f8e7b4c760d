//! The files of the log, which a thread of their own writes: a slow disk delays no packet.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

/// Pieces of the log that wait for the disk.
const WAITING: usize = 16;
/// Maximum number of bytes of a direction that wait besides.
const MAX_PENDING: usize = 64 << 20;

/// The log of both directions.
#[derive(Debug)]
pub(crate) struct LogFiles {
    pending: [String; 2],
    lost: u64,
    /// `None` when it has ended.
    writer: Option<(SyncSender<Piece>, JoinHandle<io::Result<()>>)>,
}

/// The index of a file, and lines for it.
type Piece = (usize, String);

impl LogFiles {
    /// Creates both files. The second has `.back` behind its name.
    ///
    /// # Errors
    /// The error of open(2).
    pub(crate) fn create(path: &Path) -> io::Result<LogFiles> {
        let mut files = [File::create(path)?, File::create(back(path))?];
        let (sender, receiver) = sync_channel::<Piece>(WAITING);
        let writer = std::thread::Builder::new().name("log".into()).spawn(move || {
            receiver.iter().try_for_each(|(which, text)| files[which].write_all(text.as_bytes()))
        })?;
        Ok(LogFiles { pending: Default::default(), lost: 0, writer: Some((sender, writer)) })
    }

    /// Appends lines to a file, now or later.
    pub(crate) fn push(&mut self, which: usize, text: String) {
        let pending = &mut self.pending[which];
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
        if let Err(TrySendError::Full((_, text)) | TrySendError::Disconnected((_, text))) =
            sender.try_send((which, std::mem::take(pending)))
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
        for (which, text) in self.pending.iter_mut().enumerate() {
            // It fails when the writer has ended, whose error is returned below.
            let _ = sender.send((which, std::mem::take(text)));
        }
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
        let mut log = LogFiles::create(&path).unwrap();
        let mut expected = String::new();
        for n in 0..1_000 {
            let line = format!("{n} 1 enqueue\n");
            expected.push_str(&line);
            log.push(0, line);
        }
        log.push(1, "back\n".to_owned());
        log.finish().unwrap();
        assert_eq!(log.lost(), 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        assert_eq!(std::fs::read_to_string(back(&path)).unwrap(), "back\n");
    }

    #[test]
    fn what_cannot_be_written_is_counted_or_reported() {
        // A device that is always full.
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("full")).unwrap();
        let mut log = LogFiles::create(&folder.path().join("full")).unwrap();
        let text = "x\n".repeat(MAX_PENDING / 4);
        while log.lost() == 0 {
            log.push(0, text.clone());
        }
        assert_eq!(log.lost(), (MAX_PENDING / 4) as u64);
        assert!(log.finish().is_err());
        assert!(LogFiles::create(&folder.path().join("no/file")).is_err());
    }
}
