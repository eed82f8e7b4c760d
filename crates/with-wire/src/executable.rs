//! What a file is to execve(2), by its first octets: whether a library can be loaded into it (ld.so(8)), and is called.

/// Octets of a file that are enough to judge it: program headers follow the ELF header, and what they refer to follows them.
pub const HEAD: usize = 4 << 10;
/// Notes of a segment that are looked at.
const MAX_NOTES: usize = 32;

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<'a> {
    /// A dynamically linked program.
    Dynamic,
    /// A dynamically linked program with a dynamic linker of another C library.
    OtherLibrary(&'a [u8]),
    /// A dynamically linked program of Go, which makes system calls without a library.
    OwnCalls,
    /// A statically linked program.
    Static,
    /// A program for another processor.
    OtherProcessor,
    /// A script with the rest of its first line.
    Script(&'a [u8]),
    /// Something else, which execve(2) will judge.
    Unknown,
}

impl Kind<'_> {
    /// Returns why a library is not loaded into it, or not called, in words; `None` where it may be.
    pub fn unserved(&self) -> Option<&'static str> {
        match self {
            Kind::Static => Some("is statically linked"),
            Kind::OtherLibrary(_) => Some("is not for the GNU C library"),
            Kind::OwnCalls => Some("is written in Go, which makes system calls by itself"),
            Kind::OtherProcessor => Some("is for another processor"),
            Kind::Dynamic | Kind::Script(_) | Kind::Unknown => None,
        }
    }
}

/// Returns what a file is by its first octets.
pub fn kind(head: &[u8]) -> Kind<'_> {
    if let Some(line) = head.strip_prefix(b"#!") {
        return Kind::Script(line.split(|octet| *octet == b'\n').next().unwrap_or_default());
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Unknown;
    }
    elf(head).unwrap_or(Kind::Unknown)
}

/// Reads an ELF header (elf(5)); `None` if it is cut.
fn elf(head: &[u8]) -> Option<Kind<'_>> {
    const CLASS: usize = 4;
    const DATA: usize = 5;
    const MACHINE: usize = 18;
    const PROGRAM_HEADERS: usize = 32;
    const ENTRY_SIZE: usize = 54;
    const ENTRIES: usize = 56;
    const PT_INTERP: u32 = 3;
    const PT_NOTE: u32 = 4;
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    // 64 bits, the least significant octet first, as both processors here have it.
    if *head.get(CLASS)? != 2 || *head.get(DATA)? != 1 || u16_at(head, MACHINE)? != machine {
        return Some(Kind::OtherProcessor);
    }
    let (start, size) = (u64_at(head, PROGRAM_HEADERS)?, u16_at(head, ENTRY_SIZE)?);
    let (mut interpreter, mut is_go) = (None, false);
    for index in 0..u16_at(head, ENTRIES)? {
        let at = start.checked_add(u64::from(index) * u64::from(size))?;
        let at = usize::try_from(at).ok()?;
        let kind = u32_at(head, at)?;
        if !matches!(kind, PT_INTERP | PT_NOTE) {
            continue;
        }
        let from = usize::try_from(u64_at(head, at.checked_add(8)?)?).ok()?;
        let length = usize::try_from(u64_at(head, at.checked_add(32)?)?).ok()?;
        let content = head.get(from..from.checked_add(length)?).unwrap_or_default();
        if kind == PT_INTERP {
            interpreter = content.split(|octet| *octet == 0).next();
        } else {
            is_go |= has_note_of_go(content).unwrap_or(false);
        }
    }
    Some(match interpreter {
        None => Kind::Static,
        Some(name) if name.windows(7).any(|part| part == b"ld-musl") => Kind::OtherLibrary(name),
        Some(_) if is_go => Kind::OwnCalls,
        Some(_) => Kind::Dynamic,
    })
}

/// Returns whether notes (elf(5), Notes) have the build identifier of Go; `None` if they are cut.
fn has_note_of_go(notes: &[u8]) -> Option<bool> {
    const BUILD_ID: u32 = 4;
    const HEADER: usize = 12;
    let mut at = 0;
    for _ in 0..MAX_NOTES {
        if at == notes.len() {
            break;
        }
        let (name, content) = (u32_at(notes, at)?, u32_at(notes, at.checked_add(4)?)?);
        let kind = u32_at(notes, at.checked_add(8)?)?;
        let from = at.checked_add(HEADER)?;
        if kind == BUILD_ID && notes.get(from..)?.starts_with(b"Go\0\0") {
            return Some(true);
        }
        let padded = |length: u32| usize::try_from(length).ok()?.checked_next_multiple_of(4);
        at = from.checked_add(padded(name)?)?.checked_add(padded(content)?)?;
    }
    Some(false)
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

    /// A header with one program header of a type, which refers to `content`.
    fn header(kind: u32, content: &[u8]) -> Vec<u8> {
        let mut head = vec![0; 64 + 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        head[32..40].copy_from_slice(&64_u64.to_le_bytes());
        head[54..56].copy_from_slice(&56_u16.to_le_bytes());
        head[56..58].copy_from_slice(&1_u16.to_le_bytes());
        head[64..68].copy_from_slice(&kind.to_le_bytes());
        head[72..80].copy_from_slice(&120_u64.to_le_bytes());
        head[96..104].copy_from_slice(&(content.len() as u64).to_le_bytes());
        head.extend(content);
        head
    }

    #[test]
    fn a_program_is_known_by_its_headers() {
        assert_eq!(kind(&header(3, b"/lib/ld.so\0")), Kind::Dynamic);
        let musl = header(3, b"/lib/ld-musl-x86_64.so.1\0");
        assert_eq!(kind(&musl), Kind::OtherLibrary(b"/lib/ld-musl-x86_64.so.1"));
        assert_eq!(kind(&header(1, b"")), Kind::Static);
        let mut other = header(3, b"/lib/ld.so\0");
        other[18] = 8;
        assert_eq!(kind(&other), Kind::OtherProcessor);
        assert_eq!(kind(b"hello"), Kind::Unknown);
        let script = b"#! /usr/bin/env python3\nprint()";
        assert_eq!(kind(script), Kind::Script(b" /usr/bin/env python3"));
    }

    #[test]
    fn a_program_of_go_is_known_by_its_note() {
        let note = |name: &[u8; 4], kind: u8| {
            [&[4, 0, 0, 0, 3, 0, 0, 0, kind, 0, 0, 0], &name[..], b"id:\0"].concat()
        };
        let of_go = [note(b"GNU\0", 3), note(b"Go\0\0", 4)].concat();
        assert_eq!(has_note_of_go(&of_go), Some(true));
        assert_eq!(has_note_of_go(&note(b"GNU\0", 3)), Some(false));
        assert_eq!(has_note_of_go(&of_go[..17]), None, "cut");
        assert_eq!(has_note_of_go(&[0xff; 40]), None);
        assert_eq!(kind(&header(4, &of_go)), Kind::Static, "without a dynamic linker");
    }

    #[test]
    fn any_cut_header_is_judged() {
        let whole = header(3, b"/lib/ld.so\0");
        for length in 0..whole.len() {
            kind(&whole[..length]);
        }
        let mut far = whole;
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(kind(&far), Kind::Unknown);
    }
}
