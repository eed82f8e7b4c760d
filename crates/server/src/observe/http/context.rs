//! State and responses that the handlers of requests share.

use crate::observe::Monitor;
use crate::users::shared::{MAX_CHANGES, MAX_PRUNES};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ringway_sansio::Time;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// State that every handler needs.
pub(super) struct Context {
    pub(super) monitor: Arc<Monitor>,
    pub(super) now: Box<dyn Fn() -> Time + Send + Sync>,
    /// Whether a backup is running; only one runs at a time.
    pub(super) backing_up: AtomicBool,
}

pub(super) type Shared = State<Arc<Context>>;

pub(super) fn error(status: StatusCode, what: &str) -> Response {
    (status, Json(serde_json::json!({ "error": what }))).into_response()
}

/// Number of threads for work that waits for the disk. Each change that waits for a database of users has one besides.
const DISK_THREADS: usize = 4;
/// Number of threads outside of the runtime's.
pub(super) const BLOCKING_THREADS: usize = DISK_THREADS + MAX_CHANGES + MAX_PRUNES;

/// Runs work that waits for the disk, or for a database in which it was admitted, outside of the runtime's thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Response> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(what)) => Err(error(StatusCode::SERVICE_UNAVAILABLE, &what)),
        Err(_) => Err(error(StatusCode::INTERNAL_SERVER_ERROR, "failed")),
    }
}
