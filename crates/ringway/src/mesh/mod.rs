//! `ringway mesh`: a router of the mesh, and questions to one that runs.

mod probe;

use crate::out::{self, CommandError};
use clap::{Args, Subcommand};
use ringway_router::control::{self, Question};
use ringway_router::http::parse_address;
use ringway_router::settings::{self, Ipv4Lan, PORT, Settings, SipService, TUN, parse_peer};
use ringway_router::state;
use ringway_router::status::{Peer, RingPart, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Subcommand)]
pub(crate) enum Mesh {
    /// Runs a router: finds others on interfaces, and carries IPv6 packets of this host
    Run(Run),
    /// Shows the status of a running router
    Status(RouterArgs),
    /// Shows its neighbours
    Peers(RouterArgs),
    /// Shows the routers that it knows on the ring
    Ring(RouterArgs),
    /// Shows whether another router answers a running router, and how soon
    Ping(probe::Ping),
    /// Shows which routers are on the way from a running router to another
    Trace(probe::Trace),
    /// Shows the id and the address of a router, whether or not it runs
    Address(RouterArgs),
}

#[derive(Args)]
pub(crate) struct Run {
    /// Interface on which routers are discovered (repeatable); waited for if it does not exist
    #[arg(long = "interface", value_name = "IF")]
    interfaces: Vec<String>,
    /// Router that is reached through the network between, as udp://HOST[:PORT] (repeatable)
    #[arg(long = "peer", value_name = "URI", value_parser = parse_peer)]
    peers: Vec<SocketAddr>,
    /// Interface of a LAN whose hosts get addresses of the mesh by router advertisements; turns IPv6 forwarding on
    #[arg(long, value_name = "IF")]
    lan: Option<String>,
    /// Router's address on the LAN, whose IPv4 hosts get addresses of its network by DHCP, and find the SIP server of this
    /// host at port 5060 by DHCP and DNS. Not for a LAN with another DHCP server
    #[arg(long, value_name = "ADDR/LEN", requires = "lan", num_args = 0..=1, default_missing_value = "10.50.60.1/24")]
    lan_ipv4: Option<Ipv4Lan>,
    /// Name of the TUN device
    #[arg(long, value_name = "NAME", default_value = TUN)]
    tun: String,
    /// File with the key of the network, which all routers share; without one everybody may join
    #[arg(long, value_name = "FILE")]
    network_key: Option<PathBuf>,
    /// Directory of the identity and of the control socket; another one for each router [default: $STATE_DIRECTORY,
    /// /var/lib/ringway-mesh for root]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// UDP port of all routers that are discovered
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    port: u16,
    /// Where metrics are served, on loopback: ADDRESS:PORT [default: nowhere]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    http: Option<SocketAddr>,
}

/// The router that a command addresses.
#[derive(Args)]
pub(crate) struct RouterArgs {
    /// State directory of the router [default: $STATE_DIRECTORY, /var/lib/ringway-mesh for root]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RouterArgs {
    fn state(&self) -> PathBuf {
        self.state.clone().unwrap_or_else(settings::default_state)
    }
}

pub(crate) fn mesh(command: Mesh) -> Result<(), CommandError> {
    match command {
        Mesh::Run(args) => run(args),
        Mesh::Status(args) => show(&args, &Question::Status, status),
        Mesh::Peers(args) => show(&args, &Question::Peers, |peers: Vec<Peer>| peers_table(&peers)),
        Mesh::Ring(args) => show(&args, &Question::Ring, ring),
        Mesh::Ping(args) => probe::ping(&args),
        Mesh::Trace(args) => probe::trace(&args),
        Mesh::Address(args) => address(&args),
    }
}

fn runtime() -> Result<Runtime, CommandError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| CommandError::from(error.to_string()))
}

fn run(args: Run) -> Result<(), CommandError> {
    let Run { interfaces, peers, lan, lan_ipv4, tun, network_key, state, port, http } = args;
    let state = state.unwrap_or_else(settings::default_state);
    let sip = lan_ipv4.map(|_| SipService::default());
    let settings =
        Settings { interfaces, peers, lan, lan_ipv4, sip, tun, network_key, state, port, http };
    if settings.interfaces.is_empty() && settings.peers.is_empty() {
        out::note("no --interface and no --peer: waiting for routers that name this one");
    }
    runtime()?.block_on(async {
        let stop = async {
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return std::future::pending().await;
            };
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} }
        };
        let result = ringway_router::run(&settings, &out::note, stop).await;
        result.map_err(|error| CommandError::from(error.to_string()))
    })
}

/// Asks the router and prints its answer.
fn show<T: DeserializeOwned>(
    args: &RouterArgs,
    question: &Question,
    table: impl FnOnce(T) -> String,
) -> Result<(), CommandError> {
    let path = control::path(&args.state());
    let mut answer = Value::Null;
    let asked = runtime()?.block_on(control::ask(&path, question, |line| answer = line));
    asked.map_err(|error| CommandError::from(error.to_string()))?;
    if args.json {
        return out::json(&checked::<Value>(answer)?);
    }
    out::text(&table(checked(answer)?))
}

/// Returns a line of an answer, or the router's reason for giving none.
fn checked<T: DeserializeOwned>(line: Value) -> Result<T, CommandError> {
    if let Some(error) = line.get("error").and_then(Value::as_str) {
        return Err(CommandError::from(error.to_owned()));
    }
    let line = serde_json::from_value(line);
    line.map_err(|error| CommandError::from(format!("the answer: {error}")))
}

/// What `address --json` prints.
#[derive(Serialize)]
struct AddressResult {
    id: String,
    address: Ipv6Addr,
    prefix: String,
}

fn address(args: &RouterArgs) -> Result<(), CommandError> {
    let identity = state::existing_identity(&args.state());
    let id = identity.map_err(|error| CommandError::from(error.to_string()))?.id();
    let (address, prefix) = (id.prefix().router(), format!("{}/64", id.prefix().network()));
    if args.json {
        return out::json(&AddressResult { id: id.to_string(), address, prefix });
    }
    out::text(&format!("router      {id}\naddress     {address}\nnetwork     {prefix}\n"))
}

fn status(status: Status) -> String {
    let Status { id, address, prefix, tun, interfaces, uptime_s, packets, octets, .. } = &status;
    let settled = if status.settled { "settled" } else { "changing" };
    let look_ups = &status.look_ups;
    let average = 1_000.0 * look_ups.seconds / look_ups.found.max(1) as f64;
    format!(
        "router      {id}\n\
         address     {address} on {tun}\n\
         network     {prefix}\n\
         interfaces  {}\n\
         up          {uptime_s} s\n\
         ring        {settled}, {} routers known\n\
         neighbours  {}\n\
         sessions    {}\n\
         deputies    {}\n\
         packets     {} sent, {} received, {} forwarded, {} dropped\n\
         control     {} octets sent, {} received\n\
         look-ups    {} found in {average:.1} ms on average, {} absent, {} unanswered\n\
         refused     {}\n\
         dropped     {}\n\
         limits hit  {}\n",
        interfaces.join(" "),
        status.contacts,
        status.neighbours,
        status.sessions,
        status.deputies,
        packets.sent,
        packets.delivered,
        packets.forwarded,
        packets.dropped,
        octets.control_sent,
        octets.control_received,
        look_ups.found,
        look_ups.absent,
        look_ups.unanswered,
        status.refused,
        counts(&status.dropped),
        counts(&status.limits),
    )
}

/// Returns the counts that are not 0.
fn counts(all: &BTreeMap<String, u64>) -> String {
    let counts = all.iter().filter(|&(_, &count)| count > 0);
    let counts: Vec<String> = counts.map(|(name, count)| format!("{name} {count}")).collect();
    if counts.is_empty() { "-".to_owned() } else { counts.join(", ") }
}

fn peers_table(peers: &[Peer]) -> String {
    let mut text = format!(
        "{:<26} {:<10} {:>6} {:>9} {:>8}  {}\n",
        "address", "interface", "cost", "rtt ms", "up s", "link"
    );
    for peer in peers {
        let cost = peer.cost.map_or("down".to_owned(), |cost| format!("{cost:.2}"));
        let rtt = peer.round_trip_ms.map_or("-".to_owned(), |rtt| format!("{rtt:.2}"));
        let Peer { address, interface, up_s, link, .. } = peer;
        text += &format!("{address:<26} {interface:<10} {cost:>6} {rtt:>9} {up_s:>8}  {link}\n");
    }
    text
}

fn ring(ring: RingPart) -> String {
    let mut text = format!("{:<26} {:>5} {:>7}\n", "address", "hops", "cost");
    let mut is_behind = false;
    for contact in &ring.contacts {
        if contact.id > ring.id && !is_behind {
            is_behind = true;
            text += &format!("{} is here\n", ring.id);
        }
        let near = if contact.near { "  beside this router" } else { "" };
        text += &format!(
            "{:<26} {:>5} {:>7.2}{near}\n",
            contact.address.to_string(),
            contact.hops,
            contact.cost
        );
    }
    if !is_behind {
        text += &format!("{} is here\n", ring.id);
    }
    if let Some(partner) = &ring.partner {
        text += &format!("the ring closes with {partner}\n");
    }
    text
}
