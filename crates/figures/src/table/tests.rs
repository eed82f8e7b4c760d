//! Tables on their way to the disk and back.

use std::io::Write;

use proptest::prelude::*;

use super::*;

fn schema() -> Schema {
    Schema::new([
        ("scenario", Type::Text),
        ("loss", Type::F64),
        ("packets", Type::U64),
        ("drift_ns", Type::I64),
    ])
    .unwrap()
}

fn sample() -> Table {
    let mut table = Table::new(schema());
    for (text, loss, packets, drift) in [
        ("plain", 0.25, 3, -4),
        ("comma, quote \" and\nline", -0.0, u64::MAX, i64::MIN),
        ("", f64::NAN, 0, i64::MAX),
        ("Zürich – 東京", f64::INFINITY, 1, 0),
        ("tiny", 5e-324, 2, 1),
        ("huge", -f64::MAX, 2, 1),
    ] {
        table.row(&[text.into(), loss.into(), packets.into(), drift.into()]).unwrap();
    }
    table.row(&["holes".into(), Cell::Missing, Cell::Missing, Cell::Missing]).unwrap();
    table
}

/// Equal to the bit, where NaN equals itself.
fn same(left: &Table, right: &Table) -> bool {
    let bits = |cell: Cell<'_>| match cell {
        Cell::F64(x) if x.is_nan() => "NaN".to_owned(),
        other => format!("{other:?}"),
    };
    left.schema() == right.schema()
        && left.len() == right.len()
        && left
            .rows()
            .zip(right.rows())
            .all(|(l, r)| l.into_iter().map(bits).eq(r.into_iter().map(bits)))
}

#[test]
fn a_table_comes_back_from_csv_and_from_parquet() {
    let directory = tempfile::tempdir().unwrap();
    let (csv, parquet) = (directory.path().join("t.csv"), directory.path().join("t.parquet"));
    let table = sample();
    table.write_csv(&csv).unwrap();
    table.write_parquet(&parquet).unwrap();
    assert!(same(&table, &read_csv(&csv, &schema()).unwrap()));
    assert!(same(&table, &read_parquet(&parquet).unwrap()));
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "no partial file is left");
}

/// RFC 4180 section 2, rules 5 to 7: what holds a comma, a quote or a line break stands in quotes,
/// and a quote is doubled.
#[test]
fn csv_quotes_as_the_rfc_says() {
    let mut writer = CsvWriter::new(Vec::new(), schema()).unwrap();
    let row = |text: &'static str| [text.into(), 1e300.into(), 7u64.into(), Cell::Missing];
    for text in ["a,b", "say \"no\"", "two\nlines", "plain"] {
        writer.row(&row(text)).unwrap();
    }
    let text = String::from_utf8(writer.into_inner().unwrap()).unwrap();
    let expected = "scenario,loss,packets,drift_ns\n\"a,b\",1e300,7,\n\
                    \"say \"\"no\"\"\",1e300,7,\n\"two\nlines\",1e300,7,\nplain,1e300,7,\n";
    assert_eq!(text, expected);
}

#[test]
fn csv_from_elsewhere_may_end_its_lines_with_carriage_returns() {
    let text = "scenario,loss,packets,drift_ns\r\n\"a, b\",0.5,1,-1\r\nc,,,\r\n";
    let table = csv::parse_csv(text.as_bytes(), &schema()).unwrap();
    assert_eq!(table.get(0, 0), Some(Cell::Text("a, b")));
    assert_eq!(table.get(1, 1), Some(Cell::Missing));
    assert_eq!(table.get(2, 0), None);
}

#[test]
fn wrong_csv_is_refused_with_its_place() {
    let parse = |text: &str| csv::parse_csv(text.as_bytes(), &schema()).unwrap_err();
    assert_eq!(
        parse("scenario,loss,packets,drift_ns\na,1,2,3\nb,1,-2,3\n").to_string(),
        "line 3, column \"packets\": expected u64, got \"-2\""
    );
    assert_eq!(
        parse("scenario,loss\n").to_string(),
        "expected the columns scenario,loss,packets,drift_ns, got scenario,loss"
    );
    assert_eq!(
        parse("scenario,loss,packets,drift_ns\na,1,2\n").to_string(),
        "expected a row of 4 cells, got 3"
    );
    assert!(matches!(parse(""), TableError::OtherSchema { .. }));
    let not_utf8 = csv::parse_csv(&b"scenario,loss,packets,drift_ns\n\xff,1,2,3\n"[..], &schema());
    assert!(matches!(not_utf8, Err(TableError::Csv(_))));
}

#[test]
fn a_row_that_does_not_fit_is_refused_by_every_sink() {
    let mut table = Table::new(schema());
    let mut csv = CsvWriter::new(Vec::new(), schema()).unwrap();
    let mut parquet = ParquetWriter::new(Vec::new(), schema()).unwrap();
    let sinks: [&mut dyn RowSink; 3] = [&mut table, &mut csv, &mut parquet];
    for sink in sinks {
        let narrow = sink.row(&["a".into()]).unwrap_err();
        assert_eq!(narrow.to_string(), "expected a row of 4 cells, got 1");
        let wrong = sink.row(&["a".into(), 1u64.into(), 1u64.into(), 1i64.into()]).unwrap_err();
        assert_eq!(wrong.to_string(), "column \"loss\": expected f64, got u64");
        let missing = sink.row(&[Cell::Missing, 1.0.into(), 1u64.into(), 1i64.into()]).unwrap_err();
        assert_eq!(missing.to_string(), "column \"scenario\": expected text, got a missing value");
    }
    assert!(table.is_empty());
    assert_eq!(csv.into_inner().unwrap(), b"scenario,loss,packets,drift_ns\n");
}

#[test]
fn a_schema_has_names_that_differ() {
    let none: [(&str, Type); 0] = [];
    assert!(matches!(Schema::new(none), Err(TableError::Columns { got: 0 })));
    assert!(matches!(Schema::new([("", Type::F64)]), Err(TableError::Name { position: 0 })));
    let twice = Schema::new([("a", Type::F64), ("a", Type::I64)]).unwrap_err();
    assert_eq!(twice.to_string(), "expected names that differ, got \"a\" twice");
}

/// A run that is killed in the middle of a row goes on with that row, wherever it was cut.
#[test]
fn appending_goes_on_where_a_kill_cut_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rows.csv");
    let whole = sample();
    whole.write_csv(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    for cut in 0..=bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let mut writer = CsvWriter::append(&path, schema()).unwrap();
        writer.flush().unwrap();
        let kept = read_csv(&path, &schema()).unwrap().len();
        for row in whole.rows().skip(kept) {
            writer.row(&row).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes, "cut at {cut}");
    }
    let other = Schema::new([("other", Type::F64)]).unwrap();
    assert!(matches!(CsvWriter::append(&path, other), Err(TableError::OtherSchema { .. })));
    let fresh = directory.path().join("fresh.csv");
    CsvWriter::append(&fresh, schema()).unwrap().finish().unwrap();
    assert_eq!(read_csv(&fresh, &schema()).unwrap(), Table::new(schema()));
}

#[test]
fn an_unfinished_file_does_not_have_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    let mut writer = ParquetWriter::create(&path, schema()).unwrap();
    sample().copy_to(&mut writer).unwrap();
    drop(writer);
    assert!(!path.exists());
    let mut writer = ParquetWriter::create(&path, schema()).unwrap();
    sample().copy_to(&mut writer).unwrap();
    writer.finish().unwrap();
    assert!(same(&sample(), &read_parquet(&path).unwrap()));
}

#[test]
fn a_long_table_is_written_and_read_in_row_groups() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("packets.parquet");
    let schema = Schema::new([("flow", Type::Text), ("at_ns", Type::U64), ("delay_s", Type::F64)]);
    let schema = schema.unwrap();
    let mut writer = ParquetWriter::create(&path, schema.clone()).unwrap();
    let rows = 2 * ROW_GROUP as u64 + 17;
    for i in 0..rows {
        let delay = (i % 3 > 0).then_some(i as f64 * 1e-9);
        writer.row(&[["udp", "tcp"][i as usize % 2].into(), i.into(), delay.into()]).unwrap();
    }
    writer.finish().unwrap();
    let (mut groups, mut seen) = (Vec::new(), 0);
    let read = scan_parquet(&path, |group| {
        groups.push(group.len());
        for row in group.rows() {
            assert_eq!(row[0], Cell::Text(["udp", "tcp"][seen as usize % 2]));
            assert_eq!(row[1], Cell::U64(seen));
            assert_eq!(row[2], (seen % 3 > 0).then_some(seen as f64 * 1e-9).into());
            seen += 1;
        }
        Ok(())
    });
    assert_eq!(read.unwrap(), schema);
    assert_eq!(groups, [ROW_GROUP, ROW_GROUP, 17]);
    assert_eq!(seen, rows);
}

#[test]
fn much_text_ends_a_row_group_early() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("text.parquet");
    let schema = Schema::new([("text", Type::Text)]).unwrap();
    let mut writer = ParquetWriter::create(&path, schema).unwrap();
    let text = "x".repeat(ROW_GROUP_TEXT / 2 + 1);
    (0..3).for_each(|_| writer.row(&[text.as_str().into()]).unwrap());
    writer.finish().unwrap();
    let mut groups = Vec::new();
    scan_parquet(&path, |group| {
        groups.push(group.len());
        Ok(())
    })
    .unwrap();
    assert_eq!(groups, [2, 1]);
}

#[test]
fn a_table_without_rows_keeps_its_schema() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    Table::new(schema()).write_parquet(&path).unwrap();
    assert_eq!(read_parquet(&path).unwrap(), Table::new(schema()));
}

/// More rows than the caller has room for are refused before any is read, and a byte that is changed is an error or another
/// table, never a panic: of the sample, whose columns have dictionaries, each byte is changed.
#[test]
fn a_changed_file_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    sample().write_parquet(&path).unwrap();
    let rows = sample().len() as u64;
    assert!(same(&read_parquet_up_to(&path, &schema(), rows).unwrap(), &sample()));
    let error = read_parquet_up_to(&path, &schema(), rows - 1).unwrap_err().to_string();
    assert_eq!(error, "Parquet: expected at most 6 rows, got 7");
    let good = fs::read(&path).unwrap();
    let mut refused = 0;
    for at in 0..good.len() {
        for change in [0xff, 1 << (at % 8)] {
            let mut bad = good.clone();
            bad[at] ^= change;
            fs::write(&path, &bad).unwrap();
            refused += usize::from(read_parquet_up_to(&path, &schema(), rows).is_err());
        }
    }
    assert!(refused > good.len() / 2, "{refused} of {}", 2 * good.len());
}

/// Text counts as often as it occurs, in all columns and row groups together; a dictionary has it once.
#[test]
fn the_text_of_a_table_has_one_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let schema = Schema::new([("one", Type::Text), ("other", Type::Text)]).unwrap();
    let mut writer = ParquetWriter::create(&path, schema.clone()).unwrap();
    let text = "x".repeat(1000);
    let rows = ROW_GROUP_TEXT as u64 / 1000;
    (0..rows).for_each(|_| writer.row(&[text.as_str().into(), text.as_str().into()]).unwrap());
    writer.finish().unwrap();
    let bytes = rows as usize * 2000;
    let read =
        |text, pages| parquet::read_bounded(&path, &schema, rows, &parquet::Room::new(text, pages));
    assert_eq!(read(bytes, 100_000).unwrap().len() as u64, rows);
    let error = read(bytes - 1, 100_000).unwrap_err().to_string();
    assert!(
        error.ends_with(&format!("expected at most {} bytes of text, got more", bytes - 1)),
        "{error}"
    );
    let error = read(bytes, 2000).unwrap_err().to_string();
    assert!(error.ends_with("expected at most 2000 bytes of pages, got more"), "{error}");
}

/// The columns are compared before a page is read, here damaged ones.
#[test]
fn other_columns_are_refused_before_rows_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    sample().write_parquet(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4..40].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let other = Schema::new([("at", Type::U64)]).unwrap();
    let error = read_parquet_up_to(&path, &other, 7).unwrap_err().to_string();
    assert!(error.starts_with("expected the columns at (U64), got scenario (Text), "), "{error}");
    assert!(read_parquet_up_to(&path, &schema(), 7).is_err());
}

#[test]
fn a_file_that_is_not_parquet_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.parquet");
    sample().write_parquet(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    for cut in [0, 3, 8, bytes.len() / 2, bytes.len() - 1] {
        fs::File::create(&path).unwrap().write_all(&bytes[..cut]).unwrap();
        assert!(matches!(read_parquet(&path), Err(TableError::Parquet(_))), "cut at {cut}");
    }
    assert!(matches!(read_parquet(&directory.path().join("none.parquet")), Err(TableError::Io(_))));
}

#[test]
fn columns_are_read_by_name() {
    let table = sample();
    assert_eq!(table.numbers("packets").unwrap()[..2], [3.0, u64::MAX as f64]);
    assert!(table.numbers("packets").unwrap()[6].is_nan());
    assert_eq!(table.texts("scenario").unwrap()[6], "holes");
    assert_eq!((table.numbers("scenario"), table.numbers("none")), (None, None));
    assert_eq!(table.texts("loss"), None);
}

proptest! {
    // Each case waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_table_comes_back(
        rows in prop::collection::vec(
            (".{0,12}", any::<Option<f64>>(), any::<Option<u64>>(), any::<Option<i64>>()), 0..60,
        ),
    ) {
        let mut table = Table::new(schema());
        for (text, loss, packets, drift) in &rows {
            let row = [text.as_str().into(), (*loss).into(), (*packets).into(), (*drift).into()];
            table.row(&row).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let (csv, parquet) = (directory.path().join("t.csv"), directory.path().join("t.parquet"));
        table.write_csv(&csv).unwrap();
        table.write_parquet(&parquet).unwrap();
        prop_assert!(same(&table, &read_csv(&csv, &schema()).unwrap()));
        prop_assert!(same(&table, &read_parquet(&parquet).unwrap()));
    }

}

proptest! {
    #[test]
    fn no_csv_panics(text in "[a-z,\"\n\r0-9.-]{0,80}") {
        let _ = csv::parse_csv(text.as_bytes(), &schema());
        let headed = format!("scenario,loss,packets,drift_ns\n{text}");
        let _ = csv::parse_csv(headed.as_bytes(), &schema());
    }
}
