//! The location service of workers: the registrations of this server, and what is known of other routers.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ringway_proxy::auth::Users;
use ringway_proxy::location::{
    BindingView, Commit, CommitTag, Elsewhere, LocationStore, MemoryStore, RecordEdit, ServerView,
};
use ringway_proxy::routes::RouteTable;
use ringway_sansio::{Flow, FlowId, Time, Transport};
use ringway_sip::digest::{Algorithm, Ha1};

use crate::exchange::{Exchange, World};
use crate::router_uri;

/// Registrations here and elsewhere.
pub struct MeshLocation<W> {
    /// Those here.
    pub local: Arc<MemoryStore>,
    /// What is known of others.
    pub exchange: Arc<Exchange<W>>,
}

impl<W: World> LocationStore for MeshLocation<W> {
    fn lookup(&self, aor: &[u8], now: Time, visit: &mut dyn FnMut(&BindingView<'_>)) -> usize {
        match self.local.lookup(aor, now, visit) {
            0 => match self.exchange.unmarked(aor) {
                Some(own) => self.local.lookup(&own, now, visit),
                None => 0,
            },
            count => count,
        }
    }

    fn update(
        &self,
        aor: &[u8],
        now: Time,
        tag: CommitTag,
        edit: &mut dyn FnMut(&mut RecordEdit<'_>),
    ) -> Commit {
        self.local.update(aor, now, tag, edit)
    }

    fn expire(&self, now: Time, budget: usize) -> usize {
        self.local.expire(now, budget)
    }

    fn connections(&self, worker: u8, visit: &mut dyn FnMut(&Flow)) {
        self.local.connections(worker, visit);
    }

    fn flow_closed(&self, flow: FlowId, now: Time) -> usize {
        self.local.flow_closed(flow, now)
    }

    fn watch(&self, aor: &[u8], worker: u8) {
        self.local.watch(aor, worker);
    }

    fn unwatch(&self, aor: &[u8], worker: u8) {
        self.local.unwatch(aor, worker);
    }

    fn records(&self) -> usize {
        self.local.records()
    }

    fn contacts(&self) -> usize {
        self.local.contacts()
    }

    fn elsewhere(
        &self,
        aor: &[u8],
        now: Time,
        visit: &mut dyn FnMut(&ServerView<'_>),
    ) -> Elsewhere {
        let Some(name) = self.exchange.name_of(aor) else {
            return Elsewhere::Known { exists: false };
        };
        let transport = self.exchange.transport();
        let exists = self.exchange.visit(name, now, &mut |router, preference| {
            visit(&ServerView::new(&path(router, transport), preference));
        });
        exists.map_or(Elsewhere::Unknown, |exists| Elsewhere::Known { exists })
    }

    fn path_to(&self, server: Ipv6Addr) -> Option<Box<[u8]>> {
        Some(path(server, self.exchange.transport()).into())
    }

    fn aliases(&self, aor: &[u8], now: Time, visit: &mut dyn FnMut(&[u8], u16)) {
        if let Some(name) = self.exchange.name_of(aor) {
            self.exchange.aliases(name, now, &mut |user, q| {
                visit(format!("sip:{user}").as_bytes(), q);
            });
        }
    }

    fn shared_rules(&self, now: Time) -> Option<Arc<RouteTable>> {
        self.exchange.shared_rules(now)
    }

    fn speaks_for(&self, server: IpAddr, aor: &[u8], now: Time) -> Option<bool> {
        match self.exchange.name_of(aor) {
            Some(name) => self.exchange.speaks_for(server, name, now),
            None => Some(false),
        }
    }

    fn is_home(&self, server: IpAddr, aor: &[u8], now: Time) -> Option<bool> {
        match self.exchange.name_of(aor) {
            Some(name) => self.exchange.is_home(server, name, now),
            None => Some(false),
        }
    }

    fn keeps_messages(&self) -> bool {
        true
    }
}

/// Returns the value of Path that leads to another router.
fn path(router: Ipv6Addr, transport: Transport) -> Vec<u8> {
    format!("<{};lr>", router_uri(router, transport)).into_bytes()
}

/// The users of this server, and that there may be others at other routers.
pub struct MeshUsers<U> {
    /// Those here.
    pub local: Arc<U>,
    /// The domain of the mesh.
    pub domain: Box<str>,
}

impl<U: Users> Users for MeshUsers<U> {
    fn ha1(&self, user: &[u8], realm: &[u8], algorithm: Algorithm) -> Option<Ha1> {
        self.local.ha1(user, realm, algorithm)
    }

    fn exists(&self, user: &[u8], realm: &[u8]) -> bool {
        self.local.exists(user, realm)
    }

    fn may_be_elsewhere(&self, user: &[u8], realm: &[u8]) -> bool {
        realm == self.domain.as_bytes() && !user.is_empty()
    }
}
