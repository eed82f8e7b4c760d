//! What other nodes know of a user at a node: until when, with which q, and which phones.

use std::fmt;

use ringway_proxy::location::{BindingView, instance_hash};
use ringway_sansio::Time;

/// Maximum number of phones that a record names.
pub const MAX_PHONES: usize = 8;

/// The phones of a user at a node (RFC 5626 section 4.1). One that is at two nodes is called by one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phones {
    /// Hashes of their instances, in order: at most [`MAX_PHONES`].
    pub instances: Box<[u64]>,
    /// Whether there are, or may be, contacts beside these.
    pub others: bool,
}

impl Phones {
    /// Returns the phones of which nothing is known.
    pub fn unknown() -> Phones {
        Phones { instances: Box::default(), others: true }
    }

    fn add(&mut self, instance: &[u8]) {
        if instance.is_empty() {
            self.others = true;
            return;
        }
        let hash = instance_hash(instance);
        let Err(index) = self.instances.binary_search(&hash) else { return };
        if self.instances.len() == MAX_PHONES {
            self.others = true;
            return;
        }
        let mut instances = std::mem::take(&mut self.instances).into_vec();
        instances.insert(index, hash);
        self.instances = instances.into();
    }

    /// Parses the text in a record. What is none names no phone.
    pub fn parse(text: &str) -> Phones {
        let (instances, others) = match text.strip_suffix('+') {
            Some(instances) => (instances, true),
            None => (text, false),
        };
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_hash = |text: &str| text.len() == 16 && text.bytes().all(is_digit);
        let one = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| is_hash(text));
        let read: Option<Vec<u64>> = instances.split('.').take(MAX_PHONES + 1).map(one).collect();
        let Some(mut instances) = read.filter(|read| read.len() <= MAX_PHONES) else {
            return Phones::unknown();
        };
        instances.sort_unstable();
        instances.dedup();
        Phones { instances: instances.into(), others }
    }
}

/// The text in a record: the instances, each of 16 hexadecimal digits, with dots between them, and `+` for others.
impl fmt::Display for Phones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, instance) in self.instances.iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            write!(f, "{dot}{instance:016x}")?;
        }
        f.write_str(if self.others { "+" } else { "" })
    }
}

/// A user at a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presence {
    /// The best q, in thousandths.
    pub q: u16,
    /// Time at which the last binding ends.
    pub ends: Time,
    /// The phones.
    pub phones: Phones,
}

impl Presence {
    /// Returns a user of whose phones nothing is known.
    pub fn new(q: u16, ends: Time) -> Presence {
        Presence { q, ends, phones: Phones::unknown() }
    }

    /// Returns the user who has this binding.
    pub fn of(binding: &BindingView<'_>) -> Presence {
        let phones = Phones { instances: Box::default(), others: false };
        let mut presence = Presence { q: 0, ends: Time::ZERO, phones };
        presence.add(binding);
        presence
    }

    /// Adds a binding of the user.
    pub fn add(&mut self, binding: &BindingView<'_>) {
        self.q = self.q.max(binding.q);
        self.ends = self.ends.max(binding.expires);
        self.phones.add(binding.instance);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn phones(instances: &[&str]) -> Phones {
        let mut phones = Phones { instances: Box::default(), others: false };
        instances.iter().for_each(|instance| phones.add(instance.as_bytes()));
        phones
    }

    #[test]
    fn a_record_names_few_phones() {
        let names: Vec<String> = (0..MAX_PHONES + 1).map(|i| format!("urn:uuid:{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let all = phones(&names[..MAX_PHONES]);
        assert_eq!((all.instances.len(), all.others), (MAX_PHONES, false));
        assert!(phones(&names).others);
        assert_eq!(phones(&[names[0], names[0]]).instances.len(), 1);
        assert!(phones(&[names[0], ""]).others);
        assert_eq!(phones(&[""]).to_string(), "+");
    }

    proptest! {
        #[test]
        fn phones_are_read_as_they_were_written(
            instances in prop::collection::vec("[a-z]{0,2}", 1..12),
        ) {
            let names: Vec<&str> = instances.iter().map(String::as_str).collect();
            let written = phones(&names);
            prop_assert_eq!(Phones::parse(&written.to_string()), written);
        }

        #[test]
        fn any_text_is_of_few_phones(text in "[0-9a-f.+]{0,200}|.{0,40}") {
            let phones = Phones::parse(&text);
            prop_assert!(phones.instances.len() <= MAX_PHONES);
            prop_assert!(phones.others || !phones.instances.is_empty());
        }
    }
}
