//! Record-Route for both sides (RFC 3261 section 16.6 item 4).

use crate::core::dialogs::MARK_SEPARATOR;
use crate::core::locator::Destination;
use crate::core::names::{has_ob, is_sips};
use crate::core::node::Node;
use crate::mark::Beside;
use crate::outbound::MAX_TOKEN;
use ringway_sansio::{Flow, Time, Transport};
use ringway_sip::header::{HeaderId, NameAddr};
use ringway_sip::message::Message;
use ringway_sip::uri::Uri;
use ringway_sip::write;
use smallvec::SmallVec;
use std::net::SocketAddr;

/// Appends one value if both sides see the same address, two if they do not (RFC 5658) or if a side must be reached
/// over its flow (RFC 5626 section 5.3). `uri` is the Request-URI of the forwarded request.
pub(super) fn write(
    buf: &mut Vec<u8>,
    node: &Node,
    now: Time,
    msg: &Message<'_>,
    uri: &[u8],
    from: &Flow,
    to: &Destination,
) {
    let mark = node.dialogs.callee_marks(now, &node.trust, msg, from, to);
    let near = needs_flow(msg, from).then_some(*from);
    // A datagram flow is used only if the Contact does not contain the address.
    let far = to.flow.filter(|f| f.transport.is_datagram() || contact_needs_flow(uri, f));
    let secure = is_sips(uri);
    let same = from.transport == to.transport && from.local == to.local;
    let mut write = |transport: Transport, local: SocketAddr, token: Option<Flow>| {
        buf.extend_from_slice(b"Record-Route: <");
        // A sips URI on the side of TLS only: on the other it could not be reached (section 16.7 item 8 requires that
        // it is rewritten there).
        let sips = secure && transport.is_secure();
        buf.extend_from_slice(if sips { b"sips:" } else { b"sip:" });
        let start = buf.len();
        if let Some(flow) = token {
            node.tokens.write(buf, &flow);
        }
        let token = SmallVec::<[u8; MAX_TOKEN]>::from_slice(&buf[start..]);
        if !token.is_empty() {
            buf.push(MARK_SEPARATOR);
        }
        let beside = Beside { token: &token, address: Some(local) };
        buf.extend_from_slice(&mark(&beside));
        buf.push(b'@');
        write::addr(buf, local);
        if transport != Transport::Udp {
            buf.extend_from_slice(b";transport=");
            // A peer need not know `tls-sctp`: RFC 4168 defines it for Via only.
            let named = match transport {
                Transport::TlsSctp if sips => Transport::Sctp,
                transport => transport,
            };
            buf.extend_from_slice(named.uri().as_bytes());
        }
        buf.extend_from_slice(b";lr>\r\n");
    };
    if same && near.is_none() && far.is_none() {
        return write(from.transport, from.local, None);
    }
    write(to.transport, to.local, far);
    write(from.transport, from.local, near);
}

/// Returns whether requests back to the sender of this one must use its flow. Only for a user agent directly before
/// this proxy; behind another proxy that one decides.
fn needs_flow(msg: &Message<'_>, flow: &Flow) -> bool {
    if msg.items(HeaderId::Via).nth(1).is_some() {
        return false;
    }
    match msg.items(HeaderId::Contact).next().map(NameAddr::parse) {
        Some(Ok(contact)) => contact_needs_flow(contact.uri, flow),
        _ => !flow.transport.is_datagram(),
    }
}

/// Returns whether a Contact is reached by the flow of its owner rather than by its URI: a phone that negotiated
/// Outbound (RFC 5626 section 5.3), one whose address differs from its source, a WebSocket (RFC 7118 section 5), an
/// SCTP association with its several addresses, and a TLS client, which has no certificate to be connected to by. Any
/// other is connected to by its Contact (RFC 3261 section 18.1.1), also when its flow has closed.
fn contact_needs_flow(contact: &[u8], flow: &Flow) -> bool {
    let datagram = flow.transport.is_datagram();
    let Ok(uri) = Uri::parse(contact) else { return !datagram };
    if matches!(flow.transport, Transport::Ws | Transport::Sctp) || flow.transport.is_secure() {
        return true;
    }
    match uri.host_ip() {
        Some(ip) => {
            ip.to_canonical() != flow.remote.ip().to_canonical() || !datagram && has_ob(&uri)
        }
        None => !datagram || uri.host.to_ascii_lowercase().ends_with(b".invalid"),
    }
}
