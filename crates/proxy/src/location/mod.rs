//! The location service: the contacts that an address-of-record is bound to (RFC 3261 section 10).
//!
//! This module contains the table, and the trait for other tables (on disk, in a cluster). It does not interpret
//! REGISTER: [`crate::registrar`] decides which binding replaces which. It never waits: a durable store returns
//! [`Commit::Pending`], and reports later that a [`CommitTag`] is durable.
//!
//! Read [`record`] for the bytes of one address-of-record (the same in memory and on disk), [`memory`] for the sharded
//! table, [`flows`] for the index from a closed connection to its bindings.

pub mod flows;
pub mod memory;
pub mod record;
pub(crate) mod wire;

pub use memory::{Journal, ListCursor, MemoryStore, Sink};
pub use record::{BindingView, Bindings, RecordEdit, TooLarge};
pub use wire::CorruptRecord;

use crate::routes::RouteTable;
use ringway_sansio::{Flow, FlowId, Time};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The maximum length of an address-of-record, in bytes.
pub const MAX_AOR: usize = 1024;
/// The maximum number of bindings in one record. A registrar's own limit per user is usually far lower.
pub const MAX_BINDINGS: usize = 100;
/// The maximum length of one text of a binding (contact URI, parameters, path, instance, Call-ID), in bytes.
pub const MAX_TEXT: usize = 4096;
/// The maximum length of a record without its address-of-record, in bytes.
pub const MAX_RECORD: usize = 65_535;

/// The state of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// Made, and as durable as this store can make it.
    Done,
    /// Visible now and durable later: the store will report the [`CommitTag`]. A 200 must wait for it.
    Pending,
    /// Not made: the store cannot accept more at present.
    Refused,
}

/// Identifies a change to a durable store, so that its result can be reported to the worker that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct CommitTag {
    /// The worker to notify.
    pub worker: u8,
    /// The worker's own number for it.
    pub id: u64,
}

/// The reason for a change of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// By [`LocationStore::update`].
    Updated,
    /// Bindings expired.
    Expired,
    /// The flow of a binding closed.
    FlowClosed,
    /// The other server that had the binding is gone.
    ServerGone,
}

/// A server other than this one at which an address-of-record is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerView<'a> {
    /// A value of Path (RFC 3327) that leads there, such as `<sip:[fd01::1]:5060;lr>`.
    pub path: &'a [u8],
    /// q of the user there, in thousandths.
    pub q: u16,
    /// The time at which the last binding there ends.
    pub ends: Time,
    /// The phones there, as far as they are known, each by its [`instance_hash`].
    pub instances: &'a [u64],
    /// Whether it has, or may have, contacts of other phones.
    pub others: bool,
}

impl<'a> ServerView<'a> {
    /// Returns a server of which no more is known than how to reach it, and the q there.
    pub fn new(path: &'a [u8], q: u16) -> Self {
        ServerView { path, q, ends: Time::ZERO, instances: &[], others: true }
    }
}

/// Returns the hash by which servers name a phone: of its instance (RFC 5626 section 4.1). All of them compute it alike.
pub fn instance_hash(instance: &[u8]) -> u64 {
    // Compared among the phones that one request is for: their owners gain nothing from a collision.
    let mut hasher = SipHasher13::new();
    hasher.write(instance);
    hasher.finish()
}

/// What is known about the other servers at which a user is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elsewhere {
    /// All of them are known.
    Known {
        /// Whether any other server has the address-of-record: without contacts it is then answered with 480, not 404.
        exists: bool,
    },
    /// The world must be asked: [`Event::Ask`](crate::Event::Ask).
    Unknown,
}

/// A table of registrations that all workers share.
///
/// An address-of-record is the canonical key of RFC 3261 section 10.3 step 5, as bytes; the store
/// compares it byte for byte. Callbacks run while a part of the table is locked: they must be short
/// and must not call the store again.
pub trait LocationStore: Send + Sync {
    /// Visits the bindings of `aor` that are live at `now`, the most recently registered first. Returns how many there
    /// are. Called for every call: it allocates nothing.
    fn lookup(&self, aor: &[u8], now: Time, visit: &mut dyn FnMut(&BindingView<'_>)) -> usize;

    /// Visits the servers other than this one at which `aor` is registered. Answers from memory. By default there are no other
    /// servers.
    fn elsewhere(
        &self,
        _aor: &[u8],
        _now: Time,
        _visit: &mut dyn FnMut(&ServerView<'_>),
    ) -> Elsewhere {
        Elsewhere::Known { exists: false }
    }

    /// Returns the number of registrations of one worker that may wait for this store. By default there is no limit but the
    /// worker's.
    fn max_waiting(&self) -> usize {
        usize::MAX
    }

    /// Returns the value of Path that leads to the server with this address in the mesh, as for
    /// [`LocationStore::elsewhere`]. By default there are no other servers.
    fn path_to(&self, _server: Ipv6Addr) -> Option<Box<[u8]>> {
        None
    }

    /// Returns whether the server at this address may send requests as `aor`: because the user is at home there, or
    /// registered. `None` if the world must be asked, as for [`LocationStore::elsewhere`]. By default no server may.
    fn speaks_for(&self, _server: IpAddr, _aor: &[u8], _now: Time) -> Option<bool> {
        Some(false)
    }

    /// Returns whether the server at this address is the home of `aor`, which may deliver messages to this user that others
    /// have left. `None` if the world must be asked. By default it is not.
    fn is_home(&self, _server: IpAddr, _aor: &[u8], _now: Time) -> Option<bool> {
        Some(false)
    }

    /// Returns whether the world may be asked to keep messages for users who are registered nowhere. By default not.
    fn keeps_messages(&self) -> bool {
        false
    }

    /// Visits the users that a name without contacts stands for, each by its address-of-record, with its q in thousandths:
    /// the user who has a number, or those who answer emergency calls. Answers from memory what
    /// [`LocationStore::elsewhere`] has found out. By default a name stands for nobody else.
    fn aliases(&self, _aor: &[u8], _now: Time, _visit: &mut dyn FnMut(&[u8], u16)) {}

    /// Returns the routing rules that other servers share, whose next hops are these servers; `None` if the world must be
    /// asked. By default there are none.
    fn shared_rules(&self, _now: Time) -> Option<Arc<RouteTable>> {
        Some(Arc::default())
    }

    /// Changes one record, all or nothing. `edit` reads the present record, writes the new bindings and calls
    /// [`RecordEdit::commit`]. Without that call nothing changes and the result is [`Commit::Done`]. `edit` is called
    /// exactly once.
    ///
    /// An `aor` longer than [`MAX_AOR`] is [`Commit::Refused`] without calling `edit`.
    fn update(
        &self,
        aor: &[u8],
        now: Time,
        tag: CommitTag,
        edit: &mut dyn FnMut(&mut RecordEdit<'_>),
    ) -> Commit;

    /// Removes bindings that have expired at `now`. Visits about `budget` slots of the table, and continues next time
    /// where it stopped. Returns the number of bindings removed. Expired bindings are never returned, whether removed
    /// yet or not.
    fn expire(&self, now: Time, budget: usize) -> usize;

    /// Reports that a connection has closed. Bindings that can only be reached over it are removed; others that came
    /// over it lose their flow (RFC 5626 section 7). Returns the number of bindings changed.
    fn flow_closed(&self, flow: FlowId, now: Time) -> usize;

    /// Visits the connections of a worker over which contacts are registered.
    fn connections(&self, worker: u8, visit: &mut dyn FnMut(&Flow));

    /// Reports every change to `aor` to `worker` from now on, until [`LocationStore::unwatch`]. A second call has no
    /// effect.
    fn watch(&self, aor: &[u8], worker: u8);

    /// Stops the reports of changes to `aor` to `worker`.
    fn unwatch(&self, aor: &[u8], worker: u8);

    /// Returns the number of addresses-of-record in the table, including expired ones that are not removed yet.
    fn records(&self) -> usize;

    /// Returns the number of bindings in the table, including expired ones that are not removed yet.
    fn contacts(&self) -> usize;
}

#[cfg(test)]
pub(crate) mod tests {
    //! Helpers that the tests of the location service share.

    use super::*;
    use proptest::prelude::*;
    use ringway_sansio::{Flow, Transport};

    pub(crate) fn binding() -> BindingView<'static> {
        BindingView {
            contact: b"sip:user000123@192.0.2.17:5060;transport=udp",
            params: b"",
            q: record::DEFAULT_Q,
            expires: Time::from_secs(1_000_000),
            path: b"",
            instance: b"",
            reg_id: 0,
            flow: None,
            call_id: b"0123456789012345678901234567890123456789",
            cseq: 1,
            outbound: false,
            nat: false,
            epoch: 0,
            first_cseq: 0,
        }
    }

    pub(crate) fn flow(serial: u64, transport: Transport) -> Flow {
        Flow {
            id: FlowId::new(0, serial),
            transport,
            local: "192.0.2.1:5060".parse().unwrap(),
            remote: "192.0.2.17:5060".parse().unwrap(),
        }
    }

    /// A binding that owns its texts.
    #[derive(Clone, Debug)]
    pub(crate) struct Owned {
        texts: [Vec<u8>; 5],
        numbers: (u16, u64, u32, u32, u64, bool),
        flow: Option<Flow>,
    }

    impl Owned {
        pub(crate) fn view(&self) -> BindingView<'_> {
            let [contact, params, path, instance, call_id] = &self.texts;
            let (q, ms, reg_id, cseq, epoch, outbound) = self.numbers;
            BindingView {
                contact,
                params,
                q,
                expires: Time::from_millis(ms),
                path,
                instance,
                reg_id,
                flow: self.flow,
                call_id,
                cseq,
                outbound,
                nat: cseq % 2 == 1,
                epoch: if instance.is_empty() { 0 } else { epoch },
                first_cseq: if instance.is_empty() { 0 } else { cseq / 2 },
            }
        }
    }

    pub(crate) fn any_flow() -> impl Strategy<Value = Flow> {
        let addr = || any::<(IpAddr, u16)>().prop_map(Into::into);
        (0u64..6, 0usize..4, addr(), addr()).prop_map(|(serial, t, local, remote)| Flow {
            id: FlowId::new(0, serial),
            transport: [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws][t],
            local,
            remote,
        })
    }

    pub(crate) fn any_binding() -> impl Strategy<Value = Owned> {
        let text = || {
            prop_oneof![
                4 => prop::collection::vec(any::<u8>(), 0..60),
                1 => prop::collection::vec(any::<u8>(), 100..400),
            ]
        };
        (
            [text(), text(), text(), text(), text()],
            (0u16..=1000, 0u64..100_000, any::<u32>(), any::<u32>(), any::<u64>(), any::<bool>()),
            prop::option::of(any_flow()),
        )
            .prop_map(|(texts, numbers, flow)| Owned { texts, numbers, flow })
    }
}
