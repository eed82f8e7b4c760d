//! The broker of this process, from its environment.
//!
//! It is read once, so that a program that clears its environment, as servers do for their workers, keeps its broker.

use libc::c_char;
use ringway_with_wire::environment::VARIABLE;
use ringway_with_wire::{BrokerId, Environment, Secret};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

const UNREAD: u8 = 0;
const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

/// Several threads may store the same values at once.
static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static BROKER: AtomicU64 = AtomicU64::new(0);
static SECRET: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static USER: AtomicU32 = AtomicU32::new(0);
static DATAGRAMS: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Returns the broker; `None` in a process that has none.
pub(crate) fn get() -> Option<Environment> {
    match STATE.load(Ordering::Acquire) {
        PRESENT => {}
        ABSENT => return None,
        _ => store(find())?,
    }
    let mut secret = [0; 16];
    secret[..8].copy_from_slice(&SECRET[0].load(Ordering::Relaxed).to_ne_bytes());
    secret[8..].copy_from_slice(&SECRET[1].load(Ordering::Relaxed).to_ne_bytes());
    Some(Environment {
        broker: BrokerId(BROKER.load(Ordering::Relaxed).to_ne_bytes()),
        secret: Secret(secret),
        user: USER.load(Ordering::Relaxed),
        datagrams: DATAGRAMS.load(Ordering::Relaxed),
    })
}

fn store(found: Option<Environment>) -> Option<()> {
    let Some(Environment { broker, secret, user, datagrams }) = found else {
        STATE.store(ABSENT, Ordering::Release);
        return None;
    };
    BROKER.store(u64::from_ne_bytes(broker.0), Ordering::Relaxed);
    for (word, octets) in SECRET.iter().zip(secret.0.chunks_exact(8)) {
        let octets = octets.try_into().unwrap_or_default();
        word.store(u64::from_ne_bytes(octets), Ordering::Relaxed);
    }
    USER.store(user, Ordering::Relaxed);
    DATAGRAMS.store(datagrams, Ordering::Relaxed);
    STATE.store(PRESENT, Ordering::Release);
    Some(())
}

fn find() -> Option<Environment> {
    // SAFETY: the C library's variable, which is null or a list of strings that ends with a null.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = CStr::from_ptr(*entry).to_bytes();
            if let Some(value) = text.strip_prefix(VARIABLE.as_bytes())
                && let [b'=', value @ ..] = value
            {
                return Environment::read(value);
            }
            entry = entry.add(1);
        }
    }
    None
}
