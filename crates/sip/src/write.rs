//! Writing messages into a buffer that the caller owns.
//!
//! Nothing here goes through the formatting machinery, and nothing allocates but the buffer itself
//! when it is too small.
//!
//! A response is written from the request it answers, by [`response`]. A new request is a value:
//!
//! ```
//! use ringway_sip::message::{self, Method};
//! use ringway_sip::write::{Party, Request};
//!
//! let alice = Party { uri: b"sip:alice@example.com", tag: b"1928301774", ..Party::default() };
//! let bob = Party { display: b"Bob", uri: b"sip:bob@example.org", ..Party::default() };
//! let request = Request {
//!     via: b"SIP/2.0/UDP 192.0.2.17:5060;branch=z9hG4bKhjhs8ass877",
//!     contact: b"sip:alice@192.0.2.17",
//!     fields: &[("Content-Type", b"text/plain")],
//!     body: b"Lunch?",
//!     ..Request::new(Method::Message, bob.uri, alice, bob, b"a84b4c76e66710", 1)
//! };
//! let mut buf = Vec::new();
//! request.emit(&mut buf);
//!
//! let message = message::parse(&buf)?;
//! message.check()?;
//! assert_eq!(message.to()?.display, b"\"Bob\"");
//! assert_eq!(message.body(), b"Lunch?");
//! # Ok::<(), ringway_sip::Malformed>(())
//! ```

mod request;

pub use request::{Party, Request};

use crate::header::{HeaderId, Param, known_param, next_param};
use crate::message::Message;
use ringway_sansio::{Flow, Transport};
use std::net::{IpAddr, SocketAddr};

/// Appends `n` in decimal.
#[inline]
pub fn decimal(buf: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    buf.extend_from_slice(&digits[at..]);
}

/// Appends bytes in lower-case hexadecimal.
pub fn hex(buf: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    buf.reserve(2 * bytes.len());
    for &b in bytes {
        buf.push(DIGITS[(b >> 4) as usize]);
        buf.push(DIGITS[(b & 15) as usize]);
    }
}

/// Appends one header field: name, colon, value, CRLF.
#[inline]
pub fn header(buf: &mut Vec<u8>, name: &str, value: &[u8]) {
    buf.extend_from_slice(name.as_bytes());
    buf.extend_from_slice(b": ");
    buf.extend_from_slice(value);
    buf.extend_from_slice(b"\r\n");
}

/// Appends one header field whose value is a number.
#[inline]
pub fn header_decimal(buf: &mut Vec<u8>, name: &str, value: u64) {
    buf.extend_from_slice(name.as_bytes());
    buf.extend_from_slice(b": ");
    decimal(buf, value);
    buf.extend_from_slice(b"\r\n");
}

/// Appends an address, an IPv6 address without brackets and in the form of RFC 5952.
pub fn ip(buf: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => ipv4(buf, v4.octets()),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => {
                buf.extend_from_slice(b"::ffff:");
                ipv4(buf, v4.octets());
            }
            None => ipv6(buf, v6.segments()),
        },
    }
}

fn ipv4(buf: &mut Vec<u8>, octets: [u8; 4]) {
    let mut text = [b'.'; 16];
    let mut at = 0;
    for octet in octets {
        if octet >= 100 {
            text[at] = b'0' + octet / 100;
            at += 1;
        }
        if octet >= 10 {
            text[at] = b'0' + octet / 10 % 10;
            at += 1;
        }
        text[at] = b'0' + octet % 10;
        at += 2;
    }
    // Without the dot after the last.
    buf.extend_from_slice(&text[..at - 1]);
}

fn ipv6(buf: &mut Vec<u8>, segments: [u16; 8]) {
    // RFC 5952 section 4.2: the longest run of two or more zeros, the first of equals.
    let (mut best, mut best_len) = (0, 1);
    let mut i = 0;
    while i < 8 {
        let run = segments[i..].iter().take_while(|&&s| s == 0).count();
        if run > best_len {
            (best, best_len) = (i, run);
        }
        i += run.max(1);
    }
    let mut i = 0;
    while i < 8 {
        if best_len > 1 && i == best {
            buf.extend_from_slice(b"::");
            i += best_len;
            continue;
        }
        if i > 0 && !(best_len > 1 && i == best + best_len) {
            buf.push(b':');
        }
        hex_short(buf, segments[i]);
        i += 1;
    }
}

fn hex_short(buf: &mut Vec<u8>, n: u16) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (16 - n.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        buf.push(DIGITS[(n >> (4 * place) & 15) as usize]);
    }
}

/// Appends an address as a `host`: an IPv6 address in brackets.
pub fn host(buf: &mut Vec<u8>, addr: IpAddr) {
    if addr.is_ipv6() {
        buf.push(b'[');
        ip(buf, addr);
        buf.push(b']');
    } else {
        ip(buf, addr);
    }
}

/// Appends `host ":" port`: an IPv6 address in brackets.
pub fn addr(buf: &mut Vec<u8>, addr: SocketAddr) {
    host(buf, addr.ip());
    buf.push(b':');
    decimal(buf, addr.port() as u64);
}

/// Appends `text` as a quoted string, with quotes and backslashes escaped. Octets that a quoted
/// string cannot hold, CR and LF among them, are left out.
pub fn quoted(buf: &mut Vec<u8>, text: &[u8]) {
    buf.push(b'"');
    for &b in text {
        match b {
            b'"' | b'\\' => buf.extend_from_slice(&[b'\\', b]),
            0..=8 | 10..=31 | 127 => {}
            _ => buf.push(b),
        }
    }
    buf.push(b'"');
}

/// Appends a value as received, without its folds: CR and LF become spaces (RFC 3261 section 7.3.1 defines them as
/// equivalent).
#[inline]
pub fn unfolded(buf: &mut Vec<u8>, value: &[u8]) {
    let start = buf.len();
    buf.extend_from_slice(value);
    unfold(&mut buf[start..]);
}

fn unfold(text: &mut [u8]) {
    if memchr::memchr2(b'\r', b'\n', text).is_some() {
        for b in text {
            if matches!(*b, b'\r' | b'\n') {
                *b = b' ';
            }
        }
    }
}

/// Appends the beginning of the value of a Via of our own: transport, sent-by, and the branch, which `branch` writes
/// (RFC 3261 sections 8.1.1.7 and 18.1.1). Parameters may follow.
pub fn via(
    buf: &mut Vec<u8>,
    transport: Transport,
    sent_by: SocketAddr,
    branch: impl FnOnce(&mut Vec<u8>),
) {
    buf.extend_from_slice(b"SIP/2.0/");
    buf.extend_from_slice(transport.via().as_bytes());
    buf.push(b' ');
    addr(buf, sent_by);
    buf.extend_from_slice(b";branch=");
    branch(buf);
}

/// Appends the top Via value of a received request with the parameters of its receiver: `received` if the source
/// address is not the host of sent-by (RFC 3261 section 18.2.1) or `rport` asks (RFC 3581 section 4), and the value of
/// `rport` if it asks. Values that a client has already written there are removed, because they cannot be trusted.
///
/// `value` is the field value that contains the Via; elements after the first are preserved.
pub fn via_received(buf: &mut Vec<u8>, value: &[u8], source: SocketAddr) {
    let end = crate::header::item_end(value);
    let first = crate::syntax::trim(&value[..end]);
    match crate::header::Via::parse(first) {
        Ok(via) => via_element(buf, &via, source),
        Err(_) => unfolded(buf, first),
    }
    if end < value.len() {
        buf.extend_from_slice(b", ");
        unfolded(buf, crate::syntax::trim(&value[end + 1..]));
    }
}

/// Does the same as [`via_received`] for one parsed Via.
pub fn via_element(buf: &mut Vec<u8>, via: &crate::header::Via<'_>, source: SocketAddr) {
    if via.received.is_none() && via.rport.is_none() {
        unfolded(buf, via.element);
        if !is_source(via, source) {
            buf.extend_from_slice(b";received=");
            ip(buf, source.ip());
        }
        return;
    }
    let start = buf.len();
    let before = &via.element[..via.element.len() - via.params.len()];
    buf.extend_from_slice(crate::syntax::trim(before));
    let mut at = 0;
    while let Some(((name, value), next)) = via_param(via.params, at) {
        if !is_of_receiver(name) {
            buf.push(b';');
            buf.extend_from_slice(name);
            if let Some(value) = value {
                buf.push(b'=');
                buf.extend_from_slice(value);
            }
        }
        at = next;
    }
    unfold(&mut buf[start..]);
    learned(buf, via, source);
}

/// Returns the parameter of a Via at `at`, and the index after it.
#[inline(always)]
fn via_param(params: &[u8], at: usize) -> Option<(Param<'_>, usize)> {
    match known_param(params, at, b";branch=") {
        None => next_param(params, at).ok().flatten(),
        known => known,
    }
}

/// Returns whether the host of sent-by is the source of the message.
fn is_source(via: &crate::header::Via<'_>, source: SocketAddr) -> bool {
    crate::uri::host_ip(via.host) == Some(source.ip())
}

/// Returns whether a parameter of Via is written by the receiver.
#[inline]
fn is_of_receiver(name: &[u8]) -> bool {
    match name.len() {
        5 => name.eq_ignore_ascii_case(b"rport"),
        8 => name.eq_ignore_ascii_case(b"received"),
        _ => false,
    }
}

/// Appends the parameters of Via by which its sender learns its own address.
fn learned(buf: &mut Vec<u8>, via: &crate::header::Via<'_>, source: SocketAddr) {
    if via.rport.is_some() || !is_source(via, source) {
        buf.extend_from_slice(b";received=");
        ip(buf, source.ip());
    }
    if via.rport.is_some() {
        buf.extend_from_slice(b";rport=");
        decimal(buf, source.port() as u64);
    }
}

/// Octets that the status line, the parameters of the top Via, a tag and Content-Length usually add to the copied parts
/// of a response.
const GROWTH: usize = 256;

/// Appends a status line.
pub fn status_line(buf: &mut Vec<u8>, status: u16, reason: &str) {
    if let 100..=999 = status {
        let digit = |n: u16| b'0' + (n % 10) as u8;
        let [a, b, c] = [digit(status / 100), digit(status / 10), digit(status)];
        buf.extend_from_slice(&[b'S', b'I', b'P', b'/', b'2', b'.', b'0', b' ', a, b, c, b' ']);
    } else {
        buf.extend_from_slice(b"SIP/2.0 ");
        decimal(buf, status as u64);
        buf.push(b' ');
    }
    buf.extend_from_slice(reason.as_bytes());
    buf.extend_from_slice(b"\r\n");
}

/// Appends a Via header field: the first element with the parameters of its receiver, if there is one, and the rest of
/// the value.
#[cold]
fn via_line(buf: &mut Vec<u8>, first: Option<(&crate::header::Via<'_>, SocketAddr)>, rest: &[u8]) {
    buf.extend_from_slice(b"Via: ");
    if let Some((via, source)) = first {
        via_element(buf, via, source);
    }
    unfolded(buf, rest);
    buf.extend_from_slice(b"\r\n");
}

/// Copies ranges of a message; adjacent ones are copied together.
struct Copy<'b, 'm> {
    buf: &'b mut Vec<u8>,
    bytes: &'m [u8],
    from: usize,
    to: usize,
}

impl Copy<'_, '_> {
    /// Copies the bytes from `from` to `to`, now or later.
    #[inline(always)]
    fn stretch(&mut self, from: usize, to: usize) {
        if from != self.to {
            self.flush();
            self.from = from;
        }
        self.to = to;
    }

    /// Returns the buffer, with all requested ranges in it.
    #[inline(never)]
    fn flush(&mut self) -> &mut Vec<u8> {
        self.buf.extend_from_slice(&self.bytes[self.from..self.to]);
        self.from = self.to;
        self.buf
    }

    /// Copies the first header field of a name, if the message has one. `prefix` is the name, a colon and a space.
    #[inline(always)]
    fn first(&mut self, message: &Message<'_>, id: HeaderId, prefix: &[u8]) {
        let Some(slot) = message.first_slot(id) else { return };
        match message.plain_line(slot, prefix) {
            Some((from, to)) => self.stretch(from, to),
            None => copy(self.flush(), message, id),
        }
    }

    /// Copies all Via header fields; `source`, if any, is added to the first.
    fn vias(&mut self, message: &Message<'_>, source: Option<&Flow>) {
        let mut source = source;
        for slot in message.slots(HeaderId::Via) {
            let plain = message.plain_line(slot, b"Via: ");
            if let Some(flow) = source.take()
                && let Ok(via) = message.top_via()
            {
                let value = message.value(slot);
                let end = crate::syntax::offset(value, via.element) + via.element.len();
                match plain {
                    Some((from, to)) => {
                        self.plain_via(&via, (from, from + b"Via: ".len() + end), flow.remote);
                        // A comma and more elements, or nothing.
                        self.stretch(to - 2 - (value.len() - end), to);
                    }
                    None => via_line(self.flush(), Some((&via, flow.remote)), &value[end..]),
                }
                continue;
            }
            match plain {
                Some((from, to)) => self.stretch(from, to),
                None => via_line(self.flush(), None, message.value(slot)),
            }
        }
    }

    /// Does the same as [`via_element`] for an element without folds, which ends at `to`, and copies the bytes before
    /// it from `from` on.
    fn plain_via(
        &mut self,
        via: &crate::header::Via<'_>,
        (from, to): (usize, usize),
        source: SocketAddr,
    ) {
        if via.received.is_none() && via.rport.is_none() {
            self.stretch(from, to);
            if !is_source(via, source) {
                let buf = self.flush();
                buf.extend_from_slice(b";received=");
                ip(buf, source.ip());
            }
            return;
        }
        let params = to - via.params.len();
        let mut before = &self.bytes[..params];
        while let [rest @ .., b' '] = before {
            before = rest;
        }
        self.stretch(from, before.len());
        let mut at = 0;
        while let Some(((name, value), next)) = via_param(via.params, at) {
            let length = 1 + name.len() + value.map_or(0, |value| 1 + value.len());
            if !is_of_receiver(name) {
                if next - at == length {
                    self.stretch(params + at, params + next);
                } else {
                    let buf = self.flush();
                    buf.push(b';');
                    buf.extend_from_slice(name);
                    if let Some(value) = value {
                        buf.push(b'=');
                        buf.extend_from_slice(value);
                    }
                }
            }
            at = next;
        }
        learned(self.flush(), via, source);
    }
}

/// Appends a response to `request` (RFC 3261 section 8.2.6): status line, all Via, From, To,
/// Call-ID and CSeq of the request, `extra`, Content-Length and `body`.
///
/// `source` is the flow the request came over; its remote address goes into the top Via. Without
/// it the Via header fields are copied as they are (for a request that was stored after that had
/// been done). `to_tag` is added where To has no tag yet. `extra` holds ready header fields, each
/// with its CRLF, and Content-Type among them if there is a body. An empty `reason` means the
/// standard's phrase.
///
/// The request need not have passed [`check`](Message::check): what it has is copied.
pub fn response(
    buf: &mut Vec<u8>,
    request: &Message<'_>,
    source: Option<&Flow>,
    status: u16,
    reason: &str,
    to_tag: Option<&[u8]>,
    extra: &[u8],
    body: &[u8],
) {
    let reason = if reason.is_empty() { reason_phrase(status) } else { reason };
    // The copied parts are smaller than the head.
    buf.reserve(request.bytes().len() - request.body().len() + extra.len() + body.len() + GROWTH);
    status_line(buf, status, reason);
    let mut copy = Copy { buf, bytes: request.bytes(), from: 0, to: 0 };
    copy.vias(request, source);
    copy.first(request, HeaderId::From, b"From: ");
    // RFC 3261 section 8.2.6.2. A To that cannot be parsed is copied unchanged.
    match to_tag.filter(|_| request.to().is_ok_and(|to| to.tag().is_none())) {
        None => copy.first(request, HeaderId::To, b"To: "),
        Some(tag) => {
            if let Some(slot) = request.first_slot(HeaderId::To) {
                match request.plain_line(slot, b"To: ") {
                    Some((from, to)) => copy.stretch(from, to - 2),
                    None => {
                        let buf = copy.flush();
                        buf.extend_from_slice(b"To: ");
                        unfolded(buf, request.value(slot));
                    }
                }
                let buf = copy.flush();
                buf.extend_from_slice(b";tag=");
                buf.extend_from_slice(tag);
                buf.extend_from_slice(b"\r\n");
            }
        }
    }
    copy.first(request, HeaderId::CallId, b"Call-ID: ");
    copy.first(request, HeaderId::CSeq, b"CSeq: ");
    if status == 100 {
        // RFC 3261 section 8.2.6.1.
        copy.first(request, HeaderId::Timestamp, b"Timestamp: ");
    }
    let buf = copy.flush();
    buf.extend_from_slice(extra);
    end(buf, body);
}

/// Appends Content-Length, the empty line and `body`.
pub fn end(buf: &mut Vec<u8>, body: &[u8]) {
    if body.is_empty() {
        buf.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        return;
    }
    header_decimal(buf, "Content-Length", body.len() as u64);
    buf.extend_from_slice(b"\r\n");
    buf.extend_from_slice(body);
}

/// Appends the first header field of a name, if the message has one.
#[cold]
fn copy(buf: &mut Vec<u8>, from: &Message<'_>, id: HeaderId) {
    if let Some(value) = from.first(id) {
        buf.extend_from_slice(id.name().as_bytes());
        buf.extend_from_slice(b": ");
        unfolded(buf, value);
        buf.extend_from_slice(b"\r\n");
    }
}

/// Returns the reason phrase of the standards for a status; for others, that of its class.
pub const fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Trying",
        180 => "Ringing",
        181 => "Call Is Being Forwarded",
        182 => "Queued",
        183 => "Session Progress",
        199 => "Early Dialog Terminated",
        200 => "OK",
        202 => "Accepted",
        204 => "No Notification",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Moved Temporarily",
        305 => "Use Proxy",
        380 => "Alternative Service",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        410 => "Gone",
        412 => "Conditional Request Failed",
        413 => "Request Entity Too Large",
        414 => "Request-URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Unsupported URI Scheme",
        420 => "Bad Extension",
        421 => "Extension Required",
        422 => "Session Interval Too Small",
        423 => "Interval Too Brief",
        428 => "Use Identity Header",
        429 => "Provide Referrer Identity",
        430 => "Flow Failed",
        433 => "Anonymity Disallowed",
        436 => "Bad Identity Info",
        437 => "Unsupported Credential",
        438 => "Invalid Identity Header",
        439 => "First Hop Lacks Outbound Support",
        440 => "Max-Breadth Exceeded",
        469 => "Bad Info Package",
        470 => "Consent Needed",
        480 => "Temporarily Unavailable",
        481 => "Call/Transaction Does Not Exist",
        482 => "Loop Detected",
        483 => "Too Many Hops",
        484 => "Address Incomplete",
        485 => "Ambiguous",
        486 => "Busy Here",
        487 => "Request Terminated",
        488 => "Not Acceptable Here",
        489 => "Bad Event",
        491 => "Request Pending",
        493 => "Undecipherable",
        494 => "Security Agreement Required",
        500 => "Server Internal Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Server Time-out",
        505 => "Version Not Supported",
        513 => "Message Too Large",
        580 => "Precondition Failure",
        600 => "Busy Everywhere",
        603 => "Decline",
        604 => "Does Not Exist Anywhere",
        606 => "Not Acceptable",
        607 => "Unwanted",
        608 => "Rejected",
        _ => match status / 100 {
            1 => "Session Progress",
            2 => "OK",
            3 => "Multiple Choices",
            4 => "Bad Request",
            5 => "Server Internal Error",
            _ => "Decline",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::parse;
    use ringway_sansio::{FlowId, Transport};

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut buf = Vec::new();
        write(&mut buf);
        String::from_utf8(buf).unwrap()
    }

    #[test]
    fn numbers_and_addresses() {
        assert_eq!(text(|b| decimal(b, 0)), "0");
        assert_eq!(text(|b| decimal(b, u64::MAX)), u64::MAX.to_string());
        for a in [
            "0.0.0.0",
            "192.0.2.255",
            "::",
            "::1",
            "1::",
            "2001:db8::1",
            "1:0:0:2::3",
            "1:2:3:4:5:6:7:8",
            "fe80::1:0:0:1",
            "::ffff:192.0.2.1",
            "1:0:2:3:4:5:6:7",
        ] {
            let a: IpAddr = a.parse().unwrap();
            assert_eq!(text(|b| ip(b, a)), a.to_string());
        }
        assert_eq!(text(|b| addr(b, "[2001:db8::1]:5060".parse().unwrap())), "[2001:db8::1]:5060");
        assert_eq!(text(|b| quoted(b, b"a\"b\\c\r\n\0d")), r#""a\"b\\cd""#);
    }

    /// RFC 3581 section 4 and RFC 3261 section 18.2.1.
    #[test]
    fn the_top_via_learns_the_source() {
        let via = |value: &str, source: &str| {
            text(|b| via_received(b, value.as_bytes(), source.parse().unwrap()))
        };
        let plain = "SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKa";
        assert_eq!(via(plain, "192.0.2.1:9"), plain);
        assert_eq!(via(plain, "192.0.2.2:9"), format!("{plain};received=192.0.2.2"));
        assert_eq!(
            via(
                "SIP/2.0/UDP 10.1.1.1:4540;rport;branch=z9hG4bKa , SIP/2.0/UDP x",
                "192.0.2.1:9988"
            ),
            "SIP/2.0/UDP 10.1.1.1:4540;branch=z9hG4bKa;received=192.0.2.1;rport=9988, SIP/2.0/UDP x"
        );
        // With rport, received is added even where the address is the same.
        assert_eq!(
            via("SIP/2.0/UDP 192.0.2.1;rport", "192.0.2.1:5060"),
            "SIP/2.0/UDP 192.0.2.1;received=192.0.2.1;rport=5060"
        );
        // What the client claims is not believed.
        assert_eq!(
            via("SIP/2.0/UDP 192.0.2.1;received=198.51.100.1;branch=b", "192.0.2.1:1"),
            "SIP/2.0/UDP 192.0.2.1;branch=b"
        );
        assert_eq!(
            via("SIP/2.0/UDP [2001:db8::9]", "[2001:db8::8]:1"),
            "SIP/2.0/UDP [2001:db8::9];received=2001:db8::8"
        );
    }

    /// RFC 3261 section 8.2.6.
    #[test]
    fn a_response_copies_what_it_must() {
        let request = parse(
            b"INVITE sip:bob@b SIP/2.0\r\nv: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
            Via: SIP/2.0/TCP\r\n  192.0.2.9;branch=z9hG4bK0\r\nt: <sip:bob@b>\r\n\
            f: <sip:a@a>;tag=1\r\ni: x\r\nCSeq: 1 INVITE\r\nTimestamp: 54\r\n\r\n",
        )
        .unwrap();
        let flow = Flow {
            id: FlowId::new(0, 0),
            transport: Transport::Udp,
            local: "192.0.2.100:5060".parse().unwrap(),
            remote: "192.0.2.7:5060".parse().unwrap(),
        };
        let out = text(|b| {
            response(b, &request, Some(&flow), 180, "", Some(b"tt"), b"Server: x\r\n", b"")
        });
        assert_eq!(
            out,
            "SIP/2.0 180 Ringing\r\n\
            Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1;received=192.0.2.7\r\n\
            Via: SIP/2.0/TCP    192.0.2.9;branch=z9hG4bK0\r\nFrom: <sip:a@a>;tag=1\r\n\
            To: <sip:bob@b>;tag=tt\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\nServer: x\r\n\
            Content-Length: 0\r\n\r\n"
        );
        let out = text(|b| response(b, &request, None, 100, "", None, b"", b""));
        assert!(out.contains("To: <sip:bob@b>\r\n") && out.contains("Timestamp: 54\r\n"));
    }
}
