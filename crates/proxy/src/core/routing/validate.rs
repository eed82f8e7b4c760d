//! Request validation: RFC 3261 section 16.3 items 2 to 5, with the loop detection of RFC 5393.

use super::phones::Wanted;
use super::preroute::RequestRoute;
use crate::core::names::is_sips;
use crate::core::refusal::Refusal;
use crate::core::request::{Findings, IncomingRequest};
use crate::core::turn::Turn;
use ringway_sip::header::{HeaderId, Via};
use ringway_sip::message::Method;
use ringway_sip::transaction::Branch;
use ringway_sip::uri::Scheme;
use std::hash::Hasher;

/// Max-Forwards of a request without one (RFC 3261 section 16.6 item 3).
const DEFAULT_MAX_FORWARDS: u8 = 70;

/// The maximum Max-Breadth accepted, and that of a request without one (RFC 5393 section 5.3.3).
const MAX_BREADTH: u32 = 60;

/// Performs items 2 to 5. `ends_here` is whether the request is for the server itself and will not be forwarded.
pub(in crate::core) fn validate(
    t: &mut Turn<'_>,
    incoming: &IncomingRequest<'_>,
    routed: &RequestRoute<'_>,
    ends_here: bool,
) -> Result<Findings, Refusal> {
    let msg = incoming.msg;
    // Item 2: a scheme that is not understood.
    if let Scheme::Other(_) = routed.uri.scheme
        && routed.next.is_none()
        && routed.flow.is_none()
    {
        return Err(Refusal::new(416, "Unsupported URI Scheme"));
    }
    // Item 3.
    let hops = msg.max_forwards().map_err(|e| Refusal::new(e.status, e.reason))?;
    if hops == Some(0) && !ends_here {
        t.stats.looped += 1;
        return Err(Refusal::new(483, "Too Many Hops"));
    }
    // Item 4. A request that is not forwarded cannot loop.
    let spiral = if ends_here { 0 } else { spiral(t, incoming, routed) };
    if !ends_here && is_loop(incoming, spiral) {
        t.stats.looped += 1;
        return Err(Refusal::new(482, "Loop Detected"));
    }
    // Item 5: none of the extensions a proxy could be required to have is one of ours.
    if msg.method() != Method::Ack && msg.first(HeaderId::ProxyRequire).is_some() {
        return Err(Refusal::bad_extension(msg.items(HeaderId::ProxyRequire)));
    }
    let breadth = msg
        .first(HeaderId::MaxBreadth)
        .and_then(|v| std::str::from_utf8(v).ok()?.parse().ok())
        .unwrap_or(MAX_BREADTH);
    Ok(Findings {
        routes_used: routed.routes_used,
        last_route_used: routed.last_route_used,
        max_forwards: hops.map_or(DEFAULT_MAX_FORWARDS, |hops| hops.saturating_sub(1)),
        max_breadth: breadth.min(MAX_BREADTH),
        realm: None,
        privileged: false,
        sender: None,
        vouched: false,
        from_server: t.node.trust.sender(incoming).is_some(),
        is_part: Wanted::of(t, incoming) != Wanted::All,
        in_dialog: routed.in_dialog,
        ack: None,
        spiral,
        return_path: true,
        // What makes a dialog; NOTIFY may be the first of one (RFC 6665 section 4.3).
        // At the edge of TLS the operator cannot decide it (section 16.6 item 4).
        record_route: (t.node.config.record_route
            || t.node.media.is_some()
            || incoming.flow.transport.is_secure()
            || is_sips(routed.uri_bytes))
            && match msg.method() {
                Method::Invite | Method::Subscribe | Method::Notify | Method::Refer => true,
                // Of a phone that has come from another router: it shows the way to it (`core/dialogs.rs`).
                Method::Update => !routed.is_in_dialog(),
                _ => false,
            },
    })
}

/// Returns the findings about a request of this server itself.
pub(in crate::core) fn of_own() -> Findings {
    Findings {
        routes_used: 0,
        last_route_used: false,
        max_forwards: DEFAULT_MAX_FORWARDS,
        max_breadth: MAX_BREADTH,
        realm: None,
        privileged: false,
        sender: None,
        vouched: true,
        from_server: false,
        is_part: false,
        in_dialog: None,
        ack: None,
        spiral: 0,
        return_path: true,
        record_route: false,
    }
}

/// Returns the hash of all that decides the routing of a request (RFC 5393 section 4.2.2): the same for a request that
/// returns unchanged, and different for one that returns for another target.
fn spiral(t: &Turn<'_>, incoming: &IncomingRequest<'_>, routed: &RequestRoute<'_>) -> u64 {
    let mut h = t.node.spiral();
    let mut field = |bytes: &[u8]| {
        h.write(bytes);
        h.write_u8(b'\n');
    };
    let msg = incoming.msg;
    field(routed.uri_bytes);
    field(msg.call_id());
    field(msg.first(HeaderId::From).unwrap_or_default());
    field(msg.first(HeaderId::To).unwrap_or_default());
    field(&msg.cseq().map_or(0, |c| c.seq).to_be_bytes());
    for id in [HeaderId::Route, HeaderId::ProxyRequire, HeaderId::ProxyAuthorization] {
        if msg.first(id).is_some() {
            msg.all(id).for_each(&mut field);
        }
    }
    h.finish()
}

fn is_loop(incoming: &IncomingRequest<'_>, spiral: u64) -> bool {
    let ours = |via: &Via<'_>| Branch::parse(via.branch).is_some_and(|b| b.spiral == spiral);
    if ours(incoming.via) {
        return true;
    }
    let only = |value: &[u8]| value.len() == incoming.via.element.len();
    let mut lines = incoming.msg.all(HeaderId::Via);
    if lines.next().is_some_and(only) && lines.next().is_none() {
        return false;
    }
    incoming.msg.items(HeaderId::Via).skip(1).any(|element| {
        // Only a Via of our form is worth parsing.
        memchr::memmem::find(element, b"z9hG4bK").is_some()
            && Via::parse(element).is_ok_and(|via| ours(&via))
    })
}
