//! URIs: what is written is what is read, and the laws of equivalence (RFC 3261 section 19.1.4).

use proptest::prelude::*;
use ringway_sip::Uri;

#[derive(Clone, Debug)]
struct Parts {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    host: String,
    port: Option<u16>,
    params: Vec<(String, Option<String>)>,
    headers: Vec<(String, String)>,
}

impl Parts {
    fn text(&self) -> String {
        let mut text = format!("{}:", self.scheme);
        if let Some(user) = &self.user {
            text += user;
            if let Some(password) = &self.password {
                text += &format!(":{password}");
            }
            text += "@";
        }
        text += &self.host;
        if let Some(port) = self.port {
            text += &format!(":{port}");
        }
        for (name, value) in &self.params {
            text += &format!(";{name}");
            if let Some(value) = value {
                text += &format!("={value}");
            }
        }
        for (i, (name, value)) in self.headers.iter().enumerate() {
            text += &format!("{}{name}={value}", if i == 0 { "?" } else { "&" });
        }
        text
    }
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9]{0,8}(\\.[a-z][a-z0-9-]{0,8}[a-z0-9]){0,3}\\.?",
        any::<[u8; 4]>().prop_map(|o| std::net::Ipv4Addr::from(o).to_string()),
        any::<u128>().prop_map(|n| format!("[{}]", std::net::Ipv6Addr::from(n))),
    ]
}

fn parts() -> impl Strategy<Value = Parts> {
    let escaped = "([A-Za-z0-9_.!~*'()-]|%[0-9a-fA-F]{2}){1,12}";
    let name = "[a-z]{1,8}";
    (
        prop::sample::select(vec!["sip", "sips", "SIP"]),
        prop::option::of("([A-Za-z0-9_.!~*'()&=+$,;?/-]|%[0-9a-fA-F]{2}){1,12}"),
        prop::option::of("([A-Za-z0-9&=+$,]|%[0-9a-fA-F]{2}){0,8}"),
        host(),
        prop::option::of(1u16..),
        prop::collection::btree_map(name, prop::option::of(escaped), 0..4),
        prop::collection::vec((name, "([A-Za-z0-9:/?]|%[0-9a-fA-F]{2}){0,8}"), 0..3),
    )
        .prop_map(|(scheme, user, password, host, port, params, headers)| Parts {
            scheme: scheme.to_owned(),
            password: password.filter(|_| user.is_some()),
            user,
            host,
            port,
            params: params.into_iter().collect(),
            headers,
        })
}

/// Another way to write the same URI: order of parameters and header fields, case where it does
/// not matter, escapes of characters that need none.
fn rewritten(parts: &Parts, turn: usize, escape: bool) -> Parts {
    let mut other = parts.clone();
    other.scheme = other.scheme.to_ascii_uppercase();
    other.host = other.host.to_ascii_uppercase();
    if !other.params.is_empty() {
        let turn = turn % other.params.len();
        other.params.rotate_left(turn);
    }
    for (name, _) in &mut other.params {
        *name = name.to_ascii_uppercase();
    }
    if !other.headers.is_empty() {
        let turn = turn % other.headers.len();
        other.headers.rotate_left(turn);
    }
    if escape && let Some(user) = &mut other.user {
        // Only letters: they are never reserved. An escape itself stays one.
        let mut escaped = String::new();
        let mut chars = user.chars();
        while let Some(c) = chars.next() {
            match c {
                '%' => escaped.extend(['%', chars.next().unwrap(), chars.next().unwrap()]),
                c if c.is_ascii_alphabetic() => escaped += &format!("%{:02x}", c as u32),
                c => escaped.push(c),
            }
        }
        *user = escaped;
    }
    other
}

fn aor(uri: &Uri<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    uri.aor(&mut key);
    key
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn what_is_written_is_read(parts in parts()) {
        let text = parts.text();
        let uri = Uri::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(uri.user, parts.user.as_ref().map(|u| u.as_bytes()));
        prop_assert_eq!(uri.password, parts.password.as_ref().map(|p| p.as_bytes()));
        prop_assert_eq!(uri.host, parts.host.as_bytes());
        prop_assert_eq!(uri.port, parts.port);
        let params: Vec<_> = parts.params.iter().map(|(n, v)| (n.as_bytes(), v.as_ref().map(|v| v.as_bytes()))).collect();
        prop_assert_eq!(uri.params().collect::<Vec<_>>(), params);
        let headers: Vec<_> = parts.headers.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        prop_assert_eq!(uri.header_fields().collect::<Vec<_>>(), headers);
    }

    #[test]
    fn equivalence_is_reflexive_and_symmetric(a in parts(), b in parts()) {
        let (a, b) = (a.text(), b.text());
        let (a, b) = (Uri::parse(a.as_bytes()).unwrap(), Uri::parse(b.as_bytes()).unwrap());
        prop_assert!(a.equivalent(&a) && b.equivalent(&b));
        prop_assert_eq!(a.equivalent(&b), b.equivalent(&a));
    }

    #[test]
    fn other_spellings_are_equivalent(parts in parts(), turn in 0usize..4, escape: bool) {
        let (one, two) = (parts.text(), rewritten(&parts, turn, escape).text());
        let (one, two) = (Uri::parse(one.as_bytes()).unwrap(), Uri::parse(two.as_bytes()).unwrap());
        prop_assert!(one.equivalent(&two), "{:?} {:?}", one, two);
        prop_assert!(two.equivalent(&one));
        prop_assert_eq!(aor(&one), aor(&two));
    }

    /// One thing changed is another URI.
    #[test]
    fn what_differs_is_not_equivalent(parts in parts(), which in 0u8..6) {
        let mut other = parts.clone();
        match which {
            0 => other.user = Some(other.user.map_or("x".into(), |u| u + "x")),
            // With and without the dot of the root it is the same name.
            1 => other.host = if other.host.trim_end_matches('.') == "a" { "b" } else { "a" }.into(),
            2 => other.port = Some(other.port.map_or(5060, |p| p ^ 1).max(1)),
            3 => other.params.push(("transport".into(), Some("udp".into()))),
            4 => other.headers.push(("x".into(), "y".into())),
            _ => other.scheme = if parts.scheme == "sips" { "sip" } else { "sips" }.into(),
        }
        prop_assume!(which != 2 || other.port != parts.port);
        prop_assume!(which != 3 || !parts.params.iter().any(|(n, _)| n == "transport"));
        let (one, two) = (parts.text(), other.text());
        let (one, two) = (Uri::parse(one.as_bytes()).unwrap(), Uri::parse(two.as_bytes()).unwrap());
        prop_assert!(!one.equivalent(&two), "{:?} {:?}", one, two);
    }

    /// RFC 3261 section 10.3: the key of a key is itself, and it is a URI.
    #[test]
    fn the_address_of_record_is_canonical(parts in parts()) {
        let text = parts.text();
        let key = aor(&Uri::parse(text.as_bytes()).unwrap());
        let again = Uri::parse(&key).unwrap();
        prop_assert_eq!(aor(&again), key.clone());
        prop_assert!(again.params.is_empty() && again.headers.is_empty());
    }

    #[test]
    fn any_octets_are_parsed_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..80), sip: bool) {
        let bytes = if sip { [&b"sip:"[..], &bytes].concat() } else { bytes };
        if let Ok(uri) = Uri::parse(&bytes) {
            prop_assert!(uri.equivalent(&uri));
            let _ = (aor(&uri), uri.host_ip(), uri.transport(), uri.params().count(), uri.header_fields().count());
        }
    }
}
