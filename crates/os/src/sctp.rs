//! The interface of the kernel's SCTP: socket options with lists of addresses, and messages with control
//! data (RFC 6458, as in linux/sctp.h).
#![allow(unsafe_code)]

use crate::name::{Name, decode_name, encode_name};
use socket2::{Domain, Socket, Type};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// `SCTP_RTOINFO`: bounds of the RTO, in milliseconds.
pub const RTOINFO: i32 = 0;
/// `SCTP_INITMSG`: streams and attempts of an association to open.
pub const INITMSG: i32 = 2;
/// `SCTP_NODELAY`: small messages are sent at once.
pub const NODELAY: i32 = 3;
/// `SCTP_SET_PEER_PRIMARY_ADDR`: asks the peer to send to an address.
pub const SET_PEER_PRIMARY_ADDR: i32 = 5;
/// `SCTP_PRIMARY_ADDR`: the address of the peer that is sent to.
pub const PRIMARY_ADDR: i32 = 6;
/// `SCTP_PEER_ADDR_PARAMS`: parameters of a path; also asks for a HEARTBEAT.
pub const PEER_ADDR_PARAMS: i32 = 9;
/// `SCTP_EVENTS`: the notifications that are received.
pub const EVENTS: i32 = 11;
/// `SCTP_I_WANT_MAPPED_V4_ADDR`: whether IPv4 addresses are written as IPv6 ones.
pub const MAPPED_V4: i32 = 12;
/// `SCTP_STATUS`: the state of an association.
pub const STATUS: i32 = 14;
/// `SCTP_GET_PEER_ADDR_INFO`: the state of a path.
pub const PEER_ADDR_INFO: i32 = 15;
/// `SCTP_RECVRCVINFO`: messages are received with a [`ReceiveInfo`].
pub const RECVRCVINFO: i32 = 32;
/// Sets a shared key (RFC 6458 section 8.3.2).
pub const AUTH_KEY: i32 = 23;
/// Selects the key to send with (RFC 6458 section 8.1.17).
pub const AUTH_ACTIVE_KEY: i32 = 24;
/// Deletes a key (RFC 6458 section 8.3.4).
pub const AUTH_DELETE_KEY: i32 = 25;
/// `SCTP_SOCKOPT_BINDX_ADD`: adds local addresses.
pub const BINDX_ADD: i32 = 100;
/// `SCTP_SOCKOPT_BINDX_REM`: removes local addresses.
pub const BINDX_REMOVE: i32 = 101;
/// `SCTP_GET_PEER_ADDRS`: the addresses of the peer.
pub const PEER_ADDRS: i32 = 108;
/// `SCTP_GET_LOCAL_ADDRS`: the local addresses.
pub const LOCAL_ADDRS: i32 = 109;
/// `SCTP_SOCKOPT_CONNECTX`: opens an association to a peer with these addresses.
pub const CONNECTX: i32 = 110;
/// `SCTP_GET_ASSOC_STATS`: counters of an association, see [`counts`].
pub const ASSOC_STATS: i32 = 112;
/// `SCTP_ENABLE_STREAM_RESET`: the requests of RFC 6525 that are permitted.
pub const ENABLE_STREAM_RESET: i32 = 118;
/// `SCTP_RESET_STREAMS`: resets streams (RFC 6525 section 6.3.2).
pub const RESET_STREAMS: i32 = 119;
/// `SCTP_RESET_ASSOC`: resets an association (RFC 6525 section 6.3.3).
pub const RESET_ASSOC: i32 = 120;
/// `SCTP_ADD_STREAMS`: adds streams (RFC 6525 section 6.3.4).
pub const ADD_STREAMS: i32 = 121;
/// Sets the scheduler's value of a stream (RFC 8260 section 4.3.3).
pub const STREAM_SCHEDULER_VALUE: i32 = 124;

/// Offset in bytes of the address in the structures that have one.
pub const ADDRESS: usize = 4;
/// Offset of the byte after that address.
pub const ADDRESS_END: usize = ADDRESS + size_of::<libc::sockaddr_storage>();

/// The number of counters of an association (`sctp_assoc_stats`).
pub const COUNTS: usize = 15;
/// The offset of the counters: they follow an association and an address, with the usual alignment.
const COUNTS_AT: usize = std::mem::offset_of!(AssociationStats, counts);

#[repr(C)]
struct AssociationStats {
    association: i32,
    address: libc::sockaddr_storage,
    counts: [u64; COUNTS],
}

/// Flag of a message that is delivered without order.
pub const UNORDERED: u16 = 1;
/// Flag of a message whose SACK is requested at once (RFC 7053).
pub const SACK_IMMEDIATELY: u16 = 8;
/// Policy of partial reliability: a message is abandoned after a time, in milliseconds.
pub const PR_TTL: u16 = 0x10;
/// Policy of partial reliability: a message is abandoned after a number of retransmissions.
pub const PR_RTX: u16 = 0x20;

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
pub struct SendInfo {
    /// The stream.
    pub stream: u16,
    /// [`UNORDERED`], [`SACK_IMMEDIATELY`] or both.
    pub flags: u16,
    /// The payload protocol identifier as on the wire, in network order.
    pub ppid: u32,
    /// The sender's own value, returned with the message if it is not sent.
    pub context: u32,
    /// The association; 0 on a one-to-one socket.
    pub association: i32,
}

/// When a message is abandoned (`sctp_prinfo`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Partial {
    /// [`PR_TTL`] or [`PR_RTX`].
    pub policy: u16,
    /// Milliseconds or retransmissions.
    pub value: u32,
}

/// The attributes of a received message (`sctp_rcvinfo`).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct ReceiveInfo {
    /// The stream.
    pub stream: u16,
    /// The stream sequence number.
    pub ssn: u16,
    /// [`UNORDERED`] or 0.
    pub flags: u16,
    /// The payload protocol identifier as on the wire, in network order.
    pub ppid: u32,
    /// The TSN of the first chunk.
    pub tsn: u32,
    /// The cumulative TSN received.
    pub cumulative: u32,
    /// The receiver's own value.
    pub context: u32,
    /// The association.
    pub association: i32,
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
pub fn encode_addresses(addresses: &[SocketAddr]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &addr in addresses {
        let (name, length) = encode(addr);
        bytes.extend_from_slice(&name[..length]);
    }
    bytes
}

/// Encodes association 0, which is the only one of a one-to-one socket, and an address, padded with zeroes
/// to `size` bytes.
pub fn encode_address(addr: SocketAddr, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(encode_addresses(&[addr]));
    bytes.resize(size.max(ADDRESS_END), 0);
    bytes
}

/// Decodes the first address of a list. Returns it and its size in bytes.
pub fn decode_address(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
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

/// Sets an SCTP option to `value`, the bytes of the option's structure.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set(fd: BorrowedFd<'_>, option: i32, value: &[u8]) -> io::Result<()> {
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
///
/// # Errors
/// The error of getsockopt(2).
pub fn get(fd: BorrowedFd<'_>, option: i32, value: &mut [u8]) -> io::Result<usize> {
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
///
/// # Errors
/// The error of getsockopt(2).
pub fn counts(fd: BorrowedFd<'_>) -> io::Result<[u64; COUNTS]> {
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

/// Sends a whole message, without waiting.
///
/// # Errors
/// `WouldBlock` when the socket has no room for it; else the error of sendmsg(2).
pub fn send(
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
pub struct Received {
    /// The number of bytes appended.
    pub length: usize,
    /// Whether they end a message or a notification.
    pub end: bool,
    /// Whether they are of a notification.
    pub notification: bool,
    /// The attributes of the message; zeroes for a notification.
    pub info: ReceiveInfo,
}

/// Receives a message, part of one, or a notification, and appends it to `out`, without waiting. A length of zero
/// without `end` means that the association has ended.
///
/// # Errors
/// `WouldBlock` when nothing is queued; else the error of recvmsg(2).
pub fn receive(fd: BorrowedFd<'_>, out: &mut Vec<u8>) -> io::Result<Received> {
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
///
/// # Errors
/// The error of the system call that failed.
pub fn abort(socket: &Socket) -> io::Result<()> {
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
