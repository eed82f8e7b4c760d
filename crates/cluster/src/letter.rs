//! Messages from node to node, which the database carries: each node subscribes to a channel of its own. They may be lost.
//!
//! A letter is `VERSION NODE BOOT TO`, separated by spaces, a line feed, and octets: the format's version, the node and the run
//! that has sent it, the run of the node that it is for, and what the database does not look at. Who may publish on the
//! channel may write any letter, in the name of any node.

use std::fmt::Write;

use crate::record::{Malformed, NodeName};

/// Version of the format.
pub const VERSION: u32 = 1;
/// Maximum length of the octets of a letter.
pub const MAX_OCTETS: usize = 16 * 1024;
/// Maximum length of the line before them.
const MAX_HEAD: usize = 128;
/// Maximum length of a letter.
pub const MAX_LETTER: usize = MAX_HEAD + MAX_OCTETS;

/// Returns the channel of a node.
pub fn channel(node: NodeName) -> String {
    format!("ringway:to:{node}")
}

/// A message from node to node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Letter {
    /// The sender.
    pub from: NodeName,
    /// Its run.
    pub boot: u64,
    /// The run of the node that it is for.
    pub to: u64,
    /// The octets; none in a letter of a node to itself, which shows that letters arrive.
    pub octets: Box<[u8]>,
}

impl Letter {
    /// Returns its octets on a channel.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = String::with_capacity(MAX_HEAD);
        // Writing into a string does not fail.
        let _ = writeln!(head, "{VERSION} {} {} {}", self.from, self.boot, self.to);
        [head.as_bytes(), &self.octets].concat()
    }

    /// Parses a letter.
    ///
    /// # Errors
    /// Fails for what this version does not know, and for what is too long.
    pub fn parse(bytes: &[u8]) -> Result<Letter, Malformed> {
        let parse = || {
            let end = bytes.iter().take(MAX_HEAD).position(|b| *b == b'\n')?;
            let (head, octets) = (std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]);
            let parts: Vec<&str> = head.split(' ').collect();
            let [version, from, boot, to] = parts[..] else { return None };
            if version.parse() != Ok(VERSION) || octets.len() > MAX_OCTETS {
                return None;
            }
            let (from, boot, to) = (from.parse().ok()?, boot.parse().ok()?, to.parse().ok()?);
            Some(Letter { from, boot, to, octets: octets.into() })
        };
        parse().ok_or(Malformed { expected: "a message from a node to this one" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_letter_is_refused() {
        let whole = b"1 sip:192.0.2.1:5060 7 8\noctets";
        let letter = Letter::parse(whole).unwrap();
        assert_eq!((letter.boot, letter.to, &*letter.octets), (7, 8, &b"octets"[..]));
        for bytes in [
            &b""[..],
            b"\n",
            b"1 sip:192.0.2.1:5060 7 8",
            b"2 sip:192.0.2.1:5060 7 8\n",
            b"1 sip:192.0.2.1:5060 7\n",
            b"1 sip:192.0.2.1:5060 7 8 9\n",
            b"1 sip:host:5060 7 8\n",
            b"1 sip:192.0.2.1:5060 -7 8\n",
            b"1 sip:192.0.2.1:5060 7 99999999999999999999\n",
            b"\xff sip:192.0.2.1:5060 7 8\n",
        ] {
            assert!(Letter::parse(bytes).is_err(), "{bytes:?}");
        }
        assert!(Letter::parse(&vec![b'1'; 1 << 20]).is_err());
        let long = [&whole[..], &[0; MAX_OCTETS]].concat();
        assert!(Letter::parse(&long).is_err());
    }

    #[test]
    fn the_longest_name_fits() {
        let text = "sip:[2001:db8:1111:2222:3333:4444:5555:6666]:65535;transport=tcp";
        let from: NodeName = text.parse().unwrap();
        let octets = vec![b'\n'; MAX_OCTETS].into();
        let letter = Letter { from, boot: u64::MAX, to: u64::MAX, octets };
        let bytes = letter.to_bytes();
        assert!(bytes.len() <= MAX_LETTER);
        assert_eq!(Letter::parse(&bytes), Ok(letter));
        assert_eq!(channel(from), format!("ringway:to:{text}"));
    }

    proptest! {
        #[test]
        fn letters_are_read_as_they_were_written(octets: Vec<u8>, boot: u64, to: u64, port: u16) {
            let from = NodeName { address: ([192, 0, 2, 1], port).into(), tcp: port % 2 == 0 };
            let letter = Letter { from, boot, to, octets: octets.into() };
            prop_assert_eq!(Letter::parse(&letter.to_bytes()), Ok(letter));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, tail: Vec<u8>) {
            let _ = Letter::parse(&bytes);
            let _ = Letter::parse(&[b"1 sip:192.0.2.1:5060 ", &tail[..]].concat());
        }
    }
}
