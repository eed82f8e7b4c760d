//! Figure 5.2: throughput of UDP, TCP and SCTP against the message size.

use super::{Study, StudyResult, row};
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::papers::{Claim, MeasuredFigure, MeasuredTable};
use crate::run::RunError;

/// Message sizes in bytes; SCTP of 2002 could not be measured above 1024.
const SIZES: [u64; 5] = [64, 128, 256, 512, 1024];
/// Number of messages, as configured in the paper's test program.
const MESSAGES: u64 = 10_000;
const TRANSPORTS: [&str; 3] = ["UDP", "TCP", "SCTP"];
/// TCP with the headers in Figure 5.3, without the 12 bytes of timestamps.
const BARE_TCP: &str = "TCP, no timestamps";

/// Times at which messages are due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    /// All at once: link and transport decide how fast they are sent, and they may share packets.
    AtOnce,
    /// One per millisecond, so that each has its own packet.
    Alone,
}

fn scenario(transport: &str, size: u64, due: Due) -> String {
    // Over UDP the packet size includes headers of 28 bytes.
    let packet = if transport == "UDP" { size + 28 } else { size };
    let (transport, settings) = match transport {
        "TCP" => ("tcp", "tcp = { nagle = false }"),
        BARE_TCP => ("tcp", "tcp = { nagle = false, timestamps = false }"),
        "SCTP" => ("sctp", ""),
        _ => ("udp", ""),
    };
    let rate = match due {
        Due::AtOnce => "10 Gbit/s".into(),
        Due::Alone => format!("{} kbit/s", packet * 8),
    };
    format!(
        "[scenario]\ntitle = \"Figure 5.2\"\nnodes = [\"a\", \"b\"]\nstop = \"flows done\"\n\
         [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"100 Mbit/s\"\noverhead = \"38 B\"\ndelay = \"50 us\"\n\
         queue = {{ discipline = \"drop-tail\", limit = 1000000 }}\n\
         [[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ntransport = \"{transport}\"\ntraffic = \"cbr\"\n\
         rate = \"{rate}\"\npacket = \"{packet} B\"\npackets = {MESSAGES}\n{settings}\n"
    )
}

/// Returns the data in Mbit per second in which the link was sending. When all messages are ready
/// at once, it pauses only while connecting.
fn throughput(study: &Study, transport: &str, size: u64, due: Due) -> Result<f64, RunError> {
    let outcome = study.once(&study.read(&scenario(transport, size, due))?, 1)?;
    let Some(flow) = outcome.flows.first() else { return Ok(f64::NAN) };
    if due == Due::AtOnce {
        return Ok(flow.goodput / 1e6);
    }
    let there = outcome.links.iter().find(|l| l.from == "a").and_then(|l| l.utilisation);
    let sending = there.map_or(f64::NAN, |share| share * outcome.ended);
    Ok(flow.bytes as f64 * 8.0 / sending / 1e6)
}

fn table(study: &Study, due: Due) -> Result<MeasuredTable, RunError> {
    let transports: &[&str] = match due {
        Due::AtOnce => &TRANSPORTS,
        Due::Alone => &["UDP", "TCP", BARE_TCP, "SCTP"],
    };
    let mut rows = Vec::new();
    for size in SIZES {
        let mut figures = Vec::new();
        for transport in transports {
            let value = throughput(study, transport, size, due)?;
            figures.push(MeasuredFigure::exact(transport, "Mbit/s", value));
        }
        rows.push(row(format!("{size} B"), figures));
    }
    let what = match due {
        Due::AtOnce => format!(
            "data rate of {MESSAGES} messages of one size, all ready at once, over Ethernet of 100 Mbit/s with 38 \
             bytes of overhead per packet and a delay of 50 us; waiting messages may share a packet. The paper's \
             figure has no numbers."
        ),
        Due::Alone => "data per second of sending on the same link if every message has its own packet, as with a \
                       machine slower than its link: one message per millisecond."
            .into(),
    };
    Ok(MeasuredTable { source: "Figure 5.2", what, replications: 1, rows })
}

/// Returns the values of a column.
fn of(table: &MeasuredTable, transport: &str) -> Vec<f64> {
    let figures = table.rows.iter().flat_map(|r| &r.figures);
    figures.filter(|f| f.column == transport).map(|f| f.ours).collect()
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let tables = vec![table(study, Due::Alone)?, table(study, Due::AtOnce)?];
    let (alone, at_once) = (&tables[0], &tables[1]);
    let claims = claims(alone, at_once);
    let charts = vec![
        chart(study, alone, "-alone", "one packet per message"),
        chart(study, at_once, "", "waiting messages share packets"),
    ];
    let finding = "Two of the four lines of Figure 5.2 are SCTP implementations of 2002, one in user space, which \
                   was faster, and one in the kernel. The paper attributes their differences to unfinished parts; \
                   neither is run here.";
    Ok(StudyResult { claims, charts, findings: vec![finding.into()], tables })
}

fn claims(alone: &MeasuredTable, at_once: &MeasuredTable) -> Vec<Claim> {
    let [udp, tcp, sctp] = TRANSPORTS.map(|t| of(at_once, t));
    let [udp_alone, tcp_alone, sctp_alone] = TRANSPORTS.map(|t| of(alone, t));
    let bare = of(alone, BARE_TCP);
    let above = |a: &[f64], b: &[f64]| a.iter().zip(b).filter(|(a, b)| a > b).count();
    let sizes = SIZES.len();
    vec![
        Claim {
            source: "Figure 5.2",
            says: "UDP has the best throughput at every size, for it has the least framing (a packet for \
                   each message)"
                .into(),
            ours: format!(
                "UDP is above TCP at {} of {sizes} sizes and above SCTP at {}",
                above(&udp_alone, &bare),
                above(&udp_alone, &sctp_alone)
            ),
            holds: above(&udp_alone, &bare) == sizes && above(&udp_alone, &sctp_alone) == sizes,
            expected: true,
            sure: true,
            why: "Headers above Ethernet: 28 bytes over UDP, 40 over TCP (52 with timestamps, which Figure 5.3 does \
                  not show), 48 over SCTP.".into(),
        },
        Claim {
            source: "Figure 5.2",
            says: "UDP has the best throughput at every size (messages that wait share packets)".into(),
            ours: format!(
                "UDP is above TCP at {} of {sizes} sizes and above SCTP at {}",
                above(&udp, &tcp),
                above(&udp, &sctp)
            ),
            holds: above(&udp, &tcp) == sizes && above(&udp, &sctp) == sizes,
            expected: false,
            sure: true,
            why: "If the link is slower than the machine, messages wait. UDP sends one packet per message; TCP puts \
                  many small messages into a segment and SCTP into a packet, which saves more bytes than their \
                  longer headers cost.".into(),
        },
        Claim {
            source: "Figure 5.2",
            says: "TCP is above SCTP at every size".into(),
            ours: format!(
                "TCP is above SCTP at {} of {sizes} sizes if messages share packets; with one packet per message at \
                 {}, and at {} without timestamps",
                above(&tcp, &sctp),
                above(&tcp_alone, &sctp_alone),
                above(&bare, &sctp_alone)
            ),
            holds: above(&tcp, &sctp) == sizes && above(&bare, &sctp_alone) == sizes,
            expected: true,
            sure: true,
            why: format!(
                "The difference here is {} bytes per message on the link if messages share packets, and {} if each \
                 has its own packet. It is not the factor of the paper's figure, which the paper attributes to \
                 unfinished implementations.",
                bytes_more(&sctp, &tcp),
                bytes_more(&sctp_alone, &bare)
            ),
        },
    ]
}

/// Returns the range of additional bytes per message on the link where throughput is lower, over
/// all sizes.
fn bytes_more(less: &[f64], more: &[f64]) -> String {
    let of = |((size, less), more): ((&u64, &f64), &f64)| {
        *size as f64 * 100.0 * (1.0 / less - 1.0 / more)
    };
    let bytes: Vec<f64> = SIZES.iter().zip(less).zip(more).map(of).collect();
    let low = bytes.iter().copied().fold(f64::NAN, f64::min).round();
    let high = bytes.iter().copied().fold(f64::NAN, f64::max).round();
    if low == high { format!("{low}") } else { format!("{low} to {high}") }
}

fn chart(study: &Study, table: &MeasuredTable, name: &str, what: &str) -> ChartSheet {
    let series = table.rows.first().map_or(&[][..], |r| &r.figures).iter().map(|f| {
        let values = of(table, &f.column);
        let points = SIZES.iter().zip(values).map(|(size, value)| [*size as f64, value * 1e6]);
        SeriesSheet::new(&f.column, Style::Line, &points.collect::<Vec<_>>())
    });
    ChartSheet {
        shaded: Vec::new(),
        name: format!("figure-5-2-throughput{name}"),
        title: format!("Figure 5.2, throughput against message size; {what}"),
        caption: "Data per second over Ethernet of 100 Mbit/s.".into(),
        seed: study.seed,
        rests_on: Some((1, "run without random elements".into())),
        x: AxisSheet::new("message size", "B"),
        y: AxisSheet::new("throughput", "bit/s"),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one packet per message the order in Figure 5.2 follows exactly from the headers.
    #[test]
    fn framing_decides_where_messages_go_alone() {
        let study = Study { paper: "pang", seed: 1, replications: 1 };
        for (transport, headers) in [("UDP", 28), ("TCP", 52), (BARE_TCP, 40), ("SCTP", 48)] {
            for size in [64, 1024] {
                let measured = throughput(&study, transport, size, Due::Alone).unwrap();
                // The packets for connecting and acknowledging count too.
                let expected = 100.0 * size as f64 / (size + headers + 38) as f64;
                assert!(
                    (measured / expected - 1.0).abs() < 0.002,
                    "{transport} {size} {measured} {expected}"
                );
            }
        }
        let part = run(&study).unwrap();
        assert!(part.claims.iter().all(Claim::is_right), "{:?}", part.claims);
        assert!(part.claims[0].holds && !part.claims[1].holds && part.claims[2].holds);
    }
}
