//! Capture files (pcapng, draft-ietf-opsawg-pcapng): sections, interfaces, packets with comments.
//!
//! Knows nothing of worlds: times are nanoseconds since the epoch and packets are bytes from the IP
//! header on.

use std::io::{self, Write};

/// Link type of packets that begin with an IPv4 or IPv6 header (LINKTYPE_RAW).
pub const LINKTYPE_RAW: u16 = 101;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
/// Longest option; its length is 16 bits.
const MAX_OPTION: usize = 65_532;

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received by the interface.
    Inbound,
    /// Sent by the interface.
    Outbound,
}

/// Writes one section of a file.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    block: Vec<u8>,
    interfaces: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a section.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Writer { out, block: Vec::new(), interfaces: 0 };
        writer.begin(SECTION_HEADER);
        writer.block.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        // Version 1.0, length of the section unknown.
        writer.block.extend_from_slice(&[1, 0, 0, 0]);
        writer.block.extend_from_slice(&u64::MAX.to_le_bytes());
        writer.end()?;
        Ok(writer)
    }

    /// Describes an interface; gives its number in this file.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        self.begin(INTERFACE_DESCRIPTION);
        self.block.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
        // No limit on the length of packets.
        self.block.extend_from_slice(&[0; 6]);
        self.option(IF_NAME, name.as_bytes());
        // Times are in units of 10^-9 s.
        self.option(IF_TSRESOL, &[9]);
        self.option(OPT_END, &[]);
        self.end()?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a packet given in parts, such as header and payload.
    pub fn packet(
        &mut self,
        interface: u32,
        nanos: u64,
        direction: Direction,
        parts: [&[u8]; 2],
        comment: Option<&str>,
    ) -> io::Result<()> {
        let length = (parts[0].len() + parts[1].len()) as u32;
        self.begin(ENHANCED_PACKET);
        for word in [interface, (nanos >> 32) as u32, nanos as u32, length, length] {
            self.block.extend_from_slice(&word.to_le_bytes());
        }
        for part in parts {
            self.block.extend_from_slice(part);
        }
        self.pad();
        if let Some(comment) = comment {
            self.option(OPT_COMMENT, comment.as_bytes());
        }
        let flags: u32 = if direction == Direction::Inbound { 1 } else { 2 };
        self.option(EPB_FLAGS, &flags.to_le_bytes());
        self.option(OPT_END, &[]);
        self.end()
    }

    /// Flushes and gives the output back.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.block.extend_from_slice(&kind.to_le_bytes());
        // The length, when it is known.
        self.block.extend_from_slice(&[0; 4]);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(MAX_OPTION)];
        self.block.extend_from_slice(&code.to_le_bytes());
        self.block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.block.extend_from_slice(value);
        self.pad();
    }

    fn end(&mut self) -> io::Result<()> {
        let length = (self.block.len() as u32 + 4).to_le_bytes();
        self.block[4..8].copy_from_slice(&length);
        self.block.extend_from_slice(&length);
        self.out.write_all(&self.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks as (type, body), lengths checked at both ends.
    fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
        let word = |b: &[u8], at: usize| u32::from_le_bytes(b[at..at + 4].try_into().unwrap());
        let mut all = Vec::new();
        while !file.is_empty() {
            let length = word(file, 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(file, length - 4) as usize, length);
            all.push((word(file, 0), &file[8..length - 4]));
            file = &file[length..];
        }
        all
    }

    #[test]
    fn blocks_are_whole() {
        let mut w = Writer::new(Vec::new()).unwrap();
        assert_eq!(w.interface("a-b").unwrap(), 0);
        assert_eq!(w.interface("b-a").unwrap(), 1);
        w.packet(1, 5 << 32 | 7, Direction::Outbound, [b"head", b"x"], Some("lost")).unwrap();
        let file = w.finish().unwrap();
        let blocks = blocks(&file);
        let kinds: Vec<u32> = blocks.iter().map(|b| b.0).collect();
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE_DESCRIPTION, INTERFACE_DESCRIPTION, 6]);
        let packet = blocks[3].1;
        assert_eq!(packet[..12], [1, 0, 0, 0, 5, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(packet[20..28], *b"headx\0\0\0");
        assert_eq!(packet[28..36], [1, 0, 4, 0, b'l', b'o', b's', b't']);
        assert_eq!(packet[36..], [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
