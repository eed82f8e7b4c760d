//! Messages in a stream of bytes (RFC 3261 section 18.3), and the keep-alive between them (RFC 5626 section 4.4.1).
//!
//! The framer finds the empty line and Content-Length, and checks whether the first line is a start line; it checks
//! nothing else. A malformed message whose end can be found does not affect others: it is returned as
//! [`Frame::Malformed`], and framing continues. The framer reads every byte once, however the stream is divided. It
//! stores at most one message and the bytes that one read has brought beyond it.

use crate::header::HeaderId;
use crate::limits::{MAX_BODY, MAX_HEAD, MAX_MESSAGE};
use crate::message::{Line, line_end, start_line};
use crate::syntax::{DIGIT, all, find_near, number, trim};
use ringway_sansio::{Got, Malformed};

/// The maximum octets of a body that is skipped to find the next message. A Content-Length above this is not trusted.
pub const MAX_SKIPPED: usize = 1 << 20;

/// A part of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// One message, start line to end of body.
    Message(&'a [u8]),
    /// One malformed message whose end is known: its header section, start line first. The next message follows its
    /// body.
    Malformed(&'a [u8], Malformed),
    /// A double CRLF, to be answered with a single one.
    Ping,
    /// A CRLF: the answer to a ping, or nothing. The first half of a ping that comes in two parts is also returned as
    /// one.
    Pong,
}

/// Divides one stream into messages.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Bytes before this index have been returned.
    at: usize,
    /// No message ends its header section before this index.
    scanned: usize,
    /// The length of the message at `at`, once its header section is complete.
    length: Option<usize>,
    /// Whether the first line of the message at `at` is complete.
    started: bool,
    /// The error of the message at `at`, if it is malformed.
    fault: Option<Malformed>,
    /// The remaining octets of the body of a message that was returned as malformed.
    skip: usize,
    /// Whether a single CRLF was the last frame returned.
    half_ping: bool,
    /// The error that ended the stream: no message can be found after it.
    broken: Option<Malformed>,
}

impl Framer {
    /// Returns a framer at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the buffer to append received bytes to. It must not be changed otherwise.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.scanned = self.scanned.saturating_sub(self.at);
            self.at = 0;
        }
        &mut self.buffer
    }

    /// Appends received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer().extend_from_slice(bytes);
    }

    /// Takes a shared buffer until [`Framer::return_buffer`], if the framer has none of its own.
    pub fn borrow_buffer(&mut self, shared: &mut Vec<u8>) {
        if self.buffer.capacity() == 0 {
            core::mem::swap(&mut self.buffer, shared);
        }
    }

    /// Returns the shared buffer, and copies pending bytes into a buffer of the framer. Without pending bytes the
    /// framer has none, so that an idle stream costs no memory.
    pub fn return_buffer(&mut self, shared: &mut Vec<u8>) {
        let buffer = self.buffer();
        if shared.capacity() == 0 {
            let pending = buffer.as_slice().to_vec();
            *shared = core::mem::replace(buffer, pending);
            shared.clear();
        } else if buffer.is_empty() {
            *buffer = Vec::new();
        }
    }

    /// Returns the number of octets received and not returned yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// Returns whether a message has begun and is incomplete.
    pub fn is_within_message(&self) -> bool {
        self.broken.is_none() && (self.pending() > 0 || self.skip > 0)
    }

    /// Returns the received part of the header section of the message that broke the framing, for a response to it.
    pub fn broken_head(&self) -> &[u8] {
        if self.broken.is_none() {
            return &[];
        }
        let rest = &self.buffer[self.at..];
        let end = self.scanned.saturating_sub(self.at);
        &rest[..end.min(rest.len()).min(MAX_HEAD)]
    }

    /// Returns the next frame; `None` until more bytes come. After an error no message can be found any more: the same
    /// error is returned again, and the connection should be closed.
    ///
    /// Malformed messages, after which framing continues: a first line that is no start line (400), a Content-Length
    /// above [`MAX_BODY`] (413), a message above [`MAX_MESSAGE`] (513). They are returned as soon as the header section
    /// is complete; the body is skipped.
    ///
    /// Errors, after which no next message can be found: 400 if Content-Length is absent, repeated or no number, or the
    /// first line is HTTP's; 413 if it is above [`MAX_SKIPPED`]; 513 if the header section is above [`MAX_HEAD`].
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<Frame<'_>, Malformed>> {
        if let Some(fault) = self.broken {
            return Some(Err(fault));
        }
        if !self.skipped() {
            return None;
        }
        if !self.started
            && let Some(frame) = self.keep_alive()
        {
            return Some(Ok(frame));
        }
        match self.message() {
            Ok(Some(end)) => {
                let start = core::mem::replace(&mut self.at, end);
                self.scanned = end;
                self.length = None;
                self.started = false;
                self.half_ping = false;
                let bytes = &self.buffer[start..end];
                Some(Ok(match self.fault.take() {
                    Some(fault) => Frame::Malformed(bytes, fault),
                    None => Frame::Message(bytes),
                }))
            }
            Ok(None) => None,
            Err(fault) => {
                self.broken = Some(fault);
                Some(Err(fault))
            }
        }
    }

    /// Skips the body of a malformed message. Returns whether its end has come.
    fn skipped(&mut self) -> bool {
        let here = self.skip.min(self.pending());
        self.at += here;
        self.skip -= here;
        self.scanned = self.scanned.max(self.at);
        self.skip == 0
    }

    /// Returns the keep-alive of one or two CRLFs before a message.
    fn keep_alive(&mut self) -> Option<Frame<'static>> {
        let rest = &self.buffer[self.at..];
        if !rest.starts_with(b"\r\n") {
            return None;
        }
        let second = !self.half_ping && rest[2..].starts_with(b"\r\n");
        self.at += if second { 4 } else { 2 };
        self.scanned = self.at;
        let ping = second || self.half_ping;
        self.half_ping = !ping;
        Some(if ping { Frame::Ping } else { Frame::Pong })
    }

    /// Returns the index after the message at `at`, once it is complete; for a malformed one the index after its header
    /// section.
    fn message(&mut self) -> Result<Option<usize>, Malformed> {
        let rest = &self.buffer[self.at..];
        if rest.is_empty() || rest == b"\r" {
            return Ok(None);
        }
        if !self.started && !self.start()? {
            return Ok(None);
        }
        let length = match self.length {
            Some(length) => length,
            None => match self.head()? {
                Some(head) => *self.length.insert(head),
                None => return Ok(None),
            },
        };
        Ok((self.pending() >= length).then_some(self.at + length))
    }

    /// Returns whether the first line is complete. An invalid start line is an error of this message only, unless it is
    /// that of another protocol.
    fn start(&mut self) -> Result<bool, Malformed> {
        let rest = &self.buffer[self.at..];
        let from = self.scanned - self.at;
        let Some(feed) = memchr::memchr(b'\n', &rest[from..]).map(|feed| from + feed) else {
            self.scanned = self.buffer.len();
            if rest.len() > MAX_HEAD {
                return Err(head_too_large(rest.len()));
            }
            return Ok(false);
        };
        self.scanned = self.at + feed;
        let line = rest[..feed].strip_suffix(b"\r").unwrap_or(&rest[..feed]);
        if let Err(fault) = start_line(line, &mut None) {
            if is_http(line) {
                return Err(fault);
            }
            self.fault = Some(fault);
        }
        self.started = true;
        Ok(true)
    }

    /// Returns the length of the next frame, once the header section is complete: of the message, or of the header
    /// section of a malformed one, whose body is skipped.
    fn head(&mut self) -> Result<Option<usize>, Malformed> {
        let rest = &self.buffer[self.at..];
        let Some(end) = head_end(rest, self.scanned - self.at) else {
            // The last two octets may be the beginning of the empty line.
            self.scanned = self.at + rest.len().saturating_sub(2);
            if rest.len() > MAX_HEAD {
                return Err(head_too_large(rest.len()));
            }
            return Ok(None);
        };
        self.scanned = self.at + end;
        if end > MAX_HEAD {
            return Err(head_too_large(end));
        }
        let (body, at) = content_length(&rest[..end])?;
        let too_large = |status, reason, octets: usize| {
            Malformed::with_status(status, reason, Got::Number(octets as u64), at)
        };
        if body > MAX_SKIPPED {
            return Err(too_large(413, "Content-Length: expected a smaller body", body));
        }
        if self.fault.is_none() && body > MAX_BODY {
            self.fault = Some(too_large(413, "Content-Length: expected a smaller body", body));
        }
        if self.fault.is_none() && end + body > MAX_MESSAGE {
            self.fault = Some(too_large(513, "message: expected fewer octets", end + body));
        }
        if self.fault.is_none() {
            return Ok(Some(end + body));
        }
        self.skip = body;
        Ok(Some(end))
    }
}

fn head_too_large(octets: usize) -> Malformed {
    let got = Got::Number(octets as u64);
    Malformed::with_status(513, "header section: expected fewer octets", got, octets)
}

/// Returns whether a first line is that of an HTTP request or response (RFC 9112 sections 3 and 4): of a browser or a
/// scanner, which will not send SIP.
fn is_http(line: &[u8]) -> bool {
    const VERSION: &[u8] = b"HTTP/";
    let last = line.rsplit(|b| *b == b' ').next().unwrap_or_default();
    line.starts_with(VERSION) || last.starts_with(VERSION)
}

/// The placeholder for a start line that cannot be parsed.
const PLACEHOLDER: &[u8] = b"INVALID sip:invalid SIP/2.0";

/// Returns a message with an unparsable start line in a form that can be answered: its header section with a
/// placeholder for that line, which a response does not repeat (RFC 3261 section 8.2.6). Returns `None` if it must not
/// be answered: if it begins like a response or an ACK, or if its start line is valid.
pub fn answerable(message: &[u8]) -> Option<Vec<u8>> {
    let feed = memchr::memchr(b'\n', message)?;
    let line = message[..feed].strip_suffix(b"\r").unwrap_or(&message[..feed]);
    let begins = |word: &[u8]| {
        line.trim_ascii_start().get(..word.len()).is_some_and(|b| b.eq_ignore_ascii_case(word))
    };
    if unparsable(message).is_none() || begins(b"SIP/") || begins(b"ACK") {
        return None;
    }
    let end = head_end(message, feed).unwrap_or(message.len()).min(MAX_HEAD);
    let mut head = Vec::with_capacity(PLACEHOLDER.len() + 2 + end.saturating_sub(feed));
    head.extend_from_slice(PLACEHOLDER);
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(message.get(feed + 1..end).unwrap_or_default());
    Some(head)
}

/// Returns the error of the first line of a message, if it is no start line; for messages that the transport frames.
pub fn unparsable(message: &[u8]) -> Option<Malformed> {
    let feed = memchr::memchr(b'\n', message).unwrap_or(message.len());
    let line = message[..feed].strip_suffix(b"\r").unwrap_or(&message[..feed]);
    start_line(line, &mut None).err()
}

/// Returns the index after the empty line, searched from `from` on. A line ends as in [`parse`](crate::message::parse).
fn head_end(b: &[u8], from: usize) -> Option<usize> {
    for feed in memchr::memchr_iter(b'\n', &b[from..]) {
        match b[from + feed + 1..] {
            [b'\n', ..] => return Some(from + feed + 2),
            [b'\r', b'\n', ..] => return Some(from + feed + 3),
            _ => {}
        }
    }
    None
}

/// Returns the value of the one Content-Length of a complete header section, and its position (RFC 3261 section 18.3: a
/// stream requires one; RFC 4475 section 3.3.9: two are as invalid as none).
fn content_length(head: &[u8]) -> Result<(usize, usize), Malformed> {
    let mut found = None;
    let mut at = memchr::memchr(b'\n', head).map_or(head.len(), |feed| feed + 1);
    while let Some(Line { feed, .. }) = line_end(head, at) {
        let line = &head[at..feed];
        // Its names begin with these letters only.
        if matches!(line.first(), Some(b'c' | b'C' | b'l' | b'L'))
            && let Some(colon) = find_near(line, 0, b':')
            && HeaderId::of(trim(&line[..colon])) == HeaderId::ContentLength
        {
            if found.is_some() {
                return Err(Malformed::bad("Content-Length: expected one", Got::Several, at));
            }
            found = Some((at + colon + 1, trim(&line[colon + 1..])));
        }
        at = feed + 1;
    }
    let Some((at, value)) = found else {
        return Err(Malformed::bad("Content-Length: expected one", Got::Missing, head.len()));
    };
    if value.is_empty() || !all(value, DIGIT) {
        return Err(Malformed::here("Content-Length: expected a number", value, 0).moved(at));
    }
    let length = number(value, u64::MAX).unwrap_or(u64::MAX);
    Ok((usize::try_from(length).unwrap_or(usize::MAX), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] =
        b"MESSAGE sip:a@b SIP/2.0\r\nVia: x\r\nl\t: 5\r\nSubject: a\r\n b\r\n\r\nhello";
    const TWO: &[u8] = b"SIP/2.0 200 OK\r\nContent-Length:\r\n  0\r\n\r\n";

    /// Returns the frames of a stream in parts of `size`: messages (of malformed ones the header section), pings, and
    /// the error.
    fn frames(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, usize, Option<Malformed>) {
        let mut framer = Framer::new();
        let (mut messages, mut pings) = (Vec::new(), 0);
        for piece in stream.chunks(size) {
            framer.extend(piece);
            loop {
                match framer.next() {
                    Some(Ok(Frame::Message(m) | Frame::Malformed(m, _))) => {
                        messages.push(m.to_vec());
                    }
                    Some(Ok(Frame::Ping)) => pings += 1,
                    Some(Ok(Frame::Pong)) => {}
                    Some(Err(e)) => return (messages, pings, Some(e)),
                    None => break,
                }
            }
        }
        (messages, pings, None)
    }

    /// RFC 3261 section 18.3, for every way to cut the stream.
    #[test]
    fn messages_are_found_however_the_stream_is_cut() {
        let stream =
            [ONE, b"\r\n", TWO, b"\r\n\r\n", ONE, b"\r\n\r\n\r\n\r\n", TWO, b"\r"].concat();
        for size in 1..=stream.len() {
            let (messages, pings, fault) = frames(&stream, size);
            assert_eq!(messages, [ONE, TWO, ONE, TWO], "{size}");
            assert_eq!((pings, fault), (3, None), "{size}");
        }
    }

    /// RFC 5626 section 4.4.1.
    #[test]
    fn ping_and_pong() {
        let mut framer = Framer::new();
        framer.extend(b"\r\n");
        assert_eq!(framer.next(), Some(Ok(Frame::Pong)));
        assert_eq!(framer.next(), None);
        framer.extend(b"\r\n");
        assert_eq!(framer.next(), Some(Ok(Frame::Ping)));
        framer.extend(b"\r\n\r\n\r\n");
        assert_eq!(framer.next(), Some(Ok(Frame::Ping)));
        assert_eq!(framer.next(), Some(Ok(Frame::Pong)));
        assert_eq!(framer.next(), None);
        assert!(!framer.is_within_message());
    }

    /// RFC 4475 sections 3.1.2.3 and 3.3.9.
    #[test]
    fn a_length_that_cannot_be_is_the_end_of_the_stream() {
        for (field, status) in [
            ("", 400),
            ("l: -5\r\n", 400),
            ("l: five\r\n", 400),
            ("l:\r\n", 400),
            ("l: 5\r\nContent-Length: 5\r\n", 400),
            ("l: 1048577\r\n", 413),
            ("l: 99999999999999999999999999\r\n", 413),
        ] {
            let stream = format!("MESSAGE sip:a@b SIP/2.0\r\n{field}\r\nhello");
            for size in [1, 7, stream.len()] {
                let (messages, _, fault) = frames(stream.as_bytes(), size);
                assert!(messages.is_empty());
                assert_eq!(fault.unwrap().status, status, "{field}");
            }
        }
    }

    #[test]
    fn a_fault_stays_and_leaves_the_head() {
        let mut framer = Framer::new();
        framer.extend(b"BYE sip:a@b SIP/2.0\r\nCall-ID: 1\r\n\r\nrest");
        let first = framer.next().unwrap().unwrap_err();
        assert_eq!(framer.broken_head(), b"BYE sip:a@b SIP/2.0\r\nCall-ID: 1\r\n\r\n");
        framer.extend(ONE);
        assert_eq!(framer.next(), Some(Err(first)));
    }

    /// RFC 3261 section 18.3: the end of a message is known whatever else is wrong with it.
    #[test]
    fn a_malformed_message_takes_no_other_with_it() {
        for (bad, status) in [
            ("INVITE sip:a@b\r\nVia: x\r\nl: 5\r\n\r\nhello".to_owned(), 400),
            ("GARB@GE\r\nl: 5\r\n\r\nhello".to_owned(), 400),
            ("SIP/2.0 1000 What\r\nl: 5\r\n\r\nhello".to_owned(), 400),
            ("\nl: 0\n\n".to_owned(), 400),
            (format!("BYE sip:a SIP/2.0\r\nl: 57345\r\n\r\n{}", "\n".repeat(57_345)), 413),
            (
                format!(
                    "BYE sip:a SIP/2.0\r\nX: {}\r\nl: 50000\r\n\r\n{}",
                    "x".repeat(20_000),
                    "y".repeat(50_000)
                ),
                513,
            ),
        ] {
            let head = &bad.as_bytes()[..head_end(bad.as_bytes(), 0).unwrap()];
            let stream = [ONE, bad.as_bytes(), b"\r\n\r\n", TWO, bad.as_bytes(), ONE].concat();
            for size in [1, 2, 3, 7, 1_000, stream.len()] {
                let (messages, pings, fault) = frames(&stream, size);
                assert_eq!(messages, [ONE, head, TWO, head, ONE], "{size}");
                assert_eq!((pings, fault), (1, None));
            }
            let mut framer = Framer::new();
            framer.extend(bad.as_bytes());
            match framer.next() {
                Some(Ok(Frame::Malformed(_, fault))) => assert_eq!(fault.status, status),
                other => panic!("{other:?}"),
            }
            assert_eq!(framer.next(), None);
            assert!(!framer.is_within_message());
        }
    }

    #[test]
    fn a_body_that_is_skipped_is_owed() {
        let mut framer = Framer::new();
        framer.extend(b"BYE sip:a SIP/2.0\r\nl: 60000\r\n\r\nsome");
        assert!(matches!(framer.next(), Some(Ok(Frame::Malformed(..)))));
        assert_eq!(framer.next(), None);
        assert!(framer.is_within_message());
        for _ in 0..60 {
            framer.extend(&[b'\n'; 1_000]);
            assert!(framer.pending() <= 1_000, "nothing of it is kept");
            if let Some(next) = framer.next() {
                assert_eq!(next.map(|_| ()), Err(framer.broken.unwrap()), "behind the body");
            }
        }
    }

    /// RFC 3261 section 8.2.6: a response repeats header fields, nothing of the start line.
    #[test]
    fn a_request_without_a_start_line_can_be_answered() {
        let head = answerable(b"INVITE sip:a@b\r\nVia: x\r\n\r\nbody").unwrap();
        assert_eq!(head, b"INVALID sip:invalid SIP/2.0\r\nVia: x\r\n\r\n");
        assert!(crate::message::parse(&head).is_ok());
        assert_eq!(unparsable(b"INVITE sip:a@b\r\nVia: x\r\n\r\n").unwrap().status, 400);
        for not in [&b"SIP/2.0 1000 What\r\n\r\n"[..], b"ACK sip:a@b\r\n\r\n", ONE, b"", b"x"] {
            assert_eq!(answerable(not), None);
        }
        assert_eq!(unparsable(ONE), None);
        assert!(unparsable(b"").is_some());
    }

    #[test]
    fn a_header_section_without_an_end_is_the_end_of_the_stream() {
        let head = |filler: usize, length: usize| {
            format!("BYE sip:a@b SIP/2.0\r\nX: {}\r\nl: {length}\r\n\r\n", "x".repeat(filler))
        };
        let (_, _, fault) = frames(head(MAX_HEAD, 0).as_bytes(), 1000);
        assert_eq!(fault.unwrap().status, 513);
        let (_, _, fault) = frames(&vec![b'x'; MAX_HEAD + 1], 1000);
        assert_eq!(fault.unwrap().status, 513);
        // Another protocol is recognised by its first line.
        for line in [&b"GET / HTTP/1.1\r\nHost: x\r\n"[..], b"HTTP/1.1 200 OK\r\nl: 0\r\n\r\n"] {
            let (_, _, fault) = frames(line, 1000);
            assert_eq!(fault.unwrap().status, 400);
        }
        let mut large = head(100, MAX_BODY).into_bytes();
        large.resize(large.len() + MAX_BODY, b'b');
        let (messages, _, fault) = frames(&large, 1500);
        assert_eq!((messages.len(), fault), (1, None));
    }

    #[test]
    fn an_idle_stream_has_no_memory_and_a_partial_message_its_own() {
        let capacity = |framer: &Framer| framer.buffer.capacity();
        let (mut framer, mut shared) = (Framer::new(), Vec::new());
        let whole = b"BYE sip:a@b SIP/2.0\r\nl: 0\r\n\r\n";
        let many = whole.repeat(1_000);
        let mut read = |framer: &mut Framer, bytes: &[u8]| {
            framer.borrow_buffer(&mut shared);
            framer.extend(bytes);
            let mut messages = 0;
            while let Some(frame) = framer.next() {
                assert!(matches!(frame, Ok(Frame::Message(_))));
                messages += 1;
            }
            framer.return_buffer(&mut shared);
            messages
        };
        assert_eq!((read(&mut framer, &many), capacity(&framer)), (1_000, 0));
        let (begin, end) = many.split_at(many.len() - 9);
        assert_eq!((read(&mut framer, begin), capacity(&framer)), (999, whole.len() - 9));
        assert_eq!((read(&mut framer, end), capacity(&framer)), (1, 0));
        assert!(shared.is_empty() && shared.capacity() >= begin.len());
    }
}
