use super::*;
use crate::found::{Reason, User};
use crate::{MAX_USERS, MAX_VALUE};
use proptest::prelude::*;
use ringway_sip::digest::{Algorithm, Ha1};

const PJSIP_CONF: &[u8] = include_bytes!("../../tests/data/pjsip.conf");
const SIP_CONF: &[u8] = include_bytes!("../../tests/data/sip.conf");

/// MD5 of `102:example.org:secret`.
fn hash_of_102() -> Ha1 {
    Ha1::new(Algorithm::Md5, b"102", b"example.org", b"secret")
}

fn with(files: &[(&str, &str)], bytes: &[u8]) -> Result<Found, FileError> {
    asterisk("f", bytes, &mut |name| {
        let file = files.iter().find(|(file, _)| *file == name);
        file.map(|(_, text)| text.as_bytes().to_vec()).ok_or(None)
    })
}

fn read(text: &str) -> Found {
    with(&[], text.as_bytes()).unwrap()
}

fn fails(text: &str) -> String {
    with(&[], text.as_bytes()).unwrap_err().to_string()
}

fn users(found: &Found) -> Vec<(&str, Option<&str>)> {
    found.users.iter().map(|u: &User| (u.name.as_str(), u.password.as_deref())).collect()
}

fn refused(found: &Found) -> Vec<String> {
    let line =
        |r: &crate::Refusal| format!("{} {}: {}", r.at, r.name.as_deref().unwrap_or("-"), r.reason);
    found.refused.iter().map(line).collect()
}

#[test]
fn pjsip_conf_is_read_with_what_it_includes() {
    let more = "[103](phone)\nauth=103\n[103](password)\nusername=103\npassword=x\n\
                [101](+)\ncontext=other\n";
    let found = with(&[("more.conf", more)], PJSIP_CONF).unwrap();
    assert_eq!(users(&found), [("101", Some("a;b")), ("102", None), ("103", Some("x"))]);
    assert_eq!(found.users[0].at.to_string(), "f:24");
    assert_eq!(found.users[2].at.to_string(), "more.conf:3");
    assert_eq!(found.users[1].hashes[..], [hash_of_102()]);
    assert_eq!(found.users[1].realm.as_deref(), Some("example.org"));
    assert_eq!(refused(&found), [format!("f:42 trunk: {}", Reason::NoAuth)]);
}

#[test]
fn sip_conf_is_read() {
    let found = with(&[], SIP_CONF).unwrap();
    assert_eq!(users(&found), [("101", Some("a-word")), ("102", None)]);
    assert_eq!(found.users[1].hashes[..], [hash_of_102()]);
    assert_eq!(found.users[1].realm.as_deref(), Some("example.org"));
    let expected = [
        format!("f:15 103: {}", Reason::NoSecret),
        format!("f:16 provider: {}", Reason::FixedHost),
    ];
    assert_eq!(refused(&found), expected);
}

#[test]
fn the_user_must_be_named_as_the_endpoint_or_its_address() {
    let found = read(
        "[desk]\ntype=endpoint\nauth=a\naors=101\n[a]\ntype=auth\nusername=101\npassword=x\n\
         [102]\ntype=endpoint\nauth=b,none\n[b]\ntype=auth\nusername=bob\npassword=x\n\
         [unused]\ntype=auth\nusername=c\npassword=x\n",
    );
    assert_eq!(users(&found), [("101", Some("x"))]);
    let other = Reason::OtherName { endpoint: "102".to_owned() };
    let expected = [
        format!("f:12 bob: {other}"),
        format!("f:9 102: {}", Reason::MissingAuth("none".to_owned())),
        format!("f:16 unused: {}", Reason::UnusedAuth),
    ];
    assert_eq!(refused(&found), expected);
}

/// The types as Asterisk 22 has them; a password of another type than `userpass` and `digest` is not used.
#[test]
fn the_auth_type_decides_which_secret_counts() {
    let secrets = |auth: &str| {
        let found =
            read(&format!("[a]\ntype=endpoint\nauth=a\n[a]\ntype=auth\nusername=a\n{auth}"));
        match (found.users.first(), found.refused.first()) {
            (Some(user), None) => {
                let algorithms = user.hashes.iter().map(|h| h.algorithm().name()).collect();
                Ok((user.password.clone(), algorithms))
            }
            (None, Some(refusal)) => Err(refusal.reason.clone()),
            _ => unreachable!("one of them"),
        }
    };
    let (md5, sha) = ("ab".repeat(16), "ab".repeat(32));
    let password = Some("x".to_owned());
    assert_eq!(secrets("password=x\n"), Ok((password.clone(), vec![])));
    assert_eq!(
        secrets(&format!("auth_type=md5\npassword=x\nmd5_cred={md5}")),
        Ok((None, vec!["MD5"]))
    );
    assert_eq!(secrets("auth_type=md5\npassword=x\n"), Err(Reason::NoSecret));
    assert_eq!(secrets("auth_type=md5\nmd5_cred=12\n"), Err(Reason::Hash("md5_cred")));
    let digests = format!(
        "auth_type=digest\npassword_digest=MD5:{md5}\npassword_digest=SHA-256:{sha}\n\
         password_digest=SHA-512-256:{sha}\n"
    );
    assert_eq!(secrets(&digests), Ok((None, vec!["MD5", "SHA-256", "SHA-512-256"])));
    let digest = "auth_type=digest\npassword_digest=SHA-1:00\n";
    assert_eq!(secrets(digest), Err(Reason::Hash("password_digest")));
    assert_eq!(secrets("auth_type=google_oauth\n"), Err(Reason::AuthType));
    assert_eq!(secrets("auth_type=userpass\n"), Err(Reason::NoSecret));
}

#[test]
fn values_are_inherited_and_added_as_asterisk_does() {
    let found = read(
        "[base](!)\ntype=friend\nhost=dynamic\nsecret=one\n[Named](!,BASE)\nsecret=two\n\
         [101](named)\n[102](base,named)\n[103](named)\nsecret=three\n[101](+)\nsecret=four\n\
         [base](!)\nsecret=five\n[104](base)\nSecret += and\nsecret += more\n",
    );
    let expected = [
        ("101", Some("four")),
        ("102", Some("two")),
        ("103", Some("three")),
        ("104", Some("oneandmore")),
    ];
    assert_eq!(users(&found), expected);
}

#[test]
fn mistakes_are_reported_with_their_line() {
    let sip = "[a]\ntype=friend\n";
    assert!(fails("").contains("f:1: expected pjsip.conf"));
    assert!(fails("[a]\ntype=context\n").contains("f:1: expected pjsip.conf"));
    assert!(fails("a=b\n").contains("f:1: expected `[section]`"));
    assert!(fails("\n[a\n").contains("f:2: expected `]`"));
    assert!(fails("[a](b\n").contains("f:1: expected `)`"));
    assert_eq!(fails("[a](b)\n"), "f:1: section \"b\" does not exist");
    assert_eq!(fails("[b](!)\n[b](+)\n"), "f:2: section \"b\" does not exist");
    assert!(fails("[b]\n[b](+type=auth)\n").contains("a filter"));
    assert!(fails(&format!("{sip}#exec /bin/sh")).contains("f:3: expected #include, got #exec"));
    assert!(fails(&format!("{sip}#include x")).contains("f:3: #include \"x\": does not exist"));
    assert!(with(&[], format!("{sip}#tryinclude x\n#unknown").as_bytes()).is_ok());
    let error = with(&[], b"[a]\ntype=friend\nsecret=\xff\n").unwrap_err();
    assert_eq!(error.to_string(), "f:3: expected UTF-8");
    // Other variables, and comments, may have any octets.
    assert!(with(&[], b"[a]\ntype=friend\nsecret=x ;\xff\ncallerid=\xff\n").is_ok());
    assert!(fails(&format!("{sip}secret={}\n", "x".repeat(MAX_VALUE + 1))).contains("of a value"));
    assert!(fails(&format!("[a]({})", "a,".repeat(64))).contains("options of a section"));
}

#[test]
fn includes_are_bounded() {
    let error = with(&[("f", "#include <f>\n")], b"#include f\n").unwrap_err().to_string();
    assert!(error.contains("expected at most 10 files that include each other"), "{error}");
    let wide = "#include x\n".repeat(MAX_FILES + 1);
    let error = with(&[("x", "")], wide.as_bytes()).unwrap_err().to_string();
    assert_eq!(error, format!("x:1: files: expected at most {MAX_FILES}"));
    let many = format!("[t](!)\ntype=friend\nsecret=x\n{}", "[a](t)\n".repeat(MAX_USERS + 1));
    assert!(fails(&many).contains("users: expected at most"));
}

fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "[a]",
        "[b]",
        "(!)",
        "(+)",
        "(a)",
        "(a,b,!)",
        "\n",
        "type=endpoint\n",
        "type=auth\n",
        "type=friend\n",
        "type=global\n",
        "auth=a,b\n",
        "username=a\n",
        "password=x\n",
        "secret=y\n",
        "md5_cred=00\n",
        "auth_type=md5\n",
        ";",
        ";--",
        "--;",
        "\\",
        "#include x\n",
        "#exec y\n",
        "=",
        "+=",
        "password_digest=MD5:",
        "00000000000000000000000000000000\n",
    ];
    prop::collection::vec(
        prop_oneof![
            9 => prop::sample::select(words.to_vec()).prop_map(|w| w.as_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..4),
        ],
        0..60,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn hostile_input_is_read_or_refused(bytes in pieces(), other in pieces()) {
        let mut load = |_: &str| Ok(other.clone());
        if let Ok(found) = asterisk("f", &bytes, &mut load) {
            prop_assert!(found.users.iter().all(|u| u.password.is_some() || !u.hashes.is_empty()));
        }
    }
}
