//! The messages of LDAP (RFC 4511 section 4) that are understood and sent here.

use lber::common::TagClass;
use ringway_sansio::Malformed;

use super::MAX_SELECTED;
use super::ber::{
    self, Element, Parts, constructed, fault, integer, number, octet_string, primitive, sequence,
    set,
};
use super::directory::{Attribute, Object};
use super::filter::Filter;

/// The name of the Notice of Disconnection (RFC 4511 section 4.4.1).
const NOTICE_OF_DISCONNECTION: &str = "1.3.6.1.4.1.1466.20036";

/// A result code (RFC 4511 section 4.1.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Code {
    Success = 0,
    ProtocolError = 2,
    TimeLimitExceeded = 3,
    SizeLimitExceeded = 4,
    AuthMethodNotSupported = 7,
    UnavailableCriticalExtension = 12,
    NoSuchObject = 32,
    InvalidDnSyntax = 34,
    UnwillingToPerform = 53,
}

/// How far a search goes (RFC 4511 section 4.5.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The base object.
    Base,
    /// What is right below it.
    One,
    /// It and everything below it.
    Subtree,
}

/// A search (RFC 4511 section 4.5.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchRequest {
    /// The name of the base object.
    pub base: String,
    /// How far it goes.
    pub scope: Scope,
    /// Maximum number of entries; 0 for no limit.
    pub size_limit: u32,
    /// Maximum time in seconds; 0 for no limit.
    pub time_limit: u32,
    /// Names of attributes are wanted, not their values.
    pub types_only: bool,
    /// What is searched for.
    pub filter: Filter,
    /// The attributes that are wanted.
    pub attributes: Vec<String>,
}

impl SearchRequest {
    /// Returns whether an attribute is wanted (RFC 4511 section 4.5.1.8, RFC 3673).
    pub fn selects(&self, attribute: Attribute) -> bool {
        let class = if attribute.is_operational() { "+" } else { "*" };
        (self.attributes.is_empty() && !attribute.is_operational())
            || self
                .attributes
                .iter()
                .any(|name| *name == class || Attribute::parse(name) == Some(attribute))
    }
}

/// What a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// To authenticate; the name and the password do not matter here.
    Bind {
        /// The version of LDAP.
        version: u32,
        /// It is a simple bind, not SASL.
        is_simple: bool,
    },
    /// To end the connection.
    Unbind,
    /// To search.
    Search(SearchRequest),
    /// To end an operation without an answer.
    Abandon(u32),
    /// An extended operation. None is known here.
    Extended,
    /// To change or compare something. The answer has this tag.
    Refused(u64),
}

/// A message of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number.
    pub id: u32,
    /// What it asks for.
    pub operation: Operation,
    /// It has a control that it cannot do without. None is known here.
    pub is_critical: bool,
}

impl Request {
    /// Parses a message.
    ///
    /// # Errors
    /// Octets that are no message of a client.
    pub fn parse(octets: &[u8]) -> Result<Request, Malformed> {
        let mut parts = Parts::of(ber::parse(octets)?)?;
        let id = parts.number(2)?;
        if id == 0 {
            // RFC 4511 section 4.1.1.1: it is the number of what nobody has asked for.
            return Err(fault("expected a message number above 0"));
        }
        let operation = read_operation(parts.any()?)?;
        let is_critical = match parts.more() {
            Some(controls) if (controls.class, controls.id) == (TagClass::Context, 0) => {
                is_any_critical(controls)?
            }
            Some(_) => return Err(fault("expected controls")),
            None => false,
        };
        Ok(Request { id, operation, is_critical })
    }

    /// Returns the tag of the answer, if there is one.
    pub fn response(&self) -> Option<u64> {
        match self.operation {
            Operation::Bind { .. } => Some(1),
            Operation::Search(_) => Some(5),
            Operation::Extended => Some(24),
            Operation::Refused(tag) => Some(tag),
            Operation::Unbind | Operation::Abandon(_) => None,
        }
    }
}

fn read_operation(element: Element) -> Result<Operation, Malformed> {
    if element.class != TagClass::Application {
        return Err(fault("expected an operation"));
    }
    Ok(match element.id {
        0 => {
            let mut parts = Parts::of(element)?;
            let (version, _) = (parts.number(2)?, parts.octets()?);
            let choice = parts.any()?;
            if choice.class != TagClass::Context {
                return Err(fault("expected a choice of authentication"));
            }
            Operation::Bind { version, is_simple: choice.id == 0 }
        }
        2 => Operation::Unbind,
        3 => Operation::Search(read_search(Parts::of(element)?)?),
        // The answers to modify, add, delete, modify DN and compare follow their requests.
        6 | 8 | 10 | 12 | 14 => Operation::Refused(element.id + 1),
        16 => {
            let id = element.expect_primitive().and_then(|octets| number(&octets));
            Operation::Abandon(id.ok_or(fault("expected the number of a message"))?)
        }
        23 => Operation::Extended,
        _ => return Err(fault("expected an operation of a client")),
    })
}

fn read_search(mut parts: Parts) -> Result<SearchRequest, Malformed> {
    let base = parts.text()?;
    let scope = match parts.number(10)? {
        0 => Scope::Base,
        1 => Scope::One,
        2 => Scope::Subtree,
        _ => return Err(fault("expected a scope from 0 to 2")),
    };
    // There are no aliases to follow.
    parts.number(10)?;
    let (size_limit, time_limit) = (parts.number(2)?, parts.number(2)?);
    let types_only = parts.boolean()?;
    let filter = Filter::parse(parts.any()?)?;
    let mut selected = Parts::of(parts.universal(16, "expected a list of attributes")?)?;
    let mut attributes = Vec::new();
    while let Some(part) = selected.more() {
        let name = part.match_class(TagClass::Universal).and_then(|part| part.match_id(4));
        let name =
            name.and_then(Element::expect_primitive).and_then(|name| String::from_utf8(name).ok());
        attributes.push(name.ok_or(fault("expected the name of an attribute"))?);
        if attributes.len() > MAX_SELECTED {
            return Err(fault("expected at most 64 attributes"));
        }
    }
    Ok(SearchRequest { base, scope, size_limit, time_limit, types_only, filter, attributes })
}

/// Returns whether one of the controls is critical (RFC 4511 section 4.1.11).
fn is_any_critical(controls: Element) -> Result<bool, Malformed> {
    let (mut controls, mut is_critical) = (Parts::of(controls)?, false);
    while let Some(control) = controls.more() {
        let mut parts = Parts::of(control)?;
        parts.octets()?;
        // The criticality is optional, and so is the value after it.
        if let Some(part) = parts.more()
            && (part.class, part.id) == (TagClass::Universal, 1)
        {
            is_critical |= part.expect_primitive().is_some_and(|octets| octets != [0]);
        }
    }
    Ok(is_critical)
}

/// Appends a result: an answer with this tag.
pub(super) fn write_result(
    out: &mut Vec<u8>,
    id: u32,
    tag: u64,
    code: Code,
    matched: &str,
    text: &str,
) {
    let parts = vec![
        integer(10, code as u32),
        octet_string(matched.as_bytes()),
        octet_string(text.as_bytes()),
    ];
    write_message(out, id, constructed(TagClass::Application, tag, parts));
}

/// Appends an entry of a search's result.
pub(super) fn write_entry(
    out: &mut Vec<u8>,
    id: u32,
    request: &SearchRequest,
    object: &Object<'_>,
) {
    let selected = object.attributes.iter().filter(|(attribute, _)| request.selects(*attribute));
    let attributes = selected.map(|(attribute, values)| {
        let values = values.iter().filter(|_| !request.types_only);
        let values = values.map(|value| octet_string(value.as_bytes())).collect();
        sequence(vec![octet_string(attribute.name().as_bytes()), set(values)])
    });
    let parts = vec![octet_string(object.dn.as_bytes()), sequence(attributes.collect())];
    write_message(out, id, constructed(TagClass::Application, 4, parts));
}

/// Appends the notice that the connection ends, and why.
pub(super) fn write_notice(out: &mut Vec<u8>, code: Code, text: &str) {
    let parts = vec![
        integer(10, code as u32),
        octet_string(b""),
        octet_string(text.as_bytes()),
        primitive(TagClass::Context, 10, NOTICE_OF_DISCONNECTION.as_bytes()),
    ];
    write_message(out, 0, constructed(TagClass::Application, 24, parts));
}

fn write_message(out: &mut Vec<u8>, id: u32, operation: Element) {
    ber::write(out, sequence(vec![integer(2, id), operation]));
}
