//! Filters of searches (RFC 4511 section 4.5.1.7), with the three values that the standard asks for.

use lber::common::TagClass;
use ringway_sansio::{Got, Malformed};

use super::MAX_CONDITIONS;
use super::ber::{Element, Parts, fault, octet_string, primitive, sequence};
use super::directory::{Attribute, Object, Syntax};
use super::dn::fold;

/// A filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// All of these.
    And(Vec<Filter>),
    /// One of these.
    Or(Vec<Filter>),
    /// Not this.
    Not(Box<Filter>),
    /// A value is this. `approxMatch` too, which may be evaluated so.
    Equal(String, Vec<u8>),
    /// A value has these parts, in their order.
    Substrings(String, Substrings),
    /// There is a value.
    Present(String),
    /// A condition that no attribute here can meet: an order, or a rule of its own.
    Undefined,
}

/// Parts of a value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Substrings {
    /// What it begins with.
    pub initial: Option<Vec<u8>>,
    /// What it has in it.
    pub any: Vec<Vec<u8>>,
    /// What it ends with.
    pub last: Option<Vec<u8>>,
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// An element that is no filter, or more than [`MAX_CONDITIONS`] conditions.
    pub(super) fn parse(element: Element) -> Result<Filter, Malformed> {
        read(element, &mut 0)
    }

    /// Returns whether an object meets the filter; `None` if that is undefined.
    pub fn evaluate(&self, object: &Object<'_>) -> Option<bool> {
        match self {
            // RFC 4511 section 4.5.1.7: false if one is false, else undefined if one is undefined.
            Filter::And(filters) => every(filters, object, true),
            Filter::Or(filters) => every(filters, object, false),
            Filter::Not(filter) => filter.evaluate(object).map(|met| !met),
            Filter::Equal(attribute, value) => {
                let attribute = Attribute::parse(attribute)?;
                let value = attribute.normalize(value)?;
                Some(object.values(attribute).any(|own| attribute.fold(own) == value))
            }
            Filter::Substrings(attribute, parts) => {
                let attribute = Attribute::parse(attribute)?;
                let parts = Pattern::new(attribute, parts)?;
                Some(object.values(attribute).any(|own| parts.matches(&attribute.fold(own))))
            }
            Filter::Present(attribute) => {
                // RFC 4511 section 4.5.1.7.5: one that nobody knows is not there.
                let attribute = Attribute::parse(attribute);
                Some(attribute.is_some_and(|attribute| object.values(attribute).next().is_some()))
            }
            Filter::Undefined => None,
        }
    }

    /// Returns the element, for those who ask.
    pub fn to_element(&self) -> Element {
        let context = |id, parts| super::ber::constructed(TagClass::Context, id, parts);
        let all = |filters: &[Filter]| filters.iter().map(Filter::to_element).collect();
        match self {
            Filter::And(filters) => context(0, all(filters)),
            Filter::Or(filters) => context(1, all(filters)),
            Filter::Not(filter) => context(2, vec![filter.to_element()]),
            Filter::Equal(attribute, value) => {
                context(3, vec![octet_string(attribute.as_bytes()), octet_string(value)])
            }
            Filter::Substrings(attribute, parts) => {
                let part = |id| move |value: &Vec<u8>| primitive(TagClass::Context, id, value);
                let mut elements: Vec<Element> = parts.initial.iter().map(part(0)).collect();
                elements.extend(parts.any.iter().map(part(1)));
                elements.extend(parts.last.iter().map(part(2)));
                context(4, vec![octet_string(attribute.as_bytes()), sequence(elements)])
            }
            Filter::Present(attribute) => primitive(TagClass::Context, 7, attribute.as_bytes()),
            Filter::Undefined => context(9, Vec::new()),
        }
    }
}

/// Returns `neutral` if all filters are, its opposite if one is that, and else undefined.
fn every(filters: &[Filter], object: &Object<'_>, neutral: bool) -> Option<bool> {
    let mut result = Some(neutral);
    for filter in filters {
        match filter.evaluate(object) {
            Some(met) if met != neutral => return Some(met),
            Some(_) => {}
            None => result = None,
        }
    }
    result
}

fn read(element: Element, count: &mut usize) -> Result<Filter, Malformed> {
    *count += 1;
    if *count > MAX_CONDITIONS {
        return Err(Malformed::bad("expected at most 64 conditions in a filter", Got::Several, 0));
    }
    if element.class != TagClass::Context {
        return Err(fault("expected a filter"));
    }
    Ok(match element.id {
        0 | 1 => {
            let (id, mut parts) = (element.id, Parts::of(element)?);
            let mut filters = Vec::new();
            while let Some(part) = parts.more() {
                filters.push(read(part, count)?);
            }
            // RFC 4526 section 2: none at all is true for "and" and false for "or".
            if id == 0 { Filter::And(filters) } else { Filter::Or(filters) }
        }
        2 => {
            let mut parts = Parts::of(element)?;
            Filter::Not(Box::new(read(parts.any()?, count)?))
        }
        3 | 8 => {
            let mut parts = Parts::of(element)?;
            Filter::Equal(parts.text()?, parts.octets()?)
        }
        4 => {
            let mut parts = Parts::of(element)?;
            let attribute = parts.text()?;
            let parts = Parts::of(parts.universal(16, "expected the parts of a value")?)?;
            Filter::Substrings(attribute, read_substrings(parts, count)?)
        }
        7 => {
            let name =
                element.expect_primitive().ok_or(fault("expected the name of an attribute"))?;
            Filter::Present(String::from_utf8(name).map_err(|_| fault("expected UTF-8"))?)
        }
        5 | 6 | 9 => Filter::Undefined,
        _ => return Err(fault("expected a filter with a tag from 0 to 9")),
    })
}

fn read_substrings(mut parts: Parts, count: &mut usize) -> Result<Substrings, Malformed> {
    let mut substrings = Substrings::default();
    let mut is_first = true;
    while let Some(part) = parts.more() {
        *count += 1;
        let id = part.id;
        let value = part.match_class(TagClass::Context).and_then(Element::expect_primitive);
        let value = value.ok_or(fault("expected a part of a value"))?;
        // RFC 4511 section 4.5.1.7.2: the initial one is the first, the final one the last.
        match id {
            0 if is_first => substrings.initial = Some(value),
            1 if substrings.last.is_none() && *count <= MAX_CONDITIONS => {
                substrings.any.push(value)
            }
            2 if substrings.last.is_none() => substrings.last = Some(value),
            _ => return Err(fault("expected parts of a value in order, at most 64")),
        }
        is_first = false;
    }
    match is_first {
        true => Err(fault("expected at least one part of a value")),
        false => Ok(substrings),
    }
}

/// Substrings as they are compared.
struct Pattern {
    initial: String,
    any: Vec<String>,
    last: String,
}

impl Pattern {
    fn new(attribute: Attribute, parts: &Substrings) -> Option<Pattern> {
        // Spaces at the ends of a part separate words (RFC 4518 section 2.6.1): one remains where there is one.
        let part = |value: &[u8]| {
            let text = core::str::from_utf8(value).ok()?;
            if attribute.syntax() == Syntax::Number {
                return Some(attribute.fold(text));
            }
            let space = |is| if is { " " } else { "" };
            let (before, after) = (text.starts_with(' '), text.ends_with(' '));
            Some(format!(
                "{}{}{}",
                space(before),
                fold(text),
                space(after && !text.trim().is_empty())
            ))
        };
        let end = |value: &Option<Vec<u8>>| value.as_deref().map_or(Some(String::new()), part);
        Some(Pattern {
            initial: end(&parts.initial)?.trim_start().to_string(),
            any: parts.any.iter().map(|value| part(value)).collect::<Option<_>>()?,
            last: end(&parts.last)?.trim_end().to_string(),
        })
    }

    fn matches(&self, value: &str) -> bool {
        let Some(mut rest) = value.strip_prefix(self.initial.as_str()) else { return false };
        for part in &self.any {
            match rest.split_once(part.as_str()) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        rest.ends_with(self.last.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::sample;
    use crate::ldap::directory::Directory;

    fn equal(attribute: &str, value: &str) -> Filter {
        Filter::Equal(attribute.into(), value.into())
    }

    fn parts(attribute: &str, initial: &str, any: &[&str], last: &str) -> Filter {
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        let any = any.iter().map(|text| (*text).into()).collect();
        let parts = Substrings { initial: some(initial), any, last: some(last) };
        Filter::Substrings(attribute.into(), parts)
    }

    /// Returns what the filter is for Alice Abel, 200.
    fn evaluate(filter: &Filter) -> Option<bool> {
        assert_eq!(Filter::parse(filter.to_element()).as_ref(), Ok(filter));
        let (directory, book) = (Directory::new("mesh"), sample());
        let object = directory.person(&book.listed()[0]);
        filter.evaluate(&object)
    }

    #[test]
    fn values_are_compared_without_regard_to_case_and_spaces() {
        for (filter, expected) in [
            (equal("cn", "  ALICE   abel "), true),
            (equal("CommonName", "alice"), false),
            (equal("2.5.4.4", "abel"), true),
            (equal("givenName", "Alice"), true),
            (equal("telephoneNumber", "2-0 0"), true),
            (equal("objectClass", "inetorgperson"), true),
            (equal("objectClass", "device"), false),
            (equal("mail", "alice@mesh"), false),
            (Filter::Present("sn".into()), true),
            (Filter::Present("mobile".into()), false),
            (Filter::Present("ipPhone".into()), false),
        ] {
            assert_eq!(evaluate(&filter), Some(expected), "{filter:?}");
        }
    }

    #[test]
    fn parts_of_values_are_found_in_their_order() {
        for (filter, expected) in [
            (parts("cn", "AL", &[], ""), true),
            (parts("cn", "bel", &[], ""), false),
            (parts("cn", "", &["e a"], ""), true),
            (parts("cn", "", &["bel"], ""), true),
            (parts("cn", "al", &["ce", "ab"], "EL"), true),
            (parts("cn", "al", &["ab", "ce"], ""), false),
            (parts("cn", "alice ", &[], "abel"), true),
            (parts("cn", "alice abel", &[], "abel"), false),
            (parts("telephoneNumber", "2 0", &[], ""), true),
            (parts("telephoneNumber", "00", &[], ""), false),
        ] {
            assert_eq!(evaluate(&filter), Some(expected), "{filter:?}");
        }
    }

    #[test]
    fn what_is_undefined_is_neither_met_nor_not_met() {
        let unknown = || equal("ipPhone", "200");
        let (yes, no) = (|| equal("uid", "alice"), || equal("uid", "bob"));
        for (filter, expected) in [
            (unknown(), None),
            (Filter::Not(Box::new(unknown())), None),
            (Filter::Or(vec![unknown(), yes()]), Some(true)),
            (Filter::Or(vec![unknown(), no()]), None),
            (Filter::And(vec![unknown(), no()]), Some(false)),
            (Filter::And(vec![unknown(), yes()]), None),
            (Filter::Not(Box::new(no())), Some(true)),
            (Filter::And(vec![]), Some(true)),
            (Filter::Or(vec![]), Some(false)),
            (Filter::Undefined, None),
            (Filter::Equal("cn".into(), vec![0xff]), None),
        ] {
            assert_eq!(evaluate(&filter), expected, "{filter:?}");
        }
    }

    #[test]
    fn malformed_and_large_filters_are_refused() {
        let many = |count| Filter::And(vec![equal("cn", "a"); count]).to_element();
        assert!(Filter::parse(many(MAX_CONDITIONS - 1)).is_ok());
        assert!(Filter::parse(many(MAX_CONDITIONS)).is_err());
        let wide = parts("cn", "", &["a"; MAX_CONDITIONS], "");
        assert!(Filter::parse(wide.to_element()).is_err());
        let context = |id, parts| crate::ldap::ber::constructed(TagClass::Context, id, parts);
        let string = |text: &str| octet_string(text.as_bytes());
        for bad in [
            sequence(vec![]),
            context(2, vec![]),
            context(3, vec![string("cn")]),
            context(4, vec![string("cn"), sequence(vec![])]),
            context(4, vec![string("cn"), sequence(vec![string("a")])]),
            context(7, vec![]),
            context(10, vec![]),
            primitive(TagClass::Context, 0, b"x"),
            primitive(TagClass::Context, 7, &[0xff]),
        ] {
            assert!(Filter::parse(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
