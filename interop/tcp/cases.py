"""Ringway's TCP against the kernel's, over a TUN device in a network namespace of its own.

Both ends send and check the same pattern; what is between them drops, delays and repeats packets
as asked. Needs the right to make namespaces and devices; without it there are no such cases, and a
line on standard error says so.
"""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import cases
from cases import Failed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KERNEL, OURS = "10.9.0.1", "10.9.0.2"
KERNEL6, OURS6 = "fd09::1", "fd09::2"
PORT = 7000
MEGABYTE = 1 << 20


def permitted():
    """Whether namespaces and devices can be made here."""
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return False
    script = "ip tuntap add dev rw-probe mode tun && mount --make-rprivate /"
    tried = subprocess.run(["unshare", "-n", "-m", "sh", "-c", script], capture_output=True, check=False)
    return tried.returncode == 0


PERMITTED = permitted()
if not PERMITTED and "--one" not in sys.argv:
    print("interop: tcp is left out, for want of the right to make namespaces and devices", file=sys.stderr)


def case(name, **options):
    """A case, where it can be run."""
    return cases.case(name, **options) if PERMITTED else lambda body: body


def binary():
    """The program, as `cargo build --profile quick` leaves it, or as `TCP_OVER_TUN` names it."""
    named = os.environ.get("TCP_OVER_TUN")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(named) if named else target / "quick" / "ringway-tcp-over-tun"
    if not path.exists():
        raise Failed(f"no program at {path}: run cargo build --profile quick -p ringway-tcp-over-tun")
    return path


def words(options):
    """Command line words for a mapping; True stands alone."""
    for name, value in options.items():
        yield f"--{name.replace('_', '-')}"
        if value is not True:
            yield str(value)


class Link:
    """A namespace with our TCP on one end of a device and the kernel's on the other."""

    def __init__(self, c, v6=False):
        self.c, self.v6 = c, v6
        self.mark = c.ports.take()
        self.space = f"rw-tcp-{os.getpid()}-{self.mark}"
        self.ip("netns", "add", self.space)
        c.after(lambda: self.ip("netns", "del", self.space))
        self.kernel, self.local = (KERNEL6, OURS6) if v6 else (KERNEL, OURS)
        self.program = None

    def ip(self, *arguments):
        """Runs `ip`, which must succeed."""
        status, output = self.c.run("ip", ["ip", *arguments])
        self.c.expect(status == 0, f"ip {' '.join(arguments)}: {output}")

    def sysctl(self, name, value):
        """Sets one of the kernel's parameters in the namespace."""
        status, output = self.inside("sysctl", ["sysctl", "-w", f"{name}={value}"])
        self.c.expect(status == 0, f"sysctl {name}: {output}")

    def inside(self, name, argv):
        """Runs a program in the namespace to its end."""
        return self.c.run(name, ["ip", "netns", "exec", self.space, *argv])

    def ours(self, **options):
        """Starts our end, which waits until `go`."""
        argv = ["ip", "netns", "exec", self.space, binary(), "--tun", "tun0", "--local", self.local]
        self.program = self.c.start(f"ours-{self.mark}", [*argv, *words(options)], stdin=True)
        self.c.expect(self.program.wait_output("open", 10), f"no device: {self.program.output()}")
        prefix = f"{self.kernel}/{64 if self.v6 else 24}"
        self.ip("-n", self.space, "address", "add", prefix, "dev", "tun0", *(["nodad"] if self.v6 else []))
        self.ip("-n", self.space, "link", "set", "lo", "up")
        self.ip("-n", self.space, "link", "set", "tun0", "mtu", "1500", "up")
        return self.program

    def go(self):
        """Lets our end begin."""
        self.program.write("go")

    def peer(self, **options):
        """Starts the kernel's end."""
        options.setdefault("address", self.kernel if "listen" in options else self.local)
        argv = ["ip", "netns", "exec", self.space, "python3", HERE / "peer.py", *words(options)]
        peer = self.c.start(f"peer-{self.mark}", argv)
        if "listen" in options:
            self.c.expect(peer.wait_output("listening", 10), f"no peer: {peer.output()}")
        return peer

    def finish(self, peer, seconds=90):
        """Both ends must end as they were told to; gives our end's output."""
        for process in (peer, self.program):
            status = process.wait(seconds)
            self.c.expect(status == 0, f"{process.name} ended with {status}: "
                          f"ours: {self.program.output()} peer: {peer.output()}")
        return self.program.output()


def connect(c, ours, peer, v6=False):
    """Our end connects to the kernel's."""
    link = Link(c, v6)
    at = f"[{link.kernel}]:{PORT}" if v6 else f"{link.kernel}:{PORT}"
    link.ours(connect=at, **ours)
    process = link.peer(listen=PORT, **peer)
    link.go()
    return link.finish(process)


def listen(c, ours, peer, v6=False):
    """The kernel's end connects to ours."""
    link = Link(c, v6)
    link.ours(listen=PORT, **ours)
    link.go()
    process = link.peer(connect=PORT, **peer)
    return link.finish(process)


def both(size, back):
    """Sizes for our end and for the peer."""
    return {"send": size, "receive": back}, {"send": back, "receive": size}


@case("tcp/connect", own=True)
def active(c):
    """RFC 9293: our end opens; ten megabytes each way at once."""
    ours, peer = both(10 * MEGABYTE, 10 * MEGABYTE)
    connect(c, ours, peer)


@case("tcp/listen", own=True)
def passive(c):
    """RFC 9293: the kernel opens; ten megabytes each way at once, with 10 ms each way."""
    ours, peer = both(10 * MEGABYTE, 10 * MEGABYTE)
    listen(c, {**ours, "delay": 10}, peer)


@case("tcp/ipv6", own=True)
def six(c):
    """The same over IPv6, with loss."""
    ours, peer = both(2 * MEGABYTE, 2 * MEGABYTE)
    connect(c, {**ours, "delay": 5, "loss": 1}, peer, v6=True)


BAD = {"loss": 2, "reorder": 5, "duplicate": 1, "delay": 5}


def bad_link(name, **choice):
    """A case of a bad link with some choice of options on our end, opened from either end."""
    @case(f"tcp/bad-link-{name}", limit=150, own=True)
    def _(c):
        ours, peer = both(2 * MEGABYTE, 2 * MEGABYTE)
        output = connect(c, {**ours, **BAD, **choice, "limit": 60}, peer)
        c.expect("retransmits: 0" not in output, f"nothing was lost: {output}")
        listen(c, {**ours, **BAD, **choice, "limit": 60, "seed": 2}, peer)


bad_link("rack")
bad_link("count", count=True)
bad_link("plain", no_sack=True, no_timestamps=True, no_scaling=True, reno=True)
bad_link("reno", reno=True, no_timestamps=True)


@case("tcp/ecn", own=True)
def ecn(c):
    """RFC 3168: both ends agree on ECN, whoever opens; marks are answered, and every byte arrives."""
    for opens in (True, False):
        link = Link(c)
        link.ours(ecn=True, delay=5, mark=1, send=4 * MEGABYTE, receive=4 * MEGABYTE,
                  **({"connect": f"{link.kernel}:{PORT}"} if opens else {"listen": PORT}))
        link.sysctl("net.ipv4.tcp_ecn", 1)
        sizes = {"send": 4 * MEGABYTE, "receive": 4 * MEGABYTE}
        if not opens:
            link.go()
        process = link.peer(**{"listen" if opens else "connect": PORT}, **sizes)
        if opens:
            link.go()
        output = link.finish(process)
        c.expect("capable 0 " not in output, f"the kernel sent nothing capable: {output}")
        c.expect("marked 0 " not in output, f"nothing was marked: {output}")
        c.expect("ecn_reductions: 0" not in output, f"no mark was answered: {output}")


@case("tcp/zero-window-ours", own=True)
def our_window(c):
    """RFC 9293 3.8.6.1: our end does not read for three seconds; the kernel must wait and go on."""
    ours, peer = both(1000, 2 * MEGABYTE)
    listen(c, {**ours, "pause": 3000, "buffer": 20_000}, peer)


@case("tcp/zero-window-theirs", own=True)
def their_window(c):
    """RFC 9293 3.8.6.1: the kernel's end does not read for three seconds; ours probes and goes on."""
    ours, peer = both(2 * MEGABYTE, 1000)
    output = connect(c, ours, {**peer, "pause": 3000, "buffer": 20_000})
    c.expect("window_probes: 0" not in output, f"no probe: {output}")
    c.expect("timeouts: 0," in output, f"the probes counted as loss: {output}")


@case("tcp/half-close", own=True)
def half(c):
    """RFC 9293 3.6: one direction ends first, the other still carries data, whoever is first."""
    ours, peer = both(MEGABYTE, MEGABYTE)
    output = connect(c, {**ours, "delay": 2}, {**peer, "after_eof": True})
    c.expect("FinWait2" in output, f"no half-closed state: {output}")
    output = listen(c, {**ours, "delay": 2, "after_eof": True}, peer)
    c.expect("CloseWait" in output and "LastAck" in output, f"no half-closed state: {output}")


@case("tcp/close-at-once", own=True)
def crossing(c):
    """RFC 9293 3.6, figure 13: FINs that cross."""
    ours, peer = both(5000, 5000)
    output = connect(c, {**ours, "delay": 300, "linger": 1500}, {**peer, "linger": 1500})
    c.expect("Closing" in output, f"the FINs did not cross: {output}")


@case("tcp/open-at-once", own=True)
def simultaneous(c):
    """RFC 9293 3.5, figure 7: SYNs that cross."""
    link = Link(c)
    ours, peer = both(30_000, 30_000)
    link.ours(connect=f"{link.kernel}:{PORT}", **{"from": PORT}, delay=1000, **ours)
    # Our SYN reaches the kernel a second after it was sent; by then the kernel has sent its own.
    link.go()
    process = link.peer(connect=PORT, bind=PORT, **peer)
    output = link.finish(process)
    c.expect("SynReceived" in output, f"the SYNs did not cross: {output}")


@case("tcp/reset-by-kernel", own=True)
def reset_theirs(c):
    """RFC 9293 3.10.7.4: the kernel aborts, and our end is told."""
    connect(c, {"send": 50_000_000, "receive": 0, "end": "reset"}, {"receive": 100_000, "end": "abort"})


@case("tcp/reset-by-us", own=True)
def reset_ours(c):
    """RFC 9293 3.10.5: our end aborts, and the kernel is told."""
    listen(c, {"receive": 100_000, "end": "abort"}, {"send": 50_000_000, "end": "reset"})


@case("tcp/refused", own=True)
def refused(c):
    """RFC 9293 3.10.7.1: nobody listens, on either end."""
    link = Link(c)
    link.ours(connect=f"{link.kernel}:{PORT}", end="refused")
    link.go()
    status = link.program.wait(20)
    c.expect(status == 0, f"ours ended with {status}: {link.program.output()}")
    link = Link(c)
    link.ours(listen=PORT, limit=4)
    link.go()
    peer = link.peer(connect=PORT + 1, end="refused")
    c.expect(peer.wait(20) == 0, f"peer: {peer.output()}")


LOST = (150, 600, 1000, 1001, 1500)


def drawing(traces, path):
    """Both windows over time as one picture: solid ours, dashed the kernel's."""
    width, height, margin = 900, 400, 50
    longest = max(t for trace in traces.values() for t, *_ in trace)
    highest = max(cwnd for trace in traces.values() for _, cwnd, _ in trace)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 2 * margin}" height="{height + 2 * margin}" '
        'font-family="sans-serif" font-size="14">',
        f'<rect x="{margin}" y="{margin}" width="{width}" height="{height}" fill="none" stroke="#888"/>',
        f'<text x="{margin}" y="{height + 2 * margin - 15}">0 to {longest:.0f} ms</text>',
        f'<text x="{margin}" y="{margin - 15}">congestion window, 0 to {highest} segments; '
        'solid: ours, dashed: the kernel\'s</text>',
    ]
    for (_, trace), (colour, dash) in zip(traces.items(), (("#0072b2", "none"), ("#d55e00", "6 4"))):
        points, last = [], None
        for at, cwnd, _ in trace:
            x = margin + at / longest * width
            y = margin + height - cwnd / highest * height
            if last is not None:
                points.append(f"{x:.1f},{last:.1f}")
            points.append(f"{x:.1f},{y:.1f}")
            last = y
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}" '
                     f'points="{" ".join(points)}"/>')
    path.write_text("\n".join([*parts, "</svg>"]))


# Chances a busy machine gets to let two senders run alike.
WINDOW_TRIES = 4


def thresholds(trace):
    """The slow start thresholds one after another, as losses set them."""
    found = []
    for _, _, ssthresh in trace:
        if ssthresh < 1 << 20 and (not found or found[-1] != ssthresh):
            found.append(ssthresh)
    return found


def prepare(link):
    """Makes the kernel use Reno and windows that do not hold it back."""
    link.sysctl("net.ipv4.tcp_congestion_control", "reno")
    link.sysctl("net.ipv4.tcp_rmem", "4096 4000000 8000000")
    link.sysctl("net.ipv4.tcp_wmem", "4096 4000000 8000000")


@case("tcp/window-beside-kernel", limit=90, own=True, alone=True)
def window(c):
    """RFC 5681, RFC 6675: the same data packets are lost to either sender; their windows must fall alike.

    How large a window is when a packet is lost depends on how evenly the machine let either sender run, so
    one that is busy with other things gets more than one chance. Leaves cwnd.svg in the case's folder
    (`--keep`).
    """
    for _ in range(WINDOW_TRIES):
        mine, theirs = both_windows(c)
        text = f"thresholds after each loss, in segments: ours {mine}, the kernel's {theirs}"
        print(text)
        near = [abs(one - other) <= max(3, 0.2 * other) for one, other in zip(mine, theirs)]
        if len(mine) == len(theirs) and all(near):
            return
    c.expect(False, text)


def both_windows(c):
    """The thresholds of either sender, ours and the kernel's."""
    size, lost = 3 * MEGABYTE, ",".join(map(str, LOST))
    link = Link(c)
    prepare(link)
    link.ours(connect=f"{link.kernel}:{PORT}", send=size, reno=True, delay=20, lose=lost,
              trace=c.folder / "ours.trace")
    process = link.peer(listen=PORT, receive=size)
    link.go()
    link.finish(process)
    ours = [tuple(map(int, line.split())) for line in (c.folder / "ours.trace").read_text().splitlines()]

    link = Link(c)
    prepare(link)
    link.ours(listen=PORT, receive=size, delay=20, lose=lost, buffer=8 * MEGABYTE)
    kernel, over, start = [], threading.Event(), time.monotonic()

    def sample():
        while not over.is_set():
            told = link.inside("ss", ["ss", "-tin"])[1]
            found = re.search(r"cwnd:(\d+)", told)
            if found:
                threshold = re.search(r"ssthresh:(\d+)", told)
                at = (time.monotonic() - start) * 1000
                kernel.append((at, int(found[1]), int(threshold[1]) if threshold else 1 << 30))
    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        link.go()
        process = link.peer(connect=PORT, send=size)
        link.finish(process)
    finally:
        over.set()
        sampler.join()
    c.expect(kernel, "the kernel showed no window")
    first = kernel[0][0]
    kernel = [(at - first, cwnd, threshold) for at, cwnd, threshold in kernel]
    drawing({"ours": ours, "kernel": kernel}, c.folder / "cwnd.svg")
    return thresholds(ours), thresholds(kernel)
