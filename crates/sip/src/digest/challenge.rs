//! The challenge of a server, and the answer of a client.

use super::algorithm::Hex;
use super::credentials::request_digest;
use super::params::{each, unquote};
use super::{Algorithm, Credentials, Ha1, Qop};
use crate::write;
use ringway_sansio::{Got, Malformed};

/// Appends one header field for each algorithm, in the order of preference (RFC 8760 section 2.3). `name` is
/// `WWW-Authenticate` or `Proxy-Authenticate`. `qop` is the offered list, preferred first. `stale` asks the client to
/// try again with this nonce and the same password.
pub fn challenge(
    buf: &mut Vec<u8>,
    name: &str,
    realm: &[u8],
    nonce: &[u8],
    algorithms: &[Algorithm],
    qop: &[Qop],
    stale: bool,
) {
    for algorithm in algorithms {
        buf.extend_from_slice(name.as_bytes());
        buf.extend_from_slice(b": Digest realm=");
        write::quoted(buf, realm);
        buf.extend_from_slice(b", nonce=");
        write::quoted(buf, nonce);
        if stale {
            buf.extend_from_slice(b", stale=true");
        }
        buf.extend_from_slice(b", algorithm=");
        buf.extend_from_slice(algorithm.name().as_bytes());
        buf.extend_from_slice(b", qop=\"");
        for (i, qop) in qop.iter().enumerate() {
            if i > 0 {
                buf.push(b',');
            }
            buf.extend_from_slice(qop.name().as_bytes());
        }
        buf.extend_from_slice(b"\"\r\n");
    }
}

/// The value of a WWW-Authenticate or Proxy-Authenticate header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Challenge<'a> {
    /// Realm as written between its quotes.
    pub realm: &'a [u8],
    /// The nonce to answer with.
    pub nonce: &'a [u8],
    /// Text to return; `None` if there is none.
    pub opaque: Option<&'a [u8]>,
    /// MD5 if none is named; `None` if Ringway does not know it.
    pub algorithm: Option<Algorithm>,
    /// Whether `auth` is offered.
    pub auth: bool,
    /// Whether `auth-int` is offered.
    pub auth_int: bool,
    /// Whether the password was right and only the nonce was too old.
    pub stale: bool,
}

impl<'a> Challenge<'a> {
    /// Parses a field value.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut c = Challenge {
            realm: b"",
            nonce: b"",
            opaque: None,
            algorithm: Some(Algorithm::Md5),
            auth: false,
            auth_int: false,
            stale: false,
        };
        let (mut realm, mut nonce) = (false, false);
        each(value, |(name, content)| {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            if is(b"realm") {
                (c.realm, realm) = (content, true);
            } else if is(b"nonce") {
                (c.nonce, nonce) = (content, true);
            } else if is(b"opaque") {
                c.opaque = Some(content);
            } else if is(b"algorithm") {
                c.algorithm = Algorithm::from_token(content);
            } else if is(b"stale") {
                c.stale = content.eq_ignore_ascii_case(b"true");
            } else if is(b"qop") {
                for option in content.split(|&b| b == b',') {
                    let option = crate::syntax::trim(option);
                    c.auth |= option.eq_ignore_ascii_case(b"auth");
                    c.auth_int |= option.eq_ignore_ascii_case(b"auth-int");
                }
            }
            Ok(())
        })?;
        if !realm || !nonce {
            let reason = "expected realm and nonce";
            return Err(Malformed::bad(reason, Got::Missing, value.len()));
        }
        Ok(c)
    }

    /// Returns whether the realm is this one, passed without escapes.
    pub fn is_for(&self, realm: &[u8]) -> bool {
        *unquote(self.realm) == *realm
    }
}

/// Returns the first challenge that can be answered, of those in a response in their order (RFC 8760 section 2.4).
pub fn choose<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Challenge<'a>> {
    values.into_iter().find_map(|v| Challenge::parse(v).ok().filter(|c| c.algorithm.is_some()))
}

/// The credentials and the request for which a challenge is answered.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// User name.
    pub user: &'a [u8],
    /// Password.
    pub password: &'a [u8],
    /// Method of the request.
    pub method: &'a [u8],
    /// Request-URI of the request.
    pub uri: &'a [u8],
    /// Body of the request.
    pub body: &'a [u8],
    /// The number of uses of this nonce, including this one: 1 for the first.
    pub count: u32,
    /// Text from a random source that a quoted string can contain unescaped, such as hexadecimal.
    pub cnonce: &'a [u8],
}

/// Appends an Authorization or Proxy-Authorization header field, as in `name`, that answers `challenge`. Returns
/// `false` and appends nothing if the algorithm is not known.
///
/// `auth-int` is used only if nothing else is offered; without any qop the form of RFC 2069 is used.
pub fn authorize(
    buf: &mut Vec<u8>,
    name: &str,
    challenge: &Challenge<'_>,
    answer: &Answer<'_>,
) -> bool {
    let Some(algorithm) = challenge.algorithm else {
        return false;
    };
    let qop = match (challenge.auth, challenge.auth_int) {
        (true, _) => Some(Qop::Auth),
        (false, true) => Some(Qop::AuthInt),
        (false, false) => None,
    };
    let mut nc = [b'0'; 8];
    for (i, digit) in nc.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(answer.count >> (4 * i) & 15) as usize];
    }
    let credentials = Credentials {
        username: answer.user,
        realm: challenge.realm,
        nonce: challenge.nonce,
        uri: answer.uri,
        response: b"",
        algorithm: Some(algorithm),
        cnonce: answer.cnonce,
        opaque: b"",
        qop,
        nc: &nc,
        userhash: false,
    };
    let ha1 = Ha1::new(algorithm, answer.user, &unquote(challenge.realm), answer.password);
    let response = request_digest(&credentials, answer.method, answer.body, &ha1);
    let quoted = |buf: &mut Vec<u8>, name: &[u8], value: &[u8]| {
        buf.extend_from_slice(name);
        buf.extend_from_slice(b"=\"");
        buf.extend_from_slice(value);
        buf.push(b'"');
    };
    buf.extend_from_slice(name.as_bytes());
    buf.extend_from_slice(b": Digest username=");
    write::quoted(buf, answer.user);
    quoted(buf, b", realm", challenge.realm);
    quoted(buf, b", nonce", challenge.nonce);
    quoted(buf, b", uri", answer.uri);
    quoted(buf, b", response", Hex::of(algorithm, &response).as_bytes());
    buf.extend_from_slice(b", algorithm=");
    buf.extend_from_slice(algorithm.name().as_bytes());
    if let Some(opaque) = challenge.opaque {
        quoted(buf, b", opaque", opaque);
    }
    if let Some(qop) = qop {
        buf.extend_from_slice(b", qop=");
        buf.extend_from_slice(qop.name().as_bytes());
        buf.extend_from_slice(b", nc=");
        buf.extend_from_slice(&nc);
        quoted(buf, b", cnonce", answer.cnonce);
    }
    buf.extend_from_slice(b"\r\n");
    true
}
