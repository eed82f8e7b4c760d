//! Messages between two routers that nobody else may read: they contain what passwords could be guessed from. The world
//! sends them in sessions of the mesh, which are encrypted from router to router, so that the router they come from is
//! known too.
//!
//! Octet 0 is the version in its high nibble and the type in its low one. Integers are big-endian.
//!
//! | type | parts |
//! |---|---|
//! | CHECK, 1 | request (4), id of the sender (8), length of the name (1), name, length of the method (1), method, credentials |
//! | JUDGED, 2 | request (4), verdict (1), a grant if the verdict is 0 |
//! | PROBE, 3 | request (4) |
//! | PROBED, 4 | request (4) |
//! | SERVICE, 5 | id of the sender (8), service (1), a message of that service |
//! | MAIL, 6 | length of the name (1), name of a user for whom the sender keeps messages |
//! | TAKEN, 7 | id of a message (16), length of the name (1), name of the user who has it |
//! | CHECK of a deputy, 8 | id of the silent home (8), the parts of CHECK; answered at once by PROBED and then by JUDGED |
//! | RELEASE, 9 | request (4), id of the sender (8), id of the silent home (8) |
//! | RELEASED, 10 | request (4), share of the sender (33) |

use ringway_mesh::{NodeId, Prefix};
use ringway_sansio::{Malformed, Reader};

use crate::config::MAX_NAME;
use crate::deputies::shares::Share;
use crate::mail::format::MailId;
use crate::statement::Grant;

/// Maximum length in octets of the value of a header field with credentials.
pub const MAX_CREDENTIALS: usize = 700;
/// Maximum length in octets of the name of a method.
pub const MAX_METHOD: usize = 32;
/// Maximum length in octets of a private message: it passes every link in one packet.
pub const MAX_PRIVATE: usize = 1_100;
/// Maximum length in octets of a message of another service.
pub const MAX_SERVICE: usize = 1_000;
/// The service of short numbers.
pub const SERVICE_NUMBERS: u8 = 1;
/// The service of what users do.
pub const SERVICE_STATES: u8 = 2;

const VERSION: u8 = 1;

/// A message for one other router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrivateMessage {
    /// The router, by its prefix.
    pub to: Prefix,
    /// The octets.
    pub octets: Vec<u8>,
}

/// Digest credentials that only the home of a user can check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CredentialsCheck {
    /// The user with its domain.
    pub name: Box<str>,
    /// The method of the request.
    pub method: Box<str>,
    /// The value of the header field.
    pub credentials: Box<[u8]>,
}

impl CredentialsCheck {
    /// Returns whether the parts are within their limits.
    pub fn fits(&self) -> bool {
        !self.name.is_empty()
            && self.name.len() <= MAX_NAME
            && self.method.len() <= MAX_METHOD
            && self.credentials.len() <= MAX_CREDENTIALS
    }
}

/// What a home thinks of credentials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They are of a user of the home, who knows the password.
    Right,
    /// They are not.
    Wrong,
    /// The home has no such user.
    NoSuchUser,
}

/// A private message, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Private {
    /// Asks the home of a user to check credentials, or a deputy of this home, which is silent.
    Check { silent: Option<NodeId>, request: u32, router: NodeId, check: CredentialsCheck },
    /// What the home thinks of them.
    Judged { request: u32, verdict: Verdict, grant: Option<Grant> },
    /// Asks for PROBED, which shows how far a router is.
    Probe { request: u32 },
    /// The answer to it.
    Probed { request: u32 },
    /// A message of another service, which the directory only carries.
    Service { router: NodeId, service: u8, octets: Box<[u8]> },
    /// The sender keeps messages for a user.
    Mail { name: Box<str> },
    /// A user has a message that the receiver keeps.
    Taken { id: MailId, name: Box<str> },
    /// Asks a deputy of a home that is silent for its share.
    Release { request: u32, router: NodeId, home: NodeId },
    /// The share.
    Released { request: u32, share: Share },
}

impl Private {
    pub(crate) fn parse(octets: &[u8]) -> Result<Private, Malformed> {
        let mut reader = Reader::new("expected a whole private message", octets);
        let head = reader.u8()?;
        if head >> 4 != VERSION {
            return Err(reader.fault("expected version 1 of private messages"));
        }
        match head & 15 {
            kind @ (1 | 8) => {
                let silent = match kind {
                    8 => Some(NodeId::new(reader.u64()?)),
                    _ => None,
                };
                let (request, router) = (reader.u32()?, NodeId::new(reader.u64()?));
                let name = read_text(&mut reader, MAX_NAME)?;
                let method = read_text(&mut reader, MAX_METHOD)?;
                let credentials: Box<[u8]> = reader.rest().into();
                let check = CredentialsCheck { name, method, credentials };
                if !check.fits() {
                    return Err(reader.fault("expected a name, a method and credentials"));
                }
                Ok(Private::Check { silent, request, router, check })
            }
            2 => {
                let request = reader.u32()?;
                let verdict = match reader.u8()? {
                    0 => Verdict::Right,
                    1 => Verdict::Wrong,
                    2 => Verdict::NoSuchUser,
                    _ => return Err(reader.fault("expected a verdict from 0 to 2")),
                };
                let grant = match verdict {
                    Verdict::Right => Some(Grant::read(&mut reader)?),
                    _ => None,
                };
                reader.end()?;
                Ok(Private::Judged { request, verdict, grant })
            }
            kind @ (3 | 4) => {
                let request = reader.u32()?;
                reader.end()?;
                match kind {
                    3 => Ok(Private::Probe { request }),
                    _ => Ok(Private::Probed { request }),
                }
            }
            5 => {
                let (router, service) = (NodeId::new(reader.u64()?), reader.u8()?);
                let octets: Box<[u8]> = reader.rest().into();
                if octets.len() > MAX_SERVICE {
                    return Err(reader.fault("expected a shorter message of a service"));
                }
                Ok(Private::Service { router, service, octets })
            }
            6 => {
                let name = read_text(&mut reader, MAX_NAME)?;
                reader.end()?;
                Ok(Private::Mail { name })
            }
            7 => {
                let (id, name) = (reader.array()?, read_text(&mut reader, MAX_NAME)?);
                reader.end()?;
                Ok(Private::Taken { id, name })
            }
            9 => {
                let (request, router) = (reader.u32()?, NodeId::new(reader.u64()?));
                let home = NodeId::new(reader.u64()?);
                reader.end()?;
                Ok(Private::Release { request, router, home })
            }
            10 => {
                let (request, share) = (reader.u32()?, reader.array()?);
                reader.end()?;
                Ok(Private::Released { request, share })
            }
            _ => Err(reader.fault("expected a type of a private message from 1 to 10")),
        }
    }

    pub(crate) fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        match self {
            Private::Check { silent, request, router, check } => {
                out.push(VERSION << 4 | if silent.is_some() { 8 } else { 1 });
                silent.iter().for_each(|home| out.extend(home.to_bytes()));
                out.extend(request.to_be_bytes());
                out.extend(router.to_bytes());
                for text in [&check.name, &check.method] {
                    out.push(text.len() as u8);
                    out.extend(text.as_bytes());
                }
                out.extend(&check.credentials);
            }
            Private::Probe { request } | Private::Probed { request } => {
                let kind = if matches!(self, Private::Probe { .. }) { 3 } else { 4 };
                out.push(VERSION << 4 | kind);
                out.extend(request.to_be_bytes());
            }
            Private::Judged { request, verdict, grant } => {
                out.push(VERSION << 4 | 2);
                out.extend(request.to_be_bytes());
                out.push(*verdict as u8);
                if let Some(grant) = grant {
                    grant.write(&mut out);
                }
            }
            Private::Service { router, service, octets } => {
                out.push(VERSION << 4 | 5);
                out.extend(router.to_bytes());
                out.push(*service);
                out.extend(octets);
            }
            Private::Mail { name } => {
                out.push(VERSION << 4 | 6);
                write_text(name, &mut out);
            }
            Private::Taken { id, name } => {
                out.push(VERSION << 4 | 7);
                out.extend(id);
                write_text(name, &mut out);
            }
            Private::Release { request, router, home } => {
                out.push(VERSION << 4 | 9);
                out.extend(request.to_be_bytes());
                out.extend(router.to_bytes());
                out.extend(home.to_bytes());
            }
            Private::Released { request, share } => {
                out.push(VERSION << 4 | 10);
                out.extend(request.to_be_bytes());
                out.extend(share);
            }
        }
        out
    }
}

/// Appends a text, which is within its limit.
fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn read_text(reader: &mut Reader<'_>, max: usize) -> Result<Box<str>, Malformed> {
    let length = usize::from(reader.u8()?);
    if length > max {
        return Err(reader.fault("expected a shorter text"));
    }
    let text = core::str::from_utf8(reader.take(length)?);
    text.map(Into::into).map_err(|_| reader.fault("expected UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_check_fits_a_message() {
        let check = CredentialsCheck {
            name: "a".repeat(MAX_NAME).into(),
            method: "M".repeat(MAX_METHOD).into(),
            credentials: [b'c'; MAX_CREDENTIALS].into(),
        };
        let silent = Some(NodeId::new(3));
        let message = Private::Check { silent, request: 1, router: NodeId::new(2), check };
        let octets = message.to_octets();
        assert!(octets.len() <= MAX_PRIVATE);
        assert_eq!(Private::parse(&octets), Ok(message));
    }

    #[test]
    fn a_message_of_a_service_is_carried_up_to_its_limit() {
        let message = |length| Private::Service {
            router: NodeId::new(2),
            service: SERVICE_NUMBERS,
            octets: vec![7; length].into(),
        };
        let octets = message(MAX_SERVICE).to_octets();
        assert!(octets.len() <= MAX_PRIVATE);
        assert_eq!(Private::parse(&octets), Ok(message(MAX_SERVICE)));
        assert!(Private::parse(&message(MAX_SERVICE + 1).to_octets()).is_err());
    }

    proptest! {
        #[test]
        fn octets_are_a_message_or_a_fault(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = Private::parse(&octets) {
                prop_assert_eq!(message.to_octets(), octets);
            }
        }
    }
}
