//! The server: its listeners, and its end.

use super::args::Server;
use super::error::PerfError;
use super::output::Output;
use super::transport::Transport;
use super::{sctp, tcp, udp};
use tokio::signal::unix::{SignalKind, signal};

/// Answers clients until the program is stopped.
pub(crate) async fn run(args: Server) -> Result<(), PerfError> {
    let Server { transport, listen, time, json } = args;
    let location = listen.unwrap_or_default().resolve(&[]).await?;
    let output = Output::new(json);
    let serve = async {
        match transport {
            Transport::Tcp => tcp::serve(location.single(transport)?, output).await,
            Transport::Udp => udp::serve(location.single(transport)?, output).await,
            Transport::Sctp | Transport::SctpUdp | Transport::SctpKernel => {
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
