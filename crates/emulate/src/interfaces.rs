//! The states of the interfaces between which the link is, as the kernel reports them.

use crate::report::{InterfaceReport, InterfaceState};
use ringway_os::netlink::{Change, Link, Monitor, Netlink, NetlinkError};
use std::io;

/// Watches both interfaces.
pub(crate) struct Watch {
    monitor: Monitor,
    netlink: Netlink,
    interfaces: Interfaces,
}

impl Watch {
    /// Watches the interfaces of these names in the network namespace of the thread, and reads their states. To be called
    /// within a runtime.
    ///
    /// # Errors
    /// The error of the system call that failed.
    pub(crate) fn open(names: &[String; 2]) -> io::Result<Watch> {
        // What changes while the states are read is reported after.
        let (monitor, netlink) = (Monitor::open()?, Netlink::open()?);
        let mut watch = Watch { monitor, netlink, interfaces: Interfaces::new(names) };
        watch.read()?;
        Ok(watch)
    }

    /// Returns the present states.
    pub(crate) fn states(&self) -> &[InterfaceReport; 2] {
        &self.interfaces.states
    }

    /// Returns what is to be said of the states as they were when the watch began.
    pub(crate) fn first_lines(&mut self) -> Vec<String> {
        self.interfaces.first_lines()
    }

    /// Waits until a state has changed. Returns lines about it. May be cancelled.
    ///
    /// # Errors
    /// The kernel reports nothing any more.
    pub(crate) async fn next(&mut self) -> io::Result<Vec<String>> {
        loop {
            let lines = match self.monitor.next().await? {
                Change::Link(link) => self.interfaces.changed(&link),
                Change::LinkRemoved(link) => self.interfaces.removed(&link),
                Change::Lost => Some(self.read()?),
                Change::Address(_) | Change::AddressRemoved(_) => None,
            };
            if let Some(lines) = lines {
                return Ok(lines);
            }
        }
    }

    /// Reads the states.
    fn read(&mut self) -> io::Result<Vec<String>> {
        let fail = |error: NetlinkError| io::Error::new(error.cause.kind(), error.to_string());
        let links = self.netlink.links().map_err(fail)?;
        Ok(self.interfaces.read(&links))
    }
}

/// Both interfaces.
#[derive(Debug)]
struct Interfaces {
    states: [InterfaceReport; 2],
    /// Their indexes, while they exist.
    indexes: [Option<u32>; 2],
    /// The MTUs that were compared last.
    mtus: [u32; 2],
}

impl Interfaces {
    /// Creates the states of interfaces that do not exist.
    fn new(names: &[String; 2]) -> Interfaces {
        let states = names.each_ref().map(|name| InterfaceReport {
            name: name.clone(),
            state: InterfaceState::Missing,
            mtu: 0,
            interruptions: 0,
        });
        Interfaces { states, indexes: [None; 2], mtus: [0; 2] }
    }

    /// Returns what is to be said of the states at the beginning.
    fn first_lines(&mut self) -> Vec<String> {
        let states = self.states.iter().filter(|interface| interface.state != InterfaceState::Up);
        let mut lines: Vec<String> = states.map(line).collect();
        self.mtus = [0; 2];
        lines.extend(self.compare());
        lines
    }

    /// Takes over all links that there are. Returns lines about what has changed.
    fn read(&mut self, links: &[Link]) -> Vec<String> {
        let mut lines = Vec::new();
        for i in 0..2 {
            let link = links.iter().find(|link| link.name == self.states[i].name);
            lines.extend(self.set(i, link).unwrap_or_default());
        }
        lines
    }

    /// Takes over a link that was added or has changed. Returns lines about it if it is one of both.
    fn changed(&mut self, link: &Link) -> Option<Vec<String>> {
        let mut lines = None;
        for i in 0..2 {
            if self.states[i].name == link.name {
                lines = self.set(i, Some(link)).or(lines);
            } else if self.indexes[i] == Some(link.index) {
                // It has another name now.
                lines = self.set(i, None).or(lines);
            }
        }
        lines
    }

    /// Takes over that a link was removed. Returns lines about it if it is one of both.
    fn removed(&mut self, link: &Link) -> Option<Vec<String>> {
        let i = self.indexes.iter().position(|index| *index == Some(link.index))?;
        self.set(i, None)
    }

    /// Takes over an interface. Returns lines about it, or `None` if nothing has changed that counts.
    fn set(&mut self, i: usize, link: Option<&Link>) -> Option<Vec<String>> {
        let (index, mtu) = (link.map(|link| link.index), link.map_or(0, |link| link.mtu));
        let state = match link {
            None => InterfaceState::Missing,
            Some(link) if link.is_running() => InterfaceState::Up,
            Some(link) if link.is_up() => InterfaceState::NoCarrier,
            Some(_) => InterfaceState::Down,
        };
        let interface = &mut self.states[i];
        let before = (interface.state, interface.mtu, self.indexes[i]);
        if before == (state, mtu, index) {
            return None;
        }
        interface.interruptions +=
            u64::from(before.0 == InterfaceState::Up && (state != before.0 || index != before.2));
        (interface.state, interface.mtu, self.indexes[i]) = (state, mtu, index);
        let mut lines = Vec::new();
        if (state, index) != (before.0, before.2) {
            lines.push(line(interface));
        }
        lines.extend(self.compare());
        Some(lines)
    }

    /// Compares the MTUs. Returns a line if they have changed and differ, or do not differ any more.
    fn compare(&mut self) -> Option<String> {
        let [one, other] = &self.states;
        let mtus = [one.mtu, other.mtu];
        if mtus.contains(&0) || mtus == self.mtus {
            return None;
        }
        let differed = self.mtus[0] != self.mtus[1];
        self.mtus = mtus;
        let names = format!("interfaces {} and {}", one.name, other.name);
        match mtus {
            [a, b] if a != b => {
                Some(format!("{names} have different MTUs, {a} and {b}: longer packets are lost"))
            }
            [mtu, _] => differed.then(|| format!("{names} have the same MTU, {mtu}")),
        }
    }
}

fn line(interface: &InterfaceReport) -> String {
    let state = match interface.state {
        InterfaceState::Missing => "does not exist; waiting for it",
        InterfaceState::Down => "is down; waiting for it",
        InterfaceState::NoCarrier => "has no carrier; waiting for it",
        InterfaceState::Up => "is up",
    };
    format!("interface {} {state}", interface.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: u32 = 0x1;
    const RUNNING: u32 = 0x40;

    fn link(index: u32, name: &str, flags: u32) -> Link {
        Link { index, name: name.to_owned(), mtu: 1_500, flags }
    }

    fn interfaces() -> Interfaces {
        let mut interfaces = Interfaces::new(&["west", "east"].map(str::to_owned));
        interfaces.read(&[link(2, "west", UP | RUNNING), link(3, "east", UP | RUNNING)]);
        interfaces
    }

    #[test]
    fn each_interruption_is_reported_and_counted() {
        let mut both = interfaces();
        assert_eq!(both.first_lines(), Vec::<String>::new());
        for count in 1..4 {
            let down = both.changed(&link(3, "east", 0)).unwrap();
            assert_eq!(down, ["interface east is down; waiting for it"]);
            let carrier = both.changed(&link(3, "east", UP)).unwrap();
            assert_eq!(carrier, ["interface east has no carrier; waiting for it"]);
            assert_eq!(both.changed(&link(3, "east", UP)), None, "it is reported once");
            let up = both.changed(&link(3, "east", UP | RUNNING)).unwrap();
            assert_eq!(up, ["interface east is up"]);
            assert_eq!(both.states.each_ref().map(|state| state.interruptions), [0, count]);
        }
        assert_eq!(both.changed(&link(9, "other", 0)), None);
    }

    #[test]
    fn an_interface_that_is_removed_or_renamed_is_missing() {
        let mut both = interfaces();
        let missing = ["interface west does not exist; waiting for it"];
        assert_eq!(both.changed(&link(2, "other", UP | RUNNING)).unwrap(), missing);
        assert_eq!(both.changed(&link(2, "west", UP | RUNNING)).unwrap(), ["interface west is up"]);
        assert_eq!(both.removed(&link(9, "west", UP | RUNNING)), None, "one of before");
        assert_eq!(both.removed(&link(2, "west", 0)).unwrap(), missing);
        // It has come with another index.
        both.changed(&link(4, "west", UP | RUNNING)).unwrap();
        assert_eq!(both.changed(&link(5, "west", UP | RUNNING)).unwrap(), ["interface west is up"]);
        assert_eq!(both.states[0].interruptions, 3);
        assert_eq!(both.read(&[]).len(), 2);
    }

    #[test]
    fn different_mtus_are_reported() {
        let mut both = interfaces();
        let longer = Link { mtu: 9_000, ..link(2, "west", UP | RUNNING) };
        assert_eq!(
            both.changed(&longer).unwrap(),
            [
                "interfaces west and east have different MTUs, 9000 and 1500: longer packets are lost"
            ]
        );
        assert_eq!(both.changed(&longer), None);
        let same = both.changed(&link(2, "west", UP | RUNNING)).unwrap();
        assert_eq!(same, ["interfaces west and east have the same MTU, 1500"]);
        let mut both = Interfaces::new(&["west", "east"].map(str::to_owned));
        both.read(&[longer, link(3, "east", UP)]);
        assert_eq!(both.first_lines().len(), 2, "no carrier, and different MTUs");
    }
}
