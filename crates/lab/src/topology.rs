//! Topology files: the nodes and links of real networks, for the graph world.
//!
//! ```json
//! {
//!   "nodes": [{ "id": "a", "x": 52.03, "y": 8.53 }, { "id": 7 }],
//!   "links": [{ "source": "a", "target": 7, "delay_ms": 1.5, "loss": "1 %", "rate": "100 Mbit/s" }]
//! }
//! ```
//!
//! This is the form of meshnet-lab's collection, whose files have `source`, `target` and coordinates; the three
//! properties of a link are ours, and other keys are ignored. A link is one for both directions. Without `nodes`, the
//! nodes are those that links name. Whatever is in a file, reading it takes bounded memory and does not panic. Here its
//! form is checked; [`Plan::adjacency`] checks that its nodes and links agree.

use ringway_link::{Chance, Rate};
use ringway_sansio::Duration;
use ringway_sim::graph::{Plan, PlanLink, PlanNode};
use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// Maximum size of a file in bytes.
pub const MAX_FILE: u64 = 512 << 20;
/// Maximum number of nodes.
pub const MAX_NODES: usize = 1 << 20;
/// Maximum number of links.
pub const MAX_LINKS: usize = 1 << 23;
/// Maximum length of an id in bytes.
pub const MAX_ID: usize = 255;
/// Maximum delay of a link in milliseconds.
pub const MAX_DELAY_MS: f64 = 1e6;

/// Reason why a topology cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The file cannot be read.
    #[error("{path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("expected a topology of at most {MAX_FILE} bytes, got more")]
    Size,
    /// The text is not JSON, or not of this form; the error has its line and column.
    #[error(transparent)]
    Form(#[from] serde_json::Error),
    /// A value is not what it must be.
    #[error("{at}: expected {expected}, got {got}")]
    Value {
        /// Position in the file, such as `links[3].delay_ms`.
        at: String,
        /// What is expected there.
        expected: &'static str,
        /// What is there.
        got: String,
    },
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Plan, TopologyError> {
    let failed = |source| TopologyError::File { path: path.into(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    parse(&bytes)
}

/// Parses the text of a file.
pub fn parse(text: &[u8]) -> Result<Plan, TopologyError> {
    if text.len() as u64 > MAX_FILE {
        return Err(TopologyError::Size);
    }
    let document: Document = serde_json::from_slice(text)?;
    let links: Vec<PlanLink> =
        document.links.into_iter().enumerate().map(link).collect::<Result<_, _>>()?;
    let nodes = match document.nodes {
        Some(nodes) => nodes.into_iter().enumerate().map(node).collect::<Result<_, _>>()?,
        None => named_by(&links)?,
    };
    Ok(Plan { nodes, links })
}

fn node((index, node): (usize, NodeEntry)) -> Result<PlanNode, TopologyError> {
    let position = match (node.x, node.y) {
        (None, None) => None,
        (Some(x), Some(y)) => Some([x, y]),
        (x, _) => {
            let got = if x.is_some() { "x alone" } else { "y alone" };
            let at = format!("nodes[{index}]");
            let expected = "both x and y, or neither";
            return Err(TopologyError::Value { at, expected, got: got.into() });
        }
    };
    Ok(PlanNode { id: node.id.0, position })
}

fn link((index, link): (usize, LinkEntry)) -> Result<PlanLink, TopologyError> {
    let delay = |ms: f64| match (0.0..=MAX_DELAY_MS).contains(&ms) {
        true => Ok(Duration::from_nanos((ms * 1e6).round() as u64)),
        false => Err(TopologyError::Value {
            at: format!("links[{index}].delay_ms"),
            expected: "milliseconds from 0 to 1000000",
            got: ms.to_string(),
        }),
    };
    let LinkEntry { source: Id(source), target: Id(target), delay_ms, loss, rate } = link;
    Ok(PlanLink { source, target, delay: delay_ms.map(delay).transpose()?, loss, rate })
}

/// Returns the nodes that links name, in the order in which they first do.
fn named_by(links: &[PlanLink]) -> Result<Vec<PlanNode>, TopologyError> {
    let mut seen = BTreeSet::new();
    let ends = links.iter().flat_map(|link| [&link.source, &link.target]);
    let new = ends.filter(|id| seen.insert(id.as_str()));
    let nodes: Vec<PlanNode> =
        new.take(MAX_NODES + 1).map(|id| PlanNode { id: id.clone(), position: None }).collect();
    if nodes.len() > MAX_NODES {
        let (at, expected) = ("links".into(), "links between at most 1048576 nodes");
        return Err(TopologyError::Value { at, expected, got: "more".into() });
    }
    Ok(nodes)
}

/// The name of a node: a number is the same as its decimal digits.
#[derive(Debug, PartialEq)]
struct Id(String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an id: a text of 1 to {MAX_ID} bytes, or a whole number from 0")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                Ok(Id(number.to_string()))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                if (1..=MAX_ID).contains(&text.len()) {
                    return Ok(Id(text.into()));
                }
                Err(E::invalid_length(text.len(), &self))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// A file, as it is written.
#[derive(Deserialize)]
struct Document {
    #[serde(default, deserialize_with = "at_most::<_, _, MAX_NODES>")]
    nodes: Option<Vec<NodeEntry>>,
    #[serde(deserialize_with = "links")]
    links: Vec<LinkEntry>,
}

#[derive(Deserialize)]
struct NodeEntry {
    id: Id,
    x: Option<f64>,
    y: Option<f64>,
}

#[derive(Deserialize)]
struct LinkEntry {
    source: Id,
    target: Id,
    delay_ms: Option<f64>,
    loss: Option<Chance>,
    rate: Option<Rate>,
}

fn links<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LinkEntry>, D::Error> {
    at_most::<_, _, MAX_LINKS>(deserializer).map(Option::unwrap_or_default)
}

/// Reads a list of at most `MAX` entries; a longer one is refused before it is in memory.
fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    struct List<T, const MAX: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX} entries")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = list.next_element()? {
                if entries.len() == MAX {
                    return Err(de::Error::invalid_length(MAX + 1, &self));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_seq(List::<T, MAX>(PhantomData)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_sim::graph::{Adjacency, LinkModel};
    use serde_json::{Value, json};

    fn parse(text: &str) -> Result<Plan, String> {
        super::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    fn ids(plan: &Plan) -> Vec<&str> {
        plan.nodes.iter().map(|node| node.id.as_str()).collect()
    }

    fn adjacency(plan: &Plan) -> Result<Adjacency, String> {
        let usual = LinkModel::new(Duration::from_millis(1));
        plan.adjacency(usual).map_err(|error| error.to_string())
    }

    #[test]
    fn a_published_map_is_read() {
        let plan = parse(
            r#"{ "links": [{ "source": 1, "source_tq": 0.996, "target": "0", "target_tq": 1.0, "type": "vpn" },
                           { "source": "b", "target": 1, "delay_ms": 1.5, "loss": "1 %", "rate": "100mbit" }],
                 "nodes": [{ "id": 0, "name": "Bücherei", "x": 52.28, "y": 8.91 }, { "id": "1" }, { "id": "b" }] }"#,
        )
        .unwrap();
        assert_eq!(ids(&plan), ["0", "1", "b"]);
        assert_eq!((plan.nodes[0].position, plan.nodes[1].position), (Some([52.28, 8.91]), None));
        let first = PlanLink {
            source: "1".into(),
            target: "0".into(),
            delay: None,
            loss: None,
            rate: None,
        };
        let second = PlanLink {
            source: "b".into(),
            target: "1".into(),
            delay: Some(Duration::from_micros(1500)),
            loss: Chance::percent(1.0).ok(),
            rate: Some(Rate(100_000_000)),
        };
        assert_eq!(plan.links, [first, second]);
        let graph = adjacency(&plan).unwrap();
        assert_eq!(graph.neighbours(1).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn without_a_list_the_nodes_are_those_of_links() {
        let links =
            json!({ "links": [{ "source": "c", "target": "a" }, { "source": "a", "target": 5 }] });
        assert_eq!(ids(&parse(&links.to_string()).unwrap()), ["c", "a", "5"]);
        assert_eq!(parse(r#"{ "links": [] }"#), Ok(Plan::default()));
    }

    #[test]
    fn a_mistake_is_reported_with_its_position() {
        let two = r#"{ "nodes": [{ "id": "a" }, { "id": "b" }], "links": [LINK] }"#;
        let id = "expected an id: a text of 1 to 255 bytes";
        let delay = "links[0].delay_ms: expected milliseconds from 0 to 1000000, got -1";
        for (link, expected) in [
            (r#"{ "source": "a" }"#, "missing field `target` at line 1 column"),
            (r#"{ "source": "a", "target": "b", "delay_ms": -1 }"#, delay),
            (r#"{ "source": "a", "target": "b", "loss": 1.5 }"#, "expected a probability such as"),
            (r#"{ "source": "a", "target": "b", "rate": 5 }"#, "expected a bit rate with its unit"),
            (r#"{ "source": "", "target": "b" }"#, id),
            (r#"{ "source": -1, "target": "b" }"#, id),
            ("5", "expected struct LinkEntry"),
        ] {
            let error = parse(&two.replace("LINK", link)).unwrap_err();
            assert!(error.contains(expected), "{link}\nexpected {expected}\ngot      {error}");
        }
        let x_alone = "nodes[0]: expected both x and y, or neither, got x alone";
        for (text, expected) in [
            ("", "EOF while parsing"),
            ("{}", "missing field `links`"),
            (r#"{ "nodes": 1, "links": [] }"#, "expected a list of at most 1048576 entries"),
            (r#"{ "nodes": [{ "id": 1, "x": 2 }], "links": [] }"#, x_alone),
            (r#"{ "nodes": [{ "id": 1, "x": 1e999 }], "links": [] }"#, "number out of range"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}\nexpected {expected}\ngot      {error}");
        }
        let missing = read(Path::new("no-such-file.json")).unwrap_err().to_string();
        assert!(missing.starts_with("no-such-file.json: "), "{missing}");
        // What nodes and links contradict each other in is the plan's to say.
        let unknown = two.replace("LINK", r#"{ "source": "a", "target": 7 }"#);
        let error = adjacency(&parse(&unknown).unwrap()).unwrap_err();
        assert_eq!(error, "link 0 (from \"a\" to \"7\"): no node has the id \"7\"");
    }

    #[test]
    fn a_list_is_refused_when_it_is_too_long() {
        #[derive(Debug, Deserialize)]
        struct Two {
            #[serde(deserialize_with = "at_most::<_, _, 2>")]
            list: Option<Vec<u8>>,
        }
        let read = |text: &str| serde_json::from_str::<Two>(text);
        assert_eq!(read(r#"{ "list": [1, 2] }"#).unwrap().list, Some(vec![1, 2]));
        let error = read(r#"{ "list": [1, 2, 3] }"#).unwrap_err().to_string();
        assert!(error.contains("expected a list of at most 2 entries"), "{error}");
    }

    /// Values that a faulty or hostile file may have.
    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-2i64..5).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            prop_oneof!["[abc]", "[0-9]{1,3}", "1 %", "5 Mbit/s", ".{0,300}"].prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let key = prop_oneof![
                "id", "x", "y", "source", "target", "delay_ms", "loss", "rate", "[a-z]"
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..5).prop_map(|m| m.into_iter().collect()),
            ]
        })
    }

    fn link() -> impl Strategy<Value = Value> {
        let end = || prop_oneof![4 => "[a-e]".prop_map(Value::from), 1 => value()];
        let rest = prop::option::of(("delay_ms|loss|rate|tq", value()));
        (end(), end(), rest).prop_map(|(source, target, rest)| {
            let mut link = json!({ "source": source, "target": target });
            if let Some((key, value)) = rest {
                link[key] = value;
            }
            link
        })
    }

    proptest! {
        /// Any text gives a topology that can be used, or an error.
        #[test]
        fn no_text_is_fatal(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            nodes in prop::option::of(prop::collection::vec(
                prop_oneof![value(), "[a-e]".prop_map(|id| json!({ "id": id }))],
                0..5,
            )),
            links in prop::collection::vec(prop_oneof![6 => link(), 1 => value()], 0..6),
            cut in 0usize..400,
        ) {
            let _ = super::parse(&bytes).map_err(|error| error.to_string());
            let mut document = json!({ "links": links });
            if let Some(nodes) = nodes {
                document["nodes"] = nodes.into();
            }
            let text = document.to_string().into_bytes();
            let _ = super::parse(&text[..cut.min(text.len())]).map_err(|error| error.to_string());
            if let Ok(plan) = super::parse(&text)
                && let Ok(graph) = adjacency(&plan)
            {
                prop_assert_eq!(graph.nodes() as usize, plan.nodes.len());
                prop_assert_eq!(graph.links(), 2 * plan.links.len());
            }
        }

        /// What is written in this form is read back.
        #[test]
        fn a_topology_is_read_back(
            positions in prop::collection::vec(
                prop::option::of([-1_800_000i32..1_800_000, -900_000..900_000]),
                2..20,
            ),
            links in prop::collection::vec((0u32..20, 0u32..20, prop::option::of(0u32..1_000_000)), 0..30),
            loss in 0.0f64..=1.0,
        ) {
            let id = |number: u32| format!("n{number}");
            let nodes = (0..).zip(&positions).map(|(i, at)| PlanNode {
                id: id(i),
                position: at.map(|[x, y]| [f64::from(x) / 1e4, f64::from(y) / 1e4]),
            });
            let links = links.into_iter().map(|(a, b, delay)| PlanLink {
                source: id(a),
                target: id(b),
                delay: delay.map(|us| Duration::from_micros(us.into())),
                loss: Chance::new(loss).ok(),
                rate: delay.map(|us| Rate(u64::from(us) + 1)),
            });
            let plan = Plan { nodes: nodes.collect(), links: links.collect() };
            let node = |n: &PlanNode| match n.position {
                Some([x, y]) => json!({ "id": n.id, "x": x, "y": y }),
                None => json!({ "id": n.id }),
            };
            let link = |l: &PlanLink| json!({
                "source": l.source,
                "target": l.target,
                "delay_ms": l.delay.map(|d| d.as_nanos() as f64 / 1e6),
                "loss": l.loss,
                "rate": l.rate,
            });
            let nodes: Vec<Value> = plan.nodes.iter().map(node).collect();
            let links: Vec<Value> = plan.links.iter().map(link).collect();
            let text = json!({ "nodes": nodes, "links": links }).to_string();
            prop_assert_eq!(parse(&text), Ok(plan));
        }
    }
}
