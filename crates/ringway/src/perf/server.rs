//! The server: what it listens on, and when it ends.

use super::output::Shown;
use super::{Server, Transport, Trouble, sctp, tcp, udp};
use tokio::signal::unix::{SignalKind, signal};

/// Answers until it is stopped.
pub(crate) async fn run(args: Server) -> Result<(), Trouble> {
    let Server { transport, listen, time, json } = args;
    let place = listen.unwrap_or_default().resolve(&[]).await?;
    let shown = Shown::new(json);
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
