//! Receiving many datagrams in one system call, into memory that does not move.
//!
//! The headers are filled once. Before each call only the fields that the kernel wrote in the last one
//! are reset, so that a call that returns one datagram costs the work of one.
#![allow(unsafe_code)]

use crate::name::{Name, decode_name};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Maximum number of receptions of one call. Each is a datagram, or several that the system coalesced.
pub const RECEIVE_BATCH: usize = 32;

/// Size of a buffer for the largest datagram, or a train of coalesced ones: 65,535 bytes and enough more
/// that the buffers do not start on the same cache lines.
const BUFFER: usize = 65_536 + 9 * 64;

/// Size of a buffer for the control messages of a datagram: its destination address, of either family,
/// the ECN bits, the hop limit, and the segment size of a train.
const CONTROL: usize = 112;

/// The ECN bits of the traffic class (RFC 3168 section 5).
const ECN_BITS: u8 = 0b11;

#[repr(C, align(8))]
struct Control([u8; CONTROL]);

#[repr(C)]
struct Arrays {
    headers: [libc::mmsghdr; RECEIVE_BATCH],
    vectors: [libc::iovec; RECEIVE_BATCH],
    names: [Name; RECEIVE_BATCH],
    controls: [Control; RECEIVE_BATCH],
    buffers: [[u8; BUFFER]; RECEIVE_BATCH],
}

/// A datagram, or a train of datagrams that the system coalesced.
#[derive(Clone, Copy, Debug)]
pub struct Reception<'a> {
    /// The peer's address.
    pub remote: SocketAddr,
    /// The destination address, where the socket reports it.
    pub local: Option<IpAddr>,
    /// The index of the interface that it came by, where the socket reports it; otherwise 0.
    pub interface: u32,
    /// The ECN bits, where the socket reports them.
    pub ecn: u8,
    /// The hop limit of IPv6 that was left, where the socket reports it.
    pub hop_limit: Option<u8>,
    bytes: &'a [u8],
    /// The size of every datagram but the last, which may be shorter.
    stride: usize,
}

impl<'a> Reception<'a> {
    /// Returns the datagrams. An empty one is a slice of no bytes.
    pub fn datagrams(self) -> impl Iterator<Item = &'a [u8]> {
        let Reception { bytes, stride, .. } = self;
        let pieces = if bytes.len() <= stride { 1 } else { bytes.len().div_ceil(stride) };
        (0..pieces).map(move |i| &bytes[i * stride..((i + 1) * stride).min(bytes.len())])
    }

    /// Returns all the bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// A reception whose bytes may be changed, as decryption does.
#[derive(Debug)]
pub struct ReceptionMut<'a> {
    /// The peer's address.
    pub remote: SocketAddr,
    /// The index of the interface that it came by, where the socket reports it; otherwise 0.
    pub interface: u32,
    /// The hop limit of IPv6 that was left, where the socket reports it.
    pub hop_limit: Option<u8>,
    bytes: &'a mut [u8],
    stride: usize,
}

impl<'a> ReceptionMut<'a> {
    /// Returns the datagrams that are not empty.
    pub fn datagrams(self) -> impl Iterator<Item = &'a mut [u8]> {
        self.bytes.chunks_mut(self.stride.max(1))
    }
}

/// Reusable buffers for `recvmmsg`: about 2 MiB of address space, of which the system allocates what is used.
pub struct ReceiveBatch {
    /// Owned. A pointer, because the headers in it point into it.
    arrays: NonNull<Arrays>,
    /// The number of headers that the last call used.
    used: usize,
}

impl ReceiveBatch {
    /// Creates empty buffers.
    pub fn new() -> Self {
        let layout = Layout::new::<Arrays>();
        // SAFETY: the layout is not of size zero. All zeroes is a value of `Arrays`: plain C
        // structures of integers and null pointers, and bytes. Memory that is not written to is
        // not yet allocated by the system.
        let Some(arrays) = NonNull::new(unsafe { alloc_zeroed(layout) }.cast::<Arrays>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: `arrays` has just been allocated and zeroed, and nothing else owns it.
        // The pointers stored are made from `arrays` itself and stay valid until it is freed; no
        // reference to the whole is created afterwards.
        unsafe {
            let a = arrays.as_ptr();
            for i in 0..RECEIVE_BATCH {
                let vector = &raw mut (*a).vectors[i];
                (*vector).iov_base = (&raw mut (*a).buffers[i]).cast();
                (*vector).iov_len = BUFFER;
                let header = &raw mut (*a).headers[i].msg_hdr;
                (*header).msg_iov = vector;
                (*header).msg_iovlen = 1 as _;
                (*header).msg_name = (&raw mut (*a).names[i]).cast();
                (*header).msg_control = (&raw mut (*a).controls[i]).cast();
            }
        }
        ReceiveBatch { arrays, used: RECEIVE_BATCH }
    }

    /// Receives what is queued at a datagram or raw socket, without waiting. Returns the number of receptions, at
    /// most [`RECEIVE_BATCH`]; fewer than that only when the queue is empty now.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is queued; else the error of recvmmsg(2), except that an interrupted call is
    /// repeated.
    pub fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        self.receive_at_most(fd, RECEIVE_BATCH)
    }

    /// Receives like [`receive`](ReceiveBatch::receive), but at most `limit` receptions.
    ///
    /// # Errors
    /// As `receive`.
    pub fn receive_at_most(&mut self, fd: BorrowedFd<'_>, limit: usize) -> io::Result<usize> {
        let a = self.arrays.as_ptr();
        loop {
            for i in 0..self.used {
                // SAFETY: `a` is valid and not shared while `self` is borrowed mutably, and i is
                // below RECEIVE_BATCH.
                unsafe {
                    let header = &raw mut (*a).headers[i].msg_hdr;
                    (*header).msg_namelen = size_of::<Name>() as libc::socklen_t;
                    (*header).msg_controllen = CONTROL as _;
                }
            }
            self.used = 0;
            // SAFETY: every header points at a buffer, a name and a control buffer in `*a`, with
            // their own lengths; the kernel writes within them.
            let got = unsafe {
                libc::recvmmsg(
                    fd.as_raw_fd(),
                    (&raw mut (*a).headers).cast(),
                    limit.min(RECEIVE_BATCH) as libc::c_uint,
                    libc::MSG_DONTWAIT,
                    std::ptr::null_mut(),
                )
            };
            if let Ok(got) = usize::try_from(got) {
                self.used = got.min(RECEIVE_BATCH);
                return Ok(self.used);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Returns the reception `i` of the last call. `None` when the call returned fewer, or when the
    /// sender has no internet address.
    pub fn get(&self, i: usize) -> Option<Reception<'_>> {
        if i >= self.used {
            return None;
        }
        let a = self.arrays.as_ptr();
        // SAFETY: `*a` is valid and initialised, and i is below RECEIVE_BATCH. It is changed only by
        // `receive` and through `receptions_mut`, which no reference made here outlives.
        let (header, name, buffer) =
            unsafe { (&(*a).headers[i], &(*a).names[i], &(*a).buffers[i]) };
        let bytes = &buffer[..(header.msg_len as usize).min(BUFFER)];
        // SAFETY: the kernel filled the header in the last call.
        let reception = unsafe { describe(header, name) }?;
        Some(Reception { bytes, ..reception })
    }

    /// Returns the receptions of the last call, except those whose sender has no internet address.
    pub fn receptions_mut(&mut self) -> impl Iterator<Item = ReceptionMut<'_>> {
        let a = self.arrays.as_ptr();
        (0..self.used).filter_map(move |i| {
            // SAFETY: `*a` is valid and initialised, and i is below RECEIVE_BATCH. It is borrowed mutably for as long
            // as what is returned, and every buffer is returned once.
            let (header, name, buffer) =
                unsafe { (&(*a).headers[i], &(*a).names[i], &mut (*a).buffers[i]) };
            let bytes = &mut buffer[..(header.msg_len as usize).min(BUFFER)];
            // SAFETY: the kernel filled the header in the last call.
            let Reception { remote, interface, hop_limit, stride, .. } =
                unsafe { describe(header, name) }?;
            Some(ReceptionMut { remote, interface, hop_limit, bytes, stride })
        })
    }
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: it owns what it points at, as a box does.
unsafe impl Send for ReceiveBatch {}

impl Drop for ReceiveBatch {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout; nothing in it needs dropping.
        unsafe { dealloc(self.arrays.as_ptr().cast(), Layout::new::<Arrays>()) }
    }
}

/// Returns what is known of a reception besides its bytes. `None` when the sender has no internet address.
///
/// # Safety
/// The header must be one that the kernel has filled, together with the name.
unsafe fn describe(header: &libc::mmsghdr, name: &Name) -> Option<Reception<'static>> {
    let mut reception = Reception {
        remote: decode_name(name)?,
        local: None,
        interface: 0,
        ecn: 0,
        hop_limit: None,
        bytes: &[],
        stride: (header.msg_len as usize).min(BUFFER),
    };
    if header.msg_hdr.msg_controllen > 0 {
        // SAFETY: the kernel filled this header and the control buffer it points at.
        unsafe { read_control(&header.msg_hdr, &mut reception) };
    }
    Some(reception)
}

/// # Safety
/// The header must be one that the kernel has filled.
unsafe fn read_control(header: &libc::msghdr, reception: &mut Reception<'_>) {
    // SAFETY: the kernel wrote valid control messages and set their length, so the macros walk inside
    // them; a payload is read, unaligned, only after its length was checked.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(header);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            let has = |size: usize| (*at).cmsg_len as usize >= libc::CMSG_LEN(size as u32) as usize;
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if has(size_of::<libc::in_pktinfo>()) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let ip = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    reception.local = Some(ip.into());
                    reception.interface = info.ipi_ifindex as u32;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if has(size_of::<libc::in6_pktinfo>()) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    reception.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                    reception.interface = info.ipi6_ifindex as u32;
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => reception.ecn = data.read() & ECN_BITS,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if has(size_of::<libc::c_int>()) => {
                    let class = data.cast::<libc::c_int>().read_unaligned();
                    reception.ecn = class as u8 & ECN_BITS;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) if has(size_of::<libc::c_int>()) => {
                    let limit = data.cast::<libc::c_int>().read_unaligned();
                    reception.hop_limit = u8::try_from(limit).ok();
                }
                (libc::SOL_UDP, libc::UDP_GRO) if has(size_of::<libc::c_int>()) => {
                    let stride = data.cast::<libc::c_int>().read_unaligned();
                    reception.stride = usize::try_from(stride).unwrap_or(0).max(1);
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(header, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set_option;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    /// Sends datagrams and receives them, one call each time.
    fn exchange(options: &[(i32, i32)], addr: &str) -> (ReceiveBatch, UdpSocket) {
        let receiver = UdpSocket::bind(addr).unwrap();
        for (level, option) in options {
            set_option(receiver.as_fd(), *level, *option, 1).unwrap();
        }
        let sender = UdpSocket::bind(addr).unwrap();
        let mut batch = ReceiveBatch::new();
        let to = receiver.local_addr().unwrap();
        let nothing = batch.receive(receiver.as_fd()).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        for count in [1, 3, RECEIVE_BATCH, 2] {
            for n in 0..count {
                sender.send_to(&vec![n as u8; 10 * n], to).unwrap();
            }
            assert_eq!(batch.receive(receiver.as_fd()).unwrap(), count);
            for n in 0..count {
                let reception = batch.get(n).unwrap();
                assert_eq!(reception.remote, sender.local_addr().unwrap());
                assert_eq!(reception.bytes().len(), 10 * n);
                let datagrams: Vec<_> = reception.datagrams().collect();
                assert_eq!(datagrams, [vec![n as u8; 10 * n]]);
            }
            assert!(batch.get(count).is_none());
        }
        (batch, receiver)
    }

    /// Control messages that were not requested cost nothing with each datagram.
    #[test]
    fn a_bound_socket_returns_no_control_messages() {
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            let (batch, _socket) = exchange(&[(libc::SOL_UDP, libc::UDP_GRO)], addr);
            assert_eq!(batch.get(1).unwrap().local, None);
            // SAFETY: valid and initialised.
            assert_eq!(unsafe { (*batch.arrays.as_ptr()).headers[1].msg_hdr.msg_controllen }, 0);
        }
    }

    #[test]
    fn the_destination_of_a_datagram_is_reported() {
        for (level, option, addr) in [
            (libc::IPPROTO_IP, libc::IP_PKTINFO, "127.0.0.1:0"),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "[::1]:0"),
        ] {
            let (batch, socket) =
                exchange(&[(level, option), (libc::SOL_UDP, libc::UDP_GRO)], addr);
            let reception = batch.get(0).unwrap();
            assert_eq!(reception.local, Some(socket.local_addr().unwrap().ip()));
            // The loopback interface is the first of every host.
            assert_eq!((reception.interface, reception.hop_limit), (1, None));
        }
    }

    #[test]
    fn the_control_buffer_has_room_for_all_control_messages() {
        // SAFETY: CMSG_SPACE only computes.
        let (v4, v6, train) = unsafe {
            (
                libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as u32) as usize,
                libc::CMSG_SPACE(size_of::<libc::in6_pktinfo>() as u32) as usize,
                libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as usize,
            )
        };
        // The ECN bits and the hop limit are integers of the same size.
        assert!(v4.max(v6) + 3 * train <= CONTROL);
    }

    #[test]
    fn datagrams_may_be_changed_in_place() {
        let receiver = UdpSocket::bind("[::1]:0").unwrap();
        let sender = UdpSocket::bind("[::1]:0").unwrap();
        let mut batch = ReceiveBatch::new();
        for n in 1..=4 {
            sender.send_to(&[n; 3], receiver.local_addr().unwrap()).unwrap();
        }
        assert_eq!(batch.receive_at_most(receiver.as_fd(), 3).unwrap(), 3);
        let mut all: Vec<_> = batch.receptions_mut().flat_map(ReceptionMut::datagrams).collect();
        all.iter_mut().for_each(|datagram| datagram[0] += 10);
        assert_eq!(all, [[11, 1, 1], [12, 2, 2], [13, 3, 3]]);
        assert_eq!(batch.receive(receiver.as_fd()).unwrap(), 1);
        let last = batch.receptions_mut().next().unwrap();
        assert_eq!(last.remote, sender.local_addr().unwrap());
    }

    #[test]
    fn a_train_may_be_changed_in_place() {
        let mut bytes = [7; 5];
        let remote = "[::1]:1".parse().unwrap();
        let train =
            ReceptionMut { remote, interface: 1, hop_limit: None, bytes: &mut bytes, stride: 2 };
        let lengths: Vec<_> = train.datagrams().map(|datagram| datagram.len()).collect();
        assert_eq!(lengths, [2, 2, 1]);
        let empty =
            ReceptionMut { remote, interface: 1, hop_limit: None, bytes: &mut [], stride: 0 };
        assert_eq!(empty.datagrams().count(), 0);
    }
}
