"""What the checks of DCCP share: both peers, Linux's own in a small machine, and what tshark says of a capture."""

import os
import re
import subprocess
from pathlib import Path

from cases import Failed
from guest import Guest
from network import Space, words
from sctp import summary
from server import binary as ringway

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# Wireshark's severity of errors.
ERROR = 0x00800000
PORT = 5000


def ours():
    """Our peer, as `cargo build --profile quick` leaves it."""
    path = TARGET / "quick" / "ringway-dccp-peer"
    if not path.exists():
        raise Failed(f"no program at {path}: run cargo build --profile quick -p ringway-dccp-peer")
    return path


def theirs():
    """The peer that uses Linux's own, compiled unless it is newer than its source."""
    source, program = ROOT / "interop" / "dccp" / "peer.c", TARGET / "interop-c" / "dccp" / "peer"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_suffix(f".{os.getpid()}")
    done = subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", partial, source],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"cc: {done.stderr}")
    partial.rename(program)
    return program


def examine(c, file, least):
    """The third eye: tshark must find nothing malformed and every checksum right. Gives the types of packets it saw,
    each with its options."""
    fields = ["frame.number", "dccp.type", "dccp.checksum.status", "_ws.malformed", "_ws.expert.severity",
              "dccp.option_unknown", "dccp.option_reserved", "dccp.option_type"]
    shown = [word for name in fields for word in ("-e", name)]
    command = ["tshark", "-n", "-r", file, "-o", "dccp.check_checksum:TRUE", "-Y", "dccp && !icmp && !icmpv6",
               "-T", "fields", *shown]
    status, told = c.run("tshark", command, seconds=120)
    c.expect(status == 0, f"tshark: {told[-500:]}")
    # Run by root it also says that it is.
    rows = [line.split("\t") for line in told.splitlines() if re.match(r"\d+\t", line)]
    wrong = [row for row in rows if row[2] != "1" or row[3] or row[5] or row[6]
             or any(int(word) >= ERROR for word in row[4].split(",") if word)]
    c.expect(len(rows) >= least, f"tshark saw {len(rows)} packets, fewer than {least}")
    c.expect(not wrong, f"{len(wrong)} of {len(rows)} packets are faulty: {wrong[:3]}")
    return [(row[1], set(row[7].split(",")) if len(row) > 7 else set()) for row in rows]


class Linux(Guest):
    """Linux's own DCCP in a small machine, ours in a network namespace, between them a cable or an emulated link."""

    def __init__(self, c, *link):
        self.space = Space(c, "ours")
        # Where the machine's card is.
        side = Space(c, "link") if link else self.space
        super().__init__(c, [theirs()])
        if link:
            self.emulate(side, link)
        else:
            side.tap(1)
        self.end_capture, self.file = side.capture("tap1", wanted="ip proto 33 or ip6 proto 33")
        self.machine.start([("tap1", "10.1.0.2/24", "fd01::2/64")], side.name)

    def emulate(self, side, link):
        """Puts an emulated link between our namespace and the machine's card."""
        self.c.run("quiet", [*side.enter(), "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])
        self.space.inside("link", "add", "e1", "type", "veth", "peer", "name", "west", "netns", side.name)
        side.inside("link", "set", "west", "up")
        side.inside("tuntap", "add", "dev", "tap1", "mode", "tap")
        side.inside("link", "set", "tap1", "up")
        self.space.address("e1", "10.1.0.1/24", "fd01::1/64")
        env = {"RUNTIME_DIRECTORY": str(self.c.folder / "run")}
        started = side.start("emulate", [ringway(), "emulate", "--between", "west", "tap1", "--json", *link], env=env)
        ask = [ringway(), "emulate", "status", "--json"]
        self.c.until(lambda: self.c.run("ask", ask, env=env)[0] == 0, 10, lambda: f"no link: {started.output()}")

    def examine(self, least=20):
        """What tshark says of all that passed."""
        self.end_capture()
        return examine(self.c, self.file, least)

    def meet(self, opened_by_us, mine=None, its=None, six=False, status=0):
        """One connection, opened by us or by Linux, to the end of both; the summaries, ours first."""
        us, them = ("fd01::1", "fd01::2") if six else ("10.1.0.1", "10.1.0.2")
        mine, its = {"local": us, "limit": 60, **(mine or {})}, {"local": them, "limit": 60, **(its or {})}
        name = f"ours-{self.count + 1}"
        port = PORT + self.count
        if opened_by_us:
            file = self.start(**{"listen": True, "port": port, **its})
            at = f"[{them}]:{port}" if six else f"{them}:{port}"
            peer = self.space.start(name, [ours(), *words({"connect": at, **mine})])
        else:
            peer = self.space.start(name, [ours(), *words({"port": port, **mine})])
            self.c.expect(peer.wait_output("listening", 20), f"ours: {peer.output()}")
            file = self.start(**{"connect": us, "to_port": port, **its})
        ended = peer.wait(100)
        self.c.expect(ended == status, f"ours ended with {ended}: {peer.output()[-3000:]}")
        return summary(peer.output()), summary(self.printed(file))
