//! Attributes of a stream: its direction and its codecs.

use super::{Attribute, Connection, Media, Session, Text};
use crate::syntax::number;
use std::borrow::Cow;

/// The direction of a stream, as seen by the author of a description (RFC 8866 section 6.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Direction {
    /// Both directions; the default.
    #[default]
    SendRecv,
    /// The author sends.
    SendOnly,
    /// The author receives.
    RecvOnly,
    /// Neither.
    Inactive,
}

impl Direction {
    /// Returns the direction in which the author sends and receives so.
    pub const fn new(send: bool, receive: bool) -> Self {
        match (send, receive) {
            (true, true) => Direction::SendRecv,
            (true, false) => Direction::SendOnly,
            (false, true) => Direction::RecvOnly,
            (false, false) => Direction::Inactive,
        }
    }

    /// Returns whether the author sends.
    pub const fn sends(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::SendOnly)
    }

    /// Returns whether the author receives.
    pub const fn receives(self) -> bool {
        matches!(self, Direction::SendRecv | Direction::RecvOnly)
    }

    /// Returns the direction of the same stream as the peer sees it.
    pub const fn reversed(self) -> Self {
        Self::new(self.receives(), self.sends())
    }

    /// Returns the direction that both allow. `self` is the offer, seen from the offerer. The result is the answer,
    /// seen from the answerer, which without the offer would choose `willing` (RFC 3264 section 6.1).
    pub const fn answered(self, willing: Direction) -> Self {
        Self::new(self.receives() && willing.sends(), self.sends() && willing.receives())
    }

    /// Returns the name of its attribute.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::SendRecv => "sendrecv",
            Direction::SendOnly => "sendonly",
            Direction::RecvOnly => "recvonly",
            Direction::Inactive => "inactive",
        }
    }

    fn of(attributes: &[Attribute<'_>]) -> Option<Self> {
        use Direction::*;
        attributes.iter().filter(|a| a.value.is_none()).find_map(|a| {
            [SendRecv, SendOnly, RecvOnly, Inactive]
                .into_iter()
                .find(|d| d.name().as_bytes() == &*a.name)
        })
    }
}

/// An encoding with its clock, as in `a=rtpmap`.
#[derive(Clone, Eq, Debug)]
pub struct Codec<'a> {
    /// Encoding name, case-insensitive.
    pub name: Text<'a>,
    /// Clock rate in hertz.
    pub clock: u32,
    /// The number of channels; 1 if absent.
    pub channels: u8,
}

impl<'a> Codec<'a> {
    /// Returns a codec of one channel.
    pub const fn new(name: &'a str, clock: u32) -> Self {
        Codec { name: Cow::Borrowed(name.as_bytes()), clock, channels: 1 }
    }

    /// Parses the text after the payload type in `a=rtpmap`.
    fn parse(text: &'a [u8]) -> Option<Self> {
        let mut parts = text.split(|&b| b == b'/');
        let name = parts.next().filter(|n| !n.is_empty())?;
        let clock = number(parts.next()?, u32::MAX as u64)? as u32;
        // Only audio has channels there; other media use that position for anything.
        let channels = parts.next().and_then(|c| number(c, u8::MAX as u64)).unwrap_or(1) as u8;
        Some(Codec { name: name.into(), clock, channels })
    }

    /// Returns the same without borrowing.
    pub fn into_owned(self) -> Codec<'static> {
        Codec { name: super::owned(self.name), clock: self.clock, channels: self.channels }
    }

    /// Returns whether it is for tones or comfort noise beside a codec of the media: alone it makes no stream.
    pub fn is_auxiliary(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"telephone-event") || self.name.eq_ignore_ascii_case(b"CN")
    }

    /// Appends the value of `a=rtpmap` after the payload type.
    pub(super) fn write(&self, buf: &mut Vec<u8>) {
        buf.extend_from_slice(&self.name);
        buf.push(b'/');
        crate::write::decimal(buf, self.clock as u64);
        if self.channels > 1 {
            buf.push(b'/');
            crate::write::decimal(buf, self.channels as u64);
        }
    }
}

impl PartialEq for Codec<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.clock == other.clock
            && self.channels == other.channels
            && self.name.eq_ignore_ascii_case(&other.name)
    }
}

/// Returns the codec of a payload type without an attribute (RFC 3551 section 6).
pub fn static_codec(payload: u8) -> Option<Codec<'static>> {
    Some(match payload {
        0 => Codec::new("PCMU", 8000),
        3 => Codec::new("GSM", 8000),
        4 => Codec::new("G723", 8000),
        5 => Codec::new("DVI4", 8000),
        6 => Codec::new("DVI4", 16000),
        7 => Codec::new("LPC", 8000),
        8 => Codec::new("PCMA", 8000),
        9 => Codec::new("G722", 8000),
        10 => Codec { channels: 2, ..Codec::new("L16", 44100) },
        11 => Codec::new("L16", 44100),
        12 => Codec::new("QCELP", 8000),
        13 => Codec::new("CN", 8000),
        14 => Codec::new("MPA", 90000),
        15 => Codec::new("G728", 8000),
        16 => Codec::new("DVI4", 11025),
        17 => Codec::new("DVI4", 22050),
        18 => Codec::new("G729", 8000),
        25 => Codec::new("CelB", 90000),
        26 => Codec::new("JPEG", 90000),
        28 => Codec::new("nv", 90000),
        31 => Codec::new("H261", 90000),
        32 => Codec::new("MPV", 90000),
        33 => Codec::new("MP2T", 90000),
        34 => Codec::new("H263", 90000),
        _ => return None,
    })
}

impl<'a> Session<'a> {
    /// Returns the direction of a stream: its own, or that of the session, or both ways.
    pub fn direction(&self, media: &Media<'_>) -> Direction {
        Direction::of(&media.attributes)
            .or_else(|| Direction::of(&self.attributes))
            .unwrap_or_default()
    }

    /// Returns the address to send a stream to: its own `c=` or that of the session.
    pub fn connection<'s>(&'s self, media: &'s Media<'a>) -> Option<&'s Connection<'a>> {
        media.connections.first().or(self.connection.as_ref())
    }
}

impl Media<'_> {
    /// Returns the first attribute of this name: `Some(None)` if it has no value.
    pub fn attribute(&self, name: &str) -> Option<Option<&[u8]>> {
        let found = self.attributes.iter().find(|a| *a.name == *name.as_bytes())?;
        Some(found.value.as_deref())
    }

    /// Returns whether the formats are RTP payload types.
    pub fn is_rtp(&self) -> bool {
        self.protocol.starts_with(b"RTP/")
            || memchr::memmem::find(&self.protocol, b"/RTP/").is_some()
    }

    /// Returns the codec of a format of an RTP stream: that of `a=rtpmap`, or that of its number.
    pub fn codec(&self, format: &[u8]) -> Option<Codec<'_>> {
        self.about("rtpmap", format)
            .and_then(Codec::parse)
            .or_else(|| static_codec(number(format, 127)? as u8))
    }

    /// Returns the `a=fmtp` of a format.
    pub fn fmtp(&self, format: &[u8]) -> Option<&[u8]> {
        self.about("fmtp", format)
    }

    /// Returns the value after the format in the attribute of this name about it.
    fn about(&self, name: &str, format: &[u8]) -> Option<&[u8]> {
        self.attributes.iter().filter(|a| *a.name == *name.as_bytes()).find_map(|a| {
            a.value.as_deref()?.strip_prefix(format)?.strip_prefix(b" ").map(crate::syntax::trim)
        })
    }

    /// Sets a direction of the stream's own.
    pub fn set_direction(&mut self, direction: Direction) {
        self.attributes.retain(|a| Direction::of(core::slice::from_ref(a)).is_none());
        self.attributes.push(Attribute::flag(direction.name()));
    }
}
