//! The lines of a file of Asterisk without comments, with those of the files that it includes.

use crate::error::FileError;
use crate::found::Position;
use crate::{MAX_BYTES, MAX_LINE};
use std::sync::Arc;

/// Maximum number of files that include each other, the first one among them.
pub const MAX_INCLUDES: usize = 10;
/// Maximum number of files of one import.
pub const MAX_FILES: usize = 256;
/// Maximum depth of nested comments.
const MAX_NESTED_COMMENTS: u32 = 128;

/// Returns the contents of a file by its name; the error is `None` if there is no such file.
pub type Load<'l> = &'l mut dyn FnMut(&str) -> Result<Vec<u8>, Option<String>>;

/// Called with the position of a line and the line.
pub(super) type Visit<'v> = &'v mut dyn FnMut(&Position, &[u8]) -> Result<(), FileError>;

/// Visits the lines of a file, and of those that it includes where it does.
pub(super) struct Reader<'l, 'v> {
    pub(super) load: Load<'l>,
    pub(super) visit: Visit<'v>,
    pub(super) files: usize,
    pub(super) bytes: usize,
}

impl Reader<'_, '_> {
    /// Reads a file; `depth` is the number of files that include it.
    pub(super) fn read(&mut self, name: &str, bytes: &[u8], depth: usize) -> Result<(), FileError> {
        let file: Arc<str> = name.into();
        let limit = |line, what, max| {
            Err(FileError::Limit { at: Position { file: file.clone(), line }, what, max })
        };
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_BYTES {
            return limit(1, "bytes", MAX_BYTES);
        }
        if self.files > MAX_FILES {
            return limit(1, "files", MAX_FILES);
        }
        let mut nested = 0;
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        for (line, text) in (1..).zip(bytes.split(|b| *b == b'\n')) {
            if text.len() > MAX_LINE {
                return limit(line, "bytes of a line", MAX_LINE);
            }
            let text = without_comments(text, &mut nested);
            let text = text.trim_ascii();
            let at = Position { file: file.clone(), line };
            match text.strip_prefix(b"#") {
                Some(directive) => self.directive(&at, directive, depth)?,
                None if text.is_empty() => {}
                None => (self.visit)(&at, text)?,
            }
        }
        Ok(())
    }

    fn directive(&mut self, at: &Position, text: &[u8], depth: usize) -> Result<(), FileError> {
        let text = std::str::from_utf8(text).map_err(|_| FileError::Encoding { at: at.clone() })?;
        let (word, name) = text.split_once(|c: char| c <= ' ').unwrap_or((text, ""));
        let optional = word.eq_ignore_ascii_case("tryinclude");
        if word.eq_ignore_ascii_case("exec") {
            let got = "#exec, which runs a program: write its output into a file and include that";
            return Err(FileError::Syntax { at: at.clone(), expected: "#include", got });
        }
        // Asterisk ignores other directives.
        if !optional && !word.eq_ignore_ascii_case("include") {
            return Ok(());
        }
        let name = name.trim();
        let unquoted = [('"', '"'), ('<', '>')]
            .into_iter()
            .find_map(|(open, close)| name.strip_prefix(open)?.strip_suffix(close));
        let name = unquoted.unwrap_or(name);
        let failed =
            |why: String| Err(FileError::Include { at: at.clone(), name: name.to_owned(), why });
        if depth + 1 >= MAX_INCLUDES {
            return failed(format!(
                "expected at most {MAX_INCLUDES} files that include each other"
            ));
        }
        match (self.load)(name) {
            Ok(bytes) => self.read(name, &bytes, depth + 1),
            Err(None) if optional => Ok(()),
            Err(None) => failed("does not exist".to_owned()),
            Err(Some(why)) => failed(why),
        }
    }
}

/// Returns a line without its comments: from `;` to the end, and between `;--` and `--;`, which may be nested and reach
/// over lines. `nested` is the depth at the beginning of the line, and afterwards that at its end.
fn without_comments(line: &[u8], nested: &mut u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    // What ends a comment begins here or later: the dashes of `;--` end none.
    let mut from = 0;
    let mut i = 0;
    while let Some(&octet) = line.get(i) {
        let before = &line[from.min(i)..i];
        let after = &line[i + 1..];
        if octet != b';' {
            if *nested == 0 {
                out.push(octet);
            }
        } else if before.ends_with(b"\\") {
            if *nested == 0 {
                out.pop();
                out.push(b';');
            }
        } else if after.starts_with(b"--") && after.get(2) != Some(&b'-') {
            *nested = (*nested + 1).min(MAX_NESTED_COMMENTS);
            i += 2;
            from = i + 1;
        } else if *nested > 0 && before.ends_with(b"--") {
            *nested -= 1;
            from = i + 1;
        } else if *nested == 0 {
            break;
        }
        i += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(text: &str) -> Vec<String> {
        let mut nested = 0;
        text.lines()
            .map(|line| without_comments(line.as_bytes(), &mut nested))
            .map(|line| String::from_utf8(line).unwrap().trim().to_owned())
            .collect()
    }

    #[test]
    fn comments_are_removed_as_asterisk_does() {
        assert_eq!(stripped("a=1 ; b"), ["a=1"]);
        assert_eq!(stripped("secret=a\\;b ;c"), ["secret=a;b"]);
        assert_eq!(stripped("a ;-- b --; c"), ["a  c"]);
        assert_eq!(stripped("a ;--\nb\n--; c ; d"), ["a", "", "c"]);
        assert_eq!(stripped(";-- a ;-- b --; c\nd --; e"), ["", "e"]);
        // A line of dashes is a comment of its own.
        assert_eq!(stripped(";------\na=1"), ["", "a=1"]);
        assert_eq!(stripped(";--; a\nb --; c"), ["", "c"]);
        assert_eq!(stripped("a--; b"), ["a--"]);
    }
}
