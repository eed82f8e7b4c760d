//! Metrics in the text format of Prometheus (OpenMetrics): a status in other words.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;

use crate::status::Status;

/// Returns the page about a status in JSON.
pub(crate) fn render(status: Value) -> Option<String> {
    let mut registry = Registry::with_prefix("ringway_mesh");
    registry.register_collector(Box::new(Page(serde_json::from_value(status).ok()?)));
    let mut out = String::with_capacity(8 << 10);
    text::encode(&mut out, &registry).ok()?;
    Some(out)
}

#[derive(Debug)]
struct Page(Status);

impl Collector for Page {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut out;
        let status = &self.0;
        let info = [("id", status.id.clone()), ("address", status.address.to_string())];
        out.encode_descriptor("router", "The router", None, MetricType::Gauge)?
            .encode_family(&info)?
            .encode_gauge(&1_u64)?;
        for (name, help, value) in [
            ("uptime_seconds", "Time since the start", status.uptime_s),
            ("interfaces", "Interfaces in use", status.interfaces.len() as u64),
            ("links", "Links to neighbours", status.links as u64),
            ("neighbours", "Neighbours whose link can be used", status.neighbours as u64),
            ("contacts", "Routers to which a route is known", status.contacts as u64),
            ("sessions", "Sessions with other routers", status.sessions as u64),
            (
                "ring_settled",
                "1 if the routers beside this one do not change",
                status.settled.into(),
            ),
            (
                "deputies",
                "Routers that check the credentials of this one's users while it is silent",
                status.deputies as u64,
            ),
        ] {
            out.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)?;
        }
        let (packets, octets, look_ups) = (&status.packets, &status.octets, &status.look_ups);
        let paths = [
            ("sent", packets.sent),
            ("delivered", packets.delivered),
            ("forwarded", packets.forwarded),
        ];
        counters(out, "packets", "Packets of hosts", "path", paths)?;
        let moved = [("sent", octets.sent), ("delivered", octets.delivered)];
        let moved = moved.into_iter().chain([("forwarded", octets.forwarded)]);
        counters(out, "octets", "Octets of packets of hosts", "path", moved)?;
        let control = [("sent", octets.control_sent), ("received", octets.control_received)];
        let help = "Octets of packets of the mesh itself, without UDP and IP";
        counters(out, "control_octets", help, "direction", control)?;
        let help = "Messages that were forwarded between other routers";
        counters(out, "messages_forwarded", help, "", [("", status.messages_forwarded)])?;
        let ends = [
            ("found", look_ups.found),
            ("absent", look_ups.absent),
            ("unanswered", look_ups.unanswered),
        ];
        counters(out, "look_ups_ended", "Look-ups of routers", "outcome", ends)?;
        let help = "Time from the beginning of a look-up until the router was found";
        out.encode_descriptor("look_up", help, Some(&Unit::Seconds), MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(
            look_ups.seconds,
            look_ups.found,
            &[(f64::INFINITY, look_ups.found)],
            None,
        )?;
        counters(out, "dropped", "What was dropped", "reason", each(&status.dropped))?;
        counters(out, "limits_hit", "How often a limit was hit", "limit", each(&status.limits))
    }
}

fn each(map: &BTreeMap<String, u64>) -> impl Iterator<Item = (&str, u64)> {
    map.iter().map(|(name, &value)| (name.as_str(), value))
}

/// Writes counters of one name, with a label each if `label` is not empty.
fn counters<'a>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    values: impl IntoIterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value_of_label, value) in values {
        if label.is_empty() {
            family.encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
        } else {
            let labels = [(label, value_of_label)];
            let mut one = family.encode_family(&labels)?;
            one.encode_counter::<NoLabelSet, u64, u64>(&value, None)?;
        }
    }
    Ok(())
}
