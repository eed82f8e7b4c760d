//! Offer and answer (RFC 3264): the requirements of a second description, given the first.

use super::{Attribute, Codec, Connection, Direction, Media, Origin, Session, Text, Timing};
use std::borrow::Cow;
use std::fmt;

/// The capabilities and wishes of one side.
#[derive(Clone, Debug)]
pub struct Local<'a> {
    /// Its origin, with the version of its next description.
    pub origin: Origin<'a>,
    /// Its address for media.
    pub connection: Connection<'a>,
    /// Its streams.
    pub streams: Vec<Stream<'a>>,
}

/// A stream that one side accepts.
#[derive(Clone, Debug)]
pub struct Stream<'a> {
    /// `audio`, `video` ...
    pub kind: Text<'a>,
    /// `RTP/AVP` ...
    pub protocol: Text<'a>,
    /// The port on which it is received.
    pub port: u16,
    /// The direction it prefers.
    pub direction: Direction,
    /// The formats it accepts, preferred first.
    pub formats: Vec<Format<'a>>,
    /// Further attributes of the stream: `ptime`, `rtcp` ...
    pub attributes: Vec<Attribute<'a>>,
}

/// A format of a stream.
#[derive(Clone, Debug)]
pub struct Format<'a> {
    /// Its payload type in an offer; for a stream other than RTP, the format itself.
    pub format: Text<'a>,
    /// The codec; `None` for a stream other than RTP.
    pub codec: Option<Codec<'a>>,
    /// The value of `a=fmtp` after the payload type.
    pub fmtp: Option<Text<'a>>,
}

/// The reason why a description does not match the one before it. Streams are counted from zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NegotiationError {
    /// The number of streams is wrong.
    Streams {
        /// The required number, or the minimum in a new offer.
        expected: usize,
        /// The actual number.
        got: usize,
    },
    /// `t=` differs in the answer.
    Times,
    /// The media type differs.
    Kind {
        /// Which stream.
        stream: usize,
    },
    /// The transport protocol differs.
    Protocol {
        /// Which stream.
        stream: usize,
    },
    /// A stream that was offered with port zero was accepted.
    Revived {
        /// Which stream.
        stream: usize,
    },
    /// The direction does not match the offered one.
    Direction {
        /// Which stream.
        stream: usize,
        /// As offered.
        offered: Direction,
        /// As answered.
        answered: Direction,
    },
    /// No format of the answer was offered.
    Formats {
        /// Which stream.
        stream: usize,
    },
    /// A stream has no address.
    Address {
        /// Which stream.
        stream: usize,
    },
    /// The origin differs.
    Origin,
    /// The version must be one more if something has changed, and the same otherwise.
    Version {
        /// The required version.
        expected: u64,
        /// The actual version.
        got: u64,
    },
    /// A dynamic payload type has changed its codec.
    Payload {
        /// Which stream.
        stream: usize,
    },
}

impl fmt::Display for NegotiationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NegotiationError::Streams { expected, got } => {
                write!(f, "expected {expected} streams, got {got}")
            }
            NegotiationError::Times => f.write_str("expected the times of the offer, got others"),
            NegotiationError::Kind { stream } => {
                write!(f, "stream {stream}: expected the offered media type")
            }
            NegotiationError::Protocol { stream } => {
                write!(f, "stream {stream}: expected the offered protocol")
            }
            NegotiationError::Revived { stream } => {
                write!(f, "stream {stream}: expected port 0, got another")
            }
            NegotiationError::Direction { stream, offered, answered } => {
                let (o, a) = (offered.name(), answered.name());
                write!(f, "stream {stream}: expected an answer to {o}, got {a}")
            }
            NegotiationError::Formats { stream } => {
                write!(f, "stream {stream}: expected an offered format")
            }
            NegotiationError::Address { stream } => {
                write!(f, "stream {stream}: expected c=, got none")
            }
            NegotiationError::Origin => f.write_str("expected the origin of before, got another"),
            NegotiationError::Version { expected, got } => {
                write!(f, "expected version {expected}, got {got}")
            }
            NegotiationError::Payload { stream } => {
                write!(f, "stream {stream}: expected payload types to keep their codecs")
            }
        }
    }
}

impl std::error::Error for NegotiationError {}

/// Returns the offer of all that `local` accepts (RFC 3264 section 5).
pub fn offer(local: &Local<'_>) -> Session<'static> {
    let media = local.streams.iter().map(|stream| {
        let formats = stream.formats.iter().map(|f| (&*f.format, f));
        describe(stream, formats, stream.direction)
    });
    session(local, vec![Timing::default()], media.collect())
}

/// Returns the answer to `offer`, given what `local` accepts (RFC 3264 section 6).
///
/// Each stream offered is answered by the first unused one of `local` with its media type and protocol. Its formats are
/// those of the offer that `local` has, in the order and with the payload types of the offer. A stream without match,
/// without a common format for media, without an address, or with multicast is refused with port zero.
pub fn answer(offer: &Session<'_>, local: &Local<'_>) -> Session<'static> {
    let mut free: Vec<_> = local.streams.iter().map(Some).collect();
    let media = offer.media.iter().map(|offered| {
        let fits = |s: &Stream<'_>| s.kind == offered.kind && s.protocol == offered.protocol;
        let usable = offered.port != 0 && is_unicast(offer, offered);
        let index = free.iter().position(|s| usable && s.is_some_and(fits));
        let accepted = index.and_then(|index| {
            let stream = free[index]?;
            let media = accept(offer, offered, stream)?;
            free[index] = None;
            Some(media)
        });
        accepted.unwrap_or_else(|| refuse(offered))
    });
    // RFC 3264 section 6: the time of the session cannot be negotiated.
    let times = offer.times.iter().cloned().map(Timing::into_owned).collect();
    let media = media.collect();
    session(local, times, media)
}

fn session(
    local: &Local<'_>,
    times: Vec<Timing<'static>>,
    media: Vec<Media<'static>>,
) -> Session<'static> {
    Session {
        origin: local.origin.clone().into_owned(),
        name: Cow::Borrowed(b"-"),
        connection: Some(local.connection.clone().into_owned()),
        times,
        media,
        ..Session::default()
    }
}

/// Refuses a stream. RFC 3264 section 6: at least one format is required, and it has no meaning.
fn refuse(offered: &Media<'_>) -> Media<'static> {
    Media {
        kind: super::owned(offered.kind.clone()),
        port: 0,
        protocol: super::owned(offered.protocol.clone()),
        formats: offered.formats.iter().take(1).cloned().map(super::owned).collect(),
        ..Media::default()
    }
}

fn accept(offer: &Session<'_>, offered: &Media<'_>, stream: &Stream<'_>) -> Option<Media<'static>> {
    let common: Vec<_> = offered
        .formats
        .iter()
        .filter_map(|format| {
            stream.formats.iter().find(|ours| same(offered, format, ours)).map(|f| (&**format, f))
        })
        .collect();
    let carries =
        |(_, f): &(&[u8], &Format<'_>)| !f.codec.as_ref().is_some_and(Codec::is_auxiliary);
    if !common.iter().any(carries) {
        return None;
    }
    let mut direction = offer.direction(offered).answered(stream.direction);
    // RFC 3264 section 8.4: an address of zeros is an old form of hold; nothing is sent to it.
    if offer.connection(offered).and_then(Connection::ip).is_some_and(|ip| ip.is_unspecified()) {
        direction = Direction::new(false, direction.receives());
    }
    Some(describe(stream, common.into_iter(), direction))
}

fn same(offered: &Media<'_>, format: &[u8], ours: &Format<'_>) -> bool {
    match &ours.codec {
        Some(codec) => offered.is_rtp() && offered.codec(format).is_some_and(|c| c == *codec),
        None => !offered.is_rtp() && *ours.format == *format,
    }
}

fn describe<'f>(
    stream: &Stream<'_>,
    formats: impl Iterator<Item = (&'f [u8], &'f Format<'f>)>,
    direction: Direction,
) -> Media<'static> {
    let mut media = Media {
        kind: super::owned(stream.kind.clone()),
        port: stream.port,
        protocol: super::owned(stream.protocol.clone()),
        ..Media::default()
    };
    for (number, format) in formats {
        media.formats.push(Cow::Owned(number.to_vec()));
        let about = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut value = number.to_vec();
            value.push(b' ');
            write(&mut value);
            value
        };
        if let Some(codec) = &format.codec {
            let value = about(&|buf| codec.write(buf));
            media.attributes.push(Attribute::new("rtpmap", value));
        }
        if let Some(fmtp) = &format.fmtp {
            let value = about(&|buf| buf.extend_from_slice(fmtp));
            media.attributes.push(Attribute::new("fmtp", value));
        }
    }
    media.attributes.extend(stream.attributes.iter().cloned().map(Attribute::into_owned));
    media.set_direction(direction);
    media
}

fn is_unicast(session: &Session<'_>, media: &Media<'_>) -> bool {
    session.connection(media).is_some_and(|c| c.ip().is_none_or(|ip| !ip.is_multicast()))
}

/// Checks that `answer` answers `offer` (RFC 3264 section 6).
pub fn check_answer(offer: &Session<'_>, answer: &Session<'_>) -> Result<(), NegotiationError> {
    let (expected, got) = (offer.media.len(), answer.media.len());
    if expected != got {
        return Err(NegotiationError::Streams { expected, got });
    }
    let bounds =
        |s: &Session<'_>| -> Vec<_> { s.times.iter().map(|t| (t.start, t.stop)).collect() };
    if bounds(offer) != bounds(answer) {
        return Err(NegotiationError::Times);
    }
    for (stream, (o, a)) in offer.media.iter().zip(&answer.media).enumerate() {
        if o.kind != a.kind {
            return Err(NegotiationError::Kind { stream });
        }
        if a.port == 0 {
            continue;
        }
        if o.port == 0 {
            return Err(NegotiationError::Revived { stream });
        }
        if o.protocol != a.protocol {
            return Err(NegotiationError::Protocol { stream });
        }
        if answer.connection(a).is_none() {
            return Err(NegotiationError::Address { stream });
        }
        let (offered, answered) = (offer.direction(o), answer.direction(a));
        if offered.answered(answered) != answered {
            return Err(NegotiationError::Direction { stream, offered, answered });
        }
        if !a.formats.iter().any(|format| is_offered(o, a, format)) {
            return Err(NegotiationError::Formats { stream });
        }
    }
    Ok(())
}

/// Returns whether a format of an answer is one that was offered.
fn is_offered(offered: &Media<'_>, answered: &Media<'_>, format: &[u8]) -> bool {
    match answered.is_rtp().then(|| answered.codec(format)).flatten() {
        Some(codec) => offered.formats.iter().any(|f| offered.codec(f).is_some_and(|c| c == codec)),
        None => offered.formats.iter().any(|f| **f == *format),
    }
}

/// Checks that `new` may follow `previous` from the same side (RFC 3264 section 8): the origin is the same, the version
/// is one higher if anything changes and the same otherwise, no stream disappears, and a dynamic payload type of a
/// stream keeps its codec.
pub fn check_next(previous: &Session<'_>, new: &Session<'_>) -> Result<(), NegotiationError> {
    let (before, after) = (&previous.origin, &new.origin);
    if before.username != after.username || before.id != after.id || before.address != after.address
    {
        return Err(NegotiationError::Origin);
    }
    let (expected, got) = (previous.media.len(), new.media.len());
    if got < expected {
        return Err(NegotiationError::Streams { expected, got });
    }
    let changed = {
        let mut same = new.clone();
        same.origin.version = before.version;
        same != *previous
    };
    let expected = before.version.wrapping_add(changed as u64);
    if after.version != expected {
        return Err(NegotiationError::Version { expected, got: after.version });
    }
    for (stream, (b, a)) in previous.media.iter().zip(&new.media).enumerate() {
        // The slot of an ended stream may be used for another one (section 8.1).
        if b.port == 0 || a.port == 0 || b.kind != a.kind || !(b.is_rtp() && a.is_rtp()) {
            continue;
        }
        let kept = |format: &Text<'_>| match (b.codec(format), a.codec(format)) {
            (Some(before), Some(after)) => !b.formats.contains(format) || before == after,
            _ => true,
        };
        if !a.formats.iter().all(kept) {
            return Err(NegotiationError::Payload { stream });
        }
    }
    Ok(())
}

/// Puts every stream on hold or resumes it, and increments the version (RFC 3264 section 8.4): the peer must stop
/// sending; our own sending is unchanged.
pub fn set_hold(session: &mut Session<'_>, hold: bool) {
    for i in 0..session.media.len() {
        let direction = session.direction(&session.media[i]);
        let media = &mut session.media[i];
        if media.port != 0 {
            media.set_direction(Direction::new(direction.sends(), !hold));
        }
    }
    session.origin.version = session.origin.version.wrapping_add(1);
}

#[cfg(test)]
mod tests;
