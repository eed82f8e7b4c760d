//! Listening, accepting, and addresses.

use super::{Note, shown};
use crate::calls::{self, connect, error, option, set_option, socket};
use libc::{AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

pub(super) fn accepting(note: Note<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    note(format!("nobody there: {}", error(&listener.accept().unwrap_err())));
    note(format!("events: {:?}", calls::poll(&listener, libc::POLLIN, 0)));
    let peers: Vec<_> = (0..5).map(|_| TcpStream::connect(at).unwrap()).collect();
    note(format!("events: {}", calls::poll(&listener, libc::POLLIN, 5000)));
    let mut found = Vec::new();
    while found.len() < peers.len() {
        calls::poll(&listener, libc::POLLIN, 5000);
        if let Ok((stream, from)) = listener.accept() {
            found.push((stream, from));
        }
    }
    // Whatever the order, each accepted one is the other end of the peer that it names.
    for (mut stream, from) in found {
        let mut peer = peers.iter().find(|peer| peer.local_addr().unwrap() == from).unwrap();
        peer.write_all(b"me").unwrap();
        let mut text = [0; 2];
        stream.set_nonblocking(false).unwrap();
        stream.read_exact(&mut text).unwrap();
        note(format!(
            "{} at {}",
            String::from_utf8_lossy(&text),
            stream.local_addr().unwrap() == at
        ));
    }
    let _peer = TcpStream::connect(at).unwrap();
    calls::poll(&listener, libc::POLLIN, 5000);
    // SAFETY: no address is wanted; the descriptor is new.
    let accepted = unsafe {
        let flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
        OwnedFd::from_raw_fd(libc::accept4(listener.as_raw_fd(), null_mut(), null_mut(), flags))
    };
    // SAFETY: no argument is a pointer.
    let (status, descriptor) = unsafe {
        let fd = accepted.as_raw_fd();
        (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD))
    };
    note(format!("does not wait: {}", status & libc::O_NONBLOCK != 0));
    note(format!("closed by exec: {}", descriptor & libc::FD_CLOEXEC != 0));
    note(format!("is listening: {}", option(&listener, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)));
    note(format!("is not: {}", option(&accepted, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)));
    // SAFETY: no argument is a pointer.
    note(format!(
        "listen again: {}",
        calls::result(unsafe { libc::listen(listener.as_raw_fd(), 5) })
    ));
}

pub(super) fn names(note: Note<'_>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let other = TcpListener::bind(("127.0.0.1", port));
    note(format!("the same port: {}", error(&other.unwrap_err())));
    drop(listener);
    note(format!("after a close: {}", TcpListener::bind(("127.0.0.1", port)).is_ok()));

    let fd = socket(AF_INET, SOCK_CLOEXEC);
    let bind = |fd: &OwnedFd, port| {
        let to = calls::loopback(port);
        // SAFETY: the address is alive and of this length.
        calls::result(unsafe {
            libc::bind(fd.as_raw_fd(), (&raw const to).cast(), calls::length(&to))
        })
    };
    note(format!("bind: {}", bind(&fd, 0)));
    note(format!("bind again: {}", bind(&fd, 0)));
    let stream = TcpStream::from(fd);
    note(format!("bound: {}", shown(stream.local_addr())));
    let local = stream.local_addr().unwrap();
    // A connection has the address that was bound before.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let fd = OwnedFd::from(stream);
    note(format!("connect: {}", connect(&fd, listener.local_addr().unwrap().port())));
    let (accepted, from) = listener.accept().unwrap();
    note(format!(
        "from the bound address: {}",
        from == local && accepted.peer_addr().unwrap() == local
    ));

    // Several sockets at one port.
    let shares = || {
        let fd = socket(AF_INET, SOCK_CLOEXEC);
        set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &1_i32);
        fd
    };
    let (one, two) = (shares(), shares());
    note(format!("one: {}", bind(&one, 0)));
    let one = TcpListener::from(one);
    let port = one.local_addr().unwrap().port();
    note(format!("two: {}", bind(&two, port)));
    // SAFETY: no argument is a pointer.
    let listened = unsafe { (libc::listen(one.as_raw_fd(), 5), libc::listen(two.as_raw_fd(), 5)) };
    note(format!("both listen: {listened:?}"));
    let alone = socket(AF_INET, SOCK_CLOEXEC);
    note(format!("one that does not share: {}", bind(&alone, port)));
    // One listens without an address.
    let unbound = socket(AF_INET, SOCK_CLOEXEC);
    // SAFETY: no argument is a pointer.
    note(format!(
        "listen unbound: {}",
        calls::result(unsafe { libc::listen(unbound.as_raw_fd(), 5) })
    ));
    note(format!("then it is at {}", shown(TcpListener::from(unbound).local_addr())));

    // IPv4 at a socket of IPv6.
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let port = both.local_addr().unwrap().port();
    let v4 = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let (accepted, from) = both.accept().unwrap();
    note(format!("a peer of IPv4: {}, {}", from.ip(), shown(accepted.local_addr())));
    note(format!("which sees {}", shown(v4.peer_addr())));
    let v6 = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
    let (accepted, from) = both.accept().unwrap();
    note(format!("a peer of IPv6: {}, {}", from.ip(), shown(accepted.local_addr())));
    note(format!("which sees {}", shown(v6.peer_addr())));
    let fd = socket(AF_INET6, SOCK_CLOEXEC);
    note(format!("unbound: {}", shown(TcpStream::from(fd).local_addr())));
}
