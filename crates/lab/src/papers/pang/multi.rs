//! Table 5.3: how many calls a minute eight phones get through, against loss.

use super::{
    Part, Side, Study, all_above, by_side, difference, ethernet, known, of_each, rack, row, sctp,
    side, transports,
};
use crate::output::{AxisSheet, ChartSheet, SeriesSheet, Style};
use crate::papers::{Claim, Measured, MeasuredRow, MeasuredTable};
use crate::run::RunError;
use crate::sip::{Bed, Calls};
use ringway_figures::statistics::{
    Estimate, mean, paired, percentile_of_replications, ratio_of_replications,
};
use ringway_link::loss::RandomLoss;
use ringway_link::{Chance, Change, LinkConfig, Loss, Span};
use ringway_sansio::{Duration, Time};
use ringway_sim::flows::TransportConfig;

/// Loss in per cent, and calls printed over UDP and SCTP.
const LOSSES: [(f64, f64, f64); 4] =
    [(5.0, 70.0, 60.0), (10.0, 40.0, 43.0), (20.0, 32.0, 37.0), (30.0, 20.0, 26.0)];
/// Phones on each of two machines.
const PHONES: u8 = 8;
const NAMES: [&str; 5] = ["UDP", "TCP", "SCTP", "SCTP, RACK", "SCTP, short timers"];
/// SCTP with one thing changed at a time, to see what it loses by; both stand in the way of phones
/// that wait for each other.
const TIMERS: [&str; 3] = ["RTO.Min 0.5 s", "RTO.Max 1 s", "0.5 s, never doubled"];
/// When losses begin, and how long calls are counted. The paper does not say how long it counted.
const FROM: Time = Time::from_secs(30);
const COUNTED: Duration = Duration::from_secs(60);
/// How long an INVITE may wait for its answer: timer B of RFC 3261, the 64*T1 of every transaction.
const LIMIT: Duration = Duration::from_secs(32);
/// A phone rings as long as the paper's call set-up took, and a call ends after its termination's
/// time, so that without loss the eight phones make the calls that its tables let expect.
const RINGING: Duration = Duration::from_millis(4600);
const TALK: Duration = Duration::from_millis(1700);

/// A link to the router that begins to lose at [`FROM`], in both directions.
fn line(loss: f64) -> LinkConfig {
    let chance = Chance::percent(loss).unwrap_or_default();
    let loss = Loss::Random(RandomLoss { chance, ..RandomLoss::default() });
    let at = Span(FROM.as_nanos());
    let change = Change { at, loss: Some(loss), ..Change::default() };
    LinkConfig { schedule: vec![change], ..ethernet(Span::from_millis(1)) }
}

/// Which packets between phones and proxy are lost. NIST Net is told a loss for each source and
/// destination (Table 5.1 of the paper), and it is not said for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// Those of both directions.
    Both,
    /// Those from the phones' machines to the proxy.
    ToProxy,
}

/// How long calls of phones without people are counted: the first is in the table, the second
/// besides in the reason, for who is ahead depends on it.
const DIALLED: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(20)];

/// Phones without people: they answer at once, hang up at once and call again.
fn dialling(carried: TransportConfig, loss: f64, lost: Lost) -> Bed {
    let until = FROM + DIALLED[1];
    let end = until + LIMIT * 2;
    Bed { answer: Duration::ZERO, talk: Duration::ZERO, until, end, ..bed(carried, loss, lost) }
}

fn bed(carried: TransportConfig, loss: f64, lost: Lost) -> Bed {
    let clean = ethernet(Span::from_millis(1));
    let back = if lost == Lost::Both { line(loss) } else { clean.clone() };
    let phones = [line(loss), back];
    Bed {
        carried,
        links: [phones.clone(), phones, [clean.clone(), clean]],
        pairs: PHONES,
        callers_register: true,
        from: FROM,
        until: FROM + COUNTED,
        end: FROM + COUNTED + LIMIT * 2,
        talk: TALK,
        pause: Duration::from_millis(100),
        answer: RINGING,
    }
}

/// Set-up times in seconds, without the ringing.
fn setups(calls: &Calls) -> Vec<f64> {
    let took = |call: &crate::sip::Call| {
        let took = call.answered?.since(call.invited);
        (took <= LIMIT).then(|| (took.saturating_sub(RINGING)).as_secs_f64())
    };
    calls.calls.iter().filter_map(took).collect()
}

/// INVITE transactions answered 200 within so long.
fn completed(calls: &Calls, within: Duration) -> f64 {
    let end = FROM + within;
    calls.calls.iter().filter(|c| c.answered.is_some_and(|at| at <= end)).count() as f64
}

struct Cell {
    transport: &'static str,
    loss: f64,
    lost: Lost,
    runs: Vec<Calls>,
}

impl Cell {
    fn completed(&self) -> Vec<f64> {
        of_each(&self.runs, |calls| Some(completed(calls, COUNTED)))
    }

    /// The share of the INVITEs that were answered 200 within timer B.
    fn ratio(&self) -> Estimate {
        let counts = |calls: &Calls| (setups(calls).len() as u64, calls.calls.len() as u64);
        known(ratio_of_replications(&self.runs.iter().map(counts).collect::<Vec<_>>()))
    }

    fn percentile(&self, p: f64) -> Estimate {
        let times = self.runs.iter().map(setups).filter(|times| !times.is_empty());
        let times: Vec<Vec<f64>> = times.collect();
        known(percentile_of_replications(&times, p))
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

pub(super) fn run(study: &Study) -> Result<Part, RunError> {
    let ss7 = ("SCTP, short timers", sctp(ringway_sctp::Settings::ss7()));
    let mut cells = Vec::new();
    for lost in [Lost::Both, Lost::ToProxy] {
        for (transport, carried) in transports().into_iter().chain([rack(), ss7]) {
            for (loss, ..) in LOSSES {
                let runs = study.beds(&bed(carried, loss, lost))?;
                cells.push(Cell { transport, loss, lost, runs });
            }
        }
    }
    for (transport, carried) in timers() {
        for (loss, ..) in LOSSES {
            let runs = study.beds(&bed(carried, loss, Lost::Both))?;
            cells.push(Cell { transport, loss, lost: Lost::Both, runs });
        }
    }
    let find = |transport: &str, loss: f64, lost: Lost| {
        cells.iter().find(|c| (c.transport, c.loss, c.lost) == (transport, loss, lost))
    };
    let n = study.replications as usize;
    let table = |source, what: String, rows| MeasuredTable { source, what, replications: n, rows };
    let mut tables = Vec::new();
    for lost in [Lost::Both, Lost::ToProxy] {
        let [counts, ratios, times] = rows(&|transport, loss| find(transport, loss, lost));
        let of = match lost {
            Lost::Both => "between the phones and the proxy, in each direction",
            Lost::ToProxy => "from the phones to the proxy alone",
        };
        tables.push(table(
            "Table 5.3",
            format!(
                "INVITE transactions answered 200 in {} s by {PHONES} phones that call {PHONES} others again \
                 and again, against the loss of packets {of}. A call takes {} s of people: the paper's \
                 set-up and termination over UDP.",
                COUNTED.as_secs(),
                (RINGING + TALK).as_secs_f64()
            ),
            counts,
        ));
        tables.push(table(
            "Table 5.3, completion",
            format!(
                "share of the INVITEs begun in that time that were answered 200 within {} s, timer B of \
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
        let cells = names.filter_map(|name| find(name, *loss, Lost::Both));
        let count = |c: &Cell| Measured::new(c.transport, "calls", known(mean(&c.completed())));
        row(format!("{loss} %"), cells.map(count).collect())
    };
    tables.push(table(
        "Table 5.3, what SCTP loses by",
        "the same count with losses in each direction, and one timer of SCTP's changed at a time: the least \
         timeout as long as SIP's own T1, the largest one so short that it is never doubled, and both."
            .into(),
        LOSSES.iter().map(counts_of).collect(),
    ));
    let (diallers, dialled) = dialled(study)?;
    let mut claims = claims(&find);
    claims.push(fast_retransmission(&dialled));
    let mut charts = vec![
        counts(study, "", "in each direction", &tables[0]),
        counts(study, "-to-proxy", "from the phones alone", &tables[3]),
    ];
    charts.extend(LOSSES.map(|(loss, ..)| ecdf(study, &cells, loss)));
    tables.push(diallers);
    let findings = vec![
        "Table 5.3 cannot be had again to the number: the paper says neither how long it counted nor how \
         its people dialled, nor for which direction its router was told to lose packets. Both readings \
         are run, and the same minute is given to all transports. What is compared is which is ahead."
            .into(),
    ];
    Ok(Part { tables, claims, charts, findings })
}

/// Completed calls of phones without people, by transport, loss and direction, counted for each
/// time of [`DIALLED`].
type Dialled = Vec<(&'static str, f64, Lost, [Vec<f64>; 2])>;

/// The paper lays it to fast retransmission that SCTP completes more calls. Phones of people send
/// too little for it; these send enough.
fn dialled(study: &Study) -> Result<(MeasuredTable, Dialled), RunError> {
    let mut all = Dialled::new();
    let mut rows = Vec::new();
    for (lost, way) in [(Lost::Both, "in each direction"), (Lost::ToProxy, "to the proxy")] {
        for (loss, ..) in LOSSES {
            let mut figures = Vec::new();
            for (name, carried) in transports().into_iter().chain([rack()]) {
                let runs = study.beds(&dialling(carried, loss, lost))?;
                let count = |within| of_each(&runs, |calls| Some(completed(calls, within)));
                let counts = DIALLED.map(count);
                figures.push(Measured::new(name, "calls", known(mean(&counts[0]))));
                all.push((name, loss, lost, counts));
            }
            rows.push(row(format!("{loss} % {way}"), figures));
        }
    }
    let table = MeasuredTable {
        source: "Table 5.3, without people",
        what: format!(
            "INVITE transactions answered 200 in {} s where the same phones answer and hang up at once and call \
             again 0.1 s later.",
            DIALLED[0].as_secs()
        ),
        replications: study.replications as usize,
        rows,
    };
    Ok((table, all))
}

/// How many calls more than over UDP, counted for the time of that index of [`DIALLED`].
fn dialled_more(all: &Dialled, transport: &str, loss: f64, lost: Lost, counted: usize) -> Estimate {
    let of = |transport: &str| {
        let found = all.iter().find(|d| (d.0, d.1, d.2) == (transport, loss, lost));
        found.map_or(&[][..], |d| &d.3[counted])
    };
    known(paired(of(transport), of("UDP")))
}

/// The losses at which more, as many or fewer calls are completed than over UDP.
fn ahead_at(differences: &[(f64, Estimate)]) -> String {
    by_side(differences, ["more", "not told apart", "fewer"])
}

fn fast_retransmission(all: &Dialled) -> Claim {
    let more = |transport, lost, counted| -> Vec<(f64, Estimate)> {
        let one = |loss: f64| (loss, dialled_more(all, transport, loss, lost, counted));
        LOSSES.iter().map(|l| one(l.0)).collect()
    };
    let told = |differences: &[(f64, Estimate)]| {
        let one = |(loss, d): &(f64, Estimate)| format!("{loss} %: {}", difference(d, 0));
        differences.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let [both, one_way, rack] =
        [("SCTP", Lost::Both), ("SCTP", Lost::ToProxy), ("SCTP, RACK", Lost::Both)]
            .map(|(transport, lost)| more(transport, lost, 0));
    let long = more("SCTP", Lost::Both, 1);
    let high: Vec<Estimate> = both.iter().filter(|d| d.0 >= 10.0).map(|d| d.1).collect();
    let (holds, sure) = all_above(&high);
    let [short_count, long_count] = DIALLED.map(|d| d.as_secs());
    Claim {
        source: "Section 5.4",
        says: "it is fast retransmission that brings SCTP ahead of UDP at 10 % loss and above"
            .into(),
        ours: format!(
            "calls over SCTP less those over UDP where phones have no people, counted for {short_count} s: {}; \
             with losses one way {}; with RACK {}; counted for {long_count} s: {}",
            told(&both),
            told(&one_way),
            told(&rack),
            told(&long)
        ),
        holds,
        expected: false,
        sure,
        why: format!(
            "Phones that call without a rest send enough for three packets to follow a lost one. Counted for \
             {short_count} s, SCTP then completes {}; counted for {long_count} s, {}. Where \
             more is lost, what is sent again is lost as well, and that only a timer finds: SCTP's, of 1 s and more, \
             is the longer one. With RACK, which finds a lost retransmission too, SCTP completes {}.",
            ahead_at(&both),
            ahead_at(&long),
            ahead_at(&rack)
        ),
    }
}

/// The rows of counts, of completion ratios and of set-up times.
fn rows<'a>(find: &dyn Fn(&str, f64) -> Option<&'a Cell>) -> [Vec<MeasuredRow>; 3] {
    let [mut counts, mut ratios, mut times] = [const { Vec::new() }; 3];
    for (loss, udp, sctp) in LOSSES {
        let mut row_counts = Vec::new();
        let mut row_ratios = Vec::new();
        for cell in NAMES.iter().filter_map(|name| find(name, loss)) {
            let count = Measured::new(cell.transport, "calls", known(mean(&cell.completed())));
            row_counts.push(match cell.transport {
                "UDP" => count.beside(udp),
                "SCTP" => count.beside(sctp),
                _ => count,
            });
            row_ratios.push(Measured::new(cell.transport, "share", cell.ratio()));
            let quantile = |name: &str, p| Measured::new(name, "s", cell.percentile(p));
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

/// Who completes more calls at a loss.
fn claims<'a>(find: &impl Fn(&str, f64, Lost) -> Option<&'a Cell>) -> Vec<Claim> {
    let mut claims = Vec::new();
    // How many calls more than UDP.
    let more = |transport: &str, loss, lost| {
        let of = |transport: &str| find(transport, loss, lost).map_or(Vec::new(), Cell::completed);
        known(paired(&of(transport), &of("UDP")))
    };
    for (loss, udp, sctp) in LOSSES {
        let both = more("SCTP", loss, Lost::Both);
        let rack = more("SCTP, RACK", loss, Lost::Both);
        let short = more("SCTP, short timers", loss, Lost::Both);
        let one_way = more("SCTP", loss, Lost::ToProxy);
        let shown = |e: &Estimate| difference(e, 1);
        let [min, max, fixed] = TIMERS.map(|name| more(name, loss, Lost::Both));
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

/// Why SCTP completes fewer calls than UDP, as far as these differences to UDP show it: with SCTP
/// as it is, with timers as short as SIP's, with RACK, and with the short timers of SS7.
fn timers_explain(plain: &Estimate, fixed: &Estimate, rack: &Estimate, short: &Estimate) -> String {
    let how = |d: &Estimate| match side(d) {
        Side::Above => "completes more calls than UDP",
        Side::Level => "cannot be told from UDP",
        Side::Below => "still completes fewer calls than UDP",
    };
    let explained = match side(fixed) {
        Side::Below => format!(
            "the timers account for {:.0} % of the difference, and these runs do not show what the rest is",
            (1.0 - fixed.value / plain.value) * 100.0
        ),
        _ => "the timers account for the whole difference".into(),
    };
    format!(
        "What is lost is sent again after T1 = 0.5 s by SIP over UDP, and after RTO.Min = 1 s at least by \
         SCTP, whose timer doubles with each loss until a round trip is measured again; phones that wait \
         for people send too little for a fast retransmission, which needs three later packets. With RTO.Min \
         as long as T1 and never doubled SCTP {}: {explained}. With a tail loss probe (RACK) it {}; with the \
         short timers of the ss7 profile it {}.",
        how(fixed),
        how(rack),
        how(short)
    )
}

fn counts(study: &Study, name: &str, lost: &str, table: &MeasuredTable) -> ChartSheet {
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
        title: format!("Table 5.3, calls completed in a minute; losses {lost}"),
        caption: "INVITE transactions answered 200 by eight phones, against loss.".into(),
        seed: study.seed,
        rests_on: Some((study.replications as usize, "replications".into())),
        x: AxisSheet::new("loss", "%"),
        y: AxisSheet::new("calls completed", "number"),
        series: series.into_iter().chain(printed).collect(),
    }
}

/// The distribution of set-up times at a loss.
fn ecdf(study: &Study, cells: &[Cell], loss: f64) -> ChartSheet {
    let is_shown =
        |c: &Cell| c.loss == loss && c.lost == Lost::Both && NAMES.contains(&c.transport);
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
            "The share of answered calls that took no longer from INVITE to 200, less the ringing."
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

    /// The reason beside a row says of each remedy what its own figures say, and how much of the
    /// difference the timers are.
    #[test]
    fn the_reason_follows_the_figures_of_its_row() {
        let plain = estimate(-40.0, -36.0);
        let behind = estimate(-14.0, -8.0);
        let [level, ahead] = [estimate(-1.0, 1.0), estimate(1.0, 9.0)];
        let said = timers_explain(&plain, &behind, &behind, &behind);
        assert!(said.contains("71 % of the difference"), "{said}");
        assert_eq!(said.matches("still completes fewer calls than UDP").count(), 3, "{said}");
        assert!(!said.contains("more calls than UDP"), "{said}");
        let said = timers_explain(&plain, &level, &ahead, &behind);
        assert!(
            said.contains(
                "never doubled SCTP cannot be told from UDP: the timers account for the whole"
            ),
            "{said}"
        );
        assert!(said.contains("(RACK) it completes more calls than UDP;"), "{said}");
        assert!(said.contains("profile it still completes fewer calls than UDP."), "{said}");
        let one = Estimate { value: -3.0, n: 1, interval: None, equal: false };
        assert_eq!(
            ahead_at(&[(5.0, ahead), (10.0, one), (20.0, behind), (30.0, behind)]),
            "more at 5 %; not told apart at 10 %; fewer at 20 %, 30 %"
        );
    }
}
