use super::super::static_codec;
use super::*;

fn parse(text: &str) -> Session<'_> {
    Session::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn rtp(number: &'static str, codec: Codec<'static>, fmtp: Option<&'static str>) -> Format<'static> {
    Format {
        format: number.as_bytes().into(),
        codec: Some(codec),
        fmtp: fmtp.map(|f| f.as_bytes().into()),
    }
}

fn local() -> Local<'static> {
    Local {
        origin: Origin {
            username: Cow::Borrowed(b"bob"),
            id: Cow::Borrowed(b"7"),
            version: 1,
            address: Connection::new("192.0.2.2".parse().unwrap()),
        },
        connection: Connection::new("192.0.2.2".parse().unwrap()),
        streams: vec![Stream {
            kind: Cow::Borrowed(b"audio"),
            protocol: Cow::Borrowed(b"RTP/AVP"),
            port: 49920,
            direction: Direction::SendRecv,
            formats: vec![
                rtp("8", static_codec(8).unwrap(), None),
                rtp("0", static_codec(0).unwrap(), None),
                rtp("96", Codec::new("telephone-event", 8000), Some("0-15")),
            ],
            attributes: vec![Attribute::new("ptime", &b"20"[..])],
        }],
    }
}

const OFFER: &str = "v=0\r\no=alice 2890844526 2890844526 IN IP4 host.anywhere.com\r\ns=\r\n\
    c=IN IP4 host.anywhere.com\r\nt=0 0\r\nm=audio 49170 RTP/AVP 0 18 101\r\n\
    a=rtpmap:0 pcmu/8000\r\na=rtpmap:101 telephone-event/8000\r\n\
    m=video 51372 RTP/AVP 31\r\na=rtpmap:31 H261/90000\r\n";

/// RFC 3264 section 6 and the like of section 10.1.
#[test]
fn an_offer_is_answered_with_what_both_have() {
    let offer = parse(OFFER);
    let answer = answer(&offer, &local());
    assert_eq!(
        String::from_utf8(answer.to_vec()).unwrap(),
        "v=0\r\no=bob 7 1 IN IP4 192.0.2.2\r\ns=-\r\nc=IN IP4 192.0.2.2\r\nt=0 0\r\n\
        m=audio 49920 RTP/AVP 0 101\r\na=rtpmap:0 PCMU/8000\r\n\
        a=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-15\r\na=ptime:20\r\na=sendrecv\r\n\
        m=video 0 RTP/AVP 31\r\n"
    );
    check_answer(&offer, &answer).unwrap();
}

/// RFC 3264 section 6: no common codec, port zero, no stream of the kind, multicast, tones alone.
#[test]
fn what_cannot_be_answered_is_refused() {
    for media in [
        "m=audio 49170 RTP/AVP 18\r\n",
        "m=audio 0 RTP/AVP 0\r\n",
        "m=audio 49170 RTP/SAVP 0\r\n",
        "m=image 49170 udptl t38\r\n",
        "m=audio 49170 RTP/AVP 101\r\na=rtpmap:101 telephone-event/8000\r\n",
        "m=audio 49170 RTP/AVP 0\r\nc=IN IP4 224.2.1.1/127\r\n",
    ] {
        let text = format!(
            "v=0\r\no=a 1 1 IN IP4 h.example\r\ns=-\r\nc=IN IP4 h.example\r\nt=0 0\r\n{media}"
        );
        let offer = parse(&text);
        let answer = answer(&offer, &local());
        assert_eq!(answer.media[0].port, 0, "{media}");
        assert_eq!(answer.media[0].formats.len(), 1);
        check_answer(&offer, &answer).unwrap();
    }
    let offer = parse("v=0\r\no=a 1 1 IN IP4 h.example\r\ns=-\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n");
    assert_eq!(answer(&offer, &local()).media[0].port, 0, "no address");
}

/// Two streams of a kind are not both taken by the one we have.
#[test]
fn a_stream_is_used_once() {
    let text = format!("{OFFER}m=audio 49172 RTP/AVP 8\r\n");
    let offer = parse(&text);
    let answer = answer(&offer, &local());
    assert_eq!(answer.media.iter().map(|m| m.port).collect::<Vec<_>>(), [49920, 0, 0]);
}

/// RFC 3264 section 6.1, the table of directions, and section 8.4 for an address of zeros.
#[test]
fn directions_are_answered() {
    use Direction::*;
    for (offered, willing, expected) in [
        (SendRecv, SendRecv, SendRecv),
        (SendRecv, RecvOnly, RecvOnly),
        (SendOnly, SendRecv, RecvOnly),
        (RecvOnly, SendRecv, SendOnly),
        (RecvOnly, RecvOnly, Inactive),
        (Inactive, SendRecv, Inactive),
        (SendOnly, SendOnly, Inactive),
    ] {
        assert_eq!(offered.answered(willing), expected);
        let text = OFFER.replace("m=video", &format!("a={}\r\nm=video", offered.name()));
        let offer = parse(&text);
        let mut local = local();
        local.streams[0].direction = willing;
        let answer = answer(&offer, &local);
        assert_eq!(answer.direction(&answer.media[0]), expected);
        check_answer(&offer, &answer).unwrap();
    }
    let text = OFFER.replace("c=IN IP4 host.anywhere.com", "c=IN IP4 0.0.0.0");
    let answer = answer(&parse(&text), &local());
    assert_eq!(answer.direction(&answer.media[0]), RecvOnly);
}

/// RFC 3264 section 6.
#[test]
fn wrong_answers_are_reported() {
    let offer = parse(OFFER);
    let good = answer(&offer, &local());
    let change = |edit: &dyn Fn(&mut Session<'static>)| {
        let mut answer = good.clone();
        edit(&mut answer);
        check_answer(&offer, &answer).unwrap_err()
    };
    let misfit = change(&|a| a.media.truncate(1));
    assert_eq!(misfit, NegotiationError::Streams { expected: 2, got: 1 });
    assert_eq!(change(&|a| a.times[0].stop = 1), NegotiationError::Times);
    assert_eq!(change(&|a| a.media.swap(0, 1)), NegotiationError::Kind { stream: 0 });
    let other = Cow::Borrowed(&b"RTP/SAVP"[..]);
    assert_eq!(
        change(&|a| a.media[0].protocol = other.clone()),
        NegotiationError::Protocol { stream: 0 }
    );
    assert_eq!(change(&|a| a.connection = None), NegotiationError::Address { stream: 0 });
    let misfit = change(&|a| a.media[0].formats = vec![Cow::Borrowed(b"8")]);
    assert_eq!(misfit, NegotiationError::Formats { stream: 0 });
    // Another number for the same codec is no misfit (section 6.1).
    let mut renumbered = good.clone();
    renumbered.media[0].formats = vec![Cow::Borrowed(b"97")];
    renumbered.media[0].attributes = vec![Attribute::new("rtpmap", &b"97 PCMU/8000"[..])];
    check_answer(&offer, &renumbered).unwrap();
    let text = OFFER.replace("m=video", "a=sendonly\r\nm=video").replace("51372", "0");
    let offer = parse(&text);
    let misfit = check_answer(&offer, &good).unwrap_err();
    assert!(matches!(misfit, NegotiationError::Direction { stream: 0, .. }), "{misfit}");
    let mut revived = answer(&offer, &local());
    revived.media[1].port = 9;
    assert_eq!(check_answer(&offer, &revived), Err(NegotiationError::Revived { stream: 1 }));
}

/// RFC 3264 section 8.
#[test]
fn a_new_offer_follows_the_old_one() {
    let old = offer(&local());
    check_next(&old, &old).unwrap();
    let mut held = old.clone();
    set_hold(&mut held, true);
    assert_eq!(held.direction(&held.media[0]), Direction::SendOnly);
    check_next(&old, &held).unwrap();
    let mut back = held.clone();
    set_hold(&mut back, false);
    assert_eq!(back.direction(&back.media[0]), Direction::SendRecv);
    check_next(&held, &back).unwrap();

    let change = |edit: &dyn Fn(&mut Session<'static>)| {
        let mut new = old.clone();
        new.origin.version += 1;
        edit(&mut new);
        check_next(&old, &new)
    };
    assert_eq!(change(&|_| {}), Err(NegotiationError::Version { expected: 1, got: 2 }));
    assert_eq!(
        change(&|n| n.origin.version += 1),
        Err(NegotiationError::Version { expected: 1, got: 3 })
    );
    assert_eq!(
        change(&|n| n.media.clear()),
        Err(NegotiationError::Streams { expected: 1, got: 0 })
    );
    assert_eq!(change(&|n| n.origin.id = Cow::Borrowed(b"8")), Err(NegotiationError::Origin));
    assert_eq!(change(&|n| n.media[0].port += 2), Ok(()));
    let other = Attribute::new("rtpmap", &b"96 opus/48000/2"[..]);
    let moved = |n: &mut Session<'static>| {
        n.media[0]
            .attributes
            .retain(|a| !a.value.as_deref().is_some_and(|v| v.starts_with(b"96 ")));
        n.media[0].attributes.push(other.clone());
    };
    assert_eq!(change(&moved), Err(NegotiationError::Payload { stream: 0 }));
}

/// RFC 3264 section 8.4: a stream that was only received is held by making it inactive.
#[test]
fn hold_of_a_stream_that_is_received() {
    let mut session = offer(&local());
    session.media[0].set_direction(Direction::RecvOnly);
    set_hold(&mut session, true);
    assert_eq!(session.direction(&session.media[0]), Direction::Inactive);
}
