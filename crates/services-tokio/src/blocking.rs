//! The same calls for programs without a runtime: each waits in its thread.
//!
//! A system has a thread of its own, in which its sockets are served. It ends when the last handle, listener and
//! connection of the system is dropped, after what was sent has gone, for at most [`LINGER`].
//!
//! ```
//! use ringway_services_tokio::blocking::{Preconnection, System};
//! use ringway_services_tokio::{LocalEndpoint, RemoteEndpoint, SecurityParameters, TransportProperties};
//!
//! let system = System::new()?;
//! let new = || {
//!     let properties = TransportProperties::reliable_message();
//!     Preconnection::new(&system, properties, SecurityParameters::disabled())
//! };
//! let listener = new().from(LocalEndpoint::address("127.0.0.1:0".parse()?)).listen()?;
//! let peer = RemoteEndpoint::address(([127, 0, 0, 1], listener.port()).into());
//! let client = new().to(peer).initiate()?;
//! client.send("hello")?;
//! let message = listener.accept()?.receive()?.ok_or("a message")?;
//! assert_eq!(&message[..], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::limits::LINGER;
use crate::{Builder, Error, Event, Message};
use bytes::Bytes;
use ringway_services::{
    LocalEndpoint, MessageProperties, Preconnection as Policy, Protocol, Ranked, RemoteEndpoint,
    SecurityParameters, TransportProperties, Unfit,
};
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder as RuntimeBuilder, Handle};
use tokio::sync::oneshot;

/// The thread that serves the sockets of a system.
#[derive(Debug)]
struct Thread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    fn start() -> Result<Thread, Error> {
        let failed = |error| Error::system("a thread for the sockets", error);
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("services".into()).spawn(move || {
            runtime.block_on(async {
                let _ = stopped.await;
                let end = Instant::now() + LINGER;
                let alive = || Handle::current().metrics().num_alive_tasks() > 0;
                while alive() && Instant::now() < end {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        });
        let thread = Some(thread.map_err(failed)?);
        Ok(Thread { handle, stop: Some(stop), thread })
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The transport services of a program, with a thread for their sockets.
#[derive(Clone, Debug)]
pub struct System {
    system: crate::System,
    thread: Arc<Thread>,
}

impl System {
    /// Returns a system with the default settings.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn new() -> Result<System, Error> {
        System::of(crate::System::builder())
    }

    /// Returns a system with these settings.
    ///
    /// # Errors
    /// As [`Builder::build`], or the system starts no thread.
    pub fn of(builder: Builder) -> Result<System, Error> {
        let thread = Arc::new(Thread::start()?);
        Ok(System { system: builder.build()?, thread })
    }
}

/// As [`crate::Preconnection`].
#[derive(Clone, Debug)]
pub struct Preconnection {
    inner: crate::Preconnection,
    thread: Arc<Thread>,
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
        let inner = crate::Preconnection::of(&system.system, policy);
        Preconnection { inner, thread: system.thread.clone() }
    }

    /// Returns it with another endpoint of the peer.
    #[must_use]
    pub fn to(mut self, remote: RemoteEndpoint) -> Self {
        self.inner = self.inner.to(remote);
        self
    }

    /// Returns it with this local endpoint.
    #[must_use]
    pub fn from(mut self, local: LocalEndpoint) -> Self {
        self.inner = self.inner.from(local);
        self
    }

    /// Returns it without a protocol.
    #[must_use]
    pub fn without(mut self, protocol: Protocol) -> Self {
        self.inner = self.inner.without(protocol);
        self
    }

    /// As [`crate::Preconnection::explain`].
    ///
    /// # Errors
    /// Nothing fits.
    pub fn explain(&self) -> Result<Ranked, Unfit> {
        self.inner.explain()
    }

    /// As [`crate::Preconnection::initiate`].
    ///
    /// # Errors
    /// Nothing fits, no attempt connected, or a limit is reached.
    pub fn initiate(&self) -> Result<Connection, Error> {
        let inner = self.thread.wait(self.inner.initiate())?;
        Ok(Connection::new(inner, &self.thread))
    }

    /// As [`crate::Preconnection::listen`].
    ///
    /// # Errors
    /// Nothing fits, or nothing could be listened with.
    pub fn listen(&self) -> Result<Listener, Error> {
        let inner = self.thread.wait(self.inner.listen())?;
        Ok(Listener { inner, thread: self.thread.clone() })
    }

    /// As [`crate::Preconnection::rendezvous`].
    ///
    /// # Errors
    /// Nothing fits, or no attempt connected.
    pub fn rendezvous(&self) -> Result<Connection, Error> {
        let inner = self.thread.wait(self.inner.rendezvous())?;
        Ok(Connection::new(inner, &self.thread))
    }
}

/// As [`crate::Listener`], whose other methods it has, too.
#[derive(Debug)]
pub struct Listener {
    inner: crate::Listener,
    thread: Arc<Thread>,
}

impl Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// As [`crate::Listener::accept`].
    pub fn accept(&self) -> Result<Connection, Error> {
        let inner = self.thread.wait(self.inner.accept())?;
        Ok(Connection::new(inner, &self.thread))
    }
}

impl Deref for Listener {
    type Target = crate::Listener;

    fn deref(&self) -> &crate::Listener {
        &self.inner
    }
}

/// As [`crate::Connection`], whose methods that do not wait it has, too.
#[derive(Debug)]
pub struct Connection {
    /// Present until it is dropped, which happens within the runtime.
    inner: Option<crate::Connection>,
    thread: Arc<Thread>,
}

impl Connection {
    fn new(inner: crate::Connection, thread: &Arc<Thread>) -> Connection {
        Connection { inner: Some(inner), thread: thread.clone() }
    }

    /// As [`crate::Connection::send`].
    ///
    /// # Errors
    /// The connection has ended, or the properties contradict it.
    pub fn send(&self, message: impl Into<Bytes>) -> Result<(), Error> {
        self.thread.wait(self.deref().send(message))
    }

    /// As [`crate::Connection::send_with`].
    ///
    /// # Errors
    /// As [`send`](Connection::send), or the lifetime was over.
    pub fn send_with(
        &self,
        message: impl Into<Bytes>,
        properties: &MessageProperties,
    ) -> Result<(), Error> {
        self.thread.wait(self.deref().send_with(message, properties))
    }

    /// As [`crate::Connection::send_final`].
    ///
    /// # Errors
    /// As [`send`](Connection::send).
    pub fn send_final(&self, message: impl Into<Bytes>) -> Result<(), Error> {
        self.thread.wait(self.deref().send_final(message))
    }

    /// As [`crate::Connection::receive`].
    ///
    /// # Errors
    /// The connection has ended otherwise than by its peer's last message, or a message is too large.
    pub fn receive(&self) -> Result<Option<Message>, Error> {
        self.thread.wait(self.deref().receive())
    }

    /// As [`crate::Connection::receive_part`].
    ///
    /// # Errors
    /// As [`receive`](Connection::receive).
    pub fn receive_part(&self) -> Result<Option<Message>, Error> {
        self.thread.wait(self.deref().receive_part())
    }

    /// Adds another connection to the group, as [`crate::Connection::clone`].
    ///
    /// # Errors
    /// The group has no stream left, or no attempt connected.
    pub fn clone_connection(&self) -> Result<Connection, Error> {
        let inner = self.thread.wait(self.deref().clone())?;
        Ok(Connection::new(inner, &self.thread))
    }

    /// As [`crate::Connection::accept`].
    ///
    /// # Errors
    /// The group has ended, or comes from a listener.
    pub fn accept(&self) -> Result<Connection, Error> {
        let inner = self.thread.wait(self.deref().accept())?;
        Ok(Connection::new(inner, &self.thread))
    }

    /// As [`crate::Connection::event`].
    pub fn event(&self) -> Event {
        self.thread.wait(self.deref().event())
    }

    /// As [`crate::Connection::close`].
    ///
    /// # Errors
    /// The connection has ended before.
    pub fn close(&self) -> Result<(), Error> {
        self.thread.wait(self.deref().close())
    }
}

impl Deref for Connection {
    type Target = crate::Connection;

    fn deref(&self) -> &crate::Connection {
        // It is taken out only when it is dropped.
        self.inner.as_ref().unwrap_or_else(|| unreachable!("the connection was dropped"))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _entered = self.thread.handle.enter();
        drop(self.inner.take());
    }
}
