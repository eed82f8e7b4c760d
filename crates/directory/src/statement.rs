//! What routers state about users, as values of records of the DHT.
//!
//! An *account* is a record by the home of a user, the router on which the user was added:
//!
//! | part | octets |
//! |---|---|
//! | version, 1 | 1 |
//! | second in which the user was added | 4 |
//! | second in which the password was set | 4 |
//! | length of the short number, the number | 1 + n |
//! | length of the display name, the name in UTF-8 | 1 + n |
//!
//! A *location* is a record by a router at which the user is registered:
//!
//! | part | octets |
//! |---|---|
//! | version, 1 | 1 |
//! | flags: 1, a grant follows | 1 |
//! | preference in thousandths (RFC 3261 section 20.10) | 2 |
//! | grant: proof of the home, end, second of the password, signature | 48 + 4 + 4 + 64 |
//!
//! A *grant* is what the home of a user signs when the user has proved to be that user at another router: that router may
//! have the user registered, and send as the user, until the grant ends or the password changes.

use ringway_mesh::crypto::{Crypto, Domain};
use ringway_mesh::wire::SIGNATURE;
use ringway_mesh::{Identity, NodeId, Proof};
use ringway_sansio::{Malformed, Reader, Time};

use crate::config::{MAX_DISPLAY, MAX_NAME, MAX_NUMBER};

/// The version of both.
const VERSION: u8 = 1;
/// A grant follows.
const GRANT: u8 = 1;
/// The greatest preference.
pub const MAX_PREFERENCE: u16 = 1_000;

/// What the home of a user states.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Second in which the user was added.
    pub created: u32,
    /// Second in which the password was set: grants for an earlier password are void.
    pub password_set: u32,
    /// The short number; empty if there is none.
    pub number: Box<str>,
    /// The name for display; empty if there is none.
    pub display: Box<str>,
}

impl Account {
    /// Returns the octets of the statement. What is too long is cut off.
    pub fn to_octets(&self) -> Vec<u8> {
        let (number, display) = (clip(&self.number, MAX_NUMBER), clip(&self.display, MAX_DISPLAY));
        let mut out = Vec::with_capacity(11 + number.len() + display.len());
        out.push(VERSION);
        out.extend(self.created.to_be_bytes());
        out.extend(self.password_set.to_be_bytes());
        for text in [number, display] {
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
        out
    }

    /// Parses a statement.
    ///
    /// # Errors
    /// Octets that are no statement, or texts that are too long or no UTF-8.
    pub fn parse(octets: &[u8]) -> Result<Account, Malformed> {
        let mut reader = Reader::new("expected a whole account", octets);
        read_version(&mut reader)?;
        let (created, password_set) = (reader.u32()?, reader.u32()?);
        let number = read_text(&mut reader, MAX_NUMBER)?;
        let display = read_text(&mut reader, MAX_DISPLAY)?;
        reader.end()?;
        Ok(Account { created, password_set, number, display })
    }
}

/// Returns as many characters of a text as fit.
fn clip(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn read_version(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    match reader.u8()? {
        VERSION => Ok(()),
        _ => Err(reader.fault("expected version 1 of a statement")),
    }
}

fn read_text(reader: &mut Reader<'_>, max: usize) -> Result<Box<str>, Malformed> {
    let length = usize::from(reader.u8()?);
    if length > max {
        return Err(reader.fault("expected a shorter text"));
    }
    let text = core::str::from_utf8(reader.take(length)?);
    text.map(Into::into).map_err(|_| reader.fault("expected UTF-8"))
}

/// The permission of a user's home for another router.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// What the home proves itself with.
    pub home: Proof,
    /// Second after which it is void.
    pub end: u32,
    /// Second in which the password was set that the user has proved to know.
    pub password_set: u32,
    /// The signature of the home.
    pub signature: [u8; SIGNATURE],
}

impl Grant {
    /// Length in octets.
    pub const LENGTH: usize = Proof::LENGTH + 8 + SIGNATURE;

    /// Signs the permission of `home` for `router` to have the user `name`.
    pub fn sign<C: Crypto>(
        home: &Identity,
        name: &str,
        router: NodeId,
        (end, password_set): (u32, u32),
    ) -> Grant {
        let signed = signed(name, router, (end, password_set));
        let signature = C::sign(home, Domain::Grant, &signed);
        Grant { home: *home.proof(), end, password_set, signature }
    }

    /// Verifies the proof of the home and its signature. Returns the home. Whether it has ended is for
    /// [`Grant::has_ended`].
    pub fn verify<C: Crypto>(&self, name: &str, router: NodeId, bits: u8) -> Option<NodeId> {
        let home = C::verify_proof(&self.home, bits).ok()?;
        let signed = signed(name, router, (self.end, self.password_set));
        C::verify(&self.home.key, Domain::Grant, &signed, &self.signature).then_some(home)
    }

    /// Returns whether it has ended.
    pub fn has_ended(&self, now: Time) -> bool {
        u64::from(self.end) <= now.as_secs()
    }

    /// Appends the octets.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.home.to_bytes());
        out.extend(self.end.to_be_bytes());
        out.extend(self.password_set.to_be_bytes());
        out.extend(self.signature);
    }

    /// Parses a grant, unverified.
    ///
    /// # Errors
    /// Another number of octets.
    pub fn parse(octets: &[u8]) -> Result<Grant, Malformed> {
        let mut reader = Reader::new("expected a whole grant", octets);
        let grant = Grant::read(&mut reader)?;
        reader.end()?;
        Ok(grant)
    }

    /// Reads a grant, unverified.
    ///
    /// # Errors
    /// Too few octets.
    pub fn read(reader: &mut Reader<'_>) -> Result<Grant, Malformed> {
        let home = Proof::from_bytes(&reader.array()?);
        let (end, password_set) = (reader.u32()?, reader.u32()?);
        Ok(Grant { home, end, password_set, signature: reader.array()? })
    }
}

fn signed(name: &str, router: NodeId, (end, password_set): (u32, u32)) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + name.len());
    out.extend(router.to_bytes());
    out.extend(end.to_be_bytes());
    out.extend(password_set.to_be_bytes());
    out.extend(name.as_bytes());
    out
}

/// What a router states of a user that is registered there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Location {
    /// The preference in thousandths.
    pub preference: u16,
    /// The permission of the user's home. The home itself needs none.
    pub grant: Option<Grant>,
}

impl Location {
    /// Returns the octets of the statement.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + Grant::LENGTH);
        out.extend([VERSION, if self.grant.is_some() { GRANT } else { 0 }]);
        out.extend(self.preference.min(MAX_PREFERENCE).to_be_bytes());
        if let Some(grant) = &self.grant {
            grant.write(&mut out);
        }
        out
    }

    /// Parses a statement.
    ///
    /// # Errors
    /// Octets that are no statement.
    pub fn parse(octets: &[u8]) -> Result<Location, Malformed> {
        let mut reader = Reader::new("expected a whole location", octets);
        read_version(&mut reader)?;
        let flags = reader.u8()?;
        if flags > GRANT {
            return Err(reader.fault("expected flags of 0 or 1"));
        }
        let preference = reader.u16()?.min(MAX_PREFERENCE);
        let grant = match flags {
            GRANT => Some(Grant::read(&mut reader)?),
            _ => None,
        };
        reader.end()?;
        Ok(Location { preference, grant })
    }
}

/// Returns whether a text can be the name of a user with its domain: 1 to [`MAX_NAME`] octets.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME
}

/// Returns the name that a user has at this home when another home has the name itself: `alice~1f3c@mesh`, with the first
/// digits of the id.
pub fn marked(name: &str, home: NodeId) -> String {
    let mark = home.raw() >> 48;
    match name.split_once('@') {
        Some((user, domain)) => format!("{user}~{mark:04x}@{domain}"),
        None => format!("{name}~{mark:04x}"),
    }
}

/// Returns the name of a user without the mark of this home; `None` if it has none.
pub fn unmarked(name: &str, home: NodeId) -> Option<String> {
    let mark = format!("~{:04x}", home.raw() >> 48);
    let (user, domain) = name.split_once('@')?;
    user.strip_suffix(&mark).map(|user| format!("{user}@{domain}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_mesh::crypto::Real;
    use ringway_mesh::identity::Search;
    use ringway_sansio::SplitMix;

    fn identity(seed: u64) -> Identity {
        Search::new(0, &mut SplitMix::new(seed)).step(1).unwrap()
    }

    #[test]
    fn an_account_comes_back() {
        let account =
            Account { created: 7, password_set: 9, number: "204".into(), display: "Käthe".into() };
        assert_eq!(Account::parse(&account.to_octets()), Ok(account));
    }

    #[test]
    fn what_is_too_long_is_cut_at_a_character() {
        let display: Box<str> = "é".repeat(40).into();
        let parsed = Account::parse(&Account { display, ..Account::default() }.to_octets());
        assert_eq!(&*parsed.unwrap().display, "é".repeat(32));
    }

    #[test]
    fn a_grant_is_for_one_name_one_router_and_one_password() {
        let (home, router) = (identity(1), identity(2).id());
        let grant = Grant::sign::<Real>(&home, "alice@mesh", router, (1_000, 5));
        assert_eq!(grant.verify::<Real>("alice@mesh", router, 0), Some(home.id()));
        assert_eq!(grant.verify::<Real>("alicia@mesh", router, 0), None);
        assert_eq!(grant.verify::<Real>("alice@mesh", identity(3).id(), 0), None);
        for changed in [Grant { end: 1_001, ..grant }, Grant { password_set: 6, ..grant }] {
            assert_eq!(changed.verify::<Real>("alice@mesh", router, 0), None);
        }
        assert!(grant.has_ended(Time::from_secs(1_000)) && !grant.has_ended(Time::from_secs(999)));
    }

    #[test]
    fn a_location_comes_back_with_and_without_a_grant() {
        let grant = Grant::sign::<Real>(&identity(1), "a@mesh", identity(2).id(), (1, 2));
        for grant in [None, Some(grant)] {
            let location = Location { preference: 500, grant };
            assert_eq!(Location::parse(&location.to_octets()), Ok(location));
        }
        let longest = Location { preference: 0, grant: Some(grant) }.to_octets();
        assert!(longest.len() <= ringway_dht::config::MAX_VALUE);
    }

    #[test]
    fn a_marked_name_is_in_the_same_domain() {
        let home = NodeId::new(0x1f3c_0000_0000_0001);
        assert_eq!(marked("alice@mesh", home), "alice~1f3c@mesh");
        assert_eq!(unmarked("alice~1f3c@mesh", home).as_deref(), Some("alice@mesh"));
        assert_eq!(unmarked("alice~1f3d@mesh", home), None);
        assert_eq!(unmarked("alice@mesh", home), None);
    }

    proptest! {
        #[test]
        fn octets_are_a_statement_or_a_fault(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(account) = Account::parse(&octets) {
                prop_assert_eq!(account.to_octets(), &octets[..]);
            }
            if let Ok(location) = Location::parse(&octets) {
                prop_assert_eq!(Location::parse(&location.to_octets()), Ok(location));
            }
        }
    }
}
