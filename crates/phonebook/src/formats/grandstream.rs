//! Grandstream's `AddressBook`, which a phone downloads whole as `phonebook.xml`.
//!
//! After *GXP Series - XML Phonebook Guide* and *GXP17 Series XML Based Downloadable Phonebook Guide* (Grandstream Networks):
//! element names are case-sensitive; `accountindex` 0 is account 1; `type` of a number is Work, Home or Mobile. The limit
//! here is 2000 contacts.

use super::xml::Xml;
use super::{Query, page, yealink};
use crate::book::Book;

/// Entries of a page.
pub const PAGE: usize = 2_000;

/// Returns the document.
pub fn write(book: &Book, query: &Query) -> String {
    let mut xml = Xml::new("AddressBook");
    xml.text("version", "1");
    for one in page(book, query, PAGE, yealink::can_be_dialled).entries {
        let (given, family) = one.names();
        xml.open("Contact");
        xml.text("FirstName", given.unwrap_or_default());
        xml.text("LastName", family);
        xml.text("Frequent", "0");
        xml.open_with("Phone", " type=\"Work\"");
        xml.text("phonenumber", &one.dialled().unwrap_or_default());
        xml.text("accountindex", "0");
        xml.close();
        xml.close();
    }
    xml.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::sample;
    use crate::formats::xml::tests::read;

    #[test]
    fn a_contact_has_two_names_and_a_number_of_the_first_account() {
        let contact = "AddressBook/Contact";
        let expected = [
            "/FirstName=Alice",
            "/LastName=Abel",
            "/Frequent=0",
            "/Phone/phonenumber=200",
            "/Phone/accountindex=0",
        ];
        let document = write(&sample(), &Query::parse("search=alice").unwrap());
        assert!(document.contains("<Phone type=\"Work\">"));
        let texts = read(&document);
        assert_eq!(texts[0], "AddressBook/version=1");
        assert_eq!(texts[1..], expected.map(|text| format!("{contact}{text}")));
        let zoe = read(&write(&sample(), &Query::parse("search=zoe").unwrap()));
        assert_eq!(zoe[1..3], [format!("{contact}/FirstName="), format!("{contact}/LastName=zoe")]);
    }
}
