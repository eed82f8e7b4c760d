//! Where packets go.

use super::interface::Attached;
use super::{DOWN, NO_CARRIER};
use crate::direction::Transmit;
use crate::report::InterfaceState;
use ringway_os::tun::{TunQueue, VNET_HEADER, VnetHeader};
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
    Interface {
        /// The socket.
        attached: Attached,
        /// The kernel accepts packets and drops them.
        has_no_carrier: bool,
    },
    /// A TUN device.
    Tun(Arc<TunQueue>),
}

impl Sink {
    /// Sends packets, at most [`FRAME_BATCH`](ringway_os::FRAME_BATCH). Calls `refused` with the index of each that the
    /// system refuses, and why.
    pub(crate) fn send(
        &mut self,
        packets: &[Transmit],
        mut refused: impl FnMut(usize, &'static str),
    ) {
        let (attached, has_no_carrier) = match self {
            Sink::Interface { attached, has_no_carrier } => (attached, *has_no_carrier),
            Sink::Tun(queue) => return send_to_tun(queue, packets, refused),
        };
        let Some(socket) = attached.socket() else {
            return (0..packets.len()).for_each(|i| refused(i, DOWN));
        };
        let mut is_gone = false;
        socket.send(packets.iter().map(Transmit::bytes), |i, error| {
            is_gone |= matches!(error.raw_os_error(), Some(ENXIO | ENODEV));
            refused(i, reason(&error));
        });
        if has_no_carrier {
            (0..packets.len()).for_each(|i| refused(i, NO_CARRIER));
        }
        if is_gone {
            // The source at the same interface reports what fails.
            attached.look(&|_| {});
        }
    }

    /// Looks at an interface that has changed.
    pub(crate) fn look(&mut self, state: InterfaceState) {
        if let Sink::Interface { attached, has_no_carrier } = self {
            *has_no_carrier = state == InterfaceState::NoCarrier;
            attached.look(&|_| {});
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
