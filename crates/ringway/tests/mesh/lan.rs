//! Hosts of two LANs, which know nothing of the mesh, reach each other through three routers in a line. Needs root;
//! without it the test does nothing.
#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringway_router::Settings;

/// Set in a process that is a router: its TUN device and interfaces, the LAN last.
const ROUTER: &str = "RINGWAY_TEST_ROUTER";

/// Runs a program and returns what it prints, or `None` when it fails.
fn output(words: &str) -> Option<String> {
    let mut words = words.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ip(words: &str) -> String {
    output(&format!("ip {words}")).unwrap_or_else(|| panic!("ip {words} fails"))
}

/// Waits for what is to be.
fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Network namespaces that are removed in the end.
struct Spaces(u32);

impl Spaces {
    const NAMES: [&str; 5] = ["h1", "r1", "r2", "r3", "h3"];

    fn name(&self, node: &str) -> String {
        format!("rw{}{node}", self.0)
    }

    fn ip(&self, node: &str, words: &str) -> String {
        ip(&format!("-n {} {words}", self.name(node)))
    }

    /// Connects two nodes by interfaces `right` and `left`.
    fn connect(&self, a: &str, b: &str) {
        let (a, b) = (self.name(a), self.name(b));
        ip(&format!("link add name right netns {a} type veth peer name left netns {b}"));
    }

    /// Starts a router, which stops when its standard input ends.
    fn router(&self, node: &str, interfaces: &str, directory: &Path) -> Child {
        let exe = std::env::current_exe().unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(node)]).arg(exe);
        command.args(["a_router", "--exact", "--nocapture"]).stdin(Stdio::piped());
        command.env(ROUTER, format!("{node} {interfaces}")).env("XDG_RUNTIME_DIR", directory);
        command.spawn().unwrap()
    }

    /// Returns an address that a host has made of an advertisement.
    fn address(&self, host: &str) -> Option<String> {
        let all = self.ip(host, "-6 -o addr show scope global dynamic -tentative");
        let address = all.split_whitespace().find_map(|word| word.strip_suffix("/64"))?;
        Some(address.to_owned())
    }
}

impl Drop for Spaces {
    fn drop(&mut self) {
        for name in Self::NAMES {
            let _ = output(&format!("ip netns del {}", self.name(name)));
        }
    }
}

/// The body of a router's process.
#[test]
fn a_router() {
    let Ok(words) = std::env::var(ROUTER) else { return };
    let mut words = words.split(' ').map(str::to_owned);
    let tun = words.next().unwrap();
    let (lans, interfaces): (Vec<_>, Vec<_>) = words.partition(|word| word.starts_with("lan="));
    let lan = lans.first().and_then(|lan| lan.strip_prefix("lan=")).map(str::to_owned);
    let directory = std::env::var("XDG_RUNTIME_DIR").unwrap();
    let state = Path::new(&directory).join(&tun);
    let settings = Settings { interfaces, lan, tun, state, ..Settings::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stop = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let log = |line: &str| eprintln!("{}: {line}", settings.tun);
        ringway_router::run(&settings, &log, async { _ = stop.await }).await.unwrap();
    });
}

#[test]
fn hosts_behind_two_routers_configure_themselves_and_reach_each_other() {
    let spaces = Spaces(std::process::id());
    if output(&format!("ip netns add {}", spaces.name("h1"))).is_none() {
        eprintln!("no namespace to be had");
        return;
    }
    for node in &Spaces::NAMES[1..] {
        ip(&format!("netns add {}", spaces.name(node)));
    }
    if output(&format!("ip -n {} tuntap add probe mode tun", spaces.name("h1"))).is_none() {
        eprintln!("no TUN device to be had");
        return;
    }
    for pair in Spaces::NAMES.windows(2) {
        spaces.connect(pair[0], pair[1]);
    }
    // The kernel takes routes of advertisements if it is asked to; NetworkManager and systemd-networkd take them
    // themselves.
    for (host, interface) in [("h1", "right"), ("h3", "left")] {
        let option = format!("net.ipv6.conf.{interface}.accept_ra_rt_info_max_plen=64");
        let name = spaces.name(host);
        assert!(output(&format!("ip netns exec {name} sysctl -w {option}")).is_some());
        spaces.ip(host, &format!("link set {interface} up"));
    }
    for (node, interface) in [
        ("r1", "left"),
        ("r1", "right"),
        ("r2", "left"),
        ("r2", "right"),
        ("r3", "left"),
        ("r3", "right"),
    ] {
        spaces.ip(node, &format!("link set {interface} up"));
    }
    let directory = tempfile::tempdir().unwrap();
    let first = spaces.router("r1", "right lan=left", directory.path());
    let mut others = [
        spaces.router("r2", "left right", directory.path()),
        spaces.router("r3", "left lan=right", directory.path()),
    ];
    wait("an address at the first host", || spaces.address("h1"));
    let address = wait("an address at the last host", || spaces.address("h3"));
    assert!(address.starts_with("fd"), "{address}");
    let host = spaces.name("h1");
    wait("an answer of the last host", || {
        output(&format!("ip netns exec {host} ping -c 1 -W 1 {address}"))
    });
    assert!(spaces.ip("h1", "-6 route").contains("fd00::/8"));
    let device = spaces.ip("r1", "-6 addr show dev r1 scope global");
    assert!(device.contains("/128"), "{device}");
    // A router that leaves says so.
    assert!(first.wait_with_output().unwrap().status.success());
    wait("the end of the route", || {
        (!spaces.ip("h1", "-6 route").contains("fd00::/8")).then_some(())
    });
    for router in &mut others {
        drop(router.stdin.take());
        assert!(router.wait().unwrap().success());
    }
}
