//! Long tables: one row an observation, one column a variable, on disk as CSV or Parquet.
//!
//! A [`Schema`] names the columns and their types. Rows are written one at a time into a
//! [`RowSink`]: a [`Table`] in memory, a [`CsvWriter`], or a [`ParquetWriter`], which holds one row
//! group and no more, so that a record of every packet never sits in memory whole. [`read_csv`],
//! [`read_parquet`] and [`scan_parquet`] read them back, and [`CsvWriter::append`] goes on where a
//! run was killed. There is no query language here, and nothing that changes a row once written.
//!
//! A cell may be [`Cell::Missing`], except in a text column, where the empty string serves. In CSV a
//! missing number is an empty field; quoting is that of RFC 4180 section 2, lines end in a line feed.

mod csv;
mod parquet;

use std::path::{Path, PathBuf};
use std::{fs, io};

pub use self::csv::{CsvWriter, read_csv};
pub use self::parquet::{
    MAX_PAGES, MAX_TEXT, ParquetWriter, read_parquet, read_parquet_up_to, scan_parquet,
};

/// Rows that a Parquet writer gathers before it writes them as one row group.
pub const ROW_GROUP: usize = 131_072;
/// Bytes of text that end a row group early.
pub const ROW_GROUP_TEXT: usize = 32 << 20;
/// Most columns of a table.
pub const MAX_COLUMNS: usize = 256;
/// Most bytes of the name of a column.
pub const MAX_NAME: usize = 256;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A 64-bit floating-point number.
    F64,
    /// A signed 64-bit integer.
    I64,
    /// An unsigned 64-bit integer.
    U64,
    /// UTF-8 text.
    Text,
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::Text => "text",
        }
    }
}

/// A column: what it is called, unit included (`delay_s`), and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Type,
}

/// The columns of a table, in order; names differ and none is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema(Vec<Column>);

impl Schema {
    /// A schema of named columns.
    ///
    /// ```
    /// use ringway_figures::table::{Schema, Type};
    /// let schema = Schema::new([("loss", Type::F64), ("packets", Type::U64)])?;
    /// assert_eq!(schema.position("packets"), Some(1));
    /// # Ok::<(), ringway_figures::table::TableError>(())
    /// ```
    ///
    /// # Errors
    /// No column or more than [`MAX_COLUMNS`], a name that is empty, longer than [`MAX_NAME`] or
    /// taken.
    pub fn new<N: Into<String>>(
        columns: impl IntoIterator<Item = (N, Type)>,
    ) -> Result<Self, TableError> {
        let columns: Vec<Column> =
            columns.into_iter().map(|(name, kind)| Column { name: name.into(), kind }).collect();
        if columns.is_empty() || columns.len() > MAX_COLUMNS {
            return Err(TableError::Columns { got: columns.len() });
        }
        for (i, column) in columns.iter().enumerate() {
            if column.name.is_empty() || column.name.len() > MAX_NAME {
                return Err(TableError::Name { position: i });
            }
            if columns[..i].iter().any(|other| other.name == column.name) {
                return Err(TableError::NameTaken(column.name.clone()));
            }
        }
        Ok(Self(columns))
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.0
    }

    /// The position of the column called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|column| column.name == name)
    }

    /// Refuses a row that does not fit.
    fn check(&self, row: &[Cell<'_>]) -> Result<(), TableError> {
        if row.len() != self.0.len() {
            return Err(TableError::Width { expected: self.0.len(), got: row.len() });
        }
        for (column, cell) in self.0.iter().zip(row) {
            let fits = match cell {
                Cell::F64(_) => column.kind == Type::F64,
                Cell::I64(_) => column.kind == Type::I64,
                Cell::U64(_) => column.kind == Type::U64,
                Cell::Text(_) => column.kind == Type::Text,
                Cell::Missing => column.kind != Type::Text,
            };
            if !fits {
                return Err(TableError::Cell {
                    column: column.name.clone(),
                    expected: column.kind.name(),
                    got: cell.name(),
                });
            }
        }
        Ok(())
    }
}

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// A number of a [`Type::F64`] column; NaN is a value, not a missing one.
    F64(f64),
    /// A number of a [`Type::I64`] column.
    I64(i64),
    /// A number of a [`Type::U64`] column.
    U64(u64),
    /// Text of a [`Type::Text`] column.
    Text(&'a str),
    /// No number is known.
    Missing,
}

impl Cell<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::F64(_) => "f64",
            Self::I64(_) => "i64",
            Self::U64(_) => "u64",
            Self::Text(_) => "text",
            Self::Missing => "a missing value",
        }
    }

    /// The number, whatever its type; none for text and where it is missing.
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::F64(x) => Some(x),
            Self::I64(x) => Some(x as f64),
            Self::U64(x) => Some(x as f64),
            Self::Text(_) | Self::Missing => None,
        }
    }
}

impl From<f64> for Cell<'_> {
    fn from(x: f64) -> Self {
        Self::F64(x)
    }
}

impl From<i64> for Cell<'_> {
    fn from(x: i64) -> Self {
        Self::I64(x)
    }
}

impl From<u64> for Cell<'_> {
    fn from(x: u64) -> Self {
        Self::U64(x)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

/// Where rows go.
pub trait RowSink {
    /// Takes one row, which must fit the schema.
    ///
    /// # Errors
    /// A row of another width or with a value of another type; whatever the disk says.
    fn row(&mut self, row: &[Cell<'_>]) -> Result<(), TableError>;
}

/// What one column holds.
#[derive(Clone, Debug, PartialEq)]
enum Values {
    F64(Vec<Option<f64>>),
    I64(Vec<Option<i64>>),
    U64(Vec<Option<u64>>),
    /// All texts one after the other, and where each ends.
    Text {
        joined: String,
        ends: Vec<usize>,
    },
}

impl Values {
    fn new(kind: Type) -> Self {
        match kind {
            Type::F64 => Self::F64(Vec::new()),
            Type::I64 => Self::I64(Vec::new()),
            Type::U64 => Self::U64(Vec::new()),
            Type::Text => Self::Text { joined: String::new(), ends: Vec::new() },
        }
    }

    /// Takes a cell that the schema has found to fit.
    fn push(&mut self, cell: &Cell<'_>) {
        match (self, cell) {
            (Self::F64(values), Cell::F64(x)) => values.push(Some(*x)),
            (Self::I64(values), Cell::I64(x)) => values.push(Some(*x)),
            (Self::U64(values), Cell::U64(x)) => values.push(Some(*x)),
            (Self::Text { joined, ends }, Cell::Text(text)) => {
                joined.push_str(text);
                ends.push(joined.len());
            }
            (Self::F64(values), _) => values.push(None),
            (Self::I64(values), _) => values.push(None),
            (Self::U64(values), _) => values.push(None),
            (Self::Text { joined, ends }, _) => ends.push(joined.len()),
        }
    }

    fn get(&self, row: usize) -> Cell<'_> {
        match self {
            Self::F64(values) => values[row].into(),
            Self::I64(values) => values[row].into(),
            Self::U64(values) => values[row].into(),
            Self::Text { joined, ends } => {
                let start = if row == 0 { 0 } else { ends[row - 1] };
                Cell::Text(&joined[start..ends[row]])
            }
        }
    }

    fn clear(&mut self) {
        match self {
            Self::F64(values) => values.clear(),
            Self::I64(values) => values.clear(),
            Self::U64(values) => values.clear(),
            Self::Text { joined, ends } => {
                joined.clear();
                ends.clear();
            }
        }
    }

    fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::F64(mine), Self::F64(other)) => mine.extend(other),
            (Self::I64(mine), Self::I64(other)) => mine.extend(other),
            (Self::U64(mine), Self::U64(other)) => mine.extend(other),
            (Self::Text { joined, ends }, Self::Text { joined: text, ends: more }) => {
                let before = joined.len();
                joined.push_str(&text);
                ends.extend(more.into_iter().map(|end| before + end));
            }
            // Both were made from one schema.
            _ => {}
        }
    }
}

/// A table in memory, by columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    schema: Schema,
    columns: Vec<Values>,
    rows: usize,
}

impl Table {
    /// A table without rows.
    pub fn new(schema: Schema) -> Self {
        let columns = schema.0.iter().map(|column| Values::new(column.kind)).collect();
        Self { schema, columns, rows: 0 }
    }

    /// The columns' names and types.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The cell of a row and a column; none outside the table.
    pub fn get(&self, row: usize, column: usize) -> Option<Cell<'_>> {
        let values = self.columns.get(column)?;
        (row < self.rows).then(|| values.get(row))
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = Vec<Cell<'_>>> {
        (0..self.rows).map(|row| self.columns.iter().map(|values| values.get(row)).collect())
    }

    /// The numbers of the column called `name`, NaN where one is missing; none if there is no such
    /// column or it holds text.
    pub fn numbers(&self, name: &str) -> Option<Vec<f64>> {
        let column = self.schema.position(name)?;
        if self.schema.0[column].kind == Type::Text {
            return None;
        }
        let values = &self.columns[column];
        Some((0..self.rows).map(|row| values.get(row).number().unwrap_or(f64::NAN)).collect())
    }

    /// The texts of the column called `name`; none if there is no such column or it holds numbers.
    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        let column = self.schema.position(name)?;
        if self.schema.0[column].kind != Type::Text {
            return None;
        }
        let text = |row| match self.columns[column].get(row) {
            Cell::Text(text) => text,
            _ => "",
        };
        Some((0..self.rows).map(text).collect())
    }

    /// Writes all rows into another sink.
    ///
    /// # Errors
    /// Whatever the sink says.
    pub fn copy_to(&self, sink: &mut impl RowSink) -> Result<(), TableError> {
        self.rows().try_for_each(|row| sink.row(&row))
    }

    /// Writes the table as CSV to `path`; the file appears whole or not at all.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn write_csv(&self, path: &Path) -> Result<(), TableError> {
        let mut writer = CsvWriter::create(path, self.schema.clone())?;
        self.copy_to(&mut writer)?;
        writer.finish()
    }

    /// Writes the table as Parquet to `path`; the file appears whole or not at all.
    ///
    /// # Errors
    /// Whatever the disk says.
    pub fn write_parquet(&self, path: &Path) -> Result<(), TableError> {
        let mut writer = ParquetWriter::create(path, self.schema.clone())?;
        self.copy_to(&mut writer)?;
        writer.finish()
    }

    fn clear(&mut self) {
        self.columns.iter_mut().for_each(Values::clear);
        self.rows = 0;
    }

    fn append(&mut self, other: Self) {
        self.rows += other.rows;
        for (mine, other) in self.columns.iter_mut().zip(other.columns) {
            mine.append(other);
        }
    }

    /// Bytes of text in all columns.
    fn text_bytes(&self) -> usize {
        let bytes = |values: &Values| match values {
            Values::Text { joined, .. } => joined.len(),
            _ => 0,
        };
        self.columns.iter().map(bytes).sum()
    }
}

impl RowSink for Table {
    fn row(&mut self, row: &[Cell<'_>]) -> Result<(), TableError> {
        self.schema.check(row)?;
        self.columns.iter_mut().zip(row).for_each(|(values, cell)| values.push(cell));
        self.rows += 1;
        Ok(())
    }
}

/// Why a table could not be made, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// No column, or too many.
    #[error("expected 1 to {MAX_COLUMNS} columns, got {got}")]
    Columns {
        /// How many there were.
        got: usize,
    },
    /// A column's name is empty or too long.
    #[error("expected a name of 1 to {MAX_NAME} bytes for the column at position {position}")]
    Name {
        /// The column, from 0.
        position: usize,
    },
    /// Two columns of one name.
    #[error("expected names that differ, got \"{0}\" twice")]
    NameTaken(String),
    /// A row of another width than the schema.
    #[error("expected a row of {expected} cells, got {got}")]
    Width {
        /// Columns of the schema.
        expected: usize,
        /// Cells of the row.
        got: usize,
    },
    /// A cell of another type than its column.
    #[error("column \"{column}\": expected {expected}, got {got}")]
    Cell {
        /// The column.
        column: String,
        /// Its type.
        expected: &'static str,
        /// What was given.
        got: &'static str,
    },
    /// A file whose columns are not the expected ones.
    #[error("expected the columns {expected}, got {got}")]
    OtherSchema {
        /// What the schema says.
        expected: String,
        /// What the file says.
        got: String,
    },
    /// A field of a CSV file that does not read as its column's type.
    #[error("line {line}, column \"{column}\": expected {expected}, got \"{got}\"")]
    Field {
        /// The line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// Its type.
        expected: &'static str,
        /// What stands there, cut after some characters.
        got: String,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The CSV is not well-formed.
    #[error("CSV: {0}")]
    Csv(String),
    /// The Parquet file is not well-formed, or holds what a long table does not.
    #[error("Parquet: {0}")]
    Parquet(String),
}

/// A file that appears under its name only when it is whole.
#[derive(Debug)]
struct Whole {
    path: PathBuf,
    partial: PathBuf,
}

impl Whole {
    fn create(path: &Path) -> io::Result<(Self, fs::File)> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let whole = Self { path: path.to_path_buf(), partial: path.with_file_name(name) };
        let file = fs::File::create(&whole.partial)?;
        Ok((whole, file))
    }

    /// The bytes are written: gives the file its name.
    fn finish(&self, file: &fs::File) -> io::Result<()> {
        file.sync_all()?;
        fs::rename(&self.partial, &self.path)
    }
}

#[cfg(test)]
mod tests;
