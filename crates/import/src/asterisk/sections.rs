//! The sections of a file of Asterisk: templates are inherited, additions are added.
//!
//! Only the variables that say who users are and how they authenticate are kept.

use super::lines::{Load, Reader};
use crate::MAX_VALUE;
use crate::error::FileError;
use crate::found::Position;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum number of sections of one import.
pub const MAX_SECTIONS: usize = 400_000;
/// Maximum number of options of a section: templates, `!` and `+`.
const MAX_OPTIONS: usize = 64;
/// Maximum number of values of a variable that may be repeated.
const MAX_REPEATED: usize = 8;

/// A variable that is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Key {
    Type,
    Auth,
    OutboundAuth,
    Aors,
    AuthType,
    Username,
    Password,
    Md5Cred,
    /// May be repeated.
    PasswordDigest,
    Realm,
    DefaultRealm,
    Secret,
    Md5Secret,
    Host,
}

const KEYS: [(&str, Key); 14] = [
    ("type", Key::Type),
    ("auth", Key::Auth),
    ("outbound_auth", Key::OutboundAuth),
    ("aors", Key::Aors),
    ("auth_type", Key::AuthType),
    ("username", Key::Username),
    ("password", Key::Password),
    ("md5_cred", Key::Md5Cred),
    ("password_digest", Key::PasswordDigest),
    ("realm", Key::Realm),
    ("default_realm", Key::DefaultRealm),
    ("secret", Key::Secret),
    ("md5secret", Key::Md5Secret),
    ("host", Key::Host),
];

/// A section.
pub(super) struct Section {
    pub(super) at: Position,
    pub(super) name: Rc<str>,
    pub(super) template: bool,
    /// Sections that inherit values share them.
    values: Vec<(Key, Rc<str>)>,
}

impl Section {
    /// Returns the last value of a variable.
    pub(super) fn get(&self, key: Key) -> Option<&str> {
        self.all(key).last()
    }

    /// Returns the last value of a variable, unless it is empty.
    pub(super) fn non_empty(&self, key: Key) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// Returns all values of a variable.
    pub(super) fn all(&self, key: Key) -> impl Iterator<Item = &str> {
        self.values.iter().filter(move |(k, _)| *k == key).map(|(_, value)| &**value)
    }

    /// Returns whether it is of this type.
    pub(super) fn is(&self, name: &str) -> bool {
        self.get(Key::Type).is_some_and(|t| t.eq_ignore_ascii_case(name))
    }

    fn set(&mut self, key: Key, value: Rc<str>) {
        let repeated = key == Key::PasswordDigest;
        if !repeated {
            self.values.retain(|(k, _)| *k != key);
        }
        if !repeated || self.all(key).count() < MAX_REPEATED {
            self.values.push((key, value));
        }
    }
}

/// Reads the sections of a file and of those that it includes.
pub(super) fn read(name: &str, bytes: &[u8], load: Load<'_>) -> Result<Vec<Section>, FileError> {
    let mut document = Document::default();
    let mut visit = |at: &Position, line: &[u8]| match line.first() {
        Some(b'[') => document.section(at, line),
        _ => document.variable(at, line),
    };
    Reader { load, visit: &mut visit, files: 0, bytes: 0 }.read(name, bytes, 0)?;
    Ok(document.sections)
}

#[derive(Default)]
struct Document {
    sections: Vec<Section>,
    /// The first section of each name in lower case, and the first one that is no template.
    first: BTreeMap<String, (usize, Option<usize>)>,
    /// The section to which variables belong.
    current: Option<usize>,
}

fn text<'t>(at: &Position, bytes: &'t [u8]) -> Result<&'t str, FileError> {
    std::str::from_utf8(bytes).map_err(|_| FileError::Encoding { at: at.clone() })
}

impl Document {
    /// Reads `[name]` or `[name](option,..)`.
    fn section(&mut self, at: &Position, line: &[u8]) -> Result<(), FileError> {
        let line = text(at, line)?;
        let syntax = |expected, got| Err(FileError::Syntax { at: at.clone(), expected, got });
        let Some((name, rest)) = line[1..].split_once(']') else {
            return syntax("`]` after the name of a section", "the end of the line");
        };
        let options = match rest.strip_prefix('(').map(|rest| rest.split_once(')')) {
            Some(Some((options, _))) => options,
            Some(None) => {
                return syntax("`)` after the options of a section", "the end of the line");
            }
            None => "",
        };
        if options.split(',').count() > MAX_OPTIONS {
            let what = "options of a section";
            return Err(FileError::Limit { at: at.clone(), what, max: MAX_OPTIONS });
        }
        let mut values = Vec::new();
        let mut section =
            Section { at: at.clone(), name: name.into(), template: false, values: Vec::new() };
        let mut addition = false;
        for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            match option {
                "!" => section.template = true,
                "+" => addition = true,
                _ if option.starts_with('+') => {
                    return syntax(
                        "`+` as the option of a section",
                        "a filter, which is not supported",
                    );
                }
                base => {
                    let Some((base, _)) = self.first.get(&base.to_ascii_lowercase()) else {
                        return Err(FileError::Section { at: at.clone(), name: base.to_owned() });
                    };
                    values.clone_from(&self.sections[*base].values);
                    values.drain(..).for_each(|(key, value)| section.set(key, value));
                }
            }
        }
        match addition {
            true => self.add_to(at, section),
            false => self.push(section),
        }
    }

    fn add_to(&mut self, at: &Position, addition: Section) -> Result<(), FileError> {
        let first = self.first.get(&addition.name.to_ascii_lowercase());
        let Some((_, Some(index))) = first else {
            return Err(FileError::Section { at: at.clone(), name: addition.name.to_string() });
        };
        let section = &mut self.sections[*index];
        section.template |= addition.template;
        addition.values.into_iter().for_each(|(key, value)| section.set(key, value));
        self.current = Some(*index);
        Ok(())
    }

    fn push(&mut self, section: Section) -> Result<(), FileError> {
        if self.sections.len() >= MAX_SECTIONS {
            return Err(FileError::Limit { at: section.at, what: "sections", max: MAX_SECTIONS });
        }
        let index = self.sections.len();
        let concrete = (!section.template).then_some(index);
        let first =
            self.first.entry(section.name.to_ascii_lowercase()).or_insert((index, concrete));
        first.1 = first.1.or(concrete);
        self.sections.push(section);
        self.current = Some(index);
        Ok(())
    }

    /// Reads `name = value`, `name => value` or `name += value`.
    fn variable(&mut self, at: &Position, line: &[u8]) -> Result<(), FileError> {
        let Some(section) = self.current.map(|index| &mut self.sections[index]) else {
            let (expected, got) = ("`[section]` before the first variable", "another line");
            return Err(FileError::Syntax { at: at.clone(), expected, got });
        };
        // Asterisk ignores a line without `=`.
        let Some(equals) = line.iter().position(|b| *b == b'=') else { return Ok(()) };
        let (name, value) = (&line[..equals], &line[equals + 1..]);
        let value = value.strip_prefix(b">").unwrap_or(value).trim_ascii();
        let (name, append) = match name.strip_suffix(b"+") {
            Some(name) => (name.trim_ascii(), true),
            None => (name.trim_ascii(), false),
        };
        let key = KEYS.iter().find(|(k, _)| k.as_bytes().eq_ignore_ascii_case(name));
        let Some((_, key)) = key else { return Ok(()) };
        let value = text(at, value)?;
        let before = section.get(*key).filter(|_| append).unwrap_or_default();
        if before.len() + value.len() > MAX_VALUE {
            let what = "bytes of a value";
            return Err(FileError::Limit { at: at.clone(), what, max: MAX_VALUE });
        }
        let value = [before, value].concat();
        section.set(*key, value.trim().into());
        Ok(())
    }
}
