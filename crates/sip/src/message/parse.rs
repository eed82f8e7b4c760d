//! One pass over the bytes: start line, header fields, body.

use super::views::Views;
use super::{Got, Malformed, Message, Method, Slot, Start};
use crate::header::HeaderId;
use crate::limits::{MAX_BODY, MAX_HEAD, MAX_HEADERS, MAX_LINE, MAX_MESSAGE};
use crate::syntax::{TOKEN, all, find_near, number, span, trim};
use smallvec::SmallVec;

/// A line with what the next one says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// Index of its line feed.
    pub(crate) feed: usize,
    /// How many line ends it has: one, and one for each fold.
    pub(crate) ends: u16,
    /// Whether every line end in it is CRLF, not a bare LF.
    pub(crate) clean: bool,
}

/// The header field line that begins at `at`, together with its folds; `None` where no line feed
/// ends it. A line feed without carriage return ends a line too, so that every reader of the bytes
/// sees the same lines; `check` then refuses them.
#[inline]
pub(crate) fn line_end(b: &[u8], at: usize) -> Option<Line> {
    let mut from = at;
    let mut clean = true;
    let mut ends = 0u16;
    loop {
        let feed = from + memchr::memchr(b'\n', &b[from..])?;
        clean &= feed > at && b[feed - 1] == b'\r';
        ends = ends.saturating_add(1);
        match b.get(feed + 1) {
            Some(b' ' | b'\t') => from = feed + 1,
            _ => return Some(Line { feed, ends, clean }),
        }
    }
}

/// Finds the structure of a message. What it returns borrows `bytes`; up to 48 header fields it
/// does not allocate.
///
/// An error means that nothing can be made of the bytes, not even an answer: they do not begin
/// with a SIP start line, or are more than [`MAX_MESSAGE`]. Everything else that is wrong is left
/// to [`Message::check`]. Line ends before the start line are skipped (RFC 3261 section 7.5).
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let skipped = span_line_ends(bytes);
    let b = &bytes[skipped..];
    if b.len() > MAX_MESSAGE {
        let got = Got::Number(b.len() as u64);
        return Err(Malformed::with_status(513, "message: expected fewer octets", got, skipped));
    }
    let feed = memchr::memchr(b'\n', b).ok_or(Malformed::bad(
        "start line: expected a line end",
        Got::End,
        bytes.len(),
    ))?;
    let mut fault = None;
    let content = match b[..feed].strip_suffix(b"\r") {
        Some(content) => content,
        None => {
            note(&mut fault, Malformed::here("start line: expected CR before LF", b, feed));
            &b[..feed]
        }
    };
    let start = start_line(content, &mut fault).map_err(|e| e.moved(skipped))?;

    let mut message = Message {
        bytes: b,
        start,
        start_len: (feed + 1) as u16,
        line_ends: 2,
        body: &b[b.len()..],
        slots: SmallVec::new(),
        first: [0; HeaderId::COUNT],
        fault,
        views: Views::default(),
    };
    let head = header_section(&mut message, feed + 1);
    let rest = &b[head..];
    message.body = match content_length(&mut message, rest.len()) {
        Some(length) => &rest[..length],
        None => rest,
    };
    if head > MAX_HEAD {
        let got = Got::Number(head as u64);
        let fault = Malformed::with_status(513, "header section: expected fewer octets", got, head);
        note(&mut message.fault, fault);
    }
    Ok(message)
}

/// Keeps the first fault.
fn note(fault: &mut Option<Malformed>, new: Malformed) {
    fault.get_or_insert(new);
}

/// Octets of CR and LF before a message.
pub(crate) fn span_line_ends(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|&&b| matches!(b, b'\r' | b'\n')).count()
}

/// RFC 3261 section 7.1 and section 7.2.
pub(crate) fn start_line<'a>(
    line: &'a [u8],
    fault: &mut Option<Malformed>,
) -> Result<Start<'a>, Malformed> {
    if begins_version(line) {
        return status_line(line, fault);
    }
    let method_end = span(line, 0, TOKEN);
    if method_end == 0 || !matches!(line.get(method_end), Some(b' ' | b'\t')) {
        return Err(Malformed::here("start line: expected a method", line, method_end));
    }
    // The version is the last word, whatever stands between.
    let trimmed = trim(line);
    let last = trimmed.iter().rposition(|&b| matches!(b, b' ' | b'\t')).unwrap_or(method_end);
    let version = trimmed.get(last + 1..).unwrap_or_default();
    if !begins_version(version) {
        return Err(Malformed::here("start line: expected SIP-Version", line, last + 1));
    }
    check_version(version, last + 1, fault);
    let uri = if last > method_end { &line[method_end + 1..last] } else { b"" };
    if trimmed.len() != line.len() {
        let fault_at = Malformed::here("start line: expected its end", line, trimmed.len());
        note(fault, fault_at);
    }
    if line[method_end] == b'\t' || line[last] == b'\t' {
        note(fault, Malformed::here("start line: expected single spaces", line, method_end));
    }
    Ok(Start::Request { method: Method::parse(&line[..method_end]), uri })
}

fn status_line<'a>(line: &'a [u8], fault: &mut Option<Malformed>) -> Result<Start<'a>, Malformed> {
    let version_end = memchr::memchr(b' ', line)
        .ok_or_else(|| Malformed::here("status line: expected a status", line, line.len()))?;
    check_version(&line[..version_end], 0, fault);
    let code = &line[version_end + 1..];
    let code_end = memchr::memchr(b' ', code).unwrap_or(code.len());
    let status = match (code_end, number(&code[..code_end], 699)) {
        (3, Some(status)) if status >= 100 => status as u16,
        _ => {
            let at = version_end + 1;
            return Err(Malformed::here("status line: expected a status 100 to 699", line, at));
        }
    };
    if code_end == code.len() {
        let at = line.len();
        note(fault, Malformed::here("status line: expected a space after the status", line, at));
    }
    Ok(Start::Response { status, reason: code.get(code_end + 1..).unwrap_or_default() })
}

/// Whether a text begins with `SIP/`, in any case.
#[inline]
fn begins_version(text: &[u8]) -> bool {
    match text.first_chunk() {
        Some(first @ [b's' | b'S', _, _, _]) => first.eq_ignore_ascii_case(b"SIP/"),
        _ => false,
    }
}

/// RFC 3261 section 7.1: `SIP/2.0` in any case. Another version is answered 505 (section 21.5.6).
fn check_version(version: &[u8], at: usize, fault: &mut Option<Malformed>) {
    if version == b"SIP/2.0" || version.eq_ignore_ascii_case(b"SIP/2.0") {
        return;
    }
    let digits = &version[4..];
    let dot = memchr::memchr(b'.', digits).unwrap_or(0);
    let is_version = number(&digits[..dot], u64::MAX).is_some()
        && number(digits.get(dot + 1..).unwrap_or_default(), u64::MAX).is_some();
    let got = digits.first().map_or(Got::End, |&b| Got::Byte(b));
    *fault = Some(if is_version {
        Malformed::with_status(505, "start line: expected SIP/2.0", got, at)
    } else {
        Malformed::bad("start line: expected SIP/2.0", got, at)
    });
}

/// Fills the slots from `at` on; gives where the body begins.
fn header_section(message: &mut Message<'_>, at: usize) -> usize {
    let b = message.bytes;
    let mut last = [0u8; HeaderId::COUNT];
    let mut at = at;
    if matches!(b.get(at), Some(b' ' | b'\t')) {
        // A fold of the start line does not exist; the line is kept as one without a name.
        note(&mut message.fault, Malformed::here("expected a header name", b, at));
    }
    loop {
        match b[at..] {
            [b'\r', b'\n', ..] => return at + 2,
            [b'\n', ..] => {
                note(&mut message.fault, Malformed::here("expected CR before LF", b, at));
                return at + 1;
            }
            _ => {}
        }
        let Some(line) = line_end(b, at) else {
            // Without its empty line the section is not whole: what is left is no header field
            // and no body.
            let fault = Malformed::bad("header section: expected an empty line", Got::End, b.len());
            note(&mut message.fault, fault);
            return b.len();
        };
        if !line.clean {
            note(&mut message.fault, Malformed::here("expected CR before LF", b, line.feed));
        }
        if message.slots.len() == MAX_HEADERS {
            let got = Got::Number(MAX_HEADERS as u64 + 1);
            let fault = Malformed::with_status(513, "expected fewer header fields", got, at);
            note(&mut message.fault, fault);
        } else {
            header_field(message, at, line.feed + 1, &mut last);
        }
        message.line_ends = message.line_ends.saturating_add(line.ends);
        at = line.feed + 1;
    }
}

/// One header field from `start` to `end`, line end included.
#[inline]
fn header_field(
    message: &mut Message<'_>,
    start: usize,
    end: usize,
    last: &mut [u8; HeaderId::COUNT],
) {
    let b = message.bytes;
    let (name, value) = match find_near(&b[..end], start, b':') {
        Some(colon) => {
            let mut name_end = colon;
            while name_end > start && matches!(b[name_end - 1], b' ' | b'\t') {
                name_end -= 1;
            }
            // The line end is known; what is left to trim is most often one space.
            let feed = end - 1 - (b[end - 2] == b'\r') as usize;
            (&b[start..name_end], trim(&b[colon + 1..feed.max(colon + 1)]))
        }
        None => (&b[..0], trim(&b[start..end])),
    };
    let id = HeaderId::of(name);
    let (mut name_len, mut value) = (name.len(), value);
    // A name with an id is a token.
    if id == HeaderId::Other && (name.is_empty() || !all(name, TOKEN)) {
        note(&mut message.fault, Malformed::here("expected a header name and ':'", b, start));
        (name_len, value) = (0, trim(&b[start..end]));
    }
    if end - start > MAX_LINE {
        let got = Got::Number((end - start) as u64);
        let fault = Malformed::with_status(513, "expected a shorter header field", got, start);
        note(&mut message.fault, fault);
    }
    let value_start = if value.is_empty() { end } else { crate::syntax::offset(b, value) };
    message.slots.push(Slot {
        id,
        next: 0,
        start: start as u16,
        name_len: name_len as u16,
        value_start: value_start as u16,
        value_len: value.len() as u16,
        len: (end - start) as u16,
    });
    let place = message.slots.len() as u8;
    let before = core::mem::replace(&mut last[id as usize], place);
    match before.checked_sub(1) {
        Some(before) => message.slots[before as usize].next = place,
        None => message.first[id as usize] = place,
    }
}

/// The length of the body, where Content-Length gives one that can be (RFC 3261 section 20.14,
/// section 18.3). `available` octets follow the header section.
fn content_length(message: &mut Message<'_>, available: usize) -> Option<usize> {
    let value = message.first(HeaderId::ContentLength)?;
    let at = crate::syntax::offset(message.bytes, value);
    if value.is_empty() || !all(value, crate::syntax::DIGIT) {
        let fault = Malformed::here("Content-Length: expected a number", message.bytes, at);
        note(&mut message.fault, fault);
        return None;
    }
    let length = number(value, u64::MAX).unwrap_or(u64::MAX);
    let got = Got::Number(length);
    if length > MAX_BODY as u64 {
        let fault = Malformed::with_status(413, "Content-Length: expected a smaller body", got, at);
        note(&mut message.fault, fault);
        return None;
    }
    if length > available as u64 {
        let fault = Malformed::bad("Content-Length: expected no more than there is", got, at);
        note(&mut message.fault, fault);
        return None;
    }
    Some(length as usize)
}
