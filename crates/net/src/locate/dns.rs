//! Asking DNS, by hickory. It only fetches; what to fetch is decided in [`order`](super::order).

use super::order::{Found, Naptr, Query, Server, Srv, Step, after_naptr, first_step, usable_srv};
use crate::route::source_for;
use futures_util::future::join_all;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use ringway_sansio::Transport;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest wait for one answer of a name server, and how often it is asked.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;

/// Hosts whose addresses are looked up for one query.
const MAX_HOSTS: usize = 32;

/// Addresses used of one host.
const MAX_ADDRESSES: usize = 16;

/// Of how many answers a negative one without a lifetime of its own is worth (RFC 2308 section 5
/// leaves it to us).
const NEGATIVE: Duration = Duration::from_secs(30);

/// Fetches records.
pub(crate) struct Fetcher {
    resolver: TokioResolver,
    ours: Vec<Transport>,
    ipv4: bool,
    ipv6: bool,
}

/// What came of one query.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) found: Found,
    /// How long DNS says that it holds.
    pub(crate) lifetime: Duration,
    /// Whether a name server failed to answer something, so that there may be more.
    pub(crate) failed: bool,
}

impl Fetcher {
    /// Asks these servers, or the system's where none are given.
    pub(crate) fn new(
        servers: &[SocketAddr],
        ours: Vec<Transport>,
        ipv4: bool,
        ipv6: bool,
    ) -> Result<Self, NetError> {
        let mut builder = if servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let servers = servers.iter().map(|addr| name_server(*addr)).collect();
            let config = ResolverConfig::from_name_servers(servers);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options: &mut ResolverOpts = builder.options_mut();
        options.timeout = TIMEOUT;
        options.attempts = ATTEMPTS;
        // What is worth remembering is remembered here, as hops.
        options.cache_size = 0;
        Ok(Fetcher { resolver: builder.build()?, ours, ipv4, ipv6 })
    }

    /// The transports we can send on, the best first.
    pub(crate) fn transports(&self) -> &[Transport] {
        &self.ours
    }

    /// All that DNS has to say about a query.
    pub(crate) async fn fetch(&self, query: &Query) -> Fetched {
        let mut asked = Asked { lifetime: Duration::MAX, failed: false };
        let mut step = first_step(query, &self.ours);
        if step == Step::Naptr {
            let records = self.records(&query.host, RecordType::NAPTR, &mut asked).await;
            let records: Vec<Naptr> = records.into_iter().filter_map(naptr).collect();
            step = after_naptr(query, &self.ours, &records);
        }
        let mut found = Found::default();
        match step {
            Step::Known(_) | Step::Nowhere | Step::Naptr => {}
            Step::Addresses(server) => found.server = Some(server),
            Step::Services(services, server) => {
                let lookups = services.iter().map(|service| async {
                    let mut asked = Asked { lifetime: Duration::MAX, failed: false };
                    let records = self.records(&service.name, RecordType::SRV, &mut asked).await;
                    (service.transport, records, asked)
                });
                for (transport, records, one) in join_all(lookups).await {
                    asked.join(one);
                    let records = usable_srv(records.into_iter().filter_map(srv).collect());
                    if !records.is_empty() {
                        found.services.push((transport, records));
                    }
                }
                if found.services.is_empty() {
                    found.server = Some(server);
                }
            }
        }
        found.addresses = self.addresses(&found, &mut asked).await;
        Fetched { found, lifetime: asked.lifetime, failed: asked.failed }
    }

    /// The addresses of every host that is named.
    async fn addresses(&self, found: &Found, asked: &mut Asked) -> HashMap<Box<str>, Vec<IpAddr>> {
        let mut hosts: Vec<&str> = Vec::new();
        let targets = found.services.iter().flat_map(|(_, records)| records);
        let targets = targets.map(|r| &*r.target);
        for host in targets.chain(found.server.iter().map(|s: &Server| &*s.host)) {
            if hosts.len() < MAX_HOSTS && !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let lookups = hosts.into_iter().map(|host| async move {
            let mut asked = Asked { lifetime: Duration::MAX, failed: false };
            let mut addresses = Vec::new();
            // RFC 6724 section 2.1, as far as it matters here: IPv6 first where there is a route.
            for (wanted, kind) in [(self.ipv6, RecordType::AAAA), (self.ipv4, RecordType::A)] {
                if wanted {
                    let records = self.records(host, kind, &mut asked).await;
                    addresses.extend(records.iter().filter_map(address));
                }
            }
            addresses.truncate(MAX_ADDRESSES);
            let (near, far): (Vec<_>, Vec<_>) =
                addresses.into_iter().partition(|ip| source_for(*ip).is_some());
            (Box::from(host), if near.is_empty() { far } else { near }, asked)
        });
        let mut all = HashMap::new();
        for (host, addresses, one) in join_all(lookups).await {
            asked.join(one);
            if !addresses.is_empty() {
                all.insert(host, addresses);
            }
        }
        all
    }

    /// The records of one kind at a name. None where there are none, and none where the name servers
    /// failed, which is noted.
    async fn records(&self, name: &str, kind: RecordType, asked: &mut Asked) -> Vec<RData> {
        let Some(name) = absolute(name) else { return Vec::new() };
        match self.resolver.lookup(name, kind).await {
            Ok(lookup) => {
                let fitting = lookup.answers().iter().filter(|r| r.record_type() == kind);
                let ttl = lookup.answers().iter().map(|r| r.ttl).min().unwrap_or(0);
                asked.lifetime = asked.lifetime.min(Duration::from_secs(ttl.into()));
                fitting.map(|r| r.data.clone()).collect()
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
                let lifetime =
                    none.negative_ttl.map_or(NEGATIVE, |ttl| Duration::from_secs(ttl.into()));
                asked.lifetime = asked.lifetime.min(lifetime);
                Vec::new()
            }
            Err(error) => {
                tracing::debug!(%error, "name servers failed");
                asked.failed = true;
                Vec::new()
            }
        }
    }
}

/// What was learned by the way.
struct Asked {
    lifetime: Duration,
    failed: bool,
}

impl Asked {
    fn join(&mut self, other: Asked) {
        self.lifetime = self.lifetime.min(other.lifetime);
        self.failed |= other.failed;
    }
}

fn name_server(addr: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = addr.port();
        connection
    });
    NameServerConfig::new(addr.ip(), true, connections.into())
}

/// A name of several labels is a whole one; a single label may be completed by the system's search
/// list, as other programs on the host do it.
fn absolute(name: &str) -> Option<Name> {
    let mut parsed = Name::from_ascii(name).ok()?;
    if parsed.num_labels() > 1 {
        parsed.set_fqdn(true);
    }
    Some(parsed)
}

fn text(name: &Name) -> Box<str> {
    let mut text = name.to_ascii();
    text.make_ascii_lowercase();
    text.trim_end_matches('.').into()
}

fn naptr(data: RData) -> Option<Naptr> {
    let RData::NAPTR(record) = data else { return None };
    Some(Naptr {
        order: record.order,
        preference: record.preference,
        replacement: text(&record.replacement),
        flags: record.flags,
        services: record.services,
        regexp: record.regexp,
    })
}

fn srv(data: RData) -> Option<Srv> {
    let RData::SRV(record) = data else { return None };
    Some(Srv {
        priority: record.priority,
        weight: record.weight,
        port: record.port,
        target: text(&record.target),
    })
}

fn address(data: &RData) -> Option<IpAddr> {
    match data {
        RData::A(ip) => Some(IpAddr::V4(ip.0)),
        RData::AAAA(ip) => Some(IpAddr::V6(ip.0)),
        _ => None,
    }
}
