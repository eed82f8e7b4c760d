//! The client: the sequence of a measurement.

use super::args::Client;
use super::error::{PerfError, SILENCE_TIMEOUT, silence_error};
use super::protocol::{Begin, Control, Counts, ECHO, ECHOED, End, cpu};
use super::report::{Latency, Report, Row, Throughput};
use super::transport::Transport;
use super::{sctp, tcp, udp};
use crate::out;
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Timeout of a datagram's answer, and number of attempts.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
const ATTEMPTS: u32 = 10;
/// Timeout of an answer over a reliable transport: all data sent before it must arrive first.
const RELIABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout after which an echo counts as lost.
const ECHO_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for datagrams in flight to arrive after the last was sent.
const SETTLE: Duration = Duration::from_millis(100);
/// A measurement longer than this shows progress, at this interval.
const PROGRESS: Duration = Duration::from_secs(2);
const PROGRESS_EVERY: Duration = Duration::from_millis(250);
/// Number of significant digits of latencies.
const DIGITS: u8 = 3;

/// Messages to and from a server, over any transport.
enum Channel {
    Udp(udp::Port),
    Tcp(tcp::Connection),
    Sctp(sctp::Channel),
}

impl Channel {
    async fn send(&mut self, message: &[u8]) -> Result<(), PerfError> {
        match self {
            Channel::Udp(port) => port.send(message).await,
            Channel::Tcp(connection) => connection.send(message).await,
            Channel::Sctp(channel) => channel.send(message).await,
        }
    }

    async fn receive(&mut self) -> Result<&[u8], PerfError> {
        let received = match self {
            Channel::Udp(port) => port.receive().await,
            Channel::Tcp(connection) => connection.receive().await,
            Channel::Sctp(channel) => channel.receive().await,
        };
        received?.ok_or_else(|| PerfError::Failed("the server has gone away".to_owned()))
    }

    async fn flood(&mut self, size: usize, until: Instant) -> Result<u64, PerfError> {
        match self {
            Channel::Udp(port) => port.flood(size, until).await,
            Channel::Tcp(connection) => connection.flood(size, until).await,
            Channel::Sctp(channel) => channel.flood(size, until).await,
        }
    }

    /// Returns whether messages can get lost.
    fn lossy(&self) -> bool {
        matches!(self, Channel::Udp(_))
    }

    /// Sends a control message until the matching answer arrives. Over a reliable transport this
    /// takes at most `max_wait`.
    async fn request<T>(
        &mut self,
        question: Control,
        max_wait: Duration,
        right: impl Fn(Control) -> Option<T>,
    ) -> Result<T, PerfError> {
        let question = question.bytes();
        let (attempts, timeout) =
            if self.lossy() { (ATTEMPTS, ANSWER_TIMEOUT) } else { (1, max_wait) };
        for _ in 0..attempts {
            self.send(&question).await?;
            let received = tokio::time::timeout(timeout, async {
                loop {
                    if let Some(answer) = Control::read(self.receive().await?).and_then(&right) {
                        return Ok(answer);
                    }
                }
            });
            match received.await {
                Ok(answer) => return answer,
                Err(_) => continue,
            }
        }
        Err(silence_error())
    }

    async fn begin(&mut self, begin: Begin) -> Result<(), PerfError> {
        let right = |answer| (answer == Control::Begun(begin)).then_some(());
        self.request(Control::Begin(begin), SILENCE_TIMEOUT, right).await
    }

    async fn end(&mut self, end: End) -> Result<Counts, PerfError> {
        let right = |answer| match answer {
            Control::Counts(counted) if counted.run == end.run => Some(counted),
            _ => None,
        };
        self.request(Control::End(end), RELIABLE_TIMEOUT, right).await
    }

    /// Sends one message at a time and waits for its echo, until a time.
    async fn echo(&mut self, size: usize, until: Instant) -> Result<Latency, PerfError> {
        let mut times = Histogram::<u64>::new_with_max(RELIABLE_TIMEOUT.as_nanos() as u64, DIGITS)
            .map_err(|error| PerfError::at("latencies", error))?;
        let mut message = vec![0; size];
        let (mut lost, mut number) = (0, 0u32);
        while Instant::now() < until {
            number = number.wrapping_add(1);
            // As much of the number as fits: it identifies answers that arrive too late.
            for (to, from) in message[1..].iter_mut().zip(number.to_be_bytes()) {
                *to = from;
            }
            let begun = Instant::now();
            message[0] = ECHO;
            self.send(&message).await?;
            message[0] = ECHOED;
            let timeout = if self.lossy() { ECHO_TIMEOUT } else { SILENCE_TIMEOUT };
            let received = tokio::time::timeout(timeout, async {
                while self.receive().await? != message {}
                Ok::<_, PerfError>(())
            });
            match received.await {
                Ok(done) => done?,
                Err(_) if self.lossy() => {
                    lost += 1;
                    continue;
                }
                Err(_) => return Err(silence_error()),
            }
            times.saturating_record(begun.elapsed().as_nanos() as u64);
        }
        Ok(Latency::new(&times, lost))
    }
}

/// Opens the channels of a client.
async fn open(args: &Client) -> Result<Vec<Channel>, PerfError> {
    let location = args.to.clone().unwrap_or_default().resolve(&args.from).await?;
    let transport = args.transport;
    if let Transport::Sctp | Transport::SctpUdp | Transport::SctpKernel = transport {
        let location = location.for_sctp(transport)?;
        let channel = sctp::Channel::open(transport, &location, &args.from, args.streams).await?;
        return Ok(vec![Channel::Sctp(channel)]);
    }
    let to = location.single(transport)?;
    let from = match args.from[..] {
        [] => None,
        [from] if from.is_ipv4() == to.is_ipv4() => Some(from),
        _ => {
            let text = format!("{transport} takes one address of the server's family as --from");
            return Err(PerfError::Usage(text));
        }
    };
    let max = udp::MAX_DATAGRAM;
    if let Some(size) = args.size.iter().find(|&&size| transport == Transport::Udp && size > max) {
        return Err(PerfError::Usage(format!(
            "udp takes messages of 1 to {max} bytes, got {size}"
        )));
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
) -> Result<Throughput, PerfError> {
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
    let sum = |of: fn(&Counts) -> u64| counted.iter().map(of).sum();
    // The server's processor time is that of its process, so each connection reports the sum.
    let max = |of: fn(&Counts) -> f64| counted.iter().map(of).fold(0.0, f64::max);
    Ok(Throughput::new(
        sent.iter().sum(),
        (sum(|c| c.messages), sum(|c| c.bytes)),
        max(|c| c.seconds),
        used,
        max(|c| c.cpu_seconds),
    ))
}

/// Shows the progress of a measurement on a terminal while it is polled.
async fn progress(what: String, time: Duration) {
    let begun = Instant::now();
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let passed = begun.elapsed().min(time).as_secs_f64();
        // An error of the terminal does not stop the measurement.
        let _ = write!(std::io::stderr(), "\r{what}: {passed:.1} of {:.1} s ", time.as_secs_f64());
    }
}

/// Measures all sizes and prints the result.
pub(crate) async fn run(args: Client) -> Result<(), PerfError> {
    let what = format!("{} to {}", args.transport, args.to.clone().unwrap_or_default());
    measure(args).await.map_err(|error| error.within(what))
}

async fn measure(args: Client) -> Result<(), PerfError> {
    let mut channels = open(&args).await?;
    let visible = std::io::stderr().is_terminal()
        && args.time * u32::try_from(args.size.len()).unwrap_or(u32::MAX) > PROGRESS;
    let mut sizes = Vec::new();
    for (run, &size) in args.size.iter().enumerate() {
        let measure = async {
            let begin = Begin { run: run as u64 + 1, size: size as u64 };
            let throughput = throughput(&mut channels, begin, args.time * 2 / 3).await?;
            let latency = channels[0].echo(size, Instant::now() + args.time / 3).await?;
            Ok::<_, PerfError>(Row { size, throughput, latency })
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
