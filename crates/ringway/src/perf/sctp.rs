//! Messages over SCTP, on the streams of one association.

use super::error::{PerfError, SILENCE_TIMEOUT, silence_error};
use super::location::ResolvedLocation;
use super::output::Output;
use super::protocol::{DATA, MAX_SIZE, Reply, Session, echoed};
use super::transport::Transport;
use bytes::Bytes;
use ringway_sctp_tokio::{
    Association, Config, Connect, EndedError, Over, Received, SendOptions, Settings, Stack,
};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Maximum number of messages sent per call.
const BATCH: usize = 64;
/// Maximum number of messages received per call.
const MAX_RECEIVED: usize = 1024;
/// Timeout of the end of an association.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

fn to_error(error: impl std::error::Error) -> PerfError {
    PerfError::Failed(error.to_string())
}

fn settings(streams: u16) -> Settings {
    Settings {
        // Every message fits; the peer's receive buffer bounds the data in flight.
        send_buffer: MAX_SIZE,
        outbound_streams: streams,
        inbound_streams: u16::MAX,
        // Bursts as long as the windows allow: the measured path has no other traffic.
        max_burst: 0,
        ..Settings::default()
    }
}

/// Creates a stack at these addresses; `port` is the UDP port of SCTP over UDP.
fn stack(transport: Transport, locals: &[IpAddr], port: u16) -> Result<Stack, PerfError> {
    let over = match transport {
        Transport::SctpUdp => Over::Udp { locals: locals.to_vec(), port },
        Transport::SctpKernel => Over::Kernel,
        _ => Over::Ip,
    };
    Stack::new(Config::new(over)).map_err(to_error)
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
        location: &ResolvedLocation,
        from: &[IpAddr],
        streams: u16,
    ) -> Result<Channel, PerfError> {
        let mut locals = from.to_vec();
        if locals.is_empty() {
            for &remote in &location.addresses {
                let local = ringway_os::source_for(remote)
                    .ok_or_else(|| PerfError::Failed(format!("no route to {remote}")))?;
                if !locals.contains(&local) {
                    locals.push(local);
                }
            }
        }
        let connect = Connect {
            encapsulation: location.encap.unwrap_or_default(),
            settings: Some(settings(streams)),
            ..Connect::new(&locals, &location.addresses, location.port)
        };
        let stack = stack(transport, &locals, 0)?;
        let opened = tokio::time::timeout(SILENCE_TIMEOUT, stack.connect(&connect)).await;
        let association = opened.map_err(|_| silence_error())?.map_err(to_error)?;
        Ok(Channel { association, streams, next: 0, buffer: Vec::new() })
    }

    /// Sends a message.
    pub(crate) async fn send(&mut self, message: &[u8]) -> Result<(), PerfError> {
        let bytes = Bytes::copy_from_slice(message);
        self.association.send(bytes, &SendOptions::default()).await.map_err(to_error)
    }

    /// Receives the next message.
    pub(crate) async fn receive(&mut self) -> Result<Option<&[u8]>, PerfError> {
        let complete =
            receive_message(&self.association, &mut self.buffer).await.map_err(to_error)?;
        Ok(complete.then_some(&self.buffer))
    }

    /// Sends data until a time, on the streams in turn; returns the number of messages.
    pub(crate) async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, PerfError> {
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
            let given =
                tokio::time::timeout(SILENCE_TIMEOUT, self.association.send_many(&mut batch));
            sent += given.await.map_err(|_| silence_error())?.map_err(to_error)? as u64;
        }
        Ok(sent)
    }

    /// Shuts the association down, within [`CLOSE_TIMEOUT`].
    pub(crate) async fn close(self) {
        // Everything has been answered, so no data can be lost.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.association.shutdown()).await;
    }
}

/// Reads a complete message into the buffer; returns `false` at the end.
async fn receive_message(
    association: &Association,
    buffer: &mut Vec<u8>,
) -> Result<bool, EndedError> {
    buffer.clear();
    while let Some(received) = association.recv_into(buffer).await? {
        check(association, buffer.len(), &received)?;
        if received.end {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Aborts an association whose peer sends messages that no `ringway perf` sends; the next read
/// reports it.
fn check(association: &Association, length: usize, received: &Received) -> Result<(), EndedError> {
    if received.cut {
        association.abort(b"expected whole messages")
    } else if length > MAX_SIZE {
        association.abort(b"expected shorter messages")
    } else {
        Ok(())
    }
}

/// Answers clients.
pub(crate) async fn serve(
    transport: Transport,
    location: ResolvedLocation,
    output: Output,
) -> Result<(), PerfError> {
    let listening_at = format!("{transport} on {location}");
    let stack = stack(transport, &location.addresses, location.encap.unwrap_or_default())?;
    let listener = stack
        .listen(&location.addresses, location.port, Some(settings(1)))
        .map_err(|error| PerfError::at(&listening_at, error))?;
    output.print_ready(&listening_at);
    loop {
        let accepted = listener.accept().await;
        let association = accepted.map_err(|error| PerfError::at(&listening_at, error))?;
        let output = output.clone();
        tokio::spawn(async move {
            let peer = name(&association);
            if let Err(error) = answer(association, &peer, &output).await {
                output.print_fault(&format!("{peer}: {error}"));
            }
        });
    }
}

/// Returns the peer's first address and its port.
fn name(association: &Association) -> String {
    let paths = association.paths().unwrap_or_default();
    let port = association.ports().map_or(0, |(_, port)| port);
    match paths.first() {
        Some(path) => SocketAddr::new(path.remote, port).to_string(),
        None => format!("port {port}"),
    }
}

async fn answer(
    association: Association,
    peer: &str,
    output: &Output,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut session = Session::default();
    let (mut buffer, mut taken) = (Vec::new(), Vec::new());
    while association.recv_many_into(&mut buffer, &mut taken, MAX_RECEIVED).await? > 0 {
        let now = Instant::now();
        // Earlier parts of the message may have been received before.
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
                Reply::Send(bytes) => association.send(bytes, &options).await?,
            }
            output.print_measurement(&peer, session.result());
        }
        buffer.drain(..end);
    }
    Ok(())
}
