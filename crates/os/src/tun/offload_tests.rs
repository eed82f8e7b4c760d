//! Properties of splitting and gathering packets.

use super::checksum::{add, sum};
use super::*;
use proptest::prelude::*;
use proptest::sample::Index;
use std::num::NonZeroU16;

const SOURCE: [u8; 16] = [0xfd, 1, 2, 3, 4, 5, 6, 7, 0, 0, 0, 0, 0, 0, 0, 1];
const DESTINATION: [u8; 16] = [0xfd, 8, 9, 10, 11, 12, 13, 14, 0, 0, 0, 0, 0, 0, 0, 1];
const TCP: Checksum = Checksum::Partial { start: 40, offset: 16 };
const UDP: Checksum = Checksum::Partial { start: 40, offset: 6 };

/// Returns the sum of the pseudo-header (RFC 8200 section 8.1).
fn pseudo(packet: &[u8], transport: usize) -> u16 {
    let lengths = sum(&(transport as u32).to_be_bytes());
    add(add(sum(&packet[8..40]), lengths), u16::from(packet[6]))
}

/// Returns an IPv6 packet with a partial checksum.
fn packet(protocol: u8, transport: &[u8], checksum: usize) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 9, 0, 0, protocol, 64];
    packet[4..6].copy_from_slice(&(transport.len() as u16).to_be_bytes());
    packet.extend(SOURCE);
    packet.extend(DESTINATION);
    packet.extend(transport);
    let partial = pseudo(&packet, transport.len());
    packet[40 + checksum..42 + checksum].copy_from_slice(&partial.to_be_bytes());
    packet
}

fn tcp(port: u8, sequence: u32, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut segment = vec![0, port, 0, 80];
    segment.extend(sequence.to_be_bytes());
    segment.extend([1, 2, 3, 4, (5 + options.len() as u8 / 4) << 4, flags, 0xff, 0, 0, 0, 0, 0]);
    segment.extend(options);
    segment.extend(payload);
    packet(6, &segment, 16)
}

/// Returns a packet of TCP over IPv4 with a partial checksum, and where its transport header begins.
fn tcp4(sequence: u32, identification: u16, options: usize, payload: &[u8]) -> (Vec<u8>, usize) {
    let start = 20 + 4 * options;
    let length = start + 20 + payload.len();
    let mut packet = vec![0x45 + options as u8, 0];
    packet.extend((length as u16).to_be_bytes());
    packet.extend(identification.to_be_bytes());
    packet.extend([0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    packet.resize(start, 1);
    packet.extend([0, 1, 0, 80]);
    packet.extend(sequence.to_be_bytes());
    packet.extend([1, 2, 3, 4, 5 << 4, 0x10, 0xff, 0, 0, 0, 0, 0]);
    packet.extend(payload);
    let pseudo = add(add(sum(&packet[12..20]), 6), (length - start) as u16);
    packet[start + 16..start + 18].copy_from_slice(&pseudo.to_be_bytes());
    (packet, start)
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0, 53, 0, 54];
    datagram.extend(((payload.len() + 8) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    packet(17, &datagram, 6)
}

fn description(pieces: Pieces, checksum: Checksum, size: u16) -> VnetHeader {
    let size = NonZeroU16::new(size).unwrap();
    let segmentation = Some(Segmentation { pieces, size, headers: 0, ecn: false });
    VnetHeader { checksum, segmentation }
}

/// Returns the segments as packets. Checks what every segment of a split packet has.
fn split(header: &VnetHeader, whole: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = Segments::new(header, whole).unwrap();
    let mut all = Vec::new();
    while segments.remaining() > 0 {
        let left = segments.remaining();
        let segment = segments.next_segment().unwrap();
        let packet = [segment.headers, segment.payload].concat();
        assert_eq!(segment.len(), packet.len());
        assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
        if segment.checksum != Checksum::Complete {
            let mut complete = packet.clone();
            assert!(complete_checksum(&mut complete, segment.checksum));
            assert_eq!(add(pseudo(&packet, packet.len() - 40), sum(&complete[40..])), 0xffff);
        }
        assert_eq!(segments.remaining(), left - 1);
        all.push(packet);
    }
    assert!(segments.next_segment().is_none());
    let (mut whole, mut again) = (whole.to_vec(), Vec::new());
    let count = split_in_place(header, &mut whole, |segment, _| again.push(segment.to_vec()));
    assert_eq!((count.unwrap(), &again), (all.len(), &all));
    all
}

/// Returns what a coalescer makes of packets.
fn coalesce(packets: &[(Vec<u8>, Checksum)]) -> Vec<(VnetHeader, Vec<u8>)> {
    let mut coalescer = Coalescer::new();
    let mut all = Vec::new();
    let write = |header: &VnetHeader, parts: &[io::IoSlice<'_>]| {
        (*header, parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>())
    };
    for (packet, checksum) in packets {
        if !coalescer.push(packet, *checksum) {
            all.extend(coalescer.finish(write));
            assert!(coalescer.push(packet, *checksum));
        }
    }
    all.extend(coalescer.finish(write));
    assert!(coalescer.finish(write).is_none());
    all
}

fn payload(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    let octet = |i: usize, seed: u8| (i as u8).wrapping_mul(31).wrapping_add(seed);
    (range, any::<u8>())
        .prop_map(move |(length, seed)| (0..length).map(|i| octet(i, seed)).collect())
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    (0..=10usize).prop_flat_map(|words| prop::collection::vec(any::<u8>(), 4 * words))
}

proptest! {
    /// RFC 9293: each octet has the number it had before; the end of the data and PSH stay at the end, CWR at the
    /// start (RFC 3168 section 6.1.2).
    #[test]
    fn a_tcp_packet_is_split(
        sequence: u32, flags: u8, options in options(), size in 1..2_000u16,
        payload in payload(0..9_000),
    ) {
        let whole = tcp(1, sequence, flags, &options, &payload);
        let segments = split(&description(Pieces::Tcp6, TCP, size), &whole);
        let headers = whole.len() - payload.len();
        let last = segments.len() - 1;
        let mut sent = 0usize;
        for (i, segment) in segments.iter().enumerate() {
            let expected = match (i, i == last) {
                (0, true) => flags,
                (0, false) => flags & !0x09,
                (_, true) => flags & !0x80,
                (_, false) => flags & !0x89,
            };
            let number = sequence.wrapping_add(sent as u32);
            prop_assert_eq!(&segment[44..48], &number.to_be_bytes());
            prop_assert_eq!(segment[53], expected);
            prop_assert_eq!(&segment[6..44], &whole[6..44]);
            prop_assert_eq!(&segment[54..56], &whole[54..56]);
            prop_assert_eq!(&segment[58..headers], &whole[58..headers]);
            prop_assert!(i == last || segment.len() == headers + usize::from(size));
            let end = sent + segment.len() - headers;
            prop_assert_eq!(&segment[headers..], &payload[sent..end]);
            sent = end;
        }
        prop_assert_eq!(sent, payload.len());
    }

    /// RFC 791: each segment has its own length, identification and header checksum.
    #[test]
    fn a_tcp_packet_over_ipv4_is_split(
        sequence: u32, identification: u16, size in 1..2_000u16, options in 0..3usize,
        payload in payload(1..9_000),
    ) {
        let (whole, start) = tcp4(sequence, identification, options, &payload);
        let checksum = Checksum::Partial { start: start as u16, offset: 16 };
        let header = description(Pieces::Tcp4, checksum, size);
        let mut segments = Segments::new(&header, &whole).unwrap();
        let (mut count, mut sent) = (0, 0);
        while let Some(segment) = segments.next_segment() {
            let packet = [segment.headers, segment.payload].concat();
            let number = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
            prop_assert_eq!(usize::from(number(2)), packet.len());
            prop_assert_eq!(number(4), identification.wrapping_add(count));
            prop_assert_eq!(sum(&packet[..start]), 0xffff);
            let expected = sequence.wrapping_add(sent as u32).to_be_bytes();
            prop_assert_eq!(&packet[start + 4..start + 8], &expected);
            let mut complete = packet.clone();
            prop_assert!(complete_checksum(&mut complete, segment.checksum));
            let pseudo = add(sum(&packet[12..20]), (packet.len() - start) as u16 + 6);
            prop_assert_eq!(add(pseudo, sum(&complete[start..])), 0xffff);
            prop_assert_eq!(segment.payload, &payload[sent..sent + segment.payload.len()]);
            sent += segment.payload.len();
            count += 1;
        }
        prop_assert_eq!((sent, usize::from(count)), (payload.len(), payload.len().div_ceil(size.into())));
    }

    #[test]
    fn a_udp_packet_is_split(
        size in 1..2_000u16,
        payload in payload(0..9_000),
    ) {
        let whole = udp(&payload);
        let datagrams = split(&description(Pieces::Udp, UDP, size), &whole);
        for datagram in &datagrams {
            let length = usize::from(u16::from_be_bytes([datagram[44], datagram[45]]));
            prop_assert_eq!(length, datagram.len() - 40);
            prop_assert_eq!(&datagram[6..44], &whole[6..44]);
        }
        let all: Vec<u8> = datagrams.iter().flat_map(|d| d[48..].iter().copied()).collect();
        prop_assert_eq!(all, payload);
    }

    /// What is split and gathered again is what it was.
    #[test]
    fn a_split_packet_is_one_again(
        sequence: u32, push: bool, options in options(), size in 1_000..2_000u16,
        payload in payload(1..60_000),
    ) {
        let whole = tcp(1, sequence, if push { 0x18 } else { 0x10 }, &options, &payload);
        let segments = split(&description(Pieces::Tcp6, TCP, size), &whole);
        let packets: Vec<_> = segments.into_iter().map(|packet| (packet, TCP)).collect();
        let again = coalesce(&packets);
        prop_assert_eq!(again.len(), 1);
        let (header, packet) = &again[0];
        prop_assert_eq!(packet, &whole);
        let sizes = header.segmentation.map(|s| (s.size.get(), usize::from(s.headers)));
        let several = packets.len() > 1;
        prop_assert_eq!(sizes, several.then_some((size, whole.len() - payload.len())));
    }

    /// Whatever is gathered is split into the packets that came, in their order.
    #[test]
    fn gathering_loses_and_changes_nothing(
        steps in prop::collection::vec((0..6u8, 0..12u8, 0..4u16, 0..40usize), 1..150),
    ) {
        let mut next = [7u32, u32::MAX - 500];
        let packets: Vec<_> = steps.iter().map(|(kind, variant, cut, field)| {
            let length = if *variant == 1 { 1_200 } else { 1_000 } - 100 * cut * u16::from(*variant == 2);
            let payload: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(*variant)).collect();
            let flow = usize::from(*kind == 1);
            let flags = match variant { 3 => 0x18, 4 => 0x11, 5 => 0x90, 6 => 0x50, 7 => 0x02, _ => 0x10 };
            let options: &[u8] = if *variant == 8 { &[] } else { &[1, 1, 1, 0] };
            let sequence = next[flow].wrapping_add(u32::from(*variant == 9));
            match (kind, variant) {
                (5, _) => (udp(&payload), UDP),
                (_, 10) => (tcp(flow as u8, sequence, 0x10, &[], &[]), TCP),
                (_, 11) => (tcp(flow as u8, sequence, 0x10, &[], &payload), Checksum::Complete),
                _ => {
                    next[flow] = sequence.wrapping_add(u32::from(length));
                    let mut packet = tcp(flow as u8, sequence, flags, options, &payload);
                    // A difference in traffic class, flow label, hop limit, acknowledgement, window or options.
                    if let Some(at) = [1usize, 3, 7, 51, 55, 63].get(*field) {
                        packet[*at] ^= 1;
                    }
                    (packet, TCP)
                }
            }
        }).collect();
        let gathered = coalesce(&packets);
        let mut again = Vec::new();
        for (header, packet) in &gathered {
            prop_assert!(packet.len() <= 40 + 65_535);
            again.extend(split(header, packet).into_iter().map(|p| (p, header.checksum)));
        }
        prop_assert_eq!(again, packets);
    }

    /// The header and the packet come from the kernel; still nothing may panic.
    #[test]
    fn random_packets_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        head: [u8; VNET_HEADER], kind in prop::sample::select(vec![0u8, 1, 4, 5, 0x81, 0x84]),
        start in 0..90u16, offset in prop::sample::select(vec![6u16, 16, 300]), size in 0..500u16,
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..4), version: bool,
    ) {
        let mut head = head;
        (head[0], head[1]) = (1, kind);
        head[4..6].copy_from_slice(&size.to_ne_bytes());
        let mut good = tcp(1, 2, 0x10, &[1; 8], &bytes);
        for (at, octet) in changes {
            let at = at.index(good.len());
            good[at] = octet;
        }
        let mut bytes = bytes;
        if version && !bytes.is_empty() {
            bytes[0] = 0x60;
        }
        for (start, packet) in [(start, &bytes), (40, &good)] {
            head[6..8].copy_from_slice(&start.to_ne_bytes());
            head[8..].copy_from_slice(&offset.to_ne_bytes());
            let Ok(header) = VnetHeader::parse(&head) else { continue };
            if let Ok(mut segments) = Segments::new(&header, packet) {
                let (mut count, mut payload) = (segments.remaining(), 0);
                while let Some(segment) = segments.next_segment() {
                    count -= 1;
                    payload += segment.payload.len();
                }
                prop_assert_eq!(count, 0);
                prop_assert!(payload <= packet.len());
            }
            let _ = split_in_place(&header, &mut packet.clone(), |_, _| {});
            let again = coalesce(&[(packet.clone(), header.checksum)]);
            if !packet.is_empty() {
                prop_assert_eq!(&again[0].1, packet);
            }
        }
    }
}

#[test]
fn a_connection_with_equal_segments_fills_one_packet() {
    let payload = [7; 1_000];
    let packets: Vec<_> = (0..70).map(|i| (tcp(1, i * 1_000, 0x10, &[], &payload), TCP)).collect();
    let counts: Vec<_> = coalesce(&packets).iter().map(|(_, p)| (p.len() - 60) / 1_000).collect();
    assert_eq!(counts, [MAX_COALESCED, 70 - MAX_COALESCED]);
    // The length of an IPv6 packet is another bound.
    let payload = [7; 1_400];
    let packets: Vec<_> = (0..50).map(|i| (tcp(1, i * 1_400, 0x10, &[], &payload), TCP)).collect();
    let counts: Vec<_> = coalesce(&packets).iter().map(|(_, p)| (p.len() - 60) / 1_400).collect();
    assert_eq!(counts, [46, 4]);
}

#[test]
fn another_protocol_is_not_gathered() {
    for (at, octet, expected) in [(6, 6, 1), (6, 99, 2), (0, 0x45, 2)] {
        let segment = |sequence| {
            let mut packet = tcp(1, sequence, 0x10, &[], &[7; 100]);
            packet[at] = octet;
            (packet, TCP)
        };
        assert_eq!(coalesce(&[segment(0), segment(100)]).len(), expected);
    }
}

#[test]
fn a_packet_that_cannot_be_split_is_refused() {
    let header = description(Pieces::Tcp6, TCP, 100);
    let good = tcp(1, 2, 0x10, &[], &[0; 500]);
    assert!(Segments::new(&header, &good).is_ok());
    let refused =
        |header: &VnetHeader, packet: &[u8]| Segments::new(header, packet).unwrap_err().reason;
    let mut other = good.clone();
    other[6] = 17;
    assert_eq!(refused(&header, &other), "expected the transport's number");
    let version = "expected the version of IP that is announced";
    other[0] = 0x45;
    assert_eq!(refused(&header, &other), version);
    assert_eq!(refused(&description(Pieces::Tcp4, TCP, 100), &good), version);
    other[0] = 0x4b;
    let four = description(Pieces::Tcp4, TCP, 100);
    assert_eq!(refused(&four, &other), "expected the transport behind the header of IP");
    other[0] = 0x4a;
    assert_eq!(refused(&four, &other), "expected the transport's number");
    assert_eq!(
        refused(&description(Pieces::Udp, TCP, 100), &good),
        "expected a partial checksum of the transport"
    );
    let complete = VnetHeader { checksum: Checksum::Complete, ..header };
    assert_eq!(refused(&complete, &good), "expected a partial checksum of the transport");
    assert_eq!(refused(&header, &good[..57]), "expected a checksum within the packet");
    assert_eq!(refused(&header, &good[..59]), "expected a transport header");
    other.clone_from(&good);
    other[52] = 0xf0;
    assert_eq!(refused(&header, &other[..99]), "expected headers of at most 256 octets");
}
