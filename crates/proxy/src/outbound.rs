//! Flow tokens: a flow encoded in the user part of our own URI (RFC 5626 section 5.2).
//!
//! A proxy that must later find the same flow puts a token into its Record-Route or Path URI, and stores nothing. The
//! token is a MAC and the flow, in base64url, and cannot be forged or changed. Its user decides whether the flow still
//! exists (430 if it does not, RFC 5626 section 5.3.1). A modified token is answered with 403.
//!
//! The id of a [`Flow`] is valid in one process only. In another one, of an earlier run or of another server with the same
//! key, it names no connection, or one with other addresses, and that flow counts as closed. A UDP listener is looked up by
//! its address.

use crate::keys::Keyring;
use crate::location::wire::{Reader, put_flow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringway_sansio::Flow;
use siphasher::sip128::SipHasher24;
use subtle::ConstantTimeEq;

/// Bytes of MAC in a token: 80 bits, as in the RFC's own example.
const MAC: usize = 10;
/// The maximum length of a token before base64: MAC, kind, id and two IPv6 addresses.
const MAX_RAW: usize = MAC + 1 + 8 + 2 * 22;
/// The maximum length of a token, in characters.
pub const MAX_TOKEN: usize = MAX_RAW.div_ceil(3) * 4;

/// The reason why a token contains no flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BadToken {
    /// Not of the form of a token: most likely none was meant.
    NotAToken,
    /// The MAC does not match: the token was modified, or made with another key.
    Forged,
}

/// Makes and checks flow tokens.
///
/// The MAC is SipHash-2-4 with 128 bits, truncated to 80. SipHash is designed for short inputs under a secret key, and
/// a token is made for every call that is record-routed to a user agent behind a flow.
#[derive(Clone, Debug)]
pub struct FlowTokens {
    keys: Keyring<[u8; 16]>,
}

impl FlowTokens {
    /// Returns the tokens of `keys`, which must be random and secret.
    pub const fn new(keys: Keyring<[u8; 16]>) -> Self {
        FlowTokens { keys }
    }

    /// Appends the token of `flow`: at most [`MAX_TOKEN`] characters, all allowed in a SIP user part without escaping.
    pub fn write(&self, out: &mut Vec<u8>, flow: &Flow) {
        // The caller's buffer is used for the bytes first, then for the characters.
        let start = out.len();
        put_flow(out, flow);
        let (mut raw, length) = ([0; MAX_RAW], MAC + out.len() - start);
        raw[MAC..length].copy_from_slice(&out[start..]);
        let mac = mac(&self.keys.new, &out[start..]);
        raw[..MAC].copy_from_slice(&mac);
        out.truncate(start);
        let mut text = [0; MAX_TOKEN];
        // The buffer is as long as the longest token, so encoding cannot fail.
        let length = URL_SAFE_NO_PAD.encode_slice(&raw[..length], &mut text).unwrap_or(0);
        out.extend_from_slice(&text[..length]);
    }

    /// Returns the flow that a token names.
    pub fn read(&self, token: &[u8]) -> Result<Flow, BadToken> {
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(BadToken::NotAToken);
        }
        let mut raw = [0; MAX_TOKEN];
        let length =
            URL_SAFE_NO_PAD.decode_slice(token, &mut raw).map_err(|_| BadToken::NotAToken)?;
        let (mac, bytes) = raw[..length].split_at_checked(MAC).ok_or(BadToken::NotAToken)?;
        let mut reader = Reader::new(bytes);
        let flow = reader.flow().map_err(|_| BadToken::NotAToken)?;
        if reader.at != bytes.len() {
            return Err(BadToken::NotAToken);
        }
        let is_of = |key: &[u8; 16]| bool::from(self::mac(key, bytes).ct_eq(mac));
        if self.keys.iter().any(is_of) { Ok(flow) } else { Err(BadToken::Forged) }
    }
}

fn mac(key: &[u8; 16], bytes: &[u8]) -> [u8; MAC] {
    let mut mac = [0; MAC];
    let full = SipHasher24::new_with_key(key).hash(bytes).as_bytes();
    mac.copy_from_slice(&full[..MAC]);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::tests::any_flow;
    use proptest::prelude::*;
    use ringway_sansio::{FlowId, Transport};

    fn flow(local: &str, remote: &str) -> Flow {
        Flow {
            id: FlowId::new(3, 12_345),
            transport: Transport::Tls,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        }
    }

    fn token(flow: &Flow) -> Vec<u8> {
        let mut out = Vec::new();
        FlowTokens::new(Keyring::of([9; 16])).write(&mut out, flow);
        out
    }

    /// RFC 5626 section 5.2: the flow can be recovered, and only characters of a user part are used.
    #[test]
    fn a_flow_comes_back() {
        for f in [
            flow("192.0.2.1:5061", "198.51.100.7:40000"),
            flow("[2001:db8::1]:5061", "[fe80::1%4]:40000"),
        ] {
            let t = token(&f);
            assert!(t.len() <= MAX_TOKEN);
            assert!(t.iter().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)));
            assert_eq!(FlowTokens::new(Keyring::of([9; 16])).read(&t), Ok(f));
        }
        assert_eq!(token(&flow("192.0.2.1:1", "192.0.2.2:1")).len(), 42);
    }

    /// RFC 5626 section 5.2: a token cannot be modified.
    #[test]
    fn every_changed_character_is_noticed() {
        let good = token(&flow("192.0.2.1:5061", "198.51.100.7:40000"));
        for i in 0..good.len() {
            let mut bad = good.clone();
            bad[i] = if bad[i] == b'A' { b'Q' } else { b'A' };
            assert!(FlowTokens::new(Keyring::of([9; 16])).read(&bad).is_err(), "character {i}");
        }
        assert_eq!(FlowTokens::new(Keyring::of([8; 16])).read(&good), Err(BadToken::Forged));
    }

    #[test]
    fn an_ordinary_user_is_no_token() {
        let tokens = FlowTokens::new(Keyring::of([9; 16]));
        for user in [&b""[..], b"alice", b"+1-555", &[b'A'; 200], "\u{fc}".as_bytes()] {
            assert_eq!(tokens.read(user), Err(BadToken::NotAToken));
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = FlowTokens::new(Keyring::of([0; 16])).read(&bytes);
        }

        #[test]
        fn any_flow_comes_back(f in any_flow()) {
            prop_assert_eq!(FlowTokens::new(Keyring::of([9; 16])).read(&token(&f)), Ok(f));
        }
    }
}
