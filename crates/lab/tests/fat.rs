//! Paths on which very much is in flight.

#![allow(clippy::unwrap_used)]

use ringway_lab::run::{FlowMeasures, Options, run};
use ringway_lab::scenario::Scenario;

/// A transfer over 10 ms, of which 200 Gbit/s have as much in flight as 10 Gbit/s over 200 ms, for so
/// long. All of the round trip is the way there, so that what is in flight is on it.
fn transfer(rate: &str, buffer: &str, stop: &str) -> FlowMeasures {
    let text = format!(
        "[scenario]\ntitle = \"t\"\nnodes = [\"a\", \"b\"]\nstop = \"{stop}\"\n[[link]]\nbetween = [\"a\", \"b\"]\n\
         rate = \"{rate}\"\nqueue = {{ discipline = \"drop-tail\", limit = 1000000 }}\n\
         [link.there]\ndelay = \"10 ms\"\n\
         [[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ntraffic = \"bulk\"\ntransport = \"tcp\"\n\
         tcp = {{ initial_window = 1024, send_buffer = \"{buffer}\", receive_buffer = \"{buffer}\" }}\n"
    );
    let scenario = Scenario::read("t", &text).unwrap();
    run(&scenario, &Options::default(), |_| ()).unwrap().flows.swap_remove(0)
}

/// The window of TCP grows until the path is full: 250 MB in a round trip, 172,664 segments.
#[test]
fn tcp_fills_ten_gigabits_over_two_hundred_milliseconds() {
    let flow = transfer("200 Gbit/s", "256 MiB", "115 ms");
    assert_eq!((flow.dropped, flow.window_full), (0, 0));
    assert!(flow.in_flight > 170_000, "{} in flight of {}", flow.in_flight, flow.sent);
}

/// Beyond 262,144 segments nothing new is sent, and that is counted.
#[test]
fn a_window_beyond_the_bound_is_counted() {
    let flow = transfer("500 Gbit/s", "768 MiB", "125 ms");
    assert!(flow.in_flight <= 1 << 18 && flow.in_flight > 250_000, "{}", flow.in_flight);
    assert!(flow.window_full > 0);
}
