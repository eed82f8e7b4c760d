//! Answering requests of the library.

use super::socket::State;
use super::table::address;
use super::{Broker, closed, options};
use crate::locking::lock;
use nix::sys::socket::{ControlMessage, MsgFlags, recv, sendmsg};
use ringway_with_wire::address::unmapped;
use ringway_with_wire::request::{Action, MAX_REPLY, MAX_REQUEST, START, Usage, write_addresses};
use ringway_with_wire::{Name, Reply, Request, SocketId};
use socket2::{Domain, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};

/// Connections of the library that wait to be accepted; the kernel reduces it to net.core.somaxconn.
const BACKLOG: i32 = 4_096;
/// Octets of the longest request with its padding. The library's is shorter by far.
const MAX_PADDED: usize = 16 << 20;
/// Time within which a request must be there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after an error of accept(2), such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between attempts to bind an address that is in use, and their number.
const RETRY: Duration = Duration::from_millis(5);
const RETRIES: u32 = 10;
/// Ports that are tried where any will do.
const ANY_PORT: usize = 8;
/// Where the system says below which port only privileged users bind (ip(7)), and what it says by default.
const PRIVILEGED: (&str, u16) = ("/proc/sys/net/ipv4/ip_unprivileged_port_start", 1_024);

/// Opens the broker's socket.
///
/// # Errors
/// The system's.
pub(crate) fn bind(environment: &ringway_with_wire::Environment) -> io::Result<UnixListener> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&address(environment.broker, &Name::Broker)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket.into())
}

/// An errno as a result.
type Errno = i32;

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

impl Broker {
    /// Serves the library for as long as it is polled.
    pub(crate) async fn serve(self: &Arc<Broker>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(self.clone().take(stream));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Takes a connection of the library: one request, or a socket of the program.
    async fn take(self: Arc<Broker>, stream: UnixStream) {
        let mut octets = [0; MAX_REQUEST];
        let peeked = tokio::time::timeout(PATIENCE, peek(&stream, &mut octets)).await;
        // Whoever sends no request is not the library.
        let Ok(Ok((present, whole))) = peeked else { return };
        // An option's value has no length of its own: it ends with the request.
        let Ok(request) = Request::read(&octets[..present]) else { return };
        if !request.secret.is(&self.environment.secret) {
            return;
        }
        match request.action {
            Action::Connect(peer) => {
                self.open(stream, (request.id, request.ipv6), peer, whole).await;
            }
            Action::Translations => self.reply_with_translations(&stream, whole).await,
            _ => self.reply(&stream, &request, whole).await,
        }
    }

    /// Replies with the descriptor of the table for datagrams.
    async fn reply_with_translations(&self, stream: &UnixStream, whole: usize) {
        if discard(stream, whole).await.is_err() {
            return;
        }
        let Some(Ok(table)) = self.datagrams.as_ref().map(|datagrams| datagrams.translations())
        else {
            return;
        };
        let mut out = [0; MAX_REPLY];
        let Ok(length) = Reply::error(0).write(&mut out) else { return };
        let parts = [io::IoSlice::new(&out[..length])];
        let descriptors = [table.as_raw_fd()];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        // A reply fits the send buffer. A process that has gone does not miss it.
        let _ = sendmsg::<()>(stream.as_raw_fd(), &parts, &rights, MsgFlags::MSG_DONTWAIT, None);
    }

    async fn reply(self: &Arc<Broker>, stream: &UnixStream, request: &Request<'_>, whole: usize) {
        if discard(stream, whole).await.is_err() {
            return;
        }
        let answer = match request.action {
            Action::Await => {
                tokio::select! {
                    answer = self.decided(request.id, request.ipv6) => answer,
                    () = closed(stream) => return,
                }
            }
            Action::Bind(to) => {
                let is_same_user = self.is_same_user(stream);
                self.bind(request.id, request.ipv6, to, is_same_user).await.map(|()| Vec::new())
            }
            Action::Listen(backlog) => {
                let user = stream.peer_cred().map(|credentials| credentials.uid());
                let listening = match user {
                    Ok(user) => self.listen(request.id, request.ipv6, backlog, user).await,
                    Err(error) => Err(errno(&error)),
                };
                listening.map(|()| Vec::new())
            }
            _ => self.answer(stream, request),
        };
        let (error, value) = match &answer {
            Ok(value) => (0, value.as_slice()),
            Err(error) => (error.unsigned_abs(), &[][..]),
        };
        let mut out = [0; MAX_REPLY];
        if let Ok(length) = (Reply { error, value }).write(&mut out) {
            // A reply fits the send buffer. A process that has gone does not miss it.
            let _ = stream.try_write(&out[..length]);
        }
    }

    /// Answers what needs no waiting.
    fn answer(
        self: &Arc<Broker>,
        stream: &UnixStream,
        request: &Request<'_>,
    ) -> Result<Vec<u8>, Errno> {
        let id = request.id;
        let nothing = |()| Vec::new();
        match request.action {
            Action::Outcome => self.outcome(id).map(nothing),
            Action::Progress => self.progress(id).map(nothing),
            Action::Addresses => {
                let mut table = lock(&self.table);
                let socket = table.socket(id, request.ipv6).ok_or(libc::ENOBUFS)?;
                let local = socket.local();
                let peer = match &socket.state {
                    State::Connected { peer, .. } => Some(*peer),
                    _ => None,
                };
                Ok(write_addresses(&local, peer.as_ref()).to_vec())
            }
            Action::Set { level, option, value } => {
                let mut table = lock(&self.table);
                let socket = table.socket(id, request.ipv6).ok_or(libc::ENOBUFS)?;
                options::set(socket, level, option, value, self.is_same_user(stream)).map(nothing)
            }
            Action::Get { level, option, length } => {
                let mut table = lock(&self.table);
                let socket = table.socket(id, request.ipv6).ok_or(libc::ENOBUFS)?;
                options::get(socket, level, option, length)
            }
            Action::Unserved(text) => {
                self.report_unserved(&String::from_utf8_lossy(text));
                Ok(Vec::new())
            }
            Action::Datagrams(report) => {
                let process = stream.peer_cred().ok().and_then(|credentials| credentials.pid());
                let datagrams = self.datagrams.as_ref().ok_or(libc::EINVAL)?;
                // As for connections: what it says of a port that it cannot have is not believed.
                let is_privileged = report.local.port() < first_unprivileged();
                if report.usage == Usage::Bound && is_privileged && !self.is_same_user(stream) {
                    return Err(libc::EACCES);
                }
                datagrams.report(&report, process.unwrap_or(0)).map(nothing)
            }
            // `take` and `reply` have seen to them.
            Action::Connect(_)
            | Action::Await
            | Action::Bind(_)
            | Action::Listen(_)
            | Action::Translations => Err(libc::EINVAL),
        }
    }

    /// Returns whether a process has the rights of the broker.
    fn is_same_user(&self, stream: &UnixStream) -> bool {
        let user = stream.peer_cred().map(|credentials| credentials.uid());
        user.is_ok_and(|user| user == self.environment.user)
    }

    /// Returns the error that a socket has, once.
    fn outcome(&self, id: SocketId) -> Result<(), Errno> {
        let error = lock(&self.table).get(id).and_then(|socket| socket.error.take());
        error.map_or(Ok(()), Err)
    }

    /// Returns what another connect(2) returns (connect(2), EALREADY and EISCONN).
    fn progress(&self, id: SocketId) -> Result<(), Errno> {
        let mut table = lock(&self.table);
        let Some(socket) = table.get(id) else { return Err(libc::EISCONN) };
        match &mut socket.state {
            State::Idle | State::Connecting => Err(libc::EALREADY),
            State::Connected { is_reported, .. } if !*is_reported => {
                *is_reported = true;
                Ok(())
            }
            State::Over => Err(socket.error.take().unwrap_or(libc::ECONNABORTED)),
            State::Connected { .. } | State::Listening(_) => Err(libc::EISCONN),
        }
    }

    /// Waits for the end of a connection attempt.
    async fn decided(&self, id: SocketId, ipv6: bool) -> Result<Vec<u8>, Errno> {
        loop {
            let changed = {
                let mut table = lock(&self.table);
                let socket = table.socket(id, ipv6).ok_or(libc::ENOBUFS)?;
                match &mut socket.state {
                    State::Connected { is_reported, .. } => {
                        *is_reported = true;
                        return Ok(Vec::new());
                    }
                    State::Over => return Err(socket.error.take().unwrap_or(libc::ECONNABORTED)),
                    State::Listening(_) => return Err(libc::EISCONN),
                    // The request to connect may come after this one.
                    State::Idle | State::Connecting => socket.changed.clone().notified_owned(),
                }
            };
            changed.await;
        }
    }

    async fn bind(
        &self,
        id: SocketId,
        ipv6: bool,
        to: SocketAddr,
        is_same_user: bool,
    ) -> Result<(), Errno> {
        // The broker's rights are not those of a process that has dropped its own.
        if !is_same_user && to.port() != 0 && to.port() < first_unprivileged() {
            return Err(libc::EACCES);
        }
        if to.is_ipv6() != ipv6 {
            return Err(libc::EAFNOSUPPORT);
        }
        for _ in 0..RETRIES {
            match self.try_bind(id, ipv6, to) {
                // The program may have closed what has it since the last sweep; its tasks end soon then.
                Err(libc::EADDRINUSE) => self.sweep_all(),
                bound => return bound,
            }
            tokio::time::sleep(RETRY).await;
        }
        self.try_bind(id, ipv6, to)
    }

    fn try_bind(&self, id: SocketId, ipv6: bool, to: SocketAddr) -> Result<(), Errno> {
        let mut table = lock(&self.table);
        let socket = table.socket(id, ipv6).ok_or(libc::ENOBUFS)?;
        if socket.is_bound {
            return Err(libc::EINVAL);
        }
        let tcp = socket.tcp().map_err(|error| errno(&error))?;
        let taken = to.port() != 0 && lock(&self.groups).takes(unmapped(to));
        if taken && !tcp.reuse_port().unwrap_or(false) {
            return Err(libc::EADDRINUSE);
        }
        bind_tcp(tcp, to).map_err(|error| errno(&error))?;
        socket.is_bound = true;
        Ok(())
    }

    /// Has a socket listen, for the user that has asked for it.
    async fn listen(
        self: &Arc<Broker>,
        id: SocketId,
        ipv6: bool,
        backlog: u32,
        user: u32,
    ) -> Result<(), Errno> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        let (acceptor, local, dual, reuses) = {
            let mut table = lock(&self.table);
            let socket = table.socket(id, ipv6).ok_or(libc::ENOBUFS)?;
            match &socket.state {
                State::Listening(_) => return Ok(()),
                State::Idle => {}
                _ => return Err(libc::EINVAL),
            }
            let tcp = socket.tcp().map_err(|error| errno(&error))?;
            if !tcp.local_addr().is_ok_and(|at| at.as_socket().is_some_and(|at| at.port() != 0)) {
                // ip(7): a socket that is not bound listens at any port.
                let any = if ipv6 { "[::]:0" } else { "0.0.0.0:0" };
                let any: SocketAddr = any.parse().map_err(|_| libc::EINVAL)?;
                bind_tcp(tcp, any).map_err(|error| errno(&error))?;
            }
            let acceptor = self.network.listen_by_socket(tcp, backlog);
            let acceptor = acceptor.map_err(|error| errno(&error))?;
            let local = tcp.local_addr().map_err(|error| errno(&error))?;
            let local = unmapped(local.as_socket().ok_or(libc::EINVAL)?);
            let dual = ipv6 && !tcp.only_v6().unwrap_or(true);
            let reuses = tcp.reuse_port().unwrap_or(false);
            socket.is_bound = true;
            socket.state = State::Listening(None);
            (acceptor, local, dual, reuses)
        };
        self.begin_to_accept(id, (ipv6, user), acceptor, local, dual, reuses).await;
        Ok(())
    }

    /// Looks at all sockets of the table once.
    fn sweep_all(&self) {
        let count = lock(&self.table).len();
        for _ in 0..=count / 256 {
            self.sweep();
        }
    }
}

/// Binds a socket of TCP. Any port is one whose number is free for UDP as well, as long as such are found soon.
fn bind_tcp(tcp: &socket2::Socket, to: SocketAddr) -> io::Result<()> {
    for _ in 0..ANY_PORT {
        if to.port() != 0 {
            break;
        }
        let Ok(free) = std::net::UdpSocket::bind(to).and_then(|socket| socket.local_addr()) else {
            break;
        };
        if tcp.bind(&SocketAddr::new(to.ip(), free.port()).into()).is_ok() {
            return Ok(());
        }
    }
    tcp.bind(&to.into())
}

fn first_unprivileged() -> u16 {
    let (file, default) = PRIVILEGED;
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.trim().parse().unwrap_or(default)
}

/// Waits for a request and returns how much of it is present and its whole length. It stays to be read: for a socket of
/// the program that is the sign that its connection stands.
async fn peek(stream: &UnixStream, out: &mut [u8]) -> io::Result<(usize, usize)> {
    loop {
        stream.readable().await?;
        let peeked = stream
            .try_io(Interest::READABLE, || Ok(recv(stream.as_raw_fd(), out, MsgFlags::MSG_PEEK)?));
        let present = match peeked {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(present) => present,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        // One call of the library writes it, and the kernel shows so much of that at once.
        if present < START {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let whole = Request::length(out).map_err(io::Error::other)?;
        if whole > MAX_PADDED || whole.min(out.len()) > present {
            return Err(io::ErrorKind::InvalidData.into());
        }
        return Ok((present.min(whole), whole));
    }
}

/// Reads a request away, so that the socket has room again.
pub(super) async fn discard(stream: &UnixStream, mut length: usize) -> io::Result<()> {
    let mut buffer = vec![0; length.min(64 << 10)];
    while length > 0 {
        stream.readable().await?;
        let wanted = length.min(buffer.len());
        match stream.try_read(&mut buffer[..wanted]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => length -= count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
