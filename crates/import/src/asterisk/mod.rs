//! The users of Asterisk: `pjsip.conf`, and `sip.conf` of the older chan_sip.

mod lines;
mod pjsip;
mod sections;
mod sip;

use crate::error::FileError;
use crate::found::{Found, Position};
pub use lines::{Load, MAX_FILES, MAX_INCLUDES};
pub use sections::MAX_SECTIONS;
use sections::{Key, Section};

/// The realm of Asterisk unless it is configured.
const DEFAULT_REALM: &str = "asterisk";

/// Types of sections in `pjsip.conf`.
const PJSIP: [&str; 10] = [
    "endpoint",
    "auth",
    "aor",
    "transport",
    "registration",
    "identify",
    "global",
    "system",
    "domain_alias",
    "acl",
];
/// Types of sections in `sip.conf`.
const SIP: [&str; 3] = ["friend", "peer", "user"];

/// Reads the users of a configuration. `load` returns the contents of a file that is included by its name; its error
/// says why it cannot be read, and is `None` for a file that does not exist.
///
/// # Errors
/// Fails when the file is of another kind, cannot be parsed, or exceeds a limit.
pub fn asterisk(name: &str, bytes: &[u8], load: Load<'_>) -> Result<Found, FileError> {
    let sections = sections::read(name, bytes, load)?;
    let is_of = |types: &[&str]| {
        sections.iter().filter_map(|s| s.get(Key::Type)).any(|t| contains(types, t))
    };
    let mut found = Found::default();
    if is_of(&PJSIP) {
        pjsip::read(&sections, &mut found)?;
    } else if is_of(&SIP) {
        sip::read(&sections, &mut found)?;
    } else {
        let at = Position { file: name.into(), line: 1 };
        let expected = "pjsip.conf with sections of type endpoint and auth, or sip.conf with sections of type friend, peer or user";
        return Err(FileError::Format { at, expected });
    }
    Ok(found)
}

fn contains(types: &[&str], name: &str) -> bool {
    types.iter().any(|t| t.eq_ignore_ascii_case(name))
}

/// Returns the sections that are no templates.
fn concrete(sections: &[Section]) -> impl Iterator<Item = &Section> {
    sections.iter().filter(|section| !section.template)
}

#[cfg(test)]
mod tests;
