//! Users whose home is gone: deputies check their credentials, and learn nothing before.

use ringway_directory::config::KIND_DEPUTIES;
use ringway_directory::{Config, Verdict};
use ringway_mesh::NodeId;
use ringway_mesh::crypto::StandIn;
use ringway_mesh::id::Sequence;
use ringway_sansio::time::Duration;

use super::ALICE;
use super::net::{self, Lie, Net};

const BOB: &str = "bob@mesh";

/// Type of the private messages that ask for a share, and of those that contain one.
const RELEASE: u8 = 9;
const RELEASED: u8 = 10;

/// A network in which every router has four users, and the home of Alice has deputies.
fn network(count: usize, seed: u64) -> (Net, NodeId) {
    network_with(count, seed, Config::default())
}

fn network_with(count: usize, seed: u64, config: Config) -> (Net, NodeId) {
    let mut net = Net::with(count, seed, config);
    let routers = net.up();
    for (number, &router) in routers.iter().cycle().take(4 * count).enumerate() {
        net.add(router, &format!("user{number}@mesh"), "other");
    }
    net.add(routers[1], ALICE, "secret");
    net.run(120_000);
    (net, routers[1])
}

fn deputies(net: &Net, home: NodeId) -> Vec<NodeId> {
    net.nodes[&home].directory.deputies()
}

/// Returns the routers that are neither the home nor one of its deputies.
fn others(net: &Net, home: NodeId) -> Vec<NodeId> {
    let deputies = deputies(net, home);
    net.up().into_iter().filter(|id| *id != home && !deputies.contains(id)).collect()
}

fn sent(net: &Net, kind: u8) -> usize {
    net.private.iter().filter(|(_, octets)| octets[0] & 15 == kind).count()
}

/// A user whose home has ended registers at another router with the right password, and is found there; then a home that was
/// silent is not waited for.
#[test]
fn a_user_whose_home_is_gone_registers_elsewhere() {
    let (mut net, home) = network(12, 40);
    assert_eq!(deputies(&net, home).len(), 5);
    let [visited, caller, ..] = others(&net, home)[..] else { panic!("too few routers") };
    net.crash(home);
    let begun = net.now;
    assert_eq!(net.verify(visited, ALICE, "guess"), Some(Verdict::Wrong));
    assert!(net.now - begun < Duration::from_secs(6), "{:?}", net.now - begun);
    let begun = net.now;
    assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right));
    assert!(net.now - begun < Duration::from_millis(500), "{:?}", net.now - begun);
    assert!(net.register(visited, ALICE, "secret"));
    net.run(5_000);
    assert_eq!(net.routers(caller, ALICE), [visited]);
    assert_eq!(net.verify(caller, "nobody@mesh", "secret"), Some(Verdict::NoSuchUser));
}

/// While the others reach the home, a deputy gets no share, whatever it asks for.
#[test]
fn a_deputy_alone_learns_nothing_while_the_home_answers() {
    let (mut net, home) = network(12, 41);
    let deputies = deputies(&net, home);
    let hostile = deputies[2];
    let octets = |request: u32| {
        let mut octets = vec![0x10 | RELEASE];
        octets.extend(request.to_be_bytes());
        octets.extend(hostile.to_bytes());
        octets.extend(home.to_bytes());
        octets
    };
    for request in 0..40 {
        for deputy in deputies.iter().filter(|deputy| **deputy != hostile) {
            net.send_private(hostile, deputy.prefix(), octets(request));
        }
        net.run(500);
    }
    assert_eq!(sent(&net, RELEASED), 0);
    // Nor does a router that is no deputy when the home is gone; one that is does then.
    net.crash(home);
    let stranger = others(&net, home)[0];
    let mut forged = octets(50);
    forged[5..13].copy_from_slice(&stranger.to_bytes());
    net.send_private(stranger, deputies[0].prefix(), forged.clone());
    // In the name of a deputy: the address decides.
    net.send_private(stranger, deputies[0].prefix(), octets(51));
    net.run(8_000);
    assert_eq!(sent(&net, RELEASED), 0);
    net.run(10_000);
    net.send_private(hostile, deputies[0].prefix(), octets(52));
    net.run(8_000);
    assert_eq!(sent(&net, RELEASED), 1);
}

/// A deputy whom a router asks about a home that answers checks nothing.
#[test]
fn deputies_do_not_judge_while_the_home_answers() {
    let (mut net, home) = network(12, 42);
    let (deputy, visited) = (deputies(&net, home)[0], others(&net, home)[0]);
    assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right));
    let is_check = |octets: &[u8]| octets[0] == 0x11;
    let check =
        net.private.iter().rev().find(|(from, octets)| *from == visited && is_check(octets));
    let check = check.unwrap().1.clone();
    let mut octets = vec![0x18];
    octets.extend(home.to_bytes());
    octets.extend(&check[1..]);
    let judged = |net: &Net| {
        let judged =
            net.private.iter().filter(|(from, octets)| *from == deputy && octets[0] == 0x12);
        judged.count()
    };
    let before = judged(&net);
    for _ in 0..20 {
        net.send_private(visited, deputy.prefix(), octets.clone());
        net.run(500);
    }
    let confirmed =
        net.private.iter().filter(|(from, octets)| *from == deputy && octets[0] == 0x14);
    assert!(confirmed.count() >= 20);
    assert_eq!((judged(&net), sent(&net, RELEASED)), (before, 0));
}

/// Any two deputies may be gone as well, and every fifth message is lost; with three nobody can tell.
#[test]
fn two_deputies_may_be_gone_as_well() {
    for seed in 50..60 {
        let (mut net, home) = network(14, seed);
        let deputies = deputies(&net, home);
        let visited = others(&net, home)[0];
        net.loss = 20;
        net.crash(home);
        net.crash(deputies[seed as usize % 5]);
        net.crash(deputies[(seed as usize + 2) % 5]);
        // At this loss three first questions in ten have no answer in time, and of 700 users one has none to three.
        let verdicts = [(); 6].map(|()| net.verify(visited, ALICE, "secret"));
        assert!(verdicts[1..].contains(&Some(Verdict::Right)), "seed {seed}: {verdicts:?}");
        assert!(!verdicts.contains(&Some(Verdict::Wrong)), "seed {seed}: {verdicts:?}");
    }
    let (mut net, home) = network(14, 60);
    let visited = others(&net, home)[0];
    net.crash(home);
    deputies(&net, home)[..3].iter().for_each(|&deputy| net.crash(deputy));
    let begun = net.now;
    assert_eq!(net.verify(visited, ALICE, "secret"), None);
    assert!(net.now - begun < Duration::from_secs(10));
}

/// One deputy that denies what is right, says nothing, or grants what is void shuts nobody out, whichever it is.
#[test]
fn one_deputy_shuts_nobody_out() {
    for (lie, liar) in [Lie::Deny, Lie::Keep, Lie::Forge]
        .into_iter()
        .flat_map(|lie| [(lie, 0), (lie, 1), (lie, 4)])
    {
        let (mut net, home) = network(12, 69);
        net.liars = [(deputies(&net, home)[liar], lie)].into();
        let visited = others(&net, home)[0];
        net.crash(home);
        // Who has to wait for a second deputy may have to ask again.
        let first = net.verify(visited, ALICE, "secret");
        assert!([Some(Verdict::Right), None].contains(&first), "{lie:?} {liar}: {first:?}");
        let begun = net.now;
        assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right), "{lie:?} {liar}");
        if first.is_some() {
            assert!(
                net.now - begun < Duration::from_secs(1),
                "{lie:?} {liar}: {:?}",
                net.now - begun
            );
        }
        assert_eq!(net.verify(visited, ALICE, "guess"), Some(Verdict::Wrong), "{lie:?} {liar}");
    }
}

/// Nobody else's record has the name of a home's deputies, however early it comes.
#[test]
fn nobody_names_deputies_of_another_home() {
    let (mut net, home) = network(12, 70);
    let hostile = others(&net, home)[3];
    let name = home.to_bytes();
    let value = [1; 100];
    let draft =
        ringway_dht::Draft { kind: KIND_DEPUTIES, name: &name, value: &value, lifetime: 600 };
    let record = {
        let identity = &net.identities[&hostile];
        ringway_dht::Record::sign::<StandIn>(identity, Sequence::default(), &draft).unwrap()
    };
    // As a keeper takes it: a PUT from its signer to each router.
    for router in net.up() {
        let octets =
            ringway_dht::wire::Packet::Put { request: 7, rest: 600, record: record.clone() };
        let octets = octets.to_octets();
        net.change(router, |directory, now, random| {
            directory.handle(now, hostile, &octets, random)
        });
    }
    for router in net.up() {
        let table = net.nodes[&router].directory.dht().table();
        let key = ringway_dht::record::key(KIND_DEPUTIES, &name);
        assert!(table.of_name(key, KIND_DEPUTIES, &name).iter().all(|entry| entry.signer == home));
    }
}

/// Of three routers the other two stand in for one together.
#[test]
fn three_routers_are_enough() {
    let (mut net, home) = network(3, 61);
    assert_eq!(deputies(&net, home).len(), 2);
    net.crash(home);
    net.run(20_000);
    for visited in deputies(&net, home) {
        assert_eq!(net.verify(visited, ALICE, "guess"), Some(Verdict::Wrong));
        assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right));
    }
    let (mut net, home) = network(2, 62);
    assert!(deputies(&net, home).is_empty());
    let visited = *net.up().iter().find(|id| **id != home).unwrap();
    net.crash(home);
    assert_eq!(net.verify(visited, ALICE, "secret"), None);
}

/// Deputies that have gone are replaced, and those that have come are taken until there are five.
#[test]
fn deputies_that_have_gone_are_replaced() {
    let (mut net, home) = network(14, 63);
    let before = deputies(&net, home);
    net.crash(before[0]);
    net.crash(before[3]);
    net.run(620_000);
    let after = deputies(&net, home);
    assert_eq!(after.len(), 5);
    assert!(!after.contains(&before[0]) && !after.contains(&before[3]));
    net.crash(home);
    let visited = others(&net, home)[0];
    assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right));
}

/// Who has registered while the home was gone stays registered when it returns, until its password changes.
#[test]
fn what_deputies_have_granted_lasts_until_the_password_changes() {
    let (mut net, home) = network(12, 64);
    let [visited, caller, ..] = others(&net, home)[..] else { panic!("too few routers") };
    let account = net.nodes[&home].directory.accounts().own().find(|(name, _)| *name == ALICE);
    let account = account.unwrap().1.clone();
    net.crash(home);
    assert!(net.register(visited, ALICE, "secret"));
    assert_eq!(net.routers(caller, ALICE), [visited]);
    let identity = net.identities[&home].clone();
    net.start(identity, 0);
    let secret = net::secret(b"secret");
    net.change(home, |directory, now, random| {
        directory.set_account(now, ALICE, (&account, &secret), random).unwrap();
    });
    net.run(400_000);
    assert_eq!(net.routers(caller, ALICE), [visited]);
    net.add(home, ALICE, "another");
    net.run(400_000);
    assert!(net.routers(caller, ALICE).is_empty());
    assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Wrong));
    assert_eq!(net.verify(visited, ALICE, "another"), Some(Verdict::Right));
}

/// With each period a home has another delegate, which deputies stand in with; what the one before has signed holds for one
/// period more.
#[test]
fn each_period_has_a_delegate_of_its_own() {
    let period = Duration::from_secs(2_000);
    let (mut net, home) =
        network_with(12, 68, Config { delegate_period: period, ..Config::default() });
    let key = |net: &Net| {
        let own = net.nodes[&home].directory.accounts().own().find(|(name, _)| *name == ALICE);
        own.unwrap().1.replica.as_ref().map(|replica| (replica.key, replica.before))
    };
    let [visited, caller, ..] = others(&net, home)[..] else { panic!("too few routers") };
    let (first, _) = key(&net).unwrap();
    // As if the home were gone, and then not.
    let others: Vec<NodeId> = net.up().into_iter().filter(|id| *id != home).collect();
    net.divide(&others);
    net.run(5_000);
    assert!(net.register(visited, ALICE, "secret"));
    net.unite();
    net.run(2_800_000);
    let (second, before) = key(&net).unwrap();
    assert!(second != first && before == first);
    assert_eq!(net.routers(caller, ALICE), [visited]);
    net.crash(home);
    assert_eq!(net.verify(caller, ALICE, "secret"), Some(Verdict::Right));
}

/// One router that wants much checked for silent homes leaves room for another.
#[test]
fn one_router_does_not_use_up_a_deputy() {
    let (mut net, home) = network(12, 65);
    let [visited, hostile, ..] = others(&net, home)[..] else { panic!("too few routers") };
    net.crash(home);
    for number in 0..200_u32 {
        for deputy in deputies(&net, home) {
            let mut octets = vec![0x18];
            octets.extend(home.to_bytes());
            octets.extend(number.to_be_bytes());
            octets.extend(hostile.to_bytes());
            let name = format!("invented{number}@mesh");
            octets.push(name.len() as u8);
            octets.extend(name.as_bytes());
            octets.extend(b"\x08REGISTERguess");
            net.send_private(hostile, deputy.prefix(), octets);
        }
        net.run(20);
    }
    assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right));
}

/// A part of a divided network that has three deputies of a home goes on without it, and the one with the home as before.
#[test]
fn a_part_with_three_deputies_goes_on() {
    let (mut net, home) = network(14, 66);
    let deputies = deputies(&net, home);
    let mut part: Vec<NodeId> = others(&net, home)[..4].to_vec();
    part.extend(&deputies[..3]);
    let rest: Vec<NodeId> = net.up().into_iter().filter(|id| !part.contains(id)).collect();
    let there = *rest.iter().find(|id| **id != home && !deputies.contains(id)).unwrap();
    net.divide(&part);
    net.run(30_000);
    assert_eq!(net.verify(part[0], ALICE, "secret"), Some(Verdict::Right));
    assert_eq!(net.verify(there, ALICE, "secret"), Some(Verdict::Right));
    assert!(net.register(part[0], ALICE, "secret"));
    assert!(net.register(there, ALICE, "secret"));
    net.unite();
    net.run(60_000);
    let mut both = [part[0], there];
    both.sort();
    assert_eq!(net.routers(rest[0], ALICE), both);
}

/// What is sealed is in no message that can be read with fewer shares: the password is in none at all, but the question.
#[test]
fn no_password_leaves_its_home() {
    let mut net = Net::with(12, 67, Config::default());
    let routers = net.up();
    net.add(routers[1], ALICE, "a secret of alice");
    net.add(routers[2], BOB, "other");
    net.run(60_000);
    let is_in = |octets: &[u8]| octets.windows(17).any(|part| part == b"a secret of alice");
    assert!(!net.private.iter().any(|(_, octets)| is_in(octets)));
}
