//! A search under way.

use std::sync::Arc;

use ringway_sansio::time::{Duration, Time};

use super::directory::{Directory, Object, SCHEMA};
use super::dn::{Dn, fold};
use super::message::{Code, Scope, SearchRequest, write_entry, write_result};
use super::{MAX_OUTPUT, MAX_RESULTS, MAX_SCAN};
use crate::book::Book;

/// The tag of a search's last answer.
const DONE: u64 = 5;

/// A search that has not ended. It sees the book as it was when it began.
pub(super) struct Search {
    pub(super) id: u32,
    request: SearchRequest,
    book: Arc<Book>,
    /// The next person to examine, and where to stop.
    next: usize,
    end: usize,
    sent: u32,
    deadline: Option<Time>,
}

/// Where a search looks.
struct Range {
    /// The object that is examined first.
    first: Option<First>,
    /// The persons, as positions in the book.
    persons: core::ops::Range<usize>,
}

#[derive(Clone, Copy)]
enum First {
    Root,
    Schema,
    Top,
}

impl Search {
    /// Begins a search. Returns `None` if it has ended already.
    pub(super) fn begin(
        now: Time,
        id: u32,
        request: SearchRequest,
        directory: &Directory,
        book: &Arc<Book>,
        out: &mut Vec<u8>,
    ) -> Option<Search> {
        let range = match range(&request, directory, book) {
            Ok(range) => range,
            Err((code, matched)) => {
                write_result(out, id, DONE, code, matched, "");
                return None;
            }
        };
        let limit = request.time_limit;
        let deadline = (limit > 0).then(|| now + Duration::from_secs(limit.into()));
        let (next, end) = (range.persons.start, range.persons.end);
        let mut search = Search { id, request, book: book.clone(), next, end, sent: 0, deadline };
        let first = range.first.map(|first| match first {
            First::Root => directory.root(),
            First::Schema => directory.schema(),
            First::Top => directory.top(),
        });
        // The size limit is at least 1, so that one entry is always within.
        first.iter().for_each(|object| _ = search.examine(object, out));
        Some(search)
    }

    /// Examines some persons. Returns whether the search has ended.
    pub(super) fn step(&mut self, now: Time, directory: &Directory, out: &mut Vec<u8>) -> bool {
        let book = self.book.clone();
        for _ in 0..MAX_SCAN {
            if self.next >= self.end {
                write_result(out, self.id, DONE, Code::Success, "", "");
                return true;
            }
            // RFC 4511 section 4.5.1.5.
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                write_result(out, self.id, DONE, Code::TimeLimitExceeded, "", "");
                return true;
            }
            if out.len() >= MAX_OUTPUT {
                return false;
            }
            let one = &book.listed()[self.next];
            self.next += 1;
            if one.entry().present && !self.examine(&directory.person(one), out) {
                write_result(out, self.id, DONE, Code::SizeLimitExceeded, "", "");
                return true;
            }
        }
        false
    }

    /// Writes an object if it is what is searched for. Returns false if that would be one too many.
    fn examine(&mut self, object: &Object<'_>, out: &mut Vec<u8>) -> bool {
        // RFC 4511 section 4.5.1.7: what is undefined is not returned.
        if self.request.filter.evaluate(object) != Some(true) {
            return true;
        }
        let limit = match self.request.size_limit {
            0 => MAX_RESULTS,
            limit => limit.min(MAX_RESULTS),
        };
        if self.sent >= limit {
            return false;
        }
        write_entry(out, self.id, &self.request, object);
        self.sent += 1;
        true
    }
}

/// Returns where a search looks, or the code and the nearest name that exists.
fn range<'a>(
    request: &SearchRequest,
    directory: &'a Directory,
    book: &Book,
) -> Result<Range, (Code, &'a str)> {
    let dn = Dn::parse(&request.base).map_err(|_| (Code::InvalidDnSyntax, ""))?;
    let all = 0..book.listed().len();
    let of = |first: Option<First>, persons| Ok(Range { first, persons });
    if dn.is_root() {
        return match request.scope {
            Scope::Base => of(Some(First::Root), 0..0),
            Scope::One => of(None, 0..0),
            // Phones whose base is left empty look here.
            Scope::Subtree => of(Some(First::Top), all),
        };
    }
    if Dn::parse(SCHEMA).as_ref() == Ok(&dn) {
        let first = (request.scope != Scope::One).then_some(First::Schema);
        return of(first, 0..0);
    }
    let base = directory.base_dn();
    if dn == *base {
        return match request.scope {
            Scope::Base => of(Some(First::Top), 0..0),
            Scope::One => of(None, all),
            Scope::Subtree => of(Some(First::Top), all),
        };
    }
    if let Some(("uid", uid)) = dn.below(base) {
        let is =
            |one: &crate::book::Listed| one.entry().present && fold(&directory.uid(one)) == uid;
        if let Some(at) = book.listed().iter().position(is) {
            return of(None, if request.scope == Scope::One { 0..0 } else { at..at + 1 });
        }
    }
    let matched = if dn.is_below(base) { directory.base() } else { "" };
    Err((Code::NoSuchObject, matched))
}
