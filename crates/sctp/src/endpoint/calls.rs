//! The user's calls of the extensions.

use super::{AssocId, Sctp};
use crate::association::{Association, Reset};
use crate::settings::Error;

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

    /// Begins streams anew (RFC 6525). A stream that we send on takes no messages until
    /// [`Change::StreamsReset`](crate::Change::StreamsReset); what was given before goes out before.
    pub fn reset_streams(&mut self, id: AssocId, reset: Reset<'_>) -> Result<(), Error> {
        self.call(id, |association| association.reset_streams(reset))
    }

    /// Asks for so many more streams to send on, and for the peer to send on (RFC 6525).
    /// [`Change::Streams`](crate::Change::Streams) follows.
    pub fn add_streams(&mut self, id: AssocId, outgoing: u16, incoming: u16) -> Result<(), Error> {
        self.call(id, |association| association.add_streams(outgoing, incoming))
    }
}
