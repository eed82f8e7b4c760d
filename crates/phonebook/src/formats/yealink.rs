//! Yealink's remote phone book: `YealinkIPPhoneDirectory`, whose entries have a name and telephone numbers.
//!
//! The element names are those of the remote phone book template of the *Administrator's Guide for SIP-T2 Series/T19(P)
//! E2/T4 Series/T5 Series/CP860 IP Phones* (Yealink); phones of Fanvil, Htek and others read it too. The local directory
//! of these phones takes 1000 contacts (the same guide, "Local Directory"), which is the limit here. A phone that searches
//! at the server replaces `#SEARCH` in the URL by what was typed.

use super::xml::Xml;
use super::{Query, page};
use crate::book::{Book, Listed};

/// Entries of a page.
pub const PAGE: usize = 1_000;

/// Returns the document.
pub fn write(book: &Book, query: &Query) -> String {
    let mut xml = Xml::new("YealinkIPPhoneDirectory");
    for one in page(book, query, PAGE, can_be_dialled).entries {
        xml.open("DirectoryEntry");
        xml.text("Name", one.label());
        xml.text("Telephone", &one.dialled().unwrap_or_default());
        xml.close();
    }
    xml.finish()
}

pub(super) fn can_be_dialled(one: &Listed) -> bool {
    one.dialled().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::sample;
    use crate::formats::xml::tests::read;

    #[test]
    fn entries_have_a_name_and_what_is_dialled() {
        let entry = "YealinkIPPhoneDirectory/DirectoryEntry";
        let expected = [
            ("Alice Abel", "200"),
            ("bob Baker", "201"),
            ("zoe", "zoe@mesh"),
            ("Émile <b>&\"'Zola", "202"),
        ];
        let expected: Vec<String> = expected
            .iter()
            .flat_map(|(name, number)| {
                [format!("{entry}/Name={name}"), format!("{entry}/Telephone={number}")]
            })
            .collect();
        assert_eq!(read(&write(&sample(), &Query::default())), expected);
        let query = Query::parse("search=bak&all").unwrap();
        assert_eq!(read(&write(&sample(), &query)), expected[2..4]);
    }
}
