//! Several routers in virtual time: users that are added, registered, called and visit others.

#![allow(clippy::unwrap_used)]

mod deputies;
mod mail;
mod net;
mod numbers;

use net::Net;
use ringway_directory::{Account, Config, Event, Subject, Verdict};
use ringway_sansio::time::Duration;

const ALICE: &str = "alice@mesh";

/// A user that is registered at its home is found from everywhere, and not found when it has gone.
#[test]
fn a_user_is_found_from_every_router() {
    let mut net = Net::new(10, 1);
    let routers = net.up();
    let home = routers[3];
    net.add(home, ALICE, "secret");
    assert!(net.register(home, ALICE, "secret"));
    for &router in &routers {
        assert_eq!(net.routers(router, ALICE), [home]);
    }
    net.change(home, |directory, now, random| directory.unregister(now, ALICE, random));
    net.run(25_000);
    for &router in &routers {
        let located = net.locate(router, ALICE).unwrap();
        assert!(located.routers.is_empty() && located.home.is_some());
    }
    let nobody = net.locate(routers[0], "bob@mesh").unwrap();
    assert_eq!(nobody.home, None);
}

/// Where a password is right it is known to the home alone; the other router gets a grant.
#[test]
fn a_user_registers_at_another_router_with_the_password_of_home() {
    let mut net = Net::new(10, 2);
    let routers = net.up();
    let (home, visited, caller) = (routers[1], routers[5], routers[8]);
    net.add(home, ALICE, "secret");
    assert!(!net.register(visited, ALICE, "guess"));
    assert_eq!(net.verify(visited, "bob@mesh", "secret"), Some(Verdict::NoSuchUser));
    assert!(net.register(home, ALICE, "secret"));
    assert!(net.register(visited, ALICE, "secret"));
    let mut both = [home, visited];
    both.sort();
    assert_eq!(net.routers(caller, ALICE), both);
    // The home may go: the phone at the other router is still reached.
    net.crash(home);
    net.run(30_000);
    assert!(net.routers(caller, ALICE).contains(&visited));
}

/// RFC 7616 credentials are in no message that others than home can read.
#[test]
fn credentials_go_to_the_home_alone() {
    let mut net = Net::new(10, 3);
    let routers = net.up();
    let (home, visited) = (routers[1], routers[5]);
    net.add(home, ALICE, "a secret of alice");
    net.run(5_000);
    assert!(net.register(visited, ALICE, "a secret of alice"));
    let is_in = |octets: &[u8]| octets.windows(17).any(|part| part == b"a secret of alice");
    let with: Vec<_> = net.private.iter().filter(|(_, octets)| is_in(octets)).collect();
    assert!(!with.is_empty() && with.iter().all(|(from, _)| *from == visited));
    assert!(!net.dht_octets.iter().any(|octets| is_in(octets)));
}

/// A router that states without a grant that a user is there is not believed, nor is a grant for somebody else.
#[test]
fn a_router_cannot_take_a_user_that_has_not_come_to_it() {
    let mut net = Net::new(10, 4);
    let routers = net.up();
    let (home, hostile, caller) = (routers[1], routers[5], routers[8]);
    net.add(home, ALICE, "secret");
    assert!(net.register(home, ALICE, "secret"));
    // Without a grant its own directory refuses.
    let refused =
        net.change(hostile, |directory, now, random| directory.register(now, ALICE, 1_000, random));
    assert!(refused.is_err());
    // One that claims to be a second home is not believed either by those that know the first.
    assert_eq!(net.routers(caller, ALICE), [home]);
    let account = Account { password_set: 1, ..Account::default() };
    net.change(hostile, |directory, now, random| {
        directory.set_account(now, ALICE, (&account, b""), random).unwrap();
        directory.register(now, ALICE, 1_000, random).unwrap();
    });
    net.run(400_000);
    assert_eq!(net.routers(caller, ALICE), [home]);
    // The operator of the home is alarmed.
    let is_alarm = |event: &Event| matches!(event, Event::Contested { by, .. } if *by == hostile);
    net.run(700_000);
    assert!(net.nodes[&home].events.iter().any(is_alarm));
}

/// A new password ends what was granted for the one before, as soon as the account is looked up anew.
#[test]
fn a_new_password_ends_grants() {
    let mut net = Net::new(10, 5);
    let routers = net.up();
    let (home, visited, caller) = (routers[1], routers[5], routers[8]);
    net.add(home, ALICE, "secret");
    net.run(5_000);
    assert!(net.register(visited, ALICE, "secret"));
    assert_eq!(net.routers(caller, ALICE), [visited]);
    net.run(2_000);
    net.add(home, ALICE, "another");
    net.run(330_000);
    assert!(net.routers(caller, ALICE).is_empty());
    assert!(net.register(visited, ALICE, "another"));
    net.run(30_000);
    assert_eq!(net.routers(caller, ALICE), [visited]);
}

/// Both halves of a divided network go on, and what was registered in each is found everywhere afterwards.
#[test]
fn halves_unite_their_registrations() {
    let mut net = Net::new(12, 6);
    let routers = net.up();
    let (left, right) = routers.split_at(6);
    net.add(left[0], ALICE, "secret");
    net.add(right[0], "bob@mesh", "secret");
    net.run(5_000);
    assert!(net.register(left[0], ALICE, "secret"));
    net.divide(left);
    net.run(30_000);
    assert!(net.register(right[1], "bob@mesh", "secret"));
    assert_eq!(net.routers(left[3], ALICE), [left[0]]);
    assert_eq!(net.routers(right[3], "bob@mesh"), [right[1]]);
    net.unite();
    net.run(60_000);
    for &router in &routers {
        assert_eq!(net.routers(router, ALICE), [left[0]]);
        assert_eq!(net.routers(router, "bob@mesh"), [right[1]]);
    }
}

/// One name added in both halves: the first keeps it, the other user gets a marked name and both operators are notified.
#[test]
fn a_name_added_twice_is_kept_by_one() {
    let mut net = Net::new(12, 7);
    let routers = net.up();
    let (left, right) = routers.split_at(6);
    net.divide(left);
    net.run(30_000);
    net.add(left[0], ALICE, "secret");
    net.add(right[0], ALICE, "other");
    assert!(net.register(left[0], ALICE, "secret"));
    assert!(net.register(right[0], ALICE, "other"));
    net.unite();
    net.run(60_000);
    // Whoever has not called either before reaches the one whom most of the keepers have known first.
    let [first] = net.routers(left[4], ALICE)[..] else { panic!("two homes") };
    assert_eq!(net.routers(right[4], ALICE), [first]);
    let second = if first == left[0] { right[0] } else { left[0] };
    // Homes look for others that claim their names every ten minutes.
    net.run(600_000);
    let contested = |net: &Net, home| {
        net.nodes[&home].events.iter().find_map(|event| match event {
            Event::Contested { by, marked, .. } => Some((*by, marked.clone())),
            _ => None,
        })
    };
    assert_eq!(contested(&net, first), Some((second, None)));
    let notice = contested(&net, second);
    let Some((_, Some(marked))) = notice else { panic!("{notice:?}") };
    assert_eq!(net.routers(left[4], &marked), [second]);
    // What its home states later is stated of the marked name too.
    let account = Account { number: "204".into(), ..Account::default() };
    net.change(second, |directory, now, random| {
        directory.set_account(now, ALICE, (&account, b""), random).unwrap();
    });
    net.run(310_000);
    let home = net.locate(left[4], &marked).unwrap().home;
    assert_eq!(home.map(|home| (home.router, home.account.number)), Some((second, "204".into())));
}

/// An acknowledged registration survives the crash of any two routers, with every fifth message lost.
#[test]
fn a_registration_survives_the_end_of_two_routers() {
    for seed in 0..20 {
        let mut net = Net::new(12, 100 + seed);
        net.loss = 20;
        let routers = net.up();
        let home = routers[0];
        net.add(home, ALICE, "secret");
        if !net.register(home, ALICE, "secret") {
            continue;
        }
        let others: Vec<_> = routers.iter().copied().filter(|&id| id != home).collect();
        let first = (seed as usize * 5) % others.len();
        net.crash(others[first]);
        net.crash(others[(first + 1) % others.len()]);
        let caller = others[(first + 5) % others.len()];
        let found = net.locate(caller, ALICE);
        assert!(found.is_none_or(|found| !found.routers.is_empty()), "seed {seed}");
        net.run(20_000);
        assert_eq!(net.routers(caller, ALICE), [home], "seed {seed}");
    }
}

/// A router that asks too much is refused, and others are not.
#[test]
fn one_router_cannot_use_up_the_checks_of_a_home() {
    let mut net = Net::new(10, 8);
    let routers = net.up();
    let (home, hostile, visited) = (routers[1], routers[5], routers[7]);
    net.add(home, ALICE, "secret");
    net.run(5_000);
    // What a router sends that repeats one question without end.
    net.verify(hostile, ALICE, "guess");
    let question = net.private.iter().find(|(from, _)| *from == hostile).unwrap().1.clone();
    for request in 0..10_000_u32 {
        let mut octets = question.clone();
        octets[1..5].copy_from_slice(&request.to_be_bytes());
        net.send_private(hostile, home.prefix(), octets);
    }
    assert!(net.register(visited, ALICE, "secret"));
    let counters = net.nodes[&home].directory.counters();
    assert!(counters.policed > 9_000, "{counters:?}");
}

/// A verification whose home is gone before it has deputies ends within the time that a phone waits.
#[test]
fn a_verification_without_a_home_ends() {
    let mut net = Net::new(10, 9);
    let routers = net.up();
    let (home, visited) = (routers[1], routers[5]);
    net.add(home, ALICE, "secret");
    net.run(5_000);
    net.crash(home);
    let begun = net.now;
    assert_eq!(net.verify(visited, ALICE, "secret"), None);
    assert!(net.now - begun < Duration::from_secs(8));
}

/// Any router lists who there is, and who is registered where; what was withdrawn is not listed.
#[test]
fn accounts_and_locations_of_the_whole_network_are_listed() {
    let mut net = Net::new(12, 20);
    let routers = net.up();
    for (number, &router) in routers.iter().enumerate() {
        net.add(router, &format!("user{number}@mesh"), "secret");
    }
    assert!(net.register(routers[2], "user2@mesh", "secret"));
    assert!(net.register(routers[7], "user2@mesh", "secret"));
    assert!(net.register(routers[4], "user4@mesh", "secret"));
    net.change(routers[4], |directory, now, random| {
        directory.unregister(now, "user4@mesh", random);
    });
    net.change(routers[5], |directory, now, random| {
        directory.remove_account(now, "user5@mesh", random);
    });
    net.run(25_000);
    let expected: Vec<(String, _)> =
        routers.iter().enumerate().map(|(n, &r)| (format!("user{n}@mesh"), r)).collect();
    for by in [routers[0], routers[11]] {
        let mut accounts = net.list(by, Subject::Accounts);
        accounts.sort_by_key(|(_, router)| *router);
        let expected = expected.iter().filter(|(name, _)| name != "user5@mesh");
        assert!(accounts.iter().eq(expected), "{accounts:?}");
        let mut locations = net.list(by, Subject::Locations);
        locations.sort();
        let user = || "user2@mesh".to_string();
        assert_eq!(locations, [(user(), routers[2]), (user(), routers[7])]);
    }
}

/// A message of another service comes from the router that it names, and from no other; one router cannot send more than
/// its rate.
#[test]
fn messages_of_other_services_are_carried_and_policed() {
    let mut net = Net::new(4, 21);
    let routers = net.up();
    let (from, to, other) = (routers[0], routers[1], routers[2]);
    let received = |net: &Net| {
        let events = net.nodes[&to].events.iter();
        let message = |event: &Event| match event {
            Event::Message { service: 9, router, octets } => Some((*router, octets.to_vec())),
            _ => None,
        };
        events.filter_map(message).collect::<Vec<_>>()
    };
    net.change(from, |directory, _, _| directory.send(to, 9, b"hello"));
    net.change(from, |directory, _, _| directory.send(to, 9, &[0; 1_001]));
    net.run(100);
    assert_eq!(received(&net), [(from, b"hello".to_vec())]);
    // As another router: the address decides.
    let (_, octets) = net.private.last().unwrap().clone();
    net.send_private(other, to.prefix(), octets.clone());
    net.run(100);
    assert_eq!(received(&net).len(), 1);
    assert_eq!(net.nodes[&to].directory.counters().malformed, 1);
    for _ in 0..1_000 {
        net.send_private(from, to.prefix(), octets.clone());
    }
    net.send_private(other, to.prefix(), [0x13].into());
    net.run(100);
    let counters = net.nodes[&to].directory.counters();
    assert!((100..150).contains(&received(&net).len()), "{}", received(&net).len());
    assert!(counters.policed > 850);
    assert_eq!(counters.malformed, 2);
}

/// A home that is known is asked, though too few routers are left to tell where the user is registered.
#[test]
fn a_known_home_is_enough_for_a_verification() {
    let left_alone = || {
        // A question ends before the two that are left are sure that they are alone.
        let mut config = Config::default();
        config.dht.look_up_patience = Duration::from_secs(2);
        let mut net = Net::with(10, 10, config);
        let routers = net.up();
        let (home, visited) = (routers[1], routers[5]);
        net.add(home, ALICE, "secret");
        net.run(5_000);
        assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right));
        for &router in routers.iter().filter(|&&router| router != home && router != visited) {
            net.crash(router);
        }
        (net, visited)
    };
    let (mut net, visited) = left_alone();
    assert_eq!(net.locate(visited, ALICE), None);
    let (mut net, visited) = left_alone();
    assert_eq!(net.verify(visited, ALICE, "secret"), Some(Verdict::Right));
}
