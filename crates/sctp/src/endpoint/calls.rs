//! The user's calls of extensions.

use super::{AssocId, Sctp};
use crate::association::{Association, Reset};
use crate::settings::Error;
use crate::wire::asconf::AddressChange;
use ringway_sansio::Time;
use std::net::IpAddr;

impl Sctp {
    /// Calls an association and queues it to send.
    fn call<R>(
        &mut self,
        id: AssocId,
        call: impl FnOnce(&mut Association) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let result = call(self.association_mut(slot).ok_or(Error::NoAssociation)?)?;
        self.wake(slot);
        Ok(result)
    }

    /// Adds a local address (RFC 5061). It is used as a source after
    /// [`Change::AddressAdded`](crate::Change::AddressAdded).
    pub fn add_address(&mut self, now: Time, id: AssocId, local: IpAddr) -> Result<(), Error> {
        self.change_address(now, id, AddressChange::Add(local))
    }

    /// Deletes a local address (RFC 5061), but not the last one. It is no longer used as a source.
    /// Packets to it are accepted until [`Change::AddressDeleted`](crate::Change::AddressDeleted).
    pub fn delete_address(&mut self, now: Time, id: AssocId, local: IpAddr) -> Result<(), Error> {
        self.change_address(now, id, AddressChange::Delete(local))
    }

    /// Requests that the peer send to a local address (RFC 5061).
    pub fn request_primary(&mut self, now: Time, id: AssocId, local: IpAddr) -> Result<(), Error> {
        self.change_address(now, id, AddressChange::Primary(local))
    }

    fn change_address(
        &mut self,
        now: Time,
        id: AssocId,
        change: AddressChange,
    ) -> Result<(), Error> {
        let slot = self.slot(id).ok_or(Error::NoAssociation)?;
        let listed = self.unlist(slot);
        let result = self.with(now, slot, |association, cx| association.change_address(cx, change));
        if listed {
            self.list(slot);
        }
        self.settle(slot);
        result.unwrap_or(Err(Error::NoAssociation))
    }

    /// Sets an endpoint pair shared key (RFC 4895 section 4.1): a secret that both endpoints know, and
    /// its key identifier. Identifier 0 is an empty key until it is set. The call fails with
    /// [`Error::NotSupported`] if the peer does not authenticate chunks, which is known once the
    /// association is established.
    pub fn set_auth_key(&mut self, id: AssocId, key: u16, secret: &[u8]) -> Result<(), Error> {
        self.call(id, |association| association.keys()?.set_key(key, secret))
    }

    /// Uses a key to send from now on. Received chunks are accepted with any key that is set.
    pub fn use_auth_key(&mut self, id: AssocId, key: u16) -> Result<(), Error> {
        self.call(id, |association| association.keys()?.use_key(key))
    }

    /// Deletes a key that is set and not used to send. Chunks authenticated with it are no longer
    /// accepted.
    pub fn delete_auth_key(&mut self, id: AssocId, key: u16) -> Result<(), Error> {
        self.call(id, |association| association.keys()?.delete_key(key))
    }

    /// Resets streams (RFC 6525). A local stream accepts no messages until
    /// [`Change::StreamsReset`](crate::Change::StreamsReset). Messages accepted before are sent first.
    pub fn reset_streams(&mut self, id: AssocId, reset: Reset<'_>) -> Result<(), Error> {
        self.call(id, |association| association.reset_streams(reset))
    }

    /// Sets the scheduler's value of a stream (RFC 8260): its weight, or its priority, of which 0 is
    /// the highest.
    pub fn set_stream_value(&mut self, id: AssocId, stream: u16, value: u16) -> Result<(), Error> {
        self.call(id, |association| association.set_stream_value(stream, value))
    }

    /// Requests a number of additional streams in each direction (RFC 6525).
    /// [`Change::Streams`](crate::Change::Streams) follows.
    pub fn add_streams(&mut self, id: AssocId, outgoing: u16, incoming: u16) -> Result<(), Error> {
        self.call(id, |association| association.add_streams(outgoing, incoming))
    }
}
