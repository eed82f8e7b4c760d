//! Bytes between a program's socket and its connection, in both directions, and their ends.
//!
//! What a socket of TCP does is done here by what happens to a Unix socket: the end of one direction, a close with unread
//! data, a close while the peer still sends, a reset.

use crate::network::{Received, Transport};
use bytes::{Bytes, BytesMut};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UnixStream;

/// Octets that are read from a program at once, and travel as one message.
const READ: usize = 32 << 10;
/// Time for which a connection without its program waits for the peer's end (tcp(7), tcp_fin_timeout).
const ORPHAN: Duration = Duration::from_secs(60);
/// Time between two looks whether a program that has ended its direction has closed its socket.
const LOOK: Duration = Duration::from_millis(200);

/// What a pump shares with those who ask about the connection.
#[derive(Default)]
pub(crate) struct Counts {
    /// Octets from the program to the peer.
    pub(crate) sent: AtomicU64,
    /// Octets from the peer to the program.
    pub(crate) received: AtomicU64,
    /// Whether a close discards what is not sent (socket(7), SO_LINGER with a time of zero).
    pub(crate) resets_on_close: AtomicBool,
}

/// How a connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Both directions in order.
    InOrder,
    /// The program has reset it, or has closed its socket before all was read.
    ByProgram,
    /// The transport has failed, with this error.
    ByPeer(i32),
}

/// Carries bytes until both directions have ended, or one has failed.
pub(crate) async fn pump(program: &UnixStream, transport: &Transport, counts: &Counts) -> Ended {
    let both = async {
        tokio::try_join!(
            from_program(program, transport, counts),
            to_program(program, transport, counts)
        )
    };
    match both.await {
        Ok(_) => {
            transport.close().await;
            Ended::InOrder
        }
        Err(ended) => {
            transport.abort();
            ended
        }
    }
}

fn failed(error: &io::Error) -> Ended {
    Ended::ByPeer(error.raw_os_error().unwrap_or(libc::ECONNRESET))
}

/// Carries what the program writes to the peer. After its end, waits until the program has closed its socket or the peer
/// has ended.
async fn from_program(
    program: &UnixStream,
    transport: &Transport,
    counts: &Counts,
) -> Result<(), Ended> {
    let mut buffer = BytesMut::new();
    loop {
        match read(program, &mut buffer).await {
            Ok(Some(bytes)) => {
                counts.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                transport.send(bytes).await.map_err(|error| failed(&error))?;
            }
            Ok(None) => break,
            // It has closed its socket with unread data (RFC 1122 section 4.2.2.13).
            Err(_) => return Err(Ended::ByProgram),
        }
    }
    let closed = ringway_os::has_hung_up(program.as_fd());
    if closed && counts.resets_on_close.load(Ordering::Relaxed) {
        return Err(Ended::ByProgram);
    }
    transport.finish().await.map_err(|error| failed(&error))
}

async fn read(program: &UnixStream, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    loop {
        program.readable().await?;
        buffer.reserve(READ);
        match program.try_read_buf(buffer) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(buffer.split().freeze())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Carries what comes from the peer to the program.
async fn to_program(
    program: &UnixStream,
    transport: &Transport,
    counts: &Counts,
) -> Result<(), Ended> {
    let mut buffer = Vec::with_capacity(READ);
    // A program that has shut its receiving direction down reads no more, and the peer does not learn of it.
    let mut reads = true;
    loop {
        buffer.clear();
        let received = tokio::select! {
            received = transport.receive(&mut buffer) => received.map_err(|error| failed(&error))?,
            () = orphaned(program) => return Err(Ended::ByProgram),
        };
        if received == Received::End {
            break;
        }
        counts.received.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        if reads && write(program, &buffer).await.is_err() {
            // Data for a socket that is closed is answered by a reset (RFC 1122 section 4.2.2.13).
            if ringway_os::has_hung_up(program.as_fd()) {
                return Err(Ended::ByProgram);
            }
            reads = false;
        }
    }
    // If the program has closed its socket, there is nobody to notify.
    let _ = socket2::SockRef::from(program).shutdown(std::net::Shutdown::Write);
    Ok(())
}

async fn write(program: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        program.writable().await?;
        match program.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the program has closed its socket, and then for so long as the peer may take for its end.
async fn orphaned(program: &UnixStream) {
    while !ringway_os::has_hung_up(program.as_fd()) {
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(ORPHAN).await;
}
