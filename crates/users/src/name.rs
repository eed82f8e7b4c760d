//! Names of users, and passwords.

use std::fmt;

/// Maximum length of a user name in bytes.
pub const MAX_USER: usize = 128;
/// Maximum length of a realm in bytes.
pub const MAX_REALM: usize = 255;
/// Allowed length of a password in bytes.
pub const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 1..=256;
/// Maximum number of users.
pub const MAX_USERS: usize = 1_000_000;

/// Reason why a name or password is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadUser(pub String);

impl fmt::Display for BadUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUser {}

/// Checks that a user name may appear unescaped in the user part of a SIP URI and in a digest
/// response.
///
/// # Errors
/// Describes the expected form.
pub fn check_name(user: &str) -> Result<(), BadUser> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,?/".contains(&b);
    if user.is_empty() || user.len() > MAX_USER || !user.bytes().all(fine) {
        return Err(BadUser(format!(
            "user name: expected 1 to {MAX_USER} letters, digits or -_.!~*'()&=+$,?/ , got {user:?}"
        )));
    }
    Ok(())
}

/// Checks a password.
///
/// # Errors
/// Describes the expected form, without the password.
pub fn check_password(password: &str) -> Result<(), BadUser> {
    if !PASSWORD_BYTES.contains(&password.len()) {
        return Err(BadUser(format!(
            "password: expected {} to {} bytes, got {}",
            PASSWORD_BYTES.start(),
            PASSWORD_BYTES.end(),
            password.len()
        )));
    }
    if password.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err(BadUser("password: expected no control characters".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_passwords_are_checked() {
        assert!(check_name("101").is_ok() && check_name("alice.b+c").is_ok());
        for name in ["", "a b", "a:b", "a@b", "ü", "\"", &"x".repeat(129)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_password("pä ss").is_ok());
        assert!(check_password("").is_err() && check_password("a\nb").is_err());
        assert!(!check_password(&"geheim".repeat(99)).unwrap_err().to_string().contains("geheim"));
    }
}
