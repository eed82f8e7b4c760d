//! The section `[scenario]`: title, nodes, end of the run, replications.

use ringway_link::{Generator, Span};
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::fmt;

/// Maximum virtual time of a run.
pub const MAX_TIME: Span = Span::from_secs(1_000_000);

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At a fixed time.
    At(Span),
    /// When every flow that has an end has ended, or at `at_most`.
    FlowsDone,
}

impl Stop {
    /// Value of `stop` in the file for [`Stop::FlowsDone`].
    pub const FLOWS_DONE: &str = "flows done";
}

impl<'de> Deserialize<'de> for Stop {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Stop;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time with its unit (ns, us, ms, s, min), such as \"29 s\", or \"flows done\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Stop, E> {
                if text == Stop::FLOWS_DONE {
                    return Ok(Stop::FlowsDone);
                }
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                Span::parse(text).map(Stop::At).map_err(|_| wrong())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The section as written in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Header {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) positions: BTreeMap<String, [f64; 2]>,
    pub(crate) seed: u64,
    pub(crate) replications: u64,
    pub(crate) generator: Generator,
    pub(crate) stop: Stop,
    pub(crate) at_most: Span,
    pub(crate) events: u64,
}

impl Default for Header {
    fn default() -> Self {
        Header {
            title: String::new(),
            text: String::new(),
            nodes: Vec::new(),
            positions: BTreeMap::new(),
            // The default seed of ns-2.
            seed: 12_345,
            replications: 1,
            generator: Generator::Mrg32k3a,
            stop: Stop::FlowsDone,
            at_most: Span::from_secs(600),
            events: 1 << 32,
        }
    }
}
