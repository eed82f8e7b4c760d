//! The leases of a LAN in a file of the state directory, so that they survive a restart.
//!
//! What is lost with the last second before a crash costs nothing: a client that extends a lease which the router does
//! not know gets it again, unless another has it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ringway_lan::dhcp4::MAX_TEXT;

use crate::state;

/// Names of the file, and of the one that replaces it.
const LEASES: &str = "leases";
const TEMPORARY: &str = ".leases.new";

/// Reads the leases; none if there is no file.
///
/// # Errors
/// The error of a system call, or `InvalidData` for a file that is too long.
pub(super) fn load(directory: &Path) -> io::Result<String> {
    match state::read(&directory.join(LEASES), MAX_TEXT as u64) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Writes the leases: the old ones are there until the new ones are. Nothing waits for the disk.
///
/// # Errors
/// The error of the system call that failed.
pub(super) fn save(directory: &Path, text: &str) -> io::Result<()> {
    let temporary = directory.join(TEMPORARY);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, directory.join(LEASES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn leases_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(load(directory.path()).unwrap(), "");
        for text in ["10.50.60.7 1 2 3\n", ""] {
            save(directory.path(), text).unwrap();
            assert_eq!(load(directory.path()).unwrap(), text);
        }
        let file = directory.path().join(LEASES);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, vec![b'x'; MAX_TEXT + 1]).unwrap();
        assert_eq!(load(directory.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(save(&directory.path().join("absent"), "").is_err());
    }
}
