//! Management over HTTP, on loopback only.
//!
//! ```text
//! GET    /healthz          200 ok, 503 with the reason
//! GET    /metrics          Prometheus text
//! GET    /status           JSON
//! GET    /users            JSON list of {user, realm}          token
//! PUT    /users            {user, realm, password} -> {new}    token
//! DELETE /users            {user, realm} -> {removed}          token
//! ```
//! A request must name the loopback interface as its host, so that no web page can reach it by a
//! name of its own; what changes anything must show the token of [`super::control`].

use super::{Observed, Phase, Status, control::Control, metrics};
use crate::store::{Hashes, UserStore, check_name, check_password};
use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ringway_proxy::location::{CommitTag, LocationStore};
use ringway_sansio::Time;
use serde::{Deserialize, Serialize};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use subtle::ConstantTimeEq;

/// Largest request body.
pub const MAX_BODY: usize = 16 << 10;
/// Longest time a request may take.
const WITHIN: Duration = Duration::from_secs(12);
/// Requests under way at one time.
const CONCURRENT: usize = 32;

/// A user by name and realm.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserName {
    /// Name.
    pub user: String,
    /// Domain it belongs to.
    pub realm: String,
}

/// A user to be made, or given a new password.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// Name.
    pub user: String,
    /// Domain it belongs to.
    pub realm: String,
    /// Hashed at once, not kept.
    pub password: String,
    /// Whether the user must be new (`true`), or must exist already (`false`).
    pub new: bool,
}

/// What every handler needs.
struct Context {
    observed: Arc<Observed>,
    control: Control,
    now: Box<dyn Fn() -> Time + Send + Sync>,
    slots: tokio::sync::Semaphore,
}

type Shared = State<Arc<Context>>;

/// Serves until the process ends. Blocks; run it on a thread of its own.
///
/// # Errors
/// When the listener cannot be used.
pub fn serve(
    listener: TcpListener,
    observed: Arc<Observed>,
    control: Control,
    now: Box<dyn Fn() -> Time + Send + Sync>,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .thread_name("http")
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let slots = tokio::sync::Semaphore::new(CONCURRENT);
        let context = Arc::new(Context { observed, control, now, slots });
        axum::serve(listener, router(context)).await
    })
}

fn router(context: Arc<Context>) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(prometheus))
        .route("/status", get(status))
        .route("/users", get(list).put(put).delete(remove))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(context.clone(), guard))
        .with_state(context)
}

/// Lets a request pass only if it is for this interface, in time, and not one too many.
async fn guard(State(context): Shared, request: Request<Body>, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("");
    if !is_loopback(host) {
        return error(StatusCode::MISDIRECTED_REQUEST, "expected a loopback address as host");
    }
    let Ok(_slot) = context.slots.try_acquire() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many requests under way");
    };
    match tokio::time::timeout(WITHIN, next.run(request)).await {
        Ok(response) => response,
        Err(_) => error(StatusCode::SERVICE_UNAVAILABLE, "took too long"),
    }
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

fn error(status: StatusCode, what: &str) -> Response {
    (status, Json(serde_json::json!({ "error": what }))).into_response()
}

async fn health(State(context): Shared) -> Response {
    let o = &context.observed;
    if o.phase() == Phase::Draining {
        return (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response();
    }
    if o.store.writer_stats().is_some_and(|w| w.failed.load(Relaxed)) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store cannot be written\n").into_response();
    }
    (StatusCode::OK, "ok\n").into_response()
}

async fn prometheus(State(context): Shared) -> Response {
    let o = &context.observed;
    let snapshots = o.board.refresh(|| (o.ask)()).await;
    match metrics::render(o, snapshots) {
        Ok(text) => {
            const FORM: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, FORM)], text).into_response()
        }
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written"),
    }
}

/// The status needs no token; a wrong one means that another server was expected here.
async fn status(State(context): Shared, headers: axum::http::HeaderMap) -> Response {
    if headers.contains_key(header::AUTHORIZATION) && !allowed(&context, &headers) {
        return error(StatusCode::UNAUTHORIZED, NO_TOKEN);
    }
    let o = &context.observed;
    let snapshots = o.board.refresh(|| (o.ask)()).await;
    Json(Status::new(o, &snapshots)).into_response()
}

fn allowed(context: &Context, request: &axum::http::HeaderMap) -> bool {
    request
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
        .is_some_and(|token| bool::from(token.ct_eq(context.control.token.as_bytes())))
}

const NO_TOKEN: &str = "expected the token of the control file";

/// Runs what waits for the disk off the runtime's thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Response> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(what)) => Err(error(StatusCode::SERVICE_UNAVAILABLE, &what)),
        Err(_) => Err(error(StatusCode::INTERNAL_SERVER_ERROR, "failed")),
    }
}

async fn list(State(context): Shared, headers: axum::http::HeaderMap) -> Response {
    if !allowed(&context, &headers) {
        return error(StatusCode::UNAUTHORIZED, NO_TOKEN);
    }
    let store = context.observed.store.clone();
    match blocking(move || store.list_users()).await {
        Ok(users) => Json(
            users.into_iter().map(|(user, realm)| UserName { user, realm }).collect::<Vec<_>>(),
        )
        .into_response(),
        Err(response) => response,
    }
}

async fn put(
    State(context): Shared,
    headers: axum::http::HeaderMap,
    body: Result<Json<NewUser>, axum::extract::rejection::JsonRejection>,
) -> Response {
    if !allowed(&context, &headers) {
        return error(StatusCode::UNAUTHORIZED, NO_TOKEN);
    }
    let new = match body {
        Ok(Json(new)) => new,
        Err(e) => return error(StatusCode::BAD_REQUEST, &e.body_text()),
    };
    if let Err(e) = check_name(&new.user).and_then(|()| check_password(&new.password)) {
        return error(StatusCode::BAD_REQUEST, &e.to_string());
    }
    if !has_realm(&context, &new.realm) {
        return error(StatusCode::BAD_REQUEST, &format!("{:?} is not a domain of ours", new.realm));
    }
    let store = context.observed.store.clone();
    let exists = {
        use ringway_proxy::auth::Users;
        store.users().exists(new.user.as_bytes(), new.realm.as_bytes())
    };
    if exists == new.new {
        let what = if exists { "exists already" } else { "does not exist" };
        let status = if exists { StatusCode::CONFLICT } else { StatusCode::NOT_FOUND };
        return error(status, &format!("user {}@{} {what}", new.user, new.realm));
    }
    let work = move || {
        let hashes = Hashes::new(&new.user, &new.realm, &new.password);
        store.set_user(&new.user, &new.realm, hashes)
    };
    match blocking(work).await {
        Ok(new) => Json(serde_json::json!({ "new": new })).into_response(),
        Err(response) => response,
    }
}

fn has_realm(context: &Context, realm: &str) -> bool {
    context.observed.facts.load().domains.iter().any(|(name, _)| name == realm)
}

async fn remove(
    State(context): Shared,
    headers: axum::http::HeaderMap,
    body: Result<Json<UserName>, axum::extract::rejection::JsonRejection>,
) -> Response {
    if !allowed(&context, &headers) {
        return error(StatusCode::UNAUTHORIZED, NO_TOKEN);
    }
    let name = match body {
        Ok(Json(name)) => name,
        Err(e) => return error(StatusCode::BAD_REQUEST, &e.body_text()),
    };
    let store = context.observed.store.clone();
    let now = (context.now)();
    let missing = format!("user {}@{} does not exist", name.user, name.realm);
    let work = move || {
        let removed = store.remove_user(&name.user, &name.realm)?;
        if removed {
            // Whoever may no longer register is no longer called. The tag's worker does not exist:
            // nobody waits for this change to be durable.
            let aor = format!("sip:{}@{}", name.user, name.realm);
            let tag = CommitTag { worker: u8::MAX, id: 0 };
            store.location().update(aor.as_bytes(), now, tag, &mut |edit| edit.commit());
        }
        Ok(removed)
    };
    match blocking(work).await {
        Ok(true) => Json(serde_json::json!({ "removed": true })).into_response(),
        Ok(false) => error(StatusCode::NOT_FOUND, &missing),
        Err(response) => response,
    }
}

#[cfg(test)]
mod tests;
