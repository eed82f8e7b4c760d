//! Writing of a description with the addresses and ports of a relay.
//!
//! What is replaced: the address in `o=`, the address in `c=`, the port in `m=`, port and address in `a=rtcp`
//! (RFC 3605). What is removed, from relayed streams alone: ICE (RFC 8839), `a=source-filter` (RFC 4570) and `a=altc`
//! (RFC 6947), which name addresses that the reader cannot reach or that a relay does not send from. All else stays, byte
//! for byte and in order.
//!
//! ICE is removed whole and not by candidates. A relay that replaces `c=` makes the default destination one that no
//! candidate has, and what an agent does then depends on its implementation (RFC 8839 section 3.2.5). Without any attribute
//! of ICE neither side may use it, and both send to the relay (RFC 8839 sections 3.3.2 and 3.3.3, RFC 3264).

use crate::description::{
    Address, Description, Line, Stream, attribute, origin_address, parse_rtcp,
};
use ringway_sip::write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The attributes that are removed from relayed streams.
const REMOVED: [&[u8]; 11] = [
    b"candidate",
    b"remote-candidates",
    b"end-of-candidates",
    b"ice-ufrag",
    b"ice-pwd",
    b"ice-options",
    b"ice-pacing",
    b"ice-lite",
    b"ice-mismatch",
    b"source-filter",
    b"altc",
];

/// The addresses and ports to be written.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'p> {
    /// The address of the relay as the reader can reach it.
    pub address: IpAddr,
    /// The even port of the relay for each stream, the next one being for RTCP; `None` for a stream that is left as it is.
    /// Streams beyond the end are left too.
    pub ports: &'p [Option<u16>],
}

impl Plan<'_> {
    fn port(&self, index: usize) -> Option<u16> {
        self.ports.get(index).copied().flatten()
    }
}

/// Returns the description with the addresses and ports of `plan`. A stream with port 0 keeps it. An address of zeros, by
/// which a stream is on hold (RFC 3264 section 8.4), becomes that of the reader's family.
pub fn rewrite(description: &Description<'_>, plan: &Plan<'_>) -> Vec<u8> {
    let writer = Writer {
        description,
        plan,
        out: Vec::with_capacity(description.bytes.len() + 64 * (1 + description.streams.len())),
        session: scope(description, plan),
    };
    writer.write()
}

/// What happens to the lines of the session, which apply to several streams.
#[derive(Clone, Copy)]
struct Scope {
    /// Whether `c=` is replaced: every stream that uses it is relayed.
    connection: bool,
    /// Whether attributes are removed: every stream is relayed.
    attributes: bool,
}

fn scope(description: &Description<'_>, plan: &Plan<'_>) -> Scope {
    let active = || description.streams.iter().enumerate().filter(|(_, stream)| stream.port != 0);
    let is_relayed = |index| plan.port(index).is_some();
    Scope {
        connection: active()
            .filter(|(_, stream)| stream.connections == 0)
            .all(|(index, _)| is_relayed(index)),
        attributes: active().all(|(index, _)| is_relayed(index)),
    }
}

struct Writer<'w> {
    description: &'w Description<'w>,
    plan: &'w Plan<'w>,
    out: Vec<u8>,
    session: Scope,
}

impl Writer<'_> {
    fn write(mut self) -> Vec<u8> {
        let streams = &self.description.streams;
        let lines = &self.description.lines;
        let first = streams.first().map_or(lines.len(), |stream| stream.lines.start);
        for &line in &lines[..first] {
            self.session_line(line);
        }
        for (index, stream) in streams.iter().enumerate() {
            match self.plan.port(index).filter(|_| stream.port != 0) {
                Some(port) => self.stream(stream, port),
                None => self.copy(lines, stream),
            }
        }
        self.out
    }

    fn copy(&mut self, lines: &[Line], stream: &Stream) {
        let (first, last) = (lines[stream.lines.start], lines[stream.lines.end - 1]);
        self.out.extend_from_slice(&self.description.bytes[first.start..last.next]);
    }

    fn session_line(&mut self, line: Line) {
        let text = self.description.text(line);
        match text {
            [b'o', b'=', value @ ..] => self.origin(line, value),
            [b'c', b'=', ..] if self.session.connection => {
                self.connection(self.description.connection);
                self.end(line);
            }
            _ if self.session.attributes && is_removed(text) => {}
            _ => self.keep(line),
        }
    }

    /// Writes `o=`, which names the author. Its address has no meaning to a reader of another family, and with addresses
    /// that are not unique it would not identify the session (RFC 8866 section 5.2). A name stays.
    fn origin(&mut self, line: Line, value: &[u8]) {
        if !matches!(origin_address(value), Some(Address::Ip(_) | Address::Unspecified)) {
            return self.keep(line);
        }
        let mut words = value.split(|&b| b == b' ').filter(|word| !word.is_empty());
        self.out.extend_from_slice(b"o=");
        for word in words.by_ref().take(3) {
            self.out.extend_from_slice(word);
            self.out.push(b' ');
        }
        self.address(self.plan.address);
        self.end(line);
    }

    fn stream(&mut self, stream: &Stream, port: u16) {
        let lines = &self.description.lines[stream.lines.clone()];
        // Where RFC 8866 section 5 has the `c=` line: after `m=` and `i=`.
        let head = 1 + usize::from(lines.get(1).is_some_and(|&line| self.has_kind(line, b'i')));
        let inserts = stream.connections == 0 && !self.session.connection;
        for (index, &line) in lines.iter().enumerate() {
            self.stream_line(stream, line, index, port);
            if inserts && index + 1 == head {
                self.insert_connection(stream, line);
            }
        }
    }

    fn stream_line(&mut self, stream: &Stream, line: Line, index: usize, port: u16) {
        let text = self.description.text(line);
        match text {
            _ if index == 0 => self.media(line, port),
            [b'c', b'=', ..] => {
                self.connection(stream.address);
                self.end(line);
            }
            _ if is_removed(text) => {}
            _ => match attribute(text) {
                Some((name, value)) if name.eq_ignore_ascii_case(b"rtcp") => {
                    self.rtcp(stream, line, value, port);
                }
                _ => self.keep(line),
            },
        }
    }

    fn media(&mut self, line: Line, port: u16) {
        let text = self.description.text(line);
        // The second word. It was parsed before, so it exists.
        let start = text.iter().skip(2).position(|&b| b != b' ').map_or(2, |at| at + 2);
        let word = |from: usize, space: bool| {
            text[from..]
                .iter()
                .position(|&b| (b == b' ') == space)
                .map_or(text.len(), |at| from + at)
        };
        let begin = word(word(start, true), false);
        let end = text[begin..]
            .iter()
            .position(|b| !b.is_ascii_digit())
            .map_or(text.len(), |at| begin + at);
        self.out.extend_from_slice(&text[..begin]);
        write::decimal(&mut self.out, u64::from(port));
        self.out.extend_from_slice(&text[end..]);
        self.end(line);
    }

    /// Writes `a=rtcp`: the port of the stream where it named that, as with `a=rtcp-mux`, and else the next one.
    fn rtcp(&mut self, stream: &Stream, line: Line, value: &[u8], port: u16) {
        let Some(rtcp) = parse_rtcp(value) else { return self.keep(line) };
        let port = if rtcp.port == stream.port { port } else { port | 1 };
        self.out.extend_from_slice(b"a=rtcp:");
        write::decimal(&mut self.out, u64::from(port));
        if let Some(address) = rtcp.address {
            self.out.push(b' ');
            self.address(self.replacement(Some(address)));
        }
        self.end(line);
    }

    fn insert_connection(&mut self, stream: &Stream, after: Line) {
        let line_end = &self.description.bytes[after.end..after.next];
        if line_end.is_empty() {
            self.out.extend_from_slice(b"\r\n");
        }
        self.connection(stream.address);
        self.out.extend_from_slice(line_end);
    }

    fn connection(&mut self, address: Option<Address>) {
        self.out.extend_from_slice(b"c=");
        self.address(self.replacement(address));
    }

    /// Returns the address that replaces another.
    fn replacement(&self, address: Option<Address>) -> IpAddr {
        match (address, self.plan.address) {
            (Some(Address::Unspecified), IpAddr::V4(_)) => Ipv4Addr::UNSPECIFIED.into(),
            (Some(Address::Unspecified), IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            (_, address) => address,
        }
    }

    fn address(&mut self, ip: IpAddr) {
        self.out.extend_from_slice(if ip.is_ipv4() { b"IN IP4 " } else { b"IN IP6 " });
        write::ip(&mut self.out, ip);
    }

    fn has_kind(&self, line: Line, kind: u8) -> bool {
        self.description.text(line).starts_with(&[kind, b'='])
    }

    fn keep(&mut self, line: Line) {
        self.out.extend_from_slice(&self.description.bytes[line.start..line.next]);
    }

    /// Copies the end of a line.
    fn end(&mut self, line: Line) {
        self.out.extend_from_slice(&self.description.bytes[line.end..line.next]);
    }
}

fn is_removed(text: &[u8]) -> bool {
    attribute(text)
        .is_some_and(|(name, _)| REMOVED.iter().any(|removed| name.eq_ignore_ascii_case(removed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str, address: &str, ports: &[Option<u16>]) -> String {
        let description = Description::parse(text.as_bytes()).unwrap();
        let plan = Plan { address: address.parse().unwrap(), ports };
        String::from_utf8(rewrite(&description, &plan)).unwrap()
    }

    /// The offer of a phone: one stream, the address of the session.
    #[test]
    fn an_offer_of_ipv4_becomes_one_of_ipv6() {
        let offer = "v=0\r\no=alice 2890844526 2890844526 IN IP4 10.50.60.7\r\ns=-\r\n\
                     c=IN IP4 10.50.60.7\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 8 101\r\n\
                     a=rtpmap:101 telephone-event/8000\r\na=ptime:20\r\na=sendrecv\r\n";
        assert_eq!(
            rewritten(offer, "fd12:3456::1", &[Some(20_000)]),
            "v=0\r\no=alice 2890844526 2890844526 IN IP6 fd12:3456::1\r\ns=-\r\n\
             c=IN IP6 fd12:3456::1\r\nt=0 0\r\nm=audio 20000 RTP/AVP 0 8 101\r\n\
             a=rtpmap:101 telephone-event/8000\r\na=ptime:20\r\na=sendrecv\r\n"
        );
    }

    #[test]
    fn a_stream_that_is_not_relayed_keeps_the_address_of_the_session() {
        let offer = "v=0\no=- 1 1 IN IP4 10.50.60.7\ns=-\nc=IN IP4 10.50.60.7\nt=0 0\n\
                     m=message 2855 TCP/MSRP *\na=path:msrp://10.50.60.7:2855/s;tcp\n\
                     m=audio 4000 RTP/AVP 0\ni=voice\na=rtcp:4001\n\
                     m=audio 0 RTP/AVP 0\na=candidate:1 1 UDP 1 10.50.60.7 1 typ host\n";
        assert_eq!(
            rewritten(offer, "fd00::1", &[None, Some(20_002), Some(20_004)]),
            "v=0\no=- 1 1 IN IP6 fd00::1\ns=-\nc=IN IP4 10.50.60.7\nt=0 0\n\
             m=message 2855 TCP/MSRP *\na=path:msrp://10.50.60.7:2855/s;tcp\n\
             m=audio 20002 RTP/AVP 0\ni=voice\nc=IN IP6 fd00::1\na=rtcp:20003\n\
             m=audio 0 RTP/AVP 0\na=candidate:1 1 UDP 1 10.50.60.7 1 typ host\n"
        );
    }

    /// RFC 8839, RFC 4570, RFC 6947.
    #[test]
    fn what_names_addresses_of_the_author_is_removed() {
        let offer = "v=0\r\no=- 1 1 IN IP6 fd00::7\r\ns=-\r\nt=0 0\r\na=ice-options:ice2\r\n\
                     a=ice-lite\r\na=group:BUNDLE 0\r\nm=audio 4000 UDP/TLS/RTP/SAVPF 0\r\n\
                     c=IN IP6 fd00::7\r\na=mid:0\r\na=ice-ufrag:8hhY\r\na=ice-pwd:asd88fgpdd777uzjYhagZg\r\n\
                     a=candidate:1 1 UDP 2130706431 fd00::7 4000 typ host\r\na=end-of-candidates\r\n\
                     a=source-filter: incl IN IP6 fd00::7 fd00::9\r\na=altc:1 IP6 fd00::7 4000\r\n\
                     a=rtcp-mux\r\na=rtcp:4000 IN IP6 fd00::7\r\na=fingerprint:sha-256 AA\r\na=setup:actpass\r\n";
        assert_eq!(
            rewritten(offer, "10.50.60.1", &[Some(20_000)]),
            "v=0\r\no=- 1 1 IN IP4 10.50.60.1\r\ns=-\r\nt=0 0\r\n\
             a=group:BUNDLE 0\r\nm=audio 20000 UDP/TLS/RTP/SAVPF 0\r\n\
             c=IN IP4 10.50.60.1\r\na=mid:0\r\n\
             a=rtcp-mux\r\na=rtcp:20000 IN IP4 10.50.60.1\r\na=fingerprint:sha-256 AA\r\na=setup:actpass\r\n"
        );
    }

    /// RFC 3264 section 8.4.
    #[test]
    fn a_stream_on_hold_stays_on_hold() {
        let offer = "v=0\r\no=- 1 2 IN IP4 phone.example\r\ns=-\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
                     m=audio 4000 RTP/AVP 0\r\na=rtcp:4005 IN IP4 0.0.0.0\r\na=sendonly";
        assert_eq!(
            rewritten(offer, "fd00::1", &[Some(20_000)]),
            "v=0\r\no=- 1 2 IN IP4 phone.example\r\ns=-\r\nc=IN IP6 ::\r\nt=0 0\r\n\
             m=audio 20000 RTP/AVP 0\r\na=rtcp:20001 IN IP6 ::\r\na=sendonly"
        );
    }

    #[test]
    fn a_description_may_end_without_a_line_end() {
        let offer = "v=0\no=- 1 1 IN IP4 10.50.60.7\nc=IN IP4 10.50.60.7\nm=x 9 TCP *\nm=image  4000/1 udptl t38";
        assert_eq!(
            rewritten(offer, "fd00::1", &[None, Some(20_000)]),
            "v=0\no=- 1 1 IN IP6 fd00::1\nc=IN IP4 10.50.60.7\nm=x 9 TCP *\n\
             m=image  20000/1 udptl t38\r\nc=IN IP6 fd00::1"
        );
    }
}
