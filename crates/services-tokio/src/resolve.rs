//! Names: the system's resolver.

use ringway_services::Family;
use ringway_services::race::Question;
use std::net::IpAddr;
use tokio::net::lookup_host;

/// Returns the addresses of a name of one family, in the system's order.
pub(crate) async fn addresses(question: &Question) -> Result<Vec<IpAddr>, String> {
    let found =
        lookup_host((question.host.as_str(), 0)).await.map_err(|error| error.to_string())?;
    let addresses = found.map(|address| address.ip());
    Ok(addresses.filter(|ip| Family::of(*ip) == question.family).collect())
}
