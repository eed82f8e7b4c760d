//! Init Cookies: the state of a handshake, kept by the client (RFC 4340 section 8.1.4).
//!
//! A cookie holds what the Response was made from. It is authenticated, with the addresses and ports, by
//! a key that changes; it is not encrypted, since the client knows all of it.

use super::key::Key;
use crate::seq::Seq;
use crate::wire::number;
use crate::wire::vector::MAX_VALUE;
use hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::{Duration, Random, Time};
use sha2::Sha256;

/// Length in bytes of the authentication.
const MAC: usize = 16;
/// Length in bytes of what a cookie holds besides the options.
const FIXED: usize = 1 + 8 + 6 + 6 + 4;
/// Maximum length in bytes of the options of a Request that a cookie holds.
pub(super) const MAX_OPTIONS: usize = MAX_VALUE - MAC - FIXED;

/// What a cookie holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cookie {
    pub(super) expires: Time,
    /// Sequence number of the Response.
    pub(super) iss: Seq,
    /// Sequence number of the Request.
    pub(super) isr: Seq,
    pub(super) service: u32,
    /// The options of the Request.
    pub(super) options: Vec<u8>,
}

/// The keys: the current one, and the one before.
pub(super) struct Keys {
    keys: [[u8; 32]; 2],
    /// Number of the current key. Its lowest bit is its index.
    current: u8,
    changes_at: Option<Time>,
    life: Duration,
}

impl Keys {
    pub(super) fn new(life: Duration, random: &mut dyn Random) -> Keys {
        let mut keys = [[0; 32]; 2];
        for key in &mut keys {
            random.fill(key);
        }
        Keys { keys, current: 0, changes_at: None, life }
    }

    /// Replaces a key that has been in use for long enough.
    fn rotate(&mut self, now: Time, random: &mut dyn Random) {
        let at = *self.changes_at.get_or_insert(now + self.life);
        if now < at {
            return;
        }
        // After a long silence both are old.
        let both = now >= at + self.life;
        for _ in 0..if both { 2 } else { 1 } {
            self.current = self.current.wrapping_add(1);
            random.fill(&mut self.keys[usize::from(self.current & 1)]);
        }
        self.changes_at = Some(now + self.life);
    }

    fn mac(&self, key: u8, parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::new_from_slice(&self.keys[usize::from(key & 1)]).ok()?;
        for part in parts {
            mac.update(part);
        }
        Some(mac)
    }

    /// Returns the initial sequence number of a connection that is not kept. It is the same for a Request
    /// that is sent again, so that its Responses belong together.
    pub(super) fn initial(&mut self, now: Time, random: &mut dyn Random, key: &Key) -> Seq {
        self.rotate(now, random);
        let mac = self.mac(self.current, &[b"initial sequence number", &key.bytes()]);
        let bytes = mac.map(|mac| mac.finalize().into_bytes());
        Seq::new(bytes.map_or(0, |bytes| number(&bytes[..8])))
    }

    /// Returns the value of the option; `None` where it would be too long.
    pub(super) fn seal(
        &mut self,
        now: Time,
        random: &mut dyn Random,
        key: &Key,
        cookie: &Cookie,
    ) -> Option<Vec<u8>> {
        self.rotate(now, random);
        if cookie.options.len() > MAX_OPTIONS {
            return None;
        }
        let mut body = vec![self.current];
        body.extend_from_slice(&cookie.expires.as_nanos().to_be_bytes());
        body.extend_from_slice(&cookie.iss.raw().to_be_bytes()[2..]);
        body.extend_from_slice(&cookie.isr.raw().to_be_bytes()[2..]);
        body.extend_from_slice(&cookie.service.to_be_bytes());
        body.extend_from_slice(&cookie.options);
        let mac = self.mac(self.current, &[&body, &key.bytes()])?.finalize().into_bytes();
        let mut out = mac[..MAC].to_vec();
        out.extend_from_slice(&body);
        Some(out)
    }

    /// Opens a cookie that one of the keys has made for these addresses and ports, and that has not
    /// expired.
    pub(super) fn open(
        &mut self,
        now: Time,
        random: &mut dyn Random,
        key: &Key,
        bytes: &[u8],
    ) -> Option<Cookie> {
        self.rotate(now, random);
        let (tag, body) = bytes.split_at_checked(MAC)?;
        if body.len() < FIXED {
            return None;
        }
        let used = body[0];
        if used != self.current && used != self.current.wrapping_sub(1) {
            return None;
        }
        self.mac(used, &[body, &key.bytes()])?.verify_truncated_left(tag).ok()?;
        let cookie = Cookie {
            expires: Time::from_nanos(number(&body[1..9])),
            iss: Seq::new(number(&body[9..15])),
            isr: Seq::new(number(&body[15..21])),
            service: number(&body[21..25]) as u32,
            options: body[FIXED..].to_vec(),
        };
        (now <= cookie.expires).then_some(cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;
    use std::net::SocketAddr;

    const HOUR: Duration = Duration::from_secs(3600);

    fn key(port: u16) -> Key {
        let local = SocketAddr::from(([10, 0, 0, 1], 80));
        Key::new(local, SocketAddr::from(([10, 0, 0, 2], port)), 0)
    }

    fn cookie(now: Time, options: Vec<u8>) -> Cookie {
        let (iss, isr) = (Seq::new(7), Seq::new(1 << 47));
        Cookie { expires: now + Duration::from_secs(60), iss, isr, service: 9, options }
    }

    /// RFC 4340 section 8.1.4: keys change, and a cookie of the previous key is valid.
    #[test]
    fn keys_change_and_cookies_expire() {
        let mut random = SplitMix::new(1);
        let mut keys = Keys::new(HOUR, &mut random);
        let start = Time::from_secs(1_000_000);
        let long = Cookie { expires: start + HOUR * 100, ..cookie(start, vec![1]) };
        let sealed = keys.seal(start, &mut random, &key(1), &long).unwrap();
        let initial = keys.initial(start, &mut random, &key(1));
        assert_eq!(keys.initial(start, &mut random, &key(1)), initial);
        assert_ne!(keys.initial(start, &mut random, &key(2)), initial);
        let near = start + (HOUR * 2 - Duration::from_secs(1));
        assert_eq!(keys.open(start + HOUR, &mut random, &key(1), &sealed), Some(long.clone()));
        assert_eq!(keys.open(near, &mut random, &key(1), &sealed), Some(long.clone()));
        assert_eq!(keys.open(start + HOUR * 2, &mut random, &key(1), &sealed), None);
        let sealed = keys.seal(near, &mut random, &key(1), &cookie(near, vec![])).unwrap();
        let end = near + Duration::from_secs(60);
        assert!(keys.open(end, &mut random, &key(1), &sealed).is_some());
        assert!(keys.open(end + Duration::from_nanos(1), &mut random, &key(1), &sealed).is_none());
        let sealed = keys.seal(near, &mut random, &key(1), &long).unwrap();
        assert!(keys.open(near + HOUR * 9, &mut random, &key(1), &sealed).is_none());
    }

    proptest! {
        #[test]
        fn only_what_was_sealed_is_read(
            options in proptest::collection::vec(any::<u8>(), 0..230), bit in any::<usize>(), port in 2u16..,
        ) {
            let mut random = SplitMix::new(2);
            let mut keys = Keys::new(HOUR, &mut random);
            let now = Time::from_secs(100);
            let it = cookie(now, options);
            let Some(mut sealed) = keys.seal(now, &mut random, &key(1), &it) else {
                prop_assert!(it.options.len() > MAX_OPTIONS);
                return Ok(());
            };
            prop_assert!(sealed.len() <= MAX_VALUE);
            prop_assert_eq!(keys.open(now, &mut random, &key(1), &sealed), Some(it));
            prop_assert_eq!(keys.open(now, &mut random, &key(port), &sealed), None);
            let bit = bit % (sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(keys.open(now, &mut random, &key(1), &sealed), None);
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..253)) {
            let mut random = SplitMix::new(2);
            let mut keys = Keys::new(HOUR, &mut random);
            prop_assert_eq!(keys.open(Time::from_secs(1), &mut random, &key(1), &bytes), None);
        }
    }
}
