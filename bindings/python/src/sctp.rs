//! The SCTP of one host: packets, times and messages in, packets, events and messages out.

use crate::failure::{failed, usage};
use crate::link::{seconds, time};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use ringway_sansio::{Addressing, Duration, Ecn, Endpoint as _, SplitMix};
use ringway_sctp::{
    Algorithm, AssocId, Change, Close, Event, Limits, Multipath, PROTOCOL, PathState, Reliability,
    Scheduling, Sctp, SendOptions, Settings,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

/// Length of an IPv4 and an IPv6 header, in bytes.
const HEADERS: [usize; 2] = [20, 40];

/// An event: its name, the association, and what it says.
type Noted<'py> = (&'static str, u32, Bound<'py, PyDict>);
/// A message, or a part of one: `(stream, data, ppid, unordered, begin, end)`.
type Message<'py> = (u16, Bound<'py, PyBytes>, u32, bool, bool, bool);
/// A packet to send: `(source, destination, data, size, ecn-capable)`.
type Transmit<'py> = (String, String, Bound<'py, PyBytes>, usize, bool);

/// A host and the numbers of its associations.
struct Host {
    sctp: Sctp,
    ids: BTreeMap<u32, AssocId>,
    numbers: BTreeMap<AssocId, u32>,
}

/// The SCTP of one host.
#[pyclass(module = "ringway._ringway", frozen)]
pub(crate) struct Endpoint(Mutex<Host>);

impl Endpoint {
    fn host(&self) -> PyResult<MutexGuard<'_, Host>> {
        self.0.lock().map_err(|_| failed("a fault of Ringway: an earlier call panicked"))
    }
}

impl Host {
    /// Returns the number of an association.
    fn number(&mut self, id: AssocId) -> u32 {
        let next = self.ids.last_key_value().map_or(0, |(last, _)| last + 1);
        let number = *self.numbers.entry(id).or_insert(next);
        self.ids.insert(number, id);
        number
    }

    fn id(&self, number: u32) -> PyResult<AssocId> {
        self.ids.get(&number).copied().ok_or_else(|| usage(format!("no association {number}")))
    }
}

fn addresses(texts: &[String]) -> PyResult<Vec<IpAddr>> {
    let parse = |text: &String| {
        text.parse().map_err(|_| usage(format!("expected an IP address, got {text:?}")))
    };
    texts.iter().map(parse).collect()
}

#[pymethods]
impl Endpoint {
    /// Creates a host without associations. `settings` names what differs from the defaults.
    #[new]
    #[pyo3(signature = (seed, settings = None))]
    fn new(seed: u64, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let settings = settings.map_or_else(|| Ok(Settings::default()), read)?;
        let random = Box::new(SplitMix::new(seed));
        let sctp = Sctp::new(Limits::default(), settings, random).map_err(usage)?;
        let (ids, numbers) = (BTreeMap::new(), BTreeMap::new());
        Ok(Endpoint(Mutex::new(Host { sctp, ids, numbers })))
    }

    /// Accepts associations.
    fn listen(&self, local: Vec<String>, port: u16) -> PyResult<()> {
        self.host()?.sctp.listen(&addresses(&local)?, port, None).map_err(usage)?;
        Ok(())
    }

    /// Opens an association and returns its number.
    #[pyo3(signature = (now, local, remote, port, local_port = 0))]
    fn connect(
        &self,
        now: f64,
        local: Vec<String>,
        remote: Vec<String>,
        port: u16,
        local_port: u16,
    ) -> PyResult<u32> {
        let (local, remote) = (addresses(&local)?, addresses(&remote)?);
        let mut host = self.host()?;
        let opened = host.sctp.connect(time(now)?, &local, local_port, &remote, port, None);
        Ok(host.number(opened.map_err(usage)?))
    }

    /// Queues a message.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (now, association, data, stream = 0, ppid = 0, unordered = false, lifetime = None,
        retransmissions = None))]
    fn send(
        &self,
        now: f64,
        association: u32,
        data: &[u8],
        stream: u16,
        ppid: u32,
        unordered: bool,
        lifetime: Option<f64>,
        retransmissions: Option<u8>,
    ) -> PyResult<()> {
        let reliability = match (lifetime, retransmissions) {
            (None, None) => Reliability::Full,
            (Some(after), None) => Reliability::Lifetime(span(after)?),
            (None, Some(number)) => Reliability::Retransmits(number),
            (Some(_), Some(_)) => {
                return Err(usage("expected `lifetime` or `retransmissions`, got both"));
            }
        };
        let options =
            SendOptions { stream, ppid, unordered, reliability, ..SendOptions::default() };
        let mut host = self.host()?;
        let id = host.id(association)?;
        host.sctp.send(time(now)?, id, &options, data.to_vec()).map_err(failed)
    }

    /// Returns the next message, or part of a large one; `None` when none is waiting.
    fn receive<'py>(&self, py: Python<'py>, association: u32) -> PyResult<Option<Message<'py>>> {
        let mut out = Vec::new();
        let mut host = self.host()?;
        let id = host.id(association)?;
        let received = host.sctp.recv(id, &mut out).map_err(failed)?;
        Ok(received.map(|r| {
            (r.stream, PyBytes::new(py, &out), r.ppid, r.unordered, r.begin, r.end || r.cut)
        }))
    }

    /// Ends an association once all is delivered.
    fn shutdown(&self, now: f64, association: u32) -> PyResult<()> {
        let mut host = self.host()?;
        let id = host.id(association)?;
        host.sctp.shutdown(time(now)?, id).map_err(failed)
    }

    /// Ends an association at once.
    fn abort(&self, association: u32, reason: &[u8]) -> PyResult<()> {
        let mut host = self.host()?;
        let id = host.id(association)?;
        host.sctp.abort(id, reason).map_err(failed)
    }

    /// Sets the primary path.
    fn set_primary(&self, association: u32, remote: &str) -> PyResult<()> {
        let remote = addresses(&[remote.to_string()])?;
        let mut host = self.host()?;
        let id = host.id(association)?;
        host.sctp.set_primary(id, remote[0]).map_err(failed)
    }

    /// Handles a packet that has come; `data` begins with the SCTP header.
    #[pyo3(signature = (now, source, destination, data, ce = false))]
    fn handle_packet(
        &self,
        now: f64,
        source: &str,
        destination: &str,
        data: &[u8],
        ce: bool,
    ) -> PyResult<()> {
        let ends = addresses(&[source.to_string(), destination.to_string()])?;
        let mut addressing = Addressing::new(ends[0], ends[1], PROTOCOL);
        if ce {
            addressing.ecn = Ecn::Ce;
        }
        self.host()?.sctp.handle_packet(time(now)?, addressing, data);
        Ok(())
    }

    /// Returns the time at which `handle_timeout` is due.
    fn poll_timeout(&self) -> PyResult<Option<f64>> {
        Ok(self.host()?.sctp.poll_timeout().map(seconds))
    }

    /// Handles the timers that are due.
    fn handle_timeout(&self, now: f64) -> PyResult<()> {
        self.host()?.sctp.handle_timeout(time(now)?);
        Ok(())
    }

    /// Returns the next packet to send.
    fn poll_transmit<'py>(&self, py: Python<'py>, now: f64) -> PyResult<Option<Transmit<'py>>> {
        let mut data = Vec::new();
        let addressing = self.host()?.sctp.poll_transmit(time(now)?, &mut data);
        Ok(addressing.map(|to| {
            let size = data.len() + HEADERS[usize::from(to.destination.is_ipv6())];
            let [source, destination] = [to.source, to.destination].map(|ip| ip.to_string());
            (source, destination, PyBytes::new(py, &data), size, to.ecn.is_capable())
        }))
    }

    /// Returns the next event.
    fn poll_event<'py>(&self, py: Python<'py>) -> PyResult<Option<Noted<'py>>> {
        let mut host = self.host()?;
        let Some(event) = host.sctp.poll_event() else { return Ok(None) };
        let detail = PyDict::new(py);
        let (name, id) = describe(event, &detail)?;
        Ok(Some((name, host.number(id), detail)))
    }

    /// Returns the state of an association, its paths and its counters.
    fn snapshot<'py>(&self, py: Python<'py>, association: u32) -> PyResult<Bound<'py, PyDict>> {
        let host = self.host()?;
        let id = host.id(association)?;
        let found = host.sctp.snapshot(id).map_err(failed)?;
        let all = PyDict::new(py);
        all.set_item("state", format!("{:?}", found.state))?;
        all.set_item("streams", found.streams)?;
        all.set_item("peer_rwnd", found.peer_rwnd)?;
        all.set_item("outstanding", found.outstanding)?;
        all.set_item("unacknowledged", found.unacknowledged)?;
        all.set_item("unread", found.unread)?;
        all.set_item("retransmits", found.totals.retransmits)?;
        all.set_item("fast_retransmits", found.totals.fast_retransmits)?;
        all.set_item("timeouts", found.totals.timeouts)?;
        all.set_item("packets_sent", found.totals.packets_sent)?;
        all.set_item("packets_received", found.totals.packets_received)?;
        let paths = found.paths.iter().map(|path| {
            let one = PyDict::new(py);
            one.set_item("local", path.local.to_string())?;
            one.set_item("remote", path.remote.to_string())?;
            one.set_item("state", state(path.state))?;
            one.set_item("primary", path.primary)?;
            one.set_item("cwnd", path.cwnd)?;
            one.set_item("ssthresh", path.ssthresh)?;
            one.set_item("flight", path.flight)?;
            one.set_item("srtt", path.srtt.map(|d| d.as_secs_f64()))?;
            one.set_item("rto", path.rto.as_secs_f64())?;
            Ok(one)
        });
        all.set_item("paths", paths.collect::<PyResult<Vec<_>>>()?)?;
        Ok(all)
    }
}

fn state(state: PathState) -> &'static str {
    match state {
        PathState::Unconfirmed => "unconfirmed",
        PathState::Active => "active",
        PathState::PotentiallyFailed => "potentially-failed",
        PathState::Inactive => "inactive",
    }
}

/// Returns the name of an event and its association, and writes the rest into `detail`.
fn describe(event: Event, detail: &Bound<'_, PyDict>) -> PyResult<(&'static str, AssocId)> {
    Ok(match event {
        Event::Up { id, listener } => {
            detail.set_item("accepted", listener.is_some())?;
            ("up", id)
        }
        Event::Restarted(id) => ("restarted", id),
        Event::Readable(id) => ("readable", id),
        Event::Writable(id) => ("writable", id),
        Event::PeerShutdown(id) => ("peer-shutdown", id),
        Event::Path { id, remote, state: new } => {
            detail.set_item("remote", remote.to_string())?;
            detail.set_item("state", state(new))?;
            ("path", id)
        }
        Event::PeerError { id, code } => {
            detail.set_item("code", code)?;
            ("peer-error", id)
        }
        Event::SendFailed { id, messages } => {
            detail.set_item("messages", messages)?;
            ("send-failed", id)
        }
        Event::Returned { id, message } => {
            detail.set_item("message", format!("{message:?}"))?;
            ("returned", id)
        }
        Event::Changed { id, change } => {
            detail.set_item("change", changed(&change))?;
            ("changed", id)
        }
        Event::Closed(id, why) => {
            detail.set_item("why", closed(&why))?;
            ("closed", id)
        }
        other => return Err(failed(format!("an event without a name: {other:?}"))),
    })
}

fn changed(change: &Change) -> String {
    format!("{change:?}")
}

fn closed(why: &Close) -> String {
    match why {
        Close::Finished => "finished".into(),
        Close::Unreachable => "unreachable".into(),
        Close::SmallWindow { a_rwnd } => format!("small window of {a_rwnd} bytes"),
        Close::Aborted { code, reason } => {
            format!("aborted, cause {code}: {}", String::from_utf8_lossy(reason))
        }
        Close::Violation(rule) => format!("violation: {rule}"),
        Close::ShutdownTimeout => "shutdown timeout".into(),
        other => format!("{other:?}"),
    }
}

fn span(seconds: f64) -> PyResult<Duration> {
    let max = 1e6;
    if !(0.0..=max).contains(&seconds) {
        return Err(usage(format!("expected 0 to {max} s, got {seconds}")));
    }
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Returns the value of a name.
fn choose<T: Copy>(name: &str, choices: &[(&str, T)]) -> PyResult<T> {
    choices.iter().find(|(known, _)| *known == name).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
        usage(format!("expected one of {}, got {name:?}", known.join(", ")))
    })
}

/// Reads the settings that differ from the defaults, or from those of `profile`.
fn read(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut settings = match given.get_item("profile")? {
        Some(profile) => choose(
            profile.extract()?,
            &[("rfc9260", Settings::default()), ("ss7", Settings::ss7())],
        )?,
        None => Settings::default(),
    };
    for (key, value) in given.iter() {
        let key: String = key.extract()?;
        set(&mut settings, &key, &value).map_err(|error| {
            let py = given.py();
            usage(format!("setting {key:?}: {}", error.value(py)))
        })?;
    }
    Ok(settings)
}

fn set(s: &mut Settings, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match key {
        "profile" => {}
        "mtu" => s.mtu = value.extract()?,
        "send_buffer" => s.send_buffer = value.extract()?,
        "receive_buffer" => s.receive_buffer = value.extract()?,
        "streams" => s.outbound_streams = value.extract()?,
        "inbound_streams" => s.inbound_streams = value.extract()?,
        "initial_window" => s.initial_cwnd = value.extract()?,
        "initial_rto" => s.rto_initial = span(value.extract()?)?,
        "min_rto" => s.rto_min = span(value.extract()?)?,
        "max_rto" => s.rto_max = span(value.extract()?)?,
        "sack_delay" => s.sack_delay = span(value.extract()?)?,
        "sack_packets" => s.sack_packets = value.extract()?,
        "max_burst" => s.max_burst = value.extract()?,
        "misses" => s.misses = value.extract()?,
        "heartbeat" => {
            let every: Option<f64> = value.extract()?;
            s.heartbeat_interval = every.map(span).transpose()?;
        }
        "path_max_retrans" => s.path_max_retrans = value.extract()?,
        "association_max_retrans" => s.association_max_retrans = value.extract()?,
        "potentially_failed" => s.potentially_failed = value.extract()?,
        "rack" => s.rack = value.extract()?,
        "interleaving" => s.interleaving = value.extract()?,
        "final_acks" => s.final_acks = value.extract()?,
        "ecn" => s.ecn = value.extract()?,
        "algorithm" => {
            let known = [("rfc9260", Algorithm::Rfc9260), ("cubic", Algorithm::Cubic)];
            s.algorithm = choose(value.extract()?, &known)?;
        }
        "multipath" => {
            let (one, both) = (Multipath::Independent, Multipath::Pooled);
            let known = [("off", Multipath::Off), ("independent", one), ("pooled", both)];
            s.multipath = choose(value.extract()?, &known)?;
        }
        "scheduling" => {
            let known = [
                ("fcfs", Scheduling::Fcfs),
                ("round-robin", Scheduling::RoundRobin),
                ("packet-round-robin", Scheduling::PacketRoundRobin),
                ("priority", Scheduling::Priority),
                ("fair-capacity", Scheduling::FairCapacity),
                ("weighted-fair", Scheduling::WeightedFair),
            ];
            s.scheduling = choose(value.extract()?, &known)?;
        }
        _ => return Err(usage("no such setting; docs/python.md lists them")),
    }
    Ok(())
}
