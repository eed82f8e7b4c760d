//! The credentials of a client, and their verification.

use super::algorithm::{Hex, octets_from_hex};
use super::params::{each, unquote};
use super::{Algorithm, Ha1};
use crate::syntax::hex;
use ringway_sansio::{Got, Malformed};
use std::borrow::Cow;
use subtle::ConstantTimeEq;

/// The quality of protection (RFC 7616 section 3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Qop {
    /// `auth`: method and URI are protected.
    Auth,
    /// `auth-int`: the body as well.
    AuthInt,
}

impl Qop {
    /// Returns the token of the `qop` parameter.
    pub const fn name(self) -> &'static str {
        match self {
            Qop::Auth => "auth",
            Qop::AuthInt => "auth-int",
        }
    }
}

/// The value of an Authorization or Proxy-Authorization header field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials<'a> {
    /// User name as written between its quotes; see [`Credentials::user`].
    pub username: &'a [u8],
    /// Realm as written between its quotes.
    pub realm: &'a [u8],
    /// The nonce of the challenge.
    pub nonce: &'a [u8],
    /// The digest-uri: the Request-URI as the client sent it.
    pub uri: &'a [u8],
    /// The digest, in hexadecimal.
    pub response: &'a [u8],
    /// MD5 if none is named (RFC 3261 section 22.4); `None` if Ringway does not know it.
    pub algorithm: Option<Algorithm>,
    /// The client's nonce; empty if there is none.
    pub cnonce: &'a [u8],
    /// The server's opaque text; empty if there is none.
    pub opaque: &'a [u8],
    /// The quality of protection; `None` is the form of RFC 2069.
    pub qop: Option<Qop>,
    /// The nonce count as written; eight hexadecimal digits if there is a qop.
    pub nc: &'a [u8],
    /// Whether the user name is a hash (RFC 7616 section 3.4.4), which Ringway never requests.
    pub userhash: bool,
}

impl<'a> Credentials<'a> {
    /// Parses a field value. Another scheme than Digest is an error like any other: the caller tries the next header
    /// field (RFC 4475 section 3.3.7).
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        let mut c = Credentials {
            username: b"",
            realm: b"",
            nonce: b"",
            uri: b"",
            response: b"",
            algorithm: Some(Algorithm::Md5),
            cnonce: b"",
            opaque: b"",
            qop: None,
            nc: b"",
            userhash: false,
        };
        // A bit for each mandatory parameter: username, realm, nonce, uri, response.
        let mut seen = 0u8;
        each(value, |(name, content)| {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            let mandatory = if is(b"username") {
                (&mut c.username, 1)
            } else if is(b"realm") {
                (&mut c.realm, 2)
            } else if is(b"nonce") {
                (&mut c.nonce, 4)
            } else if is(b"uri") {
                (&mut c.uri, 8)
            } else if is(b"response") {
                (&mut c.response, 16)
            } else {
                return c.optional(name, content);
            };
            let (field, bit) = mandatory;
            if seen & bit != 0 {
                return Err(Malformed::bad("expected this parameter once", Got::Several, 0));
            }
            seen |= bit;
            *field = content;
            Ok(())
        })?;
        if seen != 31 {
            let reason = "expected username, realm, nonce, uri and response";
            return Err(Malformed::bad(reason, Got::Missing, value.len()));
        }
        if c.qop.is_some() && (c.count().is_none() || c.cnonce.is_empty()) {
            let reason = "expected nc and cnonce with qop";
            return Err(Malformed::bad(reason, Got::Missing, value.len()));
        }
        Ok(c)
    }

    fn optional(&mut self, name: &[u8], content: &'a [u8]) -> Result<(), Malformed> {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        if is(b"algorithm") {
            self.algorithm = Algorithm::from_token(content);
        } else if is(b"cnonce") {
            self.cnonce = content;
        } else if is(b"opaque") {
            self.opaque = content;
        } else if is(b"nc") {
            self.nc = content;
        } else if is(b"userhash") {
            self.userhash = content.eq_ignore_ascii_case(b"true");
        } else if is(b"qop") {
            self.qop = Some(if content.eq_ignore_ascii_case(b"auth") {
                Qop::Auth
            } else if content.eq_ignore_ascii_case(b"auth-int") {
                Qop::AuthInt
            } else {
                return Err(Malformed::here("qop: expected auth or auth-int", content, 0));
            });
        }
        Ok(())
    }

    /// Returns the user name without the escapes of its quoted string.
    pub fn user(&self) -> Cow<'a, [u8]> {
        unquote(self.username)
    }

    /// Returns whether they are for this realm, passed without escapes.
    pub fn is_for(&self, realm: &[u8]) -> bool {
        *unquote(self.realm) == *realm
    }

    /// Returns the nonce count, if it is written as the standard requires: `8LHEX`, from 1 on.
    pub fn count(&self) -> Option<u32> {
        if self.nc.len() != 8 {
            return None;
        }
        let mut n = 0u32;
        for &b in self.nc {
            n = n << 4 | hex(b)? as u32;
        }
        (n > 0).then_some(n)
    }
}

/// Returns whether the credentials prove that the client knows the password of `ha1`, for a request with this method
/// and body (RFC 7616 section 3.4.1). Takes the same time wherever they differ.
///
/// The URI is that of the credentials: a proxy between may have changed the Request-URI (RFC 8760 section 2.6 item 6).
/// The nonce is not checked: see [`Nonces`](super::Nonces). Credentials of another algorithm than that of `ha1` prove
/// nothing, and neither do those without qop for another than MD5 (RFC 2069 defined only that).
pub fn verify(credentials: &Credentials<'_>, method: &[u8], body: &[u8], ha1: &Ha1) -> bool {
    let c = credentials;
    let algorithm = ha1.algorithm();
    if c.algorithm != Some(algorithm)
        || c.userhash
        || c.qop.is_none() && algorithm != Algorithm::Md5
    {
        return false;
    }
    let Some(given) = octets_from_hex(algorithm, c.response) else {
        return false;
    };
    let expected = request_digest(c, method, body, ha1);
    let n = algorithm.octets();
    given[..n].ct_eq(&expected[..n]).into()
}

/// Returns the request-digest for the parameters of `c` besides its response.
pub(super) fn request_digest(
    c: &Credentials<'_>,
    method: &[u8],
    body: &[u8],
    ha1: &Ha1,
) -> super::algorithm::Octets {
    let algorithm = ha1.algorithm();
    let a2 = match c.qop {
        // RFC 8760 section 2.6 item 7: an empty body is hashed like any other.
        Some(Qop::AuthInt) => {
            let body = Hex::of(algorithm, &algorithm.hash(&[body]));
            algorithm.hash(&[method, c.uri, body.as_bytes()])
        }
        _ => algorithm.hash(&[method, c.uri]),
    };
    let (a1, a2) = (ha1.hex(), Hex::of(algorithm, &a2));
    match c.qop {
        Some(qop) => {
            let qop = qop.name().as_bytes();
            algorithm.hash(&[a1.as_bytes(), c.nonce, c.nc, c.cnonce, qop, a2.as_bytes()])
        }
        None => algorithm.hash(&[a1.as_bytes(), c.nonce, a2.as_bytes()]),
    }
}
