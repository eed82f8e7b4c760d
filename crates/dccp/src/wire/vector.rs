//! Ack Vectors and Data Dropped: runs of packets, from the Acknowledgement Number back (RFC 4340
//! sections 11.4 and 11.7).

/// What became of a packet, as its receiver reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Arrival {
    /// State 0: received.
    Received,
    /// State 1: received with a mark of congestion.
    Marked,
    /// State 3: not yet received. The reserved state 2 is read so too.
    Missing,
}

/// Longest run that one byte of an Ack Vector can state.
pub const MAX_RUN: usize = 64;
/// Longest value of one option.
pub const MAX_VALUE: usize = 253;

/// Iterates over the runs of one or several Ack Vectors: what became of how many packets.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    vectors: &'a [&'a [u8]],
    at: usize,
}

impl<'a> Runs<'a> {
    /// Reads vectors that continue each other.
    pub fn new(vectors: &'a [&'a [u8]]) -> Runs<'a> {
        Runs { vectors, at: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = (Arrival, u64);

    fn next(&mut self) -> Option<(Arrival, u64)> {
        loop {
            let (first, rest) = self.vectors.split_first()?;
            if let Some(byte) = first.get(self.at) {
                self.at += 1;
                let arrival = match byte >> 6 {
                    0 => Arrival::Received,
                    1 => Arrival::Marked,
                    _ => Arrival::Missing,
                };
                return Some((arrival, u64::from(byte & 63) + 1));
            }
            self.vectors = rest;
            self.at = 0;
        }
    }
}

/// Appends the bytes of an Ack Vector for packets in descending order.
pub fn emit(packets: impl Iterator<Item = Arrival>, out: &mut Vec<u8>) {
    let mut run: Option<(u8, usize)> = None;
    for arrival in packets {
        let state = match arrival {
            Arrival::Received => 0,
            Arrival::Marked => 1,
            Arrival::Missing => 3,
        };
        run = match run {
            Some((same, length)) if same == state && length < MAX_RUN => Some((same, length + 1)),
            Some((other, length)) => {
                out.push(other << 6 | (length - 1) as u8);
                Some((state, 1))
            }
            None => Some((state, 1)),
        };
    }
    if let Some((state, length)) = run {
        out.push(state << 6 | (length - 1) as u8);
    }
}

/// Why a receiver did not deliver a packet that arrived (RFC 4340 section 11.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum DropCode {
    /// 0: the protocol does not allow delivery here.
    ProtocolConstraints,
    /// 1: the application is no longer listening.
    NotListening,
    /// 2: the receive buffer was full.
    ReceiveBuffer,
    /// 3: the data were corrupt.
    Corrupt,
    /// 7: the data were corrupt and delivered nevertheless.
    DeliveredCorrupt,
    /// A reserved code.
    Other(u8),
}

impl DropCode {
    /// Returns the three bits on the wire.
    pub const fn to_u8(self) -> u8 {
        match self {
            DropCode::ProtocolConstraints => 0,
            DropCode::NotListening => 1,
            DropCode::ReceiveBuffer => 2,
            DropCode::Corrupt => 3,
            DropCode::DeliveredCorrupt => 7,
            DropCode::Other(code) => code & 7,
        }
    }

    /// Creates it from the three bits on the wire.
    pub const fn from_u8(code: u8) -> DropCode {
        match code & 7 {
            0 => DropCode::ProtocolConstraints,
            1 => DropCode::NotListening,
            2 => DropCode::ReceiveBuffer,
            3 => DropCode::Corrupt,
            7 => DropCode::DeliveredCorrupt,
            code => DropCode::Other(code),
        }
    }
}

/// Longest run of packets that were not dropped in one byte of Data Dropped.
const MAX_NORMAL: usize = 128;
/// Longest run of packets that were dropped in one byte of Data Dropped.
const MAX_DROPPED: usize = 16;

/// Iterates over the blocks of Data Dropped: how many packets, and why they were dropped, if they were.
pub fn dropped(value: &[u8]) -> impl Iterator<Item = (Option<DropCode>, u64)> + '_ {
    value.iter().map(|byte| match byte >> 7 {
        0 => (None, u64::from(byte & 0x7f) + 1),
        _ => (Some(DropCode::from_u8(byte >> 4 & 7)), u64::from(byte & 0xf) + 1),
    })
}

/// Appends the blocks of Data Dropped for packets in descending order. What follows the last dropped
/// packet is left out.
pub fn emit_dropped(packets: impl Iterator<Item = Option<DropCode>>, out: &mut Vec<u8>) {
    let mut run: Option<(Option<DropCode>, usize)> = None;
    let flush = |code: Option<DropCode>, length: usize, out: &mut Vec<u8>| match code {
        None => out.push((length - 1) as u8),
        Some(code) => out.push(0x80 | code.to_u8() << 4 | (length - 1) as u8),
    };
    for code in packets {
        run = match run {
            Some((same, length))
                if same == code
                    && length < if code.is_some() { MAX_DROPPED } else { MAX_NORMAL } =>
            {
                Some((same, length + 1))
            }
            Some((other, length)) => {
                flush(other, length, out);
                Some((code, 1))
            }
            None => Some((code, 1)),
        };
    }
    if let Some((Some(code), length)) = run {
        flush(Some(code), length, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 4340 section 11.4: one byte for each run, the newest first.
    #[test]
    fn runs_are_merged() {
        let mut out = Vec::new();
        let packets =
            [Arrival::Received; 70].into_iter().chain([Arrival::Missing, Arrival::Marked]);
        emit(packets, &mut out);
        assert_eq!(out, [0x3f, 0x05, 0xc0, 0x40]);
        let read: Vec<_> = Runs::new(&[&out[..2], &[], &out[2..]]).collect();
        assert_eq!(
            read,
            [
                (Arrival::Received, 64),
                (Arrival::Received, 6),
                (Arrival::Missing, 1),
                (Arrival::Marked, 1)
            ]
        );
    }

    proptest! {
        #[test]
        fn vectors_go_both_ways(packets in proptest::collection::vec(0u8..3, 0..300)) {
            let packets: Vec<Arrival> = packets
                .into_iter()
                .map(|p| [Arrival::Received, Arrival::Marked, Arrival::Missing][usize::from(p)])
                .collect();
            let mut out = Vec::new();
            emit(packets.iter().copied(), &mut out);
            let read: Vec<Arrival> = Runs::new(&[&out])
                .flat_map(|(arrival, count)| std::iter::repeat_n(arrival, count as usize))
                .collect();
            prop_assert_eq!(read, packets);
        }

        #[test]
        fn blocks_go_both_ways(packets in proptest::collection::vec(0u8..9, 0..300)) {
            let packets: Vec<Option<DropCode>> =
                packets.into_iter().map(|p| (p < 8).then(|| DropCode::from_u8(p))).collect();
            let mut out = Vec::new();
            emit_dropped(packets.iter().copied(), &mut out);
            let mut read: Vec<Option<DropCode>> = dropped(&out)
                .flat_map(|(code, count)| std::iter::repeat_n(code, count as usize))
                .collect();
            read.resize(packets.len().max(read.len()), None);
            prop_assert_eq!(read, packets);
        }
    }
}
