//! The user's calls of the extensions.

use super::{AssocId, Sctp};
use crate::association::{Association, Reset};
use crate::settings::Error;
use crate::wire::asconf::AddressChange;
use ringway_sansio::Time;
use std::net::IpAddr;

impl Sctp {
    /// Calls an association, which may then have something to send.
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

    /// Adds an address of ours (RFC 5061). Packets come from it once
    /// [`Change::AddressAdded`](crate::Change::AddressAdded) is told.
    pub fn add_address(&mut self, now: Time, id: AssocId, local: IpAddr) -> Result<(), Error> {
        self.change_address(now, id, AddressChange::Add(local))
    }

    /// Deletes an address of ours (RFC 5061), not the last; nothing more comes from it. Packets to
    /// it are taken until [`Change::AddressDeleted`](crate::Change::AddressDeleted).
    pub fn delete_address(&mut self, now: Time, id: AssocId, local: IpAddr) -> Result<(), Error> {
        self.change_address(now, id, AddressChange::Delete(local))
    }

    /// Asks the peer to send to an address of ours (RFC 5061).
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

    /// Sets an endpoint pair shared key (RFC 4895 section 4.1): a secret that both ends know, and the
    /// number by which they name it. Number 0 stands for an empty one until it is set. An association that
    /// is up knows by then whether the peer authenticates at all.
    pub fn set_auth_key(&mut self, id: AssocId, key: u16, secret: &[u8]) -> Result<(), Error> {
        self.call(id, |association| association.keys()?.set_key(key, secret))
    }

    /// Authenticates with a key from now on. The peer's chunks are taken with any that is set.
    pub fn use_auth_key(&mut self, id: AssocId, key: u16) -> Result<(), Error> {
        self.call(id, |association| association.keys()?.use_key(key))
    }

    /// Forgets a key that is set and not authenticated with: nothing more is taken with it.
    pub fn delete_auth_key(&mut self, id: AssocId, key: u16) -> Result<(), Error> {
        self.call(id, |association| association.keys()?.delete_key(key))
    }

    /// Begins streams anew (RFC 6525). A stream that we send on takes no messages until
    /// [`Change::StreamsReset`](crate::Change::StreamsReset); what was given before goes out before.
    pub fn reset_streams(&mut self, id: AssocId, reset: Reset<'_>) -> Result<(), Error> {
        self.call(id, |association| association.reset_streams(reset))
    }

    /// Sets what the scheduler goes by for a stream (RFC 8260): its weight, or its priority, of which
    /// 0 is the highest.
    pub fn set_stream_value(&mut self, id: AssocId, stream: u16, value: u16) -> Result<(), Error> {
        self.call(id, |association| association.set_stream_value(stream, value))
    }

    /// Asks for so many more streams to send on, and for the peer to send on (RFC 6525).
    /// [`Change::Streams`](crate::Change::Streams) follows.
    pub fn add_streams(&mut self, id: AssocId, outgoing: u16, incoming: u16) -> Result<(), Error> {
        self.call(id, |association| association.add_streams(outgoing, incoming))
    }
}
