//! The options every load command shares: which server, how it is reached, how large the
//! generator is.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::digest::Algorithm;
use crate::error::Error;
use crate::port::Transport;
use crate::secure::Identity;

/// Largest number of workers: a key has two hexadecimal digits for it.
const MAX_WORKERS: usize = 255;
/// Largest number of ports of one worker and end.
const MAX_PORTS: usize = 1_000;

/// The server under test, and the generator's shape.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// Server under test.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) server: SocketAddr,
    /// Server at which the called ends are registered, if it is another: calls are made through the first.
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) home: Option<SocketAddr>,
    /// Domain of the users [default: the server's address]
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Transport of both ends.
    #[arg(long, value_enum, default_value = "udp")]
    pub(crate) transport: Transport,
    /// Users, named u0, u1 and so on.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=16_000_000))]
    pub(crate) users: u32,
    /// Ports of each end and worker: what a server with SO_REUSEPORT spreads its work by. For TCP and
    /// TLS, connections of the calling end.
    #[arg(long, default_value_t = 4)]
    pub(crate) ports: usize,
    /// Threads of the generator.
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: usize,
    /// Longest the generator sleeps before it looks at its ports again, microseconds.
    #[arg(long, default_value_t = 100, value_name = "US")]
    pub(crate) tick_us: u64,
    /// The server is `ringway-load floor`, which needs a marker before each message.
    #[arg(long)]
    pub(crate) floor: bool,
    /// Processes of the server under test, whose processor time is to be measured.
    #[arg(long, value_delimiter = ',', value_name = "PID,...")]
    pub(crate) watch: Vec<u32>,
    /// Answer digest challenges to REGISTER by this algorithm. The user name is u0, u1 and so on.
    #[arg(long, value_enum, requires = "password")]
    pub(crate) auth: Option<Algorithm>,
    /// Password of every user.
    #[arg(long, value_name = "TEXT")]
    pub(crate) password: Option<String>,
    /// Leave the users registered at the end. `fill` always does.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Certificate of the generator, PEM: shown to the server when it connects, and the only one
    /// trusted of the server. It must name the server's address.
    #[arg(long, value_name = "FILE", required_if_eq("transport", "tls"))]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", required_if_eq("transport", "tls"))]
    pub(crate) tls_key: Option<PathBuf>,
    /// Write JSON to this file, or to standard output instead of the table when it is "-".
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Target {
    /// Refuses combinations that cannot work.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.floor && self.transport != Transport::Udp {
            return Err(Error::Usage("--floor works over UDP only".into()));
        }
        if self.home.is_some() && self.transport != Transport::Udp {
            // Over connections a user's home is the server that its port has connected to.
            return Err(Error::Usage("--home works over UDP only".into()));
        }
        if !(1..=MAX_WORKERS).contains(&self.workers) || !(1..=MAX_PORTS).contains(&self.ports) {
            return Err(Error::Usage(format!(
                "--workers may be 1 to {MAX_WORKERS} and --ports 1 to {MAX_PORTS}; \
                 got {} and {}",
                self.workers, self.ports
            )));
        }
        if (self.users as usize) < self.workers {
            return Err(Error::Usage(format!(
                "every worker needs a user: got {} users for {} workers",
                self.users, self.workers
            )));
        }
        Ok(())
    }

    /// What TLS connections are made with; `None` over another transport.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, Error> {
        match (self.transport, &self.tls_certificate, &self.tls_key) {
            (Transport::Tls, Some(certificate), Some(key)) => {
                Identity::load(certificate, key).map(Some)
            }
            (Transport::Tls, ..) => {
                Err(Error::Usage("TLS needs --tls-certificate and --tls-key".into()))
            }
            _ => Ok(None),
        }
    }

    /// The domain users belong to.
    pub(crate) fn domain(&self) -> String {
        self.domain.clone().unwrap_or_else(|| match self.server {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        })
    }

    /// How many of the users belong to `worker`.
    pub(crate) fn users_of(&self, worker: usize) -> u32 {
        let (users, workers) = (self.users as usize, self.workers);
        ((users + workers - 1 - worker) / workers) as u32
    }
}
