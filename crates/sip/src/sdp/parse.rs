//! Parsing of a description (RFC 8866 section 9).

use super::{
    Attribute, Bandwidth, Connection, MAX_FORMATS, MAX_MEDIA, MAX_SDP_LINE, MAX_SECTION, Media,
    Origin, Session, Text, Timing,
};
use crate::syntax::{DIGIT, all, number};
use ringway_sansio::{Got, Malformed};
use std::borrow::Cow;

impl<'a> Session<'a> {
    /// Parses a description. Its texts borrow `bytes`.
    ///
    /// Lines may end in LF alone (RFC 8866 section 5). Within the session or a media description they may be in another
    /// order than the standard's, as some implementations send them; `v=` must be first. Unknown types, a missing `o=`,
    /// `s=` or `t=`, and everything else that violates the grammar is an error.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut lines = Lines { bytes, at: 0 };
        let mut seen = Seen::default();
        let mut session = Session::default();
        match lines.next().transpose()? {
            Some(Line { kind: b'v', value: b"0", .. }) => {}
            _ => return Err(Malformed::here("SDP: expected v=0", bytes, 0)),
        }
        let mut count = 0;
        while let Some(line) = lines.next().transpose()? {
            count = if line.kind == b'm' { 0 } else { count + 1 };
            if count > MAX_SECTION {
                return Err(line.too_many("SDP: expected fewer lines", count));
            }
            if line.kind == b'm' {
                if session.media.len() == MAX_MEDIA {
                    return Err(line.too_many("SDP: expected fewer media", MAX_MEDIA + 1));
                }
                session.media.push(media(&line)?);
            } else if let Some(media) = session.media.last_mut() {
                media_line(media, &line)?;
            } else {
                session_line(&mut session, &line, &mut seen)?;
            }
        }
        if !seen.origin || !seen.name || session.times.is_empty() {
            let reason = "SDP: expected o=, s= and t=";
            return Err(Malformed::bad(reason, Got::Missing, bytes.len()));
        }
        Ok(session)
    }
}

/// One line: `kind "=" value`.
struct Line<'a> {
    kind: u8,
    value: &'a [u8],
    /// The position of the value.
    at: usize,
}

impl Line<'_> {
    fn bad(&self, reason: &'static str) -> Malformed {
        Malformed::here(reason, self.value, 0).moved(self.at)
    }

    fn too_many(&self, reason: &'static str, count: usize) -> Malformed {
        Malformed::bad(reason, Got::Number(count as u64), self.at)
    }

    fn twice(&self) -> Malformed {
        Malformed::bad("SDP: expected this line once", Got::Several, self.at)
    }
}

struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<Line<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let rest = self.bytes.get(start..).filter(|rest| !rest.is_empty())?;
        let feed = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        self.at = start + feed + 1;
        let line = rest[..feed].strip_suffix(b"\r").unwrap_or(&rest[..feed]);
        if line.is_empty() && self.at >= self.bytes.len() {
            // An empty line at the very end is harmless.
            return None;
        }
        Some(match line {
            _ if line.len() > MAX_SDP_LINE => {
                let got = Got::Number(line.len() as u64);
                Err(Malformed::bad("SDP: expected a shorter line", got, start))
            }
            [kind, b'=', value @ ..] => match value.iter().position(|b| matches!(b, 0 | b'\r')) {
                None => Ok(Line { kind: *kind, value, at: start + 2 }),
                Some(i) => Err(Malformed::here("SDP: expected no NUL and no CR", value, i))
                    .map_err(|e| e.moved(start + 2)),
            },
            _ => Err(Malformed::here("SDP: expected a letter and '='", line, 0).moved(start)),
        })
    }
}

/// The unique lines that have been seen.
#[derive(Default)]
struct Seen {
    origin: bool,
    name: bool,
}

fn once<T>(slot: &mut Option<T>, new: T, line: &Line<'_>) -> Result<(), Malformed> {
    if slot.is_some() {
        return Err(line.twice());
    }
    *slot = Some(new);
    Ok(())
}

fn session_line<'a>(
    session: &mut Session<'a>,
    line: &Line<'a>,
    seen: &mut Seen,
) -> Result<(), Malformed> {
    let text: Text<'a> = Cow::Borrowed(line.value);
    match line.kind {
        b'o' if seen.origin => return Err(line.twice()),
        b'o' => {
            seen.origin = true;
            session.origin = origin(line)?;
        }
        b's' if seen.name => return Err(line.twice()),
        b's' => {
            seen.name = true;
            session.name = text;
        }
        b'i' => once(&mut session.information, text, line)?,
        b'u' => once(&mut session.uri, text, line)?,
        b'e' => session.emails.push(text),
        b'p' => session.phones.push(text),
        b'c' => once(&mut session.connection, connection(line)?, line)?,
        b'b' => session.bandwidths.push(bandwidth(line)?),
        b't' => session.times.push(timing(line)?),
        b'r' => match session.times.last_mut() {
            Some(time) => time.repeats.push(text),
            None => return Err(line.bad("SDP: expected t= before r=")),
        },
        b'z' => match session.times.last_mut() {
            Some(time) => once(&mut time.zone, text, line)?,
            None => return Err(line.bad("SDP: expected t= before z=")),
        },
        b'k' => once(&mut session.key, text, line)?,
        b'a' => session.attributes.push(attribute(line)?),
        _ => return Err(line.bad("SDP: expected a known type")),
    }
    Ok(())
}

fn media_line<'a>(media: &mut Media<'a>, line: &Line<'a>) -> Result<(), Malformed> {
    let text: Text<'a> = Cow::Borrowed(line.value);
    match line.kind {
        b'i' => once(&mut media.information, text, line)?,
        b'c' => media.connections.push(connection(line)?),
        b'b' => media.bandwidths.push(bandwidth(line)?),
        b'k' => once(&mut media.key, text, line)?,
        b'a' => media.attributes.push(attribute(line)?),
        _ => return Err(line.bad("SDP: expected i=, c=, b=, k=, a= or m=")),
    }
    Ok(())
}

/// Returns words between single spaces, none of them empty; exactly as many as requested.
fn words<'a, const N: usize>(
    line: &Line<'a>,
    reason: &'static str,
) -> Result<[&'a [u8]; N], Malformed> {
    let mut words = [&b""[..]; N];
    let mut split = line.value.split(|&b| b == b' ');
    for word in &mut words {
        *word = split.next().filter(|w| !w.is_empty()).ok_or_else(|| line.bad(reason))?;
    }
    if split.next().is_some() {
        return Err(line.bad(reason));
    }
    Ok(words)
}

fn origin<'a>(line: &Line<'a>) -> Result<Origin<'a>, Malformed> {
    let reason = "SDP: expected user, id, version and address after o=";
    let [username, id, version, net, kind, address] = words(line, reason)?;
    let version = number(version, u64::MAX)
        .ok_or_else(|| line.bad("SDP: expected a version of up to 64 bits after o="))?;
    if !all(id, DIGIT) {
        return Err(line.bad("SDP: expected a numeric session id after o="));
    }
    let address = Connection { net: net.into(), kind: kind.into(), address: address.into() };
    Ok(Origin { username: username.into(), id: id.into(), version, address })
}

fn connection<'a>(line: &Line<'a>) -> Result<Connection<'a>, Malformed> {
    let [net, kind, address] = words(line, "SDP: expected three words after c=")?;
    let connection = Connection { net: net.into(), kind: kind.into(), address: address.into() };
    // An address must be one of its kind, or a name.
    let fits = match (kind, connection.ip()) {
        (b"IP4", Some(ip)) => ip.is_ipv4(),
        (b"IP6", Some(ip)) => ip.is_ipv6(),
        _ => true,
    };
    if fits { Ok(connection) } else { Err(line.bad("SDP: expected an address of its kind")) }
}

fn bandwidth<'a>(line: &Line<'a>) -> Result<Bandwidth<'a>, Malformed> {
    let reason = "SDP: expected a type, ':' and a number after b=";
    let colon = memchr::memchr(b':', line.value).filter(|&i| i > 0);
    let (kind, value) = line.value.split_at(colon.ok_or_else(|| line.bad(reason))?);
    let value = number(&value[1..], u64::MAX).ok_or_else(|| line.bad(reason))?;
    Ok(Bandwidth { kind: kind.into(), value })
}

fn timing<'a>(line: &Line<'a>) -> Result<Timing<'a>, Malformed> {
    let reason = "SDP: expected two times after t=";
    let [start, stop] = words(line, reason)?;
    let time = |text| number(text, u64::MAX).ok_or_else(|| line.bad(reason));
    Ok(Timing { start: time(start)?, stop: time(stop)?, ..Timing::default() })
}

fn attribute<'a>(line: &Line<'a>) -> Result<Attribute<'a>, Malformed> {
    let (name, value) = match memchr::memchr(b':', line.value) {
        Some(colon) => (&line.value[..colon], Some(Cow::Borrowed(&line.value[colon + 1..]))),
        None => (line.value, None),
    };
    if !is_token(name) {
        return Err(line.bad("SDP: expected an attribute name after a="));
    }
    Ok(Attribute { name: name.into(), value })
}

fn media<'a>(line: &Line<'a>) -> Result<Media<'a>, Malformed> {
    let reason = "SDP: expected media, port, protocol and formats after m=";
    let mut words = line.value.split(|&b| b == b' ');
    let mut word = || words.next().filter(|w| !w.is_empty()).ok_or_else(|| line.bad(reason));
    let (kind, port, protocol) = (word()?, word()?, word()?);
    let slash = memchr::memchr(b'/', port);
    let ports = match slash {
        Some(slash) => {
            let ports = number(&port[slash + 1..], u32::MAX as u64).filter(|&n| n > 0);
            Some(ports.ok_or_else(|| line.bad("SDP: expected a number of ports"))? as u32)
        }
        None => None,
    };
    let port = number(&port[..slash.unwrap_or(port.len())], u16::MAX as u64)
        .ok_or_else(|| line.bad("SDP: expected a port"))? as u16;
    if !is_token(kind) || !protocol.split(|&b| b == b'/').all(is_token) {
        return Err(line.bad(reason));
    }
    let mut formats = Vec::new();
    for format in words {
        if !is_token(format) {
            // A space at the end of the line is ignored.
            if format.is_empty() && line.value.ends_with(b" ") {
                continue;
            }
            return Err(line.bad("SDP: expected a format"));
        }
        if formats.len() == MAX_FORMATS {
            return Err(line.too_many("SDP: expected fewer formats", MAX_FORMATS + 1));
        }
        formats.push(Cow::Borrowed(format));
    }
    if formats.is_empty() {
        return Err(line.bad(reason));
    }
    Ok(Media {
        kind: kind.into(),
        port,
        ports,
        protocol: protocol.into(),
        formats,
        ..Media::default()
    })
}

/// Returns whether a text is RFC 8866's `token`, which is wider than SIP's.
fn is_token(text: &[u8]) -> bool {
    let is = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`{|}~".contains(&b);
    !text.is_empty() && text.iter().all(|&b| is(b))
}
