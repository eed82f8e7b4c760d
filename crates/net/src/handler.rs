//! What a worker must be able to do so that an [`Endpoint`](crate::Endpoint) can run it.

use ringway_sansio::{Outbox, Program, Time};

/// One worker's logic: a program that other threads may reach. All calls come from the one thread that runs
/// the endpoint.
pub trait Handler: Program + Sized + 'static {
    /// What other threads may post to this worker.
    type Post: Send + 'static;

    /// Handles an item that another thread posted.
    fn posted(&mut self, now: Time, item: Self::Post, out: &mut Outbox);
}
