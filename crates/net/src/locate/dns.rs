//! Asking DNS, by hickory. It only fetches; what to fetch is decided in [`order`](super::order).

use super::order::{
    Fetched, Found, Naptr, Query, Server, Service, Srv, Step, after_naptr, first_step, usable_srv,
};
use super::table::MAX_LIFETIME;
use crate::route::source_for;
use futures_util::future::{join, join_all};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query as DnsQuery;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use ringway_sansio::Transport;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest wait for one answer of the name servers, and how often they are asked again.
const TIMEOUT: Duration = Duration::from_millis(1_500);
const RETRIES: usize = 1;

/// Hosts whose addresses are looked up for one query.
const MAX_HOSTS: usize = 32;

/// Addresses used of one host.
const MAX_ADDRESSES: usize = 16;

/// How long a negative answer holds that comes without a lifetime of its own (RFC 2308 section 5).
const NEGATIVE: Duration = Duration::from_secs(30);

/// Fetches records.
pub(crate) struct Fetcher {
    resolver: TokioResolver,
    hosts: Hosts,
    ours: Vec<Transport>,
    ipv4: bool,
    ipv6: bool,
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
        options.attempts = RETRIES;
        // What is worth remembering is remembered here, as hops.
        options.cache_size = 0;
        // A host without the file has no hosts in it.
        let hosts = Hosts::from_system().unwrap_or_default();
        Ok(Fetcher { resolver: builder.build()?, hosts, ours, ipv4, ipv6 })
    }

    /// The transports we can send on, the best first.
    pub(crate) fn transports(&self) -> &[Transport] {
        &self.ours
    }

    /// All that the hosts file or else DNS has to say about a query.
    pub(crate) async fn fetch(&self, query: &Query) -> Fetched {
        let mut asked = Asked::default();
        let mut step = first_step(query, &self.ours);
        let hosts = self.hosts_say(&query.host);
        if !hosts.is_empty() {
            // Whoever administers this host has said where that one is.
            if step == Step::Naptr {
                step = after_naptr(query, &self.ours, &[]);
            }
            let mut found = Found { server: step.server(), ..Found::default() };
            found.addresses.insert(query.host.clone(), hosts);
            return Fetched { found, lifetime: MAX_LIFETIME, failed: false };
        }
        if step == Step::Naptr {
            let records = self.records(&query.host, RecordType::NAPTR, &mut asked).await;
            let records: Vec<Naptr> = records.into_iter().filter_map(naptr).collect();
            step = after_naptr(query, &self.ours, &records);
        }
        let mut found = Found::default();
        match step {
            Step::Known(_) | Step::Nowhere | Step::Naptr => {}
            Step::Addresses(server) => {
                found.addresses = self.addresses(&[&*server.host], &mut asked).await;
                found.server = Some(server);
            }
            Step::Services(services, server) => {
                self.services(services, server, &mut found, &mut asked).await;
            }
        }
        Fetched { found, lifetime: asked.lifetime, failed: asked.failed }
    }

    /// The SRV records of all services and the addresses they lead to. The addresses of the host
    /// itself are asked for at the same time: where there are no SRV records, or the name servers
    /// are slow to say so, they are what is needed next.
    async fn services(
        &self,
        services: Vec<Service>,
        server: Server,
        found: &mut Found,
        asked: &mut Asked,
    ) {
        let lookups = services.iter().map(|service| async {
            let mut asked = Asked::default();
            let records = self.records(&service.name, RecordType::SRV, &mut asked).await;
            (service.transport, records, asked)
        });
        let mut plain_asked = Asked::default();
        let host = [&*server.host];
        let (answers, plain) =
            join(join_all(lookups), self.addresses(&host, &mut plain_asked)).await;
        for (transport, records, one) in answers {
            asked.join(&one);
            let records = usable_srv(records.into_iter().filter_map(srv).collect());
            if !records.is_empty() {
                found.services.push((transport, records));
            }
        }
        if found.services.is_empty() {
            asked.join(&plain_asked);
            found.addresses = plain;
            found.server = Some(server);
            return;
        }
        let mut targets: Vec<&str> = Vec::new();
        for record in found.services.iter().flat_map(|(_, records)| records) {
            if targets.len() < MAX_HOSTS && !targets.contains(&&*record.target) {
                targets.push(&record.target);
            }
        }
        found.addresses = self.addresses(&targets, asked).await;
    }

    /// The addresses of hosts, IPv6 first where there is a route (RFC 6724 section 2.1, as far as it
    /// matters here), and those without a route only where no other is left.
    async fn addresses(&self, hosts: &[&str], asked: &mut Asked) -> HashMap<Box<str>, Vec<IpAddr>> {
        let lookups = hosts.iter().map(|host| async move {
            let known = self.hosts_say(host);
            if !known.is_empty() {
                return (Box::from(*host), known, Asked::default());
            }
            let (mut asked, mut asked4) = (Asked::default(), Asked::default());
            let v6 = self.records_if(self.ipv6, host, RecordType::AAAA, &mut asked);
            let v4 = self.records_if(self.ipv4, host, RecordType::A, &mut asked4);
            let (v6, v4) = join(v6, v4).await;
            asked.join(&asked4);
            let mut addresses: Vec<IpAddr> = v6.iter().chain(&v4).filter_map(address).collect();
            addresses.truncate(MAX_ADDRESSES);
            let (near, far): (Vec<_>, Vec<_>) =
                addresses.into_iter().partition(|ip| source_for(*ip).is_some());
            (Box::from(*host), if near.is_empty() { far } else { near }, asked)
        });
        let mut all = HashMap::new();
        for (host, addresses, one) in join_all(lookups).await {
            asked.join(&one);
            if !addresses.is_empty() {
                all.insert(host, addresses);
            }
        }
        all
    }

    /// What the hosts file, as it was at the start, says of a host.
    fn hosts_say(&self, host: &str) -> Vec<IpAddr> {
        let Some(name) = absolute(host) else { return Vec::new() };
        [(self.ipv6, RecordType::AAAA), (self.ipv4, RecordType::A)]
            .into_iter()
            .filter(|(wanted, _)| *wanted)
            .filter_map(|(_, kind)| {
                self.hosts.lookup_static_host(&DnsQuery::query(name.clone(), kind))
            })
            .flat_map(|lookup| {
                lookup.answers().iter().filter_map(|r| address(&r.data)).collect::<Vec<_>>()
            })
            .take(MAX_ADDRESSES)
            .collect()
    }

    async fn records_if(
        &self,
        wanted: bool,
        name: &str,
        kind: RecordType,
        asked: &mut Asked,
    ) -> Vec<RData> {
        if wanted { self.records(name, kind, asked).await } else { Vec::new() }
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

impl Default for Asked {
    fn default() -> Self {
        Asked { lifetime: Duration::MAX, failed: false }
    }
}

impl Asked {
    fn join(&mut self, other: &Asked) {
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
