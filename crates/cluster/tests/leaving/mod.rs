//! Nodes that leave: for good, or to be back soon.

use ringway_sansio::Duration;

use crate::world::World;
use crate::{SECOND, running};

#[test]
fn a_node_that_leaves_is_passed_over_at_once() {
    let mut w = running(3);
    for node in [0, 1] {
        w.register(node, "bob", 3600, 1);
    }
    w.run(SECOND);
    assert_eq!(w.call(2, "bob"), (vec![0, 1], true));
    w.leave(0);
    w.run(Duration::from_millis(10));
    assert!(w.nodes[0].machine.has_left());
    assert_eq!(w.call(2, "bob"), (vec![1], true));
    assert_eq!(w.nodes[2].peers.len(), 1);
    assert!(!w.register(0, "carol", 3600, 2), "it takes no registration any more");
    // And so it stays, though the process has not ended.
    w.run(20 * SECOND);
    assert_eq!(w.call(2, "bob"), (vec![1], true));
    assert_eq!(w.nodes[2].peers.len(), 1);
    // Its next run is another.
    w.kill(0);
    w.restart(0);
    w.run(2 * SECOND);
    w.register(0, "bob", 3600, 3);
    w.run(SECOND);
    assert_eq!(w.call(2, "bob"), (vec![0, 1], true));
}

/// Whatever is under way when a node leaves: a renewal, or a reading of leases by another, does not bring it back.
#[test]
fn a_node_that_leaves_does_not_come_back_by_what_was_under_way() {
    for offset in 0..40 {
        let mut w = World::new(2);
        w.database.latency = Duration::from_millis(100);
        w.run(3 * SECOND + Duration::from_millis(30) * offset);
        w.leave(0);
        w.run(Duration::from_millis(300));
        assert!(w.nodes[0].machine.has_left(), "{offset}");
        for _ in 0..60 {
            assert!(w.nodes[1].peers.is_empty(), "{offset}");
            w.run(Duration::from_millis(100));
        }
    }
}

/// A call for a phone of a node that is restarted waits for it, and no longer than it is expected.
#[test]
fn a_call_waits_for_a_node_that_is_being_restarted() {
    let mut w = running(3);
    w.register(0, "bob", 3600, 1);
    w.register(1, "bob", 3600, 1);
    w.register(0, "carol", 3600, 2);
    w.run(SECOND);
    w.leave(0);
    w.run(Duration::from_millis(100));
    // Who has a phone elsewhere is called there at once.
    let before = w.now;
    assert_eq!(w.call(2, "bob"), (vec![1], true));
    // A node that has a phone of the user itself lets that ring.
    w.register(2, "carol", 3600, 3);
    assert_eq!(w.call(2, "carol"), (vec![], true));
    assert!(w.now < before + SECOND / 10);
    w.unregister(2, "carol");
    w.kill(0);
    // It is back after two seconds, with the registrations of its file.
    w.restart_later(0, 2 * SECOND, &["carol"]);
    assert_eq!(w.call(1, "carol"), (vec![0], true));
    assert!(w.now > before + 2 * SECOND && w.now < before + 4 * SECOND, "{:?}", w.now - before);
    // The next time it does not come back.
    w.leave(0);
    w.run(Duration::from_millis(100));
    let before = w.now;
    assert_eq!(w.call(1, "carol"), (vec![], true));
    let waited = w.now - before;
    assert!(waited > 7 * SECOND && waited < 9 * SECOND, "{waited:?}");
    let before = w.now;
    assert_eq!(w.call(1, "carol"), (vec![], true));
    assert!(w.now < before + SECOND, "and it is not awaited any more");
    assert_eq!(w.nodes[1].machine.counts().asks, 0);
}

/// A node whose lease has ended without a word is not expected.
#[test]
fn a_call_does_not_wait_for_a_node_that_has_died() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    w.kill(0);
    w.run(7 * SECOND);
    let before = w.now;
    assert_eq!(w.call(1, "bob"), (vec![], true));
    assert!(w.now < before + SECOND);
}

/// The phones of a node that is to stop are moved first: they register elsewhere, and are called here until then.
#[test]
fn a_node_whose_phones_are_moved_is_called_and_takes_no_registration() {
    let mut w = running(2);
    w.register(0, "bob", 3600, 1);
    w.run(SECOND);
    w.nodes[0].machine.move_phones();
    assert!(!w.register(0, "carol", 3600, 2));
    w.run(20 * SECOND);
    assert_eq!(w.call(1, "bob"), (vec![0], true));
    w.unregister(0, "bob");
    w.register(1, "bob", 3600, 3);
    w.run(SECOND);
    assert_eq!(w.call(1, "bob"), (vec![], true));
    w.leave(0);
    w.run(SECOND);
    assert!(w.nodes[0].machine.has_left());
}

#[test]
fn a_node_leaves_when_the_database_is_there_again() {
    let mut w = running(2);
    w.pause(4 * SECOND);
    w.run(2 * SECOND);
    w.leave(0);
    w.run(4 * SECOND);
    assert!(w.nodes[0].machine.has_left());
    assert!(w.nodes[1].peers.is_empty());
}

/// Nodes that have stood still renew their leases one after the other. The first reads that the lease of the second is
/// nearly over, and reads again before it passes that node over.
#[test]
fn a_node_that_has_stood_still_and_goes_on_is_not_passed_over() {
    for stood_still in (30..50).map(|tenths| Duration::from_millis(100) * tenths) {
        let mut w = running(2);
        w.register(0, "bob", 3600, 1);
        w.run(Duration::from_millis(500));
        w.nodes.iter_mut().for_each(|node| node.alive = false);
        w.run(stood_still);
        for node in [1, 0] {
            w.nodes[node].alive = true;
            w.run(Duration::from_millis(10));
        }
        w.run(Duration::from_millis(110));
        for _ in 0..30 {
            assert_eq!(w.call(1, "bob"), (vec![0], true), "{stood_still:?}");
            w.run(Duration::from_millis(50));
        }
    }
}

/// A node may have started while no renewal was heard of.
#[test]
fn who_lives_is_read_when_changes_are_reported_again() {
    for offset in 0..20 {
        let mut w = running(2);
        w.kill(0);
        w.run(6 * SECOND);
        w.database.reports = false;
        w.run(SECOND + Duration::from_millis(50) * offset);
        assert!(w.nodes[1].peers.is_empty(), "{offset}");
        w.restart(0);
        w.run(Duration::from_millis(10));
        w.database.reports = true;
        w.run(Duration::from_millis(120));
        assert_eq!(w.nodes[1].peers.len(), 1, "{offset}");
    }
}
