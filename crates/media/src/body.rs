//! The session description in the body of a message: the body itself, or one part of a `multipart/mixed` body (RFC 5621).
//!
//! Only the first part of type `application/sdp` is found, and only at the top level: a body has one description that
//! takes part in offer and answer (RFC 5621 section 8). Bodies that are encoded, and descriptions whose disposition is not
//! `session`, are left alone.

use ringway_sip::header::HeaderId;
use ringway_sip::message::Message;
use std::ops::Range;

/// Parts of a multipart body that are searched.
pub const MAX_PARTS: usize = 16;
/// Octets of a boundary (RFC 2046 section 5.1.1).
pub const MAX_BOUNDARY: usize = 70;

/// Where the description is in a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located {
    /// Its octets.
    pub description: Range<usize>,
    /// The digits of the Content-Length of its part, which some senders write.
    length: Option<Range<usize>>,
}

/// Returns the position of the session description in the body of a message; `None` if it has none that is read.
pub fn locate(message: &Message<'_>) -> Option<Located> {
    let body = message.body();
    if body.is_empty() || message.has(HeaderId::ContentEncoding) {
        return None;
    }
    let kind = message.first(HeaderId::ContentType)?;
    if is_type(kind, b"application", b"sdp") {
        let session = message.first(HeaderId::ContentDisposition).is_none_or(is_session);
        return session.then_some(Located { description: 0..body.len(), length: None });
    }
    if !is_type(kind, b"multipart", b"mixed") {
        return None;
    }
    find_part(body, boundary(kind)?)
}

impl Located {
    /// Returns the body with another description in its position.
    pub fn replace(&self, body: &[u8], description: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(body.len() + description.len());
        let mut from = 0;
        if let Some(length) = &self.length {
            out.extend_from_slice(&body[..length.start]);
            ringway_sip::write::decimal(&mut out, description.len() as u64);
            from = length.end;
        }
        out.extend_from_slice(&body[from..self.description.start]);
        out.extend_from_slice(description);
        out.extend_from_slice(&body[self.description.end..]);
        out
    }
}

/// Returns whether a Content-Type is this one, whatever its parameters.
fn is_type(value: &[u8], kind: &[u8], subtype: &[u8]) -> bool {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let mut parts = value[..end].split(|&b| b == b'/');
    let mut is =
        |name: &[u8]| parts.next().is_some_and(|part| part.trim_ascii().eq_ignore_ascii_case(name));
    is(kind) && is(subtype)
}

fn is_session(disposition: &[u8]) -> bool {
    let end = memchr::memchr(b';', disposition).unwrap_or(disposition.len());
    disposition[..end].trim_ascii().eq_ignore_ascii_case(b"session")
}

/// Returns the boundary of a multipart type (RFC 2046 section 5.1.1).
fn boundary(value: &[u8]) -> Option<&[u8]> {
    let at = memchr::memchr(b';', value)?;
    let text = ringway_sip::header::Params::new(&value[at..]).get(b"boundary")??;
    let text = text.strip_prefix(b"\"").and_then(|t| t.strip_suffix(b"\"")).unwrap_or(text);
    (!text.is_empty() && text.len() <= MAX_BOUNDARY && !text.contains(&b'\\')).then_some(text)
}

fn find_part(body: &[u8], boundary: &[u8]) -> Option<Located> {
    let mut at = next_delimiter(body, 0, boundary)?.end;
    for _ in 0..MAX_PARTS {
        let next = next_delimiter(body, at, boundary)?;
        if let Some(located) = part(body, at..next.start) {
            return Some(located);
        }
        if body[..next.end].ends_with(b"--") {
            return None;
        }
        at = next.end;
    }
    None
}

/// Returns the next delimiter line with the line end before it, without the line end after it (RFC 2046 section 5.1.1).
/// The last delimiter ends in two hyphens.
fn next_delimiter(body: &[u8], from: usize, boundary: &[u8]) -> Option<Range<usize>> {
    let text = [b"--", boundary].concat();
    for found in memchr::memmem::find_iter(&body[from..], &text) {
        let start = from + found;
        let mut end = start + text.len();
        if body[end..].starts_with(b"--") {
            end += 2;
        }
        let rest = &body[end..];
        let spaces = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
        let rest = &rest[spaces..];
        if !(rest.is_empty() || rest.starts_with(b"\r\n") || rest.starts_with(b"\n")) {
            continue;
        }
        if start == 0 {
            return Some(0..end);
        }
        if body[..start].ends_with(b"\n") {
            let line_end = if body[..start].ends_with(b"\r\n") { 2 } else { 1 };
            // The line end after one delimiter may be the one before the next: the part is then empty.
            return Some((start - line_end).max(from)..end);
        }
    }
    None
}

/// Returns the description in a part, if it is one. `range` begins behind the delimiter, on its line.
fn part(body: &[u8], range: Range<usize>) -> Option<Located> {
    let mut at = range.start + memchr::memchr(b'\n', &body[range.clone()])? + 1;
    let (mut is_sdp, mut length) = (false, None);
    loop {
        let end = at + memchr::memchr(b'\n', &body[at..range.end])?;
        let line = body[at..end].strip_suffix(b"\r").unwrap_or(&body[at..end]);
        if line.is_empty() {
            let description = end + 1..range.end;
            return is_sdp.then_some(Located { description, length });
        }
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if is(b"Content-Type") {
            is_sdp = is_type(value, b"application", b"sdp");
        } else if is(b"Content-Disposition") && !is_session(value) || is(b"Content-Encoding") {
            return None;
        } else if is(b"Content-Transfer-Encoding") {
            let plain: [&[u8]; 3] = [b"binary", b"8bit", b"7bit"];
            if !plain.iter().any(|known| value.eq_ignore_ascii_case(known)) {
                return None;
            }
        } else if is(b"Content-Length") {
            let start = value.as_ptr().addr() - body.as_ptr().addr();
            length = value.iter().all(u8::is_ascii_digit).then_some(start..start + value.len());
        }
        at = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(headers: &str, body: &str) -> Option<(String, String)> {
        let text = format!(
            "INVITE sip:b@example.com SIP/2.0\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let message = ringway_sip::message::parse(text.as_bytes()).unwrap();
        let located = locate(&message)?;
        let description = body[located.description.clone()].to_owned();
        let replaced = String::from_utf8(located.replace(body.as_bytes(), b"NEW\r\n")).unwrap();
        Some((description, replaced))
    }

    #[test]
    fn a_plain_description_is_the_body() {
        for kind in ["Content-Type: application/sdp", "c: Application/SDP ;charset=x"] {
            let found = located(&format!("{kind}\r\n"), "v=0\r\n").unwrap();
            assert_eq!(found, ("v=0\r\n".into(), "NEW\r\n".into()));
        }
        let disposition =
            "Content-Type: application/sdp\r\nContent-Disposition: session;handling=required\r\n";
        assert!(located(disposition, "v=0\r\n").is_some());
    }

    /// RFC 3959: another description than that of the session.
    #[test]
    fn other_bodies_are_left_alone() {
        for headers in [
            "",
            "Content-Type: text/plain\r\n",
            "Content-Type: application/sdp\r\nContent-Encoding: gzip\r\n",
            "Content-Type: application/sdp\r\nContent-Disposition: early-session\r\n",
            "Content-Type: multipart/mixed\r\n",
            "Content-Type: multipart/alternative;boundary=b\r\n",
        ] {
            assert_eq!(
                located(headers, "--b\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n--b--"),
                None,
                "{headers}"
            );
        }
    }

    #[test]
    fn the_part_with_the_description_is_found() {
        let headers = "Content-Type: multipart/mixed; boundary=\"b 1\"\r\n";
        let before = "preamble\r\n--b 1\r\nContent-Type: application/pidf+xml\r\n\r\n<x/>--b 1x\r\n--b 1\r\n\
                      Content-Type: application/sdp\r\nContent-Length: ";
        let after = "\r\n--b 1--\r\nepilogue";
        let body = format!("{before}5\r\n\r\nv=0\r\n{after}");
        let (description, replaced) = located(headers, &body).unwrap();
        assert_eq!(description, "v=0\r\n");
        assert_eq!(replaced, format!("{before}5\r\n\r\nNEW\r\n{after}"));
        let long = format!("{before}123\r\n\r\nv=0{after}");
        assert_eq!(located(headers, &long).unwrap().1, format!("{before}5\r\n\r\nNEW\r\n{after}"));
    }

    #[test]
    fn parts_that_are_not_plain_are_left_alone() {
        let headers = "Content-Type: multipart/mixed;boundary=b\r\n";
        for part in [
            "Content-Type: application/sdp\r\nContent-Transfer-Encoding: base64\r\n\r\ndj0w",
            "Content-Type: application/sdp\r\nContent-Disposition: early-session\r\n\r\nv=0",
            "Content-Type: application/sdp\r\nno header\r\n\r\nv=0",
            "Content-Type: application/sdp",
            "",
        ] {
            assert_eq!(located(headers, &format!("--b\r\n{part}\r\n--b--")), None, "{part}");
        }
        assert_eq!(located(headers, "--b\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n"), None);
        assert_eq!(located(headers, "--b--"), None);
    }
}
