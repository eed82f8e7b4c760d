//! What must hold in a mesh: one function for each invariant. The first four must always hold, the others when nothing
//! has happened for a while.

use ringway_mesh::Ring;
use ringway_mesh::config::{CONTROL_BURST, CONTROL_RATE, Limits};
use ringway_mesh::metric::Space;
use ringway_mesh::wire::Slot;
use ringway_sansio::{Random, SplitMix};
use ringway_sim::graph::data::Outcome;
use ringway_sim::graph::{Graph, Member};
use std::collections::{BTreeMap, BTreeSet};

/// Octets that a router may have allocated.
const MAX_HEAP: usize = 200_000;
/// Walks over the ring in one look.
const WALKS: usize = 20;
/// Octets a second that a router sends without a budget: HELLOs, probes, answers, and what it forwards of others.
const UNPAID: u64 = 4_096;
/// Hops of the mean route above which the budget does not grow in these graphs.
const MEAN_HOPS: u64 = 12;

fn honest(graph: &Graph<Member>) -> impl Iterator<Item = (u32, &Member)> {
    graph.numbered().filter(|(_, member)| !member.is_hostile())
}

/// Tables have at most the entries that they may have, and routers the memory.
pub(crate) fn state_is_bounded(graph: &Graph<Member>, limits: &Limits) -> Result<(), String> {
    for (number, member) in honest(graph) {
        let router = member.router();
        let state = [
            ("contacts", router.overlay().contacts().ids().len(), limits.contacts),
            ("sessions", router.sessions(), limits.sessions),
            ("neighbours", router.links().neighbours().count(), limits.neighbours),
            ("octets of heap", router.heap_bytes(), MAX_HEAP),
        ];
        for (what, has, max) in state {
            if has > max {
                return Err(format!("node {number} at {:?}: {has} {what}, not {max}", graph.now()));
            }
        }
    }
    Ok(())
}

/// A route of one link leads to the neighbour behind it: such a contact is lost with its link only.
pub(crate) fn routes_of_one_link_lead_to_neighbours(graph: &Graph<Member>) -> Result<(), String> {
    for (number, member) in honest(graph) {
        let router = member.router();
        let behind = |slot| router.links().neighbour(slot).map(|neighbour| neighbour.id);
        let mut direct = router.overlay().contacts().iter().filter(|known| known.is_neighbour());
        if let Some(wrong) = direct.find(|known| behind(known.route.first) != Some(known.id)) {
            let (id, now) = (wrong.id, graph.now());
            return Err(format!("node {number} at {now:?}: {id:?} is no neighbour by its route"));
        }
    }
    Ok(())
}

/// Returns the node behind a slot, and its slot back, if its link to this one is up.
fn across(graph: &Graph<Member>, at: u32, slot: Slot) -> Option<(u32, Slot)> {
    let id = graph.node(at)?.router().links().neighbour(slot)?.id;
    let own = graph.node(at)?.id();
    let peer = graph
        .adjacency()
        .neighbours(at)
        .find(|peer| graph.node(*peer).is_some_and(|member| member.id() == id))?;
    let up = graph.node(peer)?.router().links().up();
    Some((peer, up.iter().find(|neighbour| neighbour.id == own)?.slot))
}

/// A message that goes by the ring comes nearer with each contact, and no contact's route visits a router twice within
/// as many links as there are routers: so nothing goes round.
pub(crate) fn nothing_loops(graph: &Graph<Member>, random: &mut SplitMix) -> Result<(), String> {
    let running: Vec<u32> = honest(graph).map(|(number, _)| number).collect();
    let mut draw = || running[(random.next_u64() % running.len() as u64) as usize];
    for _ in 0..if running.is_empty() { 0 } else { WALKS } {
        let (from, to) = (draw(), draw());
        let Some(target) = graph.node(to).map(Member::id) else { continue };
        let (mut at, mut best, mut ends) = (from, u64::MAX, BTreeSet::from([from]));
        while at != to {
            let next =
                graph.node(at).and_then(|member| member.router().overlay().next(target, best));
            let Some((mut route, distance)) = next else { break };
            if distance >= best {
                return Err(format!("from {from} to {to}: node {at} goes on to a farther router"));
            }
            best = distance;
            let (mut slot, mut position, mut hops) = (route.first, 0, 0);
            loop {
                let Some((peer, entered)) = across(graph, at, slot) else { return Ok(()) };
                (at, hops) = (peer, hops + 1);
                if hops > graph.len() {
                    return Err(format!("from {from} to {to}: a route of {hops} links goes round"));
                }
                let Ok(mut cursor) = route.labels.cursor(position, false) else { return Ok(()) };
                if cursor.is_at_end() {
                    break;
                }
                let Ok(next) = cursor.swap(entered) else { return Ok(()) };
                (slot, position) = (next, cursor.at());
            }
            // One that is not where it should be returns, and goes another way.
            let is_there = |member: &Member| Ring::distance(member.id(), target) == best;
            if !graph.node(at).is_some_and(is_there) {
                break;
            }
            if !ends.insert(at) {
                return Err(format!("from {from} to {to}: routes end twice at node {at}"));
            }
        }
    }
    Ok(())
}

/// What routers have sent, look by look.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    seconds: u64,
    before: BTreeMap<u32, u64>,
}

impl Budget {
    /// The octets of all routers over all links grow by no more than what their budgets allow, and what is not paid for.
    pub(crate) fn is_held(&mut self, graph: &Graph<Member>) -> Result<(), String> {
        let counters = |node: u32| graph.counters(node).map_or(0, |counters| counters.sent_bytes);
        let sent: BTreeMap<u32, u64> =
            (0..graph.len()).map(|node| (node, counters(node))).collect();
        let seconds = graph.now().as_secs();
        let all: u64 = sent.values().sum();
        let routers = u64::from(graph.len());
        let burst = u64::from(CONTROL_BURST) * MEAN_HOPS;
        let allowed = routers * (burst + (u64::from(CONTROL_RATE) + UNPAID) * (seconds + 1));
        let recent = all - self.before.values().sum::<u64>();
        let rate = recent / routers / (seconds - self.seconds).max(1);
        (self.before, self.seconds) = (sent, seconds);
        match all <= allowed {
            true => Ok(()),
            false => Err(format!(
                "{all} octets were sent by second {seconds}, not {allowed}; at last {rate} a second each"
            )),
        }
    }
}

/// Returns the routers in the order of their ids.
fn line(graph: &Graph<Member>) -> Vec<&Member> {
    let mut members: Vec<&Member> = graph.nodes().collect();
    members.sort_unstable_by_key(|member| member.id());
    members
}

/// Every router knows the ones next to it.
pub(crate) fn there_is_one_ring(graph: &Graph<Member>) -> Result<(), String> {
    let line = line(graph);
    let misses =
        |one: &Member, other: &Member| one.router().overlay().contacts().get(other.id()).is_none();
    let wrong = line
        .windows(2)
        .map(|pair| usize::from(misses(pair[0], pair[1])) + usize::from(misses(pair[1], pair[0])));
    match wrong.sum() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} routers do not know the one next to them")),
    }
}

/// Who follows the nearest contacts upwards passes every router once, and the first and the last know each other.
pub(crate) fn it_winds_once(graph: &Graph<Member>) -> Result<(), String> {
    let line = line(graph);
    let [Some(first), Some(last)] = [line.first(), line.last()] else { return Ok(()) };
    let (mut at, mut passed) = (first.id(), 1);
    while let Some(member) = line.iter().find(|member| member.id() == at)
        && let Some(&next) = member.router().overlay().contacts().ids().iter().find(|id| **id > at)
    {
        (at, passed) = (next, passed + 1);
    }
    if (at, passed) != (last.id(), line.len()) {
        return Err(format!("the ring passes {passed} of {} routers", line.len()));
    }
    let ends = line.iter().filter(|member| member.router().overlay().partner().is_some()).count();
    let partners = [first, last].map(|end| end.router().overlay().partner());
    if line.len() > 1 && (ends != 2 || partners != [Some(last.id()), Some(first.id())]) {
        let (first, last) = (first.id(), last.id());
        return Err(format!(
            "{ends} ends of the line know {partners:?}, not {last:?} and {first:?}"
        ));
    }
    Ok(())
}

/// Every packet arrives, and none twice.
pub(crate) fn everything_arrives_once(outcome: &Outcome) -> Result<(), String> {
    let Outcome { sent, delivered, duplicates, .. } = *outcome;
    match (delivered, duplicates) {
        (delivered, 0) if delivered == sent => Ok(()),
        _ => Err(format!("{delivered} of {sent} packets arrived, and {duplicates} again")),
    }
}
