//! The output of the server: its measurements, and failures of clients.

use super::protocol::{Begin, Counts};
use super::report::{bits, seconds};
use crate::out;
use serde::Serialize;
use std::fmt;

/// Prints measurements; each client's task has a clone.
#[derive(Clone)]
pub(crate) struct Output {
    json: bool,
}

/// A measurement as it is printed.
#[derive(Serialize)]
struct Measurement {
    from: String,
    size: u64,
    #[serde(flatten)]
    counted: Counts,
}

impl Output {
    /// Creates an output of JSON, or of sentences.
    pub(super) fn new(json: bool) -> Output {
        Output { json }
    }

    /// Reports that the server is ready.
    pub(crate) fn print_ready(&self, at: &str) {
        out::errors(&[format!("waiting for {at}")]);
    }

    /// Reports a failure with one client.
    pub(crate) fn print_fault(&self, line: &str) {
        out::errors(&[line.to_owned()]);
    }

    /// Prints a finished measurement.
    pub(crate) fn print_measurement(
        &self,
        from: &impl fmt::Display,
        what: Option<(Begin, Counts)>,
    ) {
        let Some((begin, counted)) = what else { return };
        let Counts { messages, seconds: time, cpu_seconds, .. } = counted;
        let text = if self.json {
            let measurement = Measurement { from: from.to_string(), size: begin.size, counted };
            serde_json::to_string(&measurement).unwrap_or_default()
        } else {
            let rate = bits(counted.bytes, time);
            format!(
                "{from}: {messages} messages of {} bytes in {}, {rate}, {} of CPU",
                begin.size,
                seconds(time),
                seconds(cpu_seconds)
            )
        };
        if let Err(out::CommandError(lines)) = out::line(&text) {
            out::errors(&lines);
        }
    }
}
