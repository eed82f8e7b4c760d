//! A packet of the mesh as it comes from a neighbour, and the same octets as what is inside when it is opened: the items
//! of a CONTROL packet, a message and its body.
//! What is parsed can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_mesh::crypto::CodeKey;
use ringway_mesh::wire::{
    Body, Conf, Control, Cookie, HelloView, Init, Items, Kind, Resp, Routed, hello,
};

/// Checks that `emit` writes `packet` again but for flags and reserved octets.
fn same(packet: &[u8], emit: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    emit(&mut out);
    assert_eq!(out.len(), packet.len());
    assert_eq!(out[4..], packet[4..]);
}

fn packet(bytes: &[u8]) {
    let Ok(kind) = Kind::of(bytes) else { return };
    match kind {
        Kind::Hello => {
            if let Ok(view) = HelloView::parse(bytes) {
                let (value, mut out) = (view.value(), Vec::new());
                assert!(value.reports.len() <= hello::MAX_REPORTS);
                value.emit(&mut out, &[CodeKey([1; 16]); hello::MAX_REPORTS], |_| view.code());
                // All but the codes of reports.
                let again = HelloView::parse(&out).expect("what is written is read");
                assert_eq!(
                    (again.value(), again.code(), out.len()),
                    (value, view.code(), bytes.len())
                );
            }
        }
        Kind::Init => {
            if let Ok(init) = Init::parse(bytes) {
                same(bytes, |out| init.emit(out));
            }
        }
        Kind::Resp => {
            if let Ok(resp) = Resp::parse(bytes) {
                same(bytes, |out| resp.emit(out));
            }
        }
        Kind::Conf => {
            if let Ok(conf) = Conf::parse(bytes) {
                same(bytes, |out| conf.emit(out));
            }
        }
        Kind::Cookie => {
            if let Ok(cookie) = Cookie::parse(bytes) {
                same(bytes, |out| cookie.emit(out));
            }
        }
        Kind::Control => {
            if let Ok(control) = Control::parse(bytes) {
                same(bytes, |out| control.emit(out));
            }
        }
        _ => {}
    }
}

/// A message, and its body as every type.
fn routed(bytes: &[u8]) {
    let Ok(message) = Routed::parse(bytes) else { return };
    let mut out = Vec::new();
    message.emit(&mut out);
    assert_eq!(Routed::parse(&out).as_ref(), Ok(&message));
    if let Ok((body, covered, seal)) = Body::parse(message.message, message.body) {
        let mut out = Vec::new();
        body.emit(&mut out);
        assert_eq!(out.len(), covered.len());
        seal.emit(&mut out);
        let (again, ..) = Body::parse(message.message, &out).expect("what was written");
        assert_eq!(again, body);
    }
}

fuzz_target!(|data: &[u8]| {
    packet(data);
    routed(data);
    let mut count = 0;
    for item in Items::new(data).map_while(Result::ok) {
        count += 1;
        let mut out = Vec::new();
        item.emit(&mut out).expect("an item that fitted before");
        assert_eq!(Items::new(&out).next(), Some(Ok(item)));
    }
    assert!(count <= data.len() / Items::HEADER);
});
