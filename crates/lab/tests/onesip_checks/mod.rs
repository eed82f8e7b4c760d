//! What must hold where all routers are one SIP server: one function for each invariant. The first five must always hold,
//! the others when nothing has happened for a while.

use ringway_dht::record;
use ringway_directory::config::{KIND_ACCOUNT, KIND_LOCATION};
use ringway_lab::onesip::users::{DOMAIN, name};
use ringway_lab::onesip::{Call, Network, SipRouter};
use ringway_mesh::metric::Space;
use ringway_mesh::{NodeId, Ring};
use ringway_proxy::states::{Phase, States};
use ringway_sansio::{Duration, Time};
use std::collections::BTreeMap;

/// Via header fields of a request at the callee: the caller's, and those of the proxies of two routers.
const MAX_VIAS: usize = 3;
/// Requests under way for each phone of a network, anywhere.
const UNDER_WAY: usize = 12;
/// Time after which a record that was written a moment ago is at its keepers again, whoever has crashed.
const REPAIR: Duration = Duration::from_secs(60);
/// Keepers of a record that have acknowledged it.
const QUORUM: usize = 3;

/// Returns the name of a user with its domain, as the directory has it.
pub(crate) fn full_name(user: u32) -> String {
    format!("{}@{DOMAIN}", name(user))
}

fn nodes(network: &Network) -> impl Iterator<Item = (u32, &SipRouter)> {
    network.graph.numbered()
}

/// Tables have at most the entries that so few users can cause.
pub(crate) fn state_is_bounded(network: &Network) -> Result<(), String> {
    let max = UNDER_WAY * network.roster().len() as usize;
    for (number, node) in nodes(network) {
        let (tables, counts) = (node.core().tables(), node.exchange().counts());
        let records = 2 * network.graph.len() as usize * network.roster().len() as usize;
        let state = [
            ("transactions", tables.server_transactions + tables.client_transactions, 4 * max),
            ("parked requests", tables.parked, max),
            ("registrations that wait", counts.pending, max),
            ("questions", counts.questions, max),
            ("requests of phones", node.phones().under_way(), max),
            ("users", counts.present, network.roster().len() as usize + 1),
            ("records", node.directory().dht().table().len(), records),
        ];
        if let Some((what, has, max)) = state.into_iter().find(|(_, has, max)| has > max) {
            return Err(format!("node {number} has {has} {what}, more than {max}"));
        }
    }
    Ok(())
}

/// No request passes more than two proxies, and no proxy has seen one twice.
pub(crate) fn requests_do_not_loop(network: &Network) -> Result<(), String> {
    for (number, node) in nodes(network) {
        let (vias, looped) = (node.phones().max_vias(), node.core().stats().looped);
        if vias > MAX_VIAS || looped > 0 {
            return Err(format!("node {number}: {vias} Via header fields, {looped} loops"));
        }
    }
    Ok(())
}

/// A phone whose user has gone is not called after its registration has expired.
pub(crate) fn no_call_reaches_a_stale_contact(network: &mut Network) -> Result<(), String> {
    for number in 0..network.graph.len() {
        let mut strays = Vec::new();
        network.act(number, |node, now| {
            strays = node.with_phones(now, |phones| phones.take_strays());
        });
        if let Some(stray) = strays.first() {
            return Err(format!("node {number}: {stray:?}"));
        }
    }
    Ok(())
}

/// The registrations that phones know to be acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    /// By user and router: since when it has been acknowledged.
    since: BTreeMap<(u32, u32), Time>,
}

impl Acknowledged {
    /// As long as its router runs, and no more than two others have failed at about the same time, the record of an
    /// acknowledged registration is kept by somebody.
    pub(crate) fn are_kept(&mut self, network: &Network, crashes: &[Time]) -> Result<(), String> {
        let now = network.graph.now();
        let present: BTreeMap<(u32, u32), Time> = nodes(network)
            .flat_map(|(number, node)| {
                let local = network.graph.local_time(number);
                let phones = node.phones();
                let is_kept = move |user: &u32| phones.registered(local, *user).is_some();
                phones.users().filter(is_kept).map(move |user| ((user, number), now))
            })
            .collect();
        self.since.retain(|which, _| present.contains_key(which));
        for (which, at) in present {
            self.since.entry(which).or_insert(at);
        }
        let recent = crashes.iter().filter(|&&at| at <= now && now.since(at) < REPAIR).count();
        if recent > 2 {
            return Ok(());
        }
        for &(user, router) in self.since.keys() {
            if copies(network, KIND_LOCATION, user, router) == 0 {
                return Err(format!("nobody keeps that u{user} is registered at node {router}"));
            }
        }
        Ok(())
    }
}

/// Returns the users whose lamps are at a router.
pub(crate) fn watched_at(network: &Network, router: u32) -> Vec<u32> {
    let users = network.roster().len();
    [router, 2 * router + 1, router + 7].map(|user| user % users).to_vec()
}

/// Has every router watch its users, if it does not yet.
pub(crate) fn watch(network: &mut Network) {
    for router in 0..network.graph.len() {
        let watched = watched_at(network, router);
        network.act(router, |node, now| {
            let aors = watched.iter().map(|&user| format!("sip:{}", full_name(user)));
            node.with_states(now, |states| aors.for_each(|aor| states.watch(aor.as_bytes(), 0)));
        });
    }
}

/// Every router knows which of the users whom it watches are registered, wherever that is, and that those in `lit` are in a
/// call, and no others.
pub(crate) fn lamps_show_what_is(network: &mut Network, lit: &[u32]) -> Result<(), String> {
    for router in 0..network.graph.len() {
        for user in watched_at(network, router) {
            let location = network.location(user);
            let is_here = location == Some(router);
            let mut shown = None;
            network.act(router, |node, now| {
                let aor = format!("sip:{}", full_name(user));
                let all = |states: &States| states.all(now, aor.as_bytes(), is_here).0;
                shown = Some(node.with_states(now, all));
            });
            let Some(shown) = shown else { continue };
            let confirmed = shown.dialogs.iter().filter(|of| of.phase == Phase::Confirmed).count();
            let expected = (location.is_some(), usize::from(lit.contains(&user)));
            if (shown.is_registered, shown.dialogs.len()) != expected || confirmed != expected.1 {
                let what = format!("u{user}, who is at node {location:?}, is shown as {shown:?}");
                return Err(format!("node {router}: {what}"));
            }
        }
    }
    Ok(())
}

/// Returns how many routers keep the record that a router has signed about a user.
fn copies(network: &Network, kind: u8, user: u32, router: u32) -> usize {
    let name = full_name(user);
    let Some(signer) = network.graph.node(router).map(|node| node.directory().id()) else {
        return 0;
    };
    let key = record::key(kind, name.as_bytes());
    let keeps = |(number, node): &(u32, &SipRouter)| {
        let now = network.graph.local_time(*number);
        let entries = node.directory().dht().table().of_name(key, kind, name.as_bytes());
        let is_it = |entry: &&ringway_dht::table::Entry| {
            entry.signer == signer && !entry.record.is_withdrawal() && entry.rest(now) > 0
        };
        entries.into_iter().any(|entry| is_it(&entry))
    };
    nodes(network).filter(keeps).count()
}

/// From wherever a message for the key of a name is sent, it arrives at the same router.
pub(crate) fn names_have_one_owner(network: &Network) -> Result<(), String> {
    let ids: BTreeMap<NodeId, &SipRouter> =
        nodes(network).map(|(_, node)| (node.directory().id(), node)).collect();
    for user in 0..network.roster().len() {
        for kind in [KIND_ACCOUNT, KIND_LOCATION] {
            let key = record::key(kind, full_name(user).as_bytes());
            let owners: BTreeMap<NodeId, u32> = nodes(network)
                .filter_map(|(number, node)| Some((owner(&ids, node, key)?, number)))
                .collect();
            if owners.len() != 1 {
                return Err(format!("u{user}: the owner of its key {key} is one of {owners:?}"));
            }
        }
    }
    Ok(())
}

/// Returns where the greedy way from a router to a key ends.
fn owner(ids: &BTreeMap<NodeId, &SipRouter>, from: &SipRouter, key: NodeId) -> Option<NodeId> {
    let (mut at, mut best) = (from.directory().id(), Ring::distance(from.directory().id(), key));
    while let Some((_, distance)) = ids.get(&at)?.mesh().router().overlay().next(key, best) {
        at = ids.keys().copied().find(|&id| Ring::distance(id, key) == distance)?;
        best = distance;
    }
    Some(at)
}

/// Every user whose router runs is registered, and the record is at a quorum of keepers.
pub(crate) fn everybody_is_registered(network: &Network) -> Result<(), String> {
    for user in 0..network.roster().len() {
        let Some(location) = network.location(user) else { continue };
        let Some(node) = network.graph.node(location) else { continue };
        let now = network.graph.local_time(location);
        if node.phones().registered(now, user).is_none() {
            return Err(format!("u{user} is not registered at node {location}"));
        }
        let copies = copies(network, KIND_LOCATION, user, location);
        if copies < QUORUM {
            return Err(format!("{copies} routers keep that u{user} is at node {location}"));
        }
    }
    Ok(())
}

/// A name that two routers have added is that of one of them, for everybody who did not know it before; the other user has
/// another name.
pub(crate) fn names_are_unique(
    network: &mut Network,
    contested: &str,
    [first, second]: [u32; 2],
) -> Result<(), String> {
    let id = |network: &Network, number| {
        network.graph.node(number).map(|node| node.directory().id()).unwrap_or_default()
    };
    let (first_id, second_id) = (id(network, first), id(network, second));
    let asker = (0..network.graph.len()).find(|number| ![first, second].contains(number));
    let found = routers(network, asker.unwrap_or_default(), contested)?;
    let (winner, loser) = match found == [first_id.prefix().router()] {
        true => (first_id, second_id),
        false => (second_id, first_id),
    };
    let marked = ringway_directory::statement::marked(contested, loser);
    for (name, home) in [(contested, winner), (&*marked, loser)] {
        for number in (0..network.graph.len()).filter(|number| ![first, second].contains(number)) {
            let found = routers(network, number, name)?;
            if found != [home.prefix().router()] {
                let wanted = home.prefix().router();
                return Err(format!("node {number}: {name} is at {found:?}, not {wanted}"));
            }
        }
    }
    Ok(())
}

/// Returns the routers at which a name is registered, as one router finds out.
fn routers(
    network: &mut Network,
    number: u32,
    name: &str,
) -> Result<Vec<std::net::Ipv6Addr>, String> {
    for _ in 0..3 {
        network.act(number, |node, now| {
            node.command(now, ringway_directory::Command::Locate { name: name.into() });
        });
        for _ in 0..12 {
            network.run(Duration::from_millis(500)).map_err(|error| error.to_string())?;
            let mut found = Vec::new();
            let now = network.graph.local_time(number);
            let visit = &mut |router, _| found.push(router);
            let node = network.graph.node(number);
            if node.and_then(|node| node.exchange().visit(name, now, visit)).is_some() {
                return Ok(found);
            }
        }
    }
    Err(format!("node {number} does not find out where {name} is"))
}

/// All calls rang within a time, and were answered and ended.
pub(crate) fn everybody_was_reached(
    calls: &[(u32, Call)],
    begun: usize,
    within: Duration,
) -> Result<(), String> {
    if calls.len() != begun {
        return Err(format!("{} of {begun} calls have ended", calls.len()));
    }
    for (router, call) in calls {
        // A 180 is sent once.
        let rang = call.ringing.or(call.answered).map(|at| at.since(call.begun));
        match (rang, call.ended) {
            (Some(rang), Some(_)) if rang <= within => {}
            _ => return Err(format!("from node {router} after {rang:?}: {call:?}")),
        }
    }
    Ok(())
}

/// When all calls have ended, nothing is left of them.
pub(crate) fn nothing_is_left(network: &Network) -> Result<(), String> {
    for (number, node) in nodes(network) {
        let (tables, counts) = (node.core().tables(), node.exchange().counts());
        let left = [
            ("server transactions", tables.server_transactions),
            ("client transactions", tables.client_transactions),
            ("response contexts", tables.contexts),
            ("parked requests", tables.parked),
            ("pending commits", tables.pending_commits),
            ("octets of requests", tables.kept_octets),
            ("registrations that wait", counts.pending),
            ("questions", counts.questions),
            ("requests of phones", node.phones().under_way()),
        ];
        if let Some((what, left)) = left.into_iter().find(|(_, left)| *left > 0) {
            return Err(format!("node {number} has {left} {what} left"));
        }
    }
    Ok(())
}
