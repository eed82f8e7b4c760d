//! A command behind a link: in a network namespace of its own, whose only way out is a TUN device.

use ringway_os::enter_new_network;
use ringway_os::netlink::{Netlink, NetlinkError, Route};
use ringway_os::tun::TunQueue;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::sync_channel;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;

/// Variable in which the command finds the address of this host behind the link.
pub const HOST: &str = "RINGWAY_HOST";
/// Number of subnets that are tried: 100.64.0.0/24 and the next (RFC 6598).
const SUBNETS: u8 = 255;

/// Why there is no command behind the link.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// A device cannot be opened.
    #[error("TUN device {name}: {error}; it takes CAP_NET_ADMIN and /dev/net/tun")]
    Device {
        /// Which.
        name: String,
        /// What failed.
        error: io::Error,
    },
    /// There is no namespace.
    #[error("new network namespace: {0}; it takes CAP_SYS_ADMIN")]
    Namespace(io::Error),
    /// It cannot be configured.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// All subnets are in use.
    #[error("no subnet of 100.64.0.0/16 is free")]
    Subnet,
    /// The command does not start.
    #[error("{command}: {error}")]
    Command {
        /// Which.
        command: String,
        /// What failed.
        error: io::Error,
    },
}

/// Opens a TUN device in the network namespace of the thread.
///
/// # Errors
/// The device cannot be opened.
pub(crate) fn open(name: &str) -> Result<TunQueue, NamespaceError> {
    let fail = |error| NamespaceError::Device { name: name.to_owned(), error };
    let mut queues = TunQueue::open(name, 1).map_err(fail)?;
    queues.pop().ok_or(io::ErrorKind::NotFound.into()).map_err(fail)
}

/// Addresses of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subnet(u8);

impl Subnet {
    /// Chooses a subnet in which this host has no address.
    fn choose(netlink: &mut Netlink) -> Result<Subnet, NamespaceError> {
        let addresses = netlink.addresses()?;
        let is_free = |number: &u8| {
            let taken = |ip: IpAddr| match ip {
                IpAddr::V4(v4) => v4.octets()[..3] == [100, 64, *number],
                IpAddr::V6(_) => false,
            };
            !addresses.iter().any(|address| taken(address.ip))
        };
        (0..SUBNETS).find(is_free).map(Subnet).ok_or(NamespaceError::Subnet)
    }

    /// Returns the addresses of this host (1) or of the command (2).
    pub(crate) fn addresses(self, end: u8) -> (Ipv4Addr, Ipv6Addr) {
        let v6 = Ipv6Addr::new(0xfd52, 0x5745, 0, self.0.into(), 0, 0, 0, end.into());
        (Ipv4Addr::new(100, 64, self.0, end), v6)
    }

    /// Adds addresses to a device, and brings it up.
    fn configure(
        self,
        netlink: &mut Netlink,
        device: &str,
        end: u8,
    ) -> Result<u32, NamespaceError> {
        let index = netlink.link(device)?.index;
        netlink.set_up(index)?;
        let (v4, v6) = self.addresses(end);
        netlink.add_address(index, v4, 24)?;
        // A host may have no IPv6.
        let _ = netlink.add_address(index, v6, 64);
        Ok(index)
    }
}

/// A command that runs behind a link.
#[derive(Debug)]
pub(crate) struct Behind {
    /// The device of this host, and that of the command.
    pub(crate) queues: [TunQueue; 2],
    pub(crate) child: Child,
    pub(crate) subnet: Subnet,
}

/// Opens both devices, the second in a new namespace, and starts a command there. It is killed when it is dropped. To be
/// called within a runtime.
///
/// # Errors
/// A [`NamespaceError`] that says what failed.
pub(crate) fn run_behind(
    names: &[String; 2],
    command: &[OsString],
) -> Result<Behind, NamespaceError> {
    let here = open(&names[0])?;
    let mut netlink = Netlink::open().map_err(NamespaceError::Namespace)?;
    let subnet = Subnet::choose(&mut netlink)?;
    subnet.configure(&mut netlink, &names[0], 1)?;
    // A thread of its own, because this one is to stay where it is.
    let (inside, command) = (names[1].clone(), command.to_vec());
    let (runtime, (done, result)) = (Handle::current(), sync_channel(1));
    let work = move || {
        let _inside = runtime.enter();
        // It is waited for.
        let _ = done.send(start_inside(&inside, subnet, &command));
    };
    std::thread::Builder::new()
        .name("inside".into())
        .spawn(work)
        .map_err(NamespaceError::Namespace)?;
    let ended = |_| NamespaceError::Namespace(io::ErrorKind::Other.into());
    let (there, child) = result.recv().map_err(ended)??;
    Ok(Behind { queues: [here, there], child, subnet })
}

/// Moves the thread into a new namespace, and starts the command in it.
fn start_inside(
    device: &str,
    subnet: Subnet,
    command: &[OsString],
) -> Result<(TunQueue, Child), NamespaceError> {
    enter_new_network().map_err(NamespaceError::Namespace)?;
    let queue = open(device)?;
    let mut netlink = Netlink::open().map_err(NamespaceError::Namespace)?;
    let loopback = netlink.link("lo")?.index;
    netlink.set_up(loopback)?;
    let index = subnet.configure(&mut netlink, device, 2)?;
    netlink.add_default_ipv4_route(index)?;
    let (destination, prefix_length) = (Ipv6Addr::UNSPECIFIED, 0);
    // As above.
    let _ = netlink.add_route(&Route {
        destination,
        prefix_length,
        interface: index,
        gateway: None,
        metric: 0,
    });
    let Some((program, arguments)) = command.split_first() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "expected a command");
        return Err(NamespaceError::Command { command: String::new(), error });
    };
    let child = Command::new(program)
        .args(arguments)
        .env(HOST, subnet.addresses(1).0.to_string())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| NamespaceError::Command {
            command: program.display().to_string(),
            error,
        })?;
    Ok((queue, child))
}
