//! Output of results and errors.

use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// Reason why a command failed, one line each.
pub(crate) struct CommandError(pub(crate) Vec<String>);

impl From<String> for CommandError {
    fn from(line: String) -> Self {
        CommandError(vec![line])
    }
}

/// Prints a text unchanged. A closed pipe is not an error.
pub(crate) fn text(text: &str) -> Result<(), CommandError> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError(vec![format!("standard output: {e}")]))
        }
        _ => Ok(()),
    }
}

/// Prints a line.
pub(crate) fn line(line: &str) -> Result<(), CommandError> {
    text(&format!("{line}\n"))
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), CommandError> {
    let json =
        serde_json::to_string_pretty(value).map_err(|e| CommandError(vec![e.to_string()]))?;
    line(&json)
}

/// Prints errors to standard error, in red on a terminal.
pub(crate) fn errors(lines: &[String]) {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let (on, off) = if colour { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
    let mut out = io::stderr().lock();
    for line in lines {
        // This error cannot be reported anywhere else.
        let _ = writeln!(out, "{on}ringway:{off} {line}");
    }
}

/// Prints a note to standard error.
#[cfg(any(feature = "server", feature = "mesh", feature = "emulate", feature = "with"))]
pub(crate) fn note(line: &str) {
    // This error cannot be reported anywhere else.
    let _ = writeln!(io::stderr().lock(), "ringway: {line}");
}
