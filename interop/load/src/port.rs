//! One place a worker sends from and hears at: a connected UDP socket, or one connection over TCP or TLS. Above
//! this line both look the same: messages come in whole, and go out in the order they were written.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use memchr::memmem;

use crate::clock;
use crate::error::{Error, doing};
use crate::floor::Mark;
use crate::message;
use crate::secure::{self, Identity};
use crate::udp::{self, Receiver, Socket};

/// Batches taken from one port before the others get their turn.
const MAX_TURNS: usize = 8;
/// Room offered to one read of a connection, bytes.
const READ_ROOM: usize = 64 << 10;
/// Longest message taken from a connection, bytes.
const MAX_FRAME: usize = 64 << 10;
/// Bytes a connection may owe its peer before more are thrown away.
const MAX_UNSENT: usize = 64 << 20;

/// The transport messages travel over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    /// One datagram a message.
    Udp,
    /// Messages framed by Content-Length.
    Tcp,
    /// The same under TLS.
    Tls,
}

impl Transport {
    /// As written in a Via.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }

    /// What a Contact needs so that it is reached over this transport.
    pub(crate) fn parameter(self) -> &'static str {
        match self {
            Self::Udp => "",
            Self::Tcp => ";transport=tcp",
            Self::Tls => ";transport=tls",
        }
    }

    /// Whether what is sent arrives without being repeated (RFC 3261 section 17).
    pub(crate) fn is_reliable(self) -> bool {
        self != Self::Udp
    }
}

/// Which message of a call to remember the sending time of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Which call or user.
    pub(crate) slot: u32,
    /// Which use of the slot.
    pub(crate) generation: u32,
    /// Which message.
    pub(crate) what: Sent,
}

/// The messages whose sending time matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Invite,
    Ringing,
    Ok,
    Bye,
    Register,
}

/// Messages written and not yet given to the system.
#[derive(Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    stamps: Vec<(usize, Stamp)>,
}

impl Outgoing {
    /// Where to write the next message. `mark` stands before it when a floor is to read it.
    pub(crate) fn begin(&mut self, mark: Option<Mark>) -> &mut Vec<u8> {
        if let Some(mark) = mark {
            self.bytes.extend_from_slice(&mark.bytes());
        }
        &mut self.bytes
    }

    /// Ends the message begun.
    pub(crate) fn end(&mut self, stamp: Option<Stamp>) {
        if let Some(stamp) = stamp {
            self.stamps.push((self.ends.len(), stamp));
        }
        self.ends.push(self.bytes.len());
    }

    /// The message that was ended last, marker included.
    pub(crate) fn last(&self) -> &[u8] {
        let end = self.ends.len();
        let start = if end < 2 { 0 } else { self.ends[end - 2] };
        &self.bytes[start..]
    }

    /// Adds a message written before.
    pub(crate) fn again(&mut self, message: &[u8], stamp: Option<Stamp>) {
        self.bytes.extend_from_slice(message);
        self.end(stamp);
    }

    /// Everything written, as text, for tests that stand in for a server.
    #[cfg(test)]
    pub(crate) fn drain(&mut self) -> Vec<String> {
        let mut start = 0;
        let mut messages = Vec::new();
        for end in &self.ends {
            messages.push(String::from_utf8_lossy(&self.bytes[start..*end]).into_owned());
            start = *end;
        }
        self.clear();
        messages
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.stamps.clear();
    }

    /// Tells the stamps of messages `from..to`, which went at `now`.
    fn tell(&self, from: usize, to: usize, now: u64, sent: &mut dyn FnMut(Stamp, u64)) {
        let first = self.stamps.partition_point(|(message, _)| *message < from);
        for (message, stamp) in &self.stamps[first..] {
            if *message >= to {
                break;
            }
            sent(*stamp, now);
        }
    }
}

/// What the machine itself did wrong, so that it is not blamed on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Troubles {
    /// Datagrams dropped because the generator's own receive buffers were full.
    pub(crate) own_drops: u64,
    /// Sends or receives answered "connection refused": nobody listens at the server's address.
    pub(crate) refused: u64,
    /// Messages the system would not take.
    pub(crate) not_sent: u64,
    /// Connections that ended or spoke no SIP.
    pub(crate) connections_lost: u64,
}

impl Troubles {
    /// Adds another's counts.
    pub(crate) fn add(&mut self, other: Self) {
        self.own_drops += other.own_drops;
        self.refused += other.refused;
        self.not_sent += other.not_sent;
        self.connections_lost += other.connections_lost;
    }
}

/// A port's name in messages.
pub(crate) struct Local {
    /// Which of the worker's ports.
    pub(crate) index: usize,
    /// Its port number.
    pub(crate) number: u16,
    /// `host:port`, an IPv6 host in brackets.
    pub(crate) sent_by: Vec<u8>,
    /// A Via line up to and including the magic cookie of the branch (RFC 3261 section 8.1.1.7).
    pub(crate) via: Vec<u8>,
}

impl Local {
    /// The names of an address.
    pub(crate) fn new(index: usize, address: SocketAddr, transport: Transport) -> Self {
        let via = format!("Via: SIP/2.0/{} {address};rport;branch=z9hG4bK", transport.name())
            .into_bytes();
        Self { index, number: address.port(), sent_by: address.to_string().into_bytes(), via }
    }
}

/// A message as it came.
pub(crate) struct Incoming<'a> {
    pub(crate) bytes: &'a [u8],
    /// Arrival on the real-time clock, nanoseconds.
    pub(crate) at: u64,
    pub(crate) truncated: bool,
}

enum Link {
    Udp(Socket),
    Stream(Stream),
}

/// What carries the bytes of a stream.
enum Carrier {
    Tcp(TcpStream),
    Tls(secure::Link),
}

impl Carrier {
    fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(socket) => socket,
            Self::Tls(link) => link.socket(),
        }
    }

    fn transport(&self) -> Transport {
        match self {
            Self::Tcp(_) => Transport::Tcp,
            Self::Tls(_) => Transport::Tls,
        }
    }

    /// Whether bytes that were taken from us wait for the socket.
    fn owes(&self) -> bool {
        matches!(self, Self::Tls(link) if link.owes())
    }
}

impl Read for Carrier {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(room),
            Self::Tls(link) => link.read(room),
        }
    }
}

impl Write for Carrier {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Tls(link) => link.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.flush(),
            Self::Tls(link) => link.flush(),
        }
    }
}

/// A socket or connection with what waits to be sent over it.
pub(crate) struct Port {
    link: Link,
    pub(crate) local: Local,
    pub(crate) out: Outgoing,
    troubles: Troubles,
}

impl Port {
    /// A new port number that speaks with `server`.
    pub(crate) fn connect(
        index: usize,
        server: SocketAddr,
        transport: Transport,
        identity: Option<&Identity>,
    ) -> Result<Self, Error> {
        match transport {
            Transport::Udp => {
                let what = "cannot open a UDP socket";
                let socket = doing(what, Socket::connected(server))?;
                doing(what, socket.stamp_received())?;
                let local = Local::new(index, socket.local(), transport);
                Ok(Self::over(Link::Udp(socket), local))
            }
            Transport::Tcp | Transport::Tls => {
                let stream =
                    doing(format!("cannot connect to {server}"), TcpStream::connect(server))?;
                let carrier = match identity {
                    Some(identity) => Carrier::Tls(identity.connect(stream, server.ip())?),
                    None => Carrier::Tcp(stream),
                };
                Self::stream(index, carrier)
            }
        }
    }

    /// A connection that the server has opened.
    pub(crate) fn accepted(
        index: usize,
        stream: TcpStream,
        identity: Option<&Identity>,
    ) -> Result<Self, Error> {
        let carrier = match identity {
            Some(identity) => Carrier::Tls(identity.accept(stream)?),
            None => Carrier::Tcp(stream),
        };
        Self::stream(index, carrier)
    }

    fn stream(index: usize, carrier: Carrier) -> Result<Self, Error> {
        let what = "cannot prepare a TCP connection";
        let (socket, transport) = (carrier.socket(), carrier.transport());
        doing(what, socket.set_nonblocking(true))?;
        doing(what, socket.set_nodelay(true))?;
        let local = Local::new(index, doing(what, socket.local_addr())?, transport);
        Ok(Self::over(Link::Stream(Stream::new(carrier)), local))
    }

    fn over(link: Link, local: Local) -> Self {
        Self { link, local, out: Outgoing::default(), troubles: Troubles::default() }
    }

    /// Receive buffer the kernel granted, by its own count; zero for a connection.
    pub(crate) fn receive_buffer(&self) -> usize {
        match &self.link {
            Link::Udp(socket) => socket.receive_buffer(),
            Link::Stream(_) => 0,
        }
    }

    /// What went wrong here so far.
    pub(crate) fn troubles(&self) -> Troubles {
        let own_drops = match &self.link {
            Link::Udp(socket) => socket.drops(),
            Link::Stream(_) => 0,
        };
        Troubles { own_drops, ..self.troubles }
    }

    /// Passes on every message that has come. Returns whether more may be waiting.
    pub(crate) fn receive(
        &mut self,
        receiver: &mut Receiver,
        mut take: impl FnMut(Incoming<'_>, &Local, &mut Outgoing),
    ) -> Result<bool, Error> {
        for _ in 0..MAX_TURNS {
            let more = match &mut self.link {
                Link::Udp(socket) => match receiver.receive(socket) {
                    Ok(n) => {
                        for i in 0..n {
                            let got = receiver.get(i);
                            let (at, truncated) = (got.at, got.truncated);
                            let incoming = Incoming { bytes: got.bytes, at, truncated };
                            take(incoming, &self.local, &mut self.out);
                        }
                        n == udp::RECEIVE_BATCH
                    }
                    Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                        self.troubles.refused += 1;
                        true
                    }
                    Err(e) => return doing("cannot receive", Err(e)),
                },
                Link::Stream(stream) => {
                    let (local, out) = (&self.local, &mut self.out);
                    match stream.receive(|incoming| take(incoming, local, out)) {
                        Ok(more) => more,
                        Err(_) => {
                            self.troubles.connections_lost += u64::from(!stream.closed);
                            stream.closed = true;
                            false
                        }
                    }
                }
            };
            if !more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives everything written to the system; `sent` is told of each stamp and its time.
    pub(crate) fn flush(&mut self, sent: &mut dyn FnMut(Stamp, u64)) {
        if self.out.ends.is_empty() && !self.owes() {
            return;
        }
        match &mut self.link {
            Link::Udp(socket) => {
                let mut done = 0;
                let mut start = 0;
                let mut attempts = 0;
                while done < self.out.ends.len() {
                    let now = clock::realtime();
                    match udp::send(socket, &self.out.bytes, start, &self.out.ends[done..]) {
                        Ok(n) if n > 0 => {
                            self.out.tell(done, done + n, now, sent);
                            done += n;
                            start = self.out.ends[done - 1];
                            attempts = 0;
                        }
                        // A pending refusal of an earlier datagram is told here, and this one has
                        // not been tried yet.
                        Err(e) if e.kind() == ErrorKind::ConnectionRefused && attempts == 0 => {
                            self.troubles.refused += 1;
                            attempts += 1;
                        }
                        Err(e) if e.kind() == ErrorKind::Interrupted => {}
                        Ok(_) | Err(_) => {
                            self.troubles.not_sent += 1;
                            start = self.out.ends[done];
                            done += 1;
                            attempts = 0;
                        }
                    }
                }
            }
            Link::Stream(stream) => {
                self.out.tell(0, self.out.ends.len(), clock::realtime(), sent);
                if stream.send(&self.out.bytes).is_err() {
                    self.troubles.not_sent += self.out.ends.len() as u64;
                    self.troubles.connections_lost += u64::from(!stream.closed);
                    stream.closed = true;
                }
            }
        }
        self.out.clear();
    }

    fn owes(&self) -> bool {
        matches!(&self.link, Link::Stream(stream) if stream.owes())
    }
}

/// One connection: bytes in until a message is whole, bytes out as the peer takes them.
struct Stream {
    inner: Carrier,
    read: Vec<u8>,
    unsent: Vec<u8>,
    closed: bool,
}

impl Stream {
    fn new(inner: Carrier) -> Self {
        Self { inner, read: Vec::new(), unsent: Vec::new(), closed: false }
    }

    /// Reads once and passes on whole messages. Returns whether more bytes may be waiting.
    fn receive(&mut self, mut take: impl FnMut(Incoming<'_>)) -> io::Result<bool> {
        if self.closed {
            return Ok(false);
        }
        let old = self.read.len();
        self.read.resize(old + READ_ROOM, 0);
        let got = match self.inner.read(&mut self.read[old..]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
            other => other,
        };
        self.read.truncate(old + *got.as_ref().unwrap_or(&0));
        let got = got?;
        let at = clock::realtime();
        let mut start = 0;
        while let Some(length) = frame(&self.read[start..])? {
            let bytes = &self.read[start..start + length];
            // RFC 5626 section 4.4.1: bare line ends are keep-alives.
            if bytes.iter().any(|b| !b.is_ascii_whitespace()) {
                take(Incoming { bytes, at, truncated: false });
            }
            start += length;
        }
        self.read.drain(..start);
        // TLS hands out a record at a time.
        Ok(got == READ_ROOM || (got > 0 && matches!(self.inner, Carrier::Tls(_))))
    }

    fn owes(&self) -> bool {
        !self.closed && (!self.unsent.is_empty() || self.inner.owes())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.closed || self.unsent.len() + bytes.len() > MAX_UNSENT {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.unsent.extend_from_slice(bytes);
        let mut gone = 0;
        while gone < self.unsent.len() {
            match self.inner.write(&self.unsent[gone..]) {
                Ok(n) => gone += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.unsent.drain(..gone);
        match self.inner.flush() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }
}

/// The length of the first whole message in a stream, by Content-Length (RFC 3261 section 18.3).
fn frame(bytes: &[u8]) -> io::Result<Option<usize>> {
    if bytes.starts_with(b"\r\n") {
        return Ok(Some(2));
    }
    let bad = |what| Err(io::Error::new(ErrorKind::InvalidData, what));
    let Some(head) = memmem::find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > MAX_FRAME { bad("endless header") } else { Ok(None) };
    };
    let Some(body) = message::content_length(&bytes[..head + 2]) else {
        return bad("unreadable Content-Length");
    };
    let length = head + 4 + body;
    if length > MAX_FRAME {
        return bad("message too long");
    }
    Ok((bytes.len() >= length).then_some(length))
}

/// Where a server connects to when a user's contact names TCP or TLS.
pub(crate) struct Listener {
    inner: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on a free port of the address by which `server` is reached.
    pub(crate) fn new(beside: &Port) -> Result<Self, Error> {
        let what = "cannot listen for the server's connections";
        let Link::Stream(stream) = &beside.link else {
            return Err(Error::Usage("a listener is only for connections".into()));
        };
        let ip = doing(what, stream.inner.socket().local_addr())?.ip();
        let inner = doing(what, TcpListener::bind((ip, 0)))?;
        doing(what, inner.set_nonblocking(true))?;
        let address = doing(what, inner.local_addr())?;
        Ok(Self { inner, address })
    }

    /// The address to put into contacts.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection that has come in, if one has.
    pub(crate) fn accept(&self) -> Option<TcpStream> {
        self.inner.accept().ok().map(|(stream, _)| stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_by_content_length() {
        let one = b"A b SIP/2.0\r\nContent-Length: 3\r\n\r\nabc";
        let mut two = one.to_vec();
        two.extend_from_slice(b"\r\nB");
        assert_eq!(frame(&two).unwrap(), Some(one.len()));
        assert_eq!(frame(&two[one.len()..]).unwrap(), Some(2));
        assert_eq!(frame(&one[..one.len() - 1]).unwrap(), None);
        assert!(frame(b"A b SIP/2.0\r\nContent-Length: 99999999\r\n\r\n").is_err());
    }

    #[test]
    fn stamps_belong_to_the_message_they_were_written_with() {
        let mut out = Outgoing::default();
        let stamp = |slot| Stamp { slot, generation: 0, what: Sent::Ok };
        for i in 0..5 {
            out.begin(None).push(b'x');
            out.end((i % 2 == 0).then(|| stamp(i)));
        }
        let mut told = Vec::new();
        out.tell(1, 4, 7, &mut |s, at| told.push((s.slot, at)));
        assert_eq!(told, [(2, 7)]);
    }
}
