//! Messages over SCTP, on the streams of one association.

use super::output::Shown;
use super::place::Place;
use super::protocol::{DATA, Reply, Session, echoed};
use super::{MAX_SIZE, SILENCE, Transport, Trouble, silent};
use bytes::Bytes;
use ringway_net::sctp::{
    Association, Config, Connect, Error, Over, Received, SendOptions, Settings, Stack,
};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Messages given at one go.
const BATCH: usize = 64;
/// Messages taken at one go.
const AT_ONCE: usize = 1024;
/// How long the end of an association is waited for.
const CLOSING: Duration = Duration::from_secs(5);

fn wrong(error: Error) -> Trouble {
    Trouble::Failed(error.to_string())
}

fn settings(streams: u16) -> Settings {
    Settings {
        // Any message has room; what is in flight is bounded by the peer's receive buffer.
        send_buffer: MAX_SIZE,
        outbound_streams: streams,
        inbound_streams: u16::MAX,
        // Trains as long as the windows allow: nobody else is on the path that is measured.
        max_burst: 0,
        ..Settings::default()
    }
}

/// A stack at these addresses; `port` is the UDP port, if it is for SCTP over UDP.
fn stack(transport: Transport, locals: &[IpAddr], port: u16) -> Result<Stack, Trouble> {
    let over = match transport {
        Transport::SctpUdp => Over::Udp { locals: locals.to_vec(), port },
        _ => Over::Ip,
    };
    Stack::new(Config::new(over)).map_err(wrong)
}

/// A client's association.
pub(crate) struct Channel {
    association: Association,
    streams: u16,
    next: u16,
    buffer: Vec<u8>,
}

impl Channel {
    /// Opens an association.
    pub(crate) async fn open(
        transport: Transport,
        place: &Place,
        from: &[IpAddr],
        streams: u16,
    ) -> Result<Channel, Trouble> {
        let mut locals = from.to_vec();
        if locals.is_empty() {
            for &remote in &place.addresses {
                let local = ringway_net::source_for(remote)
                    .ok_or_else(|| Trouble::Failed(format!("no route to {remote}")))?;
                if !locals.contains(&local) {
                    locals.push(local);
                }
            }
        }
        let connect = Connect {
            encapsulation: place.encap.unwrap_or_default(),
            settings: Some(settings(streams)),
            ..Connect::new(&locals, &place.addresses, place.port)
        };
        let stack = stack(transport, &locals, 0)?;
        let opened = tokio::time::timeout(SILENCE, stack.connect(&connect)).await;
        let association = opened.map_err(|_| silent())?.map_err(wrong)?;
        Ok(Channel { association, streams, next: 0, buffer: Vec::new() })
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, message: &[u8]) -> Result<(), Trouble> {
        let bytes = Bytes::copy_from_slice(message);
        self.association.send(bytes, &SendOptions::default()).await.map_err(wrong)
    }

    /// The next message.
    pub(crate) async fn hear(&mut self) -> Result<Option<&[u8]>, Trouble> {
        let whole = take(&self.association, &mut self.buffer).await.map_err(wrong)?;
        Ok(whole.then_some(&self.buffer))
    }

    /// Sends data until then, on the streams in turn: how many messages.
    pub(crate) async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, Trouble> {
        let mut message = vec![0; size];
        message[0] = DATA;
        let message = Bytes::from(message);
        let mut batch = VecDeque::with_capacity(BATCH);
        let mut sent = 0;
        while Instant::now() < until {
            while batch.len() < BATCH {
                let options = SendOptions { stream: self.next, ..SendOptions::default() };
                batch.push_back((options, message.clone()));
                self.next = (self.next + 1) % self.streams;
            }
            let given = tokio::time::timeout(SILENCE, self.association.send_many(&mut batch));
            sent += given.await.map_err(|_| silent())?.map_err(wrong)? as u64;
        }
        Ok(sent)
    }

    /// Ends it in order, if that is quickly done.
    pub(crate) async fn close(self) {
        // Everything has been answered: there is nothing to lose any more.
        let _ = tokio::time::timeout(CLOSING, self.association.shutdown()).await;
    }
}

/// Reads a whole message into the buffer; `false` at the end.
async fn take(association: &Association, buffer: &mut Vec<u8>) -> Result<bool, Error> {
    buffer.clear();
    while let Some(received) = association.recv_into(buffer).await? {
        check(association, buffer.len(), &received)?;
        if received.end {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Ends an association whose peer sends what no client or server of ours does; the next reading says so.
fn check(association: &Association, length: usize, received: &Received) -> Result<(), Error> {
    if received.cut {
        association.abort(b"expected whole messages")
    } else if length > MAX_SIZE {
        association.abort(b"expected shorter messages")
    } else {
        Ok(())
    }
}

/// Answers clients.
pub(crate) async fn serve(transport: Transport, place: Place, shown: Shown) -> Result<(), Trouble> {
    let wrong = |error| Trouble::at(format_args!("{transport} on {place}"), error);
    let stack = stack(transport, &place.addresses, place.encap.unwrap_or_default())?;
    let listener = stack.listen(&place.addresses, place.port, Some(settings(1))).map_err(wrong)?;
    shown.waits(&format!("{transport} on {place}"));
    loop {
        let association = listener.accept().await.map_err(wrong)?;
        let shown = shown.clone();
        tokio::spawn(async move {
            let peer = name(&association);
            if let Err(error) = answer(association, &peer, &shown).await {
                shown.fault(&format!("{peer}: {error}"));
            }
        });
    }
}

/// The peer's first address and its port.
fn name(association: &Association) -> String {
    let paths = association.paths().unwrap_or_default();
    let port = association.ports().map_or(0, |(_, port)| port);
    match paths.first() {
        Some(path) => SocketAddr::new(path.remote, port).to_string(),
        None => format!("port {port}"),
    }
}

async fn answer(association: Association, peer: &str, shown: &Shown) -> Result<(), Error> {
    let mut session = Session::default();
    let (mut buffer, mut taken) = (Vec::new(), Vec::new());
    while association.recv_many_into(&mut buffer, &mut taken, AT_ONCE).await? > 0 {
        let now = Instant::now();
        // Before what was taken now there may be parts of a message of which more has come.
        let mut end = 0;
        let mut at = buffer.len() - taken.iter().map(|received| received.len).sum::<usize>();
        for received in taken.drain(..) {
            at += received.len;
            check(&association, at - end, &received)?;
            if !received.end {
                continue;
            }
            let message = &buffer[end..at];
            end = at;
            let options = SendOptions::default();
            match session.take(now, message, message.len(), false) {
                Reply::Nothing => continue,
                Reply::Echo => association.send(echoed(message), &options).await?,
                Reply::Say(bytes) => association.send(bytes, &options).await?,
            }
            shown.measured(&peer, session.result());
        }
        buffer.drain(..end);
    }
    Ok(())
}
