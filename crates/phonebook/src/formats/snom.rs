//! Snom's minibrowser: `SnomIPPhoneDirectory` with title, prompt, entries and keys for other pages.
//!
//! After *XML Minibrowser* and *Main Subtags* (Snom Service Hub) and *Minibrowser* (Snom User Wiki): a directory whose lines
//! are selected by digits (`speedselect`) has at most 100 of them; `SoftKeyItem` gives a key a URL, here `*` and `#`. A
//! number without a domain is dialled at the registrar, a text with one as it is.
//!
//! The minibrowser evaluates expressions of the form `$(...)` in a document. A name is text, so in it the two characters
//! are separated.

use super::xml::Xml;
use super::{Query, TITLE, page, yealink};
use crate::book::Book;

/// Entries of a page.
pub const PAGE: usize = 100;

/// Returns the document. `url` is its own URL without a query.
pub fn write(book: &Book, query: &Query, url: &str) -> String {
    let mut xml = Xml::new("SnomIPPhoneDirectory");
    let page = page(book, query, PAGE, yealink::can_be_dialled);
    xml.text("Title", TITLE);
    xml.text("Prompt", "Dial");
    for one in page.entries {
        xml.open("DirectoryEntry");
        xml.text("Name", &one.label().replace("$(", "$ ("));
        xml.text("Telephone", &one.dialled().unwrap_or_default());
        xml.close();
    }
    let mut key = |name: &str, label: &str, page: usize| {
        xml.open("SoftKeyItem");
        xml.text("Name", name);
        xml.text("Label", label);
        xml.text("URL", &format!("{url}?{}", query.of_page(page)));
        xml.close();
    };
    if let Some(before) = query.page.checked_sub(1) {
        key("*", "Back", before);
    }
    if !page.is_last {
        key("#", "Next", query.page + 1);
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::entry;
    use crate::formats::xml::tests::read;

    #[test]
    fn a_hundred_entries_are_a_page_with_keys_for_the_others() {
        let book =
            Book::new((0..250).map(|n| entry(&format!("u{n:03}"), &(200 + n).to_string(), "")));
        let keys = |query: &str| {
            let texts = read(&write(&book, &Query::parse(query).unwrap(), "http://h/snom.xml"));
            let entries = texts.iter().filter(|text| text.contains("/Telephone=")).count();
            let urls = texts
                .iter()
                .filter_map(|text| text.split_once("/URL=").map(|(_, url)| url.to_string()));
            (entries, urls.collect::<Vec<_>>())
        };
        let url = |query: &str| format!("http://h/snom.xml?{query}");
        assert_eq!(keys(""), (100, vec![url("page=1")]));
        assert_eq!(keys("page=1"), (100, vec![url("page=0"), url("page=2")]));
        assert_eq!(keys("search=u&page=2"), (50, vec![url("search=u&page=1")]));
        assert_eq!(keys("page=9"), (0, vec![url("page=8")]));
        assert_eq!(keys("search=u01"), (10, vec![]));
    }

    #[test]
    fn a_name_is_never_evaluated() {
        let book = Book::new([entry("eve", "200", "$(set:admin) $$( $((")]);
        let document = write(&book, &Query::default(), "http://h/");
        assert!(!document.contains("$("), "{document}");
    }
}
