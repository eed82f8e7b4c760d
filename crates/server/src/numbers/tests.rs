//! Several routers' threads, with messages that are carried by the test, and real stores.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use ringway_phonebook::numbers::wire::Packet;
use ringway_sansio::Transport;

use super::*;
use crate::config::StoreKind;
use crate::mesh::Exchange;
use crate::mesh::exchange::Channels;
use crate::store::tests::on_disk;
use crate::store::{Hashes, OfflineStore, Others, UserStore};

/// Time limit for an expected event, sufficient on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// When a network is created if nobody is heard of: while a test runs, or not.
const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_secs(600);

struct Router {
    id: NodeId,
    store: Arc<Store>,
    numbers: Arc<ShortNumbers>,
    commanded: mpsc::Receiver<Command>,
    /// The numbers that the mesh knows.
    stated: BTreeMap<Box<str>, Box<str>>,
}

impl Router {
    /// A router that creates a network after this time.
    fn start(id: u64, settle: Duration, store: impl FnOnce(Arc<Exchange>) -> Store) -> Router {
        let (commands, commanded) = mpsc::channel(1_024);
        let clock = Clock::new();
        let exchange = Arc::new(Exchange::new(
            "mesh",
            Transport::Udp,
            Channels::new("mesh", clock, commands.clone()),
        ));
        let (store, id) = (Arc::new(store(exchange)), NodeId::new(id));
        let parts = Parts {
            config: Config { settle, ..Config::default() },
            id,
            domain: "mesh".into(),
            store: store.clone(),
            commands: commands.clone(),
            lists: Arc::new(Lists::new(commands)),
            inbox: Arc::default(),
            clock,
        };
        let numbers = ShortNumbers::start(parts).unwrap();
        store.set_numbers(numbers.clone());
        Router { id, store, numbers, commanded, stated: BTreeMap::new() }
    }

    fn add(&self, user: &str) {
        self.store.set_user(user, "mesh", Hashes::new(user, "mesh", "p")).unwrap();
    }

    fn number(&self, user: &str) -> Option<Box<str>> {
        self.store.number_of(user, "mesh")
    }
}

fn open(kind: &StoreKind, exchange: Arc<Exchange>) -> Store {
    let (now, hour) = (Clock::new().now(), Duration::from_secs(3_600));
    Store::open(kind, now, hour, &mut |_| None, Others::Mesh(exchange)).unwrap()
}

fn in_memory(exchange: Arc<Exchange>) -> Store {
    open(&StoreKind::Memory, exchange)
}

/// Routers that are beside each other.
fn meet(routers: &[Router]) {
    let ids: Vec<NodeId> = routers.iter().map(|router| router.id).collect();
    routers.iter().for_each(|router| router.numbers.inbox.neighbours(ids.clone()));
}

/// Carries messages until it is over. Returns the packets.
fn carry(
    routers: &mut [Router],
    mut is_over: impl FnMut(&[Router]) -> bool,
) -> Vec<(NodeId, Packet)> {
    let (until, mut packets) = (Instant::now() + TIMEOUT, Vec::new());
    let homes: Vec<NodeId> = routers.iter().map(|router| router.id).collect();
    while !is_over(routers) {
        assert!(Instant::now() < until, "too late: {packets:?}");
        let mut sent = Vec::new();
        for router in routers.iter_mut() {
            while let Ok(command) = router.commanded.try_recv() {
                match command {
                    Command::SetAccount { name, account, .. } => {
                        router.stated.insert(name, account.number);
                    }
                    Command::Send { to, octets, .. } => {
                        packets.push((router.id, Packet::parse(&octets).unwrap()));
                        sent.push((router.id, to, octets));
                    }
                    // All have users.
                    Command::List { .. } => {
                        router.numbers.inbox.homes(homes.clone(), homes.len());
                    }
                    _ => {}
                }
            }
        }
        for (from, to, octets) in sent {
            let to = routers.iter().find(|router| router.id == to);
            to.into_iter().for_each(|to| to.numbers.inbox.message(from, octets.clone()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    packets
}

#[test]
fn users_of_several_routers_have_different_numbers_that_the_mesh_knows() {
    let mut routers: Vec<Router> = (1..=3).map(|id| Router::start(id, SOON, in_memory)).collect();
    for router in &routers {
        router.add("alice");
        router.add(&format!("user{}", router.id.raw()));
        // Of another domain.
        router
            .store
            .set_user("bob", "example.org", Hashes::new("bob", "example.org", "p"))
            .unwrap();
    }
    meet(&routers);
    let own = |router: &Router| [format!("user{}", router.id.raw()), "alice".to_owned()];
    let numbers = |routers: &[Router]| {
        let of = |router: &Router| own(router).map(|user| router.number(&user));
        let mut numbers: Vec<Box<str>> = routers.iter().flat_map(of).flatten().collect();
        numbers.sort();
        numbers.dedup();
        numbers
    };
    // Each has created a network at once. They become one.
    carry(&mut routers, |routers| {
        let stated = |router: &Router, user: &String| {
            router.stated.get(&*format!("{user}@mesh")) == router.number(user).as_ref()
        };
        let all = |router: &Router| own(router).iter().all(|user| stated(router, user));
        numbers(routers).len() == 6 && routers.iter().all(all)
    });
    let numbers = numbers(&routers);
    assert!(routers.iter().all(|router| router.store.number_of("bob", "example.org").is_none()));
    // A new user has a number at once, and not one that somebody had before.
    let before = routers[0].number("alice").unwrap();
    assert!(routers[0].store.remove_user("alice", "mesh").unwrap());
    routers[0].add("alice");
    let number = routers[0].numbers.wait_for("alice@mesh", TIMEOUT);
    assert!(number.is_some_and(|number| number != before && !numbers.contains(&number)));
    routers.iter().for_each(|router| router.numbers.stop());
}

/// Where all routers beside one are no servers, it hears of others by the users of the mesh.
#[test]
fn routers_that_are_not_beside_each_other_find_each_other() {
    let mut routers = [Router::start(1, SOON, in_memory), Router::start(2, LATE, in_memory)];
    routers[0].add("alice");
    routers[1].add("bob");
    carry(&mut routers, |routers| routers[1].number("bob").is_some());
    assert_ne!(routers[0].number("alice"), routers[1].number("bob"));
    routers.iter().for_each(|router| router.numbers.stop());
}

/// A user that was removed without the server has none after a start; the others have those that they had.
#[test]
fn numbers_are_kept_and_read_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.redb");
    let start =
        || Router::start(7, SOON, |exchange| open(&StoreKind::Redb(path.clone()), exchange));
    let router = start();
    router.add("alice");
    router.add("bob");
    let mut routers = [router];
    carry(&mut routers, |routers| routers[0].number("bob").is_some());
    let [router] = routers;
    let numbers = router.numbers.all();
    assert_eq!(numbers.len(), 2);
    router.numbers.stop();
    drop(router);
    let offline = OfflineStore::open(&path).unwrap();
    assert_eq!(offline.list_numbers().unwrap(), numbers);
    assert!(offline.remove_user("bob", "mesh").unwrap());
    drop(offline);
    let router = start();
    // Known before anything is stated.
    assert_eq!(router.number("alice"), numbers.get("alice@mesh").cloned());
    assert_eq!(router.number("bob"), None);
    router.numbers.stop();
    drop(router);
    // Another identity has another state: it is another router.
    let router = Router::start(8, LATE, |exchange| open(&StoreKind::Redb(path.clone()), exchange));
    assert_eq!(router.number("alice"), None);
    router.numbers.stop();
}

/// A router that cannot store that it has handed blocks over does not hand them over, nor does it assign numbers.
#[test]
fn nothing_is_granted_or_assigned_while_the_disk_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let full = Arc::new(AtomicBool::new(false));
    let path = dir.path().join("x.redb");
    let mut routers = [
        Router::start(1, SOON, |exchange| on_disk(&path, &full, Some(exchange))),
        Router::start(2, LATE, in_memory),
    ];
    routers[0].add("alice");
    carry(&mut routers, |routers| routers[0].number("alice").is_some());
    full.store(true, SeqCst);
    meet(&routers);
    // It is asked, and cannot answer.
    routers[1].add("bob");
    let counts = |routers: &[Router]| routers[0].numbers.counts().unsaved.load(SeqCst);
    let packets = carry(&mut routers, |routers| counts(routers) >= 2);
    let is_grant = |(from, packet): &(NodeId, Packet)| {
        from.raw() == 1 && matches!(packet, Packet::Grant { .. })
    };
    let is_ask = |(_, packet): &(NodeId, Packet)| matches!(packet, Packet::Ask { .. });
    assert!(packets.iter().any(is_ask) && !packets.iter().any(is_grant), "{packets:?}");
    assert_eq!(routers[1].number("bob"), None);
    full.store(false, SeqCst);
    let packets = carry(&mut routers, |routers| routers[1].number("bob").is_some());
    assert!(packets.iter().any(is_grant), "{packets:?}");
    assert_ne!(routers[0].number("alice"), routers[1].number("bob"));
    routers.iter().for_each(|router| router.numbers.stop());
}

fn ask(router: &Router, order: Order) -> Answer {
    router.numbers.order(order).unwrap().blocking_recv().unwrap()
}

/// An operator takes over the blocks of a router that never returns, once all others are named.
#[test]
fn blocks_of_a_lost_router_are_reclaimed() {
    let late = |id| Router::start(id, LATE, in_memory);
    let mut routers = vec![Router::start(1, SOON, in_memory), late(2), late(3)];
    let users = ["alice", "bob", "carol"];
    routers.iter().zip(users).for_each(|(router, user)| router.add(user));
    meet(&routers);
    carry(&mut routers, |routers| {
        routers.iter().zip(users).all(|(router, user)| router.number(user).is_some())
    });
    let before = ask(&routers[0], Order::Show).unwrap();
    assert_eq!((before.network.as_ref().unwrap().users, before.waiting), (1, 0));
    assert!(!before.census && before.found.is_none() && before.earlier.is_empty());
    assert!(!before.routers.is_empty(), "{before:?}");
    let lost = routers.pop().unwrap();
    lost.numbers.stop();
    let reclaim = |others: &[u64]| Order::Reclaim {
        lost: vec![3],
        others: others.to_vec(),
        unchecked: false,
    };
    let both = ask(&routers[0], reclaim(&[2, 3])).unwrap_err();
    assert!(both.contains("is named as lost and as not lost"), "{both}");
    assert!(ask(&routers[0], reclaim(&[2])).unwrap().census);
    let busy = ask(&routers[0], reclaim(&[2])).unwrap_err();
    assert!(busy.contains("a census is under way"), "{busy}");
    carry(&mut routers, |routers| ask(&routers[0], Order::Show).unwrap().found.is_some());
    let after = ask(&routers[0], Order::Show).unwrap();
    assert!(after.found.as_ref().unwrap().contains("are reclaimed"), "{after:?}");
    let free = |router: &Router| ask(router, Order::Show).unwrap().free_blocks;
    assert!(after.free_blocks > before.free_blocks);
    // But for the blocks of the two users, all of 8,880 are somebody's.
    assert_eq!(free(&routers[0]) + free(&routers[1]), 8_880 - 2);
    routers.iter().for_each(|router| router.numbers.stop());
}

/// The numbers of the younger of two networks that meet are valid until an operator ends them.
#[test]
fn numbers_of_an_earlier_network_are_retired() {
    let dir = tempfile::tempdir().unwrap();
    let full = Arc::new(AtomicBool::new(false));
    let start = |id| {
        let path = dir.path().join(format!("{id}.redb"));
        Router::start(id, SOON, |exchange| on_disk(&path, &full, Some(exchange)))
    };
    let mut routers = vec![start(1), start(2)];
    routers[0].add("alice");
    routers[1].add("bob");
    let has_numbers = |routers: &[Router]| {
        routers[0].number("alice").is_some() && routers[1].number("bob").is_some()
    };
    carry(&mut routers[..1], |routers| routers[0].number("alice").is_some());
    carry(&mut routers[1..], |routers| routers[0].number("bob").is_some());
    meet(&routers);
    let earlier = |routers: &[Router]| {
        let views = routers.iter().map(|router| ask(router, Order::Show).unwrap());
        views.enumerate().find_map(|(at, view)| Some((at, view.earlier.first()?.clone())))
    };
    carry(&mut routers, |routers| earlier(routers).is_some() && has_numbers(routers));
    let (at, network) = earlier(&routers).unwrap();
    assert_eq!(network.users, 1);
    let mark: u16 = network.mark.parse().unwrap();
    let other = ask(&routers[at], Order::Retire { mark: (mark + 1) % 10_000 }).unwrap_err();
    assert!(other.contains("expected the mark of an earlier network"), "{other}");
    // What would be valid again after a restart has not ended.
    full.store(true, SeqCst);
    for _ in 0..2 {
        let unsaved = ask(&routers[at], Order::Retire { mark }).unwrap_err();
        assert!(unsaved.contains("expected that short numbers are stored, got"), "{unsaved}");
    }
    full.store(false, SeqCst);
    let again = |router: &Router| ask(router, Order::Retire { mark }).unwrap_err();
    carry(&mut routers, |routers| again(&routers[at]).contains("expected the mark"));
    let view = ask(&routers[at], Order::Show).unwrap();
    assert!(view.earlier.is_empty(), "{view:?}");
    assert!(has_numbers(&routers));
    routers.iter().for_each(|router| router.numbers.stop());
}
