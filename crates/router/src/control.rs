//! Questions to a running router, on a Unix socket.
//!
//! A question is one line of JSON, and so is its answer. The socket is for the user of the router and for root.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

/// Maximum length in octets of a question.
const MAX_QUESTION: u64 = 4_096;
/// Questions that are being answered at once.
const MAX_CLIENTS: usize = 32;
/// Time in which a client must ask, and a router must answer.
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
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub question: Question,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Value>,
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
    #[error("{path}: expected one line of JSON, got {got}", path = .path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What came instead.
        got: String,
    },
}

/// Returns the socket of the router with this TUN device.
pub fn path(tun: &str) -> PathBuf {
    let runtime = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let directory = match runtime("RUNTIME_DIRECTORY").or_else(|| runtime("XDG_RUNTIME_DIR")) {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from("/run"),
    };
    directory.join(format!("ringway-mesh-{tun}.sock"))
}

/// Opens the socket. One that a router has left behind is replaced; one that still answers is an error.
///
/// # Errors
/// The error of bind(2), or `AddrInUse`.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        let text = format!("another router uses {}", path.display());
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
pub async fn serve(listener: UnixListener, questions: mpsc::Sender<Asked>) {
    let slots = std::sync::Arc::new(tokio::sync::Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let questions = questions.clone();
                tokio::spawn(async move {
                    // A client that goes away early loses its answer.
                    let _ = tokio::time::timeout(PATIENCE, answer(stream, questions)).await;
                    drop(slot);
                });
            }
            // No descriptor is free: somebody else has to close one.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(stream: UnixStream, questions: mpsc::Sender<Asked>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(MAX_QUESTION)).read_line(&mut line).await?;
    let text = match serde_json::from_str(&line) {
        Ok(question) => {
            let (answer, answered) = oneshot::channel();
            let _ = questions.send(Asked { question, answer }).await;
            answered.await.unwrap_or_else(|_| fault("the router is leaving"))
        }
        Err(error) => fault(&format!("expected a question: {error}")),
    };
    writer.write_all(format!("{text}\n").as_bytes()).await
}

fn fault(text: &str) -> Value {
    serde_json::json!({ "error": text })
}

/// Asks the router behind a socket.
///
/// # Errors
/// A [`ControlError`].
pub async fn ask(path: &Path, question: &Question) -> Result<Value, ControlError> {
    let connect = |error| ControlError::Connect { path: path.to_owned(), error };
    let got = |got: String| ControlError::Answer { path: path.to_owned(), got };
    let mut stream = UnixStream::connect(path).await.map_err(connect)?;
    let line = serde_json::to_string(question).map_err(|error| got(error.to_string()))?;
    stream.write_all(format!("{line}\n").as_bytes()).await.map_err(connect)?;
    let mut text = String::new();
    let reading = stream.read_to_string(&mut text);
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(connect(error)),
        Err(_) => return Err(got("nothing for 30 seconds".to_owned())),
    }
    serde_json::from_str(&text).map_err(|error| got(error.to_string()))
}
