//! The State Cookie (RFC 9260 sections 5.1.3 to 5.1.5): everything an association is made of, with
//! a time and a MAC, so that nothing need be kept until it comes back.

use crate::association::Offer;
use crate::auth::Agreed;
use crate::features::Features;
use crate::numbers::Tsn;
use crate::wire::init::MAX_ADDRESSES;
use hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::{Duration, Random, Time};
use sha2::Sha256;
use std::net::IpAddr;

/// Bytes of the MAC, cut from 32: RFC 2104 section 5.
const MAC: usize = 16;
/// Bytes of the fixed part, after the MAC.
const FIXED: usize = 1 + 8 + 4 + 5 * 4 + 2 * 2 + 2 * 4 + 2 * 2 + 2 + 1 + 1;

/// What a cookie says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cookie {
    pub(super) created: Time,
    pub(super) life: Duration,
    /// Our port and the peer's.
    pub(super) ports: (u16, u16),
    pub(super) offer: Offer,
}

impl Cookie {
    /// How long ago it expired.
    pub(super) fn stale(&self, now: Time) -> Option<Duration> {
        let end = self.created + self.life;
        (now > end).then(|| now.since(end))
    }
}

/// The keys that make and check cookies. The last one still checks (RFC 9260 section 5.1.3: the
/// key is changed, say, hourly).
pub(super) struct Keys {
    macs: [Hmac<Sha256>; 2],
    /// Number of the key that makes cookies; its parity is its place.
    current: u8,
    since: Time,
    life: Duration,
}

fn fresh(random: &mut dyn Random) -> Hmac<Sha256> {
    let mut key = [0; 32];
    for part in key.chunks_mut(8) {
        part.copy_from_slice(&random.next_u64().to_le_bytes());
    }
    #[allow(clippy::expect_used)] // The length is right.
    Hmac::new_from_slice(&key).expect("HMAC takes any key")
}

impl Keys {
    pub(super) fn new(life: Duration, random: &mut dyn Random) -> Keys {
        Keys { macs: [fresh(random), fresh(random)], current: 0, since: Time::ZERO, life }
    }

    fn rotate(&mut self, now: Time, random: &mut dyn Random) {
        if self.since == Time::ZERO {
            self.since = now;
        }
        if now.since(self.since) < self.life {
            return;
        }
        // After a long pause the key before is too old to check with, too.
        if now.since(self.since) >= self.life * 2 {
            self.macs[usize::from(self.current & 1)] = fresh(random);
        }
        self.current = self.current.wrapping_add(1);
        self.macs[usize::from(self.current & 1)] = fresh(random);
        self.since = now;
    }

    /// Makes a cookie.
    pub(super) fn seal(&mut self, now: Time, random: &mut dyn Random, cookie: &Cookie) -> Vec<u8> {
        self.rotate(now, random);
        let mut out = vec![0; MAC];
        out.push(self.current);
        out.extend_from_slice(&cookie.created.as_nanos().to_be_bytes());
        out.extend_from_slice(&(cookie.life.as_millis() as u32).to_be_bytes());
        let offer = &cookie.offer;
        for number in [
            offer.local_tag,
            offer.peer_tag,
            offer.local_tsn.raw(),
            offer.peer_tsn.raw(),
            offer.peer_rwnd,
        ] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [offer.streams.0, offer.streams.1] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [offer.ties.0, offer.ties.1] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for port in [cookie.ports.0, cookie.ports.1] {
            out.extend_from_slice(&port.to_be_bytes());
        }
        out.extend_from_slice(&offer.features.bits().to_be_bytes());
        out.push(offer.addresses.len() as u8);
        match &offer.auth {
            None => out.push(0),
            Some(agreed) => {
                out.push(agreed.hmac as u8);
                for list in [&agreed.key, &agreed.chunks] {
                    out.extend_from_slice(&(list.len() as u16).to_be_bytes());
                    out.extend_from_slice(list);
                }
            }
        }
        for &address in [offer.local, offer.source].iter().chain(&offer.addresses) {
            match address {
                IpAddr::V4(v4) => {
                    out.push(4);
                    out.extend_from_slice(&v4.octets());
                }
                IpAddr::V6(v6) => {
                    out.push(6);
                    out.extend_from_slice(&v6.octets());
                }
            }
        }
        let mut mac = self.macs[usize::from(self.current & 1)].clone();
        mac.update(&out[MAC..]);
        let tag = mac.finalize().into_bytes();
        out[..MAC].copy_from_slice(&tag[..MAC]);
        out
    }

    /// Opens a cookie that one of the keys has made; `None` for anything else.
    pub(super) fn open(
        &mut self,
        now: Time,
        random: &mut dyn Random,
        bytes: &[u8],
    ) -> Option<Cookie> {
        self.rotate(now, random);
        let (tag, body) = bytes.split_at_checked(MAC)?;
        let key = *body.first()?;
        if key != self.current && key != self.current.wrapping_sub(1) {
            return None;
        }
        let mut mac = self.macs[usize::from(key & 1)].clone();
        mac.update(body);
        mac.verify_truncated_left(tag).ok()?;
        read(body)
    }
}

/// Takes numbers from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn list(&mut self) -> Option<Vec<u8>> {
        let length = usize::from(self.u16()?);
        let (list, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(list.to_vec())
    }

    fn auth(&mut self) -> Option<Option<Agreed>> {
        let [hmac] = self.take::<1>()?;
        if hmac == 0 {
            return Some(None);
        }
        let (key, chunks) = (self.list()?, self.list()?);
        Some(Some(Agreed::from_parts(key, u16::from(hmac), chunks)))
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.take::<1>()? {
            [4] => self.take::<4>().map(IpAddr::from),
            [6] => self.take::<16>().map(IpAddr::from),
            _ => None,
        }
    }
}

fn read(body: &[u8]) -> Option<Cookie> {
    if body.len() < FIXED {
        return None;
    }
    let mut from = Reader(body);
    from.take::<1>()?;
    let created = Time::from_nanos(u64::from_be_bytes(from.take()?));
    let life = Duration::from_millis(u64::from(from.u32()?));
    let (local_tag, peer_tag) = (from.u32()?, from.u32()?);
    let (local_tsn, peer_tsn) = (Tsn::new(from.u32()?), Tsn::new(from.u32()?));
    let peer_rwnd = from.u32()?;
    let streams = (from.u16()?, from.u16()?);
    let ties = (from.u32()?, from.u32()?);
    let ports = (from.u16()?, from.u16()?);
    let features = Features::from_bits(from.u16()?);
    let count = usize::from(from.take::<1>()?[0]).min(MAX_ADDRESSES);
    let auth = from.auth()?;
    let (local, source) = (from.address()?, from.address()?);
    let addresses = (0..count).map(|_| from.address()).collect::<Option<Vec<_>>>()?;
    let offer = Offer {
        local_tag,
        peer_tag,
        local_tsn,
        peer_tsn,
        peer_rwnd,
        streams,
        ties,
        features,
        auth,
        local,
        source,
        addresses,
    };
    Some(Cookie { created, life, ports, offer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    const HOUR: Duration = Duration::from_secs(3600);

    fn cookie(now: Time, n: u32, addresses: Vec<IpAddr>) -> Cookie {
        Cookie {
            created: now,
            life: Duration::from_secs(60),
            ports: (1, 2),
            offer: Offer {
                local_tag: n,
                peer_tag: !n,
                local_tsn: Tsn::new(n ^ 5),
                peer_tsn: Tsn::new(n ^ 9),
                peer_rwnd: n / 2,
                streams: (n as u16, 7),
                ties: (n, 3),
                features: Features::from_bits(n as u16),
                auth: n
                    .is_multiple_of(3)
                    .then(|| Agreed::from_parts(vec![n as u8; 70], 3, vec![1, 2])),
                local: IpAddr::from([10, 0, 0, 1]),
                source: IpAddr::from([1u16, 2, 3, 4, 5, 6, 7, 8]),
                addresses,
            },
        }
    }

    /// RFC 9260 section 5.1.3: the key changes; what the one before made is still good, what an
    /// older one made is not.
    #[test]
    fn keys_change() {
        let mut random = SplitMix::new(1);
        let mut keys = Keys::new(HOUR, &mut random);
        let start = Time::from_secs(1_000_000);
        let sealed = keys.seal(start, &mut random, &cookie(start, 1, Vec::new()));
        let near = start + (HOUR * 2 - Duration::from_secs(1));
        assert!(keys.open(start + HOUR, &mut random, &sealed).is_some());
        assert!(keys.open(near, &mut random, &sealed).is_some());
        assert!(keys.open(start + HOUR * 2, &mut random, &sealed).is_none());
        let other = &mut Keys::new(HOUR, &mut random);
        assert!(other.open(start, &mut random, &sealed).is_none());
        let late = keys.seal(near, &mut random, &cookie(near, 1, Vec::new()));
        assert!(keys.open(near + HOUR * 9, &mut random, &late).is_none());
    }

    /// RFC 9260 section 5.1.5, step 4.
    #[test]
    fn a_cookie_expires() {
        let start = Time::from_secs(5);
        let it = cookie(start, 1, Vec::new());
        let end = start + Duration::from_secs(60);
        assert_eq!(it.stale(end), None);
        let later = end + Duration::from_micros(7);
        assert_eq!(it.stale(later), Some(Duration::from_micros(7)));
    }

    proptest! {
        /// RFC 9260 section 5.1.5, step 2: what was sealed is read, and nothing that differs in a
        /// bit.
        #[test]
        fn only_what_was_sealed_is_read(
            n in any::<u32>(), bit in any::<usize>(),
            addresses in proptest::collection::vec(any::<u32>(), 0..MAX_ADDRESSES),
        ) {
            let mut random = SplitMix::new(2);
            let mut keys = Keys::new(HOUR, &mut random);
            let now = Time::from_secs(100);
            let addresses = addresses.into_iter().map(|a| IpAddr::V4(a.into())).collect();
            let it = cookie(now, n, addresses);
            let mut sealed = keys.seal(now, &mut random, &it);
            prop_assert_eq!(keys.open(now, &mut random, &sealed), Some(it));
            let bit = bit % (sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(keys.open(now, &mut random, &sealed), None);
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut random = SplitMix::new(2);
            let mut keys = Keys::new(HOUR, &mut random);
            prop_assert_eq!(keys.open(Time::from_secs(1), &mut random, &bytes), None);
            let _ = read(&bytes);
        }
    }
}
