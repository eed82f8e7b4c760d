//! `dcsctp`, the SCTP of WebRTC.

use super::end::{End, Ended, Limit, Offer, Post};
use super::wire::PORT;
use dcsctp::api::{
    DcSctpSocket, Message, Options, PpId, SendOptions, SocketEvent, SocketState, SocketTime,
    StreamId, ZERO_CHECKSUM_ALTERNATE_ERROR_DETECTION_METHOD_LOWER_LAYER_DTLS as BY_DTLS,
    ZERO_CHECKSUM_ALTERNATE_ERROR_DETECTION_METHOD_NONE as BY_NOTHING,
};
use ringway_sansio::{Duration, Time};
use std::collections::BTreeSet;

struct DcSctp {
    socket: Box<dyn DcSctpSocket>,
    out: Vec<Vec<u8>>,
    resets: BTreeSet<u16>,
    ended: Option<Ended>,
}

pub(crate) fn end(offer: Offer) -> Box<dyn End> {
    let options = Options {
        local_port: PORT,
        remote_port: PORT,
        max_message_size: 4 << 20,
        max_send_buffer_size: 8 << 20,
        per_stream_send_queue_limit: 8 << 20,
        rto_min: Duration::from_millis(300),
        enable_message_interleaving: offer.interleaving,
        zero_checksum_alternate_error_detection_method: if offer.zero_checksum {
            BY_DTLS
        } else {
            BY_NOTHING
        },
        ..Options::default()
    };
    let socket = dcsctp::new_socket("peer", &options);
    Box::new(DcSctp { socket, out: Vec::new(), resets: BTreeSet::new(), ended: None })
}

fn socket_time(now: Time) -> SocketTime {
    SocketTime::zero() + Duration::from_nanos(now.as_nanos())
}

impl DcSctp {
    fn events(&mut self) {
        while let Some(event) = self.socket.poll_event() {
            match event {
                SocketEvent::SendPacket(packet) => self.out.push(packet),
                SocketEvent::OnClosed() => self.ended = Some(Ended::Orderly),
                SocketEvent::OnAborted(kind, text) => {
                    self.ended = Some(Ended::Aborted(format!("{kind:?} {text}")));
                }
                // Closed, it complains of what still comes, as a second SHUTDOWN COMPLETE.
                SocketEvent::OnError(..) if self.ended.is_some() => {}
                SocketEvent::OnError(kind, text) => panic!("error: {kind:?} {text}"),
                SocketEvent::OnIncomingStreamReset(streams) => {
                    self.resets.extend(streams.into_iter().map(|stream| stream.0));
                }
                SocketEvent::OnStreamsResetFailed(streams) => panic!("not reset: {streams:?}"),
                _ => {}
            }
        }
    }
}

fn options(post: &Post) -> SendOptions {
    let (lifetime, max_retransmissions) = match post.limit {
        Limit::Never => (None, None),
        Limit::Retransmits(count) => (None, Some(u16::from(count))),
        Limit::Lifetime(ms) => (Some(Duration::from_millis(u64::from(ms))), None),
    };
    SendOptions { unordered: post.unordered, lifetime, max_retransmissions, lifecycle_id: None }
}

impl End for DcSctp {
    fn open(&mut self, now: Time, opens: bool) {
        self.socket.advance_time(socket_time(now));
        if opens {
            self.socket.connect();
        }
    }

    fn give(&mut self, now: Time, packet: &[u8]) {
        self.socket.advance_time(socket_time(now));
        self.socket.handle_input(packet);
    }

    fn take(&mut self, _now: Time) -> Vec<Vec<u8>> {
        self.events();
        core::mem::take(&mut self.out)
    }

    fn deadline(&self) -> Option<Time> {
        let at = self.socket.poll_timeout();
        (at != SocketTime::infinite_future())
            .then(|| Time::from_nanos((at - SocketTime::zero()).as_nanos() as u64))
    }

    fn wake(&mut self, now: Time) {
        self.socket.advance_time(socket_time(now));
    }

    fn send(&mut self, now: Time, post: &Post) -> bool {
        self.socket.advance_time(socket_time(now));
        let message = Message::new(StreamId(post.stream), PpId(53), post.data.clone());
        self.socket.send(message, &options(post)).is_ok()
    }

    fn received(&mut self) -> Vec<(u16, Vec<u8>)> {
        let next = || self.socket.get_next_message().map(|m| (m.stream_id.0, m.payload));
        core::iter::from_fn(next).collect()
    }

    fn reset(&mut self, streams: &[u16]) {
        let streams: Vec<StreamId> = streams.iter().map(|&stream| StreamId(stream)).collect();
        self.socket.reset_streams(&streams).unwrap();
    }

    fn resets(&mut self) -> BTreeSet<u16> {
        core::mem::take(&mut self.resets)
    }

    fn shutdown(&mut self, _now: Time) {
        self.socket.shutdown();
    }

    fn abort(&mut self, _now: Time) {
        self.socket.close();
    }

    fn is_up(&self) -> bool {
        self.socket.state() == SocketState::Connected
    }

    fn ended(&self) -> Option<Ended> {
        self.ended.clone()
    }
}
