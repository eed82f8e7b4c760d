//! `ringway with`: an unmodified program over another transport.

use crate::out;
use clap::Args;
use ringway_with::Services;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

/// Exit status of wrong usage.
const USAGE: u8 = 2;

#[derive(Args)]
pub(crate) struct With {
    /// Services of the program's connections: NAME is preferred, require:NAME, avoid:NAME and prohibit:NAME say how
    /// much it is wanted, NAME=VALUE sets any property; such as multihoming
    #[arg(required = true, value_name = "SERVICE")]
    services: Vec<String>,
    /// Print which protocol carries each connection, and why
    #[arg(long)]
    explain: bool,
    /// Carry the program's UDP datagrams, too
    #[arg(long)]
    datagrams: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs a program. Its exit status is that of the command.
pub(crate) fn with(command: With) -> ExitCode {
    let With { services, explain, datagrams, program } = command;
    let services = Services::read(&services).and_then(|services| {
        if datagrams {
            services.check_datagrams()?;
        }
        Ok(services)
    });
    let services = match services {
        Ok(services) => services,
        Err(error) => {
            out::errors(&error.to_string().lines().map(str::to_owned).collect::<Vec<_>>());
            return ExitCode::from(USAGE);
        }
    };
    let with = ringway_with::With { services, program, explain, datagrams };
    match ringway_with::run(&with, Arc::new(|line: &str| out::note(line))) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            out::errors(&[error.to_string()]);
            ExitCode::from(error.status())
        }
    }
}
