#![doc = include_str!("../README.md")]
//!
//! ## Modules
//!
//! | module | what it holds |
//! |---|---|
//! | [`site`] | the LAN of one router: addresses, domain, SIP server |
//! | [`dns`] | the DNS server of the domain |
//! | [`mdns`] | the responder of multicast DNS |
//! | [`dhcp4`] | DHCPv4, and who has which address |
//! | [`dhcp6`] | DHCPv6 without addresses |
//! | [`share`] | what each source may ask for |

#![forbid(unsafe_code)]

pub mod dhcp4;
pub mod dhcp6;
pub mod dns;
pub mod mdns;
pub mod share;
pub mod site;

pub use site::{ANYCAST, DOMAIN, Ipv4Lan, SipService, Site, SiteError};
