//! `ringway lab sweep --on`: the Python package `ringway` speaks with the engines of clusters.

use ringway_lab::commands::Failure;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Variable with the program to run instead of [`PYTHON`], such as that of a virtual environment.
const VARIABLE: &str = "RINGWAY_PYTHON";
const PYTHON: &str = "python3";
/// Option without which Python imports modules from the current directory.
const SAFE_PATH: &str = "-P";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Replaces this process by the Python program; returns only if that fails.
pub(crate) fn sweep(arguments: &[&OsStr]) -> Failure {
    let python = std::env::var_os(VARIABLE).unwrap_or_else(|| PYTHON.into());
    let shown = python.to_string_lossy();
    let failed = |what: String| Failure::Failed(vec![what]);
    let probe = "import ringway.sweep; print(ringway.__version__)";
    let probed = Command::new(&python).args([SAFE_PATH, "-c", probe]).stdin(Stdio::null()).output();
    let probed = match probed {
        Ok(probed) => probed,
        Err(error) => {
            return failed(format!(
                "--on needs Python 3.11 or later with the package ringway: {shown}: {error}; {VARIABLE} names \
                 another program (docs/python.md)"
            ));
        }
    };
    if !probed.status.success() {
        let text = String::from_utf8_lossy(&probed.stderr);
        let why = text.trim().lines().last().unwrap_or("no message").to_string();
        return failed(format!(
            "--on needs Python 3.11 or later with the package ringway, which {shown} cannot load: {why}; install it in a \
             clone of the project by `python3 -m venv ENV && ENV/bin/pip install bindings/python`, and set \
             {VARIABLE}=ENV/bin/python (docs/python.md)"
        ));
    }
    let version = String::from_utf8_lossy(&probed.stdout).trim().to_string();
    if version != VERSION {
        return failed(format!(
            "--on: expected version {VERSION} of the package ringway of {shown}, got {version}"
        ));
    }
    let error =
        Command::new(&python).args([SAFE_PATH, "-m", "ringway.sweep"]).args(arguments).exec();
    failed(format!("{shown}: {error}"))
}
