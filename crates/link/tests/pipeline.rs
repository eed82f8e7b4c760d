//! Every impairment through the whole link, one at a time.

#![allow(clippy::unwrap_used)]

mod common;

use common::Bench;
use ringway_link::{DropReason, Rate, Span};
use ringway_sansio::{Ecn, Time};

fn ms(n: u64) -> Time {
    Time::from_millis(n)
}

#[test]
fn rate_overhead_and_delay_add_up() {
    let mut b = Bench::from_toml("rate = \"1 Mbit/s\"\noverhead = \"25 B\"\ndelay = \"10 ms\"");
    b.offer(ms(0), 100);
    b.offer(ms(0), 100);
    b.offer(ms(5), 225);
    b.run(ms(100));
    assert_eq!(b.arrivals(), [11.0, 12.0, 17.0]);
}

/// netem's `rate`: an overhead that may be negative, and cells. 50 bytes are two cells of ATM, 106 bytes.
#[test]
fn cells_are_whole_and_headers_may_be_stripped() {
    let text = "rate = \"8 kbit/s\"\ncells = { payload = \"48 B\", header = \"5 B\" }";
    let mut b = Bench::from_toml(text);
    b.offer(ms(0), 50);
    b.offer(ms(0), 48);
    b.run(ms(1000));
    assert_eq!(b.arrivals(), [106.0, 159.0]);
    let more = "overhead = \"4 B\"\nstripped = \"14 B\"";
    let mut b = Bench::from_toml(&format!("{text}\n{more}"));
    b.offer(ms(0), 58);
    b.offer(ms(0), 59);
    b.offer(ms(0), 5);
    b.run(ms(1000));
    assert_eq!(b.arrivals(), [53.0, 159.0, 159.0]);
}

#[test]
fn an_idle_link_needs_no_call() {
    let mut b = Bench::from_toml("rate = \"1 Mbit/s\"");
    b.offer(ms(0), 1000);
    assert_eq!(b.link.poll_timeout(), None);
    b.offer(ms(0), 1000);
    assert_eq!(b.link.poll_timeout(), Some(ms(8)));
}

/// 49 packets wait and one is sent: of 60 that arrive at once, 10 are dropped.
#[test]
fn ns2_drop_tail_holds_fifty_with_the_one_on_the_wire() {
    let queue = "rate = \"1 Mbit/s\"\nqueue = { discipline = \"ns2-drop-tail\", limit = 50 }";
    let mut b = Bench::from_toml(queue);
    for _ in 0..60 {
        b.offer(ms(0), 1000);
    }
    assert_eq!(b.count(DropReason::QueueFull), 10);
    b.run(ms(1000));
    assert_eq!(b.ids(), (0..50).collect::<Vec<_>>());
}

#[test]
fn loss_before_the_queue_takes_no_time_and_after_the_link_it_does() {
    let text = |position| {
        format!("rate = \"1 Mbit/s\"\nloss_at = \"{position}\"\nloss_list = {{ packets = [1] }}")
    };
    let mut b = Bench::from_toml(&text("before-queue"));
    b.offer(ms(0), 1000);
    b.offer(ms(0), 1000);
    b.run(ms(100));
    assert_eq!((b.arrivals(), b.sink.dropped[0].0), (vec![8.0], ms(0)));
    let mut b = Bench::from_toml(&text("after-link"));
    b.offer(ms(0), 1000);
    b.offer(ms(0), 1000);
    b.run(ms(100));
    assert_eq!((b.arrivals(), b.sink.dropped[0].0), (vec![16.0], ms(8)));
}

#[test]
fn patterns_and_rules_look_at_bytes() {
    let mut b = Bench::from_toml("loss_list = { pattern = { offset = 7, bytes = [2] } }");
    b.link.lose_if(Box::new(|packet, bytes| bytes[0] == 3 && packet.size == 100));
    for _ in 0..8 {
        b.offer(ms(0), 100);
    }
    b.run(ms(1));
    assert_eq!(b.ids(), [0, 1, 4, 5]);
    assert_eq!(b.count(DropReason::Listed), 4);
}

#[test]
fn duplicates_pass_through_the_queue() {
    let mut b = Bench::from_toml("rate = \"1 Mbit/s\"\nduplicate = { chance = 1 }");
    b.offer(ms(0), 1000);
    b.run(ms(100));
    assert_eq!(b.ids(), [0, 1_000_001]);
    assert_eq!(b.arrivals(), [8.0, 16.0]);
}

#[test]
fn corruption_names_a_bit_of_the_packet() {
    let mut b = Bench::from_toml("corrupt = { chance = \"50 %\" }");
    for _ in 0..1000 {
        b.offer(ms(0), 100);
    }
    b.run(ms(1));
    let bits: Vec<u32> = b.delivered.iter().filter_map(|d| d.flip).collect();
    assert!((450..550).contains(&bits.len()));
    assert!(bits.iter().all(|&bit| bit < 800) && bits.iter().any(|&bit| bit > 700));
}

#[test]
fn marks_fall_on_capable_packets_only() {
    let mut b = Bench::from_toml("ecn_mark = { chance = 1 }");
    b.offer_as(ms(0), 100, Ecn::Ect0);
    b.offer_as(ms(0), 100, Ecn::NotEct);
    b.run(ms(1));
    let ecn: Vec<Ecn> = b.delivered.iter().map(|d| d.packet.ecn).collect();
    assert_eq!(ecn, [Ecn::Ce, Ecn::NotEct]);

    let mut b = Bench::from_toml("loss = { model = \"random\", chance = 1 }\nloss_marks = true");
    b.offer_as(ms(0), 100, Ecn::Ect1);
    b.offer_as(ms(0), 100, Ecn::NotEct);
    b.run(ms(1));
    assert_eq!((b.ids(), b.delivered[0].packet.ecn), (vec![0], Ecn::Ce));
    assert_eq!(b.count(DropReason::Loss), 1);
}

#[test]
fn a_packet_larger_than_the_mtu_is_dropped() {
    let mut b = Bench::from_toml("mtu = \"1500 B\"");
    b.offer(ms(0), 1500);
    b.offer(ms(0), 1501);
    b.run(ms(1));
    assert_eq!((b.ids(), b.count(DropReason::TooBig)), (vec![0], 1));
}

/// A cable is unplugged at 5 ms and plugged in at 20 ms: packets in flight, packets in the queue and
/// packets that arrive meanwhile are lost, each for its reason.
#[test]
fn a_cut_drops_packets_in_flight() {
    let text = "rate = \"1 Mbit/s\"\ndelay = \"3 ms\"\n\
                schedule = [{ at = \"5 ms\", up = false }, { at = \"20 ms\", up = true }]";
    let mut b = Bench::from_toml(text);
    // Sent at 1, 2, 3, 4, 5 ms; received 3 ms later.
    for _ in 0..8 {
        b.offer(ms(0), 125);
    }
    b.run(ms(10));
    b.offer(ms(10), 125);
    b.run(ms(21));
    b.offer(ms(21), 125);
    b.run(ms(100));
    assert_eq!(b.arrivals(), [4.0, 25.0]);
    assert_eq!(b.count(DropReason::Cut), 4);
    assert_eq!(b.count(DropReason::Down), 4);
}

#[test]
fn a_queue_may_outlast_a_cut() {
    let text = "rate = \"1 Mbit/s\"\ndown_keeps_queue = true\n\
                schedule = [{ at = \"1500 us\", up = false }, { at = \"20 ms\", up = true }]";
    let mut b = Bench::from_toml(text);
    for _ in 0..4 {
        b.offer(ms(0), 125);
    }
    b.run(ms(100));
    assert_eq!(b.arrivals(), [1.0, 21.0, 22.0]);
    assert_eq!(b.count(DropReason::Cut), 1);
}

#[test]
fn any_parameter_changes_on_a_schedule_that_repeats() {
    let text = "schedule_period = \"20 ms\"\n\
                schedule = [{ at = \"0 s\", delay = \"1 ms\" }, { at = \"10 ms\", delay = \"5 ms\" }]";
    let mut b = Bench::from_toml(text);
    for at in [0, 9, 10, 19, 20, 30] {
        b.run(ms(at));
        b.offer(ms(at), 100);
    }
    b.run(ms(100));
    assert_eq!(b.arrivals(), [1.0, 10.0, 15.0, 21.0, 24.0, 35.0]);
}

#[test]
fn a_queue_is_changed_under_way() {
    let text = "rate = \"1 Mbit/s\"\n\
                schedule = [{ at = \"2 ms\", queue = { discipline = \"drop-tail\", limit = 3 } }]";
    let mut b = Bench::from_toml(text);
    for _ in 0..8 {
        b.offer(ms(0), 125);
    }
    b.run(ms(100));
    // At 2 ms the change comes before the third is sent; of six that wait three stay.
    assert_eq!(b.ids(), [0, 1, 2, 3, 4]);
    assert_eq!(b.count(DropReason::QueueFull), 3);
}

#[test]
fn a_trace_sets_the_rate() {
    let text = "rate_trace = [{ lasts = \"10 ms\", rate = \"1 Mbit/s\" }, \
                              { lasts = \"10 ms\", rate = \"0 bit/s\" }]";
    let mut b = Bench::from_toml(text);
    for _ in 0..4 {
        b.offer(ms(0), 500);
    }
    b.run(ms(100));
    assert_eq!(b.arrivals(), [4.0, 8.0, 22.0, 26.0]);
}

#[test]
fn packets_leave_at_opportunities() {
    let mut b =
        Bench::from_toml("deliveries = { at = [\"3 ms\", \"5 ms\", \"10 ms\"] }\ndelay = \"1 ms\"");
    for size in [1504, 1000, 504, 2000] {
        b.offer(ms(0), size);
    }
    b.run(ms(100));
    assert_eq!(b.arrivals(), [4.0, 6.0, 6.0, 14.0]);
}

#[test]
fn a_change_from_outside_is_checked() {
    let mut b = Bench::from_toml("delay = \"1 ms\"");
    let refused = b.link.reconfigure(ms(0), &mut b.sink, |c| c.rate = Rate(0));
    assert!(refused.is_err());
    b.link.reconfigure(ms(0), &mut b.sink, |c| c.delay = Span::from_millis(7)).unwrap();
    b.offer(ms(0), 100);
    b.run(ms(100));
    assert_eq!(b.arrivals(), [7.0]);
}

#[test]
fn the_log_records_every_outcome() {
    let text = "rate = \"1 Mbit/s\"\nmtu = \"1000 B\"\ndelay = \"1 ms\"";
    let mut b = Bench::from_toml(text);
    b.offer(ms(0), 125);
    b.offer(ms(0), 2000);
    b.run(ms(10));
    let expected = "0 0 enqueue\n0 0 dequeue\n1000000 0 deliver at 2000000 after 2000000\n\
                    0 1 drop larger than the MTU\n";
    assert_eq!(b.log, expected);
}
