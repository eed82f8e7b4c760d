//! Messages over TCP: each after its length in four bytes. Available data is written and read in
//! large blocks, as a program optimised for throughput would do.

use super::error::{PerfError, SILENCE_TIMEOUT, silence_error};
use super::output::Output;
use super::protocol::{DATA, MAX_SIZE, Reply, Session, echoed};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Size of the length field in bytes.
const HEADER: usize = 4;
/// Number of bytes written or read per call.
const BLOCK: usize = 256 << 10;
/// Pause after `accept` failed.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection and its read buffer.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bounds of the unprocessed part of the buffer.
    start: usize,
    end: usize,
}

fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + message.len());
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

fn to_error(error: std::io::Error) -> PerfError {
    PerfError::Failed(error.to_string())
}

impl Connection {
    fn new(stream: TcpStream) -> std::io::Result<Connection> {
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; BLOCK], start: 0, end: 0 })
    }

    /// Connects, from a given address if there is one.
    pub(crate) async fn open(
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> Result<Connection, PerfError> {
        let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(to_error)?;
        if let Some(from) = from {
            socket.bind(SocketAddr::new(from, 0)).map_err(to_error)?;
        }
        Connection::new(socket.connect(to).await.map_err(to_error)?).map_err(to_error)
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<(), PerfError> {
        self.stream.write_all(&framed(message)).await.map_err(to_error)
    }

    /// Receives the next message; `None` at the end.
    pub(crate) async fn receive(&mut self) -> Result<Option<&[u8]>, PerfError> {
        while self.complete_length()?.is_none() {
            if !self.fill().await? {
                return Ok(None);
            }
        }
        let length = self.complete_length()?.unwrap_or_default();
        let body = self.start + HEADER;
        self.start = body + length;
        Ok(Some(&self.buffer[body..body + length]))
    }

    /// Returns the length of the next message if it is complete.
    fn complete_length(&self) -> Result<Option<usize>, PerfError> {
        let here = &self.buffer[self.start..self.end];
        let Some(header) = here.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes(*header) as usize;
        if length > MAX_SIZE {
            let text = format!("tcp: expected a message of at most {MAX_SIZE} bytes, got {length}");
            return Err(PerfError::Failed(text));
        }
        Ok((here.len() >= HEADER + length).then_some(length))
    }

    /// Reads more data; returns `false` at the end.
    async fn fill(&mut self) -> Result<bool, PerfError> {
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
        let read = read.map_err(to_error)?;
        self.end += read;
        Ok(read > 0)
    }

    /// Sends data until a time; returns the number of messages.
    pub(crate) async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, PerfError> {
        let mut message = vec![0; size];
        message[0] = DATA;
        let count = (BLOCK / (HEADER + size)).max(1);
        let block = framed(&message).repeat(count);
        let mut sent = 0;
        while Instant::now() < until {
            let given = tokio::time::timeout(SILENCE_TIMEOUT, self.stream.write_all(&block));
            given.await.map_err(|_| silence_error())?.map_err(to_error)?;
            sent += count as u64;
        }
        Ok(sent)
    }
}

/// Answers clients.
pub(crate) async fn serve(at: SocketAddr, output: Output) -> Result<(), PerfError> {
    let to_error = |error| PerfError::at(format_args!("tcp on {at}"), error);
    let listener = TcpListener::bind(at).await.map_err(to_error)?;
    output.print_ready(&format!("tcp on {at}"));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // The connection was closed before it was accepted, or there is no descriptor left;
            // others may end.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Ok(connection) = Connection::new(stream) else { continue };
        let output = output.clone();
        tokio::spawn(async move {
            if let Err(PerfError::Failed(line)) = answer(connection, peer, &output).await {
                output.print_fault(&format!("{peer}: {line}"));
            }
        });
    }
}

async fn answer(
    mut connection: Connection,
    peer: SocketAddr,
    output: &Output,
) -> Result<(), PerfError> {
    let mut session = Session::default();
    loop {
        let now = Instant::now();
        while let Some(length) = connection.complete_length()? {
            let body = connection.start + HEADER;
            connection.start = body + length;
            let message = &connection.buffer[body..body + length];
            let reply = match session.take(now, message, length, false) {
                Reply::Nothing => continue,
                Reply::Echo => framed(&echoed(message)),
                Reply::Send(bytes) => framed(&bytes),
            };
            let sent = connection.stream.write_all(&reply).await;
            sent.map_err(to_error)?;
            output.print_measurement(&peer, session.result());
        }
        if !connection.fill().await? {
            return Ok(());
        }
    }
}
