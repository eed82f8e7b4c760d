//! Checks of values against each other, and the conversion of a file into [`Settings`].

use super::reach::{self, Names};
use super::sections::{
    AuthSettings, Certificate, Cluster, Domain, DomainSettings, File, Hop, MAX_DOMAINS, MAX_LISTEN,
    MAX_ORIGINS, MAX_ROUTES, MAX_TRUSTED, Mesh, MeshService, RegistrarSettings, Route, RouteShare,
    Tls, TlsSettings, Users, WebSocket, WebSocketSettings,
};
use super::settings::Settings;
use super::shape::{Host, HttpAddr, Listen, MeshTransport, SourceText, StoreKind};
use super::span::Span;
use super::users::{NO_USERS_IN_STORE, UserSettings, UserSource};
use crate::cluster::ClusterSettings;
use crate::mesh::MeshSettings;
use ringway_directory::config::MAX_ANSWERERS;
use ringway_document::{Document, Problem};
use ringway_proxy::routes::{DomainMatch, MAX_NEXT_HOPS, NextHop, Rewrite, Rule, Share, UserMatch};

/// Maximum number of service numbers.
const MAX_SERVICES: usize = 16;

/// Reports contradictions in a file, each at the key that it concerns.
pub(super) struct Check<'a, 't> {
    pub(super) document: &'a Document<'t>,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl Check<'_, '_> {
    fn report(&mut self, path: &str, what: impl Into<String>) {
        self.problems.push(self.document.blame(path, what));
    }

    /// Truncates a list to `max` elements and reports it if it is longer.
    fn limit<T>(&mut self, path: &str, list: &mut Vec<T>, max: usize) {
        if list.len() > max {
            let what = format!("expected at most {max}, got {}", list.len());
            self.report(&format!("{path}.{}", max + 1), what);
            list.truncate(max);
        }
    }

    /// Checks the whole file and returns its settings.
    pub(super) fn settings(&mut self, mut file: File) -> Settings {
        self.limit("listen", &mut file.listen, MAX_LISTEN);
        self.limit("domains", &mut file.domains, MAX_DOMAINS);
        self.limit("trusted", &mut file.trusted, MAX_TRUSTED);
        self.listen(&file);
        let domains = self.domains(file.domain);
        let routes = self.routes(file.route, &Names::new(&file.domains, &domains));
        self.auth(&file.auth);
        self.registrar(&file.registrar);
        if let Some(mesh) = &mut file.mesh {
            self.services(&mut mesh.service);
            self.mesh_transport(mesh.transport.as_ref(), &file.listen);
        }
        if file.timers.t2 < file.timers.t1 {
            let what = format!("expected at least t1, {}", Span(file.timers.t1));
            self.report("timers.t2", what);
        }
        Settings {
            is_empty: self.document.sections().next().is_none(),
            listen: file.listen,
            names: file.domains,
            mode: file.mode,
            store: file.store.clone(),
            workers: (file.workers > 0).then_some(file.workers),
            http: file.http,
            trusted: file.trusted,
            record_route: file.record_route,
            auth: file.auth,
            tls: self.tls(file.tls),
            log: file.log,
            cdr: file.cdr.map(|cdr| cdr.path.0),
            limits: file.limits,
            registrar: file.registrar,
            timers: file.timers,
            sctp: file.sctp,
            domains,
            routes,
            websocket: self.websocket(file.websocket),
            media: file.media,
            mesh: file.mesh.map(mesh),
            users: self.users(file.users, file.store.as_ref()),
            cluster: cluster(file.cluster),
            phonebook: file.phonebook,
        }
    }

    fn listen(&mut self, file: &File) {
        let has_certificate = file.tls.certificate.is_some() || file.tls.key.is_some();
        for (i, one) in file.listen.iter().enumerate() {
            let path = format!("listen.{}", i + 1);
            let before = &file.listen[..i];
            if before.contains(one) {
                self.report(&path, format!("{one} is listed twice"));
            } else if let Some(other) = before.iter().find(|other| reach::collide(other, one)) {
                self.report(&path, format!("{one} needs the port of {other}"));
            }
            if reach::collides_with_pages(one, file.http) {
                self.report(&path, format!("{one} needs the port of http"));
            }
            for (name, of) in [("http", file.phonebook.http), ("ldap", file.phonebook.ldap)] {
                let address = HttpAddr(of.and_then(|address| address.0));
                if reach::collides_with_pages(one, address) {
                    self.report(&path, format!("{one} needs the port of phonebook.{name}"));
                }
            }
            let is_first = !before.iter().any(|other| other.transport.is_secure());
            if one.transport.is_secure() && is_first && !has_certificate {
                let what = "needs a certificate: [tls] certificate and key are missing";
                self.report(&path, format!("{one} {what}"));
            }
        }
    }

    fn auth(&mut self, auth: &AuthSettings) {
        for (i, one) in auth.algorithms.iter().enumerate() {
            if auth.algorithms[..i].contains(one) {
                self.report(&format!("auth.algorithms.{}", i + 1), "is listed twice");
            }
        }
        if auth.algorithms.is_empty() {
            self.report("auth.algorithms", "expected at least one");
        }
    }

    fn tls(&mut self, tls: Tls) -> TlsSettings {
        let mut out = TlsSettings { roots: tls.roots.map(|f| f.0), ..TlsSettings::default() };
        match (tls.certificate, tls.key) {
            (Some(certificate), Some(key)) => {
                let name = String::new();
                out.default = Some(Certificate { name, certificate: certificate.0, key: key.0 });
            }
            (None, None) => {}
            (Some(_), None) => self.report("tls", "key is missing: a certificate needs its key"),
            (None, Some(_)) => {
                self.report("tls", "certificate is missing: a key needs its certificate");
            }
        }
        for (i, domain) in tls.domain.into_iter().enumerate() {
            let name = domain.name.0;
            if out.domains.iter().any(|other| other.name == name) {
                self.report(
                    &format!("tls.domain.{}.name", i + 1),
                    format!("{name} is listed twice"),
                );
            }
            let (certificate, key) = (domain.certificate.0, domain.key.0);
            out.domains.push(Certificate { name, certificate, key });
        }
        out
    }

    fn registrar(&mut self, registrar: &RegistrarSettings) {
        let (min, max) = (registrar.expires_min, registrar.expires_max);
        let default = registrar.expires_default;
        if min > default || default > max {
            let what = "expected expires_min <= expires_default <= expires_max";
            let got = format!("{}, {}, {}", Span(min), Span(default), Span(max));
            self.report("registrar", format!("{what}, got {got}"));
        }
        for (i, route) in registrar.service_route.iter().enumerate() {
            self.sip_uri(&format!("registrar.service_route.{}", i + 1), route);
        }
    }

    /// `--store` may replace the store of the file, so that the users' is checked once more at start.
    fn users(&mut self, users: Users, store: Option<&StoreKind>) -> UserSettings {
        let Users { source: SourceText(source), table, refresh, roots } = users;
        let can_hold = |store: &StoreKind| matches!(store, StoreKind::Redis(uri) if !uri.cluster);
        if source == UserSource::Store && store.is_some_and(|store| !can_hold(store)) {
            self.report("users.source", NO_USERS_IN_STORE);
        }
        if table.is_some() && !matches!(source, UserSource::Postgres(_)) {
            self.report("users.table", "expected a source \"postgresql://..\" for a table");
        }
        UserSettings { source, table, refresh, roots: roots.map(|file| file.0) }
    }

    fn websocket(&mut self, websocket: WebSocket) -> WebSocketSettings {
        let origins = websocket.origins.map(|mut origins| {
            self.limit("websocket.origins", &mut origins, MAX_ORIGINS);
            origins.into_iter().map(|origin| origin.0).collect()
        });
        WebSocketSettings { origins }
    }

    fn domains(&mut self, mut domains: Vec<Domain>) -> Vec<DomainSettings> {
        self.limit("domain", &mut domains, MAX_DOMAINS);
        let mut out: Vec<DomainSettings> = Vec::new();
        for (i, Domain { name, aliases, mode }) in domains.into_iter().enumerate() {
            let known = |h: &Host| out.iter().any(|o| o.name == *h || o.aliases.contains(h));
            if let Some(twice) = std::iter::once(&name).chain(&aliases).find(|h| known(h)) {
                let what = format!("{} belongs to an earlier domain", twice.0);
                self.report(&format!("domain.{}", i + 1), what);
            }
            out.push(DomainSettings { name, aliases, mode });
        }
        out
    }

    /// Checks that answers of other routers can arrive. Without listeners in the file there are the usual ones.
    fn mesh_transport(&mut self, transport: Option<&MeshTransport>, listen: &[Listen]) {
        let Some(MeshTransport(transport)) = transport else { return };
        let is_it = |l: &Listen| l.transport == *transport && l.encapsulation.is_none();
        if !listen.is_empty() && !listen.iter().any(is_it) {
            let what = format!("expected a transport of listen, got {transport}");
            self.report("mesh.transport", what);
        }
    }

    fn services(&mut self, services: &mut Vec<MeshService>) {
        self.limit("mesh.service", services, MAX_SERVICES);
        for (i, service) in services.iter_mut().enumerate() {
            let path = format!("mesh.service.{}", i + 1);
            let (number, users) = (&service.number, &mut service.users);
            if !ringway_directory::statement::is_number(number) || number.contains('@') {
                let what = format!("expected 1 to 15 digits in quotes, got {number:?}");
                self.report(&format!("{path}.number"), what);
            }
            if users.is_empty() {
                self.report(&format!("{path}.users"), "expected the names of users, got none");
            }
            self.limit(&format!("{path}.users"), users, MAX_ANSWERERS);
            for (j, user) in users.iter().enumerate() {
                self.user_part(&format!("{path}.users.{}", j + 1), user);
            }
        }
    }

    fn routes(&mut self, mut routes: Vec<Route>, names: &Names<'_>) -> Vec<Rule> {
        self.limit("route", &mut routes, MAX_ROUTES);
        let mut rules = Vec::with_capacity(routes.len());
        for (i, route) in routes.into_iter().enumerate() {
            rules.push(self.rule(&format!("route.{}", i + 1), route));
        }
        for i in 0..rules.len() {
            if let Some(why) = names.unreachable_reason(&rules, i) {
                self.report(&format!("route.{}", i + 1), why);
            }
        }
        rules
    }

    fn rule(&mut self, path: &str, route: Route) -> Rule {
        let domain = self.domain(path, route.domain.as_deref());
        let user = match (route.prefix, route.pattern) {
            (Some(_), Some(_)) => {
                let what = "expected a prefix or a pattern, got both";
                self.report(&format!("{path}.pattern"), what);
                UserMatch::Any
            }
            (Some(prefix), None) => UserMatch::Prefix(prefix.into()),
            (None, Some(pattern)) => {
                self.dial_pattern(&format!("{path}.pattern"), &pattern);
                UserMatch::Pattern(pattern.into())
            }
            (None, None) => UserMatch::Any,
        };
        self.user_part(&format!("{path}.prepend"), &route.prepend);
        let rewrite = Rewrite {
            strip: route.strip,
            prepend: route.prepend.into(),
            domain: route.to_domain.map(|host| host.0.into()),
        };
        let next_hops = self.next_hops(&format!("{path}.next_hops"), route.next_hops);
        let reject = (route.reject > 0).then_some(route.reject);
        if let Some(status) = reject.filter(|status| *status < 400) {
            let what = format!("expected a status from 400 to 699, got {status}");
            self.report(&format!("{path}.reject"), what);
        }
        let has_effect = !next_hops.is_empty() || !rewrite.is_identity();
        if reject.is_some() && has_effect {
            let what = "reject cannot be combined with next_hops, strip, prepend or to_domain";
            self.report(path, what);
        }
        if reject.is_none() && !has_effect {
            let what = "has no effect; expected next_hops, reject, strip, prepend or to_domain";
            self.report(path, what);
        }
        if reject.is_some() && route.share.is_some() {
            self.report(&format!("{path}.share"), "share cannot be combined with reject");
        }
        let shared = route.share.map(|RouteShare { cost, capacity }| Share { cost, capacity });
        Rule { domain, user, rewrite, next_hops, reject, open: route.open, shared }
    }

    fn domain(&mut self, path: &str, domain: Option<&str>) -> DomainMatch {
        let text = match domain {
            None | Some("own") => return DomainMatch::Own,
            Some("foreign") => return DomainMatch::Foreign,
            Some(text) => text,
        };
        let below = text.strip_prefix("*.");
        match below.unwrap_or(text).parse::<Host>() {
            Ok(Host(name)) if below.is_some() => DomainMatch::Below(format!(".{name}").into()),
            Ok(Host(name)) => DomainMatch::Name(name.into()),
            Err(_) => {
                let what =
                    format!("expected \"own\", \"foreign\", a name or \"*.name\", got {text:?}");
                self.report(&format!("{path}.domain"), what);
                DomainMatch::Own
            }
        }
    }

    fn user_part(&mut self, path: &str, text: &str) {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/%".contains(&b);
        if text.len() > 64 || !text.bytes().all(fine) {
            let what = format!("expected at most 64 characters of a SIP user part, got {text:?}");
            self.report(path, what);
        }
    }

    fn dial_pattern(&mut self, path: &str, pattern: &str) {
        let bytes = pattern.as_bytes();
        let fine = |(i, b): (usize, &u8)| match b {
            b'.' => i + 1 == bytes.len(),
            b'X' | b'Z' | b'N' | b'0'..=b'9' | b'+' | b'*' | b'#' => true,
            _ => b.is_ascii_lowercase(),
        };
        if let Some(rest) = pattern.strip_prefix('_') {
            return self
                .report(path, format!("expected no \"_\" in front, did you mean {rest:?}?"));
        }
        if bytes.is_empty() || bytes.len() > 64 || !bytes.iter().enumerate().all(fine) {
            let what = format!(
                "expected digits, + * #, lower-case letters, X (0-9), Z (1-9), N (2-9) and a final . \
                 (one or more of any), got {pattern:?}"
            );
            self.report(path, what);
        }
    }

    fn next_hops(&mut self, path: &str, mut hops: Vec<Hop>) -> Vec<NextHop> {
        self.limit(path, &mut hops, MAX_NEXT_HOPS);
        for (i, hop) in hops.iter().enumerate() {
            self.sip_uri(&format!("{path}.{}.uri", i + 1), &hop.uri);
        }
        let hop = |Hop { uri, priority, weight }| NextHop { uri: uri.into(), priority, weight };
        hops.into_iter().map(hop).collect()
    }

    /// Checks that a text is a SIP URI that is valid in a Route header field.
    fn sip_uri(&mut self, path: &str, text: &str) {
        let scheme = text.starts_with("sip:") || text.starts_with("sips:");
        let fine = |b: u8| b.is_ascii_graphic() && !b"<>\"".contains(&b);
        let parsed = ringway_sip::uri::Uri::parse(text.as_bytes()).is_ok();
        if !scheme || !text.bytes().all(fine) || !parsed {
            let what = format!(
                "expected a SIP URI such as \"sip:gw.example.net;transport=tcp\", got {text:?}"
            );
            self.report(path, what);
        }
    }
}
/// Returns the node that a section describes.
fn cluster(section: Cluster) -> ClusterSettings {
    ClusterSettings {
        address: section.address,
        replicas: section.replicas,
        file: section.file.map(|file| file.0),
        roots: section.roots.map(|file| file.0),
    }
}

/// Returns the router that a section describes.
fn mesh(section: Mesh) -> MeshSettings {
    MeshSettings {
        interfaces: section.interfaces,
        peers: section.peers.into_iter().map(|peer| peer.0).collect(),
        lan: section.lan,
        lan_ipv4: section.lan_ipv4.map(|network| network.0),
        tun: section.tun,
        network_key: section.network_key.map(|file| file.0),
        state: section.state.map(|file| file.0),
        port: (section.port > 0).then_some(section.port),
        services: section.service.into_iter().map(|s| (s.number, s.users)).collect(),
        numbers: section.numbers,
        transport: section.transport.map(|transport| transport.0),
    }
}
