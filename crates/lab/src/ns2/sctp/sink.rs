//! The receiving endpoint.

use super::{Settings, addressing, ours, put_init};
use ringway_sansio::{Addressing, Endpoint, Time};
use ringway_sctp::numbers::Tsn;
use ringway_sctp::wire::chunk::{Chunk, kind};
use ringway_sctp::wire::sack::{self, SACK_ENTRY, SACK_HEADER};
use ringway_sctp::wire::{Gap, Writer};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

/// Maximum number of answers that wait to be sent. More are dropped.
const MAX_WAITING: usize = 4096;

#[derive(Debug)]
enum Answer {
    InitAck,
    CookieAck,
    HeartbeatAck(Vec<u8>),
    Sack { cumulative: u64, window: u32, gaps: Vec<Gap>, duplicates: Vec<u64> },
}

/// The receiving endpoint. Data in order is consumed at once.
#[derive(Debug)]
pub struct Sink {
    settings: Settings,
    local: SocketAddr,
    remote: SocketAddr,
    cumulative: u64,
    /// TSNs beyond a gap; the window bounds their number.
    held: BTreeSet<u64>,
    duplicates: BTreeSet<u64>,
    /// Packets since the last SACK (`iDataPktCountSinceLastSack`).
    unanswered: u32,
    timer: Option<Time>,
    waiting: VecDeque<Answer>,
    received: u64,
}

impl Sink {
    /// Creates a sink for one sender with the same settings.
    pub fn new(settings: Settings, local: SocketAddr, remote: SocketAddr) -> Self {
        Sink {
            settings,
            local,
            remote,
            cumulative: 0,
            held: BTreeSet::new(),
            duplicates: BTreeSet::new(),
            unanswered: 0,
            timer: None,
            waiting: VecDeque::new(),
            received: 0,
        }
    }

    /// Returns the number of chunks received, including duplicates.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of messages received in order.
    pub fn delivered(&self) -> u64 {
        self.cumulative
    }

    fn answer(&mut self, answer: Answer) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(answer);
        }
    }

    fn window(&self) -> u32 {
        self.settings.rwnd.saturating_sub(self.held.len() as u32 * self.settings.chunk())
    }

    fn acknowledge(&mut self) {
        self.unanswered = 0;
        self.timer = None;
        let mut gaps: Vec<Gap> = Vec::new();
        let max = (self.settings.max_chunk() as usize).saturating_sub(SACK_HEADER) / SACK_ENTRY;
        for tsn in &self.held {
            let full = gaps.len() >= max;
            let position = (tsn - self.cumulative) as u16;
            match gaps.last_mut() {
                Some(gap) if position - gap.end == 1 => gap.end = position,
                _ if full => break,
                _ => gaps.push(Gap { start: position, end: position }),
            }
        }
        let duplicates = std::mem::take(&mut self.duplicates).into_iter().collect();
        let (cumulative, window) = (self.cumulative, self.window());
        self.answer(Answer::Sack { cumulative, window, gaps, duplicates });
    }

    /// `ProcessDataChunk`, and the rules for SACKs.
    fn take(&mut self, now: Time, tsn: u64) {
        self.received += 1;
        let mut due = self.settings.sack_delay.is_none() || tsn == 1;
        if !due {
            self.unanswered += 1;
            due = self.unanswered == 2;
            if let (1, Some(delay)) = (self.unanswered, self.settings.sack_delay) {
                self.timer = Some(now + delay);
            }
        }
        if self.settings.chunk() > self.window() {
            due = false;
        } else if tsn <= self.cumulative || self.held.contains(&tsn) {
            self.duplicates.insert(tsn);
            due = true;
        } else {
            self.held.insert(tsn);
            while self.held.remove(&(self.cumulative + 1)) {
                self.cumulative += 1;
            }
        }
        if due || !self.held.is_empty() {
            self.acknowledge();
        }
    }
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, now: Time, _addressing: Addressing, payload: &[u8]) {
        let Some(packet) = ours(payload, self.remote, self.local) else { return };
        for chunk in packet.chunks().flatten().filter_map(|raw| raw.parse().ok()) {
            match chunk {
                Chunk::Init(_) => self.answer(Answer::InitAck),
                Chunk::CookieEcho(_) => self.answer(Answer::CookieAck),
                Chunk::Heartbeat(info) => self.answer(Answer::HeartbeatAck(info.to_vec())),
                Chunk::Data(data) => {
                    let ahead = data.tsn.distance(Tsn::new(self.cumulative as u32));
                    match u16::try_from(ahead) {
                        Ok(ahead) => self.take(now, self.cumulative + u64::from(ahead)),
                        // It was received before.
                        Err(_) => self.take(now, u64::from(data.tsn.raw())),
                    }
                }
                _ => {}
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.timer.is_some_and(|at| at <= now) {
            self.acknowledge();
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.timer
    }

    fn poll_transmit(&mut self, _now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let answer = self.waiting.pop_front()?;
        let (from, to) = (self.local.port(), self.remote.port());
        let mut writer = Writer::new(payload, usize::from(self.settings.mtu), from, to, 0);
        let chunks = writer.chunks();
        match answer {
            Answer::InitAck => put_init(kind::INIT_ACK, self.settings.rwnd, chunks),
            Answer::CookieAck => Chunk::CookieAck.emit(chunks),
            Answer::HeartbeatAck(info) => Chunk::HeartbeatAck(&info).emit(chunks),
            Answer::Sack { cumulative, window, gaps, duplicates } => sack::emit(
                chunks,
                Tsn::new(cumulative as u32),
                window,
                gaps.into_iter(),
                duplicates.into_iter().map(|tsn| Tsn::new(tsn as u32)),
            ),
        }
        writer.finish();
        Some(addressing(self.local.ip(), self.remote.ip()))
    }
}
