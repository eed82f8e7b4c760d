//! Addresses in the C library's structures.

use crate::errno::{Errno, Result};
use crate::system::Named;
use libc::{c_int, sockaddr, socklen_t};
use ringway_with_wire::address::mapped;
use ringway_with_wire::name::MAX_NAME;
use ringway_with_wire::{BrokerId, Name};
use std::mem::{offset_of, size_of};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

/// Octets of a Unix address before its name.
const NAME: usize = offset_of!(libc::sockaddr_un, sun_path);

/// Returns the family of an address; 0 where there is none.
///
/// # Safety
/// The pointer is null or to so many octets.
pub(crate) unsafe fn family(address: *const sockaddr, length: socklen_t) -> c_int {
    if address.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { (&raw const (*address).sa_family).read_unaligned() }.into()
}

/// Reads an address of IPv4 or IPv6.
///
/// # Errors
/// EINVAL where it is too short, EAFNOSUPPORT for any other family, as of connect(2).
///
/// # Safety
/// The pointer is null or to so many octets.
pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Result<SocketAddr> {
    // SAFETY: the caller's.
    let family = unsafe { family(address, length) };
    let length = length as usize;
    match family {
        // The last field of the structure, since Linux 2.4, may be absent.
        libc::AF_INET6 if length < size_of::<libc::sockaddr_in6>() - 4 => Err(Errno(libc::EINVAL)),
        libc::AF_INET if length < size_of::<libc::sockaddr_in>() => Err(Errno(libc::EINVAL)),
        libc::AF_INET => {
            // SAFETY: there are enough octets.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = v4.sin_addr.s_addr.to_ne_bytes();
            Ok(SocketAddrV4::new(ip.into(), u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            let whole = length >= size_of::<libc::sockaddr_in6>();
            let start = address.cast::<u8>();
            // SAFETY: there are enough octets for each field that is read.
            let (port, ip, scope) = unsafe {
                let at = |offset| start.add(offset);
                let port = at(offset_of!(libc::sockaddr_in6, sin6_port)).cast::<u16>();
                let ip = at(offset_of!(libc::sockaddr_in6, sin6_addr)).cast::<[u8; 16]>();
                let scope = at(offset_of!(libc::sockaddr_in6, sin6_scope_id)).cast::<u32>();
                let scope = if whole { scope.read_unaligned() } else { 0 };
                (port.read_unaligned(), ip.read_unaligned(), scope)
            };
            Ok(SocketAddrV6::new(ip.into(), u16::from_be(port), 0, scope).into())
        }
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes octets of an address where the program wants it, as much as there is room for, and the whole length.
///
/// # Errors
/// EFAULT without a pointer, EINVAL for a negative length.
///
/// # Safety
/// The pointers are null, or to a length and to so many octets.
pub(crate) unsafe fn write_octets(
    octets: &[u8],
    whole: socklen_t,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<()> {
    if address.is_null() || length.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's.
    unsafe {
        let room = length.read_unaligned();
        if c_int::try_from(room).is_err() {
            return Err(Errno(libc::EINVAL));
        }
        let count = octets.len().min(room as usize);
        std::ptr::copy_nonoverlapping(octets.as_ptr(), address.cast::<u8>(), count);
        length.write_unaligned(whole);
    }
    Ok(())
}

/// Returns an address of IPv4 or IPv6 that the kernel has written; `None` for any other.
pub(crate) fn of(named: &Named) -> Option<SocketAddr> {
    let length = named.octets().len() as socklen_t;
    // SAFETY: there are so many octets.
    unsafe { read((&raw const named.storage).cast(), length) }.ok()
}

/// Writes an address as a socket of its family shows it.
///
/// # Errors
/// As [`write_octets`].
///
/// # Safety
/// As [`write_octets`].
pub(crate) unsafe fn write(
    shown: SocketAddr,
    ipv6: bool,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> Result<()> {
    let named = named(shown, ipv6);
    // SAFETY: the caller's.
    unsafe { write_octets(named.octets(), named.length, address, length) }
}

/// Returns an address as a socket of its family shows it.
pub(crate) fn named(shown: SocketAddr, ipv6: bool) -> Named {
    let mut named = Named::empty();
    let shown = if ipv6 { mapped(shown) } else { shown };
    let whole = match shown {
        SocketAddr::V4(v4) => {
            let at: *mut libc::sockaddr_in = named.pointer().cast();
            // SAFETY: the storage is large enough, aligned and initialised.
            let at = unsafe { &mut *at };
            at.sin_family = libc::AF_INET as libc::sa_family_t;
            at.sin_port = v4.port().to_be();
            at.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let at: *mut libc::sockaddr_in6 = named.pointer().cast();
            // SAFETY: as above.
            let at = unsafe { &mut *at };
            at.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            at.sin6_port = v6.port().to_be();
            at.sin6_addr.s6_addr = v6.ip().octets();
            at.sin6_scope_id = v6.scope_id();
            size_of::<libc::sockaddr_in6>()
        }
    };
    named.length = whole as socklen_t;
    named
}

/// Returns the Unix address of a name.
pub(crate) fn unix(name: &Name, broker: BrokerId) -> Result<(libc::sockaddr_un, socklen_t)> {
    let mut octets = [0; MAX_NAME];
    let length = name.write(broker, &mut octets).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: the structure is integers, for which zero is a value.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // The first octet stays zero: the name is in the abstract namespace.
    for (to, from) in address.sun_path[1..].iter_mut().zip(&octets[..length]) {
        *to = *from as libc::c_char;
    }
    Ok((address, (NAME + 1 + length) as socklen_t))
}

/// Reads the name in a Unix address. Returns `None` unless it is one of this broker's.
pub(crate) fn name(named: &Named, broker: BrokerId) -> Option<Name> {
    if named.family() != libc::AF_UNIX {
        return None;
    }
    match named.octets().get(NAME..)? {
        [0, name @ ..] => Name::read(broker, name),
        _ => None,
    }
}
