//! Talking to the broker: each request on a connection of its own, so that threads and processes share nothing.

use crate::address;
use crate::descriptor::Descriptor;
use crate::errno::{Errno, Result};
use crate::system;
use libc::{c_int, iovec};
use ringway_with_wire::request::{Action, MAX_REPLY, MAX_REQUEST};
use ringway_with_wire::{Environment, Name, Reply, Request, SocketId};

/// Octets of padding that one part of a message refers to.
const ZEROS: usize = 1 << 16;
static ZERO: [u8; ZEROS] = [0; ZEROS];
/// Parts of padding, which so are enough for a send buffer of 16 MiB.
const MAX_PARTS: usize = 64;
/// Milliseconds to wait for the broker to accept a connection.
const PATIENCE: u32 = 5_000;

/// Room for a reply.
pub(crate) struct Answer {
    octets: [u8; MAX_REPLY],
    length: usize,
}

impl Answer {
    /// Returns the value of the reply, or its error.
    pub(crate) fn value(&self) -> Result<&[u8]> {
        let reply = Reply::read(&self.octets[..self.length]).map_err(|_| Errno(libc::EPROTO))?;
        match c_int::try_from(reply.error) {
            Ok(0) => Ok(reply.value),
            Ok(error) => Err(Errno(error)),
            Err(_) => Err(Errno(libc::EPROTO)),
        }
    }
}

/// Connects a socket to the broker. One that does not wait is not let down by a queue that is full for a moment.
fn connect(fd: c_int, broker: &Environment) -> Result<()> {
    let name = address::unix(&Name::Broker, broker.broker)?;
    let mut left = PATIENCE;
    loop {
        match system::connect(fd, &name) {
            Err(Errno(libc::EAGAIN)) if left > 0 => system::pause(),
            Err(Errno(libc::EINTR)) if left > 0 => {}
            // The broker has ended.
            Err(Errno(libc::ECONNREFUSED)) => return Err(Errno(libc::ENETUNREACH)),
            Err(error) => return Err(error),
            Ok(()) => break,
        }
        left -= 1;
    }
    // Names are free for all users: one who has taken the broker's after its end must not learn the secret.
    if system::peer_user(fd)? == broker.user { Ok(()) } else { Err(Errno(libc::ENETUNREACH)) }
}

/// Connects a program's socket to the broker and asks it to connect that to a peer. The socket has no room for more
/// until the broker has read the request: so it becomes writable when the peer is connected, as one of TCP does.
pub(crate) fn begin(fd: c_int, socket: &Descriptor, action: Action<'_>) -> Result<()> {
    connect(fd, &socket.broker)?;
    // unix(7) is writable while no more than a quarter of the send buffer is in use.
    let buffer = usize::try_from(system::integer_option(fd, libc::SO_SNDBUF)?).unwrap_or(0);
    let padding = (buffer / 4 + 1).min(ZEROS * MAX_PARTS);
    let mut head = [0; MAX_REQUEST];
    let length = request(&socket.broker, socket.id, socket.ipv6, action, padding, &mut head)?;
    let mut parts = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_PARTS + 1];
    parts[0] = iovec { iov_base: head.as_mut_ptr().cast(), iov_len: length };
    let mut left = padding;
    for part in &mut parts[1..] {
        let count = left.min(ZEROS);
        *part = iovec { iov_base: ZERO.as_ptr().cast_mut().cast(), iov_len: count };
        left -= count;
    }
    let sent = system::send(fd, &parts)?;
    if sent == length + padding { Ok(()) } else { Err(Errno(libc::ENOBUFS)) }
}

fn request(
    broker: &Environment,
    id: SocketId,
    ipv6: bool,
    action: Action<'_>,
    padding: usize,
    out: &mut [u8; MAX_REQUEST],
) -> Result<usize> {
    let request = Request { secret: broker.secret, id, ipv6, action };
    request.write(padding, out).map_err(|_| Errno(libc::EINVAL))
}

/// Asks the broker and waits for the reply, at most for `limit`; EAGAIN when that has passed. A signal ends the wait for
/// the end of a connection attempt as it ends connect(2): not if its handler was installed with SA_RESTART.
pub(crate) fn ask(
    socket: &Descriptor,
    action: Action<'_>,
    limit: Option<&libc::timeval>,
) -> Result<Answer> {
    let fd = system::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)?;
    let answer = ask_on(fd, socket, action, limit);
    system::close(fd);
    answer
}

/// Asks for the descriptor of the table for datagrams.
pub(crate) fn table(process: &Descriptor) -> Result<c_int> {
    let fd = system::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)?;
    let received = connect(fd, &process.broker).and_then(|()| {
        let mut head = [0; MAX_REQUEST];
        let length =
            request(&process.broker, process.id, false, Action::Translations, 0, &mut head)?;
        system::send(fd, &[iovec { iov_base: head.as_mut_ptr().cast(), iov_len: length }])?;
        system::receive_descriptor(fd)
    });
    system::close(fd);
    received
}

fn ask_on(
    fd: c_int,
    socket: &Descriptor,
    action: Action<'_>,
    limit: Option<&libc::timeval>,
) -> Result<Answer> {
    let waits = matches!(action, Action::Await);
    connect(fd, &socket.broker)?;
    let mut head = [0; MAX_REQUEST];
    let length = request(&socket.broker, socket.id, socket.ipv6, action, 0, &mut head)?;
    if let Some(limit) = limit {
        system::set_receive_timeout(fd, limit);
    }
    system::send(fd, &[iovec { iov_base: head.as_mut_ptr().cast(), iov_len: length }])?;
    let mut answer = Answer { octets: [0; MAX_REPLY], length: 0 };
    loop {
        match system::receive(fd, &mut answer.octets[answer.length..]) {
            Ok(0) | Err(Errno(libc::ECONNRESET)) => return Err(Errno(libc::ENETUNREACH)),
            Ok(count) => answer.length += count,
            Err(Errno(libc::EINTR)) if !waits => continue,
            Err(error) => return Err(error),
        }
        if Reply::read(&answer.octets[..answer.length]).is_ok() {
            return Ok(answer);
        }
    }
}
