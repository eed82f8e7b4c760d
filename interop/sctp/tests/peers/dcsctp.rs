//! `dcsctp`, the SCTP of WebRTC.

use super::Peer;
use super::wire::PORT;
use dcsctp::api::{
    DcSctpSocket, Message, Options, PpId, SendOptions, SocketEvent, SocketState, SocketTime,
    StreamId,
};
use ringway_sansio::{Duration, Time};

struct DcSctp {
    socket: Box<dyn DcSctpSocket>,
    out: Vec<Vec<u8>>,
    over: bool,
}

pub(crate) fn peer() -> Box<dyn Peer> {
    let options = Options {
        local_port: PORT,
        remote_port: PORT,
        max_message_size: 4 << 20,
        max_send_buffer_size: 8 << 20,
        per_stream_send_queue_limit: 8 << 20,
        rto_min: Duration::from_millis(300),
        ..Options::default()
    };
    let socket = dcsctp::new_socket("peer", &options);
    Box::new(DcSctp { socket, out: Vec::new(), over: false })
}

fn socket_time(now: Time) -> SocketTime {
    SocketTime::zero() + Duration::from_nanos(now.as_nanos())
}

impl DcSctp {
    fn events(&mut self) {
        while let Some(event) = self.socket.poll_event() {
            match event {
                SocketEvent::SendPacket(packet) => self.out.push(packet),
                SocketEvent::OnClosed() => self.over = true,
                SocketEvent::OnAborted(kind, text) => panic!("aborted: {kind:?} {text}"),
                SocketEvent::OnError(kind, text) => panic!("error: {kind:?} {text}"),
                _ => {}
            }
        }
    }
}

impl Peer for DcSctp {
    fn connect(&mut self, now: Time) {
        self.socket.advance_time(socket_time(now));
        self.socket.connect();
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

    fn send(&mut self, stream: u16, data: &[u8]) -> bool {
        let message = Message::new(StreamId(stream), PpId(53), data.to_vec());
        self.socket.send(message, &SendOptions::default()).is_ok()
    }

    fn received(&mut self) -> Vec<(u16, Vec<u8>)> {
        let next = || self.socket.get_next_message().map(|m| (m.stream_id.0, m.payload));
        core::iter::from_fn(next).collect()
    }

    fn shutdown(&mut self) {
        self.socket.shutdown();
    }

    fn is_up(&self) -> bool {
        self.socket.state() == SocketState::Connected
    }

    fn is_over(&self) -> bool {
        self.over
    }
}
