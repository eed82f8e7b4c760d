//! Connections to management: how many may be open, and how long each may take.
//!
//! A peer that opens connections and sends nothing, or sends one byte at a time, must not exclude
//! others. One connection carries one request, and its head must arrive within [`HEAD_TIMEOUT`].
//! When there are too many connections, the oldest without a request is closed in favour of the
//! next. Some file descriptors are reserved, so that management can be reached when connections of
//! phones have used up the rest.

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;

/// Maximum number of connections at one time to HTTP on TCP, and separately to the control socket.
pub const MAX_CONNECTIONS: usize = 32;
/// Time limit for the arrival of a request's head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// File descriptors reserved for connections on TCP, and as many for the control socket.
pub const RESERVED_FILES: usize = 4;
/// Pause after `accept` failed for a reason that lies with the system.
const PAUSE: Duration = Duration::from_millis(20);

/// Counters; any thread may read them at any time.
#[derive(Default, Debug)]
pub struct ConnectionCounters {
    /// Connections closed in favour of newer ones.
    pub displaced: AtomicU64,
    /// Connections to the control socket from users that may not manage the server.
    pub refused: AtomicU64,
}

/// A listener of connections.
pub(super) trait Accept {
    /// One connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Waits for the next connection; `None` for one whose peer is not allowed.
    fn accept(&self) -> impl Future<Output = io::Result<Option<Self::Stream>>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<TcpStream>> {
        TcpListener::accept(self).await.map(|(stream, _)| Some(stream))
    }
}

/// The control socket: accepts connections of the same user and of root.
pub(super) struct ControlListener {
    pub(super) listener: UnixListener,
    pub(super) counters: Arc<ConnectionCounters>,
}

impl Accept for ControlListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Option<UnixStream>> {
        let (stream, _) = self.listener.accept().await?;
        let peer = stream.peer_cred()?.uid();
        if crate::observe::control::may_manage(peer, nix::unistd::geteuid().as_raw()) {
            return Ok(Some(stream));
        }
        self.counters.refused.fetch_add(1, Relaxed);
        Ok(None)
    }
}

struct Connection {
    task: AbortHandle,
    /// Whether its request has arrived.
    has_request: Arc<AtomicBool>,
}

/// File descriptors that are closed to make room for connections.
struct Reserve(Vec<File>);

impl Reserve {
    /// Opens missing descriptors; each of the `open` connections uses one.
    fn fill(&mut self, open: usize) {
        while self.0.len() + open < RESERVED_FILES {
            match File::open("/dev/null") {
                Ok(file) => self.0.push(file),
                Err(_) => return,
            }
        }
        self.0.truncate(RESERVED_FILES.saturating_sub(open));
    }
}

/// Serves connections until the process ends. `timeout` bounds the lifetime of each.
pub(super) async fn serve(
    listener: impl Accept,
    router: Router,
    timeout: Duration,
    counters: Arc<ConnectionCounters>,
) {
    let mut open: VecDeque<Connection> = VecDeque::new();
    let mut reserve = Reserve(Vec::new());
    reserve.fill(0);
    loop {
        let accepted = listener.accept().await;
        open.retain(|connection| !connection.task.is_finished());
        match accepted {
            Ok(Some(stream)) => {
                if open.len() >= MAX_CONNECTIONS {
                    displace(&mut open, &counters);
                }
                let has_request = Arc::<AtomicBool>::default();
                let task = tokio::spawn(one(stream, router.clone(), timeout, has_request.clone()));
                open.push_back(Connection { task: task.abort_handle(), has_request });
                reserve.fill(open.len());
            }
            Ok(None) => {}
            Err(e) if is_out_of_files(&e) => {
                // Each iteration frees one descriptor: a reserved one, then the oldest connection.
                if reserve.0.pop().is_none() {
                    displace(&mut open, &counters);
                    tokio::time::sleep(PAUSE).await;
                }
            }
            // The peer closed the connection before it was accepted, or the system is short of
            // memory.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn is_out_of_files(e: &io::Error) -> bool {
    use nix::libc::{EMFILE, ENFILE};
    matches!(e.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Closes the oldest connection without a request, or else the oldest.
fn displace(open: &mut VecDeque<Connection>, counters: &ConnectionCounters) {
    let silent = open.iter().position(|connection| !connection.has_request.load(Relaxed));
    if let Some(connection) = open.remove(silent.unwrap_or(0)) {
        connection.task.abort();
        counters.displaced.fetch_add(1, Relaxed);
    }
}

async fn one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    timeout: Duration,
    has_request: Arc<AtomicBool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        has_request.store(true, Relaxed);
        hyper::service::Service::call(&router, request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // An error of the peer ends its connection and concerns no other.
    let _ = tokio::time::timeout(timeout, connection).await;
}
