//! Captures of interfaces, with the reason of every drop as a comment.

use crate::headers;
use crate::node::InterfaceId;
use crate::record::{Record, Recorder, Step};
use crate::world::World;
use ringway_sansio::Addressing;
use ringway_sansio::pcapng::{Direction, Writer};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the packets that some interfaces of a world send, receive and lose into one pcapng file.
///
/// A sent packet has the time when it left the queue. A lost packet has the time and the reason of its
/// loss, with a comment `dropped: ...`. A packet that is lost in flight appears twice: as sent, and as
/// dropped.
pub struct Capture<W> {
    writer: Writer<W>,
    /// Positions of the interfaces in the file, by their indices in the world.
    positions: BTreeMap<u32, u32>,
    header: Vec<u8>,
    error: Option<io::Error>,
}

impl<W: Write + 'static> Capture<W> {
    /// Creates a capture of `interfaces` of `world` into `out`, to be added to the world as a recorder.
    pub fn new(world: &World, interfaces: &[InterfaceId], out: W) -> io::Result<Self> {
        let mut writer = Writer::new(out)?;
        for interface in interfaces {
            writer.interface(world.interface_name(interface.0).unwrap_or("?"))?;
        }
        let mut positions = BTreeMap::new();
        for (interface, position) in interfaces.iter().zip(0..) {
            positions.entry(interface.0).or_insert(position);
        }
        Ok(Capture { writer, positions, header: Vec::new(), error: None })
    }

    /// Finishes the file and returns the output, or the first error of writing.
    pub fn finish(self) -> io::Result<W> {
        match self.error {
            Some(error) => Err(error),
            None => self.writer.finish(),
        }
    }
}

impl<W: Write + 'static> Recorder for Capture<W> {
    fn record(&mut self, record: &Record, addressing: &Addressing, payload: &[u8]) {
        let position = record.interface.and_then(|i| self.positions.get(&i));
        let (Some(&position), None) = (position, &self.error) else { return };
        let (direction, comment) = match record.step {
            Step::Receive => (Direction::Inbound, None),
            Step::Leave { .. } => (Direction::Outbound, None),
            Step::Drop(reason) => (Direction::Outbound, Some(format!("dropped: {reason}"))),
            Step::Enqueue | Step::Dequeue => return,
        };
        self.header.clear();
        let identification = record.packet as u16;
        headers::write_ip_header(
            &mut self.header,
            addressing,
            payload.len(),
            record.hops,
            identification,
        );
        let parts = [self.header.as_slice(), payload];
        let nanos = record.at.as_nanos();
        let written = self.writer.packet(position, nanos, direction, parts, comment.as_deref());
        self.error = written.err();
    }
}
