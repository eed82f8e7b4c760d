//! The parameters of RE-CONFIG (RFC 6525 section 4).

use super::parameter::{Parameter, kind};
use super::{WireError, put_tlv, u16_at, u32_at};
use crate::numbers::Tsn;

/// Results of a request (RFC 6525 table 3).
pub mod result {
    #![allow(missing_docs)]
    pub const NOTHING_TO_DO: u32 = 0;
    pub const PERFORMED: u32 = 1;
    pub const DENIED: u32 = 2;
    pub const WRONG_SSN: u32 = 3;
    pub const ALREADY_IN_PROGRESS: u32 = 4;
    pub const BAD_SEQUENCE_NUMBER: u32 = 5;
    pub const IN_PROGRESS: u32 = 6;
}

/// A list of stream numbers. An empty list stands for all streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streams<'a>(&'a [u8]);

impl<'a> Streams<'a> {
    /// Creates a list from numbers in network order.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Streams(bytes)
    }

    /// Returns the numbers.
    pub fn iter(&self) -> impl Iterator<Item = u16> + 'a {
        self.0.chunks_exact(2).map(|b| u16_at(b, 0))
    }
}

/// A request or a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reconfig<'a> {
    /// Section 4.1: the sender resets its streams.
    OutgoingReset {
        /// Number of this request.
        request: u32,
        /// Number of the request that this one answers, or of the last received one.
        response: u32,
        /// The last TSN assigned before the reset.
        last_tsn: Tsn,
        /// The streams.
        streams: Streams<'a>,
    },
    /// Section 4.2: the receiver is requested to reset its streams.
    IncomingReset {
        /// Number of this request.
        request: u32,
        /// The streams.
        streams: Streams<'a>,
    },
    /// Section 4.3: all streams and TSNs of both endpoints are reset.
    TsnReset {
        /// Number of this request.
        request: u32,
    },
    /// Section 4.4.
    Response {
        /// Number of the request that is answered.
        response: u32,
        /// One of [`result`].
        result: u32,
        /// In the response to a [`Reconfig::TsnReset`]: the next TSN of the responder, and that of the
        /// requester.
        next: Option<(Tsn, Tsn)>,
    },
    /// Section 4.5: the sender requests additional streams to send on.
    AddOutgoing {
        /// Number of this request.
        request: u32,
        /// Number of streams.
        count: u16,
    },
    /// Section 4.6: the receiver is requested to add streams to send on.
    AddIncoming {
        /// Number of this request.
        request: u32,
        /// Number of streams.
        count: u16,
    },
}

fn at_least(expected: usize, value: &[u8]) -> Result<(), WireError> {
    if value.len() < expected {
        let what = "a re-configuration parameter";
        return Err(WireError::Short { what, expected, got: value.len() });
    }
    Ok(())
}

impl<'a> Reconfig<'a> {
    /// Parses a parameter; `None` if it is of another kind.
    pub fn read(parameter: &Parameter<'a>) -> Option<Result<Self, WireError>> {
        let &Parameter::Other(which, value) = parameter else { return None };
        let number = u32_at(value, 0);
        let (request, response) = (number, number);
        Some(match which {
            kind::OUTGOING_RESET => at_least(12, value).map(|()| Reconfig::OutgoingReset {
                request,
                response: u32_at(value, 4),
                last_tsn: Tsn::new(u32_at(value, 8)),
                streams: Streams(&value[12..]),
            }),
            kind::INCOMING_RESET => at_least(4, value)
                .map(|()| Reconfig::IncomingReset { request, streams: Streams(&value[4..]) }),
            kind::TSN_RESET => at_least(4, value).map(|()| Reconfig::TsnReset { request }),
            kind::RECONFIG_RESPONSE => at_least(8, value).map(|()| Reconfig::Response {
                response,
                result: u32_at(value, 4),
                next: (value.len() >= 16)
                    .then(|| (Tsn::new(u32_at(value, 8)), Tsn::new(u32_at(value, 12)))),
            }),
            kind::ADD_OUTGOING => at_least(8, value)
                .map(|()| Reconfig::AddOutgoing { request, count: u16_at(value, 4) }),
            kind::ADD_INCOMING => at_least(8, value)
                .map(|()| Reconfig::AddIncoming { request, count: u16_at(value, 4) }),
            _ => return None,
        })
    }

    /// Appends the parameter and its padding.
    pub fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Reconfig::OutgoingReset { request, response, last_tsn, streams } => {
                let numbers = [request, response, last_tsn.raw()].map(u32::to_be_bytes);
                let [a, b, c] = &numbers;
                put_tlv(out, kind::OUTGOING_RESET, &[a, b, c, streams.0]);
            }
            Reconfig::IncomingReset { request, streams } => {
                put_tlv(out, kind::INCOMING_RESET, &[&request.to_be_bytes(), streams.0]);
            }
            Reconfig::TsnReset { request } => {
                put_tlv(out, kind::TSN_RESET, &[&request.to_be_bytes()]);
            }
            Reconfig::Response { response, result, next } => {
                let mut value = [response, result].map(u32::to_be_bytes).concat();
                if let Some((ours, theirs)) = next {
                    value.extend_from_slice(&ours.raw().to_be_bytes());
                    value.extend_from_slice(&theirs.raw().to_be_bytes());
                }
                put_tlv(out, kind::RECONFIG_RESPONSE, &[&value]);
            }
            Reconfig::AddOutgoing { request, count } => {
                let (number, count) = (request.to_be_bytes(), count.to_be_bytes());
                put_tlv(out, kind::ADD_OUTGOING, &[&number, &count, &[0; 2]]);
            }
            Reconfig::AddIncoming { request, count } => {
                let (number, count) = (request.to_be_bytes(), count.to_be_bytes());
                put_tlv(out, kind::ADD_INCOMING, &[&number, &count, &[0; 2]]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Parameters;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// RFC 6525 sections 4.1 to 4.6.
        #[test]
        fn emitted_bytes_are_parsed_back(
            numbers in any::<(u32, u32, u32, u16)>(),
            streams in proptest::collection::vec(any::<u16>(), 0..20),
        ) {
            let (request, response, tsn, count) = numbers;
            let bytes: Vec<u8> = streams.iter().flat_map(|s| s.to_be_bytes()).collect();
            let list = Streams::new(&bytes);
            prop_assert_eq!(list.iter().collect::<Vec<_>>(), streams);
            let tsn = Tsn::new(tsn);
            let next = (count % 2 == 0).then_some((tsn, tsn.plus(7)));
            let all = [
                Reconfig::OutgoingReset { request, response, last_tsn: tsn, streams: list },
                Reconfig::IncomingReset { request, streams: list },
                Reconfig::TsnReset { request },
                Reconfig::Response { response, result: request, next },
                Reconfig::AddOutgoing { request, count },
                Reconfig::AddIncoming { request, count },
            ];
            let mut out = Vec::new();
            for one in &all {
                one.emit(&mut out);
            }
            let read: Vec<_> = Parameters::new(&out)
                .map(|p| Reconfig::read(&p.unwrap()).unwrap().unwrap())
                .collect();
            prop_assert_eq!(read, all);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            for which in kind::OUTGOING_RESET..=kind::ADD_INCOMING {
                let read = Reconfig::read(&Parameter::Other(which, &bytes)).unwrap();
                prop_assert!(bytes.len() >= 12 || read.is_err() || bytes.len() >= 4);
            }
        }
    }
}
