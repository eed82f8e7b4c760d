//! A session description, or a body with one: rewritten, read again, rewritten again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_media::description::Description;
use ringway_media::rewrite::{Plan, rewrite};
use ringway_sip::sdp::Session;

/// Rewrites what is in parts of a multipart body.
fn body(data: &[u8]) {
    let head = format!(
        "INVITE sip:a@b SIP/2.0\r\nContent-Type: multipart/mixed;boundary=b\r\nContent-Length: {}\r\n\r\n",
        data.len()
    );
    let bytes = [head.as_bytes(), data].concat();
    let Ok(message) = ringway_sip::message::parse(&bytes) else { return };
    let Some(located) = ringway_media::body::locate(&message) else { return };
    let part = &data[located.description.clone()];
    let replaced = located.replace(data, part);
    assert!(replaced.len() <= data.len() + 20, "only the digits of a Content-Length change");
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    body(data);
    let Ok(description) = Description::parse(data) else { return };
    let streams = description.streams();
    let is_chosen = |index: usize| choice >> (1 + index % 7) & 1 == 1;
    let ports: Vec<Option<u16>> = (0..streams.len())
        .map(|index| {
            let port = 20_000 + 2 * index as u16;
            (is_chosen(index) && streams[index].is_relayable()).then_some(port)
        })
        .collect();
    let address = if choice & 1 == 0 { "10.50.60.1" } else { "fd00::1" };
    let plan = Plan { address: address.parse().expect("an address"), ports: &ports };
    let once = rewrite(&description, &plan);
    let again = Description::parse(&once);
    // A longer address may make a line or the whole too long.
    let Ok(again) = again else {
        assert!(data.len() > 4_000);
        return;
    };
    assert_eq!(rewrite(&again, &plan), once, "what is rewritten stays");
    assert_eq!(again.streams().len(), streams.len());
    for ((before, after), port) in streams.iter().zip(again.streams()).zip(&ports) {
        match port {
            Some(port) => assert_eq!(after.port, *port),
            None => assert_eq!(after.port, before.port),
        }
    }
    if Session::parse(data).is_ok() {
        Session::parse(&once).expect("what a parser reads it reads after it is rewritten");
    }
});
