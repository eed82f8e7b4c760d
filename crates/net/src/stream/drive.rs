//! The task of a connection: runs its driver whenever something happens.

use super::unread::Unread;
use crate::handler::Handler;
use crate::sockets::{SharedWorker, Worker, listen, now};
use ringway_flow::{Carrier, Driver, Turn};
use ringway_sansio::{CloseReason, FlowId, Time};
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

/// A turn shorter than this leaves nothing worth asking for.
const LONG_TURN: Duration = Duration::from_micros(100);

/// Moves messages both ways until the connection ends. Returns the reason.
pub(super) async fn drive<H: Handler, T>(
    worker: &SharedWorker<H>,
    id: FlowId,
    carrier: T,
) -> CloseReason
where
    T: for<'c> Carrier<Context<'c>> + Unread,
{
    run(worker, id, &mut Driver::new(id, carrier)).await
}

/// The same with a driver that has begun.
pub(super) async fn run<H: Handler, T>(
    worker: &SharedWorker<H>,
    id: FlowId,
    driver: &mut Driver<T>,
) -> CloseReason
where
    T: for<'c> Carrier<Context<'c>> + Unread,
{
    poll_fn(|cx| {
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
    })
    .await
}

/// Notes after a turn what was received since it was read, if the turn was long enough for that to matter.
fn note_unread<H: Handler>(began: Time, id: FlowId, flows: &mut Worker<H>, carrier: &impl Unread) {
    let at = now(flows);
    let long = at.since(began) >= LONG_TURN;
    flows.note_unread(at, id, if long { carrier.unread() } else { 0 });
}
