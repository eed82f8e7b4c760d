//! CSV: one line of names, then one line a row (RFC 4180, with a line feed at the end of a line).

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use ::csv::{ReaderBuilder, StringRecord, Terminator, Writer, WriterBuilder};

use super::{Cell, RowSink, Schema, Table, TableError, Type, Whole};

/// Most bytes of a CSV file that is read into memory; what is longer belongs into Parquet.
const MAX_BYTES: u64 = 1 << 30;
/// Characters of a wrong field that an error shows.
const SHOWN: usize = 40;
/// Powers of ten between which a number is written without an exponent.
const PLAIN: std::ops::Range<f64> = 1e-5..1e16;

impl From<::csv::Error> for TableError {
    fn from(error: ::csv::Error) -> Self {
        if !error.is_io_error() {
            return Self::Csv(error.to_string());
        }
        match error.into_kind() {
            ::csv::ErrorKind::Io(error) => Self::Io(error),
            other => Self::Csv(format!("{other:?}")),
        }
    }
}

/// Writes rows as CSV, one at a time.
#[derive(Debug)]
pub struct CsvWriter<W: Write> {
    schema: Schema,
    writer: Writer<W>,
    /// Where a number is spelled; kept so that a row needs no allocation.
    digits: Vec<u8>,
    whole: Option<Whole>,
}

impl<W: Write> CsvWriter<W> {
    /// Writes to anything that takes bytes, beginning with the line of names.
    ///
    /// # Errors
    /// Whatever `inner` says.
    pub fn new(inner: W, schema: Schema) -> Result<Self, TableError> {
        let mut writer = Self::headless(inner, schema, None);
        let names = writer.schema.columns().iter().map(|column| &column.name);
        writer.writer.write_record(names)?;
        Ok(writer)
    }

    fn headless(inner: W, schema: Schema, whole: Option<Whole>) -> Self {
        let writer = WriterBuilder::new().terminator(Terminator::Any(b'\n')).from_writer(inner);
        Self { schema, writer, digits: Vec::new(), whole }
    }

    /// Hands everything written so far on to the file or whatever lies below.
    ///
    /// # Errors
    /// Whatever lies below says.
    pub fn flush(&mut self) -> Result<(), TableError> {
        Ok(self.writer.flush()?)
    }

    /// Ends the table and gives back what it was written to.
    ///
    /// # Errors
    /// Whatever lies below says.
    pub fn into_inner(self) -> Result<W, TableError> {
        self.writer.into_inner().map_err(|error| TableError::Csv(error.to_string()))
    }
}

impl CsvWriter<BufWriter<File>> {
    /// Writes to a file that appears under `path` once [`CsvWriter::finish`] is called; until then,
    /// and for good if that never happens, it is called `path` with `.partial` behind it.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn create(path: &Path, schema: Schema) -> Result<Self, TableError> {
        let (whole, file) = Whole::create(path)?;
        let mut writer = Self::new(BufWriter::new(file), schema)?;
        writer.whole = Some(whole);
        Ok(writer)
    }

    /// Goes on at the end of the file at `path`, which is begun if there is none.
    ///
    /// A last row that a kill cut short is taken away, so that what [`read_csv`] reads and what is
    /// written next fit together. Rows are on disk after [`CsvWriter::flush`].
    ///
    /// # Errors
    /// A file with other columns; whatever the disk says.
    pub fn append(path: &Path, schema: Schema) -> Result<Self, TableError> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let end = whole_rows(&mut file)?;
        file.set_len(end)?;
        if end == 0 {
            file.rewind()?;
            return Self::new(BufWriter::new(file), schema);
        }
        file.rewind()?;
        let mut reader = reader(BufReader::new(&mut file));
        check_names(&schema, reader.headers()?)?;
        drop(reader);
        file.seek(SeekFrom::Start(end))?;
        Ok(Self::headless(BufWriter::new(file), schema, None))
    }

    /// Ends the file and, if it was created, gives it its name.
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

impl<W: Write> RowSink for CsvWriter<W> {
    fn row(&mut self, row: &[Cell<'_>]) -> Result<(), TableError> {
        self.schema.check(row)?;
        for cell in row {
            self.digits.clear();
            let digits = &mut self.digits;
            match *cell {
                Cell::Text(text) => {
                    self.writer.write_field(text)?;
                    continue;
                }
                Cell::F64(x) if x == 0.0 || PLAIN.contains(&x.abs()) || !x.is_finite() => {
                    write!(digits, "{x}")?;
                }
                Cell::F64(x) => write!(digits, "{x:e}")?,
                Cell::I64(x) => write!(digits, "{x}")?,
                Cell::U64(x) => write!(digits, "{x}")?,
                Cell::Missing => {}
            }
            self.writer.write_field(&self.digits)?;
        }
        Ok(self.writer.write_record(None::<&[u8]>)?)
    }
}

/// The length of the file up to the end of its last whole row.
fn whole_rows(file: &mut File) -> Result<u64, TableError> {
    let mut reader = BufReader::new(file);
    let (mut position, mut end, mut quoted) = (0u64, 0, false);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(end);
        }
        for (i, &byte) in bytes.iter().enumerate() {
            // A doubled quote inside quotes turns this twice and is right in the end.
            quoted ^= byte == b'"';
            if byte == b'\n' && !quoted {
                end = position + i as u64 + 1;
            }
        }
        let taken = bytes.len();
        position += taken as u64;
        reader.consume(taken);
    }
}

fn reader<R: Read>(inner: R) -> ::csv::Reader<R> {
    ReaderBuilder::new().flexible(true).from_reader(inner)
}

fn check_names(schema: &Schema, header: &StringRecord) -> Result<(), TableError> {
    let expected: Vec<&str> = schema.columns().iter().map(|c| c.name.as_str()).collect();
    if header.iter().eq(expected.iter().copied()) {
        return Ok(());
    }
    let got: Vec<&str> = header.iter().collect();
    Err(TableError::OtherSchema { expected: expected.join(","), got: got.join(",") })
}

/// Reads a whole CSV file whose columns are those of `schema`, in that order.
///
/// # Errors
/// Other columns, a row of another width, a field that does not read as its column's type, a file
/// above 1 GiB, or whatever the disk says.
pub fn read_csv(path: &Path, schema: &Schema) -> Result<Table, TableError> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    if length > MAX_BYTES {
        return Err(TableError::Csv(format!("expected at most {MAX_BYTES} bytes, got {length}")));
    }
    parse_csv(BufReader::new(file), schema)
}

/// Reads CSV from anything that gives bytes.
pub(super) fn parse_csv(inner: impl Read, schema: &Schema) -> Result<Table, TableError> {
    let mut reader = reader(inner);
    check_names(schema, reader.headers()?)?;
    let mut table = Table::new(schema.clone());
    let mut record = StringRecord::new();
    while reader.read_record(&mut record)? {
        let width = schema.columns().len();
        if record.len() != width {
            return Err(TableError::Width { expected: width, got: record.len() });
        }
        for ((column, field), values) in
            schema.columns().iter().zip(&record).zip(&mut table.columns)
        {
            let cell = parse(column.kind, field).ok_or_else(|| TableError::Field {
                line: record.position().map_or(0, ::csv::Position::line),
                column: column.name.clone(),
                expected: column.kind.name(),
                got: field.chars().take(SHOWN).collect(),
            })?;
            values.push(&cell);
        }
        table.rows += 1;
    }
    Ok(table)
}

fn parse(kind: Type, field: &str) -> Option<Cell<'_>> {
    match kind {
        Type::Text => Some(Cell::Text(field)),
        _ if field.is_empty() => Some(Cell::Missing),
        Type::F64 => field.parse().ok().map(Cell::F64),
        Type::I64 => field.parse().ok().map(Cell::I64),
        Type::U64 => field.parse().ok().map(Cell::U64),
    }
}
