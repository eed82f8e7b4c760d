//! Credentials that other routers ask this one about, because it is the home of their user.
//!
//! A router could guess passwords by asking. So what it may ask wrongly of one user is bounded, as is what all may.

use std::collections::BTreeMap;

use ringway_directory::{CredentialsCheck, Verdict};
use ringway_mesh::NodeId;
use ringway_proxy::auth::Users;
use ringway_sansio::{Duration, Time};
use ringway_sip::digest::{self, Credentials};

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

/// Judges credentials of the users of this server.
#[derive(Default)]
pub struct Judge {
    failures: BTreeMap<(Option<NodeId>, Box<str>), Failures>,
}

impl Judge {
    /// Returns whether credentials that a router has received are right.
    pub fn judge(
        &mut self,
        now: Time,
        router: NodeId,
        check: &CredentialsCheck,
        users: &dyn Users,
    ) -> Verdict {
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
    use ringway_sip::digest::{Algorithm, Ha1};

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

    fn check(name: &str) -> CredentialsCheck {
        let value = "Digest username=\"alice\", realm=\"mesh\", nonce=\"n\", uri=\"sip:mesh\", \
                     response=\"00000000000000000000000000000000\", algorithm=MD5";
        CredentialsCheck {
            name: name.into(),
            method: "REGISTER".into(),
            credentials: value.as_bytes().into(),
        }
    }

    /// One router that guesses is blocked alone; many that guess one user's password are blocked together.
    #[test]
    fn guesses_of_routers_are_bounded() {
        let users = Alice;
        let mut judge = Judge::default();
        let router = |number: u64| Some(NodeId::new(number));
        assert_eq!(
            judge.judge(NOW, NodeId::new(1), &check("bob@mesh"), &users),
            Verdict::NoSuchUser
        );
        for _ in 0..100 {
            assert_eq!(
                judge.judge(NOW, NodeId::new(1), &check("alice@mesh"), &users),
                Verdict::Wrong
            );
        }
        let failures = |judge: &Judge, router| judge.failures[&(router, "alice@mesh".into())].count;
        assert_eq!(failures(&judge, router(1)), MAX_FAILURES);
        for number in 2..100 {
            judge.judge(NOW, NodeId::new(number), &check("alice@mesh"), &users);
        }
        assert_eq!(failures(&judge, None), MAX_FAILURES_OF_USER);
        let later = NOW + MEMORY;
        judge.judge(later, NodeId::new(1), &check("alice@mesh"), &users);
        assert_eq!(failures(&judge, router(1)), 1);
    }
}
