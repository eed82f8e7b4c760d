//! What one server reports of a user to others: what the user does there and, where servers share them, the contacts.
//!
//! A report without contacts is the octets of a [`UserState`]. One with contacts continues; integers are big-endian:
//!
//! | part | octets |
//! |---|---|
//! | why contacts that are gone are gone: 0 changed, 1 expired, 2 the flow closed, 3 the server is gone | 1 |
//! | number of contacts, at most [`MAX_CONTACTS`] | 1 |
//! | per contact: length of its record (2), a [record](crate::location::record) with it alone | 2 + n each |
//!
//! Records have times of the clock of the server that has written them, so that what does not change stays the same octet for
//! octet. [`Clock`] makes them times of the reader's.

use super::state::UserState;
use crate::location::{BindingView, Bindings, Change, RecordEdit, record};
use ringway_sansio::{Duration, Malformed, Reader, Time};

/// Maximum number of contacts of a user that one server reports. More are not shown at others.
pub const MAX_CONTACTS: usize = 16;
/// Maximum number of octets of these contacts. Those that do not fit are not shown at others.
pub const MAX_CONTACT_OCTETS: usize = 8 * 1024;
/// Maximum number of octets of a report with contacts.
pub const MAX_REPORT: usize = 1024 + MAX_CONTACT_OCTETS;
/// Maximum lifetime of a contact as another server reports it.
const MAX_LEFT: Duration = Duration::from_secs(366 * 24 * 3600);

/// What a report consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The state alone.
    State,
    /// The state and the contacts.
    Contacts,
}

/// When a report was sent, by the clock of its sender, and received, by that of its reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// When it was sent.
    pub sent: Time,
    /// When it was received.
    pub received: Time,
}

impl Clock {
    /// Returns a time of the sender as one of the reader.
    fn shift(self, time: Time) -> Time {
        self.received + time.since(self.sent).min(MAX_LEFT)
    }
}

/// A contact of a user at one server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerContact {
    /// A record with this binding alone.
    record: Box<[u8]>,
}

impl ServerContact {
    /// Returns a contact. What concerns only the server that has the binding is left out: its flow and its path. `None` if a
    /// text of it is too long.
    pub fn new(binding: &BindingView<'_>) -> Option<ServerContact> {
        let binding = BindingView { path: b"", flow: None, ..*binding };
        let mut octets = Vec::new();
        let mut edit = RecordEdit::new(&[], Time::ZERO, &mut octets);
        edit.put(&binding).ok()?;
        edit.commit();
        edit.finish()?;
        Some(ServerContact { record: octets.into() })
    }

    /// Returns the binding.
    pub fn binding(&self) -> Option<BindingView<'_>> {
        Bindings::new(&self.record, Time::ZERO).next()
    }

    /// Returns its octets in a report.
    fn len(&self) -> usize {
        2 + self.record.len()
    }

    fn read(reader: &mut Reader<'_>, clock: Clock) -> Result<ServerContact, Malformed> {
        let length = reader.u16()?;
        let octets = reader.take(length.into())?;
        let is_one = record::check(octets).is_ok_and(|count| count == 1);
        let binding = Bindings::new(octets, Time::ZERO).next().filter(|_| is_one);
        let Some(binding) = binding else {
            return Err(reader.fault("expected the record of one contact"));
        };
        let binding = BindingView { expires: clock.shift(binding.expires), ..binding };
        ServerContact::new(&binding).ok_or_else(|| reader.fault("expected a shorter contact"))
    }
}

/// What one server reports of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// What the user does there.
    pub state: UserState,
    /// The contacts there, the most recently registered first.
    pub contacts: Vec<ServerContact>,
    /// Why contacts that are gone are gone.
    pub ended: Change,
}

impl Default for Report {
    fn default() -> Self {
        Report { state: UserState::default(), contacts: Vec::new(), ended: Change::Updated }
    }
}

impl From<UserState> for Report {
    fn from(state: UserState) -> Report {
        Report { state, ..Report::default() }
    }
}

impl Report {
    /// Adds a contact, if it fits.
    pub fn add(&mut self, contact: ServerContact) {
        let octets: usize = self.contacts.iter().map(ServerContact::len).sum();
        if self.contacts.len() < MAX_CONTACTS && octets + contact.len() <= MAX_CONTACT_OCTETS {
            self.contacts.push(contact);
        }
    }

    /// Returns the octets of its contacts.
    pub(super) fn contact_octets(&self) -> usize {
        self.contacts.iter().map(ServerContact::len).sum()
    }

    /// Appends its octets.
    pub fn write(&self, form: Form, out: &mut Vec<u8>) {
        self.state.write(out);
        if form == Form::State {
            return;
        }
        out.push(match self.ended {
            Change::Updated => 0,
            Change::Expired => 1,
            Change::FlowClosed => 2,
            Change::ServerGone => 3,
        });
        let contacts = &self.contacts[..self.contacts.len().min(MAX_CONTACTS)];
        out.push(contacts.len() as u8);
        for ServerContact { record } in contacts {
            out.extend_from_slice(&(record.len() as u16).to_be_bytes());
            out.extend_from_slice(record);
        }
    }

    /// Returns the report of octets that another server has written.
    ///
    /// # Errors
    /// Octets that are none: another version, a number above its maximum, a contact that is no record, or trailing octets.
    pub fn parse(octets: &[u8], form: Form, clock: Clock) -> Result<Report, Malformed> {
        let mut reader = Reader::new("expected a whole report of a user", octets);
        if octets.len() > MAX_REPORT {
            return Err(reader.fault("expected a shorter report of a user"));
        }
        let mut report = Report::from(UserState::read(&mut reader)?);
        if form == Form::Contacts {
            report.ended = match reader.u8()? {
                0 => Change::Updated,
                1 => Change::Expired,
                2 => Change::FlowClosed,
                3 => Change::ServerGone,
                _ => return Err(reader.fault("expected why contacts are gone, 0 to 3")),
            };
            let count = reader.u8()?;
            if usize::from(count) > MAX_CONTACTS {
                return Err(reader.fault("expected fewer contacts"));
            }
            for _ in 0..count {
                let contact = ServerContact::read(&mut reader, clock)?;
                report.contacts.push(contact);
            }
        }
        reader.end()?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::tests::{any_binding, binding};
    use proptest::prelude::*;

    const CLOCK: Clock = Clock { sent: Time::from_secs(1_000), received: Time::from_secs(5_000) };

    fn read(report: &Report, clock: Clock) -> Result<Report, Malformed> {
        let mut octets = Vec::new();
        report.write(Form::Contacts, &mut octets);
        assert!(octets.len() <= MAX_REPORT, "{}", octets.len());
        Report::parse(&octets, Form::Contacts, clock)
    }

    fn expiring(seconds: u64) -> ServerContact {
        let expires = Time::from_secs(seconds);
        ServerContact::new(&BindingView { expires, ..binding() }).unwrap()
    }

    #[test]
    fn lifetimes_are_those_of_the_clock_of_the_reader() {
        let mut report = Report { ended: Change::FlowClosed, ..Report::default() };
        for seconds in [1_060, 900, 1 << 31] {
            report.add(expiring(seconds));
        }
        let read = read(&report, CLOCK).unwrap();
        assert_eq!((read.ended, read.contacts.len()), (Change::FlowClosed, 3));
        let expires: Vec<Time> =
            read.contacts.iter().map(|contact| contact.binding().unwrap().expires).collect();
        // A minute is left, nothing, and more than is believed.
        assert_eq!(
            expires,
            [CLOCK.received + Duration::from_secs(60), CLOCK.received, CLOCK.received + MAX_LEFT]
        );
    }

    #[test]
    fn contacts_above_a_maximum_are_left_out() {
        let mut report = Report::default();
        (0..100).for_each(|_| report.add(expiring(2_000)));
        assert_eq!(report.contacts.len(), MAX_CONTACTS);
        let mut report = Report::default();
        let long = vec![b'a'; 3_000];
        for _ in 0..10 {
            let contact = ServerContact::new(&BindingView { contact: &long, ..binding() });
            report.add(contact.unwrap());
        }
        assert_eq!(report.contacts.len(), 2);
        assert!(read(&report, CLOCK).is_ok());
    }

    #[test]
    fn what_only_the_server_of_a_binding_needs_is_not_reported() {
        let flow = crate::location::tests::flow(1, ringway_sansio::Transport::Tls);
        let view = BindingView {
            flow: Some(flow),
            path: b"<sip:p>",
            epoch: 9,
            instance: b"i",
            ..binding()
        };
        let contact = ServerContact::new(&view).unwrap();
        let got = contact.binding().unwrap();
        assert_eq!((got.flow, got.path, got.epoch), (None, &b""[..], 9));
        assert_eq!((got.instance, got.contact), (view.instance, view.contact));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bindings in prop::collection::vec(any_binding(), 0..8), ended in 0usize..4) {
            let all = [Change::Updated, Change::Expired, Change::FlowClosed, Change::ServerGone];
            let mut report = Report { ended: all[ended], ..Report::default() };
            for binding in &bindings {
                let expires = Time::from_secs(1_700_000_000);
                let contact = ServerContact::new(&BindingView { expires, ..binding.view() });
                report.add(contact.unwrap());
            }
            let same = Clock { sent: Time::ZERO, received: Time::ZERO };
            let shifted = Clock { sent: Time::from_secs(1_699_999_000), received: Time::from_secs(1_699_999_000) };
            prop_assert_eq!(read(&report, shifted).unwrap(), report.clone());
            prop_assert_eq!(read(&report, same).unwrap().contacts.len(), report.contacts.len());
        }

        #[test]
        fn no_octets_make_it_panic(
            octets in prop::collection::vec(any::<u8>(), 0..80), cut in 0usize..300, flip in 0usize..300,
        ) {
            let mut whole = vec![1, 1, 0, 0];
            whole.extend(octets);
            let _ = Report::parse(&whole, Form::Contacts, CLOCK);
            let mut report = Report::default();
            report.add(expiring(2_000));
            report.add(expiring(3_000));
            let mut written = Vec::new();
            report.write(Form::Contacts, &mut written);
            if let Some(octet) = written.get_mut(flip) {
                *octet ^= 0x41;
            }
            written.truncate(cut);
            let _ = Report::parse(&written, Form::Contacts, CLOCK);
        }
    }
}
