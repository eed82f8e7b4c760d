//! Where the phonebook is served.

use std::net::SocketAddr;

use crate::config::{PhonebookAddr, Settings};

/// TCP port of HTTP.
pub const HTTP_PORT: u16 = 5_280;
/// TCP port of LDAP (RFC 4511 section 5.2).
pub const LDAP_PORT: u16 = 389;

/// An endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BookEndpoint {
    /// At an address, for whoever reaches it.
    At(SocketAddr),
    /// At all addresses of this host, but only for what comes by the interface of a LAN, which may come up later.
    Lan {
        /// The interface.
        interface: String,
        /// The port.
        port: u16,
    },
}

/// Returns the endpoints of HTTP and of LDAP: the configured ones, else the LAN of a mesh, if there is one.
pub fn endpoints(settings: &Settings) -> [Option<BookEndpoint>; 2] {
    let lan = settings.mesh.as_ref().and_then(|mesh| mesh.lan.as_deref());
    let endpoint = |configured: Option<PhonebookAddr>, port| match configured {
        Some(PhonebookAddr(address)) => address.map(BookEndpoint::At),
        None => lan.map(|interface| BookEndpoint::Lan { interface: interface.to_owned(), port }),
    };
    let of = &settings.phonebook;
    [endpoint(of.http, HTTP_PORT), endpoint(of.ldap, LDAP_PORT)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> [Option<BookEndpoint>; 2] {
        endpoints(&Settings::parse("test", text).unwrap())
    }

    #[test]
    fn it_is_served_where_it_is_configured_else_to_a_lan_and_nobody_else() {
        let lan = |port| Some(BookEndpoint::Lan { interface: "br0".into(), port });
        let at = |text: &str| Some(BookEndpoint::At(text.parse().unwrap()));
        assert_eq!(of(""), [None, None]);
        assert_eq!(of("[mesh]"), [None, None]);
        assert_eq!(of("[mesh]\nlan = \"br0\""), [lan(5_280), lan(389)]);
        let some = "[mesh]\nlan = \"br0\"\n[phonebook]\nhttp = \"[::]:80\"\nldap = \"off\"";
        assert_eq!(of(some), [at("[::]:80"), None]);
        assert_eq!(of("[phonebook]\nldap = \"192.0.2.1:389\""), [None, at("192.0.2.1:389")]);
    }
}
