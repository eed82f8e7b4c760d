//! Users: names, realms and hashed passwords.
//!
//! The clear text of a password is hashed at once and not stored. The store holds
//! H(user:realm:password) for each algorithm of RFC 8760, so that the list of algorithms may change
//! without new passwords. A user that was imported with hashes alone has only those. Workers read the
//! table in memory; the file has the same contents.

use ringway_proxy::auth::Users;
use ringway_sip::digest::{Algorithm, Ha1};
use ringway_users::{Entry, MAX_REALM, MAX_USER, Secret};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

const SHARDS: usize = 64;
/// Length of a stored value: version, then MD5, SHA-256 and SHA-512-256, then 4 octets, and the second since 1970 in which the
/// password was set (big-endian). Nothing reads the 4 octets of version 2. The first one of version 3 has a bit for each hash that
/// is known, in their order; the others are zero and prove nothing. Earlier programs do not read version 3, and take the zeros for
/// no hash.
const VALUE: usize = UNDATED + 8;
/// Length of a value of version 1, which has no second.
const UNDATED: usize = 1 + 16 + 32 + 32;
/// All hashes are known.
const VERSION: u8 = 2;
/// Some are.
const PARTIAL: u8 = 3;
/// The bits of all hashes.
const ALL: u8 = 0b111;
/// The algorithms and their octets in a value.
const HASHES: [(Algorithm, std::ops::Range<usize>); 3] =
    [(Algorithm::Md5, 1..17), (Algorithm::Sha256, 17..49), (Algorithm::Sha512_256, 49..UNDATED)];

/// The password hashes of one user, and when they were made.
#[derive(Clone, PartialEq, Eq)]
pub struct Hashes([u8; VALUE]);

impl fmt::Debug for Hashes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashes(..)")
    }
}

impl Hashes {
    /// Hashes a password.
    pub fn new(user: &str, realm: &str, password: &str) -> Self {
        let hash = |(algorithm, _)| {
            Ha1::new(algorithm, user.as_bytes(), realm.as_bytes(), password.as_bytes())
        };
        Hashes::from_known(&HASHES.map(hash))
    }

    /// Returns those of a user whose password is not known, but some of its hashes.
    pub fn from_known(known: &[Ha1]) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = u32::try_from(now.as_secs()).unwrap_or(u32::MAX).to_be_bytes();
        let mut out = [0; VALUE];
        for ((algorithm, octets), bit) in HASHES.into_iter().zip(0..) {
            if let Some(hash) = known.iter().find(|hash| hash.algorithm() == algorithm) {
                out[octets].copy_from_slice(hash.octets());
                out[UNDATED] |= 1 << bit;
            }
        }
        let all = out[UNDATED] == ALL;
        out[0] = if all { VERSION } else { PARTIAL };
        if all {
            out[UNDATED] = 0;
        }
        out[UNDATED + 4..].copy_from_slice(&second);
        Hashes(out)
    }

    /// Returns those of a user of a shared database.
    pub(crate) fn of(entry: &Entry) -> Self {
        let mut hashes = match &entry.secret {
            Secret::Password(password) => Hashes::new(&entry.user, &entry.realm, password),
            Secret::Hashes(known) => Hashes::from_known(known),
        };
        if let Some(second) = entry.password_set {
            hashes.0[UNDATED + 4..].copy_from_slice(&second.to_be_bytes());
        }
        hashes
    }

    /// Returns whether these are the same hashes, whenever they were made.
    pub(crate) fn proves_as(&self, other: &Hashes) -> bool {
        let bits = |hashes: &Hashes| if hashes.0[0] == PARTIAL { hashes.0[UNDATED] } else { ALL };
        self.0[1..UNDATED] == other.0[1..UNDATED] && bits(self) == bits(other)
    }

    /// Returns the hash of an algorithm, if it is known.
    pub fn get(&self, algorithm: Algorithm) -> Option<Ha1> {
        let index = HASHES.iter().position(|(other, _)| *other == algorithm)?;
        if self.0[0] == PARTIAL && self.0[UNDATED] & (1 << index) == 0 {
            return None;
        }
        Ha1::from_octets(algorithm, &self.0[HASHES[index].1.clone()])
    }

    /// Returns the second in which the password was set; 0 if that is not known.
    pub fn password_set(&self) -> u32 {
        let [.., a, b, c, d] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the stored form.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Converts the stored form back; `None` if its length or version is wrong.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut value = [0; VALUE];
        match (bytes.first()?, bytes.len()) {
            (1, UNDATED) => value[..UNDATED].copy_from_slice(bytes),
            (&VERSION, VALUE) => value.copy_from_slice(bytes),
            (&PARTIAL, VALUE) if (1..ALL).contains(&bytes[UNDATED]) => {
                value.copy_from_slice(bytes);
                return Some(Hashes(value));
            }
            _ => return None,
        }
        value[0] = VERSION;
        Some(Hashes(value))
    }
}

/// A user, and the hashes of its password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HashedUser {
    /// Name.
    pub user: String,
    /// Domain.
    pub realm: String,
    /// Hashes of the password.
    pub hashes: Hashes,
}

/// Returns the key of a user in the store.
pub(super) fn key(user: &[u8], realm: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(user.len() + realm.len() + 1);
    key.extend_from_slice(realm);
    key.push(0);
    key.extend_from_slice(user);
    key
}

/// Splits a key into user and realm.
pub(super) fn from_key(key: &[u8]) -> Option<(&str, &str)> {
    let nul = memchr::memchr(0, key)?;
    Some((std::str::from_utf8(&key[nul + 1..]).ok()?, std::str::from_utf8(&key[..nul]).ok()?))
}

/// A user in memory.
struct Held {
    hashes: Hashes,
    /// The last complete read of a shared database in which the user was found.
    seen: u32,
}

type Shard = RwLock<HashMap<Box<[u8]>, Held, RandomState>>;

/// All users in memory, in shards. Each shard has its own lock, which a writer holds for one
/// insertion.
pub struct UserTable {
    hash: RandomState,
    shards: Vec<Shard>,
}

impl Default for UserTable {
    fn default() -> Self {
        let hash = RandomState::new();
        let shards = (0..SHARDS).map(|_| RwLock::new(HashMap::with_hasher(hash.clone()))).collect();
        UserTable { hash, shards }
    }
}

impl UserTable {
    fn with<T>(
        &self,
        user: &[u8],
        realm: &[u8],
        then: impl FnOnce(&Shard, &[u8]) -> T,
    ) -> Option<T> {
        const KEY: usize = MAX_USER + MAX_REALM + 1;
        let length = user.len() + realm.len() + 1;
        if length > KEY {
            return None;
        }
        let mut key = [0; KEY];
        key[..realm.len()].copy_from_slice(realm);
        key[realm.len() + 1..length].copy_from_slice(user);
        let key = &key[..length];
        let shard = &self.shards[(self.hash.hash_one(key) >> 32) as usize % SHARDS];
        Some(then(shard, key))
    }

    pub(super) fn put(&self, user: &[u8], realm: &[u8], hashes: Hashes) {
        self.with(user, realm, |shard, key| {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            match shard.get_mut(key) {
                Some(held) => held.hashes = hashes,
                None => drop(shard.insert(key.into(), Held { hashes, seen: 0 })),
            }
        });
    }

    /// Notes that a complete read of a shared database has found a user.
    pub(crate) fn see(&self, user: &[u8], realm: &[u8], read: u32) {
        self.with(user, realm, |shard, key| {
            if let Some(held) = shard.write().unwrap_or_else(PoisonError::into_inner).get_mut(key) {
                held.seen = read;
            }
        });
    }

    /// Returns whether this read has found a user already.
    pub(crate) fn is_seen(&self, user: &[u8], realm: &[u8], read: u32) -> bool {
        let seen = |shard: &Shard, key: &[u8]| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.get(key).is_some_and(|held| held.seen == read)
        };
        self.with(user, realm, seen).unwrap_or(false)
    }

    /// Returns the users that this read has not found, with their realms.
    pub(crate) fn unseen(&self, read: u32) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            let unseen = shard.iter().filter(|(_, held)| held.seen != read);
            out.extend(unseen.filter_map(|(k, _)| from_key(k)).map(|(u, r)| (u.into(), r.into())));
        }
        out
    }

    pub(super) fn take(&self, user: &[u8], realm: &[u8]) -> bool {
        self.with(user, realm, |shard, key| {
            shard.write().unwrap_or_else(PoisonError::into_inner).remove(key).is_some()
        })
        .unwrap_or(false)
    }

    fn find<T>(&self, user: &[u8], realm: &[u8], then: impl FnOnce(&Hashes) -> T) -> Option<T> {
        self.with(user, realm, |shard, key| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.get(key).map(|held| then(&held.hashes))
        })
        .flatten()
    }

    /// Returns the hashes of a user.
    pub(crate) fn get(&self, user: &[u8], realm: &[u8]) -> Option<Hashes> {
        self.find(user, realm, Hashes::clone)
    }

    /// Returns the number of users.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.read().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Returns whether there is no user.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns every user and realm, ordered by realm and name.
    pub fn list(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            out.extend(shard.keys().filter_map(|k| from_key(k)).map(|(u, r)| (u.into(), r.into())));
        }
        out.sort_by(|a: &(String, String), b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
        out
    }

    /// Returns the number of users in each realm.
    pub fn realms(&self) -> BTreeMap<String, usize> {
        let mut out = BTreeMap::new();
        for (_, realm) in self.list() {
            *out.entry(realm).or_insert(0) += 1;
        }
        out
    }
}

impl Users for UserTable {
    fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
        self.find(user, realm, |hashes| hashes.get(algorithm))?
    }

    fn exists(&self, user: &[u8], realm: &[u8]) -> bool {
        self.find(user, realm, |_| ()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_realm() {
        let table = UserTable::default();
        table.put(b"101", b"a.org", Hashes::new("101", "a.org", "secret"));
        assert!(table.exists(b"101", b"a.org"));
        assert!(!table.exists(b"101", b"b.org"));
        assert!(!table.exists(b"a.org", b"101"));
        assert!(table.take(b"101", b"a.org"));
        assert!(!table.take(b"101", b"a.org"));
        assert!(table.is_empty());
    }

    #[test]
    fn a_name_too_long_is_unknown() {
        let table = UserTable::default();
        assert!(!table.exists(&[b'x'; 1000], b"a.org"));
    }

    #[test]
    fn hashes_round_trip_and_are_not_shown() {
        let hashes = Hashes::new("u", "r", "p");
        assert_eq!(Hashes::from_bytes(hashes.bytes()), Some(hashes.clone()));
        assert_eq!(Hashes::from_bytes(&hashes.bytes()[1..]), None);
        assert!(hashes.password_set() > 1_700_000_000);
        assert_eq!(format!("{hashes:?}"), "Hashes(..)");
        assert_eq!(from_key(&key(b"u", b"r")), Some(("u", "r")));
    }

    /// RFC 7616 section 3.4.2. A hash that is not known proves nothing, and not zeros either.
    #[test]
    fn a_user_may_have_some_hashes_alone() {
        let md5 = Ha1::new(Algorithm::Md5, b"u", b"r", b"p");
        let hashes = Hashes::from_known(&[md5]);
        assert_eq!(hashes.get(Algorithm::Md5), Some(md5));
        assert_eq!(hashes.get(Algorithm::Sha256), None);
        assert_eq!(hashes.get(Algorithm::Sha512_256), None);
        let read = Hashes::from_bytes(hashes.bytes()).unwrap();
        assert_eq!((read.get(Algorithm::Md5), read.get(Algorithm::Sha256)), (Some(md5), None));
        assert!(read.password_set() > 1_700_000_000);
        let table = UserTable::default();
        table.put(b"u", b"r", read);
        assert_eq!(table.ha1(b"u", b"r", Algorithm::Md5), Some(md5));
        assert!(table.ha1(b"u", b"r", Algorithm::Sha256).is_none() && table.exists(b"u", b"r"));
        // None, or all, are not some.
        for bits in [0, ALL, 0xff] {
            let mut bytes = hashes.bytes().to_vec();
            bytes[UNDATED] = bits;
            assert_eq!(Hashes::from_bytes(&bytes), None, "{bits}");
        }
        let all = [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256]
            .map(|algorithm| Ha1::new(algorithm, b"u", b"r", b"p"));
        let (made, known) = (Hashes::new("u", "r", "p"), Hashes::from_known(&all));
        assert_eq!(made.bytes()[..UNDATED + 4], known.bytes()[..UNDATED + 4]);
    }

    #[test]
    fn hashes_of_a_store_without_dates_are_read() {
        let hashes = Hashes::new("u", "r", "p");
        let mut before = hashes.bytes()[..UNDATED].to_vec();
        before[0] = 1;
        let before = Hashes::from_bytes(&before).unwrap();
        assert_eq!(before.password_set(), 0);
        assert_eq!(before.0[1..UNDATED], hashes.0[1..UNDATED]);
    }

    #[test]
    fn users_that_a_read_has_not_found_are_known() {
        let table = UserTable::default();
        for user in ["101", "102", "103"] {
            table.put(user.as_bytes(), b"a.org", Hashes::new(user, "a.org", "secret"));
        }
        table.see(b"101", b"a.org", 1);
        table.see(b"104", b"a.org", 1);
        assert!(table.is_seen(b"101", b"a.org", 1) && !table.is_seen(b"102", b"a.org", 1));
        // A new password changes nothing about that.
        table.put(b"101", b"a.org", Hashes::new("101", "a.org", "other"));
        let mut unseen = table.unseen(1);
        unseen.sort();
        assert_eq!(unseen, ["102", "103"].map(|user| (user.to_owned(), "a.org".to_owned())));
    }

    #[test]
    fn a_user_of_a_database_has_its_hashes_and_date() {
        let entry = |secret, password_set| Entry {
            user: "u".to_owned(),
            realm: "r".to_owned(),
            secret,
            password_set,
        };
        let password = Hashes::of(&entry(Secret::Password("p".to_owned()), Some(7)));
        assert!(password.proves_as(&Hashes::new("u", "r", "p")));
        assert_eq!(password.password_set(), 7);
        let known = vec![Ha1::new(Algorithm::Md5, b"u", b"r", b"p")];
        let some = Hashes::of(&entry(Secret::Hashes(known), None));
        assert!(!some.proves_as(&password) && some.get(Algorithm::Sha256).is_none());
    }
}
