//! What the tasks of the library's thread share.

use crate::fault::Fault;
use crate::link::Link;
use crate::options::Request;
use ringway_services_tokio::{Error, Keyring, Preconnection, System};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Systems of a process: as many as there are combinations of trust and identity.
const MAX_SYSTEMS: usize = 64;

/// The files with the trust and the identity of a system.
type Files = (Option<String>, Option<String>);

/// What the tasks of the thread share.
pub(crate) struct World {
    links: Mutex<BTreeMap<u64, Arc<Link>>>,
    systems: Mutex<BTreeMap<Files, System>>,
    exiting: watch::Sender<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the files that a request names, into the keyring of its system.
fn keyring(request: &Request) -> Result<Keyring, Error> {
    let read = |file: &String| {
        std::fs::read(file)
            .map_err(|error| Error::System { what: file.as_str().into(), error: Arc::new(error) })
    };
    let keyring = match request.trust.as_deref() {
        None => Keyring::new(),
        Some("system") => Keyring::new().with_system_roots()?,
        Some(file) => Keyring::new().with_roots(&read(&file.to_string())?)?,
    };
    match &request.identity {
        None => Ok(keyring),
        Some(file) => {
            let pem = read(file)?;
            keyring.with_identity(file, &pem, &pem)
        }
    }
}

impl World {
    pub(crate) fn new() -> World {
        World {
            links: Mutex::default(),
            systems: Mutex::default(),
            exiting: watch::channel(false).0,
        }
    }

    /// Has all tasks carry what programs have written, and end.
    pub(crate) fn exit(&self) {
        self.exiting.send_replace(true);
    }

    /// Returns whether there is no connection.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.links).is_empty()
    }

    /// Returns the preconnection of a request, whose system is made by the first request with its files.
    pub(crate) fn preconnection(&self, request: &Request) -> Result<Preconnection, Fault> {
        let mut systems = lock(&self.systems);
        let name = (request.trust.clone(), request.identity.clone());
        if let Some(system) = systems.get(&name) {
            return Ok(request.preconnection(system));
        }
        if systems.len() >= MAX_SYSTEMS {
            let text = format!("expected at most {MAX_SYSTEMS} pairs of trust and identity");
            return Err(Fault::new(libc::ENOBUFS, text));
        }
        let system =
            keyring(request).and_then(|keyring| System::builder().keyring(keyring).build())?;
        let new = request.preconnection(&system);
        systems.insert(name, system);
        Ok(new)
    }

    /// Returns the connection of a descriptor.
    pub(crate) fn link(&self, key: u64) -> Result<Arc<Link>, Fault> {
        let link = lock(&self.links).get(&key).cloned();
        link.ok_or_else(|| Fault::new(libc::ENOTCONN, "the socket is not connected"))
    }

    pub(crate) fn add(&self, key: u64, link: Arc<Link>) {
        lock(&self.links).insert(key, link);
    }

    pub(crate) fn remove(&self, key: u64) {
        lock(&self.links).remove(&key);
    }

    /// Waits until the process ends.
    pub(crate) async fn exiting(&self) {
        let _ = self.exiting.subscribe().wait_for(|is_exiting| *is_exiting).await;
    }
}
