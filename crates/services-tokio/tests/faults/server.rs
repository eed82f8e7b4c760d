//! The other end, in a thread with a runtime of its own, so that the tasks of the end under test are counted alone.

use crate::support::{only, system};
use ringway_services_tokio::{Connection, LocalEndpoint, Protocol};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// The first message of a connection that is not to be read any further.
pub(crate) const STALL: &str = "stall";

/// A server that sends each message back.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts one in the network namespace of the calling thread.
    pub(crate) fn start(protocol: Protocol, ip: IpAddr) -> Server {
        let (started, port) = channel();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let system = system();
                let local = LocalEndpoint::address(SocketAddr::new(ip, 0));
                let listener = only(&system, protocol).from(local).listen().await.unwrap();
                started.send(listener.port()).unwrap();
                let serving = async {
                    loop {
                        tokio::spawn(echo(listener.accept().await.unwrap()));
                    }
                };
                tokio::select! {
                    () = serving => {}
                    _ = stopped => {}
                }
            });
        });
        let address = SocketAddr::new(ip, port.recv().unwrap());
        Server { address, stop: Some(stop), thread: Some(thread) }
    }
}

async fn echo(connection: Connection) {
    while let Ok(Some(message)) = connection.receive().await {
        if message[..] == *STALL.as_bytes() {
            return std::future::pending().await;
        }
        if connection.send(message.bytes).await.is_err() {
            return;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
