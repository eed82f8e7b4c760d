//! What becomes of a search when somebody states that a prefix has no owner.

use ringway_sansio::Time;

use super::peer::Search;
use super::{Peer, SessionAction, Sessions};
use crate::crypto::Crypto;
use crate::id::NodeId;
use crate::wire::MessageId;

impl<C: Crypto> Sessions<C> {
    /// A router has stated that the prefix is not its own, of whose key it says it is responsible. `is_closest` is asked
    /// whether that may be. One statement may be of somebody on the way: the question goes another way. And the ring may be
    /// incomplete for a moment: a statement of the same router is believed 0.6 s after its first.
    pub fn not_responsible(
        &mut self,
        now: Time,
        id: MessageId,
        by: NodeId,
        is_closest: impl FnOnce(NodeId) -> bool,
        out: &mut Vec<SessionAction>,
    ) {
        let is_it = |peer: &Peer<C>| peer.search.as_ref().is_some_and(|search| search.id == id);
        let Some((&track, peer)) = self.peers.iter_mut().find(|(_, peer)| is_it(peer)) else {
            return;
        };
        let Some(search) = &mut peer.search else { return };
        if !is_closest(track.prefix().key()) {
            search.hurry();
            return;
        }
        if search.is_denied(now, by) {
            self.denied(now, track, out);
        }
    }

    /// Somebody on the way has lied about a question, which another router there knows.
    pub(crate) fn misled(&mut self, id: MessageId) {
        let mut searches = self.peers.values_mut().filter_map(|peer| peer.search.as_mut());
        searches.find(|search| search.id == id).into_iter().for_each(Search::hurry);
    }
}
