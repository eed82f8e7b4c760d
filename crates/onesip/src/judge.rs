//! Credentials that other routers ask this one about, because it is the home of their user, or a deputy of the home.
//!
//! A deputy checks them with the hashes that the home has sealed: those of MD5, SHA-256 and SHA-512-256, in this order.
//!
//! A router could guess passwords by asking. So what it may ask wrongly of one user is bounded, as is what all may.

use std::collections::BTreeMap;

use ringway_directory::{CredentialsCheck, Secret, Verdict};
use ringway_mesh::NodeId;
use ringway_proxy::auth::Users;
use ringway_sansio::{Duration, Time};
use ringway_sip::digest::{self, Algorithm, Credentials, Ha1};

/// The algorithms whose hashes a deputy has, in their order.
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Md5, Algorithm::Sha256, Algorithm::Sha512_256];

/// Wrong credentials after which a router has to wait, for one user.
const MAX_FAILURES: u32 = 10;
/// Wrong credentials of one user by all routers after which all have to wait.
const MAX_FAILURES_OF_USER: u32 = 30;
/// Time after which failures are forgotten.
const MEMORY: Duration = Duration::from_secs(300);
/// Pairs of a router and a user, and users, that have failed.
const MAX_ENTRIES: usize = 4_096;

struct Failures {
    count: u32,
    at: Time,
}

/// Returns what deputies of this server check the credentials of a user with; nothing if there is no such user.
pub fn secret_of(users: &dyn Users, user: &str, realm: &str) -> Secret {
    let hash = |algorithm| users.ha1(user.as_bytes(), realm.as_bytes(), algorithm);
    let hashes: Option<Vec<Ha1>> = ALGORITHMS.map(hash).into_iter().collect();
    let octets = |hashes: Vec<Ha1>| hashes.iter().flat_map(|hash| hash.octets()).copied().collect();
    Secret(hashes.map(octets).unwrap_or_default())
}

/// The user of another home, as its deputy knows it.
struct Sealed<'a> {
    name: &'a str,
    secret: &'a Secret,
}

impl Users for Sealed<'_> {
    fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
        let mut rest = &self.secret.0[..];
        let before = ALGORITHMS.iter().take_while(|other| **other != algorithm);
        for other in before {
            rest = rest.get(other.octets()..)?;
        }
        let octets = rest.get(..algorithm.octets())?;
        self.exists(user, realm).then(|| Ha1::from_octets(algorithm, octets))?
    }

    fn exists(&self, user: &[u8], realm: &[u8]) -> bool {
        let name = self.name.as_bytes().strip_prefix(user);
        name.and_then(|rest| rest.strip_prefix(b"@")) == Some(realm)
    }
}

/// Judges credentials of the users of this server, and of those of a home that it is the deputy of.
#[derive(Default)]
pub struct Judge {
    failures: BTreeMap<(Option<NodeId>, Box<str>), Failures>,
}

impl Judge {
    /// Returns whether credentials that a router has received are right. `secret` is that of the user if its home is silent;
    /// otherwise it is one of `users`.
    pub fn judge(
        &mut self,
        now: Time,
        router: NodeId,
        (check, secret): (&CredentialsCheck, Option<&Secret>),
        users: &dyn Users,
    ) -> Verdict {
        let sealed = secret.map(|secret| Sealed { name: &check.name, secret });
        let users = sealed.as_ref().map_or(users, |sealed| sealed);
        let Some((user, realm)) = check.name.rsplit_once('@') else { return Verdict::NoSuchUser };
        if !users.exists(user.as_bytes(), realm.as_bytes()) {
            return Verdict::NoSuchUser;
        }
        let keys = [(Some(router), check.name.clone()), (None, check.name.clone())];
        if self.is_blocked(now, &keys) {
            return Verdict::Wrong;
        }
        if is_right(check, user, realm, users) {
            self.failures.remove(&keys[0]);
            return Verdict::Right;
        }
        self.note_failure(now, keys);
        Verdict::Wrong
    }

    fn is_blocked(&self, now: Time, keys: &[(Option<NodeId>, Box<str>); 2]) -> bool {
        keys.iter().zip([MAX_FAILURES, MAX_FAILURES_OF_USER]).any(|(key, max)| {
            let failures = self.failures.get(key);
            failures.is_some_and(|failed| failed.count >= max && now.since(failed.at) < MEMORY)
        })
    }

    fn note_failure(&mut self, now: Time, keys: [(Option<NodeId>, Box<str>); 2]) {
        if self.failures.len() + keys.len() > MAX_ENTRIES {
            self.failures.retain(|_, failed| now.since(failed.at) < MEMORY);
        }
        for key in keys {
            if self.failures.len() >= MAX_ENTRIES && !self.failures.contains_key(&key) {
                continue;
            }
            let failed = self.failures.entry(key).or_insert(Failures { count: 0, at: now });
            if now.since(failed.at) >= MEMORY {
                failed.count = 0;
            }
            failed.count += 1;
            failed.at = now;
        }
    }
}

/// Returns whether a digest is that of the user's password. Whether its nonce was used before, only the router that has
/// made it knows.
fn is_right(check: &CredentialsCheck, user: &str, realm: &str, users: &dyn Users) -> bool {
    let Ok(credentials) = Credentials::parse(&check.credentials) else { return false };
    let Some(algorithm) = credentials.algorithm else { return false };
    if !credentials.is_for(realm.as_bytes()) || *credentials.user() != *user.as_bytes() {
        return false;
    }
    let ha1 = users.ha1(user.as_bytes(), realm.as_bytes(), algorithm);
    ha1.is_some_and(|ha1| digest::verify(&credentials, check.method.as_bytes(), &[], &ha1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1_000);

    /// A user whose hash no digest of the tests fits.
    struct Alice;

    impl Users for Alice {
        fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
            self.exists(user, realm).then(|| Ha1::new(algorithm, user, realm, b"secret"))
        }
        fn exists(&self, user: &[u8], realm: &[u8]) -> bool {
            (user, realm) == (b"alice", b"mesh")
        }
    }

    /// A server without users.
    struct Nobody;

    impl Users for Nobody {
        fn ha1(&self, _: &[u8], _: &[u8], _: Algorithm) -> Option<Ha1> {
            None
        }
        fn exists(&self, _: &[u8], _: &[u8]) -> bool {
            false
        }
    }

    fn check(name: &str) -> CredentialsCheck {
        let value = "Digest username=\"alice\", realm=\"mesh\", nonce=\"n\", uri=\"sip:mesh\", \
                     response=\"00000000000000000000000000000000\", algorithm=MD5";
        CredentialsCheck {
            name: name.into(),
            method: "REGISTER".into(),
            credentials: value.as_bytes().into(),
        }
    }

    /// A deputy knows the hashes of one user, and no other.
    #[test]
    fn a_deputy_judges_by_what_the_home_has_sealed() {
        let secret = secret_of(&Alice, "alice", "mesh");
        assert_eq!(secret.0.len(), 16 + 32 + 32);
        assert!(secret.0.len() <= ringway_directory::config::MAX_SECRET);
        let sealed = |name| Sealed { name, secret: &secret };
        for algorithm in ALGORITHMS {
            let hash = sealed("alice@mesh").ha1(b"alice", b"mesh", algorithm);
            assert_eq!(hash, Alice.ha1(b"alice", b"mesh", algorithm));
            assert_eq!(sealed("alice@mesh").ha1(b"alic", b"e@mesh", algorithm), None);
            assert_eq!(sealed("alice@mesh").ha1(b"bob", b"mesh", algorithm), None);
        }
        let short = Secret(secret.0[..47].into());
        let cut = Sealed { name: "alice@mesh", secret: &short };
        assert_eq!(cut.ha1(b"alice", b"mesh", Algorithm::Sha256), None);
        assert_eq!(secret_of(&Alice, "bob", "mesh"), Secret::default());
        let mut judge = Judge::default();
        let question = check("alice@mesh");
        let verdict = judge.judge(NOW, NodeId::new(1), (&question, Some(&secret)), &Nobody);
        assert_eq!(verdict, Verdict::Wrong);
        let verdict = judge.judge(NOW, NodeId::new(1), (&question, None), &Nobody);
        assert_eq!(verdict, Verdict::NoSuchUser);
    }

    /// One router that guesses is blocked alone; many that guess one user's password are blocked together.
    #[test]
    fn guesses_of_routers_are_bounded() {
        let users = Alice;
        let mut judge = Judge::default();
        let router = |number: u64| Some(NodeId::new(number));
        assert_eq!(
            judge.judge(NOW, NodeId::new(1), (&check("bob@mesh"), None), &users),
            Verdict::NoSuchUser
        );
        for _ in 0..100 {
            assert_eq!(
                judge.judge(NOW, NodeId::new(1), (&check("alice@mesh"), None), &users),
                Verdict::Wrong
            );
        }
        let failures = |judge: &Judge, router| judge.failures[&(router, "alice@mesh".into())].count;
        assert_eq!(failures(&judge, router(1)), MAX_FAILURES);
        for number in 2..100 {
            judge.judge(NOW, NodeId::new(number), (&check("alice@mesh"), None), &users);
        }
        assert_eq!(failures(&judge, None), MAX_FAILURES_OF_USER);
        let later = NOW + MEMORY;
        judge.judge(later, NodeId::new(1), (&check("alice@mesh"), None), &users);
        assert_eq!(failures(&judge, router(1)), 1);
    }
}
