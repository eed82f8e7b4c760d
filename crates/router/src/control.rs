//! Questions to a running router, on a Unix socket in its state directory.
//!
//! A question is one line of JSON. So is the answer, and an answer to a ping or a trace is a line for each step. The
//! socket is for the user of the router and for root.

use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ringway_mesh::session::{ProbeOutcome, ProbeRefused};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::probes;

/// Name of the socket in the state directory.
const SOCKET: &str = "control";
/// Maximum length in octets of a question.
const MAX_QUESTION: u64 = 4_096;
/// Maximum number of clients that are served at once. Others wait.
const MAX_CLIENTS: usize = 32;
/// Maximum number of them that ping or trace, which takes long. Others are refused.
pub const MAX_PROBING: usize = 8;
/// Time in which a client must ask and read, and a router must answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// The router as a whole.
    Status,
    /// The neighbours.
    Peers,
    /// The part of the ring that the router knows.
    Ring,
    /// Whether a router answers, and how soon.
    Ping {
        /// An address of its network.
        destination: Ipv6Addr,
        /// How many times.
        count: u16,
    },
    /// Which routers are on the way to a router.
    Trace {
        /// An address of its network.
        destination: Ipv6Addr,
    },
}

/// What the router can show of itself at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// [`Question::Status`].
    Status,
    /// [`Question::Peers`].
    Peers,
    /// [`Question::Ring`].
    Ring,
}

/// What the router is asked for, and where the answer goes. Nobody may be there for it any more.
#[derive(Debug)]
pub(crate) enum Request {
    /// A view.
    Show(View, oneshot::Sender<Value>),
    /// A probe.
    Probe {
        /// An address of the router's network that is probed.
        destination: Ipv6Addr,
        /// Maximum number of links; 0 is as many as there are.
        hop_limit: u8,
        /// Where the outcome goes.
        answer: oneshot::Sender<Result<ProbeOutcome, ProbeRefused>>,
    },
}

/// The router, for tasks that ask it.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) requests: mpsc::Sender<Request>,
    /// How many clients were refused because others ping or trace.
    pub(crate) refused: Arc<AtomicU64>,
}

impl Asker {
    /// Returns a view of the router, or `None` if it leaves.
    pub(crate) async fn show(&self, view: View) -> Option<Value> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(Request::Show(view, answer)).await.ok()?;
        answered.await.ok()
    }
}

/// Why a router did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no router, or the right to ask it is missing.
    #[error("no router answers at {path}: {error}", path = .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What failed.
        error: io::Error,
    },
    /// It did not answer, or not with JSON.
    #[error("{path}: expected lines of JSON, got {got}", path = .path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What came instead.
        got: String,
    },
}

/// Returns the socket of the router with this state directory.
pub fn path(state: &Path) -> PathBuf {
    state.join(SOCKET)
}

/// Opens the socket. One that a router has left behind is replaced; one that still answers is an error.
///
/// # Errors
/// The error of bind(2), or `AddrInUse`.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let text = "another router uses this state directory";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, mode)?;
    Ok(listener)
}

/// Accepts clients for ever, and passes their questions on.
pub(crate) async fn serve(listener: UnixListener, asker: Asker) {
    let slots = Arc::new(Semaphore::new(MAX_CLIENTS));
    let probing = Arc::new(Semaphore::new(MAX_PROBING));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (asker, probing) = (asker.clone(), probing.clone());
                tokio::spawn(async move {
                    // A client that goes away early loses its answer.
                    let _ = answer(stream, &asker, &probing).await;
                    drop(slot);
                });
            }
            // No descriptor is free: somebody else has to close one.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(stream: UnixStream, asker: &Asker, probing: &Semaphore) -> io::Result<()> {
    let (reader, writer) = stream.into_split();
    let mut client = Client { writer };
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MAX_QUESTION));
    timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let view = match serde_json::from_str(&line) {
        Ok(Question::Status) => View::Status,
        Ok(Question::Peers) => View::Peers,
        Ok(Question::Ring) => View::Ring,
        Ok(question @ (Question::Ping { .. } | Question::Trace { .. })) => {
            let Ok(_slot) = probing.try_acquire() else {
                asker.refused.fetch_add(1, Relaxed);
                return client
                    .fault(&format!("{MAX_PROBING} pings and traces are under way"))
                    .await;
            };
            return match question {
                Question::Ping { destination, count } => {
                    probes::ping(asker, destination, count, &mut client).await
                }
                Question::Trace { destination } => {
                    probes::trace(asker, destination, &mut client).await
                }
                _ => Ok(()),
            };
        }
        Err(error) => return client.fault(&format!("expected a question: {error}")).await,
    };
    match asker.show(view).await {
        Some(value) => client.write(&value).await,
        None => client.fault(LEAVING).await,
    }
}

/// The answer of a router that ends.
pub(crate) const LEAVING: &str = "the router is leaving";

/// A client that reads its answer.
#[derive(Debug)]
pub(crate) struct Client {
    writer: OwnedWriteHalf,
}

impl Client {
    /// Writes a line.
    ///
    /// # Errors
    /// The client is gone, or does not read.
    pub(crate) async fn write(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value)? + "\n";
        timeout(PATIENCE, self.writer.write_all(text.as_bytes())).await?
    }

    /// Writes why there is no answer.
    ///
    /// # Errors
    /// The client is gone, or does not read.
    pub(crate) async fn fault(&mut self, text: &str) -> io::Result<()> {
        self.write(&serde_json::json!({ "error": text })).await
    }
}

/// Asks the router behind a socket, and hands each line of its answer to `line`.
///
/// # Errors
/// A [`ControlError`].
pub async fn ask(
    path: &Path,
    question: &Question,
    mut line: impl FnMut(Value),
) -> Result<(), ControlError> {
    let connect = |error| ControlError::Connect { path: path.to_owned(), error };
    let got = |got: String| ControlError::Answer { path: path.to_owned(), got };
    let mut stream = UnixStream::connect(path).await.map_err(connect)?;
    let text = serde_json::to_string(question).map_err(|error| got(error.to_string()))?;
    stream.write_all(format!("{text}\n").as_bytes()).await.map_err(connect)?;
    let mut lines = BufReader::new(stream).lines();
    let mut is_empty = true;
    loop {
        match timeout(PATIENCE, lines.next_line()).await {
            Ok(Ok(Some(text))) => {
                is_empty = false;
                line(serde_json::from_str(&text).map_err(|error| got(error.to_string()))?);
            }
            Ok(Ok(None)) if is_empty => return Err(got("nothing".to_owned())),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(connect(error)),
            Err(_) => return Err(got("nothing for 30 seconds".to_owned())),
        }
    }
}
