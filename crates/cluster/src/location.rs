//! The location service of workers: the registrations of this node, and what is known of other nodes.

use std::net::IpAddr;
use std::sync::Arc;

use ringway_proxy::location::{
    BindingView, Commit, CommitTag, Elsewhere, LocationStore, MemoryStore, RecordEdit, ServerView,
};
use ringway_sansio::{Flow, FlowId, Time};

use crate::cache::Server;
use crate::config::MAX_WAITING;
use crate::hub::{Hub, World};
use crate::presence::Phones;

/// Registrations here and at other nodes.
pub struct ClusterLocation<W> {
    /// Those here.
    pub local: Arc<MemoryStore>,
    /// What is known of others.
    pub hub: Arc<Hub<W>>,
    /// The number of workers, which share the registrations that may wait.
    pub workers: usize,
}

impl<W: World> LocationStore for ClusterLocation<W> {
    fn lookup(&self, aor: &[u8], now: Time, visit: &mut dyn FnMut(&BindingView<'_>)) -> usize {
        self.local.lookup(aor, now, visit)
    }

    fn elsewhere(
        &self,
        aor: &[u8],
        now: Time,
        visit: &mut dyn FnMut(&ServerView<'_>),
    ) -> Elsewhere {
        let exists = self.hub.visit(aor, now, &mut |server, key| {
            let Server { node, q, ends, ref phones, .. } = *server;
            let (path, Phones { instances, others }) = (&*node.path(key), phones);
            visit(&ServerView { path, q, ends, instances, others: *others });
        });
        exists.map_or(Elsewhere::Unknown, |exists| Elsewhere::Known { exists })
    }

    fn max_waiting(&self) -> usize {
        MAX_WAITING / self.workers.max(1)
    }

    /// A node has authenticated the user as this one would have.
    fn speaks_for(&self, _node: IpAddr, _aor: &[u8], _now: Time) -> Option<bool> {
        Some(true)
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

    fn flow_closed(&self, flow: FlowId, now: Time) -> usize {
        self.local.flow_closed(flow, now)
    }

    fn connections(&self, worker: u8, visit: &mut dyn FnMut(&Flow)) {
        self.local.connections(worker, visit);
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
}
