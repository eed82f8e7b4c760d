//! The proof of a request's sender.

use std::sync::Arc;

/// The proof of a request's sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Proof {
    /// Nothing was asked for, and nothing was proved.
    None,
    /// A trusted peer, or a network without digest.
    Trusted,
    /// A dialog that this proxy has record-routed. It leads to the peer only, and never by a routing rule.
    Dialog,
    /// A router of the mesh, which vouches for the sender or not. It leads to our own users, and by
    /// routing rules that are shared if the router vouches.
    Router { vouched: bool },
    /// Valid digest credentials of this user in this realm, the name of a domain of ours.
    Digest { realm: Arc<str>, user: Box<[u8]> },
}
