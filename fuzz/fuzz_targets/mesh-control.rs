//! A message between routers, its body and its signature: a signature is for one type, target, origin, number and body,
//! whatever routers on the way do to the rest. What a message of these octets says is verified only if its signer says it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_mesh::NodeId;
use ringway_mesh::crypto::{Crypto, Domain, StandIn};
use ringway_mesh::identity::{Identity, Search};
use ringway_mesh::wire::bodies::Seal;
use ringway_mesh::wire::{Body, Routed};
use ringway_sansio::SplitMix;

fn identity(seed: u64) -> Identity {
    Search::new(0, &mut SplitMix::new(seed)).step(1).expect("any modifier has no zero bits to miss")
}

/// Returns whether the message in these octets is signed by `key`.
fn is_signed(bytes: &[u8], key: &[u8; 32], domain: Domain) -> Option<bool> {
    let message = Routed::parse(bytes).ok()?;
    let (_, covered, seal) = Body::parse(message.message, message.body).ok()?;
    let Seal::Signature(signature) = seal else { return None };
    let mut signed = Vec::new();
    message.put_signed(covered, &mut signed);
    Some(StandIn::verify(key, domain, &signed, &signature))
}

fuzz_target!(|data: &[u8]| {
    let Some((&[at, value], bytes)) = data.split_first_chunk::<2>() else { return };
    let (own, other) = (identity(1), identity(2));
    let key = &own.proof().key;
    let Ok(message) = Routed::parse(bytes) else { return };
    let Ok((body, _, seal)) = Body::parse(message.message, message.body) else { return };
    let domain = match body {
        Body::Payload { .. } => Domain::Payload,
        _ => Domain::Message,
    };
    if seal == Seal::None {
        return;
    }
    let mut written = Vec::new();
    body.emit(&mut written);
    let mut signed = Vec::new();
    message.put_signed(&written, &mut signed);
    Seal::Signature(StandIn::sign(&own, domain, &signed)).emit(&mut written);
    let (length, mut whole) = (written.len(), Vec::new());
    Routed { body: &written, ..message.clone() }.emit(&mut whole);
    assert_eq!(is_signed(&whole, key, domain), Some(true));
    assert_eq!(is_signed(&whole, &other.proof().key, domain), Some(false));
    let another = if domain == Domain::Message { Domain::Payload } else { Domain::Message };
    assert_eq!(is_signed(&whole, key, another), Some(false));

    // What changes on the way is not signed; the rest is.
    let mut passed = message.clone();
    (passed.path_cost, passed.path_mtu, passed.best) = (value.into(), at.into(), u64::from(value));
    (passed.hop_limit, passed.at) = (value.into(), 0);
    let mut out = Vec::new();
    Routed { body: &written, ..passed }.emit(&mut out);
    assert_eq!(is_signed(&out, key, domain), Some(true));
    let mut moved = message.clone();
    moved.origin = NodeId::new(moved.origin.raw() ^ (1 << (at & 63)));
    let mut out = Vec::new();
    Routed { body: &written, ..moved }.emit(&mut out);
    assert_eq!(is_signed(&out, key, domain), Some(false));
    let flipped = whole.len() - length + usize::from(at) % length;
    whole[flipped] ^= value.max(1);
    assert_ne!(is_signed(&whole, key, domain), Some(true));
});
