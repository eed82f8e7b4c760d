//! Requests within a dialog (RFC 3261 section 12.2.1.1).

use super::{Dialog, DialogError, State};
use crate::header::NameAddr;
use crate::method::Method;
use crate::uri::Uri;
use crate::write;

/// The sequence number of a dialog's first request, where we choose it.
const FIRST_CSEQ: u32 = 1;

/// A request to be written in a dialog.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its method.
    pub method: Method<'a>,
    /// The value of its Via, with a new branch.
    pub via: &'a [u8],
    /// More header fields, each with its CRLF: Contact, which a target refresh should have;
    /// Content-Type if there is a body.
    pub extra: &'a [u8],
    /// Its body.
    pub body: &'a [u8],
}

impl Dialog {
    /// Appends a request to `buf` and counts it; gives its sequence number. Not for ACK, see
    /// [`Dialog::ack`], nor for CANCEL, which is made of the request it cancels.
    pub fn request(&mut self, buf: &mut Vec<u8>, out: &Outgoing<'_>) -> Result<u32, DialogError> {
        if self.state == State::Terminated {
            return Err(DialogError::Terminated);
        }
        let seq = match self.local_cseq {
            None => FIRST_CSEQ,
            Some(last) if last < (1 << 31) - 1 => last + 1,
            Some(_) => return Err(DialogError::Exhausted),
        };
        self.local_cseq = Some(seq);
        self.write(buf, out, seq);
        Ok(seq)
    }

    /// Appends the ACK for a 2xx to the INVITE with sequence number `seq` (RFC 3261
    /// section 13.2.2.4). It has the credentials of the INVITE: give them in `extra`.
    pub fn ack(&self, buf: &mut Vec<u8>, via: &[u8], seq: u32, extra: &[u8], body: &[u8]) {
        self.write(buf, &Outgoing { method: Method::Ack, via, extra, body }, seq);
    }

    /// The URI whose host the next request goes to: that of the first route, or the remote
    /// target (RFC 3261 section 8.1.2).
    pub fn next_hop(&self) -> &[u8] {
        self.first_route().unwrap_or(&self.remote_target)
    }

    fn first_route(&self) -> Option<&[u8]> {
        self.route_set.first().and_then(|r| NameAddr::parse(r).ok()).map(|r| r.uri)
    }

    fn write(&self, buf: &mut Vec<u8>, out: &Outgoing<'_>, seq: u32) {
        let strict = self
            .first_route()
            .filter(|uri| !Uri::parse(uri).is_ok_and(|uri| uri.is_loose_router()));
        buf.extend_from_slice(out.method.as_bytes());
        buf.push(b' ');
        request_uri(buf, strict.unwrap_or(&self.remote_target));
        buf.extend_from_slice(b" SIP/2.0\r\n");
        write::header(buf, "Via", out.via);
        for route in self.route_set.iter().skip(strict.is_some() as usize) {
            buf.extend_from_slice(b"Route: ");
            write::unfolded(buf, route);
            buf.extend_from_slice(b"\r\n");
        }
        if strict.is_some() {
            buf.extend_from_slice(b"Route: <");
            request_uri(buf, &self.remote_target);
            buf.extend_from_slice(b">\r\n");
        }
        buf.extend_from_slice(b"Max-Forwards: 70\r\n");
        party(buf, "From", &self.local_uri, &self.local_tag);
        party(buf, "To", &self.remote_uri, &self.remote_tag);
        write::header(buf, "Call-ID", &self.call_id);
        buf.extend_from_slice(b"CSeq: ");
        write::decimal(buf, seq as u64);
        buf.push(b' ');
        buf.extend_from_slice(out.method.as_bytes());
        buf.extend_from_slice(b"\r\n");
        buf.extend_from_slice(out.extra);
        write::end(buf, out.body);
    }
}

/// The null tag is left out (RFC 3261 section 12.2.1.1).
fn party(buf: &mut Vec<u8>, name: &str, uri: &[u8], tag: &[u8]) {
    buf.extend_from_slice(name.as_bytes());
    buf.extend_from_slice(b": <");
    buf.extend_from_slice(uri);
    buf.push(b'>');
    if !tag.is_empty() {
        buf.extend_from_slice(b";tag=");
        buf.extend_from_slice(tag);
    }
    buf.extend_from_slice(b"\r\n");
}

/// A URI without what is not allowed in a Request-URI nor in a Route: header fields and the method
/// parameter (RFC 3261 section 19.1.1, table 1).
fn request_uri(buf: &mut Vec<u8>, uri: &[u8]) {
    let Ok(parsed) = Uri::parse(uri) else {
        buf.extend_from_slice(uri);
        return;
    };
    let tail = parsed.params.len() + parsed.headers.len() + !parsed.headers.is_empty() as usize;
    if !parsed.is_sip() || tail == 0 {
        buf.extend_from_slice(uri);
        return;
    }
    buf.extend_from_slice(&uri[..uri.len() - tail]);
    for (name, value) in parsed.params() {
        if name.eq_ignore_ascii_case(b"method") {
            continue;
        }
        buf.push(b';');
        buf.extend_from_slice(name);
        if let Some(value) = value {
            buf.push(b'=');
            buf.extend_from_slice(value);
        }
    }
}
