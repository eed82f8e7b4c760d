//! Links, addresses and routes, in network namespaces of the tests.
#![allow(clippy::unwrap_used)]

mod support;

use ringway_os::NetworkMonitor;
use ringway_os::netlink::{Change, Monitor, Netlink, Route};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use support::{inside_a_namespace, ip};

const OWN: Ipv6Addr = Ipv6Addr::new(0xfd12, 0x3456, 0, 0, 0, 0, 0, 1);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_link_gets_its_address_and_routes() {
    if !inside_a_namespace("a_link_gets_its_address_and_routes") {
        return;
    }
    ip("link add one type veth peer name two");
    ip("link set two up");
    let mut netlink = Netlink::open().unwrap();
    let one = netlink.link("one").unwrap();
    assert!(!one.is_up() && !one.is_running() && !one.is_loopback() && one.has_multicast());
    netlink.set_mtu(one.index, 1_300).unwrap();
    netlink.set_up(one.index).unwrap();
    // The kernel notices a carrier a little later.
    while !netlink.link("one").unwrap().is_running() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let links = netlink.links().unwrap();
    assert_eq!(links.len(), 3, "{links:?}");
    let one = links.into_iter().find(|link| link.index == one.index).unwrap();
    assert_eq!((one.name.as_str(), one.mtu), ("one", 1_300));
    assert!(one.is_up() && one.is_running());

    netlink.add_address(one.index, OWN, 64).unwrap();
    let mut of_one = netlink.addresses().unwrap();
    of_one.retain(|a| a.interface == one.index && a.ip == IpAddr::from(OWN));
    assert!(of_one.iter().all(|a| a.is_usable() && a.flags & libc::IFA_F_NODAD != 0), "{of_one:?}");
    assert!(of_one.iter().any(|a| a.prefix_length == 64), "{of_one:?}");

    let mesh = Route {
        destination: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0),
        prefix_length: 8,
        interface: one.index,
        gateway: None,
        metric: 77,
    };
    netlink.add_route(&mesh).unwrap();
    let gateway = Some(Ipv6Addr::new(0xfd12, 0x3456, 0, 0, 0, 0, 0, 2));
    let site =
        Route { destination: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), gateway, ..mesh };
    let site = Route { prefix_length: 32, metric: 0, ..site };
    netlink.add_route(&site).unwrap();
    let routes = ip("-6 route show");
    assert!(routes.contains("fd00::/8 dev one proto static metric 77"), "{routes}");
    assert!(
        routes.contains("2001:db8::/32 via fd12:3456::2 dev one proto static metric 1024"),
        "{routes}"
    );
    netlink.remove_route(&mesh).unwrap();
    netlink.remove_route(&site).unwrap();
    assert!(!ip("-6 route show").contains("static"));
    netlink.remove_address(one.index, OWN, 64).unwrap();
    assert!(!ip("-6 address show dev one").contains("fd12:3456::1/64"));

    netlink.add_spare_address(one.index, OWN, 128).unwrap();
    let spare = ip("-6 address show dev one");
    assert!(spare.contains("fd12:3456::1/128 scope global nodad deprecated"), "{spare}");
    netlink.remove_address(one.index, OWN, 128).unwrap();

    let ipv4 = std::net::Ipv4Addr::new(10, 50, 60, 1);
    netlink.add_address(one.index, ipv4, 24).unwrap();
    assert!(ip("-4 address show dev one").contains("10.50.60.1/24"));
    netlink.remove_address(one.index, ipv4, 24).unwrap();
    assert!(!ip("-4 address show dev one").contains("10.50.60.1/24"));
}

#[test]
fn a_source_is_refused_on_a_link() {
    if !inside_a_namespace("a_source_is_refused_on_a_link") {
        return;
    }
    let mut netlink = Netlink::open().unwrap();
    netlink.refuse_source("lan0", OWN).unwrap();
    let rules = ip("-6 rule show");
    assert!(rules.contains("5267:\tfrom fd12:3456::1 iif lan0 [detached] prohibit"), "{rules}");
    let again = netlink.refuse_source("lan0", OWN).unwrap_err().to_string();
    assert!(again.contains("rule against fd12:3456::1 from lan0"), "{again}");
}

#[test]
fn errors_name_what_failed() {
    if !inside_a_namespace("errors_name_what_failed") {
        return;
    }
    ip("link add one type veth peer name two");
    ip("link set two up");
    ip("link set one up");
    let mut netlink = Netlink::open().unwrap();
    let one = netlink.link("one").unwrap().index;
    let texts = [
        netlink.link("none").unwrap_err().to_string(),
        netlink.link("").unwrap_err().to_string(),
        netlink.remove_address(one, OWN, 64).unwrap_err().to_string(),
        netlink.add_address(99, OWN, 64).unwrap_err().to_string(),
        netlink.set_up(99).unwrap_err().to_string(),
        netlink.set_mtu(one, 10).unwrap_err().to_string(),
    ];
    let expected = [
        "cannot find link \"none\": No such device (os error 19)",
        "cannot find link \"\": expected a name of 1 to 15 octets",
        "cannot remove address fd12:3456::1/64 of one: Cannot assign requested address (os error 99)",
        "cannot add address fd12:3456::1/64 of link number 99: No such device (os error 19)",
        "cannot bring up link number 99: No such device (os error 19)",
        "cannot set MTU 10 of one: Invalid argument (os error 22)",
    ];
    for (text, expected) in texts.iter().zip(expected) {
        // The kernel's explanation may follow.
        assert!(text.starts_with(expected), "{text}");
    }
    let mesh = Route {
        destination: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0),
        prefix_length: 8,
        interface: one,
        gateway: None,
        metric: 77,
    };
    netlink.add_route(&mesh).unwrap();
    let text = netlink.add_route(&mesh).unwrap_err().to_string();
    assert_eq!(text, "cannot add route fd00::/8 on one: File exists (os error 17)");
    let gateway = Some(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    let error = netlink.add_route(&Route { metric: 78, gateway, ..mesh }).unwrap_err();
    assert_eq!(error.explanation.as_deref(), Some("Invalid gateway address"));
    let expected = "cannot add route fd00::/8 by ff02::1 on one: Invalid argument (os error 22): Invalid gateway address";
    assert_eq!(error.to_string(), expected);
    netlink.add_address(one, OWN, 64).unwrap();
    let error = netlink.add_address(one, OWN, 64).unwrap_err();
    assert_eq!(error.cause.kind(), std::io::ErrorKind::AlreadyExists, "{error}");
    netlink.remove_route(&mesh).unwrap();
    let text = netlink.remove_route(&mesh).unwrap_err().to_string();
    assert_eq!(text, "cannot remove route fd00::/8 on one: No such process (os error 3)");
}

#[test]
fn changes_are_reported_as_they_happen() {
    if !inside_a_namespace("changes_are_reported_as_they_happen") {
        return;
    }
    runtime().block_on(async {
        let mut monitor = Monitor::open().unwrap();
        let mut next = async |found: &dyn Fn(&Change) -> bool| loop {
            let next = tokio::time::timeout(Duration::from_secs(60), monitor.next());
            if found(&next.await.unwrap().unwrap()) {
                return;
            }
        };
        ip("link add one type veth peer name two");
        next(&|c| matches!(c, Change::Link(link) if link.name == "one" && !link.is_up())).await;
        ip("link set one up");
        next(&|c| matches!(c, Change::Link(link) if link.name == "one" && link.is_up() && !link.is_running())).await;
        ip("link set two up");
        next(&|c| matches!(c, Change::Link(link) if link.name == "one" && link.is_running())).await;
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.link("one").unwrap().index;
        netlink.add_address(index, OWN, 64).unwrap();
        let own = |a: &ringway_os::netlink::Address| a.interface == index && a.ip == IpAddr::from(OWN);
        next(&|c| matches!(c, Change::Address(address) if own(address) && address.is_usable())).await;
        netlink.remove_address(index, OWN, 64).unwrap();
        next(&|c| matches!(c, Change::AddressRemoved(address) if own(address))).await;
        ip("link del one");
        next(&|c| matches!(c, Change::LinkRemoved(link) if link.index == index)).await;
    });
}

/// A burst that the socket's buffer cannot hold.
#[test]
fn lost_changes_are_reported_and_read_again() {
    if !inside_a_namespace("lost_changes_are_reported_and_read_again") {
        return;
    }
    ip("link set lo up");
    runtime().block_on(async {
        let mut monitor = Monitor::open().unwrap();
        let mut usable = NetworkMonitor::open().unwrap();
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.link("lo").unwrap().index;
        for _ in 0..2_000 {
            netlink.add_address(lo, OWN, 128).unwrap();
            netlink.remove_address(lo, OWN, 128).unwrap();
        }
        netlink.add_address(lo, OWN, 128).unwrap();
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, async {
            while monitor.next().await.unwrap() != Change::Lost {}
        })
        .await
        .unwrap();
        // What is known in the end is what is there, however much was missed.
        let mut known = Vec::new();
        let quiet = Duration::from_millis(300);
        while let Ok(change) = tokio::time::timeout(quiet, usable.next()).await {
            known.push(change.unwrap());
        }
        assert_eq!(known.last(), Some(&(IpAddr::from(OWN), true)));
        assert!(known.len() < 4_000, "{}", known.len());
    });
}
