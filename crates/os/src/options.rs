//! Socket options, and queries of a socket's buffers and of the path to an address.
#![allow(unsafe_code)]

use socket2::Socket;
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Sets a socket option whose value is an integer.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_option(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer is to a live integer and its length is its own.
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

/// Ends a TCP or MPTCP connection by a reset, at once: also while another process has the socket open, too (RFC 9293
/// section 3.9.1.6).
///
/// # Errors
/// The error of connect(2).
pub fn reset_connection(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: all octets of the structure may be zero.
    let mut nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
    nowhere.sa_family = libc::AF_UNSPEC as libc::sa_family_t;
    // SAFETY: the pointer is to a live structure and its length is its own.
    let result = unsafe {
        libc::connect(
            fd.as_raw_fd(),
            &raw const nowhere,
            size_of::<libc::sockaddr>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Divides the datagrams to sockets that share a port (SO_REUSEPORT) by a number in them: the 32 bits at `offset`, in
/// network order. The remainder of its division by `count` is the index of the receiver, in the order in which the
/// sockets were bound. A shorter datagram goes to the first. One of the sockets is enough.
///
/// # Errors
/// The error of setsockopt(2).
pub fn divide_by_word(fd: BorrowedFd<'_>, offset: u32, count: u32) -> io::Result<()> {
    let statement = |code: u32, k| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset),
        statement(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, count.max(1)),
        statement(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the pointer is to a live program header with its own length, which points to a live array of as many
    // statements as it states; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Requests socket buffers of `bytes` in each direction, above the system's limit where the process may.
/// Returns the size of the receive buffer that was granted, in bytes.
///
/// # Errors
/// The error of the system call that failed; a size above the limit is reduced without one.
pub fn enlarge_buffers(socket: &Socket, bytes: usize) -> io::Result<usize> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX / 2);
    if set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, value).is_err() {
        socket.set_recv_buffer_size(bytes)?;
    }
    if set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, value).is_err() {
        socket.set_send_buffer_size(bytes)?;
    }
    // Linux reports twice what may be used for data (socket(7)).
    Ok(socket.recv_buffer_size()? / 2)
}

/// Returns the size of the largest IP packet on the path to `to` that the system knows, in bytes. `None` when
/// there is no route. Sends nothing.
pub fn path_mtu(to: IpAddr) -> Option<u32> {
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

/// The state of a socket's receive buffer (linux/sock_diag.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// Octets allocated for received data. A UDP socket goes on counting what was read, up to a quarter
    /// of its capacity, and then releases that at once.
    pub allocated: usize,
    /// The capacity, in octets.
    pub capacity: usize,
    /// Datagrams dropped since the socket was opened, for want of room or for a wrong checksum. The
    /// number wraps.
    pub dropped: u32,
}

/// Returns the state of a socket's receive buffer. `None` where the system does not report it.
pub fn memory(fd: BorrowedFd<'_>) -> Option<Memory> {
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

/// Returns the number of octets that a connection has received and that are not read yet; 0 where the
/// system does not report it.
pub fn unread(fd: BorrowedFd<'_>) -> usize {
    let mut octets: libc::c_int = 0;
    // SAFETY: FIONREAD writes one integer, to a live one.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut octets) };
    if result == 0 { usize::try_from(octets).unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    #[test]
    fn buffers_are_granted_or_reduced_never_refused() {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let got = enlarge_buffers(&socket, 8 << 20).unwrap();
        assert!(got >= 100_000, "{got}");
    }

    #[test]
    fn datagrams_are_divided_by_a_number_in_them() {
        let open = |port: u16| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            let local = std::net::SocketAddr::from(([127, 0, 0, 1], port));
            socket.bind(&local.into()).unwrap();
            UdpSocket::from(socket)
        };
        let first = open(0);
        let to = first.local_addr().unwrap();
        let sockets = [first, open(to.port()), open(to.port())];
        divide_by_word(sockets[0].as_fd(), 4, 3).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in [5u32, 0, 7, u32::MAX] {
            let mut datagram = [0; 12];
            datagram[4..8].copy_from_slice(&number.to_be_bytes());
            sender.send_to(&datagram, to).unwrap();
            let mut got = [0; 12];
            let receiver = &sockets[(number % 3) as usize];
            receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            assert_eq!(receiver.recv(&mut got).unwrap(), 12);
            assert_eq!(got, datagram);
        }
        sender.send_to(&[1], to).unwrap();
        assert_eq!(sockets[0].recv(&mut [0; 12]).unwrap(), 1);
    }

    #[test]
    fn a_socket_reports_what_it_holds_and_has_dropped() {
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
}
