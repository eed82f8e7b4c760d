//! What a client and a server say to each other: messages whose first byte is their kind.
//!
//! A client begins a measurement, sends data, and ends it by telling how much it sent; the server
//! answers with what it counted. Between measurements echoes come back. Begin and End are answered
//! again when they come again, so that datagrams may be lost.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// First byte of a message that is only counted.
pub(crate) const DATA: u8 = 0;
/// First byte of a message that comes back, as [`ECHOED`].
pub(crate) const ECHO: u8 = 1;
/// First byte of one that came back. No answer is of a kind that is answered: one forged datagram would
/// set two servers on each other for ever.
pub(crate) const ECHOED: u8 = 6;
const BEGIN: u8 = 2;
const BEGUN: u8 = 3;
const END: u8 = 4;
const COUNTED: u8 = 5;
/// Longest message other than data and echoes, in bytes.
const MAX_CONTROL: usize = 512;

/// A measurement begins.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// Tells measurements of a client apart.
    pub(crate) run: u64,
    /// Bytes of a message.
    pub(crate) size: u64,
}

/// A measurement ends.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) run: u64,
    /// Messages sent; the answer follows once so many have come, or with UDP at once.
    pub(crate) sent: u64,
}

/// What a server counted of a measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) run: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// From the first message to the last.
    pub(crate) seconds: f64,
    /// Processor time of the server since it began.
    pub(crate) cpu_seconds: f64,
}

/// What the other side says besides data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Control {
    Begin(Begin),
    Begun(Begin),
    End(End),
    Counted(Counted),
}

fn control(kind: u8, body: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![kind];
    // Numbers alone: this cannot fail, and an empty body would be refused by whoever reads it.
    bytes.extend(serde_json::to_vec(body).unwrap_or_default());
    bytes
}

impl Control {
    /// As it goes over the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Control::Begin(begin) => control(BEGIN, begin),
            Control::Begun(begin) => control(BEGUN, begin),
            Control::End(end) => control(END, end),
            Control::Counted(counted) => control(COUNTED, counted),
        }
    }

    /// Reads one; `None` for what is none.
    pub(crate) fn read(message: &[u8]) -> Option<Control> {
        if message.len() > MAX_CONTROL {
            return None;
        }
        let (&kind, body) = message.split_first()?;
        match kind {
            BEGIN => serde_json::from_slice(body).map(Control::Begin).ok(),
            BEGUN => serde_json::from_slice(body).map(Control::Begun).ok(),
            END => serde_json::from_slice(body).map(Control::End).ok(),
            COUNTED => serde_json::from_slice(body).map(Control::Counted).ok(),
            _ => None,
        }
    }
}

/// What a server knows of one client.
#[derive(Debug, Default)]
pub(crate) struct Session {
    begin: Option<Begin>,
    cpu: Duration,
    messages: u64,
    bytes: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    end: Option<End>,
    counted: Option<Counted>,
    told: bool,
}

/// What a server does about a message.
#[derive(PartialEq, Debug)]
pub(crate) enum Reply {
    Nothing,
    /// The message goes back, its first byte [`ECHOED`].
    Echo,
    /// This goes back.
    Say(Vec<u8>),
}

impl Session {
    /// Something of `length` bytes came whose first bytes are `message`: all of it, but for data.
    /// `lossy`: not all that was sent need come.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        message: &[u8],
        length: usize,
        lossy: bool,
    ) -> Reply {
        match message.first() {
            Some(&DATA) => {
                self.messages += 1;
                self.bytes += length as u64;
                self.first.get_or_insert(now);
                self.last = Some(now);
                self.settle(lossy)
            }
            Some(&ECHO) => Reply::Echo,
            _ => match Control::read(message) {
                Some(Control::Begin(begin)) => {
                    if self.begin != Some(begin) {
                        *self = Session { begin: Some(begin), cpu: cpu(), ..Session::default() };
                    }
                    Reply::Say(Control::Begun(begin).bytes())
                }
                Some(Control::End(end)) if self.begin.is_some_and(|b| b.run == end.run) => {
                    self.end = Some(end);
                    match self.counted {
                        Some(counted) => Reply::Say(Control::Counted(counted).bytes()),
                        None => self.settle(lossy),
                    }
                }
                _ => Reply::Nothing,
            },
        }
    }

    fn settle(&mut self, lossy: bool) -> Reply {
        let all = |end: &End| lossy || self.messages >= end.sent;
        let Some(end) = self.end.filter(all) else { return Reply::Nothing };
        if self.counted.is_some() {
            return Reply::Nothing;
        }
        let between = self.first.zip(self.last).map_or(Duration::ZERO, |(a, b)| b - a);
        let counted = Counted {
            run: end.run,
            messages: self.messages,
            bytes: self.bytes,
            seconds: between.as_secs_f64(),
            cpu_seconds: cpu().saturating_sub(self.cpu).as_secs_f64(),
        };
        self.counted = Some(counted);
        Reply::Say(Control::Counted(counted).bytes())
    }

    /// What was counted of a measurement that is over, once.
    pub(crate) fn result(&mut self) -> Option<(Begin, Counted)> {
        let counted = self.counted?;
        let first = !std::mem::replace(&mut self.told, true);
        self.begin.filter(|_| first).map(|begin| (begin, counted))
    }
}

/// A message as it goes back.
pub(crate) fn echoed(message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    if let Some(kind) = bytes.first_mut() {
        *kind = ECHOED;
    }
    bytes
}

/// Processor time of this process so far.
pub(crate) fn cpu() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let time = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64)
    };
    match getrusage(UsageWho::RUSAGE_SELF) {
        Ok(used) => time(used.user_time()) + time(used.system_time()),
        // It has no way to fail for the own process.
        Err(_) => Duration::ZERO,
    }
}
