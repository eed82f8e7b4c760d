//! The results of a client, as JSON and as a table.

use super::transport::Transport;
use hdrhistogram::Histogram;
use serde::Serialize;

/// All results of a client.
#[derive(Serialize, Debug)]
pub(crate) struct Report {
    pub(crate) transport: Transport,
    pub(crate) to: String,
    pub(crate) streams: u16,
    /// Seconds per size.
    pub(crate) seconds: f64,
    pub(crate) sizes: Vec<Row>,
}

/// Results of one size.
#[derive(Serialize, Debug)]
pub(crate) struct Row {
    /// Size of a message in bytes.
    pub(crate) size: usize,
    pub(crate) throughput: Throughput,
    pub(crate) latency: Latency,
}

/// Throughput: as many messages as the transport accepts.
#[derive(Serialize, Debug)]
pub(crate) struct Throughput {
    pub(crate) sent_messages: u64,
    /// Number of messages that arrived.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Seconds from the first arrival to the last.
    pub(crate) seconds: f64,
    pub(crate) bits_per_second: f64,
    pub(crate) messages_per_second: f64,
    pub(crate) client_cpu_seconds: f64,
    pub(crate) server_cpu_seconds: f64,
    /// Processor time of both sides per 10^9 bytes.
    pub(crate) cpu_seconds_per_gigabyte: f64,
}

/// Latency: one message at a time, answered by its echo.
#[derive(Serialize, Debug)]
pub(crate) struct Latency {
    /// Number of answers.
    pub(crate) count: u64,
    /// Number of messages that were not answered within a second.
    pub(crate) lost: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

/// Returns `a / b`, or 0 if `b` is 0.
fn rate(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

impl Throughput {
    /// Computes the rates from the counts.
    pub(crate) fn new(
        sent_messages: u64,
        (messages, bytes): (u64, u64),
        seconds: f64,
        client_cpu_seconds: f64,
        server_cpu_seconds: f64,
    ) -> Throughput {
        let cpu = client_cpu_seconds + server_cpu_seconds;
        Throughput {
            sent_messages,
            messages,
            bytes,
            seconds,
            bits_per_second: rate(bytes as f64 * 8.0, seconds),
            messages_per_second: rate(messages as f64, seconds),
            client_cpu_seconds,
            server_cpu_seconds,
            cpu_seconds_per_gigabyte: rate(cpu, bytes as f64 / 1e9),
        }
    }
}

impl Latency {
    /// Computes the statistics of times in nanoseconds.
    pub(crate) fn new(times: &Histogram<u64>, lost: u64) -> Latency {
        let at = |quantile: f64| times.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            count: times.len(),
            lost,
            mean_us: times.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: times.max() as f64 / 1e3,
        }
    }
}

/// Formats bits per second for people.
pub(crate) fn bits(bytes: u64, seconds: f64) -> String {
    let bits = rate(bytes as f64 * 8.0, seconds);
    match bits {
        bits if bits >= 1e9 => format!("{:.2} Gbit/s", bits / 1e9),
        bits if bits >= 1e6 => format!("{:.2} Mbit/s", bits / 1e6),
        bits => format!("{:.2} kbit/s", bits / 1e3),
    }
}

/// Formats seconds for people.
pub(crate) fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

impl Report {
    /// Formats one line per size.
    pub(crate) fn text(&self) -> String {
        let head = [
            "bytes",
            "throughput",
            "messages/s",
            "lost %",
            "CPU s/GB",
            "p50 us",
            "p90 us",
            "p99 us",
            "p99.9 us",
            "max us",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        for Row { size, throughput: t, latency: l } in &self.sizes {
            let lost = 100.0 - 100.0 * rate(t.messages as f64, t.sent_messages as f64);
            let us = |value: f64| if l.count == 0 { "-".to_owned() } else { format!("{value:.1}") };
            lines.push([
                size.to_string(),
                bits(t.bytes, t.seconds),
                format!("{:.0}", t.messages_per_second),
                format!("{:.2}", lost.max(0.0)),
                format!("{:.2}", t.cpu_seconds_per_gigabyte),
                us(l.p50_us),
                us(l.p90_us),
                us(l.p99_us),
                us(l.p999_us),
                us(l.max_us),
            ]);
        }
        let streams = match self.streams {
            1 => "1 stream".to_owned(),
            n => format!("{n} streams"),
        };
        let mut text = format!(
            "{} to {}, {streams}, {} a size; CPU of both sides; latency of a message and its answer\n",
            self.transport,
            self.to,
            seconds(self.seconds)
        );
        let width =
            |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or_default();
        for line in &lines {
            let cells: Vec<String> = line
                .iter()
                .enumerate()
                .map(|(column, cell)| format!("{cell:>width$}", width = width(column)))
                .collect();
            text.push_str(&cells.join("  "));
            text.push('\n');
        }
        text
    }
}
