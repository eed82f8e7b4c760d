//! What the endpoints offer each other in INIT and INIT ACK, and what they agree on.

use crate::Tsn;
use crate::auth::Agreed;
use crate::features::{Features, OVER_DTLS};
use crate::settings::Settings;
use crate::wire::InitParameters;
use std::net::IpAddr;

/// The negotiated properties of an association, which a State Cookie holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) local_tag: u32,
    pub(crate) peer_tag: u32,
    pub(crate) local_tsn: Tsn,
    pub(crate) peer_tsn: Tsn,
    pub(crate) peer_rwnd: u32,
    /// Maximum number of streams of the local endpoint and of the peer.
    pub(crate) streams: (u16, u16),
    pub(crate) ties: (u32, u32),
    /// The extensions that both endpoints support.
    pub(crate) features: Features,
    /// How chunks are authenticated.
    pub(crate) auth: Option<Agreed>,
    /// The destination and the source address of the INIT.
    pub(crate) local: IpAddr,
    pub(crate) source: IpAddr,
    /// The addresses listed in the INIT.
    pub(crate) addresses: Vec<IpAddr>,
    /// Whether the INIT ACK listed no local address, so that the association has `local` alone.
    pub(crate) alone: bool,
}

/// What both endpoints have agreed on. Until the peer's offer arrives it is what the local endpoint proposes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agreement {
    /// The first TSN of the local endpoint and that of the peer.
    pub(super) initial_tsns: (Tsn, Tsn),
    /// Number of streams of the local endpoint and of the peer.
    pub(super) streams: (u16, u16),
    features: Features,
}

impl Agreement {
    /// Returns what the local endpoint proposes.
    pub(super) fn proposed(settings: &Settings, initial_tsn: Tsn) -> Agreement {
        Agreement {
            initial_tsns: (initial_tsn, Tsn::new(0)),
            streams: (settings.outbound_streams, settings.inbound_streams),
            features: Features::default(),
        }
    }

    /// Returns what an offer agrees on.
    pub(super) fn of(offer: &Offer) -> Agreement {
        let &Offer { local_tsn, peer_tsn, streams, features, .. } = offer;
        Agreement { initial_tsns: (local_tsn, peer_tsn), streams, features }
    }

    /// Returns whether both endpoints support an extension.
    #[inline]
    pub(super) fn has(&self, feature: Features) -> bool {
        self.features.has(feature)
    }

    /// Removes an extension that the peer turns out not to support.
    pub(super) fn drop_feature(&mut self, feature: Features) {
        self.features = self.features.without(feature);
    }
}

/// Returns the local parameters of INIT and INIT ACK. A single address is that of the packet itself.
pub(crate) fn local_parameters(locals: &[IpAddr], settings: &Settings) -> InitParameters {
    InitParameters {
        addresses: if locals.len() > 1 { locals.to_vec() } else { Vec::new() },
        // With one address, the packet shows the family, and some peers refuse the parameter.
        address_types: (locals.len() > 1)
            .then(|| (locals.iter().any(IpAddr::is_ipv4), locals.iter().any(IpAddr::is_ipv6))),
        ecn: settings.ecn,
        zero_checksum: settings.over_dtls.then_some(OVER_DTLS),
        forward_tsn: settings.partial_reliability,
        extensions: Features::offered(settings).chunk_types(),
        ..InitParameters::default()
    }
}
