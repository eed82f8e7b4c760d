//! A connection: the state machine of RFC 9293.
//!
//! This file holds the state of a connection and the application's calls. `input` handles a segment,
//! `ack` its acknowledgment, `recovery` losses; `output` decides what to send next, and `timers`
//! handles timeouts.

mod ack;
mod handshake;
mod input;
mod output;
mod receive;
mod recovery;
mod timers;

use crate::board::Board;
use crate::congestion::{Congestion, Window};
use crate::prr::Prr;
use crate::rack::Rack;
use crate::ranges::Ranges;
use crate::ring::Ring;
use crate::rtt::Rtt;
use crate::segment::{HEADER, MAX_WINDOW_SCALE, TIMESTAMPS_SPACE};
use crate::seq::Seq;
use crate::settings::{Error, Settings};
use ringway_sansio::{Addressing, Duration, Time};
use std::net::{IpAddr, SocketAddr};
use timers::{NEVER, TIMERS, Timer};

/// The peer's MSS when it sends no option, over IPv4 and IPv6 (RFC 9293 section 3.7.1).
const DEFAULT_MSS: (u16, u16) = (536, 1220);
/// Maximum number of challenge acknowledgments in `CHALLENGE_PERIOD` (RFC 5961 section 7).
const CHALLENGES: u8 = 10;
/// The period of the limit of challenge acknowledgments (RFC 5961 section 7).
const CHALLENGE_PERIOD: Duration = Duration::from_secs(5);
/// Age above which TS.Recent is invalid (RFC 7323 section 5.5).
const TS_RECENT_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);

/// The states of RFC 9293 section 3.3.2, without LISTEN, which is not a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum State {
    /// Ended; it exists while received data is unread.
    Closed,
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// The connection is open.
    Established,
    /// The local FIN is not acknowledged, and the peer has not sent one.
    FinWait1,
    /// The local FIN is acknowledged, and the peer has not sent one.
    FinWait2,
    /// The peer has sent its FIN, and the local endpoint has not.
    CloseWait,
    /// Both sent FINs that crossed, and the local one is not acknowledged.
    Closing,
    /// The peer sent its FIN first, and the local one is not acknowledged.
    LastAck,
    /// Ended; the endpoint keeps its addresses for a while.
    TimeWait,
}

impl State {
    /// Returns whether both endpoints know each other's sequence numbers.
    pub const fn is_synchronised(self) -> bool {
        !matches!(self, State::Closed | State::SynSent | State::SynReceived)
    }

    /// Returns whether the peer may still send data.
    const fn receives(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }
}

/// The reason why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Close {
    /// Both endpoints closed it and all data was delivered.
    Finished,
    /// The peer reset it.
    Reset,
    /// The peer answered the SYN with a reset.
    Refused,
    /// The peer did not answer in time.
    TimedOut,
}

/// The state of loss recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// No segment is known to be lost.
    Open,
    /// Fast recovery until `until` is acknowledged (RFC 6675 section 5, RFC 6582 section 3.2).
    Fast {
        /// `recover`.
        until: Seq,
    },
    /// After the retransmission timer, until `until` is acknowledged (RFC 5681 section 3.1).
    Loss {
        /// The highest sequence sent when the timer expired.
        until: Seq,
    },
}

/// State of a connection at one moment. Sizes are in bytes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Snapshot {
    /// The state.
    pub state: State,
    /// Name of the congestion controller.
    pub algorithm: &'static str,
    /// Congestion window.
    pub cwnd: u32,
    /// Slow start threshold; the largest number before the first loss.
    pub ssthresh: u32,
    /// Maximum data in a segment.
    pub mss: u32,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// Variation of the round-trip time.
    pub rttvar: Duration,
    /// Minimum round-trip time of the last five minutes.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout with its back-off.
    pub rto: Duration,
    /// Number of doublings of the timeout in force.
    pub backoff: u32,
    /// Bytes assumed to be in flight (`pipe`).
    pub in_flight: u32,
    /// Bytes assumed lost and not sent again.
    pub lost: u32,
    /// Bytes selectively acknowledged.
    pub sacked: u32,
    /// The peer's window.
    pub send_window: u32,
    /// The window last advertised.
    pub receive_window: u32,
    /// State of loss recovery.
    pub recovery: Recovery,
    /// Whether RACK has seen segments out of order.
    pub reordering: bool,
    /// Bytes written and not acknowledged.
    pub send_queued: usize,
    /// Bytes received in order and not read.
    pub receive_queued: usize,
    /// Counters.
    pub totals: Totals,
}

/// Counters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Segments sent, of any kind.
    pub segments_sent: u64,
    /// Segments received by this connection.
    pub segments_received: u64,
    /// Data bytes sent for the first time.
    pub bytes_sent: u64,
    /// Data bytes acknowledged.
    pub bytes_acked: u64,
    /// Data bytes received in order.
    pub bytes_received: u64,
    /// Segments sent again.
    pub retransmits: u64,
    /// Times the retransmission timer expired.
    pub timeouts: u64,
    /// Fast recoveries entered.
    pub recoveries: u64,
    /// Tail loss probes sent (RFC 8985 section 7).
    pub tail_probes: u64,
    /// Zero-window probes sent.
    pub window_probes: u64,
    /// Congestion signalled by ECN and answered.
    pub ecn_reductions: u64,
    /// Duplicate segments the peer reported (RFC 2883).
    pub duplicates_reported: u64,
    /// Segments refused because of an old timestamp (RFC 7323 section 5).
    pub paws_refused: u64,
    /// Segments dropped because there were too many holes in the received data.
    pub ranges_refused: u64,
    /// Challenge acknowledgments suppressed by their limit (RFC 5961 section 7).
    pub challenges_withheld: u64,
    /// Number of times that the limit of segments in flight held new data back.
    pub in_flight_full: u64,
}

/// Events that the application has not read, each at most once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) connected: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_closed: bool,
    pub(crate) closed: Option<Close>,
}

impl Pending {
    pub(crate) fn any(&self) -> bool {
        self.connected
            || self.readable
            || self.writable
            || self.peer_closed
            || self.closed.is_some()
    }
}

/// ECN of a connection (RFC 3168 section 6.1).
#[derive(Clone, Copy, Debug, Default)]
struct EcnState {
    /// Whether both endpoints support it.
    on: bool,
    /// Whether congestion is echoed until the peer sends CWR.
    echo: bool,
    /// Whether the next new data carries CWR.
    reduced: bool,
}

/// Timestamps of a connection (RFC 7323).
#[derive(Clone, Copy, Debug)]
struct Stamps {
    on: bool,
    /// Offset of the local clock, so that it reveals nothing of the host (section 5.4).
    offset: u32,
    /// TS.Recent.
    recent: u32,
    recent_at: Time,
}

/// An outstanding tail loss probe (RFC 8985 section 7.1).
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    /// `TLP.end_seq`.
    end: Seq,
    /// `TLP.is_retrans`.
    retransmitted: bool,
}

/// Segments that `output` must send regardless of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// An acknowledgment.
    ack: bool,
    /// The SYN or SYN-ACK.
    syn: bool,
    /// The first lost segment (RFC 6675 section 5 step 4.3).
    retransmission: bool,
    /// A tail loss probe.
    tail_probe: bool,
    /// A segment into a window too small for it (RFC 9293 section 3.8.6.1).
    window_probe: bool,
    /// A keep-alive probe.
    keep_alive: bool,
}

/// A connection. The endpoint drives it and knows its addresses.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The addressing of its segments.
    pub(crate) addressing: Addressing,
    pub(crate) state: State,
    pub(crate) pending: Pending,
    /// Whether it came from a listener and was not accepted.
    pub(crate) passive: bool,
    settings: Settings,
    totals: Totals,

    // Sending (RFC 9293 section 3.3.1).
    iss: Seq,
    snd_una: Seq,
    snd_nxt: Seq,
    snd_wnd: u32,
    snd_wl1: Seq,
    snd_wl2: Seq,
    max_snd_wnd: u32,
    snd_scale: u8,
    mss: u32,
    send: Ring,
    /// Whether the application has finished sending.
    fin_queued: bool,
    /// The sequence number of the local FIN, once sent.
    fin_sent: Option<Seq>,
    /// Whether a write was cut short.
    write_blocked: bool,
    sent_at: Time,
    progress_at: Time,

    // Receiving.
    irs: Seq,
    rcv_nxt: Seq,
    /// The furthest right edge of the window that was advertised.
    rcv_adv: Seq,
    rcv_scale: u8,
    receive: Ring,
    out_of_order: Ranges,
    /// Ranges for SACK, the latest first (RFC 2018 section 4).
    sacks: [(Seq, Seq); 4],
    sacks_len: usize,
    /// A duplicate to report once (RFC 2883).
    duplicate: Option<(Seq, Seq)>,
    fin_received: Option<Seq>,
    /// Number of data segments received and not acknowledged.
    unacked_segments: u8,
    last_ack_sent: Seq,
    heard_at: Time,

    // Options in force.
    sack_on: bool,
    scale_on: bool,
    stamps: Stamps,
    ecn: EcnState,

    // Loss and congestion.
    board: Board,
    rack: Rack,
    rtt: Rtt,
    rtt_mark: Seq,
    window: Window,
    congestion: Box<dyn Congestion>,
    recovery: Recovery,
    prr: Prr,
    /// One reduction per window: no further one until this is acknowledged (RFC 3168 section 6.1.2).
    reduced_until: Option<Seq>,
    tail_probe: Option<TailProbe>,
    /// Whether `MAX_IN_FLIGHT` held new data back at the last poll.
    held_by_limit: bool,
    /// Whether a round trip was measured since the last tail loss probe (RFC 8985 section 7.3).
    measured: bool,
    /// Number of duplicate acknowledgments, without SACK.
    dup_acks: u32,
    syn_retransmitted: bool,

    due: Due,
    timers: [Time; TIMERS],
    keep_alive_probes: u32,
    challenges: u8,
    challenges_since: Time,
}

impl Connection {
    fn new(
        local: SocketAddr,
        remote: SocketAddr,
        settings: &Settings,
        iss: Seq,
        stamp_offset: u32,
        now: Time,
    ) -> Self {
        let rcv_scale = if settings.window_scaling {
            (0..MAX_WINDOW_SCALE)
                .find(|&shift| settings.receive_buffer <= 0xffff << shift)
                .unwrap_or(MAX_WINDOW_SCALE)
        } else {
            0
        };
        let limit =
            if settings.window_scaling { 0xffff << rcv_scale } else { usize::from(u16::MAX) };
        let mut connection = Connection {
            local,
            remote,
            addressing: Addressing::new(local.ip(), remote.ip(), crate::PROTOCOL),
            state: State::Closed,
            pending: Pending::default(),
            passive: false,
            settings: *settings,
            totals: Totals::default(),
            iss,
            snd_una: iss,
            snd_nxt: iss,
            snd_wnd: 0,
            snd_wl1: Seq::default(),
            snd_wl2: iss,
            max_snd_wnd: 0,
            snd_scale: 0,
            mss: 0,
            send: Ring::new(settings.send_buffer),
            fin_queued: false,
            fin_sent: None,
            write_blocked: false,
            sent_at: now,
            progress_at: now,
            irs: Seq::default(),
            rcv_nxt: Seq::default(),
            rcv_adv: Seq::default(),
            rcv_scale,
            receive: Ring::new(settings.receive_buffer.min(limit)),
            out_of_order: Ranges::default(),
            sacks: [(Seq::default(), Seq::default()); 4],
            sacks_len: 0,
            duplicate: None,
            fin_received: None,
            unacked_segments: 0,
            last_ack_sent: Seq::default(),
            heard_at: now,
            sack_on: settings.sack,
            scale_on: settings.window_scaling,
            stamps: Stamps {
                on: settings.timestamps,
                offset: stamp_offset,
                recent: 0,
                recent_at: now,
            },
            ecn: EcnState { on: settings.ecn, ..EcnState::default() },
            board: Board::new(),
            rack: Rack::new(iss),
            rtt: Rtt::new(settings.min_rto, settings.max_rto),
            rtt_mark: iss,
            window: Window { cwnd: 0, ssthresh: u32::MAX, mss: 0 },
            congestion: settings.algorithm.make(),
            recovery: Recovery::Open,
            prr: Prr::default(),
            reduced_until: None,
            tail_probe: None,
            held_by_limit: false,
            measured: true,
            dup_acks: 0,
            syn_retransmitted: false,
            due: Due::default(),
            timers: [NEVER; TIMERS],
            keep_alive_probes: 0,
            challenges: 0,
            challenges_since: now,
        };
        connection.set_mss(None);
        connection
    }

    /// The user has accepted it from its listener.
    pub(crate) fn note_accepted(&mut self) {
        self.passive = false;
        self.pending.connected = false;
    }

    /// Returns what the user has not been notified of yet.
    pub(crate) fn pending_mut(&mut self) -> &mut Pending {
        &mut self.pending
    }

    /// Returns the length in bytes of an IP header, which the MTU includes.
    fn ip_header(&self) -> u16 {
        if self.remote.is_ipv4() { 20 } else { 40 }
    }

    /// Returns the MSS option to send (RFC 9293 section 3.7.1, RFC 6691: without regard to options).
    fn mss_option(&self) -> u16 {
        self.settings.mtu - self.ip_header() - HEADER as u16
    }

    /// Computes the maximum data in a segment from the peer's MSS option.
    fn set_mss(&mut self, option: Option<u16>) {
        let default = if self.remote.is_ipv4() { DEFAULT_MSS.0 } else { DEFAULT_MSS.1 };
        // With a smaller value of the peer, segments would be little more than headers.
        const MIN: u16 = 64;
        let theirs = option.unwrap_or(default).max(MIN);
        let options = if self.stamps.on { TIMESTAMPS_SPACE as u16 } else { 0 };
        self.mss = u32::from(theirs.min(self.mss_option()) - options);
        self.window.mss = self.mss;
    }

    /// Returns the initial window: ten segments or the configured number (RFC 6928 section 2); one if
    /// the handshake lost a segment (RFC 5681 section 3.1).
    fn initial_window(&self) -> u32 {
        if self.syn_retransmitted {
            self.mss
        } else {
            let bytes = self.settings.initial_window * self.mss;
            if self.settings.initial_window == 10 {
                bytes.min(14_600.max(2 * self.mss))
            } else {
                bytes
            }
        }
    }

    /// Ends the connection: nothing more is sent, and received data can still be read.
    fn finish(&mut self, state: State, why: Close) {
        self.state = state;
        self.timers = [NEVER; TIMERS];
        if state == State::Closed {
            self.due = Due::default();
        }
        self.send.clear();
        self.board.clear();
        self.out_of_order.clear();
        self.pending.closed.get_or_insert(why);
    }

    /// Appends as much of `data` as fits. Returns the number of bytes.
    pub(crate) fn write(&mut self, now: Time, data: &[u8]) -> Result<usize, Error> {
        match self.state {
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
                if !self.fin_queued => {}
            _ => return Err(Error::Closing),
        }
        if self.send.is_empty() && self.state.is_synchronised() {
            self.progress_at = now;
        }
        let count = self.send.push(data);
        self.write_blocked = count < data.len();
        Ok(count)
    }

    /// Returns the number of bytes that a write would accept now.
    pub(crate) fn write_space(&self) -> usize {
        self.send.space()
    }

    /// Returns the data received in order and not read.
    pub(crate) fn peek(&self) -> (&[u8], &[u8]) {
        self.receive.slices(0, usize::MAX)
    }

    /// Moves as much data as fits to `out`. Returns the number of bytes.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.receive.pop(out);
        self.after_read();
        count
    }

    /// Drops `count` bytes of the data that `peek` returns.
    pub(crate) fn consume(&mut self, count: usize) {
        self.receive.consume(count);
        self.after_read();
    }

    fn after_read(&mut self) {
        if self.receive.is_empty() && self.out_of_order.is_empty() {
            self.receive.rewind();
        }
        self.window_may_open();
    }

    /// Closes the sending direction: a FIN follows the data (RFC 9293 section 3.10.4).
    pub(crate) fn shutdown(&mut self) -> Result<(), Error> {
        match self.state {
            _ if self.fin_queued => Err(Error::Closing),
            State::SynSent | State::SynReceived | State::Established | State::CloseWait => {
                self.fin_queued = true;
                self.write_blocked = false;
                Ok(())
            }
            _ => Err(Error::Closing),
        }
    }

    /// Returns whether an abort must send a reset to the peer (RFC 9293 section 3.10.5).
    pub(crate) fn reset_owed(&self) -> bool {
        matches!(
            self.state,
            State::SynReceived
                | State::Established
                | State::FinWait1
                | State::FinWait2
                | State::CloseWait
        )
    }

    /// Returns SND.NXT and RCV.NXT, for a reset and for TIME-WAIT.
    pub(crate) fn next_numbers(&self) -> (Seq, Seq) {
        (self.snd_nxt, self.rcv_nxt)
    }

    /// Returns the window to advertise from TIME-WAIT on, unscaled.
    pub(crate) fn last_window(&self) -> u16 {
        (self.rcv_adv.ahead_of(self.rcv_nxt) >> self.scale()).min(0xffff) as u16
    }

    /// Returns the offset of the local clock and TS.Recent, when timestamps are on.
    pub(crate) fn stamps(&self) -> Option<(u32, u32)> {
        self.stamps.on.then_some((self.stamps.offset, self.stamps.recent))
    }

    /// Returns whether the connection can be released: it has ended, and its events and data are read.
    pub(crate) fn is_spent(&self) -> bool {
        matches!(self.state, State::Closed | State::TimeWait)
            && !self.pending.any()
            && !self.due.ack
            && self.receive.is_empty()
    }

    /// Returns whether an acknowledgment is due.
    pub(crate) fn owes_ack(&self) -> bool {
        self.due.ack
    }

    /// Returns the time of the next timer.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let first = self.timers.iter().copied().min().unwrap_or(NEVER);
        (first != NEVER).then_some(first)
    }

    /// Returns the addresses of the segments that it sends.
    pub(crate) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.local.ip(), self.remote.ip())
    }

    fn scale(&self) -> u8 {
        if self.scale_on { self.rcv_scale } else { 0 }
    }

    /// Returns the number of data bytes not sent yet.
    fn unsent(&self) -> usize {
        // The FIN is sent after all data.
        if self.fin_sent.is_some() {
            return 0;
        }
        self.send.len().saturating_sub((self.snd_nxt - self.snd_una) as usize)
    }

    fn timer(&self, timer: Timer) -> Time {
        self.timers[timer as usize]
    }

    fn set_timer(&mut self, timer: Timer, at: Time) {
        self.timers[timer as usize] = at;
    }

    fn stop_timer(&mut self, timer: Timer) {
        self.timers[timer as usize] = NEVER;
    }

    /// Returns the state of the connection.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state,
            algorithm: self.congestion.name(),
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            mss: self.mss,
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.rack.min_rtt(),
            rto: self.rtt.rto(),
            backoff: self.rtt.backoff(),
            in_flight: self.pipe(),
            lost: self.board.lost_bytes(),
            sacked: self.board.sacked_bytes(),
            send_window: self.snd_wnd,
            receive_window: self.rcv_adv.ahead_of(self.rcv_nxt),
            recovery: self.recovery,
            reordering: self.rack.reordering_seen(),
            send_queued: self.send.len(),
            receive_queued: self.receive.len(),
            totals: self.totals,
        }
    }
}
