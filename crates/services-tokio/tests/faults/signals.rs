//! Signals during calls that block.

use crate::os::{self, Storm};
use crate::support::{all, builder, here, is_datagram, properties, security};
use ringway_services_tokio::{Error, Protocol, RemoteEndpoint, blocking};

fn only(system: &blocking::System, protocol: Protocol) -> blocking::Preconnection {
    let mut properties = properties(protocol);
    // So that the host's interfaces are asked for, too.
    let preference = ringway_services_tokio::properties::Preference::Require;
    properties.selection.interface.0.push((preference, "lo".to_string()));
    let new = blocking::Preconnection::new(system, properties, security(protocol));
    let others = Protocol::ALL.iter().filter(|other| **other != protocol);
    others.fold(new, |new, other| new.without(*other))
}

fn exchanged(protocol: Protocol) -> Result<(), Error> {
    let system = blocking::System::of(builder())?;
    let listener = only(&system, protocol).from(here(0)).listen()?;
    let named = RemoteEndpoint::address(([127, 0, 0, 1], listener.port()).into());
    let echo = std::thread::spawn(move || -> Result<(), Error> {
        let accepted = listener.accept()?;
        for _ in 0..200 {
            let Some(message) = accepted.receive()? else { return Ok(()) };
            accepted.send(message.bytes)?;
        }
        // Until the peer has read the last one.
        accepted.receive().map(drop)
    });
    let client = only(&system, protocol).to(named).initiate()?;
    for n in 0..200u8 {
        client.send(vec![n; 1_000])?;
        let message = client.receive()?;
        assert!(message.is_some_and(|message| message.len() == 1_000 && message[0] == n));
    }
    if is_datagram(protocol) {
        client.send("end")?;
    }
    client.close()?;
    echo.join().unwrap()
}

#[test]
fn signals_interrupt_no_call() {
    if !os::inside_a_namespace("signals::signals_interrupt_no_call") {
        return;
    }
    os::ip("link set lo up");
    let protocols = all();
    let storm = Storm::start();
    let results: Vec<_> =
        protocols.iter().map(|protocol| (protocol, exchanged(*protocol))).collect();
    assert!(storm.end() > 1_000);
    for (protocol, result) in results {
        assert!(result.is_ok(), "{protocol}: {result:?}");
    }
}
