//! Discarding new requests in the kernel.
//!
//! Under heavy overload even a refusal is expensive: two datagrams to receive and one to send, a seventh
//! of the cost of a call. So the handler may have the kernel discard a share of the requests that begin
//! something, without a response, as a full receive buffer would, but without losing messages of calls
//! that have begun. The sender retransmits half a second later (RFC 3261 section 17.1.1.2, Timer A).

use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W, SKF_AD_OFF,
    SKF_AD_RANDOM,
};
use ringway_flow::METHODS;
use ringway_sansio::SHED_ALL;
use socket2::{SockFilter, Socket};
use std::io;

/// Size of the UDP header, which the filter sees before the payload, in octets.
const HEADER: u32 = 8;

/// The offset at which filters load a random number.
const RANDOM: u32 = (SKF_AD_OFF + SKF_AD_RANDOM) as u32;

/// Makes `socket` discard a share of new requests, of [`SHED_ALL`]; 0 for none.
pub(super) fn shed(socket: &Socket, share: u32) -> io::Result<()> {
    if share == 0 { socket.detach_filter() } else { socket.attach_filter(&program(share)) }
}

/// Returns the filter: nothing of a datagram that begins with one of the methods, if a random number is
/// above the bound; else all of it.
fn program(share: u32) -> Vec<SockFilter> {
    let statement = |code: u32, k| SockFilter::new(code as u16, 0, 0, k);
    let jump =
        |code: u32, k, then, or| SockFilter::new((BPF_JMP | code | BPF_K) as u16, then, or, k);
    let bound = ((u64::from(SHED_ALL.saturating_sub(share)) << 32) / u64::from(SHED_ALL)) as u32;
    // Jumps count the statements between: methods yet to be tried, then the random number, then the end.
    let methods = METHODS.len() as u8;
    let mut program = vec![
        statement(BPF_LD | BPF_W | BPF_LEN, 0),
        jump(BPF_JGE, HEADER + 4, 0, methods + 4),
        statement(BPF_LD | BPF_W | BPF_ABS, HEADER),
    ];
    for (method, left) in METHODS.iter().zip((0..methods).rev()) {
        let or = if left == 0 { 3 } else { 0 };
        program.push(jump(BPF_JEQ, u32::from_be_bytes(*method), left, or));
    }
    program.push(statement(BPF_LD | BPF_W | BPF_ABS, RANDOM));
    program.push(jump(BPF_JGE, bound, 0, 1));
    program.push(statement(BPF_RET | BPF_K, 0));
    program.push(statement(BPF_RET | BPF_K, u32::MAX));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn received(share: u32, texts: &[&str]) -> Vec<usize> {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let receiver = Socket::from(receiver);
        shed(&receiver, SHED_ALL / 2).unwrap();
        shed(&receiver, share).unwrap();
        let receiver = UdpSocket::from(receiver);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffer = [0; 100];
        let mut counts = vec![0; texts.len()];
        for (text, count) in texts.iter().zip(&mut counts) {
            for _ in 0..1_000 {
                // Datagrams that are not discarded precede the last one, which never is.
                for text in [text.as_bytes(), b"ACK last"] {
                    sender.send_to(text, receiver.local_addr().unwrap()).unwrap();
                }
                loop {
                    let length = receiver.recv(&mut buffer).unwrap();
                    if &buffer[..length] == b"ACK last" {
                        break;
                    }
                    assert_eq!(&buffer[..length], text.as_bytes());
                    *count += 1;
                }
            }
        }
        counts
    }

    #[test]
    fn only_requests_that_begin_something_are_discarded() {
        let new =
            ["INVITE sip:a", "REGISTER sip:a", "OPTIONS sip:a", "SUBSCRIBE", "MESSAGE", "PUBLISH"];
        assert_eq!(received(SHED_ALL, &new), [0; 6]);
        let others =
            ["ACK sip:a", "BYE sip:a", "CANCEL sip:a", "SIP/2.0 200 OK", "\r\n", "INV", "INFO a"];
        assert_eq!(received(SHED_ALL, &others), [1_000; 7]);
        assert_eq!(received(0, &new), [1_000; 6]);
    }

    #[test]
    fn the_share_is_respected() {
        // A quarter: of 6000, 1500 with a deviation of 34.
        let left: usize = received(SHED_ALL / 4 * 3, &["INVITE sip:a"; 6]).iter().sum();
        assert!((1_300..1_700).contains(&left), "{left}");
    }
}
