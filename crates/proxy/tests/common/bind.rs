//! Registrations, put into the store without a REGISTER.

use super::{DOMAIN, Peer, World};
use ringway_proxy::location::{BindingView, CommitTag, LocationStore};
use ringway_sansio::{Duration, Flow};

/// A binding to be.
#[derive(Clone, Debug, Default)]
pub struct Bind {
    contact: String,
    q: Option<u16>,
    path: String,
    instance: String,
    reg_id: u32,
    flow: Option<Flow>,
    outbound: bool,
    nat: bool,
}

/// A binding of this Contact URI.
pub fn bind(contact: impl Into<String>) -> Bind {
    Bind { contact: contact.into(), ..Bind::default() }
}

impl Bind {
    /// Preference in thousandths.
    pub fn q(self, q: u16) -> Bind {
        Bind { q: Some(q), ..self }
    }

    /// Path elements, joined by a comma (RFC 3327).
    pub fn path(self, path: &str) -> Bind {
        Bind { path: path.into(), ..self }
    }

    /// Registered over this peer's flow.
    pub fn over(self, peer: Peer) -> Bind {
        Bind { flow: Some(peer.flow(0)), ..self }
    }

    /// Registered from behind a NAT.
    pub fn nat(self) -> Bind {
        Bind { nat: true, ..self }
    }

    /// Of this instance, without outbound.
    pub fn instance(self, instance: &str) -> Bind {
        Bind { instance: instance.into(), ..self }
    }

    /// Registered with outbound (RFC 5626).
    pub fn outbound(self, instance: &str, reg_id: u32) -> Bind {
        Bind { instance: instance.into(), reg_id, outbound: true, ..self }
    }
}

impl World {
    /// Registers a user of the domain at a peer, by its address.
    pub fn register(&mut self, user: &str, peer: Peer) {
        self.bind(user, bind(peer.contact()));
    }

    /// Adds a binding to a user's record; it is the most recent one.
    pub fn bind(&mut self, user: &str, b: Bind) {
        let aor = format!("sip:{user}@{DOMAIN}");
        let view = BindingView {
            contact: b.contact.as_bytes(),
            params: b"",
            q: b.q.unwrap_or(1000),
            expires: self.now + Duration::from_secs(3600),
            path: b.path.as_bytes(),
            instance: b.instance.as_bytes(),
            reg_id: b.reg_id,
            flow: b.flow,
            call_id: b"registration",
            cseq: 1,
            outbound: b.outbound,
            nat: b.nat,
            epoch: 0,
            first_cseq: 0,
        };
        let tag = CommitTag { worker: 0, id: 0 };
        self.store.update(aor.as_bytes(), self.now, tag, &mut |edit| {
            edit.put(&view).expect("a binding that fits");
            for old in edit.current() {
                edit.put(&old).expect("a binding that fits");
            }
            edit.commit();
        });
    }
}
