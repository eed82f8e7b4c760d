//! The query of a URL: what to search for, and which page.

/// Maximum length of a query in octets.
pub const MAX_QUERY: usize = 1_024;
/// Maximum number of a page.
pub const MAX_PAGE: usize = 10_000;

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Query {
    /// What words, numbers or users begin with; empty for all.
    pub search: String,
    /// The page, from 0.
    pub page: usize,
    /// Entries of a page, if fewer than the format allows.
    pub limit: Option<usize>,
    /// Whether those are included who are not registered now.
    pub all: bool,
}

/// Why a query is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// Too long.
    #[error("expected a query of at most {MAX_QUERY} octets, got {0}")]
    TooLong(usize),
    /// No number.
    #[error("expected a number from {least} to {MAX_PAGE} for {name}")]
    Number {
        /// The parameter.
        name: &'static str,
        /// The least number.
        least: usize,
    },
}

impl Query {
    /// Parses what follows the question mark of a URL: `search` (or `q`), `page`, `limit` and `all`. Other parameters are
    /// ignored, as phones add some of their own. `#SEARCH` is no search: a phone replaces it when there is one.
    ///
    /// # Errors
    /// A query that is too long, or no number where one is expected.
    pub fn parse(query: &str) -> Result<Query, QueryError> {
        if query.len() > MAX_QUERY {
            return Err(QueryError::TooLong(query.len()));
        }
        let mut parsed = Query::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "search" | "q" if value != "#SEARCH" => parsed.search = value.into_owned(),
                "page" => parsed.page = number("page", 0, &value)?,
                "limit" => parsed.limit = Some(number("limit", 1, &value)?),
                "all" => parsed.all = matches!(&*value, "" | "1" | "true" | "yes"),
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// Returns the query of another page of the same search.
    pub(crate) fn of_page(&self, page: usize) -> String {
        let mut out = form_urlencoded::Serializer::new(String::new());
        if !self.search.is_empty() {
            out.append_pair("search", &self.search);
        }
        if let Some(limit) = self.limit {
            out.append_pair("limit", &limit.to_string());
        }
        if self.all {
            out.append_pair("all", "1");
        }
        out.append_pair("page", &page.to_string());
        out.finish()
    }
}

fn number(name: &'static str, least: usize, value: &str) -> Result<usize, QueryError> {
    let number = value.parse().ok().filter(|number| (least..=MAX_PAGE).contains(number));
    number.ok_or(QueryError::Number { name, least })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_parsed_and_leads_to_other_pages() {
        let query = Query::parse("search=J%C3%B6rg+%26&page=2&limit=5&all=1&mac=00").unwrap();
        let expected = Query { search: "Jörg &".into(), page: 2, limit: Some(5), all: true };
        assert_eq!(query, expected);
        assert_eq!(Query::parse(&query.of_page(2)), Ok(query));
        assert_eq!(Query::parse(""), Ok(Query::default()));
        assert_eq!(Query::parse("search=%23SEARCH"), Ok(Query::default()));
        assert_eq!(Query::parse("search=%ff%00").unwrap().search, "\u{fffd}\u{0}");
    }

    #[test]
    fn bad_numbers_and_long_queries_are_refused() {
        for bad in ["page=x", "page=-1", "page=10001", "limit=0", "limit=99999999999999999999"] {
            assert!(Query::parse(bad).is_err(), "{bad}");
        }
        let text = Query::parse(&"x".repeat(1_025)).unwrap_err().to_string();
        assert_eq!(text, "expected a query of at most 1024 octets, got 1025");
    }
}
