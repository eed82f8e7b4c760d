//! The state of one user at one server, and its octets for other servers.
//!
//! Integers are big-endian.
//!
//! | part | octets |
//! |---|---|
//! | version, 1 | 1 |
//! | 1 if the user is registered there, else 0 | 1 |
//! | number of dialogs, at most [`MAX_DIALOGS`] | 1 |
//! | per dialog: identifier (4), direction in bit 7 and phase in bits 0 to 1 (1) | 5 each |
//! | number of publications, at most [`MAX_PUBLICATIONS`] | 1 |
//! | per publication: 1 if open, else 0 (1), activity (1), length of the note (1), note | 3 + n each |

use ringway_sansio::{Malformed, Reader};

/// Maximum number of dialogs of a user at one server that watchers are notified of; more are not reported.
pub const MAX_DIALOGS: usize = 8;
/// Maximum number of publications of a user at one server, one for each phone that publishes.
pub const MAX_PUBLICATIONS: usize = 4;
/// Maximum length of the note of a publication, in octets.
pub const MAX_NOTE: usize = 120;

const VERSION: u8 = 1;

/// The phase of a dialog (RFC 4235 section 3.7.1). One that has terminated is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// An INVITE has been sent and is not answered.
    Trying,
    /// The phone of the callee rings.
    Early,
    /// The call is answered.
    Confirmed,
}

/// Whether a user has made the call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// The user is the caller.
    Initiator,
    /// The user is the callee.
    Recipient,
}

/// A dialog of a user. It does not name the other party: a lamp shows that somebody is on the phone, not with whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Dialog {
    /// Distinguishes it from the user's other dialogs at the same server.
    pub id: u32,
    /// Who has made the call.
    pub direction: Direction,
    /// Its phase.
    pub phase: Phase,
}

/// What a person does (RFC 4480 section 3.2, the activities that phones offer).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[repr(u8)]
pub enum Activity {
    /// Unknown.
    #[default]
    None = 0,
    /// Not at the phone.
    Away = 1,
    /// Does not want to be disturbed.
    Busy = 2,
    /// In a meeting.
    Meeting = 3,
    /// Having a meal.
    Meal = 4,
    /// On vacation.
    Vacation = 5,
    /// On the phone.
    OnThePhone = 6,
}

impl Activity {
    /// All activities with their element names of RFC 4480.
    const NAMES: [(Activity, &'static str); 6] = [
        (Activity::Away, "away"),
        (Activity::Busy, "busy"),
        (Activity::Meeting, "meeting"),
        (Activity::Meal, "meal"),
        (Activity::Vacation, "vacation"),
        (Activity::OnThePhone, "on-the-phone"),
    ];

    /// Returns the activity of an element name of RFC 4480; `None` for any other name.
    pub fn from_name(name: &str) -> Option<Activity> {
        Self::NAMES.iter().find(|(_, of)| *of == name).map(|(activity, _)| *activity)
    }

    /// Returns the element name; `None` for [`Activity::None`].
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(activity, _)| *activity == self).map(|(_, name)| *name)
    }
}

/// What a phone has published of its user (RFC 3903): the parts of a PIDF document that other phones show.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Publication {
    /// Whether the user accepts calls and messages (RFC 3863 section 4.1.4).
    pub is_open: bool,
    /// What the user does.
    pub activity: Activity,
    /// A text by the user; at most [`MAX_NOTE`] octets.
    pub note: Box<str>,
}

/// What a user does at one server, or at all of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct UserState {
    /// Whether the user is registered.
    pub is_registered: bool,
    /// The calls of the user's phones.
    pub dialogs: Vec<Dialog>,
    /// What the user's phones have published, the latest first.
    pub publications: Vec<Publication>,
}

impl UserState {
    /// Returns whether it differs in nothing from that of a user who is at another server.
    pub fn is_empty(&self) -> bool {
        !self.is_registered && self.dialogs.is_empty() && self.publications.is_empty()
    }

    /// Appends the octets of the state.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[VERSION, u8::from(self.is_registered)]);
        let dialogs = &self.dialogs[..self.dialogs.len().min(MAX_DIALOGS)];
        out.push(dialogs.len() as u8);
        for Dialog { id, direction, phase } in dialogs {
            out.extend_from_slice(&id.to_be_bytes());
            out.push((*direction as u8) << 7 | *phase as u8);
        }
        let publications = &self.publications[..self.publications.len().min(MAX_PUBLICATIONS)];
        out.push(publications.len() as u8);
        for Publication { is_open, activity, note } in publications {
            let note = shortened(note);
            out.extend_from_slice(&[u8::from(*is_open), *activity as u8, note.len() as u8]);
            out.extend_from_slice(note.as_bytes());
        }
    }

    /// Returns the state of octets that another server has written.
    ///
    /// # Errors
    /// Octets that are no state: another version, a number above its maximum, or trailing octets.
    pub fn parse(octets: &[u8]) -> Result<UserState, Malformed> {
        let mut reader = Reader::new("expected the whole state of a user", octets);
        let state = UserState::read(&mut reader)?;
        reader.end()?;
        Ok(state)
    }

    /// Reads a state, behind which other octets may follow.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<UserState, Malformed> {
        if reader.u8()? != VERSION {
            return Err(reader.fault("expected version 1 of the state of a user"));
        }
        let is_registered = flag(reader)?;
        let mut dialogs = Vec::new();
        for _ in 0..count(reader, MAX_DIALOGS)? {
            dialogs.push(dialog(reader)?);
        }
        let mut publications = Vec::new();
        for _ in 0..count(reader, MAX_PUBLICATIONS)? {
            publications.push(publication(reader)?);
        }
        Ok(UserState { is_registered, dialogs, publications })
    }
}

/// Returns as much of a text as a note may have.
pub(super) fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MAX_NOTE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn flag(reader: &mut Reader<'_>) -> Result<bool, Malformed> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(reader.fault("expected 0 or 1")),
    }
}

fn count(reader: &mut Reader<'_>, max: usize) -> Result<u8, Malformed> {
    let count = reader.u8()?;
    if usize::from(count) > max {
        return Err(reader.fault("expected fewer parts of the state of a user"));
    }
    Ok(count)
}

fn dialog(reader: &mut Reader<'_>) -> Result<Dialog, Malformed> {
    let (id, octet) = (reader.u32()?, reader.u8()?);
    let direction = if octet & 0x80 == 0 { Direction::Initiator } else { Direction::Recipient };
    let phase = match octet & 0x7f {
        0 => Phase::Trying,
        1 => Phase::Early,
        2 => Phase::Confirmed,
        _ => return Err(reader.fault("expected the phase of a dialog")),
    };
    Ok(Dialog { id, direction, phase })
}

fn publication(reader: &mut Reader<'_>) -> Result<Publication, Malformed> {
    let is_open = flag(reader)?;
    let activity = match reader.u8()? {
        0 => Activity::None,
        octet => Activity::NAMES
            .iter()
            .map(|(activity, _)| *activity)
            .find(|activity| *activity as u8 == octet)
            .ok_or_else(|| reader.fault("expected an activity"))?,
    };
    let length = count(reader, MAX_NOTE)?;
    let note = std::str::from_utf8(reader.take(length.into())?)
        .map_err(|_| reader.fault("expected a note in UTF-8"))?;
    Ok(Publication { is_open, activity, note: note.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_state() -> impl Strategy<Value = UserState> {
        let dialog = (any::<u32>(), any::<bool>(), 0u8..3).prop_map(|(id, recipient, phase)| {
            let direction = if recipient { Direction::Recipient } else { Direction::Initiator };
            let phase = [Phase::Trying, Phase::Early, Phase::Confirmed][usize::from(phase)];
            Dialog { id, direction, phase }
        });
        let publication =
            (any::<bool>(), 0usize..6, "\\PC{0,30}").prop_map(|(is_open, at, note)| Publication {
                is_open,
                activity: Activity::NAMES[at].0,
                note: note.into(),
            });
        let dialogs = prop::collection::vec(dialog, 0..=MAX_DIALOGS);
        let publications = prop::collection::vec(publication, 0..=MAX_PUBLICATIONS);
        (any::<bool>(), dialogs, publications).prop_map(|(is_registered, dialogs, publications)| {
            UserState { is_registered, dialogs, publications }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(state in any_state()) {
            let mut octets = Vec::new();
            state.write(&mut octets);
            prop_assert_eq!(UserState::parse(&octets), Ok(state));
            octets.push(0);
            prop_assert!(UserState::parse(&octets).is_err());
        }

        #[test]
        fn no_octets_make_it_panic(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(state) = UserState::parse(&octets) {
                let mut again = Vec::new();
                state.write(&mut again);
                prop_assert_eq!(again, octets);
            }
        }
    }

    #[test]
    fn parts_above_their_maximum_are_not_written() {
        let dialog = Dialog { id: 1, direction: Direction::Recipient, phase: Phase::Early };
        let note = "\u{e9}".repeat(MAX_NOTE);
        let publication =
            Publication { is_open: true, activity: Activity::Busy, note: note.into() };
        let state = UserState {
            is_registered: true,
            dialogs: vec![dialog; 2 * MAX_DIALOGS],
            publications: vec![publication; 2 * MAX_PUBLICATIONS],
        };
        let mut octets = Vec::new();
        state.write(&mut octets);
        let read = UserState::parse(&octets).unwrap();
        assert_eq!(read.dialogs.len(), MAX_DIALOGS);
        assert_eq!(read.publications.len(), MAX_PUBLICATIONS);
        assert_eq!(&*read.publications[0].note, "\u{e9}".repeat(MAX_NOTE / 2));
        let numbers = [1, 0, 1, 0, 0, 0, 9, 3, 0];
        assert!(UserState::parse(&numbers).is_err(), "a phase that does not exist");
    }
}
