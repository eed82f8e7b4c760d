"""What the checks of SCTP share: its programs, a bad link, Linux's own, and what tshark says of a capture."""

import json
import os
import re
import subprocess
from pathlib import Path

from cases import Failed
from guest import Guest
from network import Space, case, words  # noqa: F401 a case is declared as `sctp.case`

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "interop" / "sctp"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# What a program in C is linked with.
LIBRARIES = {"usrsctp": ["-lusrsctp", "-lpthread"], "peer": ["-static", "-lsctp"]}


def ringway():
    """Our side, as `cargo build --profile quick` leaves it, or as `SCTP_PEERS` names it."""
    path = Path(os.environ.get("SCTP_PEERS", TARGET / "quick" / "ringway-sctp-peers"))
    if not path.exists():
        raise Failed(f"no program at {path}: run cargo build --profile quick -p ringway-sctp-peers")
    return path


# Debian's Go, and where it keeps libraries: nothing is fetched.
GO = ["/usr/bin/go", "build", "-trimpath"]
GO_SETTINGS = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "", "GOTOOLCHAIN": "local",
               "GOCACHE": str(TARGET / "interop-c" / "go")}


def built(name):
    """A program of this folder's in C or Go, compiled unless it is newer than its source."""
    program = TARGET / "interop-c" / name
    source = next(SOURCES / file for file in (f"{name}.c", f"{name}.go") if (SOURCES / file).exists())
    if program.exists() and all(program.stat().st_mtime > one.stat().st_mtime for one in (source, SOURCES / "peer.h")):
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    partial = program.with_suffix(f".{os.getpid()}")
    command = [*GO, "-o", partial, source] if source.suffix == ".go" else [
        "cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", partial, source, *LIBRARIES[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **GO_SETTINGS})
    if done.returncode != 0:
        raise Failed(f"{command[0]}: {done.stderr}")
    partial.rename(program)
    return program


def summary(output):
    """The NAME=VALUE words of the last line."""
    lines = [line for line in output.strip().splitlines() if " ended=" in line]
    if not lines:
        raise Failed(f"no summary: {output}")
    return dict(word.split("=", 1) for word in lines[-1].split() if "=" in word)


def finish(c, process, seconds=60):
    """Waits for a peer that must end well; its summary."""
    status = process.wait(seconds)
    c.expect(status == 0, f"{process.name} ended with {status}: {process.output()}")
    return summary(process.output())


def examine(c, file, udp=None, least=20):
    """The third eye: tshark must find nothing malformed and every checksum right. Gives how many packets it saw."""
    decode = ["-d", f"udp.port=={udp},sctp"] if udp else []
    status, told = c.run("tshark", [
        "tshark", "-n", "-r", file, *decode, "-o", "sctp.checksum:CRC 32c", "-T", "fields",
        "-e", "frame.number", "-e", "sctp.checksum.status", "-e", "_ws.malformed", "-e", "_ws.expert.severity",
        "-e", "_ws.expert.message",
        "-Y", "sctp"], seconds=120)
    c.expect(status == 0, f"tshark: {told[-500:]}")
    rows = [line.split("\t") for line in told.splitlines() if re.match(r"\d+\t", line)]
    wrong = [row for row in rows if set(row[1].split(",")) != {"1"} or row[2]
             or any(int(word) >= ERROR for word in row[3].split(",") if word)]
    c.expect(len(rows) >= least, f"tshark saw {len(rows)} packets, fewer than {least}")
    c.expect(not wrong, f"tshark finds fault with {len(wrong)} of {len(rows)} packets: {wrong[:3]}")
    return len(rows)


# Wireshark's severity of errors.
ERROR = 0x00800000
# Types of chunks.
DATA, ABORT, ERROR_CHUNK, AUTH, I_DATA, RE_CONFIG, FORWARD_TSN, ASCONF = 0, 6, 9, 15, 64, 130, 192, 193
# For a SIPp that answers and may be slow: a request that comes again, over UDP, before it has ends no call.
PATIENT = "-default_behaviors all,-abortunexp"
# What a program that draws on a terminal wants to know of it.
TERMINAL = "/lib/terminfo/l/linux"


def chunks(c, file, udp=None):
    """The types of chunks that were captured."""
    decode = ["-d", f"udp.port=={udp},sctp"] if udp else []
    _, told = c.run("tshark", ["tshark", "-n", "-r", file, *decode, "-T", "fields", "-e", "sctp.chunk_type",
                               "-Y", "sctp"], seconds=60)
    return {int(word) for line in told.splitlines() for word in line.split(",") if word.isdigit()}


def count(c, file, wanted, udp=None):
    """How many captured packets tshark's filter picks."""
    decode = ["-d", f"udp.port=={udp},sctp"] if udp else []
    _, told = c.run("tshark", ["tshark", "-n", "-r", file, *decode, "-T", "fields", "-e", "frame.number", "-Y", wanted],
                    seconds=60)
    return sum(line.isdigit() for line in told.splitlines())


def fields(c, file, wanted, *names, udp=None):
    """Of the captured packets that tshark's filter picks, these fields, a list for each packet."""
    decode = ["-d", f"udp.port=={udp},sctp"] if udp else []
    _, told = c.run("tshark", ["tshark", "-n", "-r", file, *decode, "-Y", wanted, "-T", "fields", "-e", "frame.number",
                               *(word for name in names for word in ("-e", name))], seconds=60)
    rows = (line.split("\t") for line in told.splitlines())
    return [row[1:] for row in rows if row[0].isdigit()]


class Relay:
    """A bad link between two UDP ports: clients write to `near`, and it writes to the server from `far`."""

    def __init__(self, c, server, link, capture=False, rebind=None):
        self.near, self.far = c.ports.take(), c.ports.take()
        name = f"relay-{self.near}"
        self.file = c.folder / f"{name}.pcapng"
        options = {"listen": f"127.0.0.1:{self.near}", "from": f"127.0.0.1:{self.far}",
                   "server": f"127.0.0.1:{server}", "link": json.dumps(link)}
        if capture:
            options["capture"] = self.file
        if rebind:
            options["rebind"] = rebind
        self.c = c
        self.process = c.start(name, [ringway(), "relay", *words(options)])
        c.expect(self.process.wait_output("relaying", 10), f"no relay: {self.process.output()}")

    def finish(self):
        """Ends it; gives how many packets it dropped."""
        self.process.popen.terminate()
        self.c.expect(self.process.wait(10) == 0, f"relay: {self.process.output()}")
        return int(self.process.output().split("dropped=")[1].split()[0])


class Linux(Guest):
    """Linux's own SCTP in a small machine, with a card in each of the numbered networks."""

    def __init__(self, c, networks=(1,), programs=(), files=(), copies=(), features="", udp=None):
        self.networks = networks
        self.space = Space(c, "linux")
        for number in networks:
            self.space.tap(number)
        super().__init__(c, [built("peer"), *programs], files=files, copies=copies)
        self.features, self.udp = features, udp
        self.captures = [self.space.capture(f"tap{number}", udp) for number in networks]
        self.boot()

    def boot(self):
        """Starts the machine, for the first time or after it was stopped."""
        cards = [(f"tap{n}", f"10.{n}.0.2/24", f"fd0{n}::2/64") for n in self.networks]
        self.machine.start(cards, self.space.name, self.features)

    def examine(self):
        """What tshark says of all that passed; the types of chunks there were."""
        kinds = set()
        for end, file in self.captures:
            end()
            examine(self.c, file, self.udp)
            kinds |= chunks(self.c, file, self.udp)
        return kinds

    def addresses(self, host, six=False):
        """Those of the host (1) or the machine (2) in all networks."""
        return [f"fd0{n}::{host}" if six else f"10.{n}.0.{host}" for n in self.networks]

    def allow(self, *extensions):
        """Has the machine's SCTP offer what it does not by itself."""
        self.run(" && ".join(f"echo 1 >/proc/sys/net/sctp/{name}" for name in extensions))

    def finish(self, file, seconds=60):
        """Waits for the peer that prints there; its summary."""
        text = self.printed(file, seconds)
        told = summary(text)
        self.c.expect(int(told["wrong"]) == 0, f"the machine's peer: {text}")
        return told
