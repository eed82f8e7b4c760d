//! The media relay, as the parts of a core call it (`docs/media.md`).

use super::locator::Destination;
use super::node::Node;
use ringway_media::relay::Forwarded;
use ringway_media::{Leg, MediaRelay, Refusal};
use ringway_sansio::{Flow, Time};
use ringway_sip::message::{Message, Method};
use ringway_sip::transaction::ClientId;
use std::sync::Arc;

/// The media relay, if the server has one. Without one nothing is looked at.
pub(super) struct Media(Option<Arc<dyn MediaRelay>>);

impl Media {
    pub(super) fn new(relay: Option<Arc<dyn MediaRelay>>) -> Media {
        Media(relay)
    }

    /// Returns whether there is a relay. Dialogs must then not pass this server by, or it cannot follow them.
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the relay, if a message matters to it. All workers share it, so it is not locked for any other.
    fn relay(&self, msg: &Message<'_>) -> Option<&dyn MediaRelay> {
        let relay = self.0.as_deref()?;
        let matters = matches!(
            msg.method(),
            Method::Invite | Method::Ack | Method::Bye | Method::Prack | Method::Update
        );
        matters.then_some(relay)
    }

    /// Reports that a branch has ended without a final response.
    pub(super) fn ended(&self, client: ClientId) {
        if let Some(relay) = &self.0 {
            relay.ended(client.nonce());
        }
    }
}

impl Node {
    /// Shows a request that is about to be forwarded to the media relay. Returns the body to forward instead of its own,
    /// if it must be another one.
    pub(super) fn relay_request(
        &self,
        now: Time,
        message: &Message<'_>,
        from: &Flow,
        to: &Destination,
        client: Option<ClientId>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(relay) = self.media.relay(message) else { return Ok(None) };
        let to = Flow { local: to.local, remote: to.target.remote(), ..*from };
        let branch = client.map(ClientId::nonce);
        relay.request(now, &Forwarded { message, from: self.leg(from), to: self.leg(&to), branch })
    }

    /// Shows a response from `from` to `to` to the media relay. Returns the body to forward instead of its own, if it must
    /// be another one.
    pub(super) fn relay_response(
        &self,
        now: Time,
        message: &Message<'_>,
        from: &Flow,
        to: &Flow,
        client: Option<ClientId>,
    ) -> Option<Vec<u8>> {
        let relay = self.media.relay(message)?;
        let branch = client.map(ClientId::nonce);
        relay.response(now, &Forwarded { message, from: self.leg(from), to: self.leg(to), branch })
    }

    /// Returns the side of a dialog that has these addresses. Routers and trusted peers stand for many users.
    fn leg(&self, flow: &Flow) -> Leg {
        let (local, remote) = (flow.local.ip(), flow.remote.ip());
        let many = self.trust.router(flow).is_some() || self.trust.is_trusted(remote);
        Leg { local, remote, many }
    }
}
