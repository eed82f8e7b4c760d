//! The identity and the network key in files.
//!
//! The identity is the router: who has the file has its addresses. It is created once, with a directory and a mode that
//! keep others from it, and is never overwritten.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringway_mesh::crypto::NetworkKey;
use ringway_mesh::identity::{HASH_EXTENSION_BITS, Identity, IdentityError, MAX_FILE, Search};
use ringway_sansio::Random;

/// Name of the identity's file.
const IDENTITY: &str = "identity";
/// Maximum length in octets of a network key's file.
const MAX_KEY: u64 = 4_096;
/// Minimum length in octets of a network key.
const MIN_KEY: usize = 8;
/// Hashes between two looks at anything else.
const SLICE: u32 = 1 << 16;

/// Why there is no identity or no network key.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file or a directory.
    #[error("{path}: {error}", path = .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What failed.
        error: io::Error,
    },
    /// The identity's file is broken.
    #[error("{path}: {error}; restore the file, or remove it to become another router", path = .path.display())]
    Identity {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        error: IdentityError,
    },
    /// Others may read the file.
    #[error("{path}: mode {mode:04o} lets others read the key, expected 0600", path = .path.display())]
    Mode {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The network key is too short or too long.
    #[error("{path}: expected a network key of 8 to 4096 octets, got {length}", path = .path.display())]
    Key {
        /// Which.
        path: PathBuf,
        /// Its length in octets without spaces around.
        length: u64,
    },
}

/// Reads the identity in a directory, or creates both. `created` is called before a new one is searched for.
///
/// # Errors
/// A [`StateError`] that names the file.
pub fn identity(
    directory: &Path,
    random: &mut dyn Random,
    created: impl FnOnce(),
) -> Result<Identity, StateError> {
    let path = directory.join(IDENTITY);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| StateError::Io { path, error }
    };
    match read(&path, MAX_FILE as u64) {
        Ok(text) => parse(path, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            created();
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(io(directory))?;
            let mut search = Search::new(HASH_EXTENSION_BITS, random);
            let identity = loop {
                if let Some(identity) = search.step(SLICE) {
                    break identity;
                }
            };
            write(directory, &path, &identity.to_file()).map_err(io(&path))?;
            Ok(identity)
        }
        Err(error) => Err(io(&path)(error)),
    }
}

/// Returns the identity in a directory, which is not created.
///
/// # Errors
/// A [`StateError`] that names the file.
pub fn existing_identity(directory: &Path) -> Result<Identity, StateError> {
    let path = directory.join(IDENTITY);
    let text = read(&path, MAX_FILE as u64)
        .map_err(|error| StateError::Io { path: path.clone(), error })?;
    parse(path, &text)
}

fn parse(path: PathBuf, text: &[u8]) -> Result<Identity, StateError> {
    check_mode(&path)?;
    Identity::from_file(&String::from_utf8_lossy(text), HASH_EXTENSION_BITS)
        .map_err(|error| StateError::Identity { path, error })
}

/// Reads a network key.
///
/// # Errors
/// A [`StateError`] that names the file.
pub fn network_key(path: &Path) -> Result<NetworkKey, StateError> {
    let text =
        read(path, MAX_KEY).map_err(|error| StateError::Io { path: path.to_owned(), error })?;
    check_mode(path)?;
    let secret = text.trim_ascii();
    if secret.len() < MIN_KEY {
        return Err(StateError::Key { path: path.to_owned(), length: secret.len() as u64 });
    }
    Ok(NetworkKey::derive(secret))
}

/// Reads a file of at most `max` octets.
pub(crate) fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let file = fs::File::open(path)?;
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&file, max + 1), &mut text)?;
    if text.len() as u64 > max {
        let error = format!("expected a file of at most {max} octets, got a longer one");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    Ok(text)
}

fn check_mode(path: &Path) -> Result<(), StateError> {
    let mode = fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777);
    let mode = mode.map_err(|error| StateError::Io { path: path.to_owned(), error })?;
    if mode & 0o077 != 0 {
        return Err(StateError::Mode { path: path.to_owned(), mode });
    }
    Ok(())
}

/// Writes a new file that is whole or not there, and on the disk.
fn write(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let temporary = directory.join(".identity.new");
    let _ = fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_sansio::SplitMix;

    #[test]
    fn an_identity_is_created_once_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("deep/state");
        let mut created = 0;
        let first = identity(&state, &mut SplitMix::new(1), || created += 1).unwrap();
        let again = identity(&state, &mut SplitMix::new(2), || created += 1).unwrap();
        assert_eq!((first.id(), created), (again.id(), 1));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(IDENTITY))), (0o700, 0o600));
    }

    #[test]
    fn a_broken_or_open_identity_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(IDENTITY);
        let refuse = || {
            let refused = identity(directory.path(), &mut SplitMix::new(1), || panic!("created"));
            refused.unwrap_err().to_string()
        };
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(refuse().contains("identity: line 1 of the identity file"), "{}", refuse());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refuse().contains("mode 0644 lets others read the key"));
        fs::write(&path, vec![b'x'; MAX_FILE + 1]).unwrap();
        assert!(refuse().contains("at most 1024 octets"));
        assert_eq!(fs::read(&path).unwrap().len(), MAX_FILE + 1);
    }

    #[test]
    fn a_network_key_is_read_without_the_spaces_around_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("  correct horse\n");
        assert!(!network_key(&path).unwrap().is_open());
        write(" short \n");
        assert!(network_key(&path).unwrap_err().to_string().contains("8 to 4096 octets, got 5"));
        fs::remove_file(&path).unwrap();
        assert!(network_key(&path).unwrap_err().to_string().contains("key: No such file"));
    }
}
