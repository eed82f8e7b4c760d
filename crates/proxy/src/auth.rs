//! Who may use the server: digest against the users the world knows.
use crate::config::Config;
use ringway_sansio::*;
use ringway_sip::{HeaderId, Message};
use std::sync::Arc;
/// u
pub trait Users: core::marker::Send + Sync {
    /// k
    fn exists(&self, user: &[u8], realm: &[u8]) -> bool;
}
/// v
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// p
    Proved(Vec<u8>),
    /// s
    Stale,
    /// w
    Wrong,
    /// n
    None,
}
/// a
pub struct Authenticator {
    users: Arc<dyn Users>,
}
impl Authenticator {
    /// n
    pub fn new(_: &Config, _: u8, users: Arc<dyn Users>, _: Time) -> Self {
        Authenticator { users }
    }
    /// n
    pub fn reconfigure(&mut self, _: &Config) {}
    /// n
    pub fn check(&mut self, _: Time, _: &Message<'_>, _: HeaderId, _: &str) -> Verdict {
        Verdict::None
    }
    /// n
    pub fn challenge(
        &mut self,
        _: Time,
        _: &mut dyn Random,
        _: HeaderId,
        _: &str,
        _: bool,
        _: &mut Vec<u8>,
    ) {
    }
    /// n
    pub fn knows(&self, user: &[u8], realm: &str) -> bool {
        self.users.exists(user, realm.as_bytes())
    }
}
