//! Parquet by its low-level interface: one row group at a time, columns that may be null, Snappy.
//!
//! Without the `arrow` feature the library is a fifth of the size, and a long table needs nothing
//! of Arrow: the columns here are its values and definition levels already.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use ::parquet::column::page::{Page, PageMetadata, PageReader};
use ::parquet::column::reader::{ColumnReader, get_column_reader};
use ::parquet::column::writer::ColumnWriter;
use ::parquet::data_type::{ByteArray, DataType};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::types::Type as Node;

use super::{
    Cell, Column, ROW_GROUP, ROW_GROUP_TEXT, RowSink, Schema, Table, TableError, Type, Values,
    Whole,
};

/// Most rows of a row group that is read: one that another program wrote may be larger than ours.
const MAX_GROUP: i64 = 16 << 20;
/// Most bytes of text of a row group that is read: in the file a text that occurs often stands once.
const MAX_GROUP_TEXT: usize = 1 << 30;
/// Most bytes of text of a table that [`read_parquet_up_to`] reads.
pub const MAX_TEXT: usize = 256 << 20;
/// Most bytes of the pages of a table that [`read_parquet_up_to`] reads, decompressed.
pub const MAX_PAGES: usize = 512 << 20;

impl From<ParquetError> for TableError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
                Ok(error) => Self::Io(*error),
                Err(other) => Self::Parquet(other.to_string()),
            },
            other => Self::Parquet(other.to_string()),
        }
    }
}

/// Writes rows as Parquet, [`ROW_GROUP`] of them at a time.
pub struct ParquetWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    group: Table,
    whole: Option<Whole>,
}

impl<W: Write + Send> std::fmt::Debug for ParquetWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParquetWriter").field("gathered", &self.group.len()).finish_non_exhaustive()
    }
}

impl<W: Write + Send> ParquetWriter<W> {
    /// Writes to anything that takes bytes.
    ///
    /// # Errors
    /// Whatever `inner` says.
    pub fn new(inner: W, schema: Schema) -> Result<Self, TableError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by("ringway".to_owned())
            .build();
        let node = Arc::new(node(&schema)?);
        let writer = SerializedFileWriter::new(inner, node, Arc::new(properties))?;
        Ok(Self { writer, group: Table::new(schema), whole: None })
    }

    /// Writes what is left and the footer, and gives back what it was written to.
    ///
    /// # Errors
    /// Whatever lies below says.
    pub fn into_inner(mut self) -> Result<W, TableError> {
        self.write_group()?;
        Ok(self.writer.into_inner()?)
    }

    fn write_group(&mut self) -> Result<(), TableError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group()?;
        for values in &mut self.group.columns {
            let Some(mut column) = group.next_column()? else {
                return Err(TableError::Parquet("a column less than the schema has".to_owned()));
            };
            write_column(values, column.untyped())?;
            column.close()?;
        }
        group.close()?;
        self.group.clear();
        Ok(())
    }
}

impl ParquetWriter<BufWriter<File>> {
    /// Writes to a file that appears under `path` once [`ParquetWriter::finish`] is called; until
    /// then, and for good if that never happens, it is called `path` with `.partial` behind it and
    /// cannot be read: a Parquet file ends with what makes it one.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn create(path: &Path, schema: Schema) -> Result<Self, TableError> {
        let (whole, file) = Whole::create(path)?;
        let mut writer = Self::new(BufWriter::new(file), schema)?;
        writer.whole = Some(whole);
        Ok(writer)
    }

    /// Ends the file and gives it its name.
    ///
    /// # Errors
    /// Whatever the disk says; the file then keeps its partial name.
    pub fn finish(mut self) -> Result<(), TableError> {
        let whole = self.whole.take();
        let file = self.into_inner()?.into_inner().map_err(|error| error.into_error())?;
        match whole {
            Some(whole) => whole.finish(&file)?,
            None => file.sync_all()?,
        }
        Ok(())
    }
}

impl<W: Write + Send> RowSink for ParquetWriter<W> {
    fn row(&mut self, row: &[Cell<'_>]) -> Result<(), TableError> {
        self.group.row(row)?;
        if self.group.len() >= ROW_GROUP || self.group.text_bytes() >= ROW_GROUP_TEXT {
            self.write_group()?;
        }
        Ok(())
    }
}

/// The schema as Parquet writes it. Integers say whether they have a sign, numbers may be null.
fn node(schema: &Schema) -> Result<Node, TableError> {
    let fields = schema.columns().iter().map(|column| {
        let (physical, logical, repetition) = match column.kind {
            Type::F64 => (Physical::DOUBLE, None, Repetition::OPTIONAL),
            Type::I64 => (Physical::INT64, Some(integer(true)), Repetition::OPTIONAL),
            Type::U64 => (Physical::INT64, Some(integer(false)), Repetition::OPTIONAL),
            Type::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::REQUIRED),
        };
        Node::primitive_type_builder(&column.name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()
            .map(Arc::new)
    });
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Ok(Node::group_type_builder("rows").with_fields(fields).build()?)
}

fn integer(is_signed: bool) -> LogicalType {
    LogicalType::integer(64, is_signed)
}

fn write_column(values: &mut Values, column: &mut ColumnWriter<'_>) -> Result<(), TableError> {
    match (values, column) {
        (Values::F64(values), ColumnWriter::DoubleColumnWriter(column)) => {
            let (present, levels) = split(values, |x| x);
            column.write_batch(&present, Some(&levels), None)?;
        }
        (Values::I64(values), ColumnWriter::Int64ColumnWriter(column)) => {
            let (present, levels) = split(values, |x| x);
            column.write_batch(&present, Some(&levels), None)?;
        }
        (Values::U64(values), ColumnWriter::Int64ColumnWriter(column)) => {
            // Parquet keeps an unsigned integer in the bits of a signed one.
            let (present, levels) = split(values, u64::cast_signed);
            column.write_batch(&present, Some(&levels), None)?;
        }
        (Values::Text { joined, ends }, ColumnWriter::ByteArrayColumnWriter(column)) => {
            let bytes = ByteArray::from(std::mem::take(joined).into_bytes());
            let mut start = 0;
            let texts: Vec<ByteArray> = ends
                .iter()
                .map(|&end| {
                    let text = bytes.slice(start, end - start);
                    start = end;
                    text
                })
                .collect();
            column.write_batch(&texts, None, None)?;
        }
        _ => return Err(TableError::Parquet("a column of another type".to_owned())),
    }
    Ok(())
}

/// Values that are there, and for each row 1 where there is one and 0 where none is.
fn split<T: Copy, U>(values: &[Option<T>], convert: impl Fn(T) -> U) -> (Vec<U>, Vec<i16>) {
    let present = values.iter().filter_map(|x| x.map(&convert)).collect();
    (present, values.iter().map(|x| i16::from(x.is_some())).collect())
}

/// Reads a whole Parquet file; the columns and their types are those that it says.
///
/// # Errors
/// A file that is not Parquet, is cut, or holds columns that a [`Schema`] cannot say (nested ones,
/// dates, 32-bit numbers); whatever the disk says.
pub fn read_parquet(path: &Path) -> Result<Table, TableError> {
    let mut whole: Option<Table> = None;
    let schema = scan_parquet(path, |group| {
        match &mut whole {
            Some(table) => table.append(group),
            None => whole = Some(group),
        }
        Ok(())
    })?;
    Ok(whole.unwrap_or_else(|| Table::new(schema)))
}

/// Reads a whole Parquet file of any origin as [`read_parquet`] does, if it has the columns of `schema` and at most
/// `max_rows` rows, which is checked before any of them is read. All columns and row groups together have at most
/// [`MAX_TEXT`] bytes of text and [`MAX_PAGES`] bytes of pages. One page is decompressed before it counts; the format
/// limits its size to 2 GiB.
///
/// The library panics at some pages that are not as their headers describe. That is an error here, where panics unwind.
///
/// # Errors
/// Other columns, more rows, text or pages; as for [`read_parquet`].
pub fn read_parquet_up_to(
    path: &Path,
    expected: &Schema,
    max_rows: u64,
) -> Result<Table, TableError> {
    read_bounded(path, expected, max_rows, &Room::new(MAX_TEXT, MAX_PAGES))
}

pub(super) fn read_bounded(
    path: &Path,
    expected: &Schema,
    max_rows: u64,
    room: &Room,
) -> Result<Table, TableError> {
    let read = || {
        let reader = SerializedFileReader::new(File::open(path)?)?;
        let got = schema(&reader)?;
        if got != *expected {
            let (expected, got) = (list(expected), list(&got));
            return Err(TableError::OtherSchema { expected, got });
        }
        let groups = reader.metadata().row_groups().iter();
        let rows = groups.fold(0u64, |n, group| {
            n.saturating_add(u64::try_from(group.num_rows()).unwrap_or(u64::MAX))
        });
        if rows > max_rows {
            return Err(TableError::Parquet(format!(
                "expected at most {max_rows} rows, got {rows}"
            )));
        }
        let mut whole = Table::new(got);
        for i in 0..reader.num_row_groups() {
            whole.append(read_group(&whole.schema, reader.get_row_group(i)?.as_ref(), room)?);
        }
        Ok(whole)
    };
    let damaged = "expected pages as their headers describe, got a damaged one";
    std::panic::catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(TableError::Parquet(damaged.to_owned())))
}

/// Reads a Parquet file one row group at a time, so that no more than that is in memory, and
/// returns its schema.
///
/// # Errors
/// As for [`read_parquet`], and whatever `each` returns.
pub fn scan_parquet(
    path: &Path,
    mut each: impl FnMut(Table) -> Result<(), TableError>,
) -> Result<Schema, TableError> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let schema = schema(&reader)?;
    for i in 0..reader.num_row_groups() {
        let group = reader.get_row_group(i)?;
        let room = Room::new(MAX_GROUP_TEXT, usize::MAX);
        each(read_group(&schema, group.as_ref(), &room)?)?;
    }
    Ok(schema)
}

fn schema(reader: &SerializedFileReader<File>) -> Result<Schema, TableError> {
    let descriptor = reader.metadata().file_metadata().schema_descr();
    let columns = descriptor.columns().iter().map(|column| {
        let name = column.path().string();
        if column.max_rep_level() > 0 || column.path().parts().len() > 1 {
            return Err(TableError::Parquet(format!("column \"{name}\" is nested")));
        }
        let kind = match (column.physical_type(), column.logical_type_ref()) {
            (Physical::DOUBLE, None) => Type::F64,
            (Physical::INT64, None) => Type::I64,
            (Physical::INT64, Some(LogicalType::Integer(i))) if i.is_signed => Type::I64,
            (Physical::INT64, Some(LogicalType::Integer(_))) => Type::U64,
            (Physical::BYTE_ARRAY, None | Some(LogicalType::String)) => Type::Text,
            (other, _) => {
                return Err(TableError::Parquet(format!(
                    "column \"{name}\": expected a 64-bit number or text, got {other}"
                )));
            }
        };
        Ok((name, kind))
    });
    Schema::new(columns.collect::<Result<Vec<_>, _>>()?)
}

/// Returns the columns with their types, for a message.
fn list(schema: &Schema) -> String {
    let columns = schema.columns().iter();
    columns.map(|c| format!("{} ({:?})", c.name, c.kind)).collect::<Vec<_>>().join(", ")
}

/// Bytes that may still be read.
pub(super) struct Room {
    text: Budget,
    pages: Arc<Budget>,
}

impl Room {
    pub(super) fn new(text: usize, pages: usize) -> Self {
        Self { text: Budget::new(text), pages: Arc::new(Budget::new(pages)) }
    }
}

struct Budget {
    max: usize,
    used: AtomicUsize,
}

impl Budget {
    fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0) }
    }

    /// Counts bytes of `what`; an error if they are too many.
    fn take(&self, bytes: usize, what: &str) -> Result<(), ParquetError> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if used <= self.max {
            return Ok(());
        }
        Err(ParquetError::General(format!(
            "expected at most {} bytes of {what}, got more",
            self.max
        )))
    }
}

/// Pages of a column, which count.
struct CountedPages {
    inner: Box<dyn PageReader>,
    budget: Arc<Budget>,
}

impl Iterator for CountedPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CountedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        let page = self.inner.get_next_page()?;
        if let Some(page) = &page {
            self.budget.take(page.buffer().len(), "pages")?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.inner.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool, ParquetError> {
        self.inner.at_record_boundary()
    }
}

fn read_group(
    schema: &Schema,
    group: &dyn RowGroupReader,
    room: &Room,
) -> Result<Table, TableError> {
    let rows = group.metadata().num_rows();
    if !(0..=MAX_GROUP).contains(&rows) {
        return Err(TableError::Parquet(format!(
            "expected a row group of at most {MAX_GROUP} rows, got {rows}"
        )));
    }
    let rows = rows as usize;
    let mut table = Table::new(schema.clone());
    for (i, column) in schema.columns().iter().enumerate() {
        let inner = group.get_column_page_reader(i)?;
        let pages = Box::new(CountedPages { inner, budget: room.pages.clone() });
        let descriptor = group.metadata().column(i).column_descr_ptr();
        let reader = get_column_reader(descriptor, pages);
        table.columns[i] = read_column(column, reader, rows, &room.text)?;
    }
    table.rows = rows;
    Ok(table)
}

fn read_column(
    column: &Column,
    reader: ColumnReader,
    rows: usize,
    budget: &Budget,
) -> Result<Values, TableError> {
    Ok(match (column.kind, reader) {
        (Type::F64, ColumnReader::DoubleColumnReader(mut reader)) => {
            Values::F64(read_values(column, &mut reader, rows, |x| x)?)
        }
        (Type::I64, ColumnReader::Int64ColumnReader(mut reader)) => {
            Values::I64(read_values(column, &mut reader, rows, |x| x)?)
        }
        (Type::U64, ColumnReader::Int64ColumnReader(mut reader)) => {
            Values::U64(read_values(column, &mut reader, rows, i64::cast_unsigned)?)
        }
        (Type::Text, ColumnReader::ByteArrayColumnReader(mut reader)) => {
            let texts = read_values(column, &mut reader, rows, |x| x)?;
            let mut values = Values::new(Type::Text);
            for text in &texts {
                let text = text.as_ref().map_or(Ok(""), |text| text.as_utf8())?;
                budget.take(text.len(), "text")?;
                values.push(&Cell::Text(text));
            }
            values
        }
        _ => return Err(TableError::Parquet(format!("column \"{}\" changes type", column.name))),
    })
}

fn read_values<T: DataType, U>(
    column: &Column,
    reader: &mut ::parquet::column::reader::ColumnReaderImpl<T>,
    rows: usize,
    convert: impl Fn(T::T) -> U,
) -> Result<Vec<Option<U>>, TableError> {
    let (mut levels, mut present) = (Vec::new(), Vec::new());
    let (got, _, _) = reader.read_records(rows, Some(&mut levels), None, &mut present)?;
    if got != rows {
        return Err(TableError::Parquet(format!(
            "column \"{}\": expected {rows} rows, got {got}",
            column.name
        )));
    }
    let mut present = present.into_iter().map(convert);
    // A column that may not be null has no levels.
    if levels.is_empty() {
        return Ok(present.map(Some).collect());
    }
    Ok(levels.iter().map(|&level| if level > 0 { present.next() } else { None }).collect())
}
