//! Tests of the problems reported for wrong files, and of the example configuration.

use super::*;
use ringway_net::Origins;
use ringway_proxy::routes::{DomainMatch, UserMatch};

fn problems(text: &str) -> Vec<String> {
    match Settings::parse("r.toml", text) {
        Ok(_) => Vec::new(),
        Err(list) => list.iter().map(ToString::to_string).collect(),
    }
}

/// Each file with the one problem that must be reported for it.
#[test]
fn each_problem_is_reported_at_its_key() {
    let table = [
        ("lisen = []", "r.toml:1:1: unknown key `lisen`; did you mean `listen`?"),
        (
            "[mesh]\ntransport = \"tls\"",
            "r.toml:2:13: mesh.transport: expected \"udp\", \"tcp\" or \"sctp\", got \"tls\"",
        ),
        (
            "listen = [\"udp://0.0.0.0:5060\"]\n[mesh]\ntransport = \"tcp\"",
            "r.toml:3:13: mesh.transport: expected a transport of listen, got TCP",
        ),
        (
            "\n[limits]\nidel = \"5m\"",
            "r.toml:3:1: limits: unknown key `idel`; did you mean `idle`?",
        ),
        (
            "[limits]\nidle = 5",
            "r.toml:2:8: limits.idle: expected a duration in quotes with its unit, such as \
             \"500ms\", \"32s\", \"5m\", \"1h\", \"7d\", got the number 5",
        ),
        (
            "[limits]\nidle = \"1s\"",
            "r.toml:2:8: limits.idle: expected a duration from 10s to 1d, got 1s",
        ),
        (
            "[limits]\nrequests = \"many\"",
            "r.toml:2:12: limits.requests: expected a whole number of requests a second (0 is no \
             limit), 0 to 10000000, got \"many\"",
        ),
        (
            "workers = 65",
            "r.toml:1:11: workers: expected a whole number of threads, 0 to 64, got the number 65",
        ),
        (
            "workers = 1.5",
            "r.toml:1:11: workers: expected a whole number of threads, 0 to 64, got the number 1.5",
        ),
        (
            "record_route = \"yes\"",
            r#"r.toml:1:16: record_route: expected true or false, got "yes""#,
        ),
        (
            "listen = \"udp://0.0.0.0:5060\"",
            "r.toml:1:10: listen: expected a list in [ ], got \"udp://0.0.0.0:5060\"",
        ),
        (
            "listen = [\"udp://0.0.0.0:5060\", 5]",
            "r.toml:1:33: listen.2: expected a URI in quotes, such as \"udp://0.0.0.0:5060\", got the number 5",
        ),
        (
            "listen = [\"udp://0.0.0.0:5060\", \"udp://0.0.0.0:5060\"]",
            "r.toml:1:33: listen.2: udp://0.0.0.0:5060 is listed twice",
        ),
        (
            "listen = [\"udp://10.0.0.1,10.0.0.2:5060\"]",
            "r.toml:1:11: listen.1: udp listens on one address, got \"udp://10.0.0.1,10.0.0.2:5060\"",
        ),
        (
            "listen = [\"tls://0.0.0.0:5061\"]",
            "r.toml:1:11: listen.1: tls://0.0.0.0:5061 needs a certificate: [tls] certificate and key are missing",
        ),
        ("auth = \"off\"", "r.toml:1:8: auth: expected a table, got \"off\""),
        ("[auth]\nmode = \"on\"", r#"r.toml:2:8: auth.mode: expected "digest" or "off", got "on""#),
        (
            "[auth]\nalgorithms = [\"SHA1\"]",
            r#"r.toml:2:15: auth.algorithms.1: expected "SHA-512-256" or "SHA-256" or "MD5", got "SHA1""#,
        ),
        ("[auth]\nalgorithms = []", "r.toml:2:14: auth.algorithms: expected at least one"),
        (
            "http = \"0.0.0.0:8060\"",
            "r.toml:1:8: http: management is served on loopback only: expected 127.0.0.1:PORT, \
             [::1]:PORT or \"off\", got 0.0.0.0:8060",
        ),
        (
            "trusted = [\"10.0.0.1/8\"]",
            "r.toml:1:12: trusted.1: the host bits of \"10.0.0.1/8\" are not zero: did you mean \"10.0.0.0/8\"?",
        ),
        (
            "store = \"disk\"",
            "r.toml:1:9: store: expected \"memory\", \"redb:PATH\" or \"redis://HOST\", got \"disk\"",
        ),
        (
            "domain = \"x.org\"",
            "r.toml:1:10: domain: expected tables, each under its name in [[ ]], got \"x.org\"",
        ),
        ("[[domain]]\nmode = \"proxy\"", "r.toml:1:1: domain.1: the key `name` is missing"),
        (
            "[[domain]]\nname = \"a.org\"\n[[domain]]\nname = \"b.org\"\naliases = [\"A.org\"]",
            "r.toml:3:1: domain.b.org: a.org belongs to an earlier domain",
        ),
        (
            "[tls]\ncertificate = \"c.pem\"",
            "r.toml:1:1: tls: key is missing: a certificate needs its key",
        ),
        (
            "[sctp]\nprofile = \"fast\"",
            r#"r.toml:2:11: sctp.profile: expected "standard" or "ss7", got "fast""#,
        ),
        (
            "[websocket]\norigins = [\"phone.example.com\"]",
            "r.toml:2:12: websocket.origins.1: expected an origin as \"https://phone.example.com\", \
             \"null\" or \"*\", got \"phone.example.com\"",
        ),
        (
            "[timers]\nc = \"3m\"",
            "r.toml:2:5: timers.c: expected a duration from 181s to 1h, got 3m",
        ),
        (
            "[registrar]\nexpires_min = \"2h\"",
            "r.toml:1:1: registrar: expected expires_min <= expires_default <= expires_max, got 2h, 1h, 2h",
        ),
        (
            "[[route]]\nprefix = \"0\"\npattern = \"0.\"\nreject = 403",
            "r.toml:3:11: route.1.pattern: expected a prefix or a pattern, got both",
        ),
        (
            "[[route]]\nprefix = \"0\"",
            "r.toml:1:1: route.1: has no effect; expected next_hops, reject, strip, prepend or to_domain",
        ),
        (
            "[[route]]\npattern = \"_0X.\"\nreject = 403",
            r#"r.toml:2:11: route.1.pattern: expected no "_" in front, did you mean "0X."?"#,
        ),
        (
            "[[route]]\npattern = \"0[1-9].\"\nreject = 403",
            "r.toml:2:11: route.1.pattern: expected digits, + * #, lower-case letters, X (0-9), Z (1-9), \
             N (2-9) and a final . (one or more of any), got \"0[1-9].\"",
        ),
        (
            "[[route]]\npattern = \"0.1\"\nreject = 403",
            "r.toml:2:11: route.1.pattern: expected digits, + * #, lower-case letters, X (0-9), Z (1-9), \
             N (2-9) and a final . (one or more of any), got \"0.1\"",
        ),
        (
            "[[route]]\nprefix = \"0\"\nreject = 403\n[[route]]\npattern = \"0900X.\"\nreject = 404",
            "r.toml:4:1: route.2: can never apply: rule 1 matches everything that this rule matches",
        ),
        (
            "domains = [\"a.org\", \"b.org\"]\n[[route]]\ndomain = \"b.org\"\nreject = 403",
            "r.toml:2:1: route.1: can never apply: b.org is an alias of a local domain, expected its first \
             name or \"own\"",
        ),
        (
            "domains = [\"a.org\"]\n[[route]]\ndomain = \"foreign\"\nreject = 403\n\
             [[route]]\ndomain = \"*.b.org\"\nreject = 404",
            "r.toml:5:1: route.2: can never apply: rule 1 matches everything that this rule matches",
        ),
        (
            "[[route]]\nreject = 403\nnext_hops = [{ uri = \"sip:gw.example.net\" }]",
            "r.toml:1:1: route.1: reject cannot be combined with next_hops, strip, prepend or to_domain",
        ),
        (
            "listen = [\"tcp://0.0.0.0:5060\", \"ws://127.0.0.1:5060\"]",
            "r.toml:1:33: listen.2: ws://127.0.0.1:5060 needs the port of tcp://0.0.0.0:5060",
        ),
        (
            "listen = [\"tcp://0.0.0.0:8060\"]",
            "r.toml:1:11: listen.1: tcp://0.0.0.0:8060 needs the port of http",
        ),
        (
            "[[route]]\nnext_hops = [{ uri = \"gw\" }]",
            "r.toml:2:22: route.1.next_hops.1.uri: expected a SIP URI such as \
             \"sip:gw.example.net;transport=tcp\", got \"gw\"",
        ),
    ];
    for (text, line) in table {
        assert_eq!(problems(text), [line], "{text}");
    }
}

#[test]
fn users_are_where_the_file_says() {
    let users = |text: &str| Settings::parse("r.toml", text).unwrap().users;
    assert_eq!(users("").source, UserSource::Embedded);
    assert_eq!(users("[users]\nsource = \"store\"").source, UserSource::Store);
    let shared = users(
        "[users]\nsource = \"postgresql://u:secret@db/x\"\ntable = \"subscriber\"\nrefresh = \"5s\"",
    );
    assert_eq!(shared.table.as_ref().unwrap().quoted(), "\"subscriber\"");
    assert_eq!(shared.refresh.as_secs(), 5);
    assert!(!format!("{shared:?}").contains("secret"), "{shared:?}");
    for (text, problem) in [
        (
            "store = \"memory\"\n[users]\nsource = \"store\"",
            "r.toml:3:10: users.source: expected a store \"redis://..\" with one primary for users in the store",
        ),
        (
            "store = \"redis+cluster://db\"\n[users]\nsource = \"store\"",
            "r.toml:3:10: users.source: expected a store \"redis://..\" with one primary for users in the store",
        ),
        (
            "[users]\ntable = \"subscriber\"",
            "r.toml:2:9: users.table: expected a source \"postgresql://..\" for a table",
        ),
        (
            "[users]\nsource = \"mysql://u:secret@db/x\"",
            "r.toml:2:10: users.source: expected \"embedded\", \"postgresql://USER:PASSWORD@HOST/DATABASE\" \
             or \"store\", got another text",
        ),
        (
            "[users]\nrefresh = \"100ms\"",
            "r.toml:2:11: users.refresh: expected a duration from 1s to 1d, got 100ms",
        ),
    ] {
        assert_eq!(problems(text), [problem]);
    }
}

#[test]
fn all_problems_are_reported_in_file_order() {
    let text = "workers = 99\nlisen = []\n[log]\nlevel = \"loud\"\n[timers]\nt2 = \"100ms\"\n";
    let list = problems(text);
    assert_eq!(list.len(), 4, "{list:?}");
    // Values are checked against each other even when other values cannot be read.
    assert!(list[3].starts_with("r.toml:6:6: timers.t2: expected at least t1"), "{list:?}");
    assert!(list[0].starts_with("r.toml:1:") && list[1].starts_with("r.toml:2:"));
    assert!(list[2].starts_with("r.toml:4:9: log.level"));
}

#[test]
fn a_syntax_error_has_line_and_column() {
    let list = problems("listen = [\nworkers 3\n");
    assert!(!list.is_empty());
    assert!(list[0].starts_with("r.toml:"), "{list:?}");
    let twice = problems("workers = 1\nworkers = 2\n");
    assert!(twice[0].starts_with("r.toml:2:1: duplicate key"), "{twice:?}");
}

#[test]
fn the_number_of_problems_is_bounded() {
    let text: String = (0..200).map(|i| format!("k{i} = 1\n")).collect();
    let list = problems(&text);
    assert_eq!(list.len(), MAX_PROBLEMS + 1);
    assert_eq!(list[MAX_PROBLEMS], "r.toml: further problems are not shown");
}

#[test]
fn columns_count_characters() {
    assert!(problems("\"é\" = 1")[0].starts_with("r.toml:1:1: unknown key"));
    assert!(problems("listen = [\"é\", 5]")[1].starts_with("r.toml:1:16:"));
}

#[test]
fn the_example_has_the_default_values() {
    let text = include_str!("../../../../docs/ringway.example.toml");
    let s = Settings::parse("docs/ringway.example.toml", text)
        .unwrap_or_else(|e| panic!("{}", e.iter().map(|p| format!("{p}\n")).collect::<String>()));
    let d = Settings::default();
    assert_eq!(s.auth, d.auth);
    assert_eq!(s.limits, d.limits);
    assert_eq!(s.timers, d.timers);
    assert_eq!(s.log, d.log);
    assert_eq!(s.http, d.http);
    assert_eq!(s.registrar, d.registrar);
    assert_eq!(s.media, d.media);
    assert_eq!(s.record_route, d.record_route);
}

/// The keys that the example keeps commented out are valid too.
#[test]
fn the_uncommented_example_is_valid() {
    let text = include_str!("../../../../docs/ringway.example.toml");
    let text: String =
        text.lines().map(|l| l.strip_prefix("#: ").unwrap_or(l)).flat_map(|l| [l, "\n"]).collect();
    let s = Settings::parse("docs/ringway.example.toml", &text)
        .unwrap_or_else(|e| panic!("{}", e.iter().map(|p| format!("{p}\n")).collect::<String>()));
    assert!(s.routes.len() >= 4);
    assert_eq!(s.domains.len(), 1);
    assert_eq!(s.tls.domains.len(), 1);
}

/// Every key of the example is documented, and no other.
#[test]
fn every_key_is_documented() {
    let docs = include_str!("../../../../docs/configuration.md");
    let example = include_str!("../../../../docs/ringway.example.toml");
    for line in example.lines() {
        let line = line.strip_prefix("#: ").unwrap_or(line);
        let Some((key, _)) = line.split_once(" = ") else { continue };
        if key.starts_with('#') || key.contains(' ') {
            continue;
        }
        assert!(docs.contains(&format!("`{key}`")), "{key} is not in docs/configuration.md");
    }
}

/// A router of a mesh relays media unless it is configured not to; other servers do not.
#[test]
fn media_is_relayed_in_a_mesh_or_when_configured() {
    let relays = |text: &str| {
        let settings = Settings::parse("r.toml", text).unwrap();
        let config = crate::setup::proxy(&settings, None, &[], 1, &[0; 32]);
        (settings.relays_media(), config.record_route)
    };
    let mesh = "record_route = false\n[mesh]\n";
    assert_eq!(relays("record_route = false"), (false, false));
    assert_eq!(relays(mesh), (true, true));
    assert_eq!(relays("record_route = false\n[media]\nrelay = \"on\""), (true, true));
    assert_eq!(relays(&format!("{mesh}[media]\nrelay = \"off\"")), (false, false));
}

#[test]
fn ports_for_media_are_checked() {
    for ports in ["20000", "29999-20000", "80-9000", "20000-20254", "20000-70000", ""] {
        let problem = problems(&format!("[media]\nports = \"{ports}\""));
        let expected = format!(
            "r.toml:2:9: media.ports: expected at least 256 ports from 1024 on, such as \
             \"20000-29999\", got {ports:?}"
        );
        assert_eq!(problem, [expected]);
    }
    let s = Settings::parse("r.toml", "[media]\nports = \"20000-20255\"").unwrap();
    assert_eq!(s.media.ports.0, 20_000..=20_255);
}

/// RFC 6455 section 10.2: without configured origins, not every page may open a WebSocket.
#[test]
fn origins_are_local_or_configured() {
    let origins = |text: &str| {
        let settings = Settings::parse("r.toml", text).unwrap();
        let config = crate::setup::proxy(&settings, None, &[], 1, &[0; 32]);
        crate::setup::origins(&settings, &config)
    };
    let local = "domains = [\"Example.com\", \"192.0.2.1\"]\n[[domain]]\nname = \"b.org\"\naliases = [\"c.org\"]";
    let hosts = ["example.com", "192.0.2.1", "b.org", "c.org"].map(Box::from);
    assert_eq!(origins(local), Origins::OfHosts(hosts.into()));
    let listed = origins("[websocket]\norigins = [\"https://A.org\", \"null\"]");
    let expected = ["https://a.org", "null"].map(|o| o.parse().unwrap());
    assert_eq!(listed, Origins::Listed(expected.into()));
    assert_eq!(origins("[websocket]\norigins = []"), Origins::Listed(Vec::new()));
}

#[test]
fn routes_become_rules() {
    let s = Settings::parse(
        "r.toml",
        r#"
        [[route]]
        domain = "*.Example.NET"
        pattern = "0NXX."
        strip = 1
        prepend = "+49"
        next_hops = [
          { uri = "sip:a.example.net", priority = 1, weight = 3 },
          { uri = "sip:b.example.net;transport=tcp", priority = 2 },
        ]
        [[route]]
        prefix = "0900"
        reject = 403
        "#,
    )
    .unwrap();
    assert_eq!(s.routes[0].domain, DomainMatch::Below(".example.net".into()));
    assert_eq!(s.routes[0].user, UserMatch::Pattern("0NXX.".into()));
    assert_eq!(s.routes[0].next_hops[1].priority, 2);
    assert_eq!(s.routes[1].domain, DomainMatch::Own);
    assert_eq!(s.routes[1].reject, Some(403));
}

/// Rules that look alike but can all apply are accepted.
#[test]
fn rules_that_can_apply_are_accepted() {
    for text in [
        "[[route]]\ndomain = \"foreign\"\nreject = 403\n[[route]]\ndomain = \"b.org\"\nreject = 404",
        "domains = [\"a.b.org\"]\n[[route]]\ndomain = \"foreign\"\nreject = 403\n\
         [[route]]\ndomain = \"*.b.org\"\nreject = 404",
        "[[route]]\npattern = \"0900X.\"\nreject = 404\n[[route]]\nprefix = \"0\"\nreject = 403",
        "[[route]]\npattern = \"0.\"\nreject = 404\n[[route]]\nprefix = \"0\"\nreject = 403",
        "[[route]]\nreject = 403\n[[route]]\ndomain = \"foreign\"\nreject = 403",
    ] {
        assert_eq!(problems(text), [""; 0], "{text}");
    }
}

#[test]
fn unreadable_files_are_reported() {
    let e = Settings::load(Path::new("/nonexistent/r.toml")).unwrap_err();
    assert!(e[0].to_string().starts_with("/nonexistent/r.toml: No such file"), "{}", e[0]);
    let e = Settings::load(Path::new("/tmp")).unwrap_err();
    assert_eq!(e[0].to_string(), "/tmp: is a directory");
}
