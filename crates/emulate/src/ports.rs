//! The two ends: Ethernet interfaces or TUN devices.

use crate::direction::{Arrival, Transmit};
use crate::frame::{ethernet_header, with_tag};
use ringway_os::tun::{Checksum, PACKET_BUFFER, Segments, TunQueue, VNET_HEADER, VnetHeader};
use ringway_os::{FRAME_BATCH, Frame, FrameBatch, PacketSocket, interface_index, memory};
use ringway_sansio::{Duration, Time};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

/// Time after which an interface that is missing is looked for again.
const RETRY: Duration = Duration::from_millis(500);
/// Age of a frame above which its time is not believed: the wall clock was set.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Reasons for which packets are lost here, as they are reported.
const NOT_UNDERSTOOD: &str = "not understood";
const RECEIVE_FULL: &str = "receive buffer full";
const DOWN: &str = "interface down";

/// What a turn of receiving has shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// The time up to which all arrivals are known.
    pub(crate) known: Time,
    /// More may be waiting.
    pub(crate) more: bool,
}

/// The time when a turn begins, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) now: Time,
    /// Since the UNIX epoch.
    pub(crate) wall: Duration,
}

impl Clocks {
    /// Returns the time at which the kernel has received a frame.
    fn time(&self, received: Option<Duration>) -> Time {
        let age = received.and_then(|received| self.wall.checked_sub(received));
        let age = age.filter(|age| *age <= MAX_AGE).unwrap_or_default();
        Time::from_nanos(self.now.as_nanos().saturating_sub(age.as_nanos() as u64))
    }
}

/// One end.
pub(crate) enum Port {
    /// An Ethernet interface.
    Packet(PacketPort),
    /// A TUN device.
    Tun(TunPort),
}

impl Port {
    /// Receives what has come, without waiting, and passes each packet to `each` with the time of its arrival.
    pub(crate) fn receive(
        &mut self,
        clocks: Clocks,
        log: &dyn Fn(&str),
        each: impl FnMut(Time, &Arrival<'_>),
    ) -> Turn {
        match self {
            Port::Packet(port) => port.receive(clocks, log, each),
            Port::Tun(port) => port.receive(clocks, log, each),
        }
    }

    /// Sends packets, at most [`FRAME_BATCH`]. Calls `refused` with the index of each that the system refuses, and why.
    pub(crate) fn send(&mut self, packets: &[Transmit], refused: impl FnMut(usize, &'static str)) {
        match self {
            Port::Packet(port) => port.send(packets, refused),
            Port::Tun(port) => port.send(packets, refused),
        }
    }

    /// Returns what may be waited for.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Port::Packet(port) => port.socket.as_ref().map(AsFd::as_fd),
            Port::Tun(port) => (!port.gone).then(|| port.queue.as_fd()),
        }
    }

    /// Looks for an interface that is missing. Returns when to do so again.
    pub(crate) fn handle_timeout(&mut self, now: Time, log: &dyn Fn(&str)) -> Option<Time> {
        match self {
            Port::Packet(port) => port.handle_timeout(now, log),
            Port::Tun(_) => None,
        }
    }

    /// Returns the packets that were lost on their way to the link.
    pub(crate) fn lost(&mut self) -> BTreeMap<String, u64> {
        let lost = match self {
            Port::Packet(port) => {
                port.count_dropped();
                &port.lost
            }
            Port::Tun(port) => &port.lost,
        };
        lost.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
    }
}

/// Losses by their reason.
type Lost = BTreeMap<&'static str, u64>;

/// An Ethernet interface.
pub(crate) struct PacketPort {
    name: String,
    socket: Option<PacketSocket>,
    batch: FrameBatch,
    /// The interface is missing or down, and is looked for again then.
    retry: Option<Time>,
    lost: Lost,
    /// Frames that the present socket has dropped, as far as they are counted.
    dropped: u32,
    /// What was logged last, which is not repeated.
    logged: String,
}

impl PacketPort {
    /// Opens an interface. One that is missing is waited for.
    ///
    /// # Errors
    /// The error of opening it, as when the process lacks CAP_NET_RAW.
    pub(crate) fn open(name: &str, now: Time, log: &dyn Fn(&str)) -> io::Result<PacketPort> {
        let mut port = PacketPort {
            name: name.to_owned(),
            socket: None,
            batch: FrameBatch::new(),
            retry: None,
            lost: Lost::new(),
            dropped: 0,
            logged: String::new(),
        };
        match PacketSocket::open(name) {
            Ok(socket) => port.socket = Some(socket),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                port.retry = Some(now + RETRY);
                port.log(log, "does not exist; waiting for it");
            }
            Err(error) => return Err(error),
        }
        Ok(port)
    }

    fn log(&mut self, log: &dyn Fn(&str), text: &str) {
        if self.logged != text {
            log(&format!("interface {} {text}", self.name));
            text.clone_into(&mut self.logged);
        }
    }

    fn receive(
        &mut self,
        clocks: Clocks,
        log: &dyn Fn(&str),
        mut each: impl FnMut(Time, &Arrival<'_>),
    ) -> Turn {
        let idle = Turn { known: clocks.now, more: false };
        let Some(socket) = &self.socket else { return idle };
        match self.batch.receive(socket) {
            Ok(count) => {
                let mut last = clocks.now;
                for frame in self.batch.frames() {
                    let time = clocks.time(frame.and_then(|frame| frame.received));
                    last = time;
                    let whole = frame.and_then(|frame| arrivals(&frame, |a| each(time, a)));
                    if whole.is_none() {
                        *self.lost.entry(NOT_UNDERSTOOD).or_default() += 1;
                    }
                }
                // Of a full batch the next frames are not known, which have come after the last.
                let more = count == FRAME_BATCH;
                Turn { known: if more { last } else { clocks.now }, more }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => idle,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                *self.lost.entry(NOT_UNDERSTOOD).or_default() += 1;
                Turn { more: true, ..idle }
            }
            Err(error) => {
                self.fail(clocks.now, &error, log);
                idle
            }
        }
    }

    /// Handles an error of the interface.
    fn fail(&mut self, now: Time, error: &io::Error, log: &dyn Fn(&str)) {
        self.retry = Some(now + RETRY);
        let index = self.socket.as_ref().map(PacketSocket::index);
        if interface_index(&self.name).is_none_or(|present| Some(present) != index) {
            self.close();
            self.log(log, "does not exist any more; waiting for it");
        } else if error.kind() == io::ErrorKind::NetworkDown {
            self.log(log, "is down; waiting for it");
        } else {
            self.close();
            self.log(log, &format!("fails: {error}"));
        }
    }

    fn close(&mut self) {
        self.count_dropped();
        self.socket = None;
        self.dropped = 0;
    }

    /// Counts the frames that the kernel has dropped because the receive buffer was full.
    fn count_dropped(&mut self) {
        let Some(memory) = self.socket.as_ref().and_then(|socket| memory(socket.as_fd())) else {
            return;
        };
        let new = memory.dropped.wrapping_sub(self.dropped);
        self.dropped = memory.dropped;
        *self.lost.entry(RECEIVE_FULL).or_default() += u64::from(new);
    }

    fn handle_timeout(&mut self, now: Time, log: &dyn Fn(&str)) -> Option<Time> {
        let retry = self.retry?;
        if now < retry {
            return self.retry;
        }
        self.retry = Some(now + RETRY);
        let present = interface_index(&self.name);
        match &self.socket {
            Some(socket) if present != Some(socket.index()) => {
                self.close();
                self.log(log, "does not exist any more; waiting for it");
            }
            // It is down, and receives again when it is up.
            Some(_) => {}
            None if present.is_none() => {}
            None => match PacketSocket::open(&self.name) {
                Ok(socket) => {
                    self.socket = Some(socket);
                    self.retry = None;
                    self.log(log, "is used");
                }
                Err(error) => self.log(log, &format!("cannot be used: {error}")),
            },
        }
        self.retry
    }

    fn send(&mut self, packets: &[Transmit], mut refused: impl FnMut(usize, &'static str)) {
        let Some(socket) = &self.socket else {
            return (0..packets.len()).for_each(|i| refused(i, DOWN));
        };
        socket.send(packets.iter().map(Transmit::bytes), |i, error| refused(i, reason(&error)));
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

/// Codes of errors on Linux, of which the standard library has no kind.
const EIO: i32 = 5;
const ENXIO: i32 = 6;
const ENODEV: i32 = 19;
const EMSGSIZE: i32 = 90;
const ENOBUFS: i32 = 105;

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

/// A TUN device.
pub(crate) struct TunPort {
    queue: TunQueue,
    buffer: Vec<u8>,
    lost: Lost,
    /// It was deleted.
    gone: bool,
}

impl TunPort {
    pub(crate) fn new(queue: TunQueue) -> TunPort {
        TunPort { queue, buffer: vec![0; PACKET_BUFFER], lost: Lost::new(), gone: false }
    }

    fn receive(
        &mut self,
        clocks: Clocks,
        log: &dyn Fn(&str),
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
                    log(&format!(
                        "TUN device {} does not exist any more: {error}",
                        self.queue.name()
                    ));
                    return idle;
                }
            };
            if understood.is_none() {
                *self.lost.entry(NOT_UNDERSTOOD).or_default() += 1;
            }
        }
        Turn { more: true, ..idle }
    }

    fn send(&mut self, packets: &[Transmit], mut refused: impl FnMut(usize, &'static str)) {
        for (i, packet) in packets.iter().enumerate() {
            let Some((head, bytes)) = packet.bytes().split_first_chunk::<VNET_HEADER>() else {
                continue;
            };
            let header = VnetHeader::parse(head).unwrap_or_default();
            if let Err(error) = self.queue.write(&header, &[IoSlice::new(bytes)]) {
                refused(i, reason(&error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_another_wall_clock_is_not_believed() {
        let now = Time::from_secs(100);
        let clocks = Clocks { now, wall: Duration::from_secs(5_000) };
        let at = |ms: u64| Some(Duration::from_millis(ms));
        assert_eq!(clocks.time(at(4_999_990)), Time::from_millis(99_990));
        for wrong in [None, at(5_000_001), at(4_998_000), at(0)] {
            assert_eq!(clocks.time(wrong), now);
        }
    }

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

    #[test]
    fn reasons_are_those_of_the_system() {
        let of = |code| reason(&io::Error::from_raw_os_error(code));
        assert_eq!(of(EMSGSIZE), "longer than the interface takes");
        assert_eq!((of(100), of(ENXIO)), (DOWN, DOWN));
        assert_eq!((of(11), of(ENOBUFS)), ("send buffer full", "send buffer full"));
        assert_eq!(of(1), "refused by the system");
    }
}
