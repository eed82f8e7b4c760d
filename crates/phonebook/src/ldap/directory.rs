//! The tree that is searched: its attributes, its objects, and the schema that describes them.

use std::borrow::Cow;

use super::dn::{self, Dn, fold};
use crate::book::Listed;

/// The name of the schema's entry.
pub const SCHEMA: &str = "cn=Subschema";

/// How values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// Without regard to case and to runs of spaces (RFC 4517 section 4.2.11).
    Text,
    /// Without spaces and hyphens (RFC 4517 section 4.2.29).
    Number,
}

macro_rules! attributes {
    ($($name:ident: $kind:ident, $oid:literal, [$first:literal $(, $other:literal)*], $comment:literal;)*) => {
        /// An attribute that is known here. Of some no object has values: phones ask for them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Attribute {
            $(#[doc = $comment] $name,)*
        }

        /// All attributes.
        const ATTRIBUTES: &[(Attribute, &str, &[&str], Kind)] = &[
            $((Attribute::$name, $oid, &[$first $(, $other)*], Kind::$kind),)*
        ];
    };
}

/// What kind of an attribute it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Number,
    /// Returned only to those who ask for it (RFC 4512 section 3.4).
    Operational,
}

attributes! {
    ObjectClass: Text, "2.5.4.0", ["objectClass"], "RFC 4512 section 3.3.";
    Cn: Text, "2.5.4.3", ["cn", "commonName"], "The label, RFC 4519 section 2.3.";
    Sn: Text, "2.5.4.4", ["sn", "surname"], "The last word of the label, RFC 4519 section 2.32.";
    GivenName: Text, "2.5.4.42", ["givenName", "gn"], "The other words, RFC 4519 section 2.12.";
    DisplayName: Text, "2.16.840.1.113730.3.1.241", ["displayName"], "The label, RFC 2798 section 2.3.";
    Uid: Text, "0.9.2342.19200300.100.1.1", ["uid", "userid"], "The user, RFC 4519 section 2.39.";
    TelephoneNumber: Number, "2.5.4.20", ["telephoneNumber"], "What is dialled, RFC 4519 section 2.35.";
    LabeledUri: Text, "1.3.6.1.4.1.250.1.57", ["labeledURI"], "The SIP URI, RFC 2079.";
    Mobile: Number, "0.9.2342.19200300.100.1.41", ["mobile", "mobileTelephoneNumber"], "Of nobody, RFC 4524 section 2.18.";
    HomePhone: Number, "0.9.2342.19200300.100.1.20", ["homePhone", "homeTelephoneNumber"], "Of nobody, RFC 4524 section 2.12.";
    Mail: Text, "0.9.2342.19200300.100.1.3", ["mail", "rfc822Mailbox"], "Of nobody, RFC 4524 section 2.16.";
    Dc: Text, "0.9.2342.19200300.100.1.25", ["dc", "domainComponent"], "RFC 4519 section 2.4.";
    O: Text, "2.5.4.10", ["o", "organizationName"], "RFC 4519 section 2.19.";
    NamingContexts: Operational, "1.3.6.1.4.1.1466.101.120.5", ["namingContexts"], "RFC 4512 section 5.1.2.";
    SupportedLdapVersion: Operational, "1.3.6.1.4.1.1466.101.120.15", ["supportedLDAPVersion"], "RFC 4512 section 5.1.6.";
    SupportedFeatures: Operational, "1.3.6.1.4.1.4203.1.3.5", ["supportedFeatures"], "RFC 4512 section 5.1.5.";
    VendorName: Operational, "1.3.6.1.1.4", ["vendorName"], "RFC 3045.";
    SubschemaSubentry: Operational, "2.5.18.10", ["subschemaSubentry"], "RFC 4512 section 4.2.";
    AttributeTypes: Operational, "2.5.21.5", ["attributeTypes"], "RFC 4512 section 4.2.2.";
    ObjectClasses: Operational, "2.5.21.6", ["objectClasses"], "RFC 4512 section 4.2.1.";
}

/// The classes of objects (RFC 4512, RFC 4519, RFC 2247, RFC 2798), with the attributes that are known here.
const CLASSES: [&str; 8] = [
    "( 2.5.6.0 NAME 'top' ABSTRACT MUST objectClass )",
    "( 2.5.6.6 NAME 'person' SUP top STRUCTURAL MUST ( sn $ cn ) MAY telephoneNumber )",
    "( 2.5.6.7 NAME 'organizationalPerson' SUP person STRUCTURAL )",
    "( 2.16.840.1.113730.3.2.2 NAME 'inetOrgPerson' SUP organizationalPerson STRUCTURAL \
     MAY ( displayName $ givenName $ homePhone $ labeledURI $ mail $ mobile $ o $ uid ) )",
    "( 2.5.6.4 NAME 'organization' SUP top STRUCTURAL MUST o MAY telephoneNumber )",
    "( 1.3.6.1.4.1.1466.344 NAME 'dcObject' SUP top AUXILIARY MUST dc )",
    "( 2.5.17.0 NAME 'subentry' SUP top STRUCTURAL MUST cn )",
    "( 2.5.20.1 NAME 'subschema' AUXILIARY MAY ( objectClasses $ attributeTypes ) )",
];

impl Attribute {
    /// Returns the attribute with a name or an OID. One with options is none here.
    pub fn parse(name: &str) -> Option<Attribute> {
        let is = |names: &[&str]| names.iter().any(|own| own.eq_ignore_ascii_case(name));
        ATTRIBUTES.iter().find(|(_, oid, names, _)| *oid == name || is(names)).map(|found| found.0)
    }

    fn row(self) -> &'static (Attribute, &'static str, &'static [&'static str], Kind) {
        // Every attribute has its row, in this order.
        &ATTRIBUTES[self as usize]
    }

    /// Returns the first of its names.
    pub fn name(self) -> &'static str {
        self.row().2[0]
    }

    /// Returns whether it is returned only to those who ask for it.
    pub fn is_operational(self) -> bool {
        self.row().3 == Kind::Operational
    }

    /// Returns how values are compared.
    pub fn syntax(self) -> Syntax {
        match self.row().3 {
            Kind::Number => Syntax::Number,
            _ => Syntax::Text,
        }
    }

    /// Returns a value as it is compared.
    pub fn fold(self, value: &str) -> String {
        match self.syntax() {
            Syntax::Text => fold(value),
            Syntax::Number => value
                .chars()
                .filter(|c| !matches!(c, ' ' | '-'))
                .flat_map(char::to_lowercase)
                .collect(),
        }
    }

    /// Returns octets as they are compared, if they are a value.
    pub fn normalize(self, value: &[u8]) -> Option<String> {
        core::str::from_utf8(value).ok().map(|value| self.fold(value))
    }

    /// Returns the description of the attribute (RFC 4512 section 4.1.2).
    fn definition(self) -> String {
        let (_, oid, names, kind) = self.row();
        let quoted: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
        let names = match &quoted[..] {
            [one] => one.clone(),
            several => format!("( {} )", several.join(" ")),
        };
        let rules = match kind {
            Kind::Number => {
                "EQUALITY telephoneNumberMatch SUBSTR telephoneNumberSubstringsMatch \
                 SYNTAX 1.3.6.1.4.1.1466.115.121.1.50"
            }
            Kind::Text => {
                "EQUALITY caseIgnoreMatch SUBSTR caseIgnoreSubstringsMatch \
                 SYNTAX 1.3.6.1.4.1.1466.115.121.1.15"
            }
            Kind::Operational => "SYNTAX 1.3.6.1.4.1.1466.115.121.1.15 USAGE directoryOperation",
        };
        format!("( {oid} NAME {names} {rules} )")
    }
}

/// An object of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object<'a> {
    /// Its name.
    pub dn: String,
    /// Its attributes, each with at least one value.
    pub attributes: Vec<(Attribute, Vec<Cow<'a, str>>)>,
}

impl<'a> Object<'a> {
    fn new(dn: impl Into<String>, classes: &[&'a str]) -> Object<'a> {
        let mut object = Object { dn: dn.into(), attributes: Vec::new() };
        object.add(Attribute::ObjectClass, classes.iter().copied());
        object
    }

    fn add(
        &mut self,
        attribute: Attribute,
        values: impl IntoIterator<Item = impl Into<Cow<'a, str>>>,
    ) {
        let values: Vec<Cow<'a, str>> = values.into_iter().map(Into::into).collect();
        if !values.is_empty() {
            self.attributes.push((attribute, values));
        }
    }

    /// Returns the values of an attribute.
    pub fn values(&self, attribute: Attribute) -> impl Iterator<Item = &str> {
        let found = self.attributes.iter().filter(move |(own, _)| *own == attribute);
        found.flat_map(|(_, values)| values.iter().map(|value| &**value))
    }
}

/// The tree of a domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    domain: String,
    base: String,
    base_dn: Dn,
}

impl Directory {
    /// The tree of a domain, whose base is made of its labels. A domain without labels has the base `dc=mesh`.
    pub fn new(domain: &str) -> Directory {
        let name = Dn::of_domain(domain);
        let (base, base_dn) = match Dn::parse(&name) {
            Ok(dn) if !dn.is_root() => (name, dn),
            _ => ("dc=mesh".to_string(), Dn::parse("dc=mesh").unwrap_or_default()),
        };
        Directory { domain: domain.into(), base, base_dn }
    }

    /// Returns the name of the base.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Returns the name of the base, for comparison.
    pub(super) fn base_dn(&self) -> &Dn {
        &self.base_dn
    }

    /// Returns the root DSE (RFC 4512 section 5.1).
    pub fn root(&self) -> Object<'_> {
        let mut object = Object::new("", &["top"]);
        object.add(Attribute::NamingContexts, [self.base.as_str()]);
        object.add(Attribute::SupportedLdapVersion, ["2", "3"]);
        // RFC 3673: "+" selects all operational attributes. RFC 4526: filters without conditions.
        let features = ["1.3.6.1.4.1.4203.1.5.1", "1.3.6.1.4.1.4203.1.5.3"];
        object.add(Attribute::SupportedFeatures, features);
        object.add(Attribute::VendorName, ["Ringway"]);
        object.add(Attribute::SubschemaSubentry, [SCHEMA]);
        object
    }

    /// Returns the entry of the schema (RFC 4512 section 4.2).
    pub fn schema(&self) -> Object<'_> {
        let mut object = Object::new(SCHEMA, &["top", "subentry", "subschema"]);
        object.add(Attribute::Cn, ["Subschema"]);
        object.add(Attribute::AttributeTypes, ATTRIBUTES.iter().map(|row| row.0.definition()));
        object.add(Attribute::ObjectClasses, CLASSES);
        object
    }

    /// Returns the object at the base.
    pub fn top(&self) -> Object<'_> {
        let mut object = Object::new(&self.base, &["top", "dcObject", "organization"]);
        let first = self.domain.split('.').find(|label| !label.is_empty()).unwrap_or("mesh");
        object.add(Attribute::Dc, [first]);
        object.add(
            Attribute::O,
            [self.domain.as_str()].into_iter().filter(|domain| !domain.is_empty()),
        );
        object.add(Attribute::SubschemaSubentry, [SCHEMA]);
        object
    }

    /// Returns the name of a person within the tree: the user, and the domain if it is another one.
    pub(super) fn uid<'a>(&self, one: &'a Listed) -> Cow<'a, str> {
        let entry = one.entry();
        match entry.domain.eq_ignore_ascii_case(&self.domain) {
            true => entry.user.as_str().into(),
            false => format!("{}@{}", entry.user, entry.domain).into(),
        }
    }

    /// Returns the object of a person.
    pub fn person<'a>(&self, one: &'a Listed) -> Object<'a> {
        let uid = self.uid(one);
        let dn = format!("uid={},{}", dn::escape(&uid), self.base);
        let classes = ["top", "person", "organizationalPerson", "inetOrgPerson"];
        let mut object = Object::new(dn, &classes);
        let (given, family) = one.names();
        object.add(Attribute::Cn, [one.label()]);
        object.add(Attribute::Sn, [family]);
        object.add(Attribute::GivenName, given);
        object.add(Attribute::DisplayName, [one.label()]);
        object.add(Attribute::Uid, [uid]);
        object.add(Attribute::TelephoneNumber, one.dialled());
        object.add(Attribute::LabeledUri, [uri(&one.entry().user, &one.entry().domain)]);
        object.add(Attribute::SubschemaSubentry, [SCHEMA]);
        object
    }
}

/// Returns a SIP URI (RFC 3261 section 19.1.1), in which everything is escaped that is not reserved or unreserved.
fn uri(user: &str, domain: &str) -> String {
    let mut out = String::from("sip:");
    let mut put = |text: &str, plain: &[u8]| {
        for octet in text.bytes() {
            match octet.is_ascii_alphanumeric() || plain.contains(&octet) {
                true => out.push(octet.into()),
                false => out.push_str(&format!("%{octet:02X}")),
            }
        }
    };
    put(user, b"-_.!~*'()&=+$,;?/");
    put("@", b"@");
    put(domain, b"-.:[]");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::Book;
    use crate::book::tests::{entry, sample};

    #[test]
    fn each_attribute_is_found_by_its_names_and_its_oid() {
        for (index, (attribute, oid, names, _)) in ATTRIBUTES.iter().enumerate() {
            assert_eq!(*attribute as usize, index);
            assert_eq!(Attribute::parse(oid), Some(*attribute));
            for name in *names {
                assert_eq!(Attribute::parse(&name.to_uppercase()), Some(*attribute));
            }
        }
        assert_eq!(Attribute::parse("cn;lang-de"), None);
        assert_eq!(Attribute::parse("ipPhone"), None);
    }

    #[test]
    fn a_person_has_names_a_number_and_a_uri() {
        let (directory, book) = (Directory::new("mesh"), sample());
        let object = directory.person(&book.listed()[0]);
        assert_eq!(object.dn, "uid=alice,dc=mesh");
        let value = |attribute| object.values(attribute).collect::<Vec<_>>().join("|");
        assert_eq!(value(Attribute::Cn), "Alice Abel");
        assert_eq!(value(Attribute::Sn), "Abel");
        assert_eq!(value(Attribute::GivenName), "Alice");
        assert_eq!(value(Attribute::TelephoneNumber), "200");
        assert_eq!(value(Attribute::LabeledUri), "sip:alice@mesh");
        assert_eq!(value(Attribute::Mail), "");
        // A single word is a surname: a person must have one.
        let zoe = directory.person(&book.listed()[3]);
        assert_eq!(zoe.values(Attribute::Sn).collect::<Vec<_>>(), ["zoe"]);
        assert_eq!(zoe.values(Attribute::GivenName).count(), 0);
    }

    #[test]
    fn a_user_of_another_domain_and_a_hostile_one_have_names_of_their_own() {
        let directory = Directory::new("other.example");
        assert_eq!(directory.base(), "dc=other,dc=example");
        let book = Book::new([entry("a,b c", "", "x")]);
        let object = directory.person(&book.listed()[0]);
        assert_eq!(object.dn, "uid=a\\,b c@mesh,dc=other,dc=example");
        assert_eq!(object.values(Attribute::LabeledUri).collect::<Vec<_>>(), ["sip:a,b%20c@mesh"]);
        assert_eq!(object.values(Attribute::TelephoneNumber).count(), 0);
        assert_eq!(Directory::new("").base(), "dc=mesh");
    }
}
