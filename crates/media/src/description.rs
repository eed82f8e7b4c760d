//! A session description as its lines, with what a relay must know of each stream.
//!
//! [`Session`](ringway_sip::sdp::Session) is the description as a value. A relay changes a few words and must leave all
//! else as it was written, also what the grammar does not allow, so it needs the position of each line instead.

use ringway_sip::sdp::{MAX_MEDIA, MAX_SDP_LINE};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::ops::Range;

/// Octets of a description. Beyond it: [`Unreadable::TooLarge`].
pub const MAX_DESCRIPTION: usize = 16_384;
/// Lines of a description. Beyond it: [`Unreadable::TooLarge`].
pub const MAX_LINES: usize = 1_024;

/// The reason why a description cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Unreadable {
    /// It is longer, or has more lines or streams, than is read.
    TooLarge,
    /// It does not begin with `v=0`, has a control character, or an `o=`, `c=`, `m=` or `a=rtcp` line cannot be parsed.
    Syntax,
}

/// The address of a `c=` or `a=rtcp` line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    /// A unicast address; never IPv4-mapped.
    Ip(IpAddr),
    /// An address of zeros or a name below `.invalid`: nothing is to be sent (RFC 3264 section 8.4).
    Unspecified,
    /// A group.
    Multicast,
    /// A name, or an address of another network than the Internet.
    Name,
}

/// The transport of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// RTP over UDP, with RTCP beside it.
    Rtp,
    /// Anything else over UDP, such as T.38 (`udptl`) or DTLS.
    Udp,
    /// TCP, SCTP or unknown.
    Other,
}

/// `a=rtcp` (RFC 3605).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtcp {
    /// The port.
    pub port: u16,
    /// The address, if it differs from that of the stream.
    pub address: Option<Address>,
}

/// One stream: an `m=` line and what follows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    /// The port; 0 for a stream that is refused or has ended.
    pub port: u16,
    /// Whether a number of ports other than 1 is given (`49170/2`).
    pub several_ports: bool,
    /// The transport.
    pub transport: Transport,
    /// The address that applies to it, its own or that of the session.
    pub address: Option<Address>,
    /// `a=rtcp`.
    pub rtcp: Option<Rtcp>,
    /// The number of `c=` lines of its own.
    pub(crate) connections: usize,
    /// Its lines, the `m=` line first.
    pub(crate) lines: Range<usize>,
}

impl Stream {
    /// Returns whether a relay can carry it: UDP between one pair of unicast addresses.
    pub fn is_relayable(&self) -> bool {
        self.port != 0
            && self.transport != Transport::Other
            && !self.several_ports
            && self.connections <= 1
            && !matches!(self.address, None | Some(Address::Multicast))
    }
}

/// The position of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub start: usize,
    /// The end of its text.
    pub end: usize,
    /// The end of its line end, which is empty if the description ends without one.
    pub next: usize,
}

/// A description whose lines have been found. It borrows the body.
#[derive(Clone, Debug)]
pub struct Description<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) lines: Vec<Line>,
    /// The address of the session's `c=`.
    pub(crate) connection: Option<Address>,
    pub(crate) streams: SmallVec<[Stream; 2]>,
}

impl<'a> Description<'a> {
    /// Reads a description. Lines may end in LF alone; lines of no concern to a relay are not checked.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let mut description = Description {
            bytes,
            lines: find_lines(bytes)?,
            connection: None,
            streams: SmallVec::new(),
        };
        if description.lines.first().map(|&line| description.text(line)) != Some(b"v=0") {
            return Err(Unreadable::Syntax);
        }
        for index in 1..description.lines.len() {
            description.read_line(index)?;
        }
        Ok(description)
    }

    fn read_line(&mut self, index: usize) -> Result<(), Unreadable> {
        let text = self.text(self.lines[index]);
        match text {
            [b'm', b'=', value @ ..] => {
                if self.streams.len() == MAX_MEDIA {
                    return Err(Unreadable::TooLarge);
                }
                let stream = parse_media(value, self.connection, index);
                self.streams.push(stream.ok_or(Unreadable::Syntax)?);
                return Ok(());
            }
            [b'c', b'=', value @ ..] => {
                let address = parse_connection(value).ok_or(Unreadable::Syntax)?;
                match self.streams.last_mut() {
                    Some(stream) => {
                        stream.connections += 1;
                        stream.address = Some(address);
                    }
                    None if self.connection.is_some() => return Err(Unreadable::Syntax),
                    None => self.connection = Some(address),
                }
            }
            [b'o', b'=', value @ ..] if self.streams.is_empty() => {
                origin_address(value).ok_or(Unreadable::Syntax)?;
            }
            _ => {
                if let (Some((name, value)), Some(stream)) =
                    (attribute(text), self.streams.last_mut())
                    && name.eq_ignore_ascii_case(b"rtcp")
                {
                    stream.rtcp = Some(parse_rtcp(value).ok_or(Unreadable::Syntax)?);
                }
            }
        }
        if let Some(stream) = self.streams.last_mut() {
            stream.lines.end = index + 1;
        }
        Ok(())
    }

    /// Returns the streams, in order.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    pub(crate) fn text(&self, line: Line) -> &'a [u8] {
        &self.bytes[line.start..line.end]
    }
}

fn find_lines(bytes: &[u8]) -> Result<Vec<Line>, Unreadable> {
    if bytes.len() > MAX_DESCRIPTION {
        return Err(Unreadable::TooLarge);
    }
    let (mut lines, mut start) = (Vec::with_capacity(32), 0);
    while start < bytes.len() {
        let feed = memchr::memchr(b'\n', &bytes[start..]).map(|at| start + at);
        let next = feed.map_or(bytes.len(), |feed| feed + 1);
        let end = feed.unwrap_or(bytes.len());
        let text = &bytes[start..end];
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if lines.len() == MAX_LINES || text.len() > MAX_SDP_LINE {
            return Err(Unreadable::TooLarge);
        }
        // What one reader takes for the end of a line, another must not take for text.
        if memchr::memchr2(b'\r', 0, text).is_some() {
            return Err(Unreadable::Syntax);
        }
        lines.push(Line { start, end: start + text.len(), next });
        start = next;
    }
    Ok(lines)
}

/// Returns the words of a line.
fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b' ').filter(|word| !word.is_empty())
}

/// Returns exactly so many words.
fn exactly<const N: usize>(value: &[u8]) -> Option<[&[u8]; N]> {
    let mut found = [&b""[..]; N];
    let mut words = words(value);
    for slot in &mut found {
        *slot = words.next()?;
    }
    words.next().is_none().then_some(found)
}

fn number(text: &[u8]) -> Option<u16> {
    // `parse` would take a plus sign.
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses the three words of a network address; `None` if an address is not of its type.
fn parse_address([net, kind, text]: [&[u8]; 3]) -> Option<Address> {
    let is_ipv4 = match kind {
        _ if !net.eq_ignore_ascii_case(b"IN") => return Some(Address::Name),
        kind if kind.eq_ignore_ascii_case(b"IP4") => true,
        kind if kind.eq_ignore_ascii_case(b"IP6") => false,
        _ => return Some(Address::Name),
    };
    let end = memchr::memchr(b'/', text).unwrap_or(text.len());
    let ip: Option<IpAddr> =
        std::str::from_utf8(&text[..end]).ok().and_then(|text| text.parse().ok());
    let Some(ip) = ip else {
        let top = text.strip_suffix(b".").unwrap_or(text);
        let invalid = top.len() > 8 && top[top.len() - 8..].eq_ignore_ascii_case(b".invalid");
        return Some(if invalid { Address::Unspecified } else { Address::Name });
    };
    if ip.is_ipv4() != is_ipv4 {
        return None;
    }
    let ip = ip.to_canonical();
    Some(if ip.is_multicast() || end < text.len() {
        Address::Multicast
    } else if ip.is_unspecified() {
        Address::Unspecified
    } else {
        Address::Ip(ip)
    })
}

fn parse_connection(value: &[u8]) -> Option<Address> {
    parse_address(exactly(value)?)
}

/// Returns the address of an `o=` line.
pub(crate) fn origin_address(value: &[u8]) -> Option<Address> {
    let [_, _, _, net, kind, text] = exactly(value)?;
    parse_address([net, kind, text])
}

/// Returns the name and the value of an `a=` line.
pub(crate) fn attribute(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"a=")?;
    Some(match memchr::memchr(b':', text) {
        Some(colon) => (&text[..colon], &text[colon + 1..]),
        None => (text, b""),
    })
}

pub(crate) fn parse_rtcp(value: &[u8]) -> Option<Rtcp> {
    if let Some([port]) = exactly(value) {
        return Some(Rtcp { port: number(port)?, address: None });
    }
    let [port, net, kind, text] = exactly(value)?;
    Some(Rtcp { port: number(port)?, address: Some(parse_address([net, kind, text])?) })
}

fn parse_media(value: &[u8], connection: Option<Address>, index: usize) -> Option<Stream> {
    let mut words = words(value);
    let (_, port, protocol) = (words.next()?, words.next()?, words.next()?);
    words.next()?;
    let (port, count) = match memchr::memchr(b'/', port) {
        Some(slash) => (&port[..slash], number(&port[slash + 1..])?),
        None => (port, 1),
    };
    Some(Stream {
        port: number(port)?,
        several_ports: count != 1,
        transport: transport(protocol),
        address: connection,
        rtcp: None,
        connections: 0,
        lines: index..index + 1,
    })
}

/// Returns the transport of a protocol such as `RTP/AVP` or `UDP/TLS/RTP/SAVPF` (RFC 8866 section 8.2.2).
fn transport(protocol: &[u8]) -> Transport {
    let is =
        |part: &[u8], names: &[&[u8]]| names.iter().any(|name| part.eq_ignore_ascii_case(name));
    let mut parts = protocol.split(|&b| b == b'/');
    match parts.next() {
        Some(first) if is(first, &[b"RTP"]) => Transport::Rtp,
        Some(first) if is(first, &[b"UDP"]) && parts.any(|part| is(part, &[b"RTP"])) => {
            Transport::Rtp
        }
        Some(first) if is(first, &[b"UDP", b"UDPTL", b"DTLS"]) => Transport::Udp,
        _ => Transport::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "v=0\r\no=- 1 1 IN IP4 10.50.60.7\r\ns=-\r\n";

    fn streams(rest: &str) -> Vec<Stream> {
        let text = format!("{HEAD}{rest}");
        Description::parse(text.as_bytes()).unwrap().streams().to_vec()
    }

    #[test]
    fn the_address_of_a_stream_is_its_own_or_the_sessions() {
        let streams = streams(
            "c=IN IP4 10.50.60.7\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n\
             m=video 4002 RTP/AVP 31\r\nc=IN IP6 fd00::7\r\na=rtcp:5000 IN IP6 fd00::8\r\n",
        );
        assert_eq!(streams[0].address, Some(Address::Ip("10.50.60.7".parse().unwrap())));
        assert_eq!(streams[1].address, Some(Address::Ip("fd00::7".parse().unwrap())));
        let address = Some(Address::Ip("fd00::8".parse().unwrap()));
        assert_eq!(streams[1].rtcp, Some(Rtcp { port: 5000, address }));
        assert!(streams.iter().all(Stream::is_relayable));
    }

    #[test]
    fn addresses_that_are_no_destination_are_recognised() {
        for (text, expected) in [
            ("IN IP4 0.0.0.0", Address::Unspecified),
            ("IN IP6 ::", Address::Unspecified),
            ("IN IP6 hold.invalid", Address::Unspecified),
            ("IN IP4 224.2.1.1/127", Address::Multicast),
            ("IN IP6 ff15::1", Address::Multicast),
            ("IN IP4 phone.example", Address::Name),
            ("ATM NSAP 47.0091.8100", Address::Name),
            ("in ip6 ::ffff:10.0.0.1", Address::Ip("10.0.0.1".parse().unwrap())),
        ] {
            assert_eq!(parse_connection(text.as_bytes()), Some(expected), "{text}");
        }
        assert_eq!(parse_connection(b"IN IP4 fd00::1"), None);
        assert_eq!(parse_connection(b"IN IP4"), None);
    }

    #[test]
    fn only_single_udp_streams_can_be_relayed() {
        for (protocol, expected) in [
            ("RTP/AVP", Transport::Rtp),
            ("RTP/SAVPF", Transport::Rtp),
            ("UDP/TLS/RTP/SAVPF", Transport::Rtp),
            ("udptl", Transport::Udp),
            ("UDP/BFCP", Transport::Udp),
            ("UDP/DTLS/SCTP", Transport::Udp),
            ("TCP/MSRP", Transport::Other),
            ("TCP/RTP/AVP", Transport::Other),
            ("tcp", Transport::Other),
        ] {
            assert_eq!(transport(protocol.as_bytes()), expected, "{protocol}");
        }
        let streams = streams(
            "c=IN IP4 10.50.60.7\r\nm=audio 4000/2 RTP/AVP 0\r\nm=audio 0 RTP/AVP 0\r\n\
             m=message 9 TCP/MSRP *\r\nm=audio 4000/1 RTP/AVP 0\r\nm=audio 4000 RTP/AVP 0\r\n\
             c=IN IP4 224.2.1.1/127\r\n",
        );
        let relayable: Vec<_> = streams.iter().map(Stream::is_relayable).collect();
        assert_eq!(relayable, [false, false, false, true, false]);
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let parse = |text: &str| Description::parse(text.as_bytes()).map(|_| ()).unwrap_err();
        assert_eq!(parse(""), Unreadable::Syntax);
        assert_eq!(parse("v=1\r\n"), Unreadable::Syntax);
        assert_eq!(parse("v=0\r\ns=a\rm=audio 1 RTP/AVP 0\r\n"), Unreadable::Syntax);
        assert_eq!(parse("v=0\r\nm=audio 70000 RTP/AVP 0\r\n"), Unreadable::Syntax);
        assert_eq!(parse("v=0\r\nm=audio +7000 RTP/AVP 0\r\n"), Unreadable::Syntax);
        assert_eq!(parse("v=0\r\nm=audio 7000 RTP/AVP\r\n"), Unreadable::Syntax);
        assert_eq!(parse("v=0\r\no=- 1 1 IN IP4\r\n"), Unreadable::Syntax);
        assert_eq!(parse(&format!("v=0\r\n{}", "\n".repeat(MAX_LINES))), Unreadable::TooLarge);
        assert_eq!(parse(&format!("v=0\r\na={}", "x".repeat(9_000))), Unreadable::TooLarge);
        let many = "m=audio 9 RTP/AVP 0\r\n".repeat(MAX_MEDIA + 1);
        assert_eq!(parse(&format!("v=0\r\n{many}")), Unreadable::TooLarge);
    }
}
