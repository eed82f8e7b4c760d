//! Session descriptions (RFC 8866) and their negotiation (RFC 3264).
//!
//! [`Session::parse`] returns a view whose texts borrow the body; [`Session::into_owned`] turns it into an owned value;
//! [`Session::write`] writes either. [`offer`] answers an offer, checks an answer and a new offer, and puts streams on
//! hold. There is no media here: no RTP, no ICE, no DTLS, and multicast streams are refused.

mod media;
pub mod offer;
mod parse;
mod write;

pub use media::{Codec, Direction, static_codec};

use std::borrow::Cow;
use std::net::IpAddr;

/// A text of a description: any octets but NUL, CR and LF.
pub type Text<'a> = Cow<'a, [u8]>;

/// Octets of one line. Beyond it: an error.
pub const MAX_SDP_LINE: usize = 4_096;
/// Media descriptions of one session. Beyond it: an error.
pub const MAX_MEDIA: usize = 64;
/// Formats of one media description. Beyond it: an error.
pub const MAX_FORMATS: usize = 128;
/// Lines of a session or of one media description, the `m=` line apart. Beyond it: an error.
pub const MAX_SECTION: usize = 512;

/// A session description.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Session<'a> {
    /// `o=`.
    pub origin: Origin<'a>,
    /// `s=`; `-` if the session has no name.
    pub name: Text<'a>,
    /// `i=`.
    pub information: Option<Text<'a>>,
    /// `u=`.
    pub uri: Option<Text<'a>>,
    /// `e=`.
    pub emails: Vec<Text<'a>>,
    /// `p=`.
    pub phones: Vec<Text<'a>>,
    /// `c=` for all media that have none of their own.
    pub connection: Option<Connection<'a>>,
    /// `b=`.
    pub bandwidths: Vec<Bandwidth<'a>>,
    /// `t=` with what follows it; at least one.
    pub times: Vec<Timing<'a>>,
    /// `k=`, obsolete.
    pub key: Option<Text<'a>>,
    /// `a=` for the whole session.
    pub attributes: Vec<Attribute<'a>>,
    /// `m=`.
    pub media: Vec<Media<'a>>,
}

/// The author of a description, and its version (RFC 8866 section 5.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin<'a> {
    /// User name, or `-`.
    pub username: Text<'a>,
    /// Session id: digits.
    pub id: Text<'a>,
    /// Version: one more for each change (RFC 3264 section 8).
    pub version: u64,
    /// The author's address. Not to be used for media.
    pub address: Connection<'a>,
}

impl Default for Origin<'_> {
    fn default() -> Self {
        Origin {
            username: Cow::Borrowed(b"-"),
            id: Cow::Borrowed(b"0"),
            version: 0,
            address: Connection::default(),
        }
    }
}

/// A network address with its types (RFC 8866 section 5.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection<'a> {
    /// `IN`.
    pub net: Text<'a>,
    /// `IP4` or `IP6`.
    pub kind: Text<'a>,
    /// Address or name; for multicast with its scope and count.
    pub address: Text<'a>,
}

impl Default for Connection<'_> {
    fn default() -> Self {
        Connection::new(IpAddr::from([0, 0, 0, 0]))
    }
}

impl Connection<'_> {
    /// Returns the connection of a unicast address.
    pub fn new(ip: IpAddr) -> Connection<'static> {
        let mut address = Vec::new();
        crate::write::ip(&mut address, ip);
        Connection {
            net: Cow::Borrowed(b"IN"),
            kind: Cow::Borrowed(if ip.is_ipv4() { b"IP4" } else { b"IP6" }),
            address: Cow::Owned(address),
        }
    }

    /// Returns the address, if it is one and not a name. The suffix of a multicast address is left out.
    pub fn ip(&self) -> Option<IpAddr> {
        let end = memchr::memchr(b'/', &self.address).unwrap_or(self.address.len());
        core::str::from_utf8(&self.address[..end]).ok()?.parse().ok()
    }
}

/// `b=` (RFC 8866 section 5.8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bandwidth<'a> {
    /// `CT`, `AS`, `TIAS` ...
    pub kind: Text<'a>,
    /// In the unit of its kind; kilobits a second for `CT` and `AS`.
    pub value: u64,
}

/// `t=` (RFC 8866 section 5.9), seconds since 1900; zero for no bound.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Timing<'a> {
    /// The beginning of the session.
    pub start: u64,
    /// The end of the session.
    pub stop: u64,
    /// `r=` as written.
    pub repeats: Vec<Text<'a>>,
    /// `z=` as written.
    pub zone: Option<Text<'a>>,
}

/// `a=` (RFC 8866 section 5.13).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute<'a> {
    /// Name, case-sensitive.
    pub name: Text<'a>,
    /// The text after the colon, if there is one.
    pub value: Option<Text<'a>>,
}

impl<'a> Attribute<'a> {
    /// Returns an attribute without a value.
    pub fn flag(name: &'a str) -> Self {
        Attribute { name: Cow::Borrowed(name.as_bytes()), value: None }
    }

    /// Returns an attribute with a value.
    pub fn new(name: &'a str, value: impl Into<Text<'a>>) -> Self {
        Attribute { name: Cow::Borrowed(name.as_bytes()), value: Some(value.into()) }
    }
}

/// `m=` with what belongs to it (RFC 8866 section 5.14).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Media<'a> {
    /// `audio`, `video`, `image` ...
    pub kind: Text<'a>,
    /// Port; zero for a stream that is refused or has ended (RFC 3264 section 6).
    pub port: u16,
    /// The number of ports, if present.
    pub ports: Option<u32>,
    /// `RTP/AVP`, `RTP/SAVP`, `udptl` ...
    pub protocol: Text<'a>,
    /// Formats in order of preference; for RTP the payload types. At least one.
    pub formats: Vec<Text<'a>>,
    /// `i=`.
    pub information: Option<Text<'a>>,
    /// `c=`; several only for layered multicast.
    pub connections: Vec<Connection<'a>>,
    /// `b=`.
    pub bandwidths: Vec<Bandwidth<'a>>,
    /// `k=`, obsolete.
    pub key: Option<Text<'a>>,
    /// `a=`.
    pub attributes: Vec<Attribute<'a>>,
}

fn owned(text: Text<'_>) -> Text<'static> {
    Cow::Owned(text.into_owned())
}

impl Session<'_> {
    /// Returns the same description without borrowing.
    pub fn into_owned(self) -> Session<'static> {
        Session {
            origin: self.origin.into_owned(),
            name: owned(self.name),
            information: self.information.map(owned),
            uri: self.uri.map(owned),
            emails: self.emails.into_iter().map(owned).collect(),
            phones: self.phones.into_iter().map(owned).collect(),
            connection: self.connection.map(Connection::into_owned),
            bandwidths: self.bandwidths.into_iter().map(Bandwidth::into_owned).collect(),
            times: self.times.into_iter().map(Timing::into_owned).collect(),
            key: self.key.map(owned),
            attributes: self.attributes.into_iter().map(Attribute::into_owned).collect(),
            media: self.media.into_iter().map(Media::into_owned).collect(),
        }
    }
}

impl Origin<'_> {
    /// Returns the same without borrowing.
    pub fn into_owned(self) -> Origin<'static> {
        Origin {
            username: owned(self.username),
            id: owned(self.id),
            version: self.version,
            address: self.address.into_owned(),
        }
    }
}

impl Connection<'_> {
    /// Returns the same without borrowing.
    pub fn into_owned(self) -> Connection<'static> {
        Connection { net: owned(self.net), kind: owned(self.kind), address: owned(self.address) }
    }
}

impl Bandwidth<'_> {
    /// Returns the same without borrowing.
    pub fn into_owned(self) -> Bandwidth<'static> {
        Bandwidth { kind: owned(self.kind), value: self.value }
    }
}

impl Timing<'_> {
    /// Returns the same without borrowing.
    pub fn into_owned(self) -> Timing<'static> {
        Timing {
            start: self.start,
            stop: self.stop,
            repeats: self.repeats.into_iter().map(owned).collect(),
            zone: self.zone.map(owned),
        }
    }
}

impl Attribute<'_> {
    /// Returns the same without borrowing.
    pub fn into_owned(self) -> Attribute<'static> {
        Attribute { name: owned(self.name), value: self.value.map(owned) }
    }
}

impl Media<'_> {
    /// Returns the same without borrowing.
    pub fn into_owned(self) -> Media<'static> {
        Media {
            kind: owned(self.kind),
            port: self.port,
            ports: self.ports,
            protocol: owned(self.protocol),
            formats: self.formats.into_iter().map(owned).collect(),
            information: self.information.map(owned),
            connections: self.connections.into_iter().map(Connection::into_owned).collect(),
            bandwidths: self.bandwidths.into_iter().map(Bandwidth::into_owned).collect(),
            key: self.key.map(owned),
            attributes: self.attributes.into_iter().map(Attribute::into_owned).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
