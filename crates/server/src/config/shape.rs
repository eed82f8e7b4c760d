//! Value types of the configuration: listen URIs, networks, stores, hosts.

use super::database::DatabaseUri;
use super::read::text;
use super::users::{TableName, UserSource};
use ringway_lan::Ipv4Lan;
use ringway_media::config::{MIN_PORT, SPARE_PAIRS};
use ringway_net::{Bind, Origin};
use ringway_sansio::Transport;
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

macro_rules! from_text {
    ($($type:ty: $expected:literal;)+) => { $(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                text(from, $expected)
            }
        }
    )+ };
}

from_text! {
    Listen: "a URI in quotes, such as \"udp://0.0.0.0:5060\"";
    StoreKind: "\"memory\", \"redb:PATH\" or \"redis://HOST\"";
    HttpAddr: "ADDRESS:PORT in quotes or \"off\"";
    PhonebookAddr: "ADDRESS:PORT in quotes or \"off\"";
    Network: "an address or a block in quotes, such as \"192.0.2.0/24\"";
    Host: "a host name or an address in quotes";
    OriginText: "an origin in quotes";
    FileName: "a file name in quotes";
    PortRange: "a range of ports in quotes, such as \"20000-29999\"";
    LanNetwork: "ADDRESS/LENGTH in quotes, such as \"10.50.60.1/24\"";
    MeshTransport: "\"udp\", \"tcp\" or \"sctp\"";
    MeshPeer: "a router in quotes, such as \"udp://192.0.2.1\"";
    SourceText: "\"embedded\", \"postgresql://USER:PASSWORD@HOST/DATABASE\" or \"store\"";
    TableName: "the name of a table in quotes";
}

/// Minimum number of ports for media: those that are bound ahead of use, and as many again.
const MIN_MEDIA_PORTS: usize = 4 * SPARE_PAIRS;

/// A range of UDP ports, written `20000-29999`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortRange(pub RangeInclusive<u16>);

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (first, last) = text.split_once('-')?;
            Some((first.parse::<u16>().ok()?, last.parse::<u16>().ok()?))
        };
        match parse() {
            Some((first, last)) if first >= MIN_PORT && (first..=last).len() >= MIN_MEDIA_PORTS => {
                Ok(PortRange(first..=last))
            }
            _ => Err(format!(
                "expected at least {MIN_MEDIA_PORTS} ports from {MIN_PORT} on, such as \
                 \"20000-29999\", got {text:?}"
            )),
        }
    }
}

/// The IPv4 subnet of a LAN, by the address of the router in it.
pub(super) struct LanNetwork(pub(super) Ipv4Lan);

impl FromStr for LanNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(LanNetwork).map_err(|e: ringway_lan::SiteError| e.to_string())
    }
}

/// A router of a mesh that is reached through the network between.
pub(super) struct MeshPeer(pub(super) SocketAddr);

impl FromStr for MeshPeer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ringway_router::settings::parse_peer(text).map(MeshPeer)
    }
}

/// The transport of SIP between routers of a mesh.
pub(super) struct MeshTransport(pub(super) Transport);

impl FromStr for MeshTransport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "udp" => Ok(MeshTransport(Transport::Udp)),
            "tcp" => Ok(MeshTransport(Transport::Tcp)),
            "sctp" => Ok(MeshTransport(Transport::Sctp)),
            _ => Err(format!("expected \"udp\", \"tcp\" or \"sctp\", got {text:?}")),
        }
    }
}

/// An origin of web pages, as text.
pub(super) struct OriginText(pub(super) Origin);

impl FromStr for OriginText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(OriginText)
    }
}

/// A file name that is not empty.
pub(super) struct FileName(pub(super) PathBuf);

impl FromStr for FileName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("expected a file name in quotes, got \"\"".to_owned());
        }
        Ok(FileName(text.into()))
    }
}

/// Maximum number of addresses of one SCTP listener: the limit of an association (`docs/sctp.md`).
const MAX_ADDRESSES: usize = 16;

/// Default UDP port of SCTP over UDP (RFC 6951 section 3.1).
const ENCAPSULATION: u16 = 9899;

/// A listen URI: `udp://A:P`, `tcp://`, `tls://`, `ws://`, `wss://`, `sctp://A[,A2..]:P`,
/// `sctp+udp://A[,A2..]:P?encap=9899`, and the last two with TLS as `tls-sctp://`,
/// `tls-sctp+udp://`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Listen {
    /// Transport to listen for.
    pub transport: Transport,
    /// Address to bind; a wildcard stands for every address of its family.
    pub addr: SocketAddr,
    /// Further addresses of each association; SCTP only.
    pub more: Vec<IpAddr>,
    /// UDP port that carries SCTP (RFC 6951); `None` for SCTP directly over IP.
    pub encapsulation: Option<u16>,
}

impl Listen {
    /// Creates a listener at one address.
    pub const fn at(transport: Transport, addr: SocketAddr) -> Self {
        Listen { transport, addr, more: Vec::new(), encapsulation: None }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Bind::from(self.clone()).fmt(f)
    }
}

/// Converts a listener into the transports' form.
impl From<Listen> for Bind {
    fn from(listen: Listen) -> Self {
        let Listen { transport, addr, more, encapsulation } = listen;
        Bind { transport, addr, more, encapsulation }
    }
}

/// Parses `A[,A2..][:P]`, with IPv6 addresses in brackets.
fn addresses(mut text: &str) -> Option<(Vec<IpAddr>, Option<u16>)> {
    let mut out = Vec::new();
    loop {
        let (ip, rest) = match text.strip_prefix('[') {
            Some(v6) => {
                let (v6, rest) = v6.split_once(']')?;
                (IpAddr::V6(v6.parse().ok()?), rest)
            }
            None => {
                let (v4, rest) = text.split_at(text.find([',', ':']).unwrap_or(text.len()));
                (IpAddr::V4(v4.parse::<Ipv4Addr>().ok()?), rest)
            }
        };
        out.push(ip);
        match rest.as_bytes().first() {
            None => return Some((out, None)),
            Some(b',') => text = &rest[1..],
            Some(b':') => return Some((out, Some(rest[1..].parse().ok()?))),
            Some(_) => return None,
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected a URI such as \"udp://0.0.0.0:5060\", \"tls://[::]:5061\" or \
                 \"sctp://192.0.2.1,198.51.100.1:5060\" (udp, tcp, tls, ws, wss, sctp, sctp+udp, \
                 tls-sctp, tls-sctp+udp), got {text:?}"
            )
        };
        let (scheme, rest) = text.split_once("://").ok_or_else(expected)?;
        let transport = match scheme {
            "udp" => Transport::Udp,
            "tcp" => Transport::Tcp,
            "tls" => Transport::Tls,
            "ws" => Transport::Ws,
            "wss" => Transport::Wss,
            "sctp" | "sctp+udp" => Transport::Sctp,
            "tls-sctp" | "tls-sctp+udp" => Transport::TlsSctp,
            _ => return Err(expected()),
        };
        let sctp = matches!(transport, Transport::Sctp | Transport::TlsSctp);
        let (rest, encapsulation) = match (scheme.ends_with("+udp"), rest.split_once("?encap=")) {
            (true, None) => (rest, Some(ENCAPSULATION)),
            (true, Some((rest, port))) => {
                let port = port.parse().ok().filter(|p| *p != 0).ok_or_else(expected)?;
                (rest, Some(port))
            }
            _ => (rest, None),
        };
        let (mut ips, port) = addresses(rest).ok_or_else(expected)?;
        if !sctp && ips.len() > 1 {
            return Err(format!("{scheme} listens on one address, got {text:?}"));
        }
        if ips.len() > MAX_ADDRESSES {
            return Err(format!("expected at most {MAX_ADDRESSES} addresses, got {text:?}"));
        }
        if ips.len() > 1 && ips.iter().any(IpAddr::is_unspecified) {
            return Err(format!(
                "a wildcard cannot be combined with other addresses, got {text:?}"
            ));
        }
        if ips.iter().enumerate().any(|(i, ip)| ips[..i].contains(ip)) {
            return Err(format!("an address is listed twice, got {text:?}"));
        }
        if sctp && !ips.iter().all(is_of_one_host) {
            return Err(format!(
                "expected addresses of one host, not multicast, broadcast or link-local, got {text:?}"
            ));
        }
        if encapsulation.is_some() && port == Some(0) {
            return Err(format!("SCTP over UDP needs a fixed port, got {text:?}"));
        }
        // The default port of the transport.
        let addr = SocketAddr::new(ips.remove(0), port.unwrap_or(transport.default_port()));
        Ok(Listen { transport, addr, more: ips, encapsulation })
    }
}

/// Returns whether an association can use the address (RFC 9260 section 1.2; RFC 4007 section 6).
fn is_of_one_host(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_multicast() && !ip.is_unicast_link_local(),
    }
}

/// Kind of the store of users and registrations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// In memory: nothing is kept after the process ends.
    Memory,
    /// In one redb file.
    Redb(PathBuf),
    /// In a database that the nodes of a cluster share, beside a file of each node.
    Redis(Box<DatabaseUri>),
}

/// Why a build without the feature `cluster` has no such store.
pub const NO_DATABASE: &str = "this build has no store on Redis (feature cluster)";

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreKind::Memory => f.write_str("memory"),
            StoreKind::Redb(path) => write!(f, "redb:{}", path.display()),
            StoreKind::Redis(uri) => uri.fmt(f),
        }
    }
}

impl FromStr for StoreKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "memory" => Ok(StoreKind::Memory),
            Some(("redb", path)) if !path.is_empty() => Ok(StoreKind::Redb(path.into())),
            Some((scheme, _)) if scheme.starts_with("redis") => match cfg!(feature = "cluster") {
                true => Ok(StoreKind::Redis(Box::new(text.parse()?))),
                false => Err(NO_DATABASE.to_owned()),
            },
            _ => {
                let expected = "expected \"memory\", \"redb:PATH\" or \"redis://HOST\"";
                match text.split_once("://") {
                    // It may have a password.
                    Some((scheme, _)) => Err(format!("{expected}, got the scheme {scheme:?}")),
                    None if text.contains('@') => Err(format!("{expected}, got neither")),
                    None => Err(format!("{expected}, got {text:?}")),
                }
            }
        }
    }
}

/// Where users are, as text.
#[derive(Default)]
pub(super) struct SourceText(pub(super) UserSource);

impl FromStr for SourceText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let source = match text {
            "embedded" => UserSource::Embedded,
            "store" => UserSource::Store,
            _ if text.starts_with("postgresql://") || text.starts_with("postgres://") => {
                UserSource::Postgres(Box::new(text.parse()?))
            }
            // It may have a password.
            _ => {
                return Err("expected \"embedded\", \"postgresql://USER:PASSWORD@HOST/DATABASE\" \
                            or \"store\", got another text"
                    .to_owned());
            }
        };
        Ok(SourceText(source))
    }
}

/// The management address; `None` for `off`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpAddr(pub Option<SocketAddr>);

impl Default for HttpAddr {
    fn default() -> Self {
        HttpAddr(Some(([127, 0, 0, 1], 8060).into()))
    }
}

impl FromStr for HttpAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(HttpAddr(None));
        }
        match text.parse::<SocketAddr>() {
            Ok(addr) if addr.ip().is_loopback() => Ok(HttpAddr(Some(addr))),
            Ok(addr) => Err(format!(
                "management is served on loopback only: expected 127.0.0.1:PORT, [::1]:PORT or \
                 \"off\", got {addr}"
            )),
            Err(_) => Err(format!("expected ADDRESS:PORT or \"off\", got {text:?}")),
        }
    }
}

/// Where the phonebook is served, if it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhonebookAddr(pub Option<SocketAddr>);

impl FromStr for PhonebookAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(PhonebookAddr(None));
        }
        let address = text.parse().map(|address| PhonebookAddr(Some(address)));
        address.map_err(|_| format!("expected ADDRESS:PORT or \"off\", got {text:?}"))
    }
}

/// An address, or a block of addresses in CIDR notation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    /// The address, with its host bits zero.
    pub addr: IpAddr,
    /// Number of significant leading bits.
    pub prefix: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "expected an address or a block such as \"192.0.2.0/24\" or \"2001:db8::/32\", got {text:?}"
            )
        };
        let (addr, prefix) = match text.split_once('/') {
            Some((a, p)) => (a, Some(p.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| wrong())?;
        let width = if addr.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.unwrap_or(width);
        if prefix > width {
            return Err(wrong());
        }
        let network = Network { addr: mask(addr, prefix), prefix };
        if network.addr != addr {
            return Err(format!(
                "the host bits of {text:?} are not zero: did you mean \"{}/{prefix}\"?",
                network.addr
            ));
        }
        Ok(network)
    }
}

fn mask(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            let keep = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((a.to_bits() & keep).into())
        }
        IpAddr::V6(a) => {
            let keep = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((a.to_bits() & keep).into())
        }
    }
}

/// A host name or address as it may appear in a SIP URI, in lower case; IPv6 in brackets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host(pub String);

/// Maximum length of a host name (RFC 1035 section 2.3.4).
const MAX_HOST: usize = 253;

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Ok(Host(match ip {
                IpAddr::V4(a) => a.to_string(),
                IpAddr::V6(a) => format!("[{a}]"),
            }));
        }
        let label = |l: &str| {
            !l.is_empty()
                && l.len() <= 63
                && !l.starts_with('-')
                && !l.ends_with('-')
                && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.len() <= MAX_HOST && name.split('.').all(label) {
            Ok(Host(name.to_ascii_lowercase()))
        } else {
            Err(format!("expected a host name or an address, got {text:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_uris_are_parsed() {
        let l: Listen = "udp://0.0.0.0:5080".parse().unwrap();
        assert_eq!((l.transport, l.addr), (Transport::Udp, "0.0.0.0:5080".parse().unwrap()));
        let l: Listen = "tls://[::]".parse().unwrap();
        assert_eq!(l.to_string(), "tls://[::]:5061");
        for text in [
            "sctp://10.0.0.1:5060",
            "sctp://10.0.0.1,[2001:db8::1],10.1.0.1:5070",
            "sctp+udp://[::1],10.0.0.1:5060?encap=9900",
            "tls-sctp://10.0.0.1,10.1.0.1:5061",
            "tls-sctp+udp://10.0.0.1:5071?encap=9899",
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        let l: Listen = "sctp+udp://10.0.0.1,10.1.0.1".parse().unwrap();
        assert_eq!(l.to_string(), "sctp+udp://10.0.0.1,10.1.0.1:5060?encap=9899");
        for (text, part) in [
            ("sctp://10.0.0.1:5060?encap=9899", "expected a URI"),
            ("sctp+udp://10.0.0.1:5060?encap=0", "expected a URI"),
            ("sctp+udp://10.0.0.1:5060?encap=70000", "expected a URI"),
            ("sctp://10.0.0.1,:5060", "expected a URI"),
            ("sctp://10.0.0.1,0.0.0.0:5060", "a wildcard cannot be combined with other addresses"),
            ("sctp://10.0.0.1,10.0.0.1:5060", "an address is listed twice"),
            ("sctp+udp://[fe80::1]:5060", "expected addresses of one host"),
            ("sctp://10.0.0.1,224.0.0.1:5060", "expected addresses of one host"),
            ("sctp+udp://255.255.255.255:5060", "expected addresses of one host"),
            ("sctp://[ff02::1]:5060", "expected addresses of one host"),
            ("sctp+udp://127.0.0.1:0", "needs a fixed port"),
            ("tcp://10.0.0.1,10.0.0.2:5060", "tcp listens on one address"),
            ("udp:0.0.0.0:5060", "expected a URI"),
            ("udp://host:5060", "expected a URI"),
            ("udp://::1", "expected a URI"),
            ("http://127.0.0.1:80", "expected a URI"),
            ("udp://127.0.0.1:70000", "expected a URI"),
        ] {
            let e = text.parse::<Listen>().unwrap_err();
            assert!(e.contains(part) && e.contains(text), "{e}");
        }
    }

    #[test]
    fn networks_have_no_host_bits() {
        let n: Network = "10.1.0.0/16".parse().unwrap();
        assert_eq!(n.prefix, 16);
        assert_eq!("::1".parse::<Network>().unwrap().prefix, 128);
        assert_eq!("0.0.0.0/0".parse::<Network>().unwrap().prefix, 0);
        assert!("10.1.2.3/16".parse::<Network>().unwrap_err().contains("10.1.0.0/16"));
        assert!("10.0.0.0/33".parse::<Network>().is_err());
        assert!("example.org".parse::<Network>().is_err());
    }

    #[test]
    fn stores_and_http_addresses_are_parsed() {
        assert_eq!("redb:/x y".parse::<StoreKind>().unwrap(), StoreKind::Redb("/x y".into()));
        #[cfg(feature = "cluster")]
        assert_eq!("redis://a".parse::<StoreKind>().unwrap().to_string(), "redis://a:6379");
        #[cfg(not(feature = "cluster"))]
        assert_eq!("redis://a".parse::<StoreKind>(), Err(NO_DATABASE.to_owned()));
        assert!("redb:".parse::<StoreKind>().is_err());
        for wrong in ["redi://user:secret@db", "REDIS://:secret@db", "redb//user:secret@db"] {
            let error = wrong.parse::<StoreKind>().unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
        assert_eq!("off".parse::<HttpAddr>().unwrap().0, None);
        assert!("0.0.0.0:8060".parse::<HttpAddr>().unwrap_err().contains("loopback"));
    }

    #[test]
    fn hosts_are_parsed() {
        assert_eq!("Example.ORG.".parse::<Host>().unwrap().0, "example.org");
        assert_eq!("::1".parse::<Host>().unwrap().0, "[::1]");
        assert!("a b".parse::<Host>().is_err());
        assert!("sip:a@b".parse::<Host>().is_err());
    }
}
