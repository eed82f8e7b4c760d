//! Writes man pages and shell completions, derived from the command line, into a folder:
//!
//! ```text
//! cargo run -p ringway --example documents -- FOLDER
//! FOLDER/man/ringway.1, ringway-serve.1, ...    FOLDER/completions/ringway.bash, _ringway, ringway.fish
//! ```

use clap_complete::{Shell, generate_to};
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The name of the program.
const NAME: &str = "ringway";

fn write(folder: &Path) -> io::Result<()> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    std::fs::create_dir_all(&man)?;
    std::fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(ringway::command(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut ringway::command(), NAME, &completions)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: documents FOLDER");
        return ExitCode::from(2);
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
