//! The C compiler, the programs that it has made, and what a protocol needs.

use ringway_services_tokio::properties::Multipath;
use ringway_services_tokio::{
    Keyring, LocalEndpoint, Preconnection, Protocol, RemoteEndpoint, SecurityParameters, System,
    TransportProperties,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};

/// Programs, and certificates for them.
pub struct Build {
    folder: PathBuf,
    pub trust: PathBuf,
    pub identity: PathBuf,
}

/// C with all warnings; what is wrong with it or with what it does ends a program.
const FLAGS: [&str; 9] = [
    "-std=c11",
    "-D_GNU_SOURCE",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

static PEM: LazyLock<(String, String)> = LazyLock::new(|| {
    let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
});

/// Returns the folder that Cargo builds into, where the library is.
fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().to_path_buf()
}

/// Installs the library as packages do, and compiles all programs by what its pkg-config file says.
pub fn build() -> &'static Build {
    static BUILD: OnceLock<Build> = OnceLock::new();
    BUILD.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = built().join("ringway-c");
        std::fs::create_dir_all(&folder).unwrap();
        let prefix = folder.join("usr");
        let installed =
            Command::new(root.join("install")).arg(built()).env("PREFIX", &prefix).output();
        let installed = installed.unwrap();
        let error = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "cargo build -p ringway-c comes before: {error}");
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "ringway-pi"])
            .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
            .output();
        let flags = String::from_utf8(flags.unwrap().stdout).unwrap();
        for source in ["tests/c", "examples"] {
            for file in std::fs::read_dir(root.join(source)).unwrap() {
                let file = file.unwrap().path();
                if file.extension().is_some_and(|extension| extension == "c") {
                    compile(&file, &folder, flags.split_whitespace());
                }
            }
        }
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).unwrap();
            folder.join(name)
        };
        let (chain, key) = &*PEM;
        let trust = write("trust.pem", chain);
        let identity = write("identity.pem", &format!("{chain}{key}"));
        Build { trust, identity, folder }
    })
}

fn compile<'a>(file: &Path, folder: &Path, flags: impl Iterator<Item = &'a str>) {
    let program = folder.join(file.file_stem().unwrap());
    let mut command = Command::new("cc");
    command.args(FLAGS).arg(file).arg("-o").arg(program).args(flags);
    let library = folder.join("usr/lib");
    let status = command.arg(format!("-Wl,-rpath,{}", library.display())).status().unwrap();
    assert!(status.success(), "{}", file.display());
}

impl Build {
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.folder.join(name))
    }
}

pub fn is_secure(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Tls | Protocol::Quic | Protocol::QuicDatagram)
}

pub fn system() -> System {
    let (chain, key) = &*PEM;
    let (chain, key) = (chain.as_bytes(), key.as_bytes());
    let keyring = Keyring::new().with_identity("server", chain, key).unwrap();
    System::builder().keyring(keyring.with_roots(chain).unwrap()).own_memory().build().unwrap()
}

/// Returns a preconnection for one protocol.
pub fn only(system: &System, protocol: Protocol) -> Preconnection {
    use Protocol::{DccpUdp, QuicDatagram, Udp, UdpLite};
    let mut properties = match protocol {
        Udp | UdpLite | DccpUdp | QuicDatagram => TransportProperties::unreliable_datagram(),
        _ => TransportProperties::reliable_message(),
    };
    if protocol == Protocol::Mptcp {
        properties.selection.multipath = Some(Multipath::Active);
    }
    let security = match is_secure(protocol) {
        true => SecurityParameters::new(),
        false => SecurityParameters::disabled(),
    };
    let new = Preconnection::new(system, properties, security);
    let others = Protocol::ALL.iter().filter(|other| **other != protocol);
    others.fold(new, |preconnection, other| preconnection.without(*other))
}

/// Returns whether the host has a protocol, and prints why not.
pub fn has(protocol: Protocol) -> bool {
    let explained = only(&system(), protocol).to(peer(9)).explain();
    if let Err(unfit) = &explained {
        eprintln!("{protocol} is not tested: {unfit}");
    }
    explained.is_ok()
}

pub fn here(port: u16) -> LocalEndpoint {
    LocalEndpoint::address(SocketAddr::from(([127, 0, 0, 1], port)))
}

pub fn peer(port: u16) -> RemoteEndpoint {
    RemoteEndpoint::address(SocketAddr::from(([127, 0, 0, 1], port)))
}
