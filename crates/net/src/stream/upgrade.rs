//! The HTTP request that begins a WebSocket (RFC 6455 section 4.2, RFC 7118 section 4).

use super::websocket::Metered;
use ringway_sip::limits::MAX_MESSAGE;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response};
use tokio_tungstenite::tungstenite::http::{HeaderMap, HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Octets of the request that asks for a WebSocket.
pub(super) const MAX_UPGRADE: usize = 8_192;

/// The subprotocol (RFC 7118 section 4.1).
const SUBPROTOCOL: &str = "sip";

/// Read buffer of a WebSocket, in bytes; it grows with each message. Larger portions are read below it.
const READ_BUFFER: usize = 256;

/// Bytes that may wait to be written together.
const WRITE_BUFFER: usize = 4_096;

/// The longest message read from a WebSocket: one that is too long for SIP, but not longer than this, can be
/// answered, and the connection goes on.
const MAX_READ: usize = 2 * MAX_MESSAGE;

const NOT_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\
    Content-Type: text/plain\r\nContent-Length: 30\r\n\r\nThis is a WebSocket for SIP.\r\n";
const TOO_LARGE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\n\
    Connection: close\r\nContent-Length: 0\r\n\r\n";
const UPGRADE_REQUIRED: &[u8] = b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n\
    Connection: Upgrade, close\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: sip\r\n\
    Content-Type: text/plain\r\nContent-Length: 30\r\n\r\nThis is a WebSocket for SIP.\r\n";
const WRONG_PROTOCOL: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\
    Sec-WebSocket-Protocol: sip\r\nContent-Type: text/plain\r\nContent-Length: 49\r\n\r\n\
    Sec-WebSocket-Protocol: expected sip among them\r\n";

const WRONG_ORIGIN: &[u8] = b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\
    Content-Type: text/plain\r\nContent-Length: 52\r\n\r\n\
    This page's origin is not among websocket.origins.\r\n";

/// Reads the request and answers it. Any path will do; the subprotocol `sip` must be offered. `allow` is
/// asked about the origin of the page, if a page asks (RFC 6455 section 4.2.2).
pub(super) async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    allow: impl FnOnce(&[u8]) -> bool,
) -> io::Result<WebSocketStream<Metered<S>>> {
    let mut head = Vec::new();
    let (length, request) = loop {
        if head.len() >= MAX_UPGRADE {
            return refuse(stream, TOO_LARGE).await;
        }
        let room = (MAX_UPGRADE - head.len()) as u64;
        if (&mut stream).take(room).read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match Request::try_parse(&head) {
            Ok(Some(parsed)) => break parsed,
            Ok(None) => {}
            Err(_) => return refuse(stream, NOT_HTTP).await,
        }
    };
    let Ok(mut response) = create_response(&request) else {
        return refuse(stream, UPGRADE_REQUIRED).await;
    };
    if !origin(request.headers()).is_none_or(allow) {
        return refuse(stream, WRONG_ORIGIN).await;
    }
    if !offers_sip(request.headers()) {
        return refuse(stream, WRONG_PROTOCOL).await;
    }
    let protocol = HeaderValue::from_static(SUBPROTOCOL);
    response.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    let mut answer = Vec::new();
    tokio_tungstenite::tungstenite::handshake::server::write_response(&mut answer, &response)
        .map_err(io::Error::other)?;
    stream.write_all(&answer).await?;
    stream.flush().await?;
    let rest = head.split_off(length);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_write_buffer_size(4 * MAX_MESSAGE)
        .max_message_size(Some(MAX_READ))
        .max_frame_size(Some(MAX_READ));
    let stream = Metered::new(stream);
    Ok(WebSocketStream::from_partially_read(stream, rest, Role::Server, Some(config)).await)
}

/// The origin of the page that asks. Of several, which no browser sends, all must be the same.
fn origin(headers: &HeaderMap) -> Option<&[u8]> {
    let mut origins = headers.get_all(header::ORIGIN).iter().map(HeaderValue::as_bytes);
    let first = origins.next()?;
    Some(if origins.all(|other| other == first) { first } else { b"" })
}

/// RFC 7118 section 4.1: the client lists `sip` among its subprotocols.
fn offers_sip(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim().eq_ignore_ascii_case(SUBPROTOCOL))
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin, T>(
    mut stream: S,
    answer: &[u8],
) -> io::Result<T> {
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    // Until the peer has read the answer: a socket closed with unread bytes would take it back. The
    // handshake's deadline bounds this.
    let mut rest = [0; 1_024];
    while stream.read(&mut rest).await? > 0 {}
    Err(io::Error::other("not a WebSocket for SIP"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusals_are_as_long_as_they_say() {
        for answer in [NOT_HTTP, TOO_LARGE, UPGRADE_REQUIRED, WRONG_PROTOCOL, WRONG_ORIGIN] {
            let text = std::str::from_utf8(answer).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("Content-Length: {}", body.len())),
                "{head} {}",
                body.len()
            );
        }
    }

    #[test]
    fn sip_is_found_among_other_subprotocols() {
        let mut headers = HeaderMap::new();
        assert!(!offers_sip(&headers));
        headers.append(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("chat, xmpp"));
        assert!(!offers_sip(&headers));
        headers.append(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("msrp,SIP"));
        assert!(offers_sip(&headers));
    }
}
