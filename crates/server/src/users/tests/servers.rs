//! Servers of databases that a test starts, each on a port of its own.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where Debian has PostgreSQL.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// Returns a port at which nobody listens.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// PostgreSQL, which does not run as root.
pub(super) struct Postgres {
    dir: TempDir,
    port: u16,
    server: Child,
}

impl Postgres {
    /// Starts a server without any table.
    pub(super) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings.
    pub(super) fn start_with(settings: &[&str]) -> Self {
        Self::start_as("UTF8", settings)
    }

    /// The same, with an encoding of its databases.
    pub(super) fn start_encoded(encoding: &str) -> Self {
        Self::start_as(encoding, &[])
    }

    fn start_as(encoding: &str, settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if nix::unistd::geteuid().is_root() {
            let postgres = nix::unistd::User::from_name("postgres").unwrap().unwrap();
            std::os::unix::fs::chown(dir.path(), Some(postgres.uid.as_raw()), None).unwrap();
        }
        let data = dir.path().join("data");
        let made = as_postgres(&format!("{PROGRAMS}/initdb"))
            .args([
                "-A",
                "trust",
                "-U",
                "postgres",
                "-E",
                encoding,
                "--locale=C",
                "--no-sync",
                "-D",
            ])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(made.success());
        let port = free_port();
        let server = as_postgres(&format!("{PROGRAMS}/postgres"))
            .args(["-c", "fsync=off", "-c", "max_connections=40", "-h", "127.0.0.1", "-k", ""])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .args(["-p", &port.to_string(), "-D"])
            .arg(&data)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let postgres = Postgres { dir, port, server };
        wait_for("PostgreSQL", || postgres.psql("SELECT 1").wait().unwrap().success());
        postgres
    }

    /// Returns the section of the configuration, with further keys.
    pub(super) fn section(&self, more: &str) -> String {
        format!(
            "[users]\nsource = \"postgresql://postgres@127.0.0.1:{}/postgres\"\n{more}",
            self.port
        )
    }

    /// Returns its port.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn command(&self, sql: &str) -> Command {
        let mut command = Command::new("psql");
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-X", "-q", "-A", "-t"]);
        command.args(["-v", "ON_ERROR_STOP=1", "-p", &self.port.to_string(), "-c", sql]);
        command.stderr(Stdio::null());
        command
    }

    /// Begins statements.
    pub(super) fn psql(&self, sql: &str) -> Child {
        self.command(sql).stdout(Stdio::null()).spawn().unwrap()
    }

    /// Carries out statements.
    pub(super) fn run(&self, sql: &str) {
        assert!(self.psql(sql).wait().unwrap().success(), "{sql}");
    }

    /// Returns what a statement prints.
    pub(super) fn value(&self, sql: &str) -> String {
        String::from_utf8(self.command(sql).output().unwrap().stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.server.id() as i32);
        // It ends its connections at once.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT);
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(self.dir.path());
    }
}

fn as_postgres(program: &str) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--", program]);
    command.current_dir("/");
    command
}

/// Redis, in memory only.
pub(super) struct Redis {
    port: u16,
    server: Child,
}

impl Redis {
    /// Starts an empty server.
    pub(super) fn start() -> Self {
        let port = free_port();
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
            .current_dir(PathBuf::from("/"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("Redis", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Redis { port, server }
    }

    /// Carries out a command.
    pub(super) fn cli(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        let output = command.args(["-e", "-p", &self.port.to_string()]).args(words).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Returns the store.
    pub(super) fn uri(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
