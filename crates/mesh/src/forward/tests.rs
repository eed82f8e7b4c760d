use super::message::{Here, Verdict, forward};
use super::*;
use crate::config::MAX_HOPS;
use crate::id::NodeId;
use crate::routes::Detours;
use crate::wire::labels::tests::slot;
use crate::wire::routed::tests::routed;
use crate::wire::{DataView, Labels, Message, MessageId, Neighbour, Record, Route, Routed};
use proptest::prelude::*;

/// Routers and links for label walks. Router n has id n, and what slots its neighbours have.
struct Net(Vec<Vec<(usize, Slot)>>);

impl Net {
    /// A line of routers. Slots are of all three classes.
    fn line(routers: usize) -> Net {
        let slots = |router: usize| match router {
            0 => vec![(1, Slot(3))],
            _ if router == routers - 1 => vec![(router - 1, Slot(70))],
            1 => vec![(0, Slot(400)), (2, Slot(7))],
            2 => vec![(1, Slot(14)), (3, Slot(15))],
            _ => vec![(router - 1, Slot(0)), (router + 1, Slot(9))],
        };
        Net((0..routers).map(slots).collect())
    }

    fn slot(&self, from: usize, to: usize) -> Slot {
        self.0[from].iter().find(|link| link.0 == to).unwrap().1
    }

    fn peer(&self, from: usize, slot: Slot) -> Option<usize> {
        self.0[from].iter().find(|link| link.1 == slot).map(|link| link.0)
    }

    fn neighbours(&self, router: usize) -> Vec<Neighbour> {
        let neighbour = |&(peer, slot): &(usize, Slot)| Neighbour {
            id: NodeId::new(peer as u64),
            slot,
            back: Some(self.slot(peer, router)),
        };
        self.0[router].iter().map(neighbour).collect()
    }

    /// The route along `path`.
    fn route(&self, path: &[usize]) -> Route {
        let mut route = Route::direct(self.slot(path[0], path[1]));
        for hop in path.windows(3) {
            let (before, after) = (self.slot(hop[1], hop[0]), self.slot(hop[1], hop[2]));
            route.labels.push(after, before).unwrap();
        }
        route
    }

    /// Sends a message from `from` by `slot`. Returns the routers it came through and what became of it at the last.
    fn send(
        &self,
        message: &mut Routed<'_>,
        from: usize,
        slot: Slot,
        mut onward: impl FnMut(usize) -> Option<(Route, u64)>,
    ) -> (Vec<usize>, Slot, Verdict) {
        let (mut at, mut out, mut path) = (from, slot, vec![from]);
        loop {
            let next = self.peer(at, out).unwrap();
            let entered = self.slot(next, at);
            path.push(next);
            let neighbours = self.neighbours(next);
            let here = Here {
                id: NodeId::new(next as u64),
                neighbours: &neighbours,
                detours: &Detours::default(),
                closes: false,
                distance: |node, _| if node.raw() == 2 { 6 } else { 5 },
            };
            match forward(message, here, entered, |_| onward(next)) {
                Verdict::Out(slot) => (at, out) = (next, slot),
                verdict => return (path, entered, verdict),
            }
        }
    }
}

const ID: MessageId = MessageId(77);

fn request(origin: u64, target: u64, route: &Route) -> Routed<'static> {
    Routed::new(Message::Connect, ID, NodeId::new(origin), NodeId::new(target), route, &[])
}

/// There and back over five routers: the answer goes by the record, and what arrives with it is the route there.
#[test]
fn a_label_walk_over_five_routers_turns_around() {
    let net = Net::line(5);
    let route = net.route(&[0, 1, 2, 3, 4]);
    // Wide beside slot 400, long beside slot 15, short.
    assert_eq!((route.hops(), route.labels.nibbles()), (4, 8 + 4 + 1));
    let mut message = request(0, 4, &route);
    let (path, entered, verdict) = net.send(&mut message, 0, route.first, |_| None);
    assert_eq!(path, [0, 1, 2, 3, 4]);
    assert_eq!(message.hop_limit, MAX_HOPS - 3);

    // What was consumed is the way back as well as the record.
    let Verdict::Arrived { back: Some(back) } = verdict else { panic!("{verdict:?}") };
    assert_eq!((back.first, entered), (Slot(70), Slot(70)));
    assert_eq!(back, net.route(&[4, 3, 2, 1, 0]));
    assert_eq!(message.labels.reversed(), back.labels);

    let mut answer = request(4, 0, &Route::direct(Slot(0)));
    answer.labels = message.record.unwrap().labels().clone();
    (answer.flags.reverse, answer.at, answer.record) = (true, answer.labels.nibbles(), None);
    let (path, entered, verdict) = net.send(&mut answer, 4, back.first, |_| None);
    assert_eq!((path, verdict), (vec![4, 3, 2, 1, 0], Verdict::Arrived { back: None }));
    assert_eq!(answer.route_there(entered), Some(route));
}

/// At router 2 the next link is gone. The labels are as they were, so turning around leads home.
#[test]
fn an_error_goes_back_by_the_labels_of_the_packet() {
    let mut net = Net::line(5);
    let route = net.route(&[0, 1, 2, 3, 4]);
    net.0[2].retain(|link| link.0 != 3);
    let mut message = request(0, 4, &route);
    let (path, entered, verdict) = net.send(&mut message, 0, route.first, |_| None);
    assert_eq!((path, verdict), (vec![0, 1, 2], Verdict::Error(Code::LinkDown)));
    message.flags.reverse = true;
    message.record = None;
    let (path, _, verdict) = net.send(&mut message, 2, entered, |_| None);
    assert_eq!((path, verdict), (vec![2, 1, 0], Verdict::Arrived { back: None }));
    // Two's label was not consumed, and the ones before it lead there again.
    assert_eq!(message.labels, route.labels);
}

/// A packet that has come by a detour enters by a slot for which the label has no room: it becomes a longer one.
#[test]
fn a_label_without_room_for_the_way_back_is_widened() {
    let net = Net::line(5);
    let mut labels = Labels::default();
    labels.push(Slot(7), Slot(7)).unwrap(); // A short label where the packet comes in by slot 400.
    let route = Route { first: Slot(3), labels };
    let mut message = request(0, 2, &route);
    let (path, _, verdict) = net.send(&mut message, 0, Slot(3), |_| None);
    assert_eq!(path, [0, 1, 2]);
    assert_eq!(verdict, Verdict::Arrived { back: Some(net.route(&[2, 1, 0])) });
    assert_eq!(message.labels, net.route(&[2, 1, 0]).labels);
}

/// 0 - 1 - 2 - 3 - 4: the route to 2 ends there, 2 goes on to 4. The record has the whole way, the labels the part behind 2.
#[test]
fn a_greedy_message_goes_on_from_the_end_of_its_labels() {
    let net = Net::line(5);
    let onward = |at: usize| (at == 2).then(|| (net.route(&[2, 3, 4]), 5));
    let mut message = request(0, 4, &net.route(&[0, 1, 2]));
    message.flags.greedy = true;
    message.best = 6;
    let (path, _, verdict) = net.send(&mut message, 0, Slot(3), onward);
    assert_eq!(path, [0, 1, 2, 3, 4]);
    assert_eq!(verdict, Verdict::Arrived { back: Some(net.route(&[4, 3, 2, 1, 0])) });
    // An error from there would end at 2, whose contact it is about.
    assert_eq!(message.labels.reversed(), net.route(&[4, 3, 2]).labels);
    assert_eq!((message.best, message.hop_limit), (5, MAX_HOPS - 1));

    // No progress, no step.
    let no_nearer = |at: usize| (at == 2).then(|| (net.route(&[2, 3, 4]), 6));
    let mut message = request(0, 4, &net.route(&[0, 1, 2]));
    message.flags.greedy = true;
    message.best = 6;
    let (path, _, verdict) = net.send(&mut message, 0, Slot(3), no_nearer);
    assert_eq!(
        (path, verdict),
        (vec![0, 1, 2], Verdict::Arrived { back: Some(net.route(&[2, 1, 0])) })
    );
}

/// Whoever is at the end of a route that should lead to another router returns the message to the router that chose the
/// route, which sends it by another. The record then has the way as if nothing had happened.
#[test]
fn a_misled_message_returns_and_goes_another_way() {
    let mut net = Net::line(5);
    net.0[0].push((4, Slot(9)));
    net.0[4].push((0, Slot(11)));
    let route = net.route(&[0, 1, 2]);
    let mut message = request(0, 4, &route);
    message.flags.greedy = true;
    message.best = 7;
    let onward = |at: usize| match at {
        2 => Some((net.route(&[2, 3, 4]), 5)),
        0 => Some((net.route(&[0, 4]), 4)),
        _ => None,
    };
    let (path, entered, verdict) = net.send(&mut message, 0, Slot(3), onward);
    assert_eq!((path, verdict), (vec![0, 1, 2, 1, 0], Verdict::Returned));
    assert_eq!(Route { first: entered, labels: message.begin_anew() }, route);
    let direct = net.route(&[0, 4]);
    let record = message.record.as_mut().unwrap();
    record.pass(ID, NodeId::new(0), &net.neighbours(0), entered, direct.first).unwrap();
    message.go_on(&direct);
    let (path, _, verdict) = net.send(&mut message, 0, direct.first, |_| None);
    assert_eq!(path, [0, 4]);
    assert_eq!(verdict, Verdict::Arrived { back: Some(net.route(&[4, 0])) });
}

/// So does one that comes to a link that is down.
#[test]
fn a_message_returns_from_a_dead_link() {
    let mut net = Net::line(5);
    let route = net.route(&[0, 1, 2, 3, 4]);
    net.0[2].retain(|&(peer, _)| peer != 3);
    let mut message = request(0, 9, &route);
    message.flags.greedy = true;
    message.best = 5;
    let (path, entered, verdict) = net.send(&mut message, 0, route.first, |_| None);
    assert_eq!((path, verdict), (vec![0, 1, 2, 1, 0], Verdict::Returned));
    assert_eq!(Route { first: entered, labels: message.begin_anew() }, route);
}

/// Routers 0 to 4 in a line and 1 beside 3: what went by way of 2 is answered without it.
#[test]
fn the_answer_takes_the_short_cut() {
    let mut net = Net::line(5);
    net.0[1].push((3, Slot(8)));
    net.0[3].push((1, Slot(500)));
    let route = net.route(&[0, 1, 2, 3, 4]);
    let mut message = request(0, 4, &route);
    let (_, _, verdict) = net.send(&mut message, 0, route.first, |_| None);
    assert_eq!(verdict, Verdict::Arrived { back: Some(net.route(&[4, 3, 1, 0])) });
}

/// Two routes that are joined go past router 2 and back. The request ends there the first time.
#[test]
fn a_request_ends_where_it_first_comes_to_its_target() {
    let net = Net::line(5);
    let joined = net.route(&[0, 1, 2, 3, 4, 3, 2]);
    let mut message = request(0, 2, &joined);
    let (path, _, verdict) = net.send(&mut message, 0, joined.first, |_| None);
    assert_eq!(path, [0, 1, 2]);
    assert_eq!(verdict, Verdict::Arrived { back: Some(net.route(&[2, 1, 0])) });
    // What is not recorded has no other way back than its labels.
    let mut answer = request(0, 2, &joined);
    answer.record = None;
    let (path, ..) = net.send(&mut answer, 0, joined.first, |_| None);
    assert_eq!(path, [0, 1, 2, 3, 4, 3, 2]);
}

/// The loop checker: whatever labels a hostile router writes, a packet is dropped within its hop limit.
#[test]
fn a_route_that_loops_ends() {
    let net = Net::line(4);
    let mut labels = Labels::default();
    for _ in 0..100 {
        labels.push(net.slot(2, 1), Slot(14)).unwrap();
        labels.push(net.slot(1, 2), Slot(400)).unwrap();
    }
    let mut message = request(1, 9, &Route { first: Slot(7), labels });
    message.hop_limit = 40;
    message.record = None;
    let (path, _, verdict) = net.send(&mut message, 1, Slot(7), |_| None);
    assert_eq!((path.len(), verdict), (42, Verdict::Error(Code::HopLimit)));
}

/// A hostile source has a data packet go round a ring of four for as long as there are labels. It ends at the last one, and
/// no router sends it back to where it came from.
#[test]
fn a_data_packet_goes_round_no_more_often_than_it_has_labels() {
    let link = |to: usize, slot: u16| (to, Slot(slot));
    let ring = |at: usize| vec![link((at + 1) % 4, 0), link((at + 3) % 4, 1)];
    let net = Net((0..4).map(ring).collect());
    let travel = |out: u16| {
        let mut labels = Labels::default();
        while labels.push(Slot(out), Slot(0)).is_ok() {}
        let mut bytes = Vec::new();
        DataView::begin(&labels, u8::MAX, (9, 7), &mut bytes);
        bytes.extend([0; 16]);
        let (mut at, mut slot, mut hops) = (0, Slot(0), 0);
        loop {
            let next = net.peer(at, slot).unwrap();
            let entered = net.slot(next, at);
            hops += 1;
            let mut data = DataView::parse(&mut bytes).unwrap();
            let (mut cursor, mut hop_limit) = data.cursor().unwrap();
            let taken = step(&mut cursor, &mut hop_limit, entered, |slot| slot != entered);
            let position = cursor.at();
            data.set_position(position, hop_limit);
            match taken {
                Step::Out(out) => (at, slot) = (next, out),
                end => return (hops, end),
            }
        }
    };
    assert_eq!(travel(0), (MAX_HOPS, Step::End));
    assert_eq!(travel(1), (1, Step::Error(Code::LinkDown)));
}

proptest! {
    /// Along any path of a random network: the record leads back from the last router to the first, over links that
    /// exist, without visiting a router twice, and by no more hops than the path.
    #[test]
    fn a_record_leads_back_without_detours(
        walk in proptest::collection::vec(0usize..12, 2..30),
        slots in proptest::collection::vec(slot(), 12 * 12),
    ) {
        let mut walk = walk;
        walk.dedup();
        prop_assume!(walk.len() > 1);
        // Links where the walk goes; slots of a router are distinct.
        let mut net = Net(vec![Vec::new(); 12]);
        for hop in walk.windows(2) {
            for (from, to) in [(hop[0], hop[1]), (hop[1], hop[0])] {
                if net.peer_slot(from, to).is_none() {
                    let mut slot = slots[12 * from + to];
                    while net.peer(from, slot).is_some() {
                        slot = Slot(slot.0.wrapping_add(1));
                    }
                    net.0[from].push((to, slot));
                }
            }
        }
        let route = net.route(&walk);
        let (first, last) = (walk[0], walk[walk.len() - 1]);
        // For nobody, so that it does not end where the walk comes to its last router for the first time.
        let mut message = request(first as u64, 99, &route);
        let (path, _, verdict) = net.send(&mut message, first, route.first, |_| None);
        prop_assert_eq!(&path, &walk);
        let Verdict::Arrived { back } = verdict else { panic!("{verdict:?}") };
        prop_assert_eq!(back.is_none(), first == last);
        if let Some(back) = back {
            prop_assert!(usize::from(back.hops()) < walk.len());
            let mut answer = request(last as u64, first as u64, &back);
            let (mut path, _, verdict) = net.send(&mut answer, last, back.first, |_| None);
            prop_assert!(matches!(verdict, Verdict::Arrived { .. }), "{:?}", verdict);
            prop_assert_eq!(*path.last().unwrap(), first);
            let hops = path.len();
            path.sort_unstable();
            path.dedup();
            prop_assert_eq!(path.len(), hops);
        }
    }

    /// Hostile labels, position and record: every packet ends within its hop limit, and memory stays bounded.
    #[test]
    fn hostile_messages_end(
        nibbles in proptest::collection::vec(any::<u8>(), 0..60),
        at in 0u16..120,
        reverse: bool,
        greedy: bool,
    ) {
        let net = Net::line(6);
        let Ok(labels) = Labels::parse(&nibbles, 2 * nibbles.len()) else { return Ok(()) };
        let mut message = routed(labels, Some(Record::new(NodeId::new(3).tag(ID.0))), &[]);
        (message.at, message.flags.reverse, message.flags.greedy) = (at, reverse, greedy);
        message.best = 20;
        let mut best = 20;
        let (path, ..) = net.send(&mut message, 0, Slot(3), |router| {
            best = u64::checked_sub(best, 1)?;
            Some((Route::direct(net.0[router][0].1), best))
        });
        prop_assert!(path.len() <= 2 + 21 * usize::from(MAX_HOPS));
        prop_assert!(message.labels.nibbles() <= 1_022);
    }
}

impl Net {
    fn peer_slot(&self, from: usize, to: usize) -> Option<Slot> {
        self.0[from].iter().find(|link| link.0 == to).map(|link| link.1)
    }
}
