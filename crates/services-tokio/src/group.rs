//! Connections that share an association, and the transport connection that carries them (RFC 9622 section 7.4).

use crate::admission::{Admission, Permit};
use crate::carrier::Carrier;
use crate::connection::Connection;
use crate::error::Error;
use crate::framed::{self, Driver, Framed, Notice};
use crate::framer::NewFramer;
use crate::limits::GROUP_QUEUE;
use crate::plain::Plain;
use crate::quic::{self, QuicStreams};
use crate::sctp::{self, SctpStreams};
use crate::system::{Inner, System};
use crate::transport::{Established, NewCarrier, Owner, Transport};
use ringway_services::framing::Side;
use ringway_services::pool::{AssociationId, Opened};
use ringway_services::queue::ConnectionId;
use ringway_services::{Candidate, Explanation, Preconnection as Policy, Service};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

/// What the connections of a group have in common.
pub(crate) struct Context {
    pub(crate) policy: Policy,
    pub(crate) candidate: Candidate,
    pub(crate) explanation: Explanation,
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) side: Side,
    pub(crate) framer: Option<NewFramer>,
}

enum Kind {
    Framed(Arc<Framed>),
    Sctp(Arc<SctpStreams>),
    /// With the connection whose first message was sent, until it is opened.
    Quic(Arc<QuicStreams>, Mutex<Option<Added>>),
    /// The carrier of the only connection, until that is made.
    Single(Mutex<Option<Box<dyn Carrier>>>),
}

/// What a listener, or a rendezvous, decides of a connection that a peer has opened.
pub(crate) struct Admitted<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) framer: Option<&'a NewFramer>,
    pub(crate) sink: Sink,
    pub(crate) permit: Option<Permit>,
    pub(crate) side: Side,
}

/// A connection that waits to be accepted.
pub(crate) struct Waiting {
    pub(crate) connection: Connection,
    _permit: Permit,
}

/// A connection of the group, without its group.
type Added = (ConnectionId, Box<dyn Carrier>);

/// Where connections go that the peer opens.
pub(crate) enum Sink {
    Listener { sender: mpsc::Sender<Waiting>, admission: Arc<Admission> },
    Group { sender: mpsc::Sender<Added>, receiver: tokio::sync::Mutex<mpsc::Receiver<Added>> },
}

impl Sink {
    /// Returns that of a group which was opened here.
    pub(crate) fn group() -> Sink {
        let (sender, receiver) = mpsc::channel(GROUP_QUEUE);
        Sink::Group { sender, receiver: tokio::sync::Mutex::new(receiver) }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A group.
pub(crate) struct Group {
    pub(crate) id: AssociationId,
    pub(crate) context: Context,
    system: Weak<Inner>,
    this: Weak<Group>,
    /// Whether it was opened here alone.
    is_local: bool,
    kind: Kind,
    sink: Sink,
    /// The right of the first connection to wait.
    permit: Mutex<Option<Permit>>,
    more_streams: Notify,
}

impl Group {
    /// Returns what a transport connection can do, for the pool.
    pub(crate) fn opened(established: &Established, framer: bool) -> Opened {
        let Candidate { framed, provides, .. } = &established.candidate;
        let has_streams = provides.has(Service::Multistreaming);
        let (streams, multistreaming, announces_streams) = match &established.transport {
            Transport::Stream(_) => (2 * framed::STREAMS, *framed && has_streams && !framer, true),
            Transport::Sctp(association) => {
                let streams = association.statistics().map_or((1, 1), |snapshot| snapshot.streams);
                (streams.0.min(streams.1).into(), has_streams, false)
            }
            Transport::Quic(_) => (2 * framed::STREAMS, has_streams, *framed),
            Transport::Single(_) => (1, false, false),
        };
        Opened { streams, multistreaming, announces_streams }
    }

    /// Creates the group of a transport connection and starts its tasks. To be called within a runtime.
    pub(crate) fn new(
        id: AssociationId,
        system: &System,
        transport: Transport,
        context: Context,
        sink: Sink,
        permit: Option<Permit>,
        is_local: bool,
    ) -> Arc<Group> {
        let limits = *system.limits();
        let scheduler = context.policy.properties.connection.conn_scheduler;
        let closing = system.resources().closing(&context.policy, context.remote.ip());
        Arc::new_cyclic(|group: &Weak<Group>| {
            let of = group.clone();
            let kind = match transport {
                Transport::Stream(io) if context.candidate.framed && context.framer.is_none() => {
                    let framed = Framed::new(context.side, &limits, scheduler, closing);
                    let notices = notices_of_framed(of, framed.clone());
                    tokio::spawn(Driver::new(framed.clone(), io, notices));
                    Kind::Framed(framed)
                }
                Transport::Stream(io) => {
                    let plain = Plain::new(io, &limits, closing, move || ended(&of));
                    Kind::Single(Mutex::new(Some(Box::new(plain))))
                }
                Transport::Single(carrier) => Kind::Single(Mutex::new(Some(carrier))),
                Transport::Sctp(association) => {
                    let side = context.side;
                    let streams = SctpStreams::new(association, side, &limits, scheduler, closing);
                    tokio::spawn(sctp::Driver::new(streams.clone(), notices_of_sctp(of)));
                    Kind::Sctp(streams)
                }
                Transport::Quic(begun) => {
                    let (candidate, framer) = (context.candidate.clone(), context.framer.is_some());
                    let side = context.side;
                    let settings =
                        quic::Settings { candidate, side, limits, scheduler, closing, framer };
                    let (streams, sent, opened) = begun.into_streams(|connection, confirmed| {
                        QuicStreams::new(connection, confirmed, settings)
                    });
                    tokio::spawn(quic::accept(streams.clone(), opened, of));
                    Kind::Quic(streams, Mutex::new(sent))
                }
            };
            let (permit, more_streams) = (Mutex::new(permit), Notify::new());
            let system = system.downgrade();
            let this = group.clone();
            Group { id, context, system, this, is_local, kind, sink, permit, more_streams }
        })
    }

    pub(crate) fn system(&self) -> Option<System> {
        self.system.upgrade().map(System::from_inner)
    }

    /// Opens a connection of the group on a stream, by the pool's number.
    pub(crate) async fn open(
        &self,
        stream: u32,
        connection: ConnectionId,
        priority: u32,
    ) -> Result<Box<dyn Carrier>, Error> {
        match &self.kind {
            Kind::Framed(framed) => {
                let waiting =
                    self.system().map_or_else(Default::default, |one| one.limits().handshake);
                let permitted = async {
                    loop {
                        let more = self.more_streams.notified();
                        match framed.open(connection, priority) {
                            Err(Error::Lost(_)) if !framed.has_ended() => more.await,
                            result => return result,
                        }
                    }
                };
                let opened = timeout(waiting, permitted).await;
                let opened = opened.map_err(|_| Error::lost("the peer permits no more streams"))?;
                Ok(Box::new(opened?))
            }
            Kind::Sctp(streams) => {
                let stream = u16::try_from(stream).map_err(Error::lost)?;
                Ok(Box::new(streams.open(stream, connection, priority)?))
            }
            Kind::Quic(streams, sent) => {
                let sent = lock(sent).take_if(|(sent, _)| *sent == connection);
                match sent {
                    Some((_, carrier)) => Ok(carrier),
                    None => Ok(Box::new(streams.open(connection, priority).await?)),
                }
            }
            Kind::Single(carrier) => lock(carrier).take().ok_or(Error::Closed),
        }
    }

    /// Returns whether the transport connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        match &self.kind {
            Kind::Framed(framed) => framed.has_ended(),
            Kind::Sctp(streams) => streams.has_ended(),
            Kind::Quic(streams, _) => streams.has_ended(),
            Kind::Single(_) => true,
        }
    }

    /// Delivers the only connection of a transport connection that the peer has opened.
    pub(crate) fn deliver_single(self: &Arc<Self>) {
        let carrier = match &self.kind {
            Kind::Single(carrier) => lock(carrier).take(),
            Kind::Sctp(streams) => {
                let streams = streams.clone();
                let open = move |id, priority| {
                    streams.open(0, id, priority).ok().map(|stream| Box::new(stream) as _)
                };
                self.deliver(0, Box::new(open));
                return;
            }
            _ => None,
        };
        if let Some(carrier) = carrier {
            self.deliver(0, Box::new(move |_, _| Some(carrier)));
        }
    }

    /// Delivers a connection that the peer has opened as a stream, if the limits allow it.
    fn deliver(self: &Arc<Self>, stream: u32, carrier: NewCarrier<'_>) -> bool {
        let Some(system) = self.system() else { return false };
        let id = System::next_id();
        let permit = match &self.sink {
            Sink::Group { sender, .. } if sender.capacity() == 0 => return false,
            Sink::Group { .. } => None,
            Sink::Listener { admission, .. } => {
                let first = lock(&self.permit).take();
                match first.or_else(|| admission.admit(self.context.remote.ip())) {
                    None => return false,
                    permit => permit,
                }
            }
        };
        if !system.peer_opened(self.id, stream, id) {
            return false;
        }
        let Some(carrier) = carrier(id, self.priority()) else {
            system.release(self, id);
            return false;
        };
        match (&self.sink, permit) {
            (Sink::Listener { sender, .. }, Some(permit)) => {
                let connection = Connection::new(id, self.clone(), carrier, system);
                // Dropped with the error, the connection is closed.
                sender.try_send(Waiting { connection, _permit: permit }).is_ok()
            }
            (Sink::Group { sender, .. }, _) => {
                let sent = sender.try_send((id, carrier));
                if sent.is_err() {
                    system.release(self, id);
                }
                sent.is_ok()
            }
            (Sink::Listener { .. }, None) => false,
        }
    }

    /// Waits for the next connection that the peer adds to a group which was opened here.
    pub(crate) async fn accept(self: &Arc<Self>) -> Result<Connection, Error> {
        let Sink::Group { receiver, .. } = &self.sink else {
            let protocol = self.context.candidate.protocol;
            let what = "accept at a connection: what the peer adds is delivered by the listener";
            return Err(Error::Unsupported { protocol, what });
        };
        let (id, carrier) = receiver.lock().await.recv().await.ok_or(Error::Closed)?;
        let system = self.system().ok_or(Error::Closed)?;
        Ok(Connection::new(id, self.clone(), carrier, system))
    }

    /// Returns whether streams of this group have numbers that are used again, once both ends have ended them.
    pub(crate) fn reuses_streams(&self) -> bool {
        matches!(self.kind, Kind::Sctp(_))
    }

    /// Reports that the pool knows that the connection of a stream was closed, so that its number can be released.
    pub(crate) fn forget(&self, stream: u32) {
        if let (Kind::Sctp(streams), Ok(stream)) = (&self.kind, u16::try_from(stream)) {
            streams.forget(stream);
        }
    }

    /// Ends the transport connection behind what is queued.
    pub(crate) fn close(&self) {
        match &self.kind {
            Kind::Framed(framed) => framed.close(),
            Kind::Sctp(streams) => streams.close(),
            Kind::Quic(streams, sent) => {
                // Nobody has opened it any longer.
                drop(lock(sent).take());
                streams.close();
            }
            Kind::Single(carrier) => {
                let carrier = lock(carrier).take();
                if let Some(carrier) = carrier {
                    carrier.close();
                }
            }
        }
    }

    /// Ends the transport connection at once.
    pub(crate) fn abort(&self) {
        match &self.kind {
            Kind::Framed(framed) => framed.abort(),
            Kind::Sctp(streams) => streams.abort(),
            Kind::Quic(streams, _) => streams.abort(),
            Kind::Single(_) => {}
        }
    }
}

impl Owner for Group {
    fn peer_opened(&self, stream: u32, carrier: NewCarrier<'_>) -> bool {
        self.this.upgrade().is_some_and(|group| group.deliver(stream, carrier))
    }

    fn priority(&self) -> u32 {
        self.context.policy.properties.connection.conn_priority
    }

    fn ended(&self) {
        if let Some(system) = self.system() {
            system.ended(self.id);
        }
    }
}

fn ended(group: &Weak<Group>) {
    if let Some(group) = group.upgrade() {
        group.ended();
    }
}

fn notices_of_framed(of: Weak<Group>, framed: Arc<Framed>) -> framed::Listener {
    Box::new(move |notice| match notice {
        Notice::Opened(stream) => {
            let adopt = |id, priority| Some(Box::new(framed.adopt(stream, id, priority)) as _);
            let delivered = of.upgrade().is_some_and(|group| {
                // The pool has the parity of who opened the association, which in a rendezvous is neither.
                let number = stream.0 & !1 | u32::from(group.is_local);
                group.deliver(number, Box::new(adopt))
            });
            if !delivered {
                framed.refuse(stream);
            }
        }
        Notice::MoreStreams => {
            if let Some(group) = of.upgrade() {
                group.more_streams.notify_waiters();
            }
        }
        Notice::Ended => {
            if let Some(group) = of.upgrade() {
                group.more_streams.notify_waiters();
            }
            ended(&of);
        }
    })
}

fn notices_of_sctp(of: Weak<Group>) -> sctp::Listener {
    Box::new(move |streams, notice| match notice {
        sctp::Notice::Opened(stream) => {
            let open = |id, priority| {
                streams.open(stream, id, priority).ok().map(|stream| Box::new(stream) as _)
            };
            of.upgrade().is_some_and(|group| group.deliver(stream.into(), Box::new(open)))
        }
        sctp::Notice::Released(stream) => {
            if let Some(group) = of.upgrade()
                && let Some(system) = group.system()
            {
                system.released(group.id, stream.into());
            }
            true
        }
        sctp::Notice::Ended => {
            ended(&of);
            true
        }
    })
}
