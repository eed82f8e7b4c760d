//! The one-way TCP of the ns-2 simulator with its defaults, for results that must match those of ns-2.
//!
//! A [`Sender`] numbers packets, not bytes, starts without a handshake, and ignores the receiver's
//! window; a [`Sink`] acknowledges each packet at once. The congestion control is Tahoe: every loss
//! starts over from one packet. On the wire both are TCP headers without options, so that with an IPv4
//! header a data packet has 1040 bytes and an acknowledgment 40.
//!
//! It models the model. What ns-2 counts in ticks is counted in ticks here, and its order of events
//! within an acknowledgment is the same: measure, advance, open the window, send.

use ringway_sansio::{Addressing, Duration, Endpoint, Time};
use ringway_tcp::PROTOCOL;
use ringway_tcp::segment::{Flags, Header, Segment};
use ringway_tcp::seq::Seq;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

/// Fraction bits of the smoothed round-trip time, in ticks.
const SRTT_BITS: u32 = 3;
/// Fraction bits of its variation, in ticks.
const RTTVAR_BITS: u32 = 2;
/// The timeout is the smoothed time plus this power of two times the variation.
const RTTVAR_EXP: u32 = 2;
/// Maximum factor of the back-off.
const MAX_BACKOFF: u32 = 64;
/// Maximum number of packets out of order that a sink stores. More are dropped.
const MAX_HELD: usize = 4096;
/// Maximum number of acknowledgments that wait in a sink to be sent. More are dropped.
const MAX_WAITING: usize = 4096;

/// Parameters, with ns-2's names in brackets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Data bytes in a packet (`packetSize_`).
    pub packet: u16,
    /// Maximum window in packets (`window_`).
    pub window: u32,
    /// Initial window in packets (`windowInit_`).
    pub initial_window: u32,
    /// Number of duplicate acknowledgments that indicate a loss (`numdupacks_`).
    pub dup_acks: u32,
    /// Whether a new packet is sent for each of the earlier duplicates (`singledup_`, RFC 3042).
    pub limited_transmit: bool,
    /// Unit of measured times (`tcpTick_`).
    pub tick: Duration,
    /// Minimum timeout (`minrto_`).
    pub min_rto: Duration,
    /// Maximum timeout (`maxrto_`).
    pub max_rto: Duration,
    /// Timeout before a round trip was measured (`rtxcur_init_`).
    pub initial_rto: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            packet: 1000,
            window: 20,
            initial_window: 2,
            dup_acks: 3,
            limited_transmit: true,
            tick: Duration::from_millis(10),
            min_rto: Duration::from_millis(200),
            max_rto: Duration::from_secs(60),
            initial_rto: Duration::from_secs(3),
        }
    }
}

/// State of a sender. Windows are in packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Snapshot {
    /// Congestion window.
    pub cwnd: f64,
    /// Slow start threshold.
    pub ssthresh: u32,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// Timeout with its back-off.
    pub rto: Duration,
    /// Packets sent and not acknowledged.
    pub in_flight: u64,
    /// Packets sent, again or for the first time.
    pub sent: u64,
    /// Packets sent again.
    pub retransmits: u64,
    /// Times the timer expired.
    pub timeouts: u64,
    /// Packets acknowledged.
    pub acknowledged: u64,
}

/// The sending endpoint.
#[derive(Debug)]
pub struct Sender {
    settings: Settings,
    local: SocketAddr,
    remote: SocketAddr,
    /// Number of packets the application has queued (`curseq_`).
    offered: u64,
    /// The next packet to send (`t_seqno_`).
    next: u64,
    /// Packets sent at least once (`maxseq_` + 1).
    highest: u64,
    /// Packets acknowledged (`highest_ack_` + 1).
    acknowledged: u64,
    /// Number of packets sent when the window was last reduced (`recover_` + 1).
    recover: u64,
    /// Whether the window was reduced, so that `recover` is valid.
    has_cut: bool,
    dup_acks: u32,
    cwnd: f64,
    ssthresh: u32,
    /// In ticks with `SRTT_BITS`; 0 before a round trip was measured.
    srtt: i64,
    /// In ticks with `RTTVAR_BITS`.
    rttvar: i64,
    timeout: Duration,
    backoff: u32,
    /// The packet being timed and its send time (`rtt_seq_`, `rtt_ts_`).
    timed: Option<(u64, Time)>,
    /// The latest packet that was timed.
    last_timed: Option<u64>,
    timer: Option<Time>,
    /// Number of packets that limited transmit allows.
    single: u32,
    sent: u64,
    retransmits: u64,
    timeouts: u64,
    data: Vec<u8>,
}

impl Sender {
    /// Creates a sender without data.
    pub fn new(settings: Settings, local: SocketAddr, remote: SocketAddr) -> Self {
        Sender {
            settings,
            local,
            remote,
            offered: 0,
            next: 0,
            highest: 0,
            acknowledged: 0,
            recover: 0,
            has_cut: false,
            dup_acks: 0,
            cwnd: f64::from(settings.initial_window),
            ssthresh: settings.window,
            srtt: 0,
            rttvar: 0,
            timeout: settings.initial_rto,
            backoff: 1,
            timed: None,
            last_timed: None,
            timer: None,
            single: 0,
            sent: 0,
            retransmits: 0,
            timeouts: 0,
            data: vec![0; usize::from(settings.packet)],
        }
    }

    /// Queues packets. Their number has no limit, since nothing of them is stored.
    pub fn offer(&mut self, packets: u64) {
        self.offered = self.offered.saturating_add(packets);
    }

    /// Returns the sender's state.
    pub fn snapshot(&self) -> Snapshot {
        let srtt = (self.srtt != 0).then(|| {
            Duration::from_nanos(self.srtt as u64 * self.settings.tick.as_nanos() as u64 / 8)
        });
        Snapshot {
            cwnd: self.cwnd,
            ssthresh: self.ssthresh,
            srtt,
            rto: self.rto(),
            in_flight: self.highest - self.acknowledged,
            sent: self.sent,
            retransmits: self.retransmits,
            timeouts: self.timeouts,
            acknowledged: self.acknowledged,
        }
    }

    /// `window()`: returns the congestion window in whole packets, at most the configured maximum.
    fn window(&self) -> u64 {
        (self.cwnd as u64).min(u64::from(self.settings.window))
    }

    fn rto(&self) -> Duration {
        (self.timeout * self.backoff).min(self.settings.max_rto).max(self.settings.min_rto)
    }

    /// `rtt_update`.
    fn measure(&mut self, time: Duration) {
        let tick = self.settings.tick.as_nanos().max(1) as u64;
        let ticks = ((time.as_nanos() as u64 + tick / 2) / tick).max(1) as i64;
        if self.srtt != 0 {
            let mut delta = ticks - (self.srtt >> SRTT_BITS);
            self.srtt = (self.srtt + delta).max(1);
            delta = delta.abs() - (self.rttvar >> RTTVAR_BITS);
            self.rttvar = (self.rttvar + delta).max(1);
        } else {
            self.srtt = ticks << SRTT_BITS;
            self.rttvar = ticks << (RTTVAR_BITS - 1);
        }
        let sum =
            ((self.rttvar << (RTTVAR_EXP + SRTT_BITS - RTTVAR_BITS)) + self.srtt) >> SRTT_BITS;
        self.timeout = Duration::from_nanos(sum as u64 * tick);
    }

    /// `slowdown`: sets the threshold to half the window, and the window to one packet.
    fn cut(&mut self) {
        self.recover = self.highest;
        self.has_cut = true;
        self.ssthresh = (self.window() as u32 / 2).max(2);
        self.cwnd = 1.0;
        self.next = self.acknowledged;
        self.timed = None;
        self.single = 0;
    }

    /// `recv_newack_helper`.
    fn acknowledge(&mut self, now: Time, upto: u64) {
        if let Some((packet, at)) = self.timed
            && upto > packet
        {
            self.timed = None;
            self.backoff = 1;
            self.measure(now.since(at));
        }
        self.dup_acks = 0;
        self.single = 0;
        self.acknowledged = upto;
        self.next = self.next.max(upto);
        // Packets sent after a reduction may still be in flight when all those sent before are
        // acknowledged.
        let waiting = self.next > upto || upto < self.highest;
        self.timer = waiting.then(|| now + self.rto());
        if self.cwnd < f64::from(self.ssthresh) {
            self.cwnd += 1.0;
        } else {
            self.cwnd += 1.0 / self.cwnd;
        }
    }

    /// `dupack_action` of Tahoe, unless the loss was already handled.
    fn duplicate(&mut self, now: Time) {
        self.dup_acks += 1;
        if self.dup_acks < self.settings.dup_acks {
            self.single += u32::from(self.settings.limited_transmit);
        } else if self.dup_acks == self.settings.dup_acks
            && (!self.has_cut || self.acknowledged > self.recover)
        {
            self.cut();
            self.timer = Some(now + self.rto());
        }
    }
}

impl Endpoint for Sender {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        let Ok(segment) = Segment::parse(addressing.source, addressing.destination, payload) else {
            return;
        };
        let header = segment.header;
        let ours = header.source == self.remote.port() && header.destination == self.local.port();
        if !ours || !header.flags.has(Flags::ACK) {
            return;
        }
        // Packets acknowledged, from bytes modulo 2^32: the nearest number ahead.
        let packet = u64::from(self.settings.packet);
        let known = Seq::new((self.acknowledged.wrapping_mul(packet)) as u32);
        if header.ack.before(known) {
            return;
        }
        let upto = self.acknowledged + u64::from(header.ack - known) / packet;
        if upto > self.highest {
            return;
        }
        if upto > self.acknowledged {
            self.acknowledge(now, upto);
        } else if self.highest > self.acknowledged {
            self.duplicate(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.timer.is_none_or(|at| at > now) {
            return;
        }
        self.timer = None;
        if self.acknowledged == self.highest {
            return;
        }
        self.timeouts += 1;
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        self.dup_acks = 0;
        self.cut();
        self.timer = Some(now + self.rto());
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.timer
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let mut window = self.acknowledged + self.window();
        if self.single > 0 {
            // Limited transmit: one more packet for each duplicate, within the maximum window.
            let max = self.acknowledged + u64::from(self.settings.window);
            window = (window + u64::from(self.dup_acks)).min(max);
        }
        if self.next >= window || self.next >= self.offered {
            self.single = 0;
            return None;
        }
        let packet = self.next;
        self.next += 1;
        self.sent += 1;
        if packet < self.highest {
            self.retransmits += 1;
        } else {
            self.highest = packet + 1;
        }
        if self.timed.is_none() && self.last_timed.is_none_or(|last| packet > last) {
            self.timed = Some((packet, now));
            self.last_timed = Some(packet);
        }
        let rto = self.rto();
        self.timer.get_or_insert(now + rto);
        let header = Header {
            source: self.local.port(),
            destination: self.remote.port(),
            seq: Seq::new((packet.wrapping_mul(u64::from(self.settings.packet))) as u32),
            flags: Flags::PSH,
            window: u16::MAX,
            ..Header::default()
        };
        header.emit(self.local.ip(), self.remote.ip(), payload, (&self.data, &[]));
        Some(addressing(self.local.ip(), self.remote.ip()))
    }
}

/// The receiving endpoint.
#[derive(Debug)]
pub struct Sink {
    local: SocketAddr,
    remote: SocketAddr,
    /// The sequence number up to which the stream is complete.
    next: Seq,
    /// The ranges received beyond it.
    held: Vec<(Seq, Seq)>,
    waiting: VecDeque<Seq>,
    received: u64,
    delivered: u64,
}

impl Sink {
    /// Creates a sink for the packets of one sender.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Sink {
            local,
            remote,
            next: Seq::default(),
            held: Vec::new(),
            waiting: VecDeque::new(),
            received: 0,
            delivered: 0,
        }
    }

    /// Returns the number of packets received, including duplicates.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Returns the number of bytes received in order.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    fn advance(&mut self, end: Seq) {
        self.delivered += u64::from(end.ahead_of(self.next));
        self.next = self.next.max(end);
    }
}

impl Endpoint for Sink {
    fn handle_packet(&mut self, _now: Time, addressing: Addressing, payload: &[u8]) {
        let Ok(segment) = Segment::parse(addressing.source, addressing.destination, payload) else {
            return;
        };
        let header = segment.header;
        let ours = header.source == self.remote.port() && header.destination == self.local.port();
        if !ours || segment.data.is_empty() {
            return;
        }
        self.received += 1;
        let (begin, end) = (header.seq, header.seq + segment.data.len() as u32);
        if begin.upto(self.next) {
            self.advance(end);
            while let Some(&(low, high)) = self.held.first()
                && low.upto(self.next)
            {
                self.held.remove(0);
                self.advance(high);
            }
        } else {
            let at = self.held.partition_point(|held| held.0.before(begin));
            if self.held.get(at).is_none_or(|held| held.0 != begin) && self.held.len() < MAX_HELD {
                self.held.insert(at, (begin, end));
            }
        }
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(self.next);
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn poll_transmit(&mut self, _now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        let header = Header {
            source: self.local.port(),
            destination: self.remote.port(),
            ack: self.waiting.pop_front()?,
            flags: Flags::ACK,
            window: u16::MAX,
            ..Header::default()
        };
        header.emit(self.local.ip(), self.remote.ip(), payload, (&[], &[]));
        Some(addressing(self.local.ip(), self.remote.ip()))
    }
}

fn addressing(source: IpAddr, destination: IpAddr) -> Addressing {
    Addressing::new(source, destination, PROTOCOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> (Sender, Sink) {
        let (a, b) = (SocketAddr::from(([1, 0, 0, 1], 1)), SocketAddr::from(([1, 0, 0, 2], 2)));
        (Sender::new(Settings::default(), a, b), Sink::new(b, a))
    }

    /// Returns the numbers of all packets that the sender sends now.
    fn sent(sender: &mut Sender, now: Time) -> Vec<u32> {
        let (mut out, mut numbers) = (Vec::new(), Vec::new());
        while let Some(addressing) = sender.poll_transmit(now, &mut out) {
            assert_eq!(out.len() + 20, 1040);
            let segment = Segment::parse(addressing.source, addressing.destination, &out).unwrap();
            numbers.push(segment.header.seq.to_u32() / 1000);
            out.clear();
        }
        numbers
    }

    /// Delivers the sink's answer to a packet to the sender.
    fn answer(sender: &mut Sender, sink: &mut Sink, now: Time, packet: u32) {
        let header =
            Header { source: 1, destination: 2, seq: Seq::new(packet * 1000), ..Header::default() };
        let (a, b) = (IpAddr::from([1, 0, 0, 1]), IpAddr::from([1, 0, 0, 2]));
        let mut out = Vec::new();
        header.emit(a, b, &mut out, (&[0; 1000], &[]));
        sink.handle_packet(now, addressing(a, b), &out);
        out.clear();
        let back = sink.poll_transmit(now, &mut out).unwrap();
        assert_eq!(out.len() + 20, 40);
        sender.handle_packet(now, back, &out);
    }

    /// ns-2's defaults: two packets first, one more for each acknowledgment, never above twenty.
    #[test]
    fn slow_start_up_to_the_window() {
        let (mut sender, mut sink) = ends();
        sender.offer(1000);
        let mut now = Time::from_millis(0);
        let mut flying: VecDeque<u32> = sent(&mut sender, now).into();
        assert_eq!(flying, [0, 1]);
        for _ in 0..100 {
            now += Duration::from_millis(10);
            let packet = flying.pop_front().unwrap();
            answer(&mut sender, &mut sink, now, packet);
            flying.extend(sent(&mut sender, now));
            assert!(flying.len() <= 20);
        }
        assert_eq!(flying.len(), 20);
        assert_eq!(sender.snapshot().in_flight, 20);
        assert_eq!(sink.delivered(), 100_000);
    }

    /// ns-2's Tahoe: a third duplicate sends everything again from the loss on, from one packet, with
    /// half the window as threshold; each of the two earlier duplicates allows one packet.
    #[test]
    fn a_loss_starts_over() {
        let (mut sender, mut sink) = ends();
        sender.offer(100);
        let mut now = Time::from_millis(0);
        let mut flying: VecDeque<u32> = sent(&mut sender, now).into();
        while flying.len() < 10 {
            now += Duration::from_millis(10);
            let packet = flying.pop_front().unwrap();
            answer(&mut sender, &mut sink, now, packet);
            flying.extend(sent(&mut sender, now));
        }
        let lost = flying.pop_front().unwrap();
        let last = *flying.back().unwrap();
        for n in 0..2 {
            let packet = flying.pop_front().unwrap();
            answer(&mut sender, &mut sink, now, packet);
            assert_eq!(sent(&mut sender, now), [last + 1 + n]);
        }
        let packet = flying.pop_front().unwrap();
        answer(&mut sender, &mut sink, now, packet);
        assert_eq!(sent(&mut sender, now), [lost]);
        let snapshot = sender.snapshot();
        assert_eq!((snapshot.cwnd, snapshot.ssthresh), (1.0, 5));
        // More duplicates of the same loss change nothing.
        for packet in flying {
            answer(&mut sender, &mut sink, now, packet);
            assert!(sent(&mut sender, now).is_empty());
        }
        // The sink had stored the rest.
        answer(&mut sender, &mut sink, now, lost);
        assert_eq!(sent(&mut sender, now), [last + 1, last + 2]);
    }

    /// ns-2's timer: 3 s at first, doubled each time, 200 ms at least, in ticks of 10 ms.
    #[test]
    fn the_timer_counts_in_ticks() {
        let (mut sender, mut sink) = ends();
        sender.offer(10);
        assert_eq!(sent(&mut sender, Time::from_millis(0)), [0, 1]);
        assert_eq!(sender.poll_timeout(), Some(Time::from_millis(3000)));
        sender.handle_timeout(Time::from_millis(3000));
        assert_eq!(sent(&mut sender, Time::from_millis(3000)), [0]);
        assert_eq!(sender.poll_timeout(), Some(Time::from_millis(9000)));
        answer(&mut sender, &mut sink, Time::from_millis(3100), 0);
        assert_eq!(sent(&mut sender, Time::from_millis(3100)), [1, 2]);
        // Packet 2 is the first one timed that was sent once: 104 ms are ten ticks.
        answer(&mut sender, &mut sink, Time::from_millis(3204), 1);
        answer(&mut sender, &mut sink, Time::from_millis(3204), 2);
        let snapshot = sender.snapshot();
        assert_eq!(snapshot.srtt, Some(Duration::from_millis(100)));
        assert_eq!(snapshot.rto, Duration::from_millis(300));
        assert_eq!(snapshot.timeouts, 1);
    }
}
