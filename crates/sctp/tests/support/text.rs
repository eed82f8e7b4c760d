//! Packets as lines of a table: chunks joined by " + ", TSNs relative to the initial ones, which
//! are 1.
//!
//! `DATA tsn flags stream:ssn bytes` (`-` for no flags where one is built), `SACK cumulative [w window] [from-to ...] [dup tsn ...]`,
//! `IDATA tsn flags stream:mid:(ppid or fragment) bytes`, `IFORWARD tsn [U]stream:mid ...`,
//! `RECONFIG` with `out request response last [stream ...]`, `in request [stream ...]`, `all request`,
//! `answer request result [ours theirs]`, `more request count` or `give request count`,
//! `SHUTDOWN cumulative`, `ABORT [T] [cause]`, `ERROR cause`, `SHUTDOWN_COMPLETE [T]`, and names
//! alone for the rest.

use super::pattern;
use ringway_sctp::wire::cause::Causes;
use ringway_sctp::wire::chunk::{self, Chunk, ForwardTsn};
use ringway_sctp::wire::data::IData;
use ringway_sctp::wire::reconfig::{Reconfig, Streams};
use ringway_sctp::wire::{Cause, Data, DataFlags, Gap, Packet, Parameters, sack};
use ringway_sctp::{Mid, Ssn, Tsn};

const FLAGS: [(char, DataFlags); 4] = [
    ('I', DataFlags::IMMEDIATE),
    ('U', DataFlags::UNORDERED),
    ('B', DataFlags::BEGIN),
    ('E', DataFlags::END),
];

fn relative(tsn: Tsn, first: Option<Tsn>) -> i64 {
    first.map_or(i64::from(tsn.raw()), |first| i64::from(tsn.distance(first)) + 1)
}

fn codes(causes: &[u8]) -> String {
    Causes::new(causes).flatten().map(|c| format!(" {}", c.code())).collect()
}

fn reconfig(value: &[u8], data: Option<Tsn>, acked: Option<Tsn>) -> String {
    let own = |number: u32| relative(Tsn::new(number), data);
    let other = |number: u32| relative(Tsn::new(number), acked);
    let list = |streams: Streams<'_>| streams.iter().map(|s| format!(" {s}")).collect::<String>();
    Parameters::new(value)
        .map(|p| match Reconfig::read(&p.unwrap()).unwrap().unwrap() {
            Reconfig::OutgoingReset { request, response, last_tsn, streams } => {
                let (last, names) = (own(last_tsn.raw()), list(streams));
                format!(" out {} {} {last}{names}", own(request), other(response))
            }
            Reconfig::IncomingReset { request, streams } => {
                format!(" in {}{}", own(request), list(streams))
            }
            Reconfig::TsnReset { request } => format!(" all {}", own(request)),
            Reconfig::Response { response, result, next } => {
                let next = next.map_or(String::new(), |(ours, theirs)| {
                    format!(" {} {}", own(ours.raw()), other(theirs.raw()))
                });
                format!(" answer {} {result}{next}", other(response))
            }
            Reconfig::AddOutgoing { request, count } => format!(" more {} {count}", own(request)),
            Reconfig::AddIncoming { request, count } => format!(" give {} {count}", own(request)),
        })
        .collect()
}

/// Returns the parameter that a text describes, in the format of [`reconfig`].
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
    let packet = Packet::parse_unchecked(bytes).unwrap();
    let chunks: Vec<String> = packet
        .chunks()
        .map(|raw| match raw.unwrap().parse().unwrap() {
            Chunk::Data(d) => {
                let flags: String =
                    FLAGS.iter().filter(|f| d.flags.has(f.1)).map(|f| f.0).collect();
                let (tsn, stream, ssn) = (relative(d.tsn, data), d.stream, d.ssn);
                format!("DATA {tsn} {flags} {stream}:{ssn:?} {}", d.user.len())
            }
            Chunk::IData(d) => {
                let flags: String =
                    FLAGS.iter().filter(|f| d.flags.has(f.1)).map(|f| f.0).collect();
                let (tsn, stream, mid) = (relative(d.tsn, data), d.stream, d.mid);
                format!("IDATA {tsn} {flags} {stream}:{mid:?}:{} {}", d.ppid_or_fsn, d.user.len())
            }
            Chunk::IForwardTsn(f) => {
                let letter = |u: bool| if u { "U" } else { "" };
                let list: String =
                    f.messages().map(|(s, u, n)| format!(" {}{s}:{n:?}", letter(u))).collect();
                format!("IFORWARD {}{list}", relative(f.new_cumulative_tsn, data))
            }
            Chunk::Sack(s) => {
                let mut text = format!("SACK {}", relative(s.cumulative_tsn_ack, acked));
                for gap in s.gaps() {
                    let base = relative(s.cumulative_tsn_ack, acked);
                    let (start, end) = (base + i64::from(gap.start), base + i64::from(gap.end));
                    text += &format!(" {start}-{end}");
                }
                for tsn in s.duplicates() {
                    text += &format!(" dup {}", relative(tsn, acked));
                }
                text
            }
            Chunk::ForwardTsn(f) => {
                let list: String = f.streams().map(|(s, n)| format!(" {s}:{n:?}")).collect();
                format!("FORWARD {}{list}", relative(f.new_cumulative_tsn, data))
            }
            Chunk::NrSack(s) => {
                let base = relative(s.cumulative_tsn_ack, acked);
                let gap =
                    |g: Gap| format!(" {}-{}", base + i64::from(g.start), base + i64::from(g.end));
                format!("NRSACK {base}{}", s.final_gaps().map(gap).collect::<String>())
            }
            Chunk::ReConfig(value) => format!("RECONFIG{}", reconfig(value, data, acked)),
            Chunk::Shutdown(tsn) => format!("SHUTDOWN {}", relative(tsn, acked)),
            Chunk::Abort { reflected, causes } => {
                format!("ABORT{}{}", if reflected { " T" } else { "" }, codes(causes))
            }
            Chunk::Error(causes) => format!("ERROR{}", codes(causes)),
            Chunk::ShutdownComplete { reflected } => {
                format!("SHUTDOWN_COMPLETE{}", if reflected { " T" } else { "" })
            }
            Chunk::Init(_) => "INIT".into(),
            Chunk::InitAck(_) => "INIT_ACK".into(),
            Chunk::Heartbeat(_) => "HEARTBEAT".into(),
            Chunk::Pad => "PAD".into(),
            Chunk::Ecne(tsn) => format!("ECNE {}", relative(tsn, acked)),
            Chunk::Cwr(tsn) => format!("CWR {}", relative(tsn, data)),
            Chunk::HeartbeatAck(_) => "HEARTBEAT_ACK".into(),
            Chunk::ShutdownAck => "SHUTDOWN_ACK".into(),
            Chunk::CookieEcho(_) => "COOKIE_ECHO".into(),
            Chunk::CookieAck => "COOKIE_ACK".into(),
            other => format!("{other:?}"),
        })
        .collect();
    chunks.join(" + ")
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
