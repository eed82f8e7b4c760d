use super::*;
use crate::identity::Search;
use proptest::prelude::*;
use ringway_sansio::{Random, SplitMix};

/// Table 4 of the source: the MAC addresses of its three routers, in the order 1, 2, 3.
const MACS: [u64; 3] = [0x001c_1052_1dbf, 0x001c_1052_4456, 0x001c_1052_47b3];

/// Table 5 of the source: ten hashes.
const HASHES: [u64; 10] = [
    0x3c29_f07c_159d,
    0x5a36_2661_bcc9,
    0x6684_10e2_e917,
    0x9d9f_7b21_4fec,
    0x9da9_2295_8665,
    0xb2f3_fb21_2ee0,
    0xc60a_f26f_d113,
    0xcf78_98f6_0304,
    0xe14f_0022_25f8,
    0xeacf_8df7_b802,
];

/// An id of 48 bits as one of 64: padded on the right, so that order and proportions stay.
fn padded(mac: u64) -> NodeId {
    NodeId::new(mac << 16)
}

/// The source's remedy: the octets of a MAC address in reverse.
fn reversed(mac: u64) -> u64 {
    mac.swap_bytes() >> 16
}

/// How many of `keys` each of `routers` is responsible for.
fn shares<S: Space>(routers: &[NodeId], keys: impl Iterator<Item = NodeId>) -> Vec<u32> {
    let mut shares = vec![0; routers.len()];
    for key in keys {
        let owner = responsible::<S>(routers.iter().copied(), key).unwrap();
        shares[routers.iter().position(|&router| router == owner).unwrap()] += 1;
    }
    shares
}

/// The three routers of the source with ids as ours are: hashes of keys.
fn ours() -> [NodeId; 3] {
    [1, 2, 3].map(|seed| Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap().id())
}

#[test]
fn table_6_has_every_key_at_the_third_router() {
    let routers = MACS.map(padded);
    assert_eq!(shares::<Ring>(&routers, HASHES.into_iter().map(padded)), [0, 0, 10]);
}

#[test]
fn tables_7_and_8_share_the_keys_between_two_routers() {
    assert_eq!(MACS.map(reversed), [0xbf1d_5210_1c00, 0x5644_5210_1c00, 0xb347_5210_1c00]);
    let routers = MACS.map(|mac| padded(reversed(mac)));
    assert_eq!(shares::<Ring>(&routers, HASHES.into_iter().map(padded)), [5, 5, 0]);
}

/// Figures 20 and 21: the part of the ring that each router covers, in millionths. The ids of the source leave router 2
/// nothing at all; reversed they leave router 3 4.6 %. Hashes of keys are spread whatever the hardware's numbers are.
#[test]
fn figures_20_and_21_show_what_each_router_covers() {
    let covers = |routers: [NodeId; 3]| {
        let mut draw = SplitMix::new(20);
        let keys = core::iter::repeat_with(move || NodeId::new(draw.next_u64())).take(1_000_000);
        shares::<Ring>(&routers, keys)
    };
    assert_eq!(covers(MACS.map(padded)), [0, 0, 1_000_000]);
    let [one, two, three] = covers(MACS.map(|mac| padded(reversed(mac))))[..] else { panic!() };
    // (0x56.. - 0xbf..), (0xb3.. - 0x56..) and (0xbf.. - 0xb3..) of 2^48.
    assert!(one.abs_diff(590_000) < 2_000 && two.abs_diff(363_400) < 2_000, "{one} {two}");
    assert!(three.abs_diff(46_200) < 1_000, "{three}");
    let ours = covers(ours());
    assert!(ours.iter().all(|&part| part > 100_000), "{ours:?}");
}

/// Of n routers on a ring with n random ids the largest part is about ln n times the mean; so it is with ours, while of
/// n routers with neighbouring MAC addresses one has all keys.
#[test]
fn a_hundred_routers_share_a_hundred_thousand_keys() {
    let n = 100;
    let by_key: Vec<NodeId> =
        (0..n).map(|seed| Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap().id()).collect();
    let by_mac: Vec<NodeId> = (0..n).map(|router| padded(MACS[0] + router)).collect();
    let keys = |seed| {
        let mut draw = SplitMix::new(seed);
        core::iter::repeat_with(move || NodeId::new(draw.next_u64())).take(100_000)
    };
    let largest = |routers: &[NodeId]| {
        f64::from(*shares::<Ring>(routers, keys(7)).iter().max().unwrap()) / 1_000.0
    };
    assert_eq!(largest(&by_mac), 100.0);
    assert!((2.0..9.2).contains(&largest(&by_key)), "{}", largest(&by_key));
}

#[test]
fn near_contacts_are_the_closest_on_each_side() {
    let sorted = [1, 3, 5, 8, 9].map(NodeId::new);
    let near = |own| {
        Ring::near(NodeId::new(own), &sorted, 2).iter().map(|id| id.raw()).collect::<Vec<_>>()
    };
    assert_eq!(near(6), [3, 5, 8, 9]);
    assert_eq!(near(0), [1, 3]);
    assert_eq!(near(20), [8, 9]);
    let near = Xor::near(NodeId::new(2), &sorted, 1);
    assert_eq!(near.as_slice(), [3, 1].map(NodeId::new));
}

#[test]
fn hints_stop_where_the_router_itself_is_the_neighbour() {
    let sorted = [1, 3, 5, 8, 9].map(NodeId::new);
    let hints = |own, peer| {
        let hints = Ring::hints(NodeId::new(own), NodeId::new(peer), &sorted);
        hints.iter().map(|id| id.raw()).collect::<Vec<_>>()
    };
    assert_eq!(hints(6, 8), [9]);
    assert_eq!(hints(4, 8), [5, 9]);
    assert_eq!(hints(10, 5), [3, 8]);
    assert_eq!(hints(4, 5), [8]);
    assert_eq!(hints(4, 3), [1]);
}

/// Of each class in common one, so that no class stays empty in which there is somebody.
#[test]
fn xor_hints_fill_the_classes_in_common() {
    let sorted: Vec<NodeId> =
        [0x10, 0x11, 0x30, 0x70, 0x71, 0xf0].map(|id| id << 56).map(NodeId::new).into();
    let ids = |ids: &Ids| ids.iter().map(|id| id.raw() >> 56).collect::<Vec<_>>();
    let own = NodeId::new(0x12 << 56);
    // 0x10 and 0x11 are the closest to both; 0x30, 0x70 and 0xf0 are of classes that both have.
    assert_eq!(
        ids(&Xor::hints(own, NodeId::new(0x13 << 56), &sorted)),
        [0x10, 0x11, 0x30, 0x71, 0xf0]
    );
    // With one that is far only the class of everybody else is in common.
    assert_eq!(ids(&Xor::hints(own, NodeId::new(0x72 << 56), &sorted)), [0x70, 0x71, 0xf0]);
    let asked = |turn| ids(&Xor::asked(own, &sorted, turn));
    assert_eq!([0, 1, 2].map(asked), [[0x10, 0x11, 0xf0], [0x10, 0x11, 0x70], [0x10, 0x11, 0x30]]);
}

proptest! {
    #[test]
    fn distances_are_unique_and_zero_is_the_key(key: u64, one: u64, other: u64) {
        let [key, one, other] = [key, one, other].map(NodeId::new);
        prop_assert_eq!(Ring::distance(key, key), 0);
        prop_assert_eq!(Ring::distance(one, key) == Ring::distance(other, key), one == other);
        prop_assert_eq!(Xor::distance(one, key) == Xor::distance(other, key), one == other);
    }

    /// The source, section 3.4.2: from the own id up to all ids below the successor's.
    #[test]
    fn a_router_is_responsible_up_to_the_next(mut ids in proptest::collection::btree_set(any::<u64>(), 1..20), key: u64) {
        let nodes: Vec<NodeId> = core::mem::take(&mut ids).into_iter().map(NodeId::new).collect();
        let owner = responsible::<Ring>(nodes.iter().copied(), NodeId::new(key)).unwrap();
        let at = nodes.iter().position(|&node| node == owner).unwrap();
        let next = nodes[(at + 1) % nodes.len()];
        let from_owner = |id: u64| id.wrapping_sub(owner.raw());
        prop_assert!(nodes.len() == 1 || from_owner(key) < from_owner(next.raw()));
    }

    #[test]
    fn a_delegate_is_closer_to_the_evicted(ids in proptest::collection::btree_set(any::<u64>(), 2..30), own: u64) {
        let sorted: Vec<NodeId> = ids.into_iter().filter(|&id| id != own).map(NodeId::new).collect();
        let own = NodeId::new(own);
        for &evicted in &sorted {
            for delegate in [Ring::delegate(own, evicted, &sorted), Xor::delegate(own, evicted, &sorted)] {
                prop_assert!(delegate.is_none_or(|to| to != evicted && to != own));
            }
            if let Some(to) = Ring::delegate(own, evicted, &sorted) {
                prop_assert!(to.raw().abs_diff(evicted.raw()) < own.raw().abs_diff(evicted.raw()));
            }
            prop_assert!(Ring::class(own, evicted) < 128 && Xor::class(own, evicted) < 64);
        }
    }
}
