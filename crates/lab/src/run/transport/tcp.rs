//! Flows over TCP: a complete TCP endpoint at each end of each flow, on its own port.

use super::stream::{Conduit, ConduitEvent, Program, programs};
use super::{Ends, ProgramStats, RunningFlow, SenderState, Window, endpoint};
use crate::scenario::Flow;
use ringway_link::Streams;
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sim::{Bind, EndpointId, Error, World};
use ringway_tcp::{Close, ConnId, Event, Limits, PROTOCOL, Snapshot, Tcp};
use std::net::SocketAddr;

/// Thresholds from this on have not been set by a loss.
const MAX_SSTHRESH: u32 = 1 << 30;

pub(super) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn RunningFlow>, Error> {
    let [local, remote] = ends.addresses;
    let host = |end: &str| {
        let mut random = streams.stream(&format!("{}/{end}", flow.name));
        // Settings were checked when the scenario was read, so each end has an endpoint.
        let tcp = Tcp::new(Limits::default(), flow.tcp, &mut random).ok();
        Stream {
            tcp,
            local,
            remote,
            connection: None,
            sender_state: SenderState::default(),
            duplicates: 0,
        }
    };
    let (client, mut server) = (host("client"), host("server"));
    if let Some(tcp) = &mut server.tcp {
        // It is the only listener of this endpoint, so its port is free.
        let _ = tcp.listen(remote, 1, None);
    }
    let [client, server] = programs(flow, ends, streams, [client, server]);
    let bind = |port| Bind { protocol: PROTOCOL, port: Some(port) };
    let client = world.attach(ends.nodes[0], bind(local.port()), client)?;
    let server = world.attach(ends.nodes[1], bind(remote.port()), server)?;
    let is_request_response =
        matches!(flow.traffic, crate::scenario::Traffic::RequestResponse { .. });
    Ok(Box::new(TcpFlow { client, server, is_request_response }))
}

/// One end of a connection.
struct Stream {
    tcp: Option<Tcp>,
    local: SocketAddr,
    remote: SocketAddr,
    connection: Option<ConnId>,
    /// The last known state of the connection, which is removed when it ends.
    sender_state: SenderState,
    duplicates: u64,
}

impl Stream {
    fn snapshot(&self) -> Option<Snapshot> {
        self.tcp.as_ref()?.snapshot(self.connection?).ok()
    }
}

fn sender_state(snapshot: &Snapshot) -> SenderState {
    SenderState {
        cwnd: f64::from(snapshot.cwnd),
        retransmits: snapshot.totals.retransmits,
        timeouts: snapshot.totals.timeouts,
        window_full: snapshot.totals.in_flight_full,
    }
}

impl Conduit for Stream {
    fn open(&mut self, now: Time) -> Result<(), &'static str> {
        let (local, remote) = (self.local, self.remote);
        let opened = self.tcp.as_mut().map(|tcp| tcp.connect(now, local, remote, None));
        self.connection = opened.and_then(Result::ok);
        self.connection.map(|_| ()).ok_or("cannot connect")
    }

    fn next_event(&mut self) -> Option<ConduitEvent> {
        if let Some(snapshot) = self.snapshot() {
            self.sender_state = sender_state(&snapshot);
            self.duplicates = snapshot.totals.duplicates_reported;
        }
        let tcp = self.tcp.as_mut()?;
        Some(match tcp.poll_event()? {
            Event::Incoming(listener) => {
                self.connection = tcp.accept(listener);
                ConduitEvent::Progress
            }
            Event::PeerClosed(_) => ConduitEvent::PeerClosed,
            Event::Closed(_, why) => ConduitEvent::Closed(match why {
                Close::Finished => None,
                Close::Reset => Some("reset by the peer"),
                Close::Refused => Some("refused"),
                Close::TimedOut => Some("timed out"),
                _ => Some("closed"),
            }),
            _ => ConduitEvent::Progress,
        })
    }

    fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    fn write(&mut self, now: Time, data: &[u8]) -> usize {
        let both = self.tcp.as_mut().zip(self.connection);
        both.and_then(|(tcp, id)| tcp.write(now, id, data).ok()).unwrap_or(0)
    }

    fn read(&mut self, now: Time, out: &mut [u8]) -> usize {
        let both = self.tcp.as_mut().zip(self.connection);
        both.and_then(|(tcp, id)| tcp.read(now, id, out).ok()).unwrap_or(0)
    }

    fn finish(&mut self, now: Time) {
        // Before the peer has answered, TCP deletes a connection that is shut down, with all data
        // written (RFC 9293 section 3.10.4). The shutdown is requested again once the connection is
        // open.
        if !self.snapshot().is_some_and(|s| s.state.is_synchronised()) {
            return;
        }
        if let Some((tcp, id)) = self.tcp.as_mut().zip(self.connection) {
            // It is refused only if the direction is already closed.
            let _ = tcp.shutdown(now, id);
        }
    }

    fn sender_state(&self) -> SenderState {
        self.snapshot().map_or(self.sender_state, |s| sender_state(&s))
    }

    fn duplicates(&self) -> u64 {
        self.snapshot().map_or(self.duplicates, |s| s.totals.duplicates_reported)
    }
}

impl Endpoint for Stream {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        if let Some(tcp) = &mut self.tcp {
            tcp.handle_packet(now, addressing, payload);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(tcp) = &mut self.tcp {
            tcp.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.tcp.as_ref()?.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        self.tcp.as_mut()?.poll_transmit(now, payload)
    }
}

struct TcpFlow {
    client: EndpointId,
    server: EndpointId,
    /// Whether the client receives the data, as responses.
    is_request_response: bool,
}

type End = Program<Stream>;

impl RunningFlow for TcpFlow {
    fn stats(&self, world: &World) -> ProgramStats {
        let Some(client) = endpoint::<End>(world, self.client) else {
            return ProgramStats::default();
        };
        let Some(server) = endpoint::<End>(world, self.server) else {
            return ProgramStats::default();
        };
        let receiver = if self.is_request_response { client } else { server };
        let all = client.is_done() && server.stats.messages;
        let all = all && server.stats.delivered >= client.stats.written;
        ProgramStats {
            completed: receiver.stats.completed.or(server.stats.progress.last().filter(|_| all)),
            duplicates: client.conduit.duplicates(),
            messages: client.stats.messages,
            written: client.stats.written,
            refused: client.stats.refused,
            failed: client.stats.failed.or(server.stats.failed),
            ..receiver.stats.clone()
        }
    }

    fn sender_state(&self, world: &World) -> Option<SenderState> {
        Some(endpoint::<End>(world, self.client)?.conduit.sender_state())
    }

    fn windows(&self, world: &World) -> Vec<Window> {
        let client = endpoint::<End>(world, self.client);
        let snapshot = client.and_then(|client| client.conduit.snapshot());
        let window = |s: Snapshot| Window {
            path: None,
            cwnd: s.cwnd.into(),
            // Before the first loss it is a number that no window reaches.
            ssthresh: (s.ssthresh < MAX_SSTHRESH).then(|| s.ssthresh.into()),
            flight: s.in_flight.into(),
            srtt: s.srtt,
        };
        snapshot.map(window).into_iter().collect()
    }

    fn is_done(&self, world: &World) -> bool {
        let client = endpoint::<End>(world, self.client);
        let server = endpoint::<End>(world, self.server);
        let Some((client, server)) = client.zip(server) else { return true };
        let delivered = server.stats.delivered >= client.stats.written || self.is_request_response;
        let failed = client.stats.failed.is_some() || server.stats.failed.is_some();
        failed || client.is_done() && server.is_done() && (delivered || !server.stats.messages)
    }
}
