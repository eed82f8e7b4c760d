//! The model of Table 9: two hosts, and routers whose processor is a queue with a service time a packet.
//!
//! A router is two nodes, `in` and `out`, and the link from one to the other is its processor: packets of both
//! directions wait in one queue, and each is served for the same time, whatever its length. All cables are 100 Mbit/s
//! Ethernet. Nothing is random, so every round trip is equal, and so is every transfer.

use crate::papers::read;
use crate::run::{FlowMeasures, Options, Outcome, RunError, run as run_once};
use std::fmt::Write as _;

/// Length of the file in the paper, in bytes.
pub(super) const FILE: u64 = 734_275_584;
/// Rate of the cables in bits per second.
pub(super) const WIRE: f64 = 100e6;
/// Echo requests in the paper.
const ECHOES: u64 = 100;
/// Size of an echo request: 56 bytes of data, ping's default, and the headers of ICMP and IPv4.
const ECHO: u64 = 84;
/// Size of the one cell in which the processor serves any packet; large, so that its rate has many digits.
const CELL: f64 = 15_000.0;
/// Packets that wait for the processor at most. The receiver's window of 64 KiB is less.
const QUEUE: u64 = 100;

/// Hosts and routers, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    /// Service time of each router's processor for a packet.
    pub(super) service: Vec<f64>,
    /// The part of a round trip that is neither service nor sending on a cable: the hosts and all else.
    pub(super) rest: f64,
}

/// Round trips of echo requests, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoundTrips {
    pub(super) min: f64,
    pub(super) mean: f64,
    pub(super) max: f64,
}

/// A transfer of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Transfer {
    /// Bytes of the file.
    pub(super) bytes: u64,
    /// Duration in seconds.
    pub(super) seconds: f64,
    /// Packets with data, and acknowledgments.
    pub(super) packets: [u64; 2],
    /// Share of the time in which the first cable and the busiest processor were busy.
    pub(super) busy: [f64; 2],
}

impl Transfer {
    /// Returns the speed in bytes per second.
    pub(super) fn speed(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

impl Model {
    /// One router.
    pub(super) fn one(service: f64, rest: f64) -> Self {
        Model { service: vec![service], rest }
    }

    /// Sends echo requests, a second apart.
    pub(super) fn ping(&self) -> Result<RoundTrips, RunError> {
        let (_, flow) = self.run(&format!(
            "transport = \"udp\"\ntraffic = \"request-response\"\nrequest = \"{ECHO} B\"\nresponse = \"{ECHO} B\"\n\
             requests = {ECHOES}\nthink = \"1 s\"\n"
        ))?;
        let delay = flow.messages.and_then(|m| m.delay);
        let none = RoundTrips { min: f64::NAN, mean: f64::NAN, max: f64::NAN };
        Ok(delay.map_or(none, |d| RoundTrips { min: d.min, mean: d.mean, max: d.max }))
    }

    /// Transfers a file from the first host to the second, over TCP with 20 bytes for the longer header of IPv6.
    pub(super) fn transfer(&self, bytes: u64) -> Result<Transfer, RunError> {
        let (outcome, flow) = self.run(&format!(
            "transport = \"tcp\"\ntraffic = \"file\"\nsize = \"{bytes} B\"\n\
             tcp = {{ mtu = \"1480 B\", receive_buffer = \"64 KiB\" }}\n"
        ))?;
        let busy = |of: &str| {
            let links = outcome.links.iter().filter(|l| l.link.starts_with(of));
            links.filter_map(|l| l.utilisation).fold(0.0, f64::max)
        };
        Ok(Transfer {
            bytes,
            seconds: flow.completion.unwrap_or(f64::NAN),
            packets: [flow.sent, flow.back.sent],
            busy: [busy("a-in"), busy("processor")],
        })
    }

    fn run(&self, traffic: &str) -> Result<(Outcome, FlowMeasures), RunError> {
        let scenario = read("table 9", &(self.network() + traffic))?;
        let mut outcome = run_once(&scenario, &Options::default(), |_| ())?;
        let flow = outcome.flows.swap_remove(0);
        Ok((outcome, flow))
    }

    /// Returns the scenario, up to the traffic of its flow.
    fn network(&self) -> String {
        let last = self.service.len();
        let nodes: Vec<String> = (1..=last).map(|i| format!("\"in{i}\", \"out{i}\"")).collect();
        let mut text = format!(
            "[scenario]\ntitle = \"Table 9\"\nnodes = [\"a\", {}, \"b\"]\nstop = \"flows done\"\n\
             at_most = \"20000 s\"\n",
            nodes.join(", ")
        );
        let delay = (self.rest / 4.0 * 1e9).round();
        let mut routes = String::new();
        let mut route = |at: &str, to: &str, link: &str| {
            let _ = write!(routes, "[[route]]\nat = \"{at}\"\nto = \"{to}\"\nlink = \"{link}\"\n");
        };
        let end = |kind: &str, router: usize| match router {
            0 => "a".into(),
            _ if router > last => "b".into(),
            _ => format!("{kind}{router}"),
        };
        for router in 0..=last {
            // Each cable carries one direction, from a processor to the next one or to a host.
            let there = ("b", end("out", router), end("in", router + 1));
            let back = ("a", end("out", router + 1), end("in", router));
            for (to, from, next) in [there, back] {
                let name = format!("{from}-{next}");
                route(&from, to, &name);
                let delay = if router == 0 || router == last { delay } else { 0.0 };
                // 38 bytes of Ethernet, and 20 that the header of IPv6 is longer.
                let _ = write!(
                    text,
                    "[[link]]\nname = \"{name}\"\nbetween = [\"{from}\", \"{next}\"]\nrate = \"{WIRE} bit/s\"\n\
                     overhead = \"58 B\"\ndelay = \"{delay} ns\"\n"
                );
            }
        }
        for (i, service) in (1..).zip(&self.service) {
            let rate = if *service > 0.0 {
                format!("{} bit/s", (CELL * 8.0 / service).round())
            } else {
                "unlimited".into()
            };
            for to in ["a", "b"] {
                route(&format!("in{i}"), to, &format!("processor{i}"));
            }
            let _ = write!(
                text,
                "[[link]]\nname = \"processor{i}\"\nbetween = [\"in{i}\", \"out{i}\"]\nrate = \"{rate}\"\n\
                 cells = {{ payload = \"{CELL} B\", header = \"0 B\" }}\n\
                 queue = {{ discipline = \"drop-tail\", limit = {QUEUE} }}\n"
            );
        }
        text + &routes + "[[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n"
    }

    /// Returns the service time of equal routers with which a transfer of [`FILE`] takes `seconds`: the duration is
    /// proportional to it but for the handshake.
    pub(super) fn service_for_transfer(routers: usize, seconds: f64) -> Result<f64, RunError> {
        // A part of the file is enough: a transfer soon has a constant speed.
        const PART: u64 = 16;
        let mut service = seconds / (FILE as f64 / 1428.0 * 1.5);
        for _ in 0..3 {
            let model = Model { service: vec![service; routers], rest: 0.0 };
            service *= seconds / PART as f64 / model.transfer(FILE / PART)?.seconds;
        }
        Ok(service)
    }

    /// Returns the round trip without service: what remains for the processors of `routers`, with
    /// the hosts' part.
    pub(super) fn round_trip_without_service(routers: usize, rest: f64) -> Result<f64, RunError> {
        Ok(Model { service: vec![0.0; routers], rest }.ping()?.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round trip passes the processor twice and two cables each way; a packet of data and half an
    /// acknowledgment need the processor one and a half times.
    #[test]
    fn the_model_is_what_arithmetic_says() {
        let model = Model::one(1e-3, 100e-6);
        let ping = model.ping().unwrap();
        let wire = (56.0 + 8.0 + 40.0 + 38.0) * 8.0 / WIRE;
        assert!((ping.mean - (2e-3 + 100e-6 + 4.0 * wire)).abs() < 1e-7, "{ping:?}");
        assert_eq!((ping.min, ping.max), (ping.mean, ping.mean));
        let transfer = model.transfer(1428 * 2000).unwrap();
        // And SYN, its acknowledgment, and FIN.
        assert_eq!(transfer.packets[0], 2000 + 3);
        assert!((transfer.seconds / 3.0 - 1.0).abs() < 0.01, "{transfer:?}");
        let [cable, processor] = transfer.busy;
        assert!(
            processor > 0.99 && (cable / (1538.0 * 8.0 * 2000.0 / WIRE / 3.0) - 1.0).abs() < 0.02
        );
    }

    /// Routers in series add to the round trip and not to the duration; the slowest decides that.
    #[test]
    fn routers_in_series_work_at_the_same_time() {
        let one = Model::one(1e-3, 0.0);
        let two = Model { service: vec![1e-3, 1e-3], rest: 0.0 };
        assert!(two.ping().unwrap().mean > 1.9 * one.ping().unwrap().mean);
        let seconds = |model: &Model| model.transfer(3_000_000).unwrap().seconds;
        assert!((seconds(&two) / seconds(&one) - 1.0).abs() < 0.02);
        let slow = Model { service: vec![1e-3, 3e-3], rest: 0.0 };
        assert!((seconds(&slow) / seconds(&one) - 3.0).abs() < 0.1);
    }
}
