//! The interface of the kernel's SCTP: socket options with lists of addresses, and messages with control
//! data (RFC 6458, as in linux/sctp.h).

use super::name::{Name, decode_name, encode_name};
use socket2::{Domain, Socket, Type};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

pub(crate) const RTOINFO: i32 = 0;
pub(crate) const INITMSG: i32 = 2;
pub(crate) const NODELAY: i32 = 3;
pub(crate) const SET_PEER_PRIMARY_ADDR: i32 = 5;
pub(crate) const PRIMARY_ADDR: i32 = 6;
pub(crate) const PEER_ADDR_PARAMS: i32 = 9;
pub(crate) const EVENTS: i32 = 11;
pub(crate) const MAPPED_V4: i32 = 12;
pub(crate) const STATUS: i32 = 14;
pub(crate) const PEER_ADDR_INFO: i32 = 15;
pub(crate) const RECVRCVINFO: i32 = 32;
pub(crate) const BINDX_ADD: i32 = 100;
pub(crate) const BINDX_REMOVE: i32 = 101;
pub(crate) const PEER_ADDRS: i32 = 108;
pub(crate) const LOCAL_ADDRS: i32 = 109;
pub(crate) const CONNECTX: i32 = 110;
pub(crate) const ASSOC_STATS: i32 = 112;
pub(crate) const ENABLE_STREAM_RESET: i32 = 118;
pub(crate) const RESET_STREAMS: i32 = 119;
pub(crate) const RESET_ASSOC: i32 = 120;
pub(crate) const ADD_STREAMS: i32 = 121;

/// Start and end offsets of the address in the structures that have one.
pub(crate) const ADDRESS: usize = 4;
pub(crate) const ADDRESS_END: usize = ADDRESS + size_of::<libc::sockaddr_storage>();

/// The number of counters of an association (`sctp_assoc_stats`), and their offset: they follow an
/// association and an address, with the usual alignment.
pub(crate) const COUNTS: usize = 15;
const COUNTS_AT: usize = std::mem::offset_of!(AssociationStats, counts);

#[repr(C)]
struct AssociationStats {
    association: i32,
    address: libc::sockaddr_storage,
    counts: [u64; COUNTS],
}

/// Flags of a message.
pub(crate) const UNORDERED: u16 = 1;
pub(crate) const SACK_IMMEDIATELY: u16 = 8;
/// Policies of partial reliability.
pub(crate) const PR_TTL: u16 = 0x10;
pub(crate) const PR_RTX: u16 = 0x20;

/// `msg_flags` of a notification.
const MSG_NOTIFICATION: i32 = 0x8000;

/// Kinds of control message.
const SNDINFO: i32 = 2;
const RCVINFO: i32 = 3;
const PRINFO: i32 = 5;

/// Maximum number of bytes of one receive call; the rest of a longer message follows.
const MAX_RECEIVE: usize = 64 << 10;

/// The attributes of a message to send (`sctp_sndinfo`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct SendInfo {
    pub(crate) stream: u16,
    pub(crate) flags: u16,
    /// As on the wire, in network order.
    pub(crate) ppid: u32,
    pub(crate) context: u32,
    pub(crate) association: i32,
}

/// When a message is abandoned (`sctp_prinfo`).
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Partial {
    pub(crate) policy: u16,
    pub(crate) value: u32,
}

/// The attributes of a received message (`sctp_rcvinfo`).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct ReceiveInfo {
    pub(crate) stream: u16,
    pub(crate) ssn: u16,
    pub(crate) flags: u16,
    pub(crate) ppid: u32,
    pub(crate) tsn: u32,
    pub(crate) cumulative: u32,
    pub(crate) context: u32,
    pub(crate) association: i32,
}

/// Encodes an address as a C structure. Returns its bytes and their number.
fn encode(addr: SocketAddr) -> ([u8; size_of::<Name>()], usize) {
    // SAFETY: a union of plain C structures, for which all zeroes is a value.
    let mut name: Name = unsafe { MaybeUninit::zeroed().assume_init() };
    let length = encode_name(addr, &mut name) as usize;
    // SAFETY: all bytes were set, to zero at first; the sizes are the same.
    (unsafe { std::mem::transmute::<Name, [u8; size_of::<Name>()]>(name) }, length)
}

/// Encodes a list of addresses as the options take it: one after the other.
pub(crate) fn encode_addresses(addresses: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &addr in addresses {
        let (name, length) = encode(addr);
        bytes.extend_from_slice(&name[..length]);
    }
    bytes
}

/// Encodes association 0, which is the only one of a one-to-one socket, and an address, padded with zeroes
/// to `size` bytes.
pub(crate) fn encode_address(addr: SocketAddr, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(encode_addresses(&[addr]));
    bytes.resize(size.max(ADDRESS_END), 0);
    bytes
}

/// Decodes the first address of a list. Returns it and its size in bytes.
pub(crate) fn decode_address(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
    let family = libc::c_int::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
    let length = match family {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        _ => return None,
    };
    let mut name = [0; size_of::<Name>()];
    name[..length].copy_from_slice(bytes.get(..length)?);
    // SAFETY: a union of structures of integers, which have no invalid values; the sizes are the same.
    let name = unsafe { std::mem::transmute::<[u8; size_of::<Name>()], Name>(name) };
    Some((decode_name(&name)?, length))
}

/// Sets an SCTP option to `value`.
pub(crate) fn set(fd: BorrowedFd<'_>, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the pointer is to live bytes and the length is their own.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_SCTP,
            option,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an SCTP option into `value`, whose bytes select what is read. Returns the number of bytes
/// written.
pub(crate) fn get(fd: BorrowedFd<'_>, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads and writes at most `length` bytes of `value`, which has so many, and
    // the number written into `length`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_SCTP,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// Reads the counters of a one-to-one socket's association, in the order of `sctp_assoc_stats`, from the
/// longest RTO on.
pub(crate) fn counts(fd: BorrowedFd<'_>) -> io::Result<[u64; COUNTS]> {
    let mut value = [0; size_of::<AssociationStats>()];
    get(fd, ASSOC_STATS, &mut value)?;
    let mut counts = [0; COUNTS];
    for (count, bytes) in counts.iter_mut().zip(value[COUNTS_AT..].as_chunks().0) {
        *count = u64::from_ne_bytes(*bytes);
    }
    Ok(counts)
}

#[repr(C, align(8))]
struct Control([u8; 128]);

/// Sends a whole message.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    bytes: &[u8],
    info: SendInfo,
    partial: Option<Partial>,
) -> io::Result<()> {
    let mut control = Control([0; 128]);
    let mut used = 0;
    let mut append = |kind, bytes: &[u8]| {
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        let (space, length) = unsafe {
            let size = bytes.len() as u32;
            (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size))
        };
        assert!(used + space <= control.0.len(), "room for both control messages");
        // SAFETY: the message lies within the buffer, as was just checked, and is aligned as
        // `cmsghdr` requires, because the buffer is and CMSG_SPACE keeps it so.
        unsafe {
            let at = control.0.as_mut_ptr().add(used).cast::<libc::cmsghdr>();
            (*at).cmsg_level = libc::IPPROTO_SCTP;
            (*at).cmsg_type = kind;
            (*at).cmsg_len = length as _;
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), libc::CMSG_DATA(at), bytes.len());
        }
        used += space;
    };
    let SendInfo { stream, flags, ppid, context, association } = info;
    let mut value = [0; size_of::<SendInfo>()];
    value[..2].copy_from_slice(&stream.to_ne_bytes());
    value[2..4].copy_from_slice(&flags.to_ne_bytes());
    value[4..8].copy_from_slice(&ppid.to_ne_bytes());
    value[8..12].copy_from_slice(&context.to_ne_bytes());
    value[12..].copy_from_slice(&association.to_ne_bytes());
    append(SNDINFO, &value);
    if let Some(Partial { policy, value }) = partial {
        let mut bytes = [0; size_of::<Partial>()];
        bytes[..2].copy_from_slice(&policy.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        append(PRINFO, &bytes);
    }
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: `msghdr` is a plain C structure for which all zeroes is a value.
    let mut header = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1 as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = used as _;
    // SAFETY: every pointer in `header` points at a live local or at `bytes`, with their own lengths;
    // the kernel only reads through them.
    let sent =
        unsafe { libc::sendmsg(fd.as_raw_fd(), &header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    if sent >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The result of a receive call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) length: usize,
    /// Whether it ends a message or a notification.
    pub(crate) end: bool,
    pub(crate) notification: bool,
    pub(crate) info: ReceiveInfo,
}

/// Receives a message, part of one, or a notification, and appends it to `out`. A length of zero without
/// `end` means that the association has ended.
pub(crate) fn receive(fd: BorrowedFd<'_>, out: &mut Vec<u8>) -> io::Result<Received> {
    out.reserve(MAX_RECEIVE);
    let start = out.len();
    let mut control = Control([0; 128]);
    let mut vector = libc::iovec {
        iov_base: out.spare_capacity_mut().as_mut_ptr().cast(),
        iov_len: MAX_RECEIVE,
    };
    // SAFETY: `msghdr` is a plain C structure for which all zeroes is a value.
    let mut header = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1 as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer in `header` points at a live local or at the spare capacity of `out`, of
    // which at least MAX_RECEIVE bytes were reserved.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) };
    let Ok(length) = usize::try_from(got) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel wrote so many bytes after the first `start`, at most MAX_RECEIVE.
    unsafe { out.set_len(start + length.min(MAX_RECEIVE)) };
    let mut info = ReceiveInfo::default();
    // SAFETY: the kernel filled `control` and set its length, so the macros walk valid headers
    // inside it; the payload is read, unaligned, only after its length was checked.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while !at.is_null() {
            let expected = libc::CMSG_LEN(size_of::<ReceiveInfo>() as u32) as usize;
            if (*at).cmsg_level == libc::IPPROTO_SCTP
                && (*at).cmsg_type == RCVINFO
                && (*at).cmsg_len as usize >= expected
            {
                info = libc::CMSG_DATA(at).cast::<ReceiveInfo>().read_unaligned();
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    let has = |flag| header.msg_flags & flag != 0;
    let (end, notification) = (has(libc::MSG_EOR), has(MSG_NOTIFICATION));
    Ok(Received { length: out.len() - start, end, notification, info })
}

/// Aborts the association of a socket, which only closing it does: its descriptor is replaced by that of
/// another, unconnected socket.
pub(crate) fn abort(socket: &Socket) -> io::Result<()> {
    socket.set_linger(Some(Duration::ZERO))?;
    let unconnected = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    // SAFETY: both descriptors are open and owned by live sockets. The owner of the second still
    // owns a socket, and nothing relies on which one.
    let done = unsafe { libc::dup3(unconnected.as_raw_fd(), socket.as_raw_fd(), libc::O_CLOEXEC) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_addresses_are_decoded() {
        let addresses: Vec<SocketAddr> =
            ["10.0.0.1:5060", "[2001:db8::1]:5061"].map(|a| a.parse().unwrap()).into();
        let bytes = encode_addresses(&addresses);
        assert_eq!(bytes.len(), 16 + 28);
        assert_eq!(decode_address(&bytes), Some((addresses[0], 16)));
        assert_eq!(decode_address(&bytes[16..]), Some((addresses[1], 28)));
        assert_eq!(decode_address(&bytes[..15]), None);
        assert_eq!(decode_address(&[]), None);
    }

    /// As in linux/sctp.h.
    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        assert_eq!(size_of::<SendInfo>(), 16);
        assert_eq!(size_of::<ReceiveInfo>(), 28);
        assert_eq!(size_of::<Partial>(), 8);
        assert_eq!(ADDRESS_END, 132);
        #[cfg(target_pointer_width = "64")]
        assert_eq!((COUNTS_AT, size_of::<AssociationStats>()), (136, 256));
    }
}
