//! Creating a socket, connecting it, and shutting it down.

use crate::errno::{Errno, Result, report};
use crate::{address, broker, datagrams, descriptor, environment, real, system};
use libc::{c_int, sockaddr, socklen_t};
use ringway_with_wire::request::Action;
use ringway_with_wire::{BrokerId, Name, SocketId};

/// The bits of a type that are not flags.
const TYPE: c_int = 0xf;
/// Names that are drawn until one is free.
const DRAWS: usize = 8;

/// `socket(2)`.
///
/// # Safety
/// As socket(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    report(create(domain, kind, protocol))
}

fn create(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> {
    let is_tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & TYPE == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    let broker = if is_tcp { environment::get() } else { None };
    let Some(broker) = broker else { return system::socket(domain, kind, protocol) };
    if domain == libc::AF_INET6 {
        // A host without IPv6 says so here.
        system::close(system::socket(domain, kind | libc::SOCK_CLOEXEC, protocol)?);
    }
    let fd = system::socket(libc::AF_UNIX, kind, 0)?;
    match give_name(fd, broker.broker, domain == libc::AF_INET6) {
        Ok(()) => {
            descriptor::CREATED.add(fd);
            Ok(fd)
        }
        Err(error) => {
            system::close(fd);
            Err(error)
        }
    }
}

fn give_name(fd: c_int, broker: BrokerId, ipv6: bool) -> Result<()> {
    for _ in 0..DRAWS {
        let name = Name::Program { ipv6, id: SocketId::created(system::random()?) };
        match system::bind(fd, &address::unix(&name, broker)?) {
            Err(Errno(libc::EADDRINUSE)) => {}
            result => return result,
        }
    }
    Err(Errno(libc::EADDRINUSE))
}

/// `connect(2)`.
///
/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        match address::family(to, length) {
            libc::AF_INET | libc::AF_INET6 => {}
            family => {
                let done = real::connect(fd, to, length);
                if done == 0 && family == libc::AF_UNSPEC {
                    datagrams::disconnected(fd);
                }
                return done;
            }
        }
        let Some(socket) = descriptor::recognise(fd) else {
            let connected = real::connect(fd, to, length);
            if connected == 0 {
                datagrams::connected(fd);
            }
            return connected;
        };
        report(address::read(to, length).and_then(|to| connect_to(fd, &socket, to)).map(|()| 0))
    }
}

/// `__connect`, which the C library exports too.
///
/// # Safety
/// As connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __connect(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { connect(fd, to, length) }
}

fn connect_to(fd: c_int, socket: &descriptor::Descriptor, to: std::net::SocketAddr) -> Result<()> {
    if socket.ends.is_some() {
        return Err(Errno(libc::EISCONN));
    }
    if to.is_ipv6() != socket.ipv6 {
        return Err(Errno(libc::EAFNOSUPPORT));
    }
    let waits = system::status_flags(fd) & libc::O_NONBLOCK == 0;
    match broker::begin(fd, socket, Action::Connect(to)) {
        // It has begun before.
        Err(Errno(libc::EISCONN)) => match broker::ask(socket, Action::Progress, None)?.value() {
            Err(Errno(libc::EALREADY)) if waits => {}
            result => return result.map(|_| ()),
        },
        Err(error) => return Err(error),
        Ok(()) => {
            descriptor::OPENED.add(fd);
            if !waits {
                return Err(Errno(libc::EINPROGRESS));
            }
        }
    }
    let limit = system::send_timeout(fd);
    let limited = limit.tv_sec != 0 || limit.tv_usec != 0;
    match broker::ask(socket, Action::Await, limited.then_some(&limit)) {
        Ok(answer) => answer.value().map(|_| ()),
        // socket(7): a connect() that takes longer than SO_SNDTIMEO goes on.
        Err(Errno(libc::EAGAIN)) => Err(Errno(libc::EINPROGRESS)),
        Err(error) => Err(error),
    }
}

/// `shutdown(2)`. A Unix socket that is not connected would be shut down for a connection to come.
///
/// # Safety
/// As shutdown(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    let unconnected = descriptor::CREATED.has(fd)
        && matches!(system::getpeername(fd), Err(Errno(libc::ENOTCONN)));
    let listens = || system::integer_option(fd, libc::SO_ACCEPTCONN) == Ok(1);
    if unconnected && descriptor::recognise(fd).is_some() && !listens() {
        return report(Err(Errno(libc::ENOTCONN)));
    }
    report(system::shutdown(fd, how).map(|()| 0))
}
