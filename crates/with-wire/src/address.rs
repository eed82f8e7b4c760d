//! Socket addresses as octets of a fixed length.

use crate::FormatError;
use crate::cursor::{Reader, Writer};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Octets of an address: family, address, port and scope.
pub const LENGTH: usize = 1 + 16 + 2 + 4;

pub(crate) fn write(writer: &mut Writer<'_>, address: &SocketAddr) -> Result<(), FormatError> {
    let (family, ip, scope) = match address {
        SocketAddr::V4(v4) => {
            let mut ip = [0; 16];
            ip[..4].copy_from_slice(&v4.ip().octets());
            (4, ip, 0)
        }
        SocketAddr::V6(v6) => (6, v6.ip().octets(), v6.scope_id()),
    };
    writer.u8(family)?;
    writer.bytes(&ip)?;
    writer.u16(address.port())?;
    writer.u32(scope)
}

pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SocketAddr, FormatError> {
    let family = reader.u8()?;
    let ip: [u8; 16] = reader.array()?;
    let (port, scope) = (reader.u16()?, reader.u32()?);
    match family {
        4 => {
            let [a, b, c, d, ..] = ip;
            Ok(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port).into())
        }
        6 => Ok(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into()),
        got => Err(FormatError::Value { what: "address family", got: got.into() }),
    }
}

/// Returns the address as a socket of IPv6 shows it: one of IPv4 is mapped (RFC 4291 section 2.5.5.2).
pub fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        SocketAddr::V6(_) => address,
    }
}

/// Returns the address with a mapped one as that of IPv4.
pub fn unmapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => (v4, v6.port()).into(),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_and_read() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:65535", "[fe80::1%7]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut octets = [0; LENGTH];
            write(&mut Writer::new(&mut octets), &address).unwrap();
            assert_eq!(read(&mut Reader(&octets)), Ok(address));
        }
        assert!(read(&mut Reader(&[5; LENGTH])).is_err());
        assert!(read(&mut Reader(&[4; LENGTH - 1])).is_err());
    }

    #[test]
    fn an_address_of_ipv4_is_mapped_and_back() {
        let v4: SocketAddr = "192.0.2.1:80".parse().unwrap();
        assert_eq!(mapped(v4), "[::ffff:192.0.2.1]:80".parse().unwrap());
        assert_eq!(unmapped(mapped(v4)), v4);
        let v6: SocketAddr = "[::1]:80".parse().unwrap();
        assert_eq!((mapped(v6), unmapped(v6)), (v6, v6));
    }
}
