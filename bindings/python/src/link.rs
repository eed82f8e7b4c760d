//! One direction of a link, which is fed with packets and returns what becomes of them.

use crate::failure::{failed, usage};
use crate::table::Table;
use pyo3::prelude::*;
use ringway_figures::table::{Cell, RowSink, Schema, Table as LongTable, Type};
use ringway_link::{Departure, DropReason, LinkConfig, Outlet, Packet, Streams};
use ringway_sansio::{Ecn, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// Maximum number of packets that are on a link at a time.
const MAX_PACKETS: usize = 1 << 22;
/// Latest time, in seconds.
const MAX_TIME: f64 = 1e9;

/// Returns the time of a number of seconds.
pub(crate) fn time(seconds: f64) -> PyResult<Time> {
    if !(0.0..=MAX_TIME).contains(&seconds) {
        return Err(usage(format!("expected a time from 0 to {MAX_TIME} s, got {seconds}")));
    }
    Ok(Time::from_nanos((seconds * 1e9).round() as u64))
}

/// Returns the seconds of a time.
pub(crate) fn seconds(time: Time) -> f64 {
    time.as_nanos() as f64 / 1e9
}

/// A packet on the link.
struct Carried {
    offered: Time,
    /// The packet that it is a copy of.
    copy_of: Option<u32>,
    data: Vec<u8>,
}

/// A packet that has arrived or is lost: `(at, packet, size, offered, sent, copy_of, ce, flip, dropped)`.
type Fate = (f64, u32, u32, f64, Option<f64>, Option<u32>, bool, Option<u32>, Option<&'static str>);

/// What the link decides.
#[derive(Default)]
struct World {
    packets: BTreeMap<u32, Carried>,
    next: u32,
    /// Arrivals by time and number.
    coming: BTreeMap<(Time, u64), Departure>,
    number: u64,
    /// Fates by time and number.
    fates: Vec<(Time, Fate)>,
}

impl World {
    /// Adds a packet; `None` if there is no room.
    fn add(&mut self, offered: Time, copy_of: Option<u32>, data: Vec<u8>) -> Option<u32> {
        if self.packets.len() >= MAX_PACKETS {
            return None;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.packets.insert(id, Carried { offered, copy_of, data });
        Some(id)
    }

    fn end(&mut self, at: Time, packet: Packet, sent: Option<Departure>, why: Option<DropReason>) {
        let Some(carried) = self.packets.remove(&packet.id) else { return };
        let fate = (
            seconds(at),
            packet.id,
            packet.size,
            seconds(carried.offered),
            sent.map(|departure| seconds(departure.sent)),
            carried.copy_of,
            packet.ecn == Ecn::Ce,
            sent.and_then(|departure| departure.flip),
            why.map(DropReason::as_str),
        );
        self.fates.push((at, fate));
    }
}

impl Outlet for World {
    fn departs(&mut self, departure: Departure) {
        self.number += 1;
        self.coming.insert((departure.arrives, self.number), departure);
    }

    fn dropped(&mut self, at: Time, packet: Packet, reason: DropReason) {
        self.end(at, packet, None, Some(reason));
    }

    fn copy(&mut self, packet: Packet) -> Option<u32> {
        let original = self.packets.get(&packet.id)?;
        let (offered, data) = (original.offered, original.data.clone());
        self.add(offered, Some(packet.id), data)
    }

    fn bytes(&mut self, packet: &Packet) -> &[u8] {
        self.packets.get(&packet.id).map_or(&[], |carried| &carried.data)
    }
}

/// A link, what it carries, and the present time.
struct Line {
    link: ringway_link::Link,
    world: World,
    now: Time,
}

/// One direction of a link.
#[pyclass(module = "ringway._ringway", frozen)]
pub(crate) struct Link(Mutex<Line>);

impl Link {
    fn line(&self) -> PyResult<MutexGuard<'_, Line>> {
        self.0.lock().map_err(|_| failed("a fault of Ringway: an earlier call panicked"))
    }
}

impl Line {
    /// Decides all that is due by `until`, arrivals included.
    fn pass(&mut self, until: Time) {
        loop {
            let decision = self.link.poll_timeout().filter(|at| *at <= until);
            let arrival = self.world.coming.first_key_value().map(|(key, _)| *key);
            let arrival = arrival.filter(|(at, _)| *at <= until);
            match (decision, arrival) {
                (Some(at), arrival) if arrival.is_none_or(|(arrives, _)| at <= arrives) => {
                    self.link.poll(at, &mut self.world);
                }
                (_, Some(key)) => self.arrive(key),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    fn arrive(&mut self, key: (Time, u64)) {
        let Some(departure) = self.world.coming.remove(&key) else { return };
        let cut =
            self.link.can_be_cut() && self.link.is_cut(key.0, departure.started, &mut self.world);
        let why = cut.then_some(DropReason::Cut);
        self.world.end(key.0, departure.packet, Some(departure), why);
    }

    /// Returns the fates so far, in the order of time.
    fn take(&mut self) -> Vec<Fate> {
        let mut fates = std::mem::take(&mut self.world.fates);
        fates.sort_by_key(|(at, _)| *at);
        fates.into_iter().map(|(_, fate)| fate).collect()
    }
}

#[pymethods]
impl Link {
    /// Creates an empty link; `config` is a JSON object.
    #[new]
    #[pyo3(signature = (config, name, seed, replication))]
    fn new(config: &str, name: &str, seed: u64, replication: u64) -> PyResult<Self> {
        let config: LinkConfig = serde_json::from_str(config)
            .map_err(|e| usage(format!("expected the settings of a link: {e}")))?;
        let streams = Streams::new(seed, replication);
        let link = ringway_link::Link::new(config, name, &streams, Time::ZERO).map_err(usage)?;
        Ok(Link(Mutex::new(Line { link, world: World::default(), now: Time::ZERO })))
    }

    /// The present time in seconds.
    #[getter]
    fn now(&self) -> PyResult<f64> {
        Ok(seconds(self.line()?.now))
    }

    /// The number of packets in the queue.
    #[getter]
    fn queued(&self) -> PyResult<usize> {
        Ok(self.line()?.link.queue_len())
    }

    /// The number of packets that have neither arrived nor been lost.
    #[getter]
    fn carried(&self) -> PyResult<usize> {
        Ok(self.line()?.world.packets.len())
    }

    /// The time of the next decision or arrival; `None` while the link is empty.
    #[getter]
    fn next_event(&self) -> PyResult<Option<f64>> {
        Ok(self.line()?.next_event().map(seconds))
    }

    /// Offers a packet and returns its number.
    #[pyo3(signature = (at, size, flow = 0, ecn = false, data = None))]
    fn offer(
        &self,
        at: f64,
        size: u32,
        flow: u32,
        ecn: bool,
        data: Option<&[u8]>,
    ) -> PyResult<u32> {
        let ecn = if ecn { Ecn::Ect0 } else { Ecn::NotEct };
        let data = data.unwrap_or_default().to_vec();
        self.line()?.offer(time(at)?, Packet::new(0, size, flow, ecn), data)
    }

    /// Lets time pass and returns what became of packets until then.
    fn advance(&self, until: f64) -> PyResult<Vec<Fate>> {
        let until = time(until)?;
        let mut line = self.line()?;
        line.pass(until);
        Ok(line.take())
    }

    /// Offers packets of `sizes` at `times`, lets time pass until the link is empty or until `until`,
    /// and returns a row for each packet and each copy.
    #[pyo3(signature = (times, sizes, flows, until))]
    fn feed(
        &self,
        py: Python<'_>,
        times: Vec<f64>,
        sizes: Vec<u32>,
        flows: Vec<u32>,
        until: Option<f64>,
    ) -> PyResult<Table> {
        let until = time(until.unwrap_or(MAX_TIME))?;
        let fates = py.detach(|| -> PyResult<Vec<Fate>> {
            let mut line = self.line()?;
            for ((at, size), flow) in times.iter().zip(&sizes).zip(&flows) {
                line.offer(time(*at)?, Packet::new(0, *size, *flow, Ecn::NotEct), Vec::new())?;
            }
            line.drain(until);
            Ok(line.take())
        })?;
        Table::new(&table(&fates).map_err(failed)?)
    }
}

impl Line {
    fn offer(&mut self, at: Time, packet: Packet, data: Vec<u8>) -> PyResult<u32> {
        if at < self.now {
            let now = seconds(self.now);
            return Err(usage(format!("expected a time from {now} s on, got {} s", seconds(at))));
        }
        self.pass(at);
        let Some(id) = self.world.add(at, None, data) else {
            return Err(usage(format!("expected at most {MAX_PACKETS} packets on the link")));
        };
        self.link.offer(at, Packet { id, ..packet }, &mut self.world);
        Ok(id)
    }

    /// Lets time pass until the link is empty, or until `until`.
    fn drain(&mut self, until: Time) {
        while let Some(at) = self.next_event().filter(|at| *at <= until) {
            self.pass(at);
        }
    }

    fn next_event(&self) -> Option<Time> {
        let arrival = self.world.coming.first_key_value().map(|(key, _)| key.0);
        self.link.poll_timeout().into_iter().chain(arrival).min()
    }
}

/// Returns a row for each fate, in the order of the packets.
fn table(fates: &[Fate]) -> Result<LongTable, ringway_figures::table::TableError> {
    let mut table = LongTable::new(Schema::new([
        ("packet", Type::U64),
        ("size_bytes", Type::U64),
        ("offered_s", Type::F64),
        ("sent_s", Type::F64),
        ("arrived_s", Type::F64),
        ("fate", Type::Text),
        ("copy_of", Type::U64),
        ("ce", Type::U64),
        ("flipped_bit", Type::U64),
    ])?);
    let order: BTreeSet<(u32, usize)> = fates.iter().enumerate().map(|(i, f)| (f.1, i)).collect();
    for (_, i) in order {
        let (at, packet, size, offered, sent, copy_of, ce, flip, dropped) = fates[i];
        let arrived = if dropped.is_none() { Some(at) } else { None };
        table.row(&[
            u64::from(packet).into(),
            u64::from(size).into(),
            offered.into(),
            sent.into(),
            arrived.into(),
            Cell::Text(dropped.unwrap_or("arrived")),
            copy_of.map(u64::from).into(),
            u64::from(ce).into(),
            flip.map(u64::from).into(),
        ])?;
    }
    Ok(table)
}
