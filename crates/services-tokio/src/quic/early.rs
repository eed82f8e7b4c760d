//! Data before the end of the handshake (RFC 9001 section 4.6): at the end that opens a connection one message, at the other
//! what comes before the peer has proved that it is there.

use super::{QuicStreams, Stream};
use crate::carrier::Carrier;
use crate::error::Error;
use crate::transport::FirstMessage;
use quinn::{Connecting, ConnectionError, RecvStream, SendStream, VarInt};
use ringway_services::queue::ConnectionId;
use ringway_services::sending::Sending;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Octets of a message that is sent before the end of the handshake: with its framing it fits into the first congestion window
/// of 14,720 octets (RFC 9002 section 7.2), beside the packets of the handshake.
const MAX_EARLY: usize = 12 * 1024;
/// The code with which a connection ends whose handshake does not.
const NOT_CONFIRMED: VarInt = VarInt::from_u32(1);
const NOT_ENDED: &str = "the handshake has not ended";

/// Whether the handshake has ended. What is received before may be a replay (RFC 8470 section 3).
#[derive(Clone)]
pub(crate) struct Confirmed(Option<watch::Receiver<bool>>);

impl Confirmed {
    pub(super) fn get(&self) -> bool {
        self.0.as_ref().is_none_or(|confirmed| *confirmed.borrow())
    }
}

/// A connection whose first message was sent.
pub(crate) type Sent = (ConnectionId, Box<dyn Carrier>);

/// A QUIC connection and how it has begun.
pub(crate) struct Begun {
    pub(super) connection: quinn::Connection,
    /// The streams, if a message was sent early and the peer has accepted it.
    streams: Option<Arc<QuicStreams>>,
    /// The connection that has sent it.
    sent: Option<Sent>,
    /// A stream that the peer has opened early.
    opened: Option<(SendStream, RecvStream)>,
    confirmed: Confirmed,
}

impl From<quinn::Connection> for Begun {
    fn from(connection: quinn::Connection) -> Begun {
        let confirmed = Confirmed(None);
        Begun { connection, streams: None, sent: None, opened: None, confirmed }
    }
}

/// Ends a connection that nobody has taken over, although the task of its stream runs.
impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(streams) = self.streams.take() {
            streams.abort();
        }
    }
}

impl Begun {
    /// Waits for the end of the handshake.
    pub(super) async fn confirm(&mut self) -> Result<(), Error> {
        if let Confirmed(Some(confirmed)) = &mut self.confirmed {
            let has_ended = confirmed.wait_for(|has_ended| *has_ended).await;
            has_ended.map_err(|_| Error::lost(NOT_ENDED))?;
        }
        Ok(())
    }

    /// Returns the streams of the connection, which `new` makes if there are none, the connection that has sent its first
    /// message, and a stream that the peer has opened.
    pub(crate) fn into_streams(
        mut self,
        new: impl FnOnce(quinn::Connection, Confirmed) -> Arc<QuicStreams>,
    ) -> (Arc<QuicStreams>, Option<Sent>, Option<(SendStream, RecvStream)>) {
        let (connection, confirmed) = (self.connection.clone(), self.confirmed.clone());
        let streams = self.streams.take().unwrap_or_else(|| new(connection, confirmed));
        (streams, self.sent.take(), self.opened.take())
    }
}

fn failed(error: ConnectionError) -> Error {
    Error::security("QUIC", error)
}

/// Completes the handshake of a connection that is opened here. With a session of the peer's, the message is sent before that,
/// if it may be received twice. A peer that rejects it has not seen it, and it is sent again behind the handshake.
pub(super) async fn connect(
    connecting: Connecting,
    first: Option<(&FirstMessage, Sending)>,
    new: impl FnOnce(quinn::Connection, Confirmed) -> Arc<QuicStreams>,
) -> Result<Begun, Error> {
    let is_early = |(first, sending): &(&FirstMessage, Sending)| {
        // A datagram would not be sent again.
        first.properties.safely_replayable && sending.reliable && first.bytes.len() <= MAX_EARLY
    };
    let Some((first, sending)) = first.filter(is_early) else {
        return Ok(connecting.await.map_err(failed)?.into());
    };
    let (connection, accepted) = match connecting.into_0rtt() {
        Ok(begun) => begun,
        // There is no session.
        Err(connecting) => return Ok(connecting.await.map_err(failed)?.into()),
    };
    let mut begun = Begun::from(connection.clone());
    let streams = new(connection, begun.confirmed.clone());
    begun.streams = Some(streams.clone());
    let mut accepted = pin!(accepted);
    let carrier = tokio::select! {
        biased;
        carrier = send(&streams, first, &sending) => Some(carrier?),
        // The session permits no stream: nothing has been sent.
        _ = &mut accepted => None,
    };
    if let Some(mut carrier) = carrier
        && accepted.await
    {
        carrier.has_sent_first = true;
        begun.sent = Some((first.connection, Box::new(carrier)));
    } else {
        begun.streams = None;
    }
    match begun.connection.close_reason() {
        Some(reason) => Err(failed(reason)),
        None => Ok(begun),
    }
}

/// Sends a message on a stream of its own. Waits until there may be one.
async fn send(
    streams: &Arc<QuicStreams>,
    first: &FirstMessage,
    sending: &Sending,
) -> Result<Stream, Error> {
    let carrier = streams.open(first.connection, first.priority).await?;
    let mut bytes = first.bytes.clone();
    poll_fn(|cx| carrier.poll_send(cx, &mut bytes, sending)).await?;
    Ok(carrier)
}

/// Waits for the end of the handshake of a connection that a peer opens, or for a stream that it opens before: only a peer
/// with a session can. The handshake has this time, and the connection ends without it.
pub(super) async fn accept(connecting: Connecting, within: Duration) -> Result<Begun, Error> {
    let (connection, handshake) = match connecting.into_0rtt() {
        Ok(begun) => begun,
        Err(connecting) => return Ok(connecting.await.map_err(failed)?.into()),
    };
    let (sender, mut confirmed) = watch::channel(false);
    let begun = connection.clone();
    tokio::spawn(async move {
        // What this returns is for the other end.
        let has_ended = timeout(within, handshake).await.is_ok();
        if has_ended && begun.close_reason().is_none() {
            sender.send_replace(true);
        } else {
            begun.close(NOT_CONFIRMED, NOT_ENDED.as_bytes());
        }
    });
    let opened = tokio::select! {
        biased;
        changed = confirmed.changed() => {
            changed.map_err(|_| Error::lost(NOT_ENDED))?;
            None
        }
        opened = connection.accept_bi() => Some(opened.map_err(failed)?),
    };
    let confirmed = Confirmed(Some(confirmed));
    Ok(Begun { connection, streams: None, sent: None, opened, confirmed })
}
