//! The output of the server: its measurements, and the faults of clients.

use super::protocol::{Begin, Counted};
use super::report::{bits, seconds};
use crate::out;
use serde::Serialize;
use std::fmt;

/// Shows measurements; passed to whoever answers a client.
#[derive(Clone)]
pub(crate) struct Shown {
    json: bool,
}

/// A measurement as it is printed.
#[derive(Serialize)]
struct Measured {
    from: String,
    size: u64,
    #[serde(flatten)]
    counted: Counted,
}

impl Shown {
    /// Returns an output of measurements as JSON, or as sentences.
    pub(super) fn new(json: bool) -> Shown {
        Shown { json }
    }

    /// The server can be used now.
    pub(crate) fn waits(&self, at: &str) {
        out::errors(&[format!("waiting for {at}")]);
    }

    /// Something went wrong with one client.
    pub(crate) fn fault(&self, line: &str) {
        out::errors(&[line.to_owned()]);
    }

    /// A measurement is over.
    pub(crate) fn measured(&self, from: &impl fmt::Display, what: Option<(Begin, Counted)>) {
        let Some((begin, counted)) = what else { return };
        let Counted { messages, seconds: time, cpu_seconds, .. } = counted;
        let shown = if self.json {
            let measured = Measured { from: from.to_string(), size: begin.size, counted };
            serde_json::to_string(&measured).unwrap_or_default()
        } else {
            let rate = bits(counted.bytes, time);
            format!(
                "{from}: {messages} messages of {} bytes in {}, {rate}, {} of CPU",
                begin.size,
                seconds(time),
                seconds(cpu_seconds)
            )
        };
        if let Err(out::Fail(lines)) = out::line(&shown) {
            out::errors(&lines);
        }
    }
}
