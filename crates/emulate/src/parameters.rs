//! Parameters of a link as words: on the command line, and for a running emulation.

use crate::ways::Changes;
use ringway_document::{Document, Problem};
use ringway_link::{Chance, Change, Size};

/// Maximum number of parameters that are changed together.
pub const MAX_PARAMETERS: usize = 64;
/// Maximum length of a value, in bytes.
pub const MAX_VALUE: usize = 4_096;

/// A parameter and its new value: `delay` and `35ms`, `back.rate` and `1mbit`.
pub type Parameter = (String, String);

/// Reads parameters. A name is that of a key of a link, with `-` or `_`; before it `there.` or `back.` may name one
/// direction. A value is one of TOML, a text without its quotes, or short:
///
/// | parameter | short value | stands for |
/// |---|---|---|
/// | `loss` | `1%` | `{ model = "random", chance = "1%" }` |
/// | `duplicate`, `corrupt`, `reorder`, `ecn_mark` | `1%` | `{ chance = "1%" }` |
/// | `queue` | `50`, `64KiB`, `codel` | a limit in packets, in bytes, a discipline |
///
/// # Errors
/// What is wrong, a line each.
pub fn read(parameters: &[Parameter]) -> Result<Changes, Vec<String>> {
    if parameters.len() > MAX_PARAMETERS {
        let count = parameters.len();
        return Err(vec![format!("expected at most {MAX_PARAMETERS} parameters, got {count}")]);
    }
    let mut lines: [Vec<Line<'_>>; 2] = Default::default();
    for (name, value) in parameters {
        let (ways, key) = match name.split_once('.') {
            Some(("there", key)) => (0..1, key),
            Some(("back", key)) => (1..2, key),
            _ => (0..2, name.as_str()),
        };
        let for_one = ways.len() == 1;
        let text = line(key, value).map_err(|what| vec![format!("{name}: {what}")])?;
        for lines in &mut lines[ways] {
            let same = |line: &&mut Line<'_>| line.key == key && line.for_one != for_one;
            match lines.iter_mut().find(same) {
                // A parameter of one direction wins over that of both.
                Some(other) if for_one => other.text.clone_from(&text),
                Some(_) => {}
                None => lines.push(Line { key, text: text.clone(), for_one }),
            }
        }
    }
    let texts = lines.map(|lines| lines.into_iter().map(|line| line.text).collect::<String>());
    let changes = texts.each_ref().map(|text| change(text));
    match changes {
        [Ok(there), Ok(back)] => Ok(Changes([there, back])),
        [there, back] => {
            let mut lines = there.err().unwrap_or_default();
            // What is wrong in both directions is reported once.
            for line in back.err().unwrap_or_default() {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
            Err(lines)
        }
    }
}

/// A parameter of a direction as a line of TOML.
struct Line<'a> {
    key: &'a str,
    text: String,
    /// It is for this direction alone.
    for_one: bool,
}

/// Returns a parameter as a line of TOML.
fn line(name: &str, value: &str) -> Result<String, String> {
    let is_key = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_key) {
        return Err("expected the name of a parameter, such as delay or back.rate".to_owned());
    }
    if value.len() > MAX_VALUE {
        return Err(format!("expected at most {MAX_VALUE} bytes, got {}", value.len()));
    }
    let key = name.replace('-', "_");
    if matches!(key.as_str(), "at" | "schedule" | "schedule_period") {
        return Err("it cannot be changed; a schedule is in the file".to_owned());
    }
    Ok(format!("{key} = {}\n", toml_value(&key, value.trim())))
}

/// Returns a value in TOML.
fn toml_value(key: &str, value: &str) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let is_chance = Chance::parse(value).is_ok();
    match key {
        "loss" if is_chance => {
            return format!("{{ model = \"random\", chance = {} }}", quoted(value));
        }
        "loss" if value == "none" => return "{ model = \"none\" }".to_owned(),
        "duplicate" | "corrupt" | "reorder" | "ecn_mark" if is_chance => {
            return format!("{{ chance = {} }}", quoted(value));
        }
        "queue" if value.bytes().all(|b| b.is_ascii_digit()) && !value.is_empty() => {
            return format!("{{ discipline = \"drop-tail\", limit = {value} }}");
        }
        "queue" if Size::parse(value).is_ok() => {
            return format!("{{ discipline = \"drop-tail-bytes\", limit = {} }}", quoted(value));
        }
        "queue" if value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') => {
            return format!("{{ discipline = {} }}", quoted(value));
        }
        _ => {}
    }
    // A line break could begin another key.
    let is_toml =
        !value.contains(['\n', '\r']) && format!("v = {value}").parse::<toml::Table>().is_ok();
    if is_toml { value.to_owned() } else { quoted(value) }
}

/// Reads the changes of one direction.
fn change(text: &str) -> Result<Change, Vec<String>> {
    let document = Document::parse("", text)
        .map_err(|problems| problems.iter().map(Problem::message).collect::<Vec<_>>())?;
    let mut problems = Vec::new();
    match document.read("", document.root(), &[], &mut problems) {
        Some(change) if problems.is_empty() => Ok(change),
        _ => Err(problems.iter().map(Problem::message).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_link::loss::RandomLoss;
    use ringway_link::queue::{DropTailBytes, DropTailPackets};
    use ringway_link::{Distribution, Loss, QueueConfig, Rate, Span};

    fn read_words(words: &[(&str, &str)]) -> Result<Changes, Vec<String>> {
        let words: Vec<_> = words.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        read(&words)
    }

    #[test]
    fn words_are_parameters() {
        let Changes([there, back]) = read_words(&[
            ("delay", "35ms"),
            ("jitter", "5 ms"),
            ("loss", "1%"),
            ("rate", "1mbit"),
            ("distribution", "normal"),
            ("keep-order", "true"),
            ("queue", "50"),
            ("back.mtu", "900 B"),
        ])
        .unwrap();
        assert_eq!(there.delay, Some(Span::from_millis(35)));
        assert_eq!(there.rate, Some(Rate(1_000_000)));
        let chance = Chance::percent(1.0).unwrap();
        let loss = RandomLoss { chance, correlation: Chance::NEVER };
        assert_eq!(there.loss, Some(Loss::Random(loss)));
        assert_eq!(there.distribution, Some(Distribution::Normal));
        assert_eq!(there.keep_order, Some(true));
        let limit = DropTailPackets { limit: 50 };
        assert_eq!(there.queue, Some(QueueConfig::DropTail(limit)));
        assert_eq!((there.mtu, back.mtu), (None, Some(Size(900))));
        assert_eq!(back.delay, there.delay);
    }

    #[test]
    fn short_and_long_values_are_read() {
        let queue = |value| read_words(&[("queue", value)]).unwrap().0[0].queue.clone().unwrap();
        let bytes = DropTailBytes { limit: Size(65_536) };
        assert_eq!(queue("64KiB"), QueueConfig::DropTailBytes(bytes));
        assert!(matches!(queue("codel"), QueueConfig::Codel(_)));
        assert!(matches!(queue("{ discipline = 'red', limit = 9 }"), QueueConfig::Red(_)));
        let loss = |value| read_words(&[("loss", value)]).unwrap().0[1].loss.unwrap();
        assert_eq!(loss("none"), Loss::None {});
        assert_eq!(loss("0.25").mean(), 0.25);
        assert!(matches!(
            loss("{ model = 'gilbert-elliott', p = '1 %', r = '25 %' }"),
            Loss::GilbertElliott(_)
        ));
        assert_eq!(read_words(&[("up", "false")]).unwrap().0[0].up, Some(false));
    }

    #[test]
    fn a_parameter_of_one_direction_wins() {
        for words in
            [[("delay", "5ms"), ("back.delay", "9ms")], [("back.delay", "9ms"), ("delay", "5ms")]]
        {
            let Changes([there, back]) = read_words(&words).unwrap();
            let delays = (there.delay, back.delay);
            assert_eq!(delays, (Some(Span::from_millis(5)), Some(Span::from_millis(9))));
        }
        let twice = [("back.delay", "9ms"), ("back.delay", "8ms")];
        assert!(read_words(&twice).unwrap_err()[0].contains("duplicate"));
    }

    #[test]
    fn what_is_wrong_is_reported_once_with_its_name() {
        let error = |words: &[(&str, &str)]| read_words(words).unwrap_err().join("\n");
        assert_eq!(error(&[("dealy", "1ms")]), "unknown key `dealy`; did you mean `delay`?");
        let lines = error(&[("delay", "35"), ("rate", "fast")]);
        assert!(lines.contains("delay: expected a time with its unit"), "{lines}");
        assert!(lines.contains("rate: expected a bit rate") && lines.lines().count() == 2);
        assert!(error(&[("at", "1 s")]).contains("schedule"));
        assert!(error(&[("schedule", "[]")]).contains("schedule"));
        assert!(error(&[("de lay", "1ms")]).contains("name of a parameter"));
        assert!(error(&[("delay", "1ms"), ("delay", "2ms")]).contains("duplicate"));
        let long = "x".repeat(MAX_VALUE + 1);
        assert!(error(&[("delay", &long)]).contains("at most"));
        assert!(error(&vec![("delay", "1ms"); MAX_PARAMETERS + 1]).contains("at most"));
        // No value is more than one.
        assert!(error(&[("delay", "\"1 ms\"\nrate = \"1 Mbit/s\"")]).starts_with("delay"));
    }

    proptest! {
        #[test]
        fn any_words_are_read_or_refused(name in ".{0,20}", value in ".{0,40}", which in 0..4usize) {
            let names = [name.as_str(), "loss", "queue", "back.delay"];
            match read_words(&[(names[which], &value)]) {
                Ok(_) => {}
                Err(lines) => prop_assert!(!lines.is_empty()),
            }
        }
    }
}
