//! A packet of DCCP: header, options, vectors and intervals. What is read can be written, and what was
//! written is read as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_dccp::wire::{Carrier, DccpOption, Packet, Quoted, Runs, interval, vector};
use std::net::IpAddr;

const IP: Carrier = Carrier::Ip(
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
);

fn write(packet: &Packet<'_>, options: &[DccpOption<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for option in options {
        option.emit(&mut bytes);
    }
    let mut out = Vec::new();
    packet.header.emit(IP, &bytes, packet.data, &mut out);
    out
}

fuzz_target!(|data: &[u8]| {
    let _ = Packet::parse(IP, data);
    let _ = Packet::parse(Carrier::Udp, data);
    let _ = Quoted::parse(data);
    let Ok(packet) = Packet::parse_unchecked(data) else { return };
    let _ = packet.to_string();
    let options: Vec<_> = packet.options().map_while(Result::ok).collect();
    for option in &options {
        match *option {
            DccpOption::AckVector(runs) => {
                let total: u64 = Runs::new(&[runs]).map(|(_, count)| count).sum();
                assert!(total <= 64 * runs.len() as u64);
            }
            DccpOption::DataDropped(blocks) => assert_eq!(vector::dropped(blocks).count(), blocks.len()),
            DccpOption::LossIntervals(value) => {
                let (_, intervals) = interval::parse(value).expect("it was checked");
                assert!(intervals.count() <= interval::MAX_INTERVALS);
            }
            _ => {}
        }
    }
    // The coverage may be more than there is.
    let mut packet = packet;
    packet.header.coverage = 0;
    let once = write(&packet, &options);
    let first = Packet::parse(IP, &once).expect("what was written has a right checksum");
    assert_eq!((first.header, first.data), (packet.header, packet.data));
    let again: Vec<_> = first.options().map_while(Result::ok).collect();
    assert_eq!(again, options);
    assert_eq!(write(&first, &again), once);
});
