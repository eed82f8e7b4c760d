//! Messages out of a stream of bytes (RFC 3261 section 18.3), and the keep-alive between them
//! (RFC 5626 section 4.4.1).
//!
//! The framer looks for the empty line and at Content-Length, and at nothing else; it judges no
//! message. It reads every byte once however the stream is cut, and keeps at most one message and
//! what one read brought beyond it.

use crate::header::HeaderId;
use crate::limits::{MAX_BODY, MAX_HEAD, MAX_LINE, MAX_MESSAGE};
use crate::message::{Got, Line, Malformed, line_end, start_line};
use crate::syntax::{DIGIT, all, find_near, number, trim};

/// Octets of buffer kept when nothing is in it.
const KEEP: usize = 16_384;

/// What a stream carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// One message, start line to end of body.
    Message(&'a [u8]),
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
    /// Whether the first line of the message at `at` has been seen to be a start line.
    started: bool,
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
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
                self.buffer = Vec::with_capacity(KEEP);
            }
        }
        &mut self.buffer
    }

    /// Appends received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.buffer().extend_from_slice(bytes);
    }

    /// Octets received and not given out yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// Whether a message has begun and not ended: the peer owes the rest of it.
    pub fn is_within_message(&self) -> bool {
        self.broken.is_none() && self.pending() > 0
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
    /// Errors: 400 where the first line is none of SIP or Content-Length is absent, repeated or no
    /// number; 413 where it is above [`MAX_BODY`]; 513 where the header section is above
    /// [`MAX_HEAD`] or the message above [`MAX_MESSAGE`]. A message that is too large is told as
    /// soon as its header section is there, without waiting for the rest.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Result<Frame<'_>, Malformed>> {
        if let Some(fault) = self.broken {
            return Some(Err(fault));
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
                Some(Ok(Frame::Message(&self.buffer[start..end])))
            }
            Ok(None) => None,
            Err(fault) => {
                self.broken = Some(fault);
                Some(Err(fault))
            }
        }
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

    /// The index after the message at `at`, once it is whole.
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

    /// Whether the first line is whole; it must be a start line, or nothing after it is SIP.
    fn start(&mut self) -> Result<bool, Malformed> {
        let rest = &self.buffer[self.at..];
        let from = self.scanned - self.at;
        let Some(feed) = memchr::memchr(b'\n', &rest[from..]).map(|feed| from + feed) else {
            self.scanned = self.buffer.len();
            if rest.len() >= MAX_LINE {
                let got = Got::Number(rest.len() as u64);
                return Err(Malformed::bad("start line: expected its end", got, 0));
            }
            return Ok(false);
        };
        self.scanned = self.at + feed;
        start_line(rest[..feed].strip_suffix(b"\r").unwrap_or(&rest[..feed]), &mut None)?;
        self.started = true;
        Ok(true)
    }

    /// The length of the whole message, once its header section is whole.
    fn head(&mut self) -> Result<Option<usize>, Malformed> {
        let rest = &self.buffer[self.at..];
        let Some(end) = head_end(rest, self.scanned - self.at) else {
            // The last two octets may be the beginning of the empty line.
            self.scanned = self.at + rest.len().saturating_sub(2);
            if rest.len() > MAX_HEAD {
                let got = Got::Number(rest.len() as u64);
                let reason = "header section: expected fewer octets";
                return Err(Malformed::with_status(513, reason, got, rest.len()));
            }
            return Ok(None);
        };
        self.scanned = self.at + end;
        if end > MAX_HEAD {
            let got = Got::Number(end as u64);
            return Err(Malformed::with_status(
                513,
                "header section: expected fewer octets",
                got,
                end,
            ));
        }
        let body = content_length(&rest[..end])?;
        let length = end + body;
        if length > MAX_MESSAGE {
            let got = Got::Number(length as u64);
            return Err(Malformed::with_status(513, "message: expected fewer octets", got, end));
        }
        Ok(Some(length))
    }
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

/// The value of the one Content-Length of a header section that is whole (RFC 3261 section 18.3:
/// on a stream there must be one; RFC 4475 section 3.3.9: two are as bad as none).
fn content_length(head: &[u8]) -> Result<usize, Malformed> {
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
    match number(value, u64::MAX).unwrap_or(u64::MAX) {
        length if length > MAX_BODY as u64 => {
            let got = Got::Number(length);
            Err(Malformed::with_status(413, "Content-Length: expected a smaller body", got, at))
        }
        length => Ok(length as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] =
        b"MESSAGE sip:a@b SIP/2.0\r\nVia: x\r\nl\t: 5\r\nSubject: a\r\n b\r\n\r\nhello";
    const TWO: &[u8] = b"SIP/2.0 200 OK\r\nContent-Length:\r\n  0\r\n\r\n";

    /// What comes out of a stream cut into pieces of `size`: messages, pings, and the fault.
    fn frames(stream: &[u8], size: usize) -> (Vec<Vec<u8>>, usize, Option<Malformed>) {
        let mut framer = Framer::new();
        let (mut messages, mut pings) = (Vec::new(), 0);
        for piece in stream.chunks(size) {
            framer.extend(piece);
            loop {
                match framer.next() {
                    Some(Ok(Frame::Message(m))) => messages.push(m.to_vec()),
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
            ("l: 57345\r\n", 413),
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

    #[test]
    fn what_is_too_large_is_told_early() {
        let head = |filler: usize, length: usize| {
            format!("BYE sip:a@b SIP/2.0\r\nX: {}\r\nl: {length}\r\n\r\n", "x".repeat(filler))
        };
        let (_, _, fault) = frames(head(20_000, 50_000).as_bytes(), 1000);
        assert_eq!(fault.unwrap().status, 513);
        let (_, _, fault) = frames(head(MAX_HEAD, 0).as_bytes(), 1000);
        assert_eq!(fault.unwrap().status, 513);
        let (_, _, fault) = frames(&vec![b'x'; MAX_LINE], 1000);
        assert_eq!(fault.unwrap().status, 400);
        let (_, _, fault) = frames(b"GET / HTTP/1.1\r\nHost: x\r\n", 1000);
        assert_eq!(fault.unwrap().status, 400);
        let mut large = head(100, MAX_BODY).into_bytes();
        large.resize(large.len() + MAX_BODY, b'b');
        let (messages, _, fault) = frames(&large, 1500);
        assert_eq!((messages.len(), fault), (1, None));
    }

    #[test]
    fn memory_is_given_back() {
        let mut framer = Framer::new();
        let mut large = format!("BYE sip:a@b SIP/2.0\r\nl: {MAX_BODY}\r\n\r\n").into_bytes();
        large.resize(large.len() + MAX_BODY, b'b');
        framer.extend(&large);
        assert!(matches!(framer.next(), Some(Ok(Frame::Message(_)))));
        assert!(framer.buffer().capacity() <= KEEP);
    }
}
