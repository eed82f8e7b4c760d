use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_directory::private::SERVICE_STATES;
use ringway_directory::{Command, Located, Whereabouts};
use ringway_mesh::NodeId;
use ringway_net::Clock;
use ringway_proxy::keys::Secret;
use ringway_proxy::location::MemoryStore;
use ringway_proxy::shared::Shared;
use ringway_proxy::states::{Activity, Change, OTHER_SERVERS, Publication};
use ringway_sansio::Time;
use tokio::sync::mpsc::{self, Receiver};

use super::UserStates;
use super::inbox::Inbox;
use super::routers::Routers;

const ALICE: &[u8] = b"sip:alice@mesh";
const PATIENCE: Duration = Duration::from_secs(60);

/// A router with its thread, and what that sends.
struct Router {
    id: NodeId,
    shared: Arc<Shared>,
    inbox: Arc<Inbox<NodeId>>,
    commands: Receiver<Command>,
    states: UserStates,
}

impl Router {
    fn start(number: u64) -> Self {
        let (id, inbox) = (NodeId::new(number), Arc::<Inbox<NodeId>>::default());
        let shared = Arc::new(Shared::with_share(&Secret::new(&[7; 32]), 128));
        let to = inbox.clone();
        shared.states.set_sink(Arc::new(move |watcher, aor| {
            if watcher == OTHER_SERVERS {
                to.changed(aor, None);
            }
            true
        }));
        let (sender, commands) = mpsc::channel(64);
        let location = Arc::new(MemoryStore::new([1; 16]));
        let carrier = ringway_onesip::follow::carrier("mesh", id, shared.clone(), location);
        let link = Routers { commands: sender, inbox: inbox.clone() };
        let states = UserStates::start(carrier, link, inbox.clone(), Clock::new());
        Router { id, shared, inbox, commands, states: states.unwrap() }
    }
}

/// Carries commands between routers until something holds: users are registered at `at`.
fn carry_until(routers: &mut [Router], at: NodeId, holds: impl Fn(&[Router]) -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds(routers) {
        assert!(Instant::now() < until, "does not hold");
        for index in 0..routers.len() {
            let from = routers[index].id;
            while let Ok(command) = routers[index].commands.try_recv() {
                match command {
                    Command::Send { to, service: SERVICE_STATES, octets } => {
                        let to = routers.iter().find(|router| router.id == to).unwrap();
                        to.inbox.message(from, octets);
                    }
                    Command::Locate { name } => {
                        let mut located = Located::default();
                        located.routers.push((at, 1_000));
                        let whereabouts = Whereabouts::Found(located);
                        routers[index].inbox.located(&name, &whereabouts);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_user_who_is_watched_is_followed_at_another_router_and_ended_there() {
    let mut routers = [Router::start(1), Router::start(2)];
    let at = routers[1].id;
    let followers = |routers: &[Router]| {
        routers[1].states.counts().followers.load(std::sync::atomic::Ordering::Relaxed)
    };
    routers[0].shared.states.watch(ALICE, 0);
    carry_until(&mut routers, at, |routers| followers(routers) == 1);
    assert!(!routers[1].shared.states.is_watched(ALICE), "no phone watches her there");
    // What she does there is watched: a publication reaches the thread.
    let publication = Publication { is_open: true, activity: Activity::Away, note: "".into() };
    let expires = Some(Time::from_secs(u64::MAX >> 32));
    let change = Change { replaces: None, publication: Some(publication), expires, tag: 1 };
    routers[1].shared.states.publish(Clock::new().now(), ALICE, change).unwrap();
    routers[0].shared.states.unwatch(ALICE, 0);
    carry_until(&mut routers, at, |routers| followers(routers) == 0);
    routers.iter().for_each(|router| router.states.stop());
}
