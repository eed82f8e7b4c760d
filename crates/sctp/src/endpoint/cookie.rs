//! The State Cookie (RFC 9260 sections 5.1.3 to 5.1.5). It contains the state of the new association
//! with a time and a MAC, so that nothing is stored until it comes back.

use crate::association::Offer;
use crate::auth::Agreed;
use crate::features::Features;
use crate::numbers::Tsn;
use crate::wire::init::MAX_ADDRESSES;
use hmac::{Hmac, KeyInit, Mac};
use ringway_sansio::{Duration, Random, Time};
use sha2::Sha256;
use std::net::IpAddr;

/// Length in bytes of the MAC, truncated from 32: RFC 2104 section 5.
const MAC: usize = 16;

/// The contents of a cookie. Without a list of addresses it has 48 bytes, so that the answer to the
/// smallest INIT is at most three times as long as the INIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cookie {
    pub(super) expires: Time,
    /// The local port and the peer's.
    pub(super) ports: (u16, u16),
    pub(super) offer: Offer,
}

impl Cookie {
    /// Returns how long ago the cookie expired; `None` if it has not.
    pub(super) fn stale(&self, now: Time) -> Option<Duration> {
        (now > self.expires).then(|| now.since(self.expires))
    }
}

/// Fields of the packet that carries a cookie. The MAC covers them, and the cookie need not contain
/// them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketFields {
    /// The local port and the peer's.
    pub(super) ports: (u16, u16),
    /// The packet's Verification Tag.
    pub(super) tag: u32,
    /// The destination and the source address of the packet.
    pub(super) local: IpAddr,
    pub(super) source: IpAddr,
}

/// Optional parts, as bits of a cookie's second byte.
mod has {
    pub(super) const TIES: u8 = 1;
    pub(super) const AUTH: u8 = 1 << 1;
    /// The addresses of the INIT's packet, and those it listed. Without them the COOKIE ECHO must have
    /// the same addresses as the INIT.
    pub(super) const ADDRESSES: u8 = 1 << 2;
    /// Whether the INIT ACK listed no local address.
    pub(super) const ALONE: u8 = 1 << 3;
}

/// The keys that make and check cookies. The previous key still checks them (RFC 9260 section 5.1.3:
/// the key is changed, say, hourly).
pub(super) struct Keys {
    macs: [Hmac<Sha256>; 2],
    /// Number of the key that makes cookies. Its parity is its index.
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
        // After a long pause the previous key is too old as well.
        if now.since(self.since) >= self.life * 2 {
            self.macs[usize::from(self.current & 1)] = fresh(random);
        }
        self.current = self.current.wrapping_add(1);
        self.macs[usize::from(self.current & 1)] = fresh(random);
        self.since = now;
    }

    /// Returns a sealed cookie.
    pub(super) fn seal(&mut self, now: Time, random: &mut dyn Random, cookie: &Cookie) -> Vec<u8> {
        self.rotate(now, random);
        let offer = &cookie.offer;
        let listed = !(offer.alone && offer.addresses.is_empty());
        let mut parts = 0;
        for (part, present) in [
            (has::TIES, offer.ties != (0, 0)),
            (has::AUTH, offer.auth.is_some()),
            (has::ADDRESSES, listed),
            (has::ALONE, offer.alone),
        ] {
            parts |= if present { part } else { 0 };
        }
        let mut out = vec![0; MAC];
        out.extend_from_slice(&[self.current, parts]);
        out.extend_from_slice(&cookie.expires.as_nanos().to_be_bytes());
        for number in [offer.peer_tag, offer.local_tsn.raw(), offer.peer_tsn.raw(), offer.peer_rwnd]
        {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for number in [offer.streams.0, offer.streams.1, offer.features.bits()] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        if offer.ties != (0, 0) {
            out.extend_from_slice(&offer.ties.0.to_be_bytes());
            out.extend_from_slice(&offer.ties.1.to_be_bytes());
        }
        if let Some(agreed) = &offer.auth {
            out.push(agreed.hmac as u8);
            for list in [&agreed.key, &agreed.chunks] {
                out.extend_from_slice(&(list.len() as u16).to_be_bytes());
                out.extend_from_slice(list);
            }
        }
        if listed {
            out.push(offer.addresses.len() as u8);
            for &address in [offer.local, offer.source].iter().chain(&offer.addresses) {
                write_address(&mut out, address);
            }
        }
        let (local, source) = (offer.local, offer.source);
        let seen = PacketFields { ports: cookie.ports, tag: offer.local_tag, local, source };
        let tag = self.mac(self.current, &out[MAC..], &seen).finalize().into_bytes();
        out[..MAC].copy_from_slice(&tag[..MAC]);
        out
    }

    /// Returns the MAC of a cookie's body and of the fields of its packet.
    fn mac(&self, key: u8, body: &[u8], seen: &PacketFields) -> Hmac<Sha256> {
        let mut mac = self.macs[usize::from(key & 1)].clone();
        mac.update(body);
        let mut shown = Vec::with_capacity(8 + 2 * 17);
        shown.extend_from_slice(&seen.ports.0.to_be_bytes());
        shown.extend_from_slice(&seen.ports.1.to_be_bytes());
        shown.extend_from_slice(&seen.tag.to_be_bytes());
        if body.get(1).is_some_and(|parts| parts & has::ADDRESSES == 0) {
            write_address(&mut shown, seen.local);
            write_address(&mut shown, seen.source);
        }
        mac.update(&shown);
        mac
    }

    /// Opens a cookie that one of the keys has made, in a packet with the fields of the INIT; `None`
    /// for anything else.
    pub(super) fn open(
        &mut self,
        now: Time,
        random: &mut dyn Random,
        bytes: &[u8],
        seen: &PacketFields,
    ) -> Option<Cookie> {
        self.rotate(now, random);
        let (tag, body) = bytes.split_at_checked(MAC)?;
        let key = *body.first()?;
        if key != self.current && key != self.current.wrapping_sub(1) {
            return None;
        }
        self.mac(key, body, seen).verify_truncated_left(tag).ok()?;
        read(body, seen)
    }
}

fn write_address(out: &mut Vec<u8>, address: IpAddr) {
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

/// A reader of numbers from the front of a byte slice.
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

    fn auth(&mut self) -> Option<Agreed> {
        let [hmac] = self.take::<1>()?;
        let (key, chunks) = (self.list()?, self.list()?);
        Some(Agreed::from_parts(key, u16::from(hmac), chunks))
    }

    /// Reads the destination and source of the INIT, and the addresses it listed.
    fn addresses(&mut self) -> Option<(IpAddr, IpAddr, Vec<IpAddr>)> {
        let count = usize::from(self.take::<1>()?[0]).min(MAX_ADDRESSES);
        let (local, source) = (self.address()?, self.address()?);
        let listed = (0..count).map(|_| self.address()).collect::<Option<Vec<_>>>()?;
        Some((local, source, listed))
    }

    fn address(&mut self) -> Option<IpAddr> {
        match self.take::<1>()? {
            [4] => self.take::<4>().map(IpAddr::from),
            [6] => self.take::<16>().map(IpAddr::from),
            _ => None,
        }
    }
}

fn read(body: &[u8], seen: &PacketFields) -> Option<Cookie> {
    let mut from = Reader(body);
    let [_, parts] = from.take::<2>()?;
    let expires = Time::from_nanos(u64::from_be_bytes(from.take()?));
    let peer_tag = from.u32()?;
    let (local_tsn, peer_tsn) = (Tsn::new(from.u32()?), Tsn::new(from.u32()?));
    let peer_rwnd = from.u32()?;
    let streams = (from.u16()?, from.u16()?);
    let features = Features::from_bits(from.u16()?);
    let ties = if parts & has::TIES != 0 { (from.u32()?, from.u32()?) } else { (0, 0) };
    let auth = if parts & has::AUTH != 0 { Some(from.auth()?) } else { None };
    let (local, source, addresses) = if parts & has::ADDRESSES != 0 {
        from.addresses()?
    } else {
        (seen.local, seen.source, Vec::new())
    };
    let offer = Offer {
        local_tag: seen.tag,
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
        alone: parts & has::ALONE != 0,
    };
    Some(Cookie { expires, ports: seen.ports, offer })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::SplitMix;

    const HOUR: Duration = Duration::from_secs(3600);

    fn cookie(now: Time, n: u32, addresses: Vec<IpAddr>) -> Cookie {
        Cookie {
            expires: now + Duration::from_secs(60),
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
                alone: n.is_multiple_of(2),
            },
        }
    }

    /// Returns the fields of the packet of a valid COOKIE ECHO.
    fn seen(cookie: &Cookie) -> PacketFields {
        let Offer { local_tag: tag, local, source, .. } = cookie.offer;
        PacketFields { ports: cookie.ports, tag, local, source }
    }

    /// RFC 9260 section 5.1.3: the key changes; a cookie of the previous key is valid, one of an older
    /// key is not.
    #[test]
    fn keys_change() {
        let mut random = SplitMix::new(1);
        let mut keys = Keys::new(HOUR, &mut random);
        let start = Time::from_secs(1_000_000);
        let seen = seen(&cookie(start, 1, Vec::new()));
        let sealed = keys.seal(start, &mut random, &cookie(start, 1, Vec::new()));
        let near = start + (HOUR * 2 - Duration::from_secs(1));
        assert!(keys.open(start + HOUR, &mut random, &sealed, &seen).is_some());
        assert!(keys.open(near, &mut random, &sealed, &seen).is_some());
        assert!(keys.open(start + HOUR * 2, &mut random, &sealed, &seen).is_none());
        let other = &mut Keys::new(HOUR, &mut random);
        assert!(other.open(start, &mut random, &sealed, &seen).is_none());
        let late = keys.seal(near, &mut random, &cookie(near, 1, Vec::new()));
        assert!(keys.open(near + HOUR * 9, &mut random, &late, &seen).is_none());
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

    /// A cookie without a list of addresses is small, and valid only between the two addresses of its
    /// INIT.
    #[test]
    fn a_small_cookie_is_bound_to_its_addresses() {
        let mut random = SplitMix::new(1);
        let mut keys = Keys::new(HOUR, &mut random);
        let now = Time::from_secs(5);
        let mut it = cookie(now, 2, Vec::new());
        it.offer.ties = (0, 0);
        let sealed = keys.seal(now, &mut random, &it);
        assert_eq!(sealed.len(), 48);
        let seen = seen(&it);
        assert_eq!(keys.open(now, &mut random, &sealed, &seen), Some(it));
        let other = IpAddr::from([10, 0, 0, 9]);
        for other in [PacketFields { local: other, ..seen }, PacketFields { source: other, ..seen }]
        {
            assert_eq!(keys.open(now, &mut random, &sealed, &other), None);
        }
    }

    proptest! {
        /// RFC 9260 section 5.1.5, step 2: a sealed cookie is read, and nothing that differs in a bit
        /// is.
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
            let seen = seen(&it);
            prop_assert_eq!(keys.open(now, &mut random, &sealed, &seen), Some(it));
            for other in [
                PacketFields { tag: !seen.tag, ..seen },
                PacketFields { ports: (seen.ports.0, 3), ..seen },
                PacketFields { ports: (3, seen.ports.1), ..seen },
            ] {
                prop_assert_eq!(keys.open(now, &mut random, &sealed, &other), None);
            }
            let bit = bit % (sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(keys.open(now, &mut random, &sealed, &seen), None);
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut random = SplitMix::new(2);
            let mut keys = Keys::new(HOUR, &mut random);
            let local = IpAddr::from([10, 0, 0, 1]);
            let seen = PacketFields { ports: (1, 2), tag: 3, local, source: local };
            prop_assert_eq!(keys.open(Time::from_secs(1), &mut random, &bytes, &seen), None);
            let _ = read(&bytes, &seen);
        }
    }
}
