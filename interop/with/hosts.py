"""Two hosts with two links between them, whose programs run with services, and what passed over the links."""

import json
import re
import shutil
import tempfile
from pathlib import Path

from network import Space
from server import binary

NEAR, FAR = "10.1.0.1", "10.1.0.2"
LIBRARY = "libringway_with.so"


class Hosts:
    """A client and a server, each in a namespace, joined by `e1` and `e2`."""

    def __init__(self, c):
        self.c, mark = c, c.ports.take()
        self.near, self.far = (Space(c, f"{end}-{mark}") for end in ("near", "far"))
        for number in (1, 2):
            self.near.join(self.far, number)
        # The kernel takes up to a second to report that a link works.
        for space in (self.near, self.far):
            c.until(lambda space=space: self.links(space) == 2, 10, "the links do not come up")
        self._captures = []
        for number in (1, 2):
            file = c.folder / f"e{number}.pcapng"
            started = self.near.start(f"dumpcap-{number}", [
                "dumpcap", "-q", "-i", f"e{number}", "-w", file, "-s", "120", "-f", "tcp or sctp or udp"])
            c.expect(started.wait_output("File:", 10), f"no capture: {started.output()}")
            self._captures.append((started, file))

    @staticmethod
    def words(services, argv, program=None):
        """The command that runs a program with services."""
        return [program or binary(), "with", "--explain", *services, "--", *argv]

    def serve(self, name, argv, services=("multihoming",), **options):
        """Starts a server with services."""
        env = {"XDG_STATE_HOME": str(self.c.folder / "far"), **options.pop("env", {})}
        return self.far.start(name, self.words(services, argv), env=env, **options)

    def start(self, name, argv, services=("multihoming",), **options):
        """Starts a client with services."""
        return self.near.start(name, self.words(services, argv), env=self.env(), **options)

    def links(self, space):
        """The number of links that work."""
        return self.c.run("ip", ["ip", "-n", space.name, "-o", "link", "show", "up"])[1].count("state UP")

    def run(self, name, argv, services=("multihoming",), seconds=60, stdin=None):
        """Runs a client with services to its end, which must be a success; what it and the command printed."""
        status, output = self.c.run(
            name, [*self.near.enter(), *self.words(services, argv)], seconds=seconds, env=self.env(), stdin=stdin)
        self.c.expect(status == 0, f"{name} ended with {status}: {output[-2000:]}")
        return output

    def env(self):
        """The environment of clients."""
        return {"XDG_STATE_HOME": str(self.c.folder / "near")}

    def listens(self, port):
        """Waits until something listens at a port of the server."""
        def there():
            return f":{port} " in self.c.run("ss", [*self.far.enter(), "ss", "-tlnH"])[1]
        self.c.until(there, 15, f"nothing listens at port {port}")

    def pull(self):
        """Takes the first link away."""
        self.near.inside("link", "set", "e1", "down")

    def captures(self):
        """What captures the packets of each link, and its file."""
        return self._captures

    def expect_sctp(self, least=20):
        """Ends the captures: SCTP carried all, over both links or as many as there are, and TCP no octet."""
        self.c.sleep(0.5)
        data = []
        for started, file in self._captures:
            started.end()
            data.append({what: self.packets(file, what) for what in ("tcp.len > 0", "sctp", "udp")})
        self.c.expect(not any(one["tcp.len > 0"] for one in data), f"TCP carried data: {data}")
        carried = sum(one["sctp"] + one["udp"] for one in data)
        self.c.expect(carried >= least, f"SCTP carried {carried} packets, fewer than {least}: {data}")
        return data

    def packets(self, file, what):
        """The number of packets in a capture that a filter shows."""
        _, output = self.c.run("tshark", ["tshark", "-n", "-r", file, "-Y", what, "-T", "fields", "-e", "frame.number"],
                               seconds=120)
        return sum(bool(re.fullmatch(r"\d+", line)) for line in output.splitlines())


def explained(output):
    """The lines of the command about connections."""
    return [line.removeprefix("ringway: ") for line in output.splitlines() if line.startswith("ringway: ")]


def expect_over(c, output, title="SCTP"):
    """Expects that every connection was carried so."""
    lines = [line for line in explained(output) if line.startswith(("to ", "from "))]
    c.expect(lines and all(f"by {title}" in line for line in lines), f"expected {title} in each of {lines}")
    return lines


def for_all(c):
    """A folder that all users reach, with the command and its library; it ends with the case."""
    folder = Path(tempfile.mkdtemp(prefix="rw-with-"))
    c.after(lambda: shutil.rmtree(folder, ignore_errors=True))
    folder.chmod(0o755)
    for file in (binary(), binary().parent / LIBRARY):
        shutil.copy2(file, folder)
    return folder


def parsed(output):
    """The JSON in what was printed."""
    return json.loads(output[output.index("{\n"):output.rindex("}") + 1])
