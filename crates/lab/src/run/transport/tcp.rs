//! Flows over TCP: a host's whole TCP at each end of each flow, on a port of its own.

use super::stream::{Conduit, Happening, Program, programs};
use super::{Carried, Ends, Look, Seen, endpoint};
use crate::scenario::Flow;
use ringway_link::Streams;
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sim::{Bind, EndpointId, Error, World};
use ringway_tcp::{Close, ConnId, Event, Limits, PROTOCOL, Snapshot, Tcp};
use std::net::SocketAddr;

pub(super) fn attach(
    world: &mut World,
    flow: &Flow,
    ends: Ends<'_>,
    streams: &Streams,
) -> Result<Box<dyn Carried>, Error> {
    let [local, remote] = ends.addresses;
    let host = |end: &str| {
        let mut random = streams.stream(&format!("{}/{end}", flow.name));
        // Settings were checked when the scenario was read, so each end has a TCP.
        let tcp = Tcp::new(Limits::default(), flow.tcp, &mut random).ok();
        Stream { tcp, local, remote, connection: None, look: Look::default(), duplicates: 0 }
    };
    let (client, mut server) = (host("client"), host("server"));
    if let Some(tcp) = &mut server.tcp {
        // The only listener of a host of its own: nothing can be in its way.
        let _ = tcp.listen(remote, 1, None);
    }
    let [client, server] = programs(flow, ends, streams, [client, server]);
    let bind = |port| Bind { protocol: PROTOCOL, port: Some(port) };
    let client = world.attach(ends.nodes[0], bind(local.port()), client)?;
    let server = world.attach(ends.nodes[1], bind(remote.port()), server)?;
    let asks = matches!(flow.traffic, crate::scenario::Traffic::RequestResponse { .. });
    Ok(Box::new(Tcps { client, server, asks }))
}

/// One end of a connection.
struct Stream {
    tcp: Option<Tcp>,
    local: SocketAddr,
    remote: SocketAddr,
    connection: Option<ConnId>,
    /// What was last seen of the connection, which is gone once it is over.
    look: Look,
    duplicates: u64,
}

impl Stream {
    fn snapshot(&self) -> Option<Snapshot> {
        self.tcp.as_ref()?.snapshot(self.connection?).ok()
    }
}

fn look(snapshot: &Snapshot) -> Look {
    Look {
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

    fn happening(&mut self) -> Option<Happening> {
        if let Some(snapshot) = self.snapshot() {
            self.look = look(&snapshot);
            self.duplicates = snapshot.totals.duplicates_reported;
        }
        let tcp = self.tcp.as_mut()?;
        Some(match tcp.poll_event()? {
            Event::Incoming(listener) => {
                self.connection = tcp.accept(listener);
                Happening::Progress
            }
            Event::PeerClosed(_) => Happening::PeerClosed,
            Event::Closed(_, why) => Happening::Closed(match why {
                Close::Finished => None,
                Close::Reset => Some("reset by the peer"),
                Close::Refused => Some("refused"),
                Close::TimedOut => Some("timed out"),
                _ => Some("closed"),
            }),
            _ => Happening::Progress,
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
        // Before the peer has answered, TCP forgets a connection that is shut down, with all that was
        // written (RFC 9293 section 3.10.4); it is asked again once it is open.
        if !self.snapshot().is_some_and(|s| s.state.is_synchronised()) {
            return;
        }
        if let Some((tcp, id)) = self.tcp.as_mut().zip(self.connection) {
            // Refused only where it was done before.
            let _ = tcp.shutdown(now, id);
        }
    }

    fn look(&self) -> Look {
        self.snapshot().map_or(self.look, |s| look(&s))
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

struct Tcps {
    client: EndpointId,
    server: EndpointId,
    /// Whether it is the client that has the answers.
    asks: bool,
}

type End = Program<Stream>;

impl Carried for Tcps {
    fn seen(&self, world: &World) -> Seen {
        let Some(client) = endpoint::<End>(world, self.client) else { return Seen::default() };
        let Some(server) = endpoint::<End>(world, self.server) else { return Seen::default() };
        let taker = if self.asks { client } else { server };
        let all = client.is_done() && server.seen.messages;
        let all = all && server.seen.delivered >= client.seen.written;
        Seen {
            completed: taker.seen.completed.or(server.seen.progress.last().filter(|_| all)),
            duplicates: client.conduit.duplicates(),
            messages: client.seen.messages,
            written: client.seen.written,
            refused: client.seen.refused,
            failed: client.seen.failed.or(server.seen.failed),
            ..taker.seen.clone()
        }
    }

    fn look(&self, world: &World) -> Option<Look> {
        Some(endpoint::<End>(world, self.client)?.conduit.look())
    }

    fn is_done(&self, world: &World) -> bool {
        let client = endpoint::<End>(world, self.client);
        let server = endpoint::<End>(world, self.server);
        let Some((client, server)) = client.zip(server) else { return true };
        let delivered = server.seen.delivered >= client.seen.written || self.asks;
        let failed = client.seen.failed.is_some() || server.seen.failed.is_some();
        failed || client.is_done() && server.is_done() && (delivered || !server.seen.messages)
    }
}
