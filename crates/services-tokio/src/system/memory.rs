//! The memory of what worked: that of the process, one of the system's own, and its file.

use crate::error::Error;
use ringway_sansio::Time;
use ringway_services::Memory;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Octets of a file that are read: more than [`ringway_services::memory::MAX_ENTRIES`] lines of usual length.
const MAX_FILE: u64 = 4 * 1024 * 1024;

static OF_PROCESS: OnceLock<Arc<Mutex<Memory>>> = OnceLock::new();

/// A memory, and where it is kept.
pub(super) struct Remembered {
    memory: Arc<Mutex<Memory>>,
    file: Option<PathBuf>,
    /// Held while the file is written.
    writing: Arc<Mutex<()>>,
}

impl Remembered {
    /// Returns the memory of the process or one of its own, with what a file has.
    pub(super) fn new(file: Option<PathBuf>, own: bool, now: Time) -> Result<Remembered, Error> {
        let memory =
            if own { Arc::default() } else { OF_PROCESS.get_or_init(Arc::default).clone() };
        let remembered = Remembered { memory, file, writing: Arc::default() };
        if let Some(file) = &remembered.file {
            match std::fs::File::open(file) {
                Ok(open) => {
                    let mut text = String::new();
                    let read = open.take(MAX_FILE).read_to_string(&mut text);
                    read.map_err(|error| Error::system(file.display().to_string(), error))?;
                    remembered.with(|memory| memory.add_text(now, &text));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::system(file.display().to_string(), error)),
            }
        }
        Ok(remembered)
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Memory) -> R) -> R {
        f(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the memory to its file, in a thread of the runtime that may wait for the disk. A file that cannot be written
    /// costs only what it is for.
    pub(super) fn save(&self) {
        let Some(file) = self.file.clone() else { return };
        let (memory, writing) = (self.memory.clone(), self.writing.clone());
        tokio::task::spawn_blocking(move || {
            let _one_at_a_time = writing.lock().unwrap_or_else(PoisonError::into_inner);
            let text = memory.lock().unwrap_or_else(PoisonError::into_inner).to_text();
            let mut new = file.clone().into_os_string();
            new.push(".new");
            // A reader finds the file before or after, never a part of it.
            std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file))
        });
    }
}
