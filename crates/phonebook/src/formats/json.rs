//! The book as JSON, for programs: everything that is known, also who cannot be dialled.

use ringway_sansio::Time;
use serde::Serialize;

use super::{Query, page};
use crate::book::Book;

/// Entries of a page.
pub const PAGE: usize = 1_000;

#[derive(Serialize)]
struct Document<'a> {
    /// Seconds since the epoch.
    now: u64,
    page: usize,
    last: bool,
    entries: Vec<Person<'a>>,
}

#[derive(Serialize)]
struct Person<'a> {
    user: &'a str,
    domain: &'a str,
    number: Option<&'a str>,
    name: &'a str,
    present: bool,
}

/// Returns the document: the time, the page, whether it is the last one, and its entries. Who is not present is included
/// if the query says so.
pub fn write(book: &Book, query: &Query, now: Time) -> String {
    let page = page(book, query, PAGE, |_| true);
    let entries = page.entries.iter().map(|one| Person {
        user: &one.entry().user,
        domain: &one.entry().domain,
        number: one.number(),
        name: one.label(),
        present: one.entry().present,
    });
    let entries = entries.collect();
    let document = Document { now: now.as_secs(), page: query.page, last: page.is_last, entries };
    // Texts, numbers and lists can always be written.
    serde_json::to_string(&document).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::sample;

    #[test]
    fn the_document_has_everything_that_is_known() {
        let query = Query::parse("all&limit=3").unwrap();
        let text = write(&sample(), &query, Time::from_secs(7));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((value["now"].as_u64(), value["last"].as_bool()), (Some(7), Some(false)));
        assert_eq!(value["entries"].as_array().unwrap().len(), 3);
        assert_eq!(value["entries"][2]["present"], false);
        let query = Query::parse("q=%C3%A9mile").unwrap();
        let value: serde_json::Value =
            serde_json::from_str(&write(&sample(), &query, Time::ZERO)).unwrap();
        assert_eq!(value["entries"][0]["name"], "Émile <b>&\"'Zola");
        assert_eq!(value["entries"][0]["number"], "202");
    }
}
