//! A link between interfaces that go down, lose their carrier or are removed: it is reported, and packets pass again
//! after. It needs a network namespace; where the system allows none, the test does nothing.
#![allow(clippy::unwrap_used)]

use ringway_emulate::report::{InterfaceReport, InterfaceState};
use ringway_emulate::{Flags, Report, Settings, run, settings};
use ringway_os::tun::VnetHeader;
use ringway_os::{PacketSocket, enter_new_network};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// A frame of a type that no kernel handles (IEEE 802: for experiments), from the far end of an interface.
fn send(far: &str) {
    let socket = PacketSocket::open_sender(far).unwrap();
    let mut frame = VnetHeader::default().to_bytes().to_vec();
    frame.extend([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
    frame.resize(frame.len() + 60, 1);
    // The interface may be down at the far end.
    socket.send([frame.as_slice()].into_iter(), |_, _| {});
}

fn ip(words: &str) {
    assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success(), "ip {words}");
}

/// The steps of the test: what is done, and the state of `east` that it leads to.
const STEPS: [(&str, InterfaceState); 10] = [
    ("link set east down", InterfaceState::Down),
    ("link set east up", InterfaceState::Up),
    ("link set east down", InterfaceState::Down),
    ("link set east up", InterfaceState::Up),
    ("link set far-east down", InterfaceState::NoCarrier),
    ("link set far-east up", InterfaceState::Up),
    ("link del east", InterfaceState::Missing),
    ("link add east type veth peer name far-east", InterfaceState::Down),
    ("link set far-east up", InterfaceState::Down),
    ("link set east up", InterfaceState::Up),
];

/// Makes each step, and waits for its state. When `east` is up packets must pass in both directions.
struct Script {
    step: usize,
    /// Packets that had passed before the last step.
    sent: [u64; 2],
}

impl Script {
    /// Returns whether all steps have been made.
    fn go_on(&mut self, report: &Report) -> bool {
        let [_, InterfaceReport { state, .. }] = &report.interfaces[..] else { return false };
        let expected = self.step.checked_sub(1).map_or(InterfaceState::Up, |last| STEPS[last].1);
        let sent = report.directions.each_ref().map(|direction| direction.sent.packets);
        let pass = sent.iter().zip(self.sent).all(|(now, before)| *now > before);
        if *state != expected || (expected == InterfaceState::Up && !pass) {
            if expected == InterfaceState::Up {
                send("far-west");
                send("far-east");
            }
            return false;
        }
        let Some((words, _)) = STEPS.get(self.step) else { return true };
        self.sent = sent;
        self.step += 1;
        ip(words);
        false
    }
}

fn interrupt() {
    for end in ["west", "east"] {
        ip(&format!("link add {end} type veth peer name far-{end}"));
        ip(&format!("link set {end} up"));
        ip(&format!("link set far-{end} up"));
    }
    let folder = tempfile::tempdir().unwrap();
    let between = Some(["west", "east"].map(str::to_owned));
    let mut settings: Settings = settings::read(Flags { between, ..Flags::default() }).unwrap();
    settings.runtime = folder.path().join("run");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let kept = all.clone();
    let lines = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
    let done = Notify::new();
    let mut script = Script { step: 0, sent: [0; 2] };
    let mut watch = |report: &Report| {
        if script.go_on(report) {
            done.notify_one();
        }
    };
    let limit = Duration::from_secs(120);
    let stop = async {
        tokio::time::timeout(limit, done.notified()).await.unwrap();
    };
    let ended = runtime.block_on(run(&settings, &[], lines, Some(&mut watch), stop)).unwrap();
    let [west, east] = &ended.report.interfaces[..] else { panic!("{:?}", ended.report) };
    assert_eq!((west.interruptions, east.interruptions), (0, 4));
    let lines = all.lock().unwrap().join("\n");
    for state in ["is down; waiting", "has no carrier; waiting", "does not exist; waiting", "is up"]
    {
        assert!(lines.contains(&format!("interface east {state}")), "no {state}: {lines}");
    }
}

#[test]
fn packets_pass_again_after_an_interruption() {
    let inside = std::thread::spawn(|| match enter_new_network() {
        Ok(()) => interrupt(),
        Err(error) => eprintln!("no namespace to be had: {error}"),
    });
    inside.join().unwrap();
}
