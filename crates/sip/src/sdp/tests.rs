use super::*;

/// Every line the grammar has, in its order.
const FULL: &str = "v=0\r\no=jdoe 3724394400 3724394405 IN IP4 198.51.100.1\r\ns=Call to J. Smith\r\n\
    i=SDP Offer #1\r\nu=http://www.jdoe.example.com/home.html\r\n\
    e=Jane Doe <jane@jdoe.example.com>\r\np=+1 617 555-6011\r\nc=IN IP4 198.51.100.1\r\n\
    b=AS:128\r\nt=3724394400 3724398000\r\nr=7d 1h 0 25h\r\nz=3730928400 -1h 3749680800 0\r\nt=0 0\r\n\
    k=prompt\r\na=recvonly\r\na=tool:x:y\r\n\
    m=audio 49170 RTP/AVP 0 97\r\ni=speech\r\nc=IN IP6 2001:db8::1\r\nb=TIAS:64000\r\nk=clear:x\r\n\
    a=rtpmap:97 opus/48000/2\r\na=fmtp:97 useinbandfec=1\r\na=sendonly\r\n\
    m=video 49180/2 RTP/AVP 99\r\nc=IN IP4 233.252.0.2/127/3\r\na=rtpmap:99 h263-1998/90000\r\n";

/// RFC 8866 section 5.
#[test]
fn every_line_is_parsed_and_written() {
    let session = Session::parse(FULL.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(session.to_vec()).unwrap(), FULL);
    assert_eq!(session.origin.version, 3724394405);
    assert_eq!(session.times.len(), 2);
    let [audio, video] = &session.media[..] else { panic!("two streams") };
    assert_eq!(session.direction(audio), Direction::SendOnly);
    assert_eq!(session.direction(video), Direction::RecvOnly);
    assert_eq!(audio.codec(b"0"), static_codec(0));
    assert_eq!(audio.codec(b"97"), Some(Codec { channels: 2, ..Codec::new("OPUS", 48000) }));
    assert_eq!(audio.fmtp(b"97"), Some(&b"useinbandfec=1"[..]));
    assert_eq!(audio.codec(b"98"), None);
    assert_eq!(session.connection(audio).unwrap().ip(), Some("2001:db8::1".parse().unwrap()));
    assert_eq!(session.connection(video).unwrap().ip(), Some("233.252.0.2".parse().unwrap()));
    assert_eq!((video.port, video.ports), (49180, Some(2)));
    assert_eq!(session.clone().into_owned(), session);
}

/// RFC 8866 section 5: LF alone; and what the field sends.
#[test]
fn what_is_a_little_wrong_is_let_pass() {
    let unix = FULL.replace("\r\n", "\n");
    let session = Session::parse(unix.as_bytes()).unwrap();
    assert_eq!(session, Session::parse(FULL.as_bytes()).unwrap());
    let odd = "v=0\r\no=- 1 1 IN IP4 h\r\ns=\r\nt=0 0\r\na=x\r\nc=IN IP4 h\r\nm=audio 9 RTP/AVP 0 \r\na=y\r\nb=AS:1\r\n\r\n";
    let session = Session::parse(odd.as_bytes()).unwrap();
    assert_eq!(session.media[0].formats.len(), 1);
    assert!(session.to_vec().windows(5).any(|w| w == b"s=-\r\n"));
}

#[test]
fn faults_are_reported() {
    let base = "v=0\r\no=- 1 1 IN IP4 h\r\ns=-\r\nt=0 0\r\n";
    assert!(Session::parse(base.as_bytes()).is_ok());
    for bad in [
        "".to_owned(),
        "v=1\r\n".to_owned(),
        "o=- 1 1 IN IP4 h\r\n".to_owned(),
        base.replace("o=", "x="),
        base.replace("s=-\r\n", ""),
        base.replace("t=0 0\r\n", ""),
        base.replace("o=- 1 1", "o=- 1"),
        base.replace("o=- 1 1", "o=- x 1"),
        base.replace("o=- 1 1", "o=- 1 18446744073709551616"),
        base.replace("t=0 0", "t=0"),
        base.replace("t=0 0", "r=7d 1h 0"),
        base.replace("s=-", "s=-\0"),
        base.replace("s=-", "s=-\rx"),
        base.replace("s=-", "s -"),
        format!("{base}s=-\r\n"),
        format!("{base}c=IN IP4\r\n"),
        format!("{base}c=IN IP4 2001:db8::1\r\n"),
        format!("{base}c=IN IP6 192.0.2.1\r\n"),
        format!("{base}c=IN IP4 a\r\nc=IN IP4 a\r\n"),
        format!("{base}b=AS\r\n"),
        format!("{base}b=AS:x\r\n"),
        format!("{base}a=\r\n"),
        format!("{base}a=:x\r\n"),
        format!("{base}q=x\r\n"),
        format!("{base}m=audio\r\n"),
        format!("{base}m=audio 9 RTP/AVP\r\n"),
        format!("{base}m=audio 65536 RTP/AVP 0\r\n"),
        format!("{base}m=audio 9/0 RTP/AVP 0\r\n"),
        format!("{base}m=audio 9 RTP//AVP 0\r\n"),
        format!("{base}m=audio 9 RTP/AVP 0 (\r\n"),
        format!("{base}m=audio 9 RTP/AVP 0\r\nt=0 0\r\n"),
        format!("{base}m=audio 9 RTP/AVP{}\r\n", " 0".repeat(MAX_FORMATS + 1)),
        format!("{base}{}", "m=audio 9 RTP/AVP 0\r\n".repeat(MAX_MEDIA + 1)),
        format!("{base}{}", "a=x\r\n".repeat(MAX_SECTION + 1)),
        format!("{base}a={}\r\n", "x".repeat(MAX_SDP_LINE)),
    ] {
        assert_eq!(Session::parse(bad.as_bytes()).map_err(|e| e.status), Err(400), "{bad}");
    }
}

/// RFC 5118 sections 4.6, 4.8 and 4.9.
#[test]
fn addresses_of_both_families() {
    for (name, addresses) in [
        ("ipv6-in-sdp", ["2001:db8::20", "2001:db8::20"]),
        ("mult-ip-in-sdp", ["192.0.2.1", "2001:db8::1"]),
        ("ipv4-mapped-ipv6", ["::ffff:192.0.2.2", "::ffff:192.0.2.2"]),
    ] {
        let file = format!("{}/tests/torture/{name}.dat", env!("CARGO_MANIFEST_DIR"));
        let octets = std::fs::read(file).unwrap();
        let message = crate::message::parse(&octets).unwrap();
        let session = Session::parse(message.body()).unwrap();
        let found: Vec<_> =
            session.media.iter().map(|m| session.connection(m).unwrap().ip().unwrap()).collect();
        assert_eq!(found, addresses.map(|a| a.parse::<IpAddr>().unwrap()), "{name}");
    }
}
