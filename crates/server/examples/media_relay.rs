//! The processor time of one relayed packet: a call between 127.0.0.1 and ::1, of which both parties send at a given
//! rate, in voice packets of 172 octets.
//!
//! ```text
//! cargo run --profile quick -p ringway-server --example media_relay -- [calls] [seconds]
//! ```
//!
//! Only the time of the relay's thread counts, as the kernel accounts it. Left out: network cards, and the mesh.

#![allow(clippy::print_stdout)]

use ringway_media::{Config, Forwarded, Leg, Limits, MediaRelay, Rate};
use ringway_net::Clock;
use ringway_server::media::Media;
use ringway_sip::message;
use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Packets of one call and direction in a second.
const PACE: u32 = 50;
/// Octets of a packet: 20 ms of G.711 and the header of RTP.
const OCTETS: usize = 172;

struct Call {
    caller: UdpSocket,
    callee: UdpSocket,
    to_callee: SocketAddr,
    to_caller: SocketAddr,
}

fn leg(address: &str) -> Result<Leg, Box<dyn Error>> {
    let ip: IpAddr = address.parse()?;
    Ok(Leg { local: ip, remote: ip, many: false })
}

fn sdp(at: SocketAddr) -> String {
    let kind = if at.is_ipv4() { "IP4" } else { "IP6" };
    format!(
        "v=0\r\no=- 1 1 IN {kind} {0}\r\ns=-\r\nc=IN {kind} {0}\r\nt=0 0\r\nm=audio {1} RTP/AVP 0\r\n",
        at.ip(),
        at.port()
    )
}

fn message_of(start: &str, call: usize, tag: &str, body: &str) -> Vec<u8> {
    format!(
        "{start}\r\nFrom: <sip:a@x>;tag=a\r\nTo: <sip:b@x>{tag}\r\nCall-ID: {call}\r\nCSeq: 1 INVITE\r\n\
         Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn media_of(body: &[u8]) -> Result<SocketAddr, Box<dyn Error>> {
    let session = ringway_sip::sdp::Session::parse(body).map_err(|e| e.reason)?;
    let media = session.media.first().ok_or("no stream")?;
    let ip = session.connection(media).and_then(|c| c.ip()).ok_or("no address")?;
    Ok(SocketAddr::new(ip, media.port))
}

/// Sets a call up.
fn begin(media: &Media, clock: Clock, number: usize) -> Result<Call, Box<dyn Error>> {
    let (caller, callee) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("[::1]:0")?);
    let (v4, v6, relay) = (leg("127.0.0.1")?, leg("::1")?, media.relay());
    let branch = Some(number as u64);
    let offer = message_of("INVITE sip:b@x SIP/2.0", number, "", &sdp(caller.local_addr()?));
    let request = &message::parse(&offer).map_err(|e| e.reason)?;
    let forwarded = Forwarded { message: request, from: v4, to: v6, branch };
    let offer = relay.request(clock.now(), &forwarded).map_err(|e| format!("{e:?}"))?;
    let answer = message_of("SIP/2.0 200 OK", number, ";tag=b", &sdp(callee.local_addr()?));
    let response = &message::parse(&answer).map_err(|e| e.reason)?;
    let forwarded = Forwarded { message: response, from: v6, to: v4, branch };
    let answer = relay.response(clock.now(), &forwarded);
    let to_caller = media_of(&offer.ok_or("not relayed")?)?;
    let to_callee = media_of(&answer.ok_or("not relayed")?)?;
    Ok(Call { caller, callee, to_callee, to_caller })
}

/// Returns the processor time of the relay's thread.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    for entry in std::fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim() == "media" {
            let text = std::fs::read_to_string(path.join("schedstat"))?;
            let nanos = text.split_ascii_whitespace().next().ok_or("no schedstat")?;
            return Ok(Duration::from_nanos(nanos.parse()?));
        }
    }
    Err("no thread of the relay".into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let calls: usize = arguments.next().map_or(Ok(20), |text| text.parse())?;
    let seconds: u32 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let clock = Clock::new();
    let many = 10_000;
    let limits = Limits {
        streams: many,
        of_many: many,
        of_network: many,
        of_address: many,
        unanswered: many,
    };
    let rate = Rate { packets: 1_000_000, octets: 1_000_000_000 };
    let media = Media::start(Config { limits, rate, ..Config::default() }, [1; 16], clock)?;
    let mut all = Vec::new();
    for number in 0..calls {
        all.push(begin(&media, clock, number)?);
        // Ports are bound by another thread.
        std::thread::sleep(Duration::from_millis(5));
    }
    let (start, before) = (Instant::now(), processor_time()?);
    let packet = [0x80u8; OCTETS];
    for tick in 1..=seconds * PACE {
        for call in &all {
            call.caller.send_to(&packet, call.to_callee)?;
            call.callee.send_to(&packet, call.to_caller)?;
        }
        let next = start + Duration::from_secs(1) / PACE * tick;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    std::thread::sleep(Duration::from_millis(100));
    let (elapsed, used) = (start.elapsed(), processor_time()? - before);
    let snapshot = media.relay().snapshot();
    let forwarded = snapshot.packets.forwarded;
    println!(
        "{calls} calls, {forwarded} packets forwarded of {}",
        calls * 2 * (seconds * PACE) as usize
    );
    println!(
        "{:.2} us of processor time for a packet, {:.2} % of a processor",
        used.as_secs_f64() * 1e6 / forwarded.max(1) as f64,
        used.as_secs_f64() / elapsed.as_secs_f64() * 100.0
    );
    println!("{:?}, not sent: {}", snapshot.packets, snapshot.not_sent);
    Ok(())
}
