//! The host: its name, its addresses, the directory of its state.

use crate::config::Host;
use nix::fcntl::OFlag;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::env;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the embedded store's file in the state directory.
pub const STORE_FILE: &str = "ringway.redb";

/// Returns the host's name in lower case; `localhost` if it has no name that is valid in a URI.
pub fn name() -> Host {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .and_then(|name| name.trim().parse().ok())
        .unwrap_or_else(|| Host("localhost".to_owned()))
}

/// Returns the addresses of all interfaces that are up, in a fixed order: IPv4 first, loopback last
/// within its family. Link-local IPv6 addresses are omitted: without an interface they are
/// ambiguous.
pub fn addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else { return vec![Ipv4Addr::LOCALHOST.into()] };
    let mut out: Vec<IpAddr> = interfaces
        .filter(|i| i.flags.contains(InterfaceFlags::IFF_UP))
        .filter_map(|i| i.address)
        .filter_map(|a| match (a.as_sockaddr_in(), a.as_sockaddr_in6()) {
            (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
            (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
            _ => None,
        })
        .filter(|ip| !is_link_local(*ip))
        .collect();
    out.sort_by_key(|ip| (ip.is_ipv6(), ip.is_loopback(), *ip));
    out.dedup();
    out
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Returns the address for a telephone on the same network: the source address of the default
/// route, or the first that is not loopback, or loopback.
pub fn address_for_phones(addresses: &[IpAddr]) -> IpAddr {
    // 192.0.2.1 (RFC 5737) belongs to no host: only the route is looked up, nothing is sent.
    let route = ringway_os::source_for(Ipv4Addr::new(192, 0, 2, 1).into())
        .or_else(|| ringway_os::source_for(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()));
    route
        .filter(|ip| !ip.is_loopback())
        .or_else(|| addresses.iter().copied().find(|ip| !ip.is_loopback()))
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Returns whether IPv6 sockets can be opened.
pub fn has_ipv6() -> bool {
    std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok()
}

/// Returns the state directory: `$STATE_DIRECTORY`; `$XDG_STATE_HOME/ringway`; for root
/// `/var/lib/ringway`; `~/.local/state/ringway`.
///
/// # Errors
/// Fails when none of these is known.
pub fn state_directory() -> io::Result<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(directory) = set("STATE_DIRECTORY") {
        // systemd separates several directories by colons.
        let text = directory.to_string_lossy();
        return Ok(PathBuf::from(text.split(':').next().unwrap_or_default()));
    }
    if let Some(directory) = set("XDG_STATE_HOME").filter(|d| d.is_absolute()) {
        return Ok(directory.join("ringway"));
    }
    if nix::unistd::geteuid().is_root() {
        return Ok("/var/lib/ringway".into());
    }
    set("HOME").map(|home| home.join(".local/state/ringway")).ok_or_else(|| {
        io::Error::other("no state directory: STATE_DIRECTORY, XDG_STATE_HOME and HOME are not set")
    })
}

/// Creates a directory with mode 0700, and its parents, where they do not exist. A directory that
/// root creates in another user's directory is given to that user.
///
/// # Errors
/// Fails when the system refuses.
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_private_directory(parent)?;
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => chown_to_owner_of(parent, &open_created(path)?),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}

/// Checks that a file could be created at this path. Leaves no file behind.
///
/// # Errors
/// Returns the error of the system.
pub fn check_creatable(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Permissions are not sufficient (a file system may be read-only, or /proc), so it is tried.
    let probe = directory.join(format!(".ringway-check-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&probe)?;
    std::fs::remove_file(&probe)
}

/// As root, changes the owner of a new file or directory to the owner of `parent`: a service of
/// that user must be able to use what an administrator created for it. Does nothing for other
/// users.
///
/// # Errors
/// Fails when the system refuses.
pub fn chown_to_owner_of(parent: &Path, made: &File) -> io::Result<()> {
    let owner = std::fs::metadata(parent)?;
    if !nix::unistd::geteuid().is_root() || owner.uid() == 0 {
        return Ok(());
    }
    std::os::unix::fs::fchown(made, Some(owner.uid()), Some(owner.gid()))
}

/// Opens a directory that was just created, without following a symbolic link.
fn open_created(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

/// Raises the limit of open files to the system's maximum, because each connection is one. Returns
/// the new limit.
pub fn raise_open_files() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return hard;
    }
    soft
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_a_name_and_loopback() {
        assert!(!name().0.is_empty());
        let addresses = addresses();
        assert!(addresses.contains(&Ipv4Addr::LOCALHOST.into()), "{addresses:?}");
        assert!(!address_for_phones(&addresses).is_unspecified());
    }

    #[test]
    fn files_may_be_opened() {
        assert!(raise_open_files() >= 256);
    }
}
