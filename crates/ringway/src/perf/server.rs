//! The server: its listeners, and the output of results.

use super::protocol::{Begin, Counts};
use super::report::{bits, seconds};
use super::{PerfError, Server, Transport, sctp, tcp, udp};
use crate::out;
use serde::Serialize;
use std::fmt;
use tokio::signal::unix::{SignalKind, signal};

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

/// Answers clients until the program is stopped.
pub(crate) async fn run(args: Server) -> Result<(), PerfError> {
    let Server { transport, listen, time, json } = args;
    let location = listen.unwrap_or_default().resolve(&[]).await?;
    let output = Output { json };
    let serve = async {
        match transport {
            Transport::Tcp => tcp::serve(location.single(transport)?, output).await,
            Transport::Udp => udp::serve(location.single(transport)?, output).await,
            Transport::Sctp | Transport::SctpUdp => {
                sctp::serve(transport, location.for_sctp(transport)?, output).await
            }
        }
    };
    let signals = |error| PerfError::at("signals", error);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(signals)?;
    let over = async {
        match time {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = serve => done,
        () = over => Ok(()),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}
