//! Forwarding of a request to a target: RFC 3261 section 16.6 items 1 to 8, with or without a transaction.

use super::locator::{Destination, Locator, Lookup};
use super::node::Node;
use super::request::Findings;
use super::target::{Attempt, RequestTarget};
use crate::forward::{self, Plan};
use ringway_sansio::{Flow, Hop, Transport};
use ringway_sip::header::{HeaderId, Items, NameAddr, Via};
use ringway_sip::message::Message;
use ringway_sip::uri::Uri;
use std::borrow::Cow;

/// A request to be forwarded to one target.
pub(super) struct ForwardRequest<'a> {
    pub msg: &'a Message<'a>,
    /// Its topmost Via.
    pub via: &'a Via<'a>,
    /// The flow it came on.
    pub flow: &'a Flow,
    pub findings: &'a Findings,
    pub target: &'a RequestTarget,
    /// The next hop of a routing rule, prepended as a Route.
    pub through: Option<&'a str>,
    pub destination: &'a Destination,
    /// Its share of Max-Breadth (RFC 5393 section 5.3.3).
    pub max_breadth: u32,
    /// The body to forward instead of the request's own.
    pub body: Option<&'a [u8]>,
}

impl ForwardRequest<'_> {
    /// Appends the forwarded request. `record_route` and `branch` write those parts.
    pub(super) fn write(
        &self,
        buf: &mut Vec<u8>,
        node: &Node,
        record_route: impl FnOnce(&mut Vec<u8>),
        branch: impl FnOnce(&mut Vec<u8>),
    ) {
        let uri = as_request_uri(&self.target.uri);
        let strict = self.strict_route();
        let displaced = strict.map(|_| [b"<", &*uri, b">"].concat()).unwrap_or_default();
        let plan = Plan {
            // Section 16.6 item 6: the URI of a strict router replaces the Request-URI.
            uri: strict.unwrap_or(&uri),
            transport: self.destination.transport,
            sent_by: self.destination.local,
            routes_used: self.findings.routes_used
                + self.target.routes_replaced
                + usize::from(strict.is_some()),
            last_route_used: self.findings.last_route_used,
            last_route: &displaced,
            max_forwards: self.findings.max_forwards,
            max_breadth: self.max_breadth,
            strip_identity: node.trust.strips_identity(
                self.flow,
                self.destination.target.remote().ip(),
                self.msg,
            ),
            realm: self.findings.realm.as_deref(),
            body: self.body,
        };
        let on_top = |buf: &mut Vec<u8>| {
            record_route(buf);
            self.write_routes(buf);
        };
        forward::request(buf, self.msg, self.via, self.flow, &plan, on_top, branch);
    }

    /// Appends the Route values of the proxy: the next hop of a rule, then the Path of a binding.
    fn write_routes(&self, buf: &mut Vec<u8>) {
        if let Some(uri) = self.through {
            // The next hop of a routing rule is a loose router by definition (section 16.6 item 6).
            let end: &[u8] = if has_lr(uri) { b">\r\n" } else { b";lr>\r\n" };
            for part in [b"Route: <", uri.as_bytes(), end] {
                buf.extend_from_slice(part);
            }
        }
        if !self.target.path.is_empty() {
            for part in [b"Route: ", self.target.path.as_slice(), b"\r\n"] {
                buf.extend_from_slice(part);
            }
        }
    }

    /// Returns the strict router that the request is sent to, if any.
    fn strict_route(&self) -> Option<&[u8]> {
        if self.through.is_some() || !self.target.path.is_empty() || self.destination.flow.is_some()
        {
            return None;
        }
        let route = NameAddr::parse(next_route(self.msg, self.findings, self.target)?).ok()?;
        let uri = Uri::parse(route.uri).ok()?;
        (!uri.is_loose_router()).then_some(route.uri)
    }
}

/// Returns the destination of an attempt. A binding stands for other attempts and has no destination itself.
pub(super) fn locate_attempt(
    locator: &mut Locator,
    attempt: &Attempt,
    msg: &Message<'_>,
    findings: &Findings,
    target: &RequestTarget,
) -> Lookup {
    let mut found = match attempt {
        Attempt::Flow(flow) => Lookup::Destination(Destination::over(*flow)),
        Attempt::Hop(hop) => locator.destination_of(hop.clone()).into(),
        Attempt::Datagram(addr) => {
            let hop = Hop { transport: Transport::Udp, addr: *addr, name: None };
            locator
                .destination_of(hop)
                .map(|destination| Destination { any_size: true, ..destination })
                .into()
        }
        Attempt::Via(uri) => {
            let uri = Uri::parse(uri.as_bytes());
            uri.map_or(Lookup::Unreachable, |uri| locator.locate(&uri, &target.uri))
        }
        Attempt::Uri => locate(locator, msg, findings, target),
        Attempt::Binding(_) => Lookup::Unreachable,
    };
    if let (Lookup::Destination(destination), Some(local)) = (&mut found, target.local) {
        locator.send_from(destination, local);
    }
    found
}

/// Locates the topmost Route, or else the Request-URI (section 16.6 item 7).
fn locate(
    locator: &mut Locator,
    msg: &Message<'_>,
    findings: &Findings,
    target: &RequestTarget,
) -> Lookup {
    let route = Items::new(&target.path).next().or_else(|| next_route(msg, findings, target));
    let uri = match route.map(NameAddr::parse) {
        Some(Ok(route)) => route.uri,
        Some(Err(_)) => return Lookup::Unreachable,
        None => &target.uri,
    };
    Uri::parse(uri).map_or(Lookup::Unreachable, |uri| locator.locate(&uri, &target.uri))
}

/// Returns the first Route element that is left.
fn next_route<'a>(
    msg: &Message<'a>,
    findings: &Findings,
    target: &RequestTarget,
) -> Option<&'a [u8]> {
    if !msg.has(HeaderId::Route) {
        return None;
    }
    let used = findings.routes_used + target.routes_replaced;
    let mut rest = msg.items(HeaderId::Route).skip(used);
    let next = rest.next()?;
    // The last one has become the Request-URI if a strict router sent this.
    (!findings.last_route_used || rest.next().is_some()).then_some(next)
}

/// Returns a URI without the parts that a Request-URI must not have: header fields and the `method` parameter (section
/// 16.6 item 2, section 19.1.1).
fn as_request_uri(uri: &[u8]) -> Cow<'_, [u8]> {
    const METHOD: &[u8] = b";method";
    let suspect = memchr::memchr2_iter(b'?', b'=', uri).any(|at| {
        let before = &uri[at.saturating_sub(METHOD.len())..at];
        uri[at] == b'?' || before.eq_ignore_ascii_case(METHOD)
    });
    let parsed = match suspect {
        true => Uri::parse(uri).ok().filter(Uri::is_sip),
        false => None,
    };
    let Some(parsed) = parsed else { return Cow::Borrowed(uri) };
    let tail =
        parsed.params.len() + if parsed.headers.is_empty() { 0 } else { parsed.headers.len() + 1 };
    let mut plain = uri[..uri.len() - tail].to_vec();
    for (name, value) in parsed.params().filter(|(name, _)| !name.eq_ignore_ascii_case(b"method")) {
        plain.push(b';');
        plain.extend_from_slice(name);
        if let Some(value) = value {
            plain.push(b'=');
            plain.extend_from_slice(value);
        }
    }
    Cow::Owned(plain)
}

fn has_lr(uri: &str) -> bool {
    Uri::parse(uri.as_bytes()).is_ok_and(|u| u.is_loose_router())
}
