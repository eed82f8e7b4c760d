//! The strict check of a message. A server may rely on what passes it.

use super::{Message, Start, fields};
use crate::header::{CSeq, HeaderId};
use crate::limits::{MAX_METHOD, MAX_REQUEST_URI};
use crate::method::Method;
use crate::syntax::offset;
use crate::uri::Uri;
use ringway_sansio::{Got, Malformed};

impl Message<'_> {
    /// Checks everything a server must be able to rely on; the first fault found decides.
    ///
    /// After it, for a request and a response alike: every line ends in CRLF and holds no control
    /// characters; every header field has a name; Via, From, To, Call-ID and CSeq are there; what
    /// may stand once stands once; these, Max-Forwards, Contact, Route, Record-Route, Path,
    /// Service-Route, Require, Proxy-Require, Content-Type and Content-Length are what the grammar
    /// says and within [`limits`](crate::limits); URIs in them parse, of whatever scheme; the
    /// method of CSeq is that of the request; the body is as long as Content-Length says.
    ///
    /// What it leaves alone: an absent From tag or branch (RFC 2543 has none), Expires and the
    /// expires of a Contact (a value that cannot be read means the default, RFC 3261
    /// section 10.2.1.1), Date (RFC 4475 section 3.1.2.12), and all fields that only endpoints
    /// read.
    ///
    /// Statuses: 400, or 413 body too large, 414 Request-URI too long, 483 more Vias than hops can
    /// be, 501 unknown method that CSeq contradicts, 505 another version, 513 beyond another limit.
    pub fn check(&self) -> Result<(), Malformed> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if let Start::Request { method, uri } = self.start {
            self.check_request_line(method, uri)?;
        }
        self.check_octets()?;
        self.check_mandatory()?;
        // These store their result for later callers.
        let top_via = self.top_via()?;
        for address in [self.from()?, self.to()?] {
            let base = offset(self.bytes, address.element);
            fields::party(&address).map_err(|e| e.moved(base))?;
        }
        let mut counts = fields::Counts::default();
        for slot in &self.slots {
            // RFC 4475 section 3.3.8.
            if slot.next != 0 && fields::stands_once(slot.id) {
                let at = self.slots[slot.next as usize - 1].start as usize;
                return Err(Malformed::bad("expected this header field once", Got::Several, at));
            }
            if fields::is_checked(slot.id) {
                let value = self.value(slot);
                fields::check(slot.id, value, &top_via, &mut counts)
                    .map_err(|e| e.moved(offset(self.bytes, value)))?;
            }
        }
        self.check_cseq()
    }

    /// Performs the part of [`check`](Message::check) without which a message cannot even be forwarded, and which
    /// responses must pass: every line ends in CRLF, the body is as long as Content-Length (RFC 3261 section 18.3),
    /// Via, From, To, Call-ID and CSeq are present, no unique header field is repeated, and CSeq can be parsed. Much
    /// cheaper than the whole check.
    pub fn check_frame(&self) -> Result<(), Malformed> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.check_mandatory()?;
        for slot in &self.slots {
            if slot.next != 0 && fields::stands_once(slot.id) {
                let at = self.slots[slot.next as usize - 1].start as usize;
                return Err(Malformed::bad("expected this header field once", Got::Several, at));
            }
        }
        self.check_cseq()
    }

    fn check_request_line(&self, method: Method<'_>, uri: &[u8]) -> Result<(), Malformed> {
        let length = method.as_bytes().len();
        if length > MAX_METHOD {
            let got = Got::Number(length as u64);
            return Err(Malformed::bad("start line: expected a shorter method", got, 0));
        }
        let at = offset(self.bytes, uri);
        // RFC 3261 section 21.4.12.
        if uri.len() > MAX_REQUEST_URI {
            let got = Got::Number(uri.len() as u64);
            return Err(Malformed::with_status(414, "Request-URI: expected fewer octets", got, at));
        }
        let parsed = Uri::parse(uri).map_err(|e| e.moved(at))?;
        // RFC 3261 section 19.1.1: a Request-URI must not contain header fields.
        if !parsed.headers.is_empty() {
            let at = offset(self.bytes, parsed.headers);
            return Err(Malformed::here("Request-URI: expected no header fields", self.bytes, at));
        }
        Ok(())
    }

    /// Checks octets: no control characters except in quoted pairs, no CR except before LF (RFC 3261 section 25.1).
    fn check_octets(&self) -> Result<(), Malformed> {
        if !self.controls {
            return Ok(());
        }
        let head = &self.bytes[..self.body_start()];
        for (i, &b) in head.iter().enumerate() {
            if b == b'\r' && head.get(i + 1) != Some(&b'\n') {
                return Err(Malformed::here("expected CR only before LF", head, i));
            }
            // RFC 4475 section 3.1.1.2 has escaped ones in a quoted string.
            let control = (b < 0x20 && !matches!(b, b'\t' | b'\r' | b'\n')) || b == 0x7f;
            if control && (i == 0 || head[i - 1] != b'\\') {
                return Err(Malformed::here("expected no control character", head, i));
            }
        }
        Ok(())
    }

    /// Checks the mandatory header fields: RFC 3261 section 8.1.1. Max-Forwards is not required: section 16.3 accepts a
    /// request without it.
    fn check_mandatory(&self) -> Result<(), Malformed> {
        const MANDATORY: &[(HeaderId, &str)] = &[
            (HeaderId::Via, "Via: expected one"),
            (HeaderId::From, "From: expected one"),
            (HeaderId::To, "To: expected one"),
            (HeaderId::CallId, "Call-ID: expected one"),
            (HeaderId::CSeq, "CSeq: expected one"),
        ];
        for &(id, expected) in MANDATORY {
            if !self.has(id) {
                return Err(self.missing(expected));
            }
        }
        Ok(())
    }

    /// Checks CSeq: RFC 3261 section 8.1.1.5; RFC 4475 section 3.1.2.17, and section 3.1.2.18, which requires 501 for
    /// an unknown method.
    fn check_cseq(&self) -> Result<(), Malformed> {
        let Some(value) = self.first(HeaderId::CSeq) else {
            return Err(self.missing("CSeq: expected one"));
        };
        let base = offset(self.bytes, value);
        let cseq = CSeq::parse(value).map_err(|e| e.moved(base))?;
        match self.start {
            Start::Request { method, .. } if method != cseq.method => {
                let mut fault =
                    Malformed::here("CSeq: expected the method of the request", self.bytes, base);
                if matches!(method, Method::Other(_)) {
                    fault.status = 501;
                }
                Err(fault)
            }
            _ => Ok(()),
        }
    }
}
