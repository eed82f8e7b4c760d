//! Feature numbers and the shape of their values (RFC 4340 section 6.4, RFC 4342 section 8.4).

/// Smallest value of Sequence Window (RFC 4340 section 7.5.2).
pub const MIN_SEQUENCE_WINDOW: u64 = 32;
/// Largest value of Sequence Window (RFC 4340 section 7.5.2).
pub const MAX_SEQUENCE_WINDOW: u64 = (1 << 46) - 1;

/// A feature that this endpoint knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Feature {
    /// 1: the congestion control of the data that the feature's location sends.
    Ccid,
    /// 2: whether the location may send short sequence numbers.
    AllowShortSeqnos,
    /// 3: the width of the windows of sequence numbers that the location sends.
    SequenceWindow,
    /// 4: whether the location cannot read ECN marks.
    EcnIncapable,
    /// 5: the number of data packets of the location for each acknowledgement.
    AckRatio,
    /// 6: whether the location sends Ack Vectors.
    SendAckVector,
    /// 7: whether the location sends NDP Counts.
    SendNdpCount,
    /// 8: the checksum coverage that the location requires.
    MinChecksumCoverage,
    /// 9: whether the location checks Data Checksums.
    CheckDataChecksum,
    /// 192: whether the location, a receiver of CCID 3, sends Loss Event Rates.
    SendLossEventRate,
}

/// All features, in the order of their numbers.
pub(crate) const ALL: [Feature; 10] = [
    Feature::Ccid,
    Feature::AllowShortSeqnos,
    Feature::SequenceWindow,
    Feature::EcnIncapable,
    Feature::AckRatio,
    Feature::SendAckVector,
    Feature::SendNdpCount,
    Feature::MinChecksumCoverage,
    Feature::CheckDataChecksum,
    Feature::SendLossEventRate,
];

impl Feature {
    /// Returns the number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Feature::SendLossEventRate => 192,
            other => other as u8 + 1,
        }
    }

    /// Returns the feature with this number.
    pub fn from_number(number: u8) -> Option<Feature> {
        ALL.into_iter().find(|feature| feature.number() == number)
    }

    /// Returns whether the location alone decides the value (RFC 4340 section 6.3.2).
    pub const fn is_non_negotiable(self) -> bool {
        matches!(self, Feature::SequenceWindow | Feature::AckRatio)
    }

    /// Returns the value that a connection begins with (RFC 4340 table 4).
    pub const fn initial(self) -> u64 {
        match self {
            Feature::Ccid | Feature::AckRatio => 2,
            Feature::SequenceWindow => 100,
            _ => 0,
        }
    }

    /// Returns whether the standard allows a value.
    pub const fn allows(self, value: u64) -> bool {
        match self {
            Feature::Ccid => value <= 255,
            Feature::SequenceWindow => MIN_SEQUENCE_WINDOW <= value && value <= MAX_SEQUENCE_WINDOW,
            Feature::AckRatio => 1 <= value && value <= 65_535,
            Feature::MinChecksumCoverage => value <= 15,
            _ => value <= 1,
        }
    }

    /// Returns the number of bytes of a value on the wire.
    pub const fn width(self) -> usize {
        match self {
            Feature::SequenceWindow => 6,
            Feature::AckRatio => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4340 table 4, RFC 4342 section 8.4.
    #[test]
    fn numbers_go_both_ways() {
        let numbers: Vec<u8> = ALL.into_iter().map(Feature::number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 192]);
        for feature in ALL {
            assert_eq!(Feature::from_number(feature.number()), Some(feature));
            assert!(feature.allows(feature.initial()));
        }
        assert_eq!(Feature::from_number(10), None);
        assert!(!Feature::SequenceWindow.allows(31));
    }
}
