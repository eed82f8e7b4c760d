//! `GET /backup`: the whole store while the server runs.
//!
//! The store's writer opens a read transaction between two commits. A thread reads it and passes
//! chunks to the connection as fast as it accepts them. Registrations continue; until the backup
//! ends, the file grows by the data that they replace.

use super::context::{Context, Shared, blocking, error};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::sync::mpsc::{Sender, channel};

/// Size of a chunk in octets.
const CHUNK: usize = 64 << 10;
/// Maximum number of chunks that wait for the connection.
const CHUNKS: usize = 4;

/// Collects octets into chunks; fails once the connection is closed.
struct Chunks {
    to: Sender<io::Result<Bytes>>,
    buffer: Vec<u8>,
}

impl Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = Bytes::from(std::mem::take(&mut self.buffer));
        self.to.blocking_send(Ok(chunk)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Marks a backup as running. Dropping it allows the next one.
struct BackupGuard(Arc<Context>);

impl BackupGuard {
    fn take(context: &Arc<Context>) -> Option<Self> {
        let taken: &AtomicBool = &context.backing_up;
        (!taken.swap(true, Relaxed)).then(|| BackupGuard(context.clone()))
    }
}

impl Drop for BackupGuard {
    fn drop(&mut self) {
        self.0.backing_up.store(false, Relaxed);
    }
}

pub(super) async fn backup(State(context): Shared) -> Response {
    let Some(turn) = BackupGuard::take(&context) else {
        return error(StatusCode::CONFLICT, "a backup is already running");
    };
    let store = context.monitor.store.clone();
    let snapshot = match blocking(move || store.snapshot()).await {
        Ok(snapshot) => snapshot,
        Err(response) => return response,
    };
    let (to, mut chunks) = channel(CHUNKS);
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let mut out = Chunks { to: to.clone(), buffer: Vec::with_capacity(CHUNK + 1024) };
        if let Err(e) = snapshot.write(&mut out) {
            // Closes the connection before the end of the backup.
            let _ = to.blocking_send(Err(e));
        }
    });
    let stream = futures_util::stream::poll_fn(move |wake| chunks.poll_recv(wake));
    let body = Body::from_stream(stream);
    ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()
}
