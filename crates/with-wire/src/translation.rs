//! The table by which the library translates addresses of datagrams, in memory that the broker shares with it.
//!
//! For a peer whose datagrams the broker carries it has a socket of UDP on the loopback interface, a proxy. A row says for a
//! socket of the program, which is known by its inode, and a peer's address to which proxy its datagrams go, or that they go
//! to the peer. Another, of [`EVERY_SOCKET`] and a proxy's address, says which peer that stands for.
//!
//! The broker writes rows while the library reads them, in other processes. Each row carries a checksum, so that one which
//! is half written is none; then a datagram travels by UDP, or is looked up by the next call.

use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Rows of the table.
pub const ROWS: usize = 1 << 13;
/// Rows at which an entry may be: so many from the one that its hash names.
pub const PROBES: usize = 16;
/// Words of a row.
pub const WORDS: usize = 8;
/// Octets of the table.
pub const OCTETS: usize = ROWS * WORDS * 8;
/// The socket in a row for proxies.
pub const EVERY_SOCKET: u64 = 0;

/// A row as it is in memory: a checksum, the socket, the address that is looked up, and the one that stands for it.
pub type Row = [u64; WORDS];
/// A row that says nothing.
pub const NONE: Row = [0; WORDS];

/// What a row is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// The inode of the program's socket, or [`EVERY_SOCKET`].
    pub socket: u64,
    /// The address.
    pub address: SocketAddr,
}

impl Key {
    /// Returns a number that hardly another key has, and never 0.
    pub fn fingerprint(&self) -> u64 {
        let [a, b, c] = address_words(Some(self.address));
        mix([a, b, c, self.socket]) | 1
    }

    /// Returns the rows at which this key may be.
    pub fn rows(&self) -> impl Iterator<Item = usize> + use<> {
        let [a, b, c] = address_words(Some(self.address));
        let start = mix([self.socket, a, b, c]) as usize;
        (0..PROBES).map(move |index| start.wrapping_add(index) % ROWS)
    }

    /// Returns the row of this key. Without a target, datagrams go to the address itself.
    pub fn row(&self, target: Option<SocketAddr>) -> Row {
        let ([a, b, c], [d, e, f]) = (address_words(Some(self.address)), address_words(target));
        let words = [self.socket, a, b, c, d, e, f];
        let [socket, a, b, c, d, e, f] = words;
        [check(words), socket, a, b, c, d, e, f]
    }

    /// Reads a row. `None` unless it is whole and this key's.
    pub fn read(&self, row: &Row) -> Option<Option<SocketAddr>> {
        let [sum, socket, a, b, c, d, e, f] = *row;
        let is_mine = socket == self.socket && [a, b, c] == address_words(Some(self.address));
        let is_whole = sum == check([socket, a, b, c, d, e, f]);
        (is_mine && is_whole).then(|| address([d, e, f]))
    }
}

/// Returns an address in words: those of IPv6, in which one of IPv4 is mapped, and port, family and scope.
fn address_words(address: Option<SocketAddr>) -> [u64; 3] {
    let Some(address) = address else { return [0; 3] };
    let (ip, family, scope) = match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 4, 0),
        SocketAddr::V6(v6) => (*v6.ip(), 6, v6.scope_id()),
    };
    let ip = ip.to_bits();
    let rest = u64::from(scope) << 32 | family << 16 | u64::from(address.port());
    [(ip >> 64) as u64, ip as u64, rest]
}

fn address([high, low, rest]: [u64; 3]) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low));
    let port = rest as u16;
    match (rest >> 16) as u16 {
        4 => Some((IpAddr::V4(ip.to_ipv4_mapped()?), port).into()),
        6 => Some(SocketAddrV6::new(ip, port, 0, (rest >> 32) as u32).into()),
        _ => None,
    }
}

/// Returns a checksum, never that of [`NONE`].
fn check(words: [u64; 7]) -> u64 {
    let [a, b, c, d, e, f, g] = words;
    mix([mix([a, b, c, d]), e, f, g]) | 1
}

/// Mixes words so that each bit of the result depends on all: multiplications by odd constants, of which high bits are
/// folded into low ones.
fn mix(words: [u64; 4]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    words.iter().fold(FACTOR, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(FACTOR);
        (hash ^ hash >> 29).wrapping_mul(FACTOR) ^ hash >> 32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(socket: u64, address: &str) -> Key {
        Key { socket, address: address.parse().unwrap() }
    }

    #[test]
    fn rows_are_written_and_read() {
        for (from, to) in [
            ("192.0.2.1:53", Some("127.82.0.1:40000")),
            ("[2001:db8::1]:5060", Some("[::1]:40000")),
            ("[fe80::1%7]:1", None),
        ] {
            let key = key(77, from);
            let target = to.map(|to| to.parse().unwrap());
            let row = key.row(target);
            assert_eq!(key.read(&row), Some(target));
            assert_eq!(Key { socket: 78, ..key }.read(&row), None);
            assert_eq!(key.read(&NONE), None);
            assert_eq!(key.rows().count(), PROBES);
        }
    }

    #[test]
    fn a_row_that_is_half_written_is_none() {
        let key = key(5, "192.0.2.1:53");
        let (old, new) = (key.row(None), key.row(Some("127.82.0.1:9".parse().unwrap())));
        for written in 1..WORDS {
            let mut row = old;
            row[..written].copy_from_slice(&new[..written]);
            if row != new {
                assert_eq!(key.read(&row), None, "{written} words");
            }
        }
    }

    proptest! {
        #[test]
        fn any_words_with_a_checksum_are_read_or_refused(socket: u64, target: [u64; 3]) {
            let key = key(socket, "192.0.2.1:53");
            let [_, socket, a, b, c, ..] = key.row(None);
            let [d, e, f] = target;
            let sum = check([socket, a, b, c, d, e, f]);
            let row = [sum, socket, a, b, c, d, e, f];
            prop_assert_eq!(key.read(&row), Some(address(target)));
            for word in 0..WORDS {
                let mut other = row;
                other[word] = !other[word];
                prop_assert_eq!(key.read(&other), None, "word {}", word);
            }
        }

        #[test]
        fn an_address_in_words_is_read_again(ip: IpAddr, port: u16, scope: u32) {
            let one = match ip {
                IpAddr::V4(ip) => SocketAddr::from((ip, port)),
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
            };
            prop_assert_eq!(address(address_words(Some(one))), Some(one));
        }
    }
}
