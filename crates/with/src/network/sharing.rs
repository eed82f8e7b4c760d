//! Connections that share an association, each as a stream of it; `with-wire/sharing.rs` has the format.
//!
//! A task for each association ([`Hub`]) takes in whatever comes, so that a connection that is not read stops no other: what
//! a connection has not read is bounded by its own window. The association ends with its last connection.

use super::below::{Below, CLOSE, MAX_TAKEN, addresses, failed};
use super::opened::{Opened, Received};
use super::unread::{Held, Unread};
use crate::locking::lock;
use bytes::Bytes;
use ringway_sctp_tokio::{Association, Received as Part, SendOptions};
use ringway_with_wire::sharing::{Control, Incoming, MAX_CONTROL, STREAMS, Shared, SharingError};
use ringway_with_wire::stream::{DATA, Delivery, FIN, FIN_PAYLOAD, RESET};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Connections of an association that exist here: those of which the program has not read all, too.
const MAX_CONNECTIONS: usize = 4 * STREAMS as usize;
/// Messages about connections that wait for room in the association. A peer that lets more wait does not read them.
const MAX_DUE: usize = 4 * MAX_CONNECTIONS;
/// Octets up to which what comes is joined with what came before it, and octets of what is joined.
const SMALL: usize = 4 << 10;
const JOINED: usize = 32 << 10;
/// Empty buffers that are kept: what is received while the ones before are read needs some more.
const SPARES: usize = 4;
/// Time that a peer may take to answer an opening. Beyond that the association is not used for new connections.
const ANSWER: Duration = Duration::from_secs(1);

/// Where connections go that begin in an association.
pub(super) type Arrivals = mpsc::UnboundedSender<Opened<SharedTransport>>;

/// An association and its connections.
pub(super) struct Hub {
    association: Association,
    below: Below,
    is_opener: bool,
    unread: Unread,
    state: Mutex<State>,
    /// Notified when a message is due.
    due: Notify,
    /// Notified when a connection begins or the association ends.
    changed: Notify,
}

#[derive(Default)]
struct State {
    connections: BTreeMap<u32, Carried>,
    /// The last connection of each stream.
    streams: BTreeMap<u16, u32>,
    /// The serial number of the next connection that is opened here.
    next: u32,
    /// Messages about connections.
    due: VecDeque<(u16, Control, u32)>,
    /// Empty buffers for what comes next: memory of such a size is expensive to get.
    spares: Vec<Vec<u8>>,
    /// Whether no more connections are opened here.
    is_retired: bool,
    /// How the association has ended: in order, or with an errno.
    ended: Option<Result<(), i32>>,
}

impl State {
    /// Keeps a buffer for what comes next.
    fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.spares.len() < SPARES {
            buffer.clear();
            self.spares.push(buffer);
        }
    }
}

/// A connection in an association.
struct Carried {
    stream: u16,
    shared: Shared,
    inbox: VecDeque<Vec<u8>>,
    /// The room that the inbox takes.
    held: Held,
    /// Whether its transport exists.
    is_held: bool,
    readable: Arc<Notify>,
    writable: Arc<Notify>,
}

impl Carried {
    fn new(stream: u16, held: Held) -> Carried {
        let (readable, writable) = (Arc::default(), Arc::default());
        Carried {
            stream,
            shared: Shared::new(),
            inbox: VecDeque::new(),
            held,
            is_held: true,
            readable,
            writable,
        }
    }

    fn notify(&self) {
        self.readable.notify_one();
        self.writable.notify_one();
    }

    /// Appends bytes that have come. Few are joined with those before them, so that small messages take no more memory than
    /// they have bytes. Returns whether they were.
    fn join(&mut self, bytes: &[u8]) -> bool {
        self.readable.notify_one();
        match self.inbox.back_mut() {
            Some(last) if bytes.len() <= SMALL && last.len() + bytes.len() <= JOINED => {
                last.extend_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    /// Drops what was not read.
    fn discard(&mut self) {
        self.held.remove(self.inbox.drain(..).map(|bytes| bytes.len()).sum());
    }
}

fn reset() -> io::Error {
    io::Error::from_raw_os_error(libc::ECONNRESET)
}

fn options(stream: u16, ppid: u32) -> SendOptions {
    SendOptions { stream, ppid, ..SendOptions::default() }
}

fn octets(control: Control, serial: u32) -> Bytes {
    let mut out = [0; MAX_CONTROL];
    // There is room for any.
    let length = control.write(serial, &mut out).unwrap_or(0);
    Bytes::copy_from_slice(&out[..length])
}

impl Hub {
    fn new(association: Association, below: Below, is_opener: bool, unread: &Unread) -> Arc<Hub> {
        let (due, changed) = (Notify::new(), Notify::new());
        let (unread, state) = (unread.clone(), Mutex::default());
        Arc::new(Hub { association, below, is_opener, unread, state, due, changed })
    }

    /// Serves an association that was opened here. Returns its first connection, too.
    pub(super) fn opened(
        association: Association,
        below: Below,
        unread: &Unread,
    ) -> Option<(Arc<Hub>, SharedTransport)> {
        let hub = Hub::new(association, below, true, unread);
        let first = Hub::stream(&hub)?;
        tokio::spawn(hub.clone().run(None));
        Some((hub, first))
    }

    /// Serves an association that the peer has opened.
    pub(super) fn accepted(
        association: Association,
        below: Below,
        unread: &Unread,
        arrivals: Arrivals,
    ) {
        tokio::spawn(Hub::new(association, below, false, unread).run(Some(arrivals)));
    }

    /// Returns whether connections may be opened here.
    pub(super) fn is_open(&self) -> bool {
        let state = lock(&self.state);
        !state.is_retired && state.ended.is_none()
    }

    /// Has no more connections opened here.
    pub(super) fn retire(&self) {
        let mut state = lock(&self.state);
        state.is_retired = true;
        self.end_if_unused(&state);
    }

    /// Takes a stream for a connection that is to be opened; `None` if there is none.
    pub(super) fn stream(hub: &Arc<Hub>) -> Option<SharedTransport> {
        let mut state = lock(&hub.state);
        if state.is_retired || state.ended.is_some() {
            return None;
        }
        let is_free = |stream: &u16| {
            state.streams.get(stream).is_none_or(|last| !state.connections.contains_key(last))
        };
        let stream = (0..STREAMS).find(is_free)?;
        let serial = state.next;
        state.next = state.next.wrapping_add(1);
        Some(SharedTransport::add(hub, &mut state, stream, serial))
    }

    /// Begins the end of an association that was opened here once nobody uses it.
    fn end_if_unused(&self, state: &State) {
        if self.is_opener && state.is_retired && state.connections.is_empty() {
            self.association.begin_shutdown();
        }
    }

    /// Drops a connection that is over and that nobody holds. The last one takes the association with it.
    fn drop_if_over(&self, state: &mut State, serial: u32) {
        let is_gone =
            state.connections.get(&serial).is_some_and(|one| !one.is_held && one.shared.is_over());
        if is_gone {
            state.connections.remove(&serial);
            state.is_retired |= self.is_opener && state.connections.is_empty();
            self.end_if_unused(state);
        }
    }

    /// Has a message about a connection sent.
    fn send_soon(&self, state: &mut State, stream: u16, control: Control, serial: u32) {
        let now = octets(control, serial);
        let sent = state.due.is_empty()
            && self.association.try_send(now, &options(stream, control.ppid())).is_ok();
        if !sent {
            state.due.push_back((stream, control, serial));
            self.due.notify_one();
        }
    }

    /// Serves the association until its end.
    async fn run(self: Arc<Hub>, arrivals: Option<Arrivals>) {
        let ended = tokio::select! {
            ended = self.read(arrivals) => ended,
            never = self.write() => never,
        };
        let mut state = lock(&self.state);
        state.ended = Some(ended);
        state.due.clear();
        state.connections.values().for_each(Carried::notify);
        self.changed.notify_waiters();
    }

    /// Sends messages about connections once there is room for them.
    async fn write<T>(&self) -> T {
        loop {
            let next = lock(&self.state).due.front().copied();
            let Some((stream, control, serial)) = next else {
                self.due.notified().await;
                continue;
            };
            let message = octets(control, serial);
            let sent = self.association.send(message, &options(stream, control.ppid())).await;
            if sent.is_err() {
                // The end of the association is found by who reads.
                return std::future::pending().await;
            }
            lock(&self.state).due.pop_front();
        }
    }

    /// Takes in what comes, until the end.
    async fn read(self: &Arc<Hub>, arrivals: Option<Arrivals>) -> Result<(), i32> {
        let mut parts = Vec::new();
        loop {
            let mut bytes = lock(&self.state).spares.pop().unwrap_or_default();
            parts.clear();
            let taken = self.association.recv_many_into(&mut bytes, &mut parts, MAX_TAKEN).await;
            match taken {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(failed(error).raw_os_error().unwrap_or(libc::EIO)),
            }
            if let Err(error) = self.take(bytes, &parts, arrivals.as_ref()) {
                // It has ended, if it cannot be aborted.
                let _ = self.association.abort(error.to_string().as_bytes());
                return Err(libc::ECONNRESET);
            }
        }
    }

    /// Takes messages in, whose bytes follow one another.
    fn take(
        self: &Arc<Hub>,
        mut bytes: Vec<u8>,
        parts: &[Part],
        arrivals: Option<&Arrivals>,
    ) -> Result<(), SharingError> {
        let mut begun = Vec::new();
        let result = {
            let mut state = lock(&self.state);
            let runs = self.sort(&mut state, &bytes, parts, arrivals, &mut begun);
            for (serial, run) in runs.iter().flatten() {
                if !self.has_room(&mut state, *serial, run.len()) {
                    continue;
                }
                let Some(carried) = state.connections.get_mut(serial) else { continue };
                let part = bytes.get(run.clone()).unwrap_or_default();
                if carried.join(part) {
                    continue;
                }
                let is_all = part.len() == bytes.len();
                let part = if is_all { std::mem::take(&mut bytes) } else { part.to_vec() };
                carried.inbox.push_back(part);
            }
            state.keep(bytes);
            runs.map(|_| ())
        };
        // Without the lock: a connection that nobody takes is reset when it is dropped.
        if let Some(arrivals) = arrivals {
            for opened in begun {
                let _ = arrivals.send(opened);
            }
            self.changed.notify_waiters();
        }
        result
    }

    /// Takes room for bytes of a connection. Returns whether there is some; without, the connection is reset.
    fn has_room(&self, state: &mut State, serial: u32, octets: usize) -> bool {
        let Some(carried) = state.connections.get_mut(&serial) else { return false };
        if carried.held.add(octets) {
            return true;
        }
        carried.discard();
        carried.notify();
        let stream = carried.stream;
        if carried.shared.reset() {
            self.send_soon(state, stream, Control::Reset, serial);
        }
        false
    }

    /// Sorts messages by their connections. Returns the ranges of bytes for each, in order.
    fn sort(
        self: &Arc<Hub>,
        state: &mut State,
        bytes: &[u8],
        parts: &[Part],
        arrivals: Option<&Arrivals>,
        begun: &mut Vec<Opened<SharedTransport>>,
    ) -> Result<Vec<(u32, Range<usize>)>, SharingError> {
        let mut runs: Vec<(u32, Range<usize>)> = Vec::new();
        let mut start = 0;
        for part in parts {
            let range = start..start + part.len;
            start = range.end;
            let payload = bytes.get(range.clone()).unwrap_or_default();
            match Control::read(part.ppid, payload)? {
                Some((serial, Control::Open { port })) => {
                    let Some(arrivals) = arrivals else {
                        return Err(SharingError::Begins(part.stream));
                    };
                    begun.extend(self.begin(state, part.stream, serial, port, arrivals)?);
                }
                Some((serial, control)) => self.control(state, serial, control),
                None => {
                    if let Some(serial) = incoming(state, part)? {
                        match runs.last_mut() {
                            Some((last, run)) if *last == serial && run.end == range.start => {
                                run.end = range.end;
                            }
                            _ => runs.push((serial, range)),
                        }
                    }
                }
            }
            if state.due.len() > MAX_DUE {
                return Err(SharingError::Backlog);
            }
        }
        // An end counts behind the bytes before it, which are appended under the same lock.
        Ok(runs)
    }

    /// Takes in that the peer opens a connection. Returns it, unless it is refused.
    fn begin(
        self: &Arc<Hub>,
        state: &mut State,
        stream: u16,
        serial: u32,
        port: u16,
        arrivals: &Arrivals,
    ) -> Result<Option<Opened<SharedTransport>>, SharingError> {
        let last = state.streams.get(&stream).and_then(|last| state.connections.get(last));
        let is_taken = last.is_some_and(|last| !last.shared.is_over());
        if is_taken || state.connections.contains_key(&serial) {
            return Err(SharingError::Begins(stream));
        }
        let ends = addresses(&self.association).ok();
        let refused = arrivals.is_closed() || state.connections.len() >= MAX_CONNECTIONS;
        let Some((local, peer)) = ends.filter(|_| !refused) else {
            state.streams.insert(stream, serial);
            self.send_soon(state, stream, Control::Reset, serial);
            return Ok(None);
        };
        self.send_soon(state, stream, Control::Credit(0), serial);
        let transport = SharedTransport::add(self, state, stream, serial);
        let peer = SocketAddr::new(peer.ip(), port);
        Ok(Some(Opened { transport, local, peer }))
    }

    /// Takes another message about a connection in. One that is not known has ended.
    fn control(&self, state: &mut State, serial: u32, control: Control) {
        let Some(carried) = state.connections.get_mut(&serial) else { return };
        let stream = carried.stream;
        match control {
            Control::Credit(octets) => carried.shared.granted(octets),
            Control::Reset => {
                carried.discard();
                if carried.shared.reset_by_peer() {
                    self.send_soon(state, stream, Control::Reset, serial);
                }
            }
            Control::Open { .. } => {}
        }
        if let Some(carried) = state.connections.get(&serial) {
            carried.notify();
        }
        self.drop_if_over(state, serial);
    }

    /// Waits until a connection begins, or the association has ended.
    async fn until_used(&self) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let is_used = {
                let state = lock(&self.state);
                state.ended.is_some() || !state.connections.is_empty()
            };
            if is_used {
                return;
            }
            changed.await;
        }
    }
}

/// Takes bytes or an end in. Returns the connection that the bytes are for.
fn incoming(state: &mut State, part: &Part) -> Result<Option<u32>, SharingError> {
    let &Part { stream, ppid, unordered, cut, len, .. } = part;
    let serial = *state.streams.get(&stream).ok_or(SharingError::NoConnection(stream))?;
    let Some(carried) = state.connections.get_mut(&serial) else { return Ok(None) };
    let delivery = Delivery { stream, ppid, unordered, cut, length: len };
    match carried.shared.take(&delivery)? {
        Incoming::Bytes => return Ok(Some(serial)),
        Incoming::End => carried.readable.notify_one(),
        Incoming::Late => {}
    }
    Ok(None)
}

/// A connection as a stream of an association. Dropped before its end, it is reset.
pub(crate) struct SharedTransport {
    hub: Arc<Hub>,
    serial: u32,
    stream: u16,
    readable: Arc<Notify>,
    writable: Arc<Notify>,
}

impl SharedTransport {
    fn add(hub: &Arc<Hub>, state: &mut State, stream: u16, serial: u32) -> SharedTransport {
        // Without an address, the association has ended.
        let peer =
            addresses(&hub.association).map_or(Ipv6Addr::UNSPECIFIED.into(), |(_, peer)| peer.ip());
        let carried = Carried::new(stream, hub.unread.held(peer));
        let (readable, writable) = (carried.readable.clone(), carried.writable.clone());
        state.streams.insert(stream, serial);
        state.connections.insert(serial, carried);
        SharedTransport { hub: hub.clone(), serial, stream, readable, writable }
    }

    pub(super) fn association(&self) -> &Association {
        &self.hub.association
    }

    pub(super) fn title(&self) -> String {
        let title = self.hub.below.title_of(&self.hub.association);
        match self.stream {
            0 => title,
            stream => format!("{title}, stream {stream}"),
        }
    }

    async fn message(&self, bytes: Bytes, ppid: u32) -> io::Result<()> {
        let sent = self.hub.association.send(bytes, &options(self.stream, ppid)).await;
        sent.map_err(failed)
    }

    /// Begins the connection, from a port.
    pub(super) async fn begin(&self, port: u16) -> io::Result<()> {
        let open = Control::Open { port };
        self.message(octets(open, self.serial), open.ppid()).await
    }

    /// Begins the connection, and waits until the peer has accepted it.
    pub(super) async fn open(&self, port: u16) -> io::Result<()> {
        self.begin(port).await?;
        let accepted = async {
            while !self.with(|carried| Ok(carried.shared.is_accepted()))? {
                self.writable.notified().await;
            }
            Ok(())
        };
        tokio::time::timeout(ANSWER, accepted).await?
    }

    /// Does something with the connection, unless it was reset or the association has ended.
    fn with<T>(&self, act: impl FnOnce(&mut Carried) -> io::Result<T>) -> io::Result<T> {
        let mut state = lock(&self.hub.state);
        if let Some(ended) = state.ended {
            let errno = ended.err().unwrap_or(libc::ECONNRESET);
            return Err(io::Error::from_raw_os_error(errno));
        }
        match state.connections.get_mut(&self.serial) {
            Some(carried) if !carried.shared.is_reset() => act(carried),
            _ => Err(reset()),
        }
    }

    pub(super) async fn send(&self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.with(|carried| Ok(carried.shared.send(bytes.len())))? {
                0 => self.writable.notified().await,
                count => self.message(bytes.split_to(count), DATA).await?,
            }
        }
        Ok(())
    }

    pub(super) async fn finish(&self) -> io::Result<()> {
        self.with(|_| Ok(()))?;
        self.message(Bytes::from_static(FIN_PAYLOAD), FIN).await?;
        self.with(|carried| {
            carried.shared.end();
            Ok(())
        })
    }

    pub(super) async fn receive(&self, out: &mut Vec<u8>) -> io::Result<Received> {
        loop {
            if let Some(received) = self.try_receive(out)? {
                return Ok(received);
            }
            self.readable.notified().await;
        }
    }

    /// Takes what has come; `None` if that is nothing.
    fn try_receive(&self, out: &mut Vec<u8>) -> io::Result<Option<Received>> {
        let mut state = lock(&self.hub.state);
        let ended = state.ended;
        let carried = state.connections.get_mut(&self.serial).ok_or_else(reset)?;
        if carried.shared.is_reset() {
            return Err(reset());
        }
        let Some(mut bytes) = carried.inbox.pop_front() else {
            return match ended {
                _ if carried.shared.has_received_end() => Ok(Some(Received::End)),
                None => Ok(None),
                // A peer that shuts down has sent all there is.
                Some(Ok(())) => Ok(Some(Received::End)),
                Some(Err(errno)) => Err(io::Error::from_raw_os_error(errno)),
            };
        };
        carried.held.remove(bytes.len());
        let grant = carried.shared.read(bytes.len());
        if out.is_empty() {
            std::mem::swap(out, &mut bytes);
        } else {
            out.append(&mut bytes);
        }
        state.keep(bytes);
        if let Some(grant) = grant
            && ended.is_none()
        {
            let credit = Control::Credit(grant);
            self.hub.send_soon(&mut state, self.stream, credit, self.serial);
        }
        Ok(Some(Received::Bytes))
    }

    /// Resets the connection. The only one of an association that was opened here takes that with it.
    pub(super) fn abort(&self) {
        let mut state = lock(&self.hub.state);
        let is_only = state.connections.len() == 1;
        let Some(carried) = state.connections.get_mut(&self.serial) else { return };
        carried.discard();
        if !carried.shared.reset() || state.ended.is_some() {
            return;
        }
        if self.hub.is_opener && is_only {
            state.is_retired = true;
            // It has ended, if it cannot be aborted.
            let _ = self.hub.association.abort(RESET);
        } else {
            self.hub.send_soon(&mut state, self.stream, Control::Reset, self.serial);
        }
    }

    /// Ends the connection, whose directions have both ended. Behind the last one of an association it waits for the end of
    /// that, so that the peer has what it was sent.
    pub(super) async fn close(&self) {
        let is_last = {
            let mut state = lock(&self.hub.state);
            state.connections.remove(&self.serial);
            let is_last = state.connections.is_empty();
            state.is_retired |= is_last && self.hub.is_opener;
            is_last
        };
        if !is_last {
            return;
        }
        // What remains is gone after that time; the peer has what it was sent, or is not there.
        let _ = tokio::time::timeout(CLOSE, async {
            if self.hub.is_opener {
                let _ = self.hub.association.shutdown().await;
            } else {
                self.hub.until_used().await;
            }
        })
        .await;
    }
}

impl Drop for SharedTransport {
    fn drop(&mut self) {
        self.abort();
        let mut state = lock(&self.hub.state);
        if state.ended.is_some() {
            state.connections.remove(&self.serial);
        } else if let Some(carried) = state.connections.get_mut(&self.serial) {
            carried.is_held = false;
        }
        self.hub.drop_if_over(&mut state, self.serial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_take_no_more_memory_than_they_have_bytes() {
        let mut carried = Carried::new(0, Unread::default().held(Ipv6Addr::LOCALHOST.into()));
        for _ in 0..2 * JOINED {
            if !carried.join(b"x") {
                carried.inbox.push_back(b"x".to_vec());
            }
        }
        assert_eq!(carried.inbox.len(), 2);
    }
}
