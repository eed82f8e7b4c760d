//! A node beside a database that answers anything; `fuzz/fuzz_targets/cluster.rs` has the same steps.

mod steps;

use proptest::prelude::*;
use ringway_sansio::{Random, SplitMix};

proptest! {
    #[test]
    fn a_node_survives_a_database_that_answers_anything(octets in prop::collection::vec(any::<u8>(), 0..2000)) {
        steps::run(&octets);
    }
}

/// As above, with answers that are mostly in order, so that much is under way.
#[test]
fn a_node_survives_answers_in_any_order() {
    for seed in 0..400 {
        let mut random = SplitMix::new(seed);
        let mut octets = if seed % 2 == 0 { Vec::new() } else { b"\xff\x0f\x40abcd\0".to_vec() };
        let lease = format!("sip:192.0.2.1:5060 1000 5000 {}", "07".repeat(16));
        for _ in 0..400 {
            let pick = random.next_u64().to_le_bytes();
            let step = [0, 2, 3, 4, 5, 5, 7, 8, 9, 10, 11, 14, 14, pick[2], 15, 2]
                [usize::from(pick[0] % 16)];
            // Of the last step's kinds most are answers to probes.
            let extent = if step == 15 && pick[5] > 40 { 130 + (pick[1] & 0x7b) } else { pick[1] };
            octets.extend([step, extent]);
            match step % 16 {
                2..=4 | 14 => octets.extend([b'a' + pick[3] % 5, 0]),
                5 => octets.extend_from_slice(&[lease.as_bytes(), b"\0"].concat()),
                7 | 8 => octets.extend([4 + (pick[3] & 3) * (pick[4] & 1), 8, 4, 12, 0]),
                9 => octets.extend_from_slice(b"sip:192.0.2.2:5060 1 7 500 9000\0"),
                10 => octets.extend([b'u', b'a' + pick[3] % 5, 0]),
                15 if (64..128).contains(&extent) => octets.extend([pick[3], pick[4], pick[6], 0]),
                _ => {}
            }
        }
        steps::run(&octets);
    }
}
