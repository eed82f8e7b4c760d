//! A URI, and a second one to compare it with.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_sip::{NameAddr, Uri};

fuzz_target!(|data: &[u8]| {
    let (one, two) = match data.iter().position(|&b| b == b'\n') {
        Some(i) => (&data[..i], &data[i + 1..]),
        None => (data, data),
    };
    let _ = NameAddr::parse(one);
    let (Ok(a), Ok(b)) = (Uri::parse(one), Uri::parse(two)) else { return };
    assert!(a.equivalent(&a));
    assert_eq!(a.equivalent(&b), b.equivalent(&a));
    let _ = (a.host_ip(), a.transport(), a.params().count(), a.header_fields().count());
    let mut key = Vec::new();
    a.aor(&mut key);
    // A `#` becomes three octets; for the rest a key is no longer than what it is the key of.
    if key.len() > ringway_sip::limits::MAX_URI {
        return;
    }
    let again = Uri::parse(&key).expect("a key is a URI");
    let mut same = Vec::new();
    again.aor(&mut same);
    assert_eq!(key, same);
});
