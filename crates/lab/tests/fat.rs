//! Paths with a large bandwidth-delay product.

#![allow(clippy::unwrap_used)]

use ringway_lab::run::{FlowMeasures, Options, run};
use ringway_lab::scenario::Scenario;

/// Runs a transfer over 10 ms, where 200 Gbit/s have as much in flight as 10 Gbit/s over 200 ms.
/// The whole round trip is the way there, so that all data in flight is on it.
fn transfer(transport: &str, rate: &str, stop: &str) -> FlowMeasures {
    let text = format!(
        "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\"]\nstop = \"{stop}\"\n[[link]]\nbetween = [\"a\", \"b\"]\n\
         rate = \"{rate}\"\nqueue = {{ discipline = \"drop-tail\", limit = 1000000 }}\n\
         [link.there]\ndelay = \"10 ms\"\n\
         [[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ntraffic = \"bulk\"\n{transport}\n"
    );
    let scenario = Scenario::read("t", &text).unwrap();
    run(&scenario, &Options::default(), |_| ()).unwrap().flows.swap_remove(0)
}

fn tcp(buffer: &str) -> String {
    format!(
        "transport = \"tcp\"\n\
         tcp = {{ initial_window = 1024, send_buffer = \"{buffer}\", receive_buffer = \"{buffer}\" }}"
    )
}

/// The window of TCP grows until the path is full: 250 MB in a round trip, 172,664 segments.
#[test]
fn tcp_fills_ten_gigabits_over_two_hundred_milliseconds() {
    let flow = transfer(&tcp("256 MiB"), "200 Gbit/s", "115 ms");
    assert_eq!((flow.dropped, flow.window_full), (0, 0));
    assert!(flow.in_flight > 170_000, "{} in flight of {}", flow.in_flight, flow.sent);
}

/// Beyond 262,144 segments no new data is sent, and this is counted.
#[test]
fn a_window_beyond_the_bound_is_counted() {
    let flow = transfer(&tcp("768 MiB"), "500 Gbit/s", "125 ms");
    assert!(flow.in_flight <= 1 << 18 && flow.in_flight > 250_000, "{}", flow.in_flight);
    assert!(flow.window_full > 0);
}

/// Beyond 32,767 chunks SCTP sends no new data, and this is counted; below, nothing is counted.
#[test]
fn chunks_beyond_the_bound_are_counted() {
    let sctp =
        "transport = \"sctp\"\nsctp = { send_buffer = \"256 MiB\", receive_buffer = \"256 MiB\" }";
    let flow = transfer(sctp, "200 Gbit/s", "200 ms");
    assert!(flow.in_flight <= 32_767 && flow.in_flight > 30_000, "{}", flow.in_flight);
    assert!(flow.window_full > 0);
    assert_eq!(transfer(sctp, "1 Gbit/s", "200 ms").window_full, 0);
}
