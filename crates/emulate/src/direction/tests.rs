//! A direction in virtual time.

use super::*;
use proptest::prelude::*;
use ringway_link::loss::RandomLoss;
use ringway_link::trace::RateStep;
use ringway_link::{Chance, Loss, Rate, Size, Sometimes, Span};
use ringway_sansio::Duration;

const ETHERNET: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];

fn at(us: u64) -> Time {
    Time::from_nanos(7_000_000_000 + us * 1_000)
}

/// Returns a packet of UDP over IPv4 with a number in it, ECT(0) set.
fn packet(number: u32, size: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 2, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    packet.extend([0, 53, 0, number as u8 % 3, 0, 0, 0, 0]);
    packet.extend(number.to_be_bytes());
    packet.resize(size.max(32), 7);
    packet
}

fn arrival(payload: &[u8]) -> Arrival<'_> {
    Arrival { link: &ETHERNET, headers: &[], payload, checksum: Checksum::Complete }
}

fn direction(config: LinkConfig) -> Direction {
    Direction::new(config, "a-b", &Streams::new(1, 0), at(0)).unwrap()
}

/// Sends everything that is due until `until`, `late` after it is due. Returns when each packet was sent and its
/// octets from the header of the link on.
fn run(direction: &mut Direction, until: Time, late: Duration) -> Vec<(Time, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(due) = direction.poll_timeout().filter(|due| *due <= until) {
        let now = due + late;
        while let Some(transmit) = direction.poll_transmit(now) {
            all.push((now, transmit.bytes()[VNET_HEADER..].to_vec()));
            direction.sent(now, transmit);
        }
    }
    all
}

fn delay(ms: u64) -> LinkConfig {
    LinkConfig { delay: Span::from_millis(ms), ..LinkConfig::default() }
}

#[test]
fn a_packet_comes_out_unchanged_after_its_delay() {
    let mut d = direction(delay(35));
    assert_eq!(d.poll_timeout(), None);
    let sent = packet(1, 100);
    d.handle_packet(at(10), &arrival(&sent));
    assert!(d.poll_transmit(at(35_009)).is_none());
    assert_eq!(d.poll_timeout(), Some(at(35_010)));
    let out = run(&mut d, at(40_000), Duration::from_micros(3));
    assert_eq!(out, [(at(35_013), [&ETHERNET[..], &sent].concat())]);
    let there = d.report(at(50_000));
    assert_eq!((there.received.packets, there.sent.octets), (1, 100));
    let error = there.error.delay.unwrap();
    assert!((error.max_us - 3.0).abs() < 0.01, "{error:?}");
    assert!((there.delay.p50_ms - 35.003).abs() < 0.04, "{:?}", there.delay);
}

#[test]
fn a_partial_checksum_is_carried_across() {
    let mut d = direction(delay(1));
    let checksum = Checksum::Partial { start: 20, offset: 6 };
    let sent = packet(1, 60);
    let (headers, payload) = sent.split_at(28);
    d.handle_packet(at(0), &Arrival { link: &ETHERNET, headers, payload, checksum });
    let transmit = d.poll_transmit(at(1_000)).unwrap();
    let (head, bytes) = transmit.bytes().split_first_chunk::<VNET_HEADER>().unwrap();
    let moved = Checksum::Partial { start: 34, offset: 6 };
    assert_eq!(VnetHeader::parse(head).unwrap().checksum, moved);
    assert_eq!(bytes, [&ETHERNET[..], &sent].concat());
    d.refused(transmit, "interface down");
    assert_eq!(d.report(at(2_000)).lost["interface down"], 1);
}

#[test]
fn an_inverted_bit_is_noticed_by_the_receiver() {
    let corrupt = Sometimes { chance: Chance::ALWAYS, correlation: Chance::NEVER };
    let mut d = direction(LinkConfig { corrupt, ..LinkConfig::default() });
    let checksum = Checksum::Partial { start: 20, offset: 6 };
    let sent = packet(1, 60);
    d.handle_packet(at(0), &Arrival { checksum, ..arrival(&sent) });
    let transmit = d.poll_transmit(at(0)).unwrap();
    let (head, bytes) = transmit.bytes().split_first_chunk::<VNET_HEADER>().unwrap();
    assert_eq!(VnetHeader::parse(head).unwrap().checksum, Checksum::Complete);
    let mut complete = sent.clone();
    complete_checksum(&mut complete, checksum);
    let bits = bytes[14..].iter().zip(&complete).map(|(a, b)| (a ^ b).count_ones());
    assert_eq!(bits.sum::<u32>(), 1);
    assert_eq!(bytes[14..34], sent[..20]);
}

#[test]
fn congestion_is_marked() {
    let ecn_mark = Sometimes { chance: Chance::ALWAYS, correlation: Chance::NEVER };
    let mut d = direction(LinkConfig { ecn_mark, ..LinkConfig::default() });
    d.handle_packet(at(0), &arrival(&packet(1, 60)));
    let transmit = d.poll_transmit(at(0)).unwrap();
    assert_eq!(Headers::read(&[], &transmit.bytes()[VNET_HEADER + 14..]).ecn, Ecn::Ce);
    assert_eq!(d.report(at(1)).marked, 1);
}

#[test]
fn an_invalid_change_changes_nothing() {
    let mut d = direction(delay(10));
    d.handle_packet(at(0), &arrival(&packet(1, 60)));
    let wrong = Change { rate: Some(Rate(0)), delay: Some(Span(1)), ..Change::default() };
    let refused = d.prepare(&wrong).unwrap_err();
    assert!(refused.to_string().contains("rate"), "{refused}");
    assert_eq!(d.report(at(1_000)).parameters, delay(10));
    let faster = Change { delay: Some(Span::from_millis(2)), ..Change::default() };
    let prepared = d.prepare(&faster).unwrap();
    assert_eq!(d.report(at(1_000)).parameters, delay(10), "it is not made yet");
    d.set(at(1_000), prepared);
    d.handle_packet(at(1_000), &arrival(&packet(2, 60)));
    let out = run(&mut d, at(20_000), Duration::ZERO);
    assert_eq!(out.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [at(3_000), at(10_000)]);
    assert_eq!(d.report(at(20_000)).parameters, delay(2));
}

/// The other direction may be changed already.
#[test]
fn a_prepared_change_is_made_whatever_the_schedule_has_changed_since() {
    let text = "schedule = [{ at = '1 ms', rate_trace = [] },\n\
                { at = '2 ms', deliveries = { at = ['1 ms'] } }]";
    let mut d = direction(toml::from_str(text).unwrap());
    let trace = vec![RateStep { lasts: Span::from_millis(1), rate: Rate(8_000_000) }];
    let prepared =
        d.prepare(&Change { rate_trace: Some(trace.clone()), ..Change::default() }).unwrap();
    // A trace beside deliveries is not valid.
    d.set(at(3_000), prepared);
    let LinkConfig { rate_trace, deliveries, .. } = d.report(at(3_000)).parameters;
    assert_eq!((rate_trace, deliveries.is_none()), (trace, true));
}

/// IEEE 802.3 section 3.2.8: a card adds octets to a short frame, which its data does not count.
#[test]
fn padding_is_carried_and_not_counted() {
    let mut d = direction(LinkConfig { rate: Rate(8_000), mtu: Size(40), ..delay(1) });
    d.start_log();
    let mut sent = packet(1, 46);
    sent[3] = 40;
    d.handle_packet(at(0), &arrival(&sent));
    let out = run(&mut d, at(50_000), Duration::ZERO);
    // 40 octets take 40 ms at 8,000 bit/s.
    assert_eq!(out, [(at(41_000), [&ETHERNET[..], &sent].concat())]);
    assert!(d.take_log().contains("deliver"));
    let there = d.report(at(50_000));
    assert_eq!((there.received.octets, there.sent.octets), (40, 40));
}

#[test]
fn no_bit_of_the_padding_is_inverted() {
    let corrupt = Sometimes { chance: Chance::ALWAYS, correlation: Chance::NEVER };
    let mut d = direction(LinkConfig { corrupt, ..LinkConfig::default() });
    for n in 0..100 {
        let mut sent = packet(n, 46);
        sent[3] = 32;
        d.handle_packet(at(0), &arrival(&sent));
        let transmit = d.poll_transmit(at(0)).unwrap();
        assert_eq!(transmit.bytes()[VNET_HEADER + 14 + 32..], sent[32..]);
        assert_ne!(transmit.bytes()[VNET_HEADER + 14 + 20..], sent[20..]);
    }
}

#[test]
fn rate_and_loss_are_measured() {
    let chance = Chance::percent(10.0).unwrap();
    let loss = Loss::Random(RandomLoss { chance, correlation: Chance::NEVER });
    let rate = Rate(8_000_000);
    let mut d = direction(LinkConfig { rate, loss, ..delay(5) });
    let mut out = 0;
    for n in 0..2_000u32 {
        d.handle_packet(at(u64::from(n) * 900), &arrival(&packet(n, 1_000)));
        out += run(&mut d, at(u64::from(n) * 900 + 899), Duration::ZERO).len();
    }
    out += run(&mut d, at(10_000_000), Duration::ZERO).len();
    let there = d.report(at(10_000_000));
    let lost = there.dropped["random loss"];
    let full = there.dropped.get("queue full").copied().unwrap_or(0);
    assert_eq!(out as u64 + lost + full, 2_000);
    let error = there.error.loss.unwrap();
    assert_eq!((error.packets, error.lost), (2_000, lost));
    let [low, high] = error.interval.unwrap();
    assert!(low < 0.1 && 0.1 < high, "{error:?}");
    let rate = there.error.rate.unwrap();
    assert!((rate.decided_bits_per_s / 8e6 - 1.0).abs() < 1e-9, "{rate:?}");
    assert!(rate.percent.abs() < 1e-9 && rate.seconds > 0.5, "{rate:?}");
}

/// A world that holds no packets, as the simulator's link sees it.
#[derive(Default)]
struct Bare {
    flight: InFlight,
    next: u32,
    all: Vec<Vec<u8>>,
}

impl Outlet for Bare {
    fn departs(&mut self, departure: Departure) {
        self.flight.push(departure);
    }
    fn dropped(&mut self, _: Time, _: Packet, _: DropReason) {}
    fn copy(&mut self, packet: Packet) -> Option<u32> {
        self.all.push(self.all[packet.id as usize].clone());
        self.next += 1;
        Some(self.next - 1)
    }
    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        &self.all[packet.id as usize][20..]
    }
}

/// Runs a link of the simulator over arrivals, in virtual time. Returns its log.
fn simulated(config: &LinkConfig, seed: u64, arrivals: &[(Time, Vec<u8>)]) -> String {
    let mut link = Link::new(config.clone(), "a-b", &Streams::new(seed, 0), at(0)).unwrap();
    let (mut bare, mut log) = (Bare::default(), String::new());
    let pass = |until: Time, link: &mut Link, bare: &mut Bare, log: &mut String| {
        loop {
            let due = sooner(link.poll_timeout(), bare.flight.next());
            let Some(due) = due.filter(|due| *due <= until) else { break };
            link.poll(due, &mut Logged::new(bare, log, at(0)));
            while let Some(d) = bare.flight.pop(due) {
                let mut outlet = Logged::new(bare, log, at(0));
                if link.is_cut(due, d.started, &mut outlet) {
                    outlet.dropped(due, d.packet, DropReason::Cut);
                }
            }
        }
    };
    for (time, bytes) in arrivals {
        pass(*time, &mut link, &mut bare, &mut log);
        bare.all.push(bytes.clone());
        bare.next += 1;
        let headers = Headers::read(&[], bytes);
        let packet = Packet::new(bare.next - 1, bytes.len() as u32, headers.flow, headers.ecn);
        link.offer(*time, packet, &mut Logged::new(&mut bare, &mut log, at(0)));
    }
    pass(at(1 << 40), &mut link, &mut bare, &mut log);
    log
}

const CONFIGS: [&str; 6] = [
    "rate = '5 Mbit/s'\ndelay = '3 ms'\nqueue = { discipline = 'drop-tail', limit = 5 }",
    "delay = '5 ms'\njitter = '2 ms'\nloss = { model = 'gilbert-elliott', p = '5 %', r = '30 %' }\n\
     duplicate = { chance = '5 %' }\nreorder = { chance = '10 %' }",
    "rate = '3 Mbit/s'\ncorrupt = { chance = '5 %' }\nloss = { model = 'random', chance = '10 %' }\n\
     loss_at = 'after-link'\nqueue = { discipline = 'fq-codel' }\necn_mark = { chance = '10 %' }",
    "deliveries = { at = ['1 ms', '2 ms', '9 ms'] }\ndelay = '1 ms'\nqueue = { discipline = 'codel' }",
    "delay = '8 ms'\nschedule = [{ at = '20 ms', up = false }, { at = '25 ms', up = true },\n\
     { at = '30 ms', rate = '2 Mbit/s' }]\nschedule_period = '40 ms'",
    "rate = '4 Mbit/s'\nslot = { min = '1 ms', max = '5 ms' }\nqueue = { discipline = 'red' }\n\
     loss_list = { packets = [3, 9], pattern = { offset = 3, bytes = [1] } }",
];

proptest! {
    /// The same seed and the same packets: the same log, whenever the direction is called, and however often.
    #[test]
    fn the_log_is_that_of_the_simulator(
        which in 0..CONFIGS.len(), seed in 0u64..1_000,
        packets in prop::collection::vec((0u64..3_000, 32usize..1_500), 1..80),
        calls in prop::collection::vec(0u64..2_500, 1..20),
    ) {
        let config: LinkConfig = toml::from_str(CONFIGS[which]).unwrap();
        let mut time = 0;
        let arrivals: Vec<_> = (0..).zip(packets).map(|(n, (gap, size))| {
            time += gap;
            (at(time), packet(n, size))
        }).collect();
        let mut d = Direction::new(config.clone(), "a-b", &Streams::new(seed, 0), at(0)).unwrap();
        d.start_log();
        let (mut log, mut calls, mut now) = (String::new(), calls.iter().cycle(), at(0));
        let step = |d: &mut Direction, now: Time, log: &mut String| {
            while let Some(transmit) = d.poll_transmit(now) {
                d.sent(now, transmit);
            }
            log.push_str(&d.take_log());
        };
        for (time, bytes) in &arrivals {
            // Calls at any times before the arrival.
            loop {
                let next = now + Duration::from_micros(1 + calls.next().unwrap());
                if next >= *time {
                    break;
                }
                now = next;
                step(&mut d, now, &mut log);
            }
            d.handle_packet(*time, &arrival(bytes));
        }
        step(&mut d, at(1 << 40), &mut log);
        prop_assert_eq!(log, simulated(&config, seed, &arrivals));
    }

    #[test]
    fn any_octets_pass(
        link in prop::collection::vec(any::<u8>(), 0..20),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        start: u16, offset: u16,
    ) {
        let corrupt = Sometimes { chance: Chance::ALWAYS, correlation: Chance::NEVER };
        let config = LinkConfig { corrupt, duplicate: corrupt, mtu: Size(150), ..delay(1) };
        let mut d = direction(config);
        let checksum = Checksum::Partial { start, offset };
        let link = &link[..];
        let arrival = Arrival { link, headers: &payload[..payload.len() / 2], payload: &payload, checksum };
        d.handle_packet(at(0), &arrival);
        let size = d.report(at(0)).received.octets;
        prop_assert!(size as usize <= payload.len() / 2 + payload.len());
        let expected = if size > 150 { 0 } else { 2 };
        prop_assert_eq!(run(&mut d, at(5_000), Duration::ZERO).len(), expected);
        prop_assert_eq!(d.report(at(5_000)).in_flight, 0);
    }
}
