//! Reset codes and their data (RFC 4340 section 5.6, RFC 6773 section 7.2).

/// The reason of a Reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ResetCode {
    /// 0: no reason is given.
    Unspecified,
    /// 1: the connection was closed normally.
    Closed,
    /// 2: the sender gave the connection up, for instance because the peer made no progress.
    Aborted,
    /// 3: no connection exists.
    NoConnection,
    /// 4: a packet with an unexpected type arrived. Data 1 is the type.
    PacketError,
    /// 5: an option was erroneous. Data 1 is its type, Data 2 and 3 the first bytes of its value.
    OptionError,
    /// 6: a mandatory option was not understood. Data as for an option error.
    MandatoryError,
    /// 7: the port exists, and refuses the connection.
    ConnectionRefused,
    /// 8: the service code is not that of the port.
    BadServiceCode,
    /// 9: the server is too busy.
    TooBusy,
    /// 10: the Init Cookie was wrong or missing.
    BadInitCookie,
    /// 11: the peer's congestion control was found to cheat.
    AggressionPenalty,
    /// 12: the peer's UDP ports belong to another connection. Data 1 is the type of the packet, Data 2 and 3 its UDP source
    /// port.
    EncapsulatedPortReuse,
    /// A code that has no meaning here.
    Other(u8),
}

impl ResetCode {
    /// Returns the code on the wire.
    pub const fn to_u8(self) -> u8 {
        match self {
            ResetCode::Unspecified => 0,
            ResetCode::Closed => 1,
            ResetCode::Aborted => 2,
            ResetCode::NoConnection => 3,
            ResetCode::PacketError => 4,
            ResetCode::OptionError => 5,
            ResetCode::MandatoryError => 6,
            ResetCode::ConnectionRefused => 7,
            ResetCode::BadServiceCode => 8,
            ResetCode::TooBusy => 9,
            ResetCode::BadInitCookie => 10,
            ResetCode::AggressionPenalty => 11,
            ResetCode::EncapsulatedPortReuse => 12,
            ResetCode::Other(code) => code,
        }
    }

    /// Creates it from the code on the wire.
    pub const fn from_u8(code: u8) -> ResetCode {
        match code {
            0 => ResetCode::Unspecified,
            1 => ResetCode::Closed,
            2 => ResetCode::Aborted,
            3 => ResetCode::NoConnection,
            4 => ResetCode::PacketError,
            5 => ResetCode::OptionError,
            6 => ResetCode::MandatoryError,
            7 => ResetCode::ConnectionRefused,
            8 => ResetCode::BadServiceCode,
            9 => ResetCode::TooBusy,
            10 => ResetCode::BadInitCookie,
            11 => ResetCode::AggressionPenalty,
            12 => ResetCode::EncapsulatedPortReuse,
            code => ResetCode::Other(code),
        }
    }
}

/// A Reset code with Data 1 to 3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Reset {
    /// The reason.
    pub code: ResetCode,
    /// What the code says more; zero where it says no more.
    pub data: [u8; 3],
}

impl Reset {
    /// A reason without data.
    pub const fn new(code: ResetCode) -> Reset {
        Reset { code, data: [0; 3] }
    }

    /// A reason that names an option: its type and the first two bytes of its value.
    pub fn of_option(code: ResetCode, kind: u8, value: &[u8]) -> Reset {
        let byte = |at: usize| value.get(at).copied().unwrap_or(0);
        Reset { code, data: [kind, byte(0), byte(1)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4340 section 5.6: codes 0 to 11; RFC 6773 section 7.2: code 12.
    #[test]
    fn codes_go_both_ways() {
        for code in 0..=u8::MAX {
            assert_eq!(ResetCode::from_u8(code).to_u8(), code);
            assert_eq!(matches!(ResetCode::from_u8(code), ResetCode::Other(_)), code > 12);
        }
    }
}
