//! The program `ringway`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringway::run()
}
