//! Hosts of which only some pairs of addresses reach each other.

use super::support::*;
use ringway_sctp::Settings;
use std::cell::Cell;
use std::rc::Rc;

/// RFC 9260 section 6.4.1: what was lost goes from another address of ours, but not away from the one
/// that the peer's packets have come to since: of two addresses of which one reaches the peer, that one
/// carries the data again as soon as its link does.
#[test]
fn a_pair_that_works_is_not_left() {
    for path_max_retrans in [0, 1, 5] {
        let cut = Rc::new(Cell::new(false));
        let cutting = cut.clone();
        let wire: Wire = Box::new(move |_, packet| {
            let way = [packet.addressing.source, packet.addressing.destination];
            if cutting.get() || way.contains(&A2) { Vec::new() } else { vec![ms(10)] }
        });
        let homed = Settings { path_max_retrans, rto_max: secs(2), ..super::quick() };
        let asking = Settings { heartbeat_interval: Some(ms(100)), ..homed };
        let mut pair = Pair::over(homed, asking, wire);
        let (a, b) = pair.open_over(&[A1, A2], &[B1]);
        pair.run(secs(1));
        cut.set(true);
        pair.send(a, 0, b"hello");
        pair.run(secs(3));
        cut.set(false);
        pair.run(secs(6));
        assert_eq!(pair.received(b), [(0, b"hello".to_vec())], "{path_max_retrans}");
    }
}
