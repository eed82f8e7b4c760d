//! Options (RFC 4340 section 5.8, RFC 4342 section 8).

use super::vector::MAX_VALUE;
use super::{WireError, number};

/// Option types on the wire.
pub mod kind {
    /// Padding.
    pub const PADDING: u8 = 0;
    /// Mandatory.
    pub const MANDATORY: u8 = 1;
    /// Slow Receiver.
    pub const SLOW_RECEIVER: u8 = 2;
    /// First type with a length.
    pub const FIRST_LONG: u8 = 32;
    /// Change L.
    pub const CHANGE_L: u8 = 32;
    /// Confirm L.
    pub const CONFIRM_L: u8 = 33;
    /// Change R.
    pub const CHANGE_R: u8 = 34;
    /// Confirm R.
    pub const CONFIRM_R: u8 = 35;
    /// Init Cookie.
    pub const INIT_COOKIE: u8 = 36;
    /// NDP Count.
    pub const NDP_COUNT: u8 = 37;
    /// Ack Vector with an ECN Nonce Echo of 0.
    pub const ACK_VECTOR_0: u8 = 38;
    /// Ack Vector with an ECN Nonce Echo of 1.
    pub const ACK_VECTOR_1: u8 = 39;
    /// Data Dropped.
    pub const DATA_DROPPED: u8 = 40;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 41;
    /// Timestamp Echo.
    pub const TIMESTAMP_ECHO: u8 = 42;
    /// Elapsed Time.
    pub const ELAPSED_TIME: u8 = 43;
    /// Data Checksum.
    pub const DATA_CHECKSUM: u8 = 44;
    /// Loss Event Rate of CCID 3.
    pub const LOSS_EVENT_RATE: u8 = 192;
    /// Loss Intervals of CCID 3.
    pub const LOSS_INTERVALS: u8 = 193;
    /// Receive Rate of CCID 3.
    pub const RECEIVE_RATE: u8 = 194;
}

/// An option. Unknown ones are read, so that a Mandatory before them can be obeyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DccpOption<'a> {
    /// The next option must be understood.
    Mandatory,
    /// The receiver has difficulty in keeping up.
    SlowReceiver,
    /// A change of a feature at the sender of the option.
    ChangeL(u8, &'a [u8]),
    /// A confirmation of a feature at the sender of the option.
    ConfirmL(u8, &'a [u8]),
    /// A change of a feature at the receiver of the option.
    ChangeR(u8, &'a [u8]),
    /// A confirmation of a feature at the receiver of the option.
    ConfirmR(u8, &'a [u8]),
    /// The state of a handshake, kept by the client.
    InitCookie(&'a [u8]),
    /// Number of packets in a row before this one that carried no data, at most 2^48 - 1.
    NdpCount(u64),
    /// The runs of an Ack Vector.
    AckVector(&'a [u8]),
    /// The blocks of Data Dropped.
    DataDropped(&'a [u8]),
    /// A time of the sender.
    Timestamp(u32),
    /// The peer's Timestamp, and the time since it arrived in units of 10 us.
    TimestampEcho(u32, u32),
    /// Time since the acknowledged packet arrived, in units of 10 us.
    ElapsedTime(u32),
    /// CRC-32c of the data.
    DataChecksum(u32),
    /// The inverse of a loss event rate; all ones where nothing was lost.
    LossEventRate(u32),
    /// Skip Length and loss intervals.
    LossIntervals(&'a [u8]),
    /// Bytes of data per second.
    ReceiveRate(u32),
    /// An option that is not understood here.
    Unknown(u8, &'a [u8]),
}

impl<'a> DccpOption<'a> {
    /// Returns the type on the wire.
    pub const fn kind(&self) -> u8 {
        match self {
            DccpOption::Mandatory => kind::MANDATORY,
            DccpOption::SlowReceiver => kind::SLOW_RECEIVER,
            DccpOption::ChangeL(..) => kind::CHANGE_L,
            DccpOption::ConfirmL(..) => kind::CONFIRM_L,
            DccpOption::ChangeR(..) => kind::CHANGE_R,
            DccpOption::ConfirmR(..) => kind::CONFIRM_R,
            DccpOption::InitCookie(_) => kind::INIT_COOKIE,
            DccpOption::NdpCount(_) => kind::NDP_COUNT,
            DccpOption::AckVector(_) => kind::ACK_VECTOR_0,
            DccpOption::DataDropped(_) => kind::DATA_DROPPED,
            DccpOption::Timestamp(_) => kind::TIMESTAMP,
            DccpOption::TimestampEcho(..) => kind::TIMESTAMP_ECHO,
            DccpOption::ElapsedTime(_) => kind::ELAPSED_TIME,
            DccpOption::DataChecksum(_) => kind::DATA_CHECKSUM,
            DccpOption::LossEventRate(_) => kind::LOSS_EVENT_RATE,
            DccpOption::LossIntervals(_) => kind::LOSS_INTERVALS,
            DccpOption::ReceiveRate(_) => kind::RECEIVE_RATE,
            DccpOption::Unknown(kind, _) => *kind,
        }
    }

    /// Returns whether it may stand on a Data packet, which has no Acknowledgement Number (RFC 4340
    /// table 3). Elsewhere it is ignored.
    pub const fn is_for_data(&self) -> bool {
        matches!(
            self,
            DccpOption::SlowReceiver
                | DccpOption::NdpCount(_)
                | DccpOption::Timestamp(_)
                | DccpOption::TimestampEcho(..)
                | DccpOption::DataChecksum(_)
                | DccpOption::Unknown(..)
        )
    }

    /// Reads an option with a length from its value.
    fn parse(kind: u8, value: &'a [u8]) -> Result<DccpOption<'a>, WireError> {
        let exactly = |what, low: usize, high: usize| {
            if (low..=high).contains(&value.len()) {
                Ok(number(value))
            } else {
                Err(WireError::Length { what, limit: high, got: value.len() })
            }
        };
        let feature = || match value.split_first() {
            Some((&feature, values)) => Ok((feature, values)),
            None => Err(WireError::Short { what: "a feature option", expected: 1, got: 0 }),
        };
        Ok(match kind {
            kind::CHANGE_L => feature().map(|(f, v)| DccpOption::ChangeL(f, v))?,
            kind::CONFIRM_L => feature().map(|(f, v)| DccpOption::ConfirmL(f, v))?,
            kind::CHANGE_R => feature().map(|(f, v)| DccpOption::ChangeR(f, v))?,
            kind::CONFIRM_R => feature().map(|(f, v)| DccpOption::ConfirmR(f, v))?,
            kind::INIT_COOKIE => DccpOption::InitCookie(value),
            kind::NDP_COUNT => DccpOption::NdpCount(exactly("NDP Count", 1, 6)?),
            kind::ACK_VECTOR_0 | kind::ACK_VECTOR_1 => DccpOption::AckVector(value),
            kind::DATA_DROPPED => DccpOption::DataDropped(value),
            kind::TIMESTAMP => DccpOption::Timestamp(exactly("Timestamp", 4, 4)? as u32),
            kind::TIMESTAMP_ECHO => match value.len() {
                4 | 6 | 8 => DccpOption::TimestampEcho(
                    number(&value[..4]) as u32,
                    number(&value[4..]) as u32,
                ),
                got => return Err(WireError::Length { what: "Timestamp Echo", limit: 8, got }),
            },
            kind::ELAPSED_TIME => match value.len() {
                2 | 4 => DccpOption::ElapsedTime(number(value) as u32),
                got => return Err(WireError::Length { what: "Elapsed Time", limit: 4, got }),
            },
            kind::DATA_CHECKSUM => DccpOption::DataChecksum(exactly("Data Checksum", 4, 4)? as u32),
            kind::LOSS_EVENT_RATE => {
                DccpOption::LossEventRate(exactly("Loss Event Rate", 4, 4)? as u32)
            }
            kind::LOSS_INTERVALS => {
                super::interval::parse(value).map(|_| ())?;
                DccpOption::LossIntervals(value)
            }
            kind::RECEIVE_RATE => DccpOption::ReceiveRate(exactly("Receive Rate", 4, 4)? as u32),
            kind => DccpOption::Unknown(kind, value),
        })
    }

    /// Appends the option. A value that exceeds [`MAX_VALUE`] is cut; [`emit_vector`] divides an Ack
    /// Vector instead.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let kind = self.kind();
        match *self {
            DccpOption::Mandatory | DccpOption::SlowReceiver => out.push(kind),
            DccpOption::ChangeL(feature, values)
            | DccpOption::ConfirmL(feature, values)
            | DccpOption::ChangeR(feature, values)
            | DccpOption::ConfirmR(feature, values) => put(out, kind, &[&[feature], values]),
            DccpOption::InitCookie(value)
            | DccpOption::AckVector(value)
            | DccpOption::DataDropped(value)
            | DccpOption::LossIntervals(value) => put(out, kind, &[value]),
            DccpOption::NdpCount(count) => put(out, kind, &[shortest(&count.to_be_bytes()[2..])]),
            DccpOption::TimestampEcho(echo, elapsed) => {
                put(out, kind, &[&echo.to_be_bytes(), &elapsed_bytes(elapsed, true)[..]]);
            }
            DccpOption::ElapsedTime(elapsed) => put(out, kind, &[&elapsed_bytes(elapsed, false)]),
            DccpOption::Timestamp(word)
            | DccpOption::DataChecksum(word)
            | DccpOption::LossEventRate(word)
            | DccpOption::ReceiveRate(word) => put(out, kind, &[&word.to_be_bytes()]),
            DccpOption::Unknown(kind, _) if kind < kind::FIRST_LONG => out.push(kind),
            DccpOption::Unknown(kind, value) => put(out, kind, &[value]),
        }
    }
}

/// Appends an Ack Vector, divided among as many options as it needs, of which at most `room` bytes are
/// used. Returns whether all of it found room.
pub fn emit_vector(vector: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    let end = out.len() + room;
    for part in vector.chunks(MAX_VALUE) {
        let left = end.saturating_sub(out.len() + 2);
        let part_that_fits = &part[..part.len().min(left)];
        if !part_that_fits.is_empty() {
            DccpOption::AckVector(part_that_fits).emit(out);
        }
        if part_that_fits.len() < part.len() {
            return false;
        }
    }
    true
}

/// Returns the bytes of a number without zeros at its front, at least one.
fn shortest(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros.min(bytes.len() - 1)..]
}

/// Returns the shortest form of an elapsed time: two or four bytes, or none where zero may be left out.
fn elapsed_bytes(elapsed: u32, may_be_empty: bool) -> Vec<u8> {
    match u16::try_from(elapsed) {
        Ok(0) if may_be_empty => Vec::new(),
        Ok(short) => short.to_be_bytes().to_vec(),
        Err(_) => elapsed.to_be_bytes().to_vec(),
    }
}

fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let start = out.len();
    out.extend_from_slice(&[kind, 0]);
    for part in parts {
        out.extend_from_slice(part);
    }
    out.truncate(start + (MAX_VALUE + 2).min(out.len() - start));
    out[start + 1] = (out.len() - start) as u8;
}

/// Iterates over the options of a packet without the padding. It ends after an error, which states the
/// type of the option.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Options<'a> {
    /// Reads the options part of a header.
    pub fn new(bytes: &'a [u8]) -> Options<'a> {
        Options { rest: bytes }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<DccpOption<'a>, (u8, WireError)>;

    fn next(&mut self) -> Option<Self::Item> {
        let (kind, rest) = loop {
            let (&kind, rest) = self.rest.split_first()?;
            self.rest = rest;
            if kind != kind::PADDING {
                break (kind, rest);
            }
        };
        match kind {
            kind::MANDATORY => return Some(Ok(DccpOption::Mandatory)),
            kind::SLOW_RECEIVER => return Some(Ok(DccpOption::SlowReceiver)),
            kind if kind < kind::FIRST_LONG => return Some(Ok(DccpOption::Unknown(kind, &[]))),
            _ => {}
        }
        self.rest = &[];
        // RFC 4340 section 5.8: the length counts type and length.
        let length = rest.first().map_or(0, |length| usize::from(*length));
        let Some(value) = length.checked_sub(2).and_then(|length| rest.get(1..1 + length)) else {
            let limit = rest.len() + 1;
            return Some(Err((kind, WireError::Length { what: "an option", limit, got: length })));
        };
        let parsed = DccpOption::parse(kind, value).map_err(|fault| (kind, fault));
        if parsed.is_ok() {
            self.rest = &rest[1 + value.len()..];
        }
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Vec<Result<DccpOption<'_>, (u8, WireError)>> {
        Options::new(bytes).collect()
    }

    /// RFC 4340 section 5.8: the published encodings.
    #[test]
    fn published_encodings_are_read_and_written() {
        let cases: [(&[u8], DccpOption<'_>); 10] = [
            (&[1], DccpOption::Mandatory),
            (&[2], DccpOption::SlowReceiver),
            // Section 6.1: a change of CCID with a list of preferences.
            (&[32, 5, 1, 3, 2], DccpOption::ChangeL(1, &[3, 2])),
            (&[37, 3, 7], DccpOption::NdpCount(7)),
            (&[37, 8, 255, 0, 0, 0, 0, 1], DccpOption::NdpCount(0xff00_0000_0001)),
            (&[41, 6, 0, 0, 1, 0], DccpOption::Timestamp(256)),
            (&[42, 6, 0, 0, 1, 0], DccpOption::TimestampEcho(256, 0)),
            (&[42, 10, 0, 0, 1, 0, 0, 1, 0, 0], DccpOption::TimestampEcho(256, 65_536)),
            (&[43, 4, 1, 0], DccpOption::ElapsedTime(256)),
            (&[194, 6, 0, 1, 0, 0], DccpOption::ReceiveRate(65_536)),
        ];
        for (bytes, option) in cases {
            assert_eq!(read(bytes), [Ok(option)]);
            let mut out = Vec::new();
            option.emit(&mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn padding_is_skipped_and_a_bad_length_ends_the_options() {
        assert_eq!(
            read(&[0, 0, 2, 0, 1, 0]),
            [Ok(DccpOption::SlowReceiver), Ok(DccpOption::Mandatory)]
        );
        for bad in [&[36u8, 1, 0][..], &[36, 9, 0], &[36], &[43, 3, 1], &[32, 2]] {
            let found = read(bad);
            assert_eq!(found.len(), 1);
            assert!(matches!(found[0], Err((kind, _)) if kind == bad[0]), "{bad:?}");
        }
    }

    /// RFC 4340 section 11.4: a long vector continues in the next option.
    #[test]
    fn a_long_vector_is_divided() {
        let vector = vec![1; 300];
        let mut out = Vec::new();
        assert!(emit_vector(&vector, 1000, &mut out));
        let lengths: Vec<usize> = read(&out)
            .into_iter()
            .map(|option| match option {
                Ok(DccpOption::AckVector(part)) => part.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(lengths, [253, 47]);
        out.clear();
        assert!(!emit_vector(&vector, 40, &mut out));
        assert_eq!(out.len(), 40);
    }

    proptest! {
        #[test]
        fn what_is_read_can_be_written_and_read_again(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let first: Vec<_> = Options::new(&bytes).map_while(Result::ok).collect();
            let mut out = Vec::new();
            for option in &first {
                option.emit(&mut out);
            }
            let second: Vec<_> = Options::new(&out).map_while(Result::ok).collect();
            prop_assert_eq!(first, second);
        }
    }
}
