//! Querying DNS, by hickory. Which records to fetch is decided in [`order`](super::order).

use super::order::{
    FetchResult, Naptr, Query, Records, Server, Service, Srv, Step, after_naptr, first_step,
    usable_srv,
};
use super::table::MAX_LIFETIME;
use futures_util::future::{join, join_all};
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Query as DnsQuery;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use ringway_os::source_for;
use ringway_sansio::Transport;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Maximum wait for one answer of the name servers, and the number of retries.
const TIMEOUT: Duration = Duration::from_millis(1_500);
const RETRIES: usize = 1;

/// Maximum number of hosts whose addresses are looked up for one query.
const MAX_HOSTS: usize = 32;

/// Maximum number of addresses used of one host.
const MAX_ADDRESSES: usize = 16;

/// Lifetime of a negative answer without a TTL (RFC 2308 section 5).
const NEGATIVE: Duration = Duration::from_secs(30);

/// Fetches records.
pub(crate) struct Fetcher {
    resolver: TokioResolver,
    hosts: Hosts,
    transports: Vec<Transport>,
    ipv4: bool,
    ipv6: bool,
}

impl Fetcher {
    /// Creates a fetcher that asks these servers, or the system's if there are none.
    pub(crate) fn new(
        servers: &[SocketAddr],
        transports: Vec<Transport>,
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
        // Answers are cached as hops, by `table`.
        options.cache_size = 0;
        // A host without the file has no hosts in it.
        let hosts = Hosts::from_system().unwrap_or_default();
        Ok(Fetcher { resolver: builder.build()?, hosts, transports, ipv4, ipv6 })
    }

    /// Returns the transports that can be sent on, the best first.
    pub(crate) fn transports(&self) -> &[Transport] {
        &self.transports
    }

    /// Fetches what the hosts file, or else DNS, has about a query.
    pub(crate) async fn fetch(&self, query: &Query) -> FetchResult {
        let mut status = LookupStatus::default();
        let mut step = first_step(query, &self.transports);
        let hosts = self.hosts_file(&query.host);
        if !hosts.is_empty() {
            // The hosts file of this host overrides DNS.
            if step == Step::Naptr {
                step = after_naptr(query, &self.transports, &[]);
            }
            let mut found = Records { server: step.server(), ..Records::default() };
            found.addresses.insert(query.host.clone(), hosts);
            return FetchResult { found, lifetime: MAX_LIFETIME, failed: false };
        }
        if step == Step::Naptr {
            let records = self.records(&query.host, RecordType::NAPTR, &mut status).await;
            let records: Vec<Naptr> = records.into_iter().filter_map(naptr).collect();
            step = after_naptr(query, &self.transports, &records);
        }
        let mut found = Records::default();
        match step {
            Step::Known(_) | Step::Nowhere | Step::Naptr => {}
            Step::Addresses(server) => {
                found.addresses = self.addresses(&[&*server.host], &mut status).await;
                found.server = Some(server);
            }
            Step::Services(services, server) => {
                self.services(services, server, &mut found, &mut status).await;
            }
        }
        FetchResult { found, lifetime: status.lifetime, failed: status.failed }
    }

    /// Fetches the SRV records of all services and the addresses of their targets. The addresses of the host
    /// itself are fetched at the same time: they are needed next where there are no SRV records.
    async fn services(
        &self,
        services: Vec<Service>,
        server: Server,
        found: &mut Records,
        status: &mut LookupStatus,
    ) {
        let lookups = services.iter().map(|service| async {
            let mut status = LookupStatus::default();
            let records = self.records(&service.name, RecordType::SRV, &mut status).await;
            (service.transport, records, status)
        });
        let mut plain_status = LookupStatus::default();
        let host = [&*server.host];
        let (answers, plain) =
            join(join_all(lookups), self.addresses(&host, &mut plain_status)).await;
        for (transport, records, one) in answers {
            status.join(&one);
            let records = usable_srv(records.into_iter().filter_map(srv).collect());
            if !records.is_empty() {
                found.services.push((transport, records));
            }
        }
        if found.services.is_empty() {
            status.join(&plain_status);
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
        found.addresses = self.addresses(&targets, status).await;
    }

    /// Fetches the addresses of hosts, IPv6 first where there is a route (RFC 6724 section 2.1, as far as it
    /// matters here). Addresses without a route are used only where no other is left.
    async fn addresses(
        &self,
        hosts: &[&str],
        status: &mut LookupStatus,
    ) -> HashMap<Box<str>, Vec<IpAddr>> {
        let lookups = hosts.iter().map(|host| async move {
            let listed = self.hosts_file(host);
            if !listed.is_empty() {
                return (Box::from(*host), listed, LookupStatus::default());
            }
            let (mut status, mut status4) = (LookupStatus::default(), LookupStatus::default());
            let v6 = self.records_if(self.ipv6, host, RecordType::AAAA, &mut status);
            let v4 = self.records_if(self.ipv4, host, RecordType::A, &mut status4);
            let (v6, v4) = join(v6, v4).await;
            status.join(&status4);
            let mut addresses: Vec<IpAddr> = v6.iter().chain(&v4).filter_map(address).collect();
            addresses.truncate(MAX_ADDRESSES);
            let (near, far): (Vec<_>, Vec<_>) =
                addresses.into_iter().partition(|ip| source_for(*ip).is_some());
            (Box::from(*host), if near.is_empty() { far } else { near }, status)
        });
        let mut all = HashMap::new();
        for (host, addresses, one) in join_all(lookups).await {
            status.join(&one);
            if !addresses.is_empty() {
                all.insert(host, addresses);
            }
        }
        all
    }

    /// Returns the addresses of a host in the hosts file, as read at the start.
    fn hosts_file(&self, host: &str) -> Vec<IpAddr> {
        let Some(name) = absolute(host) else { return Vec::new() };
        [(self.ipv6, RecordType::AAAA), (self.ipv4, RecordType::A)]
            .into_iter()
            .filter(|(enabled, _)| *enabled)
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
        enabled: bool,
        name: &str,
        kind: RecordType,
        status: &mut LookupStatus,
    ) -> Vec<RData> {
        if enabled { self.records(name, kind, status).await } else { Vec::new() }
    }

    /// Fetches the records of one kind at a name. Returns none where there are none, or where the name servers
    /// failed, which is recorded in `status`.
    async fn records(&self, name: &str, kind: RecordType, status: &mut LookupStatus) -> Vec<RData> {
        let Some(name) = absolute(name) else { return Vec::new() };
        match self.resolver.lookup(name, kind).await {
            Ok(lookup) => {
                let fitting = lookup.answers().iter().filter(|r| r.record_type() == kind);
                let ttl = lookup.answers().iter().map(|r| r.ttl).min().unwrap_or(0);
                status.lifetime = status.lifetime.min(Duration::from_secs(ttl.into()));
                fitting.map(|r| r.data.clone()).collect()
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(none))) => {
                let lifetime =
                    none.negative_ttl.map_or(NEGATIVE, |ttl| Duration::from_secs(ttl.into()));
                status.lifetime = status.lifetime.min(lifetime);
                Vec::new()
            }
            Err(error) => {
                tracing::debug!(%error, "name servers failed");
                status.failed = true;
                Vec::new()
            }
        }
    }
}

/// The lifetime and the failures of the lookups of a query.
struct LookupStatus {
    lifetime: Duration,
    failed: bool,
}

impl Default for LookupStatus {
    fn default() -> Self {
        LookupStatus { lifetime: Duration::MAX, failed: false }
    }
}

impl LookupStatus {
    fn join(&mut self, other: &LookupStatus) {
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

/// Parses a name. A name of several labels is absolute; a single label may be completed by the system's
/// search list, as in other programs on the host.
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
