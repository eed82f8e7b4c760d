//! Names the shared library, and has it stay loaded: its thread runs until the process ends.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libringway_pi.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
