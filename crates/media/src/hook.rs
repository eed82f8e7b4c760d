//! What a proxy calls when it forwards a message.

use crate::relay::{Forwarded, Refusal};
use ringway_sansio::Time;

/// The media relay of a server, which all its workers share.
///
/// A proxy calls it for every message of a dialog that it forwards, also for those without a body: they begin, confirm and
/// end dialogs. A message is shown once for each branch, before it is written. A body that is returned replaces
/// the message's own, and its Content-Length that of its own. No method waits.
pub trait MediaRelay: Send + Sync {
    /// A request is forwarded; see [`Relay::request`](crate::Relay::request).
    ///
    /// # Errors
    /// The branch is to be treated as if its target had answered with the status of the refusal.
    fn request(&self, now: Time, request: &Forwarded<'_>) -> Result<Option<Vec<u8>>, Refusal>;

    /// A response is forwarded, or a final response that is not forwarded ends its branch; see
    /// [`Relay::response`](crate::Relay::response).
    fn response(&self, now: Time, response: &Forwarded<'_>) -> Option<Vec<u8>>;

    /// A branch has ended without a response; see [`Relay::ended`](crate::Relay::ended).
    fn ended(&self, branch: u64);
}
