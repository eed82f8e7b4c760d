//! A connection with an association of its own, for a peer that does not share one.

use super::below::{Below, CLOSE, MAX_TAKEN, failed};
use super::opened::Received;
use crate::locking::lock;
use bytes::Bytes;
use ringway_sctp_tokio::{Association, Received as Part, SendOptions};
use ringway_with_wire::stream::{self, DATA, Delivery, FIN, FIN_PAYLOAD, Piece, Receiving};
use std::io;
use std::sync::Mutex;

/// A connection over an association of its own.
pub(crate) struct AloneTransport {
    association: Association,
    below: Below,
    /// The receiving direction, which one task at a time has.
    receiving: Mutex<Buffered>,
}

#[derive(Default)]
struct Buffered {
    receiving: Receiving,
    parts: Vec<Part>,
}

fn options(ppid: u32) -> SendOptions {
    SendOptions { ppid, ..SendOptions::default() }
}

impl AloneTransport {
    pub(super) fn new(association: Association, below: Below) -> AloneTransport {
        AloneTransport { association, below, receiving: Mutex::default() }
    }

    pub(super) fn association(&self) -> &Association {
        &self.association
    }

    pub(super) fn title(&self) -> String {
        self.below.title_of(&self.association)
    }

    pub(super) async fn send(&self, bytes: Bytes) -> io::Result<()> {
        self.association.send(bytes, &options(DATA)).await.map_err(failed)
    }

    pub(super) async fn finish(&self) -> io::Result<()> {
        let end = Bytes::from_static(FIN_PAYLOAD);
        self.association.send(end, &options(FIN)).await.map_err(failed)
    }

    pub(super) async fn receive(&self, out: &mut Vec<u8>) -> io::Result<Received> {
        if lock(&self.receiving).receiving.is_ended() {
            return Ok(Received::End);
        }
        let before = out.len();
        let mut parts = std::mem::take(&mut lock(&self.receiving).parts);
        let taken = self.association.recv_many_into(out, &mut parts, MAX_TAKEN).await;
        let count = taken.map_err(failed)?;
        // A peer that shuts down has sent all there is.
        if count == 0 {
            return Ok(Received::End);
        }
        let mut buffered = lock(&self.receiving);
        let kept = take(&mut buffered.receiving, &parts, out.len() - before);
        parts.clear();
        buffered.parts = parts;
        match kept {
            // The end is reported by the next call, once the bytes before it are read.
            Ok(kept) if kept > 0 => {
                out.truncate(before + kept);
                Ok(Received::Bytes)
            }
            Ok(_) => {
                out.truncate(before);
                Ok(Received::End)
            }
            Err(violation) => {
                out.truncate(before);
                // It has ended, if it cannot be aborted.
                let _ = self.association.abort(violation.to_string().as_bytes());
                Err(io::Error::from_raw_os_error(libc::ECONNRESET))
            }
        }
    }

    pub(super) fn abort(&self) {
        // It has ended, if it cannot be aborted.
        let _ = self.association.abort(stream::RESET);
    }

    pub(super) async fn close(&self) {
        // What remains is gone after that time; the peer has what it was sent, or is not there.
        let _ = tokio::time::timeout(CLOSE, self.association.shutdown()).await;
    }
}

/// Takes the parts of messages in. Returns how many of the octets are bytes of the stream; what follows those is the end.
fn take(
    receiving: &mut Receiving,
    parts: &[Part],
    octets: usize,
) -> Result<usize, stream::Violation> {
    let mut kept = 0;
    for part in parts {
        let &Part { stream, ppid, unordered, cut, len, .. } = part;
        let delivery = Delivery { stream, ppid, unordered, cut, length: len };
        match receiving.take(&delivery)? {
            Piece::Bytes => kept += len,
            Piece::End => {}
        }
    }
    Ok(kept.min(octets))
}
