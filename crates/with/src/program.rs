//! Finding a program and whether the library can be loaded into it (ld.so(8)).

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

/// What a file is to execve(2).
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    /// A dynamically linked program with its dynamic linker.
    Dynamic(String),
    Static,
    OtherProcessor,
    /// A script with the words of its first line.
    Script(Vec<OsString>),
    /// Something else, which execve(2) will judge.
    Unknown,
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
    let kind = kind(&head);
    let is_elf = !matches!(kind, Kind::Script(_) | Kind::Unknown);
    let user = data.mode() & 0o4000 != 0 && data.uid() != nix::unistd::geteuid().as_raw();
    let group = data.mode() & 0o2000 != 0 && data.gid() != nix::unistd::getegid().as_raw();
    if is_elf && (user || group) {
        return Err(ProgramError::SetUser(path.to_owned()));
    }
    match kind {
        Kind::Static => Err(ProgramError::Static(path.to_owned())),
        Kind::OtherProcessor => Err(ProgramError::OtherProcessor(path.to_owned())),
        Kind::Dynamic(interpreter) if interpreter.contains("ld-musl") => {
            Err(ProgramError::OtherLibrary { path: path.to_owned(), interpreter })
        }
        Kind::Script(words) if interpreters > 0 => check_script(&words, interpreters),
        Kind::Script(_) | Kind::Dynamic(_) | Kind::Unknown => Ok(()),
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

/// Returns what a file is by its first octets.
fn kind(head: &[u8]) -> Kind {
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|octet| *octet == b'\n').next().unwrap_or_default();
        let words = line.split(|octet| matches!(octet, b' ' | b'\t' | b'\r'));
        let words = words.filter(|word| !word.is_empty());
        return Kind::Script(words.map(|word| OsStr::from_bytes(word).to_owned()).collect());
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Unknown;
    }
    elf(head).unwrap_or(Kind::Unknown)
}

/// Reads an ELF header (elf(5)); `None` if it is cut.
fn elf(head: &[u8]) -> Option<Kind> {
    const CLASS: usize = 4;
    const DATA: usize = 5;
    const MACHINE: usize = 18;
    const PROGRAM_HEADERS: usize = 32;
    const ENTRY_SIZE: usize = 54;
    const ENTRIES: usize = 56;
    const PT_INTERP: u32 = 3;
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    // 64 bits, the least significant octet first, as both processors here have it.
    if *head.get(CLASS)? != 2 || *head.get(DATA)? != 1 || u16_at(head, MACHINE)? != machine {
        return Some(Kind::OtherProcessor);
    }
    let (start, size) = (u64_at(head, PROGRAM_HEADERS)?, u16_at(head, ENTRY_SIZE)?);
    for index in 0..u16_at(head, ENTRIES)? {
        let at = start.checked_add(u64::from(index) * u64::from(size))?;
        let at = usize::try_from(at).ok()?;
        if u32_at(head, at)? == PT_INTERP {
            let from = usize::try_from(u64_at(head, at.checked_add(8)?)?).ok()?;
            let length = usize::try_from(u64_at(head, at.checked_add(32)?)?).ok()?;
            let text = head.get(from..from.checked_add(length)?).unwrap_or_default();
            let text = text.split(|octet| *octet == 0).next().unwrap_or_default();
            return Some(Kind::Dynamic(String::from_utf8_lossy(text).into_owned()));
        }
    }
    Some(Kind::Static)
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    array(octets, at).map(u16::from_le_bytes)
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    array(octets, at).map(u32::from_le_bytes)
}

fn u64_at(octets: &[u8], at: usize) -> Option<u64> {
    array(octets, at).map(u64::from_le_bytes)
}

fn array<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A header with one program header of a type, which names `/lib/ld.so`.
    fn header(kind: u32) -> Vec<u8> {
        let mut head = vec![0; 64 + 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        head[32..40].copy_from_slice(&64_u64.to_le_bytes());
        head[54..56].copy_from_slice(&56_u16.to_le_bytes());
        head[56..58].copy_from_slice(&1_u16.to_le_bytes());
        head[64..68].copy_from_slice(&kind.to_le_bytes());
        head[72..80].copy_from_slice(&120_u64.to_le_bytes());
        head[96..104].copy_from_slice(&11_u64.to_le_bytes());
        head.extend(b"/lib/ld.so\0");
        head
    }

    #[test]
    fn a_program_is_told_by_its_headers() {
        assert_eq!(kind(&header(3)), Kind::Dynamic("/lib/ld.so".into()));
        assert_eq!(kind(&header(1)), Kind::Static);
        let mut other = header(3);
        other[18] = 8;
        assert_eq!(kind(&other), Kind::OtherProcessor);
        assert_eq!(kind(b"hello"), Kind::Unknown);
        let words = ["/usr/bin/env", "python3"].map(OsString::from).to_vec();
        assert_eq!(kind(b"#! /usr/bin/env python3\nprint()"), Kind::Script(words));
    }

    #[test]
    fn any_cut_header_is_judged() {
        let whole = header(3);
        for length in 0..whole.len() {
            kind(&whole[..length]);
        }
        let mut far = whole;
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(kind(&far), Kind::Unknown);
    }

    #[test]
    fn what_cannot_load_the_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, octets: &[u8], mode: u32| {
            let path = folder.path().join(name);
            std::fs::write(&path, octets).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let fixed = file("fixed", &header(1), 0o755);
        let script = file("script", format!("#!{}\n", fixed.display()).as_bytes(), 0o755);
        let error = check(script.as_os_str()).unwrap_err();
        assert!(error.to_string().contains("statically linked"), "{error}");
        assert_eq!(error.status(), 126);
        let error = check(OsStr::new("no-such-program")).unwrap_err();
        assert_eq!(error.status(), 127);
        assert!(check(OsStr::new("sh")).is_ok());
    }
}
