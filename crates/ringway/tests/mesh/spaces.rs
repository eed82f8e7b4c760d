//! Network namespaces, and routers in them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Time within which what is waited for must be.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a program and returns what it prints, or `None` when it fails.
pub(crate) fn output(words: &str) -> Option<String> {
    let mut words = words.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for what is to be.
pub(crate) fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs `ringway`, which must end by itself.
pub(crate) fn ringway(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringway")).args(args).output().unwrap()
}

/// Returns what a program has printed as an error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Network namespaces and the state of routers in them, all of which are removed in the end.
pub(crate) struct Spaces {
    names: &'static [&'static str],
    label: String,
    folder: TempDir,
}

impl Spaces {
    /// Namespaces of these names, with the loopback interface up; `None` where the system allows none.
    pub(crate) fn new(test: &str, names: &'static [&'static str]) -> Option<Spaces> {
        let label = format!("{}{test}", std::process::id());
        let spaces = Spaces { names, label, folder: tempfile::tempdir().unwrap() };
        let is_made = |name: &&str| {
            let name = spaces.name(name);
            output(&format!("ip netns add {name}")).is_some()
                && output(&format!("ip -n {name} link set lo up")).is_some()
        };
        if !names.iter().all(is_made) {
            eprintln!("no namespace to be had");
            return None;
        }
        if output(&format!("ip -n {} tuntap add probe mode tun", spaces.name(names[0]))).is_none() {
            eprintln!("no TUN device to be had");
            return None;
        }
        Some(spaces)
    }

    /// Returns the system's name of a namespace.
    pub(crate) fn name(&self, node: &str) -> String {
        format!("rw{}{node}", self.label)
    }

    /// Runs `ip` in a namespace and returns what it prints.
    pub(crate) fn ip(&self, node: &str, words: &str) -> String {
        let words = format!("ip -n {} {words}", self.name(node));
        output(&words).unwrap_or_else(|| panic!("{words} fails"))
    }

    /// Runs a program in a namespace and returns what it prints, or `None` when it fails.
    pub(crate) fn run(&self, node: &str, words: &str) -> Option<String> {
        output(&format!("ip netns exec {} {words}", self.name(node)))
    }

    /// Connects the namespaces in a line: `right` of each to `left` of the next.
    pub(crate) fn connect(&self) {
        for pair in self.names.windows(2) {
            let peer = self.name(pair[1]);
            self.ip(pair[0], &format!("link add name right type veth peer name left netns {peer}"));
            self.ip(pair[0], "link set right up");
            self.ip(pair[1], "link set left up");
        }
    }

    /// Returns the state directory of the router in a namespace.
    pub(crate) fn state(&self, node: &str) -> PathBuf {
        self.folder.path().join(node)
    }

    /// Starts a router, with more arguments.
    pub(crate) fn start(&self, node: &str, args: &str) -> Router {
        self.start_with(node, args, &[])
    }

    /// Starts a router, with more arguments and an environment.
    pub(crate) fn start_with(
        &self,
        node: &str,
        args: &str,
        environment: &[(&str, &str)],
    ) -> Router {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(node), env!("CARGO_BIN_EXE_ringway")]);
        command.args(["mesh", "run", "--tun", node, "--state"]).arg(self.state(node));
        command.args(args.split_whitespace()).envs(environment.iter().copied());
        Router::start(command, &self.state(node))
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in self.names {
            let _ = output(&format!("ip netns del {}", self.name(name)));
        }
    }
}

/// A router that runs. It is killed with this value.
pub(crate) struct Router {
    child: Child,
    state: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Router {
    fn start(mut command: Command, state: &Path) -> Router {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = lines.clone();
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                eprintln!("{line}");
                log.lock().unwrap().push(line);
            }
        });
        Router { child, state: state.to_owned(), lines }
    }

    /// Waits for a line that contains `text`.
    pub(crate) fn logs(&self, text: &str) {
        wait(text, || {
            self.lines.lock().unwrap().iter().any(|line| line.contains(text)).then_some(())
        });
    }

    /// Returns how many lines contain `text`.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| line.contains(text)).count()
    }

    /// Runs a command about this router.
    pub(crate) fn ask(&self, words: &str) -> Output {
        let state = self.state.to_str().unwrap();
        let words: Vec<&str> = words.split(' ').chain(["--state", state]).collect();
        ringway(&[&["mesh"], &words[..]].concat())
    }

    /// Returns the JSON that a command about this router prints.
    pub(crate) fn json(&self, words: &str) -> Value {
        let output = self.ask(&format!("{words} --json"));
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{words}: {error}: {}", errors(&output));
        })
    }

    /// Returns the router's process; it was executed by `ip`, so it is the child itself.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns a field of the process's status (proc(5)).
    pub(crate) fn field(&self, name: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').trim().to_owned()
    }

    /// Asks the router to end, and returns whether it ended well.
    pub(crate) fn stop(mut self) -> bool {
        output(&format!("kill -TERM {}", self.process())).unwrap();
        self.child.wait().unwrap().success()
    }

    /// Returns the exit status of a router that does not start.
    pub(crate) fn fails(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
