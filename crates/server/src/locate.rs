//! Server location beside the road: a thread that asks the DNS and posts what it found.

use crate::worker::Post;
use ringway_net::{Clock, Control};
use ringway_proxy::{Hop, ResolveTarget};
use ringway_sansio::Transport;
use std::io;
use std::sync::Arc;
use std::thread;
use tokio::sync::mpsc;

/// Questions that may wait to be asked; more are answered "not found" at once.
const MAX_WAITING: usize = 16_384;
/// Questions asked at one time.
const MAX_ASKED: usize = 256;

struct Question {
    worker: u8,
    id: u64,
    target: ResolveTarget,
}

/// The way to the thread. Cheap to copy.
#[derive(Clone)]
pub struct Locator {
    questions: mpsc::Sender<Question>,
    control: Control<Post>,
}

impl Locator {
    /// Starts the thread; it ends with the last copy.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(control: Control<Post>, _clock: Clock) -> io::Result<Self> {
        let (questions, asked) = mpsc::channel(MAX_WAITING);
        let answers = control.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("locate".into()).spawn(move || {
            runtime.block_on(run(asked, answers));
        })?;
        Ok(Locator { questions, control })
    }

    /// Asks for the servers of `target`; the answer comes as [`Post::Resolved`] with this `id`.
    pub fn locate(&self, worker: u8, id: u64, target: ResolveTarget) {
        if self.questions.try_send(Question { worker, id, target }).is_err() {
            answer(&self.control, worker, id, Vec::new());
        }
    }
}

fn answer(control: &Control<Post>, worker: u8, id: u64, hops: Vec<Hop>) {
    if let Some(mailbox) = control.mailboxes().get(usize::from(worker)) {
        // A full mailbox counts what it refuses; the branch then ends by its timer.
        mailbox.try_post(Post::Resolved(id, hops));
    }
}

async fn run(mut questions: mpsc::Receiver<Question>, control: Control<Post>) {
    let slots = Arc::new(tokio::sync::Semaphore::new(MAX_ASKED));
    while let Some(question) = questions.recv().await {
        let Question { worker, id, target } = question;
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let control = control.clone();
        tokio::spawn(async move {
            let hops = find(&target).await;
            answer(&control, worker, id, hops);
            drop(slot);
        });
    }
}

async fn find(target: &ResolveTarget) -> Vec<Hop> {
    let transport =
        target.transport.unwrap_or(if target.secure { Transport::Tls } else { Transport::Udp });
    let port = target.port.unwrap_or(transport.default_port());
    match tokio::net::lookup_host((&*target.host, port)).await {
        Ok(addrs) => {
            addrs.map(|addr| Hop { transport, addr, name: Some((&*target.host).into()) }).collect()
        }
        Err(_) => Vec::new(),
    }
}
