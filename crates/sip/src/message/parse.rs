//! One pass over the bytes: start line, header fields, body.

use super::views::Views;
use super::{Message, Slot, Start};
use crate::header::HeaderId;
use crate::limits::{MAX_BODY, MAX_HEAD, MAX_HEADERS, MAX_LINE, MAX_MESSAGE};
use crate::method::Method;
use crate::syntax::{TOKEN, all, find_control, find_near, marks_of, number, offset, span, trim};
use ringway_sansio::{Got, Malformed};
use smallvec::SmallVec;

/// A line, and whether it continues in the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Line {
    /// The index of its line feed.
    pub(crate) feed: usize,
    /// Whether every line end in it is CRLF, not a bare LF.
    pub(crate) clean: bool,
    /// Whether it continues in a second line.
    pub(crate) folded: bool,
    /// Whether it may contain control characters besides those of its line ends and tabs.
    pub(crate) controls: bool,
}

/// Returns the header field line that begins at `at`, with its folds; `None` if no line feed ends it. A line feed
/// without carriage return ends a line too, so that every reader of the bytes sees the same lines; `check` then rejects
/// them.
#[inline]
pub(crate) fn line_end(b: &[u8], at: usize) -> Option<Line> {
    match plain_line_end(b, at) {
        Some(feed) => Some(Line { feed, clean: true, folded: false, controls: false }),
        None => long_line(b, at),
    }
}

/// Returns the index of the line feed of an ordinary line: without folds, and with its CRLF as the first control
/// characters.
#[inline(always)]
fn plain_line_end(b: &[u8], at: usize) -> Option<usize> {
    let end = find_control(b, at)?;
    match b[end..] {
        [b'\r', b'\n', b' ' | b'\t', ..] => None,
        [b'\r', b'\n', ..] => Some(end + 1),
        _ => None,
    }
}

/// Returns the same as [`line_end`] for any line.
#[cold]
fn long_line(b: &[u8], at: usize) -> Option<Line> {
    let mut line = first_line(b, at)?;
    while let Some(b' ' | b'\t') = b.get(line.feed + 1) {
        let fold = first_line(b, line.feed + 1)?;
        line = Line {
            feed: fold.feed,
            clean: line.clean && fold.clean,
            folded: true,
            controls: line.controls || fold.controls,
        };
    }
    Some(line)
}

/// Returns the same as [`line_end`], without folds.
fn first_line(b: &[u8], at: usize) -> Option<Line> {
    let mut controls = false;
    let mut from = at;
    loop {
        let at = find_control(b, from)?;
        if b[at] == b'\r' && b.get(at + 1) == Some(&b'\n') {
            return Some(Line { feed: at + 1, clean: true, folded: false, controls });
        }
        if b[at] == b'\n' {
            return Some(Line { feed: at, clean: false, folded: false, controls });
        }
        controls |= b[at] != b'\t';
        from = at + 1;
    }
}

/// Finds the structure of a message. The result borrows `bytes`; up to 48 header fields are stored without allocation.
///
/// An error means that the bytes cannot be parsed, nor answered: they do not begin with a SIP start line, or are more
/// than [`MAX_MESSAGE`]. Every other error is left to [`Message::check`]. Line ends before the start line are skipped
/// (RFC 3261 section 7.5).
pub fn parse(bytes: &[u8]) -> Result<Message<'_>, Malformed> {
    let skipped = span_line_ends(bytes);
    let b = &bytes[skipped..];
    if b.len() > MAX_MESSAGE {
        let got = Got::Number(b.len() as u64);
        return Err(Malformed::with_status(513, "message: expected fewer octets", got, skipped));
    }
    let line = first_line(b, 0).ok_or(Malformed::bad(
        "start line: expected a line end",
        Got::End,
        bytes.len(),
    ))?;
    let mut fault = None;
    let content = match b[..line.feed].strip_suffix(b"\r") {
        Some(content) => content,
        None => {
            note(&mut fault, Malformed::here("start line: expected CR before LF", b, line.feed));
            &b[..line.feed]
        }
    };
    let start = start_line(content, &mut fault).map_err(|e| e.moved(skipped))?;
    rest(b, start, line, fault)
}

/// Returns the message of which the start line is known. A message is large, so this function is not part of `parse`:
/// it constructs the message in the caller's place.
#[inline(never)]
fn rest<'a>(
    b: &'a [u8],
    start: Start<'a>,
    line: Line,
    fault: Option<Malformed>,
) -> Result<Message<'a>, Malformed> {
    let mut parsed = Ok(Message {
        bytes: b,
        start,
        start_len: (line.feed + 1) as u16,
        unfolded: true,
        controls: line.controls,
        body: &b[b.len()..],
        slots: SmallVec::new(),
        first: [0; HeaderId::COUNT],
        fault,
        views: Views::default(),
    });
    if let Ok(message) = &mut parsed {
        let head = header_section(message, line.feed + 1);
        let after = &b[head..];
        message.body = match content_length(message, after.len()) {
            Some(length) => &after[..length],
            None => after,
        };
        if head > MAX_HEAD {
            let expected = "header section: expected fewer octets";
            let fault = Malformed::with_status(513, expected, Got::Number(head as u64), head);
            note(&mut message.fault, fault);
        }
    }
    parsed
}

/// Records the first error.
fn note(fault: &mut Option<Malformed>, new: Malformed) {
    fault.get_or_insert(new);
}

/// Returns the octets of CR and LF before a message.
pub(crate) fn span_line_ends(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|&&b| matches!(b, b'\r' | b'\n')).count()
}

/// Parses a start line: RFC 3261 section 7.1 and section 7.2.
pub(crate) fn start_line<'a>(
    line: &'a [u8],
    fault: &mut Option<Malformed>,
) -> Result<Start<'a>, Malformed> {
    if begins_version(line) {
        return status_line(line, fault);
    }
    let (method, method_end) = method(line)?;
    // The version is the last word, whatever comes before it.
    if let Some(before) = line.strip_suffix(b" SIP/2.0")
        && let Some(uri) = before.get(method_end + 1..)
        && line[method_end] == b' '
    {
        return Ok(Start::Request { method, uri });
    }
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
    Ok(Start::Request { method, uri })
}

/// Returns the method at the beginning of a start line, and its length: white space follows.
#[inline]
fn method(line: &[u8]) -> Result<(Method<'_>, usize), Malformed> {
    if let Some(end) = find_near(line, 0, b' ') {
        let method = Method::parse(&line[..end]);
        if !matches!(method, Method::Other(_)) {
            return Ok((method, end));
        }
    }
    let end = span(line, 0, TOKEN);
    if end == 0 || !matches!(line.get(end), Some(b' ' | b'\t')) {
        return Err(Malformed::here("start line: expected a method", line, end));
    }
    Ok((Method::parse(&line[..end]), end))
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

/// Returns whether a text begins with `SIP/`, in any case.
#[inline]
fn begins_version(text: &[u8]) -> bool {
    match text.first_chunk() {
        Some(first @ [b's' | b'S', _, _, _]) => first.eq_ignore_ascii_case(b"SIP/"),
        _ => false,
    }
}

/// Checks the version. RFC 3261 section 7.1: `SIP/2.0` in any case. Another version is answered with 505 (section
/// 21.5.6).
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

/// Fills the slots from `at` on; returns the start of the body.
fn header_section(message: &mut Message<'_>, at: usize) -> usize {
    let b = message.bytes;
    let mut last = [0u8; HeaderId::COUNT];
    let mut count = 0;
    let mut at = at;
    if matches!(b.get(at), Some(b' ' | b'\t')) {
        // A start line cannot be folded; the line is treated as one without a name.
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
        let feed = match plain_line_end(b, at) {
            Some(feed) => feed,
            None => match other_line(message, at) {
                Some(feed) => feed,
                None => return b.len(),
            },
        };
        let start = core::mem::replace(&mut at, feed + 1);
        if count == MAX_HEADERS {
            let got = Got::Number(MAX_HEADERS as u64 + 1);
            let fault = Malformed::with_status(513, "expected fewer header fields", got, start);
            note(&mut message.fault, fault);
            continue;
        }
        let text = &b[start..at];
        let field = header_field(text).unwrap_or_else(|| {
            note(&mut message.fault, Malformed::here("expected a header name and ':'", b, start));
            nameless(text)
        });
        if text.len() > MAX_LINE {
            let got = Got::Number(text.len() as u64);
            let fault = Malformed::with_status(513, "expected a shorter header field", got, start);
            note(&mut message.fault, fault);
        }
        message.slots.push(Slot {
            id: field.id,
            next: 0,
            start: start as u16,
            name_len: field.name_len as u16,
            value_start: (start + field.value_start) as u16,
            value_len: (field.value_end - field.value_start) as u16,
            len: text.len() as u16,
        });
        count += 1;
        let place = count as u8;
        let before = core::mem::replace(&mut last[field.id as usize], place);
        match before.checked_sub(1) {
            Some(before) => message.slots[before as usize].next = place,
            None => message.first[field.id as usize] = place,
        }
    }
}

/// Records the properties of a line that is not plain; returns the index of its line feed.
#[cold]
fn other_line(message: &mut Message<'_>, at: usize) -> Option<usize> {
    let b = message.bytes;
    let Some(line) = long_line(b, at) else {
        // Without its empty line the section is incomplete: the remaining bytes are no header field and no body.
        let fault = Malformed::bad("header section: expected an empty line", Got::End, b.len());
        note(&mut message.fault, fault);
        return None;
    };
    if !line.clean {
        note(&mut message.fault, Malformed::here("expected CR before LF", b, line.feed));
    }
    message.controls |= line.controls;
    message.unfolded &= line.clean && !line.folded && !line.controls;
    Some(line.feed)
}

/// A header field by offsets into its line.
#[derive(Clone, Copy)]
struct Field {
    id: HeaderId,
    name_len: usize,
    value_start: usize,
    /// The length of the line, as for `value_start`, if the value is empty.
    value_end: usize,
}

/// Returns the parts of a header field line, which ends in a line feed; `None` if it has no name.
#[inline(always)]
fn header_field(line: &[u8]) -> Option<Field> {
    let (id, colon) = match line.first_chunk().map(|chunk| u64::from_le_bytes(*chunk)) {
        Some(word) if marks_of(word, b':') != 0 => {
            // The bits above the colon are shifted out.
            let bits = marks_of(word, b':').trailing_zeros() & !7;
            let name = word & ((1 << bits) - 1);
            (HeaderId::of_word(name, bits as usize / 8), bits as usize / 8)
        }
        _ => {
            let colon = find_near(line, 0, b':')?;
            (HeaderId::of(&line[..colon]), colon)
        }
    };
    let (id, name_len) = match id {
        HeaderId::Other => other_name(&line[..colon])?,
        id => (id, colon),
    };
    // Usually one space and the line end are trimmed.
    let (value_start, value_end) = match &line[colon + 1..] {
        value @ [b' ', .., last, b'\r', b'\n'] if *last > b' ' && value[1] > b' ' => {
            (colon + 2, line.len() - 2)
        }
        value => trimmed(line, value),
    };
    Some(Field { id, name_len, value_start, value_end })
}

/// Returns the id and the length of a name that seems to have none: there may be white space after it. A name must be a
/// token; one with an id is.
#[cold]
fn other_name(before_colon: &[u8]) -> Option<(HeaderId, usize)> {
    let mut name = before_colon;
    while let [rest @ .., b' ' | b'\t'] = name {
        name = rest;
    }
    let is_name = !name.is_empty() && all(name, TOKEN);
    is_name.then(|| (HeaderId::of(name), name.len()))
}

/// Returns the start and the end of a value in its line, without white space and line ends around it.
#[cold]
fn trimmed(line: &[u8], value: &[u8]) -> (usize, usize) {
    let value = trim(value);
    match value.len() {
        0 => (line.len(), line.len()),
        length => {
            let start = offset(line, value);
            (start, start + length)
        }
    }
}

/// Returns a line without a name: all of it is the value.
#[cold]
fn nameless(line: &[u8]) -> Field {
    let (value_start, value_end) = trimmed(line, line);
    Field { id: HeaderId::Other, name_len: 0, value_start, value_end }
}

/// Returns the length of the body, if Content-Length is valid (RFC 3261 section 20.14, section 18.3). `available`
/// octets follow the header section.
fn content_length(message: &mut Message<'_>, available: usize) -> Option<usize> {
    let value = message.first(HeaderId::ContentLength)?;
    let at = offset(message.bytes, value);
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
