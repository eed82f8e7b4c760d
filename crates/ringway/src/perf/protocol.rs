//! The messages between client and server; the first byte is the kind of a message.
//!
//! A client begins a measurement, sends data, and ends it with the number of messages sent; the
//! server answers with its counts. Between measurements it returns echoes. Repeated Begin and End
//! messages are answered again, because datagrams may be lost.

use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Maximum size of a message, in bytes.
pub(crate) const MAX_SIZE: usize = 4 << 20;
/// First byte of a message that is only counted.
pub(crate) const DATA: u8 = 0;
/// First byte of a message that is returned as [`ECHOED`].
pub(crate) const ECHO: u8 = 1;
/// First byte of a returned message. No answer has a kind that is answered: otherwise one forged
/// datagram would make two servers answer each other forever.
pub(crate) const ECHOED: u8 = 6;
const BEGIN: u8 = 2;
const BEGUN: u8 = 3;
const END: u8 = 4;
const COUNTED: u8 = 5;
/// Maximum length of a message other than data and echoes, in bytes.
const MAX_CONTROL: usize = 512;

/// Begin of a measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// Distinguishes the measurements of a client.
    pub(crate) run: u64,
    /// Size of a message in bytes.
    pub(crate) size: u64,
}

/// End of a measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) run: u64,
    /// Number of messages sent; the answer follows once all have arrived, or over UDP at once.
    pub(crate) sent: u64,
}

/// Counts of a server for one measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) run: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Time from the first message to the last.
    pub(crate) seconds: f64,
    /// Processor time of the server since the measurement began.
    pub(crate) cpu_seconds: f64,
}

/// A message other than data and echoes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Control {
    Begin(Begin),
    Begun(Begin),
    End(End),
    Counts(Counts),
}

fn control(kind: u8, body: &impl Serialize) -> Vec<u8> {
    let mut bytes = vec![kind];
    // All fields are numbers, so this cannot fail; a receiver would refuse an empty body.
    bytes.extend(serde_json::to_vec(body).unwrap_or_default());
    bytes
}

impl Control {
    /// Returns the encoded message.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Control::Begin(begin) => control(BEGIN, begin),
            Control::Begun(begin) => control(BEGUN, begin),
            Control::End(end) => control(END, end),
            Control::Counts(counted) => control(COUNTED, counted),
        }
    }

    /// Decodes a message; `None` if it is invalid.
    pub(crate) fn read(message: &[u8]) -> Option<Control> {
        if message.len() > MAX_CONTROL {
            return None;
        }
        let (&kind, body) = message.split_first()?;
        match kind {
            BEGIN => serde_json::from_slice(body).map(Control::Begin).ok(),
            BEGUN => serde_json::from_slice(body).map(Control::Begun).ok(),
            END => serde_json::from_slice(body).map(Control::End).ok(),
            COUNTED => serde_json::from_slice(body).map(Control::Counts).ok(),
            _ => None,
        }
    }
}

/// State of one client at a server.
#[derive(Debug, Default)]
pub(crate) struct Session {
    begin: Option<Begin>,
    cpu: Duration,
    messages: u64,
    bytes: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    end: Option<End>,
    counted: Option<Counts>,
    reported: bool,
}

/// Answer of a server to a message.
#[derive(PartialEq, Debug)]
pub(crate) enum Reply {
    Nothing,
    /// Return the message with first byte [`ECHOED`].
    Echo,
    /// Send this message.
    Send(Vec<u8>),
}

impl Session {
    /// Handles a received message of `length` bytes. `message` is its beginning for data, otherwise
    /// all of it. `lossy`: some of the messages sent may be lost.
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
                    Reply::Send(Control::Begun(begin).bytes())
                }
                Some(Control::End(end)) if self.begin.is_some_and(|b| b.run == end.run) => {
                    self.end = Some(end);
                    match self.counted {
                        Some(counted) => Reply::Send(Control::Counts(counted).bytes()),
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
        let counted = Counts {
            run: end.run,
            messages: self.messages,
            bytes: self.bytes,
            seconds: between.as_secs_f64(),
            cpu_seconds: cpu().saturating_sub(self.cpu).as_secs_f64(),
        };
        self.counted = Some(counted);
        Reply::Send(Control::Counts(counted).bytes())
    }

    /// Returns the counts of a finished measurement, once.
    pub(crate) fn result(&mut self) -> Option<(Begin, Counts)> {
        let counted = self.counted?;
        let first = !std::mem::replace(&mut self.reported, true);
        self.begin.filter(|_| first).map(|begin| (begin, counted))
    }
}

/// Returns the echo of a message.
pub(crate) fn echoed(message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    if let Some(kind) = bytes.first_mut() {
        *kind = ECHOED;
    }
    bytes
}

/// Returns the processor time of this process so far.
pub(crate) fn cpu() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let time = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64)
    };
    match getrusage(UsageWho::RUSAGE_SELF) {
        Ok(used) => time(used.user_time()) + time(used.system_time()),
        // It cannot fail for the own process.
        Err(_) => Duration::ZERO,
    }
}
