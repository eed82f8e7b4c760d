//! How the library finds the broker: one environment variable.

use crate::name::BrokerId;

/// The name of the variable.
pub const VARIABLE: &str = "RINGWAY_WITH";

/// Octets of the variable's value: three fields in hexadecimal digits and one digit, with colons
/// between them.
pub const LENGTH: usize = 16 + 1 + 32 + 1 + 8 + 1 + 1;

/// What a process must know to be served by the broker.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// Returns whether another is the same, in a time that does not depend on where they differ.
    pub fn is(&self, other: &Secret) -> bool {
        self.0.iter().zip(other.0).fold(0, |different, (one, other)| different | (one ^ other)) == 0
    }
}

/// The value of the variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Environment {
    /// The broker, whose name is the address of its socket.
    pub broker: BrokerId,
    /// What each request carries.
    pub secret: Secret,
    /// The user that the broker runs as. The library trusts nobody else at the other end.
    pub user: u32,
    /// Whether sockets of UDP are served.
    pub datagrams: bool,
}

impl Environment {
    /// Returns the value.
    pub fn write(&self) -> [u8; LENGTH] {
        let mut out = [b':'; LENGTH];
        hexadecimal(&self.broker.0, &mut out[..16]);
        hexadecimal(&self.secret.0, &mut out[17..49]);
        hexadecimal(&self.user.to_be_bytes(), &mut out[50..58]);
        out[59] = if self.datagrams { b'1' } else { b'0' };
        out
    }

    /// Reads a value; `None` for anything that [`Environment::write`] does not return.
    pub fn read(value: &[u8]) -> Option<Environment> {
        if value.len() != LENGTH || [16, 49, 58].iter().any(|at| value[*at] != b':') {
            return None;
        }
        Some(Environment {
            broker: BrokerId(octets(&value[..16])?),
            secret: Secret(octets(&value[17..49])?),
            user: u32::from_be_bytes(octets(&value[50..58])?),
            datagrams: match value[59] {
                b'0' => false,
                b'1' => true,
                _ => return None,
            },
        })
    }
}

fn hexadecimal(octets: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (octet, digits) in octets.iter().zip(out.chunks_exact_mut(2)) {
        digits[0] = DIGITS[usize::from(octet >> 4)];
        digits[1] = DIGITS[usize::from(octet & 15)];
    }
}

fn octets<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut octets = [0; N];
    for (octet, pair) in octets.iter_mut().zip(digits.chunks_exact(2)) {
        for digit in pair {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *octet = *octet << 4 | value;
        }
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: Environment = Environment {
        broker: BrokerId([0, 1, 2, 3, 4, 5, 0xfe, 0xff]),
        secret: Secret([0xa5; 16]),
        user: 1000,
        datagrams: true,
    };

    #[test]
    fn the_value_is_written_and_read() {
        let text = VALUE.write();
        assert!(text.starts_with(b"000102030405feff:a5a5") && text.ends_with(b":000003e8:1"));
        assert_eq!(Environment::read(&text), Some(VALUE));
        let without = Environment { datagrams: false, ..VALUE };
        assert_eq!(Environment::read(&without.write()), Some(without));
    }

    #[test]
    fn anything_else_is_refused() {
        let text = VALUE.write();
        assert_eq!(Environment::read(&text[1..]), None);
        assert_eq!(Environment::read(b""), None);
        for index in 0..LENGTH {
            let mut wrong = text;
            wrong[index] = b'G';
            assert_eq!(Environment::read(&wrong), None, "{index}");
        }
    }

    #[test]
    fn a_secret_is_compared_whole_and_never_shown() {
        let mut other = VALUE.secret;
        assert!(VALUE.secret.is(&other));
        other.0[15] ^= 1;
        assert!(!VALUE.secret.is(&other));
        assert_eq!(format!("{:?}", VALUE.secret), "Secret(..)");
    }
}
