//! Messages between servers about what users do.
//!
//! A message is its version in one octet, and then items until the end. Version 1 has states alone; version 2 has states with
//! contacts, and before the items the time of its sender in milliseconds (8). Integers are big-endian. `name` is the length of
//! a name (1) and the name with its domain.
//!
//! | item | octets |
//! |---|---|
//! | FOLLOW, 1 | lifetime in seconds, 0 to end it (2), version of the state that the sender has, 0 if none (8), name |
//! | FOLLOWED, 2 | version of the present state (8), name |
//! | STATE, 3 | version (8), name, length of the state (2), state |
//! | ACK, 4 | version (8), name |
//!
//! A state is what [`Report::write`](ringway_proxy::states::Report::write) has written. The upper half of a version is
//! drawn when a server begins to report a user, the lower one counts.

use ringway_proxy::states::Form;
use ringway_sansio::{Malformed, Reader, Time};

use super::limits::MAX_NAME;

/// How messages are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// What states consist of.
    pub form: Form,
    /// Maximum length of a message in octets.
    pub max_message: usize,
}

/// What a message has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// When it was sent, by the clock of its sender; the epoch if its states have no times.
    pub sent: Time,
    /// The items.
    pub items: Vec<Item<'a>>,
}

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

impl Format {
    fn version(self) -> u8 {
        match self.form {
            Form::State => 1,
            Form::Contacts => 2,
        }
    }

    fn header(self, now: Time) -> Vec<u8> {
        let mut octets = vec![self.version()];
        if self.form == Form::Contacts {
            octets.extend(now.as_millis().to_be_bytes());
        }
        octets
    }

    /// Parses a message.
    ///
    /// # Errors
    /// A message that is too long, another version, an unknown item, or one that is not whole.
    pub fn parse(self, octets: &[u8]) -> Result<Message<'_>, Malformed> {
        let mut reader = Reader::new("expected a whole item", octets);
        if octets.len() > self.max_message {
            return Err(reader.fault("expected a shorter message"));
        }
        if reader.u8()? != self.version() {
            return Err(reader.fault("expected the version of messages about users of this server"));
        }
        let mut sent = Time::ZERO;
        if self.form == Form::Contacts {
            let millis = reader.u64()?;
            // A time is 64 bits of nanoseconds.
            if millis > u64::MAX / 1_000_000 {
                return Err(reader.fault("expected a time before 2554"));
            }
            sent = Time::from_millis(millis);
        }
        let mut items = Vec::new();
        while !reader.is_at_end() {
            items.push(Item::read(&mut reader)?);
        }
        Ok(Message { sent, items })
    }

    /// Returns the octets of a message with these items that is sent now.
    pub fn to_octets(self, now: Time, items: &[Item<'_>]) -> Vec<u8> {
        let mut octets = self.header(now);
        items.iter().for_each(|item| item.write(&mut octets));
        octets
    }
}

/// Messages for one server, which are filled with items one after the other.
pub(super) struct Batch {
    format: Format,
    now: Time,
    messages: Vec<Vec<u8>>,
    max: usize,
}

impl Batch {
    /// At most `max` messages.
    pub(super) fn new(format: Format, now: Time, max: usize) -> Self {
        Batch { format, now, messages: Vec::new(), max }
    }

    /// Appends an item. Returns whether there was room.
    pub(super) fn push(&mut self, item: &Item<'_>) -> bool {
        let mut octets = Vec::with_capacity(64);
        item.write(&mut octets);
        let has_room = self.messages.len() < self.max;
        match self.messages.last_mut() {
            Some(last) if last.len() + octets.len() <= self.format.max_message => {
                last.append(&mut octets);
            }
            _ if has_room => {
                let mut message = self.format.header(self.now);
                message.append(&mut octets);
                self.messages.push(message);
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
    use crate::Config;
    use proptest::prelude::*;
    use ringway_proxy::location::{BindingView, Change};
    use ringway_proxy::states::{
        Activity, Dialog, Direction, MAX_CONTACT_OCTETS, MAX_DIALOGS, MAX_NOTE, MAX_PUBLICATIONS,
        Phase, Publication, Report, ServerContact, UserState,
    };

    const NOW: Time = Time::from_secs(1_000);

    fn formats() -> [Format; 2] {
        [Config::of_router(), Config::of_node()].map(|config| config.format())
    }

    fn contact(length: usize) -> ServerContact {
        let uri = vec![b'a'; length];
        let binding = BindingView {
            contact: &uri,
            params: b"",
            q: 1000,
            expires: NOW,
            path: b"",
            instance: b"",
            reg_id: 0,
            flow: None,
            call_id: b"",
            cseq: 1,
            outbound: false,
            nat: false,
            epoch: 0,
            first_cseq: 0,
        };
        ServerContact::new(&binding).unwrap()
    }

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
        let mut report = Report { ended: Change::Expired, ..Report::from(state) };
        while report.contacts.iter().map(|of| of.binding().unwrap().contact.len()).sum::<usize>()
            < MAX_CONTACT_OCTETS - 4 * 1024
        {
            report.add(contact(3_900));
        }
        (0..20).for_each(|_| report.add(contact(100)));
        for format in formats() {
            let mut octets = Vec::new();
            report.write(format.form, &mut octets);
            let name = "a".repeat(MAX_NAME);
            let item = Item::State { version: u64::MAX, name: &name, state: &octets };
            let mut batch = Batch::new(format, NOW, 1);
            assert!(batch.push(&item));
            while batch.push(&item) {}
            let messages = batch.into_messages();
            assert!(messages[0].len() <= format.max_message);
            assert_eq!(format.parse(&messages[0]).unwrap().items[0], item);
        }
    }

    #[test]
    fn items_are_packed_in_their_order() {
        let names: Vec<String> = (0..60).map(|n| format!("user{n}@mesh")).collect();
        let items: Vec<Item<'_>> =
            names.iter().map(|name| Item::Follow { lifetime: 60, version: 7, name }).collect();
        for (format, expected) in formats().into_iter().zip([2, 1]) {
            let mut batch = Batch::new(format, NOW, 4);
            assert!(items.iter().all(|item| batch.push(item)));
            let messages = batch.into_messages();
            assert_eq!(messages.len(), expected);
            let read = messages.iter().flat_map(|octets| format.parse(octets).unwrap().items);
            assert_eq!(read.collect::<Vec<_>>(), items);
        }
    }

    #[test]
    fn a_message_of_another_format_is_refused() {
        let [router, node] = formats();
        let item = Item::Ack { version: 1, name: "alice@mesh" };
        assert!(router.parse(&node.to_octets(NOW, &[item])).is_err());
        assert!(node.parse(&router.to_octets(NOW, &[item])).is_err());
        assert_eq!(node.parse(&node.to_octets(NOW, &[item])).unwrap().sent, NOW);
        assert!(node.parse(&node.to_octets(Time::from_nanos(u64::MAX), &[item])).is_ok());
        let mut octets = node.to_octets(NOW, &[item]);
        octets[1..9].fill(0xff);
        assert!(node.parse(&octets).is_err(), "a time that is none");
        assert!(node.parse(&vec![2; node.max_message + 1]).is_err());
    }

    proptest! {
        #[test]
        fn octets_are_items_or_a_fault(octets in prop::collection::vec(any::<u8>(), 0..300)) {
            for format in formats() {
                let mut octets = octets.clone();
                if let Some(first) = octets.first_mut() {
                    *first = format.version();
                }
                if let Ok(message) = format.parse(&octets) {
                    prop_assert_eq!(format.to_octets(message.sent, &message.items), octets);
                }
            }
        }
    }
}
