//! What each function of the API does, on descriptors that are borrowed from the program.

use crate::control::{self, Command, Question};
use crate::end::{has_hung_up, pair, shorten};
use crate::fault::Fault;
use crate::options::{
    PI_EXPLANATION, PI_MAX_MESSAGE, PI_PRIORITY, PI_PROPERTY, PI_PROTOCOL, PI_SERVICES, Request,
    assignment,
};
use crate::packet::{
    self, FILLER, HEADER, Header, Info, MAX_MESSAGE, PACKET, read_file, send_message,
};
use crate::service;
use crate::table::{self, Kind, State, View};
use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::sockopt::{Timeout, socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Buffers that are passed to the kernel as they are; more are gathered.
const MAX_PARTS: usize = 64;

fn error<T>(errno: c_int, text: &str) -> Result<T, Fault> {
    Err(Fault::new(errno, text))
}

/// Creates a socket for services.
pub(crate) fn socket(domain: c_int, services: c_int) -> Result<OwnedFd, Fault> {
    let request = Box::new(Request::new(domain, services)?);
    let kind = if services & service::PI_MESSAGES != 0 { Kind::Messages } else { Kind::Bytes };
    let (descriptor, end) = unwritable(kind)?;
    table::add(&descriptor, kind, State::New { request, end })?;
    Ok(descriptor)
}

/// Returns a descriptor that is not writable before its filler is removed, and its other end.
fn unwritable(kind: Kind) -> Result<(OwnedFd, OwnedFd), Fault> {
    let (descriptor, end) = pair(kind)?;
    packet::send(descriptor.as_fd(), &[IoSlice::new(&[0; FILLER])], None, SendFlags::DONTWAIT)?;
    Ok((descriptor, end))
}

pub(crate) fn bind(socket: BorrowedFd<'_>, address: SocketAddr) -> Result<(), Fault> {
    let key = table::key(socket)?;
    table::view(key)?;
    table::change(key, |request| request.bind(address))
        .unwrap_or_else(|| error(libc::EINVAL, "the socket is connected or listens already"))
}

pub(crate) fn listen(socket: BorrowedFd<'_>) -> Result<(), Fault> {
    let key = table::key(socket)?;
    if let (_, View::Listening(_)) = table::view(key)? {
        return Ok(());
    }
    let Some((kind, request, end)) = table::begin(key) else {
        return error(libc::EINVAL, "the socket is connected or connecting");
    };
    let copy = request.clone();
    let command = |reply| Command::Listen { key, kind, request: copy, reply };
    match control::ask(command, Some(end.as_fd())) {
        Ok(address) => {
            table::listening(key, address);
            Ok(shorten(&end)?)
        }
        Err(fault) => {
            table::restore(key, request, end);
            Err(fault)
        }
    }
}

/// Returns the descriptor of the next connection.
pub(crate) fn accept(socket: BorrowedFd<'_>) -> Result<(OwnedFd, Info), Fault> {
    let key = table::key(socket)?;
    let (kind, View::Listening(_)) = table::view(key)? else {
        return error(libc::EINVAL, "the socket does not listen");
    };
    // So that a connection stays where it is while the process has no descriptor left.
    drop(rustix::io::fcntl_dupfd_cloexec(socket, 0)?);
    let Some((info, descriptor)) = Info::receive(socket, RecvFlags::empty())? else {
        return error(libc::ECONNABORTED, "the process that listens has ended");
    };
    table::learn(table::key(descriptor.as_fd())?, kind, info.clone());
    Ok((descriptor, info))
}

/// Connects to an address, to the endpoints of `PI_REMOTE`, or both.
pub(crate) fn connect(socket: BorrowedFd<'_>, address: Option<SocketAddr>) -> Result<(), Fault> {
    let key = table::key(socket)?;
    match table::view(key)?.1 {
        View::New => {}
        View::Connecting => return error(libc::EALREADY, "the socket is connecting"),
        View::Connected(_) => return error(libc::EISCONN, "the socket is connected"),
        View::Listening(_) => return error(libc::EINVAL, "the socket listens"),
        View::Ended => {
            let fault = table::take_error(key);
            let used = || Fault::new(libc::EINVAL, "the socket was connected before");
            return Err(fault.unwrap_or_else(used));
        }
    }
    let added = address.map(|address| table::change(key, |request| request.add_address(address)));
    added.flatten().transpose()?;
    if table::change(key, |request| request.has_remote()) == Some(false) {
        return error(libc::EDESTADDRREQ, "expected an address, or PI_REMOTE before");
    }
    let Some((kind, request, end)) = table::begin(key) else {
        return error(libc::EALREADY, "the socket is connecting");
    };
    let command = Command::Connect { key, kind, request: request.clone() };
    if let Err(fault) = control::post(command, Some(end.as_fd())) {
        table::restore(key, request, end);
        return Err(fault);
    }
    drop(end);
    if is_non_blocking(socket)? {
        return error(libc::EINPROGRESS, "the socket is connecting");
    }
    connected(socket, key)
}

/// Returns the descriptor of another connection of the group.
pub(crate) fn stream(socket: BorrowedFd<'_>) -> Result<OwnedFd, Fault> {
    let of = table::key(socket)?;
    let (kind, View::Connected(_)) = table::view(of)? else {
        return error(libc::ENOTCONN, "the socket is not connected");
    };
    let (descriptor, end) = unwritable(kind)?;
    let key = table::add(&descriptor, kind, State::Connecting)?;
    let posted = control::post(Command::Stream { of, key, kind }, Some(end.as_fd()));
    drop(end);
    let done = posted.and_then(|()| {
        if is_non_blocking(socket)? {
            rustix::io::ioctl_fionbio(&descriptor, true)?;
            return Ok(());
        }
        connected(descriptor.as_fd(), key)
    });
    // Nobody else knows the descriptor; the thread notices that it is closed.
    done.map(|()| descriptor).inspect_err(|_| table::remove(key))
}

fn is_non_blocking(socket: BorrowedFd<'_>) -> Result<bool, Fault> {
    Ok(rustix::fs::fcntl_getfl(socket)?.contains(OFlags::NONBLOCK))
}

/// Waits until a socket is no longer connecting, for as long as SO_SNDTIMEO allows.
fn connected(socket: BorrowedFd<'_>, key: u64) -> Result<(), Fault> {
    let timeout = socket_timeout(socket, Timeout::Send)?;
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    loop {
        let mut polled = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
        if poll(&mut polled, timeout.as_ref())? == 0 {
            return error(libc::EINPROGRESS, "the socket is still connecting");
        }
        match table::view(key)?.1 {
            View::Connecting if !polled[0].revents().contains(PollFlags::HUP) => {}
            View::Connected(_) => return Ok(()),
            _ => {
                let lost = || Fault::new(libc::ECONNABORTED, "the connection has ended");
                return Err(table::take_error(key).unwrap_or_else(lost));
            }
        }
    }
}

/// Returns the connection of a socket that may send.
fn sender(socket: BorrowedFd<'_>, key: u64, flags: SendFlags) -> Result<(Kind, Arc<Info>), Fault> {
    loop {
        if let Some(fault) = table::take_error(key) {
            return Err(fault);
        }
        match table::view(key)? {
            (kind, View::Connected(info)) => return Ok((kind, info)),
            (_, View::Connecting)
                if flags.contains(SendFlags::DONTWAIT) || is_non_blocking(socket)? =>
            {
                return error(libc::EAGAIN, "the socket is connecting");
            }
            (_, View::Connecting) => connected(socket, key)?,
            (_, View::Ended) => return error(libc::EPIPE, "the connection has ended"),
            _ => return error(libc::ENOTCONN, "the socket is not connected"),
        }
    }
}

/// Sends a message, or octets of a byte stream. Returns their number.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    parts: &[IoSlice<'_>],
    mut header: Header,
    flags: c_int,
) -> Result<usize, Fault> {
    if flags & !(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_EOR) != 0 {
        return error(libc::EOPNOTSUPP, "expected MSG_DONTWAIT, MSG_EOR, MSG_NOSIGNAL or no flag");
    }
    let key = table::key(socket)?;
    let wait = flags & libc::MSG_DONTWAIT == 0;
    let flags = if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    let (kind, info) = sender(socket, key, flags)?;
    let length: usize = parts.iter().map(|part| part.len()).sum();
    if kind == Kind::Messages && length > info.max {
        let text = format!("the message has {length} octets, expected at most {}", info.max);
        return Err(Fault::new(libc::EMSGSIZE, text));
    }
    header.length = length as u32;
    header.is_end = true;
    let plain = Header { length: header.length, is_end: true, ..Header::default() };
    let sent = match kind {
        Kind::Bytes if header != plain => {
            return error(libc::EOPNOTSUPP, "expected a socket with PI_MESSAGES");
        }
        Kind::Bytes => packet::send(socket, &parts[..parts.len().min(MAX_PARTS)], None, flags),
        Kind::Messages if length <= PACKET && parts.len() <= MAX_PARTS => {
            let head = header.encode();
            let mut all = Vec::with_capacity(parts.len() + 1);
            all.push(IoSlice::new(&head));
            all.extend(parts.iter().map(|part| IoSlice::new(part)));
            packet::send(socket, &all, None, flags).map(|_| length)
        }
        Kind::Messages => {
            let message: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            send_message(socket, &header, &message, flags).map(|()| length)
        }
    };
    sent.map_err(|errno| match errno {
        // The reason is that of the connection, and is returned once.
        rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET => {
            let ended = || Fault::new(libc::EPIPE, "the connection has ended");
            table::take_error(key).unwrap_or_else(ended)
        }
        other => other.into(),
    })
}

/// What was received: the octets, and the flags for `msg_flags`.
pub(crate) struct Received {
    pub(crate) length: usize,
    pub(crate) flags: c_int,
}

/// Receives a message, or octets of a byte stream; 0 and no MSG_EOR at the end.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<Received, Fault> {
    let known = libc::MSG_DONTWAIT
        | libc::MSG_PEEK
        | libc::MSG_TRUNC
        | libc::MSG_WAITALL
        | libc::MSG_NOSIGNAL
        | libc::MSG_CMSG_CLOEXEC;
    if flags & !known != 0 {
        let text = "expected MSG_DONTWAIT, MSG_PEEK, MSG_TRUNC, MSG_WAITALL or no flag";
        return error(libc::EOPNOTSUPP, text);
    }
    let key = table::key(socket)?;
    let (kind, view) = table::view(key)?;
    if matches!(view, View::New | View::Listening(_)) {
        return error(libc::ENOTCONN, "the socket is not connected");
    }
    let keep = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL;
    let passed = RecvFlags::from_bits_retain((flags & keep) as u32);
    let received = match kind {
        Kind::Bytes => receive_bytes(socket, parts, passed)?,
        Kind::Messages => receive_message(socket, parts, passed, flags & libc::MSG_TRUNC != 0)?,
    };
    received.map_or_else(|| end_of_data(socket, key), Ok)
}

fn receive_bytes(
    socket: BorrowedFd<'_>,
    parts: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
) -> Result<Option<Received>, Fault> {
    let room: usize = parts.iter().map(|part| part.len()).sum();
    let mut control = rustix::net::RecvAncillaryBuffer::new(&mut []);
    let used = parts.len().min(MAX_PARTS);
    let received = rustix::net::recvmsg(socket, &mut parts[..used], &mut control, flags);
    match received.map(|received| received.bytes) {
        Ok(0) if room > 0 => Ok(None),
        Ok(length) => Ok(Some(Received { length, flags: 0 })),
        // The library's end is closed with octets that were not read: the thread knows why.
        Err(rustix::io::Errno::CONNRESET) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn receive_message(
    socket: BorrowedFd<'_>,
    parts: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
    counts_all: bool,
) -> Result<Option<Received>, Fault> {
    let used = parts.len().min(MAX_PARTS);
    let parts = &mut parts[..used];
    let mut head = [0; HEADER];
    let received = {
        let mut all = Vec::with_capacity(parts.len() + 1);
        all.push(IoSliceMut::new(&mut head));
        all.extend(parts.iter_mut().map(|part| IoSliceMut::new(part)));
        match packet::receive(socket, &mut all, flags) {
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            received => received?,
        }
    };
    if received.octets == 0 {
        return Ok(None);
    }
    if received.lost {
        let text = "the process has no descriptor left for a large message, which is lost";
        return error(libc::EMFILE, text);
    }
    let Some(header) = Header::decode(&head).filter(|_| received.octets >= HEADER) else {
        return error(libc::EPROTO, "the descriptor carries something else");
    };
    let length = header.length as usize;
    if let Some(file) = &received.attached {
        let mut start = 0;
        for part in parts.iter_mut() {
            let end = start + part.len();
            if end > PACKET {
                let skipped = PACKET.saturating_sub(start);
                let from = (start + skipped - PACKET) as u64;
                read_file(file, &mut part[skipped..], from)?;
            }
            start = end;
        }
    }
    let room: usize = parts.iter().map(|part| part.len()).sum();
    let end = if header.is_end { libc::MSG_EOR } else { 0 };
    let cut = if length > room { libc::MSG_TRUNC } else { 0 };
    let length = if counts_all { length } else { length.min(room) };
    Ok(Some(Received { length, flags: end | cut }))
}

/// Returns the end of what can be received, or the error that caused it.
fn end_of_data(socket: BorrowedFd<'_>, key: u64) -> Result<Received, Fault> {
    if let Some(fault) = table::take_error(key) {
        return Err(fault);
    }
    let ended = matches!(table::view(key), Ok((_, View::Ended)));
    // The library's end goes on for as long as the program's, unless the connection broke, and another process has the
    // reason, or nobody.
    if !ended && has_hung_up(socket) && !table::is_shut(key) {
        return error(libc::ECONNRESET, "the connection is broken");
    }
    Ok(Received { length: 0, flags: 0 })
}

/// Ends sending, receiving or both.
pub(crate) fn shutdown(socket: BorrowedFd<'_>, how: c_int) -> Result<(), Fault> {
    let key = table::key(socket)?;
    let (kind, View::Connected(_)) = table::view(key)? else {
        return error(libc::ENOTCONN, "the socket is not connected");
    };
    if how == libc::SHUT_WR && kind == Kind::Messages {
        let text = "the last message of a socket with PI_MESSAGES has PI_MSG_FINAL";
        return error(libc::EOPNOTSUPP, text);
    }
    let how = match how {
        libc::SHUT_RD => Shutdown::Read,
        libc::SHUT_WR => Shutdown::Write,
        libc::SHUT_RDWR => Shutdown::Both,
        _ => return error(libc::EINVAL, "expected SHUT_RD, SHUT_WR or SHUT_RDWR"),
    };
    if how != Shutdown::Read {
        table::shut(key);
    }
    Ok(rustix::net::shutdown(socket, how)?)
}

/// Ends a connection at once.
pub(crate) fn abort(socket: BorrowedFd<'_>) -> Result<(), Fault> {
    let key = table::key(socket)?;
    match table::view(key)?.1 {
        View::Connected(_) => match control::ask(|reply| Command::Abort { key, reply }, None) {
            // It has ended in the meantime.
            Err(fault) if fault.errno == libc::ENOTCONN => Ok(()),
            done => done,
        },
        _ => Ok(()),
    }
}

/// Sets an option of `PI_API` that is a text.
pub(crate) fn set_text(socket: BorrowedFd<'_>, option: c_int, text: &str) -> Result<(), Fault> {
    let key = table::key(socket)?;
    table::view(key)?;
    if let Some(done) = table::change(key, |request| request.set_text(option, text)) {
        return done;
    }
    if option != PI_PROPERTY {
        return error(libc::EISCONN, "the option has to be set before the socket is connected");
    }
    let (name, value) = assignment(text)?;
    let (name, value) = (name.trim().to_string(), value.trim().to_string());
    control::ask(|reply| Command::Set { key, name, value, reply }, None)
}

/// Sets an option of `PI_API` that is a number.
pub(crate) fn set_number(socket: BorrowedFd<'_>, option: c_int, to: c_int) -> Result<(), Fault> {
    let key = table::key(socket)?;
    table::view(key)?;
    if let Some(done) = table::change(key, |request| request.set_number(option, to)) {
        return done;
    }
    if option != PI_PRIORITY {
        return error(libc::EISCONN, "the option has to be set before the socket is connected");
    }
    let (name, value) = ("connPriority".to_string(), to.to_string());
    control::ask(|reply| Command::Set { key, name, value, reply }, None)
}

/// Returns an option of `PI_API` that is a text; `name` is that of a property.
pub(crate) fn text(socket: BorrowedFd<'_>, option: c_int, name: &str) -> Result<String, Fault> {
    let key = table::key(socket)?;
    let (_, view) = table::view(key)?;
    let ask = |name| control::ask(|reply| Command::Get { key, name, reply }, None);
    match (option, view) {
        (PI_PROTOCOL, View::Connected(info)) => Ok(info.protocol.clone()),
        (PI_EXPLANATION, View::Connected(_)) => ask(Question::Explanation),
        (PI_PROPERTY, View::Connected(_)) => ask(Question::Property(name.to_string())),
        (PI_PROPERTY, View::New) => table::change(key, |request| request.property(name))
            .unwrap_or_else(|| error(libc::ENOTCONN, "the socket is connecting")),
        (PI_PROTOCOL | PI_EXPLANATION | PI_PROPERTY, _) => {
            error(libc::ENOTCONN, "the socket is not connected")
        }
        _ => error(libc::ENOPROTOOPT, "no option of this number can be read"),
    }
}

/// Returns an option of `PI_API` that is a number; `None` if it is a text.
pub(crate) fn number(socket: BorrowedFd<'_>, option: c_int) -> Result<Option<c_int>, Fault> {
    let key = table::key(socket)?;
    let (_, view) = table::view(key)?;
    match (option, view) {
        (PI_SERVICES, View::Connected(info)) => Ok(Some(info.services)),
        (PI_MAX_MESSAGE, View::Connected(info)) => {
            Ok(Some(info.max.min(MAX_MESSAGE).try_into().unwrap_or(c_int::MAX)))
        }
        (PI_SERVICES | PI_MAX_MESSAGE, _) => error(libc::ENOTCONN, "the socket is not connected"),
        (PI_PRIORITY, _) => {
            let text = text(socket, PI_PROPERTY, "connPriority")?;
            Ok(Some(text.parse().unwrap_or(c_int::MAX)))
        }
        _ => Ok(None),
    }
}

/// Takes the error of a socket, as SO_ERROR does.
pub(crate) fn pending_error(socket: BorrowedFd<'_>) -> Result<Option<Fault>, Fault> {
    let key = table::key(socket)?;
    table::view(key)?;
    Ok(table::take_error(key))
}

/// Returns the local address.
pub(crate) fn local_address(socket: BorrowedFd<'_>) -> Result<SocketAddr, Fault> {
    let key = table::key(socket)?;
    let unbound = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), 0);
    match table::view(key)?.1 {
        View::Connected(info) => Ok(info.local),
        View::Listening(address) => Ok(address),
        _ => Ok(table::change(key, |request| request.local).flatten().unwrap_or(unbound)),
    }
}

/// Returns the peer's address.
pub(crate) fn peer_address(socket: BorrowedFd<'_>) -> Result<SocketAddr, Fault> {
    match table::view(table::key(socket)?)?.1 {
        View::Connected(info) => Ok(info.remote),
        _ => error(libc::ENOTCONN, "the socket is not connected"),
    }
}
