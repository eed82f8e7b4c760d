//! `ringway lab` of a program built without the laboratory: reports how to run one that has it.

use crate::out;
use clap::Args;
use std::process::ExitCode;

/// Exit status of a command that this program does not have.
const USAGE: u8 = 2;
/// Command to run instead, in a checkout.
const INSTEAD: &str = "cargo run --release --locked -p ringway -- lab";

#[derive(Args)]
pub(crate) struct Lab {
    /// What the laboratory would be asked for
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    words: Vec<String>,
}

/// Reports that this program was built without the laboratory.
pub(crate) fn lab(command: Lab) -> ExitCode {
    let instead = [&[INSTEAD.to_owned()], command.words.as_slice()].concat().join(" ");
    out::errors(&[format!("this program was built without the laboratory; run: {instead}")]);
    ExitCode::from(USAGE)
}
