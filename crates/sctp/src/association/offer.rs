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
