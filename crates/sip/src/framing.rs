//! Messages out of a stream of bytes (RFC 3261 section 18.3), and the keep-alive between them
//! (RFC 5626 section 4.4.1).
//!
//! The framer looks for the empty line and at Content-Length, and whether the first line is a start
//! line; it judges nothing else. A message that is no good but has an end that can be found takes no
//! other message with it: it is given out as [`Frame::Malformed`] and the stream goes on. The framer
//! reads every byte once however the stream is cut, and keeps at most one message and what one read
//! brought beyond it.

use crate::header::HeaderId;
use crate::limits::{MAX_BODY, MAX_HEAD, MAX_MESSAGE};
use crate::message::{Line, line_end, start_line};
use crate::syntax::{DIGIT, all, find_near, number, trim};
use ringway_sansio::{Got, Malformed};

/// Octets of the largest body that is skipped to find the message behind it. A Content-Length above this
/// is not trusted to be one.
pub const MAX_SKIPPED: usize = 1 << 20;

/// What a stream carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// One message, start line to end of body.
    Message(&'a [u8]),
    /// One message that cannot be used but whose end is known: its header section, start line first.
    /// What follows its body is the next message.
    Malformed(&'a [u8], Malformed),
    /// A double CRLF, to be answered with one.
    Ping,
    /// A CRLF: the answer to a ping, or nothing. The first half of a ping that comes in two pieces
    /// is told as one as well.
    Pong,
}

/// Cuts one stream into messages.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    /// What is before this index has been given out.
    at: usize,
    /// No message ends its header section before this index.
    scanned: usize,
    /// Length of the message at `at`, once its header section is whole.
    length: Option<usize>,
    /// Whether the first line of the message at `at` is whole.
    started: bool,
    /// Why the message at `at` cannot be used, if it cannot.
    fault: Option<Malformed>,
    /// Octets to come of the body of a message that was given out as malformed.
    skip: usize,
    /// Whether a single CRLF was the last thing given out.
    half_ping: bool,
    /// The fault that ended the stream: after it nothing can be found again.
    broken: Option<Malformed>,
}

impl Framer {
    /// A framer at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// The buffer to append received bytes to. Nothing else may be done with it.
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

    /// Lets the framer, if it has no buffer of its own, use one that many framers share, until
    /// [`Framer::return_buffer`].
    pub fn borrow_buffer(&mut self, shared: &mut Vec<u8>) {
        if self.buffer.capacity() == 0 {
            core::mem::swap(&mut self.buffer, shared);
        }
    }

    /// Returns the buffer to those that share it, and copies what is pending into one of its own. Where
    /// nothing is pending the framer has none, so that an idle stream costs no memory.
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

    /// Octets received and not given out yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// Whether a message has begun and not ended: the peer owes the rest of it.
    pub fn is_within_message(&self) -> bool {
        self.broken.is_none() && (self.pending() > 0 || self.skip > 0)
    }

    /// The header section of the message that broke the framing, as far as it came; for an answer
    /// to it.
    pub fn broken_head(&self) -> &[u8] {
        if self.broken.is_none() {
            return &[];
        }
        let rest = &self.buffer[self.at..];
        let end = self.scanned.saturating_sub(self.at);
        &rest[..end.min(rest.len()).min(MAX_HEAD)]
    }

    /// The next frame; `None` until more bytes come. After an error the stream cannot be followed
    /// any more: the same error comes again, and the connection should be closed.
    ///
    /// Malformed, and followed: a first line that is no start line (400), a Content-Length above
    /// [`MAX_BODY`] (413), a message above [`MAX_MESSAGE`] (513). Given out as soon as the header
    /// section is there; the body is skipped.
    ///
    /// Errors, where no next message can be found: 400 where Content-Length is absent, repeated or no
    /// number, or the first line is HTTP's; 413 where it is above [`MAX_SKIPPED`]; 513 where the header
    /// section is above [`MAX_HEAD`].
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

    /// Passes over the body of a malformed message. Returns whether its end has come.
    fn skipped(&mut self) -> bool {
        let here = self.skip.min(self.pending());
        self.at += here;
        self.skip -= here;
        self.scanned = self.scanned.max(self.at);
        self.skip == 0
    }

    /// A CRLF or two before a message.
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

    /// The index after the message at `at`, once it is whole; of a malformed one that after its header
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

    /// Whether the first line is whole. What is no start line is a fault of this message alone, unless
    /// it is that of another protocol.
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

    /// The length of what is given out next, once the header section is whole: the message, or the
    /// header section alone of a malformed one, whose body is skipped.
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

/// Whether a first line is that of an HTTP request or response (RFC 9112 sections 3 and 4): a browser or
/// a scanner, from which no SIP will come.
fn is_http(line: &[u8]) -> bool {
    const VERSION: &[u8] = b"HTTP/";
    let last = line.rsplit(|b| *b == b' ').next().unwrap_or_default();
    line.starts_with(VERSION) || last.starts_with(VERSION)
}

/// What stands for a start line that cannot be parsed.
const PLACEHOLDER: &[u8] = b"INVALID sip:invalid SIP/2.0";

/// What a message that has a start line which cannot be parsed can be answered by: its header section
/// with a placeholder for that line, which an answer does not repeat (RFC 3261 section 8.2.6). `None` where
/// nothing may be answered: to what begins like a response or an ACK, or where the start line is good.
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

/// Why the first line of a message is no start line, if it is none: for what is framed by its transport.
pub fn unparsable(message: &[u8]) -> Option<Malformed> {
    let feed = memchr::memchr(b'\n', message).unwrap_or(message.len());
    let line = message[..feed].strip_suffix(b"\r").unwrap_or(&message[..feed]);
    start_line(line, &mut None).err()
}

/// The index after the empty line, looked for from `from` on. A line ends as it does for
/// [`parse`](crate::message::parse).
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

/// The value of the one Content-Length of a header section that is whole, and where it stands (RFC 3261
/// section 18.3: on a stream there must be one; RFC 4475 section 3.3.9: two are as bad as none).
fn content_length(head: &[u8]) -> Result<(usize, usize), Malformed> {
    let mut found = None;
    let mut at = memchr::memchr(b'\n', head).map_or(head.len(), |feed| feed + 1);
    while let Some(Line { feed, .. }) = line_end(head, at) {
        let line = &head[at..feed];
        // The names it goes by begin with these letters only.
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

    /// What comes out of a stream cut into pieces of `size`: messages (of malformed ones the header
    /// section), pings, and the fault.
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

    /// RFC 3261 section 18.3: where a message ends is known whatever else is wrong with it.
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

    /// RFC 3261 section 8.2.6: an answer repeats header fields, nothing of the start line.
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
        // Another protocol is known by its first line.
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
