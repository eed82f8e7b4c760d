//! Network namespaces, children and signals for the tests of this crate.
#![allow(unsafe_code, dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod relay;

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Set in the process that runs in a namespace.
const INSIDE: &str = "RINGWAY_TEST_INSIDE";

/// Whether duplicate addresses are looked for, in the namespace of the thread.
const DAD: &str = "/proc/sys/net/ipv6/conf/default/accept_dad";

/// Runs the named test of this file again, in a process with its own network namespace. Returns whether this is
/// that process. Where the system allows no namespace the test does nothing.
pub fn inside_a_namespace(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        // Addresses are usable at once.
        std::fs::write(DAD, "0").unwrap();
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    // SAFETY: no precondition.
    let map = format!("0 {} 1", unsafe { libc::geteuid() });
    // SAFETY: between fork and exec only system calls are made, with memory allocated before.
    unsafe {
        command.pre_exec(move || {
            let done = libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) == 0 && {
                // Root in the namespace, so that exec keeps the capability to configure interfaces.
                let file = libc::open(c"/proc/self/uid_map".as_ptr(), libc::O_WRONLY);
                libc::write(file, map.as_ptr().cast(), map.len()) == map.len() as isize
            };
            if done { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
    match command.status() {
        Ok(status) => assert!(status.success(), "{test} failed inside"),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("no namespace to be had: {error}");
        }
        Err(error) => panic!("cannot run {test} inside: {error}"),
    }
    false
}

/// Runs `ip` with these arguments and returns what it prints.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A task for the thread of a namespace.
type Task = Box<dyn FnOnce() + Send>;

/// A second network namespace: that of a thread, which ends with this value.
pub struct Namespace {
    tasks: Sender<Task>,
    /// The thread, as the kernel numbers it.
    pub thread: i32,
}

impl Namespace {
    /// Starts a thread in a new namespace. Addresses in it are usable at once.
    pub fn new() -> Namespace {
        let (tasks, queue) = channel::<Task>();
        let (started, thread) = channel();
        std::thread::spawn(move || {
            // SAFETY: no precondition.
            let made = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(made, 0, "{}", io::Error::last_os_error());
            std::fs::write(DAD, "0").unwrap();
            // SAFETY: no precondition.
            started.send(unsafe { libc::gettid() }).unwrap();
            for task in queue {
                task();
            }
        });
        Namespace { tasks, thread: thread.recv().unwrap() }
    }

    /// Runs a function in the namespace and returns its result.
    pub fn run<R: Send + 'static>(&self, f: impl FnOnce() -> R + Send + 'static) -> R {
        let (done, result) = channel();
        self.tasks.send(Box::new(move || done.send(f()).unwrap())).unwrap();
        result.recv().unwrap()
    }

    /// Connects the caller's namespace with this one by a link, whose two ends are up.
    pub fn connect(&self, here: &'static str, there: &'static str) {
        ip(&format!("link add {here} type veth peer name {there} netns {}", self.thread));
        ip(&format!("link set {here} up"));
        self.run(move || ip(&format!("link set {there} up")));
    }
}

/// A child process that has all descriptors of this one and does nothing. It ends with this value, or by itself.
pub struct Child(libc::pid_t);

impl Child {
    /// Forks a child that lives for some seconds.
    pub fn fork(seconds: i64) -> Child {
        let time = libc::timespec { tv_sec: seconds, tv_nsec: 0 };
        // SAFETY: the child makes only system calls, which are permitted after a fork of a process with threads.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::nanosleep(&raw const time, std::ptr::null_mut());
                libc::_exit(0);
            }
            child
        };
        assert!(child > 0, "{}", io::Error::last_os_error());
        Child(child)
    }

    /// Waits until it has ended.
    pub fn wait(&self) {
        // SAFETY: no precondition; the status is of no interest.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: no precondition. Until it is waited for, its number is that of no other process.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        self.wait();
    }
}

/// Signals that were handled.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handle(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Signals to every thread of the process, whose handler does not have system calls restarted.
pub struct Storm {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Storm {
    /// Begins.
    pub fn start() -> Storm {
        for signal in [libc::SIGALRM, libc::SIGUSR1] {
            // SAFETY: all octets of the structure may be zero; the handler only adds to an atomic number.
            let result = unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handle as extern "C" fn(libc::c_int) as libc::sighandler_t;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut())
            };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                signal_all();
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        Storm { stop, thread: Some(thread) }
    }

    /// Ends, and returns how many signals were handled.
    pub fn end(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        HANDLED.load(Ordering::Relaxed)
    }
}

/// Sends a signal to the process and one to each of its threads.
fn signal_all() {
    let process = std::process::id() as libc::pid_t;
    // SAFETY: no precondition; a thread that has ended meanwhile is an error of the call.
    unsafe { libc::kill(process, libc::SIGALRM) };
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let thread: libc::pid_t = task.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
    }
}
