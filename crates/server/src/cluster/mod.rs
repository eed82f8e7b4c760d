//! The server as a node of a cluster: several servers on one database (Redis or Valkey).
//!
//! What is published, known and waited for is the matter of `ringway_cluster`. Workers call it from their threads and never
//! wait; a thread of its own talks with the database.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | the section of the configuration |
//! | [`membership`] | which node this server is |
//! | `moving` | what a node does with its phones before it stops |
//! | `announce` | what a node publishes when it starts |
//! | `letters` | messages of this node to others, and of others to it |
//! | `driver` | the thread: commands go to the database, and reports come back |
//! | `database` | commands of a node as commands of Redis or Valkey; `client` connects |
//! | `topology` | which primary of many has which users |

pub(crate) mod announce;
#[cfg(feature = "cluster")]
pub(crate) mod client;
#[cfg(feature = "cluster")]
mod database;
#[cfg(feature = "cluster")]
mod driver;
#[cfg(feature = "cluster")]
mod letters;
pub mod membership;
pub(crate) mod moving;
pub mod settings;
#[cfg(feature = "cluster")]
mod topology;

pub use membership::Membership;
pub use settings::ClusterSettings;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use ringway_cluster::machine::State;
use ringway_cluster::{Config, Event, Machine, Shard, World, journal};
use ringway_net::{Clock, Mailbox};
use ringway_proxy::config::{ClusterNodes, NodeKey};
use ringway_proxy::states::OTHER_SERVERS;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tracing::{error, info, warn};

use crate::post::{Post, post_committed};
use crate::states::Run;
use crate::states::inbox::Inbox;
use crate::states::nodes::{MAX_LETTERS, Outgoing};

/// The connection of all workers with the database.
pub type Hub = ringway_cluster::Hub<Channels>;

/// The channels to the workers and to the thread of the database.
pub struct Channels {
    wake: Notify,
    mailboxes: OnceLock<Vec<Mailbox<Post>>>,
    nodes: watch::Sender<ClusterNodes>,
    key: NodeKey,
    replicas: u32,
    /// What comes for the thread of states.
    states: Arc<Inbox<Run>>,
    /// Why a shard did not answer last.
    why: Mutex<BTreeMap<Shard, String>>,
}

impl Channels {
    /// Sets where workers receive answers. Only the first call has an effect.
    pub fn set_mailboxes(&self, mailboxes: Vec<Mailbox<Post>>) {
        let _ = self.mailboxes.set(mailboxes);
    }

    /// Returns where what comes for the states of users waits.
    pub(crate) fn states(&self) -> &Arc<Inbox<Run>> {
        &self.states
    }

    fn mailbox(&self, worker: u8) -> Option<&Mailbox<Post>> {
        self.mailboxes.get()?.get(usize::from(worker))
    }

    /// A shard does not answer, for this reason, or does.
    fn set_why(&self, shard: &Shard, failure: Option<String>) {
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        match failure {
            Some(failure) => why.insert(shard.clone(), failure),
            None => why.remove(shard),
        };
    }

    /// These are the shards now: why another did not answer concerns nobody any more.
    #[cfg(feature = "cluster")]
    fn keep_why(&self, shards: &[Shard]) {
        let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.retain(|shard, _| shard.is_whole() || shards.contains(shard));
    }

    fn why(&self, shard: &Shard) -> String {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        why.get(shard).map_or_else(|| "too slow".to_owned(), String::clone)
    }

    /// Logs the state of a shard of many.
    fn log_shard(&self, shard: &Shard, state: State) {
        match state {
            State::Ready => {
                self.set_why(shard, None);
                info!("the shard {shard} of the database takes registrations");
            }
            State::Absent => error!(
                "the shard {shard} of the database does not answer ({}): registrations of its users are refused",
                self.why(shard)
            ),
            State::Superseded => {}
            State::Unreplicated { replicas } => warn!(
                "the shard {shard} of the database has {replicas} replicas, expected {} (cluster.replicas): \
                 registrations of its users are refused",
                self.replicas
            ),
        }
    }

    fn log(&self, state: State) {
        match state {
            State::Ready => {
                self.set_why(&Shard::whole(), None);
                info!("the database of the cluster takes registrations");
            }
            State::Absent => error!(
                "the database of the cluster does not answer ({}): registrations are refused, \
                 calls go on from what is known",
                self.why(&Shard::whole())
            ),
            State::Superseded => {
                error!(
                    "another server has this node's address (cluster.address): registrations are refused"
                );
            }
            State::Unreplicated { replicas } => warn!(
                "the database of the cluster has {replicas} replicas, expected {} (cluster.replicas): \
                 registrations are refused",
                self.replicas
            ),
        }
    }
}

impl World for Channels {
    fn wake(&self) {
        self.wake.notify_one();
    }

    fn carry(&self, event: Event) {
        match event {
            Event::Committed { tag, stored } => {
                if let Some(mailbox) = self.mailbox(tag.worker) {
                    post_committed(mailbox, tag.id, stored);
                }
            }
            Event::Answered { worker: OTHER_SERVERS, id, .. } => self.states.answered(id),
            Event::Answered { worker, id, reply } => {
                // What does not arrive is given up by its worker after a while.
                if let Some(mailbox) = self.mailbox(worker) {
                    mailbox.try_post(Post::Answered(id, reply));
                }
            }
            Event::Nodes(names) => {
                let addresses: Vec<SocketAddr> = names.iter().map(|name| name.address).collect();
                info!("other nodes of the cluster: {addresses:?}");
                self.states.servers_changed();
                self.nodes.send_modify(|nodes| {
                    let secrets = nodes.secrets().clone();
                    *nodes = ClusterNodes::new(addresses, self.key).sharing(secrets);
                });
            }
            Event::Secrets(secrets) => {
                info!(
                    "the secrets of tokens that nodes share have changed; there are {}",
                    secrets.len()
                );
                self.nodes.send_modify(|nodes| *nodes = nodes.clone().sharing(secrets));
            }
            Event::Gone(names) => {
                let gone: Arc<[SocketAddr]> = names.iter().map(|name| name.address).collect();
                for mailbox in self.mailboxes.get().into_iter().flatten() {
                    // Without it, requests wait for a final response as long as any.
                    mailbox.try_post(Post::NodesGone(gone.clone()));
                }
            }
            Event::Moved(user) => self.states.moved(&user),
            Event::Gap => self.states.gap(),
            Event::State(state) => self.log(state),
            Event::Shard(shard, state) => self.log_shard(&shard, state),
            Event::UnusableSecrets => error!(
                "the key {} in the database of the cluster is no hash of ours, so another program has written it: nodes do \
                 not read each other's nonces, dialogs and temporary GRUUs until it is deleted",
                ringway_cluster::secrets::SECRETS
            ),
            Event::Unusable(user) => {
                let key =
                    String::from_utf8_lossy(&ringway_cluster::record::key(&user)).into_owned();
                error!(
                    "the key {key:?} in the database of the cluster is no hash, so another program has written it: \
                     the user's registrations are refused until it is deleted"
                );
            }
        }
    }
}

/// The thread that talks with the database.
pub struct ClusterThread {
    hub: Arc<Hub>,
    nodes: watch::Receiver<ClusterNodes>,
    letters: mpsc::Sender<Outgoing>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ClusterThread {
    /// Starts the thread. It does not wait for the database.
    ///
    /// # Errors
    /// What makes a start impossible.
    pub(crate) fn start(membership: Membership, clock: Clock) -> Result<Self, String> {
        let Membership { name, replicas, .. } = membership;
        let sharded = membership.database.cluster;
        // A later run has a later time, unless the clock was set back: then the lease of the run before ends first.
        let mut key = NodeKey([0; 16]);
        getrandom::fill(&mut key.0).map_err(|e| format!("cluster: random octets: {e}"))?;
        let config = Config { name, boot: clock.now().as_millis(), replicas, key, sharded };
        let (sender, nodes) = watch::channel(ClusterNodes::default());
        let channels = Channels {
            wake: Notify::new(),
            mailboxes: OnceLock::new(),
            nodes: sender,
            key,
            replicas,
            states: Arc::default(),
            why: Mutex::default(),
        };
        let hub = Arc::new(Hub::new(Machine::new(config), channels));
        let (stop, stopped) = oneshot::channel();
        let (letters, outgoing) = mpsc::channel(MAX_LETTERS);
        let thread = start_thread(membership, hub.clone(), clock, (stopped, outgoing))?;
        Ok(ClusterThread { hub, nodes, letters, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the connection with the database.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Returns the other nodes, and learns of changes of them.
    pub fn nodes(&self) -> watch::Receiver<ClusterNodes> {
        self.nodes.clone()
    }

    /// Returns where messages to other nodes are taken.
    pub(crate) fn letters(&self) -> &mpsc::Sender<Outgoing> {
        &self.letters
    }

    /// Ends the lease, if it has not ended yet, and the thread.
    pub fn stop(&mut self) {
        // The thread may have ended.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            error!("the connection with the database has ended unexpectedly");
        }
    }
}

#[cfg(feature = "cluster")]
fn start_thread(
    membership: Membership,
    hub: Arc<Hub>,
    clock: Clock,
    (stopped, outgoing): (oneshot::Receiver<()>, mpsc::Receiver<Outgoing>),
) -> Result<JoinHandle<()>, String> {
    let database = database::Database::new(&membership, hub.key())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("cluster: {e}"))?;
    let run = move || runtime.block_on(driver::drive(hub, database, clock, (stopped, outgoing)));
    std::thread::Builder::new()
        .name("cluster".into())
        .spawn(run)
        .map_err(|e| format!("cluster: {e}"))
}

#[cfg(not(feature = "cluster"))]
fn start_thread(
    membership: Membership,
    _: Arc<Hub>,
    _: Clock,
    _: (oneshot::Receiver<()>, mpsc::Receiver<Outgoing>),
) -> Result<JoinHandle<()>, String> {
    Err(format!("store {}: {}", membership.database, crate::config::NO_DATABASE))
}

/// Returns the journal of a node.
pub(crate) fn journal(
    hub: Arc<Hub>,
    disk: Option<Box<dyn ringway_proxy::location::Journal>>,
) -> Box<journal::ClusterJournal<Channels>> {
    Box::new(journal::ClusterJournal { hub, disk })
}
