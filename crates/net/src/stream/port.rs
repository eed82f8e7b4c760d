//! What a worker runs of SCTP for SIP: opened, then listening.

use crate::bind::Bound;
use crate::error::BindError;
use crate::listen::Bind;
use ringway_os::source_for;
use ringway_sansio::Transport;
use ringway_sctp_tokio::{
    Connect, Limits, Listener, OpenError, Scheduling, Settings, Stack, StackSockets,
};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Maximum length of a message over SCTP, in bytes.
pub const MAX_SCTP_MESSAGE: usize = ringway_sip::limits::MAX_MESSAGE;

/// What may wait in an association each way, in bytes: enough that a whole message is never taken
/// in parts, which it would be from half of this on.
const BUFFER: usize = 4 * MAX_SCTP_MESSAGE;

/// Maximum number of pairs of streams of one association that carry TLS, each with a connection of its own:
/// what two calls share by chance is seldom lost at once, and a peer costs no more than so many connections
/// of TLS.
pub(crate) const TLS_SESSIONS: u16 = 16;

/// Streams asked for each way: what two calls share by chance is rarely lost at once.
const STREAMS: u16 = 1024;

/// The packet that every path is taken to carry, and the one that each is probed for (RFC 8899): the
/// least of IPv6 (RFC 8200 section 5), and that of Ethernet.
const MTU: u16 = 1280;
const LARGEST_MTU: u16 = 1500;

/// How SCTP carries SIP, with the timers of `profile`: the streams take turns, so that no call waits
/// for the long message of another. Phones send too little for three later packets to show a loss, so
/// it is found by time (RFC 8985), and looked for on another path.
pub fn sctp_settings(profile: Settings) -> Settings {
    Settings {
        send_buffer: BUFFER,
        receive_buffer: BUFFER,
        outbound_streams: STREAMS,
        inbound_streams: STREAMS,
        scheduling: Scheduling::RoundRobin,
        mtu: MTU,
        largest_mtu: Some(LARGEST_MTU),
        rack: true,
        probe_elsewhere: true,
        ..profile
    }
}

/// The same for an association of a transport: RFC 3436 section 5 has a connection of TLS for each pair of
/// streams that is used, so there are no more than are served, and none is used that is not.
fn of_transport(settings: Settings, transport: Transport) -> Settings {
    if !transport.is_secure() {
        return settings;
    }
    let streams = TLS_SESSIONS;
    Settings { outbound_streams: streams, inbound_streams: streams, ..settings }
}

/// Addresses that are used together: an association from the first of ours to the first of a peer has both of each, and so
/// two paths, each of which is between addresses of the same position. With a wildcard an association has one address
/// otherwise.
#[derive(Clone, Copy, Debug)]
pub struct TwoAddresses {
    /// Ours.
    pub locals: [Ipv6Addr; 2],
    /// Returns the second address of a peer, if it has one, by its first.
    pub second: fn(Ipv6Addr) -> Option<Ipv6Addr>,
}

impl TwoAddresses {
    /// Returns our addresses and those of a peer, if the first ones lead to it.
    fn ends(&self, local: IpAddr, remote: IpAddr) -> Option<(Vec<IpAddr>, Vec<IpAddr>)> {
        let IpAddr::V6(first) = remote else { return None };
        let second = (self.second)(first).filter(|_| local == IpAddr::V6(self.locals[0]))?;
        Some((self.locals.map(IpAddr::V6).to_vec(), vec![remote, second.into()]))
    }
}

/// What a worker is to run of SCTP: opened, and not yet running.
pub(crate) struct SctpBinds {
    limits: Limits,
    settings: Settings,
    paths: Option<TwoAddresses>,
    opened: Vec<StackSockets>,
    /// Which of them is for listeners over IP.
    raw: Option<usize>,
    /// Index among the listeners, which of those opened, what to listen on.
    listeners: Vec<(usize, usize, Bind)>,
}

impl SctpBinds {
    /// Returns nothing opened, for so many associations with these settings.
    pub(crate) fn new(
        associations: usize,
        settings: Settings,
        paths: Option<TwoAddresses>,
    ) -> SctpBinds {
        let limits = Limits { associations, ..Limits::default() };
        let (opened, listeners) = (Vec::new(), Vec::new());
        SctpBinds { limits, settings, paths, opened, raw: None, listeners }
    }

    /// Which of those opened carries a listener already. A UDP port carries SCTP whatever its ports (RFC
    /// 6951 section 3), so listeners share it.
    pub(crate) fn known(&self, bind: &Bind) -> Option<usize> {
        match bind.encapsulation {
            None => self.raw,
            Some(udp) => self.opened.iter().position(|o| o.carries(&addresses(bind), udp)),
        }
    }

    /// Opens what a listener needs.
    pub(crate) fn bind(&mut self, index: usize, bind: &Bind) -> Result<Bound, BindError> {
        let failed = |error| BindError::Sctp { bind: Box::new(bind.clone()), error };
        if bind.encapsulation.is_none() {
            StackSockets::check(&addresses(bind)).map_err(failed)?;
        }
        let stack = match (bind.encapsulation, self.known(bind)) {
            (_, Some(known)) => known,
            (encapsulation, None) => {
                let opened = match encapsulation {
                    Some(port) => StackSockets::udp(&addresses(bind), port),
                    None => StackSockets::raw(),
                };
                self.opened.push(opened.map_err(failed)?);
                if encapsulation.is_none() {
                    self.raw = Some(self.opened.len() - 1);
                }
                self.opened.len() - 1
            }
        };
        let opened = &mut self.opened[stack];
        let port = opened.hold(bind.addr.port()).map_err(failed)?;
        let taken = |(_, other, bind): &(usize, usize, Bind)| {
            *other == stack && opened.udp_port().is_some() && bind.addr.port() == port
        };
        if self.listeners.iter().any(taken) {
            return Err(failed(OpenError::in_use(port)));
        }
        let bind = Bind {
            addr: SocketAddr::new(bind.addr.ip(), port),
            encapsulation: opened.udp_port(),
            ..bind.clone()
        };
        let listener = ringway_sansio::Listener { transport: bind.transport, addr: bind.addr };
        self.listeners.push((index, stack, bind));
        Ok(Bound { listener, sockets: Vec::new() })
    }

    /// Runs it. To be called within the worker's runtime.
    pub(crate) fn start(self) -> io::Result<Vec<(usize, SctpPort, Listener)>> {
        let (limits, settings, paths) = (self.limits, self.settings, self.paths);
        let start = |opened| Stack::start(opened, limits, settings).map_err(io::Error::other);
        let stacks: Vec<Stack> = self.opened.into_iter().map(start).collect::<io::Result<_>>()?;
        if let Some(paths) = paths {
            stacks.iter().for_each(|stack| stack.join_addresses(&paths.locals.map(IpAddr::V6)));
        }
        let listen = |(index, stack, bind): (usize, usize, Bind)| {
            let (stack, locals, port) = (stacks[stack].clone(), addresses(&bind), bind.addr.port());
            let (encapsulation, transport) = (bind.encapsulation, bind.transport);
            let settings = of_transport(settings, transport);
            let listener = stack.listen(&locals, port, Some(settings)).map_err(io::Error::other)?;
            let port = SctpPort { transport, settings, paths, stack, locals, port, encapsulation };
            Ok((index, port, listener))
        };
        self.listeners.into_iter().map(listen).collect()
    }
}

/// All the addresses of a listener.
fn addresses(bind: &Bind) -> Vec<IpAddr> {
    [bind.addr.ip()].into_iter().chain(bind.more.iter().copied()).collect()
}

/// The SCTP of one listener, with what is needed to open associations from it.
pub(crate) struct SctpPort {
    pub(crate) transport: Transport,
    settings: Settings,
    paths: Option<TwoAddresses>,
    pub(crate) stack: Stack,
    /// Our addresses; one may be a wildcard.
    pub(crate) locals: Vec<IpAddr>,
    pub(crate) port: u16,
    /// The UDP port of peers, in UDP: ours, because a network that chose another than the usual one
    /// chose it for all.
    pub(crate) encapsulation: Option<u16>,
}

impl SctpPort {
    /// What to open for a peer. From the port that is listened on, so that whoever of two servers
    /// opens the association, it is the one that both use. Not so with TLS, where who opens it is the
    /// client, and both may open one at once.
    pub(crate) fn connect(&self, transport: Transport, remote: SocketAddr) -> Option<Connect> {
        let wild = self.locals.iter().any(IpAddr::is_unspecified);
        let (locals, remotes) = if wild {
            let local = source_for(remote.ip())?;
            let both = self.paths.and_then(|paths| paths.ends(local, remote.ip()));
            both.unwrap_or_else(|| (vec![local], vec![remote.ip()]))
        } else {
            (self.locals.clone(), vec![remote.ip()])
        };
        let connect = Connect::new(&locals, &remotes, remote.port());
        let encapsulation = self.encapsulation.unwrap_or(connect.encapsulation);
        let local_port = if transport.is_secure() { 0 } else { self.port };
        let settings = Some(self.settings);
        Some(Connect { local_port, encapsulation, settings, ..connect })
    }
}
