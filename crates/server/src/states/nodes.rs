//! The nodes of a cluster, for the thread of states.

use std::collections::VecDeque;
use std::sync::Arc;

use ringway_cluster::NodeName;
use ringway_cluster::hub::World;
use ringway_follow::{Carrier, Config, Whereabouts};
use ringway_proxy::location::{LocationStore, instance_hash};
use ringway_proxy::shared::Shared;
use ringway_proxy::states::OTHER_SERVERS;
use ringway_proxy::{AskId, Question};
use ringway_sansio::Time;
use tokio::sync::mpsc;

use super::Link;

/// Maximum number of messages that wait for the database.
pub(crate) const MAX_LETTERS: usize = 256;
/// Maximum number of questions whose answer is awaited.
const MAX_ASKED: usize = 64;

/// A run of a node: a node that has started again is another server, which knows nothing of what the one before was sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// The node.
    pub node: NodeName,
    /// Its run.
    pub boot: u64,
}

impl Run {
    /// Returns a number by which the run is known in the table of states.
    fn number(self) -> u64 {
        // Nodes are few, and who names them gains nothing from a collision.
        instance_hash(format!("{} {}", self.node, self.boot).as_bytes())
    }
}

/// A message for a run of another node.
pub(crate) type Outgoing = (Run, Box<[u8]>);

/// What a node knows of others, and its way to them.
pub(crate) struct Nodes<W> {
    hub: Arc<ringway_cluster::Hub<W>>,
    letters: mpsc::Sender<Outgoing>,
    /// Questions, each with its user, the oldest first.
    asked: VecDeque<(AskId, Box<str>)>,
    questions: u32,
}

impl<W: World> Nodes<W> {
    pub(crate) fn new(hub: Arc<ringway_cluster::Hub<W>>, letters: mpsc::Sender<Outgoing>) -> Self {
        Nodes { hub, letters, asked: VecDeque::new(), questions: 0 }
    }

    /// Returns where a user is registered, if that is known.
    fn known(&self, now: Time, name: &str) -> Option<Vec<Run>> {
        let runs = self.hub.registered_at(format!("sip:{name}").as_bytes(), now)?;
        Some(runs.into_iter().map(|(node, boot)| Run { node, boot }).collect())
    }
}

/// Returns what carries states of users to other nodes and back, for a node whose server has these tables.
pub(crate) fn carrier<W: World>(
    hub: &ringway_cluster::Hub<W>,
    shared: Arc<Shared>,
    location: Arc<dyn LocationStore>,
) -> Carrier<Run> {
    let ((node, boot), _) = hub.runs();
    // The proxy has checked whom its subscribers ask for, and other nodes have the same domains.
    let is_ours = Box::new(|_: &str| true);
    Carrier::new(Config::of_node(), (Run { node, boot }, Run::number), is_ours, shared, location)
}

impl<W: World + 'static> Link for Nodes<W> {
    type Id = Run;

    fn send(&mut self, to: Run, octets: Box<[u8]>) -> bool {
        self.letters.try_send((to, octets)).is_ok()
    }

    fn locate(&mut self, now: Time, name: &str) -> Whereabouts<Run> {
        if self.hub.has_left() {
            // It reads no leases any more: what is known of others is the best there is, until this node ends.
            return Whereabouts::Unknown;
        }
        if let Some(runs) = self.known(now, name) {
            return Whereabouts::At(runs);
        }
        self.questions = self.questions.wrapping_add(1);
        let id = AskId::of_world(self.questions);
        let aor = format!("sip:{name}").into_bytes().into();
        if self.hub.ask(now, OTHER_SERVERS, id, &Question::Location { aor }).is_some() {
            return Whereabouts::Unknown;
        }
        self.asked.push_back((id, name.into()));
        if self.asked.len() > MAX_ASKED {
            // It was answered, and that was lost.
            self.asked.pop_front();
        }
        Whereabouts::Asked
    }

    fn answered(&mut self, now: Time, id: AskId) -> Option<(Box<str>, Whereabouts<Run>)> {
        let at = self.asked.iter().position(|(asked, _)| *asked == id)?;
        let (_, name) = self.asked.remove(at)?;
        let whereabouts = self.known(now, &name).map_or(Whereabouts::Unknown, Whereabouts::At);
        Some((name, whereabouts))
    }

    fn set_followed(&mut self, name: &str, is_followed: bool) {
        self.hub.follow(format!("sip:{name}").as_bytes(), is_followed);
    }

    fn alive(&mut self) -> Option<Vec<Run>> {
        if self.hub.has_left() {
            return None;
        }
        let (_, runs) = self.hub.runs();
        Some(runs.into_iter().map(|(node, boot)| Run { node, boot }).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use ringway_cluster::record::Message;
    use ringway_cluster::{
        Command, Config as NodeConfig, Event, Found, Hub, Lease, Machine, Phones, Reading, Report,
        Shard,
    };
    use ringway_proxy::config::NodeKey;

    use super::*;

    const NOW: Time = Time::from_secs(1_000);
    const LEASE: Duration = Duration::from_secs(5);

    /// Events that the hub has carried.
    #[derive(Default)]
    struct Events(Mutex<Vec<Event>>);

    impl World for Events {
        fn wake(&self) {}

        fn carry(&self, event: Event) {
            self.0.lock().unwrap().push(event);
        }
    }

    fn name(number: u8) -> NodeName {
        NodeName { address: ([10, 0, 0, number], 5060).into(), tcp: false }
    }

    fn lease(number: u8, boot: u64) -> Lease {
        Lease { node: name(number), boot, left: LEASE, key: NodeKey([number; 16]) }
    }

    /// A node that knows one other, and its database.
    fn node() -> (Arc<Hub<Events>>, Nodes<Events>, mpsc::Receiver<Outgoing>) {
        let key = NodeKey([1; 16]);
        let config = NodeConfig { name: name(1), boot: 7, replicas: 0, key, sharded: false };
        let hub = Arc::new(Hub::new(Machine::new(config), Events::default()));
        hub.turn(NOW, [Report::Subscribed]);
        hub.turn(NOW, [Report::Renewed(Some((vec![lease(1, 7), lease(2, 8)], 0)))]);
        let (sender, receiver) = mpsc::channel(2);
        (hub.clone(), Nodes::new(hub, sender), receiver)
    }

    fn found(number: u8, boot: u64) -> Found {
        let lifetime = Duration::from_secs(300);
        Found { node: name(number), boot, lifetime, q: 1000, phones: Phones::unknown() }
    }

    #[test]
    fn a_user_is_located_by_the_database_and_then_from_memory() {
        let (hub, mut nodes, _) = node();
        assert_eq!(nodes.locate(NOW, "alice@example.com"), Whereabouts::Asked);
        let (commands, _) = hub.turn(NOW, []);
        let is_read = |command: &Command| matches!(command, Command::Read { .. });
        assert!(commands.iter().any(is_read), "{commands:?}");
        // One of the runs lives no more.
        let answer = vec![Reading::Found(vec![found(2, 8), found(3, 8), found(2, 3)])];
        hub.turn(NOW, [Report::Read(Shard::whole(), answer)]);
        let answered = hub.world().0.lock().unwrap().iter().find_map(|event| match event {
            Event::Answered { worker: OTHER_SERVERS, id, .. } => Some(*id),
            _ => None,
        });
        let at = Whereabouts::At(vec![Run { node: name(2), boot: 8 }]);
        let id = answered.unwrap();
        assert_eq!(nodes.answered(NOW, id), Some(("alice@example.com".into(), at.clone())));
        assert_eq!(nodes.answered(NOW, id), None);
        assert_eq!(nodes.locate(NOW, "alice@example.com"), at);
        // A change is reported while she is followed, and has her read again.
        nodes.set_followed("alice@example.com", true);
        let user: Box<[u8]> = b"sip:alice@example.com"[..].into();
        let later = NOW + Duration::from_secs(2);
        hub.turn(later, [Report::Heard(Message::User(user.clone()))]);
        assert!(hub.world().0.lock().unwrap().contains(&Event::Moved(user)));
        assert_eq!(nodes.locate(later, "alice@example.com"), Whereabouts::Asked);
    }

    #[test]
    fn without_the_database_nothing_is_found_and_nothing_waits() {
        let config = NodeConfig {
            name: name(1),
            boot: 7,
            replicas: 0,
            key: NodeKey([1; 16]),
            sharded: false,
        };
        let hub = Arc::new(Hub::new(Machine::new(config), Events::default()));
        let (sender, mut letters) = mpsc::channel(2);
        let mut nodes = Nodes::new(hub, sender);
        assert_eq!(nodes.locate(NOW, "alice@example.com"), Whereabouts::Unknown);
        let to = Run { node: name(2), boot: 8 };
        let sent: Vec<bool> = (0..3).map(|n| nodes.send(to, [n].into())).collect();
        assert_eq!(sent, [true, true, false], "what finds no room is not sent");
        assert_eq!(letters.try_recv().unwrap(), (to, [0].into()));
    }

    /// RFC 3680 section 4.7.1: its subscribers are not notified that contacts of others are gone, since they are not.
    #[test]
    fn a_node_that_has_left_judges_no_others() {
        let (hub, mut nodes, _) = node();
        hub.leave();
        let later = NOW + Duration::from_secs(1);
        let (commands, _) = hub.turn(later, []);
        assert!(commands.iter().any(|command| matches!(command, Command::Leave { .. })));
        hub.turn(later, [Report::Left(true)]);
        hub.turn(later + LEASE, []);
        assert!(hub.runs().1.is_empty(), "leases are not read any more");
        assert_eq!(nodes.alive(), None);
        assert_eq!(nodes.locate(later + LEASE, "alice@example.com"), Whereabouts::Unknown);
    }

    #[test]
    fn letters_are_taken_from_runs_that_live_and_for_this_run() {
        let (hub, mut nodes, _) = node();
        assert_eq!(nodes.alive(), Some(vec![Run { node: name(2), boot: 8 }]));
        assert!(hub.takes_letters(name(2), 8, 7));
        assert!(!hub.takes_letters(name(2), 9, 7), "a run that has no lease");
        assert!(!hub.takes_letters(name(3), 8, 7), "no node");
        assert!(!hub.takes_letters(name(2), 8, 6), "for another run");
    }
}
