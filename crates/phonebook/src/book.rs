//! Who can be called: entries in one order, and the search in them.
//!
//! # The order
//!
//! Entries are sorted by their label in lower case, character by character (code points), then by user and domain. That is
//! the order of a dictionary for unaccented letters, the same in each locale and at each router, and it does not change
//! when the presence of somebody does. Lower case is Unicode's, without a language.

use std::borrow::Cow;

/// Maximum number of entries; those that sort later are dropped.
pub const MAX_ENTRIES: usize = 10_000;
/// Maximum length of a label in characters. Longer ones are cut.
pub const MAX_LABEL: usize = 64;
/// Maximum length of a user, domain or number in octets. Entries with longer ones are dropped.
pub const MAX_PART: usize = 255;
/// Maximum length of a search in characters. Longer ones are cut.
pub const MAX_SEARCH: usize = 64;

/// Somebody who can be called. All texts are hostile: any user chooses a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The user part of the address of record.
    pub user: String,
    /// The short number.
    pub number: Option<String>,
    /// The display name.
    pub name: Option<String>,
    /// The domain of the address of record.
    pub domain: String,
    /// Whether there is a registration now.
    pub present: bool,
}

/// An entry with the key that it is sorted by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The entry.
    entry: Entry,
    /// What is shown.
    label: String,
    /// The label in lower case.
    folded: String,
}

impl Listed {
    fn new(entry: Entry) -> Option<Listed> {
        let number = entry.number.as_deref().unwrap_or_default();
        let parts = [&entry.user, &entry.domain, number];
        if entry.user.is_empty() || parts.iter().any(|part| part.len() > MAX_PART) {
            return None;
        }
        let name = entry.name.as_deref().map(clean).filter(|name| !name.is_empty());
        let label = name.unwrap_or_else(|| clean(&entry.user));
        let folded = label.to_lowercase();
        Some(Listed { entry, label, folded })
    }

    /// Returns the entry.
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Returns what is shown: the display name, or the user, in one line without control characters.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the short number, if it consists of what can be dialled: digits, `*`, `#` and `+`.
    pub fn number(&self) -> Option<&str> {
        let number = self.entry.number.as_deref()?;
        let dialled = |b: u8| b.is_ascii_digit() || b"*#+".contains(&b);
        (!number.is_empty() && number.bytes().all(dialled)).then_some(number)
    }

    /// Returns what a phone dials: the short number, or `user@domain`. Returns `None` if there is no number and the address
    /// has characters that phones may take for something else.
    pub fn dialled(&self) -> Option<Cow<'_, str>> {
        if let Some(number) = self.number() {
            return Some(number.into());
        }
        let (user, domain) = (&self.entry.user, &self.entry.domain);
        let plain = |text: &str, more: &[u8]| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || more.contains(&b))
        };
        (plain(user, b"-_.+*") && plain(domain, b"-.:[]"))
            .then(|| format!("{user}@{domain}").into())
    }

    /// Returns the words before the last one of the label, and the last one.
    pub fn names(&self) -> (Option<&str>, &str) {
        match self.label.rsplit_once(' ') {
            Some((given, family)) => (Some(given), family),
            None => (None, &self.label),
        }
    }

    /// Returns whether a word of the label, the number or the user begins with a text in lower case.
    fn matches(&self, folded: &str) -> bool {
        self.folded.starts_with(folded)
            || self.folded.split(' ').any(|word| word.starts_with(folded))
            || self.entry.number.as_deref().is_some_and(|number| number.starts_with(folded))
            || self.entry.user.to_lowercase().starts_with(folded)
    }
}

/// All entries, sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Book {
    listed: Vec<Listed>,
    dropped: usize,
}

impl Book {
    /// Returns a book of entries in any order. Of two entries for the same user and domain, one that is present remains.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Book {
        let (mut dropped, mut listed) = (0, Vec::new());
        for entry in entries {
            match Listed::new(entry) {
                Some(one) => listed.push(one),
                None => dropped += 1,
            }
        }
        let address = |one: &Listed| (one.entry.user.clone(), one.entry.domain.clone());
        listed.sort_by_cached_key(|one| (address(one), !one.entry.present, one.clone().into_key()));
        listed.dedup_by(|one, other| {
            (&one.entry.user, &one.entry.domain) == (&other.entry.user, &other.entry.domain)
        });
        listed.sort_by(|one, other| {
            let key = |one: &Listed| (one.folded.clone(), one.label.clone());
            key(one).cmp(&key(other)).then_with(|| address(one).cmp(&address(other)))
        });
        dropped += listed.len().saturating_sub(MAX_ENTRIES);
        listed.truncate(MAX_ENTRIES);
        Book { listed, dropped }
    }

    /// Returns all entries in order.
    pub fn listed(&self) -> &[Listed] {
        &self.listed
    }

    /// Returns the number of entries that were dropped: malformed, or beyond [`MAX_ENTRIES`].
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Returns the entries of which a word of the label, the number or the user begins with `search`, in any case. Who is
    /// not present is left out unless `all` is set.
    pub fn search<'a>(&'a self, search: &str, all: bool) -> impl Iterator<Item = &'a Listed> {
        let folded: String = clean(search).to_lowercase().chars().take(MAX_SEARCH).collect();
        self.listed.iter().filter(move |one| (all || one.entry.present) && one.matches(&folded))
    }
}

impl Listed {
    /// What decides between entries for the same address.
    fn into_key(self) -> (Option<String>, String) {
        (self.entry.number, self.label)
    }
}

/// Returns a text in one line of at most [`MAX_LABEL`] characters: control characters and line breaks are spaces, runs of
/// spaces are one, and characters that change the direction of what follows are removed.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::new();
    let mut count = 0;
    for c in text.chars().filter(|&c| !is_invisible(c)) {
        let c = if c.is_control() || c.is_whitespace() || c == '\u{fffe}' || c == '\u{ffff}' {
            ' '
        } else {
            c
        };
        if c == ' ' && (out.is_empty() || out.ends_with(' ')) {
            continue;
        }
        if count == MAX_LABEL {
            break;
        }
        out.push(c);
        count += 1;
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns whether a character shows nothing itself and moves or hides others (Unicode standard annex 9, section 2; also
/// zero width and tag characters).
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{61c}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn entry(user: &str, number: &str, name: &str) -> Entry {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
        Entry {
            user: user.into(),
            number: some(number),
            name: some(name),
            domain: "mesh".into(),
            present: true,
        }
    }

    pub(crate) fn sample() -> Book {
        let absent = Entry { present: false, ..entry("dave", "203", "Dave Away") };
        Book::new([
            entry("carol", "202", "Émile <b>&\"'Zola\u{0}"),
            entry("bob", "201", "bob Baker"),
            absent,
            entry("alice", "200", "Alice Abel"),
            entry("zoe", "", ""),
        ])
    }

    fn labels(book: &Book) -> Vec<&str> {
        book.listed().iter().map(Listed::label).collect()
    }

    #[test]
    fn entries_are_sorted_without_regard_to_case_and_locale() {
        let book = sample();
        assert_eq!(
            labels(&book),
            ["Alice Abel", "bob Baker", "Dave Away", "zoe", "Émile <b>&\"'Zola"]
        );
    }

    #[test]
    fn a_label_is_one_line_that_hides_nothing() {
        let book = Book::new([entry("eve", "", "\u{202e}a\r\n\tb\u{7}  c\u{200b}d ")]);
        assert_eq!(labels(&book), ["a b cd"]);
        let book = Book::new([entry("eve", "", &"ä".repeat(500))]);
        assert_eq!(book.listed()[0].label().chars().count(), MAX_LABEL);
        assert_eq!(Book::new([entry("eve", "", "\u{0}\n")]).listed()[0].label(), "eve");
    }

    #[test]
    fn a_search_finds_the_beginnings_of_words_numbers_and_users() {
        let book = sample();
        let found = |text: &str, all: bool| {
            book.search(text, all).map(|one| one.entry().user.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found("B", false), ["bob"]);
        assert_eq!(found("abel", false), ["alice"]);
        assert_eq!(found("alice a", false), ["alice"]);
        assert_eq!(found("ÉMI", false), ["carol"]);
        assert_eq!(found("20", false), ["alice", "bob", "carol"]);
        assert_eq!(found("20", true), ["alice", "bob", "dave", "carol"]);
        assert_eq!(found("lice", false), Vec::<String>::new());
        assert_eq!(found("", false).len(), 4);
    }

    #[test]
    fn only_what_phones_take_for_a_number_or_an_address_is_dialled() {
        let dialled = |user: &str, number: &str| {
            let book = Book::new([entry(user, number, "")]);
            book.listed()[0].dialled().map(Cow::into_owned)
        };
        assert_eq!(dialled("alice", "200").as_deref(), Some("200"));
        assert_eq!(dialled("alice", "2;x").as_deref(), Some("alice@mesh"));
        assert_eq!(dialled("al ice", ""), None);
        assert_eq!(dialled("a$(x)", ""), None);
    }

    #[test]
    fn a_user_is_listed_once_and_entries_beyond_the_limits_are_dropped() {
        let absent = Entry { present: false, ..entry("bob", "9", "A") };
        let book = Book::new([absent, entry("bob", "201", "Bob"), entry("", "", "nobody")]);
        assert_eq!((labels(&book), book.dropped()), (vec!["Bob"], 1));
        let many = (0..MAX_ENTRIES + 5).map(|n| entry(&format!("u{n:06}"), "", ""));
        let book = Book::new(many);
        assert_eq!((book.listed().len(), book.dropped()), (MAX_ENTRIES, 5));
        assert_eq!(Book::new([entry(&"x".repeat(256), "", "")]).dropped(), 1);
    }

    proptest! {
        /// The order does not depend on the order of what it is made of.
        #[test]
        fn a_book_is_the_same_however_its_entries_come(
            entries in prop::collection::vec(("[ab]{1,2}", "[0-9]{0,2}", "\\PC{0,3}", any::<bool>()), 0..12),
            by in 0..12_usize,
        ) {
            let mut entries: Vec<Entry> = entries
                .into_iter()
                .map(|(user, number, name, present)| Entry { present, ..entry(&user, &number, &name) })
                .collect();
            let book = Book::new(entries.clone());
            let length = entries.len().max(1);
            entries.rotate_left(by % length);
            prop_assert_eq!(Book::new(entries), book);
        }
    }
}
