//! What an operator chooses: in a file, and on the command line, which wins.
//!
//! The file is a scenario of the laboratory (docs/lab.md) with a section `[emulate]`. Of the scenario the seed, the
//! generator and the links are used. A file for emulation alone needs no more than one link.

use crate::parameters::{self, Parameter};
use crate::ways::LinkSettings;
use ringway_document::{Document, Problem, Problems, Value, describe, nearest, unknown};
use ringway_link::{Deliveries, Generator, LinkConfig, Streams};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum size of a file, in bytes.
pub const MAX_FILE: u64 = 16 << 20;
/// Maximum length of the name of an emulation.
pub const MAX_NAME: usize = 64;
/// The default seed: that of a scenario.
const SEED: u64 = 12_345;
/// Names of the ends of a link without a file.
const ENDS: [&str; 2] = ["a", "b"];

/// Sections of a scenario, and that of an emulation.
const SECTIONS: [&str; 6] = ["scenario", "link", "route", "flow", "probe", "emulate"];
/// Keys of a link besides those of its configuration.
const LINK_KEYS: [&str; 5] = ["name", "between", "cost", "there", "back"];

/// The settings of an emulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where packets come from and go to.
    pub ends: Ends,
    /// Name by which it is found: that of the first interface, or of the device, unless it is chosen.
    pub name: String,
    /// The link.
    pub link: LinkSettings,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Generator of the random numbers.
    pub generator: Generator,
    /// File of the log of the first direction; that of the other has `.back` behind its name.
    pub log: Option<PathBuf>,
    /// Directory of the control socket.
    pub runtime: PathBuf,
}

impl Settings {
    /// Returns the random streams.
    pub fn streams(&self) -> Streams {
        Streams::new(self.seed, 0).with(self.generator)
    }
}

/// Where packets come from and go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Two Ethernet interfaces.
    Between([String; 2]),
    /// A TUN device of this name, and a second one with `-b` behind its name.
    Tun(String),
}

impl Ends {
    /// Returns the names of the interfaces or devices.
    pub fn names(&self) -> [String; 2] {
        match self {
            Ends::Between(names) => names.clone(),
            Ends::Tun(name) => [name.clone(), format!("{name}-b")],
        }
    }
}

/// What the command line says. It wins over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The file.
    pub config: Option<PathBuf>,
    /// Two interfaces.
    pub between: Option<[String; 2]>,
    /// A TUN device.
    pub tun: Option<String>,
    /// Name of the link in the file.
    pub link: Option<String>,
    /// Name of the emulation.
    pub name: Option<String>,
    /// Seed of the random numbers.
    pub seed: Option<u64>,
    /// File of the log.
    pub log: Option<PathBuf>,
    /// Traces of mahimahi for each direction.
    pub traces: [Option<PathBuf>; 2],
    /// Parameters of the link.
    pub parameters: Vec<Parameter>,
}

/// The section `[emulate]`. Each key is a flag.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    between: Option<[String; 2]>,
    tun: Option<String>,
    link: Option<String>,
    name: Option<String>,
    seed: Option<u64>,
    log: Option<PathBuf>,
    trace: Option<PathBuf>,
    trace_back: Option<PathBuf>,
}

/// What is used of the section `[scenario]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Scenario {
    seed: Option<u64>,
    generator: Generator,
}

/// Reads the settings of flags and of the file that they name.
///
/// # Errors
/// What is wrong, a line each.
pub fn read(flags: Flags) -> Result<Settings, Vec<String>> {
    let Some(file) = &flags.config else { return join(flags, File::default()) };
    let text = read_file(file)?;
    let name = file.display().to_string();
    let file = File::read(&name, &text, flags.link.as_deref()).map_err(|p| p.lines())?;
    join(flags, file)
}

/// Returns the directory of control sockets if none is configured: systemd's, root's, or the user's.
pub fn default_runtime() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = variable("RUNTIME_DIRECTORY") {
        return directory.into();
    }
    match variable("XDG_RUNTIME_DIR").filter(|_| variable("HOME").is_some_and(|h| h != "/root")) {
        Some(directory) => PathBuf::from(directory).join("ringway-emulate"),
        None => PathBuf::from("/run/ringway-emulate"),
    }
}

/// What a file says.
#[derive(Debug, Default)]
struct File {
    section: Section,
    scenario: Scenario,
    link: Option<LinkSettings>,
}

/// Joins flags and file.
fn join(flags: Flags, file: File) -> Result<Settings, Vec<String>> {
    let one = |text: &str| vec![text.to_owned()];
    let File { section, scenario, link } = file;
    let ends = match (flags.between, flags.tun) {
        (Some(between), None) => Ends::Between(between),
        (None, Some(tun)) => Ends::Tun(tun),
        (Some(_), Some(_)) => return Err(one("expected either --between or --tun")),
        (None, None) => match (section.between, section.tun) {
            (Some(between), None) => Ends::Between(between),
            (None, Some(tun)) => Ends::Tun(tun),
            (Some(_), Some(_)) => {
                return Err(one("emulate: expected either `between` or `tun`"));
            }
            (None, None) => {
                let what = "expected --between IF1 IF2 or --tun NAME, or the same in [emulate]";
                return Err(one(what));
            }
        },
    };
    let names = ends.names();
    if names[0] == names[1] {
        return Err(vec![format!("expected two interfaces, got {:?} twice", names[0])]);
    }
    let name = flags.name.or(section.name).unwrap_or_else(|| names[0].clone());
    check_name(&name)?;
    let mut link = link.unwrap_or_else(|| LinkSettings {
        configs: [LinkConfig::default(), LinkConfig::default()],
        names: link_names(&ENDS.map(str::to_owned), 1),
    });
    let [there, back] = flags.traces;
    let traces = [there.or(section.trace), back.or(section.trace_back)];
    for (config, trace) in link.configs.iter_mut().zip(traces) {
        if let Some(trace) = trace {
            let problem = |error| vec![format!("{}: {error}", trace.display())];
            let text = read_file(&trace)?;
            config.deliveries = Deliveries::from_mahimahi(&text).map_err(problem)?;
        }
    }
    let changes = parameters::read(&flags.parameters)?;
    for (config, change) in link.configs.iter_mut().zip(&changes.0) {
        change.apply(config);
        config.check().map_err(|error| vec![error.to_string()])?;
    }
    let seed = flags.seed.or(section.seed).or(scenario.seed).unwrap_or(SEED);
    let log = flags.log.or(section.log);
    let (generator, runtime) = (scenario.generator, default_runtime());
    Ok(Settings { ends, name, link, seed, generator, log, runtime })
}

/// Checks the name of an emulation, which is also that of its socket.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &str) -> Result<(), Vec<String>> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with('.') || !name.chars().all(fits)
    {
        return Err(vec![format!(
            "expected a name of 1 to {MAX_NAME} letters, digits, -, _, . and @, got {:?}",
            name.chars().take(MAX_NAME).collect::<String>()
        )]);
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<String, Vec<String>> {
    let problem = |what: String| vec![format!("{}: {what}", path.display())];
    let size = std::fs::metadata(path).map_err(|error| problem(error.to_string()))?.len();
    if size > MAX_FILE {
        return Err(problem(format!("expected at most {MAX_FILE} bytes, got {size}")));
    }
    std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))
}

/// Returns the names of a link's random streams in both directions, as the simulator names them. `number` counts the links
/// between the same two nodes, from 1.
fn link_names(ends: &[String; 2], number: usize) -> [String; 2] {
    let suffix = if number > 1 { format!("-{number}") } else { String::new() };
    let [a, b] = ends;
    [format!("{a}-{b}{suffix}"), format!("{b}-{a}{suffix}")]
}

impl File {
    /// Reads a file. `wanted` is the name of the link, if one is chosen.
    fn read(name: &str, text: &str, wanted: Option<&str>) -> Result<File, Problems> {
        let document = Document::parse(name, text)?;
        let mut problems = Vec::new();
        for key in document.sections() {
            if !SECTIONS.contains(&key.get_ref().as_ref()) {
                problems.push(document.at(key.span(), "", unknown(key.get_ref(), &SECTIONS)));
            }
        }
        let section: Section = one(&document, "emulate", &mut problems);
        let scenario: Scenario = one(&document, "scenario", &mut problems);
        let wanted = wanted.or(section.link.as_deref());
        let link = match document.section("link").map(|(_, value)| value) {
            None if wanted.is_none() => None,
            None => {
                problems.push(Problem::whole(name, "the section `link` is missing"));
                None
            }
            Some(value) => choose(&document, value, wanted, &mut problems),
        };
        if problems.is_empty() {
            Ok(File { section, scenario, link })
        } else {
            Err(Problems::new(name, problems))
        }
    }
}

/// Reads a section that occurs once.
fn one<T: Default + for<'de> Deserialize<'de>>(
    document: &Document<'_>,
    section: &str,
    problems: &mut Vec<Problem>,
) -> T {
    let value = document.section(section);
    let read = value.and_then(|(_, value)| document.read(section, value, &[], problems));
    read.unwrap_or_default()
}

/// What the names of links need.
#[derive(Deserialize)]
struct Named {
    name: Option<String>,
    between: Option<[String; 2]>,
}

/// Chooses a link by its name, or the only one, and reads it.
fn choose<'t>(
    document: &Document<'t>,
    value: &Value<'t>,
    wanted: Option<&str>,
    problems: &mut Vec<Problem>,
) -> Option<LinkSettings> {
    let DeValue::Array(links) = value.get_ref() else {
        let what = format!("expected [[link]], a table each, got {}", describe(value));
        problems.push(document.at(value.span(), "link", what));
        return None;
    };
    let mut ends: Vec<[String; 2]> = Vec::new();
    let mut names = Vec::new();
    for (index, link) in links.iter().enumerate() {
        let path = format!("link.{}", index + 1);
        let named: Named = document.read(&path, link, &[], problems)?;
        let between = named.between.unwrap_or_else(|| ENDS.map(str::to_owned));
        names.push(named.name.unwrap_or_else(|| format!("{}-{}", between[0], between[1])));
        ends.push(between);
    }
    let known: Vec<&str> = names.iter().map(String::as_str).collect();
    let index = match (wanted, links.len()) {
        (None, 1) => 0,
        (None, count) => {
            let what = format!(
                "expected one link, or the name of one as `link` in [emulate], got {count}: {}",
                known.join(", ")
            );
            problems.push(document.at(value.span(), "link", what));
            return None;
        }
        (Some(wanted), _) => match known.iter().position(|name| *name == wanted) {
            Some(index) => index,
            None => {
                let what = match nearest(wanted, &known) {
                    Some(nearest) => format!("no link {wanted:?}; did you mean {nearest:?}?"),
                    None => format!("no link {wanted:?}; there are: {}", known.join(", ")),
                };
                problems.push(document.at(value.span(), "link", what));
                return None;
            }
        },
    };
    let same = |other: &&[String; 2]| {
        let [a, b] = &ends[index];
        **other == [a.clone(), b.clone()] || **other == [b.clone(), a.clone()]
    };
    let number = ends[..=index].iter().filter(same).count();
    let path = format!("link.{}", names[index]);
    let link = links.get(index)?;
    let mut side = |key: &str| direction(document, &path, link, key, problems);
    let (there, back) = (side("there"), side("back"));
    Some(LinkSettings { configs: [there?, back?], names: link_names(&ends[index], number) })
}

/// Reads one direction of a link: its keys, and those of the table `there` or `back`, which win.
fn direction<'t>(
    document: &Document<'t>,
    path: &str,
    link: &Value<'t>,
    key: &str,
    problems: &mut Vec<Problem>,
) -> Option<LinkConfig> {
    let DeValue::Table(table) = link.get_ref() else { return None };
    let mut all: DeTable<'t> = table.clone();
    let own = all.remove(key).map(Spanned::into_inner);
    for key in LINK_KEYS {
        all.remove(key);
    }
    match own {
        None => {}
        Some(DeValue::Table(own)) => {
            for (key, value) in own.iter() {
                // First removed: inserting would keep the position of the key that is replaced.
                all.remove(key);
                all.insert(key.clone(), value.clone());
            }
        }
        Some(_) => {
            let what = "expected a table with what differs in this direction";
            problems.push(document.at(link.span(), &format!("{path}.{key}"), what));
            return None;
        }
    }
    let merged = Spanned::new(link.span(), DeValue::Table(all));
    let before = problems.len();
    let config: LinkConfig = document.read(path, &merged, &LINK_KEYS, problems)?;
    if problems.len() > before {
        return None;
    }
    if let Err(error) = config.check() {
        problems.push(document.at(link.span(), path, error.to_string()));
        return None;
    }
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_link::{Rate, Span};

    const SCENARIO: &str = r#"
        [scenario]
        title = "An uplink"
        nodes = ["home", "net", "far"]
        seed = 7
        generator = "xoshiro"
        stop = "10 s"

        [[link]]
        between = ["home", "net"]
        rate = "8 Mbit/s"
        delay = "20 ms"
        back = { rate = "1 Mbit/s" }

        [[link]]
        name = "trunk"
        between = ["net", "far"]
        delay = "5 ms"

        [[flow]]
        name = "file"

        [emulate]
        between = ["eth1", "eth2"]
        link = "home-net"
        log = "packets.log"
    "#;

    fn settings(text: &str, flags: Flags) -> Result<Settings, Vec<String>> {
        let file = File::read("x.toml", text, flags.link.as_deref()).map_err(|p| p.lines())?;
        join(flags, file)
    }

    fn words(words: &[(&str, &str)]) -> Vec<Parameter> {
        words.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn a_scenario_names_the_link() {
        let s = settings(SCENARIO, Flags::default()).unwrap();
        assert_eq!(s.ends, Ends::Between(["eth1".into(), "eth2".into()]));
        assert_eq!((s.name.as_str(), s.seed, s.generator), ("eth1", 7, Generator::Xoshiro));
        assert_eq!(s.link.names, ["home-net", "net-home"]);
        let [there, back] = &s.link.configs;
        assert_eq!((there.rate, back.rate), (Rate(8_000_000), Rate(1_000_000)));
        assert_eq!((there.delay, back.delay), (Span::from_millis(20), Span::from_millis(20)));
        assert_eq!(s.log, Some("packets.log".into()));
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = Flags {
            tun: Some("emu0".into()),
            link: Some("trunk".into()),
            seed: Some(9),
            parameters: words(&[("delay", "1ms"), ("back.loss", "2%")]),
            ..Flags::default()
        };
        let s = settings(SCENARIO, flags).unwrap();
        assert_eq!(s.ends.names(), ["emu0", "emu0-b"]);
        assert_eq!((s.name.as_str(), s.seed), ("emu0", 9));
        assert_eq!(s.link.names, ["net-far", "far-net"]);
        let [there, back] = &s.link.configs;
        assert_eq!((there.delay, back.delay), (Span::from_millis(1), Span::from_millis(1)));
        assert_eq!((there.loss.mean(), back.loss.mean()), (0.0, 0.02));
    }

    #[test]
    fn no_file_is_needed() {
        let between = Some(["a0", "b0"].map(str::to_owned));
        let parameters = words(&[("delay", "35ms"), ("rate", "1mbit")]);
        let s = read(Flags { between, parameters, ..Flags::default() }).unwrap();
        assert_eq!(s.link.configs[0], s.link.configs[1]);
        assert_eq!((s.link.names[1].as_str(), s.seed), ("b-a", SEED));
    }

    #[test]
    fn a_second_link_between_the_same_nodes_has_a_number() {
        let text = "[[link]]\nbetween = ['x', 'y']\n[[link]]\nname = 'n'\nbetween = ['y', 'x']\n\
                    [emulate]\ntun = 't'\nlink = 'n'";
        let s = settings(text, Flags::default()).unwrap();
        assert_eq!(s.link.names, ["y-x-2", "x-y-2"]);
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_line() {
        let error = |text: &str| settings(text, Flags::default()).unwrap_err().join("\n");
        assert!(error("[emulte]\n").starts_with("x.toml:1:2: unknown key `emulte`"));
        let text = "[emulate]\ntun = 't'\n[[link]]\ndealy = '1 ms'\nrate = 'fast'";
        let lines = error(text);
        assert!(lines.contains("x.toml:4:1: link.a-b: unknown key `dealy`; did you mean `delay`?"));
        assert!(lines.contains("x.toml:5:8: link.a-b.rate: expected a bit rate"), "{lines}");
        assert!(error("[emulate]\nbetween = ['a', 'a']").contains("twice"));
        assert!(error("[emulate]\nbetween = ['a', 'b']\ntun = 't'").contains("either"));
        assert!(error("").contains("--between"));
        assert!(error("[emulate]\ntun = 't'\nname = '../x'").contains("name"));
        assert!(error("[emulate]\ntun = 't'\n[[link]]\nback = 3").contains("expected a table"));
        let text = SCENARIO.replace("home-net", "home-nte");
        assert!(error(&text).contains("did you mean \"home-net\"?"));
        let text = SCENARIO.replace("link = \"home-net\"", "");
        assert!(error(&text).contains("got 2: home-net, trunk"));
        assert!(error("[emulate]\ntun = 't'\n[[link]]\nrate = '0 bit/s'").contains("more than 0"));
    }

    #[test]
    fn a_trace_is_read_for_each_direction() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("up"), "1\n2\n").unwrap();
        std::fs::write(path("bad"), "1\nx\n").unwrap();
        let flags = |up: &str| Flags {
            tun: Some("t".into()),
            traces: [Some(path(up)), None],
            ..Flags::default()
        };
        let [there, back] = read(flags("up")).unwrap().link.configs;
        assert_eq!((there.deliveries.at.len(), back.deliveries.at.len()), (2, 0));
        let lines = read(flags("bad")).unwrap_err();
        assert!(lines[0].contains("bad: line 2: expected a whole number"), "{lines:?}");
        assert!(read(flags("none")).unwrap_err()[0].contains("none"));
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(lines in prop::collection::vec(prop::sample::select(vec![
            "[emulate]\n", "[[link]]\n", "[link]\n", "[scenario]\n", "tun = 't'\n", "between = ['a', 'b']\n",
            "between = 3\n", "there = { delay = '1 ms' }\n", "back = { x = 1 }\n", "link = 'a-b'\n", "link = 3\n",
            "name = 'n'\n", "schedule = [{ at = '1 s', up = false }]\n", "seed = -1\n", "\u{0}", "=", "\"",
        ]), 0..20)) {
            let _ = settings(&lines.concat(), Flags::default());
        }
    }
}
