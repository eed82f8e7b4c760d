//! Packets through an emulated link, with changes of its parameters: no packet is lost count of, whatever is in it, and
//! time that passes in any steps ends with nothing under way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_emulate::{Arrival, LinkSettings, parameters};
use ringway_link::{Deliveries, LinkConfig, Span, Streams};
use ringway_os::tun::Checksum;
use ringway_sansio::{Duration, Time};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let _ = Deliveries::from_mahimahi(&text);
    let mut words = text.split(' ').map(str::to_owned);
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        pairs.push((name, value));
    }
    let changes = parameters::read(&pairs).ok();

    let config = LinkConfig { delay: Span::from_millis(3), ..LinkConfig::default() };
    let names = ["a-b".to_owned(), "b-a".to_owned()];
    let settings = LinkSettings { configs: [config.clone(), config], names };
    let mut now = Time::from_secs(1);
    let Ok(mut directions) = settings.directions(&Streams::new(1, 0), now) else { return };
    if let Some(changes) = changes {
        for (direction, change) in directions.iter_mut().zip(&changes.0) {
            // What is out of range is refused.
            if let Ok(prepared) = direction.prepare(change) {
                direction.set(now, prepared);
            }
        }
    }
    let mut rest = data;
    while let [gap, way, link, size, start, offset, more @ ..] = rest {
        now = now + Duration::from_micros(u64::from(*gap) * 40);
        let direction = &mut directions[usize::from(way % 2)];
        let (packet, after) = more.split_at(more.len().min(usize::from(*size)));
        let (link, payload) = packet.split_at(packet.len().min(usize::from(link % 24)));
        let checksum = match start {
            0 => Checksum::Complete,
            start => Checksum::Partial { start: u16::from(*start), offset: u16::from(*offset) },
        };
        direction.handle_packet(now, &Arrival { link, headers: &[], payload, checksum });
        while let Some(transmit) = direction.poll_transmit(now) {
            direction.sent(now, transmit);
        }
        rest = after;
    }
    for mut direction in directions {
        while let Some(transmit) = direction.poll_transmit(now) {
            direction.sent(now, transmit);
        }
        let report = direction.report(now);
        let dropped: u64 = report.dropped.values().sum();
        let lost: u64 = report.lost.values().sum();
        let under_way = report.in_flight + report.queue.packets;
        let gone = report.sent.packets + dropped + lost + under_way;
        assert_eq!(report.received.packets + report.copied, gone, "{report:?}");
    }
});
