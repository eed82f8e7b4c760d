//! Cisco's `CiscoIPPhoneDirectory` and the `CiscoIPPhoneMenu` that leads to it.
//!
//! After *Cisco Unified IP Phone Services Application Development Notes* (OL-20949-01), chapter 3: a directory has at most 32
//! entries; a document with keys of its own has no others, so that `Dial` and `Exit` are named; and the URL for directories
//! must return a menu, which this is. The phones' parser knows no elements but these.
//!
//! A directory has telephone numbers only: who has none is left out.

use super::xml::Xml;
use super::{Query, TITLE, page};
use crate::book::{Book, Listed};

/// Entries of a page.
pub const PAGE: usize = 32;

/// Returns the directory. `url` is its own URL without a query.
pub fn write(book: &Book, query: &Query, url: &str) -> String {
    let mut xml = Xml::new("CiscoIPPhoneDirectory");
    let page = page(book, query, PAGE, |one: &Listed| one.number().is_some());
    xml.text("Title", TITLE);
    xml.text("Prompt", if page.entries.is_empty() { "Nobody" } else { "Select" });
    for one in page.entries {
        xml.open("DirectoryEntry");
        xml.text("Name", one.label());
        xml.text("Telephone", one.number().unwrap_or_default());
        xml.close();
    }
    let mut keys =
        vec![("Dial", "SoftKey:Dial".to_string()), ("EditDial", "SoftKey:EditDial".into())];
    keys.push(("Exit", "SoftKey:Exit".into()));
    if !page.is_last {
        keys.push(("Next", format!("{url}?{}", query.of_page(query.page + 1))));
    }
    for ((name, url), position) in keys.into_iter().zip(1..) {
        xml.open("SoftKeyItem");
        xml.text("Name", name);
        xml.text("URL", &url);
        xml.text("Position", &i32::to_string(&position));
        xml.close();
    }
    xml.finish()
}

/// Returns the menu. `url` is the directory's URL.
pub fn menu(url: &str) -> String {
    let mut xml = Xml::new("CiscoIPPhoneMenu");
    xml.text("Title", TITLE);
    xml.text("Prompt", "Select");
    xml.open("MenuItem");
    xml.text("Name", TITLE);
    xml.text("URL", url);
    xml.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::{entry, sample};
    use crate::formats::xml::tests::read;

    #[test]
    fn thirty_two_entries_are_a_page_and_a_key_leads_to_the_next() {
        let book =
            Book::new((0..40).map(|n| entry(&format!("u{n:03}"), &(200 + n).to_string(), "")));
        let texts = read(&write(&book, &Query::default(), "http://h/c.xml"));
        assert_eq!(texts.iter().filter(|text| text.contains("/Telephone=")).count(), 32);
        let key = "CiscoIPPhoneDirectory/SoftKeyItem";
        let next = ["Name=Next", "URL=http://h/c.xml?page=1", "Position=4"];
        assert_eq!(texts[texts.len() - 3..], next.map(|text| format!("{key}/{text}")));
        let texts = read(&write(&book, &Query::parse("page=1").unwrap(), "http://h/c.xml"));
        assert_eq!(texts.iter().filter(|text| text.contains("/Telephone=")).count(), 8);
        assert!(!texts.iter().any(|text| text.ends_with("Name=Next")));
    }

    #[test]
    fn who_has_no_number_is_left_out() {
        let texts = read(&write(&sample(), &Query::default(), "http://h/c.xml"));
        assert!(!texts.iter().any(|text| text.contains("zoe")));
        assert_eq!(
            read(&menu("http://h/c.xml?a&b"))[3],
            "CiscoIPPhoneMenu/MenuItem/URL=http://h/c.xml?a&b"
        );
    }
}
