//! The connections of a transport, and the flows that they carry.

use super::Worker;
use ringway_flow::{Broken, Carrier, Driver, Turn};
use ringway_sansio::{CloseReason, FlowId, Program, Time};

/// What the table must know of a connection.
pub(super) trait Connection {
    /// Identifies it in its transport.
    type Id: Copy + PartialEq;
    /// Whether messages may leave before it is open.
    const EARLY: bool;

    fn id(&self) -> Self::Id;

    /// Returns the reason for which nothing more is received.
    fn end(&self) -> Option<CloseReason>;
}

struct Pipe<T> {
    flow: FlowId,
    driver: Driver<T>,
    open: bool,
}

pub(super) struct Table<T>(Vec<Pipe<T>>);

impl<T: Connection> Table<T> {
    pub(super) fn new() -> Self {
        Table(Vec::new())
    }

    pub(super) fn add(&mut self, flow: FlowId, connection: T, open: bool) {
        self.0.push(Pipe { flow, driver: Driver::new(flow, connection), open });
    }

    fn find(&mut self, id: T::Id) -> Option<&mut Pipe<T>> {
        self.0.iter_mut().find(|pipe| pipe.driver.carrier().id() == id)
    }

    /// Returns the flow of a connection, and the connection.
    pub(super) fn get(&mut self, id: T::Id) -> Option<(FlowId, &mut T)> {
        self.find(id).map(|pipe| (pipe.flow, pipe.driver.carrier_mut()))
    }

    /// Notes that a connection is open. Returns whether it was not.
    pub(super) fn open(&mut self, id: T::Id) -> bool {
        self.find(id).is_some_and(|pipe| !std::mem::replace(&mut pipe.open, true))
    }

    pub(super) fn remove(&mut self, id: T::Id) -> Option<FlowId> {
        let index = self.0.iter().position(|pipe| pipe.driver.carrier().id() == id)?;
        Some(self.0.swap_remove(index).flow)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = T::Id> {
        self.0.iter().map(|pipe| pipe.driver.carrier().id())
    }

    /// Gives a flow's connection its turn. If it is over, removes it, and returns its identifier, whether the
    /// peer has ended it too, and the reason.
    pub(super) fn turn<P: Program, C>(
        &mut self,
        now: Time,
        flow: FlowId,
        worker: &mut Worker<P>,
        cx: &mut C,
    ) -> Option<(T::Id, bool, CloseReason)>
    where
        T: Carrier<C>,
    {
        let index = self.0.iter().position(|pipe| pipe.flow == flow)?;
        let Pipe { driver, open, .. } = &mut self.0[index];
        let end = driver.carrier().end();
        let reason = match worker.ending(flow) {
            _ if *open => loop {
                match driver.turn(now, worker, cx) {
                    Turn::More => {}
                    Turn::Wait => return None,
                    Turn::Over(reason) => break reason,
                }
            },
            // It never came to carry messages.
            Some(ending) => ending.reason,
            None if end.is_some() => CloseReason::Broken,
            None if !T::EARLY => return None,
            None => match driver.write_early(now, worker, cx) {
                Ok(()) => return None,
                Err(Broken) => CloseReason::Broken,
            },
        };
        let connection = self.0.swap_remove(index).driver;
        let connection = connection.carrier();
        Some((connection.id(), connection.end().is_some(), reason))
    }
}
