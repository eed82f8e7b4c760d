//! The server: what it listens on, and how it shows what was measured.

use super::protocol::{Begin, Counted};
use super::report::{bits, seconds};
use super::{Server, Transport, Trouble, sctp, tcp, udp};
use crate::out;
use serde::Serialize;
use std::fmt;
use tokio::signal::unix::{SignalKind, signal};

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

/// Answers until it is stopped.
pub(crate) async fn run(args: Server) -> Result<(), Trouble> {
    let Server { transport, listen, time, json } = args;
    let place = listen.unwrap_or_default().resolve(&[]).await?;
    let shown = Shown { json };
    let serve = async {
        match transport {
            Transport::Tcp => tcp::serve(place.single(transport)?, shown).await,
            Transport::Udp => udp::serve(place.single(transport)?, shown).await,
            Transport::Sctp | Transport::SctpUdp => {
                sctp::serve(transport, place.for_sctp(transport)?, shown).await
            }
        }
    };
    let signals = |error| Trouble::at("signals", error);
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
