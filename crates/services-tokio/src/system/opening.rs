//! Opening connections: which association they go to, and the races that open associations.

use super::{Outcome, Pending, State, System};
use crate::connection::Connection;
use crate::error::Error;
use crate::group::{Admitted, Context, Group, Sink};
use crate::racing::{self, Raced};
use crate::transport::{Established, Request};
use ringway_services::framing::Side;
use ringway_services::pool::{Assignment, AssociationId, Close, PoolError};
use ringway_services::queue::ConnectionId;
use ringway_services::{Explanation, Ranked};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Times that an association is tried which turns out to have ended.
const MAX_STALE: usize = 4;

/// Removes a connection from the pool whose caller does not wait for it any longer.
struct Attempted<'a> {
    system: &'a System,
    connection: Option<ConnectionId>,
}

impl Drop for Attempted<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection else { return };
        let now = self.system.now();
        let mut state = self.system.lock();
        state.pending.remove(&connection);
        let close = state.pool.close(now, connection);
        if let Some(Close::Association(association)) = close {
            if let Some(opening) = state.openings.remove(&association) {
                opening.abort();
            }
            let group = state.groups.remove(&association);
            drop(state);
            if let Some(group) = group {
                group.close();
            }
        } else if let Some(Close::Stream(association, stream)) = close {
            state.pool.released(association, stream);
            self.system.start_timer(&mut state);
        }
    }
}

impl System {
    /// Opens a connection.
    pub(crate) async fn connect(&self, request: &Request) -> Result<Connection, Error> {
        // What nothing fits is an error at once, and names all requirements.
        self.candidates(&request.policy)?;
        let priority = request.policy.properties.connection.conn_priority;
        for _ in 0..MAX_STALE {
            let id = System::next_id();
            let mut attempted = Attempted { system: self, connection: Some(id) };
            let mut request = request.clone();
            if let Some(first) = &mut request.first {
                first.connection = id;
            }
            let (group, stream) = match self.assign(id, &request)? {
                Ok(found) => found,
                Err(outcome) => {
                    let outcome = outcome.await;
                    let outcome =
                        outcome.unwrap_or(Err(Error::Lost("the runtime has ended".into())));
                    let (group, carrier) = outcome?;
                    attempted.connection = None;
                    return Ok(Connection::new(id, group, carrier, self.clone()));
                }
            };
            match group.open(stream, id, priority).await {
                Ok(carrier) => {
                    attempted.connection = None;
                    return Ok(Connection::new(id, group, carrier, self.clone()));
                }
                // It ended, and the pool does not know yet.
                Err(_) if group.has_ended() => self.ended(group.id),
                Err(error) => return Err(error),
            }
        }
        Err(Error::lost("associations to the peer end as soon as they are used"))
    }

    /// Returns the association and the stream of a new connection, or what it has to wait for.
    #[allow(clippy::type_complexity)]
    fn assign(
        &self,
        id: ConnectionId,
        request: &Request,
    ) -> Result<Result<(Arc<Group>, u32), oneshot::Receiver<Outcome>>, Error> {
        let mut state = self.lock();
        let assignment = state.pool.connect(id, &request.policy)?;
        let (sender, receiver) = oneshot::channel();
        let pending = Pending { request: request.clone(), sender };
        match assignment {
            Assignment::Stream(association, stream) => {
                let group = state.groups.get(&association).cloned();
                return Ok(Ok((group.ok_or(PoolError::NotOpen)?, stream)));
            }
            Assignment::Open(association) => {
                state.pending.insert(id, pending);
                self.start_opening(&mut state, association, request.clone());
            }
            Assignment::Wait(_) => {
                state.pending.insert(id, pending);
            }
        }
        Ok(Err(receiver))
    }

    /// Starts the task that opens an association.
    fn start_opening(&self, state: &mut State, association: AssociationId, request: Request) {
        let system = self.downgrade();
        let task = tokio::spawn(async move {
            let Some(system) = system.upgrade().map(System) else { return };
            let result = system.race(&request).await;
            system.lock().openings.remove(&association);
            match result {
                Ok((established, explanation)) => {
                    system.opened(association, established, explanation, &request).await;
                }
                Err(error) => system.not_opened(association, &error),
            }
        });
        state.openings.insert(association, task.abort_handle());
    }

    async fn race(&self, request: &Request) -> Result<(Established, Explanation), Error> {
        let ranked = self.candidates(&request.policy)?;
        let raced = self.run_race(request, ranked).await;
        self.0.memory.save();
        raced
    }

    /// Runs a race and remembers its outcomes.
    pub(crate) async fn run_race(
        &self,
        request: &Request,
        ranked: Ranked,
    ) -> Result<(Established, Explanation), Error> {
        let Raced { race, result, is_exhausted } =
            racing::run(&self.0.resources, request, ranked).await;
        if !is_exhausted {
            self.0.memory.with(|memory| race.remember(self.now(), memory));
        }
        let established = result.map_err(|error| Error::NotConnected(Box::new(error)))?;
        Ok((established, race.explanation()))
    }

    /// Makes a group of a transport connection that was opened here, and hands it to those who wait.
    async fn opened(
        &self,
        association: AssociationId,
        established: Established,
        explanation: Explanation,
        request: &Request,
    ) {
        let opened = Group::opened(&established, request.framer.is_some());
        let Established { transport, local, remote, candidate } = established;
        let context = Context {
            policy: request.policy.clone(),
            candidate,
            explanation,
            local,
            remote,
            side: Side::Initiator,
            framer: request.framer.clone(),
        };
        let sink = Sink::group();
        let group = Group::new(association, self, transport, context, sink, None, true);
        let mut ready = Vec::new();
        {
            let mut state = self.lock();
            state.groups.insert(association, group.clone());
            let waiting = state.pool.opened(self.now(), association, opened);
            let first: Vec<_> = state.pool.connections(association).collect();
            for id in first {
                if let Some((_, Some(stream))) = state.pool.location(id)
                    && let Some(pending) = state.pending.remove(&id)
                {
                    ready.push((id, stream, pending));
                }
            }
            for (id, assignment) in waiting {
                if let Ok(Assignment::Open(other)) = assignment
                    && let Some(pending) = state.pending.get(&id)
                {
                    let request = pending.request.clone();
                    self.start_opening(&mut state, other, request);
                } else if let Err(error) = assignment
                    && let Some(pending) = state.pending.remove(&id)
                {
                    let _ = pending.sender.send(Err(error.into()));
                }
            }
            self.start_timer(&mut state);
        }
        for (id, stream, pending) in ready {
            let priority = pending.request.policy.properties.connection.conn_priority;
            let opened = group.open(stream, id, priority).await;
            let _ = pending.sender.send(opened.map(|carrier| (group.clone(), carrier)));
        }
    }

    /// Reports to those who wait for an association that it could not be opened.
    fn not_opened(&self, association: AssociationId, error: &Error) {
        let mut state = self.lock();
        for id in state.pool.ended(association) {
            if let Some(pending) = state.pending.remove(&id) {
                let _ = pending.sender.send(Err(error.clone()));
            }
        }
    }

    /// Makes a group of a transport connection that a peer has opened.
    pub(crate) fn accepted(
        &self,
        established: Established,
        explanation: Explanation,
        admitted: Admitted<'_>,
    ) -> Result<Arc<Group>, Error> {
        let Admitted { policy, framer, sink, permit, side } = admitted;
        let opened = Group::opened(&established, framer.is_some());
        let mut state = self.lock();
        let association = state.pool.accept(self.now(), policy, opened)?;
        let Established { transport, local, remote, candidate } = established;
        let (policy, framer) = (policy.clone(), framer.cloned());
        let context = Context { policy, candidate, explanation, local, remote, side, framer };
        let group = Group::new(association, self, transport, context, sink, permit, false);
        state.groups.insert(association, group.clone());
        self.start_timer(&mut state);
        Ok(group)
    }

    /// Adds a connection to the group of one that is open.
    pub(crate) async fn join(&self, group: &Arc<Group>) -> Result<Connection, Error> {
        let id = System::next_id();
        let mut attempted = Attempted { system: self, connection: Some(id) };
        let joined = self.lock().pool.join(group.id, id);
        match joined {
            Ok(stream) => {
                let priority = group.context.policy.properties.connection.conn_priority;
                let carrier = group.open(stream, id, priority).await?;
                attempted.connection = None;
                Ok(Connection::new(id, group.clone(), carrier, self.clone()))
            }
            // Section 7.4: without streams, or when none is left, another transport connection is opened. Only the end
            // that knows the peer's endpoint can.
            Err(PoolError::NoStream) if group.context.side == Side::Initiator => {
                let framer = group.context.framer.clone();
                let policy = group.context.policy.clone();
                self.connect(&Request { policy, framer, first: None }).await
            }
            Err(error) => Err(error.into()),
        }
    }
}
