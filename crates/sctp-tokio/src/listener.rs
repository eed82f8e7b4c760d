//! Accepting associations.

use super::association::Association;
use super::core::Handle;
use super::error::AcceptError;
use super::{kernel, userspace};
use ringway_sctp::ListenerId;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Accepts the associations that peers open. Dropping it closes the port; accepted associations remain.
pub struct Listener {
    kind: Kind,
    port: u16,
}

enum Kind {
    Userspace { stack: Arc<Handle>, id: ListenerId },
    Kernel(kernel::Listener),
}

impl Listener {
    pub(super) fn new(stack: Arc<Handle>, id: ListenerId, port: u16) -> Listener {
        Listener { kind: Kind::Userspace { stack, id }, port }
    }

    pub(super) fn kernel(listener: kernel::Listener, port: u16) -> Listener {
        Listener { kind: Kind::Kernel(listener), port }
    }

    /// Returns the SCTP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the next established association.
    pub async fn accept(&self) -> Result<Association, AcceptError> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`Listener::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<Association, AcceptError>> {
        let (stack, id) = match &self.kind {
            Kind::Userspace { stack, id } => (stack, id),
            Kind::Kernel(listener) => {
                return listener.poll_accept(cx).map_ok(Association::kernel);
            }
        };
        let found = stack.shared.check().and_then(|()| {
            stack.shared.tables(|tables| tables.accept(*id, |waiters| waiters.add(cx)))
        });
        match found {
            Ok(Some(member)) => {
                let association = userspace::Association::new(stack.clone(), member);
                Poll::Ready(Ok(Association::userspace(association)))
            }
            Ok(None) => Poll::Pending,
            Err(stopped) => Poll::Ready(Err(stopped.into())),
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Userspace { stack, id } = &self.kind {
            stack.shared.tables(|tables| tables.unlisten(*id));
        }
    }
}
