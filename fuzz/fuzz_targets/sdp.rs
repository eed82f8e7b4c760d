//! A session description: read, write, read again, answer, check.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_sip::sdp::offer::{Format, Local, Stream, answer, check_answer, check_next, set_hold};
use ringway_sip::sdp::{Connection, Direction, Origin, Session, static_codec};

fuzz_target!(|data: &[u8]| {
    let Ok(offer) = Session::parse(data) else { return };
    let octets = offer.to_vec();
    let again = Session::parse(&octets).expect("what we write can be read");
    assert_eq!(again.media, offer.media);
    for media in &offer.media {
        for format in &media.formats {
            let _ = (media.codec(format), media.fmtp(format));
        }
    }
    let format = |n: u8| Format {
        format: n.to_string().into_bytes().into(),
        codec: static_codec(n),
        fmtp: None,
    };
    let local = Local {
        origin: Origin::default(),
        connection: Connection::default(),
        streams: vec![Stream {
            kind: b"audio"[..].into(),
            protocol: b"RTP/AVP"[..].into(),
            port: 4000,
            direction: Direction::SendRecv,
            formats: vec![format(0), format(8), format(13)],
            attributes: vec![],
        }],
    };
    let reply = answer(&offer, &local);
    check_answer(&offer, &reply).expect("our answer answers");
    Session::parse(&reply.to_vec()).expect("our answer can be read");
    let mut held = offer.clone();
    set_hold(&mut held, true);
    let _ = check_next(&offer, &held);
});
