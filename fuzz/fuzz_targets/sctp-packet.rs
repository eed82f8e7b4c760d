//! A packet of SCTP: header, checksum, and the walk over its chunks. What is read can be written, and
//! what was written is read as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_sctp::wire::{Chunk, Packet, Writer, packet::checksum};

fn write(chunks: &[Chunk<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, 1 << 20, 1, 2, 3);
    for chunk in chunks {
        chunk.emit(writer.chunks());
    }
    writer.finish();
    out
}

fn read(bytes: &[u8]) -> Vec<Chunk<'_>> {
    let packet = Packet::parse(bytes).expect("what was written has a right checksum");
    let whole = packet.chunks().map(|chunk| chunk.expect("a whole chunk"));
    whole.map(|chunk| chunk.parse().expect("a chunk that was written")).collect()
}

fuzz_target!(|data: &[u8]| {
    let _ = Packet::parse(data);
    let mut bytes = data.to_vec();
    if let Some(field) = bytes.get_mut(8..12) {
        field.fill(0);
        let sum = checksum(&bytes);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    }
    let Ok(packet) = Packet::parse(&bytes) else {
        assert!(bytes.len() < 12, "a right checksum was refused");
        return;
    };
    // What is well formed up to the first fault. INIT and INIT ACK are written from their parameters,
    // which is for the other target.
    let chunks: Vec<_> = packet
        .chunks()
        .map_while(Result::ok)
        .filter_map(|c| c.parse().ok())
        .filter(|c| !matches!(c, Chunk::Init(_) | Chunk::InitAck(_)))
        .collect();
    if chunks.is_empty() {
        return;
    }
    // The padding of a last parameter may have been counted (RFC 9260 section 3.2); we do not count it.
    let once = write(&chunks);
    let first = read(&once);
    assert_eq!(first.len(), chunks.len());
    let twice = write(&first);
    assert_eq!(read(&twice), first);
});
