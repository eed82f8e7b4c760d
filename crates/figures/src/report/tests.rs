//! Reports as a browser meets them.

use proptest::prelude::*;
use resvg::usvg::roxmltree::{Document, ParsingOptions};

use super::*;
use crate::chart::{Axis, Data, Series};
use crate::statistics::ratio;

fn figure(title: &str) -> Figure {
    let points = (0..50).map(|i| (f64::from(i), f64::from(i * i))).collect();
    Figure::new(title, Axis::si("time", "s"), Axis::si("delay", "s"), 7)
        .with(Series::new("UDP", Data::Scatter(points)))
        .caption("What it shows")
}

fn report() -> Report {
    let mut report = Report::new("A <b>title</b> & more");
    report.lead = "First.\n\nSecond \"quoted\".".to_owned();
    report.manifest = vec![("seed".to_owned(), "1 < 2".to_owned())];
    let grid = Grid::new("Numbers.", [Head::text("what"), Head::number("delay (s)", 2)])
        .row(["a & b".into(), 1.5.into()])
        .row(["short".into()])
        .row(["ratio".into(), ratio(1, 2).unwrap().into(), "too many".into()]);
    report.sections = vec![
        Section::new("One")
            .text("Words.")
            .grid(grid)
            .figure(figure("First."))
            .figure(figure("Second")),
    ];
    report
}

/// The page, read as the XML that it also is.
fn parse<T>(html: &str, look: impl FnOnce(&Document<'_>) -> T) -> T {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    look(&Document::parse_with_options(html, options).unwrap())
}

fn all(document: &Document<'_>, tag: &str) -> Vec<String> {
    let is = |name: &str| name == tag;
    document
        .descendants()
        .filter(|node| node.is_element() && is(node.tag_name().name()))
        .map(|node| node.descendants().filter_map(|n| n.text().filter(|_| n.is_text())).collect())
        .collect()
}

#[test]
fn a_report_holds_what_it_was_given() {
    parse(&report().html().unwrap(), |document| {
        assert_eq!(all(document, "h1"), ["A <b>title</b> & more"]);
        assert_eq!(all(document, "h2"), ["One"]);
        assert_eq!(all(document, "p"), ["First.", "Second \"quoted\".", "Words."]);
        assert_eq!(all(document, "caption"), ["Table 1. Numbers."]);
        let cells = ["1 < 2", "a & b", "1.50", "short", "–", "ratio", "0.50 [0.09, 0.91]"];
        assert_eq!(all(document, "td"), cells);
        let captions = all(document, "figcaption");
        assert_eq!(
            captions[1].replace('\u{a0}', " "),
            "Figure 2. Second. What it shows. n = 50 observations; seed 7."
        );
        assert_eq!(captions.len(), 2);
    });
}

/// Nothing is loaded: no script, no address but those within the page.
#[test]
fn a_report_needs_nothing_else() {
    let html = report().html().unwrap();
    parse(&html, |document| {
        for node in document.descendants().filter(|node| node.is_element()) {
            let name = node.tag_name().name();
            assert!(!["script", "link", "img", "iframe", "object", "use", "image"].contains(&name));
            for attribute in node.attributes() {
                assert!(!["src", "style"].contains(&attribute.name()), "{attribute:?}");
                assert!(!attribute.name().starts_with("on"), "{attribute:?}");
                if attribute.name() == "href" {
                    assert!(attribute.value().starts_with('#'), "{attribute:?}");
                }
                assert!(!attribute.value().contains("url("), "{attribute:?}");
            }
        }
    });
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    assert!(!STYLE.contains(['<', '&']), "the style is text in XML as in HTML");
    assert!(STYLE.contains("prefers-color-scheme: dark") && STYLE.contains("@media print"));
}

#[test]
fn a_long_report_lists_its_sections() {
    let mut report = Report::new("Long");
    report.sections = (0..4).map(|i| Section::new(format!("Part {i}"))).collect();
    let html = report.html().unwrap();
    parse(&html, |document| {
        let links: Vec<&str> = document.descendants().filter_map(|n| n.attribute("href")).collect();
        let places: Vec<&str> = document.descendants().filter_map(|n| n.attribute("id")).collect();
        assert_eq!(links, ["#s0", "#s1", "#s2", "#s3"]);
        assert_eq!(places, ["s0", "s1", "s2", "s3"]);
    });
}

#[test]
fn a_figure_that_cannot_be_drawn_is_an_error() {
    let crowd = (0..20).fold(figure("crowd"), |f, _| f.with(Series::new("", Data::Ecdf(vec![]))));
    let mut report = Report::new("r");
    report.sections.push(Section::new("s").figure(crowd));
    assert!(matches!(report.html(), Err(ChartError::TooManySeries(21))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// No word can become markup, wherever it stands.
    #[test]
    fn words_stay_words(words in prop::collection::vec("[ -~\n\u{0}-\u{1f}é]{0,30}", 8)) {
        let mut report = Report::new(words[0].clone());
        report.lead = words[1].clone();
        report.manifest = vec![(words[2].clone(), words[3].clone())];
        let grid = Grid::new(words[4].clone(), [Head::text(words[5].clone())])
            .row([words[6].clone().into()]);
        let drawn = figure(&words[7]);
        let section = Section::new(words[0].clone()).text(words[1].clone()).grid(grid);
        report.sections.push(section.figure(drawn));
        let html = report.html().unwrap();
        let count = parse(&html, |document| all(document, "td"));
        let allowed = |c: char| !c.is_control() || ['\t', '\n', '\r'].contains(&c);
        let expected: String =
            words[6].chars().map(|c| if allowed(c) { c } else { '\u{fffd}' }).collect();
        prop_assert_eq!(&count[1], &expected);
    }
}

/// A file beside the page is a link that cannot lead anywhere else, whatever its name.
#[test]
fn files_beside_the_page_are_links() {
    let names = ["figures/cwnd.svg", "javascript:alert(1)", "a b\"<.pcapng"];
    let rows = names.map(|name| [Entry::File(name.into()), "x".into()]);
    let heads = [Head::text("file"), Head::text("what")];
    let grid = rows.into_iter().fold(Grid::new("", heads), Grid::row);
    let mut report = Report::new("t");
    report.sections.push(Section::new("s").grid(grid));
    let html = report.html().unwrap();
    for link in [
        "<a href=\"./figures/cwnd.svg\">figures/cwnd.svg</a>",
        "<a href=\"./javascript%3Aalert%281%29\">javascript:alert(1)</a>",
        "<a href=\"./a%20b%22%3C.pcapng\">a b&quot;&lt;.pcapng</a>",
    ] {
        assert!(html.contains(link), "{link} in {html}");
    }
}

/// A table may be wider than the text, its caption does not widen it beyond the window, and what is
/// cut is shaded at its edge; the drawing of a network is a figure.
#[test]
fn wide_tables_are_not_cut_without_a_hint() {
    let mut report = Report::new("t");
    let edge = Edge { between: [0, 1], label: vec!["10 Mbit/s".into()], dashed: true };
    let nodes = ["a", "b"].map(String::from).to_vec();
    let diagram =
        Diagram { title: "Network".into(), nodes, edges: vec![edge], ..Diagram::default() };
    let grid = Grid::new("wide", [Head::text("h")]);
    report.sections.push(Section::new("s").grid(grid).diagram(diagram));
    let html = report.html().unwrap();
    assert!(html.contains("max-width: calc(100vw - 3rem)") && html.contains("local no-repeat"));
    assert!(html.contains("<caption><span><b>Table 1.</b> wide</span></caption>"));
    assert!(html.contains("<b>Figure 1. Network.</b>") && html.contains("stroke-dasharray"));
}
