//! The forwarded message: RFC 3261 section 16.6 for requests, 16.7 item 3 for responses.
//!
//! A message is never taken apart and assembled again. Unchanged bytes are copied in the longest runs between the
//! header fields that change, so unknown header fields stay byte for byte and in order.

use ringway_sansio::{Flow, Transport};
use ringway_sip::digest::Credentials;
use ringway_sip::header::{HeaderId, Items, Via};
use ringway_sip::message::Message;
use ringway_sip::write;
use std::net::SocketAddr;

/// The octets that a request usually grows by: Via, two Record-Route values, Max-Breadth.
const ADDED: usize = 512;

/// The changes of a forwarded request (RFC 3261 section 16.6).
pub(crate) struct Plan<'a> {
    /// The new Request-URI.
    pub(crate) uri: &'a [u8],
    /// The transport of our Via.
    pub(crate) transport: Transport,
    /// The sent-by of our Via.
    pub(crate) sent_by: SocketAddr,
    /// The number of leading Route elements to remove.
    pub(crate) routes_used: usize,
    /// Whether the last Route element is removed too, because it became the Request-URI (section 16.4).
    pub(crate) last_route_used: bool,
    /// A Route element to append after all others, because a strict router replaces it in the Request-URI (section 16.6
    /// item 6).
    pub(crate) last_route: &'a [u8],
    /// The new Max-Forwards.
    pub(crate) max_forwards: u8,
    /// The new Max-Breadth (RFC 5393 section 5.3.3).
    pub(crate) max_breadth: u32,
    /// Whether header fields that assert an identity are removed (RFC 3325 section 5).
    pub(crate) strip_identity: bool,
    /// The realm whose Proxy-Authorization was for us and is removed (RFC 3261 section 22.3).
    pub(crate) realm: Option<&'a str>,
    /// The body to write instead of the request's own.
    pub(crate) body: Option<&'a [u8]>,
}

/// Appends `request`, which came on `flow`, as it is forwarded. `on_top` writes header lines of ours before its own,
/// Record-Route and Route, and `branch` our branch. The topmost Via gets `received` and `rport` (RFC 3261 section
/// 18.2.1, RFC 3581 section 4).
pub(crate) fn request(
    buf: &mut Vec<u8>,
    request: &Message<'_>,
    via: &Via<'_>,
    flow: &Flow,
    plan: &Plan<'_>,
    on_top: impl FnOnce(&mut Vec<u8>),
    branch: impl FnOnce(&mut Vec<u8>),
) {
    let bytes = request.bytes();
    buf.reserve(bytes.len() + plan.uri.len() + ADDED);
    buf.extend_from_slice(request.method().as_bytes());
    buf.push(b' ');
    buf.extend_from_slice(plan.uri);
    buf.extend_from_slice(b" SIP/2.0\r\nVia: ");
    write::via(buf, plan.transport, plan.sent_by, branch);
    // RFC 3581 section 3: asks for the source port as well.
    buf.extend_from_slice(b";rport");
    if plan.transport == Transport::Tls {
        // RFC 5923 section 4: the connection may be used for requests to us too.
        buf.extend_from_slice(b";alias");
    }
    buf.extend_from_slice(b"\r\n");
    on_top(buf);

    let mut run = Run::after_start_line(request);
    let mut routes = RouteEdit::new(request, plan);
    let (mut vias, mut forwards, mut length) = (0, false, false);
    for slot in request.headers() {
        let line = request.line(slot);
        match slot.id {
            HeaderId::Via if vias == 0 => {
                vias = 1;
                let value = request.value(slot);
                run.replace(buf, bytes, line, |buf| {
                    buf.extend_from_slice(b"Via: ");
                    write::via_element(buf, via, flow.remote);
                    // Further elements on the line, which may be folded, and the line end.
                    buf.extend_from_slice(&value[offset(value, via.element) + via.element.len()..]);
                    buf.extend_from_slice(b"\r\n");
                });
            }
            HeaderId::MaxForwards => {
                forwards = true;
                run.replace(buf, bytes, line, |buf| {
                    buf.extend_from_slice(b"Max-Forwards: ");
                    write::decimal(buf, u64::from(plan.max_forwards));
                    buf.extend_from_slice(b"\r\n");
                });
            }
            HeaderId::Route if routes.changes() => {
                let value = request.value(slot);
                run.replace(buf, bytes, line, |buf| routes.line(buf, line, value));
            }
            HeaderId::ProxyAuthorization if is_for(request.value(slot), plan.realm) => {
                run.replace(buf, bytes, line, |_| {});
            }
            HeaderId::MaxBreadth => {
                run.replace(buf, bytes, line, |_| {});
            }
            HeaderId::PAssertedIdentity | HeaderId::Other
                if plan.strip_identity && asserts_identity(slot.id, line) =>
            {
                run.replace(buf, bytes, line, |_| {});
            }
            // It is written anew.
            HeaderId::ContentLength if plan.body.is_some() => {
                run.replace(buf, bytes, line, |_| {});
            }
            HeaderId::ContentLength => length = true,
            _ => {}
        }
    }
    run.flush(buf, bytes);
    if !plan.last_route.is_empty() {
        buf.extend_from_slice(b"Route: ");
        buf.extend_from_slice(plan.last_route);
        buf.extend_from_slice(b"\r\n");
    }
    if !forwards {
        // Section 16.6 item 3.
        buf.extend_from_slice(b"Max-Forwards: ");
        write::decimal(buf, u64::from(plan.max_forwards));
        buf.extend_from_slice(b"\r\n");
    }
    buf.extend_from_slice(b"Max-Breadth: ");
    write::decimal(buf, u64::from(plan.max_breadth));
    buf.extend_from_slice(b"\r\n");
    let body = plan.body.unwrap_or(request.body());
    if !length {
        // Section 18.3: a stream requires it, and the next hop may be one.
        buf.extend_from_slice(b"Content-Length: ");
        write::decimal(buf, body.len() as u64);
        buf.extend_from_slice(b"\r\n");
    }
    buf.extend_from_slice(b"\r\n");
    buf.extend_from_slice(body);
}

/// Returns whether a header field asserts an identity without proof: P-Asserted-Identity (RFC 3325 section 9.1), and
/// Remote-Party-ID, its predecessor.
fn asserts_identity(id: HeaderId, line: &[u8]) -> bool {
    const REMOTE_PARTY_ID: &[u8] = b"Remote-Party-ID";
    id == HeaderId::PAssertedIdentity
        || line.get(..REMOTE_PARTY_ID.len()).is_some_and(|name| {
            name.eq_ignore_ascii_case(REMOTE_PARTY_ID)
                && matches!(line.get(name.len()), Some(b':' | b' ' | b'\t'))
        })
}

fn is_for(credentials: &[u8], realm: Option<&str>) -> bool {
    realm.is_some_and(|realm| {
        Credentials::parse(credentials).is_ok_and(|c| c.is_for(realm.as_bytes()))
    })
}

/// Appends `response` without its topmost Via (RFC 3261 section 16.7 item 3). With `strip_identity`, header fields that
/// assert an identity are removed. `body` is written instead of its own.
pub(crate) fn response(
    buf: &mut Vec<u8>,
    response: &Message<'_>,
    via: &Via<'_>,
    strip_identity: bool,
    body: Option<&[u8]>,
) {
    let bytes = response.bytes();
    buf.reserve(bytes.len());
    buf.extend_from_slice(response.start_line());
    let mut run = Run::after_start_line(response);
    let (mut cut, mut length) = (false, false);
    for slot in response.headers() {
        match slot.id {
            HeaderId::Via if !cut => {
                cut = true;
                let line = response.line(slot);
                run.replace(buf, bytes, line, |buf| without_first(buf, line, via.element));
            }
            HeaderId::PAssertedIdentity | HeaderId::Other
                if strip_identity && asserts_identity(slot.id, response.line(slot)) =>
            {
                run.replace(buf, bytes, response.line(slot), |_| {});
            }
            HeaderId::ContentLength if body.is_some() => {
                run.replace(buf, bytes, response.line(slot), |_| {});
            }
            HeaderId::ContentLength => length = true,
            _ => {}
        }
    }
    run.flush(buf, bytes);
    let body = body.unwrap_or(response.body());
    if !length {
        buf.extend_from_slice(b"Content-Length: ");
        write::decimal(buf, body.len() as u64);
        buf.extend_from_slice(b"\r\n");
    }
    buf.extend_from_slice(b"\r\n");
    buf.extend_from_slice(body);
}

/// The part of the header section that has been passed but not yet copied.
struct Run {
    start: usize,
    end: usize,
}

impl Run {
    fn after_start_line(message: &Message<'_>) -> Run {
        let start = message.start_line().len();
        let end = message.headers().last().map_or(start, |slot| {
            let line = message.line(slot);
            offset(message.bytes(), line) + line.len()
        });
        Run { start, end }
    }

    /// Copies the bytes before `line` and writes `with` instead of it.
    fn replace(
        &mut self,
        buf: &mut Vec<u8>,
        bytes: &[u8],
        line: &[u8],
        with: impl FnOnce(&mut Vec<u8>),
    ) {
        let at = offset(bytes, line);
        buf.extend_from_slice(&bytes[self.start..at]);
        with(buf);
        self.start = at + line.len();
    }

    fn flush(&self, buf: &mut Vec<u8>, bytes: &[u8]) {
        buf.extend_from_slice(&bytes[self.start..self.end]);
    }
}

/// Returns the offset of a part in the message it was taken from.
fn offset(bytes: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize).min(bytes.len())
}

/// Appends a header line without its first element; nothing if that was the only one.
fn without_first(buf: &mut Vec<u8>, line: &[u8], element: &[u8]) {
    let at = offset(line, element);
    let rest = line[at + element.len()..].trim_ascii_start();
    if let Some(rest) = rest.strip_prefix(b",") {
        buf.extend_from_slice(&line[..at]);
        buf.extend_from_slice(rest.trim_ascii_start());
    }
}

/// Removes leading Route elements and, if asked, the last one.
struct RouteEdit {
    skip: usize,
    keep: usize,
    all: bool,
}

impl RouteEdit {
    fn new(request: &Message<'_>, plan: &Plan<'_>) -> Self {
        if plan.routes_used == 0 && !plan.last_route_used {
            return RouteEdit { skip: 0, keep: usize::MAX, all: true };
        }
        let total = request.items(HeaderId::Route).count();
        let end = total - usize::from(plan.last_route_used && total > 0);
        RouteEdit { skip: plan.routes_used, keep: end.saturating_sub(plan.routes_used), all: false }
    }

    fn changes(&self) -> bool {
        !self.all
    }

    fn line(&mut self, buf: &mut Vec<u8>, line: &[u8], value: &[u8]) {
        let name = &line[..offset(line, value)];
        let mut first = true;
        for item in Items::new(value) {
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            if self.keep == 0 {
                break;
            }
            self.keep -= 1;
            buf.extend_from_slice(if first { name } else { b", " });
            buf.extend_from_slice(item);
            first = false;
        }
        if !first {
            buf.extend_from_slice(b"\r\n");
        }
    }
}
