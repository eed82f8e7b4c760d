//! `pjsip.conf`: endpoints, and the credentials by which they authenticate to Asterisk.
//!
//! A phone registers an address-of-record, by the name of a section of type `aor`, and proves to be the `username` of a
//! section of type `auth`. Here both are the name of the user.

use super::sections::{Key, Section};
use super::{DEFAULT_REALM, concrete};
use crate::error::FileError;
use crate::found::{Found, Reason, Refusal, User};
use ringway_sip::digest::{Algorithm, Ha1};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn read(sections: &[Section], found: &mut Found) -> Result<(), FileError> {
    let auths: BTreeMap<&str, &Section> =
        concrete(sections).filter(|s| s.is("auth")).map(|s| (&*s.name, s)).collect();
    let global = concrete(sections).filter(|s| s.is("global")).last();
    let realm = global.and_then(|s| s.non_empty(Key::DefaultRealm)).unwrap_or(DEFAULT_REALM);
    let mut used = BTreeSet::new();
    for section in concrete(sections) {
        used.extend(list(section, Key::OutboundAuth));
        if section.is("endpoint") {
            used.extend(list(section, Key::Auth));
            endpoint(section, &auths, realm, found)?;
        }
    }
    for (name, auth) in auths.iter().filter(|(name, _)| !used.contains(**name)) {
        found.add(refuse(auth, name, Reason::UnusedAuth))?;
    }
    Ok(())
}

/// Returns the names in a list.
fn list(section: &Section, key: Key) -> impl Iterator<Item = &str> {
    let names = section.get(key).unwrap_or_default().split(',');
    names.map(str::trim).filter(|name| !name.is_empty())
}

fn refuse(section: &Section, name: &str, reason: Reason) -> Result<User, Refusal> {
    Err(Refusal { at: section.at.clone(), name: Some(name.to_owned()), reason })
}

fn endpoint(
    endpoint: &Section,
    auths: &BTreeMap<&str, &Section>,
    realm: &str,
    found: &mut Found,
) -> Result<(), FileError> {
    let mut names = list(endpoint, Key::Auth).peekable();
    if names.peek().is_none() {
        return found.add(refuse(endpoint, &endpoint.name, Reason::NoAuth));
    }
    for name in names {
        found.add(match auths.get(name) {
            Some(auth) => user(endpoint, auth, realm),
            None => refuse(endpoint, &endpoint.name, Reason::MissingAuth(name.to_owned())),
        })?;
    }
    Ok(())
}

fn user(endpoint: &Section, auth: &Section, realm: &str) -> Result<User, Refusal> {
    let Some(name) = auth.non_empty(Key::Username) else {
        return refuse(auth, &auth.name, Reason::NoName);
    };
    if *name != *endpoint.name && list(endpoint, Key::Aors).all(|aor| aor != name) {
        let endpoint = endpoint.name.to_string();
        return refuse(auth, name, Reason::OtherName { endpoint });
    }
    let (password, hashes) = match secrets(auth) {
        Ok(secrets) => secrets,
        Err(reason) => return refuse(auth, name, reason),
    };
    if password.is_none() && hashes.is_empty() {
        return refuse(auth, name, Reason::NoSecret);
    }
    Ok(User {
        at: auth.at.clone(),
        name: name.to_owned(),
        domain: None,
        password,
        hashes,
        realm: Some(auth.non_empty(Key::Realm).unwrap_or(realm).to_owned()),
    })
}

/// Returns the password and the hashes that Asterisk uses by the `auth_type`.
fn secrets(auth: &Section) -> Result<(Option<String>, Vec<Ha1>), Reason> {
    let kind = auth.non_empty(Key::AuthType).unwrap_or("userpass");
    let is = |name: &str| kind.eq_ignore_ascii_case(name);
    let mut hashes: Vec<Ha1> = Vec::new();
    if is("userpass") {
        return Ok((auth.non_empty(Key::Password).map(str::to_owned), hashes));
    }
    if !is("md5") && !is("digest") {
        return Err(Reason::AuthType);
    }
    if let Some(hex) = auth.non_empty(Key::Md5Cred) {
        let hash = Ha1::from_hex(Algorithm::Md5, hex.as_bytes());
        hashes.push(hash.ok_or(Reason::Hash("md5_cred"))?);
    }
    if is("md5") {
        return Ok((None, hashes));
    }
    for digest in auth.all(Key::PasswordDigest) {
        let hash = digest.split_once(':').and_then(|(algorithm, hex)| {
            let algorithm = Algorithm::from_token(algorithm.trim().as_bytes())?;
            Ha1::from_hex(algorithm, hex.trim().as_bytes())
        });
        let hash = hash.ok_or(Reason::Hash("password_digest"))?;
        hashes.retain(|other| other.algorithm() != hash.algorithm());
        hashes.push(hash);
    }
    Ok((auth.non_empty(Key::Password).map(str::to_owned), hashes))
}
