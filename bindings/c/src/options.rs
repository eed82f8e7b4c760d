//! What a program asks for before it connects, and the options of sockets by their numbers.

use crate::fault::Fault;
use crate::service::properties;
use libc::c_int;
use ringway_services_tokio::{
    LocalEndpoint, Preconnection, Preference, Protocol, RemoteEndpoint, SecurityParameters, System,
    TransportProperties,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The level of the options below, and of control messages with properties of messages.
pub const PI_API: c_int = 0x5049;

/// A text "name=value": a property of RFC 9622. pi_getsockopt is given the name and returns the value.
pub const PI_PROPERTY: c_int = 1;
/// An int: PI_SECURITY_NONE, which is the default, PI_SECURITY_PREFERRED or PI_SECURITY_REQUIRED.
pub const PI_SECURITY: c_int = 2;
/// A text: the file with trust anchors in PEM, or "system".
pub const PI_TRUST_FILE: c_int = 3;
/// A text: the file with the certificate, its chain and its key in PEM.
pub const PI_IDENTITY_FILE: c_int = 4;
/// A text "host:port": another endpoint of the peer, for pi_connect. A name is resolved while connecting.
pub const PI_REMOTE: c_int = 5;
/// A text: the only protocol to be used, such as "tcp"; of a connection, the one that was chosen.
pub const PI_PROTOCOL: c_int = 6;
/// A text, of a connection: why its protocol was chosen.
pub const PI_EXPLANATION: c_int = 7;
/// An int: the priority among the connections of a group; a lower number goes first.
pub const PI_PRIORITY: c_int = 8;
/// An int, of a connection: the services that it has, as the bits of pi_socket.
pub const PI_SERVICES: c_int = 9;
/// An int, of a connection: octets of the largest message that can be sent.
pub const PI_MAX_MESSAGE: c_int = 10;

/// No security.
pub const PI_SECURITY_NONE: c_int = 0;
/// Security where the host and the peer have it.
pub const PI_SECURITY_PREFERRED: c_int = 1;
/// No connection without security.
pub const PI_SECURITY_REQUIRED: c_int = 2;

/// Control message of pi_sendmsg, an int: milliseconds that the message may wait.
pub const PI_MSG_LIFETIME: c_int = 16;
/// Control message, an int: the priority among the messages of the connection; a lower number goes first.
pub const PI_MSG_PRIORITY: c_int = 17;
/// Control message, an int: 1 if the message arrives behind those sent before it, 0 if not.
pub const PI_MSG_ORDERED: c_int = 18;
/// Control message, an int: 1 if the message has to arrive, 0 if not.
pub const PI_MSG_RELIABLE: c_int = 19;
/// Control message, an int: 1 for the last message of the connection. Receiving goes on.
pub const PI_MSG_FINAL: c_int = 20;
/// Control message, an int: retransmissions after which the message is abandoned.
pub const PI_MSG_MAX_RETRANSMISSIONS: c_int = 21;
/// Control message, an int: octets of the message, from its start, that a checksum must cover.
pub const PI_MSG_CHECKSUM_LEN: c_int = 22;

/// Endpoints of a peer, as docs/services.md.
const MAX_REMOTES: usize = 16;

/// What a program asks for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    domain: c_int,
    properties: TransportProperties,
    security: SecurityParameters,
    pub(crate) trust: Option<String>,
    pub(crate) identity: Option<String>,
    only: Option<Protocol>,
    pub(crate) local: Option<SocketAddr>,
    remotes: Vec<RemoteEndpoint>,
}

fn invalid(text: impl ToString) -> Fault {
    Fault::new(libc::EINVAL, text.to_string())
}

/// Splits "name=value".
pub(crate) fn assignment(text: &str) -> Result<(&str, &str), Fault> {
    text.split_once('=').ok_or_else(|| invalid(format!("expected name=value, got \"{text}\"")))
}

impl Request {
    pub(crate) fn new(domain: c_int, services: c_int) -> Result<Request, Fault> {
        if ![libc::AF_UNSPEC, libc::AF_INET, libc::AF_INET6].contains(&domain) {
            let text = format!("expected AF_INET, AF_INET6 or AF_UNSPEC, got {domain}");
            return Err(Fault::new(libc::EAFNOSUPPORT, text));
        }
        Ok(Request {
            domain,
            properties: properties(services)?,
            security: SecurityParameters::disabled(),
            trust: None,
            identity: None,
            only: None,
            local: None,
            remotes: Vec::new(),
        })
    }

    fn check_family(&self, address: &SocketAddr) -> Result<(), Fault> {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        if self.domain != libc::AF_UNSPEC && self.domain != family {
            let text = "the address is not of the family that the socket was created with";
            return Err(Fault::new(libc::EAFNOSUPPORT, text));
        }
        Ok(())
    }

    pub(crate) fn bind(&mut self, address: SocketAddr) -> Result<(), Fault> {
        self.check_family(&address)?;
        self.local = Some(address);
        Ok(())
    }

    fn add_remote(&mut self, remote: RemoteEndpoint) -> Result<(), Fault> {
        if self.remotes.len() >= MAX_REMOTES {
            return Err(invalid(format!("expected at most {MAX_REMOTES} endpoints of the peer")));
        }
        self.remotes.push(remote);
        Ok(())
    }

    pub(crate) fn add_address(&mut self, address: SocketAddr) -> Result<(), Fault> {
        self.check_family(&address)?;
        self.add_remote(RemoteEndpoint::address(address))
    }

    pub(crate) fn has_remote(&self) -> bool {
        !self.remotes.is_empty()
    }

    /// Sets an option that is a text.
    pub(crate) fn set_text(&mut self, option: c_int, text: &str) -> Result<(), Fault> {
        match option {
            PI_PROPERTY => {
                let (name, value) = assignment(text)?;
                // The type of the descriptor follows from it.
                if name.trim().eq_ignore_ascii_case("preserveMsgBoundaries") {
                    return Err(invalid("pi_socket has set preserveMsgBoundaries"));
                }
                if self.security.clone().set(name, value).is_ok() {
                    return self.security.set(name, value).map_err(invalid);
                }
                self.properties.set(name, value).map_err(invalid)
            }
            PI_TRUST_FILE => {
                self.trust = Some(text.to_string());
                Ok(())
            }
            PI_IDENTITY_FILE => {
                self.identity = Some(text.to_string());
                Ok(())
            }
            PI_REMOTE => {
                let expected = || invalid(format!("expected host:port, got \"{text}\""));
                if let Ok(address) = text.parse() {
                    return self.add_address(address);
                }
                let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
                let port = port.parse().map_err(|_| expected())?;
                if host.is_empty() || host.contains([':', '[']) {
                    return Err(expected());
                }
                self.add_remote(RemoteEndpoint::host(host, port))
            }
            PI_PROTOCOL => {
                self.only = Some(text.parse().map_err(invalid)?);
                Ok(())
            }
            _ => Err(Fault::new(libc::ENOPROTOOPT, "no option of this number can be set")),
        }
    }

    /// Sets an option that is a number.
    pub(crate) fn set_number(&mut self, option: c_int, number: c_int) -> Result<(), Fault> {
        match (option, number) {
            (PI_SECURITY, PI_SECURITY_NONE) => self.security.preference = Preference::Prohibit,
            (PI_SECURITY, PI_SECURITY_PREFERRED) => self.security.preference = Preference::Prefer,
            (PI_SECURITY, PI_SECURITY_REQUIRED) => self.security.preference = Preference::Require,
            (PI_PRIORITY, priority) => {
                let priority = u32::try_from(priority).map_err(invalid)?;
                self.properties.connection.conn_priority = priority;
            }
            _ => return Err(invalid("the option cannot be set to this number")),
        }
        Ok(())
    }

    /// Returns a property by its name.
    pub(crate) fn property(&self, name: &str) -> Result<String, Fault> {
        let found = self.properties.get(name).or_else(|| self.security.get(name));
        found.ok_or_else(|| invalid(format!("no property is named \"{name}\", or it is not set")))
    }

    /// Returns the preconnection.
    pub(crate) fn preconnection(&self, system: &System) -> Preconnection {
        let mut new = Preconnection::new(system, self.properties.clone(), self.security.clone());
        if let Some(only) = self.only {
            let others = Protocol::ALL.iter().filter(|other| **other != only);
            new = others.fold(new, |new, other| new.without(*other));
        }
        let any = (self.domain == libc::AF_INET && self.remotes.is_empty())
            .then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
        new = match self.local.or(any) {
            // [::] stands for all addresses of both families, as it does for sockets.
            Some(SocketAddr::V6(local)) if local.ip().is_unspecified() && local.port() != 0 => {
                new.from(LocalEndpoint::port(local.port()))
            }
            Some(SocketAddr::V6(local)) if local.ip().is_unspecified() => new,
            Some(local) => new.from(LocalEndpoint::address(local)),
            None => new,
        };
        self.remotes.iter().fold(new, |new, remote| new.to(remote.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::PI_RELIABLE_MESSAGES;

    fn request() -> Request {
        Request::new(libc::AF_INET, PI_RELIABLE_MESSAGES).unwrap()
    }

    #[test]
    fn properties_are_set_by_name_those_of_security_too() {
        let mut request = request();
        request.set_text(PI_PROPERTY, "keepAlive=require").unwrap();
        request.set_text(PI_PROPERTY, "alpn=kv").unwrap();
        assert_eq!(request.property("keepAlive").unwrap(), "require");
        assert_eq!(request.property("alpn").unwrap(), "kv");
        for text in ["", "keepAlive", "keepAlive=perhaps", "x=y", "preserveMsgBoundaries=require"] {
            assert_eq!(
                request.set_text(PI_PROPERTY, text).unwrap_err().errno,
                libc::EINVAL,
                "{text}"
            );
        }
    }

    #[test]
    fn endpoints_of_the_peer_are_addresses_or_names_and_bounded() {
        let mut request = request();
        for text in ["", ":1", "a", "a:", "a:x", "a:70000", "[::1:1", "a:b:1"] {
            assert_eq!(
                request.set_text(PI_REMOTE, text).unwrap_err().errno,
                libc::EINVAL,
                "{text}"
            );
        }
        let error = request.set_text(PI_REMOTE, "[::1]:1").unwrap_err();
        assert_eq!(error.errno, libc::EAFNOSUPPORT);
        assert!(!request.has_remote());
        for _ in 0..MAX_REMOTES {
            request.set_text(PI_REMOTE, "example.org:7000").unwrap();
        }
        assert!(request.has_remote() && request.set_text(PI_REMOTE, "127.0.0.1:1").is_err());
    }
}
