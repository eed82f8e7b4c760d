//! Scenarios that are part of the program.

/// A scenario and its file.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// How it is called.
    pub name: &'static str,
    /// The text of its file.
    pub text: &'static str,
}

macro_rules! builtins {
    ($($name:literal),+ $(,)?) => {
        /// All of them.
        pub const ALL: &[Builtin] = &[
            $( Builtin { name: $name, text: include_str!(concat!("../scenarios/", $name, ".toml")) } ),+
        ];
    };
}

builtins![
    "gangurde-udp",
    "gangurde-tcp",
    "four-nodes",
    "lossy-bulk",
    "bufferbloat-drop-tail",
    "bufferbloat-codel",
    "bufferbloat-fq-codel",
    "bursty-loss",
    "jitter",
    "web",
    "cable-pulled",
    "fair-share",
    "m-d-1",
];

/// The one of that name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|b| b.name == name)
}
