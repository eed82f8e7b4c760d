//! Laws that hold for whatever bytes a peer sends.
#![allow(clippy::unwrap_used)]

mod framing;
mod message;
mod request;
mod sdp;
mod uri;

use proptest::prelude::*;

/// The torture messages: real messages to begin with.
fn torture() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/torture");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "dat"))
        .collect();
    files.sort();
    files.into_iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// One change of a message: at a place, cut so many octets, put these in.
type Change = (prop::sample::Index, usize, Vec<u8>);

/// Real messages with a few changes: octets cut, octets put in, among them those that mean
/// something.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4),
        prop::sample::select(vec![
            "\r\n", "\n", "\r", " ", "\r\n ", ",", ";", "\"", "<", ">", "(", ")", "\\", ":", "@",
            "%", "%00", "=", "[", "]", "Via:", "l: 0\r\n", "\r\n\r\n", "SIP/2.0", ";tag=", "*",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let change = (any::<prop::sample::Index>(), 0usize..6, piece);
    (prop::sample::select(torture()), prop::collection::vec(change, 0..6)).prop_map(
        |(mut message, changes): (Vec<u8>, Vec<Change>)| {
            for (place, cut, piece) in changes {
                let at = place.index(message.len() + 1);
                let end = (at + cut).min(message.len());
                message.splice(at..end, piece);
            }
            message
        },
    )
}
