//! An association of the kernel's SCTP.
//!
//! Messages and notifications arrive in one queue, in order. A task that waits for an event may thus
//! receive a message. At most one is held until a reader takes it, and events behind it wait.

use super::notice::parse;
use crate::error::{AddAddressError, CallError, EndedError, SendError, Stopped, SystemError};
use crate::limits::EVENT_QUEUE;
use crate::locals::check_scope;
use crate::message::Event;
use crate::waiters::Waiters;
use bytes::Bytes;
use ringway_os::sctp as sys;
use ringway_os::{Watched, watch_both};
use ringway_sctp as refusal;
use ringway_sctp::wire::cause::code::USER_ABORT;
use ringway_sctp::{
    Close, PathSnapshot, PathState, Received, Reliability, Reset, SendOptions, Snapshot, Ssn,
    Totals,
};
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Sizes in bytes of structures that the kernel reads or fills (linux/sctp.h): a path's parameters, with the
/// offset of their flags, a path's state, the association's status.
const PARAMETERS: usize = 156;
const PARAMETERS_FLAGS: usize = 146;
const PATH_INFO: usize = 152;
const STATUS: usize = 176;

/// The flag of a path's parameters that sends a heartbeat now (SPP_HB_DEMAND).
const HEARTBEAT: u32 = 4;

/// Size of a buffer for 64 addresses of one end, in bytes.
const ADDRESSES: usize = 8 + 64 * 28;

#[derive(Default)]
struct State {
    up: bool,
    closed: Option<Close>,
    /// Part of a message was read, and the rest follows.
    within: bool,
    /// A message that was received while waiting for an event.
    pending: Option<(Received, Vec<u8>)>,
    events: VecDeque<Event>,
    missed: u32,
    readers: Waiters,
    writers: Waiters,
    watchers: Waiters,
}

impl State {
    fn handle_event(&mut self, event: Event) {
        match &event {
            Event::Up => self.up = true,
            Event::Closed(why) => {
                if self.closed.is_some() {
                    return;
                }
                self.closed = Some(why.clone());
            }
            _ => {}
        }
        if self.events.len() >= EVENT_QUEUE {
            self.events.pop_front();
            self.missed += 1;
        }
        self.events.push_back(event);
    }
}

/// The state that the association and its tasks share.
struct Shared {
    io: Watched<Socket>,
    state: Mutex<State>,
    /// Notified when a task waits for something to read, and for room to write.
    reading: Notify,
    writing: Notify,
}

/// An association on its own socket. Dropping it shuts it down gracefully, in the background.
pub(crate) struct Association {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

impl Drop for Association {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// The reason why no message was read.
enum NoMessage {
    Yet,
    Ended,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the next message, or part of one, and handles the notifications before it.
    fn read(&self, state: &mut State, out: &mut Vec<u8>) -> Result<Received, NoMessage> {
        loop {
            let start = out.len();
            let got = match sys::receive(self.io.get_ref().as_fd(), out) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(NoMessage::Yet);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    state.handle_event(Event::Closed(close_of(&error)));
                    return Err(NoMessage::Ended);
                }
            };
            if got.notification {
                if let Some(event) = parse(&out[start..]) {
                    state.handle_event(event);
                }
                out.truncate(start);
            } else if got.length == 0 {
                state.handle_event(Event::Closed(Close::Finished));
                return Err(NoMessage::Ended);
            } else {
                let begin = !std::mem::replace(&mut state.within, !got.end);
                return Ok(Received {
                    stream: got.info.stream,
                    ssn: Ssn::new(got.info.ssn),
                    // The kernel reports it in network order.
                    ppid: u32::from_be(got.info.ppid),
                    unordered: got.info.flags & sys::UNORDERED != 0,
                    begin,
                    end: got.end,
                    cut: false,
                    len: got.length,
                });
            }
        }
    }

    /// Handles notifications up to the next message.
    fn read_events(&self, state: &mut State) {
        if state.pending.is_none() && state.closed.is_none() {
            let mut bytes = Vec::new();
            if let Ok(received) = self.read(state, &mut bytes) {
                state.pending = Some((received, bytes));
            }
        }
    }
}

/// Returns how an association ended, from the socket's error.
fn close_of(error: &io::Error) -> Close {
    match error.raw_os_error() {
        Some(libc::ECONNRESET | libc::ECONNREFUSED) => {
            Close::Aborted { code: 0, reason: Bytes::new() }
        }
        _ => Close::Unreachable,
    }
}

/// Wakes the tasks that wait to read, or to write, whenever the socket is ready.
async fn wake_when_ready(shared: Arc<Shared>, reading: bool) {
    let requests = if reading { &shared.reading } else { &shared.writing };
    loop {
        requests.notified().await;
        let ready = if reading { shared.io.readable().await } else { shared.io.writable().await };
        let Ok(mut ready) = ready else { return };
        // From here on a new message or more room makes it ready again.
        ready.clear_ready();
        let wakes: Vec<Waker> = {
            let mut state = shared.state();
            let State { readers, writers, watchers, .. } = &mut *state;
            if reading {
                readers.take().chain(watchers.take()).collect()
            } else {
                writers.take().collect()
            }
        };
        wakes.into_iter().for_each(Waker::wake);
    }
}

impl Association {
    /// Creates an association from a socket that is connected or connecting. To be called within a runtime.
    pub(super) fn new(socket: Socket, up: bool) -> Result<Association, SystemError> {
        let io = watch_both(socket).map_err(|e| SystemError::new("an sctp association", e))?;
        let state = Mutex::new(State { up, ..State::default() });
        let (reading, writing) = (Notify::new(), Notify::new());
        let shared = Arc::new(Shared { io, state, reading, writing });
        let tasks = [true, false]
            .map(|way| tokio::spawn(wake_when_ready(shared.clone(), way)).abort_handle());
        Ok(Association { shared, tasks })
    }

    /// Wakes all tasks.
    fn wake(&self, state: MutexGuard<'_, State>) {
        let mut state = state;
        let State { readers, writers, watchers, .. } = &mut *state;
        let wakes: Vec<Waker> =
            readers.take().chain(writers.take()).chain(watchers.take()).collect();
        drop(state);
        wakes.into_iter().for_each(Waker::wake);
    }

    /// Handles notifications until `done` returns a result.
    fn poll_events<T>(
        &self,
        cx: &mut Context<'_>,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Poll<T> {
        let mut state = self.shared.state();
        let summary =
            |state: &State| (state.events.len(), state.pending.is_some(), state.closed.is_some());
        let before = summary(&state);
        self.shared.read_events(&mut state);
        let changed = summary(&state) != before;
        let result = done(&mut state);
        if result.is_none() {
            state.watchers.add(cx);
            self.shared.reading.notify_one();
        }
        if changed {
            // Other tasks wait for the same events.
            self.wake(state);
        }
        result.map_or(Poll::Pending, Poll::Ready)
    }

    pub(crate) fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), EndedError>> {
        self.poll_events(cx, |state| match &state.closed {
            _ if state.up => Some(Ok(())),
            Some(why) => Some(Err(EndedError::Closed(why.clone()))),
            None => None,
        })
    }

    pub(crate) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll_events(cx, |state| {
            if state.missed > 0 {
                return Some(Some(Event::Missed(std::mem::take(&mut state.missed))));
            }
            match state.events.pop_front() {
                Some(event) => Some(Some(event)),
                None => state.closed.is_some().then_some(None),
            }
        })
    }

    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<Result<(), EndedError>> {
        self.poll_events(cx, |state| match &state.closed {
            Some(Close::Finished) => Some(Ok(())),
            Some(why) => Some(Err(EndedError::Closed(why.clone()))),
            None => None,
        })
    }

    pub(crate) fn poll_recv_into(
        &self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
    ) -> Poll<Result<Option<Received>, EndedError>> {
        let mut state = self.shared.state();
        if let Some((received, bytes)) = state.pending.take() {
            out.extend_from_slice(&bytes);
            self.wake(state);
            return Poll::Ready(Ok(Some(received)));
        }
        let before = state.events.len();
        let result = match self.shared.read(&mut state, out) {
            Ok(received) => Poll::Ready(Ok(Some(received))),
            Err(NoMessage::Yet) if state.closed.is_none() => {
                state.readers.add(cx);
                self.shared.reading.notify_one();
                Poll::Pending
            }
            Err(_) => match &state.closed {
                Some(why) if *why != Close::Finished => {
                    Poll::Ready(Err(EndedError::Closed(why.clone())))
                }
                _ => Poll::Ready(Ok(None)),
            },
        };
        if state.events.len() > before {
            let wakes: Vec<Waker> = state.watchers.take().collect();
            drop(state);
            wakes.into_iter().for_each(Waker::wake);
        }
        result
    }

    /// Passes a message to the kernel, which copies it.
    pub(crate) fn queue(&self, data: &mut Bytes, options: &SendOptions) -> Result<(), SendError> {
        let mut flags = 0;
        if options.unordered {
            flags |= sys::UNORDERED;
        }
        if options.immediate {
            flags |= sys::SACK_IMMEDIATELY;
        }
        let partial = match options.reliability {
            Reliability::Lifetime(time) => {
                let value = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1);
                Some(sys::Partial { policy: sys::PR_TTL, value })
            }
            Reliability::Retransmits(count) => {
                Some(sys::Partial { policy: sys::PR_RTX, value: count.into() })
            }
            _ => None,
        };
        let ppid = options.ppid.to_be();
        let info = sys::SendInfo { stream: options.stream, flags, ppid, ..Default::default() };
        match sys::send(self.shared.io.get_ref().as_fd(), data, info, partial) {
            Ok(()) => {
                *data = Bytes::new();
                Ok(())
            }
            Err(error) => Err(self.not_given(&error, data.len(), options)),
        }
    }

    fn not_given(&self, error: &io::Error, got: usize, options: &SendOptions) -> SendError {
        use refusal::SendError as E;
        if let Some(why) = &self.shared.state().closed {
            return CallError::Closed(why.clone());
        }
        let limit = self.shared.io.get_ref().send_buffer_size().unwrap_or(0);
        match error.raw_os_error() {
            Some(libc::EAGAIN) => CallError::Refused(E::NoRoom { room: 0, got }),
            Some(libc::EMSGSIZE) => CallError::Refused(E::Size { limit, got }),
            Some(libc::EINVAL) => {
                let streams = self.status().map_or(0, |status| u16_at(&status, 18));
                if got == 0 || options.stream < streams {
                    return CallError::Refused(E::Size { limit, got });
                }
                CallError::Refused(E::Stream { streams, got: options.stream })
            }
            Some(libc::EPIPE | libc::ESHUTDOWN | libc::ENOTCONN) => CallError::Refused(E::Closing),
            Some(libc::ECONNRESET | libc::ETIMEDOUT) => CallError::Closed(close_of(error)),
            code => {
                let error = code.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
                CallError::System(SystemError::new("sending over sctp", error))
            }
        }
    }

    pub(crate) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        data: &mut Bytes,
        options: &SendOptions,
    ) -> Poll<Result<(), SendError>> {
        match self.queue(data, options) {
            Err(CallError::Refused(refusal::SendError::NoRoom { .. })) => {
                self.shared.state().writers.add(cx);
                self.shared.writing.notify_one();
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    fn status(&self) -> io::Result<[u8; STATUS]> {
        let mut status = [0; STATUS];
        sys::get(self.shared.io.get_ref().as_fd(), sys::STATUS, &mut status)?;
        Ok(status)
    }

    /// Returns the addresses of one end, with its port.
    fn addresses(&self, option: i32) -> io::Result<Vec<SocketAddr>> {
        let mut bytes = vec![0; ADDRESSES];
        let length = sys::get(self.shared.io.get_ref().as_fd(), option, &mut bytes)?;
        let count = u32_at(&bytes, 4) as usize;
        let mut rest = &bytes[8..length.clamp(8, ADDRESSES)];
        let mut addresses = Vec::new();
        while addresses.len() < count
            && let Some((addr, length)) = sys::decode_address(rest)
        {
            addresses.push(addr);
            rest = &rest[length..];
        }
        Ok(addresses)
    }

    pub(crate) fn statistics(&self) -> Result<Snapshot, EndedError> {
        let failed = |error: io::Error| match &self.shared.state().closed {
            Some(why) => EndedError::Closed(why.clone()),
            None => SystemError::new("the status of an sctp association", error).into(),
        };
        let status = self.status().map_err(failed)?;
        let locals = self.addresses(sys::LOCAL_ADDRS).map_err(failed)?;
        let remotes = self.addresses(sys::PEER_ADDRS).map_err(failed)?;
        let primary = sys::decode_address(&status[28..]).map(|(addr, _)| addr.ip());
        let paths = remotes.iter().map(|remote| self.path(&locals, *remote, primary)).collect();
        Ok(Snapshot {
            state: state_of(u32_at(&status, 4)),
            streams: (u16_at(&status, 18), u16_at(&status, 16)),
            paths,
            peer_rwnd: u32_at(&status, 8),
            outstanding: 0,
            unacknowledged: usize::from(u16_at(&status, 12)),
            unread: usize::from(u16_at(&status, 14)),
            errors: 0,
            recovering: false,
            totals: self.totals(),
        })
    }

    /// Returns the kernel's counters; zero for those that it does not report.
    fn totals(&self) -> Totals {
        // Kernels older than Linux 3.8 report none.
        let counts = sys::counts(self.shared.io.get_ref().as_fd()).unwrap_or_default();
        let [_, sacks_received, sacks_sent, packets_sent, packets_received, retransmits, ..] =
            counts;
        let [.., duplicates, _, unordered, _, ordered, _, _, _] = counts;
        Totals {
            packets_sent,
            packets_received,
            chunks_sent: unordered + ordered,
            retransmits,
            duplicates,
            sacks_sent,
            sacks_received,
            ..Totals::default()
        }
    }

    /// Returns the state of a path. The kernel does not report its local address, so the first one of the
    /// family is returned.
    fn path(
        &self,
        locals: &[SocketAddr],
        remote: SocketAddr,
        primary: Option<IpAddr>,
    ) -> PathSnapshot {
        let mut info = sys::encode_address(remote, PATH_INFO);
        let reported = sys::get(self.shared.io.get_ref().as_fd(), sys::PEER_ADDR_INFO, &mut info);
        let number = |at| if reported.is_ok() { u32_at(&info, at) } else { 0 };
        let like = locals.iter().find(|ip| ip.is_ipv4() == remote.is_ipv4());
        let millis = |at| Duration::from_millis(number(at).into());
        PathSnapshot {
            local: like.or(locals.first()).map_or(remote.ip(), SocketAddr::ip),
            remote: remote.ip(),
            udp_port: 0,
            mtu: number(148) as usize,
            state: match number(132) {
                2 => PathState::Active,
                1 => PathState::PotentiallyFailed,
                3 => PathState::Unconfirmed,
                _ => PathState::Inactive,
            },
            primary: primary == Some(remote.ip()),
            cwnd: number(136),
            ssthresh: 0,
            partial_bytes_acked: 0,
            flight: 0,
            srtt: Some(millis(140)).filter(|srtt| !srtt.is_zero()),
            rto: millis(144),
            errors: 0,
        }
    }

    pub(crate) fn ports(&self) -> Result<(u16, u16), EndedError> {
        let port = |option| {
            let addresses =
                self.addresses(option).map_err(|e| SystemError::new("sctp ports", e))?;
            addresses.first().map(SocketAddr::port).ok_or(EndedError::from(Stopped))
        };
        Ok((port(sys::LOCAL_ADDRS)?, port(sys::PEER_ADDRS)?))
    }

    fn set(&self, what: &str, option: i32, value: &[u8]) -> Result<(), EndedError> {
        let set = sys::set(self.shared.io.get_ref().as_fd(), option, value);
        set.map_err(|error| match &self.shared.state().closed {
            Some(why) => EndedError::Closed(why.clone()),
            None => SystemError::new(what, error).into(),
        })
    }

    fn peer_addr(&self, ip: IpAddr) -> Result<SocketAddr, EndedError> {
        Ok(SocketAddr::new(ip, self.ports()?.1))
    }

    fn local_addr(&self, ip: IpAddr) -> Result<SocketAddr, EndedError> {
        Ok(SocketAddr::new(ip, self.ports()?.0))
    }

    pub(crate) fn set_primary(&self, remote: IpAddr) -> Result<(), CallError<refusal::NoPath>> {
        let value = sys::encode_address(self.peer_addr(remote)?, 0);
        Ok(self.set("choosing a primary path", sys::PRIMARY_ADDR, &value)?)
    }

    pub(crate) fn request_heartbeat(
        &self,
        remote: IpAddr,
    ) -> Result<(), CallError<refusal::NoPath>> {
        let mut value = sys::encode_address(self.peer_addr(remote)?, PARAMETERS);
        value[PARAMETERS_FLAGS..PARAMETERS_FLAGS + 4].copy_from_slice(&HEARTBEAT.to_ne_bytes());
        Ok(self.set("asking for a heartbeat", sys::PEER_ADDR_PARAMS, &value)?)
    }

    pub(crate) fn add_address(&self, local: IpAddr) -> Result<(), AddAddressError> {
        check_scope(&[local])?;
        let add = || -> Result<(), EndedError> {
            let value = sys::encode_addresses(&[self.local_addr(local)?]);
            self.set("adding an address", sys::BINDX_ADD, &value)
        };
        Ok(add().map_err(CallError::<refusal::AddressError>::from)?)
    }

    pub(crate) fn delete_address(
        &self,
        local: IpAddr,
    ) -> Result<(), CallError<refusal::AddressError>> {
        let value = sys::encode_addresses(&[self.local_addr(local)?]);
        Ok(self.set("deleting an address", sys::BINDX_REMOVE, &value)?)
    }

    pub(crate) fn ask_primary(
        &self,
        local: IpAddr,
    ) -> Result<(), CallError<refusal::AddressError>> {
        let value = sys::encode_address(self.local_addr(local)?, 0);
        Ok(self.set("asking for a primary path", sys::SET_PEER_PRIMARY_ADDR, &value)?)
    }

    pub(crate) fn reset_streams(
        &self,
        reset: Reset<'_>,
    ) -> Result<(), CallError<refusal::StreamError>> {
        // Flags of linux/sctp.h: incoming 1, outgoing 2.
        let (flags, streams) = match reset {
            Reset::Incoming(streams) => (1u16, streams),
            Reset::Outgoing(streams) => (2, streams),
            Reset::Everything => {
                return Ok(self.set("resetting an association", sys::RESET_ASSOC, &[0; 4])?);
            }
        };
        let count = u16::try_from(streams.len()).unwrap_or(u16::MAX);
        let mut value = vec![0; 4];
        value.extend([flags, count].map(u16::to_ne_bytes).concat());
        value.extend(streams.iter().take(count.into()).flat_map(|s| s.to_ne_bytes()));
        Ok(self.set("resetting streams", sys::RESET_STREAMS, &value)?)
    }

    pub(crate) fn add_streams(
        &self,
        outgoing: u16,
        incoming: u16,
    ) -> Result<(), CallError<refusal::StreamError>> {
        let value = [0, 0, incoming, outgoing].map(u16::to_ne_bytes).concat();
        Ok(self.set("adding streams", sys::ADD_STREAMS, &value)?)
    }

    pub(crate) fn set_auth_key(
        &self,
        key: u16,
        secret: &[u8],
    ) -> Result<(), CallError<refusal::SetKeyError>> {
        let Ok(length) = u16::try_from(secret.len()) else {
            let text =
                format!("expected a key of at most {} bytes, got {}", u16::MAX, secret.len());
            let error = io::Error::new(io::ErrorKind::InvalidInput, text);
            return Err(CallError::System(SystemError::new("setting a key", error)));
        };
        let mut value = vec![0; 4];
        value.extend([key, length].map(u16::to_ne_bytes).concat());
        value.extend(secret);
        Ok(self.set("setting a key", sys::AUTH_KEY, &value)?)
    }

    pub(crate) fn use_auth_key(&self, key: u16) -> Result<(), CallError<refusal::KeyError>> {
        let value = [0, 0, key, 0].map(u16::to_ne_bytes).concat();
        Ok(self.set("choosing a key", sys::AUTH_ACTIVE_KEY, &value)?)
    }

    pub(crate) fn delete_auth_key(&self, key: u16) -> Result<(), CallError<refusal::KeyError>> {
        let value = [0, 0, key, 0].map(u16::to_ne_bytes).concat();
        Ok(self.set("deleting a key", sys::AUTH_DELETE_KEY, &value)?)
    }

    pub(crate) fn set_stream_value(
        &self,
        stream: u16,
        value: u16,
    ) -> Result<(), CallError<refusal::NoStream>> {
        let value = [0, 0, stream, value].map(u16::to_ne_bytes).concat();
        Ok(self.set("setting the value of a stream", sys::STREAM_SCHEDULER_VALUE, &value)?)
    }

    pub(crate) fn begin_shutdown(&self) {
        // Refused only if it has ended, or is not established.
        let _ = self.shared.io.get_ref().shutdown(std::net::Shutdown::Write);
    }

    pub(crate) fn abort(&self, reason: &[u8]) -> Result<(), EndedError> {
        let mut state = self.shared.state();
        if state.closed.is_some() {
            return Ok(());
        }
        sys::abort(self.shared.io.get_ref())
            .map_err(|error| SystemError::new("aborting an sctp association", error))?;
        let reason = Bytes::copy_from_slice(reason);
        state.handle_event(Event::Closed(Close::Aborted { code: USER_ABORT, reason }));
        self.wake(state);
        Ok(())
    }
}

/// Translates a state of the kernel (`sctp_sstat_state`).
fn state_of(number: u32) -> ringway_sctp::State {
    match number {
        2 => ringway_sctp::State::CookieWait,
        3 => ringway_sctp::State::CookieEchoed,
        4 => ringway_sctp::State::Established,
        5 => ringway_sctp::State::ShutdownPending,
        6 => ringway_sctp::State::ShutdownSent,
        7 => ringway_sctp::State::ShutdownReceived,
        8 => ringway_sctp::State::ShutdownAckSent,
        _ => ringway_sctp::State::Closed,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}
