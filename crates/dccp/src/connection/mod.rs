//! The state machine of a connection (RFC 4340 section 8).
//!
//! This file holds the state and the user's calls. `input` handles packets by the steps of section 8.5,
//! `options` reads their options, `output` writes packets, `timers` has the deadlines.

mod ccids;
mod input;
mod options;
mod output;
mod timers;

use crate::congestion::{Receiver, Sender, SenderSnapshot};
use crate::features::{Features, Location};
use crate::queue::{SendOptions, SendQueue};
use crate::received::Received;
use crate::seq::Seq;
use crate::sequence::{Sequence, Widths};
use crate::settings::{Ccid, SendError, Settings};
use crate::wire::packet::DATA_ACK_HEADER;
use crate::wire::{Feature, Quoted, Reset, ResetCode};
use bytes::Bytes;
use ringway_sansio::{Duration, Icmp, Time};
use ringway_transport::Budget;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use timers::{TIMERS, Timer};

/// Room in bytes for the options of a packet with data. More are sent in a packet of their own.
pub const OPTION_ROOM: usize = 32;
/// Maximum number of Syncs per second (RFC 4340 section 7.5.4).
pub const MAX_SYNCS_PER_SECOND: u32 = 8;
/// Maximum number of SyncAcks that wait to be sent. More Syncs are not answered.
pub const MAX_SYNC_ACKS: usize = 4;
/// Maximum number of sent acknowledgements that are remembered, so that what they reported can be
/// released.
pub const MAX_ACK_RECORDS: usize = 256;
/// Maximum Sequence Window that is set.
pub const MAX_LOCAL_WINDOW: u64 = 1 << 20;

/// The addresses and ports of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The peer's UDP port, 0 above IP.
    pub(crate) udp_port: u16,
}

/// The state of a connection (RFC 4340 section 4.3). LISTEN is a listener, TIMEWAIT an entry in the
/// endpoint's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum State {
    /// A Request has been sent.
    Request,
    /// A Request has been received.
    Respond,
    /// The client has the Response; the server may not know.
    PartOpen,
    /// Data go both ways.
    Open,
    /// The server has asked the client to close.
    CloseReq,
    /// A Close has been sent.
    Closing,
    /// The connection has ended.
    Closed,
}

/// A state with what only that state knows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Request,
    Respond,
    PartOpen {
        /// The Init Cookie of the Response.
        cookie: Option<Vec<u8>>,
    },
    Open,
    CloseReq,
    Closing,
    Closed,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Close {
    /// One of both endpoints closed it, and both know.
    Finished,
    /// The peer reset it.
    Reset(Reset),
    /// It was reset because of a packet that the standard forbids.
    Violation(Reset),
    /// No handshake within the time for it.
    HandshakeTimeout,
    /// The peer was silent, also during a close.
    Timeout,
    /// The network cannot reach the peer, or the peer has no DCCP (RFC 1122 section 3.2.2.1).
    Unreachable,
}

/// What is to be sent as soon as possible.
#[derive(Clone, Debug, Default)]
struct Due {
    request: bool,
    response: bool,
    ack: bool,
    /// Close or CloseReq, by the state.
    close: bool,
    sync: Option<Seq>,
    sync_acks: VecDeque<Seq>,
}

/// Events that wait to be polled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) open: bool,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) closed: Option<Close>,
}

impl Pending {
    pub(crate) fn any(&self) -> bool {
        self.open || self.readable || self.writable || self.closed.is_some()
    }
}

/// Counters of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received, valid or not.
    pub packets_received: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages received and queued for reading.
    pub messages_received: u64,
    /// Packets received again, or too late to know.
    pub duplicates: u64,
    /// Packets outside the windows.
    pub out_of_window: u64,
    /// Packets that the state does not allow.
    pub unexpected: u64,
    /// Syncs sent.
    pub syncs: u64,
    /// Syncs and SyncAcks not sent because of a limit.
    pub syncs_limited: u64,
    /// Messages dropped because the receive queue was full.
    pub receive_queue_full: u64,
    /// Messages dropped because their CRC was wrong.
    pub corrupt: u64,
    /// Messages dropped because their checksum coverage was too small.
    pub coverage: u64,
    /// Messages dropped because the handshake cannot deliver them.
    pub handshake_data: u64,
    /// Messages that made room for newer ones in the send queue.
    pub evicted: u64,
    /// Messages whose lifetime ended in the send queue.
    pub expired: u64,
    /// Messages that were not sent when the connection ended.
    pub unsent: u64,
    /// Feature changes that the peer never confirmed.
    pub changes_abandoned: u64,
    /// Packets no longer reported because an Ack Vector would be too long.
    pub vectors_cut: u64,
}

/// The state of a connection, for display and tests.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// The state.
    pub state: State,
    /// Congestion control of sent data.
    pub sender_ccid: Ccid,
    /// Congestion control of received data.
    pub receiver_ccid: Ccid,
    /// The sender.
    pub sender: SenderSnapshot,
    /// Round-trip time of the handshake.
    pub handshake_rtt: Option<Duration>,
    /// Maximum length of a message in bytes (RFC 4340 section 14).
    pub max_message: usize,
    /// Sequence Window of sent packets.
    pub local_window: u64,
    /// Sequence Window of received packets.
    pub remote_window: u64,
    /// Ack Ratio of the peer's acknowledgements.
    pub ack_ratio: u64,
    /// Greatest sequence number sent.
    pub gss: Seq,
    /// Greatest sequence number received.
    pub gsr: Seq,
    /// Messages that wait to be sent.
    pub send_queue: usize,
    /// Messages that wait to be read.
    pub receive_queue: usize,
    /// Packets that the next Ack Vector reports.
    pub reported: usize,
    /// Counters.
    pub totals: Totals,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    ends: Ends,
    settings: Arc<Settings>,
    is_server: bool,
    service: u32,
    phase: Phase,
    /// Whether the user has closed it, and what is queued is still sent.
    closing: bool,
    seq: Sequence,
    features: Features,
    /// What has arrived, once the peer's first packet has.
    received: Option<Received>,
    /// When the newest packet arrived.
    newest_at: Time,
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
    ccids: (Ccid, Ccid),
    queue: SendQueue,
    inbox: VecDeque<Bytes>,
    mtu: u16,
    due: Due,
    timers: [Option<Time>; TIMERS],
    /// Number of times that the handshake's or the close's packet was sent.
    attempts: u32,
    /// The last packet that measures the round-trip time of the handshake.
    timed: Option<(Seq, Time)>,
    handshake_rtt: Option<Duration>,
    /// Since when packets to the peer have had no answer.
    unanswered_since: Option<Time>,
    /// The first packet sent in OPEN by a server. A client that acknowledges none from there on may still be
    /// in PARTOPEN, and waits for one.
    opened_with: Option<Seq>,
    /// Whether a packet has arrived that no packet of ours has acknowledged.
    owes_ack: bool,
    /// Sent Ack Vectors: their packet, and its Acknowledgement Number.
    ack_records: VecDeque<(Seq, Seq)>,
    /// Number of packets without data since the last one with data.
    ndp: u64,
    /// The peer's Timestamp that is to be echoed, and when it arrived.
    echo: Option<(u32, Time)>,
    /// Packets of the peer that are missing since the last acknowledgement.
    lost_acks: u64,
    syncs: Budget,
    pending: Pending,
    totals: Totals,
    /// The Reset that ends the connection, to be sent by the endpoint.
    final_reset: Option<Reset>,
    /// Whether the address pair must rest in TIMEWAIT.
    rests: bool,
}

impl Connection {
    fn new(
        ends: Ends,
        settings: Arc<Settings>,
        is_server: bool,
        service: u32,
        iss: Seq,
    ) -> Connection {
        let features = Features::new(is_server, &settings);
        let size = 1;
        let ccid = Ccid::TcpLike;
        let mut connection = Connection {
            ends,
            is_server,
            service,
            phase: if is_server { Phase::Respond } else { Phase::Request },
            closing: false,
            seq: Sequence::new(iss),
            features,
            received: None,
            newest_at: Time::ZERO,
            sender: ccids::sender(ccid, iss, size, None),
            receiver: ccids::receiver(ccid, 2),
            ccids: (ccid, ccid),
            queue: SendQueue::new(settings.send_queue),
            inbox: VecDeque::new(),
            mtu: settings.mtu,
            due: Due::default(),
            timers: [None; TIMERS],
            attempts: 0,
            timed: None,
            handshake_rtt: None,
            unanswered_since: None,
            opened_with: None,
            owes_ack: false,
            ack_records: VecDeque::new(),
            ndp: 0,
            echo: None,
            lost_acks: 0,
            syncs: Budget::new(MAX_SYNCS_PER_SECOND),
            pending: Pending::default(),
            totals: Totals::default(),
            final_reset: None,
            rests: false,
            settings,
        };
        connection.start_congestion_control();
        connection
    }

    /// Opens a connection; the Request is sent by the next poll.
    pub(crate) fn connect(
        now: Time,
        ends: Ends,
        settings: Arc<Settings>,
        service: u32,
        iss: Seq,
    ) -> Connection {
        let mut connection = Connection::new(ends, settings, false, service, iss);
        connection.due.request = true;
        connection.set_timer(Timer::GiveUp, Some(now + connection.settings.handshake_timeout));
        connection
    }

    /// Returns the addresses and ports.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Returns the state.
    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Request => State::Request,
            Phase::Respond => State::Respond,
            Phase::PartOpen { .. } => State::PartOpen,
            Phase::Open => State::Open,
            Phase::CloseReq => State::CloseReq,
            Phase::Closing => State::Closing,
            Phase::Closed => State::Closed,
        }
    }

    /// Returns the events that wait.
    pub(crate) fn pending(&mut self) -> &mut Pending {
        &mut self.pending
    }

    /// Returns whether events wait.
    pub(crate) fn has_events(&self) -> bool {
        self.pending.any()
    }

    /// Returns whether the connection has ended and nothing of it is left to be read.
    pub(crate) fn is_spent(&self) -> bool {
        self.phase == Phase::Closed && self.inbox.is_empty() && !self.pending.any()
    }

    /// Returns whether the address pair must rest in TIMEWAIT.
    pub(crate) fn rests(&self) -> bool {
        self.rests
    }

    /// Returns the Reset that ends the connection, once.
    pub(crate) fn take_final_reset(&mut self) -> Option<Reset> {
        self.final_reset.take()
    }

    /// Queues a message.
    pub(crate) fn send(
        &mut self,
        now: Time,
        data: Bytes,
        options: SendOptions,
    ) -> Result<(), SendError> {
        if self.closing
            || !matches!(
                self.state(),
                State::Request | State::Respond | State::PartOpen | State::Open
            )
        {
            return Err(SendError::Closing);
        }
        let max = self.max_message();
        if data.len() > max {
            return Err(SendError::TooLong { max, got: data.len() });
        }
        if !self.queue.push(now, data, options) {
            return Err(SendError::Full { limit: self.settings.send_queue });
        }
        Ok(())
    }

    /// Removes the next message that was received.
    pub(crate) fn read(&mut self) -> Option<Bytes> {
        self.inbox.pop_front()
    }

    /// Closes the connection once the queued messages are sent (RFC 4340 section 8.3).
    pub(crate) fn close(&mut self, now: Time) {
        match self.phase {
            Phase::Request => self.end(Close::Finished, self.abortion(), false),
            Phase::Respond => self.end(Close::Finished, Some(Reset::new(ResetCode::Closed)), false),
            Phase::PartOpen { .. } | Phase::Open if !self.closing => {
                self.closing = true;
                self.set_timer(Timer::GiveUp, Some(now + self.settings.close_timeout));
                self.close_when_drained(now);
            }
            _ => {}
        }
    }

    /// Aborts the connection.
    pub(crate) fn abort(&mut self) {
        self.end(Close::Finished, self.abortion(), false);
    }

    /// Returns the Reset by which a connection is given up. In REQUEST its Acknowledgement Number is zero (RFC 4340 section
    /// 8.1.1); before the first Request there is none.
    fn abortion(&self) -> Option<Reset> {
        let sent = self.phase != Phase::Request || self.attempts > 0;
        sent.then_some(Reset::new(ResetCode::Aborted))
    }

    /// Sends Close or CloseReq once a closing connection has nothing left to send.
    fn close_when_drained(&mut self, now: Time) {
        let open = matches!(self.phase, Phase::PartOpen { .. } | Phase::Open);
        if !self.closing || !open || self.queue.next_len(now).is_some() {
            return;
        }
        // RFC 4340 section 8.3: with CloseReq it is the client that rests in TIMEWAIT.
        self.phase = if self.is_server { Phase::CloseReq } else { Phase::Closing };
        self.begin_close();
    }

    fn begin_close(&mut self) {
        self.due.close = true;
        self.attempts = 0;
        self.totals.unsent += self.queue.clear() as u64;
        self.set_timer(Timer::Pace, None);
    }

    /// Ends the connection.
    fn end(&mut self, why: Close, reset: Option<Reset>, rests: bool) {
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.final_reset = reset;
        self.rests = rests;
        self.due = Due::default();
        self.timers = [None; TIMERS];
        self.totals.unsent += self.queue.clear() as u64;
        self.pending.closed = Some(why);
        self.pending.writable = false;
    }

    /// Resets the connection because of the peer's fault.
    fn violate(&mut self, reset: Reset) {
        self.end(Close::Violation(reset), Some(reset), false);
    }

    /// Returns the widths of the windows.
    fn widths(&self) -> Widths {
        Widths {
            remote: self.features.get(Feature::SequenceWindow, Location::Remote),
            local: self.features.local_window(),
        }
    }

    /// Returns the maximum length of a message in bytes (RFC 4340 section 14).
    pub(crate) fn max_message(&self) -> usize {
        self.packet_room() - DATA_ACK_HEADER - OPTION_ROOM
    }

    /// Returns the maximum length of a packet in bytes, without IP and UDP.
    fn packet_room(&self) -> usize {
        let ip = if self.ends.remote.is_ipv4() { 20 } else { 40 };
        let udp = if self.ends.udp_port == 0 { 0 } else { 8 };
        usize::from(self.mtu) - ip - udp
    }

    /// Handles an ICMP message that quotes a packet (RFC 4340 section 14.1, RFC 1122 section 3.2.2).
    /// Returns whether the packet can be one of this connection.
    pub(crate) fn handle_icmp(&mut self, icmp: Icmp, quoted: &Quoted) -> bool {
        let seq = match quoted.long {
            true => quoted.seq,
            false => Seq::extend(quoted.seq.short(), self.seq.gss),
        };
        if !self.seq.acknowledges(seq, self.widths()) || self.phase == Phase::Closed {
            return false;
        }
        match icmp {
            Icmp::TooBig(mtu) => {
                // RFC 1191 section 3: without a value, the smallest that is used.
                let min = crate::settings::MIN_MTU;
                let mtu = if mtu == 0 { u32::from(min) } else { mtu };
                let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(min);
                self.mtu = self.mtu.min(mtu);
            }
            // Later they may be transient: the timers decide.
            Icmp::Unreachable | Icmp::ProtocolUnreachable => {
                if self.phase == Phase::Request {
                    self.end(Close::Unreachable, None, false);
                }
            }
        }
        true
    }

    /// Returns the state for display and tests.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let widths = self.widths();
        let totals = Totals {
            evicted: self.queue.evicted,
            expired: self.queue.expired,
            changes_abandoned: self.features.abandoned,
            vectors_cut: self.received.as_ref().map_or(0, |received| received.evicted),
            ..self.totals
        };
        Snapshot {
            state: self.state(),
            sender_ccid: self.ccids.0,
            receiver_ccid: self.ccids.1,
            sender: self.sender.snapshot(),
            handshake_rtt: self.handshake_rtt,
            max_message: self.max_message(),
            local_window: widths.local,
            remote_window: widths.remote,
            ack_ratio: self.features.get(Feature::AckRatio, Location::Local),
            gss: self.seq.gss,
            gsr: self.seq.gsr,
            send_queue: self.queue.len(),
            receive_queue: self.inbox.len(),
            reported: self.received.as_ref().map_or(0, Received::len),
            totals,
        }
    }
}
