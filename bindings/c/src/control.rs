//! The way from the program's threads to that of the library: a queue of commands, and a socket that announces each and
//! carries its descriptor.

use crate::fault::Fault;
use crate::options::Request;
use crate::packet::{receive, send};
use crate::table::{Kind, key};
use crate::{runtime, system, table};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the answer to a command goes.
pub(crate) type Reply<T> = SyncSender<Result<T, Fault>>;

/// What the thread is to do.
pub(crate) enum Command {
    Connect {
        key: u64,
        kind: Kind,
        request: Box<Request>,
    },
    Listen {
        key: u64,
        kind: Kind,
        request: Box<Request>,
        reply: Reply<SocketAddr>,
    },
    /// Adds a connection to the group of another one.
    Stream {
        of: u64,
        key: u64,
        kind: Kind,
    },
    Set {
        key: u64,
        name: String,
        value: String,
        reply: Reply<()>,
    },
    Get {
        key: u64,
        name: Question,
        reply: Reply<String>,
    },
    Abort {
        key: u64,
        reply: Reply<()>,
    },
    /// Carries what programs have written, and ends.
    Exit,
}

/// What can be asked of a connection.
pub(crate) enum Question {
    Property(String),
    Explanation,
}

struct Control {
    /// The socket, and its number, by which it is noticed when the program has closed it.
    socket: Option<(OwnedFd, u64)>,
    queue: VecDeque<Command>,
    thread: Option<JoinHandle<()>>,
}

static CONTROL: Mutex<Control> =
    Mutex::new(Control { socket: None, queue: VecDeque::new(), thread: None });
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, Control>>> = const { RefCell::new(None) };
}

fn control() -> MutexGuard<'static, Control> {
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has what threads share at rest while the process forks.
extern "C" fn before_fork() {
    table::hold();
    HELD.with(|held| *held.borrow_mut() = Some(control()));
}

extern "C" fn in_parent() {
    HELD.with(|held| drop(held.borrow_mut().take()));
    table::release();
}

/// A child has no thread, and must not start another, because the locks of the transports are as they were at that moment.
extern "C" fn in_child() {
    HELD.with(|held| {
        if let Some(mut control) = held.borrow_mut().take() {
            // It was of the parent, and joining it would wait for ever.
            std::mem::forget(control.thread.take());
            control.socket = None;
            table::become_child();
        }
    });
    table::release();
}

extern "C" fn at_exit() {
    // A panic must not reach the C library.
    let _ = std::panic::catch_unwind(exit);
}

impl Control {
    fn start(&mut self) -> Result<(), Fault> {
        let failed = |what: &str, error: Errno| {
            Fault::new(error.raw_os_error(), format!("the thread of the library: {what}: {error}"))
        };
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| failed("a pair of sockets", error))?;
        let number = key(here.as_fd())?;
        let copy = there.as_raw_fd();
        let (ready, is_ready) = sync_channel(1);
        let thread = std::thread::Builder::new().name("ringway-pi".into());
        let thread = thread.spawn(move || runtime::run(there, ready)).map_err(|error| {
            Fault::new(error.raw_os_error().unwrap_or(libc::EAGAIN), error.to_string())
        })?;
        is_ready.recv().unwrap_or(Err(Errno::NOMEM)).map_err(|error| failed("starting", error))?;
        // The thread has its own now.
        system::close_copy(copy);
        system::at_fork_and_exit(before_fork, in_parent, in_child, at_exit);
        self.thread = Some(thread);
        self.socket = Some((here, number));
        Ok(())
    }
}

/// Hands a command to the thread, which is started by the first.
pub(crate) fn post(command: Command, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Fault> {
    if table::is_child() {
        let text = "the transports are the parent's; a child may send, receive, accept and close";
        return Err(Fault::new(libc::EOPNOTSUPP, text));
    }
    if HAS_ENDED.load(Ordering::Relaxed) {
        return Err(Fault::new(libc::ESHUTDOWN, "the process is ending"));
    }
    let mut control = control();
    if control.socket.is_none() {
        control.start()?;
    }
    let Control { socket, queue, .. } = &mut *control;
    let closed = || Fault::new(libc::ESHUTDOWN, "the program has closed the library's descriptor");
    let (socket, number) = socket.as_ref().ok_or_else(closed)?;
    if key(socket.as_fd()).ok() != Some(*number) {
        return Err(closed());
    }
    queue.push_back(command);
    let sent = send(socket.as_fd(), &[IoSlice::new(&[0])], descriptor, SendFlags::empty());
    if sent.is_err() {
        queue.pop_back();
    }
    sent.map(|_| ()).map_err(Fault::from)
}

/// Hands over a command that is answered, and waits for the answer.
pub(crate) fn ask<T>(
    command: impl FnOnce(Reply<T>) -> Command,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<T, Fault> {
    let (reply, answer): (_, Receiver<Result<T, Fault>>) = sync_channel(1);
    post(command(reply), descriptor)?;
    let ended = || Fault::new(libc::ESHUTDOWN, "the thread of the library has ended");
    answer.recv().map_err(|_| ended())?
}

/// Takes the next command, in the library's thread, with the descriptor that came with it; `None` when there will be
/// none.
pub(crate) fn take(socket: BorrowedFd<'_>) -> Result<Option<(Command, Option<OwnedFd>)>, Errno> {
    let mut octet = [0];
    let received = receive(socket, &mut [IoSliceMut::new(&mut octet)], RecvFlags::DONTWAIT)?;
    let command = if received.octets == 0 { None } else { control().queue.pop_front() };
    Ok(command.map(|command| (command, received.attached)))
}

/// Ends the thread, behind what the program has written.
fn exit() {
    if table::is_child() || post(Command::Exit, None).is_err() {
        return;
    }
    HAS_ENDED.store(true, Ordering::Relaxed);
    let thread = control().thread.take();
    // It takes at most LINGER, twice.
    let end = std::time::Instant::now() + Duration::from_secs(12);
    if let Some(thread) = thread {
        while !thread.is_finished() && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}
