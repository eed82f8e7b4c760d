//! The one-way SCTP of the ns-2 simulator with its defaults, for results that must match those of ns-2.
//!
//! A [`Sender`] opens an association and sends messages of one size, each a chunk and a packet of its
//! own; a [`Sink`] acknowledges them. They communicate only with each other: the handshake has no
//! cookie, and there is one path, one stream and no shutdown. The model keeps the differences of ns-2
//! from RFC 9260: chunks marked to be sent again stay in flight, a window is counted in chunks with
//! their headers, Max.Burst applies only after a retransmission was acknowledged, and new data waits
//! until everything marked is sent.
//!
//! With an IPv4 header a message of 1000 bytes makes 1048, an INIT 56, a SACK 48 and 4 a gap.

mod sink;

pub use sink::Sink;

use ringway_sansio::{Addressing, Duration, Endpoint, Time};
use ringway_sctp::PROTOCOL;
use ringway_sctp::numbers::{Ssn, Tsn};
use ringway_sctp::wire::chunk::{Chunk, kind};
use ringway_sctp::wire::data::DATA_HEADER;
use ringway_sctp::wire::init::{Init, InitParameters};
use ringway_sctp::wire::{Data, DataFlags, Packet, Sack, Writer};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Bytes of an IP header and of the common header of SCTP.
const HEADERS: u16 = 20 + 12;
/// Maximum number of packets sent in one burst (Max.Burst).
const MAX_BURST: u32 = 4;
/// The contents of a heartbeat: a time and the destination.
const BEAT: [u8; 20] = [0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Parameters, with ns-2's names in brackets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Bytes of a message.
    pub message: u16,
    /// Largest IP packet (`mtu_`).
    pub mtu: u16,
    /// The sink's window in bytes of chunks (`initialRwnd_`).
    pub rwnd: u32,
    /// First slow-start threshold in bytes (`initialSsthresh_`).
    pub ssthresh: u32,
    /// First congestion window in bytes (`initialCwnd_` times the largest chunk in older versions).
    pub cwnd: u32,
    /// Missing reports until a fast retransmit (`fastRtxTrigger_`; 4 until 2.34).
    pub misses: u32,
    /// Time that an acknowledgement waits for a second packet (`sackDelay_`); `None` to acknowledge
    /// each packet (`useDelayedSacks_`).
    pub sack_delay: Option<Duration>,
    /// Whether nothing is sent until a heartbeat was answered, as in 2.35.
    pub confirm: bool,
    /// First timeout (`initialRto_`).
    pub initial_rto: Duration,
    /// Least timeout (`minRto_`).
    pub min_rto: Duration,
    /// Largest timeout (`maxRto_`).
    pub max_rto: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            message: 1000,
            mtu: 1500,
            rwnd: 65_536,
            ssthresh: 65_536,
            cwnd: 4380,
            misses: 3,
            sack_delay: Some(Duration::from_millis(200)),
            confirm: false,
            initial_rto: Duration::from_secs(3),
            min_rto: Duration::from_secs(1),
            max_rto: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// Returns the parameters that reproduce Table 1 of a published run to a hundredth of a percent:
    /// two chunks at first, and every packet acknowledged at once.
    pub fn table_1() -> Settings {
        Settings { cwnd: 2936, sack_delay: None, ..Settings::default() }
    }

    /// Returns the largest chunk (`dataChunkSize_`).
    fn max_chunk(&self) -> u32 {
        u32::from(self.mtu.saturating_sub(HEADERS))
    }

    /// Returns the length of a message as a chunk.
    fn chunk(&self) -> u32 {
        DATA_HEADER as u32 + u32::from(self.message).next_multiple_of(4)
    }
}

/// State of a sender. Windows are in bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Snapshot {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow start threshold.
    pub ssthresh: u32,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// Timeout with its back-off.
    pub rto: Duration,
    /// Bytes of chunks in flight, including those marked to be sent again.
    pub in_flight: u32,
    /// Chunks sent, again or for the first time.
    pub sent: u64,
    /// Chunks sent again.
    pub retransmits: u64,
    /// Times a window was halved by missing reports.
    pub fast_retransmits: u64,
    /// Times T3-rtx expired.
    pub timeouts: u64,
    /// Chunks acknowledged without a gap.
    pub acknowledged: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Closed,
    CookieWait,
    CookieEchoed,
    Confirming,
    Established,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Out {
    Init,
    CookieEcho,
    Heartbeat,
    Data(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    Fast,
    Timeout,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Limit {
    OnePacket,
    Cwnd,
}

/// A chunk that was sent (`SctpSendBufferNode_S`).
#[derive(Clone, Copy, Debug)]
struct SentChunk {
    tsn: u64,
    gap_acked: bool,
    counted: bool,
    misses: u32,
    mark: Option<Mark>,
    /// It was sent again for its missing reports, which happens once.
    was_fast: bool,
    transmissions: u32,
    /// When it was sent, if it measures the round trip.
    timed: Option<Time>,
}

/// The sending end.
#[derive(Debug)]
pub struct Sender {
    settings: Settings,
    local: SocketAddr,
    remote: SocketAddr,
    state: State,
    /// Number of queued messages.
    waiting: u64,
    /// The next TSN, from 1.
    next: u64,
    buffer: VecDeque<SentChunk>,
    /// The cumulative acknowledgement (`uiCumAckPoint`).
    cumulative: u64,
    /// `uiHighestTsnNewlyAcked`, which is kept from one SACK to the next.
    newest: u64,
    /// The highest TSN sent when the window was last reduced (`uiRecover`).
    recover: u64,
    cwnd: u32,
    ssthresh: u32,
    partial_bytes_acked: u32,
    outstanding: u32,
    peer_rwnd: u32,
    /// `eApplyMaxBurst`, `uiBurstLength`.
    bound_burst: bool,
    burst: u32,
    measuring: bool,
    beat_at: Time,
    srtt: Option<f64>,
    rttvar: f64,
    rto: Duration,
    t3: Option<Time>,
    /// T1-init and T1-cookie, and the timeout of a heartbeat.
    t1: Option<Time>,
    /// `opCwndDegradeTimer`.
    idle: Option<Time>,
    out: VecDeque<Out>,
    retransmits: u64,
    fast_retransmits: u64,
    timeouts: u64,
    data: Vec<u8>,
}

impl Sender {
    /// Creates a sender that opens its association with the first message.
    pub fn new(settings: Settings, local: SocketAddr, remote: SocketAddr) -> Self {
        Sender {
            settings,
            local,
            remote,
            state: State::Closed,
            waiting: 0,
            next: 1,
            buffer: VecDeque::new(),
            cumulative: 0,
            newest: 0,
            recover: 0,
            cwnd: settings.cwnd,
            ssthresh: settings.ssthresh,
            partial_bytes_acked: 0,
            outstanding: 0,
            peer_rwnd: 0,
            bound_burst: false,
            burst: 0,
            measuring: false,
            beat_at: Time::ZERO,
            srtt: None,
            rttvar: 0.0,
            rto: settings.initial_rto,
            t3: None,
            t1: None,
            idle: None,
            out: VecDeque::new(),
            retransmits: 0,
            fast_retransmits: 0,
            timeouts: 0,
            data: vec![0; usize::from(settings.message)],
        }
    }

    /// Queues messages (`sendmsg`). Their number has no limit, since nothing of them is stored.
    pub fn offer(&mut self, now: Time, messages: u64) {
        self.waiting = self.waiting.saturating_add(messages);
        match self.state {
            State::Closed => {
                self.state = State::CookieWait;
                self.send_control(now, Out::Init);
            }
            State::Established if !self.has_marked() => self.send_much(now),
            _ => {}
        }
    }

    /// Returns the sender's state.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            srtt: self.srtt.map(Duration::from_secs_f64),
            rto: self.rto,
            in_flight: self.outstanding,
            sent: self.next - 1 + self.retransmits,
            retransmits: self.retransmits,
            fast_retransmits: self.fast_retransmits,
            timeouts: self.timeouts,
            acknowledged: self.cumulative,
        }
    }

    fn send_control(&mut self, now: Time, what: Out) {
        self.out.push_back(what);
        self.t1 = Some(now + self.rto);
        if what == Out::Heartbeat {
            self.beat_at = now;
        }
    }

    fn establish(&mut self, now: Time) {
        self.state = State::Established;
        self.t1 = None;
        self.send_much(now);
    }

    fn has_marked(&self) -> bool {
        self.buffer.iter().any(|sent| sent.mark.is_some())
    }

    fn back_off(&mut self) {
        self.rto = (self.rto * 2).min(self.settings.max_rto);
    }

    /// `RttUpdate` (RFC 9260 section 6.3.1).
    fn measure(&mut self, time: Duration) {
        let rtt = time.as_secs_f64();
        let srtt = match self.srtt {
            None => {
                self.rttvar = rtt / 2.0;
                rtt
            }
            Some(srtt) => {
                self.rttvar = 0.75 * self.rttvar + 0.25 * (srtt - rtt).abs();
                0.875 * srtt + 0.125 * rtt
            }
        };
        self.srtt = Some(srtt);
        let rto = Duration::from_secs_f64(srtt + 4.0 * self.rttvar);
        self.rto = rto.max(self.settings.min_rto).min(self.settings.max_rto);
    }

    /// Measures the round trip of an acknowledged chunk, if it is timed.
    fn time(&mut self, now: Time, sent: &SentChunk) {
        if let Some(at) = sent.timed
            && self.measuring
            && sent.transmissions == 1
            && !sent.gap_acked
        {
            if sent.mark != Some(Mark::Timeout) {
                self.measure(now.since(at));
            }
            self.measuring = false;
        }
    }

    /// `SendBufferDequeueUpTo`: returns the bytes that it newly acknowledges.
    fn take_up_to(&mut self, now: Time, tsn: u64) -> u32 {
        let (mut bytes, chunk) = (0, self.settings.chunk());
        while let Some(sent) = self.buffer.front().copied().filter(|sent| sent.tsn <= tsn) {
            self.buffer.pop_front();
            if !sent.gap_acked {
                self.newest = sent.tsn;
                bytes += chunk;
                if self.cwnd > self.ssthresh && self.outstanding >= self.cwnd {
                    self.partial_bytes_acked += chunk;
                }
            }
            self.bound_burst |= sent.was_fast;
            self.time(now, &sent);
            self.t3 = None;
        }
        self.cumulative = tsn;
        bytes
    }

    /// `ProcessGapAckBlocks`: returns the bytes newly acknowledged, and whether a fast retransmit is
    /// due.
    fn take_gaps(&mut self, now: Time, sack: &Sack<'_>, advanced: bool) -> (u32, bool) {
        let (mut bytes, chunk) = (0, self.settings.chunk());
        let first = self.buffer.iter().find(|sent| !sent.gap_acked).map(|sent| sent.tsn);
        let mut highest = self.newest;
        for gap in sack.gaps() {
            let (start, end) =
                (self.cumulative + u64::from(gap.start), self.cumulative + u64::from(gap.end));
            highest = highest.max(end);
            let from = self.buffer.partition_point(|sent| sent.tsn < start);
            for index in from..self.buffer.len() {
                let sent = self.buffer[index];
                if sent.tsn > end {
                    break;
                }
                if sent.gap_acked {
                    continue;
                }
                self.newest = self.newest.max(sent.tsn);
                bytes += chunk;
                if self.cwnd > self.ssthresh && advanced && !sent.counted {
                    self.buffer[index].counted = true;
                    self.partial_bytes_acked += chunk;
                }
                self.time(now, &sent);
                if first == Some(sent.tsn) {
                    self.t3 = None;
                }
                self.buffer[index].gap_acked = true;
                self.buffer[index].mark = None;
            }
        }
        let mut fast = false;
        for sent in self.buffer.iter_mut().filter(|sent| !sent.gap_acked) {
            let recovering = advanced && self.newest <= self.recover && sent.tsn < highest;
            if sent.tsn < self.newest || recovering {
                sent.misses += 1;
                if sent.misses >= self.settings.misses && !sent.was_fast {
                    sent.mark = Some(Mark::Fast);
                    sent.was_fast = true;
                    self.peer_rwnd = self.peer_rwnd.saturating_add(chunk);
                    fast = true;
                }
            }
        }
        (bytes, fast)
    }

    /// `AdjustCwnd`, before acknowledged bytes leave the flight.
    fn open_window(&mut self, bytes: u32) {
        let full = self.outstanding >= self.cwnd;
        if self.cwnd <= self.ssthresh {
            if full {
                self.cwnd += bytes.min(self.settings.max_chunk());
            }
        } else if full && self.partial_bytes_acked >= self.cwnd {
            self.partial_bytes_acked -= self.cwnd;
            self.cwnd += self.settings.max_chunk();
        }
    }

    /// `ProcessSackChunk`.
    fn take_sack(&mut self, now: Time, sack: &Sack<'_>) {
        let cumulative = u64::from(sack.cumulative_tsn_ack.raw());
        if cumulative < self.cumulative || cumulative >= self.next {
            return;
        }
        let advanced = cumulative > self.cumulative;
        let mut bytes = if advanced { self.take_up_to(now, cumulative) } else { 0 };
        let mut fast = false;
        if sack.gaps().next().is_some() {
            let (more, due) = self.take_gaps(now, sack, advanced);
            bytes += more;
            fast = due;
        }
        if advanced && bytes > 0 && cumulative >= self.recover {
            self.open_window(bytes);
        }
        self.outstanding = self.outstanding.saturating_sub(bytes);
        if self.outstanding == 0 {
            self.partial_bytes_acked = 0;
            self.t3 = None;
        } else {
            self.t3.get_or_insert(now + self.rto);
        }
        if fast {
            self.fast_retransmit(now);
        } else if self.has_marked() {
            self.send_marked(now, Limit::Cwnd);
        }
        self.peer_rwnd = sack.a_rwnd.saturating_sub(self.outstanding);
        if !self.has_marked() {
            self.send_much(now);
        }
    }

    /// `FastRtx`: reduces the window once per flight.
    fn fast_retransmit(&mut self, now: Time) {
        let recover = self.recover;
        if self.buffer.iter().any(|sent| sent.mark.is_some() && sent.tsn > recover) {
            self.ssthresh = (self.cwnd / 2).max(4 * self.settings.max_chunk());
            self.cwnd = self.ssthresh;
            self.partial_bytes_acked = 0;
            self.measuring = false;
            self.recover = self.next - 1;
            self.fast_retransmits += 1;
        }
        self.send_marked(now, Limit::OnePacket);
    }

    /// `RtxMarkedChunks`. Marked chunks count as in flight everywhere else.
    fn send_marked(&mut self, now: Time, limit: Limit) {
        let chunk = self.settings.chunk();
        let marked = self.buffer.iter().filter(|sent| sent.mark.is_some()).count() as u32;
        self.outstanding = self.outstanding.saturating_sub(marked * chunk);
        self.burst = 0;
        let first = self.buffer.iter().find(|sent| !sent.gap_acked).map(|sent| sent.tsn);
        let mut left = marked;
        for index in 0..self.buffer.len() {
            if self.buffer[index].mark.is_none() {
                continue;
            }
            if limit == Limit::Cwnd && self.outstanding >= self.cwnd {
                break;
            }
            let sent = &mut self.buffer[index];
            if self.measuring && sent.timed.is_some() {
                sent.timed = None;
                self.measuring = false;
            }
            sent.transmissions += 1;
            sent.mark = None;
            let tsn = sent.tsn;
            if first == Some(tsn) && self.outstanding > 0 {
                self.t3 = Some(now + self.rto);
            }
            self.outstanding += chunk;
            self.peer_rwnd = self.peer_rwnd.saturating_sub(chunk);
            self.out.push_back(Out::Data(tsn));
            self.retransmits += 1;
            left -= 1;
            self.t3.get_or_insert(now + self.rto);
            self.idle = Some(now + self.rto);
            if limit == Limit::OnePacket || self.is_burst_over() {
                break;
            }
        }
        self.outstanding += left * chunk;
    }

    fn is_burst_over(&mut self) -> bool {
        if !self.bound_burst {
            return false;
        }
        self.burst += 1;
        let over = self.burst > MAX_BURST;
        self.bound_burst = !over;
        over
    }

    /// `SendMuch`: new data, until a window is full.
    fn send_much(&mut self, now: Time) {
        let chunk = self.settings.chunk();
        while self.outstanding < self.cwnd && self.waiting > 0 {
            let probes = self.outstanding == 0;
            if chunk > self.peer_rwnd && !probes {
                break;
            }
            if chunk <= self.peer_rwnd && self.is_burst_over() {
                break;
            }
            self.waiting -= 1;
            let timed = (!self.measuring).then_some(now);
            self.measuring = true;
            self.buffer.push_back(SentChunk {
                tsn: self.next,
                gap_acked: false,
                counted: false,
                misses: 0,
                mark: None,
                was_fast: false,
                transmissions: 1,
                timed,
            });
            self.out.push_back(Out::Data(self.next));
            self.next += 1;
            self.outstanding += chunk;
            self.peer_rwnd = self.peer_rwnd.saturating_sub(chunk);
            self.t3.get_or_insert(now + self.rto);
            self.idle = Some(now + self.rto);
        }
        self.burst = 0;
    }

    /// `Timeout` of T3-rtx.
    fn expire(&mut self, now: Time) {
        self.timeouts += 1;
        if self.cwnd > self.settings.max_chunk() {
            self.ssthresh = (self.cwnd / 2).max(4 * self.settings.max_chunk());
            self.cwnd = self.settings.max_chunk();
            self.partial_bytes_acked = 0;
        }
        self.idle = None;
        self.measuring = false;
        self.back_off();
        for sent in self.buffer.iter_mut().filter(|sent| !sent.gap_acked) {
            sent.mark = Some(Mark::Timeout);
            sent.misses = 0;
            self.peer_rwnd = self.peer_rwnd.saturating_add(self.settings.chunk());
        }
        if self.has_marked() {
            self.send_marked(now, Limit::OnePacket);
        }
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, _addressing: Addressing, payload: &[u8]) {
        let Some(packet) = ours(payload, self.remote, self.local) else { return };
        for chunk in packet.chunks().flatten().filter_map(|raw| raw.parse().ok()) {
            match (self.state, chunk) {
                (State::CookieWait, Chunk::InitAck(init)) => {
                    self.peer_rwnd = init.a_rwnd;
                    self.state = State::CookieEchoed;
                    self.send_control(now, Out::CookieEcho);
                }
                (State::CookieEchoed, Chunk::CookieAck) if self.settings.confirm => {
                    self.state = State::Confirming;
                    self.send_control(now, Out::Heartbeat);
                }
                (State::CookieEchoed, Chunk::CookieAck) => self.establish(now),
                (State::Confirming, Chunk::HeartbeatAck(_)) => {
                    self.measure(now.since(self.beat_at));
                    self.establish(now);
                }
                (State::Established, Chunk::Sack(sack)) => self.take_sack(now, &sack),
                _ => {}
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.t1.is_some_and(|at| at <= now) {
            self.t1 = None;
            self.back_off();
            match self.state {
                State::CookieWait => self.send_control(now, Out::Init),
                State::CookieEchoed => self.send_control(now, Out::CookieEcho),
                State::Confirming => self.send_control(now, Out::Heartbeat),
                _ => {}
            }
        }
        if self.idle.is_some_and(|at| at <= now) {
            let min = 4 * self.settings.max_chunk();
            if self.cwnd > self.settings.cwnd {
                self.cwnd = (self.cwnd / 2).max(min);
            }
            self.idle = (self.cwnd > min).then(|| now + self.rto);
        }
        if self.t3.is_some_and(|at| at <= now) {
            self.t3 = None;
            self.expire(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.t1, self.t3, self.idle].into_iter().flatten().min()
    }

    fn poll_transmit(&mut self, _now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let what = self.out.pop_front()?;
        let (from, to) = (self.local.port(), self.remote.port());
        let mut writer = Writer::new(payload, usize::from(self.settings.mtu), from, to, 0);
        let chunks = writer.chunks();
        match what {
            Out::Init => put_init(kind::INIT, self.settings.rwnd, chunks),
            Out::CookieEcho => Chunk::CookieEcho(&[]).emit(chunks),
            Out::Heartbeat => Chunk::Heartbeat(&BEAT).emit(chunks),
            Out::Data(tsn) => Data {
                flags: DataFlags::BEGIN.with(DataFlags::END),
                tsn: Tsn::new(tsn as u32),
                stream: 0,
                ssn: Ssn::new((tsn - 1) as u16),
                ppid: 0,
                user: &self.data,
            }
            .emit(chunks),
        }
        writer.finish();
        Some(addressing(self.local.ip(), self.remote.ip()))
    }
}

/// Appends an INIT or INIT ACK with a parameter of four bytes, where ns-2 lists unreliable streams.
fn put_init(chunk: u8, rwnd: u32, out: &mut Vec<u8>) {
    let parameters = InitParameters { forward_tsn: true, ..InitParameters::default() };
    parameters.emit(out, chunk, &Init::fixed(1, rwnd, (1, 1), Tsn::new(1)));
}

/// Returns the packet, if its ports match.
fn ours(payload: &[u8], from: SocketAddr, to: SocketAddr) -> Option<Packet<'_>> {
    let packet = Packet::parse(payload).ok()?;
    (packet.source == from.port() && packet.destination == to.port()).then_some(packet)
}

fn addressing(source: IpAddr, destination: IpAddr) -> Addressing {
    Addressing::new(source, destination, PROTOCOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(settings: Settings) -> (Sender, Sink) {
        let (a, b) = (SocketAddr::from(([1, 0, 0, 1], 1)), SocketAddr::from(([1, 0, 0, 2], 2)));
        (Sender::new(settings, a, b), Sink::new(settings, b, a))
    }

    /// Returns the packets that an endpoint sends.
    fn take(end: &mut dyn Endpoint, now: Time) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut packet = Vec::new();
        while end.poll_transmit(now, &mut packet).is_some() {
            all.push(std::mem::take(&mut packet));
        }
        all
    }

    fn deliver(end: &mut dyn Endpoint, now: Time, packets: &[Vec<u8>]) {
        let (a, b) = (IpAddr::from([1, 0, 0, 1]), IpAddr::from([1, 0, 0, 2]));
        for packet in packets {
            end.handle_packet(now, addressing(a, b), packet);
        }
    }

    /// Bytes of packets with their IP headers.
    fn sizes(packets: &[Vec<u8>]) -> Vec<usize> {
        packets.iter().map(|packet| packet.len() + 20).collect()
    }

    fn tsns(packets: &[Vec<u8>]) -> Vec<u8> {
        packets.iter().map(|packet| packet[19]).collect()
    }

    /// Opens the association and returns the first packets of data.
    fn open(sender: &mut Sender, sink: &mut Sink, messages: u64) -> Vec<Vec<u8>> {
        let now = Time::ZERO;
        sender.offer(now, messages);
        for expected in [[56, 56], [36, 36]] {
            let there = take(sender, now);
            deliver(sink, now, &there);
            let back = take(sink, now);
            assert_eq!([sizes(&there), sizes(&back)].concat(), expected);
            deliver(sender, now, &back);
        }
        take(sender, now)
    }

    #[test]
    fn sizes_are_those_of_ns2() {
        let (mut sender, mut sink) = ends(Settings::default());
        let mut first = open(&mut sender, &mut sink, 100);
        // The window may be exceeded by a packet: 4064 bytes are below 4380.
        assert_eq!(sizes(&first), [1048; 5]);
        first.remove(1);
        first.remove(2);
        deliver(&mut sink, Time::ZERO, &first);
        // TSN 1, 3 and 5: the first is acknowledged at once, and so is what comes after a gap.
        assert_eq!(sizes(&take(&mut sink, Time::ZERO)), [48, 52, 56]);
        assert_eq!((sink.received(), sink.delivered()), (3, 1));
    }

    #[test]
    fn a_second_packet_or_the_time_brings_a_sack() {
        let (mut sender, mut sink) = ends(Settings::default());
        let first = open(&mut sender, &mut sink, 100);
        deliver(&mut sink, Time::ZERO, &first[..4]);
        assert_eq!(take(&mut sink, Time::ZERO).len(), 2);
        assert_eq!(sink.poll_timeout(), Some(Time::from_millis(200)));
        sink.handle_timeout(Time::from_millis(200));
        assert_eq!(take(&mut sink, Time::from_millis(200)).len(), 1);
        assert_eq!(sink.poll_timeout(), None);
    }

    #[test]
    fn missing_reports_halve_the_window_once() {
        let (mut sender, mut sink) = ends(Settings { cwnd: 20_000, ..Settings::table_1() });
        let now = Time::from_millis(100);
        let mut first = open(&mut sender, &mut sink, 100);
        assert_eq!(first.len(), 20);
        first.drain(3..5);
        deliver(&mut sink, now, &first);
        let back = take(&mut sink, now);
        deliver(&mut sender, now, &back);
        let snapshot = sender.snapshot();
        assert_eq!((snapshot.fast_retransmits, snapshot.retransmits), (1, 2));
        assert_eq!(snapshot.cwnd, snapshot.ssthresh);
        let sent = tsns(&take(&mut sender, now));
        assert!(sent.starts_with(&[21]) && sent.contains(&4) && sent.contains(&5), "{sent:?}");
    }

    #[test]
    fn a_timeout_sends_the_first_again() {
        let (mut sender, mut sink) = ends(Settings::table_1());
        assert_eq!(open(&mut sender, &mut sink, 100).len(), 3);
        let at = sender.poll_timeout().unwrap();
        assert_eq!(at, Time::from_secs(3));
        sender.handle_timeout(at);
        let again = take(&mut sender, at);
        assert_eq!(tsns(&again), [1]);
        let snapshot = sender.snapshot();
        assert_eq!((snapshot.cwnd, snapshot.timeouts), (1468, 1));
        assert_eq!(snapshot.rto, Duration::from_secs(6));
        // An answer continues with the marked chunks, then with new data.
        deliver(&mut sink, at, &again);
        let back = take(&mut sink, at);
        deliver(&mut sender, at, &back);
        assert_eq!(tsns(&take(&mut sender, at)), [2, 3, 4]);
    }

    #[test]
    fn a_heartbeat_may_come_first() {
        let (mut sender, mut sink) = ends(Settings { confirm: true, ..Settings::default() });
        let beat = open(&mut sender, &mut sink, 1);
        assert_eq!(sizes(&beat), [56]);
        deliver(&mut sink, Time::ZERO, &beat);
        let back = take(&mut sink, Time::from_millis(50));
        deliver(&mut sender, Time::from_millis(50), &back);
        assert_eq!(sender.snapshot().srtt, Some(Duration::from_millis(50)));
        assert_eq!(sizes(&take(&mut sender, Time::from_millis(50))), [1048]);
    }

    #[test]
    fn an_init_is_sent_again() {
        let (mut sender, _) = ends(Settings::default());
        sender.offer(Time::ZERO, 1);
        assert_eq!(take(&mut sender, Time::ZERO).len(), 1);
        sender.handle_timeout(Time::from_secs(3));
        assert_eq!(sizes(&take(&mut sender, Time::from_secs(3))), [56]);
        assert_eq!(sender.poll_timeout(), Some(Time::from_secs(9)));
    }
}
