//! Where packets go.

use super::DOWN;
use super::interface::Attached;
use crate::direction::Transmit;
use ringway_os::tun::{TunQueue, VNET_HEADER, VnetHeader};
use ringway_sansio::Time;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// Codes of errors on Linux, of which the standard library has no kind.
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const EMSGSIZE: i32 = 90;
const ENOBUFS: i32 = 105;

/// One end, as packets are sent to it.
pub(crate) enum Sink {
    /// An Ethernet interface.
    Interface(Attached),
    /// A TUN device.
    Tun(Arc<TunQueue>),
}

impl Sink {
    /// Sends packets, at most [`FRAME_BATCH`](ringway_os::FRAME_BATCH). Calls `refused` with the index of each that the
    /// system refuses, and why.
    pub(crate) fn send(
        &mut self,
        now: Time,
        packets: &[Transmit],
        mut refused: impl FnMut(usize, &'static str),
    ) {
        match self {
            Sink::Interface(attached) => {
                let Some(socket) = attached.socket() else {
                    return (0..packets.len()).for_each(|i| refused(i, DOWN));
                };
                let mut failed = None;
                socket.send(packets.iter().map(Transmit::bytes), |i, error| {
                    let reason = reason(&error);
                    refused(i, reason);
                    failed = failed.take().or((reason == DOWN).then_some(error));
                });
                if let Some(error) = failed {
                    // The source of the same interface logs it.
                    attached.fail(now, &error, &|_| {});
                }
            }
            Sink::Tun(queue) => send_to_tun(queue, packets, refused),
        }
    }

    /// Looks for an interface that is missing. Returns when to do so again.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Option<Time> {
        match self {
            Sink::Interface(attached) => attached.handle_timeout(now, &|_| {}),
            Sink::Tun(_) => None,
        }
    }
}

fn send_to_tun(
    queue: &TunQueue,
    packets: &[Transmit],
    mut refused: impl FnMut(usize, &'static str),
) {
    for (i, packet) in packets.iter().enumerate() {
        let Some((head, bytes)) = packet.bytes().split_first_chunk::<VNET_HEADER>() else {
            continue;
        };
        let header = VnetHeader::parse(head).unwrap_or_default();
        if let Err(error) = queue.write(&header, &[IoSlice::new(bytes)]) {
            refused(i, reason(&error));
        }
    }
}

/// Returns why the system has refused a packet, as it is reported.
fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NetworkDown => return DOWN,
        io::ErrorKind::WouldBlock => return "send buffer full",
        _ => {}
    }
    match error.raw_os_error() {
        Some(ENXIO | ENODEV | EIO) => DOWN,
        Some(ENOBUFS) => "send buffer full",
        Some(EMSGSIZE) => "longer than the interface takes",
        _ => "refused by the system",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_of_the_system() {
        let of = |code| reason(&io::Error::from_raw_os_error(code));
        assert_eq!(of(EMSGSIZE), "longer than the interface takes");
        assert_eq!((of(100), of(ENXIO)), (DOWN, DOWN));
        assert_eq!((of(11), of(ENOBUFS)), ("send buffer full", "send buffer full"));
        assert_eq!(of(1), "refused by the system");
    }
}
