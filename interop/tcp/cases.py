"""Ringway's TCP against the kernel's, over a TUN device in a network namespace of its own.

Both ends send and check the same pattern; what is between them drops, delays and repeats packets
as asked. Needs the right to make namespaces and devices; without it there are no such cases, and a
line on standard error says so.
"""

import os
from pathlib import Path

import windows
from cases import Failed
from network import Space, case, words

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KERNEL, OURS = "10.9.0.1", "10.9.0.2"
KERNEL6, OURS6 = "fd09::1", "fd09::2"
PORT = 7000
MEGABYTE = 1 << 20


def binary():
    """The program, as `cargo build --profile quick` leaves it, or as `TCP_OVER_TUN` names it."""
    named = os.environ.get("TCP_OVER_TUN")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
    path = Path(named) if named else target / "quick" / "ringway-tcp-over-tun"
    if not path.exists():
        raise Failed(f"no program at {path}: run cargo build --profile quick -p ringway-tcp-over-tun")
    return path


class Link:
    """A namespace with our TCP on one end of a device and the kernel's on the other."""

    def __init__(self, c, v6=False):
        self.c, self.v6 = c, v6
        self.mark = c.ports.take()
        self.space = Space(c, f"tcp-{self.mark}")
        self.kernel, self.local = (KERNEL6, OURS6) if v6 else (KERNEL, OURS)
        self.program = None

    def sysctl(self, name, value):
        """Sets one of the kernel's parameters in the namespace."""
        status, output = self.inside("sysctl", ["sysctl", "-w", f"{name}={value}"])
        self.c.expect(status == 0, f"sysctl {name}: {output}")

    def inside(self, name, argv):
        """Runs a program in the namespace to its end."""
        return self.c.run(name, [*self.space.enter(), *argv])

    def ours(self, **options):
        """Starts our end, which waits until `go`."""
        argv = [*self.space.enter(), binary(), "--tun", "tun0", "--local", self.local]
        self.program = self.c.start(f"ours-{self.mark}", [*argv, *words(options)], stdin=True)
        self.c.expect(self.program.wait_output("open", 10), f"no device: {self.program.output()}")
        prefix = f"{self.kernel}/{64 if self.v6 else 24}"
        self.space.inside("address", "add", prefix, "dev", "tun0", *(["nodad"] if self.v6 else []))
        self.space.inside("link", "set", "tun0", "mtu", "1500", "up")
        return self.program

    def go(self):
        """Lets our end begin."""
        self.program.write("go")

    def peer(self, **options):
        """Starts the kernel's end."""
        options.setdefault("address", self.kernel if "listen" in options else self.local)
        argv = [*self.space.enter(), "python3", HERE / "peer.py", *words(options)]
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


@case("tcp/connect")
def active(c):
    """RFC 9293: our end opens; ten megabytes each way at once."""
    ours, peer = both(10 * MEGABYTE, 10 * MEGABYTE)
    connect(c, ours, peer)


@case("tcp/listen")
def passive(c):
    """RFC 9293: the kernel opens; ten megabytes each way at once, with 10 ms each way."""
    ours, peer = both(10 * MEGABYTE, 10 * MEGABYTE)
    listen(c, {**ours, "delay": 10}, peer)


@case("tcp/ipv6")
def six(c):
    """The same over IPv6, with loss."""
    ours, peer = both(2 * MEGABYTE, 2 * MEGABYTE)
    connect(c, {**ours, "delay": 5, "loss": 1}, peer, v6=True)


BAD = {"loss": 2, "reorder": 5, "duplicate": 1, "delay": 5}


def bad_link(name, **choice):
    """A case of a bad link with some choice of options on our end, opened from either end."""
    @case(f"tcp/bad-link-{name}", limit=150)
    def _(c):
        ours, peer = both(2 * MEGABYTE, 2 * MEGABYTE)
        output = connect(c, {**ours, **BAD, **choice, "limit": 60}, peer)
        c.expect("retransmits: 0" not in output, f"nothing was lost: {output}")
        listen(c, {**ours, **BAD, **choice, "limit": 60, "seed": 2}, peer)


bad_link("rack")
bad_link("count", count=True)
bad_link("plain", no_sack=True, no_timestamps=True, no_scaling=True, reno=True)
bad_link("reno", reno=True, no_timestamps=True)


@case("tcp/ecn")
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


@case("tcp/zero-window-ours")
def our_window(c):
    """RFC 9293 3.8.6.1: our end does not read for three seconds; the kernel must wait and go on."""
    ours, peer = both(1000, 2 * MEGABYTE)
    listen(c, {**ours, "pause": 3000, "buffer": 20_000}, peer)


@case("tcp/zero-window-theirs")
def their_window(c):
    """RFC 9293 3.8.6.1: the kernel's end does not read for three seconds; ours probes and goes on."""
    ours, peer = both(2 * MEGABYTE, 1000)
    output = connect(c, ours, {**peer, "pause": 3000, "buffer": 20_000})
    c.expect("window_probes: 0" not in output, f"no probe: {output}")
    c.expect("timeouts: 0," in output, f"the probes counted as loss: {output}")


@case("tcp/half-close")
def half(c):
    """RFC 9293 3.6: one direction ends first, the other still carries data, whoever is first."""
    ours, peer = both(MEGABYTE, MEGABYTE)
    output = connect(c, {**ours, "delay": 2}, {**peer, "after_eof": True})
    c.expect("FinWait2" in output, f"no half-closed state: {output}")
    output = listen(c, {**ours, "delay": 2, "after_eof": True}, peer)
    c.expect("CloseWait" in output and "LastAck" in output, f"no half-closed state: {output}")


@case("tcp/close-at-once")
def crossing(c):
    """RFC 9293 3.6, figure 13: FINs that cross.

    The kernel's end is open half a second after ours, when our ACK arrives, and so lingers that much
    less: both FINs leave at the same time, and each has half a second to meet the other.
    """
    ours, peer = both(5000, 5000)
    output = connect(c, {**ours, "delay": 500, "linger": 2000}, {**peer, "linger": 1500})
    c.expect("Closing" in output, f"the FINs did not cross: {output}")


@case("tcp/open-at-once")
def simultaneous(c):
    """RFC 9293 3.5, figure 7: SYNs that cross. Our end begins only once the kernel's SYN is under way."""
    link = Link(c)
    ours, peer = both(30_000, 30_000)
    link.ours(connect=f"{link.kernel}:{PORT}", **{"from": PORT}, delay=100, **ours)
    process = link.peer(connect=PORT, bind=PORT, **peer)
    c.until(lambda: str(PORT) in link.inside("ss", ["ss", "-Htn", "state", "syn-sent"])[1], 20,
            "the kernel sent no SYN")
    link.go()
    output = link.finish(process)
    c.expect("SynReceived" in output, f"the SYNs did not cross: {output}")


@case("tcp/reset-by-kernel")
def reset_theirs(c):
    """RFC 9293 3.10.7.4: the kernel aborts, and our end is told."""
    connect(c, {"send": 50_000_000, "receive": 0, "end": "reset"}, {"receive": 100_000, "end": "abort"})


@case("tcp/reset-by-us")
def reset_ours(c):
    """RFC 9293 3.10.5: our end aborts, and the kernel is told."""
    listen(c, {"receive": 100_000, "end": "abort"}, {"send": 50_000_000, "end": "reset"})


@case("tcp/refused")
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


# A link that makes windows go by packets alone: a bottleneck and a delay that no sender outruns.
PACED = {"rate": 12_000, "delay": 25}


def prepare(link):
    """Gives the kernel windows that do not hold it back, and no reason to send by a clock.

    A machine that is busy elsewhere must not look like a link that lost everything: no tail loss
    probe, and three seconds before a timeout.
    """
    link.sysctl("net.ipv4.tcp_rmem", "4096 4000000 8000000")
    link.sysctl("net.ipv4.tcp_wmem", "4096 4000000 8000000")
    link.sysctl("net.ipv4.tcp_early_retrans", 0)
    link.space.inside("route", "replace", "10.9.0.0/24", "dev", "tun0", "proto", "kernel", "scope",
            "link", "src", KERNEL, "rto_min", "3s")


def both_windows(c, size, lost, algorithm, **link_options):
    """The traces of either sender that loses the same data packets: ours and the kernel's. Leaves
    cwnd.svg in the case's folder (`--keep`)."""
    # A machine that is busy elsewhere makes this slow, but not different.
    patience = {"limit": 100}
    options = {**PACED, **patience, "lose": ",".join(map(str, lost)), **link_options}
    link = Link(c)
    if algorithm == "reno":
        options["reno"] = True
    link.ours(connect=f"{link.kernel}:{PORT}", send=size, trace=c.folder / "ours.trace", **options)
    prepare(link)
    process = link.peer(listen=PORT, receive=size, **patience)
    link.go()
    link.finish(process, 110)

    link = Link(c)
    link.ours(listen=PORT, receive=size, buffer=8 * MEGABYTE, trace_kernel=c.folder / "kernel.trace", **options)
    prepare(link)
    link.go()
    process = link.peer(connect=PORT, send=size, congestion=algorithm, **patience)
    link.finish(process, 110)
    ours, kernel = (windows.read(c.folder / f"{name}.trace") for name in ("ours", "kernel"))
    c.expect(kernel, "the kernel showed no window")
    windows.drawing({"ours": ours, "the kernel's": kernel}, c.folder / "cwnd.svg")
    print(f"windows at each loss: ours {windows.summary(ours)}; the kernel's {windows.summary(kernel)}")
    return ours, kernel


@case("tcp/window-beside-kernel", limit=240)
def window(c):
    """RFC 5681, RFC 6675: the same data packets are lost to either sender; both windows must double a
    round trip, halve once a loss, grow by one a round trip, and be alike from packet to packet."""
    ours, kernel = both_windows(c, 3 * MEGABYTE, (150, 600, 1000, 1001, 1500), "reno")
    wrong = windows.alike(ours, kernel)
    for who, rows in (("ours", ours), ("the kernel's", kernel)):
        # Packets 1000 and 1001 are one loss: what is lost in one window counts once.
        wrong += windows.falls(who, rows, 4, windows.RENO_BETA)
        wrong += windows.slow_start(who, rows) + windows.reno(who, rows)
    c.expect(not wrong, "; ".join(wrong))


@case("tcp/cubic-beside-kernel", limit=240)
def cubic_window(c):
    """RFC 9438: the same, and both windows must fall to 0.7 and grow as CUBIC does.

    The first loss comes before Linux's HyStart (RFC 9406) could leave slow start.
    """
    ours, kernel = both_windows(c, 3 * MEGABYTE, (8, 300, 1200), "cubic", delay=50)
    wrong = []
    for who, rows in (("ours", ours), ("the kernel's", kernel)):
        wrong += windows.falls(who, rows, 3, windows.CUBIC_BETA)
        wrong += windows.slow_start(who, rows) + windows.cubic(who, rows, 0.13)
    c.expect(not wrong, "; ".join(wrong))


@case("tcp/capture")
def capture(c):
    """What is captured on the way: tshark finds every checksum right, and each drop with its reason."""
    ours, peer = both(MEGABYTE, MEGABYTE)
    file = c.folder / "link.pcapng"
    output = connect(c, {**ours, "loss": 1, "delay": 5, "lose": "20,21", "capture": file}, peer)
    checked = [word for name in ("ip", "tcp") for word in ("-o", f"{name}.check_checksum:TRUE")]
    fields = ["ip.checksum.status", "tcp.checksum.status", "frame.comment", "frame.interface_name", "tcp.checksum"]
    shown = [word for name in fields for word in ("-e", name)]
    status, told = c.run("tshark", ["tshark", "-n", "-r", file, *checked, "-T", "fields", *shown], seconds=60)
    c.expect(status == 0, f"tshark: {told}")
    # Run by root it also says that it is.
    lines = [line.split("\t") for line in told.splitlines() if "\t" in line]
    # Linux writes a checksum of zero as its other form (RFC 1071 section 2), which tshark does not accept.
    lines = [["1", "1", *line[2:]] if line[:2] == ["1", "0"] and line[4] == "0xffff" else line for line in lines]
    # The kernel also looks for routers, over ICMPv6.
    wrong = [line for line in lines if line[:2] not in (["1", "1"], ["", ""]) or line[3] != "link"]
    c.expect(len(lines) > 1000 and not wrong, f"{len(lines)} packets; not as they should be: {wrong[:3]}")
    reasons = [line[2] for line in lines if line[2]]
    dropped = int(output.split("dropped ")[1].split()[0])
    c.expect(len(reasons) == dropped and reasons.count("dropped: listed") == 4,
             f"{dropped} dropped, {reasons.count('dropped: listed')} of {len(reasons)} comments say listed")
    c.expect(set(reasons) == {"dropped: listed", "dropped: lost at random"}, f"reasons: {set(reasons)}")
