//! Digest answers of a client (RFC 7616, RFC 8760): MD5 and SHA-256, with and without `qop=auth`.

use md5::{Digest, Md5};
use sha2::Sha256;

/// What a challenge asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge {
    algorithm: Algorithm,
    realm: String,
    nonce: String,
    opaque: Option<String>,
    qop_auth: bool,
    by_proxy: bool,
}

/// The two algorithms a load run can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Algorithm {
    /// RFC 1321, what most telephones have.
    Md5,
    /// RFC 8760's first choice.
    #[value(name = "sha-256")]
    Sha256,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
    }

    fn hash(self, parts: &[&str]) -> String {
        match self {
            Self::Md5 => hashed::<Md5>(parts),
            Self::Sha256 => hashed::<Sha256>(parts),
        }
    }
}

/// Hash of the parts joined by colons, in hexadecimal.
fn hashed<D: Digest>(parts: &[&str]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digest = D::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            digest.update(b":");
        }
        digest.update(part.as_bytes());
    }
    let digest = digest.finalize();
    let mut text = String::with_capacity(2 * digest.len());
    for byte in digest.iter() {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

impl Challenge {
    /// Reads a challenge's value; none if it is not digest or asks for another algorithm than
    /// `wanted`.
    pub(crate) fn parse(value: &[u8], wanted: Algorithm, by_proxy: bool) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (scheme, rest) = text.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("digest") {
            return None;
        }
        let mut challenge = Self {
            algorithm: Algorithm::Md5,
            realm: String::new(),
            nonce: String::new(),
            opaque: None,
            qop_auth: false,
            by_proxy,
        };
        let mut rest = rest.trim_start();
        while let Some((name, after)) = rest.split_once('=') {
            let (value, after) = parameter(after)?;
            match name.trim().to_ascii_lowercase().as_str() {
                "realm" => challenge.realm = value.into(),
                "nonce" => challenge.nonce = value.into(),
                "opaque" => challenge.opaque = Some(value.into()),
                "qop" => challenge.qop_auth = value.split(',').any(|q| q.trim() == "auth"),
                "algorithm" if value.eq_ignore_ascii_case("MD5") => {}
                "algorithm" if value.eq_ignore_ascii_case("SHA-256") => {
                    challenge.algorithm = Algorithm::Sha256;
                }
                "algorithm" => return None,
                _ => {}
            }
            rest = after.trim_start_matches([',', ' ']);
        }
        (challenge.algorithm == wanted && !challenge.nonce.is_empty()).then_some(challenge)
    }

    /// The header line that answers, CRLF included. `count` is the nonce count, from 1.
    pub(crate) fn answer(
        &self,
        user: &str,
        password: &str,
        method: &str,
        uri: &str,
        count: u32,
    ) -> String {
        let secret = self.algorithm.hash(&[user, &self.realm, password]);
        let request = self.algorithm.hash(&[method, uri]);
        let nc = format!("{count:08x}");
        // The client's nonce protects the client; a load run has nothing to protect.
        let cnonce = "6c6f6164";
        let response = if self.qop_auth {
            self.algorithm.hash(&[&secret, &self.nonce, &nc, cnonce, "auth", &request])
        } else {
            self.algorithm.hash(&[&secret, &self.nonce, &request])
        };
        let header = if self.by_proxy { "Proxy-Authorization" } else { "Authorization" };
        let mut line = format!(
            "{header}: Digest username=\"{user}\", realm=\"{}\", nonce=\"{}\", uri=\"{uri}\", \
             response=\"{response}\", algorithm={}",
            self.realm,
            self.nonce,
            self.algorithm.name()
        );
        if let Some(opaque) = &self.opaque {
            line += &format!(", opaque=\"{opaque}\"");
        }
        if self.qop_auth {
            line += &format!(", qop=auth, nc={nc}, cnonce=\"{cnonce}\"");
        }
        line + "\r\n"
    }
}

/// A parameter's value, quoted or not, and what follows it.
fn parameter(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    if let Some(quoted) = text.strip_prefix('"') {
        return quoted.split_once('"');
    }
    Some(text.split_once(',').map_or((text.trim(), ""), |(value, rest)| (value.trim(), rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7616 section 3.9.1.
    #[test]
    fn hashes_as_rfc_7616_section_3_9_1() {
        let secret = |a: Algorithm| a.hash(&["Mufasa", "http-auth@example.org", "Circle of Life"]);
        let request = |a: Algorithm| a.hash(&["GET", "/dir/index.html"]);
        let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
        let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
        let response =
            |a: Algorithm| a.hash(&[&secret(a), nonce, "00000001", cnonce, "auth", &request(a)]);
        assert_eq!(response(Algorithm::Md5), "8ca523f5e9506fed4657c9700eebdbec");
        assert_eq!(
            response(Algorithm::Sha256),
            "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"
        );
    }

    #[test]
    fn reads_a_challenge() {
        let value = b"Digest realm=\"a, b\", nonce=\"n1\",opaque=\"o\", algorithm=SHA-256, qop=\"auth,auth-int\"";
        assert_eq!(Challenge::parse(value, Algorithm::Md5, false), None);
        let challenge = Challenge::parse(value, Algorithm::Sha256, false).unwrap();
        assert_eq!(challenge.realm, "a, b");
        let line = challenge.answer("u1", "secret", "REGISTER", "sip:d", 2);
        assert!(
            line.starts_with("Authorization: Digest username=\"u1\", realm=\"a, b\""),
            "{line}"
        );
        assert!(line.contains("nc=00000002") && line.contains("opaque=\"o\""), "{line}");
        assert_eq!(Challenge::parse(b"Basic realm=\"x\"", Algorithm::Md5, false), None);
    }
}
