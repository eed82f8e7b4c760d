//! A row of the database as a user, or the reason why it is none.
//!
//! Rows are taken for hostile: another program may have written them. A refused row concerns its user alone.

use crate::name::{MAX_REALM, check_name, check_password};
use ringway_import::User;
use ringway_sip::digest::{Algorithm, Ha1};
use std::collections::BTreeMap;
use std::fmt;

/// Number of characters of a value that are read from the database: more than any valid value has.
pub const MAX_TEXT: usize = 300;

/// What a user proves to be itself by.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// A password, of which all hashes are made.
    Password(String),
    /// Some hashes of it, at most one for each algorithm.
    Hashes(Vec<Ha1>),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secret::Password(_) => "Password(..)",
            Secret::Hashes(_) => "Hashes(..)",
        })
    }
}

/// A user of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Name.
    pub user: String,
    /// Domain.
    pub realm: String,
    /// Its secret.
    pub secret: Secret,
    /// The second since 1970 in which the password was set, if that is known.
    pub password_set: Option<u32>,
}

/// A row that is no user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Its name, if it has a valid one, and its domain.
    pub name: Option<(String, String)>,
    /// The row for the log, quoted and bounded, and the reason. Has no secret.
    pub text: String,
}

/// The values of a row that Ringway has written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row<'a> {
    /// Name.
    pub username: &'a [u8],
    /// Domain.
    pub domain: &'a [u8],
    /// Hashes in hexadecimal, in the order of [`HASHES`].
    pub hashes: [Option<&'a [u8]>; 3],
    /// The second since 1970 in which the password was set.
    pub password_set: i64,
}

/// The algorithms of a row's hashes.
pub const HASHES: [Algorithm; 3] = [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256];

impl Row<'_> {
    /// Returns the user.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn entry(&self) -> Result<Entry, Refusal> {
        let (user, realm) = self.name().map_err(|reason| Refusal {
            name: None,
            text: format!("{} {reason}", shown(self.username, self.domain)),
        })?;
        match self.secret() {
            Ok(secret) => {
                let password_set = u32::try_from(self.password_set).ok();
                Ok(Entry { user, realm, secret, password_set })
            }
            Err(reason) => Err(Refusal {
                text: format!("{} {reason}", shown(self.username, self.domain)),
                name: Some((user, realm)),
            }),
        }
    }

    fn name(&self) -> Result<(String, String), String> {
        let user = std::str::from_utf8(self.username)
            .ok()
            .filter(|user| check_name(user).is_ok())
            .ok_or("has no valid user name")?;
        let realm = std::str::from_utf8(self.domain).ok().filter(|realm| is_realm(realm));
        Ok((user.to_owned(), realm.ok_or("has no valid domain, in lower case")?.to_owned()))
    }

    fn secret(&self) -> Result<Secret, String> {
        let mut hashes = Vec::new();
        for (algorithm, hex) in HASHES.into_iter().zip(self.hashes) {
            let Some(hex) = hex else { continue };
            let hash = Ha1::from_hex(algorithm, hex);
            let digits = 2 * algorithm.octets();
            hashes.push(hash.ok_or_else(|| {
                format!("expected {digits} hexadecimal digits as the {} hash", algorithm.name())
            })?);
        }
        match hashes.is_empty() {
            true => Err("has no hash".to_owned()),
            false => Ok(Secret::Hashes(hashes)),
        }
    }
}

fn is_realm(realm: &str) -> bool {
    let fine = |b: u8| b.is_ascii_graphic() && !b.is_ascii_uppercase() && !b"\"\\@".contains(&b);
    (1..=MAX_REALM).contains(&realm.len()) && realm.bytes().all(fine)
}

/// Names a row for the log.
fn shown(user: &[u8], domain: &[u8]) -> String {
    const MAX: usize = 48;
    let part = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let mut short: String = text.chars().take(MAX).collect();
        if short.len() < text.len() {
            short.push_str("..");
        }
        short
    };
    format!("user {:?}", format!("{}@{}", part(user), part(domain)))
}

/// The domains of this server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Domains {
    /// The main one, to which rows without a domain belong.
    main: String,
    /// Each name, in lower case, and the domain it stands for.
    names: BTreeMap<String, String>,
}

impl Domains {
    /// Returns the domains with these names, the main one first; each with its other names.
    pub fn new<'n>(domains: impl IntoIterator<Item = (&'n str, Vec<&'n str>)>) -> Self {
        let mut out = Domains::default();
        for (name, others) in domains {
            if out.main.is_empty() {
                out.main = name.to_owned();
            }
            for other in std::iter::once(name).chain(others) {
                out.names.entry(other.to_ascii_lowercase()).or_insert_with(|| name.to_owned());
            }
        }
        out
    }

    /// Returns the domain that a row belongs to, if it is one of this server.
    fn of(&self, domain: Option<&str>) -> Option<&str> {
        match domain {
            None => Some(&self.main),
            Some(domain) => self.names.get(&domain.to_ascii_lowercase()).map(String::as_str),
        }
    }
}

/// Returns the user of a row that another program has written; `None` for one of another domain.
///
/// # Errors
/// Says what is wrong.
pub fn adopted(user: User, domains: &Domains) -> Result<Option<Entry>, Refusal> {
    let domain = user.domain.as_deref().unwrap_or(&domains.main);
    let text =
        |reason: &str| format!("{} {reason}", shown(user.name.as_bytes(), domain.as_bytes()));
    let Some(realm) = domains.of(user.domain.as_deref()) else { return Ok(None) };
    if check_name(&user.name).is_err() {
        return Err(Refusal { name: None, text: text("has no valid user name") });
    }
    match secret_of(&user, realm) {
        Ok(secret) => {
            let realm = realm.to_owned();
            Ok(Some(Entry { user: user.name, realm, secret, password_set: None }))
        }
        Err(reason) => {
            let text = text(&reason);
            Err(Refusal { name: Some((user.name.clone(), realm.to_owned())), text })
        }
    }
}

/// Returns the secret of a user of another program, for a realm.
///
/// # Errors
/// Fails when a password contradicts a hash, or a hash was made for another realm (RFC 7616 section 3.4.2).
pub fn secret_of(user: &User, realm: &str) -> Result<Secret, String> {
    let (name, made_for) = (&user.name, user.realm.as_deref().unwrap_or(realm));
    if let Some(password) = &user.password {
        check_password(password).map_err(|e| e.to_string())?;
        let fits = |hash: &Ha1| {
            let (name, realm) = (name.as_bytes(), made_for.as_bytes());
            *hash == Ha1::new(hash.algorithm(), name, realm, password.as_bytes())
        };
        if let Some(other) = user.hashes.iter().find(|hash| !fits(hash)) {
            return Err(format!(
                "the {} hash beside the password is of another password or of another realm than \
                 {made_for:?}: remove the one that does not count",
                other.algorithm().name()
            ));
        }
        return Ok(Secret::Password(password.clone()));
    }
    if made_for != realm {
        return Err(format!(
            "the hash was made for realm {made_for:?}, and phones are asked for realm {realm:?}: \
             expected a password"
        ));
    }
    Ok(Secret::Hashes(user.hashes.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use ringway_import::Subscribers;

    const MD5: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn row<'a>(username: &'a [u8], domain: &'a [u8], md5: Option<&'a [u8]>) -> Row<'a> {
        Row { username, domain, hashes: [md5, None, None], password_set: 1_700_000_000 }
    }

    #[test]
    fn a_row_is_a_user() {
        let entry = row(b"101", b"a.org", Some(MD5)).entry().unwrap();
        assert_eq!((&*entry.user, &*entry.realm), ("101", "a.org"));
        assert_eq!(entry.password_set, Some(1_700_000_000));
        let Secret::Hashes(hashes) = entry.secret else { panic!("expected hashes") };
        assert_eq!(hashes, [Ha1::from_hex(Algorithm::Md5, MD5).unwrap()]);
    }

    #[test]
    fn a_wrong_row_is_refused_with_its_reason_and_without_its_secret() {
        let long = "x".repeat(MAX_TEXT);
        for (row, known, what) in [
            (row(b"", b"a.org", Some(MD5)), false, "no valid user name"),
            (row(long.as_bytes(), b"a.org", Some(MD5)), false, "no valid user name"),
            (row(b"a\0b", b"a.org", Some(MD5)), false, "no valid user name"),
            (row(b"a@b", b"a.org", Some(MD5)), false, "no valid user name"),
            (row(b"\xff", b"a.org", Some(MD5)), false, "no valid user name"),
            (row(b"101", b"A.org", Some(MD5)), false, "no valid domain"),
            (row(b"101", b"a\norg", Some(MD5)), false, "no valid domain"),
            (row(b"101", long.as_bytes(), Some(MD5)), false, "no valid domain"),
            (row(b"101", b"a.org", None), true, "has no hash"),
            (row(b"101", b"a.org", Some(b"secret")), true, "expected 32 hexadecimal digits"),
            (row(b"101", b"a.org", Some(&MD5[1..])), true, "expected 32 hexadecimal digits"),
        ] {
            let refusal = row.entry().unwrap_err();
            assert!(refusal.text.contains(what), "{}", refusal.text);
            assert!(!refusal.text.contains("secret"), "{}", refusal.text);
            assert!(refusal.text.len() < 300, "{}", refusal.text);
            assert_eq!(refusal.name.is_some(), known, "{}", refusal.text);
        }
    }

    fn domains() -> Domains {
        Domains::new([("a.org", vec!["sip.a.org", "192.0.2.1"]), ("b.org", vec![])])
    }

    fn subscriber(values: [Option<&str>; 4]) -> Result<Option<Entry>, Refusal> {
        let table =
            Subscribers::new("subscriber", &["username", "domain", "password", "ha1"]).unwrap();
        let values = values.map(|value| value.map(str::as_bytes));
        adopted(table.user(&values).unwrap(), &domains())
    }

    #[test]
    fn a_subscriber_belongs_to_its_domain_here() {
        let of = |domain| {
            let entry = subscriber([Some("101"), domain, Some("secret"), None]).unwrap();
            entry.map(|entry| entry.realm)
        };
        assert_eq!(of(None).as_deref(), Some("a.org"));
        assert_eq!(of(Some("")).as_deref(), Some("a.org"));
        assert_eq!(of(Some("SIP.A.org")).as_deref(), Some("a.org"));
        assert_eq!(of(Some("b.org")).as_deref(), Some("b.org"));
        assert_eq!(of(Some("c.org")), None);
    }

    #[test]
    fn a_hash_of_another_realm_is_refused() {
        let hex = |realm: &str| {
            let mut out = Vec::new();
            Ha1::new(Algorithm::Md5, b"101", realm.as_bytes(), b"secret").write_hex(&mut out);
            String::from_utf8(out).unwrap()
        };
        let (own, other) = (hex("a.org"), hex("sip.a.org"));
        assert!(subscriber([Some("101"), Some("a.org"), None, Some(&own)]).is_ok());
        let refusal = subscriber([Some("101"), Some("sip.a.org"), None, Some(&other)]).unwrap_err();
        assert!(refusal.text.contains("realm \"sip.a.org\""), "{}", refusal.text);
        assert_eq!(refusal.name, Some(("101".to_owned(), "a.org".to_owned())));
        let refusal =
            subscriber([Some("101"), Some("a.org"), Some("secret"), Some(&other)]).unwrap_err();
        assert!(refusal.text.contains("another password or of another realm"), "{}", refusal.text);
    }

    fn octets(max: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..max)
    }

    fn letters(of: &'static [u8], count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(of), count)
    }

    /// Mostly valid, at times with one octet that may not be, and at times anything.
    fn mostly(
        valid: impl Strategy<Value = Vec<u8>> + Clone + 'static,
    ) -> impl Strategy<Value = Vec<u8>> {
        let one = (valid.clone(), any::<prop::sample::Index>(), any::<u8>());
        let changed = one.prop_map(|(mut valid, index, octet)| {
            let index = index.index(valid.len());
            valid[index] = octet;
            valid
        });
        prop_oneof![16 => valid, 1 => changed, 1 => octets(400)]
    }

    fn hash(algorithm: Algorithm) -> impl Strategy<Value = Option<Vec<u8>>> {
        let digits = 2 * algorithm.octets();
        let valid = letters(b"0123456789abcdefABCDEF", digits..digits + 1).boxed();
        prop::option::of(mostly(valid))
    }

    type Drawn = (Vec<u8>, Vec<u8>, [Option<Vec<u8>>; 3], i64);

    fn drawn() -> impl Strategy<Value = Drawn> {
        let name = letters(b"az059AZ.-_+*", 1..129).boxed();
        let domain = letters(b"az059.-:[]", 1..256).boxed();
        let set = prop_oneof![0..=i64::from(u32::MAX), any::<i64>()];
        (mostly(name), mostly(domain), HASHES.map(hash), set)
    }

    fn of((username, domain, hashes, password_set): &Drawn) -> Row<'_> {
        let hashes = [0, 1, 2].map(|i| hashes[i].as_deref());
        Row { username, domain, hashes, password_set: *password_set }
    }

    #[test]
    fn many_drawn_rows_are_users_and_many_are_not() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let mut is_user = || {
            let row = drawn().new_tree(&mut runner).unwrap().current();
            of(&row).entry().is_ok()
        };
        let count = (0..1000).filter(|_| is_user()).count();
        assert!((300..900).contains(&count), "{count}");
    }

    proptest! {
        #[test]
        fn any_row_is_a_user_or_refused_in_a_bounded_text(drawn in drawn()) {
            let row = of(&drawn);
            match row.entry() {
                Ok(Entry { user, realm, secret, password_set }) => {
                    prop_assert_eq!(user.as_bytes(), row.username);
                    prop_assert_eq!(realm.as_bytes(), row.domain);
                    prop_assert_eq!(password_set, u32::try_from(row.password_set).ok());
                    let Secret::Hashes(hashes) = secret else { panic!("expected hashes") };
                    let mut written: Vec<Vec<u8>> = Vec::new();
                    for hash in &hashes {
                        let mut hex = Vec::new();
                        hash.write_hex(&mut hex);
                        written.push(hex);
                    }
                    let read = row.hashes.iter().flatten().map(|hex| hex.to_ascii_lowercase());
                    prop_assert_eq!(written, read.collect::<Vec<_>>());
                }
                Err(refusal) => {
                    prop_assert!(refusal.text.len() < 2_000);
                    let is_of_row = refusal.name.is_none_or(|(user, realm)| {
                        user.as_bytes() == row.username && realm.as_bytes() == row.domain
                    });
                    prop_assert!(is_of_row);
                }
            }
        }
    }
}
