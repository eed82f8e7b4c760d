//! Questions to a running emulation, on a Unix socket in the runtime directory.
//!
//! A question is one line of JSON, and so is its answer. The socket is for the user of the emulation and for root.

use crate::parameters::{self, Parameter};
use crate::realtime::Asker;
use crate::report::Report;
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum length in octets of a question.
const MAX_QUESTION: u64 = 1 << 19;
/// Maximum length in octets of an answer.
const MAX_ANSWER: u64 = 1 << 28;
/// Maximum number of clients that are served at once. Others wait.
const MAX_CLIENTS: usize = 8;
/// Time in which a client must ask and read, and an emulation must answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the name of a socket ends with.
const SUFFIX: &str = ".sock";

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// The state.
    Status,
    /// A change of parameters.
    Set {
        /// Names and new values.
        parameters: Vec<Parameter>,
    },
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The state.
    Status(Box<Report>),
    /// The parameters have changed.
    Set,
    /// Why nothing has changed, a line each.
    Error(Vec<String>),
}

/// Why an emulation did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is none, or the right to ask it is missing.
    #[error("no emulation answers at {path}: {error}", path = .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What failed.
        error: io::Error,
    },
    /// It did not answer, or not with a line of JSON.
    #[error("{path}: expected a line of JSON, got {got}", path = .path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// What came instead.
        got: String,
    },
    /// No emulation runs.
    #[error("no emulation runs: there is no socket in {path}", path = .path.display())]
    None {
        /// The directory.
        path: PathBuf,
    },
    /// Several run, and none was named.
    #[error("several emulations run, and one must be named (--name): {}", .names.join(", "))]
    Several {
        /// Their names.
        names: Vec<String>,
    },
}

/// Returns the socket of an emulation.
pub fn path(runtime: &Path, name: &str) -> PathBuf {
    runtime.join(format!("{name}{SUFFIX}"))
}

/// Returns the socket of the emulation of this name, or of the only one.
///
/// # Errors
/// [`ControlError::None`] or [`ControlError::Several`].
pub fn find(runtime: &Path, name: Option<&str>) -> Result<PathBuf, ControlError> {
    if let Some(name) = name {
        return Ok(path(runtime, name));
    }
    let entries = std::fs::read_dir(runtime).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(SUFFIX).map(str::to_owned)
    });
    // One that was killed has left its socket behind.
    let answers =
        |name: &String| std::os::unix::net::UnixStream::connect(path(runtime, name)).is_ok();
    let mut names: Vec<String> = names.filter(answers).collect();
    names.sort();
    match names.as_slice() {
        [] => Err(ControlError::None { path: runtime.to_owned() }),
        [name] => Ok(path(runtime, name)),
        _ => Err(ControlError::Several { names }),
    }
}

/// The socket of a running emulation, which is removed in the end.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be gone.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens the socket, and creates the runtime directory. A socket that an emulation has left behind is replaced; one that
/// still answers is an error. To be called within a runtime.
///
/// # Errors
/// The error of mkdir(2) or bind(2), or `AddrInUse`.
pub(crate) fn listen(runtime: &Path, name: &str) -> io::Result<Socket> {
    DirBuilder::new().recursive(true).mode(0o755).create(runtime)?;
    let path = path(runtime, name);
    if std::os::unix::net::UnixStream::connect(&path).is_ok() {
        let text = "another emulation has this name; choose one by --name";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    Ok(Socket { listener, path })
}

/// Accepts clients for ever, and answers their questions.
pub(crate) async fn serve(socket: &Socket, asker: &Asker) {
    let slots = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        // It is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { continue };
        match socket.listener.accept().await {
            Ok((stream, _)) => {
                let asker = asker.clone();
                tokio::spawn(async move {
                    // A client that goes away early loses its answer.
                    let _ = timeout(PATIENCE, answer(stream, &asker)).await;
                    drop(slot);
                });
            }
            // No descriptor is free: somebody else has to close one.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(stream: UnixStream, asker: &Asker) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(MAX_QUESTION)).read_line(&mut line).await?;
    let leaving = || Answer::Error(vec!["the emulation ends".to_owned()]);
    let answer = match serde_json::from_str(&line) {
        Ok(Question::Status) => match asker.report().await {
            Some(report) => Answer::Status(Box::new(report)),
            None => leaving(),
        },
        Ok(Question::Set { parameters }) => match parameters::read(&parameters) {
            Ok(changes) => match asker.set(changes).await {
                Some(Ok(())) => Answer::Set,
                Some(Err(error)) => Answer::Error(vec![error.to_string()]),
                None => leaving(),
            },
            Err(lines) => Answer::Error(lines),
        },
        Err(error) => Answer::Error(vec![format!("expected a question: {error}")]),
    };
    writer.write_all((serde_json::to_string(&answer)? + "\n").as_bytes()).await
}

/// Asks the emulation behind a socket. To be called within a runtime.
///
/// # Errors
/// A [`ControlError`].
pub async fn ask(path: &Path, question: &Question) -> Result<Answer, ControlError> {
    let connect = |error| ControlError::Connect { path: path.to_owned(), error };
    let got = |got: String| ControlError::Answer { path: path.to_owned(), got };
    let mut stream = UnixStream::connect(path).await.map_err(connect)?;
    let text = serde_json::to_string(question).map_err(|error| got(error.to_string()))?;
    stream.write_all(format!("{text}\n").as_bytes()).await.map_err(connect)?;
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(MAX_ANSWER));
    match timeout(PATIENCE, reader.read_line(&mut line)).await {
        Ok(Ok(_)) => serde_json::from_str(&line).map_err(|error| got(error.to_string())),
        Ok(Err(error)) => Err(connect(error)),
        Err(_) => Err(got("nothing for 30 seconds".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_lines_of_json() {
        let set = Question::Set { parameters: vec![("delay".into(), "5ms".into())] };
        let text = serde_json::to_string(&set).unwrap();
        assert_eq!(text, r#"{"command":"set","parameters":[["delay","5ms"]]}"#);
        assert_eq!(serde_json::from_str::<Question>(&text).unwrap(), set);
        assert!(serde_json::from_str::<Question>(r#"{"command":"stop"}"#).is_err());
    }

    #[test]
    fn the_only_emulation_needs_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = folder.path().join("run");
        assert!(matches!(find(&runtime, None), Err(ControlError::None { .. })));
        assert_eq!(find(&runtime, Some("x")).unwrap(), runtime.join("x.sock"));
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = tokio.enter();
        let one = listen(&runtime, "one").unwrap();
        assert_eq!(find(&runtime, None).unwrap(), one.path);
        // Nobody but its user and root may ask.
        let mode = std::fs::metadata(&one.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = listen(&runtime, "one").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        // A name that was left behind is no emulation.
        std::fs::write(runtime.join("dead.sock"), "").unwrap();
        assert_eq!(find(&runtime, None).unwrap(), one.path);
        let two = listen(&runtime, "two").unwrap();
        let error = find(&runtime, None).unwrap_err().to_string();
        assert!(error.ends_with("one, two"), "{error}");
        drop((one, two));
        assert!(matches!(find(&runtime, None), Err(ControlError::None { .. })));
    }
}
