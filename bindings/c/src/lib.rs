//! The C API of the transport services: the functions that `include/ringway_pi.h` declares.
//!
//! A descriptor of a program is one end of a pair of Unix sockets. The other end belongs to a thread of the library, which
//! carries what it reads there over the transport that was chosen, and writes what the transport delivers. So readiness,
//! blocking, timeouts, duplicates and inheritance are the kernel's.
//!
//! Read `calls` for what each function does, `packet` for what travels between the two ends, `table` for what the library
//! knows of a descriptor, and `runtime` for the thread. `ffi` has the functions that C calls.
//! README.md says what holds after fork(2), which errors there are, and what is bounded.
//!
//! The thread has a table of descriptors of its own (close_range(2), `CLOSE_RANGE_UNSHARE`): a child does not inherit the
//! sockets of transports, and a program that closes all descriptors does not close them. So no handle of the runtime may
//! be used in another thread: waking the runtime writes to a descriptor by its number. Other threads reach it by
//! `control` alone.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod calls;
mod connection;
mod control;
mod end;
mod fault;
pub mod ffi;
mod link;
mod listener;
pub mod options;
mod packet;
mod runtime;
pub mod service;
mod system;
mod table;
mod world;
