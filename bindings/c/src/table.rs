//! What a process knows of its descriptors, by the number of the socket behind each, so that duplicates are one, and a
//! descriptor that was closed and used again is another.
//!
//! A child inherits a copy. What it needs to know of a connection does not change: [`Info`], and of a listener its
//! address.

use crate::fault::Fault;
use crate::options::Request;
use crate::packet::Info;
use rustix::fs::FileType;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors of a process.
const MAX_SOCKETS: usize = 65_536;
/// Entries below which it is not looked for descriptors that the program has closed by itself.
const SWEEP_AT: usize = 64;

/// What a descriptor carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Messages,
    Bytes,
}

/// What a socket is.
pub(crate) enum State {
    /// It is neither connected nor does it listen; the other end is still here.
    New {
        request: Box<Request>,
        end: OwnedFd,
    },
    Connecting,
    Connected(Arc<Info>),
    Listening(SocketAddr),
    /// The connection has failed or is broken.
    Ended,
}

/// A state to look at.
pub(crate) enum View {
    New,
    Connecting,
    Connected(Arc<Info>),
    Listening(SocketAddr),
    Ended,
}

struct Entry {
    kind: Kind,
    state: State,
    /// The error that the next call returns.
    error: Option<Fault>,
    /// Whether the program sends no more.
    is_shut: bool,
}

struct Table {
    entries: BTreeMap<u64, Entry>,
    sweep_at: usize,
}

static TABLE: Mutex<Table> = Mutex::new(Table { entries: BTreeMap::new(), sweep_at: SWEEP_AT });

thread_local! {
    static HELD: RefCell<Option<MutexGuard<'static, Table>>> = const { RefCell::new(None) };
}

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the process is a child of that which has the library's thread.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Returns whether the process is a child of that which has the library's thread.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Reports that the process is a child.
pub(crate) fn become_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Has the table at rest while the process forks.
pub(crate) fn hold() {
    HELD.with(|held| *held.borrow_mut() = Some(table()));
}

/// Undoes [`hold`], in both processes.
pub(crate) fn release() {
    HELD.with(|held| drop(held.borrow_mut().take()));
}

/// Returns the number of the socket behind a descriptor.
pub(crate) fn key(descriptor: BorrowedFd<'_>) -> Result<u64, Fault> {
    let status = rustix::fs::fstat(descriptor)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(Fault::new(libc::ENOTSOCK, "the descriptor is no socket"));
    }
    Ok(status.st_ino)
}

fn unknown() -> Fault {
    Fault::new(libc::ENOTSOCK, "the descriptor is not one of pi_socket")
}

/// Adds a socket of a process.
pub(crate) fn add(descriptor: &OwnedFd, kind: Kind, state: State) -> Result<u64, Fault> {
    let key = key(descriptor.as_fd())?;
    let mut table = table();
    table.sweep();
    if table.entries.len() >= MAX_SOCKETS {
        let text = format!("expected at most {MAX_SOCKETS} sockets");
        return Err(Fault::new(libc::EMFILE, text));
    }
    table.entries.insert(key, Entry { kind, state, error: None, is_shut: false });
    Ok(key)
}

impl Table {
    /// Removes what no descriptor of the process refers to any longer, if there is enough to look.
    fn sweep(&mut self) {
        if self.entries.len() < self.sweep_at {
            return;
        }
        // That of the thread: that of the process shows the first thread's, which may have ended.
        let Ok(folder) = std::fs::read_dir("/proc/thread-self/fd") else { return };
        let open: BTreeSet<u64> = folder
            .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
            .filter_map(|link| {
                link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
            })
            .collect();
        self.entries.retain(|key, entry| {
            // The thread removes these itself, and there is none of the others whose descriptor travels to be accepted.
            let is_served = matches!(entry.state, State::Connecting | State::Connected(_));
            is_served && !is_child() || open.contains(key)
        });
        self.sweep_at = SWEEP_AT.max(2 * self.entries.len());
    }
}

/// Adds a socket that a listener has accepted, in the library's thread.
pub(crate) fn accepted(key: u64, kind: Kind, info: Info) {
    let state = State::Connected(Arc::new(info));
    table().entries.insert(key, Entry { kind, state, error: None, is_shut: false });
}

/// Adds an accepted socket where its process does not know it yet: a child, or the parent after the connection broke.
pub(crate) fn learn(key: u64, kind: Kind, info: Info) {
    let state = State::Connected(Arc::new(info));
    let entry = Entry { kind, state, error: None, is_shut: false };
    let mut table = table();
    table.sweep();
    table.entries.entry(key).or_insert(entry);
}

/// Returns what is known of a socket.
pub(crate) fn view(key: u64) -> Result<(Kind, View), Fault> {
    let table = table();
    let entry = table.entries.get(&key).ok_or_else(unknown)?;
    let view = match &entry.state {
        State::New { .. } => View::New,
        State::Connecting => View::Connecting,
        State::Connected(info) => View::Connected(info.clone()),
        State::Listening(address) => View::Listening(*address),
        State::Ended => View::Ended,
    };
    Ok((entry.kind, view))
}

/// Changes the request of a new socket; `None` if it is not new.
pub(crate) fn change<T>(key: u64, change: impl FnOnce(&mut Request) -> T) -> Option<T> {
    match &mut table().entries.get_mut(&key)?.state {
        State::New { request, .. } => Some(change(request)),
        _ => None,
    }
}

/// Takes the request and the other end of a new socket, which is connecting then; `None` if it is not new.
pub(crate) fn begin(key: u64) -> Option<(Kind, Box<Request>, OwnedFd)> {
    let mut table = table();
    let entry = table.entries.get_mut(&key)?;
    if !matches!(entry.state, State::New { .. }) {
        return None;
    }
    match std::mem::replace(&mut entry.state, State::Connecting) {
        State::New { request, end } => Some((entry.kind, request, end)),
        _ => None,
    }
}

/// Makes a socket new again, for which nothing could be begun.
pub(crate) fn restore(key: u64, request: Box<Request>, end: OwnedFd) {
    if let Some(entry) = table().entries.get_mut(&key) {
        entry.state = State::New { request, end };
    }
}

/// Reports a connection.
pub(crate) fn connected(key: u64, info: Info) {
    if let Some(entry) = table().entries.get_mut(&key) {
        entry.state = State::Connected(Arc::new(info));
    }
}

/// Reports that a socket listens.
pub(crate) fn listening(key: u64, address: SocketAddr) {
    if let Some(entry) = table().entries.get_mut(&key) {
        entry.state = State::Listening(address);
    }
}

/// Reports that a connection is broken.
pub(crate) fn failed(key: u64, fault: Fault) {
    if let Some(entry) = table().entries.get_mut(&key) {
        entry.state = State::Ended;
        entry.error = Some(fault);
    }
}

/// Reports that both directions have ended: nothing more is to be sent, and what was received can still be read.
pub(crate) fn ended(key: u64) {
    if let Some(entry) = table().entries.get_mut(&key) {
        entry.state = State::Ended;
    }
}

/// Has the next call return an error, if there is none already.
pub(crate) fn report(key: u64, fault: Fault) {
    if let Some(entry) = table().entries.get_mut(&key) {
        entry.error.get_or_insert(fault);
    }
}

/// Takes the error of a socket.
pub(crate) fn take_error(key: u64) -> Option<Fault> {
    table().entries.get_mut(&key)?.error.take()
}

/// Remembers that the program sends no more.
pub(crate) fn shut(key: u64) {
    if let Some(entry) = table().entries.get_mut(&key) {
        entry.is_shut = true;
    }
}

/// Returns whether the program sends no more.
pub(crate) fn is_shut(key: u64) -> bool {
    table().entries.get(&key).is_some_and(|entry| entry.is_shut)
}

/// Removes a socket whose descriptors are all closed.
pub(crate) fn remove(key: u64) {
    table().entries.remove(&key);
}
