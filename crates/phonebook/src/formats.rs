//! The book as phones of several vendors read it.
//!
//! Each format is a page of the entries that a [`Query`] finds: [`yealink`], [`snom`], [`cisco`], [`grandstream`], [`json`].
//! A page has at most as many entries as the vendor's phones take.

pub mod cisco;
pub mod grandstream;
pub mod json;
pub mod query;
pub mod snom;
pub(crate) mod xml;
pub mod yealink;

pub use query::{Query, QueryError};

use crate::book::{Book, Listed};

/// What a screen shows above the entries.
const TITLE: &str = "Phonebook";

/// The entries of a page, and whether there are pages after it.
pub(crate) struct Page<'a> {
    pub(crate) entries: Vec<&'a Listed>,
    pub(crate) is_last: bool,
}

/// Returns a page of what `query` finds and `usable` accepts.
pub(crate) fn page<'a>(
    book: &'a Book,
    query: &Query,
    size: usize,
    usable: impl Fn(&Listed) -> bool,
) -> Page<'a> {
    let size = query.limit.map_or(size, |limit| limit.min(size));
    let found = book.search(&query.search, query.all).filter(|one| usable(one));
    let mut rest = found.skip(query.page * size);
    let entries = rest.by_ref().take(size).collect();
    Page { entries, is_last: rest.next().is_none() }
}
