//! Connections to management: how many there may be, how long each may take.
//!
//! A peer that opens connections and says nothing, or says it a byte at a time, must not keep others
//! out: one connection carries one request, its head has to come within [`HEAD_WITHIN`], and when
//! there are too many, the oldest that has asked nothing yet is closed in favour of the next. Some
//! file descriptors are set aside, so that management can be reached when connections of phones have
//! used up the rest.

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

/// Connections at one time by HTTP on TCP, and as many by the control socket.
pub const MAX_CONNECTIONS: usize = 32;
/// How long the head of a request may take to come.
pub const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// File descriptors that are set aside for connections by TCP, and as many for the control socket.
pub const SET_ASIDE: usize = 4;
/// Pause after the system has refused a connection for another reason than the peer's.
const PAUSE: Duration = Duration::from_millis(20);

/// What is counted; read by anyone at any time.
#[derive(Default, Debug)]
pub struct ConnectionCounters {
    /// Connections closed in favour of newer ones.
    pub displaced: AtomicU64,
    /// Connections to the control socket by users that may not manage the server.
    pub refused: AtomicU64,
}

/// Where connections come in.
pub(super) trait Accept {
    /// One connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Waits for the next one; `None` for one that may not speak to us.
    fn accept(&self) -> impl Future<Output = io::Result<Option<Self::Stream>>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<TcpStream>> {
        TcpListener::accept(self).await.map(|(stream, _)| Some(stream))
    }
}

/// The control socket: connections of the same user and of root.
pub(super) struct Own {
    pub(super) listener: UnixListener,
    pub(super) counters: Arc<ConnectionCounters>,
}

impl Accept for Own {
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
    /// Whether its request has come.
    asked: Arc<AtomicBool>,
}

/// Placeholders that are closed to make room for connections.
struct Reserve(Vec<File>);

impl Reserve {
    /// Opens what is missing, beside `open` connections.
    fn fill(&mut self, open: usize) {
        while self.0.len() + open < SET_ASIDE {
            match File::open("/dev/null") {
                Ok(file) => self.0.push(file),
                Err(_) => return,
            }
        }
        self.0.truncate(SET_ASIDE.saturating_sub(open));
    }
}

/// Serves connections for ever. `within` bounds the whole life of each.
pub(super) async fn serve(
    listener: impl Accept,
    router: Router,
    within: Duration,
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
                let asked = Arc::<AtomicBool>::default();
                let task = tokio::spawn(one(stream, router.clone(), within, asked.clone()));
                open.push_back(Connection { task: task.abort_handle(), asked });
                reserve.fill(open.len());
            }
            Ok(None) => {}
            Err(e) if is_out_of_files(&e) => {
                // Each round frees one: a placeholder, then the oldest connection.
                if reserve.0.pop().is_none() {
                    displace(&mut open, &counters);
                    tokio::time::sleep(PAUSE).await;
                }
            }
            // The peer has gone before it was accepted, or the system is short of memory.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn is_out_of_files(e: &io::Error) -> bool {
    use nix::libc::{EMFILE, ENFILE};
    matches!(e.raw_os_error(), Some(EMFILE | ENFILE))
}

/// Closes the oldest connection that has asked nothing, or else the oldest.
fn displace(open: &mut VecDeque<Connection>, counters: &ConnectionCounters) {
    let silent = open.iter().position(|connection| !connection.asked.load(Relaxed));
    if let Some(connection) = open.remove(silent.unwrap_or(0)) {
        connection.task.abort();
        counters.displaced.fetch_add(1, Relaxed);
    }
}

async fn one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    within: Duration,
    asked: Arc<AtomicBool>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        asked.store(true, Relaxed);
        hyper::service::Service::call(&router, request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A peer's mistake ends its connection; nobody else needs to know.
    let _ = tokio::time::timeout(within, connection).await;
}
