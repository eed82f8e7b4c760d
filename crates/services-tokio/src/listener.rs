//! Listening with all protocols that fit, at one port (RFC 9622 section 7.2, RFC 9623 section 4.7).

mod bound;
mod tcp;

use crate::admission::{Admission, Permit};
use crate::connection::Connection;
use crate::error::Error;
use crate::framer::NewFramer;
use crate::group::{Admitted, Sink, Waiting};
use crate::system::System;
use crate::transport::{Established, Request};
use bound::{Bound, Plan};
use ringway_services::framing::Side;
use ringway_services::{Explanation, Preconnection as Policy, Protocol, Role};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
pub(crate) use tcp::bind as bind_tcp;
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

/// Ports that are tried when the system chooses one and another protocol has it in use.
const MAX_PORTS: usize = 16;

/// What the tasks of a listener share.
pub(crate) struct Shared {
    pub(crate) system: System,
    pub(crate) policy: Policy,
    framer: Option<NewFramer>,
    explanation: Explanation,
    pub(crate) admission: Arc<Admission>,
    sender: mpsc::Sender<Waiting>,
}

impl Shared {
    /// Makes a connection of a transport connection, and delivers it when its first stream is there.
    pub(crate) fn accept(&self, established: Established, permit: Permit, side: Side) {
        let sink =
            Sink::Listener { sender: self.sender.clone(), admission: self.admission.clone() };
        let (policy, framer, permit) = (&self.policy, self.framer.as_ref(), Some(permit));
        let admitted = Admitted { policy, framer, sink, permit, side };
        // What the pool has no room for is closed.
        if let Ok(group) = self.system.accepted(established, self.explanation.clone(), admitted) {
            group.deliver_single();
        }
    }

    /// Returns a permit for a connection of a peer; `None` if it is to be refused.
    pub(crate) fn admit(&self, ip: IpAddr) -> Option<Permit> {
        if self.sender.is_closed() { None } else { self.admission.admit(ip) }
    }
}

/// Accepts connections, of whichever protocol their peers have chosen. Dropping it closes its sockets; connections remain.
pub struct Listener {
    receiver: Mutex<mpsc::Receiver<Waiting>>,
    shared: Arc<Shared>,
    port: u16,
    addresses: Vec<(Protocol, SocketAddr)>,
    left_out: Vec<(Protocol, Arc<str>)>,
    tasks: Vec<AbortHandle>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Listener {
    /// Opens the sockets of all protocols that fit.
    pub(crate) fn open(system: &System, request: &Request) -> Result<Listener, Error> {
        let Request { policy, framer, .. } = request;
        let availability = system.availability(policy, Role::Listen);
        let ranked = policy.listeners(system.now(), &availability)?;
        Self::of(system, policy, framer.clone(), Plan::new(policy, ranked))
    }

    /// Opens the sockets of a plan.
    pub(crate) fn of(
        system: &System,
        policy: &Policy,
        framer: Option<NewFramer>,
        plan: Plan,
    ) -> Result<Listener, Error> {
        let limits = system.limits();
        let (sender, receiver) = mpsc::channel(limits.waiting.max(1));
        let shared = Arc::new(Shared {
            system: system.clone(),
            policy: policy.clone(),
            framer,
            explanation: plan.explanation.clone(),
            admission: Admission::new(limits.waiting),
            sender,
        });
        let bound = Self::bind(&shared, policy, &plan)?;
        let mut tasks = Vec::new();
        let (mut addresses, left_out) = (Vec::new(), bound.left_out);
        for part in bound.parts {
            addresses.extend(part.addresses());
            tasks.push(tokio::spawn(part.run(shared.clone())).abort_handle());
        }
        let receiver = Mutex::new(receiver);
        Ok(Listener { receiver, shared, port: bound.port, addresses, left_out, tasks })
    }

    /// Binds all at one port: the one that the local endpoint names, or one that is free for all.
    fn bind(shared: &Shared, policy: &Policy, plan: &Plan) -> Result<Bound, Error> {
        if let Some(port) = policy.local.port {
            return plan.bind(shared, port).listening();
        }
        let mut bound = plan.bind(shared, plan.free_port()?);
        for _ in 1..MAX_PORTS {
            if !bound.is_in_use {
                break;
            }
            bound = plan.bind(shared, plan.free_port()?);
        }
        bound.listening()
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// None at present; what fails of a peer's connection concerns no other.
    pub async fn accept(&self) -> Result<Connection, Error> {
        let waiting = self.receiver.lock().await.recv().await;
        Ok(waiting.ok_or(Error::Closed)?.connection)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the protocols that it listens with.
    pub fn protocols(&self) -> Vec<Protocol> {
        let mut protocols: Vec<_> = self.addresses.iter().map(|(protocol, _)| *protocol).collect();
        protocols.dedup();
        protocols
    }

    /// Returns the addresses of each protocol; of those that UDP carries, the address of UDP.
    pub fn addresses(&self) -> &[(Protocol, SocketAddr)] {
        &self.addresses
    }

    /// Returns the protocols that fit and that it does not listen with, each with the reason.
    pub fn left_out(&self) -> &[(Protocol, Arc<str>)] {
        &self.left_out
    }

    /// Returns why each protocol fits or does not.
    pub fn explain(&self) -> &Explanation {
        &self.shared.explanation
    }

    /// Returns the number of connections that were refused, because too many waited, of their source or in total.
    pub fn refused(&self) -> u64 {
        self.shared.admission.refused()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
