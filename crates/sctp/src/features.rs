//! The extensions that an association has negotiated in INIT and INIT ACK.

use crate::settings::Settings;
use crate::wire::InitParameters;
use crate::wire::chunk::kind;

/// The error detection method identifier of SCTP over DTLS (RFC 9653).
pub(crate) const OVER_DTLS: u32 = 1;

/// A set of extensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Features(u16);

impl Features {
    /// Partial reliability (RFC 3758).
    pub(crate) const FORWARD: Features = Features(1);
    /// Re-configuration of streams (RFC 6525).
    pub(crate) const RECONFIG: Features = Features(1 << 1);

    /// Dynamic addresses (RFC 5061) in authenticated chunks (RFC 4895).
    pub(crate) const ASCONF: Features = Features(1 << 2);

    /// I-DATA (RFC 8260).
    pub(crate) const INTERLEAVE: Features = Features(1 << 3);
    /// I-FORWARD-TSN (RFC 8260).
    const I_FORWARD: Features = Features(1 << 4);

    /// Explicit congestion notification (RFC 4960 appendix A).
    pub(crate) const ECN: Features = Features(1 << 5);
    /// Checksums of zero (RFC 9653) over DTLS.
    pub(crate) const ZERO_CHECKSUM: Features = Features(1 << 6);

    /// NR-SACK (draft-natarajan-tsvwg-sctp-nrsack).
    pub(crate) const NR_SACK: Features = Features(1 << 7);

    pub(crate) const fn has(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the extensions that two endpoints have in common.
    pub(crate) const fn both(self, other: Features) -> Features {
        let both = Features(self.0 & other.0);
        // RFC 8260 section 2.3.1.
        if both.has(Features::INTERLEAVE) && !both.has(Features::I_FORWARD) {
            return both.without(Features::FORWARD);
        }
        both
    }

    /// Returns the bits for a State Cookie.
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u16) -> Features {
        Features(bits)
    }

    pub(crate) const fn without(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }

    fn when(self, condition: bool) -> Features {
        if condition { self } else { Features(0) }
    }

    fn with(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// Returns the extensions that the settings offer.
    pub(crate) fn offered(settings: &Settings) -> Features {
        Features::default()
            .with(Features::FORWARD.when(settings.partial_reliability))
            .with(Features::RECONFIG.when(settings.reconfiguration))
            .with(Features::ASCONF.when(settings.dynamic_addresses))
            .with(Features::INTERLEAVE.when(settings.interleaving))
            .with(Features::ECN.when(settings.ecn))
            .with(Features::NR_SACK.when(settings.final_acks))
            .with(Features::ZERO_CHECKSUM.when(settings.over_dtls))
            .with(Features::I_FORWARD.when(settings.interleaving && settings.partial_reliability))
    }

    /// Returns the extensions that the peer declares.
    pub(crate) fn declared(parameters: &InitParameters) -> Features {
        // RFC 5061 section 4.2.7: not without authentication.
        let asconf = [kind::ASCONF, kind::ASCONF_ACK].iter().all(|k| parameters.takes(*k))
            && parameters.auth.as_ref().is_some_and(|auth| auth.is_complete());
        Features::default()
            .with(Features::FORWARD.when(parameters.takes(kind::FORWARD_TSN)))
            .with(Features::RECONFIG.when(parameters.takes(kind::RE_CONFIG)))
            .with(Features::ASCONF.when(asconf))
            .with(Features::INTERLEAVE.when(parameters.takes(kind::I_DATA)))
            .with(Features::ECN.when(parameters.ecn))
            .with(Features::NR_SACK.when(parameters.takes(kind::NR_SACK)))
            .with(Features::ZERO_CHECKSUM.when(parameters.zero_checksum == Some(OVER_DTLS)))
            .with(Features::I_FORWARD.when(parameters.takes(kind::I_FORWARD_TSN)))
    }

    /// Returns the chunk types for Supported Extensions (RFC 5061 section 4.2.7).
    pub(crate) fn chunk_types(self) -> Vec<u8> {
        let mut types = Vec::new();
        for (feature, kinds) in [
            (Features::FORWARD, &[kind::FORWARD_TSN][..]),
            (Features::RECONFIG, &[kind::RE_CONFIG]),
            (Features::ASCONF, &[kind::AUTH, kind::ASCONF, kind::ASCONF_ACK]),
            (Features::INTERLEAVE, &[kind::I_DATA]),
            (Features::I_FORWARD, &[kind::I_FORWARD_TSN]),
            (Features::NR_SACK, &[kind::NR_SACK]),
        ] {
            if self.has(feature) {
                types.extend_from_slice(kinds);
            }
        }
        types
    }
}
