//! Globally routable user agent URIs (RFC 5627): made by the registrar, resolved by the proxy.
//!
//! There is no table of them. A public GRUU is the address-of-record with the instance in its `gr` parameter. A
//! temporary GRUU hides both: its user part is the user of the address-of-record and the epoch of the instance,
//! encrypted and authenticated under a key. It is valid as long as a binding of the address-of-record has that epoch.
//! The registrar draws a new epoch when an instance appears and when it changes its Call-ID, which invalidates all
//! earlier temporary GRUUs.
//!
//! Only servers with the secret that a temporary GRUU was made with can read it. The nodes of a cluster share one. The routers
//! of a mesh do not: there the user part begins with the network of its maker, `tgruu.fd01000200030004.TEXT`. It shows at
//! which router the user is registered, and nothing else.
//!
//! [`Gruus::resolve`] classifies a Request-URI. [`Gruu::matches`] then selects the bindings while the location service
//! is read.

use crate::config::MeshNetwork;
use crate::keys::{Keyring, Purpose, Secret};
use crate::location::BindingView;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::Time;
use ringway_sip::{Scheme, Uri};
use sha2::Sha256;
use std::io::Write;
use std::net::Ipv6Addr;
use subtle::ConstantTimeEq;

/// The prefix of the user part of a temporary GRUU.
const PREFIX: &[u8] = b"tgruu.";
/// The synthetic initialisation vector in bytes, which is the MAC as well: 96 bits.
const IV: usize = 12;
/// Epoch, distinguisher, length of the user.
const FIXED: usize = 8 + 4 + 1;
/// Encrypted texts are padded to a multiple of this, so that their length reveals little about the user.
const BLOCK: usize = 32;
/// The maximum length of a user part for which temporary GRUUs are made.
pub const MAX_USER: usize = 7 * BLOCK - FIXED;
const MAX_PLAIN: usize = 7 * BLOCK;
const MAX_RAW: usize = IV + MAX_PLAIN;
const MAX_TEXT: usize = MAX_RAW.div_ceil(3) * 4;

/// Makes and resolves GRUUs.
///
/// Keys must outlive the process as long as registrations do; otherwise the temporary GRUUs in use become invalid.
/// Every registrar and proxy of a domain needs the same keys, or the address of its server in the mesh.
#[derive(Clone)]
pub struct Gruus {
    /// The network of this server in the mesh.
    network: Option<u64>,
    keys: Keyring<Keys>,
}

/// The keys of one secret.
#[derive(Clone)]
struct Keys {
    mac: Hmac<Sha256>,
    cipher: Hmac<Sha256>,
}

/// The class of a Request-URI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution<'a> {
    /// It has no `gr` parameter.
    NotAGruu,
    /// It has a `gr` parameter, but is no GRUU of ours: 404 (RFC 5627 section 6.1).
    Unknown,
    /// A GRUU.
    Gruu(Gruu<'a>),
    /// A temporary GRUU made by the router of the mesh that has this address. Whether it is one, only that router knows.
    Elsewhere(Ipv6Addr),
}

/// A GRUU of an address-of-record: a selection of its bindings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gruu<'a> {
    /// The value of its `gr` parameter: an instance, possibly escaped.
    Public(&'a [u8]),
    /// The epoch that the instance must still be in.
    Temporary(u64),
}

impl Gruu<'_> {
    /// Returns whether a binding of the address-of-record belongs to the instance of the GRUU.
    pub fn matches(&self, binding: &BindingView<'_>) -> bool {
        if binding.instance.is_empty() {
            return false;
        }
        match self {
            Gruu::Public(gr) => same_instance(gr, binding.instance),
            Gruu::Temporary(epoch) => *epoch == binding.epoch,
        }
    }

    /// Returns the status for a request to a GRUU without a matching binding: a public one stays valid without
    /// bindings, a temporary one does not (RFC 5627 section 5.3, section 6.1).
    pub fn unbound_status(&self) -> u16 {
        match self {
            Gruu::Public(_) => 480,
            Gruu::Temporary(_) => 404,
        }
    }
}

impl Gruus {
    /// Returns the GRUUs of these secrets, at the server with this address in the mesh, if it has one.
    pub fn new(secrets: &Keyring<Secret>, mesh: Option<MeshNetwork>) -> Self {
        let network = mesh.map(|mesh| (mesh.address.to_bits() >> 64) as u64);
        Gruus { network, keys: secrets.map(Keys::new) }
    }

    /// Appends the public GRUU of an instance. Returns whether there is one: only a canonical SIP address-of-record
    /// with a user has one.
    pub fn write_public(out: &mut Vec<u8>, aor: &[u8], instance: &[u8]) -> bool {
        if split(aor).is_none() || instance.is_empty() {
            return false;
        }
        out.extend_from_slice(aor);
        out.extend_from_slice(b";gr=");
        escape(out, instance);
        true
    }

    /// Appends the temporary GRUU of an instance in `epoch`, made at `expires`, the expiry of its newest binding. Every
    /// registration gets a new one, and the newest can be sent again. Returns whether there is one, as for a public
    /// GRUU.
    pub fn write_temporary(
        &self,
        out: &mut Vec<u8>,
        aor: &[u8],
        epoch: u64,
        expires: Time,
    ) -> bool {
        let Some((user, host)) = split(aor) else { return false };
        if user.len() > MAX_USER {
            return false;
        }
        let length = (FIXED + user.len()).next_multiple_of(BLOCK);
        let mut raw = [0; MAX_RAW];
        let (iv, rest) = raw.split_at_mut(IV);
        let plain = &mut rest[..length];
        plain[..8].copy_from_slice(&epoch.to_le_bytes());
        plain[8..12].copy_from_slice(&(expires.as_millis() as u32).to_le_bytes());
        plain[12] = user.len() as u8;
        plain[FIXED..FIXED + user.len()].copy_from_slice(user);
        iv.copy_from_slice(&self.keys.new.vector(host, plain));
        self.keys.new.crypt(iv, plain);
        let mut text = [0; MAX_TEXT];
        // The buffer is as long as the longest text, so encoding cannot fail.
        let written = URL_SAFE_NO_PAD.encode_slice(&raw[..IV + length], &mut text).unwrap_or(0);
        out.extend_from_slice(b"sip:");
        out.extend_from_slice(PREFIX);
        if let Some(network) = self.network {
            // Writing to a vector cannot fail.
            let _ = write!(out, "{network:016x}.");
        }
        out.extend_from_slice(&text[..written]);
        out.push(b'@');
        out.extend_from_slice(host);
        out.extend_from_slice(b";gr");
        true
    }

    /// Returns the class of `uri`. For a GRUU, appends the canonical address-of-record to `aor`; otherwise `aor` is
    /// unchanged. The caller must check that the domain is local.
    pub fn resolve<'a>(&self, uri: &Uri<'a>, aor: &mut Vec<u8>) -> Resolution<'a> {
        if !uri.is_sip() {
            return Resolution::NotAGruu;
        }
        let start = aor.len();
        match uri.param(b"gr") {
            None => Resolution::NotAGruu,
            Some(Some(gr)) if !gr.is_empty() => {
                uri.aor(aor);
                Resolution::Gruu(Gruu::Public(gr))
            }
            Some(_) => {
                if let Some(maker) = self.other_maker(uri) {
                    return Resolution::Elsewhere(maker);
                }
                let text = uri.user.and_then(|user| user.strip_prefix(PREFIX));
                let (_, text) = split_network(text.unwrap_or_default());
                match self.open(uri, text, aor) {
                    Some(epoch) => Resolution::Gruu(Gruu::Temporary(epoch)),
                    None => {
                        aor.truncate(start);
                        Resolution::Unknown
                    }
                }
            }
        }
    }

    /// Returns the router that a temporary GRUU names as its maker, if it is another one. Anybody can write such a name.
    pub fn other_maker(&self, uri: &Uri<'_>) -> Option<Ipv6Addr> {
        uri.param(b"gr").filter(|gr| gr.is_none_or(<[u8]>::is_empty))?;
        let (network, _) = split_network(uri.user?.strip_prefix(PREFIX)?);
        let maker = network.filter(|&maker| self.network.is_some_and(|own| own != maker))?;
        Some(Ipv6Addr::from_bits(u128::from(maker) << 64 | 1))
    }

    /// Decrypts the text of a temporary GRUU: appends the address-of-record and returns the epoch. `aor` may have more if there
    /// is none.
    fn open(&self, uri: &Uri<'_>, text: &[u8], aor: &mut Vec<u8>) -> Option<u64> {
        let start = aor.len();
        self.keys.iter().find_map(|keys| {
            aor.truncate(start);
            keys.open(uri, text, aor)
        })
    }
}

impl Keys {
    fn new(secret: &Secret) -> Keys {
        let keyed = |purpose| keyed(&secret.key(purpose));
        Keys { mac: keyed(Purpose::GruuMac), cipher: keyed(Purpose::GruuCipher) }
    }

    fn open(&self, uri: &Uri<'_>, text: &[u8], aor: &mut Vec<u8>) -> Option<u64> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let mut raw = [0; MAX_TEXT];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut raw).ok()?;
        let (iv, plain) = raw[..length].split_at_mut_checked(IV)?;
        if plain.is_empty() || !plain.len().is_multiple_of(BLOCK) {
            return None;
        }
        self.crypt(iv, plain);
        // The host as in the address-of-record: in lower case, without a default port.
        let bare = Uri { user: None, scheme: Scheme::Sip, ..*uri };
        let start = aor.len();
        bare.aor(aor);
        let host = aor.get(start + 4..)?;
        if !bool::from(self.vector(host, plain).ct_eq(iv)) {
            return None;
        }
        let length = plain[12] as usize;
        if (FIXED + length).next_multiple_of(BLOCK) != plain.len() {
            return None;
        }
        let user = plain.get(FIXED..FIXED + length)?;
        let at = start + 4;
        aor.splice(at..at, user.iter().copied().chain([b'@']));
        Some(u64::from_le_bytes(*plain.first_chunk()?))
    }

    /// Returns the MAC of the plain text and of the domain, used as its initialisation vector: the same text is always
    /// encrypted alike, and no other text is accepted.
    fn vector(&self, host: &[u8], plain: &[u8]) -> [u8; IV] {
        let mut mac = self.mac.clone();
        mac.update(plain);
        mac.update(host);
        let mut iv = [0; IV];
        iv.copy_from_slice(&mac.finalize().into_bytes()[..IV]);
        iv
    }

    /// Encrypts and decrypts with a key stream from the vector and a counter.
    fn crypt(&self, iv: &[u8], text: &mut [u8]) {
        for (counter, block) in text.chunks_mut(BLOCK).enumerate() {
            let mut stream = self.cipher.clone();
            stream.update(iv);
            stream.update(&[counter as u8]);
            for (b, key) in block.iter_mut().zip(stream.finalize().into_bytes()) {
                *b ^= key;
            }
        }
    }
}

impl std::fmt::Debug for Gruus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gruus")
    }
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    #[allow(clippy::expect_used, reason = "HMAC takes keys of any length (RFC 2104 section 2)")]
    Hmac::new_from_slice(key).expect("HMAC takes any key")
}

/// Returns the network with which the user part of a temporary GRUU begins after its prefix, if it does, and the rest.
fn split_network(text: &[u8]) -> (Option<u64>, &[u8]) {
    let network = |digits: &[u8]| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
    match text.split_at_checked(16) {
        Some((digits, [b'.', rest @ ..])) if digits.starts_with(b"fd") => (network(digits), rest),
        _ => (None, text),
    }
}

/// Returns user and host of a canonical SIP address-of-record.
fn split(aor: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = aor.strip_prefix(b"sip:")?;
    let at = memchr::memchr(b'@', rest)?;
    Some((&rest[..at], &rest[at + 1..]))
}

/// Appends a URI parameter value (RFC 3261 section 25.1: `paramchar`).
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &b in text {
        if b.is_ascii_alphanumeric() || b"-_.!~*'()[]/:&+$".contains(&b) {
            out.push(b);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[(b >> 4) as usize], DIGITS[(b & 15) as usize]]);
        }
    }
}

/// Returns whether an escaped `gr` value is this instance. URI parameters compare without regard to case (RFC 3261
/// section 19.1.4).
fn same_instance(gr: &[u8], instance: &[u8]) -> bool {
    if memchr::memchr(b'%', gr).is_none() {
        return gr.eq_ignore_ascii_case(instance);
    }
    let mut plain = Vec::with_capacity(gr.len());
    ringway_sip::uri::unescape_into(gr, &mut plain);
    plain.eq_ignore_ascii_case(instance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::tests::binding;
    use proptest::prelude::*;

    const AOR: &[u8] = b"sip:callee@example.com";
    const INSTANCE: &[u8] = b"urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6";

    fn gruus() -> Gruus {
        Gruus::new(&Keyring::of(Secret::new(&[5; 32])), None)
    }

    fn at(address: &str) -> Gruus {
        let mesh = MeshNetwork { address: address.parse().unwrap() };
        Gruus::new(&Keyring::of(Secret::new(&[5; 32])), Some(mesh))
    }

    fn temporary(aor: &[u8], epoch: u64, expires: u64) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(gruus().write_temporary(&mut out, aor, epoch, Time::from_secs(expires)));
        out
    }

    fn resolve(uri: &[u8]) -> (Option<Gruu<'_>>, Vec<u8>) {
        let mut aor = Vec::new();
        match gruus().resolve(&Uri::parse(uri).unwrap(), &mut aor) {
            Resolution::Gruu(gruu) => (Some(gruu), aor),
            _ => (None, aor),
        }
    }

    /// RFC 5627 section 5.1: a public GRUU is the AOR with a `gr` parameter.
    #[test]
    fn a_public_gruu_names_its_instance() {
        let mut uri = Vec::new();
        assert!(Gruus::write_public(&mut uri, AOR, INSTANCE));
        assert_eq!(uri, b"sip:callee@example.com;gr=urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6");
        let (gruu, aor) = resolve(&uri);
        assert_eq!(aor, AOR);
        assert!(gruu.unwrap().matches(&BindingView { instance: INSTANCE, ..binding() }));
        assert!(!gruu.unwrap().matches(&BindingView { instance: b"urn:x", ..binding() }));
        assert!(!gruu.unwrap().matches(&binding()));
        assert_eq!(gruu.unwrap().unbound_status(), 480);
    }

    #[test]
    fn an_instance_with_odd_characters_is_escaped() {
        let mut uri = Vec::new();
        assert!(Gruus::write_public(&mut uri, AOR, b"urn:a;b=\"c\" d"));
        assert_eq!(uri, b"sip:callee@example.com;gr=urn:a%3Bb%3D%22c%22%20d");
        let (gruu, _) = resolve(&uri);
        assert!(gruu.unwrap().matches(&BindingView { instance: b"URN:a;b=\"c\" d", ..binding() }));
    }

    /// RFC 5627 section 5.4: given a GRUU, the AOR and the instance can be determined.
    #[test]
    fn a_temporary_gruu_is_opened_again() {
        let uri = temporary(AOR, 77, 1000);
        assert!(uri.starts_with(b"sip:tgruu.") && uri.ends_with(b"@example.com;gr"));
        let (gruu, aor) = resolve(&uri);
        assert_eq!(aor, AOR);
        assert_eq!(gruu, Some(Gruu::Temporary(77)));
        let of = |epoch| BindingView { instance: INSTANCE, epoch, ..binding() };
        assert!(gruu.unwrap().matches(&of(77)));
        assert!(!gruu.unwrap().matches(&of(78)));
        assert_eq!(gruu.unwrap().unbound_status(), 404);
    }

    /// A router of a mesh opens its own; any other one sees which router has made it, and nothing else.
    #[test]
    fn a_router_finds_the_maker_of_a_temporary_gruu() {
        let mut uri = Vec::new();
        let maker = at("fd01:2:3:4::1");
        assert!(maker.write_temporary(&mut uri, AOR, 77, Time::from_secs(1000)));
        assert!(uri.starts_with(b"sip:tgruu.fd01000200030004."));
        let uri = Uri::parse(&uri).unwrap();
        let mut aor = Vec::new();
        assert_eq!(maker.resolve(&uri, &mut aor), Resolution::Gruu(Gruu::Temporary(77)));
        assert_eq!(aor, AOR);
        aor.clear();
        let address = "fd01:2:3:4::1".parse().unwrap();
        assert_eq!(at("fd05::1").resolve(&uri, &mut aor), Resolution::Elsewhere(address));
        for bad in [
            "fc01000200030004.A",
            "fd0100020003000g.A",
            "fd01000200030004",
            "fd010002.A",
            "+fd1000200030004.A",
        ] {
            let uri = format!("sip:tgruu.{bad}@example.com;gr");
            let uri = Uri::parse(uri.as_bytes()).unwrap();
            assert_eq!(maker.resolve(&uri, &mut aor), Resolution::Unknown, "{bad}");
        }
        assert!(aor.is_empty());
    }

    /// The host is compared as URIs are (RFC 3261 section 19.1.4).
    #[test]
    fn case_of_the_host_does_not_matter() {
        let text = String::from_utf8(temporary(AOR, 77, 1000)).unwrap();
        let text = text.replace("example.com", "EXAMPLE.com:5060");
        assert_eq!(resolve(text.as_bytes()).1, AOR);
    }

    /// RFC 5627 section 5.1: no two temporary GRUUs are equal, and they cannot be linked: those of the same user share
    /// no more than those of different users.
    #[test]
    fn temporary_gruus_cannot_be_linked() {
        let (a, b) = (temporary(AOR, 77, 1000), temporary(AOR, 77, 1001));
        let c = temporary(b"sip:bob@example.com", 77, 1000);
        assert_eq!((a.len(), a.len()), (b.len(), c.len()));
        let alike = |x: &[u8], y: &[u8]| {
            let end = x.len() - b"@example.com;gr".len();
            x[10..end].iter().zip(&y[10..end]).filter(|(x, y)| x == y).count()
        };
        assert!(alike(&a, &b) < 10 && alike(&a, &c) < 10);
        assert_eq!(a, temporary(AOR, 77, 1000));
    }

    #[test]
    fn a_forged_one_is_unknown() {
        let good = temporary(AOR, 77, 1000);
        let at = good.iter().position(|b| *b == b'@').unwrap();
        for i in 10..at {
            let mut bad = good.clone();
            bad[i] = if bad[i] == b'A' { b'Q' } else { b'A' };
            assert_eq!(resolve(&bad).0, None, "character {i}");
            assert!(resolve(&bad).1.is_empty());
        }
        for bad in [
            "sip:tgruu.@example.com;gr",
            "sip:alice@example.com;gr",
            "sip:example.com;gr",
            "sip:tgruu.AAAA@example.com;gr",
        ] {
            assert_eq!(resolve(bad.as_bytes()).0, None);
        }
        let moved = String::from_utf8(good).unwrap().replace("example.com", "example.org");
        assert_eq!(resolve(moved.as_bytes()).0, None);
    }

    #[test]
    fn other_uris_are_no_gruus() {
        let mut aor = Vec::new();
        for uri in ["sip:callee@example.com", "tel:+1555;gr=x", "sip:a@b;gr2"] {
            let uri = Uri::parse(uri.as_bytes()).unwrap();
            assert_eq!(gruus().resolve(&uri, &mut aor), Resolution::NotAGruu);
        }
        assert!(aor.is_empty());
        let mut out = Vec::new();
        assert!(!Gruus::write_public(&mut out, b"tel:+1555", INSTANCE));
        assert!(!Gruus::write_public(&mut out, b"sip:example.com", INSTANCE));
        assert!(!gruus().write_temporary(&mut out, b"tel:+1555", 1, Time::ZERO));
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn any_user_comes_back(
            user in "[a-zA-Z0-9._-]{1,230}", epoch in any::<u64>(), at in 0u64..1 << 30,
        ) {
            let aor = format!("sip:{user}@[2001:db8::1]:5070");
            let mut out = Vec::new();
            let made =
                gruus().write_temporary(&mut out, aor.as_bytes(), epoch, Time::from_secs(at));
            prop_assert_eq!(made, user.len() <= MAX_USER);
            if made {
                let (gruu, back) = resolve(&out);
                prop_assert_eq!(gruu, Some(Gruu::Temporary(epoch)));
                prop_assert_eq!(back, aor.as_bytes());
            }
        }

        #[test]
        fn opening_never_panics(user in "[A-Za-z0-9_-]{0,400}") {
            let uri = format!("sip:tgruu.{user}@example.com;gr");
            prop_assert!(resolve(uri.as_bytes()).0.is_none());
        }
    }
}
