//! The SCTP of a host: an endpoint and its associations in one table. It is what runs where one thread or one lock has
//! all associations, as in a simulation.
//!
//! This file is the face above IP and the calls of the endpoint. `calls` has those of one association.

mod calls;
mod event;
mod table;

pub use event::Event;

use crate::association::Cx;
use crate::endpoint::{AssocId, Counters, Endpoint, ListenerId, Settled};
use crate::error::{ConnectError, ListenError, NoListener, SettingError};
use crate::settings::{Limits, Settings};
use core::fmt;
use ringway_sansio::{Addressing, Icmp, Random, Time};
use std::net::IpAddr;
use table::Table;

/// The SCTP of one host.
pub struct Sctp {
    endpoint: Endpoint,
    table: Table,
}

impl fmt::Debug for Sctp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sctp").field("associations", &self.len()).finish_non_exhaustive()
    }
}

impl Sctp {
    /// Creates a host without associations, see [`Endpoint::new`].
    pub fn new(
        limits: Limits,
        settings: Settings,
        random: Box<dyn Random + Send>,
    ) -> Result<Self, SettingError> {
        let endpoint = Endpoint::new(limits, settings, random)?;
        Ok(Sctp { endpoint, table: Table::default() })
    }

    /// See [`Endpoint::listen`].
    pub fn listen(
        &mut self,
        addresses: &[IpAddr],
        port: u16,
        settings: Option<Settings>,
    ) -> Result<ListenerId, ListenError> {
        self.endpoint.listen(addresses, port, settings)
    }

    /// See [`Endpoint::join_addresses`].
    pub fn join_addresses(&mut self, addresses: &[IpAddr]) {
        self.endpoint.join_addresses(addresses);
    }

    /// Closes a listener. Established associations stay.
    pub fn unlisten(&mut self, id: ListenerId) -> Result<(), NoListener> {
        self.endpoint.unlisten(id)
    }

    /// Opens an association from `locals` to `remotes`, the first of which is the primary path (RFC
    /// 9260 section 11.1.2). The lists are matched index by index within each family. Port 0 chooses a
    /// free ephemeral port. [`Event::Up`] or [`Event::Closed`] follows. Messages can be queued at once.
    pub fn connect(
        &mut self,
        now: Time,
        locals: &[IpAddr],
        local_port: u16,
        remotes: &[IpAddr],
        remote_port: u16,
        settings: Option<Settings>,
    ) -> Result<AssocId, ConnectError> {
        let table = &mut self.table;
        let opened =
            self.endpoint.connect(now, table, locals, local_port, remotes, remote_port, settings);
        self.settle_called();
        opened
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(slot) = self.table.first_notice() {
            if let Some(event) = self.take_event(slot) {
                return Some(event);
            }
            self.table.drop_notice();
        }
        None
    }

    fn take_event(&mut self, slot: u32) -> Option<Event> {
        let (id, association) = self.table.at(slot)?;
        let event = association.poll_event()?;
        let listener = self.endpoint.listener(id);
        if association.is_spent() && self.endpoint.settle(id, association) == Settled::Released {
            self.table.remove(id);
        }
        Some(Event::of(id, listener, event))
    }

    /// Handles an ICMP message about a packet that was sent, see [`Endpoint::handle_icmp`].
    pub fn handle_icmp(&mut self, now: Time, sent: &Addressing, icmp: Icmp, quoted: &[u8]) {
        self.endpoint.handle_icmp(now, &mut self.table, sent, icmp, quoted);
        self.settle_called();
    }

    /// Returns whether a packet with these ports between these addresses belongs to an association or a
    /// listener. Other packets are left to other stacks that share the address.
    pub fn owns(&self, addressing: &Addressing, source_port: u16, destination_port: u16) -> bool {
        self.endpoint.owns(addressing, source_port, destination_port)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.endpoint.counters()
    }

    /// Returns the number of associations, including ended ones with unread messages.
    pub fn len(&self) -> usize {
        self.endpoint.len()
    }

    /// Returns whether there is no association.
    pub fn is_empty(&self) -> bool {
        self.endpoint.is_empty()
    }

    /// Settles the associations that the endpoint has called.
    fn settle_called(&mut self) {
        while let Some(id) = self.table.next_called() {
            self.settle(id);
        }
    }
}

impl ringway_sansio::Endpoint for Sctp {
    fn handle_packet(&mut self, now: Time, addressing: Addressing, payload: &[u8]) {
        self.endpoint.handle_packet(now, &mut self.table, &addressing, payload);
        self.settle_called();
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((at, slot)) = self.table.deadlines.first()
            && at <= now
        {
            let Some((id, association)) = self.table.at(slot) else {
                self.table.deadlines.set(slot, None);
                continue;
            };
            association.handle_timeout(&mut Cx { now, random: &mut *self.endpoint.random });
            let next = association.poll_timeout();
            self.table.deadlines.set(slot, next);
            self.settle(id);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.table.deadlines.first().map(|(at, _)| at)
    }

    fn poll_transmit(&mut self, now: Time, payload: &mut Vec<u8>) -> Option<Addressing> {
        if let Some(way) = self.endpoint.poll_transmit(payload) {
            return Some(way);
        }
        while let Some(slot) = self.table.first_ready() {
            if let Some((_, association)) = self.table.at(slot) {
                let mut cx = Cx { now, random: &mut *self.endpoint.random };
                let sent = association.poll_transmit(&mut cx, payload);
                let events = association.has_events();
                let deadline = if sent.is_none() { association.poll_timeout() } else { None };
                // A message may have been abandoned instead of sent.
                if events {
                    self.table.notify(slot);
                }
                if sent.is_some() {
                    return sent;
                }
                self.table.deadlines.set(slot, deadline);
            }
            self.table.rest();
        }
        None
    }
}
