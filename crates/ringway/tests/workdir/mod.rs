//! A working directory of one test, in which the program runs.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) struct Workdir {
    dir: tempfile::TempDir,
}

impl Workdir {
    pub(crate) fn new() -> Self {
        Workdir { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the program without environment variables, with its state in the directory.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("XDG_STATE_HOME", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program, which must end with that status; returns standard output and standard
    /// error.
    pub(crate) fn ends(&self, status: i32, args: &[&str]) -> (String, String) {
        let Output { status: got, stdout, stderr } = self.command(args).output().unwrap();
        let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert_eq!(got.code(), Some(status), "{args:?}\n{out}\n{err}");
        (out, err)
    }
}
