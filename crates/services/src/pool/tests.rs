use super::*;
use crate::{RemoteEndpoint, SecurityParameters, TransportProperties};

const NOW: Time = Time::from_secs(1);
const STREAMS: Opened = Opened { streams: 6, multistreaming: true, announces_streams: false };

fn pool() -> Pool {
    Pool::new(Limits { associations: 4, of_key: 3, connections: 10, ..Limits::default() })
}

fn peer(port: u16) -> Preconnection {
    Preconnection::new(TransportProperties::new(), SecurityParameters::disabled())
        .to(RemoteEndpoint::host("example.org", port))
}

fn open(pool: &mut Pool, connection: ConnectionId, to: &Preconnection) -> AssociationId {
    let Ok(Assignment::Open(id)) = pool.connect(connection, to) else { panic!("an association") };
    assert!(pool.opened(NOW, id, STREAMS).is_empty());
    id
}

/// RFC 9623 section 10.6.
#[test]
fn connections_to_one_peer_are_streams_of_one_association() {
    let mut pool = pool();
    let id = open(&mut pool, 1, &peer(80));
    assert_eq!(pool.connect(2, &peer(80)), Ok(Assignment::Stream(id, 2)));
    let mut other = peer(80);
    other.properties.connection.conn_priority = 7;
    other.properties.message.msg_priority = 7;
    assert_eq!(pool.connect(3, &other), Ok(Assignment::Stream(id, 4)));
    assert_eq!(pool.location(3), Some((id, Some(4))));
    assert_eq!(pool.connect(3, &other), Err(PoolError::InUse(3)));
}

#[test]
fn what_was_asked_for_otherwise_is_another_association() {
    let mut pool = pool();
    open(&mut pool, 1, &peer(80));
    let mut secure = peer(80);
    secure.security = SecurityParameters::opportunistic();
    let mut reliable = peer(80);
    reliable.properties = TransportProperties::reliable_message();
    for (connection, to) in (2..).zip([peer(81), secure, reliable]) {
        assert!(matches!(pool.connect(connection, &to), Ok(Assignment::Open(_))), "{to:?}");
    }
    assert_eq!(pool.connect(9, &peer(82)), Err(PoolError::Associations(4)));
}

#[test]
fn another_association_is_opened_when_the_streams_are_used_up() {
    let mut pool = pool();
    let first = open(&mut pool, 1, &peer(80));
    pool.connect(2, &peer(80)).unwrap();
    pool.connect(3, &peer(80)).unwrap();
    let second = open(&mut pool, 4, &peer(80));
    assert_ne!(first, second);
    // The stream of a closed connection is free when the peer has closed it, too.
    assert_eq!(pool.close(NOW, 2), Some(Close::Stream(first, 2)));
    assert_eq!(pool.connect(5, &peer(80)), Ok(Assignment::Stream(second, 2)));
    pool.released(first, 2);
    assert_eq!(pool.connect(6, &peer(80)), Ok(Assignment::Stream(first, 2)));
}

#[test]
fn connections_wait_for_an_association_that_is_being_opened() {
    let mut pool = pool();
    let Ok(Assignment::Open(id)) = pool.connect(1, &peer(80)) else { panic!() };
    for connection in 2..=4 {
        assert_eq!(pool.connect(connection, &peer(80)), Ok(Assignment::Wait(id)));
    }
    // The one that it is opened for gives up: it is opened for the next one.
    assert_eq!(pool.close(NOW, 1), None);
    assert_eq!(pool.location(2), Some((id, Some(0))));
    let assignments = pool.opened(NOW, id, Opened { streams: 4, ..STREAMS });
    assert_eq!(assignments[0], (3, Ok(Assignment::Stream(id, 2))));
    assert!(matches!(assignments[1], (4, Ok(Assignment::Open(other))) if other != id));
}

#[test]
fn without_streams_each_connection_has_its_own_association() {
    let mut pool = pool();
    let Ok(Assignment::Open(first)) = pool.connect(1, &peer(80)) else { panic!() };
    pool.connect(2, &peer(80)).unwrap();
    let none = Opened { streams: 1, multistreaming: false, announces_streams: false };
    let assignments = pool.opened(NOW, first, none);
    let (2, Ok(Assignment::Open(second))) = assignments[0] else { panic!("{assignments:?}") };
    pool.opened(NOW, second, none);
    assert_eq!(pool.close(NOW, 1), Some(Close::Association(first)));
    assert_eq!(pool.ended(second), [2]);
    assert!(pool.is_empty() && pool.by_key.is_empty() && pool.connections.is_empty());
}

/// RFC 9622 sections 6.2.6, 6.2.18 and 8.1.10.
#[test]
fn a_program_can_have_an_association_of_its_own() {
    let mut isolated = peer(80);
    isolated.properties.connection.isolate_session = true;
    let mut alone = peer(80);
    alone.properties = TransportProperties::new().avoid(Service::Multistreaming);
    let mut reads = peer(80);
    reads.properties = TransportProperties::new().require(Service::ActiveReadBeforeSend);
    for to in [isolated, alone, reads.clone()] {
        let mut pool = pool();
        open(&mut pool, 1, &to);
        assert!(matches!(pool.connect(2, &to), Ok(Assignment::Open(_))), "{to:?}");
    }
    // Framing announces a stream before there is data.
    let mut pool = pool();
    let Ok(Assignment::Open(id)) = pool.connect(1, &reads) else { panic!() };
    pool.opened(NOW, id, Opened { announces_streams: true, ..STREAMS });
    assert_eq!(pool.connect(2, &reads), Ok(Assignment::Stream(id, 2)));
}

#[test]
fn an_idle_association_is_closed_after_a_while() {
    let mut pool = pool();
    let id = open(&mut pool, 1, &peer(80));
    assert_eq!(pool.poll_timeout(), None);
    pool.close(NOW, 1);
    pool.released(id, 0);
    let due = NOW + pool.limits.idle;
    assert_eq!(pool.poll_timeout(), Some(due));
    // A connection in time keeps it.
    assert_eq!(pool.connect(2, &peer(80)), Ok(Assignment::Stream(id, 0)));
    assert_eq!(pool.handle_timeout(due), []);
    pool.close(due, 2);
    assert_eq!(pool.handle_timeout(due + pool.limits.idle), [id]);
    assert!(pool.is_empty());
}

/// RFC 9622 section 8.1.9.
#[test]
fn the_peer_opens_streams_up_to_a_limit() {
    let mut pool = pool();
    let mut listener = peer(80);
    listener.properties.set("groupConnLimit", "2").unwrap();
    let id = pool.accept(NOW, &listener, STREAMS).unwrap();
    assert_eq!(pool.peer_opened(id, 1, 1), Err(PoolError::InUse(1)));
    pool.peer_opened(id, 0, 1).unwrap();
    pool.peer_opened(id, 2, 2).unwrap();
    assert_eq!(pool.peer_opened(id, 4, 3), Err(PoolError::GroupLimit(2)));
    assert_eq!(pool.close(NOW, 1), Some(Close::Stream(id, 0)));
    assert_eq!(pool.connections(id).collect::<Vec<_>>(), [2]);
    // What the peer has opened is not used for connections of this end.
    assert!(matches!(pool.connect(9, &peer(80)), Ok(Assignment::Open(_))));
}

/// RFC 9622 section 7.4: either end may add a connection to a group.
#[test]
fn both_ends_add_connections_to_a_group() {
    let now = Time::from_secs(1);
    let opened = Opened { streams: 4, multistreaming: true, announces_streams: false };
    let mut pool = Pool::new(Limits::default());
    let accepted = pool.accept(now, &Preconnection::default(), opened).unwrap();
    pool.peer_opened(accepted, 0, 1).unwrap();
    assert_eq!(pool.join(accepted, 2), Ok(1));
    assert_eq!(pool.join(accepted, 3), Ok(3));
    assert_eq!(pool.join(accepted, 4), Err(PoolError::NoStream));
    assert_eq!(pool.join(accepted, 3), Err(PoolError::InUse(3)));
    assert_eq!(pool.close(now, 2), Some(Close::Stream(accepted, 1)));
    assert_eq!(pool.join(accepted, 4), Err(PoolError::NoStream));
    pool.released(accepted, 1);
    assert_eq!(pool.join(accepted, 4), Ok(1));

    let Ok(Assignment::Open(id)) = pool.connect(10, &Preconnection::default()) else { panic!() };
    assert_eq!(pool.join(id, 11), Err(PoolError::NotOpen));
    pool.opened(now, id, opened);
    assert_eq!(pool.join(id, 11), Ok(2));
}
