//! Metrics for a scraper, by HTTP/1 on a loopback address. There is one page, and each connection gets one answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::control::{Asker, View};
use crate::metrics;

/// Maximum length in octets of the head of a request.
const MAX_HEAD: usize = 4_096;
/// Maximum number of connections that are served at once. Others wait.
const MAX_CLIENTS: usize = 8;
/// Time in which a client must ask and read.
const PATIENCE: Duration = Duration::from_secs(5);
/// The media type of the page.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the address in `text`, which must be a loopback address: metrics show who is in the mesh.
///
/// # Errors
/// Any other text.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(address) => Err(format!(
            "metrics are served on loopback only: expected 127.0.0.1:PORT or [::1]:PORT, got {address}"
        )),
        Err(_) => Err(format!("expected ADDRESS:PORT, got {text:?}")),
    }
}

/// Accepts clients for ever.
pub(crate) async fn serve(listener: TcpListener, asker: Asker) {
    let slots = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let asker = asker.clone();
                tokio::spawn(async move {
                    // A client that goes away early, or does not read, loses its answer.
                    let _ = timeout(PATIENCE, answer(stream, &asker)).await;
                    drop(slot);
                });
            }
            // No descriptor is free: somebody else has to close one.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(mut stream: TcpStream, asker: &Asker) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let (status, kind, body) = match page(&head) {
        Err(status) => (status, "text/plain", format!("{status}\n")),
        Ok(()) => match asker.show(View::Status).await.and_then(metrics::render) {
            Some(text) => ("200 OK", OPEN_METRICS, text),
            None => ("503 Service Unavailable", "text/plain", "the router is leaving\n".to_owned()),
        },
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads to the empty line that ends a head (RFC 9112 section 2.1), or as much as a head may have.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(MAX_HEAD);
    while head.len() < MAX_HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if (&mut *stream).take((MAX_HEAD - head.len()) as u64).read_buf(&mut head).await? == 0 {
            break;
        }
    }
    Ok(head)
}

/// Returns whether a head asks for the page; if not, the status of the answer.
fn page(head: &[u8]) -> Result<(), &'static str> {
    if !head.windows(4).any(|end| end == b"\r\n\r\n") {
        return Err(match head.len() {
            MAX_HEAD => "431 Request Header Fields Too Large",
            _ => "400 Bad Request",
        });
    }
    let line = head.split(|&octet| octet == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&octet| octet == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    match (method, target, version, words.next()) {
        (Some(b"GET"), Some(b"/metrics"), Some(version), None)
            if version.starts_with(b"HTTP/1.") =>
        {
            Ok(())
        }
        (Some(b"GET"), Some(_), Some(_), None) => Err("404 Not Found"),
        (Some(_), Some(_), Some(_), None) => Err("405 Method Not Allowed"),
        _ => Err("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_served() {
        assert_eq!(page(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Ok(()));
        assert_eq!(page(b"GET / HTTP/1.1\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(page(b"POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        for bad in [&b""[..], b"GET /metrics HTTP/1.1\r\n", b"GET /metrics\r\n\r\n", b"\r\n\r\n"] {
            assert_eq!(page(bad), Err("400 Bad Request"));
        }
        assert_eq!(page(&[b'a'; MAX_HEAD]), Err("431 Request Header Fields Too Large"));
    }

    #[test]
    fn metrics_are_for_this_host() {
        assert!(parse_address("127.0.0.1:8061").is_ok() && parse_address("[::1]:8061").is_ok());
        assert!(parse_address("0.0.0.0:8061").unwrap_err().contains("on loopback only"));
        assert!(parse_address("8061").unwrap_err().contains("expected ADDRESS:PORT"));
    }
}
