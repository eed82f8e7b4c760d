//! The identity of this server: domains, addresses, and the To tags of responses without a transaction.

use crate::config::{Config, Domain};
use crate::keys::Purpose;
use hashbrown::HashMap;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

/// The maximum length of a host name that is looked up (RFC 1035 section 2.3.4).
const MAX_HOST: usize = 255;

/// The length of a To tag of ours.
pub const TAG_LEN: usize = 12;

/// The names and addresses of this server, from the configuration.
pub struct LocalIdentity {
    /// Lower-case names and literal addresses (IPv6 in brackets), to the index in `Config::domains`.
    names: HashMap<Box<[u8]>, usize>,
    ports: Vec<u16>,
    ips: Vec<IpAddr>,
    tag_key: [u8; 16],
}

impl LocalIdentity {
    /// Prepares the look-ups.
    pub fn new(config: &Config) -> LocalIdentity {
        let mut names = HashMap::new();
        for (i, Domain { name, aliases, .. }) in config.domains.iter().enumerate() {
            for n in std::iter::once(name).chain(aliases) {
                names.entry(n.to_ascii_lowercase().into_bytes().into_boxed_slice()).or_insert(i);
            }
        }
        let mut ips: Vec<IpAddr> = config.addresses.clone();
        ips.extend(config.listeners.iter().map(|l| l.addr.ip()).filter(|ip| !ip.is_unspecified()));
        ips.extend(config.mesh.map(|mesh| IpAddr::from(mesh.address)));
        ips.sort_unstable();
        ips.dedup();
        let mut ports: Vec<u16> = config.listeners.iter().map(|l| l.addr.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        LocalIdentity { names, ports, ips, tag_key: config.secret.key(Purpose::Tags) }
    }

    /// Returns the index in `Config::domains` of the domain that `host` names. A literal address of ours counts as the
    /// first domain.
    pub fn domain(&self, host: &[u8]) -> Option<usize> {
        if host.len() > MAX_HOST {
            return None;
        }
        let mut lower = [0; MAX_HOST];
        let lower = &mut lower[..host.len()];
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        // RFC 1034: a trailing dot means the same name.
        let lower = lower.strip_suffix(b".").unwrap_or(lower);
        if let Some(&i) = self.names.get(lower) {
            return Some(i);
        }
        let ip = parse_ip(lower)?;
        self.is_local_ip(ip).then_some(0)
    }

    /// Returns whether an address is one of this host's.
    pub fn is_local_ip(&self, ip: IpAddr) -> bool {
        self.ips.binary_search(&ip).is_ok()
    }

    /// Returns whether a listener has this port.
    pub fn listens_on(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Returns whether host and port of a URI are this server's. `local` is the address at which the request arrived,
    /// which is ours whatever the configuration.
    pub fn is_local(
        &self,
        host: &[u8],
        port: Option<u16>,
        default: u16,
        local: SocketAddr,
    ) -> bool {
        let port = port.unwrap_or(default);
        if let Some(ip) = parse_ip(host) {
            return (ip == local.ip() && port == local.port())
                || (self.ports.contains(&port) && self.is_local_ip(ip));
        }
        (self.ports.contains(&port) || port == default) && self.domain(host).is_some()
    }

    /// Returns the To tag of responses sent without a transaction (RFC 3261 section 8.2.7: the same for each copy of a
    /// request). An ACK with this tag is for such a response.
    pub fn tag(&self, call_id: &[u8]) -> [u8; TAG_LEN] {
        const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut h = SipHasher13::new_with_key(&self.tag_key);
        h.write_u8(b't');
        h.write(call_id);
        let mut sum = h.finish();
        let mut tag = [b't'; TAG_LEN];
        for c in &mut tag[1..] {
            *c = ALPHABET[(sum & 31) as usize];
            sum >>= 5;
        }
        tag
    }
}

/// Parses a host as an address; IPv6 with or without brackets.
pub fn parse_ip(host: &[u8]) -> Option<IpAddr> {
    // The first octet of most hosts shows whether they are a name or an address.
    match host.first()? {
        b'[' => {
            let inner = host.strip_prefix(b"[")?.strip_suffix(b"]")?;
            std::str::from_utf8(inner).ok()?.parse().ok().map(IpAddr::V6)
        }
        b'0'..=b'9' | b':' | b'a'..=b'f' | b'A'..=b'F' => {
            if host.len() > 45 {
                return None;
            }
            std::str::from_utf8(host).ok()?.parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> LocalIdentity {
        let mut config = crate::testing::config();
        config.domains[0].aliases = vec!["sip.example.org".into(), "[2001:db8::1]".into()];
        config.addresses = vec!["192.0.2.1".parse().unwrap()];
        LocalIdentity::new(&config)
    }

    #[test]
    fn names_and_addresses_of_the_domain() {
        let identity = identity();
        for host in ["example.org", "EXAMPLE.org.", "sip.Example.org", "192.0.2.1", "[2001:DB8::1]"]
        {
            assert_eq!(identity.domain(host.as_bytes()), Some(0), "{host}");
        }
        for host in ["example.com", "192.0.2.2", "", "org", "[2001:db8::2]"] {
            assert_eq!(identity.domain(host.as_bytes()), None, "{host}");
        }
    }

    #[test]
    fn us_is_host_and_port() {
        let identity = identity();
        let local: SocketAddr = "127.0.0.1:5099".parse().unwrap();
        assert!(identity.is_local(b"127.0.0.1", Some(5099), 5060, local));
        assert!(identity.is_local(b"192.0.2.1", None, 5060, local));
        assert!(identity.is_local(b"example.org", None, 5060, local));
        // A phone that shares our host but not our port is not this server.
        assert!(!identity.is_local(b"192.0.2.1", Some(7000), 5060, local));
        assert!(!identity.is_local(b"127.0.0.1", Some(5098), 5060, local));
    }

    #[test]
    fn tags_differ_by_call() {
        let identity = identity();
        assert_eq!(identity.tag(b"a"), identity.tag(b"a"));
        assert_ne!(identity.tag(b"a"), identity.tag(b"b"));
    }
}
