//! A connection of HTTP. It carries one request, as those to management do.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ringway_net::Clock;
use ringway_phonebook::http::{self, respond};
use tokio::net::TcpStream;

use super::PhonebookCounts;
use super::library::Library;

/// Time in which the head of a request has to come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a connection takes at most, with a slow reader.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Octets of a head.
const MAX_HEAD: usize = 16 << 10;
/// Header fields of a request.
const MAX_FIELDS: usize = 64;

/// Serves a connection.
pub(super) async fn serve(
    stream: TcpStream,
    library: Arc<Library>,
    counts: Arc<PhonebookCounts>,
    clock: Clock,
) {
    let service = service_fn(|request: Request<Incoming>| {
        let library = library.clone();
        counts.requests.fetch_add(1, Relaxed);
        async move { Ok::<_, Infallible>(answer(&request, &library, clock).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_FIELDS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A fault of the peer ends its connection and concerns no other.
    let _ = tokio::time::timeout(TIMEOUT, connection).await;
}

/// Answers a request. Its body does not matter and is not read.
async fn answer(request: &Request<Incoming>, library: &Library, clock: Clock) -> Response<Body> {
    if ![Method::GET, Method::HEAD, Method::POST].contains(request.method()) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "expected GET\n");
    }
    let path = request.uri().path();
    if !http::is_path(path) {
        return plain(StatusCode::NOT_FOUND, "there is no such phonebook\n");
    }
    let field = |name: HeaderName| request.headers().get(name).and_then(|text| text.to_str().ok());
    let asked = http::Request {
        path,
        query: request.uri().query().unwrap_or_default(),
        host: field(header::HOST),
        is_tls: false,
        accept: field(header::ACCEPT),
        user_agent: field(header::USER_AGENT),
    };
    let book = library.book().await;
    let made = respond(&asked, &book, clock.now());
    let status = StatusCode::from_u16(made.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let head = Response::builder().status(status).header(header::CONTENT_TYPE, made.content_type);
    // Nothing in it is a user's text.
    head.body(made.body.into()).unwrap_or_default()
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let head = Response::builder().status(status);
    let head = head.header(header::CONTENT_TYPE, "text/plain; charset=utf-8");
    head.body(text.into()).unwrap_or_default()
}
