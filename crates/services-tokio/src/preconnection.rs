//! What a program fills in before it connects (RFC 9622 section 6).

use crate::connection::Connection;
use crate::error::Error;
use crate::framer::Framer;
use crate::listener::Listener;
use crate::rendezvous;
use crate::system::System;
use crate::transport::{FirstMessage, Request};
use bytes::Bytes;
use ringway_services::{
    LocalEndpoint, MessageProperties, Preconnection as Policy, Protocol, RemoteEndpoint, Role,
    SecurityParameters, TransportProperties,
};
use ringway_services::{Ranked, Unfit};
use std::fmt;
use std::sync::Arc;

/// Endpoints, properties and security of connections to come, and the system that carries them out. It is a value:
/// connections made of it do not change with it.
#[derive(Clone)]
pub struct Preconnection {
    system: System,
    request: Request,
}

impl fmt::Debug for Preconnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request.policy.fmt(f)
    }
}

impl Preconnection {
    /// Returns a preconnection without endpoints.
    pub fn new(
        system: &System,
        properties: TransportProperties,
        security: SecurityParameters,
    ) -> Self {
        Self::of(system, Policy::new(properties, security))
    }

    /// Returns the preconnection of `ringway_services`: endpoints and properties.
    pub fn of(system: &System, policy: Policy) -> Self {
        Preconnection {
            system: system.clone(),
            request: Request { policy, framer: None, first: None },
        }
    }

    /// Returns what was filled in.
    pub fn policy(&self) -> &Policy {
        &self.request.policy
    }

    /// Returns it with another endpoint of the peer.
    #[must_use]
    pub fn to(mut self, remote: RemoteEndpoint) -> Self {
        self.request.policy = self.request.policy.to(remote);
        self
    }

    /// Returns it with this local endpoint.
    #[must_use]
    pub fn from(mut self, local: LocalEndpoint) -> Self {
        self.request.policy = self.request.policy.from(local);
        self
    }

    /// Returns it for a peer without this project's framing: byte streams carry bytes.
    #[must_use]
    pub fn without_framing(mut self) -> Self {
        self.request.policy = self.request.policy.without_framing();
        self
    }

    /// Returns it without a protocol.
    #[must_use]
    pub fn without(mut self, protocol: Protocol) -> Self {
        self.request.policy = self.request.policy.without(protocol);
        self
    }

    /// Returns it with another format of messages on byte streams. Each connection gets a framer of its own.
    #[must_use]
    pub fn with_framer<F: Framer + 'static>(
        mut self,
        new: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        self.request.policy.may_frame = true;
        self.request.framer = Some(Arc::new(move || Box::new(new())));
        self
    }

    /// Returns the candidates in the order of the attempts, with the reasons, without connecting.
    ///
    /// # Errors
    /// Nothing fits. The error says which requirement excludes what.
    pub fn explain(&self) -> Result<Ranked, Unfit> {
        self.system.candidates(&self.request.policy)
    }

    /// Returns the protocols that [`listen`](Preconnection::listen) would listen with, with the reasons.
    ///
    /// # Errors
    /// Nothing fits. The error says which requirement excludes what.
    pub fn explain_listener(&self) -> Result<Ranked, Unfit> {
        let availability = self.system.availability(&self.request.policy, Role::Listen);
        self.request.policy.listeners(self.system.now(), &availability)
    }

    /// Opens a connection (RFC 9622 section 7.1). It shares the transport connection of another one to the same peer if
    /// all that was asked for is equal and the protocol can; else attempts race.
    ///
    /// # Errors
    /// Nothing fits, no attempt connected, or a limit is reached.
    pub async fn initiate(&self) -> Result<Connection, Error> {
        self.system.connect(&self.request).await
    }

    /// Opens a connection and sends a first message (RFC 9622 section 9.2.5). With `zeroRttMsg` preferred or required and
    /// `safelyReplayable`, it goes before the handshake has ended if the protocol has a session of the peer; then it may be
    /// received by several attempts, or more than once.
    ///
    /// # Errors
    /// As [`initiate`](Preconnection::initiate) and [`Connection::send_with`].
    pub async fn initiate_with_send(
        &self,
        message: impl Into<Bytes>,
        properties: &MessageProperties,
    ) -> Result<Connection, Error> {
        let bytes: Bytes = message.into();
        let mut request = self.request.clone();
        // A framer of the program's begins with the connection.
        if request.framer.is_none() {
            let priority = request.policy.properties.connection.conn_priority;
            let (bytes, properties) = (bytes.clone(), properties.clone());
            // The system numbers the connection.
            request.first = Some(FirstMessage { connection: 0, priority, bytes, properties });
        }
        let connection = self.system.connect(&request).await?;
        if !connection.has_sent_first() {
            connection.send_with(bytes, properties).await?;
        }
        Ok(connection)
    }

    /// Listens with all protocols that fit, at one port (RFC 9622 section 7.2).
    ///
    /// # Errors
    /// Nothing fits, or nothing could be listened with.
    pub async fn listen(&self) -> Result<Listener, Error> {
        Listener::open(&self.system, &self.request)
    }

    /// Opens a connection with a peer that does the same at the same time (RFC 9622 section 7.3). The local endpoint has
    /// to name a port, and the peer has to know it.
    ///
    /// # Errors
    /// Nothing fits, or no attempt connected.
    pub async fn rendezvous(&self) -> Result<Connection, Error> {
        rendezvous::open(&self.system, &self.request).await
    }
}
