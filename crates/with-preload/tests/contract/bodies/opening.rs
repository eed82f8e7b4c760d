//! Opening connections.

use super::{Note, closed_port, pair, shown};
use crate::calls::{self, connect, socket, socket_error};
use libc::{AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK};
use std::ffi::CString;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(super) fn refused(note: Note<'_>) {
    let port = closed_port();
    let waits = socket(AF_INET, SOCK_CLOEXEC);
    note(format!("connect: {}", connect(&waits, port)));
    let does_not_wait = socket(AF_INET, SOCK_NONBLOCK);
    note(format!("connect without waiting: {}", connect(&does_not_wait, port)));
    let events = libc::POLLIN | libc::POLLOUT;
    note(format!("events: {}", calls::poll(&does_not_wait, events, 5000)));
    note(format!("error: {}", socket_error(&does_not_wait)));
    note(format!("error again: {}", socket_error(&does_not_wait)));
    let again = socket(AF_INET, SOCK_NONBLOCK);
    connect(&again, port);
    calls::poll(&again, events, 5000);
    note(format!("a second connect: {}", connect(&again, port)));
    let peer = TcpStream::from(again).peer_addr();
    note(format!("its peer: {}", shown(peer)));
}

pub(super) fn waiting(note: Note<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let fd = socket(AF_INET, SOCK_NONBLOCK | SOCK_CLOEXEC);
    // SAFETY: all pointers are to live values.
    unsafe {
        let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(0));
        let edge = (libc::EPOLLOUT | libc::EPOLLIN | libc::EPOLLET | libc::EPOLLRDHUP) as u32;
        let mut wanted = libc::epoll_event { events: edge, u64: 7 };
        let (set, watched) = (epoll.as_raw_fd(), fd.as_raw_fd());
        libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, watched, &raw mut wanted);
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // Before it is connected it has hung up.
        let count = libc::epoll_wait(set, &raw mut event, 1, 0);
        let hung_up = event.events & libc::EPOLLHUP as u32 != 0;
        note(format!("events before: {count}, hung up: {hung_up}"));
        note(format!("connect: {}", connect(&fd, port)));
        let count = libc::epoll_wait(set, &raw mut event, 1, 5000);
        let writable = event.events & libc::EPOLLOUT as u32 != 0;
        let faults = event.events & (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        note(format!("an edge: {count}, writable: {writable}, faults: {faults}"));
    }
    note(format!("error: {}", socket_error(&fd)));
    note(format!("connect once it stands: {}", connect(&fd, port)));
    note(format!("and again: {}", connect(&fd, port)));
    let (accepted, _) = listener.accept().unwrap();
    // SAFETY: the sets are live.
    unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(fd.as_raw_fd(), &raw mut set);
        let mut none = libc::timeval { tv_sec: 5, tv_usec: 0 };
        let null = std::ptr::null_mut();
        let count = libc::select(fd.as_raw_fd() + 1, null, &raw mut set, null, &raw mut none);
        note(format!("select: {count}"));
    }
    let (local, peer) = (TcpStream::from(fd).local_addr().unwrap(), accepted.peer_addr().unwrap());
    note(format!("both ends name the same address: {}", local == peer));
}

pub(super) fn mistakes(note: Note<'_>) {
    let v4 = socket(AF_INET, SOCK_CLOEXEC);
    // SAFETY: zero is a value of the structure.
    let mut v6: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    v6.sin6_family = AF_INET6 as libc::sa_family_t;
    let to = calls::loopback(9);
    let fd = v4.as_raw_fd();
    // SAFETY: the addresses are alive and at least of these lengths.
    unsafe {
        let at_v6 = (&raw const v6).cast();
        let at = (&raw const to).cast();
        note(format!("IPv6: {}", calls::result(libc::connect(fd, at_v6, calls::length(&v6)))));
        note(format!("short: {}", calls::result(libc::connect(fd, at, 8))));
        note(format!("bind short: {}", calls::result(libc::bind(fd, at, 8))));
        let bad = calls::v4(std::net::SocketAddrV4::new([192, 0, 2, 77].into(), 0));
        let bad = libc::bind(fd, (&raw const bad).cast(), calls::length(&bad));
        note(format!("bind elsewhere: {}", calls::result(bad)));
        note(format!(
            "accept: {}",
            calls::result(libc::accept(fd, std::ptr::null_mut(), std::ptr::null_mut()))
        ));
        note(format!("shutdown: {}", calls::result(libc::shutdown(fd, libc::SHUT_WR))));
    }
    let stream = TcpStream::from(v4);
    note(format!("peer: {}", shown(stream.peer_addr())));
    note(format!("local: {}", shown(stream.local_addr())));
    let (ours, _theirs) = pair();
    let ours = OwnedFd::from(ours);
    note(format!("connect twice: {}", connect(&ours, 9)));
    // SAFETY: no argument is a pointer.
    let listened = unsafe { libc::listen(ours.as_raw_fd(), 1) };
    note(format!("listen when connected: {}", calls::result(listened)));
    let fresh = socket(AF_INET, SOCK_CLOEXEC);
    note(format!("receive unconnected: {}", calls::recv(&fresh, 3, 0)));
    note(format!("send unconnected: {}", calls::send(&fresh, b"x", 0)));
    note(format!("events unconnected: {}", calls::poll(&fresh, libc::POLLOUT | libc::POLLIN, 0)));
}

pub(super) fn numbers(note: Note<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = calls::loopback(listener.local_addr().unwrap().port());
    // SAFETY: the arguments are those of the system calls.
    unsafe {
        let fd = libc::syscall(libc::SYS_socket, AF_INET, libc::SOCK_STREAM, 0);
        let at = &raw const to;
        let connected = libc::syscall(libc::SYS_connect, fd, at, calls::length(&to));
        note(format!("connect: {}", calls::result(connected)));
        let mut domain = 0;
        let mut length = 4_u32;
        let (value, room) = (&raw mut domain, &raw mut length);
        libc::syscall(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_DOMAIN, value, room);
        note(format!("domain: {domain}"));
        let mut name: libc::sockaddr_in = std::mem::zeroed();
        let mut length = calls::length(&name);
        libc::syscall(libc::SYS_getpeername, fd, &raw mut name, &raw mut length);
        note(format!("peer: {} octets, the same: {}", length, name.sin_port == to.sin_port));
        let null = std::ptr::null_mut::<libc::c_void>();
        let accepted =
            libc::syscall(libc::SYS_accept4, listener.as_raw_fd(), null, null, SOCK_CLOEXEC);
        note(format!("accepted: {}", accepted >= 0));
        note(format!(
            "a process: {}",
            libc::syscall(libc::SYS_getpid) == i64::from(std::process::id())
        ));
    }
}

pub(super) fn uring(note: Note<'_>) {
    // SAFETY: a call that is refused reads nothing.
    unsafe {
        let refused =
            libc::syscall(libc::SYS_io_uring_setup, 8, std::ptr::null_mut::<libc::c_void>());
        note(format!("io_uring: {}", calls::result(refused)));
        let name = CString::new("io_uring_queue_init").unwrap();
        let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        assert!(!found.is_null());
        type Init = unsafe extern "C" fn(u32, *mut libc::c_void, u32) -> i32;
        let init: Init = std::mem::transmute(found);
        note(format!("io_uring: {}", calls::name(-init(8, std::ptr::null_mut(), 0))));
    }
}
