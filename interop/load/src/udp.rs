//! Datagrams in batches: one `recvmmsg` takes up to [`RECEIVE_BATCH`], one `sendmmsg` gives up to
//! [`SEND_BATCH`]. The kernel's receive stamp comes with each datagram, so that a delay does not
//! contain the time the generator took to look.
//!
//! Every datagram is one datagram on the way: no segmentation offload, because a thousand phones
//! do not send a server their messages glued together.

// The system calls for batches have no safe wrapper that reuses its arrays.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use socket2::{Domain, Protocol, Type};

use crate::clock;

/// Datagrams taken by one system call.
pub(crate) const RECEIVE_BATCH: usize = 64;
/// Datagrams given by one system call. They share one send stamp: at about 1.3 us each the last is
/// stamped at most 20 us early.
pub(crate) const SEND_BATCH: usize = 16;
/// Largest datagram taken; a longer one is counted as truncated.
pub(crate) const MAX_DATAGRAM: usize = 4096;
/// Receive buffer asked for, bytes. Linux doubles it for its own bookkeeping.
pub(crate) const SOCKET_BUFFER: usize = 4 << 20;

/// Words for one timestamp control message: header 16 bytes, time 16 bytes, and room to spare.
const CONTROL_WORDS: usize = 8;
/// Where `SO_MEMINFO` keeps the count of datagrams the socket had no room for (linux/sock_diag.h).
const MEMINFO_DROPS: usize = 8;
/// How many values `SO_MEMINFO` has.
const MEMINFO_VALUES: usize = 9;

/// One UDP socket.
pub(crate) struct Socket {
    inner: socket2::Socket,
    local: SocketAddr,
}

impl Socket {
    /// A socket on a port of the system's choice that speaks only with `server`.
    pub(crate) fn connected(server: SocketAddr) -> io::Result<Self> {
        let any = match server {
            SocketAddr::V4(_) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            SocketAddr::V6(_) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        };
        let inner = Self::open(any)?;
        inner.bind(&any.into())?;
        inner.connect(&server.into())?;
        Self::finish(inner)
    }

    /// A socket at `address` that hears everyone and shares the address with other workers.
    pub(crate) fn bound(address: SocketAddr) -> io::Result<Self> {
        let inner = Self::open(address)?;
        inner.set_reuse_port(true)?;
        inner.bind(&address.into())?;
        Self::finish(inner)
    }

    fn open(address: SocketAddr) -> io::Result<socket2::Socket> {
        let inner =
            socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        inner.set_recv_buffer_size(SOCKET_BUFFER)?;
        inner.set_send_buffer_size(SOCKET_BUFFER)?;
        Ok(inner)
    }

    fn finish(inner: socket2::Socket) -> io::Result<Self> {
        let local = inner
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("the socket has no internet address"))?;
        Ok(Self { inner, local })
    }

    /// The address the socket is bound to.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// The receive buffer the kernel granted, bytes, by its own count.
    pub(crate) fn receive_buffer(&self) -> usize {
        self.inner.recv_buffer_size().unwrap_or(0)
    }

    /// Has the kernel stamp every received datagram.
    pub(crate) fn stamp_received(&self) -> io::Result<()> {
        let on: libc::c_int = 1;
        // SAFETY: the descriptor is open, and the pointer and length describe `on`, which outlives
        // the call.
        let result = unsafe {
            libc::setsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPNS,
                ptr::from_ref(&on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Datagrams the kernel threw away because this socket's buffer was full.
    pub(crate) fn drops(&self) -> u64 {
        let mut values = [0u32; MEMINFO_VALUES];
        let mut length = size_of::<[u32; MEMINFO_VALUES]>() as libc::socklen_t;
        // SAFETY: the descriptor is open; the kernel writes at most `length` bytes into `values`.
        let result = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                values.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 { u64::from(values[MEMINFO_DROPS]) } else { 0 }
    }

    fn fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// A datagram as it was received.
pub(crate) struct Received<'a> {
    /// What it carried, cut to [`MAX_DATAGRAM`].
    pub(crate) bytes: &'a mut [u8],
    /// When the kernel took it, nanoseconds on the real-time clock.
    pub(crate) at: u64,
    /// Whether it was longer than there was room for.
    pub(crate) truncated: bool,
}

/// The arrays one thread receives into.
pub(crate) struct Receiver {
    bytes: Box<[u8]>,
    names: Box<[libc::sockaddr_in6]>,
    // The next two are never read by this code: the headers point into them for the kernel.
    _control: Box<[[u64; CONTROL_WORDS]]>,
    _vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    used: usize,
}

// SAFETY: the raw pointers in the headers point into boxes owned by the same value, and nobody else
// has them; moving the value to another thread moves their only user along.
unsafe impl Send for Receiver {}

impl Receiver {
    /// Arrays for one thread, about a quarter of a megabyte.
    pub(crate) fn new() -> Self {
        let mut bytes = vec![b' '; RECEIVE_BATCH * MAX_DATAGRAM].into_boxed_slice();
        // SAFETY: all three are plain C structures for which all-zero bytes are a valid value.
        let (name, header): (libc::sockaddr_in6, libc::mmsghdr) =
            unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
        let mut names = vec![name; RECEIVE_BATCH].into_boxed_slice();
        let mut control = vec![[0u64; CONTROL_WORDS]; RECEIVE_BATCH].into_boxed_slice();
        let mut vectors: Box<[libc::iovec]> = bytes
            .chunks_exact_mut(MAX_DATAGRAM)
            .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: MAX_DATAGRAM })
            .collect();
        let mut headers = vec![header; RECEIVE_BATCH].into_boxed_slice();
        for (i, header) in headers.iter_mut().enumerate() {
            // The boxes never move or shrink while `self` lives, so these pointers stay good.
            header.msg_hdr.msg_iov = &raw mut vectors[i];
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = (&raw mut names[i]).cast();
            header.msg_hdr.msg_control = control[i].as_mut_ptr().cast();
        }
        Self { bytes, names, _control: control, _vectors: vectors, headers, used: RECEIVE_BATCH }
    }

    /// Takes what is waiting, up to a batch. Zero when nothing is.
    pub(crate) fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        match self.take(socket, libc::MSG_DONTWAIT) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Waits for at least one datagram and takes what has come by then.
    pub(crate) fn wait(&mut self, socket: &Socket) -> io::Result<usize> {
        self.take(socket, libc::MSG_WAITFORONE)
    }

    fn take(&mut self, socket: &Socket, flags: libc::c_int) -> io::Result<usize> {
        // The kernel wrote the true lengths into the headers it used last time.
        for header in &mut self.headers[..self.used] {
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_hdr.msg_controllen = size_of::<[u64; CONTROL_WORDS]>();
        }
        self.used = 0;
        // SAFETY: every header points at a data slot, a name and a control buffer owned by `self`
        // with the lengths stated; the kernel writes within them.
        let n = unsafe {
            libc::recvmmsg(
                socket.fd(),
                self.headers.as_mut_ptr(),
                RECEIVE_BATCH as libc::c_uint,
                flags,
                ptr::null_mut(),
            )
        };
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        self.used = usize::try_from(n).unwrap_or(0).min(RECEIVE_BATCH);
        Ok(self.used)
    }

    /// The `i`th datagram of the last batch.
    pub(crate) fn get(&mut self, i: usize) -> Received<'_> {
        let header = &self.headers[i];
        let length = (header.msg_len as usize).min(MAX_DATAGRAM);
        let at = kernel_stamp(&header.msg_hdr).unwrap_or_else(clock::realtime);
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let start = i * MAX_DATAGRAM;
        Received { bytes: &mut self.bytes[start..start + length], at, truncated }
    }

    /// The `i`th datagram with what lies behind it in its slot (`room` bytes in all), and the
    /// address it came from.
    pub(crate) fn slot(&mut self, i: usize, room: usize) -> (&mut [u8], libc::sockaddr_in6) {
        let start = i * MAX_DATAGRAM;
        (&mut self.bytes[start..start + room.min(MAX_DATAGRAM)], self.names[i])
    }

    /// Length of the `i`th datagram of the last batch.
    pub(crate) fn length(&self, i: usize) -> usize {
        (self.headers[i].msg_len as usize).min(MAX_DATAGRAM)
    }
}

fn kernel_stamp(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel filled the control buffer of this header up to `msg_controllen`, and the
    // macro looks no further.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: not null, so it points at a whole control header in the buffer.
    let head = unsafe { &*message };
    if head.cmsg_level != libc::SOL_SOCKET || head.cmsg_type != libc::SCM_TIMESTAMPNS {
        return None;
    }
    // SAFETY: a message of this type carries one timespec, which need not be aligned.
    let time = unsafe {
        ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::timespec>().cast_const())
    };
    Some(clock::nanoseconds(time.tv_sec, time.tv_nsec))
}

/// Gives datagrams, stored one behind the other in `bytes` and ending at `ends`, to the peer of a
/// connected socket. At most [`SEND_BATCH`] are taken. Returns how many went.
pub(crate) fn send(
    socket: &Socket,
    bytes: &[u8],
    start: usize,
    ends: &[usize],
) -> io::Result<usize> {
    let count = ends.len().min(SEND_BATCH);
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; SEND_BATCH];
    // SAFETY: an all-zero message header is valid: no name, no vectors, no control.
    let mut headers: [libc::mmsghdr; SEND_BATCH] = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut from = start;
    for i in 0..count {
        let datagram = &bytes[from..ends[i]];
        from = ends[i];
        vectors[i] =
            libc::iovec { iov_base: datagram.as_ptr().cast_mut().cast(), iov_len: datagram.len() };
        headers[i].msg_hdr.msg_iov = &raw mut vectors[i];
        headers[i].msg_hdr.msg_iovlen = 1;
    }
    hand_over(socket, &mut headers[..count])
}

/// One datagram for [`send_pieces`]: two pieces of memory and where it goes.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// First part, then second; either may be empty.
    pub(crate) parts: [libc::iovec; 2],
    /// Where it goes.
    pub(crate) to: libc::sockaddr_in6,
}

/// A piece of memory as the kernel wants it named.
pub(crate) fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Gives up to two datagrams for each of a received batch, each with its own destination.
///
/// # Safety
/// Every vector in `pieces` must describe memory that stays readable during the call.
pub(crate) unsafe fn send_pieces(socket: &Socket, pieces: &mut [Piece]) -> io::Result<usize> {
    const LIMIT: usize = 2 * RECEIVE_BATCH;
    // SAFETY: an all-zero message header is valid: no name, no vectors, no control.
    let mut headers: [libc::mmsghdr; LIMIT] = unsafe { MaybeUninit::zeroed().assume_init() };
    let count = pieces.len().min(LIMIT);
    for (header, piece) in headers.iter_mut().zip(pieces.iter_mut()) {
        header.msg_hdr.msg_name = (&raw mut piece.to).cast();
        header.msg_hdr.msg_namelen = if i32::from(piece.to.sin6_family) == libc::AF_INET {
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        } else {
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        };
        header.msg_hdr.msg_iov = piece.parts.as_mut_ptr();
        header.msg_hdr.msg_iovlen = piece.parts.len();
    }
    hand_over(socket, &mut headers[..count])
}

fn hand_over(socket: &Socket, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    if headers.is_empty() {
        return Ok(0);
    }
    // SAFETY: the headers were filled from live slices by the two callers above; the kernel only
    // reads the data and writes the lengths sent into the headers.
    let n = unsafe {
        libc::sendmmsg(socket.fd(), headers.as_mut_ptr(), headers.len() as libc::c_uint, 0)
    };
    if n < 0 { Err(io::Error::last_os_error()) } else { Ok(usize::try_from(n).unwrap_or(0)) }
}
