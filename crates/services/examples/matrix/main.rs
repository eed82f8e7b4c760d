//! Prints `docs/services-matrix.md`: which services fit which protocols, and what is chosen.
//!
//!     cargo run -p ringway-services --example matrix > docs/services-matrix.md

#![expect(clippy::print_stdout, reason = "it is a program")]

mod table;

fn main() {
    print!("{}", table::page());
}
