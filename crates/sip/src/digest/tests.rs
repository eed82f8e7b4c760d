use super::*;
use crate::syntax::trim;

/// RFC 7616 section 3.9.1.
#[test]
fn the_examples_with_md5_and_sha_256() {
    let rest = "username=\"Mufasa\",\r\n realm=\"http-auth@example.org\", uri=\"/dir/index.html\",\
        nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", nc=00000001,\
        cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\", qop=auth,\
        opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"";
    for (algorithm, response) in [
        (Algorithm::Md5, "8ca523f5e9506fed4657c9700eebdbec"),
        (Algorithm::Sha256, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ] {
        let name = algorithm.name();
        let value = format!("Digest {rest}, algorithm={name}, response=\"{response}\"");
        let c = Credentials::parse(value.as_bytes()).unwrap();
        assert_eq!((&*c.user(), c.count(), c.qop), (&b"Mufasa"[..], Some(1), Some(Qop::Auth)));
        assert!(c.is_for(b"http-auth@example.org"));
        let ha1 = Ha1::new(algorithm, b"Mufasa", b"http-auth@example.org", b"Circle of Life");
        assert!(verify(&c, b"GET", b"", &ha1));
        assert!(!verify(&c, b"PUT", b"", &ha1));
        let wrong = Ha1::new(algorithm, b"Mufasa", b"http-auth@example.org", b"Circle of life");
        assert!(!verify(&c, b"GET", b"", &wrong));
        let mut hex = Vec::new();
        ha1.write_hex(&mut hex);
        assert_eq!(Ha1::from_hex(algorithm, &hex), Some(ha1));
    }
}

/// RFC 2617 section 3.5, and the form of RFC 2069 for the same secret.
#[test]
fn md5_with_and_without_qop() {
    let ha1 = Ha1::new(Algorithm::Md5, b"Mufasa", b"testrealm@host.com", b"Circle Of Life");
    let with = b"Digest username=\"Mufasa\", realm=\"testrealm@host.com\", \
        nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", uri=\"/dir/index.html\", qop=auth, \
        nc=00000001, cnonce=\"0a4f113b\", response=\"6629fae49393a05397450978507c4ef1\", \
        opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
    assert!(verify(&Credentials::parse(with).unwrap(), b"GET", b"", &ha1));
    let without = b"Digest username=\"Mufasa\", realm=\"testrealm@host.com\", \
        nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", uri=\"/dir/index.html\", \
        response=\"670fd8c2df070c60b045671b8b24ff02\"";
    assert!(verify(&Credentials::parse(without).unwrap(), b"GET", b"", &ha1));
}

/// FIPS 180-4: the algorithms are the ones meant.
#[test]
fn digests_of_abc() {
    for (algorithm, expected) in [
        (Algorithm::Sha512_256, "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23"),
        (Algorithm::Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (Algorithm::Md5, "900150983cd24fb0d6963f7d28e17f72"),
    ] {
        let octets = algorithm.hash(&[b"abc"]);
        assert_eq!(algorithm::Hex::of(algorithm, &octets).as_bytes(), expected.as_bytes());
    }
}

/// RFC 8760 section 2.3 and section 2.4: order of preference, and both sides agree.
#[test]
fn a_client_answers_what_the_server_asks() {
    let mut buf = Vec::new();
    let realm = b"a \"quoted\" realm";
    let both = [Qop::Auth, Qop::AuthInt];
    for qop in [&both[..], &both[..1], &both[1..]] {
        for algorithms in [&Algorithm::ALL[..], &Algorithm::ALL[2..]] {
            buf.clear();
            challenge(&mut buf, "WWW-Authenticate", realm, b"nonce", algorithms, qop, true);
            let lines: Vec<_> = buf
                .split(|&b| b == b'\n')
                .filter_map(|l| l.strip_prefix(b"WWW-Authenticate:"))
                .map(trim)
                .collect();
            assert_eq!(lines.len(), algorithms.len());
            let chosen = choose(lines).unwrap();
            assert_eq!(chosen.algorithm, Some(algorithms[0]));
            assert!(chosen.stale && chosen.is_for(realm));
            let answer = Answer {
                user: b"al\"ice",
                password: b"secret",
                method: b"REGISTER",
                uri: b"sip:example.com",
                body: b"body",
                count: 0x1f,
                cnonce: b"0a4f113b",
            };
            let mut line = Vec::new();
            assert!(authorize(&mut line, "Authorization", &chosen, &answer));
            let value = trim(line.strip_prefix(b"Authorization:").unwrap());
            let c = Credentials::parse(value).unwrap();
            let ha1 = Ha1::new(algorithms[0], &c.user(), realm, b"secret");
            assert_eq!((&*c.user(), c.count()), (&b"al\"ice"[..], Some(31)));
            assert!(c.is_for(realm));
            assert!(verify(&c, b"REGISTER", b"body", &ha1));
            // Only auth-int protects the body.
            assert_eq!(verify(&c, b"REGISTER", b"else", &ha1), qop[0] == Qop::Auth);
        }
    }
}

/// RFC 8760 section 2.4: a challenge that is not understood is ignored.
#[test]
fn unknown_algorithms_are_passed_over() {
    let values = [
        &b"Basic realm=\"x\""[..],
        b"Digest realm=\"x\", nonce=\"1\", algorithm=SHA-3-512",
        b"Digest realm=\"x\", nonce=\"2\", algorithm=MD5-sess",
        b"Digest realm=\"x\", nonce=\"3\"",
    ];
    let chosen = choose(values).unwrap();
    assert_eq!((chosen.nonce, chosen.algorithm), (&b"3"[..], Some(Algorithm::Md5)));
    assert!(choose(values[..3].iter().copied()).is_none());
}

#[test]
fn what_proves_nothing_is_refused() {
    let base = "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"sip:a\", response=\"";
    let ha1 = Ha1::new(Algorithm::Sha256, b"u", b"r", b"p");
    let md5 = Ha1::new(Algorithm::Md5, b"u", b"r", b"p");
    for tail in [
        "\"",
        "00\"",
        "zz2523f5e9506fed4657c9700eebdbec\"",
        "8ca523f5e9506fed4657c9700eebdbec\", algorithm=SHA-256",
        "8ca523f5e9506fed4657c9700eebdbec\", algorithm=MD5-sess",
        "8ca523f5e9506fed4657c9700eebdbec\", userhash=true",
    ] {
        let value = format!("{base}{tail}");
        let c = Credentials::parse(value.as_bytes()).unwrap();
        assert!(!verify(&c, b"GET", b"", &ha1) && !verify(&c, b"GET", b"", &md5), "{tail}");
    }
}

#[test]
fn faults_are_reported() {
    let whole = "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"a\", response=\"x\"";
    assert!(Credentials::parse(whole.as_bytes()).is_ok());
    for bad in [
        "",
        "Digest",
        "Digest ",
        "Basic dTpw",
        "NoOneKnowsThisScheme opaque-data=here",
        "Digest username=\"u\"",
        "Digest username=\"u",
        "Digest username",
        "Digest username=",
        &format!("{whole},"),
        &format!("{whole} x"),
        &format!("{whole}, nonce=\"m\""),
        &format!("{whole}, qop=auth"),
        &format!("{whole}, qop=auth, nc=1, cnonce=\"c\""),
        &format!("{whole}, qop=auth, nc=0000000g, cnonce=\"c\""),
        &format!("{whole}, qop=auth, nc=00000000, cnonce=\"c\""),
        &format!("{whole}, qop=none"),
        &format!("{whole}{}", ", a=b".repeat(crate::limits::MAX_PARAMS)),
    ] {
        assert!(Credentials::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(Challenge::parse(b"Digest realm=\"x\"").is_err());
    assert!(Challenge::parse(b"Digest nonce=\"x\"").is_err());
}
