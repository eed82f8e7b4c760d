//! Long tables as Arrow: made once, and shared with every library that asks for the stream.

use crate::failure::failed;
use arrow_array::builder::{Float64Builder, Int64Builder, StringBuilder, UInt64Builder};
use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use ringway_figures::table::{Cell, Column, Table as LongTable, Type};
use std::sync::Arc;

/// A table of results. `pyarrow.table`, `polars.DataFrame` and `pandas.DataFrame.from_arrow` read it by
/// the Arrow PyCapsule interface.
#[pyclass(frozen, module = "ringway")]
pub(crate) struct Table(RecordBatch);

impl Table {
    /// Makes the columns of a table. Text and numbers are copied here, once.
    pub(crate) fn new(table: &LongTable) -> PyResult<Self> {
        let columns = table.schema().columns();
        let fields = columns.iter().map(|column| {
            let kind = match column.kind {
                Type::F64 => DataType::Float64,
                Type::I64 => DataType::Int64,
                Type::U64 => DataType::UInt64,
                Type::Text => DataType::Utf8,
            };
            Field::new(&column.name, kind, column.kind != Type::Text)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = columns.iter().enumerate().map(|(i, column)| array(table, i, column));
        RecordBatch::try_new(schema, arrays.collect()).map(Table).map_err(failed)
    }
}

/// Makes one column.
fn array(table: &LongTable, position: usize, column: &Column) -> ArrayRef {
    let rows = table.len();
    let cells = (0..rows).filter_map(|row| table.get(row, position));
    macro_rules! numbers {
        ($builder:ident, $kind:ident) => {{
            let mut builder = $builder::with_capacity(rows);
            for cell in cells {
                builder.append_option(if let Cell::$kind(x) = cell { Some(x) } else { None });
            }
            Arc::new(builder.finish())
        }};
    }
    match column.kind {
        Type::F64 => numbers!(Float64Builder, F64),
        Type::I64 => numbers!(Int64Builder, I64),
        Type::U64 => numbers!(UInt64Builder, U64),
        Type::Text => {
            let mut builder = StringBuilder::new();
            for cell in cells {
                builder.append_value(if let Cell::Text(text) = cell { text } else { "" });
            }
            Arc::new(builder.finish())
        }
    }
}

#[pymethods]
impl Table {
    /// The stream of the Arrow PyCapsule interface: one batch, which shares this table's memory. A
    /// requested schema is ignored, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.0.clone())], self.0.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The schema of the Arrow PyCapsule interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.0.schema().as_ref()).map_err(failed)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<String> {
        self.0.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<ringway.Table of {} rows: {}>", self.0.num_rows(), self.column_names().join(", "))
    }
}
