//! The functions of the C library that this library defines instead. What is not a socket of the broker's goes to the
//! C library's own.
//!
//! | file | functions |
//! |---|---|
//! | `open` | `socket`, `connect`, `shutdown` |
//! | `serve` | `bind`, `listen`, `accept`, `accept4` |
//! | `names` | `getsockname`, `getpeername` |
//! | `options` | `getsockopt`, `setsockopt` |
//! | `sending` | `send`, `sendto`, `sendmsg`, `sendmmsg` |
//! | `receiving` | `read`, `readv`, `recv`, `recvfrom`, `recvmsg`, `recvmmsg`, and those of _FORTIFY_SOURCE |
//! | `executing` | `execve`, `execv`, `execvp`, `execvpe`, `posix_spawn`, `posix_spawnp` |
//! | `direct` | `syscall`, and what sets io_uring up |

// The linker and C reach what Rust does not.
#![allow(unreachable_pub)]

mod direct;
mod executing;
mod names;
mod open;
mod options;
mod receiving;
mod sending;
mod serve;
