//! Table 1 of two papers that show the same ns-2 runs, and the delay figures of one of them.
//!
//! Two hops of 200 kbit/s and 10 ms, queues of 50 packets, constant traffic at 448 kbit/s for 28 s.
//! A run is cut 0.99 s after the source stops; [`cuts_that_agree`] runs the neighbouring cuts.

use super::{Account, Claim, Comparison, FigureRow, Reproduction, Row};
use crate::builtin;
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::run::{FlowMeasures, Options, Outcome, RunError, run as run_once};
use crate::scenario::ProbeKind;

/// Tolerances in per cent.
const UDP: f64 = 0.1;
const TCP: f64 = 2.0;
const SCTP: f64 = 5.0;
/// Tolerances in per cent of values read off a plot, and of those with only one readable digit.
const READ_OFF: f64 = 2.0;
const ROUGHLY: f64 = 10.0;

const THIRD: &str = "Gangurde et al., Table 1 and section 3.3";
/// SCTP without any settings of the scenario.
const PLAIN: &str = "SCTP, ns-2's defaults";
const SECOND: &str = "Hung and Khanh 2010, Table 1";

fn outcome(name: &str) -> Result<(Outcome, FlowMeasures), RunError> {
    outcome_of(name, builtin::find(name).map_or("", |b| b.text))
}

fn outcome_of(name: &str, text: &str) -> Result<(Outcome, FlowMeasures), RunError> {
    let scenario = super::read(name, text)?;
    let mut outcome = run_once(&scenario, &Options { probes: true, ..Options::default() }, |_| ())?;
    let flow = outcome.flows.swap_remove(0);
    Ok((outcome, flow))
}

/// The values of a printed row.
struct PrintedRow {
    sent: f64,
    received: f64,
    lost: f64,
    delay: f64,
    /// "Packets read": lines of the trace, one where a packet is sent and one where it arrives.
    read: Option<f64>,
    variance: Option<f64>,
    received_percent: Option<f64>,
    throughput: Option<f64>,
}

fn row(
    source: &'static str,
    protocol: &'static str,
    printed: &PrintedRow,
    flow: &FlowMeasures,
    tolerance: f64,
    note: &'static str,
) -> Row {
    let value = |name| flow.value(name).unwrap_or(f64::NAN);
    let compare = |name, unit, paper, ours| Comparison::new(name, unit, paper, ours, tolerance);
    let mut figures = vec![
        compare("sent", "packets", printed.sent, value("sent")),
        compare("received", "packets", printed.received, value("delivered")),
        compare("lost", "packets", printed.lost, value("not_received")),
        compare("mean delay", "s", printed.delay, value("delay_mean")),
    ];
    if let Some(read) = printed.read {
        figures.push(compare(
            "read from the trace",
            "packets",
            read,
            value("sent") + value("delivered"),
        ));
    }
    if let Some(variance) = printed.variance {
        figures.push(compare("variance of delay", "s^2", variance, value("delay_variance")));
    }
    if let Some(percent) = printed.received_percent {
        let ours = value("delivered") / value("sent") * 100.0;
        figures.push(compare("received", "%", percent, ours));
    }
    if let Some(kilobits) = printed.throughput {
        figures.push(compare("throughput", "kbit/s", kilobits, value("throughput") / 1000.0));
    }
    let account = Some(Account {
        sent: flow.sent,
        dropped: flow.dropped,
        in_flight: flow.in_flight,
        delivered: flow.delivered,
    });
    Row { source, protocol, figures, account, note }
}

pub(super) fn run() -> Result<Reproduction, RunError> {
    let (udp_run, udp) = outcome("gangurde-udp")?;
    let (tcp_run, tcp) = outcome("gangurde-tcp")?;
    let (sctp_run, sctp) = outcome("gangurde-sctp")?;
    let (_, second_sctp) = outcome("hung-khanh-sctp")?;
    // The same scenario without its settings of ns-2's SCTP.
    let text = builtin::find("gangurde-sctp").map_or("", |b| b.text);
    let chosen = |line: &&str| !line.starts_with("sctp_ns2 =");
    let plain = text.lines().filter(chosen).collect::<Vec<_>>().join("\n");
    let (_, plain_sctp) = outcome_of("gangurde-sctp", &plain)?;
    let third = |read, [sent, received, lost]: [f64; 3], delay, variance, percent| PrintedRow {
        sent,
        received,
        lost,
        delay,
        read: Some(read),
        variance: Some(variance),
        received_percent: Some(percent),
        throughput: None,
    };
    let second = |sent, received, lost, delay, throughput| PrintedRow {
        sent,
        received,
        lost,
        delay,
        read: None,
        variance: None,
        received_percent: None,
        throughput: Some(throughput),
    };
    let rows = vec![
        row(
            THIRD,
            "UDP",
            &third(2292.0, [1569.0, 723.0, 846.0], 1.930832, 0.142850, 46.080503),
            &udp,
            UDP,
            "The table prints 1599 packets sent over UDP, the text 1569, from which the other columns follow.",
        ),
        row(
            THIRD,
            "TCP",
            &third(1405.0, [712.0, 693.0, 19.0], 0.787624, 0.010288, 97.331460),
            &tcp,
            TCP,
            "",
        ),
        row(
            THIRD,
            "SCTP",
            &third(1437.0, [750.0, 687.0, 63.0], 1.680858, 0.315453, 91.6),
            &sctp,
            SCTP,
            "Over SCTP only packets with data count, and their delay starts when their TSN is first sent. The first \
             row of SCTP has an initial window of two chunks and acknowledges every packet at once, which was found \
             by search; the second row has ns-2's defaults.",
        ),
        row(
            THIRD,
            PLAIN,
            &third(1437.0, [750.0, 687.0, 63.0], 1.680858, 0.315453, 91.6),
            &plain_sctp,
            SCTP,
            "",
        ),
        row(SECOND, "UDP", &second(1569.0, 723.0, 846.0, 1.93083, 199.586), &udp, UDP, ""),
        row(SECOND, "TCP", &second(713.0, 694.0, 19.0, 0.787624, 199.276), &tcp, TCP, ""),
        row(
            SECOND,
            "SCTP",
            &second(750.0, 689.0, 61.0, 1.60018, 199.267),
            &second_sctp,
            SCTP,
            "The SCTP row is reproduced if every packet counts, including INIT and COOKIE ECHO, each with its own \
             delay, and SACKs are delayed. The paper does not state how it counted, so this choice is the closest \
             one found and not proven.",
        ),
    ];
    let longest = |flow: &FlowMeasures| flow.value("delay_max").unwrap_or(f64::NAN);
    let shows = |figure, name, paper, ours, file| FigureRow {
        figure,
        comparison: Comparison::new(name, "s", paper, ours, READ_OFF),
        file,
    };
    let roughly = |name, paper, ours| FigureRow {
        comparison: Comparison::new(name, "s", paper, ours, ROUGHLY),
        ..shows("3.6", name, paper, ours, "figure-3-6-sctp-delays")
    };
    let cut = cuts_that_agree()?;
    let figures = vec![
        shows("3.2", "delay TCP comes to", 0.82, longest(&tcp), "figure-3-2-tcp-delays"),
        shows("3.4", "delay UDP comes to", 2.05, longest(&udp), "figure-3-4-udp-delays"),
        shows("3.6", "delay SCTP comes to", 4.4, longest(&sctp), "figure-3-6-sctp-delays"),
        roughly("delay of SCTP's packets 100 to 150", 2.3, nth_delay(&sctp_run, 125)),
        roughly("least delay of SCTP after packet 160", 0.5, least_after(&sctp_run, 160)),
    ];
    let claims = claims()?;
    let ok = rows.iter().flat_map(|r| &r.figures).all(|f| f.within)
        && figures.iter().all(|f| f.comparison.within)
        && claims.iter().all(Claim::is_right);
    let mut findings = findings(&udp, &tcp, &sctp, &cut);
    findings.extend(claims.iter().filter_map(Claim::reason));
    Ok(Reproduction {
        paper: "gangurde",
        title: "Table 1 and Figures 3.2, 3.4, 3.6 and 3.7 of Gangurde et al.; Table 1 of Hung and Khanh 2010",
        ok,
        seed: udp_run.seed,
        replications: 1,
        rows,
        figures,
        measured: Vec::new(),
        claims,
        parts: Vec::new(),
        findings,
        charts: charts(&udp_run, &tcp_run, &sctp_run),
        rings: Vec::new(),
        pictures: Vec::new(),
        ladders: Vec::new(),
    })
}

/// Rates of the links in Mbit/s, the paper's first.
const RATES: [f64; 4] = [0.2, 0.3, 0.4, 0.5];

/// The statements of sections 3.3.4 and 4 that the table does not show. Those about call set-up are judged with the calls
/// of Pang 2003, over the same two links.
fn claims() -> Result<Vec<Claim>, RunError> {
    Ok(vec![bandwidth()?, mixed()?])
}

/// "Depending upon the bandwidth, if we do more results, packet lost decrease."
fn bandwidth() -> Result<Claim, RunError> {
    let mut lost: [Vec<u64>; 3] = Default::default();
    for rate in RATES {
        for (lost, name) in lost.iter_mut().zip(["gangurde-udp", "gangurde-tcp", "gangurde-sctp"]) {
            let text = builtin::find(name).map_or("", |b| b.text);
            let text = text.replace("rate = \"0.2 Mbit/s\"", &format!("rate = \"{rate} Mbit/s\""));
            let (_, flow) = outcome_of(name, &text)?;
            lost.push(flow.sent - flow.delivered);
        }
    }
    let falls = |lost: &Vec<u64>| lost.iter().skip(1).all(|after| *after < lost[0]);
    let list = |lost: &[u64]| lost.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let [udp, tcp, sctp] = &lost;
    Ok(Claim {
        source: "Gangurde et al., section 3.3.4",
        says: "with more bandwidth fewer packets are lost".into(),
        ours: format!(
            "\"lost\" at {} Mbit/s: {} over UDP, {} over TCP, {} over SCTP",
            RATES.map(|r| r.to_string()).join(", "),
            list(udp),
            list(tcp),
            list(sctp)
        ),
        holds: falls(udp) && falls(sctp),
        expected: true,
        sure: true,
        why: "At 0.5 Mbit/s the links carry the 448 kbit/s that are offered. What is counted as lost over TCP is its window \
              in flight, and stays one where it fills the link."
            .into(),
    })
}

/// "More or less satisfactory performance is observed in competing traffic with UDP and SCTP, although UDP has an edge."
fn mixed() -> Result<Claim, RunError> {
    let text = builtin::find("gangurde-udp").map_or("", |b| b.text);
    let sctp = "\n[[flow]]\nname = \"sctp\"\nfrom = \"n1\"\nto = \"n3\"\ntransport = \"sctp-ns2\"\n\
                traffic = \"cbr\"\nrate = \"448 kbit/s\"\npacket = \"1000 B\"\nstop = \"28 s\"\n";
    let (outcome, first) = outcome_of("gangurde-udp", &format!("{text}{sctp}"))?;
    let goodput = |name: &str| {
        let flows = outcome.flows.iter().chain([&first]);
        flows.filter(|flow| flow.flow == name).map(|flow| flow.goodput / 1e3).sum::<f64>()
    };
    let (udp, sctp, share) = (goodput("udp"), goodput("sctp"), 200.0 / 2.0);
    Ok(Claim {
        source: "Gangurde et al., section 4",
        says: "UDP and SCTP that compete are both satisfactory, UDP with an edge: SCTP has half of its share or more".into(),
        ours: format!(
            "of 200 kbit/s between them UDP delivers {udp:.0} kbit/s of data and SCTP {sctp:.0}; an equal share were {share:.0}"
        ),
        holds: sctp >= share / 2.0,
        expected: false,
        sure: udp > 0.0,
        why: "UDP sends 448 kbit/s whatever is dropped, and keeps the queue full; SCTP takes each drop for congestion and \
              leaves the link to it."
            .into(),
    })
}

/// Returns the delay of the n-th packet that arrived.
fn nth_delay(outcome: &Outcome, number: usize) -> f64 {
    let delays = outcome.series.iter().find(|s| s.what == ProbeKind::Delay);
    delays.and_then(|s| s.points.get(number - 1)).map_or(f64::NAN, |point| point[1])
}

/// Returns the shortest delay of the packets that arrived after the n-th.
fn least_after(outcome: &Outcome, number: usize) -> f64 {
    let delays = outcome.series.iter().find(|s| s.what == ProbeKind::Delay);
    let after = delays.and_then(|s| s.points.get(number..)).unwrap_or_default();
    after.iter().map(|point| point[1]).fold(f64::NAN, f64::min)
}

/// Range of cuts at which all rows are reproduced, and one cut beyond either end at which they are
/// not.
const CUTS: [&str; 2] = ["28.985 s", "28.998 s"];
const CUTS_OUTSIDE: [&str; 2] = ["28.97 s", "29.01 s"];

/// Runs the cuts, and returns a sentence with the range in which the figures do not change.
fn cuts_that_agree() -> Result<String, RunError> {
    let counts = |cut: &str| -> Result<Vec<[u64; 2]>, RunError> {
        let one = |name: &&str| -> Result<[u64; 2], RunError> {
            let text = builtin::find(name).map_or("", |b| b.text);
            let (_, flow) = outcome_of(
                name,
                &text.replace("\nstop = \"28.99 s\"", &format!("\nstop = \"{cut}\"")),
            )?;
            Ok([flow.sent, flow.delivered])
        };
        ["gangurde-udp", "gangurde-tcp", "gangurde-sctp"].iter().map(one).collect()
    };
    let here = counts("28.99 s")?;
    let agree = |cuts: [&str; 2]| -> Result<usize, RunError> {
        let same = cuts.map(|cut| counts(cut).map(|counts| usize::from(counts == here)));
        let [first, second] = same;
        Ok(first? + second?)
    };
    let (inside, outside) = (agree(CUTS)?, agree(CUTS_OUTSIDE)?);
    let [first, last] = CUTS;
    let [before, after] = CUTS_OUTSIDE;
    Ok(match (inside, outside) {
        (2, 0) => format!(
            "a cut at {first} or {last} gives the same counts of all three as that at 28.99 s, one at {before} or \
             {after} does not"
        ),
        _ => format!(
            "of the cuts at {first} and {last} {inside} give the same counts of all three as that at 28.99 s, of \
             those at {before} and {after} {outside}"
        ),
    })
}

fn findings(
    udp: &FlowMeasures,
    tcp: &FlowMeasures,
    sctp: &FlowMeasures,
    cuts: &str,
) -> Vec<String> {
    let windows = tcp.sent - tcp.delivered;
    let longest = |flow: &FlowMeasures| flow.value("delay_max").unwrap_or(f64::NAN);
    vec![
        format!(
            "Of their set-up the papers print the packet size and 0.2 Mbit/s. The other parameters are ns-2's \
             defaults (448 kbit/s of traffic, queues of 50, TCP's window of 20, SCTP's of 65,536 bytes) and three \
             numbers found by search, which are equal for all three protocols: two hops of 10 ms, 28 s of traffic, \
             and a cut a second later (ringway lab sweep gangurde-udp-search), reduced by 0.01 s so that all three \
             rows are reproduced: {cuts}. In addition there are two choices for the first row of SCTP and one for \
             that of Hung and Khanh; notes at the tables describe them."
        ),
        format!(
            "\"Lost\" in both papers is what was sent less what had arrived when the simulation was cut. \
             Of UDP's {} packets {} were dropped by the full queue and {} were in flight; of TCP's {windows} {} were \
             dropped and {} were in flight, of a window of 20.",
            udp.sent - udp.delivered,
            udp.dropped,
            udp.in_flight,
            tcp.dropped,
            tcp.in_flight,
        ),
        format!(
            "Of the {} packets that the papers report as lost over SCTP, {} were in flight at the cut, of a \
             receiver's window of 65,536 bytes. {} were dropped by the queue; SCTP retransmitted {} packets.",
            sctp.sent - sctp.delivered,
            sctp.in_flight,
            sctp.dropped,
            sctp.retransmits,
        ),
        format!(
            "The papers conclude that TCP loses the fewest packets. Here {} of the {windows} packets reported as \
             lost over TCP were dropped, and {} of the {} over SCTP, which retransmitted {}; the others were in \
             flight at the cut. UDP was offered 448 kbit/s over links of 200 kbit/s; a transport without congestion \
             control loses the difference.",
            tcp.dropped,
            sctp.dropped,
            sctp.sent - sctp.delivered,
            sctp.retransmits,
        ),
        format!(
            "The delays compare queues, not protocols: at most {:.2} s over UDP, which fills the queue of 50, {:.2} \
             s over TCP, whose window is 20 packets, and {:.1} s over SCTP, with {} packets in flight at the cut. \
             Figure 3.7, which shows all three, prints no numbers; here UDP's longest delay is {:.2} times TCP's.",
            longest(udp),
            longest(tcp),
            longest(sctp),
            sctp.in_flight,
            longest(udp) / longest(tcp),
        ),
    ]
}

fn delays(outcome: &Outcome, name: &str) -> SeriesSheet {
    let found = outcome.series.iter().find(|s| s.what == ProbeKind::Delay);
    SeriesSheet::new(name, Style::Scatter, found.map_or(&[], |s| &s.points))
}

fn charts(udp: &Outcome, tcp: &Outcome, sctp: &Outcome) -> Vec<ChartSheet> {
    let chart = |name: &str, title: &str, series: Vec<SeriesSheet>| ChartSheet {
        shaded: Vec::new(),
        name: name.into(),
        title: title.into(),
        caption: "Delay of each packet from the sender to the receiver.".into(),
        seed: udp.seed,
        rests_on: Some((1, "run without random elements".into())),
        x: AxisSheet::new("packet received", "number"),
        y: AxisSheet::new("delay", "s"),
        series,
    };
    vec![
        chart("figure-3-2-tcp-delays", "Figure 3.2, TCP delays", vec![delays(tcp, "TCP")]),
        chart("figure-3-4-udp-delays", "Figure 3.4, UDP delays", vec![delays(udp, "UDP")]),
        chart("figure-3-6-sctp-delays", "Figure 3.6, SCTP delays", vec![delays(sctp, "SCTP")]),
        chart(
            "figure-3-7-comparison",
            "Figure 3.7, comparison of TCP, UDP and SCTP",
            vec![delays(tcp, "TCP"), delays(udp, "UDP"), delays(sctp, "SCTP")],
        ),
    ]
}
