//! The native part of the Python package `ringway`: the laboratory's commands, links and SCTP.
//!
//! It has no logic of its own. Each function takes plain values, calls a crate, and returns plain
//! values or a [`table::Table`]; `python/ringway` has what a program imports. Python's lock is
//! released while a command runs. Read `work` for how a command is followed and ended, and `table`
//! for how results reach Arrow without copying.

mod failure;
mod lab;
mod link;
mod sctp;
mod table;
mod work;

/// The module `ringway._ringway`.
#[pyo3::pymodule]
mod _ringway {
    #[pymodule_export]
    use crate::failure::{Error, UsageError};
    #[pymodule_export]
    use crate::lab::{
        Cells, Engine, build, builtin, catalogue, paper, run, set_program, sweep, version,
    };
    #[pymodule_export]
    use crate::link::Link;
    #[pymodule_export]
    use crate::sctp::Endpoint;
    #[pymodule_export]
    use crate::table::Table;
}
