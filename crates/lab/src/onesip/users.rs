//! Names, passwords and homes of users.

use std::sync::Arc;

use ringway_directory::Account;
use ringway_proxy::auth::Users;
use ringway_sip::digest::{Algorithm, Ha1};

/// The domain of all routers.
pub const DOMAIN: &str = "mesh";
/// Second in which all users were added.
const PASSWORD_SET: u32 = 1;
/// Another domain, beyond gateways.
pub const OUTSIDE_DOMAIN: &str = "kau.example";
/// From here on users are of the other domain, where names begin with 0.
pub const OUTSIDE: u32 = 1 << 31;
/// The user whose phone stands for the server of the other domain: it answers for all its users.
pub const GATEWAY: u32 = u32::MAX;

/// The users of a network, who are numbers from 0. Each is at home at one router.
#[derive(Debug)]
pub struct Roster {
    homes: Vec<u32>,
}

impl Roster {
    /// Creates users by the router at which each is at home.
    pub fn new(homes: Vec<u32>) -> Arc<Roster> {
        Arc::new(Roster { homes })
    }

    /// Returns the number of users.
    pub fn len(&self) -> u32 {
        self.homes.len() as u32
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// Returns the router at which a user is at home.
    pub fn home(&self, user: u32) -> Option<u32> {
        self.homes.get(user as usize).copied()
    }

    /// Returns the users that are at home at a router.
    pub fn of(&self, router: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).filter(move |&user| self.home(user) == Some(router))
    }
}

/// Returns the name of a user, without its domain.
pub fn name(user: u32) -> String {
    match user.checked_sub(OUTSIDE) {
        Some(number) => format!("0{number}"),
        None => format!("u{user}"),
    }
}

/// Returns the address of record of a user.
pub fn aor(user: u32) -> String {
    let domain = if user < OUTSIDE { DOMAIN } else { OUTSIDE_DOMAIN };
    format!("sip:{}@{domain}", name(user))
}

/// Returns the user of a name.
pub fn number(name: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(name).ok()?;
    match name.strip_prefix('0') {
        Some(number) => OUTSIDE.checked_add(number.parse().ok()?),
        None => name.strip_prefix('u')?.parse().ok(),
    }
}

/// Returns the password of a user.
pub fn password(user: u32) -> String {
    format!("secret of u{user}")
}

/// Returns what the home of a user states.
pub fn account() -> Account {
    Account { password_set: PASSWORD_SET, ..Account::default() }
}

/// The users that are at home at one router.
pub struct HomeUsers {
    /// All users.
    pub roster: Arc<Roster>,
    /// The router.
    pub router: u32,
}

impl Users for HomeUsers {
    fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
        let number = number(user).filter(|_| self.exists(user, realm))?;
        Some(Ha1::new(algorithm, user, realm, password(number).as_bytes()))
    }

    fn exists(&self, user: &[u8], realm: &[u8]) -> bool {
        let home = number(user).and_then(|user| self.roster.home(user));
        realm == DOMAIN.as_bytes() && home == Some(self.router)
    }
}
