//! Congestion controllers and schedulers of the caller's.

use super::*;
use ringway_sctp::Factory;
use ringway_sctp::congestion::{Acked, Congestion, Window};
use ringway_sctp::scheduler::Scheduler;
use std::collections::BTreeMap;

/// A window that never changes.
#[derive(Debug)]
struct Fixed;

impl Congestion for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn acked(&mut self, window: &mut Window, _: Acked) {
        window.cwnd = 3000;
    }

    fn lost(&mut self, _: &mut Window, _: Time) {}

    fn timeout(&mut self, _: &mut Window, _: Time, _recovering: bool) {}

    fn idle(&mut self, _: &mut Window, _rtos: u32) {}
}

#[test]
fn a_controller_of_the_caller_decides_the_window() {
    let algorithm = Algorithm::Custom(Factory(|| Box::new(Fixed)));
    let settings = Settings { algorithm, initial_cwnd: Some(3000), ..quick() };
    let mut pair = Pair::new(settings, quick(), ms(10));
    let (a, b) = pair.open();
    for n in 0..40 {
        pair.send(a, 0, &pattern(n, 1400));
    }
    for _ in 0..20 {
        pair.run(ms(20));
        let path = pair.a.snapshot(a).unwrap().paths[0];
        assert_eq!(path.cwnd, 3000);
        // One chunk may exceed the window (RFC 9260 section 6.1 B).
        assert!(path.flight < 3000 + 1500, "{}", path.flight);
    }
    pair.run(secs(5));
    assert_eq!(pair.received(b).len(), 40);
}

/// The highest stream first.
#[derive(Debug, Default)]
struct Highest(BTreeMap<u16, u32>);

impl Scheduler for Highest {
    fn name(&self) -> &'static str {
        "highest"
    }

    fn queued(&mut self, stream: u16, _bytes: usize) {
        *self.0.entry(stream).or_default() += 1;
    }

    fn next(&self) -> Option<u16> {
        self.0.last_key_value().map(|(stream, _)| *stream)
    }

    fn taken(&mut self, _bytes: usize, more: bool) {
        if let Some(stream) = self.next() {
            self.removed(stream, more);
        }
    }

    fn removed(&mut self, stream: u16, more: bool) {
        if !more {
            self.0.remove(&stream);
        }
    }
}

#[test]
fn a_scheduler_of_the_caller_decides_the_order() {
    let scheduling = Scheduling::Custom(Factory(|| Box::<Highest>::default()));
    let mut pair = Pair::new(Settings { scheduling, ..quick() }, quick(), ms(10));
    let (a, b) = pair.open();
    for stream in [1, 3, 2, 3, 1] {
        pair.send(a, stream, b"x");
    }
    pair.run(secs(1));
    let order: Vec<u16> = pair.received(b).iter().map(|(stream, _)| *stream).collect();
    assert_eq!(order, [3, 3, 2, 1, 1]);
}

/// Names a stream that has nothing.
#[derive(Debug)]
struct Wrong;

impl Scheduler for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn queued(&mut self, _stream: u16, _bytes: usize) {}

    fn next(&self) -> Option<u16> {
        Some(9)
    }

    fn taken(&mut self, _bytes: usize, _more: bool) {}

    fn removed(&mut self, _stream: u16, _more: bool) {}
}

#[test]
fn a_scheduler_that_is_wrong_sends_nothing() {
    let scheduling = Scheduling::Custom(Factory(|| Box::new(Wrong)));
    let mut pair = Pair::new(Settings { scheduling, ..quick() }, quick(), ms(10));
    let (a, b) = pair.open();
    let lifetime = Reliability::Lifetime(ms(50));
    let options = SendOptions { stream: 1, reliability: lifetime, ..SendOptions::default() };
    pair.a.send(pair.now, a, &options, &b"x"[..]).unwrap();
    pair.run(secs(1));
    assert_eq!((pair.received(b).len(), pair.a.snapshot(a).unwrap().unacknowledged), (0, 1));
}
