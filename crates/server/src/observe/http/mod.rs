//! Management: read-only pages on loopback, and all functions on the control socket.
//!
//! ```text
//! GET    /healthz          200 ok, 503 with the reason
//! GET    /metrics          OpenMetrics text
//! GET    /status           JSON
//!                                                       on the control socket only:
//! GET    /users            JSON list of {user, realm, number?}
//! PUT    /users            {user, realm, password, new} -> {new, number?, awaits_number}
//! POST   /users            {replace, users: [{user, realm, hashes: {algorithm: hex}}]} -> {unstated}
//! DELETE /users            {user, realm} -> {removed}
//! POST   /users/prune      -> {removed}
//! GET    /registrations    {user?, after?} -> {items, next}
//! GET    /calls            {after?} -> {items, next}
//! POST   /numbers          "show", {reclaim: {lost, others, unchecked}}, {retire: {mark}} -> short
//!                         numbers
//! GET    /backup           the store, in the format of `store::backup`
//! ```
//! A request on TCP must name the loopback interface as its host, so that a web page cannot reach
//! it under a name of its own. It cannot change anything. A peer on the control socket
//! ([`super::control`]) is the server's own user or root.

mod backup;
pub mod connections;
mod context;
mod live;
mod numbers;
mod users;

pub use live::{MAX_PAGE, Page, PageRequest, Registration};
pub(crate) use users::listed;
pub use users::{
    ImportRequest, Imported, ImportedUser, ListedUser, MAX_IMPORT, Made, NewUser, Pruned, UserName,
};

use super::{Monitor, Phase, Status, metrics};
use crate::users::shared::PRUNE_LIMIT;
use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use connections::ControlListener;
use context::{Context, Shared, error};
use ringway_sansio::Time;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Maximum size of a request body.
pub const MAX_BODY: usize = 16 << 10;
/// The same on the control socket: a census may name 1,024 routers, with 20 digits each.
const MAX_ORDER: usize = 32 << 10;
/// Time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(12);
/// The same of one that waits until the database of users is read.
const PRUNE_TIMEOUT: Duration = PRUNE_LIMIT.saturating_add(Duration::from_secs(5));
/// The path of that request.
const PRUNE: &str = "/users/prune";
/// Time limit of a connection to the pages.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a connection to the control socket.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Serves until the process ends: the pages on `pages`, if configured, and all functions on
/// `control`. Blocks, so it needs a thread of its own.
///
/// # Errors
/// Fails when a listener cannot be used.
pub fn serve(
    pages: Option<TcpListener>,
    control: Option<UnixListener>,
    monitor: Arc<Monitor>,
    now: Box<dyn Fn() -> Time + Send + Sync>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(context::BLOCKING_THREADS)
        .thread_name("management")
        .build()?;
    runtime.block_on(async {
        let counters = monitor.connections.clone();
        let context = Arc::new(Context { monitor, now, backing_up: AtomicBool::new(false) });
        let mut tasks = tokio::task::JoinSet::new();
        if let Some(listener) = pages {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let router = on_loopback(context.clone());
            tasks.spawn(connections::serve(listener, router, PAGE_TIMEOUT, counters.clone()));
        }
        if let Some(listener) = control {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            let listener = ControlListener { listener, counters: counters.clone() };
            let router = on_control_socket(context);
            tasks.spawn(connections::serve(listener, router, CONTROL_TIMEOUT, counters));
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(std::io::Error::other)?;
        }
        Ok(())
    })
}

fn pages() -> Router<Arc<Context>> {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(prometheus))
        .route("/status", get(status))
}

fn on_loopback(context: Arc<Context>) -> Router {
    pages()
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(with_timeout))
        .layer(middleware::from_fn(host_is_loopback))
        .with_state(context)
}

fn on_control_socket(context: Arc<Context>) -> Router {
    pages()
        .route("/users", get(users::list).put(users::put).delete(users::remove))
        .route("/users", post(users::import).layer(DefaultBodyLimit::max(MAX_IMPORT)))
        .route(PRUNE, post(users::prune))
        .route("/registrations", get(live::registrations))
        .route("/calls", get(live::calls))
        .route("/numbers", post(numbers::order))
        .route("/backup", get(backup::backup))
        .layer(DefaultBodyLimit::max(MAX_ORDER))
        .layer(middleware::from_fn(with_timeout))
        .with_state(context)
}

async fn with_timeout(request: Request<Body>, next: Next) -> Response {
    let is_change = request.method() != Method::GET;
    match tokio::time::timeout(limit(request.uri().path()), next.run(request)).await {
        Ok(response) => response,
        Err(_) => error(
            StatusCode::SERVICE_UNAVAILABLE,
            match is_change {
                true => "the request timed out: what it asks for may have been done, or may follow",
                false => "the request timed out",
            },
        ),
    }
}

/// Returns the time limit of a request: longer than the server's own limit for it, and shorter than the command's.
fn limit(path: &str) -> Duration {
    match path {
        PRUNE => PRUNE_TIMEOUT,
        _ => REQUEST_TIMEOUT,
    }
}

async fn host_is_loopback(request: Request<Body>, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("");
    if is_loopback(host) {
        return next.run(request).await;
    }
    error(StatusCode::MISDIRECTED_REQUEST, "expected a loopback address as host")
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

async fn health(State(context): Shared) -> Response {
    let o = &context.monitor;
    if o.phase() == Phase::Draining {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    if o.store.writer_stats().is_some_and(|w| w.failed.load(Relaxed)) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be written\n").into_response();
    }
    (StatusCode::OK, "ok\n").into_response()
}

async fn prometheus(State(context): Shared) -> Response {
    let o = &context.monitor;
    let snapshots = o.board.refresh(|| (o.request_publish)()).await;
    match metrics::render(o, snapshots) {
        Ok(text) => {
            const FORM: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, FORM)], text).into_response()
        }
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written"),
    }
}

async fn status(State(context): Shared) -> Response {
    let o = &context.monitor;
    let snapshots = o.board.refresh(|| (o.request_publish)()).await;
    Json(Status::new(o, &snapshots)).into_response()
}

#[cfg(test)]
mod tests;
