//! Packets as lines of a table, see `wire/display.rs`, with TSNs relative to the initial ones, which are 1. To build one,
//! `-` stands for no flags, `SACK cumulative w window` for a window, and `UNKNOWN type` for a chunk of another type.

use super::pattern;
use ringway_sctp::wire::chunk::{self, Chunk, ForwardTsn};
use ringway_sctp::wire::data::IData;
use ringway_sctp::wire::reconfig::{Reconfig, Streams};
use ringway_sctp::wire::{Cause, Data, DataFlags, Gap, Packet, sack};
use ringway_sctp::{Mid, Ssn, Tsn};

const FLAGS: [(char, DataFlags); 4] = [
    ('I', DataFlags::IMMEDIATE),
    ('U', DataFlags::UNORDERED),
    ('B', DataFlags::BEGIN),
    ('E', DataFlags::END),
];

/// Returns the parameter that a text describes, as it is written.
fn build_reconfig(words: &[&str], first: Tsn, peer: Tsn) -> Vec<u8> {
    let number = |at: usize| words[at].parse::<i64>().unwrap();
    let own = |at: usize| first.plus((number(at) - 1) as u32);
    let other = |at: usize| peer.plus((number(at) - 1) as u32);
    let list = |from: usize| -> Vec<u8> {
        words[from..].iter().flat_map(|w| w.parse::<u16>().unwrap().to_be_bytes()).collect()
    };
    let mut out = Vec::new();
    let request = if words[0] == "answer" { 0 } else { own(1).raw() };
    match words[0] {
        "out" => Reconfig::OutgoingReset {
            request,
            response: other(2).raw(),
            last_tsn: own(3),
            streams: Streams::new(&list(4)),
        }
        .emit(&mut out),
        "in" => Reconfig::IncomingReset { request, streams: Streams::new(&list(2)) }.emit(&mut out),
        "all" => Reconfig::TsnReset { request }.emit(&mut out),
        "answer" => Reconfig::Response {
            response: other(1).raw(),
            result: number(2) as u32,
            next: (words.len() > 4).then(|| (own(3), other(4))),
        }
        .emit(&mut out),
        "more" => Reconfig::AddOutgoing { request, count: number(2) as u16 }.emit(&mut out),
        "give" => Reconfig::AddIncoming { request, count: number(2) as u16 }.emit(&mut out),
        word => panic!("no parameter {word}"),
    }
    out
}

/// Returns a packet as a line. `data` is the first TSN of its sender, `acked` that of its receiver.
pub fn describe(bytes: &[u8], data: Option<Tsn>, acked: Option<Tsn>) -> String {
    Packet::parse_unchecked(bytes).unwrap().relative_to(data, acked).to_string()
}

/// Appends the chunks of a line. `first` is the first TSN of its sender, `peer` that of its receiver;
/// `window` is used where a SACK names none.
pub fn build(line: &str, first: Tsn, peer: Tsn, window: u32, out: &mut Vec<u8>) {
    let absolute = |text: &str, base: Tsn| base.plus((text.parse::<i64>().unwrap() - 1) as u32);
    for text in line.split(" + ") {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[0] {
            "DATA" => {
                let mut flags = DataFlags::default();
                for (letter, flag) in FLAGS {
                    flags = if words[2].contains(letter) { flags.with(flag) } else { flags };
                }
                let (stream, ssn) = words[3].split_once(':').unwrap();
                let user = pattern(0, words[4].parse().unwrap());
                let (stream, ssn) = (stream.parse().unwrap(), Ssn::new(ssn.parse().unwrap()));
                let tsn = absolute(words[1], first);
                Data { flags, tsn, stream, ssn, ppid: 0, user: &user }.emit(out);
            }
            "IDATA" => {
                let mut flags = DataFlags::default();
                for (letter, flag) in FLAGS {
                    flags = if words[2].contains(letter) { flags.with(flag) } else { flags };
                }
                let numbers: Vec<u32> = words[3].split(':').map(|n| n.parse().unwrap()).collect();
                let user = pattern(0, words[4].parse().unwrap());
                let (stream, mid) = (numbers[0] as u16, Mid::new(numbers[1]));
                let tsn = absolute(words[1], first);
                IData { flags, tsn, stream, mid, ppid_or_fsn: numbers[2], user: &user }.emit(out);
            }
            "IFORWARD" => {
                let mut entries = Vec::new();
                for word in &words[2..] {
                    let (stream, mid) = word.split_once(':').unwrap();
                    let unordered = stream.starts_with('U');
                    let stream = stream.trim_start_matches('U').parse().unwrap();
                    let mid = Mid::new(mid.parse().unwrap());
                    ForwardTsn::put_message(&mut entries, stream, unordered, mid);
                }
                Chunk::IForwardTsn(ForwardTsn::new(absolute(words[1], first), &entries)).emit(out);
            }
            "SACK" => {
                let cumulative = absolute(words[1], peer);
                let (mut gaps, mut duplicates, mut a_rwnd) = (Vec::new(), Vec::new(), window);
                let mut rest = words[2..].iter();
                while let Some(word) = rest.next() {
                    match *word {
                        "dup" => duplicates.push(absolute(rest.next().unwrap(), peer)),
                        "w" => a_rwnd = rest.next().unwrap().parse().unwrap(),
                        range => {
                            let (start, end) = range.split_once('-').unwrap();
                            let offset = |t| absolute(t, peer).distance(cumulative) as u16;
                            gaps.push(Gap { start: offset(start), end: offset(end) });
                        }
                    }
                }
                sack::emit(out, cumulative, a_rwnd, gaps.into_iter(), duplicates.into_iter());
            }
            "NRSACK" => {
                let cumulative = absolute(words[1], peer);
                let gap = |range: &&str| {
                    let (start, end) = range.split_once('-').unwrap();
                    let offset = |t| absolute(t, peer).distance(cumulative) as u16;
                    Gap { start: offset(start), end: offset(end) }
                };
                let gaps = words[2..].iter().map(gap);
                sack::emit_final(out, cumulative, window, gaps, core::iter::empty());
            }
            "FORWARD" => {
                let mut entries = Vec::new();
                for word in &words[2..] {
                    let (stream, ssn) = word.split_once(':').unwrap();
                    let ssn = Ssn::new(ssn.parse().unwrap());
                    ForwardTsn::put_stream(&mut entries, stream.parse().unwrap(), ssn);
                }
                Chunk::ForwardTsn(ForwardTsn::new(absolute(words[1], first), &entries)).emit(out);
            }
            "SHUTDOWN" => Chunk::Shutdown(absolute(words[1], peer)).emit(out),
            "RECONFIG" => {
                Chunk::ReConfig(&build_reconfig(&words[1..], first, peer)).emit(out);
            }
            "ECNE" => Chunk::Ecne(absolute(words[1], peer)).emit(out),
            "CWR" => Chunk::Cwr(absolute(words[1], first)).emit(out),
            "SHUTDOWN_ACK" => Chunk::ShutdownAck.emit(out),
            "SHUTDOWN_COMPLETE" => {
                Chunk::ShutdownComplete { reflected: words.contains(&"T") }.emit(out);
            }
            "COOKIE_ACK" => Chunk::CookieAck.emit(out),
            "HEARTBEAT" => Chunk::Heartbeat(&[0, 1, 0, 8, 1, 2, 3, 4]).emit(out),
            "ABORT" => {
                let causes = chunk::causes(Cause::UserAbort(b"why not"));
                Chunk::Abort { reflected: words.contains(&"T"), causes: &causes }.emit(out);
            }
            "UNKNOWN" => chunk::put(out, words[1].parse().unwrap(), 0, &[&[7; 6]]),
            other => panic!("no chunk {other}"),
        }
    }
}
