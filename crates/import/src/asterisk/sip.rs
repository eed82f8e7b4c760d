//! `sip.conf` of chan_sip: a phone is a section, which it registers and proves by the name of the section.
//!
//! `defaultuser` (once `username`) is not a user: it is what Asterisk writes into requests to a phone that has not
//! registered.

use super::sections::{Key, Section};
use super::{DEFAULT_REALM, SIP, concrete, contains};
use crate::error::FileError;
use crate::found::{Found, Reason, Refusal, User};
use ringway_sip::digest::{Algorithm, Ha1};

/// Sections that are no phones.
const NO_PHONES: [&str; 2] = ["general", "authentication"];

pub(super) fn read(sections: &[Section], found: &mut Found) -> Result<(), FileError> {
    let general = sections.iter().rfind(|s| s.name.eq_ignore_ascii_case("general"));
    let realm = general.and_then(|s| s.non_empty(Key::Realm)).unwrap_or(DEFAULT_REALM);
    for section in concrete(sections).filter(|s| !contains(&NO_PHONES, &s.name)) {
        let user = match user(section, realm) {
            Ok(user) => Ok(user),
            Err(reason) => Err(Refusal {
                at: section.at.clone(),
                name: Some(section.name.to_string()),
                reason,
            }),
        };
        found.add(user)?;
    }
    Ok(())
}

fn user(section: &Section, realm: &str) -> Result<User, Reason> {
    if !section.get(Key::Type).is_some_and(|t| contains(&SIP, t)) {
        return Err(Reason::NoType);
    }
    // The secret of such a peer is often the one by which Asterisk registers there.
    if section.non_empty(Key::Host).is_some_and(|host| !host.eq_ignore_ascii_case("dynamic")) {
        return Err(Reason::FixedHost);
    }
    // chan_sip uses `md5secret` if there is one.
    let hash = match section.non_empty(Key::Md5Secret) {
        Some(hex) => {
            let hash = Ha1::from_hex(Algorithm::Md5, hex.as_bytes());
            Some(hash.ok_or(Reason::Hash("md5secret"))?)
        }
        None => None,
    };
    let password = section.non_empty(Key::Secret).map(str::to_owned);
    if password.is_none() && hash.is_none() {
        return Err(Reason::NoSecret);
    }
    Ok(User {
        at: section.at.clone(),
        name: section.name.to_string(),
        domain: None,
        password,
        hashes: hash.into_iter().collect(),
        realm: Some(realm.to_owned()),
    })
}
