//! Session descriptions.

use proptest::prelude::*;
use ringway_sip::sdp::offer::{
    Format, Local, Stream, answer, check_answer, check_next, offer, set_hold,
};
use ringway_sip::sdp::{
    Attribute, Bandwidth, Connection, Direction, Media, Origin, Session, Text, Timing, static_codec,
};

fn text() -> impl Strategy<Value = Text<'static>> {
    "[!-~][ -~]{0,20}".prop_map(|s| Text::Owned(s.into_bytes()))
}

fn token() -> impl Strategy<Value = Text<'static>> {
    "[a-zA-Z0-9.+_-]{1,10}".prop_map(|s| Text::Owned(s.into_bytes()))
}

fn connection() -> impl Strategy<Value = Connection<'static>> {
    any::<std::net::IpAddr>().prop_map(Connection::new)
}

fn attribute() -> impl Strategy<Value = Attribute<'static>> {
    (token(), prop::option::of(text())).prop_map(|(name, value)| Attribute { name, value })
}

fn bandwidth() -> impl Strategy<Value = Bandwidth<'static>> {
    (token(), any::<u64>()).prop_map(|(kind, value)| Bandwidth { kind, value })
}

fn timing() -> impl Strategy<Value = Timing<'static>> {
    (any::<u64>(), any::<u64>(), prop::collection::vec(text(), 0..2), prop::option::of(text()))
        .prop_map(|(start, stop, repeats, zone)| Timing { start, stop, repeats, zone })
}

fn media() -> impl Strategy<Value = Media<'static>> {
    (
        (
            token(),
            any::<u16>(),
            prop::option::of(1u32..),
            token(),
            prop::collection::vec(token(), 1..5),
        ),
        prop::option::of(text()),
        prop::collection::vec(connection(), 0..2),
        prop::collection::vec(bandwidth(), 0..2),
        prop::option::of(text()),
        prop::collection::vec(attribute(), 0..5),
    )
        .prop_map(
            |(
                (kind, port, ports, protocol, formats),
                information,
                connections,
                bandwidths,
                key,
                attributes,
            )| {
                Media {
                    kind,
                    port,
                    ports,
                    protocol,
                    formats,
                    information,
                    connections,
                    bandwidths,
                    key,
                    attributes,
                }
            },
        )
}

fn session() -> impl Strategy<Value = Session<'static>> {
    (
        (token(), "[0-9]{1,19}", any::<u64>(), connection()),
        (text(), prop::option::of(text()), prop::option::of(text()), prop::option::of(text())),
        (prop::collection::vec(text(), 0..2), prop::collection::vec(text(), 0..2)),
        prop::option::of(connection()),
        prop::collection::vec(bandwidth(), 0..2),
        prop::collection::vec(timing(), 1..3),
        prop::collection::vec(attribute(), 0..4),
        prop::collection::vec(media(), 0..4),
    )
        .prop_map(
            |(
                (username, id, version, address),
                (name, information, uri, key),
                (emails, phones),
                connection,
                bandwidths,
                times,
                attributes,
                media,
            )| {
                let origin =
                    Origin { username, id: Text::Owned(id.into_bytes()), version, address };
                Session {
                    origin,
                    name,
                    information,
                    uri,
                    emails,
                    phones,
                    connection,
                    bandwidths,
                    times,
                    key,
                    attributes,
                    media,
                }
            },
        )
}

fn direction() -> impl Strategy<Value = Direction> {
    prop::sample::select(vec![
        Direction::SendRecv,
        Direction::SendOnly,
        Direction::RecvOnly,
        Direction::Inactive,
    ])
}

/// One side, able to take some of a few kinds of streams with some of a few codecs.
fn local() -> impl Strategy<Value = Local<'static>> {
    let format = prop::sample::select(vec![0u8, 3, 8, 9, 13, 18]).prop_map(|n| Format {
        format: Text::Owned(n.to_string().into_bytes()),
        codec: static_codec(n),
        fmtp: (n == 18).then_some(Text::Borrowed(b"annexb=no")),
    });
    let stream = (
        prop::sample::select(vec!["audio", "video"]),
        1u16..,
        direction(),
        prop::collection::vec(format, 1..5),
    )
        .prop_map(|(kind, port, direction, formats)| Stream {
            kind: kind.as_bytes().into(),
            protocol: Text::Borrowed(b"RTP/AVP"),
            port,
            direction,
            formats,
            attributes: vec![],
        });
    (prop::collection::vec(stream, 0..4), any::<u32>()).prop_map(|(streams, version)| Local {
        origin: Origin { version: version as u64, ..Origin::default() },
        connection: Connection::new("192.0.2.1".parse().unwrap()),
        streams,
    })
}

proptest! {
    /// RFC 8866: a written description is parsed to the same value.
    #[test]
    fn what_is_written_is_read(session in session()) {
        let octets = session.to_vec();
        let read = Session::parse(&octets).unwrap();
        prop_assert_eq!(&read, &session);
        prop_assert_eq!(read.to_vec(), octets);
    }

    #[test]
    fn any_octets_are_parsed_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), start: bool) {
        let bytes = if start { [&b"v=0\r\no=- 1 1 IN IP4 h\r\ns=-\r\nt=0 0\r\n"[..], &bytes].concat() } else { bytes };
        if let Ok(session) = Session::parse(&bytes) {
            let octets = session.to_vec();
            let again = Session::parse(&octets).unwrap();
            prop_assert_eq!(again.media.len(), session.media.len());
        }
    }

    /// RFC 3264 section 6: whatever two sides can do, the answer fits the offer; section 8: an
    /// offer that only changes the direction follows the one before.
    #[test]
    fn answers_fit_offers(one in local(), two in local(), hold: bool) {
        let mut first = offer(&one);
        let reply = answer(&first, &two);
        prop_assert_eq!(check_answer(&first, &reply), Ok(()));
        for (o, a) in first.media.iter().zip(&reply.media) {
            if a.port != 0 {
                let (offered, answered) = (first.direction(o), reply.direction(a));
                prop_assert!(!answered.sends() || offered.receives());
                prop_assert!(!answered.receives() || offered.sends());
            }
        }
        let before = first.clone();
        set_hold(&mut first, hold);
        if before.media != first.media {
            prop_assert_eq!(check_next(&before, &first), Ok(()));
        }
        prop_assert_eq!(check_answer(&first, &answer(&first, &two)), Ok(()));
    }
}
