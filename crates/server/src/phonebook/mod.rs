//! The phonebook: who there is, and who is registered now, as phones read it by HTTP and LDAP.
//!
//! The documents and the protocol are `ringway_phonebook`. One thread serves everybody, and waits for nobody: workers have
//! nothing to do with it. Whoever can connect can read, so by default only the hosts of a LAN can.
//!
//! | module | what it does |
//! |---|---|
//! | [`endpoint`] | where it is served |
//! | `listener` | sockets, and how many connections each source has |
//! | `entries` | a book of what the mesh and this server know |
//! | `library` | the book of the moment |
//! | `http`, `ldap` | a connection of each |

pub mod endpoint;
mod entries;
mod http;
mod ldap;
mod library;
mod listener;

#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ringway_net::Clock;
use ringway_phonebook::ldap::Directory;
use tracing::error;

use crate::mesh::Exchange;
use crate::mesh::lists::Lists;
use crate::store::Store;
use endpoint::BookEndpoint;
use library::Library;
use listener::PhonebookListener;

/// File descriptors of a listener: its socket and its connections.
pub(crate) const LISTENER_FILES: usize = 1 + listener::MAX_CONNECTIONS;

/// What is counted of the phonebook; any thread may read it at any time.
#[derive(Default, Debug)]
pub struct PhonebookCounts {
    /// Requests of HTTP.
    pub requests: AtomicU64,
    /// Connections of LDAP.
    pub connections: AtomicU64,
    /// Connections that were refused, as their source has too many.
    pub refused: AtomicU64,
    /// Connections closed in favour of newer ones.
    pub displaced: AtomicU64,
    /// Users that are listed.
    pub entries: AtomicU64,
    /// Users that are not listed, as there are too many.
    pub dropped: AtomicU64,
}

/// What the phonebook is made of.
pub(crate) struct Sources {
    /// The domain whose users are listed.
    pub(crate) domain: String,
    /// The users of this server, and who is registered here.
    pub(crate) store: Arc<Store>,
    /// Those of others, if the server is a router of a mesh.
    pub(crate) mesh: Option<(Arc<Exchange>, Arc<Lists>)>,
    /// The clock.
    pub(crate) clock: Clock,
}

/// BookEndpoints with the sockets that are open there already: of HTTP and of LDAP.
pub(crate) type BookEndpoints = [Option<(BookEndpoint, Option<TcpListener>)>; 2];

/// Starts to serve on a thread of its own, if there is an endpoint. It ends with the process.
pub(crate) fn start(
    endpoints: BookEndpoints,
    sources: Sources,
    counts: Arc<PhonebookCounts>,
) -> io::Result<()> {
    if endpoints.iter().all(Option::is_none) {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = sources.clock;
    let directory = Arc::new(Directory::new(&sources.domain));
    let library = Arc::new(Library::new(sources, counts.clone()));
    let [http, ldap] = endpoints;
    let serve = async move {
        let of_http = async {
            let Some((endpoint, listener)) = http else { return };
            let server = PhonebookListener::new("http", endpoint, listener, counts.clone());
            let (library, counts) = (library.clone(), counts.clone());
            server
                .serve(|stream| http::serve(stream, library.clone(), counts.clone(), clock))
                .await;
        };
        let of_ldap = async {
            let Some((endpoint, listener)) = ldap else { return };
            let server = PhonebookListener::new("ldap", endpoint, listener, counts.clone());
            let (library, counts) = (library.clone(), counts.clone());
            server
                .serve(|stream| {
                    ldap::serve(stream, directory.clone(), library.clone(), counts.clone(), clock)
                })
                .await;
        };
        tokio::join!(of_http, of_ldap);
    };
    std::thread::Builder::new().name("phonebook".into()).spawn(move || {
        runtime.block_on(serve);
        error!("the phonebook has ended");
    })?;
    Ok(())
}
