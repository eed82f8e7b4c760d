//! The system calls no safe crate offers in the shape needed here: receiving and sending many
//! datagrams in one call, reading which of them an ICMP message refused, and asking what a socket
//! keeps. With the files below it and `tun`, the only place of the project's servers with `unsafe` in it. Sockets are
//! borrowed; nothing is remembered but buffers.
#![allow(unsafe_code)]

mod moderation;
mod network;
mod receive;
pub(crate) mod sctp;
mod send;

pub(crate) use moderation::{ErrorQueue, Timer, watch_errors, watch_packets, watch_timer};
pub(crate) use network::NetworkNews;
pub(crate) use receive::{RECEIVE_BATCH, ReceiveBatch, Reception};
pub(crate) use send::{After, Datagram, SEND_BATCH, SendBatch};

use crate::tun::Tun;
use socket2::Socket;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

#[repr(C)]
#[derive(Clone, Copy)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

fn encode_name(addr: SocketAddr, name: &mut Name) -> libc::socklen_t {
    match addr {
        SocketAddr::V4(addr) => {
            name.v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: addr.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                sin_zero: [0; 8],
            };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(addr) => {
            name.v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: addr.port().to_be(),
                sin6_flowinfo: addr.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                sin6_scope_id: addr.scope_id(),
            };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// What an entry of a socket's error queue says of what was sent (RFC 792, RFC 4443).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Nobody is at the port.
    Nobody,
    /// The host does not speak the protocol.
    NoProtocol,
    /// Another kind of destination unreachable that will not pass by sending again.
    Unreachable,
    /// It does not fit a link of the way, which takes so many bytes; 0 where that is not said.
    TooBig(u32),
    /// Anything else.
    Other,
}

impl Cause {
    /// Whether nobody is there. Time exceeded and the like do not say so (RFC 3261 section 18.4).
    pub(crate) fn is_unreachable(self) -> bool {
        matches!(self, Cause::Nobody | Cause::NoProtocol | Cause::Unreachable)
    }
}

/// An ICMP message about a datagram that was sent from a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    /// Where the datagram was going, if the entry says.
    pub(crate) to: Option<SocketAddr>,
    /// Our address that the message came to, where the socket was asked to tell.
    pub(crate) local: Option<IpAddr>,
    /// What it says.
    pub(crate) cause: Cause,
    /// How many bytes of the datagram the message quoted, now in the caller's buffer.
    pub(crate) quoted: usize,
}

/// Takes one entry from the socket's error queue, which `IP_RECVERR` fills. `None` when it is empty.
pub(crate) fn next_refusal(fd: BorrowedFd<'_>, quote: &mut [u8]) -> Option<Refusal> {
    #[repr(C, align(8))]
    struct ErrorControl([u8; 256]);
    let mut name = MaybeUninit::<Name>::zeroed();
    let mut control = ErrorControl([0; 256]);
    let mut vector = libc::iovec { iov_base: quote.as_mut_ptr().cast(), iov_len: quote.len() };
    // SAFETY: `msghdr` is a plain C structure for which all zeroes is a value.
    let mut header = unsafe { MaybeUninit::<libc::msghdr>::zeroed().assume_init() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = size_of::<Name>() as libc::socklen_t;
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1 as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer in `header` points at a live local or at `quote`, borrowed mutably, each
    // with its true length.
    let got = unsafe {
        libc::recvmsg(fd.as_raw_fd(), &mut header, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    };
    let quoted = usize::try_from(got).ok()?;
    // SAFETY: the storage began zeroed and the kernel wrote an address into it; a structure of
    // integers has no invalid values.
    let to = decode_name(unsafe { name.assume_init_ref() });
    let (mut cause, mut local) = (Cause::Other, None);
    // SAFETY: the kernel filled `control` and set its length, so the macros walk valid headers
    // inside it; a payload is read, unaligned, only after its length was checked.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            let has = |size: usize| (*at).cmsg_len as usize >= libc::CMSG_LEN(size as u32) as usize;
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
                    if has(size_of::<libc::sock_extended_err>()) =>
                {
                    let error = data.cast::<libc::sock_extended_err>().read_unaligned();
                    cause = cause_of(error.ee_origin, error.ee_type, error.ee_code, error.ee_info);
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if has(size_of::<libc::in_pktinfo>()) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    let ip = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    local = Some(ip.into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if has(size_of::<libc::in6_pktinfo>()) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    Some(Refusal { to, local, cause, quoted: quoted.min(quote.len()) })
}

fn cause_of(origin: u8, kind: u8, code: u8, info: u32) -> Cause {
    match (origin, kind, code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 2) | (libc::SO_EE_ORIGIN_ICMP6, 4, 1) => Cause::NoProtocol,
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => Cause::Nobody,
        (libc::SO_EE_ORIGIN_ICMP, 3, 4) | (libc::SO_EE_ORIGIN_ICMP6, 2, _) => Cause::TooBig(info),
        // Source route failed: the route may be another next time.
        (libc::SO_EE_ORIGIN_ICMP, 3, 5) => Cause::Other,
        (libc::SO_EE_ORIGIN_ICMP, 3, _) | (libc::SO_EE_ORIGIN_ICMP6, 1, _) => Cause::Unreachable,
        _ => Cause::Other,
    }
}

fn decode_name(name: &Name) -> Option<SocketAddr> {
    // SAFETY: the storage began zeroed, and a structure of integers has no invalid values; the family
    // stands at the same place in both.
    match libc::c_int::from(unsafe { name.v4.sin_family }) {
        libc::AF_INET => {
            // SAFETY: as above, and the family says that it is one of these.
            let name = unsafe { &name.v4 };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { &name.v6 };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Sets a socket option whose value is an integer.
pub(crate) fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer is to a live integer and its length is given truly.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the system takes for the largest IP packet on the way to `to`, in bytes.
pub(crate) fn path_mtu(to: IpAddr) -> Option<u32> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0)).ok()?;
    // Connecting a datagram socket only looks up the route.
    socket.connect((to, 9)).ok()?;
    let (level, option) = match to {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    let mut mtu: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one integer, to a live one, and the number written into `length`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut length)
    };
    if result == 0 { u32::try_from(mtu).ok() } else { None }
}

/// What a socket keeps for its reader (linux/sock_diag.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Memory {
    /// Octets held for what was received. A UDP socket goes on counting what was taken from it, up to
    /// a quarter of its capacity, and then lets go of that at once.
    pub(crate) allocated: usize,
    /// Octets there may be.
    pub(crate) capacity: usize,
    /// Datagrams dropped since the socket was opened, a number that comes round: for want of room,
    /// or for a wrong checksum.
    pub(crate) dropped: u32,
}

/// Asks a socket what it keeps. `None` where the system does not tell.
pub(crate) fn memory(fd: BorrowedFd<'_>) -> Option<Memory> {
    const VALUES: usize = libc::SK_MEMINFO_DROPS as usize + 1;
    let mut values = [0u32; VALUES];
    let mut length = size_of::<[u32; VALUES]>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `values`, which has so many, and the
    // number written into `length`.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0).then(|| Memory {
        allocated: values[libc::SK_MEMINFO_RMEM_ALLOC as usize] as usize,
        capacity: values[libc::SK_MEMINFO_RCVBUF as usize] as usize,
        dropped: values[libc::SK_MEMINFO_DROPS as usize],
    })
}

/// How many file descriptors the process may have (`RLIMIT_NOFILE`); `None` where there is no bound.
pub(crate) fn max_files() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure, to a live one.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    usize::try_from(limit.rlim_cur).ok()
}

/// Octets that have come over a connection and are not read yet; 0 where the system does not tell.
pub(crate) fn unread(fd: BorrowedFd<'_>) -> usize {
    let mut octets: libc::c_int = 0;
    // SAFETY: FIONREAD writes one integer, to a live one.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut octets) };
    if result == 0 { usize::try_from(octets).unwrap_or(0) } else { 0 }
}

/// Has the allocator keep large tables in mappings of their own, which go back to the system as soon
/// as they are freed, and cut off free memory at the end of a heap. Left alone it raises both
/// thresholds to what it has seen, and keeps tens of megabytes after a busy hour. To be called once,
/// before there are threads.
pub fn keep_memory_small() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets parameters of the allocator; both are documented in mallopt(3).
    unsafe {
        const THRESHOLD: libc::c_int = 128 * 1024;
        libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, THRESHOLD);
    }
}

/// Gives memory that is not in use back to the system. The allocator keeps what a burst needed; the
/// peak of one busy hour need not be held for the rest of the month. To be called by the thread whose
/// memory it is, and also before its first burst, so that it starts as it will be left.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    {
        gather_kept_blocks();
        // SAFETY: malloc_trim has no precondition; it takes the allocator's own locks.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Of each small size the allocator keeps a few free blocks for the thread and never gives them up.
/// They are those freed last, from all over the heap, and each holds on to its page. Here they change
/// places with others that lie side by side.
#[cfg(target_env = "gnu")]
fn gather_kept_blocks() {
    // glibc's tcache: 64 sizes, 16 octets apart from 24 on, of each at most seven blocks.
    const SMALLEST: usize = 24;
    const STEP: usize = 16;
    const SIZES: usize = 64;
    const KEPT: usize = 7;
    let take = || -> Vec<Vec<u8>> {
        let size_of = |i: usize| SMALLEST + STEP * (i / KEPT);
        // Hidden from the optimiser, which would leave out what is never used.
        (0..SIZES * KEPT).map(|i| std::hint::black_box(Vec::with_capacity(size_of(i)))).collect()
    };
    let scattered = take();
    let together = take();
    drop(together);
    drop(scattered);
}

/// Has the runtime watch a socket for datagrams and ICMP messages to read. Not for room to write: each
/// datagram sent would wake us when the kernel is done with it.
pub(crate) fn watch_reading(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    watch(socket, Interest::READABLE | Interest::ERROR)
}

/// Has the runtime watch a TUN device for packets to read.
pub(crate) fn watch_tun(tun: Tun) -> io::Result<AsyncFd<Tun>> {
    watch(tun, Interest::READABLE)
}

/// Has the runtime watch a socket for both ways.
pub(crate) fn watch_both(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    watch(socket, Interest::READABLE | Interest::WRITABLE)
}

/// Has the runtime watch what owns a descriptor.
fn watch<T: AsRawFd>(owner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: what this is called for (sockets, shared ones too, `Tun`, and what `moderation` watches)
    // owns its descriptor and gives the same one until it is dropped. The `AsyncFd` owns them and lends them immutably only, so the
    // descriptor stays open as long as it is watched.
    let watched = unsafe { AsyncFd::register_with_interest(owner, interest) };
    Ok(watched?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    #[test]
    fn a_socket_tells_what_it_keeps_and_has_dropped() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let empty = memory(receiver.as_fd()).unwrap();
        assert_eq!((empty.allocated, empty.dropped), (0, 0));
        assert!(empty.capacity >= 4_096);
        for _ in 0..empty.capacity / 1_000 {
            sender.send_to(&[0; 1_000], receiver.local_addr().unwrap()).unwrap();
        }
        // On a busy machine they may come a moment later.
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let full = memory(receiver.as_fd()).unwrap();
            if full.allocated > full.capacity / 2 && full.dropped > 0 {
                break;
            }
            assert!(Instant::now() < end, "{full:?}");
        }
    }

    #[test]
    fn only_destination_unreachable_counts() {
        let is = |origin, kind, code| cause_of(origin, kind, code, 0).is_unreachable();
        assert!(is(libc::SO_EE_ORIGIN_ICMP, 3, 3));
        assert!(!is(libc::SO_EE_ORIGIN_ICMP, 3, 4));
        assert!(!is(libc::SO_EE_ORIGIN_ICMP, 11, 0));
        assert!(is(libc::SO_EE_ORIGIN_ICMP6, 1, 4));
        assert!(!is(libc::SO_EE_ORIGIN_ICMP6, 2, 0));
        assert!(!is(libc::SO_EE_ORIGIN_LOCAL, 3, 3));
        let big = cause_of(libc::SO_EE_ORIGIN_ICMP6, 2, 0, 1_280);
        assert_eq!(big, Cause::TooBig(1_280));
    }
}
