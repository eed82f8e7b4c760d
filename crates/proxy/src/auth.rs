//! Digest authentication (RFC 3261 section 22, RFC 8760) of the users of the world.

use crate::backoff::BackOff;
use crate::config::Config;
use crate::core::AuthFailureReason;
use crate::keys::Purpose;
use crate::question::{
    CredentialsAnswer, CredentialsQuestion, CredentialsVerdict, MAX_CREDENTIALS_VALUE,
};
use crate::shared::Shared;
use ringway_sansio::{Random, Time};
use ringway_sip::digest::{self, Algorithm, Credentials, Ha1, NonceVerdict, Nonces, Qop};
use ringway_sip::message::Message;
use ringway_sip::{HeaderId, Method};
use std::net::IpAddr;
use std::sync::Arc;

/// The number of header fields with credentials that are checked in one request. More than one realm is rare; each may
/// cost a digest.
const MAX_CREDENTIALS: usize = 8;

/// The maximum length of the method in a question about credentials.
const MAX_METHOD: usize = 32;

/// The users of all realms. Read for every call, so it must answer from memory, without waiting.
pub trait Users: Send + Sync {
    /// Returns the stored hash of the user's password; `None` for an unknown user, and for one whose hash of this
    /// algorithm is not known. Names are compared octet by octet.
    fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1>;

    /// Returns whether the user exists.
    fn exists(&self, user: &[u8], realm: &[u8]) -> bool;

    /// Returns whether a user without a stored hash may be at home at another server, which is asked about the
    /// credentials. By default no user is.
    fn may_be_elsewhere(&self, _user: &[u8], _realm: &[u8]) -> bool {
        false
    }
}

/// The verdict about the credentials of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// They prove that the sender is this user.
    Proved(Vec<u8>),
    /// They are right, but their nonce is used up, or it may be one of another server: the next challenge has `stale=true`.
    Stale,
    /// They are right and have been used before: by a retransmission, or a replay.
    Repeated,
    /// They are wrong: by the password, or because the user does not exist.
    Wrong(AuthFailureReason),
    /// They are right, but were made for another request: the digest's `uri` is different.
    OtherUri,
    /// Another server must be asked about them.
    Ask(Box<CredentialsQuestion>),
    /// There were too many wrong ones recently: they have not been checked.
    BackOff,
    /// The request has none for this realm.
    Missing,
}

/// Checks credentials and writes challenges. Each worker has one.
pub struct Authenticator {
    users: Arc<dyn Users>,
    nonces: Nonces,
    key: [u8; 32],
    worker: u8,
    started: Time,
    algorithms: Vec<Algorithm>,
    qop: Vec<Qop>,
    back_off: BackOff,
}

impl Authenticator {
    /// Returns an authenticator that begins at `now`. Earlier nonces are stale, because their use is not known any
    /// more.
    pub fn new(
        config: &Config,
        worker: u8,
        users: Arc<dyn Users>,
        shared: Arc<Shared>,
        now: Time,
    ) -> Self {
        let key = config.secret.key(Purpose::Nonces);
        let mut auth = Authenticator {
            users,
            nonces: Nonces::new(&key, worker, config.auth.nonce_lifetime).since(now),
            key,
            worker,
            started: now,
            algorithms: Vec::new(),
            qop: Vec::new(),
            back_off: BackOff::new(shared),
        };
        auth.offer(config);
        auth
    }

    fn offer(&mut self, config: &Config) {
        let keys = config.token_secrets().map(|secret| secret.key(Purpose::Nonces));
        self.nonces.share(keys.iter());
        self.algorithms.clone_from(&config.auth.algorithms);
        self.qop = vec![Qop::Auth];
        if config.auth.auth_int {
            self.qop.push(Qop::AuthInt);
        }
    }

    /// Replaces the configuration. Nonces in use stay valid unless their lifetime has changed.
    pub fn reconfigure(&mut self, config: &Config, now: Time) {
        if self.nonces.lifetime() != config.auth.nonce_lifetime {
            self.started = now;
            self.nonces =
                Nonces::new(&self.key, self.worker, config.auth.nonce_lifetime).since(now);
        }
        self.offer(config);
    }

    /// Returns whether a user exists.
    pub fn has_user(&self, user: &[u8], realm: &str) -> bool {
        self.users.exists(user, realm.as_bytes())
    }

    /// Returns whether a source has recently proved to be a user.
    pub fn is_known(&self, now: Time, source: IpAddr, user: &[u8], realm: &[u8]) -> bool {
        self.back_off.is_known(now, source, user, realm)
    }

    /// Finds the credentials for `realm` in the header fields `id` (Authorization or Proxy-Authorization) and checks
    /// them. `fits` returns whether a digest-uri is that of the request. `answer` is the answer of another server about
    /// credentials of this request, if one has been asked.
    pub fn check(
        &mut self,
        now: Time,
        source: IpAddr,
        msg: &Message<'_>,
        id: HeaderId,
        realm: &str,
        fits: &dyn Fn(&[u8]) -> bool,
        answer: Option<&CredentialsAnswer>,
    ) -> Verdict {
        let mut verdict = Verdict::Missing;
        // All others have been checked before this one was asked about.
        let open = |value: &&[u8]| answer.is_none_or(|answer| *answer.value == **value);
        for value in msg.all(id).take(MAX_CREDENTIALS).filter(open) {
            let Ok(credentials) = Credentials::parse(value) else {
                verdict = Verdict::Missing;
                continue;
            };
            if !credentials.is_for(realm.as_bytes()) {
                continue;
            }
            let realm = realm.as_bytes();
            let user = credentials.user();
            if self.back_off.is_blocked(now, source, &user, realm) {
                return Verdict::BackOff;
            }
            verdict = self.check_one(now, msg, &credentials, realm, (value, answer));
            match &verdict {
                Verdict::Proved(user) => {
                    self.back_off.record_success(now, source, user, realm);
                    if !fits(credentials.uri) {
                        verdict = Verdict::OtherUri;
                    }
                    break;
                }
                Verdict::Wrong(_) => {
                    self.back_off.record_failure(now, source, &user, realm);
                }
                Verdict::Stale | Verdict::Repeated | Verdict::Ask(_) => break,
                _ => {}
            }
        }
        verdict
    }

    fn check_one(
        &mut self,
        now: Time,
        msg: &Message<'_>,
        credentials: &Credentials<'_>,
        realm: &[u8],
        (value, answer): (&[u8], Option<&CredentialsAnswer>),
    ) -> Verdict {
        // A nonce that is not ours is not worth a check of the password.
        let nonce = self.nonces.check(now, realm, credentials);
        let Some(algorithm) = credentials.algorithm.filter(|a| self.algorithms.contains(a)) else {
            return Verdict::Missing;
        };
        let user = credentials.user();
        if nonce == NonceVerdict::Forged {
            // It may be one of another server, at which the client was before: without `stale=true` the client would have to
            // take its password for wrong (RFC 7616 section 3.3). So for all users, as it shows nothing about any of them.
            return match self.users.may_be_elsewhere(&user, realm) {
                true => Verdict::Stale,
                false => Verdict::Missing,
            };
        }
        let ha1 = self.users.ha1(&user, realm, algorithm);
        let known = ha1.is_some() || self.users.exists(&user, realm);
        if !known && self.users.may_be_elsewhere(&user, realm) {
            return self.check_elsewhere(
                now,
                msg,
                credentials,
                algorithm,
                realm,
                (value, answer),
                nonce,
            );
        }
        // An unknown user costs as much time as a known user with a wrong password.
        let hashed = ha1.is_some();
        let ha1 = ha1.unwrap_or_else(|| Ha1::new(algorithm, &user, realm, &self.key));
        let method = digest_method(msg);
        if !digest::verify(credentials, method.as_bytes(), msg.body(), &ha1) || !hashed {
            return Verdict::Wrong(match (hashed, known) {
                (true, _) => AuthFailureReason::WrongPassword,
                (false, true) => AuthFailureReason::OtherAlgorithm,
                (false, false) => AuthFailureReason::UnknownUser,
            });
        }
        // RFC 7616 section 3.3: stale is reported only to a client that knows the password.
        match nonce {
            NonceVerdict::Fresh => {
                self.nonces.remember(now, realm, credentials);
                Verdict::Proved(user.into_owned())
            }
            NonceVerdict::Replay => Verdict::Repeated,
            _ => Verdict::Stale,
        }
    }

    /// Returns the verdict about credentials of a user whose password another server has: its answer, or the question.
    fn check_elsewhere(
        &mut self,
        now: Time,
        msg: &Message<'_>,
        credentials: &Credentials<'_>,
        algorithm: Algorithm,
        realm: &[u8],
        (value, answer): (&[u8], Option<&CredentialsAnswer>),
        nonce: NonceVerdict,
    ) -> Verdict {
        if nonce != NonceVerdict::Fresh {
            // Whether they are right is not known. A client that knows the password uses the next nonce.
            return Verdict::Stale;
        }
        let method = digest_method(msg);
        // The body of a request is not sent to other servers.
        let refused = credentials.qop == Some(Qop::AuthInt)
            || credentials.userhash
            || value.len() > MAX_CREDENTIALS_VALUE
            || method.as_bytes().len() > MAX_METHOD;
        match answer.and_then(|answer| answer.verdict) {
            _ if refused => Verdict::Wrong(AuthFailureReason::UnknownUser),
            Some(CredentialsVerdict::Right) => {
                self.nonces.remember(now, realm, credentials);
                Verdict::Proved(credentials.user().into_owned())
            }
            Some(CredentialsVerdict::Wrong) => Verdict::Wrong(AuthFailureReason::WrongPassword),
            Some(CredentialsVerdict::NoSuchUser) => Verdict::Wrong(AuthFailureReason::UnknownUser),
            None => Verdict::Ask(Box::new(CredentialsQuestion {
                user: credentials.user().into(),
                realm: realm.into(),
                algorithm,
                method: method.as_bytes().into(),
                value: value.into(),
            })),
        }
    }

    /// Appends the challenges to `buf`: one header field for each algorithm, in the order of preference. `id` is
    /// WWW-Authenticate or Proxy-Authenticate.
    pub fn challenge(
        &mut self,
        now: Time,
        random: &mut dyn Random,
        id: HeaderId,
        realm: &str,
        stale: bool,
        buf: &mut Vec<u8>,
    ) {
        let mut nonce = Vec::with_capacity(64);
        self.nonces.create(now, realm.as_bytes(), random, &mut nonce);
        let (name, realm) = (id.name(), realm.as_bytes());
        digest::challenge(buf, name, realm, &nonce, &self.algorithms, &self.qop, stale);
    }
}

/// Returns the method that the digest of a request is made for.
fn digest_method<'a>(msg: &Message<'a>) -> Method<'a> {
    match msg.method() {
        // RFC 3261 section 22.1: the ACK has the credentials of the INVITE.
        Method::Ack => Method::Invite,
        other => other,
    }
}

/// Returns the user that the credentials of a request for `realm` name, valid or not.
pub(crate) fn claimed_user(msg: &Message<'_>, realm: &str) -> Vec<u8> {
    [HeaderId::Authorization, HeaderId::ProxyAuthorization]
        .into_iter()
        .flat_map(|id| msg.all(id).take(MAX_CREDENTIALS))
        .filter_map(|value| Credentials::parse(value).ok())
        .find(|credentials| credentials.is_for(realm.as_bytes()))
        .map(|credentials| credentials.user().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use ringway_sansio::SplitMix;
    use ringway_sip::digest::{Answer, choose};
    use ringway_sip::message::parse;

    struct OneUser;

    impl Users for OneUser {
        fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
            self.exists(user, realm).then(|| Ha1::new(algorithm, user, realm, b"secret"))
        }
        fn exists(&self, user: &[u8], realm: &[u8]) -> bool {
            user == b"alice" && realm == b"example.org"
        }
    }

    fn authenticator(worker: u8, now: Time) -> Authenticator {
        let mut config = testing::config();
        config.auth.algorithms = vec![Algorithm::Sha256, Algorithm::Md5];
        let shared = Arc::new(Shared::new(&config.secret));
        Authenticator::new(&config, worker, Arc::new(OneUser), shared, now)
    }

    /// Another server may have users too, and this one has the MD5 hash of one of its own.
    struct HashedUser;

    impl Users for HashedUser {
        fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
            OneUser.ha1(user, realm, algorithm).filter(|_| algorithm == Algorithm::Md5)
        }
        fn exists(&self, user: &[u8], realm: &[u8]) -> bool {
            OneUser.exists(user, realm)
        }
        fn may_be_elsewhere(&self, _: &[u8], _: &[u8]) -> bool {
            true
        }
    }

    /// Returns a REGISTER with the response to a challenge of `auth`.
    fn answered(auth: &mut Authenticator, now: Time, user: &str, password: &str) -> String {
        let mut lines = Vec::new();
        let id = HeaderId::WwwAuthenticate;
        auth.challenge(now, &mut SplitMix::new(3), id, "example.org", false, &mut lines);
        let lines = String::from_utf8(lines).unwrap();
        let values: Vec<&[u8]> =
            lines.lines().map(|l| l.split_once(": ").unwrap().1.as_bytes()).collect();
        assert_eq!(values.len(), 2);
        let challenge = choose(values).unwrap();
        let answer = Answer {
            user: user.as_bytes(),
            password: password.as_bytes(),
            method: b"REGISTER",
            uri: b"sip:example.org",
            body: b"",
            count: 1,
            cnonce: b"abc",
        };
        let mut value = Vec::new();
        digest::authorize(&mut value, "Authorization", &challenge, &answer);
        let value = String::from_utf8(value).unwrap();
        testing::request("REGISTER").replacen("Max-Forwards", &format!("{value}Max-Forwards"), 1)
    }

    fn check(auth: &mut Authenticator, now: Time, text: &str) -> Verdict {
        let msg = parse(text.as_bytes()).unwrap();
        let source = [203, 0, 113, 1].into();
        auth.check(now, source, &msg, HeaderId::Authorization, "example.org", &|_| true, None)
    }

    const NOW: Time = Time::from_secs(1_000);
    const SOON: Time = Time::from_secs(1_001);

    #[test]
    fn the_right_password_proves_the_user_once() {
        let mut auth = authenticator(0, NOW);
        let text = answered(&mut auth, SOON, "alice", "secret");
        assert_eq!(check(&mut auth, SOON, &text), Verdict::Proved(b"alice".to_vec()));
        // RFC 7616 section 3.4: the same nonce count again is a replay.
        assert_eq!(check(&mut auth, SOON, &text), Verdict::Repeated);
    }

    #[test]
    fn wrong_password_unknown_user_and_no_credentials() {
        let mut auth = authenticator(0, NOW);
        let wrong = answered(&mut auth, SOON, "alice", "guess");
        let reason = AuthFailureReason::WrongPassword;
        assert_eq!(check(&mut auth, SOON, &wrong), Verdict::Wrong(reason));
        let nobody = answered(&mut auth, SOON, "mallory", "secret");
        let reason = AuthFailureReason::UnknownUser;
        assert_eq!(check(&mut auth, SOON, &nobody), Verdict::Wrong(reason));
        assert_eq!(check(&mut auth, SOON, &testing::request("REGISTER")), Verdict::Missing);
    }

    /// No other server is asked about a user that is here.
    #[test]
    fn a_user_without_the_hash_of_an_algorithm_is_refused_by_it() {
        let mut auth = authenticator(0, NOW);
        auth.users = Arc::new(HashedUser);
        let text = answered(&mut auth, SOON, "alice", "secret");
        assert!(text.contains("algorithm=SHA-256"), "{text}");
        let reason = AuthFailureReason::OtherAlgorithm;
        assert_eq!(check(&mut auth, SOON, &text), Verdict::Wrong(reason));
        let nobody = answered(&mut auth, SOON, "mallory", "secret");
        assert!(matches!(check(&mut auth, SOON, &nobody), Verdict::Ask(_)));
    }

    #[test]
    fn a_nonce_of_another_worker_or_an_earlier_process_is_stale() {
        let mut first = authenticator(0, NOW);
        let text = answered(&mut first, SOON, "alice", "secret");
        assert_eq!(check(&mut authenticator(1, NOW), SOON, &text), Verdict::Stale);
        let later = Time::from_secs(1_010);
        assert_eq!(check(&mut authenticator(0, later), later, &text), Verdict::Stale);
    }

    #[test]
    fn an_old_nonce_is_stale() {
        let mut auth = authenticator(0, NOW);
        let text = answered(&mut auth, SOON, "alice", "secret");
        assert_eq!(check(&mut auth, Time::from_secs(1_400), &text), Verdict::Stale);
    }
}
