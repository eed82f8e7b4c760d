//! The library that `ringway with` loads into a program before all others (ld.so(8), LD_PRELOAD).
//!
//! A TCP socket that the program creates is a Unix stream socket here, which is connected to the broker instead of the
//! peer. After that the kernel does what the program asks for: reading, writing, waiting, duplicating, sharing and
//! closing need nothing of this library. It defines the functions of the C library that create and name sockets, their
//! options, and those that move data where a Unix socket would show: see `calls`.
//!
//! A socket of UDP stays one, and its peers' addresses are translated (`datagrams`).
//!
//! The library keeps no table of descriptors, so that there is none to be wrong after fork(2), execve(2) or the passing
//! of a descriptor: a socket is recognised by its name in the kernel (`descriptor`), and the broker knows the rest of it
//! (`broker`). Nothing allocates, locks or needs a thread; what may be called in a signal handler still may.
//!
//! Every function behaves as the C library's while [`ringway_with_wire::environment::VARIABLE`] is not set.

#![allow(unsafe_code)]

mod address;
mod broker;
mod calls;
mod datagrams;
mod descriptor;
mod environment;
mod errno;
mod real;
mod start;
mod system;
