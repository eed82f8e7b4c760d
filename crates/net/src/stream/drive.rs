//! The task of a connection: runs its driver whenever something happens.

use super::unread::Unread;
use crate::handler::Handler;
use crate::sockets::{SharedWorker, Worker, listen, now};
use ringway_flow::{Carrier, Driver, Turn};
use ringway_sansio::{CloseReason, FlowId, Time};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A turn shorter than this leaves nothing worth asking for.
const LONG_TURN: Duration = Duration::from_micros(100);

/// Moves messages both ways until the connection ends. Returns the reason. In a box of its own, so that a task has
/// the size of what it does, not of all that it might.
pub(super) fn drive<H: Handler, T>(
    worker: &SharedWorker<H>,
    id: FlowId,
    carrier: T,
) -> Pin<Box<impl Future<Output = CloseReason>>>
where
    T: for<'c> Carrier<Context<'c>> + Unread,
{
    run(worker, Driver::new(id, carrier))
}

/// The same with a driver that has begun.
pub(super) fn run<H: Handler, T>(
    worker: &SharedWorker<H>,
    mut driver: Driver<T>,
) -> Pin<Box<impl Future<Output = CloseReason>>>
where
    T: for<'c> Carrier<Context<'c>> + Unread,
{
    let id = driver.id();
    Box::pin(poll_fn(move |cx| {
        let flows = &mut *worker.borrow_mut();
        if !listen(flows, id, cx) {
            return Poll::Ready(CloseReason::Broken);
        }
        let began = now(flows);
        match driver.turn(began, flows, cx) {
            Turn::Over(reason) => return Poll::Ready(reason),
            Turn::Wait => {}
            Turn::More => cx.waker().wake_by_ref(),
        }
        note_unread(began, id, flows, driver.carrier());
        Poll::Pending
    }))
}

/// Notes after a turn what was received since it was read, if the turn was long enough for that to matter.
fn note_unread<H: Handler>(began: Time, id: FlowId, flows: &mut Worker<H>, carrier: &impl Unread) {
    let at = now(flows);
    let long = at.since(began) >= LONG_TURN;
    flows.note_unread(at, id, if long { carrier.unread() } else { 0 });
}
