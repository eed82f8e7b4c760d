//! The user's calls of extensions, and what an association is between.

use super::Association;
use crate::error::{KeyError, NoPath, SetKeyError};
use std::net::IpAddr;

impl Association {
    /// Returns the ports: the local one and the peer's.
    pub fn ports(&self) -> (u16, u16) {
        (self.ends.local_port, self.ends.remote_port)
    }

    /// Returns the verification tag of packets to the local endpoint (RFC 9260 section 3.1).
    pub fn tag(&self) -> u32 {
        self.tags.local
    }

    /// Returns whether [`Endpoint::settle`](crate::Endpoint::settle) has something to do, because the addresses or the tag
    /// may have changed or the association has ended. Cheaper than that call, and needs no endpoint.
    #[inline]
    pub fn is_unsettled(&self) -> bool {
        self.previous_identity.is_some() || self.is_closed()
    }

    /// Returns the addresses: the local ones that it may send from, and the peer's.
    pub fn addresses(&self) -> (Vec<IpAddr>, Vec<IpAddr>) {
        (self.ends.locals.clone(), self.remotes().collect())
    }

    /// Sends a heartbeat to an address of the peer now (RFC 9260 section 11.1.10).
    pub fn request_heartbeat(&mut self, remote: IpAddr) -> Result<(), NoPath> {
        let path = self.path_to(remote).ok_or(NoPath { remote })?;
        self.send_heartbeat(path);
        Ok(())
    }

    /// Sets an endpoint pair shared key (RFC 4895 section 4.1): a secret that both endpoints know, and its key
    /// identifier. Identifier 0 is an empty key until it is set. Fails with [`SetKeyError::NotSupported`] if the peer does not
    /// authenticate chunks, which is known once the association is established.
    pub fn set_auth_key(&mut self, key: u16, secret: &[u8]) -> Result<(), SetKeyError> {
        self.keys().ok_or(SetKeyError::NotSupported)?.set_key(key, secret)
    }

    /// Uses a key to send from now on. Received chunks are accepted with any key that is set.
    pub fn use_auth_key(&mut self, key: u16) -> Result<(), KeyError> {
        self.keys().ok_or(KeyError::NotSupported)?.use_key(key)
    }

    /// Deletes a key that is set and not used to send. Chunks authenticated with it are no longer accepted.
    pub fn delete_auth_key(&mut self, key: u16) -> Result<(), KeyError> {
        self.keys().ok_or(KeyError::NotSupported)?.delete_key(key)
    }
}
