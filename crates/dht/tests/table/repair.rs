//! What keepers lack, and how soon they have it again.

use super::net::Net;
use super::{name, right_keepers};
use ringway_dht::record::key;
use ringway_sansio::time::Duration;

/// Nobody's neighbours change when a router restarts within the time in which the mesh notices, but its table is empty.
#[test]
fn a_keeper_that_has_restarted_unnoticed_soon_has_its_records_again() {
    for (seed, loss) in (0..20).zip([0, 20].into_iter().cycle()) {
        let mut net = Net::new(20, 9_000 + seed);
        net.publish_everywhere(40);
        net.run(120_000);
        let id = net.some();
        let kept = net.nodes[&id].dht.table().len();
        net.loss = loss;
        net.restart(id);
        assert_eq!(net.nodes[&id].dht.table().len(), 0);
        let begun = net.now;
        let is_right = |number: &u64| right_keepers(&net, &name(*number)).contains(&id);
        let names: Vec<Vec<u8>> = (0..40).filter(is_right).map(name).collect();
        assert!(names.len() <= kept);
        let has = |net: &Net, name: &[u8]| {
            !net.nodes[&id].dht.table().of_name(key(1, name), 1, name).is_empty()
        };
        while !names.iter().all(|name| has(&net, name)) {
            net.run(100);
        }
        let took = net.now - begun;
        assert!(took < Duration::from_secs(12), "seed {seed}: {took:?}");
    }
}
