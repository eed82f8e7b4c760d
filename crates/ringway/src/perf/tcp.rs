//! Messages over TCP: each behind its length in four bytes. What is at hand leaves together, and is
//! read together, as a program would that cares for speed.

use super::output::Shown;
use super::protocol::{DATA, Reply, Session, echoed};
use super::{MAX_SIZE, SILENCE, Trouble, silent};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Bytes of a length.
const HEADER: usize = 4;
/// Bytes written and read at one go.
const BLOCK: usize = 256 << 10;
/// How long no connection is taken after one could not be.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection and what was read of it.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What of the buffer is read and not taken.
    start: usize,
    end: usize,
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + message.len());
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

fn wrong(error: std::io::Error) -> Trouble {
    Trouble::Failed(error.to_string())
}

impl Connection {
    fn new(stream: TcpStream) -> std::io::Result<Connection> {
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; BLOCK], start: 0, end: 0 })
    }

    /// Connects, from an address if one is given.
    pub(crate) async fn open(to: SocketAddr, from: Option<IpAddr>) -> Result<Connection, Trouble> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(wrong)?;
        if let Some(from) = from {
            socket.bind(SocketAddr::new(from, 0)).map_err(wrong)?;
        }
        Connection::new(socket.connect(to).await.map_err(wrong)?).map_err(wrong)
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, message: &[u8]) -> Result<(), Trouble> {
        self.stream.write_all(&framed(message)).await.map_err(wrong)
    }

    /// The next message; `None` at the end.
    pub(crate) async fn hear(&mut self) -> Result<Option<&[u8]>, Trouble> {
        while self.whole()?.is_none() {
            if !self.fill().await? {
                return Ok(None);
            }
        }
        let length = self.whole()?.unwrap_or_default();
        let body = self.start + HEADER;
        self.start = body + length;
        Ok(Some(&self.buffer[body..body + length]))
    }

    /// The length of the next message, if all of it is here.
    fn whole(&self) -> Result<Option<usize>, Trouble> {
        let here = &self.buffer[self.start..self.end];
        let Some(header) = here.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes(*header) as usize;
        if length > MAX_SIZE {
            let text = format!("tcp: expected a message of at most {MAX_SIZE} bytes, got {length}");
            return Err(Trouble::Failed(text));
        }
        Ok((here.len() >= HEADER + length).then_some(length))
    }

    /// Reads more; `false` at the end.
    async fn fill(&mut self) -> Result<bool, Trouble> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                self.buffer.resize(2 * self.end, 0);
            }
        }
        let read = self.stream.read(&mut self.buffer[self.end..]).await;
        let read = read.map_err(wrong)?;
        self.end += read;
        Ok(read > 0)
    }

    /// Sends data until then: how many messages.
    pub(crate) async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, Trouble> {
        let mut message = vec![0; size];
        message[0] = DATA;
        let count = (BLOCK / (HEADER + size)).max(1);
        let block = framed(&message).repeat(count);
        let mut sent = 0;
        while Instant::now() < until {
            let given = tokio::time::timeout(SILENCE, self.stream.write_all(&block));
            given.await.map_err(|_| silent())?.map_err(wrong)?;
            sent += count as u64;
        }
        Ok(sent)
    }
}

/// Answers clients.
pub(crate) async fn serve(at: SocketAddr, shown: Shown) -> Result<(), Trouble> {
    let wrong = |error| Trouble::at(format_args!("tcp on {at}"), error);
    let listener = TcpListener::bind(at).await.map_err(wrong)?;
    shown.waits(&format!("tcp on {at}"));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // One that was gone before it was taken, or no descriptor for one more: others may end.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(connection) = Connection::new(stream) else { continue };
        let shown = shown.clone();
        tokio::spawn(async move {
            if let Err(Trouble::Failed(line)) = answer(connection, peer, &shown).await {
                shown.fault(&format!("{peer}: {line}"));
            }
        });
    }
}

async fn answer(
    mut connection: Connection,
    peer: SocketAddr,
    shown: &Shown,
) -> Result<(), Trouble> {
    let mut session = Session::default();
    loop {
        let now = Instant::now();
        while let Some(length) = connection.whole()? {
            let body = connection.start + HEADER;
            connection.start = body + length;
            let message = &connection.buffer[body..body + length];
            let reply = match session.take(now, message, length, false) {
                Reply::Nothing => continue,
                Reply::Echo => framed(&echoed(message)),
                Reply::Say(bytes) => framed(&bytes),
            };
            let sent = connection.stream.write_all(&reply).await;
            sent.map_err(wrong)?;
            shown.measured(&peer, session.result());
        }
        if !connection.fill().await? {
            return Ok(());
        }
    }
}
