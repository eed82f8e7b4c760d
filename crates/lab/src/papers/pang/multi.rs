//! Table 5.3: calls per minute of eight phones, against loss.

use super::{
    Side, Study, StudyResult, all_above, by_side, difference, ethernet, or_no_estimate, rack, row,
    sctp, side, transports, values_of,
};
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::papers::{Claim, MeasuredFigure, MeasuredRow, MeasuredTable};
use crate::run::RunError;
use crate::sip::{Calls, TestBed};
use ringway_figures::statistics::{
    Estimate, mean, paired, percentile_of_replications, ratio_of_replications,
};
use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, Change, LinkConfig, Loss, Span};
use ringway_sansio::{Duration, Time};
use ringway_sim::flows::TransportConfig;

/// Loss in per cent, and the printed number of calls over UDP and SCTP.
const LOSSES: [(f64, f64, f64); 4] =
    [(5.0, 70.0, 60.0), (10.0, 40.0, 43.0), (20.0, 32.0, 37.0), (30.0, 20.0, 26.0)];
/// Number of phones on each of two machines.
pub(super) const PHONES: u8 = 8;
const NAMES: [&str; 5] = ["UDP", "TCP", "SCTP", "SCTP, RACK", "SCTP, short timers"];
/// SCTP with one timer changed at a time, to show which of them costs calls. The first two make
/// phones that wait for each other slower.
const TIMERS: [&str; 3] = ["RTO.Min 0.5 s", "RTO.Max 1 s", "0.5 s, never doubled"];
/// Time at which losses begin, and duration of the count. The paper does not state its duration.
const FROM: Time = Time::from_secs(30);
const COUNTED: Duration = Duration::from_secs(60);
/// Time limit of an INVITE: timer B of RFC 3261, 64*T1.
const LIMIT: Duration = Duration::from_secs(32);
/// A phone rings for the paper's call set-up time, and a call lasts for the paper's termination
/// time. Without loss the eight phones then make the number of calls that the paper's tables imply.
const RINGING: Duration = Duration::from_millis(4600);
const TALK: Duration = Duration::from_millis(1700);

/// A link to the router that begins to lose packets at [`FROM`], in both directions.
fn line(loss: f64) -> LinkConfig {
    let chance = Chance::percent(loss).unwrap_or_default();
    let loss = Loss::Random(RandomLoss { chance, ..RandomLoss::default() });
    let at = Span(FROM.as_nanos());
    let change = Change { at, loss: Some(loss), ..Change::default() };
    LinkConfig { schedule: vec![change], ..ethernet(Span::from_millis(1)) }
}

/// Direction of the lost packets between phones and proxy. NIST Net is configured with a loss for
/// each source and destination (Table 5.1 of the paper), and the paper does not state for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Both directions.
    Both,
    /// From the phones' machines to the proxy.
    ToProxy,
}

/// Counting periods of automatic phones: the first one is in the table, both are in the reason,
/// because the order of the transports depends on it.
const AUTOMATIC: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

/// Automatic phones: they answer at once, hang up at once and call again.
fn automatic_bed(transport_config: TransportConfig, loss: f64, direction: Direction) -> TestBed {
    let until = FROM + AUTOMATIC[1];
    let end = until + LIMIT * 2;
    TestBed {
        answer: Duration::ZERO,
        talk: Duration::ZERO,
        until,
        end,
        ..bed(transport_config, loss, direction)
    }
}

fn bed(transport_config: TransportConfig, loss: f64, direction: Direction) -> TestBed {
    let clean = ethernet(Span::from_millis(1));
    let back = if direction == Direction::Both { line(loss) } else { clean.clone() };
    let phones = [line(loss), back];
    TestBed {
        transport: transport_config,
        links: [phones.clone(), phones, [clean.clone(), clean]],
        pairs: PHONES,
        callers_register: true,
        register_again: None,
        from: FROM,
        until: FROM + COUNTED,
        end: FROM + COUNTED + LIMIT * 2,
        talk: TALK,
        pause: Duration::from_millis(100),
        answer: RINGING,
    }
}

/// Returns the set-up times in seconds, without the ringing.
fn setups(calls: &Calls) -> Vec<f64> {
    let took = |call: &crate::sip::Call| {
        let took = call.answered?.since(call.invited);
        (took <= LIMIT).then(|| (took.saturating_sub(RINGING)).as_secs_f64())
    };
    calls.calls.iter().filter_map(took).collect()
}

/// Returns the calls that the phones complete in a minute over a transport, once for each replication.
pub(super) fn calls_in_a_minute(
    study: &Study,
    transport_config: TransportConfig,
    loss: f64,
    direction: Direction,
) -> Result<Vec<f64>, RunError> {
    let runs = super::beds(study, &bed(transport_config, loss, direction))?;
    Ok(values_of(&runs, |calls| Some(completed(calls, COUNTED))))
}

/// Returns the number of INVITE transactions that got a 200 within a period.
fn completed(calls: &Calls, within: Duration) -> f64 {
    let end = FROM + within;
    calls.calls.iter().filter(|c| c.answered.is_some_and(|at| at <= end)).count() as f64
}

struct Cell {
    transport: &'static str,
    loss: f64,
    direction: Direction,
    runs: Vec<Calls>,
}

impl Cell {
    fn completed(&self) -> Vec<f64> {
        values_of(&self.runs, |calls| Some(completed(calls, COUNTED)))
    }

    /// Estimates the share of the INVITEs that got a 200 within timer B.
    fn ratio(&self) -> Estimate {
        let counts = |calls: &Calls| (setups(calls).len() as u64, calls.calls.len() as u64);
        or_no_estimate(ratio_of_replications(&self.runs.iter().map(counts).collect::<Vec<_>>()))
    }

    fn percentile(&self, p: f64) -> Estimate {
        let times = self.runs.iter().map(setups).filter(|times| !times.is_empty());
        let times: Vec<Vec<f64>> = times.collect();
        or_no_estimate(percentile_of_replications(&times, p))
    }
}

/// The settings of [`TIMERS`].
fn timers() -> [(&'static str, TransportConfig); 3] {
    let half = Duration::from_millis(500);
    let plain = ringway_sctp::Settings::default();
    let [min, max, fixed] = TIMERS;
    let one = |rto_initial, rto_min, rto_max| {
        sctp(ringway_sctp::Settings { rto_initial, rto_min, rto_max, ..plain })
    };
    [
        (min, one(plain.rto_initial, half, plain.rto_max)),
        (max, one(plain.rto_initial, plain.rto_min, Duration::from_secs(1))),
        (fixed, one(half, half, half)),
    ]
}

pub(super) fn run(study: &Study) -> Result<StudyResult, RunError> {
    let ss7 = ("SCTP, short timers", sctp(ringway_sctp::Settings::ss7()));
    let mut cells = Vec::new();
    for direction in [Direction::Both, Direction::ToProxy] {
        for (transport, transport_config) in transports().into_iter().chain([rack(), ss7]) {
            for (loss, ..) in LOSSES {
                let runs = super::beds(study, &bed(transport_config, loss, direction))?;
                cells.push(Cell { transport, loss, direction, runs });
            }
        }
    }
    for (transport, transport_config) in timers() {
        for (loss, ..) in LOSSES {
            let runs = super::beds(study, &bed(transport_config, loss, Direction::Both))?;
            cells.push(Cell { transport, loss, direction: Direction::Both, runs });
        }
    }
    let find = |transport: &str, loss: f64, direction: Direction| {
        cells.iter().find(|c| (c.transport, c.loss, c.direction) == (transport, loss, direction))
    };
    let n = study.replications as usize;
    let table = |source, what: String, rows| MeasuredTable { source, what, replications: n, rows };
    let mut tables = Vec::new();
    for direction in [Direction::Both, Direction::ToProxy] {
        let [counts, ratios, times] = rows(&|transport, loss| find(transport, loss, direction));
        let of = match direction {
            Direction::Both => "between the phones and the proxy, in each direction",
            Direction::ToProxy => "from the phones to the proxy alone",
        };
        tables.push(table(
            "Table 5.3",
            format!(
                "INVITE transactions answered 200 in {} s by {PHONES} phones that repeatedly call {PHONES} others, \
                 against the loss of packets {of}. A call takes {} s of people's time: the paper's set-up and \
                 termination over UDP.",
                COUNTED.as_secs(),
                (RINGING + TALK).as_secs_f64()
            ),
            counts,
        ));
        tables.push(table(
            "Table 5.3, completion",
            format!(
                "share of the INVITEs sent in that time that were answered 200 within {} s, timer B of \
                 RFC 3261; packets lost {of}.",
                LIMIT.as_secs()
            ),
            ratios,
        ));
        tables.push(table(
            "Table 5.3, set-up",
            format!("time from INVITE to 200 less the ringing; packets lost {of}."),
            times,
        ));
    }
    let counts_of = |(loss, ..): &(f64, f64, f64)| {
        let names = ["UDP", "SCTP"].into_iter().chain(TIMERS);
        let cells = names.filter_map(|name| find(name, *loss, Direction::Both));
        let count = |c: &Cell| {
            MeasuredFigure::new(c.transport, "calls", or_no_estimate(mean(&c.completed())))
        };
        row(format!("{loss} %"), cells.map(count).collect())
    };
    tables.push(table(
        "Table 5.3, timers of SCTP",
        "the same count with losses in each direction, and one timer of SCTP changed at a time: the minimum timeout \
         equal to SIP's T1, the maximum timeout so short that it is never doubled, and both."
            .into(),
        LOSSES.iter().map(counts_of).collect(),
    ));
    let (diallers, automatic_calls) = automatic_calls(study)?;
    let mut claims = claims(&find);
    claims.push(fast_retransmission(&automatic_calls));
    let mut charts = vec![
        counts(study, "", "in each direction", &tables[0]),
        counts(study, "-to-proxy", "from the phones alone", &tables[3]),
    ];
    charts.extend(LOSSES.map(|(loss, ..)| ecdf(study, &cells, loss)));
    tables.push(diallers);
    let findings = vec![
        "The numbers of Table 5.3 cannot be reproduced exactly: the paper states neither the counting time nor how \
         its people dialled, nor the direction in which its router lost packets. Both directions are run, and all \
         transports have the same minute. The order of the transports is compared."
            .into(),
    ];
    Ok(StudyResult { tables, claims, charts, findings })
}

/// Completed calls of automatic phones, by transport, loss and direction, for each period of
/// [`AUTOMATIC`].
type AutomaticCalls = Vec<(&'static str, f64, Direction, [Vec<f64>; 2])>;

/// The paper attributes SCTP's larger number of calls to fast retransmission. Phones with people
/// send too little for it; automatic phones send enough.
fn automatic_calls(study: &Study) -> Result<(MeasuredTable, AutomaticCalls), RunError> {
    let mut all = AutomaticCalls::new();
    let mut rows = Vec::new();
    for (direction, way) in
        [(Direction::Both, "in each direction"), (Direction::ToProxy, "to the proxy")]
    {
        for (loss, ..) in LOSSES {
            let mut figures = Vec::new();
            for (name, transport_config) in transports().into_iter().chain([rack()]) {
                let runs = super::beds(study, &automatic_bed(transport_config, loss, direction))?;
                let count = |within| values_of(&runs, |calls| Some(completed(calls, within)));
                let counts = AUTOMATIC.map(count);
                figures.push(MeasuredFigure::new(name, "calls", or_no_estimate(mean(&counts[0]))));
                all.push((name, loss, direction, counts));
            }
            rows.push(row(format!("{loss} % {way}"), figures));
        }
    }
    let table = MeasuredTable {
        source: "Table 5.3, without people",
        what: format!(
            "INVITE transactions answered 200 in {} s if the same phones answer and hang up at once and call again \
             0.1 s later.",
            AUTOMATIC[0].as_secs()
        ),
        replications: study.replications as usize,
        rows,
    };
    Ok((table, all))
}

/// Returns the number of calls over a transport less those over UDP, for the period of that index
/// in [`AUTOMATIC`].
fn automatic_difference(
    all: &AutomaticCalls,
    transport: &str,
    loss: f64,
    direction: Direction,
    counted: usize,
) -> Estimate {
    let of = |transport: &str| {
        let found = all.iter().find(|d| (d.0, d.1, d.2) == (transport, loss, direction));
        found.map_or(&[][..], |d| &d.3[counted])
    };
    or_no_estimate(paired(of(transport), of("UDP")))
}

/// Lists the losses at which more, as many or fewer calls are completed than over UDP.
fn ahead_at(differences: &[(f64, Estimate)]) -> String {
    by_side(differences, ["more", "no significant difference", "fewer"])
}

fn fast_retransmission(all: &AutomaticCalls) -> Claim {
    let more = |transport, direction, counted| -> Vec<(f64, Estimate)> {
        let one =
            |loss: f64| (loss, automatic_difference(all, transport, loss, direction, counted));
        LOSSES.iter().map(|l| one(l.0)).collect()
    };
    let list = |differences: &[(f64, Estimate)]| {
        let one = |(loss, d): &(f64, Estimate)| format!("{loss} %: {}", difference(d, 0));
        differences.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let [both, one_way, rack] =
        [("SCTP", Direction::Both), ("SCTP", Direction::ToProxy), ("SCTP, RACK", Direction::Both)]
            .map(|(transport, direction)| more(transport, direction, 0));
    let long = more("SCTP", Direction::Both, 1);
    let high: Vec<Estimate> = both.iter().filter(|d| d.0 >= 10.0).map(|d| d.1).collect();
    let (holds, sure) = all_above(&high);
    let [short_count, long_count] = AUTOMATIC.map(|d| d.as_secs());
    Claim {
        source: "Section 5.4",
        says: "it is fast retransmission that brings SCTP ahead of UDP at 10 % loss and above"
            .into(),
        ours: format!(
            "calls over SCTP less those over UDP with automatic phones, counted for {short_count} s: {}; \
             with losses one way {}; with RACK {}; counted for {long_count} s: {}",
            list(&both),
            list(&one_way),
            list(&rack),
            list(&long)
        ),
        holds,
        expected: false,
        sure,
        why: format!(
            "Automatic phones send enough for three packets to follow a lost one. Counted for \
             {short_count} s, SCTP then completes {}; counted for {long_count} s, {}. Where \
             more is lost, retransmissions are lost as well, which only a timer detects, and SCTP's timer of at \
             least 1 s is the longer one. With RACK, which also detects lost retransmissions, SCTP completes {}.",
            ahead_at(&both),
            ahead_at(&long),
            ahead_at(&rack)
        ),
    }
}

/// Returns the rows of call counts, completion ratios and set-up times.
fn rows<'a>(find: &dyn Fn(&str, f64) -> Option<&'a Cell>) -> [Vec<MeasuredRow>; 3] {
    let [mut counts, mut ratios, mut times] = [const { Vec::new() }; 3];
    for (loss, udp, sctp) in LOSSES {
        let mut row_counts = Vec::new();
        let mut row_ratios = Vec::new();
        for cell in NAMES.iter().filter_map(|name| find(name, loss)) {
            let count = MeasuredFigure::new(
                cell.transport,
                "calls",
                or_no_estimate(mean(&cell.completed())),
            );
            row_counts.push(match cell.transport {
                "UDP" => count.with_paper_value(udp),
                "SCTP" => count.with_paper_value(sctp),
                _ => count,
            });
            row_ratios.push(MeasuredFigure::new(cell.transport, "share", cell.ratio()));
            let quantile = |name: &str, p| MeasuredFigure::new(name, "s", cell.percentile(p));
            times.push(row(
                format!("{loss} %, {}", cell.transport),
                vec![quantile("p50", 0.5), quantile("p90", 0.9), quantile("p99", 0.99)],
            ));
        }
        counts.push(row(format!("{loss} %"), row_counts));
        ratios.push(row(format!("{loss} %"), row_ratios));
    }
    [counts, ratios, times]
}

/// Returns the claims about the transport that completes more calls at a loss.
fn claims<'a>(find: &impl Fn(&str, f64, Direction) -> Option<&'a Cell>) -> Vec<Claim> {
    let mut claims = Vec::new();
    // The number of calls less that over UDP.
    let more = |transport: &str, loss, direction| {
        let of =
            |transport: &str| find(transport, loss, direction).map_or(Vec::new(), Cell::completed);
        or_no_estimate(paired(&of(transport), &of("UDP")))
    };
    for (loss, udp, sctp) in LOSSES {
        let both = more("SCTP", loss, Direction::Both);
        let rack = more("SCTP, RACK", loss, Direction::Both);
        let short = more("SCTP, short timers", loss, Direction::Both);
        let one_way = more("SCTP", loss, Direction::ToProxy);
        let shown = |e: &Estimate| difference(e, 1);
        let [min, max, fixed] = TIMERS.map(|name| more(name, loss, Direction::Both));
        let [min, max] = [min, max].map(|e| shown(&e));
        let sctp_ahead = sctp > udp;
        claims.push(Claim {
            source: "Table 5.3",
            says: format!(
                "at {loss} % loss more calls are completed over {} ({sctp} over SCTP, {udp} over UDP)",
                if sctp_ahead { "SCTP" } else { "UDP" }
            ),
            ours: format!(
                "calls over SCTP less those over UDP: {}; with RACK {}; with short timers {}; with losses \
                 one way {}; with RTO.Min of 0.5 s {min}, RTO.Max of 1 s {max}, both at 0.5 s {}",
                shown(&both),
                shown(&rack),
                shown(&short),
                shown(&one_way),
                shown(&fixed)
            ),
            holds: (both.value > 0.0) == sctp_ahead,
            expected: !sctp_ahead,
            sure: side(&both) != Side::Level,
            why: if sctp_ahead { timers_explain(&both, &fixed, &rack, &short) } else { String::new() },
        });
    }
    claims
}

/// Explains why SCTP completes fewer calls than UDP, from the differences to UDP: of unchanged
/// SCTP, with timers as short as SIP's, with RACK, and with the short timers of SS7.
fn timers_explain(plain: &Estimate, fixed: &Estimate, rack: &Estimate, short: &Estimate) -> String {
    let how = |d: &Estimate| match side(d) {
        Side::Above => "completes more calls than UDP",
        Side::Level => "cannot be distinguished from UDP",
        Side::Below => "still completes fewer calls than UDP",
    };
    let explained = match side(fixed) {
        Side::Below => format!(
            "the timers account for {:.0} % of the difference, and these runs do not explain the remainder",
            (1.0 - fixed.value / plain.value) * 100.0
        ),
        _ => "the timers account for the whole difference".into(),
    };
    format!(
        "SIP over UDP retransmits after T1 = 0.5 s, and SCTP after at least RTO.Min = 1 s; its timer doubles with \
         each loss until a round trip is measured again. Phones that wait for people send too little for a fast \
         retransmission, which needs three later packets. With RTO.Min equal to T1 and never doubled SCTP {}: \
         {explained}. With a tail loss probe (RACK) it {}; with the \
         short timers of the ss7 profile it {}.",
        how(fixed),
        how(rack),
        how(short)
    )
}

fn counts(study: &Study, name: &str, direction: &str, table: &MeasuredTable) -> ChartSheet {
    let series = NAMES.map(|transport| {
        let mut series =
            SeriesSheet { name: transport.into(), style: Style::Ribbon, ..Default::default() };
        for (row, (loss, ..)) in table.rows.iter().zip(LOSSES) {
            if let Some(f) = row.figures.iter().find(|f| f.column == transport) {
                series.points.push([loss, f.ours]);
                series.bounds.push((f.low.zip(f.high).map(|(low, high)| [low, high]), f.n));
            }
        }
        series
    });
    let printed = [("UDP, the paper", 1), ("SCTP, the paper", 2)].map(|(name, column)| {
        let points = LOSSES.map(|l| [l.0, if column == 1 { l.1 } else { l.2 }]);
        SeriesSheet::new(name, Style::Scatter, &points)
    });
    ChartSheet {
        shaded: Vec::new(),
        name: format!("table-5-3-calls{name}"),
        title: format!("Table 5.3, calls completed in a minute; losses {direction}"),
        caption: "INVITE transactions answered 200 by eight phones, against loss.".into(),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("loss", "%"),
        y: AxisSheet::new("calls completed", "number"),
        series: series.into_iter().chain(printed).collect(),
    }
}

/// Returns the distribution of set-up times at one loss.
fn ecdf(study: &Study, cells: &[Cell], loss: f64) -> ChartSheet {
    let is_shown =
        |c: &Cell| c.loss == loss && c.direction == Direction::Both && NAMES.contains(&c.transport);
    let of = |cell: &Cell| {
        let times = cell.runs.iter().flat_map(setups);
        let points: Vec<[f64; 2]> = times.enumerate().map(|(i, t)| [i as f64, t]).collect();
        SeriesSheet::new(cell.transport, Style::Ecdf, &points)
    };
    ChartSheet {
        shaded: Vec::new(),
        name: format!("table-5-3-setup-ecdf-{loss}"),
        title: format!("Table 5.3, set-up time at {loss} % loss in each direction"),
        caption:
            "Share of answered calls whose time from INVITE to 200, without the ringing, was at most this."
                .into(),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("set-up time", "s").log(),
        y: AxisSheet::default(),
        series: cells.iter().filter(|c| is_shown(c)).map(of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_figures::statistics::{Interval, Kind};

    fn estimate(low: f64, high: f64) -> Estimate {
        let interval = Interval { low, high, level: 0.95, kind: Kind::PairedT };
        Estimate { value: (low + high) / 2.0, n: 30, interval: Some(interval), equal: false }
    }

    /// The reason of a row names for each change what its own figures show, and which part of the
    /// difference is due to the timers.
    #[test]
    fn the_reason_follows_the_figures_of_its_row() {
        let plain = estimate(-40.0, -36.0);
        let behind = estimate(-14.0, -8.0);
        let [level, ahead] = [estimate(-1.0, 1.0), estimate(1.0, 9.0)];
        let reason = timers_explain(&plain, &behind, &behind, &behind);
        assert!(reason.contains("71 % of the difference"), "{reason}");
        assert_eq!(reason.matches("still completes fewer calls than UDP").count(), 3, "{reason}");
        assert!(!reason.contains("more calls than UDP"), "{reason}");
        let reason = timers_explain(&plain, &level, &ahead, &behind);
        assert!(
            reason.contains(
                "never doubled SCTP cannot be distinguished from UDP: the timers account for the whole"
            ),
            "{reason}"
        );
        assert!(reason.contains("(RACK) it completes more calls than UDP;"), "{reason}");
        assert!(reason.contains("profile it still completes fewer calls than UDP."), "{reason}");
        let one = Estimate { value: -3.0, n: 1, interval: None, equal: false };
        assert_eq!(
            ahead_at(&[(5.0, ahead), (10.0, one), (20.0, behind), (30.0, behind)]),
            "more at 5 %; no significant difference at 10 %; fewer at 20 %, 30 %"
        );
    }
}
