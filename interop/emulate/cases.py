"""`ringway emulate` between the kernels of two hosts: ping and TCP through it show its delay, loss and rate.

Three network namespaces in a line: both hosts, and between them one whose two interfaces have no address, where the
emulation runs. Times are asserted loosely, because the machine may do much else.
"""

import json
import math
import re
import signal
import sys
from pathlib import Path

from network import Space, case
from server import binary

HERE = Path(__file__).resolve().parent
WEST, EAST = "10.1.0.1", "10.1.0.2"
PORT = 7000
SCENARIO = """
[scenario]
title = "One file over a slow link"
nodes = ["a", "b"]
seed = 3
stop = "flows done"

[[link]]
between = ["a", "b"]
rate = "10 Mbit/s"
overhead = "14 B"
delay = "20 ms"
queue = { discipline = "drop-tail", limit = 100 }

[[flow]]
name = "file"
from = "a"
to = "b"
transport = "tcp"
traffic = "file"
size = "5 MB"
tcp = { algorithm = "cubic" }
"""
# Seconds that the file takes by `ringway lab run` of this scenario.
SIMULATED = 4.291


class Line:
    """Two hosts with an emulated link between them."""

    def __init__(self, c, *options):
        self.c, mark = c, c.ports.take()
        self.west, self.middle, self.east = (Space(c, f"{end}-{mark}") for end in ("west", "middle", "east"))
        # No packets of its own.
        self.inside(self.middle, "quiet", ["sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])
        for host, (space, port) in enumerate(((self.west, "west"), (self.east, "east")), 1):
            space.inside("link", "add", "e1", "type", "veth", "peer", "name", port, "netns", self.middle.name)
            self.middle.inside("link", "set", port, "up")
            space.address("e1", f"10.1.0.{host}/24", f"fd01::{host}/64")
        self.env = {"RUNTIME_DIRECTORY": str(c.folder / "run")}
        self.program = self.middle.start(
            "emulate", [binary(), "emulate", "--between", "west", "east", "--json", *options], env=self.env)
        c.until(lambda: self.ask("status", "--json")[0] == 0, 10, lambda: f"no state: {self.program.output()}")

    def inside(self, space, name, argv, seconds=60):
        """Runs a program in a namespace to its end: (status, output)."""
        return self.c.run(name, [*space.enter(), *argv], seconds=seconds)

    def ask(self, *words):
        """Asks the emulation: (status, output)."""
        return self.c.run("ask", [binary(), "emulate", *words], env=self.env)

    def set(self, *words):
        """Changes parameters, which must succeed."""
        status, output = self.ask("set", *words)
        self.c.expect(status == 0, f"set {words}: {output}")

    def ping(self, count, target=EAST, interval=0.02, size=56):
        """Pings: how many were answered, and the median round trip in ms."""
        _, output = self.inside(self.west, "ping", ["ping", "-c", count, "-i", interval, "-W", 3, "-s", size, target])
        times = sorted(float(value) for value in re.findall(r"time=([0-9.]+)", output))
        return len(times), times[len(times) // 2] if times else math.inf

    def transfer(self, size):
        """Seconds that so many octets of TCP took from west to east."""
        receiver = self.east.start("receive", [sys.executable, HERE / "transfer.py", "receive", EAST, PORT, size])
        self.c.expect(receiver.wait_output("listening", 10), f"no receiver: {receiver.output()}")
        status, output = self.inside(
            self.west, "send", [sys.executable, HERE / "transfer.py", "send", EAST, PORT, size])
        self.c.expect(status == 0 and receiver.wait(60) == 0, f"the transfer failed: {output} {receiver.output()}")
        octets, seconds = receiver.output().split()[-2:]
        self.c.expect(int(octets) == size, f"{octets} of {size} octets came")
        return float(seconds)

    def end(self):
        """Ends the emulation as an operator does; returns its last state."""
        self.program.signal(signal.SIGINT)
        self.c.expect(self.program.wait(20) == 0, f"it ended with {self.program.wait(0)}: {self.program.output()}")
        output = self.program.output()
        return json.loads(output[output.index("{\n"):])


def near(c, what, got, low, high):
    """Expects a figure within bounds."""
    c.expect(low <= got <= high, f"{what}: {got}, expected {low} to {high}")


@case("emulate/delay")
def delay(c):
    """A round trip takes twice the delay, over IPv4 and IPv6, and another delay from the moment it is set."""
    line = Line(c, "--delay", "25ms")

    def measured(target, expected):
        answered, median = line.ping(20, target)
        c.expect(answered == 20, f"{answered} of 20 pings of {target} were answered")
        near(c, f"round trip to {target}", median, expected, expected + 10)
    for target in (EAST, "fd01::2"):
        c.attempts(lambda target=target: measured(target, 50))
    line.set("delay", "5ms", "back.delay", "10ms")
    c.attempts(lambda: measured(EAST, 15))
    state = line.end()
    for direction in state["directions"]:
        c.expect(not direction["dropped"] and not direction["lost"], f"packets were lost: {direction}")
        c.expect(direction["error"]["delay"]["p50_us"] < 5_000, f"it is late: {direction['error']}")


@case("emulate/loss")
def loss(c):
    """Of 500 pings so many are lost as 10 % in one direction would, within 4 deviations."""
    line = Line(c)
    line.set("there.loss", "10%")
    answered, _ = line.ping(500, interval=0.004)
    deviation = math.sqrt(500 * 0.1 * 0.9)
    near(c, "lost pings", 500 - answered, 50 - 4 * deviation, 50 + 4 * deviation)
    there, back = line.end()["directions"]
    c.expect(there["dropped"]["random loss"] == there["error"]["loss"]["lost"], f"{there}")
    near(c, "configured loss", there["error"]["loss"]["configured"], 0.09, 0.11)
    c.expect("random loss" not in back["dropped"], f"{back}")


@case("emulate/rate")
def rate(c):
    """TCP through 20 Mbit/s is not faster than that, and not much slower. The kernel hands over packets that stand for
    many, without checksums."""
    line = Line(c, "--rate", "20mbit", "--delay", "5ms", "--queue", "100")
    size = 5_000_000
    seconds = line.transfer(size)
    near(c, "Mbit/s of data", size * 8 / seconds / 1e6, 12, 20.5)
    there = line.end()["directions"][0]
    c.expect(there["received"]["packets"] >= size / 1500, f"packets that stand for many count as one: {there}")
    near(c, "error of the rate in per cent", abs(there["error"]["rate"]["percent"]), 0, 2)
    c.expect(not there["lost"], f"packets were lost: {there['lost']}")


@case("emulate/corrupt")
def corrupt(c):
    """A packet with an inverted bit is dropped by the receiver, also where the sender has left the checksum out: the
    data of TCP comes whole."""
    line = Line(c, "--corrupt", "2%", "--duplicate", "1%", "--reorder", "1%", "--delay", "2ms")
    line.transfer(2_000_000)
    there = line.end()["directions"][0]
    c.expect(there["corrupted"] > 0 and there["copied"] > 0, f"nothing was changed: {there}")


@case("emulate/frames")
def frames(c):
    """Frames with a tag, which the kernel keeps beside them, and fragments are carried; what is longer than the MTU is
    not."""
    line = Line(c, "--delay", "1ms")
    receiver = line.east.start("receive", [sys.executable, HERE / "tagged.py", "receive", "e1"])
    c.expect(receiver.wait_output("listening", 10), f"no receiver: {receiver.output()}")
    line.inside(line.west, "send", [sys.executable, HERE / "tagged.py", "send", "e1"])
    c.expect(receiver.wait_output("tag 5 74", 10), f"the tag is missing: {receiver.output()}")
    c.expect(line.ping(5, size=4_000)[0] == 5, "fragments do not pass")
    line.set("mtu", "500 B")
    c.expect(line.ping(3, size=1_000)[0] == 0, "packets longer than the MTU pass")
    there = line.end()["directions"][0]
    c.expect(there["dropped"]["larger than the MTU"] >= 3, f"{there}")


@case("emulate/interfaces", limit=90)
def interfaces(c):
    """An interface goes down and comes up again, its other end goes down and takes its carrier with it, and its MTU
    changes: that is reported, and pings are answered again each time."""
    line = Line(c, "--delay", "1ms")

    def east():
        return json.loads(line.ask("status", "--json")[1])["interfaces"][1]

    def expect(state):
        c.until(lambda: east()["state"] == state, 10, lambda: f"east is not {state}: {east()}")
        c.expect(f"interface east: {state.replace('-', ' ')}" in line.ask("status")[1], "the state is not shown")
        if state == "up":
            c.attempts(lambda: c.expect(line.ping(5)[0] == 5, "pings are not answered"))
        else:
            c.expect(line.ping(2)[0] == 0, "pings are answered")
    expect("up")
    for _ in range(3):
        line.middle.inside("link", "set", "east", "down")
        expect("down")
        line.middle.inside("link", "set", "east", "up")
        expect("up")
    line.east.inside("link", "set", "e1", "down")
    expect("no-carrier")
    line.east.inside("link", "set", "e1", "up")
    expect("up")
    line.middle.inside("link", "set", "east", "mtu", 1400)
    c.expect(line.program.wait_output("interfaces west and east have different MTUs, 1500 and 1400", 10),
             f"no line: {line.program.output()}")
    state = line.end()
    c.expect([interface["interruptions"] for interface in state["interfaces"]] == [0, 4], f"{state['interfaces']}")
    lost = state["directions"][0]["lost"]
    c.expect(lost.get("interface down", 0) > 0 and lost.get("no carrier", 0) > 0, f"losses have no reason: {lost}")


@case("emulate/scenario", limit=90)
def scenario(c):
    """A file of the laboratory: the same transfer through the emulated link takes as long as there, within 5 %, and the
    log has a line for each decision."""
    file = c.folder / "slow.toml"
    file.write_text(SCENARIO)
    line = Line(c, "--config", file, "--log", c.folder / "log")
    size = 5_000_000

    def measured():
        near(c, "seconds", line.transfer(size), 0.95 * SIMULATED, 1.05 * SIMULATED)
    c.attempts(measured)
    there = line.end()["directions"][0]
    log = (c.folder / "log").read_text().splitlines()
    steps = {step: sum(f" {step}" in text for text in log) for step in ("enqueue", "dequeue", "deliver", "drop")}
    c.expect(steps["enqueue"] == there["received"]["packets"], f"{steps} {there}")
    c.expect(steps["deliver"] == there["sent"]["packets"] + there["in_flight"], f"{steps} {there}")
    c.expect(steps["drop"] == sum(there["dropped"].values()), f"{steps} {there}")


@case("emulate/trace")
def trace(c):
    """A trace of mahimahi: an opportunity a millisecond is 12 Mbit/s."""
    file = c.folder / "trace"
    file.write_text("1\n")
    line = Line(c, "--trace", file, "--queue", "100")
    size = 2_500_000
    near(c, "Mbit/s of data", size * 8 / line.transfer(size) / 1e6, 7, 12)
    line.end()


@case("emulate/command")
def command(c):
    """A command behind a TUN device: it reaches this host, and only through the link."""
    space = Space(c, f"host-{c.ports.take()}")
    status, output = c.run("behind", [
        *space.enter(), binary(), "emulate", "--tun", "emu0", "--delay", "20ms", "--json", "--",
        "sh", "-c", "ping -c 5 -i 0.1 $RINGWAY_HOST && ping -c 1 fd52:5745::1 && ip -o link show up"],
        env={"RUNTIME_DIRECTORY": str(c.folder / "run")})
    c.expect(status == 0, f"the command failed: {output}")
    times = [float(value) for value in re.findall(r"time=([0-9.]+)", output)]
    c.expect(len(times) == 6 and min(times) >= 40, f"round trips of 40 ms expected, got {times}")
    c.expect("emu0-b" in output and "eth" not in output, f"other interfaces are there: {output}")
    status, output = c.run("behind", [*space.enter(), binary(), "emulate", "--tun", "emu0", "--", "false"],
                           env={"RUNTIME_DIRECTORY": str(c.folder / "run")})
    c.expect(status == 1 and "the command has failed" in output, f"{status}: {output}")


@case("emulate/tun")
def tun(c):
    """Two TUN devices, the second moved to another namespace: TCP passes, with packets that stand for many."""
    here, there = (Space(c, f"{end}-{c.ports.take()}") for end in ("here", "there"))
    env = {"RUNTIME_DIRECTORY": str(c.folder / "run")}
    program = here.start("emulate", [binary(), "emulate", "--tun", "emu0", "--delay", "2ms", "--json"], env=env)
    c.until(lambda: c.run("ip", ["ip", "-n", here.name, "link", "show", "emu0-b"])[0] == 0, 10,
            lambda: f"no device: {program.output()}")
    here.inside("link", "set", "emu0-b", "netns", there.name)
    for host, (space, device) in enumerate(((here, "emu0"), (there, "emu0-b")), 1):
        space.address(device, f"10.1.0.{host}/24")
    receiver = there.start("receive", [sys.executable, HERE / "transfer.py", "receive", EAST, PORT, 3_000_000])
    c.expect(receiver.wait_output("listening", 10), f"no receiver: {receiver.output()}")
    status, output = c.run("send", [*here.enter(), sys.executable, HERE / "transfer.py", "send", EAST, PORT, 3_000_000])
    c.expect(status == 0 and receiver.wait(60) == 0, f"the transfer failed: {output} {receiver.output()}")
    c.expect(receiver.output().split()[-2] == "3000000", f"{receiver.output()}")
    program.signal(signal.SIGTERM)
    c.expect(program.wait(20) == 0, f"{program.output()}")
