//! Numbers that stand for users, and rules that routers share.

use ringway_directory::{Account, Alias, Event, SharedRule};
use ringway_mesh::NodeId;
use ringway_sansio::time::Duration;

use crate::ALICE;
use crate::net::Net;

/// Adds a user with a number on a router.
fn add(net: &mut Net, home: NodeId, name: &str, number: &str) {
    let account = Account { number: number.into(), ..Account::default() };
    net.change(home, |directory, now, random| {
        directory.set_account(now, name, (&account, b""), random).unwrap();
    });
}

fn register(net: &mut Net, at: NodeId, name: &str) {
    net.change(at, |directory, now, random| directory.register(now, name, 1_000, random).unwrap());
}

/// Returns the users that a number stands for, those that are called first with a mark.
fn aliases(net: &mut Net, by: NodeId, name: &str) -> Vec<String> {
    let located = net.locate(by, name).unwrap();
    assert!(located.home.is_none() && located.routers.is_empty());
    let text = |alias: &Alias| match alias.is_first {
        true => format!("{} first", alias.name),
        false => alias.name.to_string(),
    };
    let mut texts: Vec<String> = located.aliases.iter().map(text).collect();
    texts.sort();
    texts
}

/// The number of a user is known at every router, and follows the user's account.
#[test]
fn a_number_stands_for_its_user() {
    let mut net = Net::new(10, 21);
    let routers = net.up();
    add(&mut net, routers[3], ALICE, "204");
    net.run(5_000);
    for &router in &routers {
        assert_eq!(aliases(&mut net, router, "204@mesh").len(), 1, "{router:?}");
        assert!(aliases(&mut net, router, "205@mesh").is_empty());
    }
    // Another number instead, which is known when the account is looked up anew.
    add(&mut net, routers[3], ALICE, "205");
    net.run(330_000);
    assert!(aliases(&mut net, routers[8], "204@mesh").is_empty());
    assert!(aliases(&mut net, routers[8], "205@mesh")[0].starts_with(ALICE));
    net.change(routers[3], |directory, now, random| directory.remove_account(now, ALICE, random));
    net.run(330_000);
    assert!(aliases(&mut net, routers[8], "205@mesh").is_empty());
}

/// Nobody takes a number that a user's account states, neither for an own user nor for somebody else's.
#[test]
fn a_router_cannot_take_the_number_of_a_user() {
    let mut net = Net::new(10, 22);
    let routers = net.up();
    let (home, hostile) = (routers[3], routers[6]);
    add(&mut net, home, ALICE, "204");
    net.run(2_000);
    add(&mut net, hostile, "mallory@mesh", "204");
    net.change(hostile, |directory, now, random| {
        let users = ["mallory@mesh".into()];
        assert!(directory.set_service(now, "204@mesh", &users, random).is_err());
        directory.set_service(now, "205@mesh", &[ALICE.into()], random).unwrap();
    });
    net.run(5_000);
    for &router in &routers {
        assert!(aliases(&mut net, router, "204@mesh")[0].starts_with(ALICE));
        assert!(aliases(&mut net, router, "205@mesh").is_empty());
    }
}

/// An emergency number stands for the operators of all routers: those at the router of the caller, or else at the router
/// that answers first, are called before the others. A router that is gone comes last.
#[test]
fn the_nearest_operator_is_called_first() {
    let mut net = Net::new(10, 23);
    let routers = net.up();
    let operators =
        [(routers[1], "one@mesh"), (routers[4], "four@mesh"), (routers[7], "seven@mesh")];
    for (home, name) in operators {
        add(&mut net, home, name, "");
        register(&mut net, home, name);
        net.change(home, |directory, now, random| {
            directory.set_service(now, "112@mesh", &[name.into()], random).unwrap();
        });
    }
    net.run(5_000);
    let here = aliases(&mut net, routers[4], "112@mesh");
    assert_eq!(here, ["four@mesh first", "one@mesh", "seven@mesh"]);
    let elsewhere = aliases(&mut net, routers[9], "112@mesh");
    assert_eq!(elsewhere.len(), 3);
    let firsts = |aliases: &[String]| aliases.iter().filter(|name| name.ends_with("first")).count();
    assert_eq!(firsts(&elsewhere), 1, "{elsewhere:?}");
    net.crash(routers[1]);
    net.crash(routers[7]);
    net.run(4_000);
    let left = aliases(&mut net, routers[9], "112@mesh");
    assert_eq!(left, ["four@mesh first", "one@mesh", "seven@mesh"]);
    // What the dead stated ends with its lifetime.
    net.run(700_000);
    assert_eq!(aliases(&mut net, routers[9], "112@mesh"), ["four@mesh"]);
}

/// Nobody is first if no router with an operator answers, and the number is known all the same.
#[test]
fn operators_are_known_without_an_answer() {
    let mut net = Net::new(10, 24);
    let routers = net.up();
    for (home, name) in [(routers[1], "one@mesh"), (routers[4], "four@mesh")] {
        add(&mut net, home, name, "");
        register(&mut net, home, name);
        net.change(home, |directory, now, random| {
            directory.set_service(now, "112@mesh", &[name.into()], random).unwrap();
        });
    }
    net.run(5_000);
    net.crash(routers[1]);
    net.crash(routers[4]);
    net.run(4_000);
    assert_eq!(aliases(&mut net, routers[9], "112@mesh"), ["four@mesh", "one@mesh"]);
}

/// Rules that routers share are known everywhere, until they are withdrawn or their router is gone.
#[test]
fn shared_rules_are_known_at_every_router() {
    let mut net = Net::new(10, 25);
    let routers = net.up();
    let rule = |user: &str, cost| SharedRule { user: user.into(), cost, ..SharedRule::default() };
    let share = |net: &mut Net, at: NodeId, rules: &[SharedRule]| {
        net.change(at, |directory, now, random| {
            assert_eq!(directory.share_rules(now, "mesh", rules, random), Ok(rules.len()));
        });
    };
    share(&mut net, routers[2], &[rule("0", 10)]);
    share(&mut net, routers[5], &[rule("0", 20), rule("00", 5)]);
    net.run(5_000);
    let ask = |net: &mut Net, by: NodeId| {
        net.nodes.get_mut(&by).unwrap().events.clear();
        assert!(net.change(by, |directory, now, random| directory.ask_rules(now, "mesh", random)));
        net.run(Duration::from_secs(6).as_millis() as u64);
        let events = &net.nodes[&by].events;
        let rules = events.iter().find_map(|event| match event {
            Event::Rules(rules) => Some(rules.clone()),
            _ => None,
        });
        let mut rules = rules.expect("an answer").expect("rules");
        rules.sort_by_key(|(router, _)| *router);
        rules
    };
    for &router in &routers {
        let known = ask(&mut net, router);
        assert_eq!(known.len(), 2);
        assert_eq!(known[0], (routers[2], vec![rule("0", 10)]));
    }
    share(&mut net, routers[5], &[]);
    net.run(30_000);
    assert_eq!(ask(&mut net, routers[8]).len(), 1);
    net.crash(routers[2]);
    net.run(700_000);
    assert!(ask(&mut net, routers[8]).is_empty());
}
