//! What routers state about users, as values of records of the DHT.
//!
//! An *account* is a record by the home of a user, the router on which the user was added:
//!
//! | part | octets |
//! |---|---|
//! | version, 1 | 1 |
//! | second in which the password was set | 4 |
//! | length of the short number, the number | 1 + n |
//! | length of the display name, the name in UTF-8 | 1 + n |
//! | public keys of the home's delegate ([`deputies`](crate::deputies)) and of the one before, what is sealed for it; may be missing | 64 + n |
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
//! have the user registered, and send as the user, until the grant ends or the password changes. While the home is silent, its
//! delegate signs instead.

use ringway_mesh::crypto::{Crypto, Domain, ENVELOPE};
use ringway_mesh::identity::KEY;
use ringway_mesh::wire::SIGNATURE;
use ringway_mesh::{Identity, NodeId, Proof};
use ringway_sansio::{Malformed, Reader, Time};

use crate::config::{MAX_ANSWERERS, MAX_DISPLAY, MAX_NAME, MAX_NUMBER, MAX_PATTERN, MAX_SECRET};

/// The version of both.
const VERSION: u8 = 1;
/// A grant follows.
const GRANT: u8 = 1;
/// The greatest preference.
pub const MAX_PREFERENCE: u16 = 1_000;

/// What the home of a user states.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Second in which the password was set: grants for an earlier password are void.
    pub password_set: u32,
    /// The short number; empty if there is none.
    pub number: Box<str>,
    /// The name for display; empty if there is none.
    pub display: Box<str>,
    /// What deputies check credentials with while the home is silent.
    pub replica: Option<Replica>,
}

/// What is needed to check the credentials of a user, sealed for the delegate of the home.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The public key of the delegate.
    pub key: [u8; KEY],
    /// That of the delegate before, whose grants may not have ended.
    pub before: [u8; KEY],
    /// What is sealed for the delegate.
    pub sealed: Box<[u8]>,
}

impl Account {
    /// Returns the octets of the statement. What is too long is cut off.
    pub fn to_octets(&self) -> Vec<u8> {
        let (number, display) = (clip(&self.number, MAX_NUMBER), clip(&self.display, MAX_DISPLAY));
        let mut out = Vec::with_capacity(7 + number.len() + display.len());
        out.push(VERSION);
        out.extend(self.password_set.to_be_bytes());
        for text in [number, display] {
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
        if let Some(Replica { key, before, sealed }) = &self.replica {
            out.extend(key);
            out.extend(before);
            out.extend(&sealed[..]);
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
        let password_set = reader.u32()?;
        let number = read_text(&mut reader, MAX_NUMBER)?;
        let display = read_text(&mut reader, MAX_DISPLAY)?;
        let replica = match reader.is_at_end() {
            true => None,
            false => {
                let (key, before) = (reader.array()?, reader.array()?);
                Some(Replica { key, before, sealed: reader.rest().into() })
            }
        };
        let length = |replica: &Replica| replica.sealed.len();
        if replica.as_ref().is_some_and(|r| !(1..=MAX_SECRET + ENVELOPE).contains(&length(r))) {
            return Err(reader.fault("expected 1 to 144 octets that are sealed"));
        }
        Ok(Account { password_set, number, display, replica })
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
        Grant::sign_for::<C>((home, *home.proof()), name, router, (end, password_set))
    }

    /// Signs the same as the delegate of a home that is silent.
    pub fn sign_for<C: Crypto>(
        (delegate, home): (&Identity, Proof),
        name: &str,
        router: NodeId,
        (end, password_set): (u32, u32),
    ) -> Grant {
        let signed = signed(name, router, (end, password_set));
        let signature = C::sign(delegate, Domain::Grant, &signed);
        Grant { home, end, password_set, signature }
    }

    /// Returns whether the home of a user, or the delegate that it states, has signed it for this router. Whether it has ended
    /// is for [`Grant::has_ended`].
    pub fn is_of<C: Crypto>(
        &self,
        (home, account): (NodeId, &Account),
        name: &str,
        router: NodeId,
        bits: u8,
    ) -> bool {
        if C::verify_proof(&self.home, bits) != Ok(home) {
            return false;
        }
        let signed = signed(name, router, (self.end, self.password_set));
        let is_by = |key| C::verify(key, Domain::Grant, &signed, &self.signature);
        let delegates = account.replica.iter().flat_map(|of| [&of.key, &of.before]);
        core::iter::once(&self.home.key).chain(delegates).any(is_by)
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

/// What a router states of a number: which of its users it stands for. The record is named `204@mesh`.
///
/// | part | octets |
/// |---|---|
/// | version, 1 | 1 |
/// | flags: 1, the users answer for it together with those of other routers | 1 |
/// | users: each the length of the name with its domain, the name | 1 + n |
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Number {
    /// Whether the users of other routers answer for it too, as for an emergency number. Otherwise it is the number of one
    /// user, whose account states it.
    pub is_service: bool,
    /// The users with their domain, at most [`MAX_ANSWERERS`].
    pub users: Vec<Box<str>>,
}

impl Number {
    /// Returns the octets of the statement.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = vec![VERSION, u8::from(self.is_service)];
        for user in self.users.iter().take(MAX_ANSWERERS).filter(|user| is_name(user)) {
            out.push(user.len() as u8);
            out.extend(user.as_bytes());
        }
        out
    }

    /// Parses a statement.
    ///
    /// # Errors
    /// Octets that are no statement, or too many users.
    pub fn parse(octets: &[u8]) -> Result<Number, Malformed> {
        let mut reader = Reader::new("expected a whole number", octets);
        read_version(&mut reader)?;
        let flags = reader.u8()?;
        if flags > 1 {
            return Err(reader.fault("expected flags of 0 or 1"));
        }
        let mut users = Vec::new();
        while !reader.is_at_end() {
            let user = read_text(&mut reader, MAX_NAME)?;
            if user.is_empty() || users.len() >= MAX_ANSWERERS {
                return Err(reader.fault("expected at most 4 names of users"));
            }
            users.push(user);
        }
        Ok(Number { is_service: flags == 1, users })
    }
}

/// Returns whether a name is a number: digits, and its domain.
pub fn is_number(name: &str) -> bool {
    let user = name.split_once('@').map_or(name, |(user, _)| user);
    (1..=MAX_NUMBER).contains(&user.len()) && user.bytes().all(|octet| octet.is_ascii_digit())
}

/// Returns the name of a number in the domain of a user; `None` if it is none.
pub fn number_name(user: &str, number: &str) -> Option<String> {
    let (_, domain) = user.split_once('@')?;
    let name = format!("{number}@{domain}");
    is_number(&name).then_some(name)
}

/// A way into other networks that a router shares with the users of all others.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedRule {
    /// The domain that is called: empty for the own one, `*` for any other, `.example.org` for what is below a domain.
    pub domain: Box<str>,
    /// What the user part begins with, or its pattern; empty for any.
    pub user: Box<str>,
    /// Whether `user` is a pattern.
    pub is_pattern: bool,
    /// The routers with the lowest cost are tried first.
    pub cost: u16,
    /// The share of the load among routers of one cost.
    pub capacity: u16,
}

/// Returns the octets of a statement about rules, and how many of them have found room. The record has the name of the
/// domain.
///
/// | part | octets |
/// |---|---|
/// | version, 1 | 1 |
/// | rules: each flags (1, the user part is a pattern), cost, capacity, length of the domain, the domain, length of the user part, the user part | 1 + 2 + 2 + 1 + n + 1 + n |
pub fn write_rules(rules: &[SharedRule]) -> (Vec<u8>, usize) {
    let mut out = vec![VERSION];
    for (count, rule) in rules.iter().enumerate() {
        let (domain, user) = (clip(&rule.domain, MAX_PATTERN), clip(&rule.user, MAX_PATTERN));
        if out.len() + 7 + domain.len() + user.len() > ringway_dht::config::MAX_VALUE {
            return (out, count);
        }
        out.push(u8::from(rule.is_pattern));
        out.extend(rule.cost.to_be_bytes());
        out.extend(rule.capacity.to_be_bytes());
        for text in [domain, user] {
            out.push(text.len() as u8);
            out.extend(text.as_bytes());
        }
    }
    (out, rules.len())
}

/// Parses a statement about rules.
///
/// # Errors
/// Octets that are no statement.
pub fn parse_rules(octets: &[u8]) -> Result<Vec<SharedRule>, Malformed> {
    let mut reader = Reader::new("expected whole rules", octets);
    read_version(&mut reader)?;
    let mut rules = Vec::new();
    while !reader.is_at_end() {
        let flags = reader.u8()?;
        if flags > 1 {
            return Err(reader.fault("expected flags of 0 or 1"));
        }
        let (cost, capacity) = (reader.u16()?, reader.u16()?);
        let domain = read_text(&mut reader, MAX_PATTERN)?;
        let user = read_text(&mut reader, MAX_PATTERN)?;
        rules.push(SharedRule { domain, user, is_pattern: flags == 1, cost, capacity });
    }
    Ok(rules)
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
        let (number, display) = ("204".into(), "Käthe".into());
        let account = Account { password_set: 9, number, display, replica: None };
        assert_eq!(Account::parse(&account.to_octets()), Ok(account.clone()));
        let sealed =
            |length| Replica { key: [7; KEY], before: [8; KEY], sealed: vec![1; length].into() };
        for (length, is_good) in [(1, true), (144, true), (0, false), (145, false)] {
            let account = Account { replica: Some(sealed(length)), ..account.clone() };
            let octets = account.to_octets();
            assert_eq!(Account::parse(&octets).ok(), is_good.then_some(account), "{length}");
        }
    }

    #[test]
    fn what_is_too_long_is_cut_at_a_character() {
        let display: Box<str> = "é".repeat(40).into();
        let parsed = Account::parse(&Account { display, ..Account::default() }.to_octets());
        assert_eq!(&*parsed.unwrap().display, "é".repeat(32));
    }

    #[test]
    fn a_grant_is_for_one_name_one_router_and_one_password() {
        let (signer, router) = (identity(1), identity(2).id());
        let nothing = Account::default();
        let home = (signer.id(), &nothing);
        let grant = Grant::sign::<Real>(&signer, "alice@mesh", router, (1_000, 5));
        assert!(grant.is_of::<Real>(home, "alice@mesh", router, 0));
        assert!(!grant.is_of::<Real>(home, "alicia@mesh", router, 0));
        assert!(!grant.is_of::<Real>(home, "alice@mesh", identity(3).id(), 0));
        let other = (identity(3).id(), &nothing);
        assert!(!grant.is_of::<Real>(other, "alice@mesh", router, 0));
        for changed in [Grant { end: 1_001, ..grant }, Grant { password_set: 6, ..grant }] {
            assert!(!changed.is_of::<Real>(home, "alice@mesh", router, 0));
        }
        // A delegate signs as long as the home states it.
        let delegate = identity(4);
        let signers = (&delegate, *signer.proof());
        let grant = Grant::sign_for::<Real>(signers, "alice@mesh", router, (1_000, 5));
        assert!(!grant.is_of::<Real>(home, "alice@mesh", router, 0));
        let (key, other, sealed) = (delegate.proof().key, [9; KEY], Box::<[u8]>::from([1]));
        for (key, before) in [(key, other), (other, key)] {
            let replica = Some(Replica { key, before, sealed: sealed.clone() });
            let account = Account { replica, ..Account::default() };
            let home = (signer.id(), &account);
            assert!(grant.is_of::<Real>(home, "alice@mesh", router, 0));
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

    #[test]
    fn numbers_are_digits_in_a_domain() {
        for (name, expected) in [
            ("112@mesh", true),
            ("112", true),
            ("@mesh", false),
            ("1a@mesh", false),
            ("+49@mesh", false),
            ("1234567890123456@mesh", false),
        ] {
            assert_eq!(is_number(name), expected, "{name}");
        }
        assert_eq!(number_name("alice@mesh", "204").as_deref(), Some("204@mesh"));
        assert_eq!(number_name("alice@mesh", ""), None);
    }

    #[test]
    fn rules_that_find_no_room_are_left_out() {
        let rule = SharedRule { user: "0".repeat(64).into(), ..SharedRule::default() };
        let (octets, count) = write_rules(&vec![rule.clone(); 10]);
        assert_eq!(count, 7);
        assert!(octets.len() <= ringway_dht::config::MAX_VALUE);
        assert_eq!(parse_rules(&octets), Ok(vec![rule; 7]));
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
            if let Ok(number) = Number::parse(&octets) {
                prop_assert_eq!(number.to_octets(), &octets[..]);
            }
            if let Ok(rules) = parse_rules(&octets) {
                prop_assert_eq!(write_rules(&rules), (octets, rules.len()));
            }
        }
    }
}
