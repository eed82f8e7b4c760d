//! Probes of the way to a router, in virtual time.

mod net;
mod wired;

use core::net::Ipv6Addr;
use net::topology;
use ringway_mesh::crypto::{Crypto, Real, StandIn};
use ringway_mesh::router::Event;
use ringway_mesh::session::{ProbeId, ProbeOutcome, ProbeRefused};
use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::time::Duration;
use wired::{DELAY, Wired};

const SECOND: Duration = Duration::from_secs(1);

fn settled<C: Crypto>(links: topology::Links) -> Wired<C> {
    let mut net = Wired::new(links, 5);
    net.run(SECOND * 20);
    net
}

fn probe<C: Crypto>(
    net: &mut Wired<C>,
    from: usize,
    to: Ipv6Addr,
    hops: u8,
) -> Result<ProbeId, ProbeRefused> {
    let mut id = Err(ProbeRefused::Busy);
    net.call(from, |router, now, random| id = router.probe(now, to, hops, random));
    id
}

/// Returns what became of a probe.
fn outcome<C: Crypto>(net: &Wired<C>, at: usize, id: ProbeId) -> Option<ProbeOutcome> {
    net.nodes[at].events.iter().find_map(|(_, event)| match event {
        Event::Probe(probe, outcome) if *probe == id => Some(*outcome),
        _ => None,
    })
}

fn address<C: Crypto>(net: &Wired<C>, at: usize) -> Ipv6Addr {
    net.id(at).prefix().router()
}

#[test]
fn each_router_on_the_way_names_itself() {
    let mut net = settled::<Real>(topology::line(5));
    let to = address(&net, 4);
    // The first also waits for the session.
    for hops in 1..=3 {
        let id = probe(&mut net, 0, to, hops).unwrap();
        net.run(SECOND);
        let (by, rtt) = (net.id(hops.into()), DELAY * 2 * u32::from(hops));
        assert_eq!(outcome(&net, 0, id), Some(ProbeOutcome::Expired { by, rtt }));
    }
    for hops in [4, 0] {
        let id = probe(&mut net, 0, to, hops).unwrap();
        net.run(SECOND);
        let Some(ProbeOutcome::Answered { owner, rtt, hops, mtu }) = outcome(&net, 0, id) else {
            panic!("{:?}", outcome(&net, 0, id));
        };
        assert_eq!((owner, rtt, hops, mtu), (net.id(4), DELAY * 8, 4, 1_400));
    }
    // A host's packet is not delayed: the reports about probes did not end the route.
    let start = net.now;
    net.send(0, 4, b"packet");
    net.run(SECOND);
    assert_eq!(net.nodes[4].delivered[0].0.since(start), DELAY * 4);
}

#[test]
fn an_absent_router_and_impossible_destinations_are_reported() {
    let mut net = settled::<StandIn>(topology::grid(3));
    let absent = Prefix::of(&NodeId::new(0x1234_5678_9abc_def0).prefix().router()).unwrap();
    let id = probe(&mut net, 0, absent.router(), 0).unwrap();
    net.run(SECOND);
    assert_eq!(outcome(&net, 0, id), Some(ProbeOutcome::NoRoute));
    // Known to be absent.
    let id = probe(&mut net, 0, absent.router(), 0).unwrap();
    assert_eq!(outcome(&net, 0, id), Some(ProbeOutcome::NoRoute));
    let own = address(&net, 0);
    assert_eq!(probe(&mut net, 0, own, 0), Err(ProbeRefused::Own));
    let other = "2001:db8::1".parse().unwrap();
    assert_eq!(probe(&mut net, 0, other, 0), Err(ProbeRefused::NotMesh));
}

#[test]
fn a_router_beside_a_dead_link_says_so() {
    let mut net = settled::<StandIn>(topology::line(4));
    let to = address(&net, 3);
    let id = probe(&mut net, 0, to, 0).unwrap();
    net.run(SECOND);
    assert!(matches!(outcome(&net, 0, id), Some(ProbeOutcome::Answered { .. })));
    net.crash(3);
    net.run(SECOND / 100);
    let lost = probe(&mut net, 0, to, 0).unwrap();
    net.run(SECOND / 2);
    assert_eq!(outcome(&net, 0, lost), None);
    let near = probe(&mut net, 0, to, 2).unwrap();
    net.run(SECOND / 10);
    let expired = outcome(&net, 0, near);
    assert!(
        matches!(expired, Some(ProbeOutcome::Expired { by, .. }) if by == net.id(2)),
        "{expired:?}"
    );
}

#[test]
fn probes_under_way_are_bounded_and_forgotten() {
    let mut net = settled::<StandIn>(topology::line(3));
    let to = address(&net, 2);
    net.crash(1);
    let begun = (0..70).filter(|_| probe(&mut net, 0, to, 0).is_ok()).count();
    assert_eq!(begun, 64);
    net.run(SECOND * 11);
    assert!(probe(&mut net, 0, to, 0).is_ok());
}
