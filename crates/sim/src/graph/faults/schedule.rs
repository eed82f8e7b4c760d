//! Faults in the order of their times, and as text.

use ringway_link::Chance;
use ringway_sansio::Time;
use std::fmt;
use std::str::{FromStr, SplitWhitespace};

/// Maximum number of faults of a schedule.
pub const MAX_FAULTS: usize = 1 << 24;
const NANOS: u64 = 1_000_000_000;

/// A fault, or its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A node starts as a new one, unless it runs.
    Start {
        /// The node.
        node: u32,
    },
    /// A node stops, if it runs.
    Crash {
        /// The node.
        node: u32,
    },
    /// The link between two nodes is cut.
    Cut {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
    },
    /// A cut of a link ends.
    Mend {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
    },
    /// The link between two nodes loses packets.
    Loss {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
        /// Probability that a packet is lost, in both directions.
        loss: Chance,
    },
    /// The link between two nodes loses packets as it did before.
    EndLoss {
        /// One end.
        a: u32,
        /// The other end.
        b: u32,
    },
    /// All links are cut between the nodes around one and the others.
    Split {
        /// The node in the middle.
        from: u32,
        /// Number of nodes around it, itself counted: those that are found first from it.
        nodes: u32,
    },
    /// A split ends.
    Join {
        /// The node in the middle.
        from: u32,
        /// Number of nodes around it.
        nodes: u32,
    },
    /// The clock of a node is set.
    Clock {
        /// The node.
        node: u32,
        /// What it shows then.
        shows: Time,
        /// Microseconds that it gains in a second.
        drift_ppm: i32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fault::Start { node } => write!(f, "start {node}"),
            Fault::Crash { node } => write!(f, "crash {node}"),
            Fault::Cut { a, b } => write!(f, "cut {a} {b}"),
            Fault::Mend { a, b } => write!(f, "mend {a} {b}"),
            Fault::Loss { a, b, loss } => write!(f, "loss {a} {b} {}", loss.get()),
            Fault::EndLoss { a, b } => write!(f, "end-loss {a} {b}"),
            Fault::Split { from, nodes } => write!(f, "split {from} {nodes}"),
            Fault::Join { from, nodes } => write!(f, "join {from} {nodes}"),
            Fault::Clock { node, shows, drift_ppm } => {
                write!(f, "clock {node} {} {drift_ppm}", Seconds(shows))
            }
        }
    }
}

/// A time as seconds with nine decimals.
struct Seconds(Time);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        write!(f, "{}.{:09}", nanos / NANOS, nanos % NANOS)
    }
}

impl FromStr for Seconds {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if part.len() > 9 || !digits(whole) || !digits(part) {
            return Err(());
        }
        let whole: u64 = whole.parse().map_err(|_| ())?;
        let part: u64 = format!("{part:0<9}").parse().map_err(|_| ())?;
        let nanos = whole.checked_mul(NANOS).and_then(|nanos| nanos.checked_add(part)).ok_or(())?;
        Ok(Seconds(Time::from_nanos(nanos)))
    }
}

/// The reason why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}, got {got:?}")]
pub struct ScheduleError {
    /// The line, counted from 1.
    pub line: usize,
    /// What the line could have.
    pub expected: &'static str,
    /// What it has; empty at its end.
    pub got: String,
}

/// Faults in the order of their times. As text it has a line for each: the time in seconds and the fault, such
/// as `30.250000000 crash 17`. Empty lines and those that begin with `#` have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule(Vec<(Time, Fault)>);

impl Schedule {
    /// Creates a schedule; faults of the same time keep their order.
    pub fn new(mut faults: Vec<(Time, Fault)>) -> Self {
        faults.sort_by_key(|(at, _)| *at);
        Schedule(faults)
    }

    /// Returns the faults.
    pub fn faults(&self) -> &[(Time, Fault)] {
        &self.0
    }

    /// Returns a schedule with the faults of both.
    pub fn and(mut self, other: Schedule) -> Self {
        self.0.extend(other.0);
        Schedule::new(self.0)
    }

    /// Parses the text of a schedule.
    pub fn parse(text: &str) -> Result<Self, ScheduleError> {
        let mut faults = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let mut words = Words { line: index + 1, words: line.split_whitespace() };
            if faults.len() == MAX_FAULTS {
                return Err(words.error("at most 16777216 faults", line));
            }
            faults.push(words.fault()?);
        }
        Ok(Schedule::new(faults))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(at, fault)| writeln!(f, "{} {fault}", Seconds(*at)))
    }
}

/// The words of a line.
struct Words<'a> {
    line: usize,
    words: SplitWhitespace<'a>,
}

impl Words<'_> {
    fn error(&self, expected: &'static str, got: &str) -> ScheduleError {
        ScheduleError { line: self.line, expected, got: got.into() }
    }

    /// Returns the next word as a value.
    fn next<T: FromStr>(&mut self, expected: &'static str) -> Result<T, ScheduleError> {
        let word = self.words.next().unwrap_or_default();
        word.parse().map_err(|_| self.error(expected, word))
    }

    fn node(&mut self) -> Result<u32, ScheduleError> {
        self.next("the number of a node")
    }

    fn nodes(&mut self) -> Result<u32, ScheduleError> {
        self.next("a number of nodes")
    }

    fn time(&mut self) -> Result<Time, ScheduleError> {
        self.next("a time in seconds").map(|Seconds(time)| time)
    }

    fn loss(&mut self) -> Result<Chance, ScheduleError> {
        const EXPECTED: &str = "a loss from 0 to 1";
        let loss = self.next(EXPECTED)?;
        Chance::new(loss).map_err(|_| self.error(EXPECTED, &loss.to_string()))
    }

    fn fault(&mut self) -> Result<(Time, Fault), ScheduleError> {
        let at = self.time()?;
        let kind = self.words.next().unwrap_or_default();
        let fault = match kind {
            "start" => Fault::Start { node: self.node()? },
            "crash" => Fault::Crash { node: self.node()? },
            "cut" => Fault::Cut { a: self.node()?, b: self.node()? },
            "mend" => Fault::Mend { a: self.node()?, b: self.node()? },
            "loss" => Fault::Loss { a: self.node()?, b: self.node()?, loss: self.loss()? },
            "end-loss" => Fault::EndLoss { a: self.node()?, b: self.node()? },
            "split" => Fault::Split { from: self.node()?, nodes: self.nodes()? },
            "join" => Fault::Join { from: self.node()?, nodes: self.nodes()? },
            "clock" => Fault::Clock {
                node: self.node()?,
                shows: self.time()?,
                drift_ppm: self.next("parts per million")?,
            },
            other => return Err(self.error("the name of a fault", other)),
        };
        match self.words.next() {
            None => Ok((at, fault)),
            Some(more) => Err(self.error("the end of the line", more)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_parsed_as_it_was_printed() {
        let loss = Chance::new(0.1).unwrap();
        let faults = [
            Fault::Start { node: 1 },
            Fault::Crash { node: 2 },
            Fault::Cut { a: 3, b: 4 },
            Fault::Mend { a: 4, b: 3 },
            Fault::Loss { a: 5, b: 6, loss },
            Fault::EndLoss { a: 5, b: 6 },
            Fault::Split { from: 7, nodes: 8 },
            Fault::Join { from: 7, nodes: 8 },
            Fault::Clock { node: 9, shows: Time::from_nanos(1), drift_ppm: -20 },
        ];
        let timed = (0..).zip(faults).map(|(number, fault)| {
            (Time::from_nanos(10_000_000_000 - 1_000_000_007 * number), fault)
        });
        let schedule = Schedule::new(timed.collect());
        let text = schedule.to_string();
        assert!(text.starts_with("1.999999944 clock 9 0.000000001 -20\n2.999999951 join 7 8\n"));
        assert_eq!(Schedule::parse(&text).unwrap(), schedule);
        let more = "# none\n\n 1.5 crash 2 \n0 start 1";
        let expected = "0.000000000 start 1\n1.500000000 crash 2\n";
        assert_eq!(Schedule::parse(more).unwrap().to_string(), expected);
    }

    #[test]
    fn a_line_that_is_not_a_fault_is_reported() {
        for (text, error) in [
            ("crash 1", "line 1: expected a time in seconds, got \"crash\""),
            ("\n1.0000000001 crash 1", "line 2: expected a time in seconds, got \"1.0000000001\""),
            ("-1 crash 1", "line 1: expected a time in seconds, got \"-1\""),
            ("99999999999 crash 1", "line 1: expected a time in seconds, got \"99999999999\""),
            ("1 melt 1", "line 1: expected the name of a fault, got \"melt\""),
            ("1 crash", "line 1: expected the number of a node, got \"\""),
            ("1 crash 2 3", "line 1: expected the end of the line, got \"3\""),
            ("1 loss 2 3 1.5", "line 1: expected a loss from 0 to 1, got \"1.5\""),
            ("1 split 2 x", "line 1: expected a number of nodes, got \"x\""),
            ("1 clock 2 0 fast", "line 1: expected parts per million, got \"fast\""),
        ] {
            assert_eq!(Schedule::parse(text).unwrap_err().to_string(), error);
        }
    }
}
