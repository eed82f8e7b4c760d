//! `docs/services-matrix.md` is what the example prints.

#![allow(clippy::expect_used)]

#[path = "../examples/matrix/table.rs"]
mod table;

#[test]
fn the_page_is_what_the_example_prints() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/services-matrix.md");
    let page = std::fs::read_to_string(path).expect("the page is in docs");
    let expected = table::page();
    let differs = page.lines().zip(expected.lines()).find(|(one, other)| one != other);
    assert!(
        page == expected,
        "docs/services-matrix.md is out of date: {differs:?}; renew it by\n\
         cargo run -p ringway-services --example matrix > docs/services-matrix.md"
    );
}
