//! What is done before the program runs: later it may not be allowed to, or in a signal handler.

use crate::{datagrams, environment, real};
use libc::{c_char, c_int};

/// Called by the dynamic linker before main().
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALISE: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = initialise;

extern "C" fn initialise(_: c_int, _: *const *const c_char, _: *const *const c_char) {
    real::resolve();
    environment::get();
    datagrams::prepare();
}
