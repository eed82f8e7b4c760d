//! The state of an emulation for people.

use ringway_emulate::Report;
use ringway_emulate::report::{Amount, DirectionReport, Errors, InterfaceReport, InterfaceState};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Time of measurement from which on an error of the rate is shown: in less, the error of a single packet is large.
const MIN_SECONDS: f64 = 0.1;

/// Returns the state as lines.
pub(super) fn report(report: &Report) -> String {
    let Report { name, seconds, seed, .. } = report;
    let mut text = format!("{name}: {seconds:.1} s, seed {seed}\n");
    for InterfaceReport { name, state, mtu, interruptions } in &report.interfaces {
        let state = state.as_str();
        // Writing to a string does not fail.
        let _ =
            writeln!(text, "interface {name}: {state}, MTU {mtu}, {interruptions} interruptions");
    }
    for direction in &report.directions {
        let DirectionReport { from, to, received, sent, queue, in_flight, .. } = direction;
        let DirectionReport { copied, corrupted, marked, delay, .. } = direction;
        let _ = write!(
            text,
            "{from} -> {to}\n\
             \x20 packets   {} received, {} sent, {} in the queue, {in_flight} in flight\n\
             \x20 dropped   {}\n\
             \x20 changed   {copied} copied, {corrupted} corrupted, {marked} marked\n\
             \x20 lost      {}\n\
             \x20 delay     {:.3} ms median, {:.3} ms at 99 %\n",
            amount(received),
            amount(sent),
            queue.packets,
            counts(&direction.dropped),
            counts(&direction.lost),
            delay.p50_ms,
            delay.p99_ms,
        );
        text.push_str(&errors(&direction.error));
    }
    if report.log_lines_lost > 0 {
        let _ = writeln!(text, "log: {} lines are missing", report.log_lines_lost);
    }
    text
}

fn errors(errors: &Errors) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    if let Some(delay) = &errors.delay {
        let _ = writeln!(
            text,
            "  error of delay  {:.1} us on average, {:.1} median, {:.1} at 99 %, {:.1} at 99.9 %, at most {:.1}",
            delay.mean_us, delay.p50_us, delay.p99_us, delay.p99_9_us, delay.max_us
        );
    }
    if let Some(rate) = errors.rate.as_ref().filter(|rate| rate.seconds >= MIN_SECONDS) {
        let _ = writeln!(
            text,
            "  error of rate   {:+.3} % of {}, over {:.1} s",
            rate.percent,
            bits(rate.decided_bits_per_s),
            rate.seconds
        );
    }
    if let Some(loss) = &errors.loss {
        let percent = |share: f64| share * 100.0;
        let interval = match loss.interval {
            Some([low, high]) => {
                format!("95 %: {:.3} to {:.3} %", percent(low), percent(high))
            }
            None => "losses depend on each other".to_owned(),
        };
        let _ = writeln!(
            text,
            "  error of loss   {:.3} % of {} packets, configured {:.3} % ({interval})",
            percent(loss.measured),
            loss.packets,
            percent(loss.configured)
        );
    }
    text
}

/// Returns the state as lines that replace each other on a terminal. `before` is the state that was shown before.
pub(super) fn live(report: &Report, before: Option<&Report>, colour: bool) -> String {
    let (dim, warn, off) = if colour { ("\x1b[2m", "\x1b[33m", "\x1b[0m") } else { ("", "", "") };
    let Report { name, seconds, .. } = report;
    let mut text =
        format!("{name}  {seconds:.0} s  {dim}ringway emulate set --name {name} delay 50ms{off}\n");
    for (i, direction) in report.directions.iter().enumerate() {
        let earlier = before.map_or(0, |before| before.directions[i].sent.octets);
        let passed = seconds - before.map_or(0.0, |before| before.seconds);
        let octets = direction.sent.octets.saturating_sub(earlier);
        let rate = if passed > 0.0 { octets as f64 * 8.0 / passed } else { 0.0 };
        let DirectionReport { from, to, sent, queue, recent_delay, .. } = direction;
        let error = direction.error.delay.as_ref();
        let error =
            error.map_or("-".to_owned(), |e| format!("{:.0} / {:.0} us", e.p50_us, e.p99_us));
        let mut dropped = direction.dropped.clone();
        dropped.extend(direction.lost.clone());
        let _ = writeln!(
            text,
            "{from} -> {to}  {} packets  {}  queue {}  delay {:.2} / {:.2} ms  error {error}  {warn}dropped {}{off}",
            sent.packets,
            bits(rate),
            queue.packets,
            recent_delay.p50_ms,
            recent_delay.p99_ms,
            counts(&dropped)
        );
    }
    for InterfaceReport { name, state, .. } in &report.interfaces {
        if *state != InterfaceState::Up {
            let _ = writeln!(text, "{warn}interface {name}: {}{off}", state.as_str());
        }
    }
    text
}

fn amount(amount: &Amount) -> String {
    format!("{} ({} octets)", amount.packets, amount.octets)
}

/// Returns the counts that are not 0.
fn counts(all: &BTreeMap<String, u64>) -> String {
    let counts = all.iter().filter(|&(_, &count)| count > 0);
    let counts: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
    if counts.is_empty() { "-".to_owned() } else { counts.join(", ") }
}

/// Returns a bit rate with its unit.
fn bits(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.3} Gbit/s", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.3} Mbit/s", rate / 1e6),
        rate => format!("{:.1} kbit/s", rate / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_emulate::report::{DelayError, Delays, LossError, RateError};

    fn sample() -> Report {
        let delays = Delays { p50_ms: 35.01, p99_ms: 39.8 };
        let direction = |from: &str, to: &str| DirectionReport {
            from: from.into(),
            to: to.into(),
            link: "a-b".into(),
            received: Amount { packets: 1_000, octets: 100_000 },
            sent: Amount { packets: 990, octets: 99_000 },
            queue: Amount::default(),
            in_flight: 3,
            dropped: BTreeMap::from([("random loss".to_owned(), 10)]),
            copied: 0,
            corrupted: 0,
            marked: 0,
            lost: BTreeMap::new(),
            delay: delays,
            recent_delay: delays,
            error: Errors {
                delay: Some(DelayError {
                    mean_us: 9.0,
                    p50_us: 8.0,
                    p99_us: 30.0,
                    p99_9_us: 60.0,
                    max_us: 80.0,
                }),
                rate: Some(RateError {
                    seconds: 1.5,
                    decided_bits_per_s: 1e6,
                    measured_bits_per_s: 1e6,
                    percent: -0.01,
                }),
                loss: Some(LossError {
                    packets: 1_000,
                    lost: 10,
                    configured: 0.01,
                    measured: 0.01,
                    interval: Some([0.0054, 0.0183]),
                }),
            },
            parameters: Default::default(),
        };
        let directions = [direction("west", "east"), direction("east", "west")];
        let interface = |name: &str, state, interruptions| InterfaceReport {
            name: name.into(),
            state,
            mtu: 1_500,
            interruptions,
        };
        let interfaces = vec![
            interface("west", InterfaceState::Up, 0),
            interface("east", InterfaceState::NoCarrier, 2),
        ];
        let (name, seconds) = ("west".into(), 2.0);
        Report { name, seconds, seed: 1, log_lines_lost: 0, interfaces, directions }
    }

    #[test]
    fn the_errors_are_lines() {
        let text = report(&sample());
        for line in [
            "interface east: no carrier, MTU 1500, 2 interruptions\n",
            "west -> east\n",
            "  dropped   random loss 10\n",
            "  error of delay  9.0 us on average, 8.0 median, 30.0 at 99 %, 60.0 at 99.9 %, at most 80.0\n",
            "  error of rate   -0.010 % of 1.000 Mbit/s, over 1.5 s\n",
            "  error of loss   1.000 % of 1000 packets, configured 1.000 % (95 %: 0.540 to 1.830 %)\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn the_present_rate_is_that_since_the_last_look() {
        let before = sample();
        let mut now = sample();
        now.seconds = 3.0;
        now.directions[0].sent.octets += 125_000;
        let text = live(&now, Some(&before), false);
        assert_eq!(text.lines().count(), 4);
        assert!(text.ends_with("interface east: no carrier\n"), "{text}");
        assert!(text.contains("west -> east  990 packets  1.000 Mbit/s"), "{text}");
        assert!(
            text.contains("error 8 / 30 us") && text.contains("dropped random loss 10"),
            "{text}"
        );
    }
}
