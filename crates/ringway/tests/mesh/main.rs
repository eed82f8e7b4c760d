//! `ringway mesh` as operators run it: routers in network namespaces of the test. What needs namespaces needs root;
//! without it such a test does nothing.

#![allow(clippy::unwrap_used)]

mod address;
mod lan;
mod line;
mod spaces;
