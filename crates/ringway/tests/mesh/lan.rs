//! Hosts of two LANs, which know nothing of the mesh, reach each other through three routers in a line.

use crate::spaces::{Spaces, wait};

const NAMES: &[&str] = &["h1", "r1", "r2", "r3", "h3"];
/// CAP_NET_ADMIN alone.
const NET_ADMIN: &str = "0000000000001000";

/// Returns an address that a host has made of an advertisement.
fn address(spaces: &Spaces, host: &str) -> Option<String> {
    let all = spaces.ip(host, "-6 -o addr show scope global dynamic -tentative");
    let address = all.split_whitespace().find_map(|word| word.strip_suffix("/64"))?;
    Some(address.to_owned())
}

#[test]
fn hosts_behind_two_routers_configure_themselves_and_reach_each_other() {
    let Some(spaces) = Spaces::new("l", NAMES) else { return };
    // The kernel takes routes of advertisements if it is asked to; NetworkManager and systemd-networkd take them
    // themselves.
    for host in ["h1", "h3"] {
        let option = "net.ipv6.conf.default.accept_ra_rt_info_max_plen=64";
        assert!(spaces.run(host, &format!("sysctl -w {option}")).is_some());
    }
    spaces.connect();
    let first = spaces.start("r1", "--interface right --lan left");
    let others = [
        spaces.start("r2", "--interface left --interface right"),
        spaces.start("r3", "--interface left --lan right"),
    ];
    wait("an address at the first host", || address(&spaces, "h1"));
    let last = wait("an address at the last host", || address(&spaces, "h3"));
    assert!(last.starts_with("fd"), "{last}");
    wait("an answer of the last host", || spaces.run("h1", &format!("ping -c 1 -W 1 {last}")));
    assert!(spaces.ip("h1", "-6 route").contains("fd00::/8"));
    let device = spaces.ip("r1", "-6 addr show dev r1 scope global");
    assert!(device.contains("/128"), "{device}");
    // A host behind a router is a destination of a trace, and its router answers.
    let trace = first.json(&format!("trace {last}"));
    assert_eq!(trace["hops"].as_array().unwrap().len(), 2, "{trace}");
    assert_eq!(trace["reached"], true, "{trace}");
    // Its one capability lets a router serve a LAN that was gone.
    assert_eq!(first.field("CapEff"), NET_ADMIN);
    spaces.ip("r1", "link set left down");
    first.logs("LAN left is not served any more");
    spaces.ip("r1", "link set left up");
    wait("the LAN again", || (first.count("LAN left is served") == 2).then_some(()));
    let lan = spaces.ip("r1", "-6 addr show dev left scope global");
    assert!(lan.contains("inet6 fd"), "{lan}");
    wait("an answer over the LAN that is back", || {
        spaces.run("h1", &format!("ping -c 1 -W 1 {last}"))
    });
    // A router that leaves says so.
    assert!(first.stop());
    wait("the end of the route", || {
        (!spaces.ip("h1", "-6 route").contains("fd00::/8")).then_some(())
    });
    for router in others {
        assert!(router.stop());
    }
}
