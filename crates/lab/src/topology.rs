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
//! nodes are those that links name. Whatever is in a file, reading it takes bounded memory and does not panic.

use ringway_link::{Chance, Rate, Span};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
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

/// The name of a node. A number and its decimal digits are the same id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Id {
    /// A number.
    Number(u64),
    /// Any other text.
    Text(Box<str>),
}

impl Id {
    fn new(text: &str) -> Id {
        match text.parse::<u64>() {
            Ok(number) if number.to_string() == text => Id::Number(number),
            _ => Id::Text(text.into()),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Id::Number(number) => write!(f, "{number}"),
            Id::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an id: a text of 1 to {MAX_ID} bytes, or a whole number from 0")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                Ok(Id::Number(number))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                if (1..=MAX_ID).contains(&text.len()) {
                    return Ok(Id::new(text));
                }
                Err(E::invalid_length(text.len(), &self))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// A node of a topology file.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name of the node.
    pub id: Id,
    /// Coordinates, in any unit; in published maps degrees of latitude and longitude.
    pub position: Option<[f64; 2]>,
}

/// A link of a topology file, for both directions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Indices of the nodes at its ends; they differ.
    pub between: [u32; 2],
    /// Time from sending to arrival.
    pub delay: Option<Span>,
    /// Probability that a packet is lost.
    pub loss: Option<Chance>,
    /// Bit rate.
    pub rate: Option<Rate>,
}

/// The contents of a topology file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Nodes, in the order of the file.
    pub nodes: Vec<Node>,
    /// Links, in the order of the file; at most one between two nodes.
    pub links: Vec<Link>,
}

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
    /// Nodes or links contradict each other.
    #[error("{at}: expected {expected}, got {got}")]
    Content {
        /// Position in the file, such as `links[3].target`.
        at: String,
        /// What is expected there.
        expected: &'static str,
        /// What is there.
        got: String,
    },
}

impl Topology {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Topology, TopologyError> {
        let failed = |source| TopologyError::File { path: path.into(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
        Topology::parse(&bytes)
    }

    /// Parses the text of a file.
    pub fn parse(text: &[u8]) -> Result<Topology, TopologyError> {
        if text.len() as u64 > MAX_FILE {
            return Err(TopologyError::Size);
        }
        let document: Document = serde_json::from_slice(text)?;
        let listed = document.nodes.is_some();
        let mut topology = Topology::default();
        let mut numbers = HashMap::new();
        for (i, node) in document.nodes.unwrap_or_default().into_iter().enumerate() {
            if numbers.insert(node.id.clone(), i as u32).is_some() {
                let got = format!("{:?} again", node.id.to_string());
                return Err(content(format!("nodes[{i}].id"), "an id of its own", got));
            }
            let position = position(i, &node)?;
            topology.nodes.push(Node { id: node.id, position });
        }
        let mut first = HashMap::new();
        for (i, link) in document.links.into_iter().enumerate() {
            let LinkEntry { source, target, delay_ms, loss, rate } = link;
            let mut end = |id: Id, key| match numbers.entry(id) {
                Entry::Occupied(known) => Ok(*known.get()),
                Entry::Vacant(new) if !listed && topology.nodes.len() < MAX_NODES => {
                    topology.nodes.push(Node { id: new.key().clone(), position: None });
                    Ok(*new.insert(topology.nodes.len() as u32 - 1))
                }
                Entry::Vacant(new) => {
                    let expected = if listed { "the id of a node" } else { TOO_MANY };
                    let got = format!("{:?}", new.key().to_string());
                    Err(content(format!("links[{i}].{key}"), expected, got))
                }
            };
            let between = [end(source, "source")?, end(target, "target")?];
            let [a, b] = between;
            let at = format!("links[{i}]");
            if a == b {
                let got = format!("{:?} twice", topology.nodes[a as usize].id.to_string());
                return Err(content(at, "two different nodes", got));
            }
            if let Some(earlier) = first.insert([a.min(b), a.max(b)], i) {
                let got = format!("the nodes of links[{earlier}] again");
                return Err(content(at, "one link between two nodes", got));
            }
            let delay = delay_ms.map(|ms| delay(i, ms)).transpose()?;
            topology.links.push(Link { between, delay, loss, rate });
        }
        Ok(topology)
    }
}

/// What is expected of an id if there are too many nodes.
const TOO_MANY: &str = "at most 1048576 nodes";

fn content(at: String, expected: &'static str, got: String) -> TopologyError {
    TopologyError::Content { at, expected, got }
}

fn position(index: usize, node: &NodeEntry) -> Result<Option<[f64; 2]>, TopologyError> {
    match (node.x, node.y) {
        (None, None) => Ok(None),
        (Some(x), Some(y)) => Ok(Some([x, y])),
        (x, _) => {
            let got = if x.is_some() { "x alone" } else { "y alone" };
            Err(content(format!("nodes[{index}]"), "both x and y, or neither", got.into()))
        }
    }
}

fn delay(index: usize, ms: f64) -> Result<Span, TopologyError> {
    if (0.0..=MAX_DELAY_MS).contains(&ms) {
        return Ok(Span((ms * 1e6).round() as u64));
    }
    let at = format!("links[{index}].delay_ms");
    Err(content(at, "milliseconds from 0 to 1000000", ms.to_string()))
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
    use serde_json::{Value, json};

    fn parse(text: &str) -> Result<Topology, String> {
        Topology::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_published_map_is_read() {
        let map = parse(
            r#"{ "links": [{ "source": 1, "source_tq": 0.996, "target": "0", "target_tq": 1.0, "type": "vpn" },
                           { "source": "b", "target": 1, "delay_ms": 1.5, "loss": "1 %", "rate": "100mbit" }],
                 "nodes": [{ "id": 0, "name": "Bücherei", "x": 52.28, "y": 8.91 }, { "id": "1" }, { "id": "b" }] }"#,
        )
        .unwrap();
        let ids: Vec<String> = map.nodes.iter().map(|n| n.id.to_string()).collect();
        assert_eq!(ids, ["0", "1", "b"]);
        assert_eq!((map.nodes[0].position, map.nodes[1].position), (Some([52.28, 8.91]), None));
        let plain = Link { between: [1, 0], delay: None, loss: None, rate: None };
        let second = Link {
            between: [2, 1],
            delay: Some(Span(1_500_000)),
            loss: Chance::percent(1.0).ok(),
            rate: Some(Rate(100_000_000)),
        };
        assert_eq!(map.links, [plain, second]);
    }

    #[test]
    fn without_a_list_the_nodes_are_those_of_links() {
        let links =
            json!({ "links": [{ "source": "c", "target": "a" }, { "source": "a", "target": 5 }] });
        let map = parse(&links.to_string()).unwrap();
        let ids: Vec<String> = map.nodes.iter().map(|n| n.id.to_string()).collect();
        assert_eq!(ids, ["c", "a", "5"]);
        assert_eq!(map.links.iter().map(|l| l.between).collect::<Vec<_>>(), [[0, 1], [1, 2]]);
        assert_eq!(parse(r#"{ "links": [] }"#), Ok(Topology::default()));
    }

    #[test]
    fn a_mistake_is_reported_with_its_position() {
        let two = r#"{ "nodes": [{ "id": "a" }, { "id": "b" }], "links": [LINK] }"#;
        for (link, expected) in [
            (r#"{ "source": "a" }"#, "missing field `target` at line 1 column"),
            (
                r#"{ "source": "a", "target": "c" }"#,
                "links[0].target: expected the id of a node, got \"c\"",
            ),
            (
                r#"{ "source": "b", "target": "b" }"#,
                "links[0]: expected two different nodes, got \"b\" twice",
            ),
            (
                r#"{ "source": "a", "target": "b" }, { "source": "b", "target": "a" }"#,
                "links[1]: expected one link between two nodes, got the nodes of links[0] again",
            ),
            (
                r#"{ "source": "a", "target": "b", "delay_ms": -1 }"#,
                "links[0].delay_ms: expected milliseconds from 0 to 1000000, got -1",
            ),
            (
                r#"{ "source": "a", "target": "b", "loss": 1.5 }"#,
                "expected a probability such as \"1 %\"",
            ),
            (r#"{ "source": "a", "target": "b", "rate": 5 }"#, "expected a bit rate with its unit"),
            (r#"{ "source": "", "target": "b" }"#, "expected an id: a text of 1 to 255 bytes"),
            (r#"{ "source": -1, "target": "b" }"#, "expected an id: a text of 1 to 255 bytes"),
            ("5", "expected struct LinkEntry"),
        ] {
            let error = parse(&two.replace("LINK", link)).unwrap_err();
            assert!(error.contains(expected), "{link}\nexpected {expected}\ngot      {error}");
        }
        for (text, expected) in [
            ("", "EOF while parsing"),
            ("{}", "missing field `links`"),
            (r#"{ "nodes": 1, "links": [] }"#, "expected a list of at most 1048576 entries"),
            (
                r#"{ "nodes": [{ "id": 1 }, { "id": "1" }], "links": [] }"#,
                "nodes[1].id: expected an id of its own",
            ),
            (
                r#"{ "nodes": [{ "id": 1, "y": 2 }], "links": [] }"#,
                "nodes[0]: expected both x and y, or neither, got y alone",
            ),
            (
                r#"{ "nodes": [{ "id": 1, "x": 1e999, "y": 2 }], "links": [] }"#,
                "number out of range",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}\nexpected {expected}\ngot      {error}");
        }
        assert!(TOO_MANY.contains(&MAX_NODES.to_string()));
        let missing = Topology::read(Path::new("no-such-file.json")).unwrap_err().to_string();
        assert!(missing.starts_with("no-such-file.json: "), "{missing}");
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

    fn check(map: &Topology) -> Result<(), TestCaseError> {
        let mut pairs: Vec<[u32; 2]> = Vec::new();
        for link in &map.links {
            let [a, b] = link.between;
            prop_assert!(a != b && (a.max(b) as usize) < map.nodes.len());
            pairs.push([a.min(b), a.max(b)]);
        }
        pairs.sort_unstable();
        prop_assert!(pairs.windows(2).all(|two| two[0] != two[1]));
        let positions = map.nodes.iter().filter_map(|node| node.position);
        prop_assert!(positions.flatten().all(f64::is_finite));
        Ok(())
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
            let _ = Topology::parse(&bytes).map_err(|error| error.to_string());
            let mut document = json!({ "links": links });
            if let Some(nodes) = nodes {
                document["nodes"] = nodes.into();
            }
            let text = document.to_string().into_bytes();
            let _ = Topology::parse(&text[..cut.min(text.len())]).map_err(|error| error.to_string());
            if let Ok(map) = Topology::parse(&text) {
                check(&map)?;
            }
        }

        /// What is written in this form is read back.
        #[test]
        fn a_topology_is_read_back(
            positions in prop::collection::vec(prop::option::of([-1_800_000i32..1_800_000, -900_000..900_000]), 2..20),
            ends in prop::collection::btree_set((0u32..20, 0u32..20), 0..30),
            delays in prop::collection::vec(prop::option::of(0u32..1_000_000), 30),
            loss in 0.0f64..=1.0,
        ) {
            let nodes: Vec<Node> = positions.iter().enumerate()
                .map(|(i, at)| Node {
                    id: Id::new(&format!("n{i}")),
                    position: at.map(|[x, y]| [f64::from(x) / 1e4, f64::from(y) / 1e4]),
                }).collect();
            let mut seen = std::collections::BTreeSet::new();
            let links: Vec<Link> = ends.into_iter()
                .filter(|(a, b)| a != b && (*a.max(b) as usize) < nodes.len() && seen.insert([*a.min(b), *a.max(b)]))
                .zip(delays)
                .map(|((a, b), delay)| Link {
                    between: [a, b],
                    delay: delay.map(|us| Span(u64::from(us) * 1000)),
                    loss: Chance::new(loss).ok(),
                    rate: delay.map(|us| Rate(u64::from(us) + 1)),
                })
                .collect();
            let map = Topology { nodes, links };
            let name = |end: u32| map.nodes[end as usize].id.to_string();
            let text = json!({
                "nodes": map.nodes.iter().map(|n| match n.position {
                    Some([x, y]) => json!({ "id": n.id, "x": x, "y": y }),
                    None => json!({ "id": n.id }),
                }).collect::<Vec<_>>(),
                "links": map.links.iter().map(|l| json!({
                    "source": name(l.between[0]),
                    "target": name(l.between[1]),
                    "delay_ms": l.delay.map(|d| d.as_nanos() as f64 / 1e6),
                    "loss": l.loss,
                    "rate": l.rate,
                })).collect::<Vec<_>>(),
            });
            prop_assert_eq!(Topology::parse(text.to_string().as_bytes()).map_err(|e| e.to_string()), Ok(map));
        }
    }
}
