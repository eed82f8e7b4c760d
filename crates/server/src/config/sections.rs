//! Each section of the file: its keys, their forms, defaults and limits.

use super::reach::{self, Names};
use super::reader::{Placed, Section, Shape, describe};
use super::shape::{Host, HttpAddr, Listen, Network, Span, Word};
use super::{MAX_DOMAINS, MAX_LISTEN, MAX_ORIGINS, MAX_ROUTES, MAX_TRUSTED, MAX_WORKERS, Settings};
use ringway_net::Origin;
use ringway_proxy::config::Mode;
use ringway_proxy::routes::{DomainMatch, MAX_NEXT_HOPS, NextHop, Rewrite, Rule, UserMatch};
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;

/// A domain with users of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainSettings {
    /// Its name; also the digest realm of its users.
    pub name: Host,
    /// Other names and addresses of it.
    pub aliases: Vec<Host>,
    /// How requests for it are treated.
    pub mode: Mode,
}

/// Whether users prove who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthMode {
    /// Anyone may be anyone.
    Off,
    /// Digest, RFC 8760.
    Digest,
}

/// A digest algorithm by its name on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashName {
    /// `MD5`
    Md5,
    /// `SHA-256`
    Sha256,
    /// `SHA-512-256`
    Sha512t256,
}

/// `[auth]`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthSettings {
    /// Off or digest.
    pub mode: AuthMode,
    /// Offered in this order.
    pub algorithms: Vec<HashName>,
    /// Whether `auth-int` is offered beside `auth`.
    pub auth_int: bool,
    /// Whether a user may write any From.
    pub any_from: bool,
    /// How long a nonce is good for.
    pub nonce_lifetime: Duration,
}

/// A certificate chain and its key, PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// The server name it is shown for; empty for all others.
    pub name: String,
    /// The chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// `[tls]`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsSettings {
    /// Shown to peers that ask for no name of `domains`.
    pub default: Option<Certificate>,
    /// Shown to peers that ask for their name.
    pub domains: Vec<Certificate>,
    /// Authorities that certify the servers we connect to; `None` for the system's.
    pub roots: Option<PathBuf>,
}

/// Which log lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// What failed.
    Error,
    /// And what is odd.
    Warn,
    /// And what happens: calls, registrations, reloads.
    Info,
    /// And why.
    Debug,
    /// And everything.
    Trace,
}

/// The form of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// `[log]`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// The least that is worth a line.
    pub level: LogLevel,
    /// Text or JSON.
    pub format: LogFormat,
}

/// `[limits]`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitSettings {
    /// Requests a second from one source address, for each worker; 0 is no limit.
    pub requests_per_source: u32,
    /// Requests a second from all; 0 is no limit.
    pub requests: u32,
    /// Contacts a request is forked to.
    pub forks: usize,
    /// Open connections.
    pub connections: usize,
    /// Open connections of one source address.
    pub connections_per_source: usize,
    /// A connection that carries nothing for this long is closed.
    pub idle: Duration,
    /// Time for a TLS or WebSocket handshake, or for a message once it has begun.
    pub handshake: Duration,
    /// How long a graceful stop waits for what is under way.
    pub drain: Duration,
}

/// `[registrar]`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrarSettings {
    /// Contacts one user may register.
    pub contacts_per_user: usize,
    /// Shorter registrations are refused (423).
    pub expires_min: Duration,
    /// When the user agent names none.
    pub expires_default: Duration,
    /// Longer registrations are shortened.
    pub expires_max: Duration,
    /// Service-Route elements, URIs without angle brackets (RFC 3608).
    pub service_route: Vec<String>,
}

/// `[websocket]`
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WebSocketSettings {
    /// The web pages that may open a WebSocket; `None` for those of our own hosts.
    pub origins: Option<Vec<Origin>>,
}

/// `[sctp]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SctpSettings {
    /// How soon a silent path is left.
    pub profile: SctpProfile,
}

/// The timers of associations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SctpProfile {
    /// Those RFC 9260 section 16 recommends.
    #[default]
    Standard,
    /// Those of signalling networks: a path that fails is left within 800 ms.
    Ss7,
}

impl Word for SctpProfile {
    const WORDS: &'static [(&'static str, Self)] =
        &[("standard", SctpProfile::Standard), ("ss7", SctpProfile::Ss7)];
}

/// `[timers]`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerSettings {
    /// Round-trip estimate (RFC 3261 section 17.1.1.1).
    pub t1: Duration,
    /// Longest retransmission interval.
    pub t2: Duration,
    /// How long a message may live in the network.
    pub t4: Duration,
    /// How long an INVITE may ring (RFC 3261 section 16.6 item 11).
    pub c: Duration,
}

impl Word for Mode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("proxy", Mode::Proxy), ("redirect", Mode::Redirect), ("stateless", Mode::Stateless)];
}

impl Word for AuthMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("digest", AuthMode::Digest), ("off", AuthMode::Off)];
}

impl std::str::FromStr for AuthMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        super::shape::word(text)
    }
}

impl Word for HashName {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("SHA-512-256", HashName::Sha512t256),
        ("SHA-256", HashName::Sha256),
        ("MD5", HashName::Md5),
    ];
}

impl Word for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("info", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("trace", LogLevel::Trace),
    ];
}

impl Word for LogFormat {
    const WORDS: &'static [(&'static str, Self)] =
        &[("text", LogFormat::Text), ("json", LogFormat::Json)];
}

/// A path.
struct File(PathBuf);

impl Shape for File {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(s) if !s.is_empty() => Ok(File(s.as_ref().into())),
            other => Err(format!("expected a file name in quotes, got {}", describe(other))),
        }
    }
}

/// The whole file.
pub(super) fn top(mut s: Section<'_, '_>) -> Settings {
    let listen = bounded::<Listen>(&mut s, "listen", MAX_LISTEN);
    for (i, one) in listen.iter().enumerate() {
        if listen[..i].iter().any(|l| l.value == one.value) {
            s.wrong(one.span.clone(), format!("listen: {} is there twice", one.value));
        } else if let Some(other) =
            listen[..i].iter().find(|l| reach::collide(&l.value, &one.value))
        {
            let what = format!("listen: {} needs the port of {}", one.value, other.value);
            s.wrong(one.span.clone(), what);
        }
    }
    let names = bounded::<Host>(&mut s, "domains", MAX_DOMAINS);
    let trusted = bounded::<Network>(&mut s, "trusted", MAX_TRUSTED);
    let http = s.or("http", HttpAddr(Some(([127, 0, 0, 1], 8060).into())));
    for one in listen.iter().filter(|l| reach::collides_with_pages(&l.value, http)) {
        s.wrong(one.span.clone(), format!("listen: {} needs the port of http", one.value));
    }
    let domains = domains(&mut s);
    let routes = routes(&mut s, &Names::new(&bare(&names), &domains));
    let settings = Settings {
        is_empty: s.is_empty(),
        listen: values(listen),
        names: values(names),
        mode: s.or("mode", Mode::Proxy),
        store: s.get("store"),
        workers: match s.number("workers", "threads", 0..=MAX_WORKERS, 0) {
            0 => None,
            n => Some(n),
        },
        http,
        trusted: values(trusted),
        record_route: s.or("record_route", true),
        auth: auth(s.section("auth")),
        tls: tls(s.section("tls")),
        log: log(s.section("log")),
        cdr: cdr(s.section("cdr")),
        limits: limits(s.section("limits")),
        registrar: registrar(s.section("registrar")),
        timers: timers(s.section("timers")),
        sctp: sctp(s.section("sctp")),
        domains,
        routes,
        websocket: websocket(s.section("websocket")),
    };
    needs_certificate(&s, &settings);
    s.finish();
    settings
}

fn bare<T: Clone>(list: &[Placed<T>]) -> Vec<T> {
    list.iter().map(|p| p.value.clone()).collect()
}

fn values<T>(list: Vec<Placed<T>>) -> Vec<T> {
    list.into_iter().map(|p| p.value).collect()
}

/// A list of at most `most`, empty when it is absent.
fn bounded<T: Shape>(s: &mut Section<'_, '_>, key: &'static str, most: usize) -> Vec<Placed<T>> {
    let mut list = s.list(key).unwrap_or_default();
    if let Some(first) = list.get(most) {
        let what = format!("{key}: expected at most {most}, got {}", list.len());
        s.wrong(first.span.clone(), what);
        list.truncate(most);
    }
    list
}

fn needs_certificate(s: &Section<'_, '_>, settings: &Settings) {
    let secure = settings.listen.iter().find(|l| l.transport.is_secure());
    if let (Some(listen), None) = (secure, &settings.tls.default) {
        let what = format!("{listen} needs a certificate: [tls] certificate and key are missing");
        s.wrong(0..0, what);
    }
}

fn auth(section: Option<Section<'_, '_>>) -> AuthSettings {
    let mut out = AuthSettings {
        mode: AuthMode::Digest,
        algorithms: vec![HashName::Md5],
        auth_int: true,
        any_from: false,
        nonce_lifetime: Duration::from_secs(300),
    };
    let Some(mut s) = section else { return out };
    out.mode = s.or("mode", out.mode);
    if let Some(list) = s.list::<HashName>("algorithms") {
        for (i, one) in list.iter().enumerate() {
            if list[..i].iter().any(|l| l.value == one.value) {
                s.wrong(one.span.clone(), "auth.algorithms: is there twice");
            }
        }
        if list.is_empty() {
            s.wrong(s.span(), "auth.algorithms: expected at least one");
        }
        out.algorithms = values(list);
    }
    out.auth_int = s.or("auth_int", out.auth_int);
    out.any_from = s.or("any_from", out.any_from);
    out.nonce_lifetime =
        s.duration("nonce_lifetime", Span::secs(10)..=Span::secs(86_400), Span::secs(300));
    s.finish();
    out
}

fn tls(section: Option<Section<'_, '_>>) -> TlsSettings {
    let mut out = TlsSettings::default();
    let Some(mut s) = section else { return out };
    let certificate = s.get::<File>("certificate");
    let key = s.get::<File>("key");
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let name = String::new();
            out.default = Some(Certificate { name, certificate: certificate.0, key: key.0 });
        }
        (None, None) => {}
        (Some(_), None) => s.wrong(s.span(), "tls.key is missing: a certificate needs its key"),
        (None, Some(_)) => {
            s.wrong(s.span(), "tls.certificate is missing: a key needs its certificate")
        }
    }
    out.roots = s.get::<File>("roots").map(|f| f.0);
    for mut d in s.sections("domain") {
        let name = d.placed::<Host>("name");
        if name.is_none() && !d.has("name") {
            d.wrong(d.span(), "tls.domain.name is missing");
        }
        if let Some(twice) =
            name.as_ref().filter(|n| out.domains.iter().any(|o| o.name == n.value.0))
        {
            d.wrong(twice.span.clone(), format!("tls.domain: {} is there twice", twice.value.0));
        }
        let name = name.map(|n| n.value);
        let certificate = d.required::<File>("certificate");
        let key = d.required::<File>("key");
        if let (Some(name), Some(certificate), Some(key)) = (name, certificate, key) {
            out.domains.push(Certificate { name: name.0, certificate: certificate.0, key: key.0 });
        }
        d.finish();
    }
    s.finish();
    out
}

fn log(section: Option<Section<'_, '_>>) -> LogSettings {
    let mut out = LogSettings { level: LogLevel::Info, format: LogFormat::Text };
    let Some(mut s) = section else { return out };
    out.level = s.or("level", out.level);
    out.format = s.or("format", out.format);
    s.finish();
    out
}

fn cdr(section: Option<Section<'_, '_>>) -> Option<PathBuf> {
    let mut s = section?;
    let path = s.required::<File>("path");
    s.finish();
    path.map(|file| file.0)
}

fn limits(section: Option<Section<'_, '_>>) -> LimitSettings {
    let mut out = LimitSettings {
        // No telephone comes near it, and a digest each is not yet two hundredths of a processor.
        requests_per_source: 1000,
        requests: 0,
        forks: 10,
        connections: 50_000,
        connections_per_source: 1000,
        idle: Duration::from_secs(1200),
        handshake: Duration::from_secs(10),
        drain: Duration::from_secs(30),
    };
    let Some(mut s) = section else { return out };
    let rate = "requests a second (0 is no limit)";
    out.requests_per_source =
        s.number("requests_per_source", rate, 0..=1_000_000, out.requests_per_source);
    out.requests = s.number("requests", rate, 0..=10_000_000, out.requests);
    out.forks = s.number("forks", "contacts", 1..=100, out.forks);
    out.connections = s.number("connections", "connections", 1..=1_000_000, out.connections);
    out.connections_per_source = s.number(
        "connections_per_source",
        "connections",
        1..=1_000_000,
        out.connections_per_source,
    );
    let day = Span::secs(86_400);
    out.idle = s.duration("idle", Span::secs(10)..=day, Span::secs(1200));
    out.handshake = s.duration("handshake", Span::secs(1)..=Span::secs(120), Span::secs(10));
    out.drain = s.duration("drain", Span::secs(0)..=day, Span::secs(30));
    s.finish();
    out
}

fn registrar(section: Option<Section<'_, '_>>) -> RegistrarSettings {
    let mut out = RegistrarSettings {
        contacts_per_user: 10,
        expires_min: Duration::from_secs(60),
        expires_default: Duration::from_secs(3600),
        expires_max: Duration::from_secs(7200),
        service_route: Vec::new(),
    };
    let Some(mut s) = section else { return out };
    out.contacts_per_user =
        s.number("contacts_per_user", "contacts", 1..=100, out.contacts_per_user);
    let any = Span::secs(1)..=Span::secs(30 * 86_400);
    out.expires_min = s.duration("expires_min", any.clone(), Span::secs(60));
    out.expires_default = s.duration("expires_default", any.clone(), Span::secs(3600));
    out.expires_max = s.duration("expires_max", any, Span::secs(7200));
    if out.expires_min > out.expires_default || out.expires_default > out.expires_max {
        s.wrong(
            s.span(),
            format!(
                "registrar: expected expires_min <= expires_default <= expires_max, got {}, {}, {}",
                Span(out.expires_min),
                Span(out.expires_default),
                Span(out.expires_max)
            ),
        );
    }
    let routes = s.list::<String>("service_route").unwrap_or_default();
    for route in &routes {
        sip_uri(&s, "registrar.service_route", route);
    }
    out.service_route = values(routes);
    s.finish();
    out
}

fn timers(section: Option<Section<'_, '_>>) -> TimerSettings {
    let mut out = TimerSettings {
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        t4: Duration::from_secs(5),
        c: Duration::from_secs(190),
    };
    let Some(mut s) = section else { return out };
    out.t1 = s.duration("t1", Span::ms(10)..=Span::secs(10), Span::ms(500));
    out.t2 = s.duration("t2", Span::ms(10)..=Span::secs(60), Span::secs(4));
    out.t4 = s.duration("t4", Span::ms(10)..=Span::secs(60), Span::secs(5));
    // RFC 3261 section 16.6 item 11: Timer C MUST be larger than three minutes.
    out.c = s.duration("c", Span::secs(181)..=Span::secs(3600), Span::secs(190));
    if out.t2 < out.t1 {
        let what = format!("timers.t2: expected at least t1, {}", Span(out.t1));
        s.wrong(s.span(), what);
    }
    s.finish();
    out
}

fn sctp(section: Option<Section<'_, '_>>) -> SctpSettings {
    let Some(mut s) = section else { return SctpSettings::default() };
    let profile = s.or("profile", SctpProfile::Standard);
    s.finish();
    SctpSettings { profile }
}

fn websocket(section: Option<Section<'_, '_>>) -> WebSocketSettings {
    let Some(mut s) = section else { return WebSocketSettings::default() };
    let mut origins = s.list::<Origin>("origins");
    if let Some(first) = origins.as_ref().and_then(|list| list.get(MAX_ORIGINS)) {
        s.wrong(first.span.clone(), format!("origins: expected at most {MAX_ORIGINS}"));
        origins = None;
    }
    s.finish();
    WebSocketSettings { origins: origins.map(values) }
}

fn domains(s: &mut Section<'_, '_>) -> Vec<DomainSettings> {
    let mut out: Vec<DomainSettings> = Vec::new();
    for mut d in s.sections("domain") {
        let name = d.required::<Host>("name");
        let aliases = values(d.list::<Host>("aliases").unwrap_or_default());
        let mode = d.or("mode", Mode::Proxy);
        if let Some(name) = name {
            let known = |h: &Host| out.iter().any(|o| o.name == *h || o.aliases.contains(h));
            if let Some(twice) = std::iter::once(&name).chain(&aliases).find(|h| known(h)) {
                d.wrong(d.span(), format!("domain: {} belongs to an earlier domain", twice.0));
            }
            out.push(DomainSettings { name, aliases, mode });
        }
        let span = d.span();
        if out.len() > MAX_DOMAINS {
            d.wrong(span, format!("domain: expected at most {MAX_DOMAINS}"));
            d.finish();
            break;
        }
        d.finish();
    }
    out
}

fn routes(s: &mut Section<'_, '_>, names: &Names<'_>) -> Vec<Rule> {
    let sections = s.sections("route");
    if let Some(first) = sections.get(MAX_ROUTES) {
        let what = format!("route: expected at most {MAX_ROUTES}, got {}", sections.len());
        first.wrong(first.span(), what);
    }
    let spans: Vec<_> = sections.iter().map(Section::span).collect();
    let rules: Vec<Rule> = sections.into_iter().take(MAX_ROUTES).map(rule).collect();
    for (i, span) in spans.into_iter().enumerate() {
        if let Some(why) = names.why_dead(&rules, i) {
            s.wrong(span, format!("route: {why}"));
        }
    }
    rules
}

fn rule(mut s: Section<'_, '_>) -> Rule {
    let domain = match s.placed::<String>("domain") {
        None => DomainMatch::Own,
        Some(p) => match p.value.as_str() {
            "own" => DomainMatch::Own,
            "foreign" => DomainMatch::Foreign,
            text => {
                let (below, name) = match text.strip_prefix("*.") {
                    Some(name) => (true, name),
                    None => (false, text),
                };
                match name.parse::<Host>() {
                    Ok(Host(name)) if below => DomainMatch::Below(format!(".{name}").into()),
                    Ok(Host(name)) => DomainMatch::Name(name.into()),
                    Err(_) => {
                        let what = format!(
                            "route.domain: expected \"own\", \"foreign\", a name or \"*.name\", got {text:?}"
                        );
                        s.wrong(p.span, what);
                        DomainMatch::Own
                    }
                }
            }
        },
    };
    let prefix = s.placed::<String>("prefix");
    let pattern = s.placed::<String>("pattern");
    let user = match (prefix, pattern) {
        (Some(_), Some(pattern)) => {
            s.wrong(pattern.span, "route: expected a prefix or a pattern, got both");
            UserMatch::Any
        }
        (Some(prefix), None) => UserMatch::Prefix(prefix.value.into()),
        (None, Some(pattern)) => {
            dial_pattern(&s, &pattern);
            UserMatch::Pattern(pattern.value.into())
        }
        (None, None) => UserMatch::Any,
    };
    let rewrite = Rewrite {
        strip: s.number("strip", "characters", 0..=64usize, 0),
        prepend: user_part(&mut s, "prepend"),
        domain: s.get::<Host>("to_domain").map(|h| h.0.into()),
    };
    let next_hops = next_hops(&mut s);
    let reject = match s.number("reject", "a final SIP status", 0..=699u16, 0) {
        0 => None,
        n if n < 400 => {
            s.wrong(s.span(), format!("route.reject: expected a status from 400 to 699, got {n}"));
            None
        }
        n => Some(n),
    };
    if reject.is_some() && !(next_hops.is_empty() && rewrite.is_identity()) {
        let what = "route: reject stands alone: next_hops, strip, prepend, to_domain are not used";
        s.wrong(s.span(), what);
    }
    if reject.is_none() && next_hops.is_empty() && rewrite.is_identity() {
        s.wrong(
            s.span(),
            "route: does nothing; expected next_hops, reject, strip, prepend or to_domain",
        );
    }
    let open = s.or("open", false);
    s.finish();
    Rule { domain, user, rewrite, next_hops, reject, open }
}

fn user_part(s: &mut Section<'_, '_>, key: &'static str) -> Box<str> {
    let Some(p) = s.placed::<String>(key) else { return "".into() };
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;?/%".contains(&b);
    if p.value.len() > 64 || !p.value.bytes().all(fine) {
        let what = format!(
            "route.{key}: expected at most 64 characters of a SIP user part, got {:?}",
            p.value
        );
        s.wrong(p.span, what);
    }
    p.value.into()
}

fn dial_pattern(s: &Section<'_, '_>, p: &Placed<String>) {
    let bytes = p.value.as_bytes();
    let fine = |(i, b): (usize, &u8)| match b {
        b'.' => i + 1 == bytes.len(),
        b'X' | b'Z' | b'N' | b'0'..=b'9' | b'+' | b'*' | b'#' => true,
        _ => b.is_ascii_lowercase(),
    };
    if let Some(rest) = p.value.strip_prefix('_') {
        let what = format!("route.pattern: expected no \"_\" in front, did you mean {rest:?}?");
        return s.wrong(p.span.clone(), what);
    }
    if bytes.is_empty() || bytes.len() > 64 || !bytes.iter().enumerate().all(fine) {
        let what = format!(
            "route.pattern: expected digits, + * #, lower-case letters, X (0-9), Z (1-9), N (2-9) \
             and a final . (one or more of any), got {:?}",
            p.value
        );
        s.wrong(p.span.clone(), what);
    }
}

fn next_hops(s: &mut Section<'_, '_>) -> Vec<NextHop> {
    let mut out = Vec::new();
    for mut hop in s.sections("next_hops") {
        let Some(uri) = hop.placed::<String>("uri") else {
            hop.wrong(hop.span(), "route.next_hops.uri is missing");
            hop.finish();
            continue;
        };
        sip_uri(&hop, "route.next_hops.uri", &uri);
        let priority = hop.number("priority", "a rank (lower first)", 0..=u16::MAX, 1);
        let weight = hop.number("weight", "a share of the load", 0..=u16::MAX, 1);
        if out.len() == MAX_NEXT_HOPS {
            hop.wrong(hop.span(), format!("route.next_hops: expected at most {MAX_NEXT_HOPS}"));
        }
        out.push(NextHop { uri: uri.value.into(), priority, weight });
        hop.finish();
    }
    out.truncate(MAX_NEXT_HOPS);
    out
}

/// Checks that a text is a SIP URI that may stand in a Route.
fn sip_uri(s: &Section<'_, '_>, key: &str, text: &Placed<String>) {
    let scheme = text.value.starts_with("sip:") || text.value.starts_with("sips:");
    let fine = |b: u8| b.is_ascii_graphic() && !b"<>\"".contains(&b);
    let parsed = ringway_sip::uri::Uri::parse(text.value.as_bytes()).is_ok();
    if !scheme || !text.value.bytes().all(fine) || !parsed {
        let what = format!(
            "{key}: expected a SIP URI such as \"sip:gw.example.net;transport=tcp\", got {:?}",
            text.value
        );
        s.wrong(text.span.clone(), what);
    }
}
