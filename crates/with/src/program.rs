//! Finding a program and whether the library can be loaded into it (ld.so(8)).

use ringway_with_wire::executable::{self, Kind};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Octets of a file that are read: program headers follow the ELF header.
const HEAD: u64 = 16 << 10;
/// Interpreters of interpreters that the kernel follows (execve(2)).
const MAX_INTERPRETERS: usize = 4;

/// Why a program cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// There is no such file.
    #[error("{}: expected a program, found none of this name in PATH", .0.display())]
    NotFound(OsString),
    /// It cannot be read.
    #[error("{path}: {error}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// It has no dynamic linker.
    #[error(
        "{}: expected a dynamically linked program, got one that is statically linked: nothing can be loaded into it",
        .0.display()
    )]
    Static(PathBuf),
    /// Its C library is another.
    #[error(
        "{path}: expected a program for the GNU C library, got one for {interpreter}, which cannot load the library",
        path = .path.display()
    )]
    OtherLibrary {
        /// The file.
        path: PathBuf,
        /// Its dynamic linker.
        interpreter: String,
    },
    /// It is written in Go.
    #[error(
        "{}: expected a program that calls the C library, got one of Go, which makes system calls by itself",
        .0.display()
    )]
    OwnCalls(PathBuf),
    /// It is for another processor.
    #[error("{}: expected a program for this processor, got one for another", .0.display())]
    OtherProcessor(PathBuf),
    /// The dynamic linker loads nothing into it that the user names.
    #[error(
        "{}: expected a program that runs as its caller, got one with the set-user-ID or set-group-ID bit: the dynamic \
         linker ignores libraries that its caller names",
        .0.display()
    )]
    SetUser(PathBuf),
}

impl ProgramError {
    /// Returns the exit status by which a shell reports it.
    pub fn status(&self) -> u8 {
        if matches!(self, ProgramError::NotFound(_)) { 127 } else { 126 }
    }
}

/// Returns the file of a program, once it is clear that the library can be loaded into it.
///
/// # Errors
/// It cannot.
pub(crate) fn check(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let path = find(name, &env::var_os("PATH").unwrap_or_default())
        .ok_or_else(|| ProgramError::NotFound(name.to_owned()))?;
    check_file(&path, MAX_INTERPRETERS)?;
    Ok(path)
}

/// Returns the file that a name means to a shell.
fn find(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0)
    };
    env::split_paths(path).map(|folder| folder.join(name)).find(is_program)
}

fn check_file(path: &Path, interpreters: usize) -> Result<(), ProgramError> {
    let unreadable = |error| ProgramError::Unreadable { path: path.to_owned(), error };
    let data = path.metadata().map_err(unreadable)?;
    let mut head = Vec::new();
    match File::open(path) {
        Ok(file) => {
            file.take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
        }
        // What may be executed and not read is executed all the same.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => return Err(unreadable(error)),
    }
    let kind = executable::kind(&head);
    let is_elf = !matches!(kind, Kind::Script(_) | Kind::Unknown);
    let user = data.mode() & 0o4000 != 0 && data.uid() != nix::unistd::geteuid().as_raw();
    let group = data.mode() & 0o2000 != 0 && data.gid() != nix::unistd::getegid().as_raw();
    if is_elf && (user || group) {
        return Err(ProgramError::SetUser(path.to_owned()));
    }
    match kind {
        Kind::Static => Err(ProgramError::Static(path.to_owned())),
        Kind::OtherProcessor => Err(ProgramError::OtherProcessor(path.to_owned())),
        Kind::OwnCalls => Err(ProgramError::OwnCalls(path.to_owned())),
        Kind::OtherLibrary(interpreter) => {
            let interpreter = String::from_utf8_lossy(interpreter).into_owned();
            Err(ProgramError::OtherLibrary { path: path.to_owned(), interpreter })
        }
        Kind::Script(line) if interpreters > 0 => check_script(&words(line), interpreters),
        Kind::Script(_) | Kind::Dynamic | Kind::Unknown => Ok(()),
    }
}

fn check_script(words: &[OsString], interpreters: usize) -> Result<(), ProgramError> {
    let Some(interpreter) = words.first() else { return Ok(()) };
    check_file(Path::new(interpreter), interpreters - 1)?;
    // env(1) executes the program that it is named.
    let named = words.get(1).filter(|_| Path::new(interpreter).ends_with("env"));
    let path = env::var_os("PATH").unwrap_or_default();
    match named.and_then(|name| find(name, &path)) {
        Some(file) => check_file(&file, interpreters - 1),
        None => Ok(()),
    }
}

/// Returns the words of a script's first line.
fn words(line: &[u8]) -> Vec<OsString> {
    let words = line.split(|octet| matches!(octet, b' ' | b'\t' | b'\r'));
    let words = words.filter(|word| !word.is_empty());
    words.map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_cannot_load_the_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, octets: &[u8], mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, octets).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let mut header = vec![0; 64];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        header[18..20].copy_from_slice(&machine.to_le_bytes());
        let fixed = file("fixed", &header, 0o755);
        let script = file("script", format!("#!{}\n", fixed.display()).as_bytes(), 0o755);
        let error = check(script.as_os_str()).unwrap_err();
        assert!(error.to_string().contains("statically linked"), "{error}");
        assert_eq!(error.status(), 126);
        let error = check(OsStr::new("no-such-program")).unwrap_err();
        assert_eq!(error.status(), 127);
        assert!(check(OsStr::new("sh")).is_ok());
    }
}
