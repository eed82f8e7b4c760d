//! A parsed value as a deserializer of serde whose errors carry the way to the value that is wrong.

use crate::document::{Value, describe};
use crate::error::{Error, Step};
use crate::nearest::list;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};
use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// One value, and what below it is left out because it has been reported.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a, 't> {
    value: &'a Value<'t>,
    left_out: &'a [&'a Value<'t>],
}

type Read<T> = Result<T, Error>;

impl<'a, 't> Node<'a, 't> {
    /// Reads a value, whose errors have the steps to what is wrong below it.
    pub(crate) fn read<T: DeserializeOwned>(
        value: &'a Value<'t>,
        left_out: &'a [&'a Value<'t>],
    ) -> Read<T> {
        let node = Node { value, left_out };
        T::deserialize(node).map_err(|error| node.locate(error))
    }

    fn below(self, value: &'a Value<'t>) -> Option<Self> {
        let is_left_out = self.left_out.iter().any(|one| std::ptr::eq(*one, value));
        (!is_left_out).then_some(Node { value, ..self })
    }

    /// An error that was found in this value.
    fn locate(self, mut error: Error) -> Error {
        if !error.is_located {
            // Serde reads an enum named by one of its keys from a copy that has no positions.
            error.steps = self.find(&error).unwrap_or_default();
            error.is_located = true;
        }
        error
    }

    /// The way to the first value below this one that the error means, the last step first.
    fn find(self, error: &Error) -> Option<Vec<Step>> {
        let look = |value: &'a Value<'t>, step: Step| {
            let below = self.below(value)?;
            let is_meant = error.means(value.get_ref());
            let mut steps = if is_meant { Vec::new() } else { below.find(error)? };
            steps.push(step);
            Some(steps)
        };
        match self.value.get_ref() {
            DeValue::Table(table) => table
                .iter()
                .find_map(|(key, value)| look(value, Step::Key(key.get_ref().to_string()))),
            DeValue::Array(array) => {
                array.iter().enumerate().find_map(|(i, item)| look(item, Step::Index(i)))
            }
            _ => None,
        }
    }

    /// Reads a value below another, one step from it.
    fn read_below<'de, S: DeserializeSeed<'de>>(self, seed: S, step: Step) -> Read<S::Value> {
        seed.deserialize(self).map_err(|error| {
            let mut error = self.locate(error);
            error.steps.push(step);
            error
        })
    }

    fn entries<'de>(self, table: &'a DeTable<'t>) -> impl MapAccess<'de, Error = Error> {
        Entries { node: self, entries: table.iter(), next: None }
    }

    fn items<'de>(self, array: &'a DeArray<'t>) -> impl SeqAccess<'de, Error = Error> {
        Items { node: self, items: array.iter().enumerate() }
    }

    fn mismatch<T>(self, expected: &str) -> Read<T> {
        Err(Error::invalid_type(Unexpected::Other(&describe(self.value)), &expected))
    }
}

/// The keys and values of a table.
struct Entries<'a, 't, I> {
    node: Node<'a, 't>,
    entries: I,
    next: Option<(&'a str, Node<'a, 't>)>,
}

impl<'de, 'a, 't: 'a, I> MapAccess<'de> for Entries<'a, 't, I>
where
    I: Iterator<Item = (&'a Spanned<DeString<'t>>, &'a Value<'t>)>,
{
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Read<Option<K::Value>> {
        let node = self.node;
        self.next = self
            .entries
            .find_map(|(key, value)| Some((key.get_ref().as_ref(), node.below(value)?)));
        let Some((key, _)) = self.next else { return Ok(None) };
        let key: StrDeserializer<'_, Error> = key.into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Read<V::Value> {
        match self.next.take() {
            Some((key, node)) => node.read_below(seed, Step::Key(key.into())),
            None => Err(Error::custom("a value was read before its key")),
        }
    }
}

/// The items of a list.
struct Items<'a, 't, I> {
    node: Node<'a, 't>,
    items: I,
}

impl<'de, 'a, 't: 'a, I> SeqAccess<'de> for Items<'a, 't, I>
where
    I: Iterator<Item = (usize, &'a Value<'t>)>,
{
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Read<Option<T::Value>> {
        let node = self.node;
        let next = self.items.find_map(|(i, item)| Some((i, node.below(item)?)));
        next.map(|(i, node)| node.read_below(seed, Step::Index(i))).transpose()
    }
}

impl<'de> Deserializer<'de> for Node<'_, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.value.get_ref() {
            DeValue::String(text) => visitor.visit_str(text),
            DeValue::Integer(number) => {
                let (digits, radix) = (number.as_str(), number.radix());
                if let Ok(number) = i64::from_str_radix(digits, radix) {
                    visitor.visit_i64(number)
                } else if let Ok(number) = u64::from_str_radix(digits, radix) {
                    visitor.visit_u64(number)
                } else {
                    let got = describe(self.value);
                    Err(Error::invalid_value(Unexpected::Other(&got), &visitor))
                }
            }
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(Error::invalid_value(Unexpected::Other(number.as_str()), &visitor)),
            },
            DeValue::Boolean(value) => visitor.visit_bool(*value),
            DeValue::Datetime(_) => Err(Error::invalid_type(Unexpected::Other("a date"), &visitor)),
            DeValue::Array(array) => visitor.visit_seq(self.items(array)),
            DeValue::Table(table) => visitor.visit_map(self.entries(table)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.value.get_ref() {
            DeValue::Boolean(_) => self.deserialize_any(visitor),
            _ => self.mismatch("true or false"),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.value.get_ref() {
            DeValue::String(_) => self.deserialize_any(visitor),
            _ => self.mismatch("a string in quotes"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        // TOML has no null: what is there is some.
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Read<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.value.get_ref() {
            DeValue::Array(_) => self.deserialize_any(visitor),
            _ => self.mismatch("a list in [ ]"),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Read<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        match self.value.get_ref() {
            DeValue::Table(_) => self.deserialize_any(visitor),
            _ => self.mismatch("a table"),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Read<V::Value> {
        match self.value.get_ref() {
            DeValue::String(word) => {
                let word: StrDeserializer<'_, Error> = word.as_ref().into_deserializer();
                visitor.visit_enum(word)
            }
            DeValue::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(self.entries(table)))
            }
            _ => self.mismatch(&format!("one of {}", list(variants))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Read<V::Value> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct
        tuple_struct identifier
    }
}
