//! Distinguished names (RFC 4514), as far as they are compared here.

use ringway_sansio::{Got, Malformed};

/// Maximum length of a name in octets.
pub const MAX_DN: usize = 1_024;
/// Maximum number of parts of a name.
pub const MAX_PARTS: usize = 16;

/// A name: its parts from the entry towards the root, each a type and a value in lower case. Two names of the same entry are
/// equal however they are written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dn(Vec<(String, String)>);

impl Dn {
    /// Parses a name.
    ///
    /// # Errors
    /// A text that is no name, or is too long. Parts of several attributes (RFC 4514 section 2.2) are refused: no entry
    /// here has such a name.
    pub fn parse(text: &str) -> Result<Dn, Malformed> {
        if text.len() > MAX_DN {
            let got = Got::Number(text.len() as u64);
            return Err(Malformed::bad("expected a name of at most 1024 octets", got, 0));
        }
        let mut parts = Vec::new();
        for part in split(text) {
            if parts.len() == MAX_PARTS {
                return Err(Malformed::bad("expected at most 16 parts of a name", Got::Several, 0));
            }
            let (kind, value) = part.split_once('=').ok_or(expected_part())?;
            let kind = kind.trim().to_ascii_lowercase();
            let kind = match kind.as_str() {
                "0.9.2342.19200300.100.1.25" | "domaincomponent" => "dc".to_string(),
                "0.9.2342.19200300.100.1.1" | "userid" => "uid".to_string(),
                _ => kind,
            };
            let value = fold(&unescape(strip(value))?);
            if kind.is_empty() || value.is_empty() {
                return Err(expected_part());
            }
            parts.push((kind, value));
        }
        Ok(Dn(parts))
    }

    /// Returns the name of the base for a domain: `dc=example,dc=org` for `example.org` (RFC 2247 section 3).
    pub fn of_domain(domain: &str) -> String {
        let parts = domain.split('.').filter(|part| !part.is_empty());
        parts.map(|part| format!("dc={}", escape(part))).collect::<Vec<_>>().join(",")
    }

    /// Returns whether this is the root of the tree.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the part below `base` if this is right below it.
    pub fn below(&self, base: &Dn) -> Option<(&str, &str)> {
        let (first, rest) = self.0.split_first()?;
        (rest == base.0).then_some((first.0.as_str(), first.1.as_str()))
    }

    /// Returns whether this is somewhere below `base`.
    pub fn is_below(&self, base: &Dn) -> bool {
        self.0.len() > base.0.len() && self.0.ends_with(&base.0)
    }
}

fn expected_part() -> Malformed {
    Malformed::bad("expected a type, '=' and a value", Got::Missing, 0)
}

/// Returns the parts between commas that are not escaped.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    let parts = text.split(move |c: char| {
        let is_end = !is_escaped && matches!(c, ',' | ';');
        is_escaped = !is_escaped && c == '\\';
        is_end
    });
    parts.filter(move |_| !text.trim().is_empty())
}

/// Returns a value without the spaces around it. One that is escaped is part of it.
fn strip(value: &str) -> &str {
    let value = value.trim_start_matches(' ');
    let stripped = value.trim_end_matches(' ');
    let backslashes = stripped.bytes().rev().take_while(|octet| *octet == b'\\').count();
    let escaped = usize::from(backslashes % 2 == 1 && stripped.len() < value.len());
    &value[..stripped.len() + escaped]
}

/// Returns a value without its escapes (RFC 4514 section 3).
fn unescape(value: &str) -> Result<String, Malformed> {
    let (mut out, mut octets) = (Vec::new(), value.bytes());
    while let Some(octet) = octets.next() {
        match octet {
            b'\\' => {
                let next = octets.next().ok_or(expected_part())?;
                let digit = |octet: u8| char::from(octet).to_digit(16).map(|digit| digit as u8);
                match digit(next) {
                    Some(high) => {
                        let low = octets.next().and_then(digit).ok_or(expected_part())?;
                        out.push(high << 4 | low);
                    }
                    None => out.push(next),
                }
            }
            b'+' | b'"' | b'<' | b'>' => return Err(expected_part()),
            _ => out.push(octet),
        }
    }
    String::from_utf8(out).map_err(|_| expected_part())
}

/// Returns a value as it stands in a name (RFC 4514 section 2.4).
pub fn escape(value: &str) -> String {
    let mut out = String::new();
    let last = value.chars().count().saturating_sub(1);
    for (index, c) in value.chars().enumerate() {
        match c {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => out.extend(['\\', c]),
            '#' if index == 0 => out.push_str("\\#"),
            ' ' if index == 0 || index == last => out.push_str("\\ "),
            _ if c.is_control() => {
                let mut octets = [0; 4];
                let octets = c.encode_utf8(&mut octets).bytes();
                octets.for_each(|octet| out.push_str(&format!("\\{octet:02x}")));
            }
            _ => out.push(c),
        }
    }
    out
}

/// Returns a value as it is compared: in lower case, with single spaces, and none at its ends (RFC 4518 section 2).
pub fn fold(value: &str) -> String {
    let words: Vec<&str> = value.split_whitespace().collect();
    words.join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_one_entry_are_equal() {
        let dn = |text| Dn::parse(text).unwrap();
        assert_eq!(dn("UID = Alice , DC=Mesh"), dn("uid=alice,dc=mesh"));
        assert_eq!(dn("uid=a\\2cb,dc=mesh"), dn("userid=A\\,B;domainComponent=mesh"));
        assert_eq!(dn("uid=a,dc=mesh").below(&dn("dc=mesh")), Some(("uid", "a")));
        assert_eq!(dn("uid=a,ou=x,dc=mesh").below(&dn("dc=mesh")), None);
        assert!(dn("uid=a,ou=x,dc=mesh").is_below(&dn("dc=mesh")));
        assert!(dn("").is_root() && dn("  ").is_root() && !dn("dc=mesh").is_below(&dn("dc=mesh")));
        assert_eq!(Dn::of_domain("example.org"), "dc=example,dc=org");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for bad in [
            "alice",
            "=a",
            "uid=",
            "uid=a,",
            "uid=a+cn=b",
            "uid=\\",
            "uid=\\2",
            "uid=\\ff",
            "uid=\"a\"",
        ] {
            assert!(Dn::parse(bad).is_err(), "{bad}");
        }
        assert!(Dn::parse(&"dc=a,".repeat(20)).is_err());
        assert!(Dn::parse(&format!("dc={}", "a".repeat(2_000))).is_err());
    }

    proptest! {
        /// Any value can stand in a name.
        #[test]
        fn a_value_survives_its_escapes(value in "\\PC{0,8}[\\x00-\\x7f]{0,8}") {
            prop_assume!(!fold(&value).is_empty());
            let dn = Dn::parse(&format!("uid={},dc=mesh", escape(&value)));
            let (dn, base, folded) = (dn.unwrap(), Dn::parse("dc=mesh").unwrap(), fold(&value));
            prop_assert_eq!(dn.below(&base), Some(("uid", folded.as_str())));
        }
    }
}
