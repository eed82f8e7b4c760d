//! `ringway lab` of a program that was built without the laboratory: it names the way to one that has it.

use crate::out;
use clap::Args;
use std::process::ExitCode;

/// Exit status of a command that this program cannot run.
const USAGE: u8 = 2;
/// What to type instead, in a checkout.
const INSTEAD: &str = "cargo run --release --locked -p ringway -- lab";

#[derive(Args)]
pub(crate) struct Lab {
    /// What the laboratory would be asked for
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

/// Reports that the laboratory is not part of this program.
pub(crate) fn lab(command: Lab) -> ExitCode {
    let instead = [&[INSTEAD.to_owned()], command.words.as_slice()].concat().join(" ");
    out::errors(&[format!("this program was built without the laboratory; run: {instead}")]);
    ExitCode::from(USAGE)
}
