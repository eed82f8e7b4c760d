//! The services of a LAN, to which every host of it sends whatever it likes. Nothing panics, answers are bounded and go
//! nowhere but to the LAN, and the leases survive as text.
#![no_main]

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use ringway_lan::dhcp4::{Dhcp4, Leases, MAX_LEASES, SipEncoding};
use ringway_lan::dhcp6::Dhcp6;
use ringway_lan::dns::{Dns, MAX_UDP_ANSWER, Transport};
use ringway_lan::mdns::{Destination, Mdns};
use ringway_lan::{Ipv4Lan, SipService, Site};
use ringway_mesh::NodeId;
use ringway_sansio::time::Duration;
use ringway_sansio::{SplitMix, Time};

/// A message of DHCPv4 whose fields are the fuzzer's: a head that is long enough, and options.
fn dhcp(octets: &[u8]) -> Vec<u8> {
    let (head, options) = octets.split_at(octets.len().min(28));
    let mut bytes = head.to_vec();
    bytes.resize(236, 0);
    bytes[0] = 1;
    bytes.extend([99, 130, 83, 99]);
    bytes.extend(options);
    bytes
}

fuzz_target!(|data: &[u8]| {
    let random = &mut SplitMix::new(1);
    let lan = Ipv4Lan::new(Ipv4Addr::new(10, 50, 60, 1), 28).expect("a network");
    let sip = SipService { sctp: Some(5060), tls: Some(5061), ..SipService::default() };
    let site = Site::new(NodeId::new(0x0123_4567_89ab_cdef), sip, Some(lan)).expect("a site");
    let mut now = Time::from_secs(1_000);
    let (mut dns, mut dhcp6) = (Dns::new(&site), Dhcp6::new(&site));
    let mut dhcp4 = Dhcp4::new(lan, Some(&site), SipEncoding::Names);
    let mut mdns = Mdns::new(&site, now, random);
    let mut rest = data;
    while let Some((&[action, length, host], more)) = rest.split_first_chunk::<3>() {
        let (octets, more) = more.split_at(more.len().min(length.into()));
        rest = more;
        let source = IpAddr::from([10, 50, 60, host]);
        match action % 6 {
            0 | 1 => {
                let by = if action % 6 == 0 { Transport::Udp } else { Transport::Tcp };
                if let Some(answer) = dns.answer(now, source, octets, by) {
                    assert!(answer.len() <= usize::from(MAX_UDP_ANSWER));
                    assert!(site.is_on_link(source));
                }
            }
            2 => {
                if let Some(reply) = dhcp4.handle(now, &dhcp(octets)) {
                    assert!((300..=1_472).contains(&reply.bytes.len()));
                    assert!(reply.to.ip().is_broadcast() || lan.is_host(*reply.to.ip()));
                }
            }
            3 => {
                let source = [0xfe80, 0, 0, 0, 0, 0, 0, host.into()].into();
                let answer = dhcp6.answer(now, source, octets);
                assert!(answer.is_none_or(|answer| answer.len() < 600));
            }
            4 => {
                let port = if host % 2 == 0 { 5353 } else { 40_000 };
                mdns.handle(now, SocketAddr::new(source, port), octets, random);
            }
            _ => now += Duration::from_millis(u64::from(host) * 20),
        }
        mdns.handle_timeout(now);
        while let Some(sent) = mdns.poll_transmit() {
            assert!(sent.bytes.len() < 1_400);
            if let Destination::Host(to) = sent.to {
                assert!(site.is_on_link(to.ip()));
            }
        }
        assert!(dhcp4.leases().len() <= MAX_LEASES);
    }
    let mut again = Leases::new(lan);
    assert_eq!(again.restore(now, &dhcp4.leases().to_text(now)), 0);
    // One that ends within this second may be gone.
    assert!(again.bound(now) <= dhcp4.leases().bound(now));
    again.restore(now, &String::from_utf8_lossy(data));
});
