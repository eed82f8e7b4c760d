//! The parameters of ASCONF and ASCONF-ACK (RFC 5061 sections 4.1 and 4.2).

use super::parameter::{Parameter, Parameters, kind};
use super::{TLV_HEADER, put_tlv, u32_at};
use std::net::IpAddr;

/// A requested change of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressChange {
    /// Add an address; the unspecified one stands for the source of the packet.
    Add(IpAddr),
    /// Delete an address; the unspecified one stands for all but the source of the packet.
    Delete(IpAddr),
    /// Make an address the primary one; the unspecified one stands for the source of the packet.
    Primary(IpAddr),
}

impl AddressChange {
    fn kind(&self) -> u16 {
        match self {
            AddressChange::Add(_) => kind::ADD_ADDRESS,
            AddressChange::Delete(_) => kind::DELETE_ADDRESS,
            AddressChange::Primary(_) => kind::SET_PRIMARY,
        }
    }

    /// Returns the address.
    pub fn address(&self) -> IpAddr {
        match *self {
            AddressChange::Add(address)
            | AddressChange::Delete(address)
            | AddressChange::Primary(address) => address,
        }
    }

    /// Appends it as a parameter with a correlation id.
    pub fn emit(&self, correlation: u32, out: &mut Vec<u8>) {
        let mut value = correlation.to_be_bytes().to_vec();
        Parameter::Address(self.address()).emit(&mut value);
        put_tlv(out, self.kind(), &[&value]);
    }
}

/// A received request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Identifies the request in the answer.
    pub correlation: u32,
    /// The requested change; `None` if its type is unknown.
    pub change: Option<AddressChange>,
    /// The complete parameter, for a report.
    pub whole: &'a [u8],
}

/// Returns the lookup address and the requests of an ASCONF chunk. `value` follows its serial number. A
/// malformed parameter ends the list.
pub fn requests(value: &[u8]) -> Option<(IpAddr, impl Iterator<Item = Request<'_>>)> {
    let mut parameters = Parameters::new(value);
    let Some(Ok(Parameter::Address(lookup))) = parameters.next() else { return None };
    let size = TLV_HEADER + if lookup.is_ipv4() { 4 } else { 16 };
    let mut rest = value.get(size..).unwrap_or(&[]);
    let next = move || {
        let mut walk = Parameters::new(rest);
        let parameter = walk.next()?.ok()?;
        let length = usize::from(super::u16_at(rest, 2));
        let whole = rest.get(..length)?;
        rest = rest.get(super::padded(length)..).unwrap_or(&[]);
        let value = whole.get(TLV_HEADER..)?;
        let change = match parameter {
            Parameter::Other(which, value) => read(which, value),
            _ => None,
        };
        Some(Request { correlation: u32_at(value, 0), change, whole })
    };
    Some((lookup, core::iter::from_fn(next)))
}

fn read(which: u16, value: &[u8]) -> Option<AddressChange> {
    let Ok(Parameter::Address(address)) = Parameters::new(value.get(4..)?).next()? else {
        return None;
    };
    Some(match which {
        kind::ADD_ADDRESS => AddressChange::Add(address),
        kind::DELETE_ADDRESS => AddressChange::Delete(address),
        kind::SET_PRIMARY => AddressChange::Primary(address),
        _ => return None,
    })
}

/// The result of a request in an ASCONF-ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The request's correlation id.
    pub correlation: u32,
    /// The code of the error cause; `None` for success.
    pub cause: Option<u16>,
}

impl Outcome {
    /// Appends it. An error is sent with the `request` that it refers to.
    pub fn emit(&self, request: &[u8], out: &mut Vec<u8>) {
        let correlation = self.correlation.to_be_bytes();
        match self.cause {
            None => put_tlv(out, kind::SUCCESS_INDICATION, &[&correlation]),
            Some(code) => {
                let mut cause = Vec::new();
                super::Cause::Other(code, request).emit(&mut cause);
                put_tlv(out, kind::ERROR_CAUSE_INDICATION, &[&correlation, &cause]);
            }
        }
    }
}

/// Returns the outcomes in an ASCONF-ACK. `value` follows its serial number.
pub fn outcomes(value: &[u8]) -> impl Iterator<Item = Outcome> + '_ {
    Parameters::new(value).map_while(Result::ok).filter_map(|parameter| match parameter {
        Parameter::Other(kind::SUCCESS_INDICATION, value) => {
            Some(Outcome { correlation: u32_at(value, 0), cause: None })
        }
        Parameter::Other(kind::ERROR_CAUSE_INDICATION, value) => {
            let cause = super::u16_at(value, 4);
            Some(Outcome { correlation: u32_at(value, 0), cause: Some(cause) })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// RFC 5061 sections 4.2.1, 4.2.2 and 4.2.4.
        #[test]
        fn emitted_bytes_are_parsed_back(list in proptest::collection::vec(any::<(u8, u32, bool)>(), 0..9)) {
            let changes: Vec<AddressChange> = list.iter().map(|&(which, number, six)| {
                let address = if six { IpAddr::V6((u128::from(number) << 9).into()) } else { IpAddr::V4(number.into()) };
                match which % 3 {
                    0 => AddressChange::Add(address),
                    1 => AddressChange::Delete(address),
                    _ => AddressChange::Primary(address),
                }
            }).collect();
            let lookup = IpAddr::from([10, 0, 0, 1]);
            let mut out = Vec::new();
            Parameter::Address(lookup).emit(&mut out);
            for (n, change) in changes.iter().enumerate() {
                change.emit(n as u32, &mut out);
            }
            let (found, read) = requests(&out).unwrap();
            let read: Vec<_> = read.collect();
            prop_assert_eq!(found, lookup);
            prop_assert!(read.iter().enumerate().all(|(n, r)| r.correlation == n as u32));
            prop_assert_eq!(read.iter().map(|r| r.change.unwrap()).collect::<Vec<_>>(), changes);
        }

        /// RFC 5061 sections 4.2.3 and 4.2.5.
        #[test]
        fn outcomes_are_read(list in proptest::collection::vec(any::<(u32, Option<u16>)>(), 0..9)) {
            let mut out = Vec::new();
            for &(correlation, cause) in &list {
                Outcome { correlation, cause }.emit(&[1, 2, 3], &mut out);
            }
            let read: Vec<_> = outcomes(&out).map(|o| (o.correlation, o.cause)).collect();
            prop_assert_eq!(read, list);
        }

        #[test]
        fn any_bytes_are_walked_over(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = outcomes(&bytes).count();
            if let Some((_, list)) = requests(&bytes) {
                let _ = list.count();
            }
        }
    }
}
