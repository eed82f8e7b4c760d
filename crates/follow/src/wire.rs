//! Messages between servers about what users do.
//!
//! A message is its version, 1, in one octet, and then items until the end. Integers are big-endian. `name` is the length of
//! a name (1) and the name with its domain.
//!
//! | item | octets |
//! |---|---|
//! | FOLLOW, 1 | lifetime in seconds, 0 to end it (2), version of the state that the sender has, 0 if none (8), name |
//! | FOLLOWED, 2 | version of the present state (8), name |
//! | STATE, 3 | version (8), name, length of the state (2), state |
//! | ACK, 4 | version (8), name |
//!
//! A state is what [`UserState::write`](ringway_proxy::states::UserState::write) has written. The upper half of a version is
//! drawn when a server begins to report a user, the lower one counts.

use ringway_sansio::{Malformed, Reader};

pub use super::limits::{MAX_MESSAGE, MAX_NAME};

const VERSION: u8 = 1;

/// A part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// The sender wants to know what a user does at the receiver, for some seconds; 0 ends it.
    Follow {
        /// Lifetime in seconds.
        lifetime: u16,
        /// The version of the state that the sender has; 0 if it has none.
        version: u64,
        /// The user.
        name: &'a str,
    },
    /// The answer to it.
    Followed {
        /// The version of the present state.
        version: u64,
        /// The user.
        name: &'a str,
    },
    /// What a user does at the sender.
    State {
        /// The version.
        version: u64,
        /// The user.
        name: &'a str,
        /// The octets of the state.
        state: &'a [u8],
    },
    /// The receiver of a state has it.
    Ack {
        /// The version.
        version: u64,
        /// The user.
        name: &'a str,
    },
}

impl<'a> Item<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Item<'a>, Malformed> {
        let kind = reader.u8()?;
        let lifetime = if kind == 1 { reader.u16()? } else { 0 };
        let version = reader.u64()?;
        let name = read_name(reader)?;
        Ok(match kind {
            1 => Item::Follow { lifetime, version, name },
            2 => Item::Followed { version, name },
            3 => {
                let length = reader.u16()?;
                Item::State { version, name, state: reader.take(length.into())? }
            }
            4 => Item::Ack { version, name },
            _ => return Err(reader.fault("expected an item from 1 to 4")),
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (kind, version, name) = match *self {
            Item::Follow { version, name, .. } => (1, version, name),
            Item::Followed { version, name } => (2, version, name),
            Item::State { version, name, .. } => (3, version, name),
            Item::Ack { version, name } => (4, version, name),
        };
        out.push(kind);
        if let Item::Follow { lifetime, .. } = self {
            out.extend(lifetime.to_be_bytes());
        }
        out.extend(version.to_be_bytes());
        out.push(name.len() as u8);
        out.extend(name.as_bytes());
        if let Item::State { state, .. } = self {
            out.extend((state.len() as u16).to_be_bytes());
            out.extend(*state);
        }
    }
}

fn read_name<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let length = usize::from(reader.u8()?);
    if !(1..=MAX_NAME).contains(&length) {
        return Err(reader.fault("expected a name of 1 to 200 octets"));
    }
    let name = core::str::from_utf8(reader.take(length)?);
    name.map_err(|_| reader.fault("expected a name in UTF-8"))
}

/// Returns the items of a message.
///
/// # Errors
/// Another version, an unknown item, or one that is not whole.
pub fn parse(octets: &[u8]) -> Result<Vec<Item<'_>>, Malformed> {
    let mut reader = Reader::new("expected a whole item", octets);
    if octets.len() > MAX_MESSAGE {
        return Err(reader.fault("expected a shorter message"));
    }
    if reader.u8()? != VERSION {
        return Err(reader.fault("expected version 1 of messages about users"));
    }
    let mut items = Vec::new();
    while !reader.is_at_end() {
        items.push(Item::read(&mut reader)?);
    }
    Ok(items)
}

/// Returns the octets of a message with these items.
pub fn to_octets(items: &[Item<'_>]) -> Vec<u8> {
    let mut octets = vec![VERSION];
    items.iter().for_each(|item| item.write(&mut octets));
    octets
}

/// Messages for one server, which are filled with items one after the other.
pub(super) struct Batch {
    messages: Vec<Vec<u8>>,
    max: usize,
}

impl Batch {
    /// At most `max` messages.
    pub(super) fn new(max: usize) -> Self {
        Batch { messages: Vec::new(), max }
    }

    /// Appends an item. Returns whether there was room.
    pub(super) fn push(&mut self, item: &Item<'_>) -> bool {
        let mut octets = Vec::with_capacity(64);
        item.write(&mut octets);
        let has_room = self.messages.len() < self.max;
        match self.messages.last_mut() {
            Some(last) if last.len() + octets.len() <= MAX_MESSAGE => last.append(&mut octets),
            _ if has_room => {
                octets.insert(0, VERSION);
                self.messages.push(octets);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn into_messages(self) -> Vec<Vec<u8>> {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_proxy::states::{
        Activity, Dialog, Direction, MAX_DIALOGS, MAX_NOTE, MAX_PUBLICATIONS, Phase, Publication,
        UserState,
    };

    #[test]
    fn the_longest_state_fits_a_message() {
        let dialog = Dialog { id: 1, direction: Direction::Recipient, phase: Phase::Early };
        let publication = Publication {
            is_open: true,
            activity: Activity::Away,
            note: "n".repeat(MAX_NOTE).into(),
        };
        let state = UserState {
            is_registered: true,
            dialogs: vec![dialog; MAX_DIALOGS],
            publications: vec![publication; MAX_PUBLICATIONS],
        };
        let mut octets = Vec::new();
        state.write(&mut octets);
        let name = "a".repeat(MAX_NAME);
        let item = Item::State { version: u64::MAX, name: &name, state: &octets };
        let mut batch = Batch::new(1);
        assert!(batch.push(&item) && !batch.push(&item));
        let messages = batch.into_messages();
        assert!(messages[0].len() <= MAX_MESSAGE);
        assert_eq!(parse(&messages[0]), Ok(vec![item]));
    }

    #[test]
    fn items_are_packed_in_their_order() {
        let names: Vec<String> = (0..60).map(|n| format!("user{n}@mesh")).collect();
        let items: Vec<Item<'_>> =
            names.iter().map(|name| Item::Follow { lifetime: 60, version: 7, name }).collect();
        let mut batch = Batch::new(4);
        assert!(items.iter().all(|item| batch.push(item)));
        let messages = batch.into_messages();
        assert_eq!(messages.len(), 2);
        let read = messages.iter().flat_map(|octets| parse(octets).unwrap());
        assert_eq!(read.collect::<Vec<_>>(), items);
    }

    proptest! {
        #[test]
        fn octets_are_items_or_a_fault(octets in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut octets = octets;
            if let Some(first) = octets.first_mut() {
                *first = VERSION;
            }
            if let Ok(items) = parse(&octets) {
                prop_assert_eq!(to_octets(&items), octets);
            }
        }
    }
}
