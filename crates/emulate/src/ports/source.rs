//! Where packets come from.

use super::interface::Attached;
use super::{Clocks, Turn};
use crate::direction::Arrival;
use crate::frame::{ethernet_header, with_tag};
use ringway_os::tun::{Checksum, PACKET_BUFFER, Segments, TunQueue, VnetHeader};
use ringway_os::{FRAME_BATCH, Frame, FrameBatch, memory};
use ringway_sansio::Time;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Reasons for which packets are lost here, as they are reported.
const NOT_UNDERSTOOD: &str = "not understood";
const RECEIVE_FULL: &str = "receive buffer full";

/// Losses by their reason.
type Lost = BTreeMap<&'static str, u64>;

/// One end, as packets come from it.
pub(crate) struct Source {
    end: End,
    lost: Lost,
}

enum End {
    Interface(Interface),
    Tun(Tun),
}

/// An Ethernet interface.
struct Interface {
    attached: Attached,
    batch: FrameBatch,
    /// Frames that the present socket has dropped, as far as they are counted.
    dropped: u32,
}

/// A TUN device.
struct Tun {
    queue: Arc<TunQueue>,
    buffer: Vec<u8>,
    /// It was deleted.
    gone: bool,
}

impl Source {
    pub(super) fn interface(attached: Attached) -> Source {
        let end = End::Interface(Interface { attached, batch: FrameBatch::new(), dropped: 0 });
        Source { end, lost: Lost::new() }
    }

    pub(super) fn tun(queue: Arc<TunQueue>) -> Source {
        let end = End::Tun(Tun { queue, buffer: vec![0; PACKET_BUFFER], gone: false });
        Source { end, lost: Lost::new() }
    }

    /// Receives what has come, without waiting, and passes each packet to `each` with the time of its arrival.
    pub(crate) fn receive(
        &mut self,
        clocks: Clocks,
        lines: &dyn Fn(&str),
        each: impl FnMut(Time, &Arrival<'_>),
    ) -> Turn {
        match &mut self.end {
            End::Interface(interface) => interface.receive(clocks, lines, &mut self.lost, each),
            End::Tun(tun) => tun.receive(clocks, lines, &mut self.lost, each),
        }
    }

    /// Returns what may be waited for.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.end {
            End::Interface(interface) => interface.attached.socket().map(AsFd::as_fd),
            End::Tun(tun) => (!tun.gone).then(|| tun.queue.as_fd()),
        }
    }

    /// Looks at an interface that has changed.
    pub(crate) fn look(&mut self, lines: &dyn Fn(&str)) {
        if let End::Interface(interface) = &mut self.end {
            // The count of a socket ends with it.
            interface.count_dropped(&mut self.lost);
            interface.attached.look(lines);
            interface.count_dropped(&mut self.lost);
        }
    }

    /// Returns the packets that were lost on their way to the link.
    pub(crate) fn lost(&mut self) -> BTreeMap<String, u64> {
        if let End::Interface(interface) = &mut self.end {
            interface.count_dropped(&mut self.lost);
        }
        self.lost.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
    }
}

impl Interface {
    fn receive(
        &mut self,
        clocks: Clocks,
        lines: &dyn Fn(&str),
        lost: &mut Lost,
        mut each: impl FnMut(Time, &Arrival<'_>),
    ) -> Turn {
        let idle = Turn { known: clocks.now, more: false };
        let Some(socket) = self.attached.socket() else { return idle };
        match self.batch.receive(socket) {
            Ok(count) => {
                let mut last = clocks.now;
                for frame in self.batch.frames() {
                    let time = clocks.time(frame.and_then(|frame| frame.received));
                    last = time;
                    let whole = frame.and_then(|frame| arrivals(&frame, |a| each(time, a)));
                    if whole.is_none() {
                        *lost.entry(NOT_UNDERSTOOD).or_default() += 1;
                    }
                }
                // Of a full batch the next frames are not known, which have come after the last.
                let more = count == FRAME_BATCH;
                Turn { known: if more { last } else { clocks.now }, more }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => idle,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                *lost.entry(NOT_UNDERSTOOD).or_default() += 1;
                Turn { more: true, ..idle }
            }
            Err(error) => {
                self.count_dropped(lost);
                self.attached.fail(&error, lines);
                idle
            }
        }
    }

    /// Counts the frames that the kernel has dropped because the receive buffer was full.
    fn count_dropped(&mut self, lost: &mut Lost) {
        let socket = self.attached.socket();
        let Some(memory) = socket.and_then(|socket| memory(socket.as_fd())) else {
            self.dropped = 0;
            return;
        };
        let new = memory.dropped.wrapping_sub(self.dropped);
        self.dropped = memory.dropped;
        *lost.entry(RECEIVE_FULL).or_default() += u64::from(new);
    }
}

/// Passes the packets for which a frame stands to `each`. Returns `None` for a frame that is not understood.
fn arrivals(frame: &Frame<'_>, mut each: impl FnMut(&Arrival<'_>)) -> Option<()> {
    let length = ethernet_header(frame.bytes)?;
    let (link, packet) = frame.bytes.split_at(length);
    let (link, length) = with_tag(link, frame.tag);
    let checksum = match frame.header.checksum {
        Checksum::Complete => Checksum::Complete,
        Checksum::Partial { start, offset } => {
            let before = frame.bytes.len() - packet.len();
            Checksum::Partial { start: start.checked_sub(before as u16)?, offset }
        }
    };
    segments(&link[..length], &VnetHeader { checksum, ..frame.header }, packet, &mut each)
}

/// Passes the packets for which a packet stands to `each`. Returns `None` for one that is not understood.
fn segments(
    link: &[u8],
    header: &VnetHeader,
    packet: &[u8],
    each: &mut impl FnMut(&Arrival<'_>),
) -> Option<()> {
    let mut segments = Segments::new(header, packet).ok()?;
    while let Some(segment) = segments.next_segment() {
        let (headers, payload, checksum) = (segment.headers, segment.payload, segment.checksum);
        each(&Arrival { link, headers, payload, checksum });
    }
    Some(())
}

impl Tun {
    fn receive(
        &mut self,
        clocks: Clocks,
        lines: &dyn Fn(&str),
        lost: &mut Lost,
        mut each: impl FnMut(Time, &Arrival<'_>),
    ) -> Turn {
        let idle = Turn { known: clocks.now, more: false };
        if self.gone {
            return idle;
        }
        for _ in 0..FRAME_BATCH {
            let understood = match self.queue.read(&mut self.buffer) {
                Ok((header, packet)) => {
                    segments(&[], &header, packet, &mut |arrival| each(clocks.now, arrival))
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return idle,
                Err(error) => {
                    self.gone = true;
                    let name = self.queue.name();
                    lines(&format!("TUN device {name} does not exist any more: {error}"));
                    return idle;
                }
            };
            if understood.is_none() {
                *lost.entry(NOT_UNDERSTOOD).or_default() += 1;
            }
        }
        Turn { more: true, ..idle }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_apart() {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06];
        bytes.extend([7; 40]);
        let header = VnetHeader::default();
        let tag = Some([0x81, 0, 0, 5]);
        let mut seen = Vec::new();
        let frame = Frame { received: None, header, tag, bytes: &bytes };
        arrivals(&frame, |a| seen.push((a.link.len(), a.payload.len()))).unwrap();
        assert_eq!(seen, [(18, 40)]);
        let checksum = Checksum::Partial { start: 13, offset: 0 };
        let before = Frame { header: VnetHeader { checksum, ..header }, ..frame };
        assert_eq!(arrivals(&before, |_| {}), None);
        assert_eq!(arrivals(&Frame { bytes: &bytes[..10], ..frame }, |_| {}), None);
    }
}
