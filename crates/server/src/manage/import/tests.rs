use super::*;

/// The hash of no password in these tests.
const HA1: &str = "fa20c1fc8f9e5d0f4b1c5cbb3f5d9d6b";

fn manager(algorithms: &[Algorithm]) -> UserManager {
    UserManager {
        backend: Backend::Missing,
        realms: vec!["a.org".to_owned(), "b.org".to_owned()],
        aliases: BTreeMap::from([("sip.a.org".to_owned(), "a.org".to_owned())]),
        algorithms: algorithms.to_vec(),
        created: None,
    }
}

fn request(domain: Option<&str>) -> Import {
    Import {
        program: Program::Kamailio,
        file: "f".into(),
        domain: domain.map(|name| name.parse().unwrap()),
        replace: false,
        dry_run: true,
    }
}

fn plan_of(csv: &str, algorithms: &[Algorithm]) -> Plan {
    let found = ringway_import::kamailio("f", csv.as_bytes()).unwrap();
    manager(algorithms).plan(found, &request(None)).unwrap()
}

fn refused_of(plan: &Plan) -> Vec<String> {
    plan.report.refused.iter().map(RefusedUser::text).collect()
}

fn ha1(realm: &str) -> String {
    let mut hex = Vec::new();
    Ha1::new(Algorithm::Md5, b"101", realm.as_bytes(), b"secret").write_hex(&mut hex);
    String::from_utf8(hex).unwrap()
}

#[test]
fn users_go_to_their_domain_or_the_default_one() {
    let csv =
        "username,domain,password\n101,,x\n102,B.ORG,x\n103,sip.a.org,x\n104,c.org,x\na b,,x\n";
    let plan = plan_of(csv, &[Algorithm::Md5]);
    let names: Vec<_> = plan.users.iter().map(|u| (u.user.as_str(), u.realm.as_str())).collect();
    assert_eq!(names, [("101", "a.org"), ("102", "b.org"), ("103", "a.org")]);
    let refused = refused_of(&plan);
    let expected =
        "f:5: user \"104\": \"c.org\" is not a domain of this server, which has a.org, b.org";
    assert_eq!(refused[0], expected);
    assert!(refused[1].starts_with("f:6: user \"a b\": user name: expected"), "{refused:?}");

    let found = ringway_import::kamailio("f", b"username,password\n101,x\n").unwrap();
    let other = manager(&[Algorithm::Md5]).plan(found.clone(), &request(Some("b.org"))).unwrap();
    assert_eq!(other.users[0].realm, "b.org");
    let wrong = manager(&[Algorithm::Md5]).plan(found, &request(Some("c.org")));
    assert!(wrong.err().unwrap().contains("--domain: \"c.org\" is not a domain"));
}

/// RFC 7616 section 3.4.2: the hash contains the realm, in the case of its letters.
#[test]
fn a_hash_alone_needs_its_realm_and_a_challenge() {
    let csv = format!(
        "username,domain,ha1\n101,a.org,{}\n101,b.org,{}\n101,A.org,{}\n102,sip.a.org,{}\n",
        ha1("a.org"),
        ha1("b.org"),
        ha1("A.org"),
        ha1("sip.a.org")
    );
    let both = [Algorithm::Sha256, Algorithm::Md5];
    let plan = plan_of(&csv, &both);
    assert_eq!(plan.users.len(), 2);
    assert_eq!(plan.report.imported[0].without, ["SHA-256"]);
    let hashes = &plan.users[0].hashes;
    let expected = Ha1::new(Algorithm::Md5, b"101", b"a.org", b"secret");
    assert_eq!((hashes.get(Algorithm::Md5), hashes.get(Algorithm::Sha256)), (Some(expected), None));
    let refused = refused_of(&plan);
    assert_eq!(refused[0], "f:4: user \"101\": is listed already at f:2");
    assert!(
        refused[1].contains("for realm \"sip.a.org\", and phones are asked for realm \"a.org\"")
    );

    let none = plan_of(&csv, &[Algorithm::Sha256]);
    assert!(none.users.is_empty());
    let refused = refused_of(&none);
    let why = "has a hash of MD5 alone, and the challenge is SHA-256 ([auth] algorithms)";
    assert!(refused[0].contains(why), "{refused:?}");
    assert!(!refused.concat().contains(&ha1("a.org")));
}

#[test]
fn a_password_has_all_hashes_unless_another_hash_contradicts_it() {
    let csv = format!(
        "username,domain,password,ha1\n101,a.org,secret,{}\n102,a.org,secret,{HA1}\n103,a.org,a\x01b,\n",
        ha1("a.org")
    );
    let plan = plan_of(&csv, &[Algorithm::Sha256]);
    assert_eq!(plan.users.len(), 1);
    assert!(Algorithm::ALL.iter().all(|a| plan.users[0].hashes.get(*a).is_some()));
    let refused = refused_of(&plan);
    assert!(refused[0].contains("the MD5 hash beside the password is of another password"));
    assert!(refused[1].ends_with("password: expected no control characters"), "{refused:?}");
    assert!(!refused.concat().contains("secret") && !refused.concat().contains(HA1));
}

#[test]
fn only_regular_files_of_the_same_folder_are_included() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("asterisk");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(dir.path().join("outside.conf"), "x").unwrap();
    std::fs::write(folder.join("users.conf"), "x").unwrap();
    std::fs::create_dir(folder.join("d")).unwrap();
    std::os::unix::fs::symlink("../outside.conf", folder.join("link.conf")).unwrap();
    let whole = folder.join("users.conf");
    for name in ["users.conf", "./users.conf", whole.to_str().unwrap()] {
        assert_eq!(included(&folder, name), Ok(b"x".to_vec()), "{name}");
    }
    for (name, why) in [
        ("../outside.conf", "the same folder"),
        ("link.conf", "the same folder"),
        ("/etc/passwd", "the same folder"),
        ("d", "a regular file"),
        ("*.conf", "a pattern is not followed"),
    ] {
        let error = included(&folder, name).unwrap_err().unwrap();
        assert!(error.contains(why), "{name}: {error}");
    }
    assert_eq!(included(&folder, "none.conf"), Err(None));
}
