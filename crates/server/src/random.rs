//! Keys and passwords from the random source of the operating system.

use std::io;

/// Returns `n` random bytes from the operating system, for keys that are generated once.
///
/// # Errors
/// Fails when the operating system returns no random bytes.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut out = [0u8; N];
    getrandom::fill(&mut out)
        .map_err(|e| io::Error::other(format!("the system returned no random numbers: {e}")))?;
    Ok(out)
}

/// Generates a password of four groups of four characters, about 79 bits, without letters and
/// digits that look alike on a telephone's display.
///
/// # Errors
/// Fails when the operating system returns no random bytes.
pub fn password() -> io::Result<String> {
    // 31 characters; a byte of 248 or more would favour the first few and is discarded.
    const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
    const LIMIT: u8 = 248;
    const GROUPS: usize = 4;
    let mut out = String::with_capacity(GROUPS * 5);
    while out.len() < GROUPS * 5 - 1 {
        for byte in bytes::<32>()? {
            if byte >= LIMIT || out.len() == GROUPS * 5 - 1 {
                continue;
            }
            out.push(ALPHABET[(byte % 31) as usize] as char);
            if out.len() % 5 == 4 && out.len() < GROUPS * 5 - 1 {
                out.push('-');
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_have_four_groups() {
        for _ in 0..50 {
            let p = password().unwrap();
            assert_eq!(p.len(), 19, "{p}");
            assert_eq!(p.split('-').map(str::len).collect::<Vec<_>>(), [4, 4, 4, 4], "{p}");
        }
        assert_ne!(password().unwrap(), password().unwrap());
    }
}
