//! How messages that wait are written: the list of those of one router for one user, and a message itself.
//!
//! The *list* is the value of a record of [`KIND_MAIL`](crate::config::KIND_MAIL), named as the recipient, by the router that
//! keeps the messages:
//!
//! | part | octets |
//! |---|---|
//! | version, 1 | 1 |
//! | id of the recipient's home | 8 |
//! | messages: each its id, its length when sealed, the second after which it is void | 16 + 2 + 4 |
//!
//! A sealed message is cut into parts of [`PART`] octets, each the value of a record of
//! [`KIND_MAIL_PART`](crate::config::KIND_MAIL_PART), named by the id and the number of the part (1). A message, unsealed:
//!
//! | part | octets |
//! |---|---|
//! | version, 1 | 1 |
//! | flags: 1, a grant follows | 1 |
//! | second in which it was accepted | 4 |
//! | recipient, sender: each the length, the name with its domain | 1 + n |
//! | grant of the sender's home for the router that keeps it | 48 + 4 + 4 + 64 |
//! | the octets that were to be kept | |

use ringway_mesh::NodeId;
use ringway_mesh::crypto::ENVELOPE;
use ringway_sansio::{Malformed, Reader};

use crate::config::MAX_NAME;
use crate::statement::Grant;

/// Maximum number of messages from one router for one user.
pub const MAX_LISTED: usize = 16;
/// Length in octets of all parts of a message but the last one.
pub const PART: usize = ringway_dht::config::MAX_VALUE;
/// Maximum number of parts of a message.
pub const MAX_PARTS: usize = 4;
/// Maximum length in octets of a message when it is sealed.
pub const MAX_SEALED: usize = PART * MAX_PARTS;

const VERSION: u8 = 1;
/// A grant follows.
const GRANT: u8 = 1;

/// The number of a message, which is drawn.
pub type MailId = [u8; 16];

/// An entry of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The message.
    pub id: MailId,
    /// Its length when sealed, 1 to [`MAX_SEALED`].
    pub length: u16,
    /// Second after which it is void.
    pub end: u32,
}

impl Entry {
    /// Returns the number of its parts.
    pub fn parts(&self) -> usize {
        usize::from(self.length).div_ceil(PART)
    }
}

/// Returns the name of the record of a part.
pub fn part_name(id: &MailId, part: usize) -> [u8; 17] {
    let mut name = [part as u8; 17];
    name[..16].copy_from_slice(id);
    name
}

/// The messages of one router for one user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    /// The home of the user, which they are sealed for.
    pub home: NodeId,
    /// At most [`MAX_LISTED`].
    pub entries: Vec<Entry>,
}

impl List {
    /// Returns the octets of the list.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.home.to_bytes());
        for entry in self.entries.iter().take(MAX_LISTED) {
            out.extend(entry.id);
            out.extend(entry.length.to_be_bytes());
            out.extend(entry.end.to_be_bytes());
        }
        out
    }

    /// Parses a list.
    ///
    /// # Errors
    /// Octets that are no list, too many messages, or one that is empty or too long.
    pub fn parse(octets: &[u8]) -> Result<List, Malformed> {
        let mut reader = Reader::new("expected a whole list of messages", octets);
        read_version(&mut reader)?;
        let home = NodeId::new(reader.u64()?);
        let mut entries = Vec::new();
        while !reader.is_at_end() {
            let entry = Entry { id: reader.array()?, length: reader.u16()?, end: reader.u32()? };
            if !(1..=MAX_SEALED).contains(&usize::from(entry.length)) {
                return Err(reader.fault("expected a message of 1 to 2048 octets"));
            }
            if entries.len() >= MAX_LISTED {
                return Err(reader.fault("expected at most 16 messages"));
            }
            entries.push(entry);
        }
        Ok(List { home, entries })
    }
}

/// A message as its home opens it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Letter {
    /// Second in which it was accepted.
    pub accepted: u32,
    /// The recipient with its domain.
    pub to: Box<str>,
    /// The sender with its domain.
    pub from: Box<str>,
    /// The permission of the sender's home for the router that keeps it. The home itself needs none.
    pub grant: Option<Grant>,
    /// The octets that were to be kept.
    pub octets: Box<[u8]>,
}

impl Letter {
    /// Returns the octets, or `None` if they are too many to be sealed and kept.
    pub fn to_octets(&self) -> Option<Vec<u8>> {
        let mut out = vec![VERSION, if self.grant.is_some() { GRANT } else { 0 }];
        out.extend(self.accepted.to_be_bytes());
        for name in [&self.to, &self.from] {
            out.push(u8::try_from(name.len()).ok()?);
            out.extend(name.as_bytes());
        }
        if let Some(grant) = &self.grant {
            grant.write(&mut out);
        }
        out.extend(&*self.octets);
        (out.len() + ENVELOPE <= MAX_SEALED).then_some(out)
    }

    /// Parses the octets.
    ///
    /// # Errors
    /// Octets that are no message.
    pub fn parse(octets: &[u8]) -> Result<Letter, Malformed> {
        let mut reader = Reader::new("expected a whole message", octets);
        read_version(&mut reader)?;
        let flags = reader.u8()?;
        if flags > GRANT {
            return Err(reader.fault("expected flags of 0 or 1"));
        }
        let accepted = reader.u32()?;
        let (to, from) = (read_name(&mut reader)?, read_name(&mut reader)?);
        let grant = match flags {
            GRANT => Some(Grant::read(&mut reader)?),
            _ => None,
        };
        Ok(Letter { accepted, to, from, grant, octets: reader.rest().into() })
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    match reader.u8()? {
        VERSION => Ok(()),
        _ => Err(reader.fault("expected version 1")),
    }
}

fn read_name(reader: &mut Reader<'_>) -> Result<Box<str>, Malformed> {
    let length = usize::from(reader.u8()?);
    if !(1..=MAX_NAME).contains(&length) {
        return Err(reader.fault("expected a name of 1 to 200 octets"));
    }
    let name = core::str::from_utf8(reader.take(length)?);
    name.map(Into::into).map_err(|_| reader.fault("expected UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_mesh::crypto::StandIn;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    fn letter(octets: usize) -> Letter {
        let home = Search::new(0, &mut SplitMix::new(1)).step(1).unwrap();
        let grant = Grant::sign::<StandIn>(&home, "bob@mesh", NodeId::new(1), (9, 9));
        Letter {
            accepted: 7,
            to: "alice@mesh".into(),
            from: "bob@mesh".into(),
            grant: Some(grant),
            octets: vec![b'x'; octets].into(),
        }
    }

    /// RFC 3428 section 8: a MESSAGE outside of a session has at most 1,300 octets, so that its header fields and its body
    /// fit, whoever its sender is.
    #[test]
    fn the_longest_message_that_the_standard_allows_is_kept() {
        let letter = letter(1_500);
        let octets = letter.to_octets().unwrap();
        assert_eq!(Letter::parse(&octets), Ok(letter));
        assert_eq!(self::letter(MAX_SEALED).to_octets(), None);
    }

    #[test]
    fn a_full_list_fits_a_record() {
        let entry = Entry { id: [3; 16], length: MAX_SEALED as u16, end: 9 };
        let list = List { home: NodeId::new(5), entries: vec![entry; MAX_LISTED] };
        let octets = list.to_octets();
        assert!(octets.len() <= ringway_dht::config::MAX_VALUE);
        assert_eq!(List::parse(&octets), Ok(list));
        assert!(List::parse(&[&octets[..], &octets[9..31]].concat()).is_err());
        assert_eq!(entry.parts(), MAX_PARTS);
    }

    #[test]
    fn messages_without_octets_or_with_too_many_are_not_listed() {
        for length in [0, MAX_SEALED as u16 + 1] {
            let entries = vec![Entry { id: [3; 16], length, end: 9 }];
            assert!(List::parse(&List { home: NodeId::new(5), entries }.to_octets()).is_err());
        }
    }

    proptest! {
        #[test]
        fn octets_are_a_list_or_a_fault(octets in proptest::collection::vec(any::<u8>(), 0..500)) {
            if let Ok(list) = List::parse(&octets) {
                prop_assert_eq!(list.to_octets(), octets);
            }
        }

        #[test]
        fn octets_are_a_message_or_a_fault(octets in proptest::collection::vec(any::<u8>(), 0..500)) {
            if let Ok(letter) = Letter::parse(&octets) {
                prop_assert_eq!(letter.to_octets(), Some(octets));
            }
        }
    }
}
