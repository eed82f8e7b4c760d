//! One chunk of SCTP and what is inside: parameters, error causes, gaps, requests. Whatever is read is
//! bounded by the chunk, and what an INIT says can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_sctp::wire::cause::Causes;
use ringway_sctp::wire::chunk::{Chunk, kind};
use ringway_sctp::wire::reconfig::Reconfig;
use ringway_sctp::wire::{Init, InitParameters, Packet, Parameters, Writer, asconf};

fn init(init: &Init<'_>, is_answer: bool) {
    let _ = init.check();
    let Ok(read) = InitParameters::read(init, is_answer) else { return };
    // Nobody writes a host name, or half of what authentication asks for.
    let half = read.auth.as_ref().is_some_and(|auth| !auth.is_complete());
    if read.host_name || half {
        return;
    }
    // What is to be reported is the answer's to bear.
    let mut out = Vec::new();
    let chunk_kind = if is_answer { kind::INIT_ACK } else { kind::INIT };
    read.emit(&mut out, chunk_kind, init);
    let mut packet = Vec::new();
    let mut writer = Writer::new(&mut packet, 1 << 20, 1, 2, 3);
    writer.chunks().extend_from_slice(&out);
    writer.finish();
    let packet = Packet::parse(&packet).expect("a packet");
    let raw = packet.chunks().next().expect("a chunk").expect("a whole one");
    let (Ok(Chunk::Init(again)) | Ok(Chunk::InitAck(again))) = raw.parse() else {
        panic!("it was written as another chunk")
    };
    let again = InitParameters::read(&again, is_answer).expect("what was written");
    assert_eq!(again.addresses, read.addresses);
    assert_eq!(again.cookie, read.cookie);
    assert_eq!(again.forward_tsn, read.forward_tsn);
}

fuzz_target!(|data: &[u8]| {
    if data.is_empty() {
        return;
    }
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, 1 << 20, 1, 2, 3);
    writer.chunks().extend_from_slice(data);
    writer.finish();
    let packet = Packet::parse(&bytes).expect("a packet");
    let Some(Ok(raw)) = packet.chunks().next() else { return };
    assert!(raw.whole.len() <= data.len());
    let Ok(chunk) = raw.parse() else { return };
    match chunk {
        Chunk::Init(ref fixed) => init(fixed, false),
        Chunk::InitAck(ref fixed) => init(fixed, true),
        Chunk::Sack(ref sack) => {
            assert!(sack.gaps().count() + sack.duplicates().count() <= data.len() / 4);
        }
        Chunk::Abort { causes, .. } | Chunk::Error(causes) => {
            assert!(Causes::new(causes).count() <= data.len() / 4);
        }
        Chunk::ReConfig(value) => {
            for parameter in Parameters::new(value).map_while(Result::ok) {
                if let Some(Ok(request)) = Reconfig::read(&parameter) {
                    let mut out = Vec::new();
                    request.emit(&mut out);
                    let written = Parameters::new(&out).next().expect("one").expect("whole");
                    let again = Reconfig::read(&written).expect("its kind").expect("read again");
                    assert_eq!(again, request);
                }
            }
        }
        Chunk::Asconf(_, value) => {
            if let Some((_, requests)) = asconf::requests(value) {
                assert!(requests.count() <= data.len() / 4);
            }
        }
        Chunk::AsconfAck(_, value) => {
            assert!(asconf::outcomes(value).count() <= data.len() / 4);
        }
        _ => {}
    }
});
