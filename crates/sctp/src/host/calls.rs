//! The user's calls of one association.

use super::Sctp;
use crate::association::{Association, Cx, Reset, Snapshot};
use crate::endpoint::{AssocId, Settled};
use crate::error::{
    AddressError, CallError, KeyError, NoAssociation, NoPath, NoStream, SendError, SetKeyError,
    StreamError,
};
use crate::incoming::Received;
use crate::outgoing::SendOptions;
use crate::wire::asconf::AddressChange;
use bytes::Bytes;
use ringway_sansio::Time;
use std::net::IpAddr;

impl Sctp {
    /// Calls an association and queues it to send.
    fn call<R, E>(
        &mut self,
        id: AssocId,
        call: impl FnOnce(&mut Association) -> Result<R, E>,
    ) -> Result<R, CallError<E>> {
        let association = self.table.get_mut(id).ok_or(CallError::NoAssociation)?;
        let result = call(association).map_err(CallError::Refused)?;
        self.table.wake(id.slot);
        Ok(result)
    }

    /// Calls an association with the time and the random source, and settles it.
    fn call_at<R>(
        &mut self,
        now: Time,
        id: AssocId,
        call: impl FnOnce(&mut Association, &mut Cx<'_>) -> R,
    ) -> Result<R, NoAssociation> {
        let association = self.table.get_mut(id).ok_or(NoAssociation)?;
        let result = call(association, &mut Cx { now, random: &mut *self.endpoint.random });
        self.settle(id);
        Ok(result)
    }

    fn read<R>(
        &self,
        id: AssocId,
        read: impl FnOnce(&Association) -> R,
    ) -> Result<R, NoAssociation> {
        self.table.get(id).map(read).ok_or(NoAssociation)
    }

    /// Queues a message. Its bytes are shared until they are acknowledged, not copied.
    pub fn send(
        &mut self,
        now: Time,
        id: AssocId,
        options: &SendOptions,
        data: impl Into<Bytes>,
    ) -> Result<(), CallError<SendError>> {
        self.call(id, |association| association.send(now, options, data.into()))
    }

    /// Appends the next message, or part of one, to `out`. Returns `None` when none is waiting.
    pub fn recv(
        &mut self,
        id: AssocId,
        out: &mut Vec<u8>,
    ) -> Result<Option<Received>, NoAssociation> {
        let association = self.table.get_mut(id).ok_or(NoAssociation)?;
        let received = association.recv(out);
        if association.is_spent() {
            self.settle(id);
        } else if association.owes_ack() {
            self.table.wake(id.slot);
        }
        Ok(received)
    }

    /// Shuts an association down gracefully: queued messages are delivered first (RFC 9260 section
    /// 9.2).
    pub fn shutdown(&mut self, now: Time, id: AssocId) -> Result<(), NoAssociation> {
        self.call_at(now, id, Association::shutdown)
    }

    /// Aborts an association and releases it. The peer receives `reason`, and no event follows (RFC
    /// 9260 section 9.1).
    pub fn abort(&mut self, id: AssocId, reason: &[u8]) -> Result<(), NoAssociation> {
        let association = self.table.get_mut(id).ok_or(NoAssociation)?;
        association.abort(reason);
        self.endpoint.remove(id, association);
        self.table.remove(id);
        Ok(())
    }

    /// Sets the primary path to an address of the peer (RFC 9260 section 11.1.6).
    pub fn set_primary(&mut self, id: AssocId, remote: IpAddr) -> Result<(), CallError<NoPath>> {
        self.call(id, |association| association.set_primary(remote))
    }

    /// Sends a heartbeat to an address of the peer now (RFC 9260 section 11.1.10).
    pub fn request_heartbeat(
        &mut self,
        id: AssocId,
        remote: IpAddr,
    ) -> Result<(), CallError<NoPath>> {
        self.call(id, |association| association.request_heartbeat(remote))
    }

    /// Returns the state of an association.
    pub fn snapshot(&self, id: AssocId) -> Result<Snapshot, NoAssociation> {
        self.read(id, Association::snapshot)
    }

    /// Returns the ports of an association: the local one and the peer's.
    pub fn ports(&self, id: AssocId) -> Result<(u16, u16), NoAssociation> {
        self.read(id, Association::ports)
    }

    /// Returns the addresses of an association: the local ones that it may send from, and the peer's.
    pub fn addresses(&self, id: AssocId) -> Result<(Vec<IpAddr>, Vec<IpAddr>), NoAssociation> {
        self.read(id, Association::addresses)
    }

    /// Adds a local address (RFC 5061). It is used as a source after
    /// [`Change::AddressAdded`](crate::Change::AddressAdded).
    pub fn add_address(
        &mut self,
        now: Time,
        id: AssocId,
        local: IpAddr,
    ) -> Result<(), CallError<AddressError>> {
        self.change_address(now, id, AddressChange::Add(local))
    }

    /// Deletes a local address (RFC 5061), but not the last one. It is no longer used as a source.
    /// Packets to it are accepted until [`Change::AddressDeleted`](crate::Change::AddressDeleted).
    pub fn delete_address(
        &mut self,
        now: Time,
        id: AssocId,
        local: IpAddr,
    ) -> Result<(), CallError<AddressError>> {
        self.change_address(now, id, AddressChange::Delete(local))
    }

    /// Requests that the peer send to a local address (RFC 5061).
    pub fn request_primary(
        &mut self,
        now: Time,
        id: AssocId,
        local: IpAddr,
    ) -> Result<(), CallError<AddressError>> {
        self.change_address(now, id, AddressChange::Primary(local))
    }

    fn change_address(
        &mut self,
        now: Time,
        id: AssocId,
        change: AddressChange,
    ) -> Result<(), CallError<AddressError>> {
        let called =
            self.call_at(now, id, |association, cx| association.change_address(cx, change));
        called.map_err(|NoAssociation| CallError::NoAssociation)?.map_err(CallError::Refused)
    }

    /// See [`Association::set_auth_key`].
    pub fn set_auth_key(
        &mut self,
        id: AssocId,
        key: u16,
        secret: &[u8],
    ) -> Result<(), CallError<SetKeyError>> {
        self.call(id, |association| association.set_auth_key(key, secret))
    }

    /// See [`Association::use_auth_key`].
    pub fn use_auth_key(&mut self, id: AssocId, key: u16) -> Result<(), CallError<KeyError>> {
        self.call(id, |association| association.use_auth_key(key))
    }

    /// See [`Association::delete_auth_key`].
    pub fn delete_auth_key(&mut self, id: AssocId, key: u16) -> Result<(), CallError<KeyError>> {
        self.call(id, |association| association.delete_auth_key(key))
    }

    /// Resets streams (RFC 6525). A local stream accepts no messages until
    /// [`Change::StreamsReset`](crate::Change::StreamsReset). Messages accepted before are sent first.
    pub fn reset_streams(
        &mut self,
        id: AssocId,
        reset: Reset<'_>,
    ) -> Result<(), CallError<StreamError>> {
        self.call(id, |association| association.reset_streams(reset))
    }

    /// See [`Association::set_stream_value`].
    pub fn set_stream_value(
        &mut self,
        id: AssocId,
        stream: u16,
        value: u16,
    ) -> Result<(), CallError<NoStream>> {
        self.call(id, |association| association.set_stream_value(stream, value))
    }

    /// Requests a number of additional streams in each direction (RFC 6525).
    /// [`Change::Streams`](crate::Change::Streams) follows.
    pub fn add_streams(
        &mut self,
        id: AssocId,
        outgoing: u16,
        incoming: u16,
    ) -> Result<(), CallError<StreamError>> {
        self.call(id, |association| association.add_streams(outgoing, incoming))
    }

    /// Updates the tables and queues after a call of an association. Its deadline is set once it has nothing
    /// left to send, which is always polled next.
    pub(super) fn settle(&mut self, id: AssocId) {
        let Some(association) = self.table.get_mut(id) else { return };
        let notify = association.has_events();
        if self.endpoint.settle(id, association) == Settled::Released {
            self.table.remove(id);
            return;
        }
        if notify {
            self.table.notify(id.slot);
        }
        self.table.wake(id.slot);
    }
}
