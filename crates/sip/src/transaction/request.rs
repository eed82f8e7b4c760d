//! The requests that a client transaction derives from the one it sent: ACK for a final response other than 2xx, and
//! CANCEL.

use crate::header::HeaderId;
use crate::message::Message;

/// Appends the ACK for `response`, a 300-699 response to `invite` (RFC 3261 section 17.1.1.3).
pub fn ack(buf: &mut Vec<u8>, invite: &Message<'_>, response: &Message<'_>) {
    // "The To header field in the ACK MUST equal the To header field in the response."
    derived(buf, invite, b"ACK", response.first(HeaderId::To), b"");
}

/// Appends the CANCEL for `invite` (RFC 3261 section 9.1), with at most one further header line.
pub fn cancel(buf: &mut Vec<u8>, invite: &Message<'_>, reason: &[u8]) {
    derived(buf, invite, b"CANCEL", invite.first(HeaderId::To), reason);
}

fn derived(buf: &mut Vec<u8>, invite: &Message<'_>, method: &[u8], to: Option<&[u8]>, more: &[u8]) {
    buf.extend_from_slice(method);
    buf.push(b' ');
    buf.extend_from_slice(invite.request_uri());
    buf.extend_from_slice(b" SIP/2.0\r\nVia: ");
    // Both have a single Via, equal to the top one of the INVITE.
    if let Ok(via) = invite.top_via() {
        buf.extend_from_slice(via.element);
    }
    buf.extend_from_slice(b"\r\n");
    for slot in invite.headers() {
        if matches!(slot.id, HeaderId::Route | HeaderId::From | HeaderId::CallId) {
            buf.extend_from_slice(invite.line(slot));
        }
    }
    buf.extend_from_slice(b"To: ");
    buf.extend_from_slice(to.unwrap_or_default());
    buf.extend_from_slice(b"\r\nCSeq: ");
    crate::write::decimal(buf, invite.cseq().map_or(0, |c| u64::from(c.seq)));
    buf.push(b' ');
    buf.extend_from_slice(method);
    buf.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
    buf.extend_from_slice(more);
    buf.extend_from_slice(b"Content-Length: 0\r\n\r\n");
}
