//! Figures as a reader meets them: what stands where, what the caption says, how large a file is.

use proptest::prelude::*;
use resvg::tiny_skia::Pixmap;
use resvg::usvg::roxmltree::{Document, Node};

use super::*;
use crate::statistics::{Estimate, Interval, Kind, mean, ratio};

/// Largest file that a figure may become.
const LARGEST: usize = 500 << 10;
const SEED: u64 = 12_345;

fn delay() -> Figure {
    Figure::new("Delay", Axis::si("time", "s"), Axis::si("delay", "s"), SEED)
}

fn line(n: usize) -> Vec<(f64, f64)> {
    (0..n).map(|i| (i as f64, (i * 7_919 % 1_000) as f64)).collect()
}

fn named(figure: Figure, data: impl IntoIterator<Item = Data>) -> Figure {
    data.into_iter()
        .enumerate()
        .fold(figure, |figure, (i, data)| figure.with(Series::new(format!("series {i}"), data)))
}

fn caption_of(figure: &Figure) -> String {
    figure.inline().unwrap().1
}

fn estimate(value: f64, n: usize, kind: Kind) -> Estimate {
    let interval = Interval { low: value - 1.0, high: value + 1.0, level: 0.95, kind };
    Estimate { value, n, interval: Some(interval), equal: false }
}

fn texts<'a>(document: &'a Document<'a>) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.has_tag_name("text")).collect()
}

fn attribute(node: &Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).and_then(|value| value.parse().ok()).unwrap()
}

/// The horizontal extent of a text that is not turned.
fn extent(node: &Node<'_, '_>) -> (f64, f64) {
    let wide = text::width(node.text().unwrap_or(""), attribute(node, "font-size"));
    let x = attribute(node, "x");
    match node.attribute("text-anchor") {
        Some("middle") => (x - wide / 2.0, x + wide / 2.0),
        Some("end") => (x - wide, x),
        _ => (x, x + wide),
    }
}

/// What every figure owes its reader, whatever it shows.
fn check(figure: &Figure) -> Result<String, TestCaseError> {
    let svg = figure.svg().map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(svg.len() <= LARGEST, "{} bytes", svg.len());
    let document = Document::parse(&svg).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let root = document.root_element();
    let page: Vec<f64> =
        root.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    let (wide, tall) = (page[2], page[3]);
    for node in document.descendants() {
        let numbers = ["d", "x", "y", "width", "height", "transform"];
        for value in numbers.iter().filter_map(|name| node.attribute(*name)) {
            prop_assert!(!value.contains("NaN") && !value.contains("inf"), "{}", value);
        }
    }
    for path in document.descendants().filter_map(|node| node.attribute("d")) {
        // Where a run, a mark or a bar begins.
        for begin in path.split('M').skip(1) {
            let end = begin.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(begin.len());
            let at: Vec<f64> = begin[..end].split(' ').map(|n| n.parse().unwrap()).collect();
            let inside = (0.0..=wide).contains(&at[0]) && (0.0..=tall).contains(&at[1]);
            prop_assert!(inside, "{at:?} of {wide} by {tall}");
        }
    }
    for node in texts(&document) {
        let size = attribute(&node, "font-size");
        prop_assert!(size >= 7.0, "text of {size} pt");
        let y = attribute(&node, "y");
        prop_assert!(y > 0.0 && y < tall, "{:?} at {y} of {tall}", node.text());
        if node.attribute("transform").is_none() {
            let (left, right) = extent(&node);
            prop_assert!(left >= 0.0 && right <= wide, "{:?} to {left}..{right}", node.text());
        }
    }
    Ok(svg)
}

#[test]
fn a_figure_fits_its_column_and_its_text_the_page() {
    for figure in [delay(), delay().wide()] {
        let figure = figure
            .with(Series::new("UDP", Data::Scatter(line(700))))
            .with(Series::new("a name that is far too long to stand in one line of any column that was ever set in print, and in two neither, nor in three", Data::Line(line(20))))
            .caption("Words. ".repeat(80));
        let svg = check(&figure).unwrap();
        let width = if figure.size == Size::Page { "178mm" } else { "85mm" };
        assert!(svg.contains(&format!("width=\"{width}\"")));
    }
}

/// One series for each kind of network, over networks of a hundred nodes to 125,000.
#[test]
fn a_plot_over_sizes_has_powers_of_ten_on_both_axes() {
    let sizes = [100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 125e3];
    let figure =
        Figure::new("State", Axis::bare("nodes").log(), Axis::si("state", "B").log(), SEED);
    let figure = named(
        figure,
        (1..=7).map(|kind| {
            let state =
                |n: f64| estimate(100.0 * n.powf(f64::from(kind) / 10.0), 3, Kind::StudentT);
            Data::Ribbon(sizes.iter().map(|&n| (n, state(n))).collect())
        }),
    );
    for figure in [figure.clone(), figure.wide()] {
        let svg = check(&figure).unwrap();
        let document = Document::parse(&svg).unwrap();
        let names: Vec<&str> = texts(&document).iter().filter_map(Node::text).collect();
        for label in ["100", "1000", "10\u{2009}000", "100\u{2009}000", "1\u{a0}kB", "100\u{a0}kB"]
        {
            assert!(names.contains(&label), "{label} in {names:?}");
        }
        assert_eq!(names.iter().filter(|name| name.starts_with("series ")).count(), 7);
    }
}

#[test]
fn the_legend_stands_above_the_plot() {
    let figure = named(delay(), (0..MAX_SERIES).map(|_| Data::Line(line(30))));
    let svg = check(&figure).unwrap();
    let document = Document::parse(&svg).unwrap();
    let prepared = prepare::prepare(&figure).unwrap();
    let top = layout::lay_out(&figure, prepared, layout::Dress::Document).plot.top;
    let names: Vec<f64> = texts(&document)
        .iter()
        .filter(|node| node.text().is_some_and(|text| text.starts_with("series ")))
        .map(|node| attribute(node, "y"))
        .collect();
    assert_eq!(names.len(), MAX_SERIES);
    assert!(names.iter().all(|&y| y < top), "{names:?} above {top}");
}

#[test]
fn a_single_series_needs_no_legend() {
    let svg = delay().with(Series::new("UDP", Data::Line(line(9)))).svg().unwrap();
    let document = Document::parse(&svg).unwrap();
    assert!(texts(&document).iter().all(|node| node.text() != Some("UDP")));
}

#[test]
fn a_caption_says_n_and_seed_and_the_kind_of_interval() {
    let says = |figure: Figure| caption_of(&figure).replace('\u{a0}', " ");
    let sample = Data::Scatter(line(723));
    assert_eq!(
        says(delay().with(Series::new("UDP", sample.clone())).caption("What it shows")),
        "What it shows. n = 723 observations; seed 12345."
    );
    let two =
        delay().with(Series::new("UDP", sample)).with(Series::new("TCP", Data::Scatter(line(693))));
    assert_eq!(says(two), "n = 723 (UDP), 693 (TCP) observations; seed 12345.");
    let points = [(0.0, 10), (1.0, 34)].map(|(x, n)| (x, estimate(2.0, n, Kind::StudentT)));
    assert_eq!(
        says(delay().with(Series::new("", Data::Ribbon(points.to_vec())))),
        "n = 10 to 34 observations each; ribbon: 95 % Student t interval; seed 12345."
    );
    let bars = |kind| Data::Bars(vec![("5 %".to_owned(), estimate(7.0, 100, kind))]);
    assert_eq!(
        says(named(delay(), [bars(Kind::Wilson), bars(Kind::Woodruff)])),
        "n = 100 observations each; error bars: 95 % Wilson and 95 % Woodruff interval; \
         seed 12345."
    );
    let runs = delay().with(Series::new("cwnd", Data::Step(line(50)))).resting_on(1, "run");
    assert_eq!(says(runs), "n = 1 run; seed 12345.");
    assert_eq!(says(delay()), "n = 0; seed 12345.");
}

#[test]
fn the_caption_stands_in_the_document_and_in_the_inline_element_only_as_a_description() {
    let figure = delay().with(Series::new("UDP", Data::Scatter(line(30)))).caption("Some words.");
    let (whole, (inline, caption)) = (figure.svg().unwrap(), figure.inline().unwrap());
    let drawn = |svg: &str| {
        let document = Document::parse(svg).unwrap();
        texts(&document).iter().any(|node| node.text().unwrap_or("").contains("Some words."))
    };
    assert!(drawn(&whole) && !drawn(&inline));
    for svg in [&whole, &inline] {
        let document = Document::parse(svg).unwrap();
        let describes = |tag: &str| {
            let node = document.descendants().find(|node| node.has_tag_name(tag)).unwrap();
            node.text().unwrap().to_owned()
        };
        assert_eq!(describes("title"), "Delay");
        assert_eq!(describes("desc"), caption);
    }
    assert!(!inline.contains("#fff") && !inline.contains("color=\"#000\""));
}

#[test]
fn points_that_are_no_numbers_are_counted_and_not_drawn() {
    let odd = vec![(0.0, 1.0), (1.0, f64::NAN), (f64::INFINITY, 2.0), (3.0, 1e200), (4.0, 4.0)];
    for data in [Data::Scatter(odd.clone()), Data::Line(odd.clone()), Data::Step(odd)] {
        let caption = caption_of(&delay().with(Series::new("", data)));
        assert!(caption.ends_with("3 points are not drawn: not finite."), "{caption}");
    }
    let ecdf = Data::Ecdf(vec![1.0, f64::NAN, 2.0]);
    let caption = caption_of(&delay().with(Series::new("", ecdf)));
    assert!(caption.ends_with("1 point is not drawn: not finite."), "{caption}");
    let mut log = delay().with(Series::new("", Data::Scatter(vec![(1.0, 0.0), (2.0, 5.0)])));
    log.y = log.y.log();
    let caption = caption_of(&log);
    assert!(caption.contains("not positive on a logarithmic axis"), "{caption}");
}

#[test]
fn a_gap_parts_a_line() {
    let points = vec![(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 2.0), (4.0, 1.0)];
    let svg = delay().with(Series::new("", Data::Line(points))).svg().unwrap();
    let curve = svg.lines().find(|l| l.contains("stroke-linejoin")).unwrap();
    assert_eq!(curve.matches('M').count(), 2, "{curve}");
}

#[test]
fn a_distribution_function_rises_from_zero_to_one() {
    let prepared = delay().with(Series::new("", Data::Ecdf(vec![3.0, 1.0, 1.0, 2.0])));
    let prepared = prepare::prepare(&prepared).unwrap();
    let prepare::Shape::Curve { runs, step: true, .. } = &prepared.series[0].shape else {
        panic!("{:?}", prepared.series)
    };
    assert_eq!(runs[0], [(1.0, 0.0), (1.0, 0.5), (2.0, 0.75), (3.0, 1.0)]);
}

#[test]
fn thinned_marks_are_counted_in_the_caption() {
    let figure = delay().with(Series::new("", Data::Scatter(line(100_000))));
    let caption = caption_of(&figure);
    let expected = format!("of 100{0}000 marks are drawn: one for each square of", '\u{2009}');
    assert!(caption.contains(&expected), "{caption}");
    check(&figure).unwrap();
}

/// The most of everything that a figure takes still makes a file that can be mailed.
#[test]
fn the_largest_figures_stay_small() {
    let many = 20_000;
    let noise = |i: usize| line(many).into_iter().map(|(x, y)| (x, y * (i + 1) as f64)).collect();
    let estimates = || line(many).into_iter().map(|(x, y)| (x, estimate(y, 9, Kind::StudentT)));
    let kinds: [&dyn Fn(usize) -> Data; 5] = [
        &|i| Data::Scatter(noise(i)),
        &|i| Data::Line(noise(i)),
        &|i| Data::Step(noise(i)),
        &|i| Data::Ecdf(line(many).iter().map(|p| p.1 * (i + 1) as f64).collect()),
        &|_| Data::Ribbon(estimates().collect()),
    ];
    for kind in kinds {
        check(&named(delay().wide(), (0..MAX_SERIES).map(kind))).unwrap();
    }
}

#[test]
fn a_figure_that_cannot_be_read_is_refused() {
    let crowd = named(delay(), (0..=MAX_SERIES).map(|_| Data::Line(line(2))));
    assert_eq!(crowd.svg().unwrap_err().to_string(), "expected at most 12 series, got 13");
    let bars = |n: usize| {
        Data::Bars((0..n).map(|i| (i.to_string(), estimate(1.0, 5, Kind::Wilson))).collect())
    };
    let fence = named(delay(), [bars(MAX_BARS + 1)]);
    assert_eq!(fence.svg().unwrap_err().to_string(), "expected at most 240 bars, got 241");
    let mixed = named(delay(), [bars(2), Data::Line(line(2))]);
    assert!(matches!(mixed.svg(), Err(ChartError::MixedBars)));
    check(&named(delay(), [bars(MAX_BARS)])).unwrap();
}

#[test]
fn names_below_bars_stay_on_the_page() {
    let names = ["drop-tail by packets", "CoDel", "a discipline with quite a name", "PIE", "RED"];
    let sets = [&names[..1], &names[..2], &names[..]];
    for names in sets {
        let bars = names.iter().map(|name| ((*name).to_owned(), ratio(3, 9).unwrap())).collect();
        let svg = check(&delay().with(Series::new("", Data::Bars(bars)))).unwrap();
        let document = Document::parse(&svg).unwrap();
        for node in texts(&document) {
            // What is slanted reaches to the left by the cosine of its angle.
            if node.attribute("transform").is_some_and(|t| t.starts_with("rotate(-35")) {
                let wide = text::width(node.text().unwrap(), 7.0);
                let left = attribute(&node, "x") - wide * layout::SLANT.to_radians().cos();
                assert!(left >= 0.0, "{:?} begins at {left}", node.text());
            }
        }
    }
}

#[test]
fn labels_of_ticks_do_not_touch() {
    for (low, high) in [(0.0, 28.0), (1e6, 1e6 + 6.0), (-1e9, 1e9), (0.0, 1e-7), (7.0, 7.0)] {
        let figure = delay().with(Series::new("", Data::Line(vec![(low, low), (high, high)])));
        let svg = check(&figure).unwrap();
        let document = Document::parse(&svg).unwrap();
        let labels: Vec<(f64, f64)> = texts(&document)
            .iter()
            .filter(|node| node.attribute("text-anchor") == Some("middle"))
            .filter(|node| node.attribute("font-size") == Some("7"))
            .map(extent)
            .collect();
        assert!(labels.len() >= if low < high { 3 } else { 1 }, "{low} to {high}: {labels:?}");
        for pair in labels.windows(2) {
            assert!(pair[0].1 + 2.0 < pair[1].0, "{low} to {high}: {pair:?}");
        }
    }
}

#[test]
fn the_png_is_the_svg_at_300_dots_an_inch() {
    let sample: Vec<f64> = (0..20).map(|i| f64::from(i % 7)).collect();
    let figure = delay().with(Series::new(
        "",
        Data::Ribbon(vec![(0.0, mean(&sample).unwrap()), (1.0, mean(&sample).unwrap())]),
    ));
    let png = figure.png().unwrap();
    assert_eq!(png, figure.png().unwrap(), "the same figure, the same bytes");
    assert!(png.len() < LARGEST);
    let image = Pixmap::decode_png(&png).unwrap();
    assert_eq!(image.width(), (85.0f64 / 25.4 * 300.0).ceil() as u32);
    // Text is drawn by the font within: above the plot there is the title and nothing else.
    let scale = 300.0 / 72.0;
    let title = (scale * layout::EDGE) as u32..(scale * (layout::EDGE + layout::TITLE)) as u32;
    let dark = title
        .flat_map(|y| (0..image.width()).map(move |x| (x, y)))
        .filter(|&(x, y)| image.pixel(x, y).is_some_and(|pixel| pixel.red() < 100))
        .count();
    assert!((200..4_000).contains(&dark), "{dark} dark pixels in the title");
}

#[test]
fn the_font_has_the_signs_that_figures_use() {
    for c in "µ−–±×°²\u{2009}\u{a0}Ω≤≥".chars() {
        assert!(text::width(&c.to_string(), 1.0) < 1.0, "{c:?} is not in the font");
    }
}

#[test]
fn text_is_broken_and_cut_to_its_room() {
    let lines = text::wrap("one two three, and a wordthatiswiderthantheroom", 7.0, 50.0, 9);
    assert!(lines.iter().all(|line| text::width(line, 7.0) <= 50.0), "{lines:?}");
    assert_eq!(lines.concat().replace(' ', ""), "onetwothree,andawordthatiswiderthantheroom");
    let two = text::wrap("one two three four five six seven", 7.0, 40.0, 2);
    assert_eq!(two.len(), 2);
    assert!(two[1].ends_with('…') && text::width(&two[1], 7.0) <= 40.0, "{two:?}");
    assert_eq!(text::wrap("", 7.0, 40.0, 2), Vec::<String>::new());
    assert_eq!(text::wrap("n\u{a0}=\u{a0}5 000", 7.0, 1e3, 1), ["n\u{a0}=\u{a0}5 000"]);
    assert!(text::wrap("x", 7.0, 0.0, 1) == ["x"], "a character that does not fit still ends");
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![4 => -1e3f64..1e3, 1 => any::<f64>(), 1 => Just(0.0), 1 => Just(f64::NAN)]
}

fn any_points() -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((any_number(), any_number()), 0..40)
}

fn any_estimate() -> impl Strategy<Value = Estimate> {
    (any_number(), any_number(), any_number(), 0usize..99, any::<bool>()).prop_map(
        |(value, low, high, n, known)| {
            let interval = Interval { low, high, level: 0.95, kind: Kind::Woodruff };
            Estimate { value, n, interval: known.then_some(interval), equal: false }
        },
    )
}

fn any_data() -> impl Strategy<Value = Data> {
    let estimates = || prop::collection::vec((any_number(), any_estimate()), 0..20);
    prop_oneof![
        any_points().prop_map(Data::Scatter),
        any_points().prop_map(Data::Line),
        any_points().prop_map(Data::Step),
        prop::collection::vec(any_number(), 0..40).prop_map(Data::Ecdf),
        estimates().prop_map(Data::Ribbon),
    ]
}

fn any_axis() -> impl Strategy<Value = Axis> {
    let unit = prop_oneof![
        Just(Unit::Bare),
        "\\PC{0,6}".prop_map(Unit::Si),
        "\\PC{0,6}".prop_map(Unit::Plain)
    ];
    ("\\PC{0,30}", unit, any::<bool>()).prop_map(|(label, unit, log)| {
        let scale = if log { Scale::Log } else { Scale::Linear };
        Axis { label, unit, scale }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Whatever the words and numbers: a page that is valid XML, with its text on it.
    #[test]
    fn every_figure_can_be_read(
        words in (".{0,60}", ".{0,60}", ".{0,30}"), x in any_axis(), y in any_axis(),
        data in prop::collection::vec(any_data(), 0..5),
    ) {
        let mut figure = Figure::new(words.0, x, y, 1).caption(words.1);
        figure.series = data.into_iter().map(|data| Series::new(words.2.clone(), data)).collect();
        check(&figure)?;
    }

    #[test]
    fn every_figure_of_bars_can_be_read(
        y in any_axis(),
        bars in prop::collection::vec(
            prop::collection::vec((".{0,20}", any_estimate()), 0..8), 0..4),
    ) {
        let mut figure = Figure::new("bars", Axis::bare("which"), y, 1);
        figure.series = bars.into_iter().map(|bars| Series::new("s", Data::Bars(bars))).collect();
        check(&figure)?;
    }

    /// XML 1.0 section 2.4: markup in a title is text.
    #[test]
    fn words_come_through_as_they_are(title in "[ -~äµ€]{1,12}") {
        let svg = Figure::new(title.clone(), Axis::bare(""), Axis::bare(""), 1).svg().unwrap();
        let document = Document::parse(&svg).unwrap();
        let found = document.descendants().find(|node| node.has_tag_name("title"));
        prop_assert_eq!(found.unwrap().text().unwrap_or(""), title);
    }
}

/// Stretches are shaded as far as they lie within the axis; what is no number is not drawn.
#[test]
fn stretches_of_the_axis_are_shaded() {
    let points = vec![(0.0, 1.0), (10.0, 2.0)];
    let figure = Figure::new("t", Axis::si("time", "s"), Axis::bare("y"), 1)
        .with(Series::new("", Data::Line(points)))
        .shading([(2.0, 4.0), (8.0, 99.0), (50.0, 60.0), (f64::NAN, 1.0), (5.0, 3.0)]);
    assert_eq!(figure.svg().unwrap().matches("class=\"shaded\"").count(), 2);
}
