//! The page: one HTML file with its style, its program and its data.
//!
//! Everything that comes from a file is in two blocks of base64, whose alphabet has nothing that HTML knows; the program
//! writes names as text and never as markup. The content security policy allows the one style and the one program by
//! their hashes and no access to any network.

use super::layout::layout;
use super::network::Network;
use super::pack::pack;
use super::read::{Hop, Packet, Scene};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// The program, in the order in which its parts use each other.
const SCRIPTS: [&str; 10] = [
    include_str!("page/codec.js"),
    include_str!("page/theme.js"),
    include_str!("page/model.js"),
    include_str!("page/series.js"),
    include_str!("page/axis.js"),
    include_str!("page/plot.js"),
    include_str!("page/plots.js"),
    include_str!("page/geometry.js"),
    include_str!("page/stage.js"),
    include_str!("page/main.js"),
];

/// Renders a page; the same scene has the same bytes.
pub fn page(scene: &Scene) -> String {
    let script = script();
    let (about, data) = data(scene);
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(STYLE)
    );
    let about = STANDARD.encode(about.to_string());
    let data = STANDARD.encode(data);
    fill(
        HTML,
        &[
            ("policy", &policy),
            ("style", STYLE),
            ("about", &about),
            ("data", &data),
            ("script", &script),
        ],
    )
}

/// Replaces each `{{name}}` of a template by its value, once, from left to right.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        let value = values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value);
        out.push_str(value);
        rest = after;
    }
    out + rest
}

/// Returns the whole program.
fn script() -> String {
    format!("\"use strict\";\n(() => {{\n{}}})();\n", SCRIPTS.concat())
}

/// Returns the hash of an inline block for the policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// Columns of numbers, one after the other.
#[derive(Default)]
struct Columns {
    bytes: Vec<u8>,
    index: serde_json::Map<String, Value>,
}

impl Columns {
    fn note(&mut self, name: &str, before: usize) {
        self.index.insert(name.into(), json!([before, self.bytes.len() - before]));
    }

    fn add(&mut self, name: &str, values: impl Iterator<Item = u64>) {
        let before = self.bytes.len();
        pack(values, &mut self.bytes);
        self.note(name, before);
    }

    /// Adds numbers of 64 bits, little-endian.
    fn add_floats(&mut self, name: &str, values: &[f64]) {
        let before = self.bytes.len();
        self.bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        self.note(name, before);
    }
}

/// Returns the description of the data, and the data.
fn data(scene: &Scene) -> (Value, Vec<u8>) {
    let mut columns = Columns::default();
    let packets = |of: fn(&Packet) -> u64| scene.packets.iter().map(of);
    columns.add("packet.flow", packets(|p| p.flow));
    columns.add("packet.back", packets(|p| p.back.into()));
    columns.add("packet.kind", packets(|p| p.kind));
    columns.add("packet.what", packets(|p| p.what));
    columns.add("packet.size", packets(|p| p.size));
    columns.add("packet.seq", packets(|p| p.seq));
    columns.add("packet.ack", packets(|p| p.ack));
    columns.add("packet.stream", packets(|p| p.stream));
    let hops = |of: fn(&Hop) -> u64| scene.hops.iter().map(of);
    columns.add("hop.packet", hops(|h| h.packet));
    columns.add("hop.node", hops(|h| h.node));
    columns.add("hop.at", hops(|h| h.at));
    columns.add("hop.waited", hops(|h| h.waited));
    columns.add("hop.sending", hops(|h| h.sending));
    columns.add("hop.flying", hops(|h| h.flying));
    columns.add("hop.lost", hops(|h| h.lost));
    for (i, curve) in scene.curves.iter().enumerate() {
        columns.add(&format!("curve.{i}.at"), curve.at.iter().copied());
        for (name, values) in ["cwnd", "ssthresh", "flight"].into_iter().zip(&curve.values) {
            columns.add_floats(&format!("curve.{i}.{name}"), values);
        }
        columns.add(&format!("curve.{i}.srtt"), curve.srtt.iter().copied());
    }
    let lanes = 2 * scene.network.links.len() + 1;
    let mut lane_counts = vec![0u64; lanes];
    for hop in &scene.hops {
        lane_counts[hop.lane] += 1;
    }
    let about = json!({
        "network": network(&scene.network),
        "words": scene.words,
        "reasons": scene.reasons,
        "packets": scene.packets.len(),
        "hops": scene.hops.len(),
        "lanes": lane_counts,
        "curves": scene.curves.iter()
            .map(|c| json!({ "flow": c.flow, "path": c.path, "count": c.at.len() }))
            .collect::<Vec<_>>(),
        "columns": columns.index,
    });
    (about, columns.bytes)
}

/// Returns the network with the positions of its nodes.
fn network(network: &Network) -> Value {
    let mut network = network.clone();
    let positions = layout(&network);
    for (node, position) in network.nodes.iter_mut().zip(positions) {
        node.position = Some(position);
    }
    json!(network)
}

#[cfg(test)]
mod tests {
    use super::super::tests::scene;
    use super::*;

    /// Nothing of the page's own parts ends its blocks early, and every placeholder is filled.
    #[test]
    fn own_parts_are_inert() {
        for part in SCRIPTS.iter().chain([&STYLE]) {
            let lower = part.to_ascii_lowercase();
            for end in ["</script", "<!--", "<script", "</style", "{{"] {
                assert!(!lower.contains(end), "{end}");
            }
        }
        let page = page(&scene("n"));
        assert!(!page.contains("{{"), "a placeholder is left");
        for outside in ["http:", "https:", "//www", "import(", "fetch(", "eval(", "innerHTML"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    /// Names of files cannot be markup: the page contains them only in base64.
    #[test]
    fn names_are_not_markup() {
        let name = "</script><script>window.injected = 1</script><!--\u{2028}'\"";
        let (page, plain) = (page(&scene(name)), page(&scene("n")));
        assert!(!page.contains("injected") && !page.contains('\u{2028}'));
        let tags = |page: &str| page.matches('<').count();
        assert_eq!(tags(&page), tags(&plain));
        let about = page.split_once("id=\"about\">").and_then(|(_, rest)| rest.split_once('<'));
        let about = STANDARD.decode(about.map_or("", |(about, _)| about)).unwrap_or_default();
        let about: Value = serde_json::from_slice(&about).unwrap_or_default();
        assert_eq!(about["network"]["title"], name);
    }

    /// The policy names the hashes of what is in the page, and the same scene has the same bytes.
    #[test]
    fn the_policy_allows_exactly_the_page() {
        let page = page(&scene("n"));
        assert_eq!(page, super::page(&scene("n")));
        let between = |start: &str, end: &str| {
            page.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map_or("", |x| x.0)
        };
        assert!(page.contains(&hash(between("<script>", "</script>"))));
        assert!(page.contains(&hash(between("<style>", "</style>"))));
        let policy = between("Content-Security-Policy\" content=\"", "\"");
        assert!(
            policy.starts_with("default-src 'none';") && !policy.contains("unsafe"),
            "{policy}"
        );
    }
}
