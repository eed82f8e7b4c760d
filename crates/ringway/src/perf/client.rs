//! The client: the order of a measurement.

use super::protocol::{Begin, Control, Counted, ECHO, ECHOED, End, cpu};
use super::report::{Latency, Report, Row, Throughput};
use super::{Client, SILENCE, Transport, Trouble, sctp, silent, tcp, udp};
use crate::out;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How long a datagram's answer is waited for, and how often it is asked again.
const PATIENCE: Duration = Duration::from_millis(500);
const TRIES: u32 = 10;
/// How long the answer of a transport that loses nothing may take: all that was sent before it has
/// to arrive.
const LONG: Duration = Duration::from_secs(60);
/// An echo that takes longer is lost.
const ECHO_PATIENCE: Duration = Duration::from_secs(1);
/// How long datagrams may be on their way when the last was sent.
const SETTLE: Duration = Duration::from_millis(100);
/// What a measurement that takes longer shows progress for, and how often.
const PROGRESS: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// Digits of latencies that hold.
const DIGITS: u8 = 3;

/// Messages to and from a server, whatever carries them.
enum Channel {
    Udp(udp::Port),
    Tcp(tcp::Connection),
    Sctp(sctp::Channel),
}

impl Channel {
    async fn say(&mut self, message: &[u8]) -> Result<(), Trouble> {
        match self {
            Channel::Udp(port) => port.say(message).await,
            Channel::Tcp(connection) => connection.say(message).await,
            Channel::Sctp(channel) => channel.say(message).await,
        }
    }

    async fn hear(&mut self) -> Result<&[u8], Trouble> {
        let heard = match self {
            Channel::Udp(port) => port.hear().await,
            Channel::Tcp(connection) => connection.hear().await,
            Channel::Sctp(channel) => channel.hear().await,
        };
        heard?.ok_or_else(|| Trouble::Failed("the server has gone away".to_owned()))
    }

    async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, Trouble> {
        match self {
            Channel::Udp(port) => port.flood(size, until).await,
            Channel::Tcp(connection) => connection.flood(size, until).await,
            Channel::Sctp(channel) => channel.flood(size, until).await,
        }
    }

    /// Whether messages can get lost.
    fn lossy(&self) -> bool {
        matches!(self, Channel::Udp(_))
    }

    /// Says something until the right answer comes, which over a transport that loses nothing takes no
    /// longer than `long`.
    async fn ask<T>(
        &mut self,
        question: Control,
        long: Duration,
        right: impl Fn(Control) -> Option<T>,
    ) -> Result<T, Trouble> {
        let question = question.bytes();
        let (tries, patience) = if self.lossy() { (TRIES, PATIENCE) } else { (1, long) };
        for _ in 0..tries {
            self.say(&question).await?;
            let heard = tokio::time::timeout(patience, async {
                loop {
                    if let Some(answer) = Control::read(self.hear().await?).and_then(&right) {
                        return Ok(answer);
                    }
                }
            });
            match heard.await {
                Ok(answer) => return answer,
                Err(_) => continue,
            }
        }
        Err(silent())
    }

    async fn begin(&mut self, begin: Begin) -> Result<(), Trouble> {
        let right = |answer| (answer == Control::Begun(begin)).then_some(());
        self.ask(Control::Begin(begin), SILENCE, right).await
    }

    async fn end(&mut self, end: End) -> Result<Counted, Trouble> {
        let right = |answer| match answer {
            Control::Counted(counted) if counted.run == end.run => Some(counted),
            _ => None,
        };
        self.ask(Control::End(end), LONG, right).await
    }

    /// One message at a time and its answer, until then.
    async fn echo(&mut self, size: usize, until: Instant) -> Result<Latency, Trouble> {
        let mut times = Histogram::<u64>::new_with_max(LONG.as_nanos() as u64, DIGITS)
            .map_err(|error| Trouble::at("latencies", error))?;
        let mut message = vec![0; size];
        let (mut lost, mut number) = (0, 0u32);
        while Instant::now() < until {
            number = number.wrapping_add(1);
            // As much of a number as there is room for: answers that come too late are told apart.
            for (to, from) in message[1..].iter_mut().zip(number.to_be_bytes()) {
                *to = from;
            }
            let begun = Instant::now();
            message[0] = ECHO;
            self.say(&message).await?;
            message[0] = ECHOED;
            let patience = if self.lossy() { ECHO_PATIENCE } else { SILENCE };
            let heard = tokio::time::timeout(patience, async {
                while self.hear().await? != message {}
                Ok::<_, Trouble>(())
            });
            match heard.await {
                Ok(done) => done?,
                Err(_) if self.lossy() => {
                    lost += 1;
                    continue;
                }
                Err(_) => return Err(silent()),
            }
            times.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        Ok(Latency::new(&times, lost))
    }
}

/// Opens what the messages of a client travel on.
async fn open(args: &Client) -> Result<Vec<Channel>, Trouble> {
    let place = args.to.clone().unwrap_or_default().resolve(&args.from).await?;
    let transport = args.transport;
    if let Transport::Sctp | Transport::SctpUdp = transport {
        let place = place.for_sctp(transport)?;
        let channel = sctp::Channel::open(transport, &place, &args.from, args.streams).await?;
        return Ok(vec![Channel::Sctp(channel)]);
    }
    let to = place.single(transport)?;
    let from = match args.from[..] {
        [] => None,
        [from] if from.is_ipv4() == to.is_ipv4() => Some(from),
        _ => {
            let text = format!("{transport} takes one address of the server's family as --from");
            return Err(Trouble::Usage(text));
        }
    };
    let most = udp::MAX_DATAGRAM;
    if let Some(size) = args.size.iter().find(|&&size| transport == Transport::Udp && size > most) {
        return Err(Trouble::Usage(format!("udp takes messages of 1 to {most} bytes, got {size}")));
    }
    let mut channels = Vec::new();
    for _ in 0..args.streams {
        channels.push(match transport {
            Transport::Udp => Channel::Udp(udp::Port::open(to, from).await?),
            _ => Channel::Tcp(tcp::Connection::open(to, from).await?),
        });
    }
    Ok(channels)
}

async fn throughput(
    channels: &mut [Channel],
    begin: Begin,
    time: Duration,
) -> Result<Throughput, Trouble> {
    try_join_all(channels.iter_mut().map(|channel| channel.begin(begin))).await?;
    let (before, until) = (cpu(), Instant::now() + time);
    let size = begin.size as usize;
    let sent = try_join_all(channels.iter_mut().map(|channel| channel.flood(size, until))).await?;
    if channels.iter().any(Channel::lossy) {
        tokio::time::sleep(SETTLE).await;
    }
    let ends = channels
        .iter_mut()
        .zip(&sent)
        .map(|(channel, &sent)| channel.end(End { run: begin.run, sent }));
    let counted = try_join_all(ends).await?;
    let used = (cpu() - before).as_secs_f64();
    let sum = |of: fn(&Counted) -> u64| counted.iter().map(of).sum();
    // The server's processor time is that of its process, so each connection tells of all of it.
    let most = |of: fn(&Counted) -> f64| counted.iter().map(of).fold(0.0, f64::max);
    Ok(Throughput::new(
        sent.iter().sum(),
        (sum(|c| c.messages), sum(|c| c.bytes)),
        most(|c| c.seconds),
        used,
        most(|c| c.cpu_seconds),
    ))
}

/// Shows on a terminal how far a measurement is, for as long as it is polled.
async fn progress(what: String, time: Duration) {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let shown = begun.elapsed().min(time).as_secs_f64();
        // Nobody left to see it is no reason to stop.
        let _ = write!(std::io::stderr(), "\r{what}: {shown:.1} of {:.1} s ", time.as_secs_f64());
    }
}

/// Measures all sizes and shows the result.
pub(crate) async fn run(args: Client) -> Result<(), Trouble> {
    let what = format!("{} to {}", args.transport, args.to.clone().unwrap_or_default());
    measured(args).await.map_err(|trouble| trouble.within(what))
}

async fn measured(args: Client) -> Result<(), Trouble> {
    let mut channels = open(&args).await?;
    let visible = std::io::stderr().is_terminal()
        && args.time * u32::try_from(args.size.len()).unwrap_or(u32::MAX) > PROGRESS;
    let mut sizes = Vec::new();
    for (run, &size) in args.size.iter().enumerate() {
        let measure = async {
            let begin = Begin { run: run as u64 + 1, size: size as u64 };
            let throughput = throughput(&mut channels, begin, args.time * 2 / 3).await?;
            let latency = channels[0].echo(size, Instant::now() + args.time / 3).await?;
            Ok::<_, Trouble>(Row { size, throughput, latency })
        };
        let row = if visible {
            tokio::select! {
                row = measure => row,
                () = progress(format!("{} {size} bytes", args.transport), args.time) => continue,
            }
        } else {
            measure.await
        };
        if visible {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        sizes.push(row?);
    }
    for channel in channels {
        if let Channel::Sctp(channel) = channel {
            channel.close().await;
        }
    }
    let to = args.to.unwrap_or_default();
    let report = Report {
        transport: args.transport,
        to: to.to_string(),
        streams: args.streams,
        seconds: args.time.as_secs_f64(),
        sizes,
    };
    if args.json {
        out::json(&report)?
    } else {
        out::text(&report.text())?
    }
    Ok(())
}
