//! What the thread of states needs of other servers.

use ringway_follow::{ServerId, Whereabouts};
use ringway_proxy::AskId;
use ringway_sansio::Time;

/// The way to other servers. Nothing of it may wait.
pub(crate) trait Link: Send + 'static {
    /// What names a server.
    type Id: ServerId + Send + 'static;

    /// Sends a message. Returns whether there was room for it.
    fn send(&mut self, to: Self::Id, octets: Box<[u8]>) -> bool;

    /// Asks where a user is registered.
    fn locate(&mut self, now: Time, name: &str) -> Whereabouts<Self::Id>;

    /// A question is answered. Returns its user, and where that is registered.
    fn answered(&mut self, _now: Time, _id: AskId) -> Option<(Box<str>, Whereabouts<Self::Id>)> {
        None
    }

    /// A user is followed at other servers, or not any more.
    fn set_followed(&mut self, name: &str, is_followed: bool);

    /// Returns the servers that live, if that is known.
    fn alive(&mut self) -> Option<Vec<Self::Id>> {
        None
    }
}
