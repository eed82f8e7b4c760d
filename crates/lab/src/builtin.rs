//! Scenarios and campaigns that are built into the program.

/// A built-in file.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Name of the scenario or campaign.
    pub name: &'static str,
    /// Text of its file.
    pub text: &'static str,
}

macro_rules! builtins {
    ($($name:literal),+ $(,)?) => {
        /// All built-in scenarios.
        pub const ALL: &[Builtin] = &[
            $( Builtin { name: $name, text: include_str!(concat!("../scenarios/", $name, ".toml")) } ),+
        ];
    };
}

builtins![
    "gangurde-udp",
    "gangurde-tcp",
    "gangurde-sctp",
    "hung-khanh-sctp",
    "hung-khanh-loss",
    "four-nodes",
    "lossy-bulk",
    "bufferbloat-drop-tail",
    "bufferbloat-codel",
    "bufferbloat-fq-codel",
    "bursty-loss",
    "jitter",
    "web",
    "cable-pulled",
    "two-cables",
    "head-of-line",
    "calls",
    "fair-share",
    "m-d-1",
];

/// Built-in scenarios of a growing mesh, which have no flows.
pub const MESHES: &[Builtin] =
    &[Builtin { name: "mesh-scale", text: include_str!("../scenarios/mesh-scale.toml") }];

/// Built-in scenarios of the users of a mesh.
pub const USERS: &[Builtin] = &[
    Builtin { name: "users-scale", text: include_str!("../scenarios/users-scale.toml") },
    Builtin { name: "users-attack", text: include_str!("../scenarios/users-attack.toml") },
    Builtin { name: "users-deputies", text: include_str!("../scenarios/users-deputies.toml") },
];

/// Returns the built-in scenario of that name.
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|b| b.name == name)
}

/// All built-in campaigns.
pub const CAMPAIGNS: &[Builtin] = &[
    Builtin {
        name: "loss-and-tcp",
        text: include_str!("../scenarios/campaigns/loss-and-tcp.toml"),
    },
    Builtin {
        name: "head-of-line-loss",
        text: include_str!("../scenarios/campaigns/head-of-line-loss.toml"),
    },
    Builtin {
        name: "hung-khanh-loss",
        text: include_str!("../scenarios/campaigns/hung-khanh-loss.toml"),
    },
    Builtin { name: "buffer-size", text: include_str!("../scenarios/campaigns/buffer-size.toml") },
    Builtin {
        name: "gangurde-udp-search",
        text: include_str!("../scenarios/campaigns/gangurde-udp-search.toml"),
    },
];
