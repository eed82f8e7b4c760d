//! New requests (RFC 3261 section 8.1.1).

use super::{decimal, end, header_decimal, quoted, unfold};
use crate::header::{HeaderId, Items, NameAddr};
use crate::method::Method;
use crate::syntax::{TOKEN, all};
use crate::uri::Uri;

/// The usual octets of start line and header section without Route.
const HEAD: usize = 512;

/// A new request as a value (RFC 3261 section 8.1.1).
///
/// Texts are written as they are, but CR and LF become spaces, as in [`unfolded`](super::unfolded):
/// a folded value of a received message keeps its meaning (section 7.3.1), and no text can add a
/// header field, end the header section or begin a body. Syntax within a header field and
/// [`limits`](crate::limits) are not checked: a URI or tag that a person enters is the caller's to
/// check ([`Uri::parse`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The method, also that of CSeq.
    pub method: Method<'a>,
    /// The URI that the request is addressed to; within a dialog the remote target. It is the
    /// Request-URI, unless `route` begins with a strict router. URI header fields and the `method`
    /// parameter are omitted (section 19.1.1, table 1).
    pub target: &'a [u8],
    /// The value of Via. It is known after the transport has been selected (section 8.1.1.7); empty
    /// for a Via that is inserted later, see [`Request::emit`].
    pub via: &'a [u8],
    /// The route set: elements of Route in order, separated by commas. Empty for none.
    pub route: &'a [u8],
    /// Max-Forwards.
    pub max_forwards: u8,
    /// From.
    pub from: Party<'a>,
    /// To.
    pub to: Party<'a>,
    /// Call-ID.
    pub call_id: &'a [u8],
    /// The sequence number of CSeq, below 2^31.
    pub cseq: u32,
    /// The URI of Contact. Empty for none; a Contact with parameters, or `*`, is one of `fields`.
    pub contact: &'a [u8],
    /// Further header fields, each a name and a value: Content-Type if there is a body. Names are
    /// constants, tokens, and none of those above nor Content-Length, which is always written.
    pub fields: &'a [(&'static str, &'a [u8])],
    /// The body.
    pub body: &'a [u8],
}

/// One end of a request: From or To.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Party<'a> {
    /// The display name as meant: it is written by [`quoted`]. Empty for none.
    pub display: &'a [u8],
    /// The URI, without angle brackets.
    pub uri: &'a [u8],
    /// The tag. Empty for none, which is also how a null tag is written (section 12.2.1.1).
    pub tag: &'a [u8],
}

impl<'a> Request<'a> {
    /// Returns a request with the mandatory header fields except Via (RFC 3261 section 8.1.1),
    /// Max-Forwards 70, and nothing else.
    pub const fn new(
        method: Method<'a>,
        target: &'a [u8],
        from: Party<'a>,
        to: Party<'a>,
        call_id: &'a [u8],
        cseq: u32,
    ) -> Self {
        Request {
            method,
            target,
            via: b"",
            route: b"",
            max_forwards: 70,
            from,
            to,
            call_id,
            cseq,
            contact: b"",
            fields: &[],
            body: b"",
        }
    }

    /// Returns the URI whose host the request is sent to: that of the first route, or the target
    /// (RFC 3261 section 8.1.2).
    pub fn next_hop(&self) -> &'a [u8] {
        self.first_route().unwrap_or(self.target)
    }

    /// Appends the request: start line, Via, Route, Max-Forwards, From, To, Call-ID, CSeq, Contact,
    /// further fields, Content-Length and body. Returns the index in `buf` at which the header fields
    /// begin, where a Via header field is inserted if `via` is empty.
    ///
    /// Each element of the route set becomes a header field of its own, so that none is longer than
    /// when it was received. If the first one is a strict router, its URI becomes the Request-URI and
    /// the target the last Route (RFC 3261 section 12.2.1.1).
    pub fn emit(&self, buf: &mut Vec<u8>) -> usize {
        buf.reserve(HEAD + self.route.len() + self.body.len());
        let strict = self
            .first_route()
            .filter(|uri| !Uri::parse(uri).is_ok_and(|uri| uri.is_loose_router()));
        line(buf, |buf| {
            buf.extend_from_slice(self.method.as_bytes());
            buf.push(b' ');
            request_uri(buf, strict.unwrap_or(self.target));
            buf.extend_from_slice(b" SIP/2.0");
        });
        let fields_at = buf.len();
        if !self.via.is_empty() {
            field(buf, "Via", self.via);
        }
        for element in self.routes().skip(strict.is_some() as usize) {
            field(buf, "Route", element);
        }
        if strict.is_some() {
            line(buf, |buf| {
                buf.extend_from_slice(b"Route: <");
                request_uri(buf, self.target);
                buf.push(b'>');
            });
        }
        header_decimal(buf, "Max-Forwards", self.max_forwards.into());
        party(buf, b"From: ", &self.from);
        party(buf, b"To: ", &self.to);
        field(buf, "Call-ID", self.call_id);
        line(buf, |buf| {
            buf.extend_from_slice(b"CSeq: ");
            decimal(buf, self.cseq.into());
            buf.push(b' ');
            buf.extend_from_slice(self.method.as_bytes());
        });
        if !self.contact.is_empty() {
            line(buf, |buf| {
                buf.extend_from_slice(b"Contact: <");
                buf.extend_from_slice(self.contact);
                buf.push(b'>');
            });
        }
        for (name, value) in self.fields {
            debug_assert!(may_be_added(name), "{name}: expected another header field");
            field(buf, name, value);
        }
        end(buf, self.body);
        fields_at
    }

    fn routes(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Items::new(self.route).filter(|element| !element.is_empty())
    }

    /// Returns the URI of the first route.
    fn first_route(&self) -> Option<&'a [u8]> {
        self.routes().next().and_then(|route| NameAddr::parse(route).ok()).map(|route| route.uri)
    }
}

/// Returns whether this is a header field name, and not one that [`Request::emit`] writes itself.
fn may_be_added(name: &str) -> bool {
    use HeaderId::*;
    let written = [Via, Route, MaxForwards, From, To, CallId, CSeq, ContentLength];
    !name.is_empty()
        && all(name.as_bytes(), TOKEN)
        && !written.contains(&HeaderId::of(name.as_bytes()))
}

/// Appends one line: what `write` appends, and a line end.
#[inline(always)]
fn line(buf: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = buf.len();
    write(buf);
    unfold(&mut buf[start..]);
    buf.extend_from_slice(b"\r\n");
}

fn field(buf: &mut Vec<u8>, name: &str, value: &[u8]) {
    line(buf, |buf| {
        buf.extend_from_slice(name.as_bytes());
        buf.extend_from_slice(b": ");
        buf.extend_from_slice(value);
    });
}

fn party(buf: &mut Vec<u8>, name: &[u8], party: &Party<'_>) {
    line(buf, |buf| {
        buf.extend_from_slice(name);
        if !party.display.is_empty() {
            quoted(buf, party.display);
            buf.push(b' ');
        }
        buf.push(b'<');
        buf.extend_from_slice(party.uri);
        buf.push(b'>');
        if !party.tag.is_empty() {
            buf.extend_from_slice(b";tag=");
            buf.extend_from_slice(party.tag);
        }
    });
}

/// Appends a URI without the parts that are not allowed in a Request-URI or in a Route: header fields and the method
/// parameter (RFC 3261 section 19.1.1, table 1).
fn request_uri(buf: &mut Vec<u8>, uri: &[u8]) {
    let parsed = Uri::parse(uri).ok().filter(Uri::is_sip);
    let tail = parsed
        .map_or(0, |uri| uri.params.len() + uri.headers.len() + !uri.headers.is_empty() as usize);
    buf.extend_from_slice(&uri[..uri.len() - tail]);
    for (name, value) in parsed.iter().flat_map(|uri| uri.params()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::parse;

    fn request<'a>(target: &'a [u8], route: &'a [u8]) -> Request<'a> {
        let from = Party { display: b"Joe \"X\"", uri: b"sip:joe@example.com", tag: b"re03" };
        let to = Party { uri: b"sip:app@h", tag: b"123aa9", ..Party::default() };
        Request { route, ..Request::new(Method::Notify, target, from, to, b"9987@app", 7) }
    }

    /// RFC 6665 section 4.2.2; RFC 3261 section 8.1.1.7: Via comes last.
    #[test]
    fn a_via_is_inserted_later() {
        let notify = Request {
            contact: b"sip:192.0.2.1:5060",
            fields: &[("Event", b"reg;id=7"), ("Subscription-State", b"active;expires=600")],
            body: b"<x/>",
            ..request(b"sip:app@h;x=1", b"<sip:p1;lr>, <sip:p2;lr>")
        };
        let mut buf = b"before".to_vec();
        let via_at = notify.emit(&mut buf);
        let text = "beforeNOTIFY sip:app@h;x=1 SIP/2.0\r\nRoute: <sip:p1;lr>\r\n\
            Route: <sip:p2;lr>\r\nMax-Forwards: 70\r\n\
            From: \"Joe \\\"X\\\"\" <sip:joe@example.com>;tag=re03\r\nTo: <sip:app@h>;tag=123aa9\r\n\
            Call-ID: 9987@app\r\nCSeq: 7 NOTIFY\r\nContact: <sip:192.0.2.1:5060>\r\n\
            Event: reg;id=7\r\nSubscription-State: active;expires=600\r\nContent-Length: 4\r\n\r\n<x/>";
        assert_eq!(String::from_utf8_lossy(&buf), text);
        assert_eq!(notify.next_hop(), b"sip:p1;lr");
        buf.splice(via_at..via_at, *b"Via: SIP/2.0/UDP h;branch=z9hG4bKx\r\n");
        parse(&buf["before".len()..]).unwrap().check().unwrap();
    }

    #[test]
    fn header_fields_of_the_request_itself_are_not_added() {
        assert!(["Contact", "Event", "X-Other"].into_iter().all(may_be_added));
        assert!(!["Content-Length", "L", "via", "", "X:y", " X"].into_iter().any(may_be_added));
    }

    /// RFC 3261 section 12.2.1.1 and section 19.1.1, table 1.
    #[test]
    fn a_strict_router_is_addressed_itself() {
        let start = |route: &[u8]| {
            let request = request(b"sip:app@h;method=X;y?a=b", route);
            let mut buf = Vec::new();
            request.emit(&mut buf);
            let end = buf.windows(14).position(|w| w == b"\r\nMax-Forwards").unwrap();
            let start = String::from_utf8_lossy(&buf[..end]).replace("\r\nRoute: ", "|");
            (start, String::from_utf8_lossy(request.next_hop()).into_owned())
        };
        for (route, line, next_hop) in [
            ("", "NOTIFY sip:app@h;y SIP/2.0", "sip:app@h;method=X;y?a=b"),
            (" , ", "NOTIFY sip:app@h;y SIP/2.0", "sip:app@h;method=X;y?a=b"),
            ("<sip:p;lr>", "NOTIFY sip:app@h;y SIP/2.0|<sip:p;lr>", "sip:p;lr"),
            ("<sip:p>", "NOTIFY sip:p SIP/2.0|<sip:app@h;y>", "sip:p"),
            (
                "\"a, b\" <sip:p?c=d>;z,<sip:q;lr>",
                "NOTIFY sip:p SIP/2.0|<sip:q;lr>|<sip:app@h;y>",
                "sip:p?c=d",
            ),
        ] {
            assert_eq!(start(route.as_bytes()), (line.to_owned(), next_hop.to_owned()), "{route}");
        }
    }
}
