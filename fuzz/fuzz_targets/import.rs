//! Files of other servers: reading them never panics, users have a name and a secret, and what is reported has no line
//! break. The first octet says of which program the file is; files that it includes have the contents behind the first NUL.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_import::{FileError, Found, asterisk, kamailio};

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 2 {
        0 => check(kamailio("fuzz", bytes)),
        _ => {
            let nul = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            let other = bytes.get(nul + 1..).unwrap_or_default();
            check(asterisk("fuzz", &bytes[..nul], &mut |_| Ok(other.to_vec())));
        }
    }
});

fn check(found: Result<Found, FileError>) {
    match found {
        Ok(Found { users, refused }) => {
            for user in users {
                assert!(user.password.is_some() || !user.hashes.is_empty());
                assert!(user.password.as_deref() != Some("") && user.at.line > 0);
            }
            for refusal in refused {
                assert!(!refusal.reason.to_string().contains('\n'));
            }
        }
        Err(e) => assert!(!e.to_string().contains('\n')),
    }
}
