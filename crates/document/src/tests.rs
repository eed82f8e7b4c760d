use super::*;
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    title: String,
    ports: Vec<u16>,
    pair: [u8; 2],
    open: bool,
    host: Vec<Host>,
    model: Model,
}

impl Default for File {
    fn default() -> Self {
        let (ports, model) = (vec![5060], Model::Off {});
        File { title: "t".into(), ports, pair: [1, 2], open: true, host: Vec::new(), model }
    }
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    name: String,
    weight: f64,
    kind: Option<Kind>,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Inner,
    Outer,
}

/// Serde reads it from a copy that has no positions.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case", deny_unknown_fields)]
enum Model {
    Off {},
    On { level: u8, kind: Option<Kind> },
}

/// What is read, and each problem.
fn read(text: &str) -> (Option<File>, Vec<String>) {
    let document = match Document::parse("f.toml", text) {
        Ok(document) => document,
        Err(problems) => return (None, problems.lines()),
    };
    let mut problems = Vec::new();
    let file = document.read("", document.root(), &["more"], &mut problems);
    let lines =
        if problems.is_empty() { Vec::new() } else { Problems::new("f.toml", problems).lines() };
    (file, lines)
}

#[test]
fn each_mistake_has_its_position_key_and_what_was_expected() {
    for (text, line) in [
        ("tilte = \"x\"", "f.toml:1:1: unknown key `tilte`; did you mean `title`?"),
        ("mroe = 1", "f.toml:1:1: unknown key `mroe`; did you mean `more`?"),
        ("title = 5", "f.toml:1:9: title: expected a string in quotes, got the number 5"),
        ("title = 1979-05-27", "f.toml:1:9: title: expected a string in quotes, got a date"),
        ("open = \"yes\"", "f.toml:1:8: open: expected true or false, got \"yes\""),
        ("ports = 5", "f.toml:1:9: ports: expected a list in [ ], got the number 5"),
        (
            "ports = [1, 70000]",
            "f.toml:1:13: ports.2: expected a whole number from 0 to 65535, got the number 70000",
        ),
        (
            "pair = [1, -1]",
            "f.toml:1:12: pair.2: expected a whole number from 0 to 255, got the number -1",
        ),
        ("pair = [1]", "f.toml:1:8: pair: expected an array of length 2, got a list of 1"),
        ("host = [5]", "f.toml:1:9: host.1: expected a table, got the number 5"),
        ("[[host]]\nname = \"a\"", "f.toml:1:1: host.a: the key `weight` is missing"),
        (
            "[[host]]\nname = \"a\"\nweight = 1\nkind = \"iner\"",
            "f.toml:4:8: host.a.kind: expected one of \"inner\", \"outer\", got \"iner\"; did you mean \
             \"inner\"?",
        ),
        (
            "[[host]]\nname = \"a\"\nweight = 99999999999999999999",
            "f.toml:3:10: host.a.weight: expected a number, got the number 99999999999999999999",
        ),
        (
            "model = { name = \"on\", level = \"high\" }",
            "f.toml:1:32: model.level: expected a whole number from 0 to 255, got \"high\"",
        ),
        (
            "model = { name = \"on\", level = 1, kind = \"x\" }",
            "f.toml:1:42: model.kind: expected one of \"inner\", \"outer\", got \"x\"",
        ),
        (
            "model = { name = \"on\", levle = 1, level = 1 }",
            "f.toml:1:24: model: unknown key `levle`; did you mean `level`?",
        ),
        ("model = {}", "f.toml:1:9: model: the key `name` is missing"),
        ("x = 1\nx = 2", "f.toml:2:1: duplicate key"),
    ] {
        assert_eq!(read(text).1, [line], "{text}");
    }
}

#[test]
fn the_same_mistake_at_two_keys_is_reported_at_both() {
    let (_, lines) = read("model = { name = \"on\", level = \"x\", kind = \"x\" }");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("f.toml:1:32: model.level:"), "{lines:?}");
    assert!(lines[1].starts_with("f.toml:1:44: model.kind:"), "{lines:?}");
}

/// What follows from a mistake that is reported is not reported again.
#[test]
fn reading_goes_on_after_a_mistake() {
    let (file, lines) = read(
        "title = \"kept\"\nports = [\"a\", 2, \"b\"]\npair = [\"a\", 1]\nopen = 1\n\
         host = [{ name = 5, weight = 1 }, { name = \"b\", weight = 2 }]\nx = 1\n",
    );
    let starts = ["2:10: ports.1:", "2:18: ports.3:", "3:9: pair.1:", "4:8: open:"];
    let ends = ["5:18: host.1.name:", "6:1: unknown key `x`"];
    assert_eq!(lines.len(), 6, "{lines:?}");
    for (line, start) in lines.iter().zip(starts.iter().chain(&ends)) {
        assert!(line.starts_with(&format!("f.toml:{start}")), "{line}");
    }
    // Of a list nothing is left: its items would have other numbers.
    assert_eq!(file, Some(File { title: "kept".into(), ..File::default() }));
}

#[test]
fn a_path_leads_to_a_value_or_to_what_lacks_it() {
    let text = "ports = [1, 2]\n[[host]]\nname = \"a\"\n";
    let document = Document::parse("f.toml", text).unwrap();
    for (path, line) in [
        ("ports.2", "f.toml:1:13: ports.2: wrong"),
        ("host.1.name", "f.toml:3:8: host.a.name: wrong"),
        ("host.1.weight", "f.toml:2:1: host.a.weight: wrong"),
        ("model.level", "f.toml:1:1: model.level: wrong"),
    ] {
        assert_eq!(document.blame(path, "wrong").to_string(), line);
    }
}

#[test]
fn a_flood_of_mistakes_is_cut() {
    let keys: String = (0..MAX_PROBLEMS * 3).map(|i| format!("k{i} = 1\n")).collect();
    assert_eq!(read(&keys).1.len(), MAX_PROBLEMS + 1);
    let broken = "= 1\n".repeat(MAX_PROBLEMS * 3);
    let lines = read(&broken).1;
    assert_eq!(lines.len(), MAX_PROBLEMS + 1);
    assert_eq!(lines[MAX_PROBLEMS], "f.toml: further problems are not shown");
}

#[test]
fn columns_count_characters() {
    assert!(read("title = \"\u{e9}\"\nports = [\"\u{e9}\", -5]").1[1].starts_with("f.toml:2:15:"));
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in ".{0,200}") {
        let lines = read(&text).1;
        prop_assert!(lines.iter().all(|line| !line.contains('\n')));
    }

    /// Words of the format in any order, which come further than arbitrary text does.
    #[test]
    fn arbitrary_words_never_panic(words in prop::collection::vec(prop::sample::select(vec![
        "title = ", "ports = ", "pair = ", "open = ", "[[host]]\n", "name = ", "weight = ", "kind = ",
        "[model]\n", "level = ", "\"on\"", "\"inner\"", "1", "-7", "1.5", "true", "[", "]", "{", "}", ",",
        "\n", "1979-05-27", "x.y = ",
    ]), 0..40)) {
        let lines = read(&words.concat()).1;
        prop_assert!(lines.iter().all(|line| !line.contains('\n')));
    }
}
