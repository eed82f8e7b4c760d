//! What a router reports of itself.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use ringway_mesh::Router;
use ringway_mesh::crypto::Crypto;
use ringway_mesh::metric::Space;
use ringway_mesh::router::SessionCounters;
use ringway_sansio::Time;
use serde::{Deserialize, Serialize};

/// The router as a whole.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Id, 16 hexadecimal digits.
    pub id: String,
    /// Address of the router.
    pub address: Ipv6Addr,
    /// Its network, `fd..::/64`.
    pub prefix: String,
    /// The TUN device.
    pub tun: String,
    /// Interfaces in use.
    pub interfaces: Vec<String>,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Neighbours whose link can be used.
    pub neighbours: usize,
    /// Routers to which a route is known.
    pub contacts: usize,
    /// Sessions with other routers.
    pub sessions: usize,
    /// Whether the contacts beside this router on the ring have not changed for five seconds.
    pub settled: bool,
    /// Routers that check the credentials of this one's users while it is silent.
    pub deputies: usize,
    /// Packets of hosts: sent, received, forwarded for others, and dropped.
    pub packets: Packets,
    /// Messages of the mesh that were dropped as malformed or forged.
    pub refused: u64,
    /// Links to neighbours, with those that cannot be used.
    pub links: usize,
    /// Octets that were moved.
    pub octets: Octets,
    /// Messages of the mesh that were forwarded between other routers.
    pub messages_forwarded: u64,
    /// Look-ups of routers that hosts here send to.
    pub look_ups: LookUps,
    /// How often something was dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// How often a limit was hit, by limit.
    pub limits: BTreeMap<String, u64>,
}

/// Counts of octets: of packets of hosts, and of the mesh's own packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Octets {
    /// From hosts here.
    pub sent: u64,
    /// To hosts here.
    pub delivered: u64,
    /// Between other routers, with the headers of the mesh.
    pub forwarded: u64,
    /// Sent for the mesh itself, without UDP and IP.
    pub control_sent: u64,
    /// Received for the mesh itself, without UDP and IP.
    pub control_received: u64,
}

/// Counts of look-ups.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LookUps {
    /// The router was found.
    pub found: u64,
    /// No router has the network.
    pub absent: u64,
    /// Nobody has answered.
    pub unanswered: u64,
    /// Time that those took that have found a router, in all.
    pub seconds: f64,
}

/// Counts of packets of hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Packets {
    /// From hosts here.
    pub sent: u64,
    /// To hosts here.
    pub delivered: u64,
    /// Between other routers.
    pub forwarded: u64,
    /// Not sent, delivered or forwarded.
    pub dropped: u64,
}

/// A neighbour.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Id.
    pub id: String,
    /// Address of the router.
    pub address: Ipv6Addr,
    /// Where its packets come from.
    pub link: String,
    /// The interface, or `peer` for a named router.
    pub interface: String,
    /// Cost of the link; 1 for one without loss and delay. `null` while it cannot be used.
    pub cost: Option<f64>,
    /// Round trip in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// Seconds since the link came up.
    pub up_s: u64,
}

/// A router to which a route is known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Contact {
    /// Id.
    pub id: String,
    /// Address of the router.
    pub address: Ipv6Addr,
    /// Links on the way.
    pub hops: u16,
    /// Cost of the way; 1 a link without loss and delay.
    pub cost: f64,
    /// Whether it is one of those beside this router on the ring.
    pub near: bool,
}

/// The part of the ring that the router knows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RingPart {
    /// Id of this router.
    pub id: String,
    /// The other end of the line, if this router is an end of it.
    pub partner: Option<String>,
    /// The contacts in the order of the ring.
    pub contacts: Vec<Contact>,
}

/// What the router does not know of itself.
#[derive(Clone, Debug)]
pub struct Surroundings<'a> {
    /// The TUN device.
    pub tun: &'a str,
    /// Names of interfaces.
    pub interfaces: BTreeMap<u32, String>,
    /// When it started.
    pub start: Time,
    /// See [`Status::deputies`].
    pub deputies: usize,
    /// What the daemon has counted.
    pub counters: Counters,
}

/// What is counted outside the router's own machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Octets of the mesh's own packets that were sent.
    pub control_sent: u64,
    /// Octets of the mesh's own packets that were received.
    pub control_received: u64,
    /// Packets for hosts here that the TUN device did not take.
    pub tun_full: u64,
    /// Trains and packets for other routers that the socket did not take.
    pub socket_full: u64,
    /// Warnings that were not logged because too many were.
    pub warnings: u64,
    /// Pings and traces that were refused because others were under way.
    pub probing: u64,
    /// Probes that were refused because others were under way.
    pub probes: u64,
    /// Messages of the directory that were not sent, as the budget of the applications of the mesh was used up.
    pub directory_budget: u64,
    /// Questions of other routers that were not answered, as the share of who asked was used up.
    pub directory_shares: u64,
    /// Lists for other routers that were not sent for the same reason.
    pub directory_lists: u64,
    /// Messages of the directory above the rate of their sender.
    pub directory_messages: u64,
}

/// Returns the status.
pub fn status<C: Crypto, S: Space>(
    now: Time,
    router: &Router<C, S>,
    around: &Surroundings<'_>,
) -> Status {
    let (counters, packets) = (router.counters(), router.packet_counters());
    let prefix = router.id().prefix();
    Status {
        id: router.id().to_string(),
        address: prefix.router(),
        prefix: format!("{}/64", prefix.network()),
        tun: around.tun.to_owned(),
        interfaces: around.interfaces.values().cloned().collect(),
        uptime_s: now.since(around.start).as_secs(),
        neighbours: router.links().up().len(),
        contacts: router.overlay().contacts().ids().len(),
        sessions: router.sessions(),
        settled: router.overlay().is_settled(now),
        deputies: around.deputies,
        packets: Packets {
            sent: packets.sent,
            delivered: packets.delivered,
            forwarded: packets.forwarded,
            dropped: packets.dropped + packets.bad,
        },
        refused: counters.malformed
            + counters.refused
            + packets.refused
            + router.message_counters().forged,
        links: router.links().neighbours().count(),
        octets: Octets {
            sent: packets.sent_octets,
            delivered: packets.delivered_octets,
            forwarded: packets.forwarded_octets,
            control_sent: around.counters.control_sent,
            control_received: around.counters.control_received,
        },
        messages_forwarded: counters.forwarded,
        look_ups: look_ups(&router.session_counters()),
        dropped: dropped(router, &around.counters),
        limits: limits(router, &around.counters),
    }
}

fn look_ups(sessions: &SessionCounters) -> LookUps {
    LookUps {
        found: sessions.found,
        absent: sessions.absent,
        unanswered: sessions.unanswered,
        seconds: sessions.finding.as_secs_f64(),
    }
}

fn dropped<C: Crypto, S: Space>(router: &Router<C, S>, daemon: &Counters) -> BTreeMap<String, u64> {
    let (messages, packets) = (router.counters(), router.packet_counters());
    let (sessions, links) = (router.session_counters(), router.links());
    let handshakes = links.handshake_counters();
    named([
        ("packet-no-route", packets.no_route),
        ("packet-too-big", packets.too_big),
        ("packet-undeliverable", packets.undeliverable),
        ("packet-foreign-address", packets.bad),
        ("packet-no-neighbour", packets.refused),
        ("packet-no-session", sessions.unknown),
        ("packet-forged", sessions.forged),
        ("packet-tun-full", daemon.tun_full),
        ("train-socket-full", daemon.socket_full),
        ("message-malformed", messages.malformed),
        ("message-refused", messages.refused),
        ("message-undeliverable", messages.undelivered),
        ("message-forged", router.message_counters().forged),
        ("hello-forged", links.forged_hellos),
        ("link-handshake-unanswered", handshakes.unanswered),
        ("link-handshake-unconfirmed", handshakes.unconfirmed),
        ("session-handshake-refused", sessions.refused),
    ])
}

fn limits<C: Crypto, S: Space>(router: &Router<C, S>, daemon: &Counters) -> BTreeMap<String, u64> {
    let (messages, own) = (router.counters(), router.message_counters());
    let (sessions, links) = (router.session_counters(), router.links());
    let (handshakes, overlay) = (links.handshake_counters(), router.overlay().counters);
    named([
        ("messages-of-neighbour", messages.policed),
        ("control-budget", own.deferred),
        ("waiting-messages", own.dropped),
        ("waiting-packets", sessions.queue_full),
        ("sessions", sessions.evicted),
        ("route-length", sessions.too_long + overlay.too_long),
        ("connections", overlay.connecting),
        ("link-handshakes", handshakes.full),
        ("link-cookies", handshakes.cookies),
        ("strangers", links.ignored_strangers),
        ("events", messages.events),
        ("directory-budget", daemon.directory_budget),
        ("directory-shares", daemon.directory_shares),
        ("directory-lists", daemon.directory_lists),
        ("directory-messages", daemon.directory_messages),
        ("probes", daemon.probes),
        ("probing-clients", daemon.probing),
        ("warnings", daemon.warnings),
    ])
}

fn named<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}

/// Returns the neighbours.
pub fn peers<C: Crypto, S: Space>(
    now: Time,
    router: &Router<C, S>,
    around: &Surroundings<'_>,
) -> Vec<Peer> {
    let peer = |neighbour: &ringway_mesh::link::Neighbour<C::Keys>| {
        let index = neighbour.address.interface;
        let interface = around.interfaces.get(&index).cloned();
        Peer {
            id: neighbour.id.to_string(),
            address: neighbour.id.prefix().router(),
            link: neighbour.address.remote.to_string(),
            interface: interface.unwrap_or("peer".to_owned()),
            cost: neighbour.cost(now).map(|cost| f64::from(cost) / 256.0),
            round_trip_ms: neighbour.quality.round_trip().map(|us| f64::from(us) / 1_000.0),
            up_s: now.since(neighbour.up_since()).as_secs(),
        }
    };
    router.links().neighbours().map(|(_, neighbour)| peer(neighbour)).collect()
}

/// Returns the part of the ring that the router knows.
pub fn ring<C: Crypto, S: Space>(router: &Router<C, S>) -> RingPart {
    let contacts = router.overlay().contacts();
    let near = contacts.near();
    let contact = |contact: &ringway_mesh::routes::Contact| Contact {
        id: contact.id.to_string(),
        address: contact.id.prefix().router(),
        hops: contact.route.hops(),
        cost: f64::from(contact.cost) / 32.0,
        near: near.contains(&contact.id),
    };
    RingPart {
        id: router.id().to_string(),
        partner: router.overlay().partner().map(|id| id.to_string()),
        contacts: contacts.iter().map(contact).collect(),
    }
}
