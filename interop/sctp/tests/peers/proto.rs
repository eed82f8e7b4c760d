//! `sctp-proto`, the SCTP of str0m.

use super::end::{End, Ended, Limit, Offer, Post};
use super::wire::PORT;
use bytes::Bytes;
use ringway_sansio::{Duration, Time};
use sctp_proto::{
    Association, AssociationHandle, ClientConfig, DatagramEvent, Endpoint, EndpointConfig, Event,
    Payload, PayloadProtocolIdentifier, ReliabilityType, ServerConfig, StreamEvent, Transmit,
    TransportConfig,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

struct Proto {
    start: Instant,
    endpoint: Endpoint,
    association: Option<(AssociationHandle, Association)>,
    now: Time,
    up: bool,
    over: bool,
    resets: BTreeSet<u16>,
    inbox: Vec<(u16, Vec<u8>)>,
}

fn transport() -> Arc<TransportConfig> {
    Arc::new(
        TransportConfig::default()
            .with_max_send_message_size(4 << 20)
            .with_max_receive_message_size(4 << 20)
            .with_max_receive_buffer_size(4 << 20)
            .with_rto_initial_ms(1000)
            .with_rto_min_ms(300)
            .with_local_port(PORT)
            .with_remote_port(PORT),
    )
}

fn remote() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 9899))
}

pub(crate) fn end(offer: Offer) -> Box<dyn End> {
    assert_eq!(offer, Offer::default(), "sctp-proto knows neither I-DATA nor checksums of zero");
    let mut server = ServerConfig::new();
    server.transport = transport();
    let endpoint = Endpoint::new(Arc::new(EndpointConfig::new()), Some(Arc::new(server)));
    Box::new(Proto {
        start: Instant::now(),
        endpoint,
        association: None,
        now: Time::ZERO,
        up: false,
        over: false,
        resets: BTreeSet::new(),
        inbox: Vec::new(),
    })
}

impl Proto {
    fn instant(&self, now: Time) -> Instant {
        self.start + Duration::from_nanos(now.as_nanos())
    }

    fn events(&mut self) {
        let Some((handle, association)) = &mut self.association else { return };
        while let Some(event) = association.poll_endpoint_event() {
            let drained = event.is_drained();
            if !drained && let Some(event) = self.endpoint.handle_event(*handle, event) {
                association.handle_event(event);
            }
        }
        while let Some(event) = association.poll() {
            match event {
                Event::Connected => self.up = true,
                Event::HandshakeFailed { reason } => panic!("handshake: {reason}"),
                Event::AssociationLost { reason } => {
                    assert!(self.up, "{reason}");
                    self.over = true;
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    read(association, id, &mut self.inbox)
                }
                Event::Stream(StreamEvent::Finished { id }) => {
                    self.resets.insert(id);
                }
                Event::Stream(StreamEvent::ResetFailed { id, reason }) => {
                    panic!("not reset: {id} {reason:?}");
                }
                _ => {}
            }
        }
    }
}

fn read(association: &mut Association, id: u16, inbox: &mut Vec<(u16, Vec<u8>)>) {
    let Ok(mut stream) = association.stream(id) else { return };
    while let Ok(Some(chunks)) = stream.read() {
        let mut data = vec![0; chunks.len()];
        let count = chunks.read(&mut data).unwrap();
        assert_eq!(count, data.len());
        inbox.push((id, data));
    }
}

fn reliability(limit: Limit) -> (ReliabilityType, u32) {
    match limit {
        Limit::Never => (ReliabilityType::Reliable, 0),
        Limit::Retransmits(count) => (ReliabilityType::Rexmit, u32::from(count)),
        Limit::Lifetime(ms) => (ReliabilityType::Timed, ms),
    }
}

fn packets(transmit: Transmit) -> Vec<Vec<u8>> {
    match transmit.payload {
        Payload::RawEncode(list) => list.into_iter().map(|bytes| bytes.to_vec()).collect(),
        other => panic!("{other:?}"),
    }
}

impl End for Proto {
    fn open(&mut self, _now: Time, opens: bool) {
        if !opens {
            return;
        }
        let mut config = ClientConfig::new();
        config.transport = transport();
        self.association = Some(self.endpoint.connect(config, remote()).unwrap());
    }

    fn give(&mut self, now: Time, packet: &[u8]) {
        self.now = now;
        let at = self.instant(now);
        let data = Bytes::copy_from_slice(packet);
        match self.endpoint.handle(at, remote(), None, None, data) {
            Some((handle, DatagramEvent::NewAssociation(association))) => {
                self.association = Some((handle, association));
            }
            Some((_, DatagramEvent::AssociationEvent(event))) => {
                if let Some((_, association)) = &mut self.association {
                    association.handle_event(event);
                }
            }
            None => {}
        }
        self.events();
    }

    fn take(&mut self, now: Time) -> Vec<Vec<u8>> {
        let at = self.instant(now);
        self.events();
        let mut all = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit() {
            all.extend(packets(transmit));
        }
        if let Some((_, association)) = &mut self.association {
            while let Some(transmit) = association.poll_transmit(at) {
                all.extend(packets(transmit));
            }
        }
        self.events();
        all
    }

    fn deadline(&self) -> Option<Time> {
        let at = self.association.as_ref()?.1.poll_timeout()?;
        Some(Time::from_nanos(at.saturating_duration_since(self.start).as_nanos() as u64))
    }

    fn wake(&mut self, now: Time) {
        let at = self.instant(now);
        if let Some((_, association)) = &mut self.association {
            association.handle_timeout(at);
        }
        self.events();
    }

    fn send(&mut self, _now: Time, post: &Post) -> bool {
        let Some((_, association)) = &mut self.association else { return false };
        let kind = PayloadProtocolIdentifier::Binary;
        if association.stream(post.stream).is_err()
            && association.open_stream(post.stream, kind).is_err()
        {
            return false;
        }
        let mut stream = association.stream(post.stream).unwrap();
        let (how, value) = reliability(post.limit);
        stream.set_reliability_params(post.unordered, how, value).unwrap();
        stream.write_with_ppi(&post.data, kind).is_ok_and(|count| count == post.data.len())
    }

    fn received(&mut self) -> Vec<(u16, Vec<u8>)> {
        core::mem::take(&mut self.inbox)
    }

    fn reset(&mut self, streams: &[u16]) {
        let Some((_, association)) = &mut self.association else { return };
        for &id in streams {
            // One that the other end has reset is gone, and was reset in turn.
            if let Ok(mut stream) = association.stream(id) {
                stream.close().unwrap();
            }
        }
    }

    fn resets(&mut self) -> BTreeSet<u16> {
        core::mem::take(&mut self.resets)
    }

    fn shutdown(&mut self, _now: Time) {
        let Some((_, association)) = &mut self.association else { return };
        association.shutdown().unwrap();
    }

    fn abort(&mut self, _now: Time) {
        let Some((_, association)) = &mut self.association else { return };
        association.close().unwrap();
    }

    fn is_up(&self) -> bool {
        self.up
    }

    fn ended(&self) -> Option<Ended> {
        let closed =
            self.association.as_ref().is_some_and(|(_, association)| association.is_closed());
        (self.over || closed).then_some(Ended::Somehow)
    }
}
