//! The tables of `docs/services-matrix.md`.

use core::fmt::Write;
use ringway_sansio::Time;
use ringway_services::explain::{Exclusion, Explanation, Requirement, Verdict};
use ringway_services::{
    Availability, Memory, Preconnection, Preference, Protocol, Provision, RemoteEndpoint,
    SecurityParameters, Service, TransportProperties, Unfit,
};

/// The columns: the three ways to carry SCTP provide the same.
const COLUMNS: [(Protocol, &str); 9] = [
    (Protocol::Tcp, "TCP"),
    (Protocol::Tls, "TLS"),
    (Protocol::Quic, "QUIC"),
    (Protocol::Mptcp, "MPTCP"),
    (Protocol::Udp, "UDP"),
    (Protocol::UdpLite, "UDP-Lite"),
    (Protocol::Sctp, "SCTP"),
    (Protocol::QuicDatagram, "QUIC DATAGRAM"),
    (Protocol::DccpUdp, "DCCP"),
];

const INTRODUCTION: &str = "\
# Services and protocols

Which protocols provide which service, and what is chosen when one or two services are required. The page is generated
and a test compares it with what it would be now:

```
cargo run -p ringway-services --example matrix > docs/services-matrix.md
```

[services.md](services.md) explains the services. SCTP stands for its three carriers: IP, UDP and the kernel's; all
provide the same.
";

const FACTS: &str = "
## What each protocol provides

`always`: it cannot be switched off. `on`, `off`: it can be switched, and what it is without a preference. `framed`: not by
the protocol, but by the framing of `ringway_services::framing` above it. `-`: never. The source of each entry is in
`crates/services/src/protocol/table.rs`. `useTemporaryLocalAddress` is not here: it depends on the path.
";

const SINGLE: &str = "
## One required service

Nothing else is preferred, not even what RFC 9622 prefers by default; all protocols are available, messages are safely
replayable and the peer uses framing. `+`: fits. `f`: fits with framing. `-`: does not provide it. `m`: it would be TCP,
because several paths are not asked for.
";

const PROFILES: &str = "
## Profiles

The defaults and profiles of RFC 9622 appendix B.2, each with security required, opportunistic and disabled. `-`: does not
fit.
";

const PAIRS: &str = "
## Two required services

As above; `1` and `2`: the first, the second does not fit; `12`: neither.
";

/// Returns the page.
pub(crate) fn page() -> String {
    let mut page = INTRODUCTION.to_string();
    page.push_str(FACTS);
    facts(&mut page);
    page.push_str(SINGLE);
    head(&mut page, "required");
    for service in services() {
        row(&mut page, service.name(), &[service], &requiring(&[service]));
    }
    page.push_str(PROFILES);
    head(&mut page, "profile, security");
    profiles(&mut page);
    page.push_str(PAIRS);
    head(&mut page, "1 and 2");
    let services: Vec<Service> = services().collect();
    for (index, one) in services.iter().enumerate() {
        for other in &services[index + 1..] {
            let name = format!("{one}, {other}");
            row(&mut page, &name, &[*one, *other], &requiring(&[*one, *other]));
        }
    }
    page
}

fn services() -> impl Iterator<Item = Service> {
    let services = Service::ALL.iter().copied();
    services.filter(|service| *service != Service::UseTemporaryLocalAddress)
}

fn requiring(services: &[Service]) -> Preconnection {
    let properties = TransportProperties::without_preferences();
    let require = |properties: TransportProperties, service: &Service| properties.require(*service);
    let mut properties = services.iter().fold(properties, require);
    properties.message.safely_replayable = true;
    Preconnection::new(properties, SecurityParameters::opportunistic())
}

fn facts(page: &mut String) {
    page.push_str("\n| service |");
    for (_, title) in COLUMNS {
        let _ = write!(page, " {title} |");
    }
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(COLUMNS.len()));
    page.push('\n');
    for service in services() {
        let _ = write!(page, "| {service} |");
        for (protocol, _) in COLUMNS {
            let word = match protocol.fact(service).provision {
                Provision::Always => "always",
                Provision::Settable { on: true } => "on",
                Provision::Settable { on: false } => "off",
                Provision::Framed => "framed",
                Provision::Never => "-",
            };
            let _ = write!(page, " {word} |");
        }
        page.push('\n');
    }
}

fn profiles(page: &mut String) {
    let profiles = [
        ("defaults", TransportProperties::new()),
        ("reliable-inorder-stream", TransportProperties::reliable_inorder_stream()),
        ("reliable-message", TransportProperties::reliable_message()),
        ("unreliable-datagram", TransportProperties::unreliable_datagram()),
    ];
    let modes = [
        ("required", SecurityParameters::new()),
        ("opportunistic", SecurityParameters::opportunistic()),
        ("disabled", SecurityParameters::disabled()),
    ];
    for (profile, properties) in profiles {
        for (mode, security) in &modes {
            let preconnection = Preconnection::new(properties.clone(), security.clone());
            row(page, &format!("{profile}, {mode}"), &[], &preconnection);
        }
    }
}

fn head(page: &mut String, first: &str) {
    let _ = write!(page, "\n| {first} |");
    for (_, title) in COLUMNS {
        let _ = write!(page, " {title} |");
    }
    page.push_str(" choice |\n|---|");
    page.push_str(&"---|".repeat(COLUMNS.len() + 1));
    page.push('\n');
}

/// Writes a row: what each protocol does about the required services, and what is chosen.
fn row(page: &mut String, name: &str, required: &[Service], preconnection: &Preconnection) {
    let peer = RemoteEndpoint::address(([192, 0, 2, 1], 5_000).into());
    let preconnection = preconnection.clone().to(peer);
    let ranked = preconnection.candidates(Time::ZERO, &Availability::all(), &Memory::new());
    let _ = write!(page, "| {name} |");
    let (explanation, choice) = match &ranked {
        Ok(ranked) => (&ranked.explanation, chosen(&ranked.explanation)),
        Err(unfit) => (&unfit.explanation, unfitting(unfit)),
    };
    for (protocol, _) in COLUMNS {
        let framed = ranked.iter().flat_map(|ranked| &ranked.candidates);
        let framed = framed.clone().any(|one| one.protocol == protocol && one.framed);
        let line = explanation.lines.iter().find(|line| line.protocol == protocol);
        let cell = match line.map(|line| &line.verdict) {
            Some(Verdict::Excluded(exclusions)) => excluded(exclusions, required),
            _ if framed => "f".to_string(),
            _ => "+".to_string(),
        };
        let _ = write!(page, " {cell} |");
    }
    let _ = writeln!(page, " {choice} |");
}

fn chosen(explanation: &Explanation) -> String {
    explanation.chosen().map(|line| format!("{line}")).unwrap_or_default()
}

fn unfitting(unfit: &Unfit) -> String {
    if unfit.suggestions.is_empty() {
        return "nothing fits, also without one of the requirements".into();
    }
    let mut text = "nothing fits".to_string();
    for suggestion in &unfit.suggestions {
        let titles: Vec<&str> = suggestion.protocols.iter().map(|one| one.title()).collect();
        let _ = write!(text, "; without {}: {}", suggestion.requirement, titles.join(", "));
    }
    text
}

/// Returns which of the required services exclude a protocol.
fn excluded(exclusions: &[Exclusion], required: &[Service]) -> String {
    let demands: Vec<Requirement> = exclusions.iter().flat_map(Exclusion::requirements).collect();
    let is_missing =
        |service: &Service| demands.contains(&Requirement::Service(*service, Preference::Require));
    let missing: Vec<usize> =
        (0..required.len()).filter(|index| is_missing(&required[*index])).collect();
    match (missing.as_slice(), required.len()) {
        ([], _) if demands.contains(&Requirement::SinglePath) => "m".into(),
        ([], _) | (_, 0 | 1) => "-".into(),
        (missing, _) => missing.iter().map(|index| (index + 1).to_string()).collect(),
    }
}
