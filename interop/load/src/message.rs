//! Just enough of a SIP parser to play both ends of a call: one pass that remembers where the
//! header lines lie which an end must look at or copy. It is written apart from the server's own
//! parser on purpose, so that a mistake in one is not repeated in the other.
//!
//! Folded lines are not read: neither end sends any, and a proxy keeps lines as they are.

use memchr::{memchr, memmem};

/// Via lines kept of one message; more makes the message unreadable.
pub(crate) const MAX_VIAS: usize = 8;
/// Record-Route lines kept of one message; more makes the message unreadable.
pub(crate) const MAX_ROUTES: usize = 8;

/// Challenges kept of one message; more makes the message unreadable.
pub(crate) const MAX_CHALLENGES: usize = 4;

/// The methods that occur in the flows played here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Invite,
    Ack,
    Bye,
    Register,
    Other,
}

/// Start line: a request's URI, or a response's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start<'a> {
    Request(Method, &'a [u8]),
    Response(u16),
}

/// Up to `N` header lines, each without its line end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lines<'a, const N: usize> {
    lines: [&'a [u8]; N],
    count: usize,
}

impl<'a, const N: usize> Lines<'a, N> {
    const EMPTY: Self = Self { lines: [&[]; N], count: 0 };

    fn push(&mut self, line: &'a [u8]) -> Option<()> {
        *self.lines.get_mut(self.count)? = line;
        self.count += 1;
        Some(())
    }

    /// The lines, in the order they had.
    pub(crate) fn as_slice(&self) -> &[&'a [u8]] {
        &self.lines[..self.count]
    }
}

/// What one pass found. Lines are whole (name included) and without CRLF; an absent one is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) start: Start<'a>,
    pub(crate) vias: Lines<'a, MAX_VIAS>,
    pub(crate) record_routes: Lines<'a, MAX_ROUTES>,
    pub(crate) from: &'a [u8],
    pub(crate) to: &'a [u8],
    /// Value, not line.
    pub(crate) call_id: &'a [u8],
    /// Whole line.
    pub(crate) cseq: &'a [u8],
    pub(crate) cseq_number: u32,
    pub(crate) cseq_method: Method,
    /// Value, not line.
    pub(crate) contact: &'a [u8],
    pub(crate) max_forwards: Option<u32>,
    /// Values of WWW-Authenticate and Proxy-Authenticate.
    pub(crate) challenges: Lines<'a, MAX_CHALLENGES>,
}

/// Reads a message, or what is left of one that was cut after its headers began.
pub(crate) fn scan(bytes: &[u8]) -> Option<Message<'_>> {
    let (first, mut rest) = line(bytes)?;
    let mut message = Message {
        start: start_line(first)?,
        vias: Lines::EMPTY,
        record_routes: Lines::EMPTY,
        from: &[],
        to: &[],
        call_id: &[],
        cseq: &[],
        cseq_number: 0,
        cseq_method: Method::Other,
        contact: &[],
        max_forwards: None,
        challenges: Lines::EMPTY,
    };
    while let Some((header, after)) = line(rest) {
        if header.is_empty() {
            return Some(message);
        }
        message.take(header)?;
        rest = after;
    }
    Some(message)
}

impl<'a> Message<'a> {
    fn take(&mut self, line: &'a [u8]) -> Option<()> {
        let colon = memchr(b':', line)?;
        let name = line[..colon].trim_ascii_end();
        let value = line[colon + 1..].trim_ascii();
        let is = |full: &[u8]| name.eq_ignore_ascii_case(full);
        // RFC 3261 section 7.3.3: the one-letter forms mean the same.
        match (name.len(), name.first()?.to_ascii_lowercase()) {
            (1, b'v') => self.vias.push(line)?,
            (3, b'v') if is(b"via") => self.vias.push(line)?,
            (12, b'r') if is(b"record-route") => self.record_routes.push(line)?,
            (1, b'f') => self.from = line,
            (4, b'f') if is(b"from") => self.from = line,
            (1 | 2, b't') => self.to = line,
            (1, b'i') => self.call_id = value,
            (7, b'c') if is(b"call-id") => self.call_id = value,
            (1, b'm') => self.contact = value,
            (7, b'c') if is(b"contact") => self.contact = value,
            (4, b'c') if is(b"cseq") => {
                let (number, used) = decimal(value)?;
                self.cseq = line;
                self.cseq_number = number;
                self.cseq_method = method(value[used..].trim_ascii());
            }
            (12, b'm') if is(b"max-forwards") => self.max_forwards = Some(decimal(value)?.0),
            (16, b'w') if is(b"www-authenticate") => self.challenges.push(value)?,
            (18, b'p') if is(b"proxy-authenticate") => self.challenges.push(value)?,
            _ => {}
        }
        Some(())
    }
}

/// The length the Content-Length header states, for a head without its empty line. Absent is 0.
pub(crate) fn content_length(head: &[u8]) -> Option<usize> {
    let mut rest = head;
    while let Some((header, after)) = line(rest) {
        if let Some(colon) = memchr(b':', header) {
            let name = header[..colon].trim_ascii_end();
            if name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"l") {
                let (length, _) = decimal(header[colon + 1..].trim_ascii())?;
                return usize::try_from(length).ok();
            }
        }
        rest = after;
    }
    Some(0)
}

/// The URI of a header value: what stands between angle brackets, or all up to a parameter.
pub(crate) fn uri(value: &[u8]) -> &[u8] {
    if let Some(open) = memchr(b'<', value) {
        let inner = &value[open + 1..];
        return memchr(b'>', inner).map_or(inner, |end| &inner[..end]);
    }
    memchr(b';', value).map_or(value, |end| &value[..end]).trim_ascii()
}

/// Calls `each` with every element of the Record-Route lines, the last first: the order of the
/// route set at the caller (RFC 3261 section 12.1.2).
pub(crate) fn reversed_routes(lines: &[&[u8]], each: &mut dyn FnMut(&[u8])) {
    for line in lines.iter().rev() {
        let value = memchr(b':', line).map_or(&[][..], |colon| &line[colon + 1..]);
        let mut end = value.len();
        let mut inside = false;
        for at in (0..value.len()).rev() {
            match value[at] {
                b'>' => inside = true,
                b'<' => inside = false,
                b',' if !inside => {
                    each(value[at + 1..end].trim_ascii());
                    end = at;
                }
                _ => {}
            }
        }
        each(value[..end].trim_ascii());
    }
}

/// Whether a To or From line carries a tag.
pub(crate) fn has_tag(line: &[u8]) -> bool {
    let after = memchr(b'>', line).map_or(line, |end| &line[end..]);
    memmem::find(after, b";tag=").is_some()
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr(b'\n', bytes)?;
    let line = &bytes[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &bytes[end + 1..]))
}

fn start_line(line: &[u8]) -> Option<Start<'_>> {
    if let Some(rest) = line.strip_prefix(b"SIP/2.0 ") {
        let (status, used) = decimal(rest)?;
        return (used == 3).then_some(Start::Response(u16::try_from(status).ok()?));
    }
    let space = memchr(b' ', line)?;
    let rest = &line[space + 1..];
    let uri = &rest[..memchr(b' ', rest)?];
    (&rest[uri.len()..] == b" SIP/2.0").then_some(Start::Request(method(&line[..space]), uri))
}

fn method(name: &[u8]) -> Method {
    match name {
        b"INVITE" => Method::Invite,
        b"ACK" => Method::Ack,
        b"BYE" => Method::Bye,
        b"REGISTER" => Method::Register,
        _ => Method::Other,
    }
}

/// A decimal number and how many digits it had; absent or too large is none.
fn decimal(bytes: &[u8]) -> Option<(u32, usize)> {
    let digits = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let mut value = 0u32;
    for digit in &bytes[..digits] {
        value = value.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
    }
    Some((value, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_an_end_needs() {
        let text = b"SIP/2.0 200 OK\r\nv: SIP/2.0/UDP 1.2.3.4;branch=z9hG4bKx\r\n\
            Record-Route: <sip:a;lr>, <sip:b,c;lr>\r\nRecord-Route: <sip:d;lr>\r\n\
            From: <sip:a@b>;tag=1\r\nt: <sip:c@d>;tag=2\r\nCall-ID: abc\r\nCSeq: 12  INVITE\r\n\
            m: <sip:u@h;transport=udp>;q=1\r\nContent-Length: 4\r\n\r\nbody";
        let m = scan(text).unwrap();
        assert_eq!(m.start, Start::Response(200));
        assert_eq!(m.vias.as_slice().len(), 1);
        assert_eq!((m.cseq_number, m.cseq_method), (12, Method::Invite));
        assert_eq!(m.call_id, b"abc");
        assert_eq!(uri(m.contact), b"sip:u@h;transport=udp");
        assert!(has_tag(m.to));
        let mut routes = Vec::new();
        reversed_routes(m.record_routes.as_slice(), &mut |r| routes.push(r.to_vec()));
        assert_eq!(routes, [&b"<sip:d;lr>"[..], b"<sip:b,c;lr>", b"<sip:a;lr>"]);
    }

    #[test]
    fn refuses_what_is_no_message() {
        for bad in [
            &b"INVITE sip:a@b\r\n\r\n"[..],
            b"SIP/2.0 20 OK\r\n\r\n",
            b"SIP/2.0 200 OK\r\nno colon here\r\n\r\n",
            b"SIP/2.0 200 OK\r\nCSeq: 99999999999 INVITE\r\n\r\n",
            b"",
        ] {
            assert!(scan(bad).is_none(), "{:?}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn content_length_in_both_forms() {
        assert_eq!(content_length(b"A b SIP/2.0\r\nl: 7\r\n"), Some(7));
        assert_eq!(content_length(b"A b SIP/2.0\r\nContent-Length : 12\r\n"), Some(12));
        assert_eq!(content_length(b"A b SIP/2.0\r\n"), Some(0));
        assert_eq!(content_length(b"A b SIP/2.0\r\nl: x\r\n"), None);
    }
}
